//! Batches that ask for rows ahead: what the emitter makes of them passes, and what is wrong with them does not.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use pktjit_ir::text;

use super::*;

/// Three rows of 12 bytes, which may lie across two lines.
fn staged() -> VerifiedProgram {
    let text = "layout len=4 { mark \"m\" at 0 little } verdicts 8
        table0 \"far\" row_bytes=12 { \"x\" u32 x 1 at 0 max=7
            data 070000000000000000000000 010000000000000000000000 020000000000000000000000 }
        staged v3
        block0: v0 = load_key.le32 0 v1 = const 2 v2 = min v0, v1 v3 = row table0[v2] v4 = load v3.0 return v4";
    verify(text::parse(text).unwrap()).unwrap()
}

/// One instruction of `lookup_batch`: those of this mnemonic whose last operand is this immediate, if any is asked for.
#[derive(Clone, Copy)]
struct Found(Mnemonic, Option<i64>);

/// The faults of the code once `change` has changed the bytes of the `nth` of the instructions of `lookup_batch` that are
/// `found`; it is also told where in them the immediate starts.
fn faults(found: Found, nth: usize, change: impl Fn(&mut [u8], usize)) -> Vec<Fault> {
    let program = staged();
    let mut code = crate::compile(&program, &Target::x86_64_avx2()).unwrap();
    let entries = code.entries;
    let function = entries.lookup_batch..entries.lookup_batch_ptrs;
    let bytes = code.bytes[function.clone()].to_vec();
    let mut decoder = Decoder::with_ip(64, &bytes, function.start as u64, DecoderOptions::NONE);
    let mut left = nth;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let Found(mnemonic, immediate) = found;
        let last = instruction.op_count().saturating_sub(1);
        let is_found = instruction.mnemonic() == mnemonic
            && immediate.is_none_or(|wanted| {
                instruction
                    .try_immediate(last)
                    .is_ok_and(|is| is as i64 == wanted)
            });
        if !is_found {
            continue;
        }
        if left == 0 {
            let at = decoder
                .get_constant_offsets(&instruction)
                .immediate_offset();
            let start = instruction.ip() as usize;
            change(&mut code.bytes[start..start + instruction.len()], at);
            break;
        }
        left -= 1;
    }
    match audit(&code, &program, code.profile()) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().to_vec(),
    }
}

/// The faults once an immediate is another one.
fn with_immediate(found: Found, nth: usize, immediate: u8) -> Vec<Fault> {
    faults(found, nth, |bytes, at| bytes[at] = immediate)
}

#[test]
fn sound_code_passes() {
    let program = staged();
    for target in [Target::x86_64_avx2(), Target::x86_64_avx512()] {
        let code = crate::compile(&program, &target).unwrap();
        let report = audit(&code, &program, code.profile());
        let accesses = report.unwrap_or_else(|error| panic!("{error}")).accesses;
        // In each batch: the index kept and read, and the result, in a block; the result of what is left.
        assert_eq!((accesses.result, accesses.pointer), (8, 3));
    }
}

#[test]
fn index_that_is_not_brought_below_its_bound() {
    let found = faults(Found(Mnemonic::Cmova, None), 1, |bytes, _| bytes.fill(0x90));
    only(FaultKind::Read, &found);
}

#[test]
fn index_whose_bound_is_one_too_many() {
    // The bound of the first pass, of the second, of the keys that are left.
    for nth in 0..3 {
        let found = with_immediate(Found(Mnemonic::Mov, Some(2)), nth, 3);
        only(FaultKind::Read, &found);
    }
}

#[test]
fn block_of_more_keys_than_there_are() {
    let found = with_immediate(Found(Mnemonic::Cmp, Some(32)), 0, 31);
    includes(FaultKind::Read, &found);
    includes(FaultKind::Write, &found);
}

#[test]
fn pass_over_more_keys_than_the_block_has() {
    for nth in [1, 2] {
        let found = with_immediate(Found(Mnemonic::Cmp, Some(32)), nth, 33);
        includes(FaultKind::Read, &found);
        includes(FaultKind::Write, &found);
    }
}

#[test]
fn block_that_takes_more_keys_than_there_are() {
    let found = with_immediate(Found(Mnemonic::Sub, Some(32)), 0, 33);
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn block_that_takes_no_keys() {
    let found = with_immediate(Found(Mnemonic::Sub, Some(32)), 0, 0);
    includes(FaultKind::UnboundedLoop, &found);
}

#[test]
fn block_that_goes_on_by_less_than_it_takes() {
    let found = with_immediate(Found(Mnemonic::Imul, Some(32)), 0, 31);
    includes(FaultKind::Read, &found);
    let found = with_immediate(Found(Mnemonic::Add, Some(128)), 0, 124);
    includes(FaultKind::Write, &found);
}

#[test]
fn prefetch_of_what_is_no_table() {
    // The first line of a row is at rdx, without a displacement; rsi holds the distance of keys.
    let elsewhere = |bytes: &mut [u8], _| bytes[bytes.len() - 1] ^= 0b100;
    let found = faults(Found(Mnemonic::Prefetcht0, None), 0, elsewhere);
    only(FaultKind::Read, &found);
}

#[test]
fn prefetch_behind_the_table() {
    let far = |bytes: &mut [u8], _| bytes[bytes.len() - 1] = 0x7f;
    let found = faults(Found(Mnemonic::Prefetcht0, None), 1, far);
    only(FaultKind::Read, &found);
}
