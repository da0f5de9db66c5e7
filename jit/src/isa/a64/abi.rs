//! The register convention, in one table, and the three entries that share it.
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
//! The body obeys the columns of the batch loops in `lookup` too, so that it is lowered once and emitted three times. All
//! that belongs to the caller (x19 to x30, v8 to v15) or to the platform (x18) is left alone: nothing is ever saved, and
//! `ret` finds the return address where the call has put it. `lookup_batch` gets its arguments where the loop wants them.

use super::inst::{Address, Alu, Cond, Inst, Label, Operand, Reg, Size, Width};
use crate::isa::staged::BLOCK;
pub(super) use crate::isa::staged::Pass;

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

/// Where one body starts or ends, or a piece of the code around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// An instruction and its note for the listing.
    Inst(Inst, &'static str),
    /// A place to jump to.
    Bind(Label),
    /// Sets up the frame, if there is one.
    Enter,
    /// The body of a pass, which leaves its result in w6.
    Body(Pass),
    /// Takes the frame down.
    Leave,
}

/// Start of the loop over the keys.
const NEXT_KEY: Label = Label(0);
/// After the loop over the keys.
const NO_KEYS: Label = Label(1);
const NEXT_BLOCK: Label = Label(2);
const FETCH: Label = Label(3);
const FINISH: Label = Label(4);
const NO_BLOCK: Label = Label(5);
/// How many labels the code around a body uses.
pub(super) const LABELS: u32 = 6;

/// Where the result of the current key of a block will be, and its index is.
pub(super) const RESULT_IN_BLOCK: Address = Address::Indexed {
    base: OUT,
    index: IN_BLOCK,
    shift: 2,
};

/// `lookup(x0 key) -> w0`
pub(super) fn lookup() -> Vec<Part> {
    vec![
        Part::Inst(Inst::Bti, "entry"),
        Part::Enter,
        Part::Body(Pass::Whole),
        Part::Inst(
            Inst::Mov {
                size: Size::S32,
                dst: KEY,
                src: RESULT,
            },
            "result",
        ),
        Part::Leave,
        Part::Inst(Inst::Ret, "exit"),
    ]
}

/// `lookup_batch(x0 keys, x1 stride, x2 n, x3 out)`
pub(super) fn batch(is_staged: bool) -> Vec<Part> {
    let blocks = [
        vec![block(copy(BLOCK_KEYS, KEY))],
        blocks(
            // Each key is found by a product: the counter is bounded, a pointer that advances would have to be tied to it.
            block(Inst::MulAdd {
                dst: KEY,
                a: IN_BLOCK,
                b: STEP,
                c: BLOCK_KEYS,
            }),
            block(add(
                BLOCK_KEYS,
                Operand::Shifted(STEP, BLOCK.trailing_zeros() as u8),
            )),
        ),
        vec![block(copy(KEY, BLOCK_KEYS))],
    ];
    let entry = [Part::Inst(Inst::Bti, "entry"), Part::Enter];
    let key = [];
    let next = [Part::Inst(add(KEY, Operand::Reg(STEP)), "loop")];
    whole(&entry, is_staged.then_some(blocks.concat()), &key, &next)
}

/// `lookup_batch_ptrs(x0 ptrs, x1 n, x2 out)`
pub(super) fn batch_ptrs(is_staged: bool) -> Vec<Part> {
    let blocks = blocks(
        block(Inst::Load {
            dst: KEY,
            address: Address::Indexed {
                base: STEP,
                index: IN_BLOCK,
                shift: 3,
            },
            width: Width::B8,
        }),
        block(advance(STEP, 8 * BLOCK as u64)),
    );
    let entry = [
        Part::Inst(Inst::Bti, "entry"),
        Part::Enter,
        Part::Inst(copy(OUT, LEFT), "entry"),
        Part::Inst(copy(LEFT, STEP), "entry"),
        Part::Inst(copy(STEP, KEY), "entry"),
    ];
    let load = Inst::LoadAndAdvance {
        dst: KEY,
        base: STEP,
    };
    let key = [Part::Inst(load, "loop")];
    whole(&entry, is_staged.then_some(blocks), &key, &[])
}

/// A batch: blocks, if there are any, then the keys that are left, one after the other, and the end.
fn whole(entry: &[Part], blocks: Option<Vec<Part>>, key: &[Part], next: &[Part]) -> Vec<Part> {
    let until = |is_zero, to, note| {
        let size = Size::S64;
        let a = LEFT;
        Part::Inst(
            Inst::JumpIfZero {
                size,
                a,
                is_zero,
                to,
            },
            note,
        )
    };
    let store = Inst::StoreAndAdvance {
        base: OUT,
        src: RESULT,
    };
    [
        entry,
        &blocks.unwrap_or_default(),
        &[until(true, NO_KEYS, "entry"), Part::Bind(NEXT_KEY)],
        key,
        &[Part::Body(Pass::Whole), Part::Inst(store, "result")],
        next,
        &[
            Part::Inst(take(LEFT, 1), "loop"),
            until(false, NEXT_KEY, "loop"),
            Part::Bind(NO_KEYS),
            Part::Leave,
            Part::Inst(Inst::Ret, "exit"),
        ],
    ]
    .concat()
}

/// All blocks: `nth_key` makes the key that [`IN_BLOCK`] counts the current one, `next_block` goes on to the keys of the
/// next block.
fn blocks(nth_key: Part, next_block: Part) -> Vec<Part> {
    let keys = BLOCK as u64;
    [
        &[
            Part::Bind(NEXT_BLOCK),
            block(Inst::Cmp {
                size: Size::S64,
                a: LEFT,
                b: Operand::Imm(keys),
            }),
            block(Inst::JumpIf {
                cond: Cond::Below,
                to: NO_BLOCK,
            }),
        ][..],
        &for_each_key(FETCH, nth_key, Pass::Fetch),
        &for_each_key(FINISH, nth_key, Pass::Finish),
        &[
            next_block,
            block(advance(OUT, 4 * keys)),
            block(take(LEFT, keys)),
            block(Inst::Jump { to: NEXT_BLOCK }),
            Part::Bind(NO_BLOCK),
        ],
    ]
    .concat()
}

/// A pass over the keys of a block.
fn for_each_key(head: Label, nth_key: Part, pass: Pass) -> Vec<Part> {
    let zero = Inst::MovZ {
        dst: IN_BLOCK,
        imm: 0,
        shift: 0,
    };
    let store = Inst::Store {
        address: RESULT_IN_BLOCK,
        src: RESULT,
    };
    let trips = Operand::Imm(BLOCK as u64);
    [
        &[
            block(zero),
            Part::Bind(head),
            nth_key,
            Part::Body(pass),
            block(store),
        ],
        &next_trip(IN_BLOCK, trips, head).map(block)[..],
    ]
    .concat()
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

fn copy(dst: Reg, src: Reg) -> Inst {
    Inst::Mov {
        size: Size::S64,
        dst,
        src,
    }
}

fn add(dst: Reg, b: Operand) -> Inst {
    Inst::Alu {
        op: Alu::Add,
        size: Size::S64,
        dst,
        a: dst,
        b,
    }
}

fn advance(dst: Reg, bytes: u64) -> Inst {
    add(dst, Operand::Imm(bytes))
}

fn take(dst: Reg, count: u64) -> Inst {
    Inst::Alu {
        op: Alu::Sub,
        size: Size::S64,
        dst,
        a: dst,
        b: Operand::Imm(count),
    }
}

fn block(inst: Inst) -> Part {
    Part::Inst(inst, "block")
}
