//! `radix`: the leading bits of the field that vary select a small search tree, most often a single node.
//!
//! ```text
//! cell   = leading bits of x                                10.0.0.0 .. 10.0.3.255, 4 bits, say: 64 values a cell
//! tree   = cells[cell]                                      left out where each cell has a tree of its own
//! row    | last value x 8 | row x 8 |                       one cache line: 10.0.0.9 -> 0 | 10.0.0.63 -> miss | ...
//! result = row number of the first segment whose last value is not below x
//! ```
//!
//! Segments ([`segments`](crate::structure::segments)) that reach into a cell are in the tree of the cell. Neighbouring cells
//! share a tree while it has room, so that large segments cost one entry a cell and no more, and small ones fill their nodes.
//! A cell with more segments than a node takes a tree of two levels, for all cells alike: the code has no branch. Where
//! even the finest index leaves a cell with more, the structure refuses and `tree` is the one that holds them.
//!
//! All numbers of index bits that are sensible for so many segments, and all shapes of trees, are tried, but for those that
//! would take longer than the best so far if cells shared as well as they can: few bits make a small index, many bits small
//! trees. Large sets of one word often do best with cells that are a single cache line, however wide each must be
//! ([`lines`]).
//!
//! Wide fields: the index needs four bytes of the key only; the node compares what words are left to tell segments apart.
//!
//! Cost: about 14 instructions with one node of one vector and one word; dependent loads are `cells`, the node, the row
//! number; two or three lines. 4 bytes a cell and 16 to 18 bytes a segment.
//!
//! Sources: an index of leading bits before a second step is DIR-24-8 (Gupta, Lin and McKeown, 1998) and the root of
//! Poptrie (Asai and Ohara, 2015); comparing what is left of a cell at once takes the place of their second tables, whose
//! size depends on the lengths of prefixes.

mod lines;

use std::ops::Range;

use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::field::ByteOrder;
use crate::key::Word;
use crate::program::{BinaryOp, Program};
use crate::structure::radix::lines::Lines;
use crate::structure::segments::Segments;
use crate::structure::tree::Forest;
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::flat;

/// Most bits of the index: 64 MiB of cells.
const MAX_BITS: u8 = 24;
/// How many more bits than one cell a segment would need are tried, and how many fewer.
const MORE_BITS: u8 = 4;
const FEWER_BITS: u8 = 6;
/// Vectors of the nodes of the trees that are tried, the last one the leaf's.
const TREES: [&[u32]; 6] = [&[1], &[2], &[1, 1], &[1, 2], &[2, 1], &[2, 2]];

/// A lookup costs at least this: a node of one vector.
pub(crate) const FLOOR: Cost = Cost {
    instructions: 14.0,
    dependent_loads: 1.0,
    lines: 1.0,
    table_bytes: 0,
};

/// A small search tree or a line, selected by an index.
pub(crate) struct Radix {
    search: Search,
    cost: Cost,
}

enum Search {
    Trees {
        index: Index,
        forest: Forest,
        /// Whether each cell has a tree of its own, without `cells` between.
        is_direct: bool,
    },
    Lines(Lines),
}

impl Radix {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        Self::of(input, input.segments()?)
    }

    /// The best index of `segments`.
    pub(crate) fn of(input: &Input<'_>, segments: &Segments) -> Result<Self, Refusal> {
        let common = segments.common_cost(input.layout());
        let lines = Lines::of(input, segments).map(|lines| Self {
            cost: lines.cost() + common,
            search: Search::Lines(lines),
        });
        let nanoseconds = |radix: &Self| input.machine.nanoseconds(&radix.cost);
        let least = lines.as_ref().map_or(f64::INFINITY, nanoseconds);
        let finest = Index::finest(input, segments);
        Self::trees(input, segments, finest, common, least)
            .or(lines)
            .ok_or_else(|| Refusal::Crowded {
                segments: crowd(&finest.stretches(segments.lasts())) as usize,
                cells: 1 << finest.bits,
            })
    }

    /// The best index of trees, if it takes at most `least` nanoseconds.
    fn trees(
        input: &Input<'_>,
        segments: &Segments,
        finest: Index,
        common: Cost,
        mut least: f64,
    ) -> Option<Self> {
        let lanes = u32::from(input.machine.lanes);
        let forests = TREES.map(|vectors| {
            let fanouts = vectors.iter().map(|vectors| vectors * lanes).collect();
            Forest::new(input, segments, fanouts)
        });
        let mut best = None;
        // The fewer the bits, the more is in a cell.
        for bits in (finest.bits.saturating_sub(MORE_BITS + FEWER_BITS)..=finest.bits).rev() {
            let index = finest.with_bits(bits);
            let costs = |forest: &Forest, trees: usize| {
                let direct = index.cost(None) + forest.cost(1 << bits) + common;
                let shared = index.cost(Some(trees)) + forest.cost(trees) + common;
                [(true, direct), (false, shared)]
                    .map(|(is_direct, cost)| (is_direct, cost, input.machine.nanoseconds(&cost)))
            };
            let is_promising = |forest: &&Forest| {
                let fewest = segments.len().div_ceil(forest.capacity() as usize);
                fewest <= 1 << bits
                    && costs(forest, fewest)
                        .iter()
                        .any(|&(.., at_least)| at_least <= least)
            };
            let promising: Vec<&Forest> = forests.iter().filter(is_promising).collect();
            if promising.is_empty() {
                continue;
            }
            let stretches = index.stretches(segments.lasts());
            let crowd = crowd(&stretches);
            let mut is_first = true;
            for forest in promising {
                if crowd > forest.capacity() {
                    continue;
                }
                let trees = Trees::shared(&stretches, forest.capacity()).runs.len();
                for (is_direct, cost, nanoseconds) in costs(forest, trees) {
                    // Of equals, that with fewest bits, and the first of these.
                    if nanoseconds < least || is_first && nanoseconds <= least {
                        least = nanoseconds;
                        is_first = false;
                        let search = Search::Trees {
                            index,
                            forest: forest.clone(),
                            is_direct,
                        };
                        best = Some(Self { search, cost });
                    }
                }
            }
            if forests.iter().all(|forest| crowd > forest.capacity()) {
                break;
            }
        }
        best
    }

    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Result<Program, Refusal> {
        if input.rows.is_empty() {
            return Ok(empty(input));
        }
        let segments = input.segments()?;
        let mut b = input.program();
        let found = self.emit(&mut b, input, segments);
        Ok(segments.finish(input, b, found))
    }

    /// Emits the search; yields what the segment that the key is in has.
    pub(crate) fn emit(
        &self,
        b: &mut ProgramBuilder,
        input: &Input<'_>,
        segments: &Segments,
    ) -> ValueId {
        let (index, forest, is_direct) = match &self.search {
            Search::Lines(lines) => return lines.emit(b, segments, input.machine.lanes),
            Search::Trees {
                index,
                forest,
                is_direct,
            } => (index, forest, *is_direct),
        };
        let stretches = index.stretches(segments.lasts());
        let (x, cell) = index.emit(b);
        let (runs, tree) = if is_direct {
            let runs = stretches
                .into_iter()
                .flat_map(|stretch| stretch.cells.map(move |_| stretch.segments.clone()));
            (runs.collect(), cell)
        } else {
            let trees = Trees::shared(&stretches, forest.capacity());
            let cells: Vec<u32> = stretches
                .iter()
                .zip(trees.of_stretch)
                .flat_map(|(stretch, tree)| stretch.cells.clone().map(move |_| tree))
                .collect();
            let cells = b.table(flat("cells", "tree", &cells));
            let row = b.row(cells, cell);
            (trees.runs, b.load(row, 0, None))
        };
        let loaded = Some((index.word, x));
        forest.emit(b, segments, &runs, Some(tree), loaded)
    }
}

/// The leading bits of the field that vary.
#[derive(Clone, Copy)]
struct Index {
    /// The part of the key that they are in.
    word: Word,
    /// The bits of the field behind the prefix.
    free_bits: u8,
    /// How many of the free bits it has.
    bits: u8,
}

impl Index {
    /// With the most bits that make sense.
    fn finest(input: &Input<'_>, segments: &Segments) -> Self {
        let layout = input.layout();
        let field = layout.field(segments.field());
        // Four bytes have all that is wanted behind a prefix that ends anywhere in the first.
        let bytes = match field.bytes() {
            1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        let start = (segments.prefix_bits() / 8).min(field.bytes() - bytes);
        let behind = field.bytes() - start - bytes;
        let offset = match field.byte_order() {
            ByteOrder::Big => start,
            ByteOrder::Little => behind,
        };
        let word = Word {
            field: segments.field(),
            offset: layout.offset(segments.field()) as u16 + u16::from(offset),
            bytes,
            order: field.byte_order(),
            shift: 8 * behind,
        };
        let free_bits = field.bits() - segments.prefix_bits();
        let wanted = segments.len().ilog2() as u8 + MORE_BITS;
        let bits = wanted.min(MAX_BITS).min(free_bits - word.shift);
        Self {
            word,
            free_bits,
            bits,
        }
    }

    fn with_bits(self, bits: u8) -> Self {
        Self { bits, ..self }
    }

    /// The bits of the field behind the index.
    fn rest_bits(&self) -> u8 {
        self.free_bits - self.bits
    }

    /// The cell of a value of the block.
    fn cell(&self, value: u128) -> u32 {
        let leading = value.checked_shr(self.rest_bits().into()).unwrap_or(0);
        leading as u32 & self.max()
    }

    fn max(&self) -> u32 {
        (1 << self.bits) - 1
    }

    /// All cells with the segments that reach into them, in order.
    fn stretches(&self, lasts: &[u128]) -> Vec<Stretch> {
        let rest = u128::MAX
            .checked_shl(self.rest_bits().into())
            .map_or(u128::MAX, |high| !high);
        let is_end_of_cell = |last: u128| last & rest == rest;
        let mut stretches = Vec::new();
        let (mut cell, mut segment) = (0, 0);
        while cell <= self.max() {
            let last = lasts[segment];
            let whole = self.cell(last) + u32::from(is_end_of_cell(last));
            let start = segment;
            if cell < whole {
                // Cells that lie inside one segment.
                segment += usize::from(is_end_of_cell(last));
                stretches.push(Stretch {
                    cells: cell..whole,
                    segments: start as u32..start as u32 + 1,
                });
                cell = whole;
                continue;
            }
            // The segment that reaches the end of the cell.
            while self.cell(lasts[segment]) == cell && !is_end_of_cell(lasts[segment]) {
                segment += 1;
            }
            stretches.push(Stretch {
                cells: cell..cell + 1,
                segments: start as u32..segment as u32 + 1,
            });
            segment += usize::from(self.cell(lasts[segment]) == cell);
            cell += 1;
        }
        stretches
    }

    /// What finding the tree costs, with or without `cells` that tell so many trees apart.
    fn cost(&self, cells: Option<usize>) -> Cost {
        // A shift, a mask, an address.
        let index = Cost {
            instructions: 4.0,
            ..Cost::default()
        };
        let Some(trees) = cells else {
            return index;
        };
        let cell_bytes = match trees {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        let cells = Cost {
            instructions: 3.0,
            dependent_loads: 1.0,
            lines: 1.0,
            table_bytes: cell_bytes << self.bits,
        };
        index + cells
    }

    /// Emits the word and the cell.
    fn emit(&self, b: &mut ProgramBuilder) -> (ValueId, ValueId) {
        let Word {
            offset,
            bytes,
            order,
            shift,
            ..
        } = self.word;
        let x = b.load_key(offset, bytes, order);
        if self.bits == 0 {
            return (x, b.constant(0));
        }
        let bits = b.shr(x, self.rest_bits() - shift);
        let has_prefix = 8 * bytes + shift > self.free_bits;
        let cell = if has_prefix {
            b.binary_const(BinaryOp::And, bits, self.max().into())
        } else {
            bits
        };
        (x, cell)
    }
}

/// Neighbouring cells, and the segments that reach into them: one cell, or any number of them inside the same segment.
struct Stretch {
    cells: Range<u32>,
    segments: Range<u32>,
}

impl Stretch {
    fn len(&self) -> u32 {
        self.segments.end - self.segments.start
    }
}

/// The segments in the fullest cell.
fn crowd(stretches: &[Stretch]) -> u32 {
    stretches.iter().map(Stretch::len).max().unwrap_or(0)
}

/// Trees that cells share.
struct Trees {
    /// The segments of each.
    runs: Vec<Range<u32>>,
    /// The tree of the cells of each stretch.
    of_stretch: Vec<u32>,
}

impl Trees {
    /// Trees for cells with at most `capacity` segments each; neighbours share one while it has room.
    fn shared(stretches: &[Stretch], capacity: u32) -> Self {
        let mut runs: Vec<Range<u32>> = Vec::new();
        let mut of_stretch = Vec::with_capacity(stretches.len());
        for Stretch { segments, .. } in stretches {
            match runs.last_mut() {
                Some(run) if segments.end - run.start <= capacity => run.end = segments.end,
                _ => runs.push(segments.clone()),
            }
            of_stretch.push(runs.len() as u32 - 1);
        }
        Self { runs, of_stretch }
    }
}
