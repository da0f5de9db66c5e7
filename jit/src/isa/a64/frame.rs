//! The stack frame of an entry whose program has scratch: numbers from sp upwards, and nothing else. The return address
//! is in a register.
//!
//! sp moves here alone, so the body knows where its scratch is.

use super::inst::Inst;
use crate::code::StackUse;
use crate::isa::frame::{Frame, PAGE, allocate, scratch_bytes};

/// A frame with so many 32-bit numbers of scratch. It is taken down by whole pages at once, then the rest, since an
/// immediate has 12 bits.
pub(super) fn frame(scratch: u32) -> Frame<Inst> {
    let bytes = scratch_bytes(scratch);
    let parts = [bytes / PAGE * PAGE, bytes % PAGE].into_iter();
    let parts = parts.filter(|&bytes| bytes > 0);
    Frame {
        enter: allocate(bytes, |bytes| Inst::Allocate { bytes }, Inst::TouchStack),
        leave: parts.map(|bytes| Inst::Release { bytes }).collect(),
        stack: StackUse {
            bytes,
            allocated: bytes,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_of_a_large_frame_is_touched() {
        let touches = |scratch| {
            let insts = frame(scratch).enter.into_iter();
            insts.filter(|&inst| inst == Inst::TouchStack).count()
        };
        assert_eq!([0, 1, 1024, 1025, 16384].map(touches), [0, 0, 0, 1, 15]);
    }

    #[test]
    fn what_is_allocated_is_released() {
        for scratch in [0, 1, 9, 1024, 1025, 3000, 8192] {
            let Frame {
                enter,
                leave,
                stack,
            } = frame(scratch);
            let moved = |insts: Vec<Inst>| -> u32 {
                let moved = insts.iter().map(|inst| match *inst {
                    Inst::Allocate { bytes } | Inst::Release { bytes } => bytes,
                    _ => 0,
                });
                moved.sum()
            };
            assert_eq!([moved(enter), moved(leave)], [stack.allocated; 2]);
        }
    }
}
