//! Every form is decoded by another crate, and by objdump where there is one that knows AArch64.

use std::collections::BTreeSet;
use std::process::Command;

use yaxpeax_arch::{Arch, Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::ARMv8;

use super::*;
use crate::isa::a64::inst::Label;
use pktjit_ir::TableId;

const X: fn(u8) -> Reg = Reg::general;
const V: fn(u8) -> Reg = Reg::vector;

fn base(base: u8, disp: u32) -> Address {
    let base = X(base);
    Address::Base { base, disp }
}

fn indexed(base: u8, index: u8, shift: u8) -> Address {
    let (base, index) = (X(base), X(index));
    Address::Indexed { base, index, shift }
}

/// Each form with what it means in the words of the decoder. Label 0 and the pool are 64 bytes after the instruction.
#[rustfmt::skip]
fn samples() -> Vec<(Inst, &'static str)> {
    use Size::{S32, S64};
    const L: Label = Label(0);
    vec![
        (Inst::Bti, "hint #0x22"),
        (Inst::Ret, "ret"),
        (Inst::Jump { to: L }, "b $+0x40"),
        (Inst::JumpIf { cond: Cond::Equal, to: L }, "b.eq $+0x40"),
        (Inst::JumpIf { cond: Cond::NotEqual, to: L }, "b.ne $+0x40"),
        (Inst::JumpIf { cond: Cond::Below, to: L }, "b.lo $+0x40"),
        (Inst::JumpIf { cond: Cond::BelowOrEqual, to: L }, "b.ls $+0x40"),
        (Inst::JumpIf { cond: Cond::Above, to: L }, "b.hi $+0x40"),
        (Inst::JumpIf { cond: Cond::AboveOrEqual, to: L }, "b.hs $+0x40"),
        (Inst::JumpIfZero { size: S32, a: X(7), is_zero: true, to: L }, "cbz w7, $+0x40"),
        (Inst::JumpIfZero { size: S64, a: X(2), is_zero: false, to: L }, "cbnz x2, $+0x40"),
        (Inst::MovZ { dst: X(17), imm: 0xffff, shift: 48 }, "mov x17, #0xffff000000000000"),
        (Inst::MovN { size: S32, dst: X(6), imm: 1, shift: 16 }, "mov w6, #0xfffeffff"),
        (Inst::MovN { size: S64, dst: X(6), imm: 0xffff, shift: 0 }, "mov x6, #0xffffffffffff0000"),
        (Inst::MovK { dst: X(9), imm: 0x1234, shift: 32 }, "movk x9, #0x1234, lsl #32"),
        (Inst::MovMask { size: S32, dst: X(8), imm: 0x00ff_00ff }, "mov w8, #0xff00ff"),
        (Inst::MovMask { size: S64, dst: X(8), imm: 0x8000_0000_0000_0001 }, "mov x8, #0x8000000000000001"),
        (Inst::Mov { size: S32, dst: X(0), src: X(6) }, "mov w0, w6"),
        (Inst::Mov { size: S64, dst: X(16), src: X(3) }, "mov x16, x3"),
        (Inst::PoolAddress { dst: X(10), offset: 4 }, "adr x10, $+0x44"),
        (Inst::TableAddress { dst: X(11), table: TableId::new(0), offset: 8 }, "ldr x11, $+0x48"),
        (Inst::StackAddress { dst: X(12), disp: 0 }, "mov x12, sp"),
        (Inst::Allocate { bytes: 4096 }, "sub sp, sp, #0x1, lsl #12"),
        (Inst::Allocate { bytes: 32 }, "sub sp, sp, #0x20"),
        (Inst::Release { bytes: 8192 }, "add sp, sp, #0x2, lsl #12"),
        (Inst::Release { bytes: 4064 }, "add sp, sp, #0xfe0"),
        (Inst::TouchStack, "str xzr, [sp]"),
        (Inst::Load { dst: X(7), address: base(0, 255), width: Width::B1 }, "ldrb w7, [x0, #0xff]"),
        (Inst::Load { dst: X(7), address: indexed(8, 9, 0), width: Width::B1 }, "ldrb w7, [x8, x9]"),
        (Inst::Load { dst: X(7), address: base(0, 8190), width: Width::B2 }, "ldrh w7, [x0, #0x1ffe]"),
        (Inst::Load { dst: X(7), address: base(0, 13), width: Width::B2 }, "ldurh w7, [x0, #0xd]"),
        (Inst::Load { dst: X(7), address: indexed(8, 9, 1), width: Width::B2 }, "ldrh w7, [x8, x9, lsl #1]"),
        (Inst::Load { dst: X(17), address: base(16, 16380), width: Width::B4 }, "ldr w17, [x16, #0x3ffc]"),
        (Inst::Load { dst: X(7), address: base(0, 1), width: Width::B4 }, "ldur w7, [x0, #0x1]"),
        (Inst::Load { dst: X(7), address: indexed(8, 9, 2), width: Width::B4 }, "ldr w7, [x8, x9, lsl #2]"),
        (Inst::Load { dst: X(7), address: base(0, 32760), width: Width::B8 }, "ldr x7, [x0, #0x7ff8]"),
        (Inst::Load { dst: X(7), address: base(0, 7), width: Width::B8 }, "ldur x7, [x0, #0x7]"),
        (Inst::Load { dst: X(7), address: indexed(8, 9, 3), width: Width::B8 }, "ldr x7, [x8, x9, lsl #3]"),
        (Inst::Store { address: base(3, 4), src: X(6) }, "str w6, [x3, #0x4]"),
        (Inst::Store { address: indexed(3, 4, 2), src: X(6) }, "str w6, [x3, x4, lsl #2]"),
        (Inst::StoreAndAdvance { base: X(3), src: X(6) }, "str w6, [x3], #0x4"),
        (Inst::LoadAndAdvance { dst: X(0), base: X(1) }, "ldr x0, [x1], #0x8"),
        (Inst::Prefetch { base: X(9), disp: 64 }, "prfum pldl1keep, [x9, #0x40]"),
        (Inst::Reverse { size: S32, dst: X(6), src: X(7) }, "rev w6, w7"),
        (Inst::Reverse { size: S64, dst: X(6), src: X(7) }, "rev x6, x7"),
        (Inst::Reverse16 { dst: X(6), src: X(7) }, "rev16 w6, w7"),
        (Inst::Cmp { size: S32, a: X(6), b: Operand::Imm(4095) }, "cmp w6, #0xfff"),
        (Inst::Cmp { size: S64, a: X(6), b: Operand::Imm(0xfff_000) }, "cmp x6, #0xfff, lsl #12"),
        (Inst::Cmp { size: S32, a: X(6), b: Operand::Reg(X(7)) }, "cmp w6, w7"),
        (Inst::Cmp { size: S64, a: X(6), b: Operand::Shifted(X(7), 3) }, "cmp x6, x7, lsl #3"),
        (Inst::Shift { op: Shift::Left, size: S32, dst: X(6), a: X(7), by: 31 }, "lsl w6, w7, #0x1f"),
        (Inst::Shift { op: Shift::Left, size: S64, dst: X(6), a: X(7), by: 63 }, "lsl x6, x7, #0x3f"),
        (Inst::Shift { op: Shift::Right, size: S32, dst: X(6), a: X(7), by: 1 }, "lsr w6, w7, #0x1"),
        (Inst::Shift { op: Shift::Right, size: S64, dst: X(6), a: X(7), by: 63 }, "lsr x6, x7, #0x3f"),
        (Inst::Extract { size: S32, dst: X(6), a: X(7), first: 3, len: 29 }, "lsr w6, w7, #0x3"),
        (Inst::Extract { size: S64, dst: X(6), a: X(7), first: 0, len: 64 }, "lsr x6, x7, #0x0"),
        (Inst::Insert { size: S32, dst: X(6), a: X(7), first: 31, len: 1 }, "bfi w6, w7, #0x1f, #0x1"),
        (Inst::Insert { size: S64, dst: X(6), a: X(7), first: 5, len: 7 }, "bfi x6, x7, #0x5, #0x7"),
        (Inst::Mul { size: S32, dst: X(6), a: X(7), b: X(8) }, "mul w6, w7, w8"),
        (Inst::Mul { size: S64, dst: X(6), a: X(7), b: X(8) }, "mul x6, x7, x8"),
        (Inst::MulAdd { dst: X(6), a: X(7), b: X(8), c: X(9) }, "madd x6, x7, x8, x9"),
        (Inst::Select { cond: Cond::Equal, size: S32, dst: X(6), a: X(7), b: X(8) }, "csel w6, w7, w8, eq"),
        (Inst::Select { cond: Cond::NotEqual, size: S64, dst: X(6), a: X(7), b: X(8) }, "csel x6, x7, x8, ne"),
        (Inst::Select { cond: Cond::Below, size: S32, dst: X(6), a: X(7), b: X(8) }, "csel w6, w7, w8, lo"),
        (Inst::Select { cond: Cond::BelowOrEqual, size: S64, dst: X(6), a: X(7), b: X(8) }, "csel x6, x7, x8, ls"),
        (Inst::Select { cond: Cond::Above, size: S32, dst: X(6), a: X(7), b: X(8) }, "csel w6, w7, w8, hi"),
        (Inst::Select { cond: Cond::AboveOrEqual, size: S64, dst: X(6), a: X(7), b: X(8) }, "csel x6, x7, x8, hs"),
        (Inst::Set { cond: Cond::Equal, dst: X(6) }, "cset w6, eq"),
        (Inst::Set { cond: Cond::NotEqual, dst: X(6) }, "cset w6, ne"),
        (Inst::Set { cond: Cond::Below, dst: X(6) }, "cset w6, lo"),
        (Inst::Set { cond: Cond::BelowOrEqual, dst: X(6) }, "cset w6, ls"),
        (Inst::Set { cond: Cond::Above, dst: X(6) }, "cset w6, hi"),
        (Inst::Set { cond: Cond::AboveOrEqual, dst: X(6) }, "cset w6, hs"),
        (Inst::ReverseBits { size: S32, dst: X(6), src: X(7) }, "rbit w6, w7"),
        (Inst::ReverseBits { size: S64, dst: X(6), src: X(7) }, "rbit x6, x7"),
        (Inst::LeadingZeros { size: S32, dst: X(6), src: X(7) }, "clz w6, w7"),
        (Inst::LeadingZeros { size: S64, dst: X(6), src: X(7) }, "clz x6, x7"),
        (Inst::VectorMov { dst: V(31), src: V(0) }, "mov v31.16b, v0.16b"),
        (Inst::VectorZero { dst: V(16) }, "movi v16.2d, #0x0"),
        (Inst::VectorConstant { dst: V(17), offset: 16 }, "ldr q17, $+0x50"),
        (Inst::VectorLoad { dst: V(1), address: base(0, 3), width: VectorWidth::B1 }, "ldr b1, [x0, #0x3]"),
        (Inst::VectorLoad { dst: V(1), address: base(0, 3), width: VectorWidth::B2 }, "ldur h1, [x0, #0x3]"),
        (Inst::VectorLoad { dst: V(1), address: base(0, 4), width: VectorWidth::B4 }, "ldr s1, [x0, #0x4]"),
        (Inst::VectorLoad { dst: V(1), address: indexed(6, 7, 3), width: VectorWidth::B8 }, "ldr d1, [x6, x7, lsl #3]"),
        (Inst::VectorLoad { dst: V(1), address: base(6, 65520), width: VectorWidth::B16 }, "ldr q1, [x6, #0xfff0]"),
        (Inst::LoadPair { a: V(2), b: V(30), base: X(6), disp: 1008 }, "ldp q2, q30, [x6, #0x3f0]"),
        (Inst::StorePair { src: V(2), base: X(6), disp: 16 }, "stp q2, q2, [x6, #0x10]"),
        (Inst::StorePairOnStack { src: V(2), disp: 32 }, "stp q2, q2, [sp, #0x20]"),
        (Inst::LoadEachLane { dst: V(3), base: X(0) }, "ld1r {v3.4s}, [x0]"),
        (Inst::SwapBytes { swap: Swap::In16, dst: V(1), src: V(20) }, "rev16 v1.16b, v20.16b"),
        (Inst::SwapBytes { swap: Swap::In32, dst: V(1), src: V(20) }, "rev32 v1.16b, v20.16b"),
        (Inst::Broadcast { dst: V(1), src: V(20) }, "mov v1.4s, v20.s[0]"),
        (Inst::BroadcastScalar { dst: V(1), src: X(17) }, "dup v1.4s, w17"),
        (Inst::EqualsZero { dst: V(1), src: V(20) }, "cmeq v1.4s, v20.4s, #0x0"),
        (Inst::Widen { op: Widen::Low16, dst: V(1), src: V(20) }, "ushll v1.4s, v20.4h, #0x0"),
        (Inst::Widen { op: Widen::High16, dst: V(1), src: V(20) }, "ushll2 v1.4s, v20.8h, #0x0"),
        (Inst::Widen { op: Widen::Low8, dst: V(1), src: V(20) }, "ushll v1.8h, v20.8b, #0x0"),
        (Inst::Narrow { op: Narrow::From16, dst: V(1), src: V(20) }, "xtn v1.8b, v20.8h"),
        (Inst::Narrow { op: Narrow::From32, dst: V(1), src: V(20) }, "xtn v1.4h, v20.4s"),
        (Inst::Reduce { op: Reduce::Min32, dst: V(1), src: V(20) }, "uminv s1, v20.4s"),
        (Inst::Reduce { op: Reduce::Sum32, dst: V(1), src: V(20) }, "addv s1, v20.4s"),
        (Inst::Reduce { op: Reduce::Sum16, dst: V(1), src: V(20) }, "addv h1, v20.8h"),
        (Inst::ToScalar { size: S32, dst: X(6), src: V(20) }, "fmov w6, s20"),
        (Inst::ToScalar { size: S64, dst: X(6), src: V(20) }, "fmov x6, d20"),
        (Inst::Vector { op: Vector::And, dst: V(1), a: V(20), b: V(31) }, "and v1.16b, v20.16b, v31.16b"),
        (Inst::Vector { op: Vector::AndNot, dst: V(1), a: V(20), b: V(31) }, "bic v1.16b, v20.16b, v31.16b"),
        (Inst::Vector { op: Vector::Or, dst: V(1), a: V(20), b: V(31) }, "orr v1.16b, v20.16b, v31.16b"),
        (Inst::Vector { op: Vector::OrNot, dst: V(1), a: V(20), b: V(31) }, "orn v1.16b, v20.16b, v31.16b"),
        (Inst::Vector { op: Vector::Xor, dst: V(1), a: V(20), b: V(31) }, "eor v1.16b, v20.16b, v31.16b"),
        (Inst::Vector { op: Vector::Sub, dst: V(1), a: V(20), b: V(31) }, "sub v1.4s, v20.4s, v31.4s"),
        (Inst::Vector { op: Vector::Min, dst: V(1), a: V(20), b: V(31) }, "umin v1.4s, v20.4s, v31.4s"),
        (Inst::Vector { op: Vector::Equal, dst: V(1), a: V(20), b: V(31) }, "cmeq v1.4s, v20.4s, v31.4s"),
        (Inst::Vector { op: Vector::SubHalves, dst: V(1), a: V(20), b: V(31) }, "sub v1.8h, v20.8h, v31.8h"),
        (Inst::Vector { op: Vector::MinHalves, dst: V(1), a: V(20), b: V(31) }, "umin v1.8h, v20.8h, v31.8h"),
        (Inst::Vector { op: Vector::HigherOrSame, dst: V(1), a: V(20), b: V(31) }, "cmhs v1.4s, v20.4s, v31.4s"),
        (Inst::Vector { op: Vector::Unzip16, dst: V(1), a: V(20), b: V(31) }, "uzp1 v1.8h, v20.8h, v31.8h"),
        (Inst::Alu { op: Alu::Add, size: S32, dst: X(6), a: X(7), b: Operand::Imm(4095) }, "add w6, w7, #0xfff"),
        (Inst::Alu { op: Alu::Add, size: S32, dst: X(6), a: X(7), b: Operand::Imm(0x123_000) }, "add w6, w7, #0x123, lsl #12"),
        (Inst::Alu { op: Alu::Add, size: S32, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "add w6, w7, w8"),
        (Inst::Alu { op: Alu::Add, size: S32, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "add w6, w7, w8, lsl #5"),
        (Inst::Alu { op: Alu::Add, size: S64, dst: X(6), a: X(7), b: Operand::Imm(4095) }, "add x6, x7, #0xfff"),
        (Inst::Alu { op: Alu::Add, size: S64, dst: X(6), a: X(7), b: Operand::Imm(0x123_000) }, "add x6, x7, #0x123, lsl #12"),
        (Inst::Alu { op: Alu::Add, size: S64, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "add x6, x7, x8"),
        (Inst::Alu { op: Alu::Add, size: S64, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "add x6, x7, x8, lsl #5"),
        (Inst::Alu { op: Alu::Sub, size: S32, dst: X(6), a: X(7), b: Operand::Imm(4095) }, "sub w6, w7, #0xfff"),
        (Inst::Alu { op: Alu::Sub, size: S32, dst: X(6), a: X(7), b: Operand::Imm(0x123_000) }, "sub w6, w7, #0x123, lsl #12"),
        (Inst::Alu { op: Alu::Sub, size: S32, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "sub w6, w7, w8"),
        (Inst::Alu { op: Alu::Sub, size: S32, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "sub w6, w7, w8, lsl #5"),
        (Inst::Alu { op: Alu::Sub, size: S64, dst: X(6), a: X(7), b: Operand::Imm(4095) }, "sub x6, x7, #0xfff"),
        (Inst::Alu { op: Alu::Sub, size: S64, dst: X(6), a: X(7), b: Operand::Imm(0x123_000) }, "sub x6, x7, #0x123, lsl #12"),
        (Inst::Alu { op: Alu::Sub, size: S64, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "sub x6, x7, x8"),
        (Inst::Alu { op: Alu::Sub, size: S64, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "sub x6, x7, x8, lsl #5"),
        (Inst::Alu { op: Alu::And, size: S32, dst: X(6), a: X(7), b: Operand::Imm(0x7f8) }, "and w6, w7, #0x7f8"),
        (Inst::Alu { op: Alu::And, size: S32, dst: X(6), a: X(7), b: Operand::Imm(0xffff_0000) }, "and w6, w7, #0xffff0000"),
        (Inst::Alu { op: Alu::And, size: S32, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "and w6, w7, w8"),
        (Inst::Alu { op: Alu::And, size: S32, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "and w6, w7, w8, lsl #5"),
        (Inst::Alu { op: Alu::And, size: S64, dst: X(6), a: X(7), b: Operand::Imm(0x7f8) }, "and x6, x7, #0x7f8"),
        (Inst::Alu { op: Alu::And, size: S64, dst: X(6), a: X(7), b: Operand::Imm(0xffff_0000) }, "and x6, x7, #0xffff0000"),
        (Inst::Alu { op: Alu::And, size: S64, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "and x6, x7, x8"),
        (Inst::Alu { op: Alu::And, size: S64, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "and x6, x7, x8, lsl #5"),
        (Inst::Alu { op: Alu::Or, size: S32, dst: X(6), a: X(7), b: Operand::Imm(0x7f8) }, "orr w6, w7, #0x7f8"),
        (Inst::Alu { op: Alu::Or, size: S32, dst: X(6), a: X(7), b: Operand::Imm(0xffff_0000) }, "orr w6, w7, #0xffff0000"),
        (Inst::Alu { op: Alu::Or, size: S32, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "orr w6, w7, w8"),
        (Inst::Alu { op: Alu::Or, size: S32, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "orr w6, w7, w8, lsl #5"),
        (Inst::Alu { op: Alu::Or, size: S64, dst: X(6), a: X(7), b: Operand::Imm(0x7f8) }, "orr x6, x7, #0x7f8"),
        (Inst::Alu { op: Alu::Or, size: S64, dst: X(6), a: X(7), b: Operand::Imm(0xffff_0000) }, "orr x6, x7, #0xffff0000"),
        (Inst::Alu { op: Alu::Or, size: S64, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "orr x6, x7, x8"),
        (Inst::Alu { op: Alu::Or, size: S64, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "orr x6, x7, x8, lsl #5"),
        (Inst::Alu { op: Alu::Xor, size: S32, dst: X(6), a: X(7), b: Operand::Imm(0x7f8) }, "eor w6, w7, #0x7f8"),
        (Inst::Alu { op: Alu::Xor, size: S32, dst: X(6), a: X(7), b: Operand::Imm(0xffff_0000) }, "eor w6, w7, #0xffff0000"),
        (Inst::Alu { op: Alu::Xor, size: S32, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "eor w6, w7, w8"),
        (Inst::Alu { op: Alu::Xor, size: S32, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "eor w6, w7, w8, lsl #5"),
        (Inst::Alu { op: Alu::Xor, size: S64, dst: X(6), a: X(7), b: Operand::Imm(0x7f8) }, "eor x6, x7, #0x7f8"),
        (Inst::Alu { op: Alu::Xor, size: S64, dst: X(6), a: X(7), b: Operand::Imm(0xffff_0000) }, "eor x6, x7, #0xffff0000"),
        (Inst::Alu { op: Alu::Xor, size: S64, dst: X(6), a: X(7), b: Operand::Reg(X(8)) }, "eor x6, x7, x8"),
        (Inst::Alu { op: Alu::Xor, size: S64, dst: X(6), a: X(7), b: Operand::Shifted(X(8), 5) }, "eor x6, x7, x8, lsl #5"),
    ]
}

/// The bytes of `inst` at the start of code whose pool starts at byte 64, with label 0 at the same place.
fn bytes(inst: &Inst) -> Vec<u8> {
    let mut buffer = Buffer::new(0);
    let label = buffer.label();
    emit(&mut buffer, inst, &[label]);
    let pool = buffer.pool;
    buffer.align();
    buffer.bind(label);
    buffer.bind(pool);
    let bytes = buffer.assembler.finalize().expect("all labels are bound");
    assert_eq!(bytes.len(), 64, "{inst:?}");
    bytes[..4].to_vec()
}

fn decoded(bytes: &[u8]) -> String {
    let decoder = <ARMv8 as Arch>::Decoder::default();
    match decoder.decode(&mut U8Reader::new(bytes)) {
        Ok(instruction) => instruction.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_form_is_what_it_says() {
    let wrong: Vec<String> = samples()
        .iter()
        .map(|(inst, text)| (inst, text, decoded(&bytes(inst))))
        .filter(|(_, text, decoded)| decoded != *text)
        .map(|(inst, text, decoded)| format!("{inst:?}\n  is {decoded}, not {text}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a disassembler of another house makes of the same bytes.
#[test]
fn objdump_reads_the_same() {
    let samples = samples();
    let code: Vec<u8> = samples.iter().flat_map(|(inst, _)| bytes(inst)).collect();
    let Some(theirs) = objdump(&code) else {
        return;
    };
    assert_eq!(theirs.len(), samples.len());
    let wrong: Vec<String> = samples
        .iter()
        .zip(&theirs)
        .filter(|((_, text), theirs)| normalised(text, 0) != **theirs)
        .map(|((inst, text), theirs)| format!("{inst:?}\n  is {theirs}, not {text}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The instructions as objdump sees them. Where none knows AArch64 that is said; `.ci/setup-aarch64.sh` installs one.
fn objdump(bytes: &[u8]) -> Option<Vec<String>> {
    let file = std::env::temp_dir().join(format!("pktjit-a64-{}.bin", std::process::id()));
    std::fs::write(&file, bytes).expect("a file for objdump");
    let output = Command::new("aarch64-linux-gnu-objdump")
        .args(["-D", "-b", "binary", "-m", "aarch64", "--no-show-raw-insn"])
        .arg(&file)
        .output();
    let _ = std::fs::remove_file(&file);
    let output = match output {
        Ok(output) if output.status.success() => output,
        other => {
            eprintln!("skipped: no aarch64-linux-gnu-objdump: {other:?}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    // `   c:	b.eq	0x4c  // b.none`
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    Some(
        lines
            .map(|(at, inst)| normalised(inst, i64::from_str_radix(at.trim(), 16).unwrap_or(-1)))
            .collect(),
    )
}

/// Without what the two write differently: spaces, comments, bases of numbers, braces, names of conditions and of what are
/// aliases, and whether a place is an address or a distance from `at`, where the instruction is.
fn normalised(text: &str, at: i64) -> String {
    let text = text.split("//").next().unwrap_or_default().trim();
    let (name, operands) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let (name, operands) = match (name, operands.trim()) {
        ("b.cc", place) => ("b.lo", place.into()),
        ("b.cs", place) => ("b.hs", place.into()),
        ("bti", "c") => ("hint", "#0x22".into()),
        ("dup", lane) if lane.ends_with(']') => ("mov", lane.into()),
        ("uxtl", vectors) => ("ushll", format!("{vectors}, #0")),
        ("uxtl2", vectors) => ("ushll2", format!("{vectors}, #0")),
        (name, operands) => (name, operands.to_owned()),
    };
    let operands = operands.split(',').map(|operand| {
        let operand = operand.trim();
        let number = |digits: &str| match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => digits.parse().ok(),
        };
        let digits = operand.trim_start_matches("lsl ").trim_start_matches('#');
        match (operand, number(digits.trim_end_matches(']'))) {
            ("cc", _) => "lo".into(),
            ("cs", _) => "hs".into(),
            (_, Some(address)) if operand.starts_with("0x") => format!("$+{}", address as i64 - at),
            (_, Some(number)) => operand.replace(digits.trim_end_matches(']'), &number.to_string()),
            _ => match operand.strip_prefix("$+").and_then(number) {
                Some(distance) => format!("$+{distance}"),
                None => operand.replace(['{', '}', ' '], ""),
            },
        }
    });
    let operands: Vec<String> = operands.collect();
    format!("{name} {}", operands.join(", "))
}

#[test]
fn no_form_is_without_a_sample() {
    let names: BTreeSet<String> = samples()
        .iter()
        .map(|(inst, _)| {
            let name = format!("{inst:?}");
            name.split([' ', '{']).next().unwrap_or_default().to_owned()
        })
        .collect();
    let all: BTreeSet<String> = Inst::FORMS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(names, all);
}
