//! The register convention, in one table, and the three entries that share it.
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
//! The body obeys the columns of the batch loops in `lookup` too, so that it is lowered once and emitted three times. A
//! body for which the registers above suffice but for the frame's, and that has no scratch, has no frame: callee-saved
//! registers are not touched, and the only stack that a lookup uses holds its return address.

use super::inst::{Address, Alu, Cond, Inst, Label, Reg, Size, Source, Width};
pub(super) use crate::isa::staged::Pass;

/// Result of the body.
pub(super) const RAX: Reg = Reg::general(0);
const RDX: Reg = Reg::general(2);
/// The key that the body looks up.
pub(super) const KEY: Reg = Reg::general(7);
/// Batches: from one key to the next.
pub(super) const STEP: Reg = Reg::general(6);
/// Batches: where the next result goes.
pub(super) const OUT: Reg = Reg::general(1);
/// Batches: keys left.
pub(super) const LEFT: Reg = Reg::general(11);

/// Blocks of a batch: which key of the block.
pub(super) const IN_BLOCK: Reg = R12;
/// Blocks of a batch: the first key of the block.
pub(super) const BLOCK_KEYS: Reg = R13;

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

/// Where one body starts or ends, or a piece of the code around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// An instruction and its note for the listing.
    Inst(Inst, &'static str),
    /// A place to jump to.
    Bind(Label),
    /// Sets up the frame, if there is one.
    Enter,
    /// The body of a pass, which leaves its result in eax.
    Body(Pass),
    /// Takes the frame down.
    Leave,
}

/// Start of the loop over the keys.
const NEXT_KEY: Label = Label(0);
/// After the loop over the keys.
const NO_KEYS: Label = Label(1);
/// The labels of `staged` come after these.
pub(super) const BLOCK_LABELS: u32 = 2;

/// `lookup(rdi key) -> eax`
pub(super) const LOOKUP: &[Part] = &[
    Part::Inst(Inst::Endbr, "entry"),
    Part::Enter,
    Part::Body(Pass::Whole),
    Part::Inst(Inst::Vzeroupper, "exit"),
    Part::Leave,
    Part::Inst(Inst::Ret, "exit"),
];

/// `lookup_batch(rdi keys, rsi stride, rdx n, rcx out)`: its arguments.
pub(super) const BATCH: &[Part] = &[
    Part::Inst(Inst::Endbr, "entry"),
    Part::Enter,
    Part::Inst(copy(LEFT, RDX), "entry"),
];

/// The keys that are left, one after the other, and the end.
pub(super) const BATCH_KEYS: &[Part] = &[
    Part::Inst(
        Inst::TestSelf {
            size: Size::S64,
            a: LEFT,
        },
        "entry",
    ),
    Part::Inst(
        Inst::JumpIf {
            cond: Cond::Equal,
            to: NO_KEYS,
        },
        "entry",
    ),
    Part::Bind(NEXT_KEY),
    Part::Body(Pass::Whole),
    Part::Inst(store(Address::Base { base: OUT, disp: 0 }), "result"),
    Part::Inst(
        Inst::Alu {
            op: Alu::Add,
            size: Size::S64,
            dst: KEY,
            src: Source::Reg(STEP),
        },
        "loop",
    ),
    Part::Inst(advance(OUT, 4), "loop"),
    Part::Inst(Inst::Dec { dst: LEFT }, "loop"),
    Part::Inst(
        Inst::JumpIf {
            cond: Cond::NotEqual,
            to: NEXT_KEY,
        },
        "loop",
    ),
    Part::Bind(NO_KEYS),
    Part::Inst(Inst::Vzeroupper, "exit"),
    Part::Leave,
    Part::Inst(Inst::Ret, "exit"),
];

/// `lookup_batch_ptrs(rdi ptrs, rsi n, rdx out)`: its arguments.
pub(super) const BATCH_PTRS: &[Part] = &[
    Part::Inst(Inst::Endbr, "entry"),
    Part::Enter,
    Part::Inst(copy(OUT, RDX), "entry"),
    Part::Inst(copy(LEFT, STEP), "entry"),
    Part::Inst(copy(STEP, KEY), "entry"),
];

/// The keys that are left, one after the other, and the end.
pub(super) const BATCH_PTRS_KEYS: &[Part] = &[
    Part::Inst(
        Inst::TestSelf {
            size: Size::S64,
            a: LEFT,
        },
        "entry",
    ),
    Part::Inst(
        Inst::JumpIf {
            cond: Cond::Equal,
            to: NO_KEYS,
        },
        "entry",
    ),
    Part::Bind(NEXT_KEY),
    Part::Inst(
        Inst::Load {
            dst: KEY,
            address: Address::Base {
                base: STEP,
                disp: 0,
            },
            width: Width::B8,
        },
        "loop",
    ),
    Part::Body(Pass::Whole),
    Part::Inst(store(Address::Base { base: OUT, disp: 0 }), "result"),
    Part::Inst(advance(STEP, 8), "loop"),
    Part::Inst(advance(OUT, 4), "loop"),
    Part::Inst(Inst::Dec { dst: LEFT }, "loop"),
    Part::Inst(
        Inst::JumpIf {
            cond: Cond::NotEqual,
            to: NEXT_KEY,
        },
        "loop",
    ),
    Part::Bind(NO_KEYS),
    Part::Inst(Inst::Vzeroupper, "exit"),
    Part::Leave,
    Part::Inst(Inst::Ret, "exit"),
];

/// Of what a body has left in eax.
pub(super) const fn store(address: Address) -> Inst {
    Inst::Store { address, src: RAX }
}

pub(super) const fn copy(dst: Reg, src: Reg) -> Inst {
    Inst::Mov {
        dst,
        src,
        size: Size::S64,
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

pub(super) const fn advance(dst: Reg, bytes: i32) -> Inst {
    Inst::Alu {
        op: Alu::Add,
        size: Size::S64,
        dst,
        src: Source::Imm(bytes),
    }
}
