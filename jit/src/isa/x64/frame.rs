//! The stack frame of an entry whose body needs one: for scratch, or for more registers than are free.
//!
//! ```text
//! return address
//! saved registers    pushed first to last
//! padding            so that scratch is at a multiple of 16
//! scratch            numbers from rsp upwards
//! rsp
//! ```
//!
//! rsp moves here alone, so the body knows where its scratch is. Rounding rsp down to a multiple of 32 was rejected: it costs
//! a register that keeps the old rsp, to spare every other 32-byte access the border between two cache lines.

use super::abi::RSP;
use super::inst::{Address, Alu, Inst, Reg, Size, Source};
use crate::isa::frame::{allocate, scratch_bytes};

/// Bytes of a saved register, and of the return address.
const SLOT: u32 = 8;
/// What an entry does to the stack.
#[derive(Debug)]
pub(super) struct Frame {
    /// Registers of the caller that the body writes.
    saved: Vec<Reg>,
    /// Bytes below them.
    allocated: u32,
}

impl Frame {
    /// A frame that saves registers and has so many 32-bit numbers of scratch.
    pub(super) fn new(saved: Vec<Reg>, scratch: u32) -> Self {
        let allocated = match scratch_bytes(scratch) {
            0 => 0,
            bytes => {
                let above = SLOT * (1 + saved.len() as u32);
                (above + bytes).next_multiple_of(16) - above
            }
        };
        Self { saved, allocated }
    }

    /// Bytes that are allocated below the saved registers.
    pub(super) fn allocated(&self) -> u32 {
        self.allocated
    }

    /// Bytes of stack in all, the return address included.
    pub(super) fn bytes(&self) -> u32 {
        SLOT * (1 + self.saved.len() as u32) + self.allocated
    }

    /// Sets the frame up; spoils the flags.
    pub(super) fn enter(&self) -> Vec<Inst> {
        let mut insts: Vec<Inst> = self.saved.iter().map(|&reg| Inst::Push { reg }).collect();
        let move_down = |bytes| move_rsp(Alu::Sub, bytes);
        insts.extend(allocate(self.allocated, move_down, TOUCH));
        insts
    }

    /// Takes the frame down; spoils the flags.
    pub(super) fn leave(&self) -> Vec<Inst> {
        let release = (self.allocated > 0).then(|| move_rsp(Alu::Add, self.allocated));
        let restored = self.saved.iter().rev().map(|&reg| Inst::Pop { reg });
        release.into_iter().chain(restored).collect()
    }
}

/// Touches the page of rsp and changes nothing.
const TOUCH: Inst = Inst::OrMemory {
    address: Address::Base { base: RSP, disp: 0 },
    src: Source::Imm(0),
};

fn move_rsp(op: Alu, bytes: u32) -> Inst {
    Inst::Alu {
        op,
        size: Size::S64,
        dst: RSP,
        src: Source::Imm(bytes.cast_signed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_at_a_multiple_of_16_however_many_registers_are_saved() {
        for saved in 0..=6 {
            let frame = Frame::new(vec![Reg::general(3); saved], 9);
            assert!(frame.bytes().is_multiple_of(16), "{frame:?}");
            assert!(frame.allocated() >= 64, "{frame:?}");
        }
    }

    #[test]
    fn saved_registers_alone_need_no_padding() {
        let frame = Frame::new(vec![Reg::general(3)], 0);
        assert_eq!((frame.allocated(), frame.bytes()), (0, 16));
    }

    #[test]
    fn each_page_of_a_large_frame_is_touched() {
        let touches = |scratch| {
            let insts = Frame::new(vec![], scratch).enter();
            insts.iter().filter(|&&inst| inst == TOUCH).count()
        };
        // 8 bytes of padding.
        assert_eq!([1, 1016, 1024, 16384].map(touches), [0, 0, 1, 16]);
    }
}
