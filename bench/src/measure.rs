//! Loops over keys for peers. How ways are timed in turns is shared with `pktjit bench`, and told there.

pub use pktjit::cli::measure::{BATCH, Effort, Estimate, Loop, Mode, count, estimates, in_turns};
use pktjit::cli::measure::{batch, latency, single};

use crate::peer::Peer;
use crate::workload::Keys;

/// A peer behind a pointer, which still has a loop made for it alone: nothing is called by pointer within the loop.
pub trait Timed: Peer {
    /// The loop over `keys`.
    fn timed_loop<'a>(&'a mut self, mode: Mode, keys: &'a Keys) -> Loop<'a>;
}

impl<P: Peer> Timed for P {
    fn timed_loop<'a>(&'a mut self, mode: Mode, keys: &'a Keys) -> Loop<'a> {
        let Keys { bytes, stride, .. } = keys;
        match mode {
            Mode::Single => single(bytes, *stride, |key| self.lookup(key)),
            Mode::Batch => batch(bytes, *stride, |keys, elements| {
                self.lookup_batch(keys, *stride, elements);
            }),
            Mode::Latency => latency(bytes, *stride, |key| self.lookup(key)),
        }
    }
}
