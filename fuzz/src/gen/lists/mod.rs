//! Prioritised five-field lists of any size with the statistics of ClassBench's sets, the same ones every time.
//!
//! What a set looks like is learned from it once ([`Seed::learn`]) and kept as a small file of numbers beside this one; no
//! rule of a set is copied. A list is then made in three steps, as ClassBench does it (Taylor and Turner, *ClassBench: A
//! Packet Classification Benchmark*, 2007):
//!
//! 1. Each rule gets a shape: both prefix lengths, both classes of ports and the protocol, drawn together; ports that are no
//!    whole class are drawn from those that the set has.
//! 2. The prefixes of all rules are laid into a tree from the top, which branches at each level as often and as unevenly as
//!    the tree of the set does, and has prefixes in others where that one has them (`trie`). With the wide shapes this gives
//!    how many rules match one key.
//! 3. The list is sorted, narrow rules first: no rule lies behind one that covers it. The given sets are in this order.
//!
//! The two addresses of a rule have nothing to do with each other. For the small lists of `testdata`, many of whose keys hit
//! nothing, see [`classbench`](super::classbench).

mod seed;
mod trie;

use std::cmp::Reverse;
use std::collections::HashSet;

use pktjit::cli::random::Random;

pub use seed::{Distance, Seed};

/// A closed interval.
pub type Interval = (u32, u32);

/// The intervals of source, destination, source port, destination port and protocol. The first two are prefixes.
pub type Rule = [Interval; 5];

/// The largest value of each field.
pub const TOP: [u32; 5] = [u32::MAX, u32::MAX, 0xffff, 0xffff, 0xff];

/// The length of the prefix that is an interval of addresses.
fn prefix_len((lo, hi): Interval) -> u8 {
    (lo ^ hi).leading_zeros() as u8
}

/// The addresses that share the first `len` bits.
fn prefix(address: u32, len: u8) -> Interval {
    let host = u32::MAX.checked_shr(len.into()).unwrap_or(0);
    (address & !host, address | host)
}

/// Fisher and Yates.
fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
}

/// The prioritised list of `count` different rules which looks as `seed` says.
#[must_use]
pub fn list(seed: &Seed, count: usize) -> Vec<Rule> {
    let mut random = Random(count as u64);
    let mut drawn = count;
    loop {
        let mut rules = seed.draw(drawn, &mut random);
        if rules.len() >= count {
            rules.truncate(count);
            return in_order(rules);
        }
        drawn += 2 * (count - rules.len());
    }
}

/// The points on which many rules of a list of [`deep`] lie.
fn points(random: &mut Random) -> [[u32; 5]; 24] {
    std::array::from_fn(|_| TOP.map(|top| random.below(u64::from(top) + 1) as u32))
}

/// A list like a firewall's in which `depth` wide rules, and whatever else the list has there, lie over each of 24 points.
#[must_use]
pub fn deep(seed: &Seed, count: usize, depth: usize) -> Vec<Rule> {
    let mut random = Random(count as u64);
    let mut wide = HashSet::new();
    for (i, point) in points(&mut random).iter().enumerate() {
        while wide.len() < (i + 1) * depth {
            wide.insert(around(point, &mut random));
        }
    }
    let narrow = list(seed, count);
    let narrow = narrow.into_iter().filter(|rule| !wide.contains(rule));
    let narrow: Vec<Rule> = narrow.take(count.saturating_sub(wide.len())).collect();
    in_order(narrow.into_iter().chain(wide).collect())
}

/// A wide rule that holds `key`.
fn around(key: &[u32; 5], random: &mut Random) -> Rule {
    let mut addresses = [0, 1].map(|field| prefix(key[field], random.below(25) as u8));
    // A rule for all addresses would hide the rest of the list.
    if addresses == [(0, TOP[0]); 2] {
        addresses[0] = prefix(key[0], 1);
    }
    let ports = [2, 3].map(|field| match random.below(3) {
        0 => (0, TOP[field]),
        1 if key[field] >= 1024 => (1024, TOP[field]),
        _ => (key[field] / 2, key[field].midpoint(TOP[field])),
    });
    let protocol = [(0, TOP[4]), (key[4], key[4])][random.below(2) as usize];
    [addresses[0], addresses[1], ports[0], ports[1], protocol]
}

/// Narrow rules first; of equally long prefixes those that hold fewer keys.
fn in_order(mut rules: Vec<Rule>) -> Vec<Rule> {
    rules.sort_by_cached_key(|rule| {
        let bits = prefix_len(rule[0]) + prefix_len(rule[1]);
        let keys = rule.iter().map(|(lo, hi)| u128::from(hi - lo) + 1);
        (Reverse(bits), keys.product::<u128>(), *rule)
    });
    rules
}

#[cfg(test)]
mod tests;
