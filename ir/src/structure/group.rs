//! A rule group: the rules that one index of key bits can tell apart, assigned to buckets.
//!
//! The bits are chosen by [`Candidates::choose`] so that they tell the rules apart. A rule goes to every cell that a key
//! which it matches can select; rules with the fewest cells are placed first. A rule that is wild in many of the bits, or
//! that finds one of its cells full, is *left over* as a whole, for the next group or the rest.
//!
//! Cells with the same rules share a bucket, and sparse cells are packed together as long as they fit: what is too much in a
//! bucket is harmless, since lanes compare exactly.

use std::collections::HashMap;
use std::ops::Range;

use crate::plan::{Effort, Work};
use crate::rule::Rule;
use crate::structure::Input;
use crate::structure::bits::{
    self, Aim, COARSE, Candidates, FINE, Gather, Index, Splitter, Ternary, subsets,
};
use crate::structure::lists::Lists;

/// Most bits of an index.
pub(crate) const MAX_INDEX_BITS: usize = 20;
/// With more rules than this only one depth of an index is tried with little effort.
const FEW_RULES: usize = 1 << 12;
/// With more rules than this only one depth of an index is tried.
const MANY_RULES: usize = 1 << 17;
/// Copies of rules in all cells together, per rule and per cell, that are allowed.
const MAX_COPIES: usize = 4;
/// Limits on the chosen bits in which a rule may be wild that are tried. Over the nine ClassBench sets (2026-11-30, planner's
/// estimates in ns for fw1_10k and fw1_100k): 2 and 4 gave 129 and 1590, 1 and 3 gave 62 and 625, 1, 2 and 4 give 61 and 450.
pub(crate) const MAX_WILD: [u32; 3] = [1, 2, 4];

/// Which rules share a bucket. Rules are positions in `Input::rows`.
pub(crate) struct Assignment {
    pub(crate) index: Index,
    /// Lanes of a bucket; the last one stays empty.
    pub(crate) capacity: u32,
    /// Bucket of each cell.
    pub(crate) cells: Vec<u32>,
    /// The rules of each bucket, the strongest first.
    pub(crate) buckets: Vec<Vec<u32>>,
    /// The rules that are in no bucket, the strongest first.
    pub(crate) left_over: Vec<u32>,
}

impl Assignment {
    /// Those of `rules`, which have been assigned, that are in buckets.
    pub(crate) fn kept(&self, rules: &[u32]) -> Vec<u32> {
        let is_kept = |rule: &&u32| self.left_over.binary_search(rule).is_err();
        rules.iter().filter(is_kept).copied().collect()
    }

    /// Takes `rules`, in ascending order, out of all buckets.
    pub(crate) fn leave_over(&mut self, rules: Vec<u32>) {
        for bucket in &mut self.buckets {
            bucket.retain(|rule| rules.binary_search(rule).is_err());
        }
        self.left_over.extend(rules);
        self.left_over.sort_unstable();
    }
}

/// Units of work for splitting a rule into a piece, or for reducing one.
const WORK_PER_PIECE: usize = 16;
/// Units of work for splitting an interval: a search for the finest pieces that are few enough.
const WORK_PER_INTERVAL: usize = 128;

/// An assignment as far as it is known before its buckets are.
pub(crate) struct Outline<'a> {
    pub(crate) index: &'a Index,
    pub(crate) capacity: u32,
    /// Rules that are left over at least.
    pub(crate) left_over: usize,
}

/// Calls `try_one` with each assignment that is worth a look: several choices of bits, depths of the index, and capacities
/// out of `capacities`; as many as the work allows. `at_least` says of an outline what any group of it would cost, or `None`
/// where nothing can come of it; those that may cost least are tried first.
pub(crate) fn for_each_assignment(
    input: &Input<'_>,
    rules: &[u32],
    capacities: &[u32],
    at_least: impl Fn(&Outline<'_>) -> Option<f64>,
    mut try_one: impl FnMut(Assignment),
) {
    let layout = input.layout();
    let sample = match input.effort {
        Effort::Fast => 1 << 9,
        Effort::Balanced => 1 << 10,
        Effort::Best => 1 << 16,
    };
    // Every n-th rule, so that all parts of the list are heard.
    let step = rules.len().div_ceil(sample).max(1);
    let sample = || {
        let sample = rules.iter().step_by(step);
        sample.map(|&rule| rule_of(input, rule))
    };
    let mut pieces = Vec::new();
    for rule in sample() {
        bits::pieces(layout, rule, COARSE, &mut pieces);
    }
    let candidates = Candidates::new(layout, &pieces);
    let mut splitter = Splitter::new(layout, &candidates, COARSE);
    let mut coarse: Vec<Ternary> = Vec::with_capacity(pieces.len());
    for rule in sample() {
        coarse.extend_from_slice(splitter.split(rule));
    }
    let Some(reduced) = reduce(input, rules, &candidates) else {
        return;
    };
    let smallest = capacities.iter().copied().min().unwrap_or(1) - 1;
    let mut tried = Vec::new();
    for max_wild in MAX_WILD {
        let aim = Aim {
            max_bits: (rules.len().max(2).ilog2() as usize + 2).min(MAX_INDEX_BITS),
            capacity: f64::from(smallest) / step as f64,
            max_wild,
        };
        let chosen = candidates.choose(&coarse, &aim, &input.work);
        let all = &chosen.candidates[..];
        // The deepest leaves over least: what is tried after it is hopeless most often.
        for depth in depths(all.len(), input.effort, rules.len()).rev() {
            let chosen = &all[..depth];
            if tried.iter().any(|known| known == chosen) {
                continue;
            }
            tried.push(chosen.to_vec());
            let index = &Index::new(layout, &candidates.bits(chosen));
            let outline = |capacity: u32, left_over: usize| Outline {
                index,
                capacity,
                left_over,
            };
            let is_hopeful =
                |capacity: u32, left_over: usize| at_least(&outline(capacity, left_over)).is_some();
            if !capacities.iter().any(|&capacity| is_hopeful(capacity, 0)) {
                continue;
            }
            let Some(placement) = Placement::new(rules, &reduced, chosen, &input.work) else {
                return;
            };
            let mut filled: Vec<(f64, Filled<'_>)> = Vec::new();
            for &capacity in capacities {
                if !is_hopeful(capacity, placement.left_over.len()) {
                    continue;
                }
                if !input.work.spend(placement.work(capacity)) {
                    return;
                }
                let own = placement.fill(capacity);
                let bound = at_least(&outline(capacity, own.left_over.len()));
                filled.extend(bound.map(|bound| (bound, own)));
            }
            filled.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (_, filled) in filled {
                if is_hopeful(filled.capacity, filled.left_over.len()) {
                    try_one(filled.pack(index.clone()));
                }
            }
        }
        if !chosen.is_limited {
            break;
        }
    }
}

fn rule_of<'a>(input: &'a Input<'_>, rule: u32) -> &'a Rule {
    input.rule(input.rows[rule as usize])
}

/// Depths of the index that are tried: only the deepest one for many rules. A million rules take 5 s of planning with one depth,
/// 15 s with three (2026-11-30). Six gave no better estimate than three on any row of `build`, `shapes`, `hash` and `single`.
fn depths(max: usize, effort: Effort, rules: usize) -> std::ops::RangeInclusive<usize> {
    let tried = match (effort, rules) {
        (Effort::Best, _) => 6,
        (_, 0..=FEW_RULES) | (Effort::Balanced, 0..=MANY_RULES) => 3,
        (Effort::Balanced | Effort::Fast, _) => 1,
    };
    max.saturating_sub(tried - 1)..=max
}

/// The pieces of each rule, reduced to the candidates for an index, so that rules are split once for all indexes; `None` where
/// there is no work left.
fn reduce(input: &Input<'_>, rules: &[u32], candidates: &Candidates) -> Option<Lists<Ternary>> {
    let fields = input.layout().fields();
    let mut lists = Lists::default();
    let mut splitter = Splitter::new(input.layout(), candidates, FINE);
    for &rule in rules {
        let rule = rule_of(input, rule);
        let pieces = splitter.split(rule);
        let conditions = fields.iter().zip(&rule.matches);
        let intervals = conditions.filter(|(field, m)| m.care(field).is_none());
        let work =
            WORK_PER_PIECE * (pieces.len() + fields.len()) + WORK_PER_INTERVAL * intervals.count();
        if !input.work.spend(work) {
            return None;
        }
        lists.push(pieces.iter().copied());
    }
    Some(lists)
}

/// Sorts what lies behind `start`, and leaves out what is there twice.
fn dedup_from<T: Copy + Ord>(all: &mut Vec<T>, start: usize) {
    all[start..].sort_unstable();
    let mut kept = start;
    for at in start..all.len() {
        if at == start || all[at] != all[kept - 1] {
            all[kept] = all[at];
            kept += 1;
        }
    }
    all.truncate(kept);
}

/// The cells that each rule goes to.
struct Placement<'a> {
    rules: &'a [u32],
    /// Cells of one rule after the other, in the order of `order`.
    cells: Vec<u32>,
    /// Positions in `rules` and how many cells each has: those with the fewest first, the strongest first among equals.
    order: Vec<(u32, u32)>,
    /// The number of cells that there are.
    cell_count: usize,
    /// Positions in `rules` of those with more cells than copies are allowed.
    left_over: Vec<u32>,
}

impl<'a> Placement<'a> {
    /// The cells in the index of the `chosen` candidates; `None` where there is no work left to find them.
    fn new(rules: &'a [u32], reduced: &Lists<Ternary>, chosen: &[u8], work: &Work) -> Option<Self> {
        if !work.spend(WORK_PER_PIECE * reduced.item_count()) {
            return None;
        }
        let gather = Gather::new(
            chosen
                .iter()
                .fold(0, |mask, candidate| mask | 1 << candidate),
        );
        // The fixed and wild bits of each rule's pieces in the index, each once.
        let mut runs: Vec<(u32, u32)> = Vec::with_capacity(reduced.item_count());
        let mut members: Vec<(usize, Range<usize>)> = Vec::with_capacity(rules.len());
        let mut own: Vec<(u32, u32)> = Vec::new();
        for pieces in reduced.iter() {
            own.clear();
            own.extend(pieces.iter().map(|piece| {
                let (value, wild) = (gather.of(piece.value), gather.of(!piece.care));
                (value as u32, wild as u32)
            }));
            own.sort_unstable();
            own.dedup();
            let start = runs.len();
            runs.extend_from_slice(&own);
            let counts = own.iter().map(|&(_, wild)| 1usize << wild.count_ones());
            members.push((counts.sum(), start..runs.len()));
        }
        let mut by_count: Vec<u32> = (0..rules.len() as u32).collect();
        by_count.sort_by_key(|&member| members[member as usize].0);

        let cell_count = 1 << chosen.len();
        let mut copies = MAX_COPIES * (cell_count + rules.len());
        let mut placement = Self {
            rules,
            cells: Vec::new(),
            order: Vec::new(),
            cell_count,
            left_over: Vec::new(),
        };
        for member in by_count {
            let (count, range) = &members[member as usize];
            if *count > copies || !work.spend(*count) {
                placement.left_over.push(member);
                continue;
            }
            copies -= count;
            let start = placement.cells.len();
            for &(fixed, wild) in &runs[range.clone()] {
                let all = subsets(wild.into()).map(|wild| fixed | wild as u32);
                placement.cells.extend(all);
            }
            if range.len() > 1 {
                dedup_from(&mut placement.cells, start);
            }
            placement
                .order
                .push((member, (placement.cells.len() - start) as u32));
        }
        Some(placement)
    }

    /// Units of work that [`fill`](Self::fill), and packing what it yields, takes.
    fn work(&self, capacity: u32) -> usize {
        self.cells.len() + 4 * self.rules.len() + self.cell_count * (capacity as usize + 16)
    }

    /// Leaves over the rules that find a cell full.
    fn fill(&self, capacity: u32) -> Filled<'_> {
        let room = capacity - 1;
        let left_over = self.left_over.iter();
        let mut filled = Filled {
            placement: self,
            capacity,
            counts: vec![0; self.cell_count],
            is_kept: Vec::with_capacity(self.order.len()),
            left_over: left_over
                .map(|&member| self.rules[member as usize])
                .collect(),
        };
        for (member, cells) in self.members() {
            let is_kept = cells
                .iter()
                .all(|&cell| filled.counts[cell as usize] < room);
            filled.is_kept.push(is_kept);
            if is_kept {
                for &cell in cells {
                    filled.counts[cell as usize] += 1;
                }
            } else {
                filled.left_over.push(self.rules[member as usize]);
            }
        }
        filled
    }

    /// The members that have cells, in the order in which they are placed, and these cells.
    fn members(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.order.iter().scan(0, |start, &(member, count)| {
            let cells = &self.cells[*start..*start + count as usize];
            *start += count as usize;
            Some((member, cells))
        })
    }
}

/// How many rules each cell has, and which rules are left over.
struct Filled<'a> {
    placement: &'a Placement<'a>,
    capacity: u32,
    counts: Vec<u32>,
    /// For each member that has cells whether they had room for it.
    is_kept: Vec<bool>,
    left_over: Vec<u32>,
}

impl Filled<'_> {
    /// Shares buckets between cells.
    fn pack(mut self, index: Index) -> Assignment {
        let mut start = 0;
        // Where the list of each cell ends; for now where it starts.
        let mut ends: Vec<usize> = Vec::with_capacity(self.counts.len());
        for &count in &self.counts {
            ends.push(start);
            start += count as usize;
        }
        let mut rules = vec![0; start];
        let kept = self.placement.members().zip(&self.is_kept);
        for ((member, cells), _) in kept.filter(|&(_, &is_kept)| is_kept) {
            for &cell in cells {
                let end = &mut ends[cell as usize];
                rules[*end] = self.placement.rules[member as usize];
                *end += 1;
            }
        }
        let lists = Lists::new(rules, ends);
        let (cells, buckets) = pack(lists.iter(), self.capacity as usize - 1);
        self.left_over.sort_unstable();
        Assignment {
            index,
            capacity: self.capacity,
            cells,
            buckets,
            left_over: self.left_over,
        }
    }
}

/// Shares buckets between cells: those with the same rules, and those that fit into one bucket together.
fn pack<'a>(lists: impl Iterator<Item = &'a [u32]>, room: usize) -> (Vec<u32>, Vec<Vec<u32>>) {
    let mut buckets: Vec<Vec<u32>> = Vec::new();
    let mut known: HashMap<&[u32], u32> = HashMap::new();
    let mut cells = Vec::new();
    let mut before: Option<(&[u32], u32)> = None;
    for list in lists {
        // Neighbouring cells share rules most often.
        if let Some((same, bucket)) = before
            && same == list
        {
            cells.push(bucket);
            continue;
        }
        let bucket = *known.entry(list).or_insert_with(|| {
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
        before = Some((list, bucket));
        cells.push(bucket);
    }
    for bucket in &mut buckets {
        bucket.sort_unstable();
    }
    (cells, buckets)
}
