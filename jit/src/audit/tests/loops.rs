//! Faults of loops: ways back without a bound, elements that may not exist.

use iced_x86::code_asm::*;

use super::*;

#[test]
fn backward_jump_without_bound() {
    let found = faults(Spot::Exit, |a, c| a.jmp(c.loop_head));
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn backward_branch_on_data() {
    let found = faults(Spot::LoopEnd, |a, c| {
        a.test(r11d, r11d)?;
        a.jne(c.loop_head)
    });
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn counter_that_is_set_back() {
    let found = faults(Spot::LoopBody, |a, _| a.xor(r10d, r10d));
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn counter_that_does_not_start_at_zero() {
    let found = faults(Spot::CounterStart, |a, _| a.mov(r10d, 1));
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn counter_that_starts_anywhere() {
    let found = faults(Spot::CounterStart, |_, _| Ok(()));
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn counter_that_goes_by_two_passes_and_by_nothing_does_not() {
    let by = |step| faults(Spot::CounterStep, move |a, _| a.add(r10d, step));
    assert_eq!(by(2), []);
    includes(FaultKind::UnboundedLoop, &by(0));
}

#[test]
fn loop_that_is_entered_behind_its_head() {
    let found = faults(Spot::CounterStart, |a, _| {
        a.xor(r10d, r10d)?;
        // `js` over `mov eax, -1` and `mov r9, r10`.
        a.db(&[0x78, 0x08])
    });
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn batch_loop_that_takes_two_elements_a_trip() {
    let found = faults(Spot::BatchEnd, |a, c| {
        a.sub(c.n, 2)?;
        a.jne(c.batch_head)
    });
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn batch_loop_that_goes_on_at_zero() {
    let found = faults(Spot::BatchEnd, |a, c| {
        a.dec(c.n)?;
        a.jns(c.batch_head)
    });
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn batch_loop_that_counts_half_of_n() {
    let found = faults(Spot::BatchEnd, |a, c| {
        a.dec(c.n)?;
        a.test(edx, edx)?;
        a.jne(c.batch_head)
    });
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn batch_without_a_check_for_no_elements() {
    let found = faults(Spot::EmptyCheck, |_, _| Ok(()));
    includes(FaultKind::Read, &found);
    includes(FaultKind::Write, &found);
}
