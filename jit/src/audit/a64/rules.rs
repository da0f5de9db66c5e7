//! What holds for each instruction on its own, whatever the registers hold.

use yaxpeax_arm::armv8::a64::{Instruction, Opcode, Operand, SIMDSizeCode, SizeCode};

use crate::audit::fault::FaultKind;
use crate::audit::layout::Access;
use crate::audit::relation::Relation;

/// Why an instruction may not be used.
pub(super) type Objection = (FaultKind, String);

/// The register of the return address.
pub(super) const LINK: u16 = 30;
/// Registers from this one on belong to the platform or the caller.
const FIRST_OF_CALLER: u16 = 18;
/// sp, or the zero register.
pub(super) const STACK: u16 = 31;
/// Vector registers whose low halves belong to the caller.
const VECTORS_OF_CALLER: std::ops::Range<u16> = 8..16;

/// What an instruction does beside computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Jump,
    Branch,
    Return,
}

/// Checks one instruction and tells where execution goes on.
///
/// # Errors
/// The first objection to it.
pub(super) fn check(instruction: &Instruction) -> Result<Flow, Objection> {
    use Opcode as O;
    let flow = match instruction.opcode {
        O::B => Flow::Jump,
        O::Bcc(condition) if relation(condition).is_some() => Flow::Branch,
        O::CBZ | O::CBNZ => Flow::Branch,
        O::RET if instruction.operands[0] == Operand::Register(SizeCode::X, LINK) => Flow::Return,
        O::RET | O::BR => return Err((FaultKind::IndirectJump, "an indirect jump".into())),
        O::BLR => return Err((FaultKind::IndirectCall, "an indirect call".into())),
        O::BL => return Err((FaultKind::Call, "a call".into())),
        _ => Flow::Next,
    };
    if flow == Flow::Next && !is_useful(instruction) {
        let detail = "not an instruction that a lookup has a use for".into();
        return Err((FaultKind::Instruction, detail));
    }
    for register in written(instruction) {
        if (FIRST_OF_CALLER..STACK).contains(&register) {
            let detail = format!("x{register} belongs to the caller");
            return Err((FaultKind::CalleeSaved, detail));
        }
    }
    if let Some(vector) = written_vectors(instruction).find(|v| VECTORS_OF_CALLER.contains(v)) {
        let detail = format!("v{vector} belongs to the caller");
        return Err((FaultKind::CalleeSaved, detail));
    }
    Ok(flow)
}

/// `bti c`
pub(super) fn is_landing_pad(instruction: &Instruction) -> bool {
    instruction.opcode == Opcode::HINT
        && instruction.operands[..2] == [Operand::ControlReg(4), Operand::Immediate(2)]
}

/// Whether the effect of an instruction on general registers, flags and memory is known to the analysis, and it has no other but
/// on vector registers.
fn is_useful(instruction: &Instruction) -> bool {
    use Opcode as O;
    let is_vector = matches!(
        instruction.operands[0],
        Operand::SIMDRegister(..) | Operand::SIMDRegisterElements(..)
    );
    match instruction.opcode {
        O::HINT => is_landing_pad(instruction),
        // Only to set the flags.
        O::SUBS => matches!(instruction.operands[0], Operand::Register(_, STACK)),
        O::ADD | O::SUB | O::AND | O::ORR | O::EOR => true,
        O::UBFM | O::BFM | O::MADD | O::CSEL | O::CSINC => true,
        O::MOVZ | O::MOVN | O::MOVK | O::ADR => true,
        O::REV | O::REV16 | O::RBIT | O::CLZ => true,
        O::LDR | O::LDRB | O::LDRH | O::LDUR | O::LDURB | O::LDURH | O::LD1R => true,
        O::STR | O::STUR | O::PRFUM => true,
        O::LDP | O::STP => is_vector,
        O::FMOV => matches!(instruction.operands[1], Operand::SIMDRegister(..)),
        O::MOVI | O::DUP | O::REV32 | O::BIC | O::ORN | O::UMIN | O::CMEQ | O::CMHS => is_vector,
        O::UZP1 | O::USHLL | O::USHLL2 | O::XTN | O::UMINV | O::ADDV => is_vector,
        _ => false,
    }
}

/// The relation that a condition asks for; signed ones and those of overflow are of no use.
pub(super) fn relation(condition: u8) -> Option<Relation> {
    // In the order of the bits, but for the lowest, which the decoder puts first.
    Some(match condition {
        0 => Relation::Equal,
        1 => Relation::NotEqual,
        2 => Relation::AboveOrEqual,
        3 => Relation::Below,
        8 => Relation::Above,
        9 => Relation::BelowOrEqual,
        _ => return None,
    })
}

/// The general register that an operand is, and its bits; 31 is the zero register, or sp where it may be that.
pub(super) fn general(operand: Operand) -> Option<(u16, u32)> {
    match operand {
        Operand::Register(size, register) | Operand::RegisterOrSP(size, register) => {
            Some((register, bits(size)))
        }
        _ => None,
    }
}

pub(super) fn bits(size: SizeCode) -> u32 {
    match size {
        SizeCode::W => 32,
        SizeCode::X => 64,
    }
}

/// The general registers that are written: the first operand of what is no store, and a base that advances.
pub(super) fn written(instruction: &Instruction) -> impl Iterator<Item = u16> {
    let first = general(instruction.operands[0]).filter(|_| !reads_all(instruction));
    let advanced = instruction
        .operands
        .into_iter()
        .find_map(|operand| match operand {
            Operand::RegPostIndex(base, _) | Operand::RegPreIndex(base, _, true) => Some(base),
            _ => None,
        });
    first
        .map(|(register, _)| register)
        .into_iter()
        .chain(advanced)
}

fn written_vectors(instruction: &Instruction) -> impl Iterator<Item = u16> {
    let is_pair = instruction.opcode == Opcode::LDP;
    let written = match (reads_all(instruction), is_pair) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => 2,
    };
    let operands = instruction.operands.into_iter().take(written);
    operands.filter_map(|operand| match operand {
        Operand::SIMDRegister(_, register)
        | Operand::SIMDRegisterElements(_, register, _)
        | Operand::SIMDRegisterGroup(_, register, _, _) => Some(register),
        _ => None,
    })
}

/// Whether no operand is written.
fn reads_all(instruction: &Instruction) -> bool {
    use Opcode as O;
    matches!(
        instruction.opcode,
        O::STR | O::STUR | O::STP | O::CBZ | O::CBNZ | O::RET | O::B | O::PRFUM
    )
}

/// What happens to memory. A prefetch cannot fault, but asks for what the code may read.
pub(super) fn access(instruction: &Instruction) -> Option<Access> {
    use Opcode as O;
    let (is_read, is_write) = match instruction.opcode {
        O::STR | O::STUR | O::STP => (false, true),
        O::LDR | O::LDRB | O::LDRH | O::LDUR | O::LDURB | O::LDURH | O::LD1R | O::LDP => {
            (true, false)
        }
        O::PRFUM => (true, false),
        _ => return None,
    };
    let register = match instruction.operands[0] {
        Operand::Register(size, _) => u64::from(bits(size) / 8),
        Operand::SIMDRegister(size, _) | Operand::SIMDRegisterGroup(_, _, size, 1) => {
            simd_bytes(size)
        }
        _ => 0,
    };
    let bytes = match instruction.opcode {
        O::LDRB | O::LDURB | O::PRFUM => 1,
        O::LDRH | O::LDURH => 2,
        O::LDP | O::STP => 2 * register,
        _ => register,
    };
    Some(Access {
        bytes,
        // Memory that is no device may be accessed anywhere.
        alignment: 1,
        is_read,
        is_write,
    })
}

fn simd_bytes(size: SIMDSizeCode) -> u64 {
    match size {
        SIMDSizeCode::B => 1,
        SIMDSizeCode::H => 2,
        SIMDSizeCode::S => 4,
        SIMDSizeCode::D => 8,
        SIMDSizeCode::Q => 16,
    }
}
