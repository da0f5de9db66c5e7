//! `bucket`: some bits of the key select a bucket of at most K - 1 rules, which are compared at once.
//!
//! ```text
//! index  = pext(key, bits)
//! row    = cells[index]                     left out where nearly every cell has a bucket of its own
//! bucket | saddr lo x K | saddr len x K | dport lo x K | ... | row x K |      the strongest rule first
//! result = row number of the first lane that matches; the last lane is never filled and holds MISS
//! ```
//!
//! The bits are chosen by [`bits::choose`] so that they tell the rules apart. A rule goes to every cell that a key which it
//! matches can select. Rules that are wild in many of the chosen bits, or whose cells are full, are left to a *rest* that is
//! compared with every key; they are placed last, so that the rest stays small. The smaller of both row numbers wins.
//!
//! Cells with the same rules share a bucket, and sparse cells are packed together as long as they fit: what is too much in a
//! bucket is harmless, since lanes compare exactly.
//!
//! Cost: one dependent load (two with `cells`), (2 d + 1) K / 16 cache lines for d words a rule, and about 8 instructions a
//! word. Wins for rules that are disjoint or nearly so. After Vamanan et al., EffiCuts (2010), in that few bits cut the
//! space once and deep, and Hash-trie classifiers in that the cut is by bits anywhere in the key; the SIMD leaf is ours.

use std::collections::HashMap;

use crate::plan::{Effort, Pext};
use crate::program::{BinaryOp, Program};
use crate::structure::bits::{self, Index, Piece};
use crate::structure::compare::{Comparison, Splats, result_column};
use crate::structure::inline::{self, Inline};
use crate::structure::linear::Blocks;
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::{TableWriter, flat};

/// Vectors of one bucket that are tried.
const BUCKET_VECTORS: [u32; 3] = [1, 2, 4];
/// Most bits of an index.
const MAX_INDEX_BITS: usize = 20;
/// Copies of rules in all cells together, per rule and per cell, that are allowed.
const MAX_COPIES: usize = 16;

/// Which rules share a bucket.
struct Assignment {
    index: Index,
    /// Rules of one bucket at most, with the empty last lane.
    capacity: u32,
    /// Bucket of each cell.
    cells: Vec<u32>,
    /// Positions in `Input::rows`, ascending, of the rules in each bucket.
    buckets: Vec<Vec<u32>>,
    /// Positions in `Input::rows`, ascending, of the rules that are compared with every key.
    rest: Vec<u32>,
}

/// What is done about the rules that are in no bucket.
enum Rest {
    None,
    Inline(Inline),
    Blocks(Blocks),
}

/// Buckets whose rules are assigned.
pub(crate) struct Bucket {
    comparison: Comparison,
    assignment: Assignment,
    /// Whether the index is the number of the bucket, without `cells` between.
    is_direct: bool,
    rest: Rest,
}

impl Bucket {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        let layout = input.layout();
        let mut all: Vec<Piece> = Vec::new();
        let mut ends: Vec<usize> = Vec::with_capacity(input.rows.len());
        let sample = match input.effort {
            Effort::Fast => 1 << 11,
            Effort::Balanced => 1 << 13,
            Effort::Best => 1 << 16,
        };
        // Every n-th rule, so that all parts of the list are heard.
        let step = input.rows.len().div_ceil(sample).max(1);
        for (i, &row) in input.rows.iter().enumerate() {
            if i % step == 0 {
                bits::pieces(layout, input.rule(row), &mut all);
                ends.push(all.len());
            }
        }
        let max_bits = (input.rows.len().max(2).ilog2() as usize + 2).min(MAX_INDEX_BITS);
        let share = 1.0 / step as f64;
        let smallest = f64::from(u32::from(input.machine.lanes) - 1);
        let chosen = bits::choose(layout, &all, max_bits, smallest * share);
        drop(all);

        let rules = input.rows.iter().map(|&row| input.rule(row));
        let comparison = Comparison::new(layout, rules);
        let mut best: Option<(f64, Assignment)> = None;
        for depth in depths(chosen.len(), input) {
            let index = Index::new(layout, &chosen[..depth]);
            let placed = Placement::new(input, &index);
            for vectors in BUCKET_VECTORS {
                let capacity = vectors * u32::from(input.machine.lanes);
                let assignment = placed.assign(index.clone(), capacity);
                let cost = input.machine.nanoseconds(&Self::assignment_cost(
                    input,
                    &comparison,
                    &assignment,
                ));
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    best = Some((cost, assignment));
                }
            }
        }
        let Some((_, assignment)) = best else {
            // No depth: nothing to choose from.
            return Err(Refusal::TooManyRules { rules: 0, max: 0 });
        };
        Self::from_assignment(input, assignment)
    }

    fn from_assignment(input: &Input<'_>, assignment: Assignment) -> Result<Self, Refusal> {
        let mut is_rest = vec![false; input.rows.len()];
        for &rule in &assignment.rest {
            is_rest[rule as usize] = true;
        }
        let kept = input
            .rows
            .iter()
            .zip(&is_rest)
            .filter(|&(_, is_rest)| !is_rest);
        let comparison = Comparison::new(input.layout(), kept.map(|(&row, _)| input.rule(row)));
        let rest_rows: Vec<u32> = assignment
            .rest
            .iter()
            .map(|&rule| input.rows[rule as usize])
            .collect();
        let rest = match rest_rows.len() {
            0 => Rest::None,
            1..=inline::MAX_RULES => Rest::Inline(Inline::of(input, rest_rows)),
            _ => Rest::Blocks(Blocks::prepare(input, &rest_rows)?),
        };
        let row_bytes = row_bytes(&comparison, assignment.capacity);
        let direct = Self::table_cost(assignment.cells.len() * row_bytes, row_bytes, false);
        let shared = Self::table_cost(
            assignment.buckets.len() * row_bytes + 4 * assignment.cells.len(),
            row_bytes,
            true,
        );
        let is_direct = input.machine.nanoseconds(&direct) <= input.machine.nanoseconds(&shared);
        Ok(Self {
            comparison,
            assignment,
            is_direct,
            rest,
        })
    }

    fn table_cost(table_bytes: usize, row_bytes: usize, has_cells: bool) -> Cost {
        let extra = f64::from(u8::from(has_cells));
        Cost {
            instructions: 3.0 * extra,
            dependent_loads: 1.0 + extra,
            lines: row_bytes as f64 / 64.0 + extra,
            table_bytes,
        }
    }

    /// What an assignment would cost, with the comparison of all rules in place of those that it keeps.
    fn assignment_cost(
        input: &Input<'_>,
        comparison: &Comparison,
        assignment: &Assignment,
    ) -> Cost {
        let row_bytes = row_bytes(comparison, assignment.capacity);
        let bytes = (assignment.cells.len() * row_bytes)
            .min(assignment.buckets.len() * row_bytes + 4 * assignment.cells.len());
        let has_cells = bytes < assignment.cells.len() * row_bytes;
        let rest_blocks = (assignment.rest.len() as f64 / f64::from(input.machine.lanes)).ceil();
        let rest = Cost {
            instructions: if rest_blocks > 0.0 {
                rest_blocks * (comparison.block_cost().instructions + 6.0) + 8.0
            } else {
                0.0
            },
            lines: rest_blocks * f64::from(comparison.column_count() + 1) / 8.0,
            table_bytes: (rest_blocks * f64::from(comparison.column_count() + 1) * 32.0) as usize,
            dependent_loads: 0.0,
        };
        let blocks = f64::from(assignment.capacity / u32::from(input.machine.lanes));
        Self::bucket_cost(input, comparison, &assignment.index, blocks)
            + Self::table_cost(bytes, row_bytes, has_cells)
            + rest
    }

    fn bucket_cost(input: &Input<'_>, comparison: &Comparison, index: &Index, blocks: f64) -> Cost {
        let compare = Cost {
            // A mask to a scalar and its or; then the first bit, the row number and the address.
            instructions: blocks * (comparison.block_cost().instructions + 3.0) + 6.0,
            ..Cost::default()
        };
        index.cost(input.machine.pext == Pext::Fast) + comparison.key_cost(blocks) + compare
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        let assignment = &self.assignment;
        let row_bytes = row_bytes(&self.comparison, assignment.capacity);
        let blocks = f64::from(assignment.capacity / u32::from(input.machine.lanes));
        let table = if self.is_direct {
            Self::table_cost(assignment.cells.len() * row_bytes, row_bytes, false)
        } else {
            let bytes = assignment.buckets.len() * row_bytes + 4 * assignment.cells.len();
            Self::table_cost(bytes, row_bytes, true)
        };
        let rest = match &self.rest {
            Rest::None => Cost::default(),
            Rest::Inline(inline) => inline.cost(input),
            Rest::Blocks(blocks) => blocks.cost(input),
        };
        Self::bucket_cost(input, &self.comparison, &assignment.index, blocks) + table + rest
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        if input.rows.is_empty() {
            return empty(input);
        }
        let Assignment {
            index,
            capacity,
            cells,
            buckets,
            ..
        } = &self.assignment;
        let lanes = input.machine.lanes;
        let mut columns = self.comparison.columns(*capacity);
        columns.push(result_column(
            self.comparison.column_count(),
            *capacity,
            *capacity,
        ));
        let row_count = if self.is_direct {
            cells.len()
        } else {
            buckets.len()
        };
        let mut table = TableWriter::new("buckets", columns, row_count);
        let mut numbers = Vec::new();
        let mut fill = |row: usize, bucket: u32| {
            for (lane, &rule) in buckets[bucket as usize].iter().enumerate() {
                let verdict_row = input.rows[rule as usize];
                numbers.clear();
                self.comparison
                    .numbers(input.rule(verdict_row), &mut numbers);
                numbers.push(verdict_row);
                table.set_lane(row, lane, &numbers);
            }
        };
        if self.is_direct {
            for (cell, &bucket) in cells.iter().enumerate() {
                fill(cell, bucket);
            }
        } else {
            for bucket in 0..buckets.len() {
                fill(bucket, bucket as u32);
            }
        }

        let mut b = input.program();
        let buckets = b.table(table.finish());
        let mut number = index.emit(&mut b);
        if !self.is_direct {
            let cells = b.table(flat("cells", "bucket", cells));
            let cell = b.row(cells, number);
            number = b.load(cell, 0, None);
        }
        let row = b.row(buckets, number);
        let mut splats = Splats::default();
        let mut found =
            self.comparison
                .emit_first(&mut b, row, *capacity, capacity - 1, lanes, &mut splats);
        let rest = match &self.rest {
            Rest::None => None,
            Rest::Inline(inline) => Some(inline.emit(input, &mut b, &mut splats, "rest")),
            Rest::Blocks(blocks) => Some(blocks.emit(input, &mut b, &mut splats, "rest")),
        };
        if let Some(rest) = rest {
            found = b.binary(BinaryOp::Min, found, rest);
        }
        input.finish(b, found)
    }
}

fn row_bytes(comparison: &Comparison, capacity: u32) -> usize {
    ((comparison.column_count() + 1) * capacity * 4) as usize
}

/// Depths of the index that are tried: all for few rules, the deepest ones for many.
fn depths(max: usize, input: &Input<'_>) -> std::ops::RangeInclusive<usize> {
    let tried = match (input.effort, input.rows.len()) {
        (Effort::Best, _) | (_, 0..=4096) => 6,
        (Effort::Balanced, _) => 3,
        (Effort::Fast, _) => 1,
    };
    max.saturating_sub(tried - 1)..=max
}

/// The cells that each rule goes to.
struct Placement {
    /// For each rule the range of `runs` that are its own.
    ends: Vec<u32>,
    /// Fixed and wild bits of the index.
    runs: Vec<(u32, u32)>,
    /// Rules with the fewest cells first, and the strongest first among equals.
    order: Vec<u32>,
    cells: usize,
}

impl Placement {
    fn new(input: &Input<'_>, index: &Index) -> Self {
        let mut placement = Self {
            ends: Vec::new(),
            runs: Vec::new(),
            order: Vec::new(),
            cells: 1 << index.bits(),
        };
        let mut pieces = Vec::new();
        for &row in &input.rows {
            pieces.clear();
            bits::pieces(input.layout(), input.rule(row), &mut pieces);
            let start = placement.runs.len();
            placement
                .runs
                .extend(pieces.iter().map(|piece| index.cells(piece)));
            placement.runs[start..].sort_unstable();
            let mut kept = start;
            for i in start..placement.runs.len() {
                if kept == start || placement.runs[kept - 1] != placement.runs[i] {
                    placement.runs[kept] = placement.runs[i];
                    kept += 1;
                }
            }
            placement.runs.truncate(kept);
            placement.ends.push(kept as u32);
        }
        let mut order: Vec<u32> = (0..input.rows.len() as u32).collect();
        order.sort_by_cached_key(|&rule| (placement.count(rule), rule));
        placement.order = order;
        placement
    }

    fn runs(&self, rule: u32) -> &[(u32, u32)] {
        let start = if rule == 0 {
            0
        } else {
            self.ends[rule as usize - 1]
        };
        &self.runs[start as usize..self.ends[rule as usize] as usize]
    }

    /// The number of cells of a rule; cells that two of its runs share count twice.
    fn count(&self, rule: u32) -> usize {
        self.runs(rule)
            .iter()
            .map(|&(_, wild)| 1usize << wild.count_ones())
            .sum()
    }

    /// The cells of a rule, each once, ascending.
    fn cells(&self, rule: u32, out: &mut Vec<u32>) {
        out.clear();
        for &(fixed, wild) in self.runs(rule) {
            // All subsets of the wild bits.
            let mut subset = 0u32;
            loop {
                out.push(fixed | subset);
                subset = subset.wrapping_sub(wild) & wild;
                if subset == 0 {
                    break;
                }
            }
        }
        out.sort_unstable();
        out.dedup();
    }

    fn assign(&self, index: Index, capacity: u32) -> Assignment {
        let room = capacity as usize - 1;
        let mut filled = vec![0u8; self.cells];
        let mut slots = vec![0u32; self.cells * room];
        let mut rest = Vec::new();
        let mut cells = Vec::new();
        let mut copies = MAX_COPIES * (self.cells + self.order.len());
        for &rule in &self.order {
            let count = self.count(rule);
            if count > copies {
                rest.push(rule);
                continue;
            }
            self.cells(rule, &mut cells);
            if cells
                .iter()
                .any(|&cell| usize::from(filled[cell as usize]) == room)
            {
                rest.push(rule);
                continue;
            }
            copies -= cells.len();
            for &cell in &cells {
                let fill = &mut filled[cell as usize];
                slots[cell as usize * room + usize::from(*fill)] = rule;
                *fill += 1;
            }
        }
        rest.sort_unstable();
        let lists = (0..self.cells).map(|cell| {
            let start = cell * room;
            &slots[start..start + usize::from(filled[cell])]
        });
        let (cells, buckets) = pack(lists, room);
        Assignment {
            index,
            capacity,
            cells,
            buckets,
            rest,
        }
    }
}

/// Shares buckets between cells: those with the same rules, and those that fit into one bucket together.
fn pack<'a>(lists: impl Iterator<Item = &'a [u32]>, room: usize) -> (Vec<u32>, Vec<Vec<u32>>) {
    let mut buckets: Vec<Vec<u32>> = Vec::new();
    let mut known: HashMap<&[u32], u32> = HashMap::new();
    let mut cells = Vec::new();
    for list in lists {
        let bucket = *known.entry(list).or_insert_with(|| {
            // Neighbouring cells share rules most often.
            if let Some(last) = buckets.last_mut() {
                let new: Vec<u32> = list
                    .iter()
                    .copied()
                    .filter(|rule| !last.contains(rule))
                    .collect();
                if last.len() + new.len() <= room {
                    last.extend(new);
                    return buckets.len() as u32 - 1;
                }
            }
            buckets.push(list.to_vec());
            buckets.len() as u32 - 1
        });
        cells.push(bucket);
    }
    for bucket in &mut buckets {
        bucket.sort_unstable();
    }
    (cells, buckets)
}
