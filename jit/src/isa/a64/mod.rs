//! AArch64 with NEON, by the procedure call standard of Arm (AAPCS64).
//!
//! `isa::compile` tells how a program becomes code. `immediate` knows which numbers an instruction can hold, and an
//! entry has a stack frame (`frame`) where there is scratch.

mod abi;
mod emit;
mod frame;
mod immediate;
mod inst;
mod lower;
mod regs;

#[cfg(test)]
mod tests;

use dynasmrt::DynamicLabel;
use dynasmrt::aarch64::Aarch64Relocation;
use pktjit_ir::VerifiedProgram;

use super::compile::{self, InstructionSet};
use super::frame::Frame;
use super::regs::Allowed;
use crate::code::CompiledCode;
use crate::error::CompileError;
use crate::target::Target;
use inst::Inst;

/// Registers of a body.
const ALLOWED: Allowed<'_> = Allowed {
    general: &abi::GENERAL,
    vector: &abi::VECTOR,
    mask: &[],
};

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where the target or the registers do not suffice, or the code would be too large.
pub(crate) fn compile(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<CompiledCode, CompileError> {
    compile::compile::<Inst>(program, target)
}

impl InstructionSet for Inst {
    type Fixup = Aarch64Relocation;

    /// `udf #0`
    const FILLER: u8 = 0;
    /// How far `ldr` and `adr` reach, and conditional branches, less the padding up to the pool: everything is in reach
    /// of everything.
    const MAX_BYTES: usize = (1 << 20) - 64;
    const IN_BLOCKS: Allowed<'static> = ALLOWED;

    fn allowed(_: u32) -> &'static [Allowed<'static>] {
        &[ALLOWED]
    }

    fn frame(_: impl Iterator<Item = Self>, scratch: u32) -> Frame<Self> {
        frame::frame(scratch)
    }

    fn emit(&self, code: &mut emit::Buffer, labels: &[DynamicLabel]) {
        emit::emit(code, self, labels);
    }
}
