//! Counts x86-64 instructions.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind,
};

use super::{Counted, Loop};

/// The instructions at these offsets. Padding is not among them.
pub(super) fn counted(bytes: &[u8], offsets: impl Iterator<Item = usize>) -> Vec<Counted> {
    let mut infos = InstructionInfoFactory::new();
    let mut counted = Vec::new();
    let mut before = Instruction::default();
    for at in offsets {
        let instruction =
            Decoder::with_ip(64, &bytes[at..], at as u64, DecoderOptions::NONE).decode();
        if instruction.mnemonic() == Mnemonic::Nop {
            continue;
        }
        counted.push(Counted {
            at: instruction.ip(),
            reads_memory: reads_memory(&instruction, &mut infos),
            ends_loop: ended_loop(&before, &instruction),
        });
        before = instruction;
    }
    counted
}

/// The loop that `branch` goes back in: it counts to the constant that the instruction before compares the counter with.
fn ended_loop(before: &Instruction, branch: &Instruction) -> Option<Loop> {
    let goes_back = branch.flow_control() == FlowControl::ConditionalBranch
        && branch.near_branch_target() <= branch.ip();
    goes_back.then(|| Loop {
        head: branch.near_branch_target(),
        back: branch.ip(),
        trips: before.try_immediate(1).unwrap_or(1),
    })
}

fn reads_memory(instruction: &Instruction, infos: &mut InstructionInfoFactory) -> bool {
    let info = infos.info(instruction);
    (0..instruction.op_count()).any(|i| {
        instruction.op_kind(i) == OpKind::Memory
            && matches!(
                info.op_access(i),
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite
            )
    })
}
