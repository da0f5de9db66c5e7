//! Rules 12 to 15: what a table is, that its columns hold no more than they say, how much scratch there may be, and what may
//! be staged.

use super::facts::low_bits;
use super::{Fault, MAX_SCRATCH, MAX_TABLE_BYTES, Verifier};
use crate::entity::{TableId, ValueId};
use crate::program::{Column, Inst, MISS, Table};

impl Verifier<'_> {
    pub(super) fn tables(&mut self) {
        for (i, table) in self.program.tables.iter().enumerate() {
            let id = TableId::new(i as u32);
            let (row_bytes, bytes) = (table.row_bytes as usize, table.data.len());
            if row_bytes == 0
                || bytes == 0
                || !bytes.is_multiple_of(row_bytes)
                || bytes as u64 > MAX_TABLE_BYTES
            {
                fault!(
                    self,
                    "{id}: {bytes} bytes are not 1 to 2^32 bytes of whole rows of {row_bytes}"
                );
                continue;
            }
            if table.columns.is_empty() || table.columns.len() > 256 {
                fault!(self, "{id}: {} columns, not 1 to 256", table.columns.len());
                continue;
            }
            let mut taken = vec![false; row_bytes];
            for column in &table.columns {
                let width = u64::from(column.bytes);
                let (start, size) = (u64::from(column.offset), width * u64::from(column.count));
                if !matches!(width, 1 | 2 | 4 | 8)
                    || size == 0
                    || start % width.max(1) != 0
                    || start + size > row_bytes as u64
                {
                    fault!(
                        self,
                        "{id}: column `{}` does not lie aligned inside the row",
                        column.name
                    );
                    continue;
                }
                let taken = &mut taken[start as usize..(start + size) as usize];
                if taken.contains(&true) {
                    fault!(self, "{id}: column `{}` overlaps another", column.name);
                }
                taken.fill(true);
                self.column(id, table, column);
            }
        }
    }

    pub(super) fn scratch(&mut self) {
        let scratch = self.program.scratch;
        if scratch > MAX_SCRATCH {
            fault!(self, "{scratch} numbers of scratch, above {MAX_SCRATCH}");
        }
    }

    pub(super) fn staged(&mut self) {
        let Some(row) = self.program.staged else {
            return;
        };
        let entry = self.program.blocks.first();
        let is_row =
            |(value, inst): &(ValueId, Inst)| *value == row && matches!(inst, Inst::Row { .. });
        if !entry.is_some_and(|entry| entry.insts.iter().any(is_row)) {
            fault!(self, "{row} is staged and no row of block0");
        }
        if self.program.scratch > 0 {
            fault!(self, "{row} is staged in a program with scratch");
        }
    }

    /// Compares the numbers of a column with what it promises; one report is enough.
    fn column(&mut self, id: TableId, table: &Table, column: &Column) {
        let type_max = low_bits(8 * u32::from(column.bytes));
        if column.max >= type_max && !column.is_result {
            return;
        }
        let verdicts = u64::from(self.program.verdicts);
        for row in 0..table.rows() {
            for index in 0..column.count as usize {
                let number = table.get(row, column, index).unwrap_or(u64::MAX);
                let name = &column.name;
                if number > column.max {
                    let max = column.max;
                    fault!(
                        self,
                        "{id}: row {row}, column `{name}` holds {number}, above its maximum {max}"
                    );
                    return;
                }
                if column.is_result && number >= verdicts && number != u64::from(MISS) {
                    fault!(
                        self,
                        "{id}: row {row}, column `{name}` holds {number}, no row of {verdicts}"
                    );
                    return;
                }
            }
        }
    }
}
