//! x86-64 with AVX2, or with AVX-512 (`evex`).
//!
//! `isa::compile` tells how a program becomes code. `lower` uses all that memory operands and addresses can do,
//! `encode` has the bytes of the opcodes in `emit`, and an entry has a stack frame (`frame`) where there is scratch or
//! too few registers are free.

mod abi;
mod emit;
mod encode;
mod evex;
mod frame;
mod inst;
mod lower;
mod regs;

#[cfg(test)]
mod tests;

use dynasmrt::DynamicLabel;
use dynasmrt::x64::X64Relocation;
use pktjit_ir::VerifiedProgram;

use super::compile::{self, InstructionSet};
use super::frame::Frame;
use super::regs::Allowed;
use crate::code::CompiledCode;
use crate::code_buffer::MAX_CODE;
use crate::error::CompileError;
use crate::isa::lower::check_lanes;
use crate::target::{Features, Target};
use inst::{Inst, Reg};
pub(crate) use lower::gains_from_avx512;

const fn allowed(general: &[Reg]) -> Allowed<'_> {
    Allowed {
        general,
        vector: &abi::VECTOR,
        mask: &abi::MASK,
    }
}

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where the target or the registers do not suffice, or the code would be too large.
pub(crate) fn compile(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<CompiledCode, CompileError> {
    check_lanes::<Inst>(program, target)?;
    let target = &Target {
        features: Features {
            avx512: target.features.avx512 && gains_from_avx512(program),
            ..target.features
        },
        ..*target
    };
    compile::compile::<Inst>(program, target)
}

impl InstructionSet for Inst {
    type Fixup = X64Relocation;

    /// `int3`
    const FILLER: u8 = 0xcc;
    const MAX_BYTES: usize = MAX_CODE;
    const IN_BLOCKS: Allowed<'static> = allowed(abi::IN_BLOCKS);

    /// Without a frame where that is possible.
    fn allowed(scratch: u32) -> &'static [Allowed<'static>] {
        const ALL: &[Allowed<'static>] = &[allowed(abi::GENERAL), allowed(abi::FRAMED)];
        if scratch == 0 { ALL } else { &ALL[1..] }
    }

    fn frame(insts: impl Iterator<Item = Self>, scratch: u32) -> Frame<Self> {
        frame::frame(insts, scratch)
    }

    fn emit(&self, code: &mut emit::Buffer, labels: &[DynamicLabel]) {
        emit::emit(code, self, labels);
    }
}
