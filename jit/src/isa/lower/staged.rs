//! What the two passes over a block of keys do beside a lookup: one prefetches the staged row, the other reads its
//! index.

use pktjit_ir::program::Inst as Ir;

use super::{Lowering, Machine};
use crate::isa::staged::lines;

/// Passes.
impl<I: Machine> Lowering<'_, I> {
    /// Asks for the lines of the staged row.
    pub(super) fn prefetch(&mut self) {
        let Some(row) = self.program.staged else {
            return;
        };
        let Some(&Ir::Row { table, index }) = self.uses.inst(row) else {
            return;
        };
        self.line.note = "prefetch";
        let row_bytes = self.table(table).row_bytes;
        let place = I::row(self, row, table, index);
        I::prefetch(self, place, lines(row_bytes), table);
    }

    /// Reads the index of the staged row, the parameter of the first block, from where the result will be. Others may
    /// have written there, so its bound is enforced.
    pub(super) fn staged_index(&mut self) {
        let Some(&(index, _)) = self.program.blocks[0].params.first() else {
            return;
        };
        self.line.note = "staged index";
        let to = self.reg(index);
        I::staged_index(self, to, self.max(index));
    }
}
