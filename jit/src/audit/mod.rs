//! The auditor: proves what finished code promises from its bytes alone.
//!
//! It decodes with a decoder that did not make the bytes (iced-x86, yaxpeax-arm), follows every path of each entry, and
//! knows of each register what it holds: a number in an interval, or an address derived from the key, a table, the pool,
//! the results or the array of key addresses. For every program, target and code that it accepts:
//!
//! 1. Each entry is at a multiple of 64 and starts with `endbr64` or `bti c`; it ends in returns and never runs off its end.
//! 2. No jump or call is indirect. Branches go to starts of instructions of the same function, none of which overlap; all
//!    other bytes of the code are padding.
//! 3. Branches go forward, but for two kinds of loops: one that counts up from 0 to a constant, in registers or in the frame,
//!    and the one of a batch, which takes some of the n elements a trip.
//! 4. Every instruction belongs to the target, and is one that computes: nothing privileged, no string instruction, no
//!    segment override, no system call. Calls and uses of the stack are those of the [`Profile`]: a leaf has none but the
//!    return.
//! 5. Reads are inside a key, a table, the pool, the frame, or are the address of a key; writes are to the frame or the
//!    result of an element, which is read where the program stages a row. Nothing of an element is touched unless the element
//!    is known to exist. A prefetch counts as a read. No access traps for its alignment.
//! 6. Registers that the ABI gives to the caller, and the stack pointer, hold at a return what they held at the entry.
//!    `vzeroupper` precedes the return on each path that has used 256-bit or 512-bit registers.
//! 7. Relocations are the immediates of `mov r64, imm64`, or on AArch64 places of the pool that are only read as the address of
//!    their table; and the tables in the pool are the program's.
//!
//! What a path does with values that no access depends on is not its business: whether the answer is right is for the
//! tests to say, which compare engines.
//!
//! An audit takes a few microseconds per instruction, so that it runs on every compile in debug builds.

mod a64;
mod analysis;
mod fault;
mod layout;
mod number;
mod relation;
mod value;
mod x64;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use pktjit_ir::VerifiedProgram;

pub use fault::{AuditError, Fault, FaultKind, MAX_FAULTS};

use fault::Faults;
use layout::Layout;

use crate::code::CompiledCode;
use crate::target::{Generator, Isa, Target};

/// What code may do beside computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// Neither stack nor calls.
    Leaf,
    /// A frame of its own, but no calls: registers of the caller are pushed first and popped last, and between that at
    /// most `scratch` bytes, rounded up to a multiple of 16, are allocated. More than what a program may have, 64 KiB, and
    /// 2 KiB beside it count as that. Registers that are stored there, as Cranelift's prologue does, and not pushed take part
    /// of it.
    ///
    /// Only memory that is allocated is touched, a larger frame page after page, so that the guard page below the stack
    /// is never jumped over. Before that a loop may probe the same pages, the last of them whole.
    Framed {
        /// Bytes that are declared.
        scratch: u32,
    },
    /// A frame without scratch; the other entries may call `lookup` with the current key, the stack aligned to 16
    /// bytes. `lookup` itself calls nothing, so there is no recursion.
    Chain,
}

/// What an audit proved, in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Instructions on some path.
    pub instructions: usize,
    /// Basic blocks.
    pub blocks: usize,
    /// Loops, those over the elements of a batch among them.
    pub loops: usize,
    /// Accesses that were proved to be inside of what they may touch.
    pub accesses: Accesses,
    /// The instruction-set extensions that are used, by name.
    pub features: BTreeSet<&'static str>,
}

/// Instructions that access memory, by what they access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Keys.
    pub key: usize,
    /// The pool: constants and small tables.
    pub pool: usize,
    /// Tables in the region.
    pub table: usize,
    /// Results of elements.
    pub result: usize,
    /// Addresses of keys.
    pub pointer: usize,
    /// The function's own frame.
    pub scratch: usize,
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Accesses {
            key,
            pool,
            table,
            result,
            pointer,
            scratch,
        } = self.accesses;
        writeln!(
            f,
            "{} instructions in {} blocks, {} loops",
            self.instructions, self.blocks, self.loops
        )?;
        writeln!(
            f,
            "proved: {key} key, {table} table, {pool} pool, {pointer} key address, {result} result accesses"
        )?;
        if scratch > 0 {
            writeln!(f, "proved: {scratch} scratch accesses")?;
        }
        let features: Vec<&str> = self.features.iter().copied().collect();
        write!(f, "uses: {}", features.join(" "))
    }
}

/// Whether there is an auditor of code for `target`: for all but what Cranelift makes for machines other than x86-64.
///
/// Of Cranelift's x86-64 code it proves what planned programs become. Programs that were written otherwise may become code
/// that is right and not proved, which [`audit`] then says.
#[must_use]
pub fn has_auditor(target: &Target) -> bool {
    target.isa == Isa::X86_64 || target.generator == Generator::Own
}

/// Proves everything at the top of this module of code that was compiled from `program`.
///
/// # Errors
/// What is wrong, or could not be proved.
pub fn audit(
    code: &CompiledCode,
    program: &VerifiedProgram,
    profile: Profile,
) -> Result<AuditReport, AuditError> {
    let layout = Layout {
        code,
        program: program.program(),
    };
    let mut faults = Faults::default();
    layout.check(&mut faults);
    // Accesses are proved against the layout: without one there is nothing to prove.
    faults.into_result()?;
    let mut faults = Faults::default();
    let mut report = AuditReport::default();
    match (code.target.isa, code.target.generator) {
        (Isa::X86_64, _) => x64::audit(layout, profile, &mut report, &mut faults),
        (Isa::AArch64, Generator::Own) => a64::audit(layout, profile, &mut report, &mut faults),
        _ => {
            let detail = format!("there is no auditor of code for {}", code.target);
            faults.push(FaultKind::UnknownTarget, None, 0, detail);
        }
    }
    faults.into_result()?;
    Ok(report)
}
