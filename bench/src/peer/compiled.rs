//! pktjit itself: the call through the bare function pointer, and the safe call.

use pktjit::{Classifier, MISS, RawLookup};

use super::Peer;
use crate::record::bytes;

/// Calls through [`Classifier::raw`].
pub struct RawCall<'a> {
    classifier: &'a Classifier,
    raw: RawLookup<'a>,
}

impl<'a> RawCall<'a> {
    /// The call, where there is machine code.
    #[must_use]
    pub fn new(classifier: &'a Classifier) -> Option<Self> {
        let raw = classifier.raw()?;
        Some(Self { classifier, raw })
    }
}

impl Peer for RawCall<'_> {
    fn name(&self) -> &'static str {
        "pktjit"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        debug_assert_eq!(key.len(), self.classifier.layout().len());
        // SAFETY: the classifier is borrowed for as long as `raw` is, and the trait asks for keys of its length.
        unsafe { (self.raw.lookup)(key.as_ptr()) }
    }

    #[inline]
    fn lookup_batch(&mut self, keys: &[u8], stride: usize, out: &mut [u32]) {
        debug_assert!(out.len() * stride <= keys.len());
        // SAFETY: as for one key; keys and slots are as many as `out` is long, and `out` is borrowed mutably.
        unsafe { (self.raw.lookup_batch)(keys.as_ptr(), stride, out.len(), out.as_mut_ptr()) }
    }

    fn bytes(&self) -> usize {
        bytes(&self.classifier.stats())
    }
}

/// Calls [`Classifier::lookup`], with the check of the key's length that it needs.
pub struct SafeCall<'a>(pub &'a Classifier);

impl Peer for SafeCall<'_> {
    fn name(&self) -> &'static str {
        "pktjit-lookup"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        let key = self.0.layout().key(key).ok();
        key.and_then(|key| self.0.lookup(key))
            .map_or(MISS, |hit| hit.rule.as_u32())
    }

    #[inline]
    fn lookup_batch(&mut self, keys: &[u8], stride: usize, out: &mut [u32]) {
        if self.0.lookup_batch(keys, stride, out).is_err() {
            out.fill(MISS);
        }
    }

    fn bytes(&self) -> usize {
        bytes(&self.0.stats())
    }
}
