//! Counts AArch64 instructions.

use yaxpeax_arch::{Arch, Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{ARMv8, Instruction, Opcode, Operand};

use super::{Counted, Loop};

/// The instructions at these offsets.
pub(super) fn counted(bytes: &[u8], offsets: impl Iterator<Item = usize>) -> Vec<Counted> {
    let decoder = <ARMv8 as Arch>::Decoder::default();
    let mut counted = Vec::new();
    let mut before: Option<Instruction> = None;
    for at in offsets {
        let Ok(instruction) = decoder.decode(&mut U8Reader::new(&bytes[at..])) else {
            continue;
        };
        counted.push(Counted {
            at: at as u64,
            reads_memory: reads_memory(instruction.opcode),
            ends_loop: before.and_then(|before| ended_loop(&before, &instruction, at as u64)),
        });
        before = Some(instruction);
    }
    counted
}

/// The loop that `branch` goes back in: it counts to the constant that the instruction before compares the counter with.
fn ended_loop(before: &Instruction, branch: &Instruction, at: u64) -> Option<Loop> {
    let (Opcode::Bcc(_), Operand::PCOffset(offset @ ..=0)) = (branch.opcode, branch.operands[0])
    else {
        return None;
    };
    Some(Loop {
        head: at.checked_add_signed(offset)?,
        back: at,
        trips: match before.operands[2] {
            Operand::Immediate(trips) => trips.into(),
            Operand::ImmShift(trips, by) => u64::from(trips) << by,
            _ => 1,
        },
    })
}

fn reads_memory(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::LDR | O::LDRB | O::LDRH | O::LDUR | O::LDURB | O::LDURH | O::LDP | O::LD1R
    )
}
