//! What bounds a number and so proves an access, and what looks as if it did.

use iced_x86::code_asm::*;

use super::*;

#[test]
fn clamp_by_conditional_move_bounds_a_number() {
    let clamped = code(Spot::ClampCell, &|a, _| {
        a.mov(eax, dword_ptr(rdi))?;
        a.mov(r11d, 3)?;
        a.cmp(eax, r11d)?;
        a.cmova(eax, r11d)
    });
    assert_eq!(run(&clamped).map(|_| ()), Ok(()));
}

#[test]
fn clamp_of_flags_that_compare_an_older_value() {
    let found = faults(Spot::ClampCell, |a, _| {
        a.mov(r11d, 3)?;
        a.cmp(eax, r11d)?;
        a.mov(eax, dword_ptr(rdi))?;
        a.cmova(eax, r11d)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn clamp_the_wrong_way_round() {
    let found = faults(Spot::ClampCell, |a, _| {
        a.mov(eax, dword_ptr(rdi))?;
        a.mov(r11d, 3)?;
        a.cmp(eax, r11d)?;
        a.cmovb(eax, r11d)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn mask_bounds_a_number() {
    let masked = code(Spot::ClampCell, &|a, _| {
        a.mov(eax, dword_ptr(rdi))?;
        a.and(eax, 3)
    });
    assert_eq!(run(&masked).map(|_| ()), Ok(()));
}

#[test]
fn first_bit_is_bounded_by_a_bit_that_is_set() {
    let found = code(Spot::FirstLane, &|a, c| {
        a.mov(eax, dword_ptr(c.key))?;
        a.or(eax, 0x80)?;
        a.tzcnt(eax, eax)
    });
    assert_eq!(run(&found).map(|_| ()), Ok(()));
}

#[test]
fn first_bit_of_what_may_be_zero() {
    let found = faults(Spot::FirstLane, |a, c| {
        a.mov(eax, dword_ptr(c.key))?;
        a.tzcnt(eax, eax)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn bit_scan_leaves_anything_where_there_is_no_bit() {
    let found = faults(Spot::FirstLane, |a, _| {
        a.and(eax, 0x7e)?;
        a.bsf(eax, eax)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn bit_scan_with_a_move_for_no_bit() {
    let found = code(Spot::FirstLane, &|a, _| {
        a.and(eax, 0x7e)?;
        a.mov(r11d, 7)?;
        a.bsf(eax, eax)?;
        a.cmove(eax, r11d)
    });
    assert_eq!(run(&found).map(|_| ()), Ok(()));
}

#[test]
fn constant_in_the_pool_is_known() {
    // The constant is 0, so no bit of the key is gathered.
    let gathered = code(Spot::ClampCell, &|a, c| {
        a.mov(rax, qword_ptr(r8))?;
        relative(a, Code::Mov_r64_rm64, Register::R11, CONSTANT)?;
        a.mov(eax, dword_ptr(c.key))?;
        a.pext(rax, rax, r11)
    });
    assert_eq!(run(&gathered).map(|_| ()), Ok(()));
}

#[test]
fn aligned_load_of_an_aligned_row() {
    let aligned = code(Spot::LoopBody, &|a, _| {
        relative(a, Code::Lea_r64_m, Register::R8, POOL)?;
        a.vmovdqa(ymm0, ymmword_ptr(r8 + 32))
    });
    assert_eq!(run(&aligned).map(|_| ()), Ok(()));
}

#[test]
fn aligned_load_that_may_trap() {
    let found = faults(Spot::LoopBody, |a, _| {
        relative(a, Code::Lea_r64_m, Register::R8, POOL)?;
        a.vmovdqa(ymm0, ymmword_ptr(r8 + 16))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn legacy_vector_instruction_whose_operand_may_trap() {
    let found = faults(Spot::LoopBody, |a, _| {
        relative(a, Code::Lea_r64_m, Register::R8, POOL)?;
        a.paddd(xmm0, xmmword_ptr(r8 + 8))
    });
    only(FaultKind::Read, &found);
}
