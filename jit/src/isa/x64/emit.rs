//! One machine instruction to its opcode and operands; `encode` makes bytes of them, and `evex` has the opcodes of AVX-512.
//!
//! The tests decode every form with another crate and compare it with what was meant, and with the shortest form there is.

#[cfg(test)]
mod tests;

use dynasmrt::{DynamicLabel, DynasmApi};

use super::abi::RAX;
pub(super) use super::encode::Buffer;
use super::encode::Length::{L128, L256};
use super::encode::{NONE, Op, Rm, digit, in_opcode, jump, op};
use super::evex;
use super::inst::{Alu, Cond, Inst, Narrow, Piece, Reg, Scan, Shift, Size, Source, Vector, Width};

/// Appends `inst`, whose registers are all physical and whose labels `labels` resolves.
pub(super) fn emit(b: &mut Buffer, inst: &Inst, labels: &[DynamicLabel]) {
    match *inst {
        Inst::Endbr => b.assembler.extend([0xf3, 0x0f, 0x1e, 0xfa]),
        Inst::Vzeroupper => b.assembler.extend([0xc5, 0xf8, 0x77]),
        Inst::Ret => b.assembler.push(0xc3),
        Inst::Jump { to } => jump(b, &[0xe9], labels[to.0 as usize]),
        Inst::JumpIf { cond, to } => {
            jump(b, &[0x0f, 0x80 | condition(cond)], labels[to.0 as usize]);
        }

        Inst::Zero { dst } => op(0x33, dst, dst).legacy(b),
        Inst::MovImm { dst, imm } => mov_immediate(b, dst, imm),
        Inst::TableAddress { dst, table } => {
            in_opcode(b, 0xb8, Size::S64, dst);
            b.assembler.extend([0; 8]);
            b.relocate(table);
        }
        Inst::Mov { dst, src, size } => op(0x8b, dst, src).size(size).legacy(b),
        Inst::Xchg { a: RAX, b: reg } | Inst::Xchg { a: reg, b: RAX } => {
            in_opcode(b, 0x90, Size::S64, reg);
        }
        Inst::Xchg { a, b: second } => op(0x87, a, second).size(Size::S64).legacy(b),
        Inst::Lea { dst, address } => op(0x8d, dst, address).size(Size::S64).legacy(b),
        Inst::Load {
            dst,
            address,
            width,
        } => match width {
            Width::B1 => op(0x0f_b6, dst, address).legacy(b),
            Width::B2 => op(0x0f_b7, dst, address).legacy(b),
            Width::B4 => op(0x8b, dst, address).legacy(b),
            Width::B8 => op(0x8b, dst, address).size(Size::S64).legacy(b),
        },
        Inst::LoadSwapped { dst, address, size } => {
            op(0x0f_38_f0, dst, address).size(size).legacy(b);
        }
        Inst::Store { address, src } => op(0x89, src, address).legacy(b),
        Inst::Prefetch { address } => op(0x0f_18, digit(1), address).legacy(b),
        Inst::OrMemory { address, src } => match src {
            Source::Reg(src) => op(0x09, src, address).legacy(b),
            Source::Imm(imm) => op(0x81, digit(1), address).immediate(0x83, imm).legacy(b),
            // No instruction has two operands in memory.
            Source::Mem(_) => {}
        },
        // 64 bits without W.
        Inst::Push { reg } => in_opcode(b, 0x50, Size::S32, reg),
        Inst::Pop { reg } => in_opcode(b, 0x58, Size::S32, reg),
        Inst::Bswap { dst, size } => in_opcode(b, 0x0f_c8, size, dst),
        Inst::SwapLowBytes { dst } => op(0x66_00_00_c1, digit(0), dst).byte(8).legacy(b),

        Inst::Alu {
            op: operation,
            size,
            dst,
            src,
        } => {
            let number = match operation {
                Alu::Add => 0,
                Alu::Or => 1,
                Alu::And => 4,
                Alu::Sub => 5,
                Alu::Xor => 6,
            };
            alu(b, number, size, dst, src);
        }
        Inst::Cmp { size, a, b: second } => alu(b, 7, size, a, second),
        Inst::TestSelf { size, a } => op(0x85, a, a).size(size).legacy(b),
        Inst::Dec { dst } => op(0xff, digit(1), dst).size(Size::S64).legacy(b),
        Inst::Shift {
            op: operation,
            size,
            dst,
            by,
        } => {
            let digit = match operation {
                Shift::Left => digit(4),
                Shift::Right => digit(5),
            };
            let op = match by {
                1 => op(0xd1, digit, dst),
                by => op(0xc1, digit, dst).byte(by),
            };
            op.size(size).legacy(b);
        }
        Inst::Mul { size, dst, src } => op(0x0f_af, dst, src).size(size).legacy(b),
        Inst::MulImm {
            size,
            dst,
            src,
            imm,
        } => {
            let op = op(0x69, dst, src).immediate(0x6b, imm);
            op.size(size).legacy(b);
        }
        Inst::Pext {
            size,
            dst,
            src,
            mask,
        } => op(0xf3_0f_38_f5, dst, mask).size(size).vex(b, L128, src),
        Inst::ClearLowestBit { size, dst, src } => {
            op(0x0f_38_f3, digit(1), src).size(size).vex(b, L128, dst);
        }
        Inst::Scan {
            op: operation,
            size,
            dst,
            src,
        } => {
            let opcode = match operation {
                Scan::Tzcnt => 0xf3_00_0f_bc,
                Scan::Bsf => 0x0f_bc,
            };
            op(opcode, dst, src).size(size).legacy(b);
        }
        Inst::Cmov {
            cond,
            size,
            dst,
            src,
        } => {
            let opcode = 0x0f_40 | u32::from(condition(cond));
            op(opcode, dst, src).size(size).legacy(b);
        }
        Inst::Set { cond, dst } => {
            let opcode = 0x0f_90 | u32::from(condition(cond));
            op(opcode, digit(0), Rm::LowByte(dst)).legacy(b);
        }
        Inst::ZeroExtendByte { dst } => op(0x0f_b6, dst, Rm::LowByte(dst)).legacy(b),

        // The source as `reg`: its high bit fits the short prefix, and that of `rm` does not.
        Inst::VectorMov { dst, src } if src.encoding() >= 8 => {
            op(0x66_00_0f_7f, src, dst).vex(b, L256, NONE);
        }
        Inst::VectorMov { dst, src } => op(0x66_00_0f_6f, dst, src).vex(b, L256, NONE),
        Inst::VectorLoad { dst, address } => op(0xf3_00_0f_6f, dst, address).vex(b, L256, NONE),
        Inst::WidenLoad {
            dst,
            address,
            narrow,
        } => {
            let opcode = match narrow {
                Narrow::B1 => 0x66_0f_38_31,
                Narrow::B2 => 0x66_0f_38_33,
            };
            op(opcode, dst, address).vex(b, L256, NONE);
        }
        Inst::VectorStore { address, src } => op(0xf3_00_0f_7f, src, address).vex(b, L256, NONE),
        Inst::VectorZero { dst } => op(0x66_00_0f_ef, dst, dst).vex(b, L128, dst),
        Inst::Broadcast { dst, src } => op(0x66_0f_38_58, dst, src).vex(b, L256, NONE),
        Inst::BroadcastLoad {
            dst,
            address,
            piece,
        } => {
            let opcode = match piece {
                Piece::B1 => 0x66_0f_38_78,
                Piece::B2 => 0x66_0f_38_79,
                Piece::B4 => 0x66_0f_38_58,
            };
            op(opcode, dst, address).vex(b, L256, NONE);
        }
        Inst::Vector {
            op: operation,
            dst,
            a,
            b: second,
        } => {
            let opcode = match operation {
                Vector::And => 0x66_00_0f_db,
                Vector::AndNot => 0x66_00_0f_df,
                Vector::Or => 0x66_00_0f_eb,
                Vector::Xor => 0x66_00_0f_ef,
                Vector::SubD => 0x66_00_0f_fa,
                Vector::SubW => 0x66_00_0f_f9,
                Vector::MinUD => 0x66_0f_38_3b,
                Vector::MinUW => 0x66_0f_38_3a,
                Vector::CmpEqD => 0x66_00_0f_76,
                Vector::ShufB => 0x66_0f_38_00,
            };
            op(opcode, dst, second).vex(b, L256, a);
        }
        Inst::ToVector { dst, src } => op(0x66_00_0f_6e, dst, src).vex(b, L128, NONE),
        Inst::ToScalar { dst, src } => op(0x66_00_0f_7e, src, dst).vex(b, L128, NONE),
        Inst::LaneBits { dst, src } => op(0x0f_50, dst, src).vex(b, L256, NONE),
        Inst::UpperHalf { dst, src } => op(0x66_0f_3a_39, src, dst).byte(1).vex(b, L256, NONE),
        Inst::Shuffle128 { dst, src, imm } => {
            op(0x66_00_0f_70, dst, src).byte(imm).vex(b, L128, NONE);
        }
        Inst::Min128 { dst, a, b: second } => op(0x66_0f_38_3b, dst, second).vex(b, L128, a),
        Inst::Avx512 { inst } => evex::emit(b, &inst),
    }
}

/// The low four bits of an opcode that has a condition.
fn condition(cond: Cond) -> u8 {
    match cond {
        Cond::Below => 2,
        Cond::AboveOrEqual => 3,
        Cond::Equal => 4,
        Cond::NotEqual => 5,
        Cond::BelowOrEqual => 6,
        Cond::Above => 7,
    }
}

fn mov_immediate(b: &mut Buffer, dst: Reg, imm: u64) {
    if let Ok(imm) = u32::try_from(imm) {
        in_opcode(b, 0xb8, Size::S32, dst);
        b.assembler.extend(imm.to_le_bytes());
    } else if let Ok(imm) = i32::try_from(imm.cast_signed()) {
        op(0xc7, digit(0), dst).size(Size::S64).dword(imm).legacy(b);
    } else {
        in_opcode(b, 0xb8, Size::S64, dst);
        b.assembler.extend(imm.to_le_bytes());
    }
}

/// One of the eight operations that differ in three bits of the opcode, or in its digit.
fn alu(b: &mut Buffer, number: u8, size: Size, a: Reg, second: Source) {
    let opcode = u32::from(number) << 3;
    let op: Op = match second {
        Source::Reg(reg) => op(opcode | 0x03, a, reg),
        Source::Mem(address) => op(opcode | 0x03, a, address),
        // rax has a form without ModRM.
        Source::Imm(imm) if a == RAX && i8::try_from(imm).is_err() => {
            in_opcode(b, opcode | 0x05, size, RAX);
            b.assembler.extend(imm.to_le_bytes());
            return;
        }
        Source::Imm(imm) => op(0x81, digit(number), a).immediate(0x83, imm),
    };
    op.size(size).legacy(b);
}
