//! Choosing the bits of an index, one after the other.
//!
//! Each bit halves the cells; a rule goes to one half, or to both where the bit is wild in it. The next bit is the one that
//! leaves the cells best filled, much as in [`bits`](crate::structure::bits):
//!
//! ```text
//! f(x) = max(0, x - capacity / 2)^2 + x        summed over all cells
//! ```
//!
//! What makes it quick, and differ from there: rules in cells that are small enough for a leaf are kept in one heap and
//! count for their copies alone, since another bit can do nothing else to them.

use crate::plan::Work;
use crate::structure::bits::{Ternary, count_bits};
use crate::structure::lists::Lists;

/// What the bits shall achieve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    /// Rules that a cell should hold at most.
    pub(super) capacity: usize,
    /// Most bits.
    pub(super) max_bits: usize,
    /// A rule that is wild in more of the chosen bits is given up: it would be copied to too many cells.
    pub(super) max_wild: u32,
}

/// One more bit, and what the bits so far achieve.
pub(super) struct Step {
    /// The bits so far.
    pub(super) mask: u64,
    /// Rules in all cells together.
    pub(super) placed: usize,
    /// Rules that have been given up.
    pub(super) given_up: usize,
    /// Rules that find their cell full where it holds 1, 2, ... times the capacity.
    pub(super) overflow: [usize; MAX_BLOCKS],
}

/// Units of work for looking at all bits of one rule in one cell, and for what is done for a cell besides.
const WORK_PER_ENTRY: usize = 32;
const WORK_PER_CELL: usize = 256;

/// Most blocks of a leaf.
pub(super) const MAX_BLOCKS: usize = 4;

/// What a rule that is given up counts for, in rules kept in a cell that is not too full.
const GIVEN_UP: u64 = 4;

/// The bits that were chosen.
pub(super) struct Chosen {
    pub(super) steps: Vec<Step>,
    /// Whether another `max_wild` might have led to others.
    pub(super) is_limited: bool,
}

/// Chooses bits out of `out_of` that split `rules` into cells, as far as the work allows; yields all steps, at least one.
pub(super) fn choose(rules: Vec<Ternary>, out_of: u64, aim: &Aim, work: &Work) -> Chosen {
    let badness = |count: u32| {
        let over = u64::from((2 * count).saturating_sub(aim.capacity as u32));
        over * over / 4 + u64::from(count)
    };
    let (mut steps, mut is_limited) = (Vec::new(), false);
    let (mut chosen, mut given_up) = (0u64, 0);
    // The rules of all cells that are small enough, and the others.
    let mut settled: Vec<Ternary> = Vec::new();
    let mut cells: Lists<Ternary> = Lists::default();
    settle_or_add(rules, aim.capacity, &mut settled, &mut cells);
    loop {
        let placed = settled.len() + cells.item_count();
        let over = |blocks: usize| -> usize {
            cells
                .iter()
                .map(|cell| cell.len().saturating_sub(blocks * aim.capacity))
                .sum()
        };
        let overflow = std::array::from_fn(|i| over(i + 1));
        steps.push(Step {
            mask: chosen,
            placed,
            given_up,
            overflow,
        });
        let is_done = cells.len() == 0 || steps.len() > aim.max_bits;
        if is_done || !work.spend(WORK_PER_ENTRY * placed + WORK_PER_CELL * cells.len()) {
            return Chosen { steps, is_limited };
        }
        let is_full = |rule: &Ternary| rule.wild(chosen) >= aim.max_wild;
        is_limited |= settled.iter().chain(cells.items()).any(is_full);
        let (scores, current) = score(&cells, &settled, is_full, badness);
        let left = out_of & !chosen;
        let best = (0..64)
            .filter(|bit| left >> bit & 1 == 1)
            .min_by_key(|&bit| scores[bit]);
        let Some(bit) = best.filter(|&bit| scores[bit] < current) else {
            return Chosen { steps, is_limited };
        };
        let is_wild = |rule: &Ternary| rule.care >> bit & 1 == 0;
        let is_kept = |rule: &Ternary| !is_wild(rule) || !is_full(rule);
        let mut halves = Lists::default();
        let mut dropped = settled.len() + cells.item_count();
        settled.retain(is_kept);
        dropped -= settled.len();
        for i in 0..settled.len() {
            if is_wild(&settled[i]) {
                settled.push(settled[i]);
            }
        }
        for cell in cells.iter() {
            dropped -= cell.iter().filter(|rule| is_kept(rule)).count();
            for side in [0, 1] {
                let goes = |rule: &&Ternary| is_wild(rule) || rule.value >> bit & 1 == side;
                let half = cell.iter().filter(|rule| is_kept(rule)).filter(goes);
                settle_or_add(half.copied(), aim.capacity, &mut settled, &mut halves);
            }
        }
        cells = halves;
        // A rule had a copy for each combination of its wild bits.
        given_up += dropped >> aim.max_wild.min(31);
        chosen |= 1 << bit;
    }
}

/// Adds a cell, or what it holds to the `settled` rules where that is small enough.
fn settle_or_add(
    cell: impl IntoIterator<Item = Ternary>,
    capacity: usize,
    settled: &mut Vec<Ternary>,
    cells: &mut Lists<Ternary>,
) {
    let start = settled.len();
    settled.extend(cell);
    if settled.len() - start > capacity {
        cells.push(settled.drain(start..));
    }
}

/// How bad the cells would be with each of 64 bits, and how bad they are without another one.
fn score(
    cells: &Lists<Ternary>,
    settled: &[Ternary],
    is_full: impl Fn(&Ternary) -> bool,
    badness: impl Fn(u32) -> u64,
) -> ([u64; 64], u64) {
    let settled_cares = count_bits(settled.iter().map(|rule| rule.care));
    // Another bit makes no settled cell better, but copies the rules that are wild in it.
    let mut scores = settled_cares.map(|cares| settled.len() as u64 - u64::from(cares));
    let mut current = 0;
    for cell in cells.iter() {
        let count = cell.len() as u32;
        current += badness(count);
        let cares = count_bits(cell.iter().map(|rule| rule.care));
        let ones = count_bits(cell.iter().map(|rule| rule.value));
        let full = cell.iter().filter(|rule| is_full(rule));
        let full_count = full.clone().count() as u32;
        let full_cares = if full_count == 0 {
            [0; 64]
        } else {
            count_bits(full.map(|rule| rule.care))
        };
        for (bit, score) in scores.iter_mut().enumerate() {
            let given_up = full_count - full_cares[bit];
            let both = count - cares[bit] - given_up;
            let ones = ones[bit];
            *score += badness(cares[bit] - ones + both)
                + badness(ones + both)
                + GIVEN_UP * u64::from(given_up);
        }
    }
    (scores, current)
}
