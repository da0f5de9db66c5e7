//! The code and the tables of `peel`, and what they cost.

use super::group::{Group, MAX_CELL_BITS};
use super::leaves::Leaves;
use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::plan::{Machine, Pext};
use crate::program::{BinaryOp, Column, CompareOp, Inst, LaneCompareOp, MISS, Program};
use crate::structure::bits::Index;
use crate::structure::compare::{Comparison, Splats, result_column};
use crate::structure::linear::Blocks;
use crate::structure::{Cost, Input};
use crate::table::{TableWriter, flat};

/// A rule group ready to be written.
pub(super) struct Stage {
    comparison: Comparison,
    /// Most rules of a leaf.
    capacity: usize,
    path: Path,
    leaves: Leaves,
}

/// The way from the key to a part.
enum Path {
    /// There is one.
    None,
    /// The bits of the key that number it.
    One(Index),
    /// The bits of the key from which some select a cell with the others' mask.
    Two { word: Index, first: u64, cells: Vec<(u64, u32)> },
}

impl Stage {
    pub(super) fn new(input: &Input<'_>, group: Group) -> Self {
        let rule = |&rule: &u32| input.rule(input.rows[rule as usize]);
        let comparison = Comparison::new(input.layout(), group.kept.iter().map(rule));
        let leaves = Leaves::pack(&group.parts, group.capacity);
        let bits = |mask: u64| -> Vec<_> {
            let order = group.word.order().iter().enumerate();
            order.filter(|(i, _)| mask >> i & 1 == 1).map(|(_, &bit)| bit).collect()
        };
        let own = group.cells.iter().fold(0, |own, cell| own | cell.mask);
        let path = if own != 0 {
            // The word is made of the bits that are looked at.
            let used = own | group.first;
            let shrink = |mask| super::select::gather(mask, used);
            Path::Two {
                word: Index::new(input.layout(), &bits(used)),
                first: shrink(group.first),
                cells: group.cells.iter().map(|cell| (shrink(cell.mask), cell.base)).collect(),
            }
        } else if group.first != 0 {
            Path::One(Index::new(input.layout(), &bits(group.first)))
        } else {
            Path::None
        };
        Self { comparison, capacity: group.capacity, path, leaves }
    }

    fn row_bytes(&self) -> usize {
        (self.comparison.column_count() as usize + 1) * self.capacity * 4
    }

    pub(super) fn cost(&self, machine: &Machine) -> Cost {
        let blocks = (self.capacity / usize::from(machine.lanes)) as f64;
        let has_pext = machine.pext == Pext::Fast;
        let part_bytes = if self.leaves.leaves.len() <= 1 << 16 { 2 } else { 4 };
        let parts = part_bytes * self.leaves.of_part.len();
        let path = match &self.path {
            Path::None => Cost::default(),
            Path::One(index) => {
                index.cost(has_pext)
                    + Cost { instructions: 4.0, dependent_loads: 1.0, lines: 1.0, table_bytes: parts }
            }
            Path::Two { word, cells, .. } => {
                word.cost(has_pext)
                    + Cost {
                        instructions: 11.0,
                        dependent_loads: 2.0,
                        lines: 2.0,
                        table_bytes: parts + 16 * cells.len(),
                    }
            }
        };
        let compare = Cost {
            // The address; for each block three for the masked minimum.
            instructions: blocks * (self.comparison.block_cost().instructions + 3.0) + 3.0,
            dependent_loads: 1.0,
            lines: self.row_bytes() as f64 / 64.0,
            table_bytes: self.row_bytes() * self.leaves.leaves.len(),
        };
        path + self.comparison.key_cost(blocks) + compare
    }

    /// Emits the comparison of one leaf; yields the running minimum.
    fn emit(
        &self,
        input: &Input<'_>,
        b: &mut ProgramBuilder,
        splats: &mut Splats,
        found: ValueId,
    ) -> ValueId {
        let capacity = self.capacity as u32;
        let mut columns = self.comparison.columns(capacity);
        let result = columns.len() as u8;
        columns.push(result_column(self.comparison.column_count(), capacity, capacity));
        let differing = self.comparison.emit_common(b);
        // A leaf without rules, for keys without the bits that all rules want.
        let none = self.leaves.leaves.len();
        let rows = none + usize::from(differing.is_some());
        let mut table = TableWriter::new("leaves", columns, rows);
        let mut numbers = Vec::new();
        for (leaf, rules) in self.leaves.leaves.iter().enumerate() {
            // Or rules would vanish silently.
            assert!(rules.len() <= self.capacity, "a leaf is longer than the code compares");
            for (lane, &rule) in rules.iter().enumerate() {
                let row = input.rows[rule as usize];
                numbers.clear();
                self.comparison.numbers(input.rule(row), &mut numbers);
                numbers.push(row);
                table.set_lane(leaf, lane, &numbers);
            }
        }
        let leaves = b.table(table.finish());
        let mut leaf = self.emit_path(b);
        if let Some(differing) = differing {
            let zero = b.constant(0);
            let is_same = b.compare(CompareOp::Eq, differing, zero);
            let none = b.constant(none as u64);
            leaf = b.select(is_same, leaf, none);
        }
        let row = b.row(leaves, leaf);
        let lanes = input.machine.lanes;
        let blocks = (0..capacity as u16).step_by(lanes.into());
        blocks.fold(found, |found, first| {
            let mask = self.comparison.emit(b, row, first, lanes, splats);
            let ids = b.load_lanes(row, result, first, lanes);
            // Where there is nothing to test every rule matches.
            let mask = mask.unwrap_or_else(|| b.compare_lanes(LaneCompareOp::Eq, ids, ids));
            b.inst(Inst::MaskedMin { acc: found, mask, x: ids })
        })
    }

    /// Emits the number of the leaf.
    fn emit_path(&self, b: &mut ProgramBuilder) -> ValueId {
        let part = match &self.path {
            Path::None => return b.constant(self.leaves.of_part[0].into()),
            Path::One(index) => index.emit(b),
            Path::Two { word, first, cells } => {
                let word = word.emit(b);
                let number = b.binary_const(BinaryOp::Pext, word, *first);
                let cells = b.table(cell_table(cells));
                let cell = b.row(cells, number);
                let (mask, base) = (b.load(cell, 0, None), b.load(cell, 1, None));
                let own = b.binary(BinaryOp::Pext, word, mask);
                // What it cannot be above anyway, but the verifier does not know how many bits a mask has.
                let own = b.binary_const(BinaryOp::And, own, (1 << MAX_CELL_BITS) - 1);
                b.binary(BinaryOp::Add, base, own)
            }
        };
        let mut of_part = self.leaves.of_part.clone();
        if let Path::Two { .. } = self.path {
            of_part.resize(of_part.len() + (1 << MAX_CELL_BITS), 0);
        }
        let parts = b.table(flat("parts", "leaf", &of_part));
        let row = b.row(parts, part);
        b.load(row, 0, None)
    }
}

/// A row for each cell: the mask of its own bits, and the number of its first part.
fn cell_table(cells: &[(u64, u32)]) -> crate::program::Table {
    let max = |numbers: &mut dyn Iterator<Item = u64>| numbers.max().unwrap_or(0);
    let column = |name: &str, offset, bytes, max| Column {
        name: name.into(),
        offset,
        bytes,
        count: 1,
        max,
        is_result: false,
    };
    let columns = vec![
        column("mask", 0, 8, max(&mut cells.iter().map(|cell| cell.0))),
        column("part", 8, 4, max(&mut cells.iter().map(|cell| cell.1.into()))),
    ];
    let data: Vec<u8> = cells
        .iter()
        .flat_map(|&(mask, part)| {
            let mut row = [0; 16];
            row[..8].copy_from_slice(&mask.to_le_bytes());
            row[8..12].copy_from_slice(&part.to_le_bytes());
            row
        })
        .collect();
    crate::program::Table { name: "cells".into(), row_bytes: 16, columns, data: data.into() }
}

/// The program: all groups, then the rest, the smallest row of all.
pub(super) fn build(input: &Input<'_>, stages: &[Stage], rest: Option<&Blocks>) -> Program {
    let mut b = input.program();
    let mut splats = Splats::default();
    let miss = b.constant(MISS.into());
    let none = b.splat(miss, input.machine.lanes);
    let best = stages.iter().fold(none, |best, stage| stage.emit(input, &mut b, &mut splats, best));
    let mut found = b.inst(Inst::HorizontalMin { a: best });
    if let Some(rest) = rest {
        let row = rest.emit(input, &mut b, &mut splats, "rest");
        found = b.binary(BinaryOp::Min, found, row);
    }
    input.finish(b, found)
}
