//! Faults of memory accesses: what is outside, what is of another element, what must not be written.

use iced_x86::code_asm::*;

use super::*;

#[test]
fn load_past_the_key() {
    let found = faults(Spot::LoadKey, |a, c| a.movzx(eax, word_ptr(c.key + 5)));
    only(FaultKind::Read, &found);
}

#[test]
fn load_before_the_key() {
    let found = faults(Spot::LoadKey, |a, c| a.movzx(eax, word_ptr(c.key - 1)));
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_the_next_key() {
    let found = faults(Spot::LoadKey, |a, c| {
        a.movzx(eax, word_ptr(c.key + c.stride))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_through_the_key_after_advancing_it() {
    let found = faults(Spot::AdvanceKey, |a, c| {
        a.add(c.key, c.stride)?;
        a.mov(eax, dword_ptr(c.key))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn key_that_is_not_advanced() {
    let found = faults(Spot::AdvanceKey, |_, _| Ok(()));
    only(FaultKind::Read, &found);
}

#[test]
fn key_that_is_advanced_twice() {
    let found = faults(Spot::AdvanceKey, |a, c| {
        a.add(c.key, c.stride)?;
        a.add(c.key, c.stride)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_one_row_past_a_table() {
    // The cells may name bucket 4, of 0 to 3.
    let error = audit(&sound(), &program(4), Profile::Leaf).unwrap_err();
    only(FaultKind::Read, error.faults());
    let fault = &error.faults()[0];
    assert!(
        fault.detail.contains("table1 + rows 0..=256 by 64"),
        "{fault}"
    );
    assert!(fault.instruction.starts_with("vpcmpeqd"), "{fault}");
}

#[test]
fn load_through_an_unbounded_number() {
    let found = faults(Spot::LoadCell, |a, _| a.mov(eax, dword_ptr(r8 + rax)));
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_a_cell_that_straddles_two_columns() {
    let found = faults(Spot::LoadCell, |a, _| a.movzx(eax, word_ptr(r8 + rax)));
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_a_cell_from_a_column_without_a_bound() {
    let found = faults(Spot::LoadCell, |a, _| {
        a.movzx(eax, word_ptr(r8 + rax * 2 + 2))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn lane_past_a_row_through_a_wrong_scale() {
    let found = faults(Spot::LoadRow, |a, _| {
        a.mov(eax, dword_ptr(r9 + rax * 8 + 32))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_from_a_pool_table_past_the_pool() {
    let found = faults(Spot::LoadRow, |a, _| {
        relative(a, Code::Mov_r32_rm32, Register::EAX, POOL_END - 3)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_that_starts_in_a_pool_table_and_ends_behind_it() {
    let found = faults(Spot::LoadRow, |a, _| {
        relative(a, Code::Mov_r32_rm32, Register::EAX, CONSTANT - 2)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_code() {
    let found = faults(Spot::LoadRow, |a, _| {
        relative(a, Code::Mov_r32_rm32, Register::EAX, POOL - 4)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_from_an_absolute_address() {
    let found = faults(Spot::LoadRow, |a, _| a.mov(eax, dword_ptr(0x1000)));
    only(FaultKind::Read, &found);
}

#[test]
fn table_address_that_the_runtime_does_not_write() {
    let found = faults(Spot::TableBase, |a, _| a.mov(r8, 0x7000_0000_0000u64));
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_a_result() {
    let found = faults(Spot::Store, |a, c| a.mov(eax, dword_ptr(c.results)));
    only(FaultKind::Read, &found);
}

#[test]
fn store_beyond_the_result() {
    let found = faults(Spot::Store, |a, c| a.mov(dword_ptr(c.results + 4), eax));
    only(FaultKind::Write, &found);
}

#[test]
fn store_of_a_wide_result() {
    let found = faults(Spot::Store, |a, c| a.mov(qword_ptr(c.results), rax));
    only(FaultKind::Write, &found);
}

#[test]
fn results_that_are_not_advanced() {
    let found = faults(Spot::AdvanceResult, |_, _| Ok(()));
    only(FaultKind::Write, &found);
}

#[test]
fn store_to_the_key() {
    let found = faults(Spot::Store, |a, c| a.mov(dword_ptr(c.key), eax));
    only(FaultKind::Write, &found);
}

#[test]
fn store_to_a_table() {
    let found = faults(Spot::LoadRow, |a, _| a.mov(dword_ptr(r9), eax));
    only(FaultKind::Write, &found);
}

#[test]
fn read_and_write_of_a_result() {
    let found = faults(Spot::Store, |a, c| a.add(dword_ptr(c.results), eax));
    only(FaultKind::Write, &found);
}

#[test]
fn half_of_a_key_address() {
    let found = faults(Spot::LoadPointer, |a, c| a.mov(c.key, qword_ptr(rsi + 4)));
    only(FaultKind::Read, &found);
}
