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
//! rsp moves here alone, so the body knows where its scratch is. Rounding rsp down to a multiple of 32 was rejected: it
//! costs a register that keeps the old rsp, to spare every other 32-byte access the border between two cache lines.

use super::abi::{RSP, SAVED};
use super::inst::{Address, Alu, Class, Inst, Reg, Role, Size, Source};
use crate::code::StackUse;
use crate::isa::frame::{Frame, allocate, scratch_bytes};

/// Bytes of a saved register, and of the return address.
const SLOT: u32 = 8;

/// The frame of an entry that consists of these instructions. Upper halves of vector registers are left clean.
pub(super) fn frame(insts: impl Iterator<Item = Inst>, scratch: u32) -> Frame<Inst> {
    let mut is_written = [false; Reg::PHYSICAL];
    let mut has_vectors = false;
    for mut inst in insts {
        inst.for_each_operand(|class, role, reg| {
            has_vectors |= matches!(class, Class::Vector | Class::Wide);
            is_written[reg.physical_index()] |= role != Role::Use;
        });
    }
    let saved = SAVED.iter().copied();
    let saved: Vec<Reg> = saved
        .filter(|reg| is_written[reg.physical_index()])
        .collect();
    let mut frame = saving(&saved, scratch);
    if has_vectors {
        frame.leave.insert(0, Inst::Vzeroupper);
    }
    frame
}

/// A frame that saves registers of the caller and has so many 32-bit numbers of scratch.
fn saving(saved: &[Reg], scratch: u32) -> Frame<Inst> {
    let above = SLOT * (1 + saved.len() as u32);
    let allocated = match scratch_bytes(scratch) {
        0 => 0,
        bytes => (above + bytes).next_multiple_of(16) - above,
    };
    let pushed = saved.iter().map(|&reg| Inst::Push { reg });
    let moved = allocate(allocated, |bytes| move_rsp(Alu::Sub, bytes), TOUCH);
    let released = (allocated > 0).then(|| move_rsp(Alu::Add, allocated));
    let popped = saved.iter().rev().map(|&reg| Inst::Pop { reg });
    Frame {
        enter: pushed.chain(moved).collect(),
        leave: released.into_iter().chain(popped).collect(),
        stack: StackUse {
            bytes: above + allocated,
            allocated,
        },
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
            let StackUse { bytes, allocated } = saving(&SAVED[..saved], 9).stack;
            assert!(bytes.is_multiple_of(16), "{saved}: {bytes}");
            assert!(allocated >= 64, "{saved}: {allocated}");
        }
    }

    #[test]
    fn saved_registers_alone_need_no_padding() {
        let (bytes, allocated) = (16, 0);
        let expected = StackUse { bytes, allocated };
        assert_eq!(saving(&SAVED[..1], 0).stack, expected);
    }

    #[test]
    fn each_page_of_a_large_frame_is_touched() {
        let touches = |scratch| {
            let insts = saving(&[], scratch).enter;
            insts.iter().filter(|&&inst| inst == TOUCH).count()
        };
        // 8 bytes of padding.
        assert_eq!([1, 1016, 1024, 16384].map(touches), [0, 0, 1, 16]);
    }
}
