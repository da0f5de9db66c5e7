//! The tree of a list's prefixes, by how often and how unevenly it branches at each level, and whether prefixes lie in
//! others.

use pktjit::cli::random::Random;

use super::{Interval, prefix_len, shuffle};

/// Levels at which a tree of addresses can branch.
pub(super) const LEVELS: usize = 32;

/// What a tree does at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Level {
    /// Which part of the nodes through which two prefixes or more go on has two children.
    pub(super) branching: f64,
    /// Of those, one minus the prefixes of the lighter child over those of the heavier one: 0 is even.
    pub(super) skew: f64,
    /// Through which part of the nodes where a prefix ends others go on.
    pub(super) nesting: f64,
}

/// The shape of a tree of prefixes, each of which counts once for each rule that has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trie(pub(super) [Level; LEVELS]);

impl Trie {
    /// The shape of the tree of `prefixes`.
    pub(super) fn learn(prefixes: impl Iterator<Item = Interval>) -> Self {
        let mut prefixes: Vec<Interval> = prefixes.collect();
        prefixes.sort_unstable();
        Self(std::array::from_fn(|level| {
            let node = |prefix: Interval| u64::from(prefix.0) >> (LEVELS - level);
            let len = |prefix: &Interval| usize::from(prefix_len(*prefix));
            let (mut ended, mut nested) = (0.0, 0.0);
            let (mut going_on, mut two, mut skew) = (0.0, 0.0, 0.0);
            let reaching = prefixes.iter().filter(|prefix| len(prefix) >= level);
            let reaching: Vec<Interval> = reaching.copied().collect();
            for here in reaching.chunk_by(|a, b| node(*a) == node(*b)) {
                let beyond = here.iter().filter(|prefix| len(prefix) > level);
                let right = beyond
                    .clone()
                    .filter(|prefix| prefix.0 >> (LEVELS - 1 - level) & 1 == 1);
                let (beyond, right) = (beyond.count(), right.count());
                if beyond < here.len() {
                    ended += 1.0;
                    nested += f64::from(u8::from(beyond > 0));
                }
                if beyond > 1 {
                    going_on += 1.0;
                    let (light, heavy) = (right.min(beyond - right), right.max(beyond - right));
                    if light > 0 {
                        two += 1.0;
                        skew += 1.0 - light as f64 / heavy as f64;
                    }
                }
            }
            let part = |some: f64, all: f64| if all > 0.0 { some / all } else { 0.0 };
            Level {
                branching: part(two, going_on),
                skew: part(skew, two),
                nesting: part(nested, ended),
            }
        }))
    }

    /// The same shape for a list that has `scale` times as many rules: one that is twice as long branches one level deeper.
    /// So do the given sets of 1k, 10k and 100k rules. Nesting belongs to lengths, and stays where it is.
    pub(super) fn scaled(&self, scale: f64) -> Self {
        let deeper = scale.log2().round() as isize;
        Self(std::array::from_fn(|level| {
            let from = level.saturating_add_signed(-deeper);
            Level {
                nesting: self.0[level].nesting,
                ..self.0.get(from).copied().unwrap_or_default()
            }
        }))
    }

    /// Addresses for prefixes of these lengths.
    pub(super) fn place(&self, lens: &[u8], random: &mut Random) -> Vec<u32> {
        let mut order: Vec<u32> = (0..lens.len() as u32).collect();
        // Who goes left shall depend on nothing else.
        shuffle(&mut order, random);
        let mut addresses = vec![0; lens.len()];
        self.split(&mut order, 0, 0, lens, &mut addresses, random);
        addresses
    }

    /// Gives those prefixes in `here` their addresses which go through the node `path` at `level`.
    fn split(
        &self,
        here: &mut [u32],
        level: usize,
        path: u32,
        lens: &[u8],
        addresses: &mut [u32],
        random: &mut Random,
    ) {
        if here.is_empty() {
            return;
        }
        let mut ended = 0;
        for i in 0..here.len() {
            if usize::from(lens[here[i] as usize]) == level {
                addresses[here[i] as usize] = path;
                here.swap(i, ended);
                ended += 1;
            }
        }
        let here = &mut here[ended..];
        if here.is_empty() {
            return;
        }
        let Level {
            branching, skew, ..
        } = self.0[level];
        let len = |i: &u32| usize::from(lens[*i as usize]);
        let shortest = here.iter().map(len).min().unwrap_or(0);
        let nesting = self.0.get(level + 1).map_or(0.0, |next| next.nesting);
        // So many prefixes want so many levels to spread. Where the shortest end before, they leave the others in time, or
        // these would lie in them.
        let room = 1 << (shortest - level - 1).min(31);
        let is_by_len = here.len() > room && !happens(nesting, random);
        if is_by_len {
            here.sort_by_key(len);
        }
        let ending = here.partition_point(|i| len(i) == level + 1);
        let first = if is_by_len && (1..here.len()).contains(&ending) {
            ending
        } else if here.len() > 1 && happens(branching, random) {
            let share = (1.0 - skew) / (2.0 - skew);
            // Up or down by chance, so that small nodes are uneven in the mean as well.
            let light = here.len() as f64 * share + fraction(random);
            let light = (light as usize).clamp(1, here.len() - 1);
            [light, here.len() - light][random.below(2) as usize]
        } else {
            0
        };
        let (first, second) = here.split_at_mut(first);
        let mut paths = [path, path | 1 << (LEVELS - 1 - level)];
        paths.rotate_left(random.below(2) as usize);
        self.split(first, level + 1, paths[0], lens, addresses, random);
        self.split(second, level + 1, paths[1], lens, addresses, random);
    }
}

/// A number from 0 up to 1.
fn fraction(random: &mut Random) -> f64 {
    random.below(1 << 32) as f64 / 2f64.powi(32)
}

fn happens(probability: f64, random: &mut Random) -> bool {
    fraction(random) < probability
}
