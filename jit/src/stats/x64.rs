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
    let mut bound = None;
    for at in offsets {
        let instruction =
            Decoder::with_ip(64, &bytes[at..], at as u64, DecoderOptions::NONE).decode();
        if instruction.mnemonic() == Mnemonic::Nop {
            continue;
        }
        bound = match instruction.flow_control() {
            FlowControl::ConditionalBranch => before.try_immediate(1).ok(),
            FlowControl::UnconditionalBranch => bound,
            _ if is_move(&instruction) => bound,
            _ => None,
        };
        counted.push(Counted {
            at: instruction.ip(),
            reads_memory: reads_memory(&instruction, &mut infos),
            ends_loop: ended_loop(&instruction, bound),
        });
        before = instruction;
    }
    counted
}

/// The loop that `branch` goes back in. It counts to `bound`, with which the counter is compared in front of the conditional
/// branch: this one, or in code of Cranelift the one that leaves the loop, with nothing but moves between the two. A jump
/// back that has no such bound comes from code that was moved out of the way, and ends no loop.
fn ended_loop(branch: &Instruction, bound: Option<u64>) -> Option<Loop> {
    let trips = match branch.flow_control() {
        FlowControl::ConditionalBranch => bound.unwrap_or(1),
        FlowControl::UnconditionalBranch => bound?,
        _ => return None,
    };
    (branch.near_branch_target() <= branch.ip()).then(|| Loop {
        head: branch.near_branch_target(),
        back: branch.ip(),
        trips,
    })
}

fn is_move(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::Mov | M::Movdqa | M::Movdqu | M::Movaps | M::Vmovdqa | M::Vmovdqu | M::Vmovaps
    )
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
