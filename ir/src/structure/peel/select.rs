//! Choosing the bits of an index, one after the other.
//!
//! Each bit halves the cells; a rule goes to one half, or to both where the bit is wild in it. The next bit is the one that
//! leaves the cells best filled, as in [`bits`](crate::structure::bits):
//!
//! ```text
//! f(x) = max(0, x - capacity / 2)^2 + x        summed over all cells
//! ```
//!
//! What makes it quick: a cell's rules are counted for all 64 candidates at once, eight counters in a word; and rules in
//! cells that are small enough already are kept in one heap, since another bit can only copy them.

use super::ternary::Ternary;

/// What the bits shall achieve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    /// Rules that a cell should hold at most.
    pub(super) capacity: usize,
    /// Most bits.
    pub(super) max_bits: u32,
    /// A rule that is wild in more of the chosen bits is given up: it would be copied to too many cells.
    pub(super) max_wild: u32,
}

/// What a rule that is given up counts for, in rules kept in a cell that is not too full.
const GIVEN_UP: u64 = 4;

/// For each of 64 bits, how many of the words have it.
pub(super) fn count_bits(words: impl Iterator<Item = u64>) -> [u32; 64] {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let mut totals = [0; 64];
    // Byte k of number j counts bit 8k + j.
    let mut counters = [0u64; 8];
    let mut flush = |counters: &mut [u64; 8]| {
        for (j, counter) in counters.iter_mut().enumerate() {
            for (k, count) in counter.to_le_bytes().into_iter().enumerate() {
                totals[8 * k + j] += u32::from(count);
            }
            *counter = 0;
        }
    };
    for (i, word) in words.enumerate() {
        if i % 255 == 254 {
            flush(&mut counters);
        }
        for (j, counter) in counters.iter_mut().enumerate() {
            *counter += word >> j & LOW;
        }
    }
    flush(&mut counters);
    totals
}

/// Chooses bits that split `rules` into cells; bits of `out_of` alone.
pub(super) fn choose(rules: Vec<Ternary>, out_of: u64, aim: &Aim) -> u64 {
    let mut chosen = 0u64;
    // Twice f(x), rounded: all numbers whole.
    let badness = |count: u32| {
        let over = u64::from((2 * count).saturating_sub(aim.capacity as u32));
        over * over / 4 + u64::from(count)
    };
    let mut cells = vec![rules];
    let mut settled: Vec<Ternary> = Vec::new();
    while chosen.count_ones() < aim.max_bits {
        cells.retain_mut(|cell| {
            let is_open = cell.len() > aim.capacity;
            if !is_open {
                settled.append(cell);
            }
            is_open
        });
        if cells.is_empty() {
            break;
        }
        // What is given up does not come back, so all that is left may be wild in all chosen bits or in fewer than the most.
        let is_full = |rule: &Ternary| rule.wild(chosen) >= aim.max_wild;
        let settled_cares = count_bits(settled.iter().map(|rule| rule.care));
        let mut scores = settled_cares.map(|cares| settled.len() as u64 - u64::from(cares));
        let mut current = 0;
        for cell in &cells {
            let count = cell.len() as u32;
            let cares = count_bits(cell.iter().map(|rule| rule.care));
            let ones = count_bits(cell.iter().map(|rule| rule.value));
            let full = cell.iter().filter(|rule| is_full(rule));
            let given_up = full.clone().count() as u32;
            let kept = if given_up == 0 { [0; 64] } else { count_bits(full.map(|rule| rule.care)) };
            current += badness(count);
            for bit in 0..64 {
                let given_up = given_up - kept[bit];
                let both = count - cares[bit] - given_up;
                let ones = ones[bit];
                scores[bit] += badness(cares[bit] - ones + both)
                    + badness(ones + both)
                    + GIVEN_UP * u64::from(given_up);
            }
        }
        let left = out_of & !chosen;
        let best = (0..64)
            .filter(|bit| left >> bit & 1 == 1)
            .min_by_key(|&bit| scores[bit]);
        let Some(bit) = best.filter(|&bit| scores[bit] < current) else {
            break;
        };
        let is_kept = |rule: &Ternary| rule.care >> bit & 1 == 1 || !is_full(rule);
        let goes = |rule: &Ternary, side: u64| {
            rule.care >> bit & 1 == 0 || rule.value >> bit & 1 == side
        };
        let half = |cell: &[Ternary], side: u64| -> Vec<Ternary> {
            cell.iter().filter(|rule| is_kept(rule) && goes(rule, side)).copied().collect()
        };
        cells = cells.iter().flat_map(|cell| [half(cell, 0), half(cell, 1)]).collect();
        settled.retain(is_kept);
        for i in 0..settled.len() {
            if settled[i].care >> bit & 1 == 0 {
                settled.push(settled[i]);
            }
        }
        chosen |= 1 << bit;
    }
    chosen
}

/// The bits of `word` that `mask` has, gathered at the low end.
pub(super) fn gather(word: u64, mask: u64) -> u64 {
    let (mut gathered, mut left, mut at) = (0, mask, 0);
    while left != 0 {
        let start = left.trailing_zeros();
        let run = (left >> start).trailing_ones();
        let bits = u64::MAX >> (64 - run);
        gathered |= (word >> start & bits) << at;
        at += run;
        left &= !(bits << start);
    }
    gathered
}
