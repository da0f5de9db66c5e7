//! A hash map of exact keys: hashbrown's open addressing with foldhash, both the fastest of their kind that are in wide use.
//!
//! The length of a key is a constant of the type, so that hashing and comparing are unrolled. [`ExactHash`] is compiled into the
//! loop that asks it, which is the best that a program can do that knows its keys; [`CalledHash`] is the same map behind a
//! function pointer, as pktjit is and as an embedder has it that decides at run time what to ask.

use std::hash::{Hash, Hasher};
use std::hint::black_box;

use hashbrown::{Equivalent, HashMap};
use pktjit::MISS;

use super::Peer;
use crate::workload::{Keys, Sent};

/// A key of `N` bytes in the map.
#[derive(PartialEq, Eq)]
struct Stored<const N: usize>([u8; N]);

/// A key of `N` bytes that is asked for, where it lies: a copy would be read before it is written.
struct Asked<'a, const N: usize>(&'a [u8; N]);

impl<const N: usize> Equivalent<Stored<N>> for Asked<'_, N> {
    #[inline]
    fn equivalent(&self, stored: &Stored<N>) -> bool {
        *self.0 == stored.0
    }
}

impl<const N: usize> Hash for Stored<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Asked(&self.0).hash(state);
    }
}

/// Word by word.
impl<const N: usize> Hash for Asked<'_, N> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (words, rest) = self.0.as_chunks();
        for word in words {
            state.write_u64(u64::from_ne_bytes(*word));
        }
        for word in rest.as_chunks().0 {
            state.write_u32(u32::from_ne_bytes(*word));
        }
    }
}

/// A hash map from keys of `N` bytes, a multiple of 4, to elements.
pub struct ExactHash<const N: usize> {
    map: HashMap<Stored<N>, u32>,
}

impl<const N: usize> ExactHash<N> {
    /// A map from each key to its place in the sequence; keys of another length are left out.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        const { assert!(N.is_multiple_of(4), "registers are of 4 bytes") }
        let keys = keys.into_iter().filter_map(|key| key.try_into().ok());
        Self {
            map: keys.map(Stored).zip(0..).collect(),
        }
    }

    #[inline]
    fn get(&self, key: &[u8]) -> u32 {
        let Some(key) = key.first_chunk() else {
            return MISS;
        };
        self.map.get(&Asked(key)).copied().unwrap_or(MISS)
    }

    fn get_batch(&self, keys: &[u8], stride: usize, out: &mut [u32]) {
        for (key, element) in keys.chunks_exact(stride).zip(out) {
            *element = self.get(key);
        }
    }
}

impl<const N: usize> Peer for ExactHash<N> {
    fn name(&self) -> &'static str {
        "hash"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        self.get(key)
    }

    fn bytes(&self) -> usize {
        self.map.allocation_size()
    }

    fn keys<'a>(&self, sent: &'a Sent) -> &'a Keys {
        &sent.exact
    }
}

/// An [`ExactHash`] that is asked through function pointers: one call a key, or one a batch.
pub struct CalledHash<const N: usize> {
    hash: ExactHash<N>,
    lookup: fn(&ExactHash<N>, &[u8]) -> u32,
    lookup_batch: fn(&ExactHash<N>, &[u8], usize, &mut [u32]),
}

impl<const N: usize> CalledHash<N> {
    /// The same map as [`ExactHash::new`].
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        // Whoever knows where a pointer leads makes a direct call of it, or none.
        Self {
            hash: ExactHash::new(keys),
            lookup: black_box(ExactHash::get),
            lookup_batch: black_box(ExactHash::get_batch),
        }
    }
}

impl<const N: usize> Peer for CalledHash<N> {
    fn name(&self) -> &'static str {
        "hash-call"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        (self.lookup)(&self.hash, key)
    }

    #[inline]
    fn lookup_batch(&mut self, keys: &[u8], stride: usize, out: &mut [u32]) {
        (self.lookup_batch)(&self.hash, keys, stride, out);
    }

    fn bytes(&self) -> usize {
        self.hash.bytes()
    }

    fn keys<'a>(&self, sent: &'a Sent) -> &'a Keys {
        self.hash.keys(sent)
    }
}
