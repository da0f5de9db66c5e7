//! What the auditor finds: faults, each with the instruction that it is about and what could not be proved.

use std::fmt;

use pktjit_ir::ValueId;

use crate::code::CompiledCode;

/// Most faults that one audit tells apart.
pub const MAX_FAULTS: usize = 64;

/// Which promise is broken, or could not be proved to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// Sizes, tables or relocations contradict the program or lie outside.
    Placement,
    /// An entry is outside the code or not at a multiple of 64.
    MisalignedEntry,
    /// An entry does not start with `endbr64`.
    MissingEndbr,
    /// Code of a target that there is no auditor for.
    UnknownTarget,
    /// Bytes that are no instruction.
    Undecodable,
    /// Execution can leave the function at its end.
    RunsOff,
    /// A branch to something else than the start of an instruction of the same function.
    BranchTarget,
    /// A jump to an address from a register or from memory.
    IndirectJump,
    /// A call of an address from a register or from memory.
    IndirectCall,
    /// A call that the profile does not allow, or without what the callee takes.
    Call,
    /// An instruction, other than padding, that no path reaches.
    Unreachable,
    /// A way back without a proven bound.
    UnboundedLoop,
    /// An instruction that the target does not have.
    Feature,
    /// An instruction that generated code has no use for.
    Instruction,
    /// The stack is used in another way than the profile allows.
    Stack,
    /// A register that belongs to the caller is written, or not restored.
    CalleeSaved,
    /// A read that is not proved to be inside the key, the pool, a table, the frame or the array of key addresses.
    Read,
    /// A write that is not proved to be the result of the current element or inside the frame.
    Write,
    /// A return without `vzeroupper` after 256-bit or 512-bit instructions.
    UpperHalves,
}

/// One promise that is broken, or could not be proved to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which promise.
    pub kind: FaultKind,
    /// The entry whose code it is in, if any.
    pub entry: Option<&'static str>,
    /// Byte offset in the code.
    pub offset: usize,
    /// The instruction there; empty where none is meant.
    pub instruction: String,
    /// The IR value that the instruction computes, as far as the listing knows.
    pub value: Option<ValueId>,
    /// What could not be proved.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(entry) = self.entry {
            write!(f, "{entry} ")?;
        }
        write!(f, "{:#x}", self.offset)?;
        if !self.instruction.is_empty() {
            write!(f, " `{}`", self.instruction)?;
        }
        if let Some(value) = self.value {
            write!(f, " ({value})")?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// Everything that an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditError {
    faults: Vec<Fault>,
}

impl AuditError {
    /// The faults, entry by entry in the order of the code; at least one, at most [`MAX_FAULTS`].
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for AuditError {}

/// Faults found so far.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    /// A fault of the code as a whole, or of no decoded instruction.
    pub(super) fn push(
        &mut self,
        kind: FaultKind,
        entry: Option<&'static str>,
        offset: usize,
        detail: String,
    ) {
        self.add(Fault {
            kind,
            entry,
            offset,
            instruction: String::new(),
            value: None,
            detail,
        });
    }

    /// A fault of the instruction at `offset`.
    pub(super) fn push_at(
        &mut self,
        kind: FaultKind,
        code: &CompiledCode,
        entry: &'static str,
        (offset, instruction): (usize, String),
        detail: String,
    ) {
        let listed = code
            .listing
            .binary_search_by_key(&offset, |line| line.offset);
        self.add(Fault {
            kind,
            entry: Some(entry),
            offset,
            instruction,
            value: listed.ok().and_then(|i| code.listing[i].value),
            detail,
        });
    }

    fn add(&mut self, fault: Fault) {
        if self.0.len() < MAX_FAULTS {
            self.0.push(fault);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_result(self) -> Result<(), AuditError> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(AuditError { faults: self.0 })
    }
}
