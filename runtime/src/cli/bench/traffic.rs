//! The keys that are looked up, from a file or made from the rules, and what the linear scan says of them.

use std::error::Error;
use std::num::NonZero;
use std::path::Path;
use std::thread;

use indicatif::ProgressBar;

use crate::cli::random::Random;
use crate::formats::{KeyFile, SourceSet};
use crate::{Classifier, Field, Match, RuleId, RuleSet};

/// How many keys are made of one kind.
///
/// With 8192 keys, an AMD EPYC (family 25) has learned by heart after some rounds which of them hit, and guesses past the
/// lookup; with 32768 it cannot. For large lists there are fewer, so that the linear scan answers all in a few seconds.
fn key_count(rules: usize) -> usize {
    ((1 << 27) / rules).clamp(1 << 12, 1 << 15)
}

/// Keys of one kind.
pub(super) struct Traffic {
    /// The name in results.
    pub(super) name: &'static str,
    /// The keys, one after the other.
    pub(super) keys: Vec<u8>,
    /// The winner for each; empty until [`scan`](Self::scan) has found them.
    pub(super) expected: Vec<Option<RuleId>>,
}

impl Traffic {
    fn new(name: &'static str, keys: Vec<u8>) -> Self {
        Self {
            name,
            keys,
            expected: Vec::new(),
        }
    }

    /// The keys of a file.
    pub(super) fn read(
        path: &Path,
        set: &SourceSet,
        rules: &RuleSet,
    ) -> Result<Self, Box<dyn Error>> {
        let mut keys = Vec::new();
        for key in KeyFile::open(path, set)? {
            keys.extend(rules.layout().encode(&key?.values));
        }
        if keys.is_empty() {
            return Err(format!("{} holds no keys", path.display()).into());
        }
        Ok(Self::new("keys", keys))
    }

    /// Keys made from `rules`, always the same ones: one inside the last rule again and again, ones inside random rules,
    /// and those mixed with ones that have each field from another rule.
    pub(super) fn generate(rules: &RuleSet) -> Result<[Self; 3], &'static str> {
        let Some(last) = rules.len().checked_sub(1) else {
            return Err("there are no rules to make keys from; --keys takes some");
        };
        let count = key_count(rules.len());
        let random = &mut Random(1);
        let any = |random: &mut Random| random.below(rules.len() as u64) as usize;
        let same = key(rules, random, |_| last).repeat(count);
        let hit = |random: &mut Random| {
            let row = any(random);
            key(rules, random, |_| row)
        };
        let hits = (0..count).flat_map(|_| hit(random)).collect();
        // By chance, so that no branch predictor learns whose turn it is.
        let misses = (0..count).flat_map(|_| match random.below(2) {
            0 => hit(random),
            _ => key(rules, random, any),
        });
        let misses = misses.collect();
        Ok([("same", same), ("hits", hits), ("misses", misses)]
            .map(|(name, keys)| Self::new(name, keys)))
    }

    /// Has the linear scan find the winners, on all cores, since it is slow.
    pub(super) fn scan(&mut self, scan: &Classifier, bar: &ProgressBar) {
        let stride = scan.layout().len();
        self.expected = vec![None; self.keys.len() / stride];
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let share = self.expected.len().div_ceil(threads).max(1);
        let shares = self.keys.chunks(share * stride);
        thread::scope(|scope| {
            for (keys, expected) in shares.zip(self.expected.chunks_mut(share)) {
                scope.spawn(move || {
                    let mut last: (&[u8], _) = (&[], None);
                    for (key, expected) in keys.chunks_exact(stride).zip(expected) {
                        // The same key again gets the same answer.
                        if key != last.0 {
                            let found = scan.layout().key(key).ok();
                            last = (key, found.and_then(|key| scan.lookup(key)));
                        }
                        *expected = last.1.map(|hit| hit.rule);
                        bar.inc(1);
                    }
                });
            }
        });
    }
}

/// A key whose fields are inside those of the rules that `row` chooses, once for each field.
fn key(rules: &RuleSet, random: &mut Random, row: impl Fn(&mut Random) -> usize) -> Vec<u8> {
    let fields = rules.layout().fields().iter().enumerate();
    let values: Vec<u128> = fields
        .map(|(index, field)| {
            let rule = &rules.rules()[row(random)].rule;
            inside(&rule.matches[index], field, random)
        })
        .collect();
    rules.layout().encode(&values)
}

/// A random value that matches.
fn inside(condition: &Match, field: &Field, random: &mut Random) -> u128 {
    let bits = random.bits();
    let (lo, hi) = (condition.lower(field), condition.upper(field));
    match *condition {
        // Between the ends lie values that do not match.
        Match::Mask { mask, .. } => lo | bits & field.max() & !mask,
        _ => (hi - lo)
            .checked_add(1)
            .map_or(bits, |size| lo + bits % size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_inside_a_condition_match_it_and_reach_its_ends() {
        let field = Field::inet_proto("proto");
        let conditions = [
            Match::Any,
            Match::Exact(6),
            Match::Prefix {
                value: 0x48,
                len: 5,
            },
            Match::Range { lo: 250, hi: 255 },
            Match::Mask {
                value: 0x81,
                mask: 0x8f,
            },
        ];
        let mut random = Random(1);
        for condition in conditions {
            let values: Vec<u128> = (0..5000)
                .map(|_| inside(&condition, &field, &mut random))
                .collect();
            let matches = |&value: &u128| condition.matches(&field, value);
            assert!(values.iter().all(matches), "{condition:?}");
            let ends = (condition.lower(&field), condition.upper(&field));
            let (min, max) = (values.iter().min(), values.iter().max());
            assert_eq!((min, max), (Some(&ends.0), Some(&ends.1)), "{condition:?}");
        }
    }

    #[test]
    fn every_value_of_the_widest_field_can_be_inside() {
        let field = Field::ipv6_addr("saddr");
        let mut random = Random(1);
        let values: Vec<u128> = (0..64)
            .map(|_| inside(&Match::Any, &field, &mut random))
            .collect();
        let (any, all) = values.iter().fold((0, u128::MAX), |(any, all), value| {
            (any | value, all & value)
        });
        assert_eq!((any, all), (u128::MAX, 0));
    }
}
