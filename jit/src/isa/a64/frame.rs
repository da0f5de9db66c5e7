//! The stack frame of an entry whose program has scratch: numbers from sp upwards, and nothing else.
//!
//! sp moves here alone, so the body knows where its scratch is.

use super::inst::Inst;
use crate::isa::frame::{PAGE, allocate};

/// Sets up a frame of so many bytes.
pub(super) fn enter(bytes: u32) -> Vec<Inst> {
    allocate(bytes, |bytes| Inst::Allocate { bytes }, Inst::TouchStack)
}

/// Takes the frame down: whole pages at once, then the rest, since an immediate has 12 bits.
pub(super) fn leave(bytes: u32) -> Vec<Inst> {
    let parts = [bytes / PAGE * PAGE, bytes % PAGE];
    let parts = parts.into_iter().filter(|&bytes| bytes > 0);
    parts.map(|bytes| Inst::Release { bytes }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::frame::scratch_bytes;

    #[test]
    fn each_page_of_a_large_frame_is_touched() {
        let touches = |scratch| {
            let insts = enter(scratch_bytes(scratch)).into_iter();
            insts.filter(|&inst| inst == Inst::TouchStack).count()
        };
        assert_eq!([0, 1, 1024, 1025, 16384].map(touches), [0, 0, 0, 1, 15]);
    }

    #[test]
    fn what_is_allocated_is_released() {
        for scratch in [0, 1, 9, 1024, 1025, 3000, 8192] {
            let bytes = scratch_bytes(scratch);
            let moved = |insts: Vec<Inst>| -> u32 {
                let moved = insts.iter().map(|inst| match *inst {
                    Inst::Allocate { bytes } | Inst::Release { bytes } => bytes,
                    _ => 0,
                });
                moved.sum()
            };
            assert_eq!([moved(enter(bytes)), moved(leave(bytes))], [bytes; 2]);
        }
    }
}
