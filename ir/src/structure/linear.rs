//! `linear`: blocks of rules, one vector of lanes each, compared one block after the other in a bounded loop.
//!
//! It holds everything and needs no index, so it is what is left where nothing else fits, and what `bucket` and `peel`
//! do with the rules that are too wide for their indexes. Every block is compared for every key: leaving the loop at the
//! first match would make the time depend on the traffic. A running minimum of the matching row numbers, lane by lane,
//! finds the winner, so rules may lie in any order.

use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::program::{Inst, MISS, Program, Terminator, Type};
use crate::structure::compare::{Comparison, Splats, result_column};
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::TableWriter;
use crate::verify::{MAX_STEPS, MAX_TRIPS};

/// Blocks of some rules of a rule set.
pub(crate) struct Blocks {
    comparison: Comparison,
    rows: Vec<u32>,
}

impl Blocks {
    /// Blocks for the rules of these rows, at least one.
    pub(crate) fn prepare(input: &Input<'_>, rows: &[u32]) -> Result<Self, Refusal> {
        let comparison = if rows.len() == input.rows.len() {
            input.comparison().clone()
        } else {
            Comparison::new(input.layout(), rows.iter().map(|&row| input.rule(row)))
        };
        let blocks = rows.len().div_ceil(input.machine.lanes.into()) as u64;
        let steps = blocks.saturating_mul((4.0 * comparison.block_instructions()) as u64);
        if blocks > u64::from(MAX_TRIPS) || steps > MAX_STEPS {
            return Err(Refusal::TooLong {
                steps,
                max: MAX_STEPS,
            });
        }
        Ok(Self {
            comparison,
            rows: rows.to_vec(),
        })
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        let lanes = f64::from(input.machine.lanes);
        let blocks = (self.rows.len() as f64 / lanes).ceil();
        let row_bytes = f64::from(self.comparison.column_count() + 1) * lanes * 4.0;
        let tests = self.comparison.block_cost(&input.machine).instructions;
        let cost = Cost {
            // Address, four for the masked minimum, four for the loop; the horizontal minimum at the end.
            instructions: blocks * (tests + 9.0) + 12.0,
            dependent_loads: 0.0,
            // Streamed in order: a quarter of the lines of a random access.
            lines: blocks * row_bytes / 64.0 / 4.0,
            table_bytes: (blocks * row_bytes) as usize,
        };
        self.comparison.key_cost(blocks) + cost
    }

    /// Emits the loop; yields the row found, or `MISS`. Ends the current block and leaves another one current.
    pub(crate) fn emit(
        &self,
        input: &Input<'_>,
        b: &mut ProgramBuilder,
        splats: &mut Splats,
        name: &str,
    ) -> ValueId {
        let lanes = input.machine.lanes;
        let trips = self.rows.len().div_ceil(lanes.into());
        let mut columns = self.comparison.columns(lanes.into());
        columns.push(result_column(
            self.comparison.column_count(),
            lanes.into(),
            lanes.into(),
        ));
        let mut table = TableWriter::new(name, columns, trips);
        let mut numbers = Vec::new();
        for (i, &row) in self.rows.iter().enumerate() {
            numbers.clear();
            self.comparison.numbers(input.rule(row), &mut numbers);
            numbers.push(row);
            table.set_lane(i / usize::from(lanes), i % usize::from(lanes), &numbers);
        }
        let table = b.table(table.finish());

        if self.comparison.keeps_words() {
            self.comparison.splat_all(b, lanes, splats);
        }
        let miss = b.constant(MISS.into());
        let none = b.splat(miss, lanes);
        let zero = b.constant(0);
        let (head, params) = b.loop_head(trips as u32, &[Type::Lanes(lanes)]);
        let (exit, exit_params) = b.block(&[Type::Lanes(lanes)]);
        b.terminate(Terminator::Jump {
            to: head,
            args: vec![zero, none],
        });

        b.switch_to(head);
        let row = b.row(table, params[0]);
        let best = self
            .comparison
            .emit_min(b, (row, 0), lanes, splats, params[1]);
        b.terminate(Terminator::Repeat {
            head,
            args: vec![best],
            exit,
            exit_args: vec![best],
        });

        b.switch_to(exit);
        let found = b.inst(Inst::HorizontalMin { a: exit_params[0] });
        let differing = self.comparison.emit_common(b);
        Comparison::emit_unless_differing(b, differing, found, MISS.into())
    }
}

#[cfg(test)]
impl Blocks {
    /// The rows of the rules that are compared.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }
}

/// All rules in blocks.
pub(crate) struct Linear {
    blocks: Option<Blocks>,
}

impl Linear {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        let blocks = if input.rows.is_empty() {
            None
        } else {
            Some(Blocks::prepare(input, &input.rows)?)
        };
        Ok(Self { blocks })
    }

    /// What a lookup costs at least: one test of each block.
    pub(crate) fn floor(input: &Input<'_>) -> Cost {
        let blocks = input.rows.len() as f64 / f64::from(input.machine.lanes);
        Cost {
            instructions: 9.0 * blocks,
            ..Cost::default()
        }
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        self.blocks
            .as_ref()
            .map_or(Cost::default(), |blocks| blocks.cost(input))
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        let Some(blocks) = &self.blocks else {
            return empty(input);
        };
        let mut b = input.program();
        let found = blocks.emit(input, &mut b, &mut Splats::default(), "rules");
        input.finish(b, found)
    }
}
