//! The IR: a lookup as a small typed SSA program, neutral of any instruction set.
//!
//! ```text
//! Program
//! ├── layout   which key bytes there are
//! ├── tables   immutable data, split into columns whose largest value is declared
//! ├── scratch  32-bit numbers that the lookup may change, all zero when it starts
//! └── blocks   block 0 is the entry; parameters, instructions, one terminator
//! ```
//!
//! **Types.** A *scalar* is an unsigned 64-bit number with an upper bound that the verifier knows. A *row* is the address of
//! one row of one table; nothing but loads can use it, so it cannot escape. *Lanes* are 4, 8 or 16 unsigned 32-bit
//! numbers, one rule of a bucket each; or a piece of a bit vector, bit i being bit i mod 32 of lane i / 32. A *mask* is one
//! truth value per lane. An instruction that only changes scratch defines a value that is *nothing*.
//! Instructions on scratch happen in the order in which they are written; all others may be computed anywhere.
//!
//! **Bounds.** Every access is an index that the verifier has proved to be in range, or a constant: emitted code needs no
//! checks. That is why a [`Column`] declares the largest value that it holds, and why shifts, `pext` and minima exist in
//! forms whose result is bounded.
//!
//! **Control.** Branches go forward. The only way back is [`Terminator::Repeat`] to a block that declares how often it runs;
//! the number is known when the program is built.
//!
//! A `Program` is plain data and may be nonsense. [`VerifiedProgram`](crate::VerifiedProgram) is the one that runs.
//!
//! **Room.** Calls of other programs come with the chains that need them: one more [`Inst`] variant with its rule in the
//! verifier.

use std::sync::Arc;

use crate::entity::{BlockId, TableId, ValueId};
use crate::field::ByteOrder;
use crate::key::KeyLayout;

/// Alignment of a table in memory, in bytes: one cache line.
pub const TABLE_ALIGN: usize = 64;

/// A lookup, not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The key that the program reads.
    pub layout: KeyLayout,
    /// Number of rows that the result may name: a program returns a number below it, or [`MISS`].
    pub verdicts: u32,
    /// The tables that it loads from.
    pub tables: Vec<Table>,
    /// How many 32-bit numbers a lookup may set bits of, all zero when the lookup of each key starts; machine code keeps them on
    /// the stack.
    pub scratch: u32,
    /// A row of block 0 that is expected to be far away: batches may ask for those of several keys before they load from the
    /// first. It changes no result.
    pub staged: Option<ValueId>,
    /// The basic blocks; block 0 is the entry and has no parameters.
    pub blocks: Vec<Block>,
}

/// What a program returns where no rule matches.
pub const MISS: u32 = u32::MAX;

/// Immutable data that the code loads from: `rows` rows of `row_bytes` bytes.
///
/// Numbers in a table are little-endian on every target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it is, for listings: `cells`, `buckets`...
    pub name: Box<str>,
    /// Bytes from one row to the next.
    pub row_bytes: u32,
    /// What a row consists of; columns lie inside the row and do not overlap.
    pub columns: Vec<Column>,
    /// The rows, one after the other: a whole number of them, at least one.
    pub data: Arc<[u8]>,
}

/// A run of equally wide numbers in every row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// What it is, for listings: `saddr lo`, `row`...
    pub name: Box<str>,
    /// Byte offset in the row, a multiple of `bytes`.
    pub offset: u32,
    /// Width of one number: 1, 2, 4 or 8 bytes.
    pub bytes: u8,
    /// How many numbers there are.
    pub count: u32,
    /// The largest number that the column holds in any row; the verifier checks it and builds on it.
    pub max: u64,
    /// Whether the numbers are rows of verdicts, so that listings can name the rules ([`MISS`] = none).
    pub is_result: bool,
}

impl Table {
    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.data.len() / (self.row_bytes.max(1) as usize)
    }

    /// The number at `index` of `column` in `row`, if there is one.
    #[must_use]
    pub fn get(&self, row: usize, column: &Column, index: usize) -> Option<u64> {
        let bytes = usize::from(column.bytes);
        if index >= column.count as usize {
            return None;
        }
        let start =
            row.checked_mul(self.row_bytes as usize)? + column.offset as usize + index * bytes;
        let data = self.data.get(start..start.checked_add(bytes)?)?;
        Some(
            data.iter()
                .rev()
                .fold(0, |value, &byte| value << 8 | u64::from(byte)),
        )
    }
}

/// A straight line of instructions that ends in one terminator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Values that the jumps to this block supply.
    pub params: Vec<(ValueId, Type)>,
    /// `Some(n)` for the head of a loop that runs exactly n times unless left early, n >= 1. Its first parameter is a
    /// scalar that counts 0, 1, ... n-1: jumps from before supply the constant 0, [`Terminator::Repeat`] the next number.
    pub trips: Option<u32>,
    /// The instructions, each with the value that it defines.
    pub insts: Vec<(ValueId, Inst)>,
    /// How the block ends.
    pub terminator: Terminator,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Unsigned 64-bit number.
    Scalar,
    /// Address of a row of one table.
    Row(TableId),
    /// That many unsigned 32-bit numbers: 4, 8 or 16.
    Lanes(u8),
    /// One truth value for each of that many lanes.
    Mask(u8),
    /// No value at all.
    Nothing,
}

/// Scalar operations on two scalars; arithmetic is modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Low half of the product.
    Mul,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// The bits of `a` that are set in `b`, gathered at the low end: the `pext` of BMI2.
    Pext,
}

/// Comparisons of two scalars, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// a = b
    Eq,
    /// a /= b
    Ne,
    /// a < b
    Lt,
    /// a <= b
    Le,
}

/// Comparisons of two vectors lane by lane, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneCompareOp {
    /// a = b
    Eq,
    /// a <= b
    Le,
}

/// Operations on two lane masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaskOp {
    /// Both.
    And,
    /// Either.
    Or,
    /// The first, and not the second.
    AndNot,
}

/// One instruction; it defines one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inst {
    /// A scalar known in advance.
    Const(u64),
    /// 1, 2, 4 or 8 bytes of the key as a scalar.
    LoadKey {
        /// Byte offset in the key.
        offset: u16,
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// How the bytes make a number.
        order: ByteOrder,
    },
    /// Two scalars to one.
    Binary {
        /// The operation.
        op: BinaryOp,
        /// First operand.
        a: ValueId,
        /// Second operand.
        b: ValueId,
    },
    /// `a << by`, by below 64.
    Shl {
        /// The operand.
        a: ValueId,
        /// Bits to shift by.
        by: u8,
    },
    /// `a >> by`, by below 64.
    Shr {
        /// The operand.
        a: ValueId,
        /// Bits to shift by.
        by: u8,
    },
    /// 1 where the comparison holds, else 0.
    Compare {
        /// The comparison.
        op: CompareOp,
        /// First operand.
        a: ValueId,
        /// Second operand.
        b: ValueId,
    },
    /// `a` where the scalar `cond` is not 0, else `b`; scalars, without a branch.
    Select {
        /// The condition.
        cond: ValueId,
        /// Result where it holds.
        a: ValueId,
        /// Result where not.
        b: ValueId,
    },
    /// Position of the lowest set bit of a scalar, 64 where there is none. The verifier knows a tighter bound where a
    /// bit is known to be set (`or` with a constant).
    FirstBit {
        /// The operand.
        a: ValueId,
    },
    /// The address of a row; the scalar `index` must be provably below the number of rows.
    Row {
        /// The table.
        table: TableId,
        /// Which row.
        index: ValueId,
    },
    /// One number of a column of a row.
    Load {
        /// The row.
        row: ValueId,
        /// Position in the table's columns.
        column: u8,
        /// Which number of the column, provably below its count; `None` is the first.
        index: Option<ValueId>,
    },
    /// `lanes` adjacent numbers of at most 4 bytes of a column of a row, as lanes; narrow ones are extended by zeros.
    LoadLanes {
        /// The row.
        row: ValueId,
        /// Position in the table's columns.
        column: u8,
        /// The first number.
        first: u16,
        /// How many: 4, 8 or 16.
        lanes: u8,
    },
    /// One number of scratch, at an index that is provably inside.
    LoadScratch {
        /// Which number.
        index: ValueId,
    },
    /// The `index`-th run of `lanes` adjacent numbers of scratch, as lanes; provably inside.
    LoadScratchLanes {
        /// Which run: it starts at number `index * lanes`.
        index: ValueId,
        /// How many: 4, 8 or 16.
        lanes: u8,
    },
    /// Sets bits of one number of scratch: those of the scalar `bits`, provably below 2^32.
    OrScratch {
        /// Which number, provably inside.
        index: ValueId,
        /// The bits to set.
        bits: ValueId,
    },
    /// Lane by lane `a & b`.
    AndLanes {
        /// First operand.
        a: ValueId,
        /// Second operand.
        b: ValueId,
    },
    /// The scalar `a`, provably below 2^32, in each lane.
    Splat {
        /// The operand.
        a: ValueId,
        /// How many: 4, 8 or 16.
        lanes: u8,
    },
    /// Where the comparison holds.
    CompareLanes {
        /// The comparison.
        op: LaneCompareOp,
        /// First operand.
        a: ValueId,
        /// Second operand.
        b: ValueId,
    },
    /// Where `x - lo <= len` modulo 2^32: x in the closed interval that starts at lo and has len + 1 values.
    InRangeLanes {
        /// The values.
        x: ValueId,
        /// First values of the intervals.
        lo: ValueId,
        /// Number of values of the intervals, less one.
        len: ValueId,
    },
    /// Where `x - lo <= len` modulo 2^16 in both halves of 16 bits of a lane: two narrow numbers in closed intervals.
    InRangeHalves {
        /// The values, two a lane.
        x: ValueId,
        /// First values of the intervals.
        lo: ValueId,
        /// Number of values of the intervals, less one.
        len: ValueId,
    },
    /// Where `x & mask = value`.
    MaskedEqLanes {
        /// The values.
        x: ValueId,
        /// The bits that count.
        mask: ValueId,
        /// What they must be.
        value: ValueId,
    },
    /// Two lane masks to one.
    CombineMasks {
        /// The operation.
        op: MaskOp,
        /// First operand.
        a: ValueId,
        /// Second operand.
        b: ValueId,
    },
    /// A lane mask as a scalar: bit i for lane i.
    LaneBits {
        /// The mask.
        mask: ValueId,
    },
    /// Lane by lane `min(acc, x)` where the mask holds, `acc` elsewhere.
    MaskedMin {
        /// What has been found so far.
        acc: ValueId,
        /// Which lanes of `x` count.
        mask: ValueId,
        /// The candidates.
        x: ValueId,
    },
    /// The smallest lane, as a scalar.
    HorizontalMin {
        /// The lanes.
        a: ValueId,
    },
}

/// How a block ends. Arguments are supplied to the target's parameters in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// To a later block.
    Jump {
        /// The later block.
        to: BlockId,
        /// Values of its parameters.
        args: Vec<ValueId>,
    },
    /// To one of two later blocks: `then` where the scalar `cond` is not 0.
    BranchIf {
        /// The condition.
        cond: ValueId,
        /// Where to if it holds.
        then: BlockId,
        /// Values of its parameters.
        then_args: Vec<ValueId>,
        /// Where to if not.
        otherwise: BlockId,
        /// Values of its parameters.
        else_args: Vec<ValueId>,
    },
    /// Back to the head of the loop that this block is in, for its next trip, with the counter one higher; after the last
    /// trip on to `exit`, a later block.
    Repeat {
        /// The head: this block or an earlier one, whose `trips` is set.
        head: BlockId,
        /// Values of the head's parameters after the counter, which is not among them.
        args: Vec<ValueId>,
        /// Where to after the last trip.
        exit: BlockId,
        /// Values of its parameters.
        exit_args: Vec<ValueId>,
    },
    /// The end: a row below the program's `verdicts`, or [`MISS`].
    Return {
        /// The result, a scalar below 2^32.
        value: ValueId,
    },
}

impl Inst {
    /// Calls `f` with each operand, in the order of the text form.
    pub fn for_each_operand(&self, mut f: impl FnMut(ValueId)) {
        match *self {
            Self::Const(_) | Self::LoadKey { .. } => {}
            Self::Binary { a, b, .. }
            | Self::Compare { a, b, .. }
            | Self::CompareLanes { a, b, .. }
            | Self::AndLanes { a, b }
            | Self::CombineMasks { a, b, .. } => {
                f(a);
                f(b);
            }
            Self::Shl { a, .. }
            | Self::Shr { a, .. }
            | Self::FirstBit { a }
            | Self::Splat { a, .. }
            | Self::HorizontalMin { a } => f(a),
            Self::Select { cond, a, b } => {
                f(cond);
                f(a);
                f(b);
            }
            Self::Row { index, .. } => f(index),
            Self::Load { row, index, .. } => {
                f(row);
                if let Some(index) = index {
                    f(index);
                }
            }
            Self::LoadLanes { row, .. } => f(row),
            Self::LoadScratch { index } | Self::LoadScratchLanes { index, .. } => f(index),
            Self::OrScratch { index, bits } => {
                f(index);
                f(bits);
            }
            Self::InRangeLanes { x, lo, len } | Self::InRangeHalves { x, lo, len } => {
                f(x);
                f(lo);
                f(len);
            }
            Self::MaskedEqLanes { x, mask, value } => {
                f(x);
                f(mask);
                f(value);
            }
            Self::LaneBits { mask } => f(mask),
            Self::MaskedMin { acc, mask, x } => {
                f(acc);
                f(mask);
                f(x);
            }
        }
    }
}

impl Terminator {
    /// Calls `f` with each value that the terminator uses.
    pub fn for_each_operand(&self, mut f: impl FnMut(ValueId)) {
        match self {
            Self::Jump { args, .. } => args.iter().copied().for_each(f),
            Self::BranchIf {
                cond,
                then_args,
                else_args,
                ..
            } => {
                f(*cond);
                then_args.iter().chain(else_args).copied().for_each(f);
            }
            Self::Repeat {
                args, exit_args, ..
            } => args.iter().chain(exit_args).copied().for_each(f),
            Self::Return { value } => f(*value),
        }
    }
}
