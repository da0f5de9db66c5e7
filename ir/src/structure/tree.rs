//! `tree`: a search tree over the last values of segments whose nodes are compared at once; indifferent to how they lie.
//!
//! ```text
//! 1000 segments, 8 lanes          8 nodes of 16 x 8 segments          leaf: 8 segments
//! root   | 127 | 255 | ... |  ->  | 7 | 15 | ... | 127 |  ->  | 0 | 1 | ... | 7 | row x 8 |
//!        first lane whose last value is not below x: child
//! ```
//!
//! (Numbers of segments stand for their last values.) A node has the last value of each of its children; the first child
//! whose last value is not below x has x. The tree is implicit: child c of node i is node `i * fanout + c` of the next level,
//! since all nodes of a level have the same fanout, a power of two. Nodes behind the last segment are filled with it.
//! The number of levels is known, so that the code is a straight line: per level a comparison, a first set bit, an address.
//! The root is wide, up to four vectors, and lies in the pool behind the code; a set of up to 32 segments is a root alone.
//! The rows of the verdicts stand beside the last values in the leaves.
//!
//! Fields wider than 32 bits compare words lexicographically, but only the words that tell segments apart.
//!
//! Cost of a level: 3 instructions a vector for one word, 5 more for each further word, about 8 for the child; one dependent
//! load. For n segments there are `log(n / 8) / log(16)` levels beside root and leaves. It wins where values are so clustered
//! that `radix` finds no index that spreads them.
//!
//! Sources: k-ary search with SIMD over an implicit layout is Schlegel, Gemulla and Lehner, "k-ary search on modern
//! processors" (2009) and FAST (Kim et al., 2010); why a block per cache line beats binary and Eytzinger layouts is in
//! Khuong and Morin, "Array layouts for comparison-based searching" (2017).

use std::ops::Range;

use crate::builder::ProgramBuilder;
use crate::entity::{TableId, ValueId};
use crate::key::Word;
use crate::program::{BinaryOp, Column, Program, Table};
use crate::structure::compare::{End, lexicographic};
use crate::structure::segments::Segments;
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::TableWriter;

/// Most vectors of the root, which no load has to wait for.
const ROOT_VECTORS: u32 = 4;

/// A lookup costs at least this: a root of one vector.
pub(crate) const FLOOR: Cost = Cost {
    instructions: 10.0,
    dependent_loads: 1.0,
    lines: 0.5,
    table_bytes: 0,
};

/// One search tree over all segments.
pub(crate) struct Tree {
    forest: Forest,
    common: Cost,
}

impl Tree {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        Ok(Self::of(input, input.segments()?))
    }

    /// The best tree over `segments`.
    pub(crate) fn of(input: &Input<'_>, segments: &Segments) -> Self {
        let lanes = u32::from(input.machine.lanes);
        // Vectors of a node and of a leaf: small ones compare little, large ones make few levels.
        let [first, others @ ..] = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(node, leaf)| {
            let mut fanouts = Vec::new();
            let (mut nodes, mut fanout) = (segments.len() as u32, leaf * lanes);
            while nodes > ROOT_VECTORS * lanes {
                fanouts.push(fanout);
                nodes = nodes.div_ceil(fanout);
                fanout = node * lanes;
            }
            fanouts.push(nodes);
            fanouts.reverse();
            Self {
                forest: Forest::new(input, segments, fanouts),
                common: segments.common_cost(input.layout()),
            }
        });
        let nanoseconds = |tree: &Self| input.machine.nanoseconds(&tree.cost());
        others.into_iter().fold(first, |best, other| {
            if nanoseconds(&other) < nanoseconds(&best) {
                other
            } else {
                best
            }
        })
    }

    pub(crate) fn cost(&self) -> Cost {
        self.forest.cost(1) + self.common
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Result<Program, Refusal> {
        if input.rows.is_empty() {
            return Ok(empty(input));
        }
        let segments = input.segments()?;
        let mut b = input.program();
        let found = self.emit(&mut b, segments);
        Ok(segments.finish(input, b, found))
    }

    /// Emits the search; yields what the segment that the key is in has.
    pub(crate) fn emit(&self, b: &mut ProgramBuilder, segments: &Segments) -> ValueId {
        let all = 0..segments.len() as u32;
        self.forest.emit(b, segments, &[all], None, None)
    }
}

/// Implicit search trees of the same shape, each over a run of segments.
#[derive(Clone)]
pub(crate) struct Forest {
    /// What is compared of the field, the most significant first.
    words: Vec<Word>,
    /// The children of a node of each level, from the roots to the leaves: whole vectors, and a power of two, except where
    /// there is one tree and so one root.
    fanouts: Vec<u32>,
    lanes: u8,
    /// What comparing a vector with a node counts.
    vector: f64,
}

impl Forest {
    pub(crate) fn new(input: &Input<'_>, segments: &Segments, fanouts: Vec<u32>) -> Self {
        let words = segments.words().to_vec();
        let compare = if words.len() > 1 {
            5.0 * words.len() as f64 - 2.0
        } else {
            2.0 * words.len() as f64
        };
        Self {
            words,
            fanouts,
            lanes: input.machine.lanes,
            vector: input.machine.on_lanes(compare),
        }
    }

    /// The number of segments that one tree can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.fanouts.iter().product()
    }

    /// Numbers of a column of a node.
    fn width(&self, level: usize) -> u32 {
        self.fanouts[level].next_multiple_of(self.lanes.into())
    }

    fn is_leaf(&self, level: usize) -> bool {
        level + 1 == self.fanouts.len()
    }

    /// The columns of a level: a last value, word for word, and in leaves the row.
    fn columns(&self, level: usize, segments: &Segments) -> Vec<Column> {
        let (width, words) = (self.width(level), self.words.len() as u32);
        let mut columns: Vec<Column> = (0u32..)
            .zip(&self.words)
            .map(|(i, word)| Column {
                name: format!("last >> {}", word.shift).into(),
                offset: i * width * 4,
                bytes: 4,
                count: width,
                max: word.max(),
                is_result: false,
            })
            .collect();
        if self.is_leaf(level) {
            columns.push(segments.result_column(words, width));
        }
        columns
    }

    /// What a search costs in one of so many trees.
    pub(crate) fn cost(&self, trees: usize) -> Cost {
        let mut cost = Cost {
            instructions: 3.0 * self.words.len() as f64,
            ..Cost::default()
        };
        let mut nodes = trees;
        for (level, &fanout) in self.fanouts.iter().enumerate() {
            let width = self.width(level) as usize;
            let vectors = width as f64 / f64::from(self.lanes);
            let compared_bytes = 4 * width * self.words.len();
            let result_bytes = if self.is_leaf(level) { 4 * width } else { 0 };
            let is_constant = nodes == 1;
            // The mask to a scalar and its or; then the first bit, the number of the child, its address.
            cost.instructions +=
                vectors * (self.vector + 3.0) + if is_constant { 2.0 } else { 6.0 };
            cost.lines += (compared_bytes + result_bytes) as f64 / 64.0;
            cost.table_bytes += nodes * (compared_bytes + result_bytes);
            nodes *= fanout as usize;
        }
        // Each node after the root, and the row of the verdict.
        cost.dependent_loads = self.fanouts.len() as f64;
        cost
    }

    /// Emits the search in tree number `tree`, or in the only one; yields the row of the segment that the key is in. Each
    /// tree is over the segments of `runs`. A word of the key that has been loaded already may be passed in `loaded`.
    pub(crate) fn emit(
        &self,
        b: &mut ProgramBuilder,
        segments: &Segments,
        runs: &[Range<u32>],
        tree: Option<ValueId>,
        loaded: Option<(Word, ValueId)>,
    ) -> ValueId {
        let xs: Vec<ValueId> = self
            .words
            .iter()
            .map(|&word| {
                let scalar = match loaded {
                    Some((known, value)) if known == word => value,
                    _ => b.load_key(word.offset, word.bytes, word.order),
                };
                b.splat(scalar, self.lanes)
            })
            .collect();
        let mut node = tree;
        for level in 0..self.fanouts.len() - 1 {
            let table = b.table(self.table(level, segments, runs));
            let (_, child) = self.emit_node(b, level, table, node, &xs);
            node = Some(match node {
                Some(node) => {
                    let first = b.shl(node, self.fanouts[level].ilog2() as u8);
                    b.binary(BinaryOp::Or, first, child)
                }
                None => child,
            });
        }
        let leaf = self.fanouts.len() - 1;
        let table = b.table(self.table(leaf, segments, runs));
        let (row, segment) = self.emit_node(b, leaf, table, node, &xs);
        b.stage(row);
        b.load(row, self.words.len() as u8, Some(segment))
    }

    /// Emits the comparison with one node; yields its row and which child has the key.
    fn emit_node(
        &self,
        b: &mut ProgramBuilder,
        level: usize,
        table: TableId,
        node: Option<ValueId>,
        xs: &[ValueId],
    ) -> (ValueId, ValueId) {
        let node = node.unwrap_or_else(|| b.constant(0));
        let row = b.row(table, node);
        // The last child has what no other has, so that its last value need not be compared and the first bit is in bounds.
        let mut bits = b.constant(1 << (self.fanouts[level] - 1));
        if !xs.is_empty() {
            for first in (0..self.width(level)).step_by(self.lanes.into()) {
                let mask = lexicographic(b, xs, End::Hi, |b, word| {
                    b.load_lanes(row, word as u8, first as u16, self.lanes)
                });
                let more = b.lane_bits(mask);
                let more = b.shl(more, first as u8);
                bits = b.binary(BinaryOp::Or, more, bits);
            }
        }
        (row, b.first_bit(bits))
    }

    /// The nodes of one level, those of one tree after those of the other.
    fn table(&self, level: usize, segments: &Segments, runs: &[Range<u32>]) -> Table {
        let fanout = self.fanouts[level] as usize;
        let nodes: usize = self.fanouts[..level].iter().product::<u32>() as usize;
        let below: usize = self.fanouts[level + 1..].iter().product::<u32>() as usize;
        let name = if self.is_leaf(level) {
            "leaves".into()
        } else {
            format!("nodes {level}")
        };
        let mut table = TableWriter::new(&name, self.columns(level, segments), runs.len() * nodes);
        let mut numbers = Vec::new();
        for (tree, run) in runs.iter().enumerate() {
            let last = run.end as usize - 1;
            for child in 0..nodes * fanout {
                // Children that there are not repeat the last segment: the first that is equal is found.
                let segment = last.min(run.start as usize + (child + 1) * below - 1);
                numbers.clear();
                numbers.extend(
                    self.words
                        .iter()
                        .map(|word| word.of(segments.lasts()[segment]) as u32),
                );
                numbers.push(segments.rows()[segment]);
                let (row, lane) = (tree * nodes + child / fanout, child % fanout);
                table.set_lane(row, lane, &numbers);
            }
        }
        table.finish()
    }
}
