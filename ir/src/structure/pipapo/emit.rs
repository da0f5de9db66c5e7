//! The lookup: one stage after the other.
//!
//! ```text
//! for each block of a stage                              no loop where it is the only stage and has one block
//!     the rows of all groups, anded in vectors           behind a map only if a bit of the map's block is set
//!     last stage   the first bit -> row of the verdict
//!     otherwise    each number that is not zero, each bit in it -> bits of the next stage
//! ```
//!
//! The conjunction and the end of the last stage are those of [`bit_rows`](crate::structure::bit_rows).

use crate::builder::ProgramBuilder;
use crate::entity::TableId;
use crate::program::{BinaryOp, Column, MISS, Program, Table, Terminator, Type};
use crate::structure::Input;
use crate::structure::bit_rows::{BITS, BitRows, clear_first_bit};
use crate::structure::common::Common;
use crate::structure::compare::Comparison;
use crate::structure::pipapo::stage::Stage;

/// The program for some rules, at least one.
pub(super) fn program(input: &Input<'_>, stages: &[Stage]) -> Program {
    let mut b = input.program();
    let mut map = None;
    let mut found = None;
    for (i, stage) in stages.iter().enumerate() {
        let tables = stage.groups.iter().zip(stage.tables(input));
        let rows = BitRows {
            shape: stage.shape,
            bits: stage.pieces,
            tables: tables
                .map(|(group, table)| (group.selector(), b.table(table)))
                .collect(),
            lanes: input.machine.lanes,
            map,
        };
        match stages.get(i + 1) {
            Some(next) => {
                let first = b.scratch(next.numbers() as u32);
                let table = b.table(map_table(input, stage, next, first));
                emit_map(&rows, &mut b, table);
                map = Some(first);
            }
            None => {
                let mut rules = Vec::new();
                stage.for_each_piece(input, |_, rule, _| rules.push(input.rows[rule]));
                let rules = b.table(stage.shape.rules_table(&rules));
                found = Some(rows.emit_first(&mut b, rules));
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

/// Emits the conjunction of a stage that is not the last: sets the bits of `map` in scratch for each piece that matches.
fn emit_map(rows: &BitRows, b: &mut ProgramBuilder, map: TableId) {
    let numbers = rows.blocks().1 as u32;
    let blocks = rows.open(b);
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

    let set = rows.enter(b, &blocks, next);
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
    let number = rows.first_number(b, set);
    let pieces = rows.and_numbers(b, &[], Some(blocks.counter), Some(number));
    let base = rows.piece(b, Some(blocks.counter), number);
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
