//! Scratch: numbers on the stack from rsp upwards.

use pktjit_ir::ValueId;

use super::Lowering;
use crate::isa::frame::STORE;
use crate::isa::lower::STORES_OF_TRIP;
use crate::isa::x64::abi;
use crate::isa::x64::inst::{Address, Inst, Scale, Shift, Size};

/// Scratch.
impl Lowering<'_> {
    pub(super) fn clear(&mut self, trips: u32, rest: u32) {
        let src = self.vector();
        self.push(Inst::VectorZero { dst: src });
        if trips > 0 {
            self.counted(trips, |lowering, counter| {
                // Trips count by one as in all loops; addresses count eight times as much as this.
                let (index, size) = (lowering.general(), Size::S32);
                lowering.push(Inst::Mov {
                    dst: index,
                    src: counter,
                    size,
                });
                let unit = STORES_OF_TRIP * STORE / 8;
                lowering.shift(Shift::Left, size, index, unit.trailing_zeros() as u8);
                for store in 0..STORES_OF_TRIP {
                    let address = Address::Indexed {
                        base: abi::RSP,
                        index,
                        scale: Scale::X8,
                        disp: (STORE * store).cast_signed(),
                    };
                    lowering.push(Inst::VectorStore { address, src });
                }
            });
        }
        let looped = trips * STORES_OF_TRIP;
        for store in looped..looped + rest {
            let address = in_scratch(STORE * store);
            self.push(Inst::VectorStore { address, src });
        }
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
