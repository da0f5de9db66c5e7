//! What the two passes over a block of keys do beside a lookup: one prefetches the staged row, the other reads its index.

use pktjit_ir::program::Inst as Ir;

use super::Lowering;
use crate::isa::staged::lines;
use crate::isa::x64::inst::{Alu, Cond, Inst, Size, Source, Width};
use crate::isa::x64::staged::RESULT;

/// Passes.
impl Lowering<'_> {
    /// Asks for the lines of the staged row.
    pub(super) fn prefetch(&mut self) {
        let Some(row) = self.program.staged else {
            return;
        };
        let Some(&Ir::Row { table, index }) = self.uses.inst(row) else {
            return;
        };
        self.line.note = "prefetch";
        let row_bytes = self.program.tables[table.index()].row_bytes;
        let first = self.row(row, table, index);
        for address in lines(row_bytes).filter_map(|at| first.plus(at.into())) {
            self.push_reading(Inst::Prefetch { address }, Some(table));
        }
    }

    /// Reads the index of the staged row, the parameter of the first block, from where the result will be. Others may have
    /// written there, so its bound is enforced.
    pub(super) fn staged_index(&mut self) {
        let Some(&(index, _)) = self.program.blocks[0].params.first() else {
            return;
        };
        self.line.note = "staged index";
        let (dst, size) = (self.reg(index), Size::S32);
        self.push(Inst::Load {
            dst,
            address: RESULT,
            width: Width::B4,
        });
        let max = self.max(index);
        if (max + 1).is_power_of_two()
            && let Some(mask) = size.immediate(max)
        {
            let (op, src) = (Alu::And, Source::Imm(mask));
            self.push(Inst::Alu { op, size, dst, src });
        } else {
            let src = self.set(max);
            let b = Source::Reg(src);
            self.push(Inst::Cmp { size, a: dst, b });
            let cond = Cond::Above;
            self.push(Inst::Cmov {
                cond,
                size,
                dst,
                src,
            });
        }
    }
}
