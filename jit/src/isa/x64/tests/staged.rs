//! Batches of programs that stage a row.

use super::*;

/// A lookup in a table of `rows` rows with `columns` columns of 32 bytes, its row staged or not.
fn far_row(rows: usize, columns: u32, is_staged: bool) -> ProgramBuilder {
    let mut b = builder();
    let table = b.table(lanes_table(rows, columns));
    let x = b.load_key(0, 4, ByteOrder::Big);
    let index = b.binary_const(BinaryOp::Min, x, rows as u64 - 1);
    let row = b.row(table, index);
    if is_staged {
        b.stage(row);
    }
    let number = b.load(row, 0, None);
    b.ret(number);
    b
}

/// How many instructions of each entry are `mnemonic`.
fn count(code: &CompiledCode, mnemonic: Mnemonic) -> Vec<usize> {
    let of_entry = |insts: &Vec<Instruction>| {
        let found = insts.iter().filter(|inst| inst.mnemonic() == mnemonic);
        found.count()
    };
    entries(code).iter().map(of_entry).collect()
}

#[test]
fn batches_alone_ask_for_rows_ahead() {
    let code = compiled(far_row(100, 1, true));
    assert_eq!(count(&code, Mnemonic::Prefetcht0), [0, 1, 1]);
    assert_eq!(count(&code, Mnemonic::Push), [0, 2, 1]);
    let code = compiled(far_row(100, 1, false));
    assert_eq!(count(&code, Mnemonic::Prefetcht0), [0, 0, 0]);
    assert_eq!(code.profile(), Profile::Leaf);
}

#[test]
fn as_many_lines_are_asked_for_as_a_row_may_reach_into_up_to_eight() {
    for (columns, lines) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (20, 8)] {
        let code = compiled(far_row(100, columns, true));
        let found = count(&code, Mnemonic::Prefetcht0);
        assert_eq!(found, [0, lines, lines], "{columns} columns");
    }
}

#[test]
fn an_index_is_masked_where_its_bound_allows_it() {
    let clamps = |rows| count(&compiled(far_row(rows, 1, true)), Mnemonic::Cmova);
    // In each body the minimum itself is one.
    assert_eq!(clamps(100), [1, 3, 3]);
    assert_eq!(clamps(128), [1, 2, 2]);
}

#[test]
fn the_second_pass_computes_no_index() {
    let mut b = builder();
    let table = b.table(lanes_table(256, 1));
    let x = b.load_key(0, 4, ByteOrder::Big);
    let product = b.binary_const(BinaryOp::Mul, x, 0x9e37_79b9);
    let index = b.shr(product, 56);
    let index = b.binary_const(BinaryOp::And, index, 255);
    let row = b.row(table, index);
    b.stage(row);
    let number = b.load(row, 0, None);
    b.ret(number);
    let code = compiled(b);
    // One product in the first pass, one for the keys that are left, two places and the end of a block.
    assert_eq!(count(&code, Mnemonic::Imul), [1, 2 + 3, 2]);
}

#[test]
fn a_program_whose_passes_lack_registers_has_plain_batches() {
    let mut b = builder();
    let table = b.table(lanes_table(4, 1));
    let x = b.load_key(0, 4, ByteOrder::Big);
    let index = b.binary_const(BinaryOp::Min, x, 2);
    let row = b.row(table, index);
    b.stage(row);
    let zero = b.constant(0);
    let other = b.row(table, zero);
    let numbers: Vec<ValueId> = (0..8).map(|_| b.load(other, 0, None)).collect();
    let number = b.load(row, 0, None);
    let sum = |b: &mut ProgramBuilder, numbers: &mut dyn Iterator<Item = ValueId>| {
        numbers.fold(number, |a, c| b.binary(BinaryOp::Xor, a, c))
    };
    let once = sum(&mut b, &mut numbers.iter().copied());
    let again = sum(&mut b, &mut numbers.iter().rev().copied());
    let both = b.binary(BinaryOp::And, once, again);
    b.ret(both);
    let code = compiled(b);
    assert_eq!(count(&code, Mnemonic::Prefetcht0), [0, 0, 0]);
}
