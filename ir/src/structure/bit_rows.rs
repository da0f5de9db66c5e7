//! Rows of bits, one bit a rule, that are anded; and the first bit that is left: how lookups of `pipapo` and `classes` end.
//!
//! ```text
//! for each block of a row                                no loop where a row has one block
//!     the rows of all tables, anded in vectors           behind a map only if a bit of the map's block is set
//!     the first bit -> row of the verdict
//! ```
//!
//! Of a conjunction in vector registers only which numbers are not zero is kept; the first of these is computed again by
//! scalar loads, from lines that have just been read. It costs a few instructions and spares moving lanes about.
//!
//! Invariant: an index is made of what the verifier has a bound for: the value of a selector, a loop's counter, the position of
//! a bit in a number in which one is certainly set.

use crate::builder::ProgramBuilder;
use crate::entity::{BlockId, TableId, ValueId};
use crate::field::ByteOrder;
use crate::program::{BinaryOp, Column, LaneCompareOp, MISS, Table, Terminator, Type};
use crate::structure::Cost;
use crate::structure::compare::result_column;
use crate::table::TableWriter;

/// Bits of a number of a row.
pub(crate) const BITS: u8 = 32;
/// Most numbers of a row that one scalar tells apart.
pub(crate) const MAX_BLOCK: usize = 64;
/// Most bits that a scalar holds, with one to spare that says that there is none.
pub(crate) const MAX_NARROW: u64 = 63;
/// Most rows whose addresses are kept until the first number that is not zero is computed again: with its index and what is
/// found, all that the five registers hold that a function need not save.
const MAX_KEPT_ROWS: usize = 3;

/// How the bits of a row lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One number of 4 or 8 bytes.
    Narrow { bytes: u8 },
    /// So many blocks of so many numbers of 32 bits.
    Blocks { blocks: usize, numbers: usize },
}

impl Shape {
    /// One number for few bits: at most [`MAX_NARROW`].
    pub(crate) fn narrow(bits: u64) -> Self {
        let bytes = if bits < 32 { 4 } else { 8 };
        Self::Narrow { bytes }
    }

    /// Blocks of at most `max_block` numbers for that many bits, in whole vectors.
    pub(crate) fn blocks(bits: u64, lanes: u8, max_block: usize) -> Self {
        let lanes = usize::from(lanes);
        let vectors = bits.div_ceil(32 * lanes as u64);
        let vectors = usize::try_from(vectors).unwrap_or(usize::MAX);
        let blocks = vectors.div_ceil(max_block / lanes);
        Self::Blocks {
            blocks,
            numbers: vectors.div_ceil(blocks) * lanes,
        }
    }

    /// Numbers of 32 bits of one row.
    pub(crate) fn numbers(self) -> usize {
        match self {
            Self::Narrow { bytes } => usize::from(bytes) / 4,
            Self::Blocks { blocks, numbers } => blocks * numbers,
        }
    }

    /// Bytes of one row.
    pub(crate) fn row_bytes(self) -> usize {
        self.numbers().saturating_mul(4)
    }

    /// Bytes of the rows of verdicts, one for each bit that a row has room for.
    pub(crate) fn rules_bytes(self) -> usize {
        self.numbers().saturating_mul(32 * 4)
    }

    /// What anding so many rows and finding the first bit costs, without the bytes, where that share of the blocks is visited:
    /// a load of a vector for each 8 numbers, and five instructions for what was not zero; two for the address of each
    /// row in a block.
    pub(crate) fn cost(self, rows: usize, share: f64) -> Cost {
        let rows = rows as f64;
        let Self::Blocks { blocks, .. } = self else {
            return Cost {
                lines: rows,
                ..Cost::default()
            };
        };
        let numbers = self.numbers() as f64;
        let vectors = (numbers / 8.0).ceil();
        Cost {
            instructions: rows * share * (vectors + 2.0 * blocks as f64) + 5.0 * vectors + 3.0,
            lines: rows * (share * numbers / 16.0).max(1.0),
            ..Cost::default()
        }
    }

    /// The row of the verdict for each bit, and a miss behind them.
    pub(crate) fn rules_table(self, rules: &[u32]) -> Table {
        let len = match self {
            Self::Narrow { .. } => rules.len(),
            Self::Blocks { .. } => self.numbers() * usize::from(BITS),
        };
        let mut table = TableWriter::new("rules", vec![result_column(0, 1, 1)], len + 1);
        for (bit, &rule) in rules.iter().enumerate() {
            table.set_lane(bit, 0, &[rule]);
        }
        table.finish()
    }

    /// A table of such rows, one after the other in `data`; `bits` of each are in use.
    pub(crate) fn table(self, name: Box<str>, column: &str, bits: u64, data: Vec<u8>) -> Table {
        let (bytes, count, max) = match self {
            Self::Narrow { bytes } => (bytes, 1, (1 << bits) - 1),
            Self::Blocks { numbers, .. } => (4, numbers as u32, u32::MAX.into()),
        };
        let column = Column {
            name: column.into(),
            offset: 0,
            bytes,
            count,
            max,
            is_result: false,
        };
        Table {
            name,
            row_bytes: u32::from(bytes) * count,
            columns: vec![column],
            data: data.into(),
        }
    }
}

/// What says which row of a table counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selector {
    /// 4 or 8 bits of a byte of the key.
    Key { offset: u16, shift: u8, bits: u8 },
    /// A number below that of the rows.
    Number(ValueId),
}

/// Rows that are anded.
pub(crate) struct BitRows {
    pub(crate) shape: Shape,
    /// Bits of a row that are in use.
    pub(crate) bits: u64,
    /// Tables of rows, at least one.
    pub(crate) tables: Vec<(Selector, TableId)>,
    pub(crate) lanes: u8,
    /// Where in scratch one row more is that counts only once it is known, if there is one: a *map*.
    pub(crate) map: Option<u32>,
}

/// The blocks of a row as a loop, in the order of the program.
pub(crate) struct Loop {
    pub(crate) head: BlockId,
    pub(crate) counter: ValueId,
    /// Where the rows are anded if the map has a bit for them; the head where there is no map.
    rows: BlockId,
}

impl BitRows {
    /// Blocks of a row, and numbers of a block.
    pub(crate) fn blocks(&self) -> (usize, usize) {
        match self.shape {
            Shape::Narrow { .. } => (1, 1),
            Shape::Blocks { blocks, numbers } => (blocks, numbers),
        }
    }

    /// Emits the conjunction; yields the row of `rules` of the first bit, or `MISS`: the row behind those of the bits.
    pub(crate) fn emit_first(&self, b: &mut ProgramBuilder, rules: TableId) -> ValueId {
        if let Shape::Narrow { .. } = self.shape {
            let pieces = self.and_numbers(b, &[], None, None);
            let pieces = b.binary_const(BinaryOp::Or, pieces, 1 << self.bits);
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

    /// Adds the head of a loop over the blocks of a row, and goes there.
    pub(crate) fn open(&self, b: &mut ProgramBuilder) -> Loop {
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
    pub(crate) fn enter(&self, b: &mut ProgramBuilder, blocks: &Loop, next: BlockId) -> ValueId {
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
        for &(selector, table) in &self.tables {
            let row = self.row(b, selector, table, block);
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
    pub(crate) fn and_numbers(
        &self,
        b: &mut ProgramBuilder,
        rows: &[ValueId],
        block: Option<ValueId>,
        number: Option<ValueId>,
    ) -> ValueId {
        let mut all = None;
        for (i, &(selector, table)) in self.tables.iter().enumerate() {
            let row = match rows.get(i) {
                Some(&row) => row,
                None => self.row(b, selector, table, block),
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

    /// The row that is selected, or its part in a block.
    fn row(
        &self,
        b: &mut ProgramBuilder,
        selector: Selector,
        table: TableId,
        block: Option<ValueId>,
    ) -> ValueId {
        let value = match selector {
            Selector::Number(number) => number,
            Selector::Key {
                offset,
                shift,
                bits,
            } => {
                let byte = b.load_key(offset, 1, ByteOrder::Big);
                match (bits, shift) {
                    (4, 0) => b.binary_const(BinaryOp::And, byte, 15),
                    _ => b.shr(byte, shift),
                }
            }
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
    pub(crate) fn first_number(&self, b: &mut ProgramBuilder, set: ValueId) -> ValueId {
        let known = b.binary_const(BinaryOp::Or, set, 1 << (self.blocks().1 - 1));
        b.first_bit(known)
    }

    /// The first piece of a number of a block.
    pub(crate) fn piece(
        &self,
        b: &mut ProgramBuilder,
        block: Option<ValueId>,
        number: ValueId,
    ) -> ValueId {
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

pub(crate) fn clear_first_bit(b: &mut ProgramBuilder, x: ValueId) -> ValueId {
    let below = b.constant(1);
    let below = b.binary(BinaryOp::Sub, x, below);
    b.binary(BinaryOp::And, x, below)
}
