//! Batches that ask for rows ahead: the two passes of a lookup whose program stages a row.
//!
//! ```text
//! while at least 32 keys are left:
//!     for each of 32 keys: out[i] = index of its row; prefetch its lines       Pass::Fetch
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

/// Keys of a block: a burst of DPDK. 16 gained less (AMD EPYC, family 25).
pub(super) const BLOCK: i32 = 32;

/// How much of a lookup is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// All of it.
    Whole,
    /// What computes the index of the staged row, which is the result, and asks for the row.
    Fetch,
    /// All of it, given the index of the staged row.
    Finish,
}

/// Bytes of a cache line; tables start at lines.
const LINE: u32 = 64;
/// Most lines of a row that are asked for: of sixteen rules of five fields.
const MOST_LINES: u32 = 8;

/// Where in a row of so many bytes the lines that it may reach into are asked for.
pub(super) fn lines(row_bytes: u32) -> impl Iterator<Item = u32> {
    // Rows begin at multiples of their length, so at multiples of the largest power of two that divides it.
    let aligned = LINE.min(1 << row_bytes.trailing_zeros().min(31));
    let lines = (LINE - aligned + row_bytes).div_ceil(LINE);
    (0..lines.min(MOST_LINES)).map(move |line| (line * LINE).min(row_bytes.saturating_sub(1)))
}

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
