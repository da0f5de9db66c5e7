//! The lookup: one stage after the other.
//!
//! ```text
//! for each block of a stage                              no loop where it is the only stage and has one block
//!     the rows of all groups, anded in vectors           behind a map only if a bit of the map's block is set
//!     last stage   the first bit -> row of the verdict
//!     otherwise    each number that is not zero, each bit in it -> bits of the next stage
//! ```
//!
//! Invariant: an index is made of what the verifier has a bound for: the value of a group, a loop's counter, the position of
//! a bit in a number in which one is certainly set.

use crate::builder::ProgramBuilder;
use crate::entity::{BlockId, TableId, ValueId};
use crate::field::ByteOrder;
use crate::program::{BinaryOp, Column, LaneCompareOp, MISS, Program, Table, Terminator, Type};
use crate::structure::Input;
use crate::structure::common::Common;
use crate::structure::compare::{Comparison, result_column};
use crate::structure::pipapo::stage::{Group, Shape, Stage};
use crate::table::TableWriter;

/// Bits of a number of a row.
const BITS: u8 = 32;
/// Most rows whose addresses are kept until the first number that is not zero is computed again: with its index and what is
/// found, all that the five registers hold that a function need not save.
const MAX_KEPT_ROWS: usize = 3;

/// The program for some rules, at least one.
pub(super) fn program(input: &Input<'_>, stages: &[Stage]) -> Program {
    let mut b = input.program();
    let mut map = None;
    let mut found = None;
    for (i, stage) in stages.iter().enumerate() {
        let lookup = Lookup {
            stage,
            tables: stage
                .tables(input)
                .into_iter()
                .map(|t| b.table(t))
                .collect(),
            lanes: input.machine.lanes,
            map,
        };
        match stages.get(i + 1) {
            Some(next) => {
                let first = b.scratch(next.numbers() as u32);
                let table = b.table(map_table(input, stage, next, first));
                lookup.emit_map(&mut b, table);
                map = Some(first);
            }
            None => {
                let rules = b.table(rules_table(input, stage));
                found = Some(lookup.emit_first(&mut b, rules));
            }
        }
    }
    let found = found.unwrap_or_else(|| b.constant(MISS.into()));
    let mut common = Common::new(input.layout().len());
    for wanted in stages.iter().flat_map(|stage| &stage.agreed) {
        common.want(wanted.offset.into(), wanted.care, wanted.value);
    }
    let differing = common.emit(&mut b);
    let found = Comparison::emit_unless_differing(&mut b, differing, found, MISS.into());
    input.finish(b, found)
}

/// The row of the verdict for each piece of the last stage, and a miss behind them.
fn rules_table(input: &Input<'_>, stage: &Stage) -> Table {
    let len = match stage.shape {
        Shape::Narrow { .. } => stage.pieces as usize,
        Shape::Blocks { .. } => stage.numbers() * usize::from(BITS),
    };
    let mut table = TableWriter::new("rules", vec![result_column(0, 1, 1)], len + 1);
    stage.for_each_piece(input, |piece, rule, _| {
        table.set_lane(piece, 0, &[input.rows[rule]]);
    });
    table.finish()
}

/// For each piece of `stage` which bits of which numbers of scratch stand for the pieces of its rule in `next`, whose
/// first number is `first`.
fn map_table(input: &Input<'_>, stage: &Stage, next: &Stage, first: u32) -> Table {
    // The first piece of each rule, and one past the last.
    let mut pieces_of: Vec<(usize, usize)> = vec![(usize::MAX, 0); input.rows.len()];
    next.for_each_piece(input, |p, rule, _| {
        let (start, end) = pieces_of[rule];
        pieces_of[rule] = (start.min(p), end.max(p + 1));
    });
    let bits = usize::from(BITS);
    let width = next.rule_numbers;
    let row_bytes = 8 * width;
    let mut data = vec![0; row_bytes * stage.numbers() * bits];
    stage.for_each_piece(input, |p, rule, _| {
        let (start, end) = pieces_of[rule];
        for i in 0..width {
            let number = start / bits + i;
            let from = start.max(number * bits);
            let to = end.min((number + 1) * bits);
            // Where the rule has no more pieces no bit is set, in a number that exists.
            let (number, set) = if from < to {
                let ones = u32::MAX >> (bits - (to - from));
                (first + number as u32, ones << (from % bits))
            } else {
                (first, 0)
            };
            let at = p * row_bytes + 4 * i;
            data[at..at + 4].copy_from_slice(&number.to_le_bytes());
            let at = at + 4 * width;
            data[at..at + 4].copy_from_slice(&set.to_le_bytes());
        }
    });
    let column = |name: &str, offset: usize, max: u32| Column {
        name: name.into(),
        offset: offset as u32,
        bytes: 4,
        count: width as u32,
        max: max.into(),
        is_result: false,
    };
    let last = first + next.numbers() as u32 - 1;
    Table {
        name: "map".into(),
        row_bytes: row_bytes as u32,
        columns: vec![
            column("number", 0, last),
            column("bits", 4 * width, u32::MAX),
        ],
        data: data.into(),
    }
}

/// The code of one stage.
struct Lookup<'a> {
    stage: &'a Stage,
    /// One for each group.
    tables: Vec<TableId>,
    lanes: u8,
    /// Where in scratch the pieces are that the stage before has let through, if there is one.
    map: Option<u32>,
}

/// The blocks of a stage as a loop, in the order of the program.
struct Loop {
    head: BlockId,
    counter: ValueId,
    /// Where the rows are anded if the map has a bit for them; the head where there is no map.
    rows: BlockId,
}

impl Lookup<'_> {
    /// Blocks of a row, and numbers of a block.
    fn blocks(&self) -> (usize, usize) {
        match self.stage.shape {
            Shape::Narrow { .. } => (1, 1),
            Shape::Blocks { blocks, numbers } => (blocks, numbers),
        }
    }

    /// Emits the last stage; yields the row of the verdict, or `MISS`.
    fn emit_first(&self, b: &mut ProgramBuilder, rules: TableId) -> ValueId {
        if let Shape::Narrow { .. } = self.stage.shape {
            let pieces = self.and_numbers(b, &[], None, None);
            let end = self.stage.pieces as u32;
            let pieces = b.binary_const(BinaryOp::Or, pieces, 1 << end);
            let piece = b.first_bit(pieces);
            return load_row(b, rules, piece);
        }
        if self.map.is_none() && self.blocks().0 == 1 {
            let (set, rows) = self.and_rows(b, None, Vec::new());
            let kept = &rows[..rows.len().min(MAX_KEPT_ROWS)];
            return self.emit_result(b, kept, None, set, rules);
        }
        let blocks = self.open(b);
        let (next, _) = b.block(&[]);
        let (hit, params) = b.block(&[Type::Scalar, Type::Scalar]);
        let (end, found) = b.block(&[Type::Scalar]);
        let set = self.enter(b, &blocks, next);
        b.terminate(Terminator::BranchIf {
            cond: set,
            then: hit,
            then_args: vec![blocks.counter, set],
            otherwise: next,
            else_args: Vec::new(),
        });

        b.switch_to(next);
        let miss = b.constant(MISS.into());
        b.terminate(Terminator::Repeat {
            head: blocks.head,
            args: Vec::new(),
            exit: end,
            exit_args: vec![miss],
        });

        b.switch_to(hit);
        let row = self.emit_result(b, &[], Some(params[0]), params[1], rules);
        b.terminate(Terminator::Jump {
            to: end,
            args: vec![row],
        });
        b.switch_to(end);
        found[0]
    }

    /// The row of the verdict of the first piece in a block in which the numbers `set` are not zero; `MISS` without any.
    /// `rows` are those of the first groups.
    fn emit_result(
        &self,
        b: &mut ProgramBuilder,
        rows: &[ValueId],
        block: Option<ValueId>,
        set: ValueId,
        rules: TableId,
    ) -> ValueId {
        let number = self.first_number(b, set);
        let pieces = self.and_numbers(b, rows, block, Some(number));
        // Without a piece the number is the last one of the row, and this bit leads behind it.
        let pieces = b.binary_const(BinaryOp::Or, pieces, 1 << BITS);
        let bit = b.first_bit(pieces);
        let piece = self.piece(b, block, number);
        let piece = b.binary(BinaryOp::Add, piece, bit);
        load_row(b, rules, piece)
    }

    /// Emits a stage that is not the last: sets the bits of `map` in scratch for each piece that matches.
    fn emit_map(&self, b: &mut ProgramBuilder, map: TableId) {
        let numbers = self.blocks().1 as u32;
        let blocks = self.open(b);
        let (each_number, number_params) = b.loop_head(numbers, &[Type::Scalar]);
        let (each_bit, bit_params) = b.loop_head(BITS.into(), &[Type::Scalar]);
        let [more_bits, no_bits, more_numbers, next, end] = [(); 5].map(|()| b.block(&[]).0);
        let branch = |b: &mut ProgramBuilder, cond, then, otherwise| {
            b.terminate(Terminator::BranchIf {
                cond,
                then,
                then_args: Vec::new(),
                otherwise,
                else_args: Vec::new(),
            });
        };
        let repeat = |b: &mut ProgramBuilder, head, args, exit| {
            b.terminate(Terminator::Repeat {
                head,
                args,
                exit,
                exit_args: Vec::new(),
            });
        };

        let set = self.enter(b, &blocks, next);
        let zero = b.constant(0);
        b.terminate(Terminator::BranchIf {
            cond: set,
            then: each_number,
            then_args: vec![zero, set],
            otherwise: next,
            else_args: Vec::new(),
        });

        b.switch_to(each_number);
        let set = number_params[1];
        let number = self.first_number(b, set);
        let pieces = self.and_numbers(b, &[], Some(blocks.counter), Some(number));
        let base = self.piece(b, Some(blocks.counter), number);
        let zero = b.constant(0);
        b.terminate(Terminator::Jump {
            to: each_bit,
            args: vec![zero, pieces],
        });

        b.switch_to(each_bit);
        let pieces = bit_params[1];
        let known = b.binary_const(BinaryOp::Or, pieces, 1 << (BITS - 1));
        let bit = b.first_bit(known);
        let piece = b.binary(BinaryOp::Add, base, bit);
        let row = b.row(map, piece);
        for i in 0..b.columns(map)[0].count {
            let i = b.constant(i.into());
            let number = b.load(row, 0, Some(i));
            let bits = b.load(row, 1, Some(i));
            b.or_scratch(number, bits);
        }
        let pieces = clear_first_bit(b, pieces);
        branch(b, pieces, more_bits, no_bits);
        b.switch_to(more_bits);
        repeat(b, each_bit, vec![pieces], no_bits);

        b.switch_to(no_bits);
        let set = clear_first_bit(b, set);
        branch(b, set, more_numbers, next);
        b.switch_to(more_numbers);
        repeat(b, each_number, vec![set], next);

        b.switch_to(next);
        repeat(b, blocks.head, Vec::new(), end);
        b.switch_to(end);
    }

    /// Adds the head of a loop over the blocks of a row, and goes there.
    fn open(&self, b: &mut ProgramBuilder) -> Loop {
        let zero = b.constant(0);
        let (head, params) = b.loop_head(self.blocks().0 as u32, &[]);
        b.terminate(Terminator::Jump {
            to: head,
            args: vec![zero],
        });
        let rows = match self.map {
            Some(_) => b.block(&[]).0,
            None => head,
        };
        Loop {
            head,
            counter: params[0],
            rows,
        }
    }

    /// Emits the conjunction of one block; yields which of its numbers are not zero. Goes to `next` where the map has no bit
    /// of the block.
    fn enter(&self, b: &mut ProgramBuilder, blocks: &Loop, next: BlockId) -> ValueId {
        b.switch_to(blocks.head);
        let mut known = Vec::new();
        if let Some(first) = self.map {
            let per_block = self.blocks().1 / usize::from(self.lanes);
            let start = b.binary_const(BinaryOp::Mul, blocks.counter, per_block as u64);
            for vector in 0..per_block as u32 {
                let offset = first / u32::from(self.lanes) + vector;
                let run = b.binary_const(BinaryOp::Add, start, offset.into());
                known.push(b.load_scratch_lanes(run, self.lanes));
            }
            let set = self.not_zero(b, &known);
            b.terminate(Terminator::BranchIf {
                cond: set,
                then: blocks.rows,
                then_args: Vec::new(),
                otherwise: next,
                else_args: Vec::new(),
            });
            b.switch_to(blocks.rows);
        }
        self.and_rows(b, Some(blocks.counter), known).0
    }

    /// Ands the rows of one block, and what is `known` of them; yields which numbers are not zero, and the rows.
    fn and_rows(
        &self,
        b: &mut ProgramBuilder,
        block: Option<ValueId>,
        known: Vec<ValueId>,
    ) -> (ValueId, Vec<ValueId>) {
        let vectors = self.blocks().1 / usize::from(self.lanes);
        let mut all: Vec<Option<ValueId>> = known.into_iter().map(Some).collect();
        all.resize(vectors, None);
        let mut rows = Vec::new();
        for (&group, &table) in self.stage.groups.iter().zip(&self.tables) {
            let row = self.row(b, group, table, block);
            rows.push(row);
            for (i, acc) in all.iter_mut().enumerate() {
                let first = i as u16 * u16::from(self.lanes);
                let x = b.load_lanes(row, 0, first, self.lanes);
                *acc = Some(acc.map_or(x, |acc| b.and_lanes(acc, x)));
            }
        }
        let all: Vec<ValueId> = all.into_iter().flatten().collect();
        (self.not_zero(b, &all), rows)
    }

    /// A scalar with bit i set where number i of these vectors is not zero.
    fn not_zero(&self, b: &mut ProgramBuilder, vectors: &[ValueId]) -> ValueId {
        let zero = b.constant(0);
        let zeros = b.splat(zero, self.lanes);
        let mut all = None;
        for (i, &x) in vectors.iter().enumerate() {
            let mask = b.compare_lanes(LaneCompareOp::Eq, x, zeros);
            let bits = b.lane_bits(mask);
            let bits = b.shl(bits, i as u8 * self.lanes);
            all = Some(all.map_or(bits, |all| b.binary(BinaryOp::Or, all, bits)));
        }
        let all = all.unwrap_or(zero);
        b.binary_const(BinaryOp::Xor, all, u64::MAX >> (64 - self.blocks().1))
    }

    /// Ands number `number` of a row over all groups, or the only one, and the map. `rows` are those of the first groups.
    fn and_numbers(
        &self,
        b: &mut ProgramBuilder,
        rows: &[ValueId],
        block: Option<ValueId>,
        number: Option<ValueId>,
    ) -> ValueId {
        let mut all = None;
        for (i, (&group, &table)) in self.stage.groups.iter().zip(&self.tables).enumerate() {
            let row = match rows.get(i) {
                Some(&row) => row,
                None => self.row(b, group, table, block),
            };
            let x = b.load(row, 0, number);
            all = Some(all.map_or(x, |all| b.binary(BinaryOp::And, all, x)));
        }
        let all = all.unwrap_or_else(|| b.constant(0));
        match (self.map, block, number) {
            (Some(first), Some(block), Some(number)) => {
                let start = b.binary_const(BinaryOp::Mul, block, self.blocks().1 as u64);
                let index = b.binary(BinaryOp::Add, start, number);
                let index = b.binary_const(BinaryOp::Add, index, first.into());
                let x = b.load_scratch(index);
                b.binary(BinaryOp::And, all, x)
            }
            _ => all,
        }
    }

    /// The row of a group that the key selects, or its piece in a block.
    fn row(
        &self,
        b: &mut ProgramBuilder,
        group: Group,
        table: TableId,
        block: Option<ValueId>,
    ) -> ValueId {
        let byte = b.load_key(group.offset, 1, ByteOrder::Big);
        let value = match (group.bits, group.shift_in_byte()) {
            (4, 0) => b.binary_const(BinaryOp::And, byte, 15),
            (_, shift) => b.shr(byte, shift),
        };
        let (blocks, _) = self.blocks();
        let index = match block {
            Some(block) if blocks > 1 => {
                let start = b.binary_const(BinaryOp::Mul, value, blocks as u64);
                b.binary(BinaryOp::Add, start, block)
            }
            _ => value,
        };
        b.row(table, index)
    }

    /// Position of the first number that is not zero, the last one where all are.
    fn first_number(&self, b: &mut ProgramBuilder, set: ValueId) -> ValueId {
        let known = b.binary_const(BinaryOp::Or, set, 1 << (self.blocks().1 - 1));
        b.first_bit(known)
    }

    /// The first piece of a number of a block.
    fn piece(&self, b: &mut ProgramBuilder, block: Option<ValueId>, number: ValueId) -> ValueId {
        let (blocks, numbers) = self.blocks();
        let number = match block {
            Some(block) if blocks > 1 => {
                let start = b.binary_const(BinaryOp::Mul, block, numbers as u64);
                b.binary(BinaryOp::Add, start, number)
            }
            _ => number,
        };
        b.shl(number, BITS.ilog2() as u8)
    }
}

fn load_row(b: &mut ProgramBuilder, rules: TableId, piece: ValueId) -> ValueId {
    let row = b.row(rules, piece);
    b.load(row, 0, None)
}

fn clear_first_bit(b: &mut ProgramBuilder, x: ValueId) -> ValueId {
    let below = b.constant(1);
    let below = b.binary(BinaryOp::Sub, x, below);
    b.binary(BinaryOp::And, x, below)
}
