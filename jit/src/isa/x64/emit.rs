//! One machine instruction to bytes: the only file beside `evex` that knows encodings.
//!
//! dynasm 5.1 encodes several AVX instructions wrongly or not at all (immediate blends and shifts, `vmovmskps`,
//! `vbroadcastss ymm, m32`). What is used here was chosen around them; what dynasm lacks is written by hand; and the tests
//! decode every form with another crate and compare it with what was meant.

#![expect(
    clippy::useless_conversion,
    reason = "`dynasm!` converts register numbers to u8, which ours are"
)]

#[cfg(test)]
mod tests;

use dynasmrt::x64::X64Relocation;
use dynasmrt::{AssemblyOffset, DynamicLabel, DynasmApi, DynasmLabelApi, dynasm};

use super::evex;
use super::inst::{
    Address, Alu, Cond, Inst, Narrow, Piece, Scale, Scan, Shift, Size, Source, Vector,
    VectorSource, Width,
};
use crate::code_buffer::CodeBuffer;

/// The code of one compilation.
pub(super) type Buffer = CodeBuffer<X64Relocation>;

macro_rules! asm {
    ($buffer:ident; $($code:tt)*) => { dynasm!($buffer.assembler ; .arch x64 ; $($code)*) };
}

/// `op a, b` or `op a, b, c` on general registers of either size.
macro_rules! sized {
    ($buffer:ident, $size:expr; $op:ident $a:expr, $b:expr) => {
        match $size {
            Size::S32 => asm!($buffer; $op Rd($a), Rd($b)),
            Size::S64 => asm!($buffer; $op Rq($a), Rq($b)),
        }
    };
    ($buffer:ident, $size:expr; $op:ident $a:expr, $b:expr, $c:expr) => {
        match $size {
            Size::S32 => asm!($buffer; $op Rd($a), Rd($b), Rd($c)),
            Size::S64 => asm!($buffer; $op Rq($a), Rq($b), Rq($c)),
        }
    };
}

/// `op a, imm`: the short form where the immediate fits a byte.
macro_rules! immediate {
    ($buffer:ident, $size:expr; $op:ident $a:expr, $imm:expr) => {
        match ($size, i8::try_from($imm)) {
            (Size::S32, Ok(imm)) => asm!($buffer; $op Rd($a), BYTE imm),
            (Size::S64, Ok(imm)) => asm!($buffer; $op Rq($a), BYTE imm),
            (Size::S32, Err(_)) => asm!($buffer; $op Rd($a), DWORD $imm),
            (Size::S64, Err(_)) => asm!($buffer; $op Rq($a), DWORD $imm),
        }
    };
}

/// An instruction with an operand in memory: `before` is all that comes ahead of the brackets, what is behind them stands in
/// braces. The displacement is one byte where it fits.
macro_rules! memory {
    ($buffer:ident, $address:expr; $($before:tt)*) => {
        memory!($buffer, $address, {}; $($before)*)
    };
    ($buffer:ident, $address:expr, { $($after:tt)* }; $($before:tt)*) => {
        match $address {
            Address::Base { base, disp } => {
                let base = base.encoding();
                match i8::try_from(disp) {
                    Ok(disp) => asm!($buffer; $($before)* [BYTE Rq(base) + disp] $($after)*),
                    Err(_) => asm!($buffer; $($before)* [DWORD Rq(base) + disp] $($after)*),
                }
            }
            Address::Indexed { base, index, scale, disp } => {
                let (base, index) = (base.encoding(), index.encoding());
                match scale {
                    Scale::X1 => {
                        asm!($buffer; $($before)* [DWORD Rq(base) + Rq(index) * 1 + disp] $($after)*)
                    }
                    Scale::X2 => {
                        asm!($buffer; $($before)* [DWORD Rq(base) + Rq(index) * 2 + disp] $($after)*)
                    }
                    Scale::X4 => {
                        asm!($buffer; $($before)* [DWORD Rq(base) + Rq(index) * 4 + disp] $($after)*)
                    }
                    Scale::X8 => {
                        asm!($buffer; $($before)* [DWORD Rq(base) + Rq(index) * 8 + disp] $($after)*)
                    }
                }
            }
            Address::Pool { offset } => {
                let pool = $buffer.pool;
                asm!($buffer; $($before)* [=>(pool) + offset as isize] $($after)*)
            }
        }
    };
}

/// `op a, [address]` on general registers of either size.
macro_rules! sized_memory {
    ($buffer:ident, $size:expr, $address:expr; $op:ident $a:expr) => {
        match $size {
            Size::S32 => memory!($buffer, $address; $op Rd($a), DWORD),
            Size::S64 => memory!($buffer, $address; $op Rq($a), QWORD),
        }
    };
}

/// Appends `inst`, whose registers are all physical and whose labels `labels` resolves.
pub(super) fn emit(b: &mut Buffer, inst: &Inst, labels: &[DynamicLabel]) {
    match *inst {
        Inst::Endbr => b.assembler.extend([0xf3, 0x0f, 0x1e, 0xfa]),
        Inst::Vzeroupper => asm!(b; vzeroupper),
        Inst::Ret => asm!(b; ret),
        Inst::Jump { to } => jump(b, labels[to.0 as usize]),
        Inst::JumpIf { cond, to } => jump_if(b, cond, labels[to.0 as usize]),

        Inst::Zero { dst } => {
            let dst = dst.encoding();
            asm!(b; xor Rd(dst), Rd(dst));
        }
        Inst::MovImm { dst, imm } => match u32::try_from(imm) {
            Ok(imm) => asm!(b; mov Rd(dst.encoding()), DWORD imm.cast_signed()),
            Err(_) => asm!(b; mov Rq(dst.encoding()), QWORD imm.cast_signed()),
        },
        Inst::TableAddress { dst, table } => {
            asm!(b; mov Rq(dst.encoding()), QWORD 0i64);
            b.relocate(table);
        }
        Inst::Mov { dst, src, size } => sized!(b, size; mov dst.encoding(), src.encoding()),
        Inst::Xchg { a, b: second } => asm!(b; xchg Rq(a.encoding()), Rq(second.encoding())),
        Inst::Lea { dst, address } => {
            let dst = dst.encoding();
            memory!(b, address; lea Rq(dst),);
        }
        Inst::Load {
            dst,
            address,
            width,
        } => load(b, dst.encoding(), address, width),
        Inst::LoadSwapped { dst, address, size } => {
            let dst = dst.encoding();
            sized_memory!(b, size, address; movbe dst)
        }
        Inst::Store { address, src } => {
            let src = src.encoding();
            memory!(b, address, { , Rd(src) }; mov DWORD);
        }
        Inst::Prefetch { address } => memory!(b, address; prefetcht0),
        Inst::OrMemory { address, src } => or_memory(b, address, src),
        Inst::Push { reg } => asm!(b; push Rq(reg.encoding())),
        Inst::Pop { reg } => asm!(b; pop Rq(reg.encoding())),
        Inst::Bswap { dst, size } => match size {
            Size::S32 => asm!(b; bswap Rd(dst.encoding())),
            Size::S64 => asm!(b; bswap Rq(dst.encoding())),
        },
        Inst::SwapLowBytes { dst } => asm!(b; rol Rw(dst.encoding()), BYTE 8),

        Inst::Alu { op, size, dst, src } => alu(b, op, size, dst.encoding(), src),
        Inst::Cmp {
            size,
            a,
            b: Source::Reg(second),
        } => sized!(b, size; cmp a.encoding(), second.encoding()),
        Inst::Cmp {
            size,
            a,
            b: Source::Imm(imm),
        } => cmp(b, size, a.encoding(), imm),
        Inst::Cmp {
            size,
            a,
            b: Source::Mem(address),
        } => {
            let a = a.encoding();
            sized_memory!(b, size, address; cmp a)
        }
        Inst::TestSelf { size, a } => sized!(b, size; test a.encoding(), a.encoding()),
        Inst::Dec { dst } => asm!(b; dec Rq(dst.encoding())),
        Inst::Shift { op, size, dst, by } => shift(b, op, size, dst.encoding(), by.cast_signed()),
        Inst::Mul { size, dst, src } => sized!(b, size; imul dst.encoding(), src.encoding()),
        Inst::MulImm {
            size,
            dst,
            src,
            imm,
        } => {
            let (dst, src) = (dst.encoding(), src.encoding());
            match size {
                Size::S32 => asm!(b; imul Rd(dst), Rd(src), DWORD imm),
                Size::S64 => asm!(b; imul Rq(dst), Rq(src), DWORD imm),
            }
        }
        Inst::MulHighX { dst, src } => {
            let dst = dst.encoding();
            asm!(b; mulx Rq(dst), Rq(dst), Rq(src.encoding()));
        }
        Inst::MulHigh { src } => asm!(b; mul Rq(src.encoding())),
        Inst::Pext {
            size,
            dst,
            src,
            mask,
        } => sized!(b, size; pext dst.encoding(), src.encoding(), mask.encoding()),
        Inst::ClearLowestBit { size, dst, src } => {
            sized!(b, size; blsr dst.encoding(), src.encoding())
        }
        Inst::Scan { op, size, dst, src } => {
            let (dst, src) = (dst.encoding(), src.encoding());
            match op {
                Scan::Tzcnt => sized!(b, size; tzcnt dst, src),
                Scan::Bsf => sized!(b, size; bsf dst, src),
            }
        }
        Inst::Cmov {
            cond,
            size,
            dst,
            src,
        } => cmov(b, cond, size, dst.encoding(), src.encoding()),
        Inst::Set { cond, dst } => set(b, cond, dst.encoding()),
        Inst::ZeroExtendByte { dst } => {
            let dst = dst.encoding();
            asm!(b; movzx Rd(dst), Rb(dst));
        }

        Inst::VectorMov { dst, src } => asm!(b; vmovdqa Ry(dst.encoding()), Ry(src.encoding())),
        Inst::VectorLoad { dst, address } => {
            let dst = dst.encoding();
            memory!(b, address; vmovdqu Ry(dst),);
        }
        Inst::WidenLoad {
            dst,
            address,
            narrow,
        } => widen_load(b, dst.encoding(), address, narrow),
        Inst::VectorStore { address, src } => {
            let src = src.encoding();
            memory!(b, address, { , Ry(src) }; vmovdqu);
        }
        Inst::VectorZero { dst } => {
            let dst = dst.encoding();
            asm!(b; vpxor Rx(dst), Rx(dst), Rx(dst));
        }
        Inst::Broadcast { dst, src } => {
            asm!(b; vpbroadcastd Ry(dst.encoding()), Rx(src.encoding()));
        }
        Inst::BroadcastLoad {
            dst,
            address,
            piece,
        } => broadcast(b, dst.encoding(), address, piece),
        Inst::Vector {
            op,
            dst,
            a,
            b: second,
        } => vector(b, op, dst.encoding(), a.encoding(), second),
        Inst::ToVector { dst, src } => asm!(b; vmovd Rx(dst.encoding()), Rd(src.encoding())),
        Inst::ToScalar { dst, src } => asm!(b; vmovd Rd(dst.encoding()), Rx(src.encoding())),
        Inst::LaneBits { dst, src } => lane_bits(b, dst.encoding(), src.encoding()),
        Inst::UpperHalf { dst, src } => {
            asm!(b; vextracti128 Rx(dst.encoding()), Ry(src.encoding()), BYTE 1);
        }
        Inst::Shuffle128 { dst, src, imm } => {
            asm!(b; vpshufd Rx(dst.encoding()), Rx(src.encoding()), BYTE imm.cast_signed());
        }
        Inst::Min128 { dst, a, b: second } => {
            asm!(b; vpminud Rx(dst.encoding()), Rx(a.encoding()), Rx(second.encoding()));
        }
        Inst::Avx512 { inst } => evex::emit(b, &inst),
    }
}

fn jump(b: &mut Buffer, to: DynamicLabel) {
    asm!(b; jmp =>to);
}

fn jump_if(b: &mut Buffer, cond: Cond, to: DynamicLabel) {
    match cond {
        Cond::Equal => asm!(b; je =>to),
        Cond::NotEqual => asm!(b; jne =>to),
        Cond::Below => asm!(b; jb =>to),
        Cond::BelowOrEqual => asm!(b; jbe =>to),
        Cond::Above => asm!(b; ja =>to),
        Cond::AboveOrEqual => asm!(b; jae =>to),
    }
}

fn cmov(b: &mut Buffer, cond: Cond, size: Size, dst: u8, src: u8) {
    match cond {
        Cond::Equal => sized!(b, size; cmove dst, src),
        Cond::NotEqual => sized!(b, size; cmovne dst, src),
        Cond::Below => sized!(b, size; cmovb dst, src),
        Cond::BelowOrEqual => sized!(b, size; cmovbe dst, src),
        Cond::Above => sized!(b, size; cmova dst, src),
        Cond::AboveOrEqual => sized!(b, size; cmovae dst, src),
    }
}

fn set(b: &mut Buffer, cond: Cond, dst: u8) {
    match cond {
        Cond::Equal => asm!(b; sete Rb(dst)),
        Cond::NotEqual => asm!(b; setne Rb(dst)),
        Cond::Below => asm!(b; setb Rb(dst)),
        Cond::BelowOrEqual => asm!(b; setbe Rb(dst)),
        Cond::Above => asm!(b; seta Rb(dst)),
        Cond::AboveOrEqual => asm!(b; setae Rb(dst)),
    }
}

fn load(b: &mut Buffer, dst: u8, address: Address, width: Width) {
    match width {
        Width::B1 => memory!(b, address; movzx Rd(dst), BYTE),
        Width::B2 => memory!(b, address; movzx Rd(dst), WORD),
        Width::B4 => memory!(b, address; mov Rd(dst), DWORD),
        Width::B8 => memory!(b, address; mov Rq(dst), QWORD),
    }
}

fn alu(b: &mut Buffer, op: Alu, size: Size, dst: u8, src: Source) {
    match src {
        Source::Reg(src) => {
            let src = src.encoding();
            match op {
                Alu::Add => sized!(b, size; add dst, src),
                Alu::Sub => sized!(b, size; sub dst, src),
                Alu::And => sized!(b, size; and dst, src),
                Alu::Or => sized!(b, size; or dst, src),
                Alu::Xor => sized!(b, size; xor dst, src),
            }
        }
        Source::Imm(imm) => match op {
            Alu::Add => immediate!(b, size; add dst, imm),
            Alu::Sub => immediate!(b, size; sub dst, imm),
            Alu::And => immediate!(b, size; and dst, imm),
            Alu::Or => immediate!(b, size; or dst, imm),
            Alu::Xor => immediate!(b, size; xor dst, imm),
        },
        Source::Mem(address) => match op {
            Alu::Add => sized_memory!(b, size, address; add dst),
            Alu::Sub => sized_memory!(b, size, address; sub dst),
            Alu::And => sized_memory!(b, size, address; and dst),
            Alu::Or => sized_memory!(b, size, address; or dst),
            Alu::Xor => sized_memory!(b, size, address; xor dst),
        },
    }
}

fn or_memory(b: &mut Buffer, address: Address, src: Source) {
    match src {
        Source::Reg(src) => {
            let src = src.encoding();
            memory!(b, address, { , Rd(src) }; or DWORD);
        }
        Source::Imm(imm) => memory!(b, address, { , DWORD imm }; or DWORD),
        // No instruction has two operands in memory.
        Source::Mem(_) => {}
    }
}

/// dynasm has no form of `cmp` with a one-byte immediate (`83 /7 ib`) but in memory.
fn cmp(b: &mut Buffer, size: Size, a: u8, imm: i32) {
    match (size, i8::try_from(imm)) {
        (_, Ok(imm)) => {
            let rex = 0x40 | u8::from(size == Size::S64) << 3 | a >> 3;
            if rex != 0x40 {
                b.assembler.push(rex);
            }
            let modrm = 0b11 << 6 | 7 << 3 | a & 7;
            b.assembler.extend([0x83, modrm, imm.cast_unsigned()]);
        }
        (Size::S32, Err(_)) => asm!(b; cmp Rd(a), DWORD imm),
        (Size::S64, Err(_)) => asm!(b; cmp Rq(a), DWORD imm),
    }
}

fn shift(b: &mut Buffer, op: Shift, size: Size, dst: u8, by: i8) {
    match (op, size) {
        (Shift::Left, Size::S32) => asm!(b; shl Rd(dst), BYTE by),
        (Shift::Left, Size::S64) => asm!(b; shl Rq(dst), BYTE by),
        (Shift::Right, Size::S32) => asm!(b; shr Rd(dst), BYTE by),
        (Shift::Right, Size::S64) => asm!(b; shr Rq(dst), BYTE by),
    }
}

fn broadcast(b: &mut Buffer, dst: u8, address: Address, piece: Piece) {
    match piece {
        Piece::B1 => memory!(b, address; vpbroadcastb Ry(dst), BYTE),
        Piece::B2 => memory!(b, address; vpbroadcastw Ry(dst), WORD),
        Piece::B4 => memory!(b, address; vpbroadcastd Ry(dst), DWORD),
    }
}

fn widen_load(b: &mut Buffer, dst: u8, address: Address, narrow: Narrow) {
    let start = b.assembler.offset();
    memory!(b, address; vpmovzxwd Ry(dst), OWORD);
    if narrow == Narrow::B1 {
        // dynasm refuses `vpmovzxbd ymm, m64`, which differs in the opcode alone: the byte after VEX of three.
        let mut bytes = b.assembler.alter();
        bytes.goto(AssemblyOffset(start.0 + 3));
        bytes.push(0x31);
    }
}

fn vector(b: &mut Buffer, op: Vector, dst: u8, a: u8, second: VectorSource) {
    macro_rules! either {
        ($op:ident) => {
            match second {
                VectorSource::Reg(second) => {
                    asm!(b; $op Ry(dst), Ry(a), Ry(second.encoding()))
                }
                VectorSource::Mem(address) => memory!(b, address; $op Ry(dst), Ry(a),),
            }
        };
    }
    match op {
        Vector::And => either!(vpand),
        Vector::AndNot => either!(vpandn),
        Vector::Or => either!(vpor),
        Vector::Xor => either!(vpxor),
        Vector::SubD => either!(vpsubd),
        Vector::MinUD => either!(vpminud),
        Vector::CmpEqD => either!(vpcmpeqd),
        Vector::ShufB => either!(vpshufb),
    }
}

/// `vmovmskps r32, ymm`, which dynasm refuses: VEX.256.0F.WIG 50 /r, the two register numbers split into an inverted high
/// bit in the prefix and three low bits in ModRM.
fn lane_bits(b: &mut Buffer, dst: u8, src: u8) {
    let high = u8::from(dst < 8) << 7 | 1 << 6 | u8::from(src < 8) << 5;
    let modrm = 0b11 << 6 | (dst & 7) << 3 | src & 7;
    b.assembler
        .extend([0xc4, high | 0b0_0001, 0b0111_1100, 0x50, modrm]);
}
