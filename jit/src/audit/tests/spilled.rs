//! Loops as Cranelift makes them: counters that are copied, kept in the frame and compared elsewhere.

use super::framed::faults;
use super::*;

/// Bytes of the key.
const KEY: i32 = 6;

/// A lookup that reads the first `trips` bytes of the key one after the other. The counter is in the frame at 8; each trip has
/// the next one in rdx and there before it compares. `body` comes behind that, `compare` sets the flags.
fn spilled(body: impl Fn(&mut Asm) -> Done, compare: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    faults(|a| {
        let (mut head, mut exit) = (a.create_label(), a.create_label());
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.sub(rsp, 32)?;
        a.xor(eax, eax)?;
        a.mov(qword_ptr(rsp + 8), rax)?;
        a.mov(qword_ptr(rsp + 16), rdi)?;
        a.set_label(&mut head)?;
        a.mov(rcx, qword_ptr(rsp + 8))?;
        a.mov(rsi, qword_ptr(rsp + 16))?;
        a.movzx(r8d, byte_ptr(rsi + rcx))?;
        a.lea(rdx, ptr(rcx + 1))?;
        a.mov(qword_ptr(rsp + 8), rdx)?;
        body(a)?;
        compare(a)?;
        a.jae(exit)?;
        a.jmp(head)?;
        a.set_label(&mut exit)?;
        a.add(rsp, 32)?;
        a.mov(rsp, rbp)?;
        a.pop(rbp)?;
        a.ret()
    })
}

/// The same with one fault planted.
fn planted(body: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    spilled(body, |a| a.cmp(rdx, KEY))
}

#[test]
fn counter_in_the_frame_passes_and_one_more_trip_does_not() {
    assert_eq!(planted(|_| Ok(())), []);
    only(
        FaultKind::Read,
        &spilled(|_| Ok(()), |a| a.cmp(rdx, KEY + 1)),
    );
}

#[test]
fn comparison_through_a_register() {
    let trips = |trips| {
        let compare = move |a: &mut Asm| {
            a.mov(r9d, trips)?;
            a.cmp(rdx, r9)
        };
        spilled(|_| Ok(()), compare)
    };
    assert_eq!(trips(KEY), []);
    only(FaultKind::Read, &trips(KEY + 1));
    let from_the_key = |a: &mut Asm| {
        a.mov(r9d, dword_ptr(rsi))?;
        a.cmp(rdx, r9)
    };
    includes(FaultKind::UnboundedLoop, &spilled(|_| Ok(()), from_the_key));
}

#[test]
fn comparison_of_something_else() {
    let found = planted(|a| a.mov(edx, dword_ptr(rsi)));
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn comparison_of_half_of_a_counter_that_may_be_larger() {
    let found = spilled(|a| a.add(rdx, -1), |a| a.cmp(dl, 6));
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn slot_of_the_counter_overwritten() {
    let writes: [fn(&mut Asm) -> Done; 4] = [
        |a| a.mov(byte_ptr(rsp + 8), al),
        |a| a.mov(qword_ptr(rsp + 12), rcx),
        |a| a.movups(xmmword_ptr(rsp), xmm0),
        |a| {
            a.and(r8d, 3)?;
            a.mov(dword_ptr(rsp + r8 * 4), eax)
        },
    ];
    for write in writes {
        includes(FaultKind::UnboundedLoop, &planted(write));
    }
}

#[test]
fn slot_of_the_counter_set_back() {
    let found = planted(|a| a.mov(qword_ptr(rsp + 8), rcx));
    includes(FaultKind::UnboundedLoop, &found);
    let found = planted(|a| a.mov(qword_ptr(rsp + 8), 0));
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn slot_of_the_counter_one_further_than_what_is_compared() {
    let found = planted(|a| {
        a.lea(rax, ptr(rdx + 1))?;
        a.mov(qword_ptr(rsp + 8), rax)
    });
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn slot_of_the_key_overwritten() {
    let found = planted(|a| a.mov(byte_ptr(rsp + 19), al));
    only(FaultKind::Read, &found);
}

/// A loop that tests before it reads.
fn tested_first(trips: i32, step: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    faults(|a| {
        let (mut head, mut exit) = (a.create_label(), a.create_label());
        a.xor(ecx, ecx)?;
        a.set_label(&mut head)?;
        a.cmp(rcx, trips)?;
        a.jae(exit)?;
        a.movzx(r8d, byte_ptr(rdi + rcx))?;
        step(a)?;
        a.jmp(head)?;
        a.set_label(&mut exit)?;
        a.ret()
    })
}

#[test]
fn test_in_the_head_passes_and_one_more_trip_does_not() {
    assert_eq!(tested_first(KEY, |a| a.inc(rcx)), []);
    only(FaultKind::Read, &tested_first(KEY + 1, |a| a.inc(rcx)));
    includes(FaultKind::UnboundedLoop, &tested_first(KEY, |a| a.dec(rcx)));
    includes(FaultKind::UnboundedLoop, &tested_first(KEY, |_| Ok(())));
}

/// Two loops, one in the other; `between` comes behind the inner one.
fn nested(start: impl Fn(&mut Asm) -> Done, between: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    faults(|a| {
        let (mut outer, mut inner) = (a.create_label(), a.create_label());
        a.xor(eax, eax)?;
        a.set_label(&mut outer)?;
        start(a)?;
        a.set_label(&mut inner)?;
        a.movzx(r8d, byte_ptr(rdi + rcx))?;
        a.inc(rcx)?;
        a.cmp(rcx, KEY)?;
        a.jb(inner)?;
        between(a)?;
        a.inc(rax)?;
        a.cmp(rax, 1000)?;
        a.jb(outer)?;
        a.ret()
    })
}

#[test]
fn loop_in_a_loop_passes_unless_one_counts_for_the_other() {
    let fresh = |a: &mut Asm| a.xor(ecx, ecx);
    assert_eq!(nested(fresh, |_| Ok(())), []);
    includes(FaultKind::UnboundedLoop, &nested(|a| a.nop(), |_| Ok(())));
    includes(
        FaultKind::UnboundedLoop,
        &nested(fresh, |a| a.mov(rax, rcx)),
    );
    includes(
        FaultKind::UnboundedLoop,
        &nested(fresh, |a| a.xor(eax, eax)),
    );
}

/// The lesser of a number of the key and 5, made in a copy, as an index into the key.
fn least(between: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    faults(|a| {
        a.mov(r8d, dword_ptr(rdi))?;
        a.mov(esi, KEY - 1)?;
        a.cmp(rsi, r8)?;
        a.mov(rcx, r8)?;
        between(a)?;
        a.cmovb(rcx, rsi)?;
        a.movzx(eax, byte_ptr(rdi + rcx))?;
        a.ret()
    })
}

#[test]
fn least_of_two_in_a_copy_passes_unless_it_is_changed() {
    assert_eq!(least(|_| Ok(())), []);
    only(FaultKind::Read, &least(|a| a.lea(rcx, ptr(rcx + 1))));
    only(FaultKind::Read, &least(|a| a.mov(rcx, rdx)));
    only(FaultKind::Read, &least(|a| a.mov(esi, KEY)));
    only(FaultKind::Read, &least(|a| a.mov(r8d, dword_ptr(rdi + 1))));
}

#[test]
fn lowest_bit_of_some_that_are_set_passes_and_of_any_does_not() {
    let at = |bits: i32| {
        faults(move |a| {
            a.mov(ecx, dword_ptr(rdi))?;
            a.or(rcx, bits)?;
            a.mov(esi, 64)?;
            a.bsf(rdx, rcx)?;
            a.cmove(rdx, rsi)?;
            a.movzx(eax, byte_ptr(rdi + rdx))?;
            a.ret()
        })
    };
    assert_eq!(at(1 << (KEY - 1)), []);
    only(FaultKind::Read, &at(1 << KEY));
    only(FaultKind::Read, &at(0));
}
