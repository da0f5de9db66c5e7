//! Bisection of the sorted intervals of the first field, without branches. Like the tree, it knows nothing of the other
//! fields of a key.

use pktjit::{MISS, RuleSet};

use super::Peer;
use super::tree::{FieldValue, first_fields};
use crate::workload::{Keys, Sent};

/// Intervals sorted by their lower ends, which lie apart from the rest: they are what the search reads.
pub struct Bisect<V> {
    lower: Vec<V>,
    /// The upper end and the element.
    rest: Vec<(V, u32)>,
    /// Bytes of the field, at the start of the key.
    width: usize,
}

impl<V: FieldValue> Bisect<V> {
    /// The first fields of `rules`, which are disjoint and start the key.
    #[must_use]
    pub fn new(rules: &RuleSet) -> Self {
        let mut intervals: Vec<(V, (V, u32))> = first_fields(rules).collect();
        intervals.sort_unstable();
        let (lower, rest) = intervals.into_iter().unzip();
        Self {
            lower,
            rest,
            width: usize::from(rules.layout().fields()[0].bytes()),
        }
    }
}

impl<V: FieldValue> Peer for Bisect<V> {
    fn name(&self) -> &'static str {
        "bisect"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        let value = V::read(&key[..self.width]);
        let behind = self.lower.partition_point(|lower| *lower <= value);
        match self.rest[..behind].last() {
            Some(&(hi, element)) if value <= hi => element,
            _ => MISS,
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.lower) + size_of_val(&*self.rest)
    }

    fn keys<'a>(&self, sent: &'a Sent) -> &'a Keys {
        &sent.first_field
    }
}
