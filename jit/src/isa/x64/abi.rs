//! The register convention, in one table, and the instructions around a body that obey it.
//!
//! | register | `lookup` | `lookup_batch` | `lookup_batch_ptrs` |
//! | --- | --- | --- | --- |
//! | rdi | the key | the current key | the current key |
//! | rsi | - | bytes from key to key | where the next key address is |
//! | rcx | - | where the next result goes | where the next result goes |
//! | r11 | - | keys left | keys left |
//! | rax, rdx, r8, r9, r10 | the body's | the body's | the body's |
//! | ymm0 to ymm15, zmm0 to zmm15 | the body's | the body's | the body's |
//! | k1 to k7 | the body's | the body's | the body's |
//! | eax at the end of the body | the result | the result | the result |
//! | rbx, rbp, r14, r15 | the body's in a frame | the body's in a frame | the body's in a frame |
//! | r12 | the body's in a frame | the same; of a block, which key | the same; of a block, which key |
//! | r13 | the body's in a frame | the same; of a block, its first key | the body's in a frame |
//! | rsp and above | scratch in a frame | scratch in a frame | scratch in a frame |
//!
//! A body for which the registers above suffice but for the frame's, and that has no scratch, has no frame:
//! callee-saved registers are not touched, and the only stack that a lookup uses holds its return address.

use super::inst::{Address, Alu, Cond, Inst, Label, Reg, Scale, Size, Source, Width};
use crate::isa::entries::{Around, Keys};
use crate::isa::staged::BLOCK;

/// Result of the body.
pub(super) const RAX: Reg = Reg::general(0);
const RDX: Reg = Reg::general(2);
/// The key that the body looks up.
pub(super) const KEY: Reg = Reg::general(7);
/// Batches: from one key to the next.
const STEP: Reg = Reg::general(6);
/// Batches: where the next result goes.
const OUT: Reg = Reg::general(1);
/// Batches: keys left.
const LEFT: Reg = Reg::general(11);

/// Blocks of a batch: which key of the block.
const IN_BLOCK: Reg = R12;
/// Blocks of a batch: the first key of the block.
const BLOCK_KEYS: Reg = R13;

/// The stack pointer.
pub(super) const RSP: Reg = Reg::general(4);

const RBX: Reg = Reg::general(3);
const RBP: Reg = Reg::general(5);
const R8: Reg = Reg::general(8);
const R9: Reg = Reg::general(9);
const R10: Reg = Reg::general(10);
const R12: Reg = Reg::general(12);
const R13: Reg = Reg::general(13);
const R14: Reg = Reg::general(14);
const R15: Reg = Reg::general(15);

/// General registers of a body without a frame; those with the shorter encoding first.
pub(super) const GENERAL: &[Reg] = &[RAX, RDX, R8, R9, R10];
/// General registers of a body in a frame; those that have to be saved last.
pub(super) const FRAMED: &[Reg] = &[RAX, RDX, R8, R9, R10, RBX, RBP, R14, R15, R12, R13];
/// General registers of the bodies of a block.
pub(super) const IN_BLOCKS: &[Reg] = FRAMED.split_at(9).0;
/// Those that have to be saved: they belong to the caller.
pub(super) const SAVED: &[Reg] = &[RBX, RBP, R12, R13, R14, R15];
/// Vector registers of the body.
pub(super) const VECTOR: [Reg; 16] = {
    let mut all = [Reg::vector(0); 16];
    let mut i = 0;
    while i < all.len() {
        all[i] = Reg::vector(i as u8);
        i += 1;
    }
    all
};

/// Mask registers of the body; k0 as the mask of an instruction means none.
pub(super) const MASK: [Reg; 7] = {
    let mut all = [Reg::mask(1); 7];
    let mut i = 0;
    while i < all.len() {
        all[i] = Reg::mask(i as u8 + 1);
        i += 1;
    }
    all
};

/// Where the result of the current key of a block will be, and its index is.
pub(super) const RESULT_IN_BLOCK: Address = Address::Indexed {
    base: OUT,
    index: IN_BLOCK,
    scale: Scale::X4,
    disp: 0,
};

impl Around for Inst {
    const LANDING_PAD: Self = Self::Endbr;
    const RETURN: Self = Self::Ret;
    const RETURNED: Reg = RAX;
    const KEY: Reg = KEY;
    const IN_BLOCK: Reg = IN_BLOCK;
    const STORE: Self = store(Address::Base { base: OUT, disp: 0 });
    const STORE_IN_BLOCK: Self = store(RESULT_IN_BLOCK);

    /// `lookup_batch(rdi keys, rsi stride, rdx n, rcx out)`
    ///
    /// Each key of a block is found by a product: the auditor bounds the counter, and so the product, while a pointer
    /// that advances would have to be tied to the counter.
    const STRIDED: Keys<Self> = Keys {
        arguments: &[(LEFT, RDX)],
        load: &[],
        next: &[add(KEY, Source::Reg(STEP))],
        load_nth: &[
            Self::Mov {
                dst: KEY,
                src: IN_BLOCK,
                size: Size::S64,
            },
            Self::Mul {
                size: Size::S64,
                dst: KEY,
                src: STEP,
            },
            add(KEY, Source::Reg(BLOCK_KEYS)),
        ],
        next_block: &[
            Self::MulImm {
                size: Size::S64,
                dst: KEY,
                src: STEP,
                imm: BLOCK,
            },
            add(BLOCK_KEYS, Source::Reg(KEY)),
        ],
        block: Some(BLOCK_KEYS),
    };

    /// `lookup_batch_ptrs(rdi ptrs, rsi n, rdx out)`
    const POINTERS: Keys<Self> = Keys {
        arguments: &[(OUT, RDX), (LEFT, STEP), (STEP, KEY)],
        load: &[load_key(Address::Base {
            base: STEP,
            disp: 0,
        })],
        next: &[add(STEP, Source::Imm(8))],
        load_nth: &[load_key(Address::Indexed {
            base: STEP,
            index: IN_BLOCK,
            scale: Scale::X8,
            disp: 0,
        })],
        next_block: &[add(STEP, Source::Imm(8 * BLOCK))],
        block: None,
    };

    fn unless_key_left(to: Label) -> Vec<Self> {
        let (size, a, cond) = (Size::S64, LEFT, Cond::Equal);
        vec![Self::TestSelf { size, a }, Self::JumpIf { cond, to }]
    }

    fn next_key(to: Label) -> Vec<Self> {
        let (dst, cond) = (LEFT, Cond::NotEqual);
        vec![
            add(OUT, Source::Imm(4)),
            Self::Dec { dst },
            Self::JumpIf { cond, to },
        ]
    }

    fn unless_block_left(to: Label) -> [Self; 2] {
        let (size, a, b) = (Size::S64, LEFT, Source::Imm(BLOCK));
        let cond = Cond::Below;
        [Self::Cmp { size, a, b }, Self::JumpIf { cond, to }]
    }

    fn next_block() -> [Self; 2] {
        let (op, size, dst, src) = (Alu::Sub, Size::S64, LEFT, Source::Imm(BLOCK));
        [
            add(OUT, Source::Imm(4 * BLOCK)),
            Self::Alu { op, size, dst, src },
        ]
    }

    fn next_in_block(to: Label) -> [Self; 3] {
        next_trip(IN_BLOCK, BLOCK, to)
    }
}

const fn load_key(address: Address) -> Inst {
    Inst::Load {
        dst: KEY,
        address,
        width: Width::B8,
    }
}

/// Of what a body has left in eax.
const fn store(address: Address) -> Inst {
    Inst::Store { address, src: RAX }
}

const fn add(dst: Reg, src: Source) -> Inst {
    Inst::Alu {
        op: Alu::Add,
        size: Size::S64,
        dst,
        src,
    }
}

/// Counts one trip more, and goes to `head` until there were as many as `trips`: the form of a loop from which the auditor
/// proves bounds.
pub(super) const fn next_trip(counter: Reg, trips: i32, head: Label) -> [Inst; 3] {
    let size = Size::S32;
    [
        Inst::Alu {
            op: Alu::Add,
            size,
            dst: counter,
            src: Source::Imm(1),
        },
        Inst::Cmp {
            size,
            a: counter,
            b: Source::Imm(trips),
        },
        Inst::JumpIf {
            cond: Cond::Below,
            to: head,
        },
    ]
}
