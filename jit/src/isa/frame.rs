//! What stack frames of all instruction sets share: how large scratch is, and how the stack grows.

use crate::code::StackUse;

/// What an entry does to the stack; it spoils the flags.
#[derive(Debug)]
pub(super) struct Frame<I> {
    /// Sets the frame up.
    pub(super) enter: Vec<I>,
    /// Takes it down.
    pub(super) leave: Vec<I>,
    /// What it takes.
    pub(super) stack: StackUse,
}

/// The least that a guard page covers.
pub(super) const PAGE: u32 = 4096;
/// Bytes of scratch that are cleared at once, by one store or a pair; twice what the stack pointer is a multiple of.
pub(super) const STORE: u32 = 32;

/// Bytes of so many numbers of scratch, a whole number of stores.
pub(super) fn scratch_bytes(numbers: u32) -> u32 {
    (4 * numbers).next_multiple_of(STORE)
}

/// Moves the stack pointer down. A page below what was touched is touched before it goes on, so that a guard page is
/// hit, not jumped over.
pub(super) fn allocate<I: Copy>(bytes: u32, move_down: impl Fn(u32) -> I, touch: I) -> Vec<I> {
    let mut insts = Vec::new();
    let mut left = bytes;
    while left > PAGE {
        insts.extend([move_down(PAGE), touch]);
        left -= PAGE;
    }
    if left > 0 {
        insts.push(move_down(left));
    }
    insts
}
