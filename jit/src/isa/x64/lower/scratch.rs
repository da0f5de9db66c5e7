//! Scratch: numbers on the stack from rsp upwards, cleared before a body does anything else, since a batch runs the body for
//! one key after the other.

use pktjit_ir::ValueId;

use super::Lowering;
use crate::isa::x64::abi::{self, next_trip};
use crate::isa::x64::frame::{STORE, scratch_bytes};
use crate::isa::x64::inst::{Address, Inst, Reg, Scale, Shift, Size};
use crate::isa::x64::regs::{Node, constant};

/// Most stores that are written out one after the other.
const STRAIGHT_STORES: u32 = 24;
/// Stores of one trip of the loop that clears more than that.
const STORES_OF_TRIP: u32 = 8;

/// Scratch.
impl Lowering<'_> {
    /// Sets all scratch to zero.
    pub(super) fn clear_scratch(&mut self) {
        let stores = scratch_bytes(self.program.scratch) / STORE;
        if stores == 0 {
            return;
        }
        self.line.note = "clear scratch";
        let zero = self.vector();
        self.push(Inst::VectorZero { dst: zero });
        let looped = match stores {
            0..=STRAIGHT_STORES => 0,
            _ => self.clear_in_loop(zero, stores / STORES_OF_TRIP),
        };
        for store in looped..stores {
            self.push(Inst::VectorStore {
                address: in_scratch(STORE * store),
                src: zero,
            });
        }
    }

    /// Clears the scratch of `trips` trips and returns how many stores that takes.
    fn clear_in_loop(&mut self, zero: Reg, trips: u32) -> u32 {
        let (counter, size) = (self.general(), Size::S32);
        self.push(constant(counter, 0));
        let head = self.new_label();
        let start = self.body.nodes.len();
        self.body.nodes.push(Node::Bind(head));
        // Trips count by one as in all loops; addresses count eight times as much as this.
        let index = self.general();
        self.push(Inst::Mov {
            dst: index,
            src: counter,
            size,
        });
        let unit = STORES_OF_TRIP * STORE / 8;
        self.shift(Shift::Left, size, index, unit.trailing_zeros() as u8);
        for store in 0..STORES_OF_TRIP {
            let address = Address::Indexed {
                base: abi::RSP,
                index,
                scale: Scale::X8,
                disp: (STORE * store).cast_signed(),
            };
            self.push(Inst::VectorStore { address, src: zero });
        }
        self.push_all(next_trip(counter, trips.cast_signed(), head));
        self.body.loops.push((start, self.body.nodes.len() - 1));
        trips * STORES_OF_TRIP
    }

    pub(super) fn or_scratch(&mut self, index: ValueId, bits: ValueId) {
        let src = self.source(bits, Size::S32);
        let address = self.scratch_number(index);
        self.push(Inst::OrMemory { address, src });
    }

    /// The address of number `index` of scratch.
    pub(super) fn scratch_number(&mut self, index: ValueId) -> Address {
        self.run(in_scratch(0), index, 4)
    }

    /// The address of run `index` of so many numbers of scratch.
    pub(super) fn scratch_lanes(&mut self, index: ValueId, lanes: u8) -> Address {
        self.run(in_scratch(0), index, 4 * u32::from(lanes))
    }
}

fn in_scratch(bytes: u32) -> Address {
    Address::Base {
        base: abi::RSP,
        disp: bytes.cast_signed(),
    }
}
