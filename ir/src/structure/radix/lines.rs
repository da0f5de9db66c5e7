//! Cells of `radix` that are one cache line each.
//!
//! ```text
//! x'     = x without the trailing bits that no boundary has
//! block  = leading bits of x'                               each has a base and a number of cells, a power of two
//! line   = base + (the other bits of x' * cells >> how many they are)
//! row    | first x 7, 0 | length x 7, all | row x 7, else |      2, 2 and 4 bytes each, 64 in all
//! result = row of the first interval that has the low 16 bits of x'; the last one has all
//! ```
//!
//! A cell has at most 2^16 values of x', so that 16 bits tell where an interval begins and ends in it. The row that most
//! segments of a cell have, as a rule the miss between ranges, is what is found `else`, and takes no interval. A block has
//! as many cells as its fullest one needs. A block inside one segment is a single cell, which it shares with the block
//! before if that is inside the same. With one block there is no table of them: `line` is the leading bits of x'.
//!
//! So a lookup touches one line of a large table, at the price of up to 64 bytes a segment where they are unevenly spread.

use std::ops::Range;

use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::key::Word;
use crate::program::{BinaryOp, Column, Inst, Table};
use crate::structure::segments::Segments;
use crate::structure::{Cost, Input};
use crate::table::TableWriter;

/// Intervals of a line, and one more that has all values.
const INTERVALS: usize = 7;
const LANES: u8 = INTERVALS as u8 + 1;
/// Most segments that are found in one line: what is `else` between any two intervals, and beside them.
const MAX_SEGMENTS: usize = 2 * INTERVALS + 1;
/// Most bits of x' that a cell leaves.
const CELL_BITS: u8 = 16;
/// How many bits of x' a block leaves: those that are tried, beside all.
const BLOCK_BITS: [u8; 2] = [18, 20];

/// One line for each cell.
pub(super) struct Lines {
    word: Word,
    /// The trailing bits of the word that no boundary has.
    low_bits: u8,
    /// The bits of x' behind the prefix.
    bits: u8,
    /// How many of these a block leaves.
    block_bits: u8,
    blocks: Vec<Block>,
    /// How many lines there are.
    len: usize,
}

/// Cells of the same size, side by side.
#[derive(Clone, Copy)]
struct Block {
    /// The line of the first.
    base: u32,
    /// The number of cells is that power of two.
    split: u8,
}

impl Lines {
    /// Lines over `segments` that take least time, if fewer than there are segments are enough.
    pub(super) fn of(input: &Input<'_>, segments: &Segments) -> Option<Self> {
        // A single segment may have a word, whose bits behind the prefix are all the same.
        let &[word] = segments.words() else {
            return None;
        };
        if segments.len() == 1 {
            return None;
        }
        let field = input.layout().field(segments.field());
        let word_bits = field.bits() - segments.prefix_bits() - word.shift;
        let lasts = segments.lasts().iter().map(|&last| word.of(last));
        let low_bits = lasts.map(|last| last.trailing_ones()).min()? as u8;
        // Of two segments the first ends before the last value.
        let bits = word_bits - low_bits;
        if bits <= CELL_BITS {
            // A table of all values is no larger.
            return None;
        }
        let cut = |block_bits| Self::cut(segments, word, low_bits, bits, block_bits);
        let tried = BLOCK_BITS.into_iter().filter(|&tried| tried < bits);
        let nanoseconds = |lines: &Self| input.machine.nanoseconds(&lines.cost());
        tried
            .chain([bits])
            .filter_map(cut)
            .min_by(|a, b| nanoseconds(a).total_cmp(&nanoseconds(b)))
    }

    /// With blocks that leave so many bits.
    fn cut(
        segments: &Segments,
        word: Word,
        low_bits: u8,
        bits: u8,
        block_bits: u8,
    ) -> Option<Self> {
        let mut lines = Self {
            word,
            low_bits,
            bits,
            block_bits,
            blocks: Vec::with_capacity(1 << (bits - block_bits)),
            len: 0,
        };
        let (lasts, rows) = (lines.lasts(segments), segments.rows());
        // The segment that the last block is inside.
        let mut inside = None;
        let mut is_shared = Vec::with_capacity(lines.blocks.capacity());
        let mut lines_of_split = [0; 33];
        for run in runs(&lasts, 0, 0, block_bits, 1 << (bits - block_bits)) {
            let is_fine = |&split: &u8| {
                let first = (lines.blocks.len() as u64) << block_bits;
                let cells = runs(&lasts, run.start, first, block_bits - split, 1 << split);
                run.len() <= MAX_SEGMENTS << split && { cells }
                    .all(|cell| otherwise(&rows[cell]).is_some())
            };
            let split = if run.len() == 1 {
                0
            } else {
                (block_bits.saturating_sub(CELL_BITS)..=block_bits)
                    .take_while(|&split| lines.len + (1 << split) <= segments.len())
                    .find(is_fine)?
            };
            let single = (run.len() == 1).then_some(run.start);
            is_shared.push(single.is_some() && single == inside);
            inside = single;
            lines.blocks.push(Block { base: 0, split });
            if !*is_shared.last()? {
                lines_of_split[usize::from(split)] += 1u32 << split;
                lines.len += 1 << split;
            }
        }
        // Those with most cells come last, so that base and cell are in range whatever the block that they are of.
        let mut next = 0;
        let mut bases = lines_of_split.map(|count| {
            next += count;
            next - count
        });
        let mut before = 0;
        for (block, is_shared) in lines.blocks.iter_mut().zip(is_shared) {
            if !is_shared {
                before = bases[usize::from(block.split)];
                bases[usize::from(block.split)] += 1 << block.split;
            }
            block.base = before;
        }
        Some(lines)
    }

    /// The last value of each segment, as x'.
    fn lasts(&self, segments: &Segments) -> Vec<u64> {
        let lasts = segments.lasts().iter();
        let mask = (1 << self.bits) - 1;
        lasts
            .map(|&last| self.word.of(last) >> self.low_bits & mask)
            .collect()
    }

    fn has_blocks(&self) -> bool {
        self.blocks.len() > 1
    }

    /// What a search costs.
    pub(super) fn cost(&self) -> Cost {
        let lines = Cost {
            instructions: 16.0,
            dependent_loads: 1.0,
            lines: 1.0,
            table_bytes: 64 * self.len,
        };
        if !self.has_blocks() {
            return lines;
        }
        let blocks = Cost {
            instructions: 7.0,
            dependent_loads: 1.0,
            lines: 1.0,
            table_bytes: 8 * self.blocks.len(),
        };
        blocks + lines
    }

    /// Emits the search; yields what the segment that the key is in has.
    pub(super) fn emit(&self, b: &mut ProgramBuilder, segments: &Segments, lanes: u8) -> ValueId {
        let x = b.load_key(self.word.offset, self.word.bytes, self.word.order);
        let x = b.shr(x, self.low_bits);
        let line = self.emit_line(b, x);
        let table = b.table(self.table(segments));
        let row = b.row(table, line);
        b.stage(row);
        let low = b.binary_const(BinaryOp::And, x, (1 << CELL_BITS) - 1);
        let lanes = lanes.min(LANES);
        let x = b.splat(low, lanes);
        let mut bits = b.constant(1 << INTERVALS);
        for first in (0..LANES).step_by(lanes.into()) {
            let lo = b.load_lanes(row, 0, first.into(), lanes);
            let len = b.load_lanes(row, 1, first.into(), lanes);
            let mask = b.inst(Inst::InRangeLanes { x, lo, len });
            let more = b.lane_bits(mask);
            let more = b.shl(more, first);
            bits = b.binary(BinaryOp::Or, more, bits);
        }
        let interval = b.first_bit(bits);
        b.load(row, 2, Some(interval))
    }

    /// Emits the number of the line.
    fn emit_line(&self, b: &mut ProgramBuilder, x: ValueId) -> ValueId {
        let leading = |b: &mut ProgramBuilder, bits: u8| {
            if bits == 0 {
                return b.constant(0);
            }
            let leading = b.shr(x, self.bits - bits);
            if 8 * self.word.bytes == self.bits + self.low_bits {
                return leading;
            }
            b.binary_const(BinaryOp::And, leading, (1 << bits) - 1)
        };
        if !self.has_blocks() {
            return leading(b, self.blocks[0].split);
        }
        let block = leading(b, self.bits - self.block_bits);
        let blocks = b.table(self.block_table());
        let row = b.row(blocks, block);
        let base = b.load(row, 0, None);
        let cells = b.load(row, 1, None);
        let rest = b.binary_const(BinaryOp::And, x, (1 << self.block_bits) - 1);
        let product = b.binary(BinaryOp::Mul, rest, cells);
        let cell = b.shr(product, self.block_bits);
        b.binary(BinaryOp::Add, base, cell)
    }

    fn block_table(&self) -> Table {
        let column = |name: &str, offset, max: u32| Column {
            name: name.into(),
            offset,
            bytes: 4,
            count: 1,
            max: max.into(),
            is_result: false,
        };
        let base = self.blocks.iter().map(|block| block.base).max();
        let split = self.blocks.iter().map(|block| block.split).max();
        let columns = vec![
            column("line", 0, base.unwrap_or(0)),
            column("cells", 4, 1 << split.unwrap_or(0)),
        ];
        let mut table = TableWriter::new("blocks", columns, self.blocks.len());
        for (row, block) in self.blocks.iter().enumerate() {
            table.set_lane(row, 0, &[block.base, 1 << block.split]);
        }
        table.finish()
    }

    fn table(&self, segments: &Segments) -> Table {
        let column = |name: &str, offset| Column {
            name: name.into(),
            offset,
            bytes: 2,
            count: LANES.into(),
            max: u16::MAX.into(),
            is_result: false,
        };
        let columns = vec![
            column("first", 0),
            column("length", 16),
            segments.result_column(1, LANES.into()),
        ];
        let mut table = TableWriter::new("lines", columns, self.len);
        let (lasts, rows) = (self.lasts(segments), segments.rows());
        let blocks = runs(
            &lasts,
            0,
            0,
            self.block_bits,
            1 << (self.bits - self.block_bits),
        );
        for ((block, run), number) in self.blocks.iter().zip(blocks).zip(0u64..) {
            let first = number << self.block_bits;
            let cell_bits = self.block_bits - block.split;
            let cells = runs(&lasts, run.start, first, cell_bits, 1 << block.split);
            for (cell, line) in cells.zip(block.base as usize..) {
                let cell_first = first + (((line - block.base as usize) as u64) << cell_bits);
                let cell_last = cell_first + ((1 << cell_bits) - 1);
                let otherwise = otherwise(&rows[cell.clone()]).unwrap_or(rows[cell.start]);
                let intervals = cell.filter(|&segment| rows[segment] != otherwise);
                let intervals = intervals.map(|segment| {
                    let before = segment.checked_sub(1).map(|before| lasts[before] + 1);
                    let first = before.unwrap_or(0).max(cell_first);
                    let length = lasts[segment].min(cell_last) - first;
                    [
                        first as u32 & u32::from(u16::MAX),
                        length as u32,
                        rows[segment],
                    ]
                });
                let all = std::iter::repeat([0, u16::MAX.into(), otherwise]);
                for (lane, numbers) in (0..LANES.into()).zip(intervals.chain(all)) {
                    table.set_lane(line, lane, &numbers);
                }
            }
        }
        table.finish()
    }
}

/// The segments that reach into each of `count` cells of 2^`bits` values from `value` on, where the first is segment `at`.
fn runs(
    lasts: &[u64],
    at: usize,
    value: u64,
    bits: u8,
    count: u64,
) -> impl Iterator<Item = Range<usize>> {
    let ends = (1..=count).map(move |cell| value + (cell << bits) - 1);
    ends.scan(at, |at, end| {
        let reach = lasts[*at..].iter().take_while(|&&last| last < end).count();
        let run = *at..*at + reach + 1;
        *at += reach + usize::from(lasts[*at + reach] == end);
        Some(run)
    })
}

/// The row that most segments of a cell have, if a line has intervals for the others.
fn otherwise(rows: &[u32]) -> Option<u32> {
    if rows.len() > MAX_SEGMENTS {
        return None;
    }
    let count = |wanted: u32| rows.iter().filter(|&&row| row == wanted).count();
    let most = rows.iter().copied().max_by_key(|&row| count(row))?;
    (rows.len() - count(most) <= INTERVALS).then_some(most)
}
