//! What the two passes over a block of keys do beside a lookup: one prefetches the staged row, the other reads its index.

use pktjit_ir::program::Inst as Ir;

use super::Lowering;
use crate::isa::a64::abi::RESULT_IN_BLOCK;
use crate::isa::a64::immediate::is_mask;
use crate::isa::a64::inst::{Alu, Cond, Inst, Operand, Size, Width};

/// Bytes of a cache line.
const LINE: u32 = 64;

/// Passes.
impl Lowering<'_> {
    /// Asks for the first line of the staged row, and the second one where the row may reach into it; tables start at lines.
    pub(super) fn prefetch(&mut self) {
        let Some(row) = self.program.staged else {
            return;
        };
        let Some(&Ir::Row { table, index }) = self.uses.inst(row) else {
            return;
        };
        self.line.note = "prefetch";
        let row_bytes = self.program.tables[table.index()].row_bytes;
        let place = self.row(row, table, index);
        let base = self.place_register(place);
        self.push_reading(Inst::Prefetch { base, disp: 0 }, Some(table));
        if !LINE.is_multiple_of(row_bytes) {
            let disp = LINE.min(row_bytes - 1);
            self.push_reading(Inst::Prefetch { base, disp }, Some(table));
        }
    }

    /// Reads the index of the staged row, the parameter of the first block, from where the result will be. Others may have
    /// written there, so its bound is enforced.
    pub(super) fn staged_index(&mut self) {
        let Some(&(index, _)) = self.program.blocks[0].params.first() else {
            return;
        };
        self.line.note = "staged index";
        let (dst, read, size) = (self.reg(index), self.general(), Size::S32);
        self.push(Inst::Load {
            dst: read,
            address: RESULT_IN_BLOCK,
            width: Width::B4,
        });
        let max = self.max(index);
        if (max + 1).is_power_of_two() && is_mask(max, size) {
            self.push(Inst::Alu {
                op: Alu::And,
                size,
                dst,
                a: read,
                b: Operand::Imm(max),
            });
        } else {
            let b = self.set(max);
            self.push(Inst::Cmp {
                size,
                a: read,
                b: Operand::Reg(b),
            });
            self.push(Inst::Select {
                cond: Cond::Below,
                size,
                dst,
                a: read,
                b,
            });
        }
    }
}
