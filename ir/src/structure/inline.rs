//! `inline`: every rule is compared with every key, all at once, against constants that lie behind the code.
//!
//! ```text
//! row 0:  saddr lo   |10.0.0.1|10.0.0.9|...|   one lane a rule, the strongest first
//!         saddr len  |       3|       0|...|
//!         ...
//!         row        |       0|       1|...| MISS |
//! ```
//!
//! The masks of all vectors together are one scalar with bit i for rule i. The bit after the last rule is always set, so
//! that the position of the first bit is either a rule or the number that stands for a miss: no branch, no compare.
//! Only the row number waits for a load, so this is the fastest structure while the rules are few; its cost grows with
//! their number.

use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::program::Program;
use crate::structure::compare::{Comparison, LaneRules, Splats, result_column};
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::TableWriter;

/// Most rules: one bit of a scalar each, and one for the miss.
pub(crate) const MAX_RULES: usize = 63;

/// Rules that are compared with every key.
pub(crate) struct Inline {
    comparison: Comparison,
    rows: Vec<u32>,
}

impl Inline {
    /// All rules.
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        if input.rows.len() > MAX_RULES {
            return Err(Refusal::TooManyRules {
                rules: input.rows.len(),
                max: MAX_RULES,
            });
        }
        Ok(Self::of(input, input.rows.clone()))
    }

    /// The rules of some rows, the strongest first, at most [`MAX_RULES`].
    pub(crate) fn of(input: &Input<'_>, rows: Vec<u32>) -> Self {
        let comparison = Comparison::new(input.layout(), rows.iter().map(|&row| input.rule(row)));
        Self { comparison, rows }
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        if self.rows.is_empty() {
            return Cost::default();
        }
        let lanes = f64::from(input.machine.lanes);
        let blocks = (self.rows.len() as f64 / lanes).ceil();
        let row_bytes = f64::from(self.comparison.column_count() + 1) * blocks * lanes * 4.0;
        let compare = Cost {
            instructions: blocks * (self.comparison.block_cost(&input.machine).instructions + 3.0)
                + 5.0,
            // The row number, after the comparisons.
            dependent_loads: 1.0,
            // Streamed in order: a quarter of the lines of a random access.
            lines: row_bytes / 64.0 / 4.0,
            table_bytes: row_bytes as usize,
        };
        self.comparison.key_cost(blocks) + compare
    }

    /// Emits the comparison; yields the row found, or `MISS`.
    pub(crate) fn emit(
        &self,
        input: &Input<'_>,
        b: &mut ProgramBuilder,
        splats: &mut Splats,
        name: &str,
    ) -> ValueId {
        let lanes = input.machine.lanes;
        let count = self.rows.len() as u32;
        let capacity = count.next_multiple_of(lanes.into());
        let mut columns = self.comparison.columns(capacity);
        columns.push(result_column(
            self.comparison.column_count(),
            capacity,
            count + 1,
        ));
        let mut table = TableWriter::new(name, columns, 1);
        let mut numbers = Vec::new();
        for (lane, &row) in self.rows.iter().enumerate() {
            numbers.clear();
            self.comparison.numbers(input.rule(row), &mut numbers);
            numbers.push(row);
            table.set_lane(0, lane, &numbers);
        }
        let table = b.table(table.finish());
        let differing = self.comparison.emit_common(b);
        let zero = b.constant(0);
        let row = b.row(table, zero);
        let rules = LaneRules {
            row,
            capacity,
            none: count,
            lanes,
        };
        self.comparison.emit_first(b, differing, &rules, splats)
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        if self.rows.is_empty() {
            return empty(input);
        }
        let mut b = input.program();
        let found = self.emit(input, &mut b, &mut Splats::default(), "rules");
        input.finish(b, found)
    }
}
