//! The verifier: the only way from a [`Program`] to a [`VerifiedProgram`], and so the reason why generated code needs no
//! checks.
//!
//! What holds for every verified program:
//!
//! *Structure*
//! 1. There is a block 0, it has no parameters and is no loop head, and every block can be reached from it.
//! 2. Values are numbered densely and defined once; a definition comes before its uses on every path (dominance).
//! 3. Jumps and branches go to later blocks, and never to a loop head from inside its own loop.
//! 4. A loop is the run of blocks from its head, the only block with `trips`, to its only `repeat`. It is entered at its
//!    head alone, and loops nest. Trips are 1 to 2^24; the head's first parameter is a scalar that every jump from
//!    before sets to the constant 0.
//! 5. All instructions, each times the trips of the loops around it, are at most 2^30.
//! 6. Arguments agree with the parameters of the target in number and type.
//!
//! *Types and bounds*
//! 7. Operands have the type that the instruction asks for; lanes and masks have 4, 8 or 16 lanes, equal in one instruction.
//!    No parameter is nothing.
//! 8. A key load lies inside the key; its width is 1, 2, 4 or 8 bytes.
//! 9. A `row` index is below the number of rows; a `load` index is below the column's count; `load_lanes` reads
//!    numbers of at most 4 bytes inside the column.
//! 10. Shifts are below 64. What is splatted or goes to scratch is below 2^32.
//! 11. A returned value is below 2^32.
//!
//! *Tables*
//! 12. A table has at least one row, a whole number of rows, 1 to 256 columns and at most 2^32 bytes.
//! 13. Columns lie inside the row, are aligned to their width of 1, 2, 4 or 8 bytes, do not overlap, and hold no number
//!     above their declared maximum; where numbers are results, each is below `verdicts` or is [`MISS`](crate::MISS).
//!
//! *Scratch*
//! 14. There are at most 2^14 numbers of scratch; what is read or changed there lies inside.
//!
//! *Batches*
//! 15. What is staged is a `row` of block 0, in a program without scratch.
//!
//! All faults are reported, not only the first; but those of types and bounds only where structure and tables have none.
//!
//! What is *not* proved: that a result is below `verdicts`. Result columns are (rule 13), but lanes carry no bounds. Who
//! resolves a result must be ready for a row that there is not.

use std::fmt;

use crate::entity::{BlockId, ValueId};
use crate::program::{Program, Type};

/// Records a fault at the place that the verifier looks at.
macro_rules! fault {
    ($self:expr, $($arg:tt)*) => {
        $self.faults.push(Fault { block: $self.at.0, inst: $self.at.1, message: format!($($arg)*) })
    };
}

mod dominators;
mod facts;
mod structure;
mod tables;
mod values;

use dominators::Dominators;

/// Most trips of one loop.
pub const MAX_TRIPS: u32 = 1 << 24;
/// Most instructions that one lookup may take.
pub const MAX_STEPS: u64 = 1 << 30;
/// Most 32-bit numbers of scratch: 64 KiB of the caller's stack.
pub const MAX_SCRATCH: u32 = 1 << 14;
/// Most bytes of one table.
pub const MAX_TABLE_BYTES: u64 = 1 << 32;

/// A program for which everything at the top of `verify/mod.rs` holds.
#[derive(Clone, Debug)]
pub struct VerifiedProgram {
    program: Program,
    values: Vec<ValueFacts>,
}

/// What the verifier knows about one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueFacts {
    /// Its type.
    pub ty: Type,
    /// Scalars: no larger number is possible. Rows: no larger row index. Otherwise 0.
    pub max: u64,
    /// Scalars: bits that are certainly set.
    pub ones: u64,
}

/// One way in which a program is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The block that it is in, if any.
    pub block: Option<BlockId>,
    /// Position of the instruction in the block; one past the last is the terminator.
    pub inst: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(block) = self.block {
            write!(f, "{block}")?;
            if let Some(inst) = self.inst {
                write!(f, " instruction {inst}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    faults: Vec<Fault>,
}

impl VerifyError {
    /// The faults, in the order of the program; at least one.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for VerifyError {}

impl VerifiedProgram {
    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What is known about a value.
    ///
    /// # Panics
    /// Where `value` is not of this program.
    #[must_use]
    pub fn facts(&self, value: ValueId) -> ValueFacts {
        self.values[value.index()]
    }

    /// The number of values; ids are below it.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.values.len()
    }
}

/// Checks everything at the top of `verify/mod.rs`.
///
/// Takes time n log n in the size of the program and linear in that of its tables.
///
/// # Errors
/// All faults of the program.
pub fn verify(program: Program) -> Result<VerifiedProgram, VerifyError> {
    let mut verifier = Verifier::new(&program);
    verifier.tables();
    verifier.scratch();
    verifier.staged();
    verifier.structure();
    // Types and bounds mean something only where tables, control flow and numbering do.
    if verifier.faults.is_empty() {
        verifier.values();
    }
    let Verifier { facts, faults, .. } = verifier;
    if !faults.is_empty() {
        return Err(VerifyError { faults });
    }
    // Every value is defined: `structure` has checked that the numbering is dense, `values` has visited each definition.
    let values = facts.into_iter().flatten().collect();
    Ok(VerifiedProgram { program, values })
}

struct Verifier<'a> {
    program: &'a Program,
    facts: Vec<Option<ValueFacts>>,
    /// Block in which each value is defined; `usize::MAX` where it is not yet known.
    home: Vec<usize>,
    dominators: Dominators,
    /// The block and the position in it that faults are reported for.
    at: (Option<BlockId>, Option<usize>),
    faults: Vec<Fault>,
}

impl<'a> Verifier<'a> {
    fn new(program: &'a Program) -> Self {
        let values = program
            .blocks
            .iter()
            .map(|b| b.params.len() + b.insts.len())
            .sum();
        Self {
            program,
            facts: vec![None; values],
            home: vec![usize::MAX; values],
            dominators: Dominators::new(program.blocks.len()),
            at: (None, None),
            faults: Vec::new(),
        }
    }
}
