//! The stack frame of an entry whose program has scratch: numbers from sp upwards, and nothing else.
//!
//! sp moves here alone, so the body knows where its scratch is. A page below what was touched is touched before sp goes on,
//! so that a guard page is hit, not jumped over.

use super::inst::Inst;

/// The least that a guard page covers.
const PAGE: u32 = 4096;
/// Bytes of two vectors, with which scratch is cleared; sp stays at a multiple of 16.
pub(super) const STORE: u32 = 32;

/// Bytes of so many numbers of scratch, a whole number of stores.
pub(super) fn scratch_bytes(numbers: u32) -> u32 {
    (4 * numbers).next_multiple_of(STORE)
}

/// Sets up a frame of so many bytes.
pub(super) fn enter(bytes: u32) -> Vec<Inst> {
    let mut insts = Vec::new();
    let mut left = bytes;
    while left > PAGE {
        insts.extend([Inst::Allocate { bytes: PAGE }, Inst::TouchStack]);
        left -= PAGE;
    }
    if left > 0 {
        insts.push(Inst::Allocate { bytes: left });
    }
    insts
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
