//! The code and the tables of `peel`, and what they cost.

use std::rc::Rc;

use super::Rest;
use super::group::Group;
use super::leaves::Leaves;
use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::plan::{Machine, Pext};
use crate::program::{BinaryOp, Column, Inst, MISS, Program, Table};
use crate::structure::bits::Index;
use crate::structure::compare::{Comparison, Splats, result_column};
use crate::structure::{Cost, Input};
use crate::table::{TableWriter, flat};

/// Ways to leaves that are computed before the first of these leaves is compared: the loads of one wait while the others are
/// computed. More would not fit into registers.
const WAYS_AT_ONCE: usize = 4;

/// A rule group ready to be written.
pub(super) struct Stage {
    comparison: Comparison,
    /// Most rules of a leaf.
    capacity: usize,
    pub(super) index: Index,
    pub(super) leaves: Leaves,
    /// Whether it has any rule, and those that it was offered and has not; the strongest first.
    pub(super) has_rules: bool,
    pub(super) left_over: Vec<u32>,
}

impl Stage {
    pub(super) fn new(input: &Input<'_>, group: Group) -> Self {
        Self {
            comparison: comparison(input, &group.kept),
            capacity: group.capacity,
            leaves: Leaves::pack(&group.cells, group.capacity),
            index: group.index,
            has_rules: !group.kept.is_empty(),
            left_over: group.left_over,
        }
    }

    pub(super) fn cost(&self, machine: &Machine) -> Cost {
        let leaves = self.leaves.leaves.len();
        let path = match self.index.bits() {
            0 => Cost::default(),
            _ => {
                let entry_bytes = match leaves {
                    0..=0x100 => 1,
                    0x101..=0x1_0000 => 2,
                    _ => 4,
                };
                self.index.cost(machine.pext) + path_cost(entry_bytes * self.leaves.of_cell.len())
            }
        };
        path + leaf_cost(&self.comparison, machine, self.blocks(machine), leaves)
    }

    /// Vectors of rules that are compared.
    pub(super) fn blocks(&self, machine: &Machine) -> usize {
        self.capacity / usize::from(machine.lanes)
    }

    /// What is paid for a key and all its blocks.
    pub(super) fn key_cost(&self, blocks: usize) -> Cost {
        self.comparison.key_cost(blocks as f64)
    }

    /// Emits the way to the leaf; yields its row.
    fn emit_row(&self, input: &Input<'_>, b: &mut ProgramBuilder) -> ValueId {
        let differing = self.comparison.emit_common(b);
        // A leaf without rules, for keys without the bits that all rules want.
        let none = self.leaves.leaves.len();
        let rows = none + usize::from(differing.is_some());
        let table = self.leaf_table(input, rows);
        let leaves = b.table(table);
        let leaf = self.emit_leaf(b, input.machine.pext);
        let leaf = Comparison::emit_unless_differing(b, differing, leaf, none as u64);
        b.row(leaves, leaf)
    }

    fn leaf_table(&self, input: &Input<'_>, rows: usize) -> Table {
        let capacity = self.capacity as u32;
        let mut columns = self.comparison.columns(capacity);
        columns.push(Column {
            offset: self.comparison.rule_bytes() * capacity,
            ..result_column(0, capacity, capacity)
        });
        let mut table = TableWriter::new("leaves", columns, rows);
        let mut numbers = Vec::new();
        for (leaf, rules) in self.leaves.leaves.iter().enumerate() {
            for (lane, &rule) in rules.iter().enumerate() {
                let row = input.rows[rule as usize];
                numbers.clear();
                self.comparison.numbers(input.rule(row), &mut numbers);
                numbers.push(row);
                table.set_lane(leaf, lane, &numbers);
            }
        }
        table.finish()
    }

    /// Emits the comparison of the leaf at `row`; yields the running minimum.
    fn emit_compare(
        &self,
        b: &mut ProgramBuilder,
        row: ValueId,
        lanes: u8,
        splats: &mut Splats,
        found: ValueId,
    ) -> ValueId {
        let blocks = (0..self.capacity as u16).step_by(lanes.into());
        blocks.fold(found, |found, first| {
            let rules = &self.comparison;
            rules.emit_min(b, (row, first), lanes, splats, found)
        })
    }

    /// Emits the number of the leaf.
    fn emit_leaf(&self, b: &mut ProgramBuilder, pext: Pext) -> ValueId {
        if self.index.bits() == 0 {
            return b.constant(self.leaves.of_cell[0].into());
        }
        let cells = b.table(flat("cells", "leaf", &self.leaves.of_cell));
        let cell = self.index.emit(b, pext);
        let row = b.row(cells, cell);
        b.load(row, 0, None)
    }
}

/// The tests of the rules at these positions in [`Input::rows`].
pub(super) fn comparison(input: &Input<'_>, rules: &[u32]) -> Comparison {
    let rules = rules.iter();
    let rules = rules.map(|&rule| input.rule(input.rows[rule as usize]));
    Comparison::narrow(input.layout(), rules)
}

/// What the way from an index to a leaf costs, without the index.
pub(super) fn path_cost(table_bytes: usize) -> Cost {
    Cost {
        instructions: 2.0,
        dependent_loads: 1.0,
        lines: 1.0,
        table_bytes,
    }
}

/// What comparing one of `leaves` leaves of so many blocks costs.
pub(super) fn leaf_cost(
    comparison: &Comparison,
    machine: &Machine,
    blocks: usize,
    leaves: usize,
) -> Cost {
    let row_bytes = (comparison.rule_bytes() as usize + 4) * usize::from(machine.lanes) * blocks;
    Cost {
        // The address; for each block three for the masked minimum.
        instructions: blocks as f64 * (comparison.block_cost(machine).instructions + 3.0) + 3.0,
        dependent_loads: 1.0,
        lines: row_bytes as f64 / 64.0,
        table_bytes: row_bytes * leaves,
    }
}

/// The program: all groups, then the rest, the smallest row of all.
pub(super) fn build(input: &Input<'_>, stages: &[Rc<Stage>], rest: Option<&Rest>) -> Program {
    let mut b = input.program();
    let mut splats = Splats::default();
    let miss = b.constant(MISS.into());
    let none = b.splat(miss, input.machine.lanes);
    let mut best = none;
    // The others, which are small, stay in near caches.
    let table_bytes = |stage: &&Rc<Stage>| stage.cost(&input.machine).table_bytes;
    let largest = stages.iter().max_by_key(table_bytes);
    for stages in stages.chunks(WAYS_AT_ONCE) {
        let rows: Vec<ValueId> = stages
            .iter()
            .map(|stage| {
                let row = stage.emit_row(input, &mut b);
                if largest.is_some_and(|largest| std::ptr::eq(largest, stage)) {
                    b.stage(row);
                }
                row
            })
            .collect();
        for (stage, row) in stages.iter().zip(rows) {
            best = stage.emit_compare(&mut b, row, input.machine.lanes, &mut splats, best);
        }
    }
    let mut found = b.inst(Inst::HorizontalMin { a: best });
    if let Some(rest) = rest {
        let row = match rest {
            Rest::Blocks(blocks) => blocks.emit(input, &mut b, &mut splats, "rest"),
            Rest::Classes(classes) => classes.emit(input, &mut b),
        };
        found = b.binary(BinaryOp::Min, found, row);
    }
    input.finish(b, found)
}
