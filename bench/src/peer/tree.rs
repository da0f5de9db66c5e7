//! A B-tree over the intervals of the first field, in the place of the kernel's red-black tree. Like it, it knows nothing of
//! the other fields of a key.

use std::collections::BTreeMap;

use pktjit::{MISS, RuleSet};

use super::Peer;
use crate::workload::{Keys, Sent};

/// A number as wide as the field, so that comparing costs no more than it must.
pub trait FieldValue: Ord + Copy {
    /// The number that big-endian `bytes` say.
    fn read(bytes: &[u8]) -> Self;
}

impl FieldValue for u32 {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        match *bytes {
            [a, b] => u16::from_be_bytes([a, b]).into(),
            [a, b, c, d] => Self::from_be_bytes([a, b, c, d]),
            _ => bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | Self::from(byte)),
        }
    }
}

impl FieldValue for u64 {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        match *bytes {
            [a, b, c, d, e, f] => Self::from_be_bytes([0, 0, a, b, c, d, e, f]),
            _ => bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | Self::from(byte)),
        }
    }
}

impl FieldValue for u128 {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        match bytes.first_chunk() {
            Some(bytes) => Self::from_be_bytes(*bytes),
            None => bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | Self::from(byte)),
        }
    }
}

/// The lower end of each interval of the first field, with its upper end and the element.
pub(super) fn first_fields<V: FieldValue>(rules: &RuleSet) -> impl Iterator<Item = (V, (V, u32))> {
    let field = &rules.layout().fields()[0];
    let width = usize::from(field.bytes());
    let value = move |value: u128| V::read(&value.to_be_bytes()[16 - width..]);
    rules.rules().iter().zip(0..).map(move |(stored, element)| {
        let condition = &stored.rule.matches[0];
        let (lo, hi) = (condition.lower(field), condition.upper(field));
        (value(lo), (value(hi), element))
    })
}

/// Intervals by their lower ends.
pub struct FirstFieldTree<V> {
    tree: BTreeMap<V, (V, u32)>,
    /// Bytes of the field, at the start of the key.
    width: usize,
}

impl<V: FieldValue> FirstFieldTree<V> {
    /// A tree over the first fields of `rules`, which are disjoint and start the key.
    #[must_use]
    pub fn new(rules: &RuleSet) -> Self {
        Self {
            tree: first_fields(rules).collect(),
            width: usize::from(rules.layout().fields()[0].bytes()),
        }
    }
}

impl<V: FieldValue> Peer for FirstFieldTree<V> {
    fn name(&self) -> &'static str {
        "rbtree"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        let value = V::read(&key[..self.width]);
        match self.tree.range(..=value).next_back() {
            Some((_, &(hi, element))) if value <= hi => element,
            _ => MISS,
        }
    }

    /// What the entries take; nodes are two thirds full or better.
    fn bytes(&self) -> usize {
        self.tree.len() * (size_of::<V>() + size_of::<(V, u32)>())
    }

    fn keys<'a>(&self, sent: &'a Sent) -> &'a Keys {
        &sent.first_field
    }
}
