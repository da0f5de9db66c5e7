//! Faults of control flow: where branches go, what is reached, where entries are.

use iced_x86::code_asm::*;

use super::*;

#[test]
fn indirect_jump() {
    let found = faults(Spot::Exit, |a, _| a.jmp(rax));
    only(FaultKind::IndirectJump, &found);
}

#[test]
fn jump_through_memory() {
    let found = faults(Spot::Exit, |a, _| a.jmp(qword_ptr(rdi)));
    only(FaultKind::IndirectJump, &found);
}

#[test]
fn indirect_call() {
    let found = faults(Spot::LoopBody, |a, _| a.call(rax));
    only(FaultKind::IndirectCall, &found);
}

#[test]
fn direct_call() {
    let found = faults(Spot::LoopBody, |a, c| a.call(c.loop_head));
    only(FaultKind::Call, &found);
}

#[test]
fn jump_into_the_middle_of_an_instruction() {
    // To the second byte of what follows.
    let found = faults(Spot::LoopBody, |a, _| a.db(&[0xeb, 0x01]));
    only(FaultKind::BranchTarget, &found);
}

#[test]
fn jump_to_another_entry() {
    let found = faults(Spot::Exit, |a, _| a.jmp(SLOT as u64));
    assert!(
        found
            .iter()
            .any(|f| f.kind == FaultKind::BranchTarget && f.entry == Some("lookup"))
    );
}

#[test]
fn jump_beyond_the_code() {
    let found = faults(Spot::Exit, |a, _| a.jmp(POOL as u64));
    only(FaultKind::BranchTarget, &found);
}

#[test]
fn branch_with_a_prefix_that_makers_read_differently() {
    let found = faults(Spot::LoopBody, |a, _| a.db(&[0x66, 0x74, 0x00]));
    only(FaultKind::Instruction, &found);
}

#[test]
fn code_that_runs_into_the_pool() {
    let found = faults(Spot::Exit, |_, _| Ok(()));
    only(FaultKind::RunsOff, &found);
}

#[test]
fn bytes_that_are_no_instruction() {
    let found = faults(Spot::Exit, |a, _| a.db(&[0xc3, 0x06]));
    only(FaultKind::Undecodable, &found);
}

#[test]
fn instructions_that_no_path_reaches() {
    let found = faults(Spot::Exit, |a, _| {
        a.ret()?;
        a.xor(eax, eax)?;
        a.ret()
    });
    only(FaultKind::Unreachable, &found);
}

#[test]
fn entry_without_landing_pad() {
    let found = faults(Spot::Landing, |a, _| a.nop());
    only(FaultKind::MissingEndbr, &found);
}

#[test]
fn misaligned_entry() {
    let mut code = sound();
    let at = code.entries.lookup_batch_ptrs;
    // Where it is, preceded by a byte of padding less.
    code.bytes.remove(at - 1);
    code.bytes.insert(POOL - 1, 0x90);
    code.entries.lookup_batch_ptrs -= 1;
    for relocation in &mut code.relocations {
        relocation.offset -= usize::from(relocation.offset > at);
    }
    let error = run(&code).unwrap_err();
    only(FaultKind::MisalignedEntry, error.faults());
}

#[test]
fn entry_beyond_the_code() {
    let mut code = sound();
    code.entries.lookup_batch_ptrs = POOL + 64;
    let error = run(&code).unwrap_err();
    includes(FaultKind::MisalignedEntry, error.faults());
}
