//! What holds for each instruction on its own, whatever the registers hold.

use iced_x86::{
    Code, CpuidFeature, EncodingKind, FlowControl, Instruction, InstructionInfo, Mnemonic, OpKind,
    Register,
};

use super::stack::CALLEE_SAVED;
use crate::audit::Profile;
use crate::audit::fault::FaultKind;
use crate::audit::layout::Access;
use crate::target::{Generator, Target};

/// Why an instruction may not be used.
pub(super) type Objection = (FaultKind, String);

/// Checks one instruction.
///
/// # Errors
/// The first objection to it.
pub(super) fn check(
    instruction: &Instruction,
    info: &InstructionInfo,
    target: &Target,
    profile: Profile,
) -> Result<(), Objection> {
    flow(instruction, profile)?;
    match profile {
        Profile::Leaf => no_stack(instruction, info)?,
        Profile::Framed { .. } | Profile::Chain => frame(instruction)?,
    }
    for &feature in instruction.cpuid_features() {
        if !has(feature, target) {
            let detail = format!("the target does not have {feature:?}");
            return Err((FaultKind::Feature, detail));
        }
    }
    let is_wide = |i| instruction.op_register(i).is_zmm();
    if target.lanes() < 16 && (0..instruction.op_count()).any(is_wide) {
        let detail = format!("the target allows {} bits", target.max_vector_bits);
        return Err((FaultKind::Feature, detail));
    }
    registers(info, profile)?;
    if !is_useful(instruction) {
        let detail = "not an instruction that a lookup has a use for".into();
        return Err((FaultKind::Instruction, detail));
    }
    memory(instruction)
}

fn flow(instruction: &Instruction, profile: Profile) -> Result<(), Objection> {
    // The lengths are those without prefixes: what an operand size does to a branch depends on the maker of the CPU.
    let (kind, detail) = match (instruction.flow_control(), instruction.len()) {
        (FlowControl::Next, _) => return Ok(()),
        (FlowControl::UnconditionalBranch, 2 | 5) => return Ok(()),
        (FlowControl::ConditionalBranch, 2 | 6) if instruction.is_jcc_short_or_near() => {
            return Ok(());
        }
        (FlowControl::Return, 1) if instruction.code() == Code::Retnq => return Ok(()),
        (FlowControl::Call, 5) if is_call(instruction) && profile == Profile::Chain => {
            return Ok(());
        }
        (FlowControl::IndirectBranch, _) => (FaultKind::IndirectJump, "an indirect jump"),
        (FlowControl::IndirectCall, _) => (FaultKind::IndirectCall, "an indirect call"),
        (FlowControl::Call, _) if instruction.mnemonic() == Mnemonic::Call => {
            (FaultKind::Call, "a call")
        }
        _ => (FaultKind::Instruction, "not a plain jump or return"),
    };
    Err((kind, detail.into()))
}

/// Whether it calls a fixed place.
pub(super) fn is_call(instruction: &Instruction) -> bool {
    instruction.code() == Code::Call_rel32_64
}

fn no_stack(instruction: &Instruction, info: &InstructionInfo) -> Result<(), Objection> {
    let uses_stack = instruction.is_stack_instruction()
        || info
            .used_registers()
            .iter()
            .any(|used| used.register().full_register() == Register::RSP);
    if uses_stack && instruction.code() != Code::Retnq {
        return Err((FaultKind::Stack, "a leaf does not touch the stack".into()));
    }
    Ok(())
}

/// The stack instructions whose effect on a frame is known. What they do to this one is for the analysis to prove.
fn frame(instruction: &Instruction) -> Result<(), Objection> {
    let is_known = match instruction.code() {
        Code::Push_r64 | Code::Pop_r64 => CALLEE_SAVED.contains(&instruction.op0_register()),
        // Where calls are allowed is no matter of the stack.
        Code::Retnq | Code::Call_rel32_64 => true,
        _ => !instruction.is_stack_instruction(),
    };
    if !is_known {
        let detail = "only registers of the caller are pushed and popped".into();
        return Err((FaultKind::Stack, detail));
    }
    Ok(())
}

/// Whether every x86-64 target has a feature, or this one does.
fn has(feature: CpuidFeature, target: &Target) -> bool {
    use CpuidFeature as F;
    let features = target.features;
    let is_own = target.generator == Generator::Own;
    match feature {
        F::INTEL8086 | F::INTEL186 | F::INTEL286 | F::INTEL386 | F::INTEL486 | F::X64 => true,
        F::CMOV | F::MULTIBYTENOP | F::CET_IBT => true,
        F::SSE | F::SSE2 => true,
        F::SSE3 | F::SSSE3 | F::SSE4_1 | F::SSE4_2 | F::AVX | F::AVX2 if is_own => true,
        F::SSE3 | F::SSSE3 => features.ssse3,
        F::SSE4_1 => features.sse41,
        F::AVX => features.avx,
        F::AVX2 => features.avx2,
        F::BMI1 => features.bmi1,
        F::BMI2 => features.bmi2,
        F::MOVBE => features.movbe,
        F::POPCNT => features.popcnt,
        F::AVX512F | F::AVX512BW | F::AVX512DQ | F::AVX512VL => features.avx512,
        _ => false,
    }
}

/// The name of a feature that not every x86-64 CPU has.
pub(super) fn extension(feature: CpuidFeature) -> Option<&'static str> {
    use CpuidFeature as F;
    Some(match feature {
        F::SSE3 => "sse3",
        F::SSSE3 => "ssse3",
        F::SSE4_1 => "sse4.1",
        F::SSE4_2 => "sse4.2",
        F::AVX => "avx",
        F::AVX2 => "avx2",
        F::BMI1 => "bmi1",
        F::BMI2 => "bmi2",
        F::MOVBE => "movbe",
        F::POPCNT => "popcnt",
        F::AVX512F => "avx512f",
        F::AVX512BW => "avx512bw",
        F::AVX512DQ => "avx512dq",
        F::AVX512VL => "avx512vl",
        _ => return None,
    })
}

fn registers(info: &InstructionInfo, profile: Profile) -> Result<(), Objection> {
    for used in info.used_registers() {
        let register = used.register();
        // Vector instructions are reported to write all of the largest register, as they clear what they do not name.
        if !register.is_gpr() && !register.is_vector_register() && !register.is_k() {
            let detail =
                format!("{register:?} is neither a general nor a vector nor a mask register");
            return Err((FaultKind::Instruction, detail));
        }
        // Without a stack they cannot be saved.
        let register = register.full_register();
        if profile == Profile::Leaf && CALLEE_SAVED.contains(&register) && writes(used.access()) {
            let detail = format!("{register:?} belongs to the caller");
            return Err((FaultKind::CalleeSaved, detail));
        }
    }
    Ok(())
}

/// Whether an access may change what is accessed.
pub(super) fn writes(access: iced_x86::OpAccess) -> bool {
    use iced_x86::OpAccess as A;
    matches!(
        access,
        A::Write | A::CondWrite | A::ReadWrite | A::ReadCondWrite
    )
}

/// Whether an access may depend on what is accessed.
pub(super) fn reads(access: iced_x86::OpAccess) -> bool {
    use iced_x86::OpAccess as A;
    matches!(
        access,
        A::Read | A::CondRead | A::ReadWrite | A::ReadCondWrite
    )
}

/// What a prefetch counts as: it cannot fault, but asks for what the code may read.
pub(super) fn prefetch(instruction: &Instruction) -> Option<Access> {
    (instruction.mnemonic() == Mnemonic::Prefetcht0).then_some(Access {
        bytes: 1,
        alignment: 1,
        is_read: true,
        is_write: false,
    })
}

/// Memory is accessed through one plain operand of 64-bit address, if at all.
fn memory(instruction: &Instruction) -> Result<(), Objection> {
    let object = |detail: &str| Err((FaultKind::Instruction, detail.into()));
    // Long `nop`s carry prefixes and operands that mean nothing.
    if instruction.mnemonic() == Mnemonic::Nop {
        return Ok(());
    }
    if instruction.has_segment_prefix() {
        return object("a segment override");
    }
    for kind in instruction.op_kinds() {
        match kind {
            OpKind::Register
            | OpKind::NearBranch64
            | OpKind::Immediate8
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate32to64
            | OpKind::Immediate64 => {}
            OpKind::Memory if instruction.is_vsib() => return object("a gather"),
            OpKind::Memory => {
                let parts = [instruction.memory_base(), instruction.memory_index()];
                let is_64_bit = |register: Register| {
                    register == Register::None || register == Register::RIP || register.is_gpr64()
                };
                // Without registers the width of the address is that of the displacement.
                let is_absolute = parts == [Register::None; 2];
                if !parts.into_iter().all(is_64_bit)
                    || is_absolute && instruction.memory_displ_size() != 8
                {
                    return object("not a 64-bit address");
                }
            }
            _ => return object("not a register, an immediate or a plain memory operand"),
        }
    }
    Ok(())
}

/// What the address of the memory operand has to be a multiple of.
pub(super) fn alignment(instruction: &Instruction) -> u64 {
    use Mnemonic as M;
    let bytes = instruction.memory_size().size() as u64;
    let is_legacy_vector = instruction.encoding() == EncodingKind::Legacy && bytes >= 16;
    match instruction.mnemonic() {
        M::Movdqu | M::Movups | M::Movupd | M::Lddqu => 1,
        M::Vmovdqa
        | M::Vmovdqa32
        | M::Vmovdqa64
        | M::Vmovaps
        | M::Vmovapd
        | M::Vmovntdqa
        | M::Vmovntdq
        | M::Vmovntps
        | M::Vmovntpd => bytes,
        _ if is_legacy_vector => bytes,
        _ => 1,
    }
}

/// Whether the instruction computes with vector or mask registers, or is one of those whose effect on general registers and
/// flags is known to the analysis.
fn is_useful(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    if instruction.has_lock_prefix()
        || instruction.has_rep_prefix()
        || instruction.has_repne_prefix()
    {
        return false;
    }
    let is_vector = |operand| {
        let register = instruction.op_register(operand);
        instruction.op_kind(operand) == OpKind::Register
            && (register.is_vector_register() || register.is_k())
    };
    (0..instruction.op_count()).any(is_vector)
        || instruction.is_jcc_short_or_near()
        || is_cmov(instruction)
        || is_setcc(instruction)
        || matches!(
            instruction.mnemonic(),
            M::Adc
                | M::Add
                | M::And
                | M::Andn
                | M::Bextr
                | M::Blsi
                | M::Blsmsk
                | M::Blsr
                | M::Bsf
                | M::Bsr
                | M::Bswap
                | M::Bzhi
                | M::Call
                | M::Cmp
                | M::Dec
                | M::Endbr64
                | M::Imul
                | M::Inc
                | M::Jmp
                | M::Lea
                | M::Mov
                | M::Movbe
                | M::Movsx
                | M::Movsxd
                | M::Movzx
                | M::Neg
                | M::Nop
                | M::Not
                | M::Or
                | M::Pdep
                | M::Pext
                | M::Pop
                | M::Popcnt
                | M::Prefetcht0
                | M::Push
                | M::Ret
                | M::Rol
                | M::Ror
                | M::Rorx
                | M::Sar
                | M::Sarx
                | M::Sbb
                | M::Shl
                | M::Shlx
                | M::Shr
                | M::Shrx
                | M::Sub
                | M::Test
                | M::Tzcnt
                | M::Vzeroall
                | M::Vzeroupper
                | M::Xchg
                | M::Xor
        )
}

pub(super) fn is_cmov(instruction: &Instruction) -> bool {
    has_condition(instruction) && !is_setcc(instruction) && !instruction.is_jcc_short_or_near()
}

pub(super) fn is_setcc(instruction: &Instruction) -> bool {
    has_condition(instruction) && instruction.op_count() == 1 && !instruction.is_jcc_short_or_near()
}

fn has_condition(instruction: &Instruction) -> bool {
    instruction.condition_code() != iced_x86::ConditionCode::None
}
