//! Bodies that need more registers than are free, or scratch: the frame around them.

use super::*;

/// `n` values at once.
fn crowd(n: u16, value: impl Fn(&mut ProgramBuilder, TableId, u16) -> ValueId) -> ProgramBuilder {
    let mut b = builder();
    let table = b.table(flat_table(4, u32::MAX.into()));
    let values: Vec<ValueId> = (0..n).map(|i| value(&mut b, table, i)).collect();
    let once = values
        .iter()
        .copied()
        .reduce(|a, c| b.binary(BinaryOp::Xor, a, c));
    let again = values
        .iter()
        .rev()
        .copied()
        .reduce(|a, c| b.binary(BinaryOp::Or, a, c));
    let (once, again) = (once.expect("one"), again.expect("one"));
    let both = b.binary(BinaryOp::And, once, again);
    b.ret(both);
    b
}

/// `n` numbers of a table at once, which are not worth loading again.
fn crowd_of_loads(n: u16) -> ProgramBuilder {
    crowd(n, |b, table, i| {
        let index = b.constant((i % 4).into());
        let row = b.row(table, index);
        b.load(row, 0, None)
    })
}

#[test]
fn key_words_beyond_the_registers_are_loaded_again() {
    let code = compiled(crowd(8, |b, _, i| b.load_key(i, 4, ByteOrder::Big)));
    let loads = decode(&code, code.entries().lookup);
    let loads = loads
        .iter()
        .filter(|inst| inst.mnemonic() == Mnemonic::Movbe)
        .count();
    assert!((9..=16).contains(&loads), "{loads} loads of 8 words");
    assert_eq!(code.profile(), Profile::Leaf);
}

#[test]
fn values_beyond_the_free_registers_get_those_of_the_caller_in_a_frame() {
    let code = compiled(crowd_of_loads(4));
    assert_eq!((code.profile(), code.stack_bytes()), (Profile::Leaf, 8));
    let code = compiled(crowd_of_loads(7));
    assert_eq!(code.profile(), Profile::Framed { scratch: 0 });
    for insts in entries(&code) {
        let registers = |mnemonic| {
            let found = insts.iter().filter(move |i| i.mnemonic() == mnemonic);
            found.map(Instruction::op0_register).collect::<Vec<_>>()
        };
        let pushed = registers(Mnemonic::Push);
        let popped: Vec<Register> = registers(Mnemonic::Pop).into_iter().rev().collect();
        assert_eq!(pushed, popped);
        assert_eq!(code.stack_bytes(), 8 + 8 * pushed.len());
    }
}

#[test]
fn too_many_values_are_refused() {
    let why = refusal(crowd_of_loads(12), &Target::x86_64_avx2());
    assert!(why.contains("11 general registers"), "{why}");
}

/// A lookup with so much scratch that looks at none of it.
fn with_scratch(numbers: u32) -> CompiledCode {
    let mut b = builder();
    b.scratch(numbers);
    let byte = b.load_key(0, 1, ByteOrder::Little);
    b.ret(byte);
    compiled(b)
}

#[test]
fn scratch_is_a_whole_number_of_stores() {
    let code = with_scratch(9);
    // 8 bytes align what is below the return address.
    assert_eq!(code.profile(), Profile::Framed { scratch: 64 + 8 });
    assert_eq!(code.stack_bytes(), 64 + 16);
}

#[test]
fn each_page_of_a_large_frame_is_touched() {
    for insts in entries(&with_scratch(16384)) {
        let touches = insts.iter().filter(|i| i.mnemonic() == Mnemonic::Or);
        assert_eq!(touches.count(), 16);
    }
}

#[test]
fn what_saves_nothing_pushes_nothing() {
    for insts in entries(&with_scratch(1)) {
        assert!(insts.iter().all(|i| i.mnemonic() != Mnemonic::Push));
    }
}
