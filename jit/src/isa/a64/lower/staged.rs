//! What the two passes over a block of keys do beside a lookup: one prefetches the staged row, the other reads its index.

use pktjit_ir::program::Inst as Ir;

use super::Lowering;
use crate::isa::a64::abi::RESULT_IN_BLOCK;
use crate::isa::a64::immediate::is_mask;
use crate::isa::a64::inst::{Alu, Cond, Inst, Operand, Size, Width};
use crate::isa::staged::lines;

/// The largest displacement of a prefetch.
const MOST_DISP: u32 = 255;

/// Passes.
impl Lowering<'_> {
    /// Asks for the lines of the staged row that begin as far from it as the instruction can say.
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
        for disp in lines(row_bytes).take_while(|&disp| disp <= MOST_DISP) {
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
