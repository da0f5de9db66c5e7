//! What differs from one instruction set to the next: Cranelift's settings, landing pads, the length of instructions.

use cranelift_codegen::ir::{AbiParam, types};
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use iced_x86::{Decoder, DecoderOptions};

use crate::error::CompileError;
use crate::target::{Isa, Target};

/// Cranelift's generator for a target.
///
/// # Errors
/// Where this build is without it.
pub(super) fn isa(target: &Target) -> Result<OwnedTargetIsa, CompileError> {
    let bug = |error: &dyn std::fmt::Display| CompileError::Bug(error.to_string());
    let mut flags = settings::builder();
    let verifier = if cfg!(debug_assertions) {
        "true"
    } else {
        "false"
    };
    for (name, value) in [
        ("opt_level", "speed"),
        ("enable_verifier", verifier),
        ("is_pic", "false"),
        ("unwind_info", "false"),
        // A frame may be larger than the guard page below the stack.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        ("probestack_size_log2", "12"),
    ] {
        flags.set(name, value).map_err(|error| bug(&error))?;
    }
    let mut builder = isa::lookup_by_name(&target.to_string()).map_err(|_| {
        CompileError::Unsupported(format!("this build has no code generator for {target}"))
    })?;
    let features = target.features;
    let enabled: &[(&str, bool)] = match target.isa {
        Isa::X86_64 => &[
            ("has_sse3", features.ssse3),
            ("has_ssse3", features.ssse3),
            ("has_sse41", features.sse41),
            ("has_avx", features.avx),
            ("has_avx2", features.avx2),
            ("has_popcnt", features.popcnt),
            ("has_bmi1", features.bmi1),
            ("has_bmi2", features.bmi2),
        ],
        Isa::AArch64 => &[("use_bti", true)],
        Isa::Riscv64 | Isa::S390x => &[],
    };
    for (name, _) in enabled.iter().filter(|(_, is_there)| *is_there) {
        builder.enable(name).map_err(|error| bug(&error))?;
    }
    builder
        .finish(settings::Flags::new(flags))
        .map_err(|error| bug(&error))
}

/// What Cranelift does not put itself where an indirect call may land.
pub(super) fn landing_pad(isa: Isa) -> &'static [u8] {
    match isa {
        // `endbr64`, and no-operations up to a multiple of 16: constants are aligned relative to the function.
        Isa::X86_64 => &[
            0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x1f,
            0x40, 0x00,
        ],
        Isa::AArch64 | Isa::Riscv64 | Isa::S390x => &[],
    }
}

/// What fills gaps, and stops whoever runs into it.
pub(super) fn filler(isa: Isa) -> u8 {
    match isa {
        // `int3`
        Isa::X86_64 => 0xcc,
        // No instruction.
        Isa::AArch64 | Isa::Riscv64 | Isa::S390x => 0,
    }
}

/// The row that a lookup returns, extended as the calling convention has it.
pub(super) fn result(isa: Isa) -> AbiParam {
    let row = AbiParam::new(types::I32);
    match isa {
        Isa::X86_64 | Isa::AArch64 => row,
        Isa::Riscv64 => row.sext(),
        Isa::S390x => row.uext(),
    }
}

/// Bytes of stack above the frame pointer: the return address and the caller's frame pointer.
pub(super) fn frame_record(isa: Isa) -> u32 {
    match isa {
        Isa::X86_64 | Isa::AArch64 | Isa::Riscv64 => 16,
        Isa::S390x => 0,
    }
}

/// Bytes of the instruction at the start of `code`, which is not empty; at least one.
pub(super) fn instruction_len(isa: Isa, code: &[u8]) -> usize {
    match isa {
        Isa::X86_64 => Decoder::new(64, code, DecoderOptions::NONE)
            .decode()
            .len()
            .max(1),
        Isa::AArch64 => 4,
        // The two lowest bits are set in all but the compressed ones.
        Isa::Riscv64 if code[0] & 0b11 == 0b11 => 4,
        Isa::Riscv64 => 2,
        // The two highest bits tell.
        Isa::S390x => match code[0] >> 6 {
            0b00 => 2,
            0b01 | 0b10 => 4,
            _ => 6,
        },
    }
}
