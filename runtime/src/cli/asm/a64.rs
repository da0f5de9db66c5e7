//! AArch64, by yaxpeax-arm.

use pktjit_jit::CompiledCode;
use yaxpeax_arch::{Arch, Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{ARMv8, Instruction, Opcode, Operand};

use super::{Disassembled, Names};

/// Bytes of an instruction.
const LEN: usize = 4;
/// What the decoder calls `bti c`.
const BTI_C: &str = "hint #0x22";

/// The instructions of the listing.
pub(super) fn disassemble(code: &CompiledCode, mut names: Names) -> Vec<Disassembled> {
    let instructions: Vec<(usize, Option<Instruction>)> = code
        .listing()
        .iter()
        .map(|entry| (entry.offset, decode(code, entry.offset)))
        .collect();
    let relative = instructions.iter().filter_map(|&(at, instruction)| {
        let instruction = instruction?;
        let target = target(&instruction, at)?;
        (!reads_pool(&instruction)).then_some(target)
    });
    names.label(relative);
    instructions
        .iter()
        .map(|&(at, instruction)| Disassembled {
            label: names.labels.get(&at).cloned(),
            len: LEN,
            text: instruction.map_or_else(
                || "(unknown)".into(),
                |instruction| text(&instruction, at, &names),
            ),
        })
        .collect()
}

fn decode(code: &CompiledCode, offset: usize) -> Option<Instruction> {
    let word = code.bytes().get(offset..offset + LEN)?;
    let decoder = <ARMv8 as Arch>::Decoder::default();
    decoder.decode(&mut U8Reader::new(word)).ok()
}

/// The place that a branch goes to, or whose address or content an instruction takes.
fn target(instruction: &Instruction, at: usize) -> Option<usize> {
    let mut operands = instruction.operands.iter();
    operands.find_map(|operand| match *operand {
        Operand::PCOffset(offset) => at.checked_add_signed(offset as isize),
        _ => None,
    })
}

fn reads_pool(instruction: &Instruction) -> bool {
    matches!(instruction.opcode, Opcode::LDR | Opcode::ADR)
}

/// The words of the decoder, but for names in place of distances.
fn text(instruction: &Instruction, at: usize, names: &Names) -> String {
    let text = instruction.to_string();
    if text == BTI_C {
        return "bti c".into();
    }
    let Some(target) = target(instruction, at) else {
        return text;
    };
    let name = if !reads_pool(instruction) {
        names.labels.get(&target).cloned()
    } else if let Some(table) = names.relocations.get(&target) {
        Some(format!("={table}"))
    } else {
        names
            .in_pool(target)
            .map(|(start, name)| match target - start {
                0 => name.to_owned(),
                inside => format!("{name} + {inside:#x}"),
            })
    };
    match (name, text.find('$')) {
        (Some(name), Some(distance)) => format!("{}{name}", &text[..distance]),
        _ => text,
    }
}
