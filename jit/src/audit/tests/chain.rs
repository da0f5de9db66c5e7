//! A batch that calls `lookup` for each key, and what must not be called.

use super::*;

/// Where the batch sample is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nowhere,
    /// What aligns the stack: rbx, rbp, r12, r13 and r14 are saved already.
    Align,
    Argument,
    Call,
    /// Between the call and the store of the result.
    Result,
}

/// Audits a batch that calls `lookup`, which has `lookup` as body, with `plant` in place of what belongs `at`.
fn audit_chain(
    profile: Profile,
    lookup: impl Fn(&mut Asm) -> Done,
    at: At,
    plant: impl Fn(&mut Asm) -> Done,
) -> Result<AuditReport, AuditError> {
    let lookup = || {
        let mut a = CodeAssembler::new(64)?;
        a.endbr64()?;
        lookup(&mut a)?;
        a.assemble(0)
    };
    let part = |a: &mut Asm, spot, own: fn(&mut Asm) -> Done| {
        if spot == at { plant(a) } else { own(a) }
    };
    let batch = || {
        let mut a = CodeAssembler::new(64)?;
        let [mut head, mut exit] = [(); 2].map(|()| a.create_label());
        let saved = [rbx, rbp, r12, r13];
        a.endbr64()?;
        for register in saved {
            a.push(register)?;
        }
        part(&mut a, At::Align, |a| a.push(r14))?;
        a.mov(rbx, rdi)?;
        a.mov(rbp, rsi)?;
        a.mov(r12, rdx)?;
        a.mov(r13, rcx)?;
        a.test(r12, r12)?;
        a.je(exit)?;
        a.set_label(&mut head)?;
        part(&mut a, At::Argument, |a| a.mov(rdi, rbx))?;
        part(&mut a, At::Call, |a| a.call(0))?;
        part(&mut a, At::Result, |_| Ok(()))?;
        a.mov(dword_ptr(r13), eax)?;
        a.add(rbx, rbp)?;
        a.add(r13, 4)?;
        a.dec(r12)?;
        a.jne(head)?;
        a.set_label(&mut exit)?;
        if at != At::Align {
            a.pop(r14)?;
        }
        for register in saved.into_iter().rev() {
            a.pop(register)?;
        }
        a.ret()?;
        a.assemble(SLOT as u64)
    };
    let batch_ptrs = || {
        let mut a = CodeAssembler::new(64)?;
        a.endbr64()?;
        a.ret()?;
        a.assemble(2 * SLOT as u64)
    };
    audit(
        &compiled([lookup(), batch(), batch_ptrs()]),
        &program(3),
        profile,
    )
}

/// A lookup that writes all the vector halves and general registers that are its own to write.
fn lookup(a: &mut Asm) -> Done {
    a.vpxor(ymm0, ymm0, ymm0)?;
    a.mov(eax, dword_ptr(rdi))?;
    a.xor(ecx, ecx)?;
    a.vzeroupper()?;
    a.ret()
}

fn faults(at: At, plant: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    match audit_chain(Profile::Chain, lookup, at, plant) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().to_vec(),
    }
}

#[test]
fn sound_chain_passes() {
    let report = audit_chain(Profile::Chain, lookup, At::Nowhere, |_| Ok(()));
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.loops, 1);
    assert_eq!((report.accesses.key, report.accesses.result), (1, 1));
}

#[test]
fn call_without_a_chain() {
    for profile in [Profile::Leaf, Profile::Framed { scratch: 64 }] {
        let error = audit_chain(profile, lookup, At::Nowhere, |_| Ok(())).unwrap_err();
        includes(FaultKind::Call, error.faults());
    }
}

#[test]
fn scratch_in_a_chain() {
    let found = faults(At::Result, |a| {
        a.sub(rsp, 8)?;
        a.add(rsp, 8)
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn call_into_the_middle_of_lookup() {
    only(FaultKind::Call, &faults(At::Call, |a| a.call(4)));
}

#[test]
fn call_of_the_pool() {
    only(FaultKind::Call, &faults(At::Call, |a| a.call(POOL as u64)));
}

#[test]
fn recursive_call_of_the_batch() {
    only(FaultKind::Call, &faults(At::Call, |a| a.call(SLOT as u64)));
}

#[test]
fn recursive_call_of_lookup() {
    let lookup = |a: &mut Asm| {
        a.push(rbx)?;
        a.call(0)?;
        a.pop(rbx)?;
        a.ret()
    };
    let error = audit_chain(Profile::Chain, lookup, At::Nowhere, |_| Ok(())).unwrap_err();
    only(FaultKind::Call, error.faults());
}

#[test]
fn indirect_call() {
    only(FaultKind::IndirectCall, &faults(At::Call, |a| a.call(rax)));
}

#[test]
fn call_with_a_misaligned_stack() {
    includes(FaultKind::Stack, &faults(At::Align, |_| Ok(())));
}

#[test]
fn call_with_an_address_in_the_key() {
    only(
        FaultKind::Call,
        &faults(At::Argument, |a| a.lea(rdi, ptr(rbx + 1))),
    );
}

#[test]
fn call_with_the_key_of_the_next_element() {
    only(
        FaultKind::Call,
        &faults(At::Argument, |a| a.lea(rdi, ptr(rbx + rbp))),
    );
}

/// The first trip has its key in rdi, the others what the call before left there.
#[test]
fn call_with_what_the_last_call_left() {
    only(FaultKind::Call, &faults(At::Argument, |_| Ok(())));
}

#[test]
fn read_through_a_register_that_the_call_changed() {
    let found = faults(At::Result, |a| a.mov(eax, dword_ptr(rdi)));
    only(FaultKind::Read, &found);
}

#[test]
fn flags_from_before_a_call() {
    let found = faults(At::Call, |a| {
        let mut skip = a.create_label();
        a.mov(r14d, dword_ptr(rbx))?;
        a.cmp(r14d, 4)?;
        a.call(0)?;
        a.jae(skip)?;
        a.lea(rcx, ptr(rbx + r14))?;
        a.movzx(ecx, byte_ptr(rcx))?;
        a.set_label(&mut skip)?;
        a.xor(r14d, r14d)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn upper_halves_in_use_across_a_call() {
    let found = faults(At::Argument, |a| {
        a.mov(rdi, rbx)?;
        a.vpxor(ymm0, ymm0, ymm0)
    });
    only(FaultKind::UpperHalves, &found);
}
