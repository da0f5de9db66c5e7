//! The register convention, in one table, and the instructions around a body that obey it.
//!
//! | register | `lookup` | `lookup_batch` | `lookup_batch_ptrs` |
//! | --- | --- | --- | --- |
//! | x0 | the key; at the end the result | the current key | the current key |
//! | x1 | - | bytes from key to key | where the next key address is |
//! | x2 | - | keys left | keys left |
//! | x3 | - | where the next result goes | where the next result goes |
//! | x4 | - | of a block, which key | of a block, which key |
//! | x5 | - | of a block, its first key | - |
//! | x6 to x17 | the body's | the body's | the body's |
//! | v0 to v7, v16 to v31 | the body's | the body's | the body's |
//! | w6 at the end of the body | the result | the result | the result |
//! | sp and above | scratch in a frame | scratch in a frame | scratch in a frame |
//!
//! All that belongs to the caller (x19 to x30, v8 to v15) or to the platform (x18) is left alone: nothing is ever
//! saved, and `ret` finds the return address where the call has put it. `lookup_batch` gets its arguments where the
//! loop wants them.

use super::inst::{Address, Alu, Cond, Inst, Label, Operand, Reg, Size, Width};
use crate::isa::entries::{Around, Keys};
use crate::isa::staged::BLOCK;

/// The key that the body looks up.
pub(super) const KEY: Reg = Reg::general(0);
/// Batches: from one key to the next.
const STEP: Reg = Reg::general(1);
/// Batches: keys left.
const LEFT: Reg = Reg::general(2);
/// Batches: where the next result goes.
const OUT: Reg = Reg::general(3);
/// Blocks of a batch: which key of the block.
const IN_BLOCK: Reg = Reg::general(4);
/// Blocks of a batch: the first key of the block.
const BLOCK_KEYS: Reg = Reg::general(5);
/// Result of the body.
pub(super) const RESULT: Reg = Reg::general(6);

/// General registers of the body.
pub(super) const GENERAL: [Reg; 12] = {
    let mut all = [RESULT; 12];
    let mut i = 0;
    while i < all.len() {
        all[i] = Reg::general(6 + i as u8);
        i += 1;
    }
    all
};
/// Vector registers of the body; v8 to v15 are the caller's.
pub(super) const VECTOR: [Reg; 24] = {
    let mut all = [Reg::vector(0); 24];
    let mut i = 0;
    while i < all.len() {
        all[i] = Reg::vector(if i < 8 { i } else { i + 8 } as u8);
        i += 1;
    }
    all
};

/// Where the result of the current key of a block will be, and its index is.
pub(super) const RESULT_IN_BLOCK: Address = Address::Indexed {
    base: OUT,
    index: IN_BLOCK,
    shift: 2,
};

impl Around for Inst {
    const LANDING_PAD: Self = Self::Bti;
    const RETURN: Self = Self::Ret;
    const RETURNED: Reg = KEY;
    const KEY: Reg = KEY;
    const IN_BLOCK: Reg = IN_BLOCK;
    const STORE: Self = Self::StoreAndAdvance {
        base: OUT,
        src: RESULT,
    };
    const STORE_IN_BLOCK: Self = Self::Store {
        address: RESULT_IN_BLOCK,
        src: RESULT,
    };

    /// `lookup_batch(x0 keys, x1 stride, x2 n, x3 out)`
    ///
    /// Each key of a block is found by a product: the counter is bounded, a pointer that advances would have to be tied
    /// to it.
    const STRIDED: Keys<Self> = Keys {
        arguments: &[],
        load: &[],
        next: &[add(KEY, Operand::Reg(STEP))],
        load_nth: &[Self::MulAdd {
            dst: KEY,
            a: IN_BLOCK,
            b: STEP,
            c: BLOCK_KEYS,
        }],
        next_block: &[add(
            BLOCK_KEYS,
            Operand::Shifted(STEP, BLOCK.trailing_zeros() as u8),
        )],
        block: Some(BLOCK_KEYS),
    };

    /// `lookup_batch_ptrs(x0 ptrs, x1 n, x2 out)`
    const POINTERS: Keys<Self> = Keys {
        arguments: &[(OUT, LEFT), (LEFT, STEP), (STEP, KEY)],
        load: &[Self::LoadAndAdvance {
            dst: KEY,
            base: STEP,
        }],
        next: &[],
        load_nth: &[Self::Load {
            dst: KEY,
            address: Address::Indexed {
                base: STEP,
                index: IN_BLOCK,
                shift: 3,
            },
            width: Width::B8,
        }],
        next_block: &[add(STEP, Operand::Imm(8 * BLOCK as u64))],
        block: None,
    };

    fn unless_key_left(to: Label) -> Vec<Self> {
        vec![jump_if_left(false, to)]
    }

    fn next_key(to: Label) -> Vec<Self> {
        vec![take(1), jump_if_left(true, to)]
    }

    fn unless_block_left(to: Label) -> [Self; 2] {
        let (size, a, b) = (Size::S64, LEFT, Operand::Imm(BLOCK as u64));
        let cond = Cond::Below;
        [Self::Cmp { size, a, b }, Self::JumpIf { cond, to }]
    }

    fn next_block() -> [Self; 2] {
        let keys = BLOCK as u64;
        [add(OUT, Operand::Imm(4 * keys)), take(keys)]
    }

    fn next_in_block(to: Label) -> [Self; 3] {
        next_trip(IN_BLOCK, Operand::Imm(BLOCK as u64), to)
    }
}

fn jump_if_left(is_left: bool, to: Label) -> Inst {
    Inst::JumpIfZero {
        size: Size::S64,
        a: LEFT,
        is_zero: !is_left,
        to,
    }
}

fn take(keys: u64) -> Inst {
    Inst::Alu {
        op: Alu::Sub,
        size: Size::S64,
        dst: LEFT,
        a: LEFT,
        b: Operand::Imm(keys),
    }
}

const fn add(dst: Reg, b: Operand) -> Inst {
    Inst::Alu {
        op: Alu::Add,
        size: Size::S64,
        dst,
        a: dst,
        b,
    }
}

/// Counts one trip more, and goes to `head` until there were as many as `trips`.
pub(super) const fn next_trip(counter: Reg, trips: Operand, head: Label) -> [Inst; 3] {
    let size = Size::S32;
    [
        Inst::Alu {
            op: Alu::Add,
            size,
            dst: counter,
            a: counter,
            b: Operand::Imm(1),
        },
        Inst::Cmp {
            size,
            a: counter,
            b: trips,
        },
        Inst::JumpIf {
            cond: Cond::Below,
            to: head,
        },
    ]
}
