//! Scratch: numbers on the stack from the stack pointer upwards, cleared before a body does anything else, since a
//! batch runs the body for one key after the other.

use super::{Lowering, Machine};
use crate::isa::frame::{STORE, scratch_bytes};
use crate::isa::inst::Reg;
use crate::isa::regs::Node;

/// Most stores that are written out one after the other.
const STRAIGHT_STORES: u32 = 24;
/// Stores of one trip of the loop that clears more than that.
pub(in crate::isa) const STORES_OF_TRIP: u32 = 8;

/// Scratch.
impl<I: Machine> Lowering<'_, I> {
    /// Sets all scratch to zero.
    pub(super) fn clear_scratch(&mut self) {
        let stores = scratch_bytes(self.program.scratch) / STORE;
        let trips = match stores {
            0 => return,
            1..=STRAIGHT_STORES => 0,
            _ => stores / STORES_OF_TRIP,
        };
        self.line.note = "clear scratch";
        I::clear(self, trips, stores - trips * STORES_OF_TRIP);
    }

    /// A loop of so many trips; `trip` gets the register that counts them from 0.
    pub(in crate::isa) fn counted(&mut self, trips: u32, trip: impl FnOnce(&mut Self, Reg)) {
        let counter = self.set(0);
        let head = self.new_label();
        let start = self.body.nodes.len();
        self.body.nodes.push(Node::Bind(head));
        trip(self, counter);
        I::next_trip(self, counter, trips, head);
        self.body.loops.push((start, self.body.nodes.len() - 1));
    }
}
