//! A rule group: the rules that one index of key bits can tell apart, assigned to buckets.
//!
//! The bits are chosen by [`bits::choose`] so that they tell the rules apart. A rule goes to every cell that a key which it
//! matches can select; rules with the fewest cells are placed first. A rule that is wild in many of the bits, or that finds
//! one of its cells full, is *left over* as a whole, for the next group or the rest.
//!
//! Cells with the same rules share a bucket, and sparse cells are packed together as long as they fit: what is too much in a
//! bucket is harmless, since lanes compare exactly.

use std::collections::HashMap;

use crate::plan::Effort;
use crate::structure::Input;
use crate::structure::bits::{self, Aim, COARSE, Chosen, FINE, Index, Piece};

/// Most bits of an index.
const MAX_INDEX_BITS: usize = 20;
/// With more rules than this only one depth of an index is tried.
const MANY_RULES: usize = 1 << 17;
/// Copies of rules in all cells together, per rule and per cell, that are allowed.
const MAX_COPIES: usize = 4;
/// Limits on the chosen bits in which a rule may be wild that are tried. Over the nine ClassBench sets (2026-11-30, planner's
/// estimates in ns for fw1_10k and fw1_100k): 2 and 4 gave 129 and 1590, 1 and 3 gave 62 and 625, 1, 2 and 4 give 61 and 450.
const MAX_WILD: [u32; 3] = [1, 2, 4];

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

/// Calls `try_one` with each assignment that is worth a look: several choices of bits, depths of the index, and capacities
/// out of `capacities`. At least one.
pub(crate) fn for_each_assignment(
    input: &Input<'_>,
    rules: &[u32],
    capacities: &[u32],
    mut try_one: impl FnMut(Assignment),
) {
    let layout = input.layout();
    let sample = match input.effort {
        Effort::Fast => 1 << 11,
        Effort::Balanced => 1 << 13,
        Effort::Best => 1 << 16,
    };
    // Every n-th rule, so that all parts of the list are heard.
    let step = rules.len().div_ceil(sample).max(1);
    let mut pieces: Vec<Piece> = Vec::new();
    for &rule in rules.iter().step_by(step) {
        bits::pieces(
            layout,
            input.rule(input.rows[rule as usize]),
            COARSE,
            &mut pieces,
        );
    }
    let smallest = capacities.iter().copied().min().unwrap_or(1) - 1;
    let mut tried = Vec::new();
    for max_wild in MAX_WILD {
        let aim = Aim {
            max_bits: (rules.len().max(2).ilog2() as usize + 2).min(MAX_INDEX_BITS),
            capacity: f64::from(smallest) / step as f64,
            max_wild,
        };
        let Chosen { bits, is_limited } = bits::choose(layout, &pieces, &aim);
        for depth in depths(bits.len(), input.effort, rules.len()) {
            let chosen = &bits[..depth];
            if tried.iter().any(|known| known == chosen) {
                continue;
            }
            tried.push(chosen.to_vec());
            let index = Index::new(layout, chosen);
            let placement = Placement::new(input, rules, &index);
            for &capacity in capacities {
                try_one(placement.assign(index.clone(), capacity));
            }
        }
        if !is_limited {
            break;
        }
    }
}

/// Depths of the index that are tried: more for few rules, only the deepest ones for many. A million rules take 5 s of
/// planning with one depth, 15 s with three (2026-11-30).
fn depths(max: usize, effort: Effort, rules: usize) -> std::ops::RangeInclusive<usize> {
    let tried = match (effort, rules) {
        (Effort::Best, _) | (_, 0..=4096) => 6,
        (Effort::Balanced, 0..=MANY_RULES) => 3,
        (Effort::Balanced | Effort::Fast, _) => 1,
    };
    max.saturating_sub(tried - 1)..=max
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
    fn new(input: &Input<'_>, rules: &'a [u32], index: &Index) -> Self {
        // The fixed and wild bits of each rule's pieces in the index, each once.
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut members: Vec<(usize, std::ops::Range<usize>)> = Vec::with_capacity(rules.len());
        let mut pieces = Vec::new();
        for &rule in rules {
            pieces.clear();
            bits::pieces(
                input.layout(),
                input.rule(input.rows[rule as usize]),
                FINE,
                &mut pieces,
            );
            let mut own: Vec<(u32, u32)> = pieces.iter().map(|piece| index.cells(piece)).collect();
            own.sort_unstable();
            own.dedup();
            let start = runs.len();
            runs.extend(own);
            let count = runs[start..]
                .iter()
                .map(|&(_, wild)| 1usize << wild.count_ones())
                .sum();
            members.push((count, start..runs.len()));
        }
        let mut by_count: Vec<u32> = (0..rules.len() as u32).collect();
        by_count.sort_by_key(|&member| members[member as usize].0);

        let cell_count = 1 << index.bits();
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
            if *count > copies {
                placement.left_over.push(member);
                continue;
            }
            copies -= count;
            let start = placement.cells.len();
            for &(fixed, wild) in &runs[range.clone()] {
                // All subsets of the wild bits.
                let mut subset = 0u32;
                loop {
                    placement.cells.push(fixed | subset);
                    subset = subset.wrapping_sub(wild) & wild;
                    if subset == 0 {
                        break;
                    }
                }
            }
            if range.len() > 1 {
                let mut own = placement.cells.split_off(start);
                own.sort_unstable();
                own.dedup();
                placement.cells.extend(own);
            }
            placement
                .order
                .push((member, (placement.cells.len() - start) as u32));
        }
        placement
    }

    fn assign(&self, index: Index, capacity: u32) -> Assignment {
        let room = capacity as usize - 1;
        let mut filled = vec![0usize; self.cell_count];
        let mut slots = vec![0u32; self.cell_count * room];
        let mut left_over: Vec<u32> = self
            .left_over
            .iter()
            .map(|&member| self.rules[member as usize])
            .collect();
        let mut all_cells = &self.cells[..];
        for &(member, count) in &self.order {
            let rule = self.rules[member as usize];
            let (cells, others) = all_cells.split_at(count as usize);
            all_cells = others;
            if cells.iter().any(|&cell| filled[cell as usize] == room) {
                left_over.push(rule);
                continue;
            }
            for &cell in cells {
                let fill = &mut filled[cell as usize];
                slots[cell as usize * room + *fill] = rule;
                *fill += 1;
            }
        }
        left_over.sort_unstable();
        let lists = slots
            .chunks(room)
            .zip(&filled)
            .map(|(list, &fill)| &list[..fill]);
        let (cells, buckets) = pack(lists, room);
        Assignment {
            index,
            capacity,
            cells,
            buckets,
            left_over,
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
