//! What a program that fails is tried with next.

use pktjit_ir::Program;
use pktjit_ir::program::Inst;

/// Programs with one instruction or loop made simpler, or without what is staged. Some of them may be invalid.
pub(super) fn simpler(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    if program.staged.is_some() {
        let staged = None;
        all.push(Program {
            staged,
            ..program.clone()
        });
    }
    for (b, block) in program.blocks.iter().enumerate() {
        if block.trips.is_some_and(|trips| trips > 1) {
            let mut simpler = program.clone();
            simpler.blocks[b].trips = Some(1);
            all.push(simpler);
        }
        let mut zero = None;
        for (i, &(value, inst)) in block.insts.iter().enumerate() {
            let replacement = match inst {
                Inst::Const(0) => {
                    zero = Some(value);
                    continue;
                }
                Inst::Splat { .. } => continue,
                Inst::LoadLanes { lanes, .. } | Inst::LoadScratchLanes { lanes, .. } => {
                    match zero {
                        Some(a) => Inst::Splat { a, lanes },
                        None => continue,
                    }
                }
                _ => Inst::Const(0),
            };
            let mut simpler = program.clone();
            simpler.blocks[b].insts[i].1 = replacement;
            all.push(simpler);
        }
    }
    all
}
