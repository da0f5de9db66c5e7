//! Batches that ask for rows ahead: the code around the two passes of a lookup whose program stages a row.
//!
//! ```text
//! while at least 32 keys are left:
//!     for each of 32 keys: out[i] = index of its row; prefetch the row         Pass::Fetch
//!     for each of 32 keys: out[i] = result of the lookup, given out[i]         Pass::Finish
//! the keys that are left, as in any batch                                      Pass::Whole
//! ```
//!
//! So the rows of 32 keys are on their way at once, where the loads of one lookup after the other are on their way only as far
//! ahead as the CPU sees. The index is kept, since computing it once more takes what the prefetch gains; and kept where the
//! result will be, since those are four bytes a key that the code may write anyway. The caller may write there too: so the
//! index is brought below its bound once more when it is read, and the auditor proves the load of the row from that.
//!
//! Group prefetching is from Chen, Ailamaki, Gibbons and Mowry (2004), where it hides the misses of hash joins.

use pktjit_ir::program::{Block, Inst as Ir, Program, Terminator, Type};
use pktjit_ir::{ValueId, VerifiedProgram};

use super::abi::{
    BLOCK_KEYS, BLOCK_LABELS, IN_BLOCK, KEY, LEFT, OUT, Part, Pass, STEP, advance, copy, next_trip,
    store,
};
use super::inst::{Address, Alu, Cond, Inst, Label, Reg, Scale, Size, Source, Width};

/// Keys of a block: a burst of DPDK. 16 gained less (AMD EPYC, family 25).
const BLOCK: i32 = 32;

/// The index of the row that `program` stages, unless more is known of it than a bound: that is all that holds of what comes
/// back from the results.
pub(super) fn index(program: &VerifiedProgram) -> Option<ValueId> {
    let row = program.program().staged?;
    let entry = program.program().blocks.first()?;
    let (_, inst) = entry.insts.iter().find(|(value, _)| *value == row)?;
    match *inst {
        Ir::Row { index, .. } if program.facts(index).ones == 0 => Some(index),
        _ => None,
    }
}

/// What computes the index of the staged row, and returns it.
pub(super) fn fetch(program: &Program, index: ValueId) -> Program {
    let entry = program.blocks.first().map(|entry| Block {
        terminator: Terminator::Return { value: index },
        ..entry.clone()
    });
    Program {
        blocks: entry.into_iter().collect(),
        ..program.clone()
    }
}

/// The lookup whose first block gets the index of the staged row as its parameter.
pub(super) fn finish(program: &Program, index: ValueId) -> Program {
    let mut program = program.clone();
    if let Some(entry) = program.blocks.first_mut() {
        entry.insts.retain(|&(value, _)| value != index);
        entry.params.push((index, Type::Scalar));
    }
    program
}

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

/// The blocks of `lookup_batch`. Each key is found by a product: the auditor bounds the counter, and so the product, while a pointer
/// that advances would have to be tied to the counter.
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

/// All blocks: `nth_key` makes the key that [`IN_BLOCK`] counts the current one, `next_block` goes on to the keys of the next block.
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
