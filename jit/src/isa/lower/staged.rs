//! What the two passes over a block of keys do beside a lookup: one prefetches the staged row, the other reads its
//! index.

use pktjit_ir::program::Inst as Ir;

use super::{Lowering, Machine};

/// Bytes of a cache line.
const LINE: u32 = 64;

/// Passes.
impl<I: Machine> Lowering<'_, I> {
    /// Asks for the first line of the staged row, and the second one where the row may reach into it; tables start at
    /// lines.
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
        let second = (!LINE.is_multiple_of(row_bytes)).then(|| LINE.min(row_bytes - 1));
        I::prefetch(self, place, [0].into_iter().chain(second), table);
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
