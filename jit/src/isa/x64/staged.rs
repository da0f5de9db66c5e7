//! The code around the two passes over a block of keys; `isa::staged` tells what they are.

use super::abi::{
    BLOCK_KEYS, BLOCK_LABELS, IN_BLOCK, KEY, LEFT, OUT, Part, Pass, STEP, advance, copy, next_trip,
    store,
};
use super::inst::{Address, Alu, Cond, Inst, Label, Reg, Scale, Size, Source, Width};
use crate::isa::staged::BLOCK;

/// Where the result of the current key of a block will be, and its index is.
pub(super) const RESULT: Address = Address::Indexed {
    base: OUT,
    index: IN_BLOCK,
    scale: Scale::X4,
    disp: 0,
};

const NEXT_BLOCK: Label = Label(BLOCK_LABELS);
const FETCH: Label = Label(BLOCK_LABELS + 1);
const FINISH: Label = Label(BLOCK_LABELS + 2);
const NO_BLOCK: Label = Label(BLOCK_LABELS + 3);
/// How many labels the code around a body uses.
pub(super) const LABELS: u32 = BLOCK_LABELS + 4;

/// The blocks of `lookup_batch`. Each key is found by a product: the auditor bounds the counter, and so the product, while
/// a pointer that advances would have to be tied to the counter.
pub(super) fn batch_blocks() -> Vec<Part> {
    let nth_key = [
        block(copy(KEY, IN_BLOCK)),
        block(Inst::Mul {
            size: Size::S64,
            dst: KEY,
            src: STEP,
        }),
        block(add(KEY, BLOCK_KEYS)),
    ];
    let next_block = [
        block(Inst::MulImm {
            size: Size::S64,
            dst: KEY,
            src: STEP,
            imm: BLOCK,
        }),
        block(add(BLOCK_KEYS, KEY)),
    ];
    [
        &[block(copy(BLOCK_KEYS, KEY))],
        &blocks(&nth_key, &next_block)[..],
        &[block(copy(KEY, BLOCK_KEYS))],
    ]
    .concat()
}

/// The blocks of `lookup_batch_ptrs`.
pub(super) fn batch_ptrs_blocks() -> Vec<Part> {
    let nth_key = block(Inst::Load {
        dst: KEY,
        address: Address::Indexed {
            base: STEP,
            index: IN_BLOCK,
            scale: Scale::X8,
            disp: 0,
        },
        width: Width::B8,
    });
    blocks(&[nth_key], &[block(advance(STEP, 8 * BLOCK))])
}

/// All blocks: `nth_key` makes the key that [`IN_BLOCK`] counts the current one, `next_block` goes on to the keys of the
/// next block.
fn blocks(nth_key: &[Part], next_block: &[Part]) -> Vec<Part> {
    let is_block_left = [
        block(Inst::Cmp {
            size: Size::S64,
            a: LEFT,
            b: Source::Imm(BLOCK),
        }),
        block(Inst::JumpIf {
            cond: Cond::Below,
            to: NO_BLOCK,
        }),
    ];
    let take_block = [
        block(advance(OUT, 4 * BLOCK)),
        block(Inst::Alu {
            op: Alu::Sub,
            size: Size::S64,
            dst: LEFT,
            src: Source::Imm(BLOCK),
        }),
        block(Inst::Jump { to: NEXT_BLOCK }),
    ];
    [
        &[Part::Bind(NEXT_BLOCK)],
        &is_block_left[..],
        &for_each_key(FETCH, nth_key, Pass::Fetch),
        &for_each_key(FINISH, nth_key, Pass::Finish),
        next_block,
        &take_block,
        &[Part::Bind(NO_BLOCK)],
    ]
    .concat()
}

/// A pass over the keys of a block.
fn for_each_key(head: Label, nth_key: &[Part], pass: Pass) -> Vec<Part> {
    [
        &[block(Inst::Zero { dst: IN_BLOCK }), Part::Bind(head)],
        nth_key,
        &[Part::Body(pass), block(store(RESULT))],
        &next_trip(IN_BLOCK, BLOCK, head).map(block),
    ]
    .concat()
}

fn add(dst: Reg, src: Reg) -> Inst {
    Inst::Alu {
        op: Alu::Add,
        size: Size::S64,
        dst,
        src: Source::Reg(src),
    }
}

fn block(inst: Inst) -> Part {
    Part::Inst(inst, "block")
}
