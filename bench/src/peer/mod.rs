//! What is measured: ways to look a key up. Beside pktjit's own calls these are its peers, none of which knows the rules
//! when it is compiled.
//!
//! A slow peer is a defect: each is as good as we could make it.

#[cfg(feature = "dpdk")]
mod acl;
mod bisect;
mod compiled;
mod hash;
mod pipapo;
mod tree;
mod tuple_space;

#[cfg(feature = "dpdk")]
pub use acl::{Acl, pages};
pub use bisect::Bisect;
pub use compiled::{RawCall, SafeCall};
pub use hash::{CalledHash, ExactHash};
pub use pipapo::Pipapo;
pub use tree::{FieldValue, FirstFieldTree};
pub use tuple_space::TupleSpace;

use crate::workload::{Keys, Sent};

/// Finds the element that a key hits.
pub trait Peer {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// The element, or [`MISS`](pktjit::MISS). The key has the length of the set's layout.
    fn lookup(&mut self, key: &[u8]) -> u32;

    /// The elements of as many keys as `out` has slots, which start every `stride` bytes.
    #[inline]
    fn lookup_batch(&mut self, keys: &[u8], stride: usize, out: &mut [u32]) {
        for (key, element) in keys.chunks_exact(stride).zip(out) {
            *element = self.lookup(key);
        }
    }

    /// Bytes of its tables.
    fn bytes(&self) -> usize;

    /// Whether it answers at all, so that its answers are compared with the expected ones.
    fn is_checked(&self) -> bool {
        true
    }

    /// The keys that it can answer.
    fn keys<'a>(&self, sent: &'a Sent) -> &'a Keys {
        &sent.ranges
    }
}
