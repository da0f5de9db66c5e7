//! One machine instruction to its four bytes, by dynasmrt.
//!
//! It panics where an immediate does not fit; so none is made here, and `lower` makes only what `immediate` has agreed to.
//! The tests decode every form with another crate and compare it with what was meant.
#![allow(
    clippy::useless_conversion,
    clippy::modulo_one,
    reason = "`dynasm!` converts each register, and every offset is a multiple of one byte"
)]

#[cfg(test)]
mod tests;

use dynasmrt::aarch64::Aarch64Relocation;
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, dynasm};

use super::inst::{
    Address, Alu, Cond, Inst, Narrow, Operand, Reduce, Reg, Shift, Size, Swap, Vector, VectorWidth,
    Widen, Width,
};
use crate::code_buffer::CodeBuffer;

/// Code of AArch64.
pub(super) type Buffer = CodeBuffer<Aarch64Relocation>;

/// One instruction.
macro_rules! one {
    ($b:ident, $($inst:tt)*) => { dynasm!($b.assembler ; .arch aarch64 ; $($inst)*) };
}

/// A load or store of one register of `1 << log2` bytes, at either form of address.
macro_rules! access {
    ($b:ident, $address:expr, $log2:tt, $scaled:ident $unscaled:ident $($reg:tt)*) => {
        match $address {
            Address::Base { base, disp } if disp % (1 << $log2) == 0 => {
                one!($b, $scaled $($reg)*, [XSP(base.encoding()), disp])
            }
            Address::Base { base, disp } => {
                one!($b, $unscaled $($reg)*, [XSP(base.encoding()), disp.cast_signed()])
            }
            Address::Indexed { base, index, shift: 0 } => {
                one!($b, $scaled $($reg)*, [XSP(base.encoding()), X(index.encoding())])
            }
            Address::Indexed { base, index, .. } => {
                one!($b, $scaled $($reg)*, [XSP(base.encoding()), X(index.encoding()), lsl $log2])
            }
        }
    };
}

/// One of two forms, by size.
macro_rules! sized {
    ($b:ident, $size:expr, [$($narrow:tt)*] [$($wide:tt)*]) => {
        match $size {
            Size::S32 => one!($b, $($narrow)*),
            Size::S64 => one!($b, $($wide)*),
        }
    };
}

/// A branch, by its condition.
macro_rules! conditional {
    ($b:ident, $cond:expr, $to:expr) => {
        match $cond {
            Cond::Equal => one!($b, b.eq =>$to),
            Cond::NotEqual => one!($b, b.ne =>$to),
            Cond::Below => one!($b, b.lo =>$to),
            Cond::BelowOrEqual => one!($b, b.ls =>$to),
            Cond::Above => one!($b, b.hi =>$to),
            Cond::AboveOrEqual => one!($b, b.hs =>$to),
        }
    };
}

/// `bti c` is a hint, which dynasmrt has no name for.
const BTI_C: u32 = 34;
/// `pldl1keep`
const PREFETCH_FIRST_LEVEL: u32 = 0;

/// Appends `inst`, whose registers are all physical and whose labels `labels` resolves.
pub(super) fn emit(b: &mut Buffer, inst: &Inst, labels: &[DynamicLabel]) {
    let pool = b.pool;
    let n = |reg: Reg| reg.encoding();
    match *inst {
        Inst::Bti => one!(b, hint BTI_C),
        Inst::Ret => one!(b, ret),
        Inst::Jump { to } => one!(b, b =>labels[to.0 as usize]),
        Inst::JumpIf { cond, to } => conditional!(b, cond, labels[to.0 as usize]),
        Inst::JumpIfZero {
            size,
            a,
            is_zero,
            to,
        } => {
            let to = labels[to.0 as usize];
            match is_zero {
                true => sized!(b, size, [cbz W(n(a)), =>to] [cbz X(n(a)), =>to]),
                false => sized!(b, size, [cbnz W(n(a)), =>to] [cbnz X(n(a)), =>to]),
            }
        }

        Inst::MovZ { dst, imm, shift } => {
            one!(b, movz X(n(dst)), u32::from(imm), lsl u32::from(shift));
        }
        Inst::MovN {
            size,
            dst,
            imm,
            shift,
        } => {
            let (imm, shift) = (u32::from(imm), u32::from(shift));
            sized!(b, size, [movn W(n(dst)), imm, lsl shift] [movn X(n(dst)), imm, lsl shift]);
        }
        Inst::MovK { dst, imm, shift } => {
            one!(b, movk X(n(dst)), u32::from(imm), lsl u32::from(shift));
        }
        Inst::MovMask { size, dst, imm } => {
            sized!(b, size, [orr WSP(n(dst)), wzr, imm as u32] [orr XSP(n(dst)), xzr, imm]);
        }
        Inst::Mov { size, dst, src } => {
            sized!(b, size, [mov W(n(dst)), W(n(src))] [mov X(n(dst)), X(n(src))]);
        }
        Inst::PoolAddress { dst, offset } => one!(b, adr X(n(dst)), =>(pool) + offset as isize),
        Inst::TableAddress { dst, offset, .. } => {
            one!(b, ldr X(n(dst)), =>(pool) + offset as isize);
        }
        Inst::StackAddress { dst, disp } => one!(b, add XSP(n(dst)), sp, disp),
        Inst::Allocate { bytes } => match bytes >> 12 {
            0 => one!(b, sub sp, sp, bytes),
            pages => one!(b, sub sp, sp, pages, lsl 12),
        },
        Inst::Release { bytes } => match bytes >> 12 {
            0 => one!(b, add sp, sp, bytes),
            pages => one!(b, add sp, sp, pages, lsl 12),
        },
        Inst::TouchStack => one!(b, str xzr, [sp]),
        Inst::Load {
            dst,
            address,
            width,
        } => match width {
            Width::B1 => access!(b, address, 0, ldrb ldurb W(n(dst))),
            Width::B2 => access!(b, address, 1, ldrh ldurh W(n(dst))),
            Width::B4 => access!(b, address, 2, ldr ldur W(n(dst))),
            Width::B8 => access!(b, address, 3, ldr ldur X(n(dst))),
        },
        Inst::Store { address, src } => access!(b, address, 2, str stur W(n(src))),
        Inst::StoreAndAdvance { base, src } => one!(b, str W(n(src)), [XSP(n(base))], 4),
        Inst::LoadAndAdvance { dst, base } => one!(b, ldr X(n(dst)), [XSP(n(base))], 8),
        Inst::Prefetch { base, disp } => {
            one!(b, prfum PREFETCH_FIRST_LEVEL, [XSP(n(base)), disp.cast_signed()]);
        }
        Inst::Reverse { size, dst, src } => {
            sized!(b, size, [rev W(n(dst)), W(n(src))] [rev X(n(dst)), X(n(src))]);
        }
        Inst::Reverse16 { dst, src } => one!(b, rev16 W(n(dst)), W(n(src))),

        Inst::Alu {
            op,
            size,
            dst,
            a,
            b: second,
        } => alu(b, op, size, (n(dst), n(a)), second),
        Inst::Cmp { size, a, b: second } => match second {
            Operand::Reg(c) => sized!(b, size, [cmp W(n(a)), W(n(c))] [cmp X(n(a)), X(n(c))]),
            Operand::Shifted(c, by) => {
                let by = u32::from(by);
                sized!(b, size, [cmp W(n(a)), W(n(c)), lsl by] [cmp X(n(a)), X(n(c)), lsl by]);
            }
            Operand::Imm(imm) => match immediate(imm) {
                (imm, false) => sized!(b, size, [cmp WSP(n(a)), imm] [cmp XSP(n(a)), imm]),
                (imm, true) => {
                    sized!(b, size, [cmp WSP(n(a)), imm, lsl 12] [cmp XSP(n(a)), imm, lsl 12]);
                }
            },
        },
        Inst::Shift {
            op,
            size,
            dst,
            a,
            by,
        } => {
            let by = u32::from(by);
            match op {
                Shift::Left => {
                    sized!(b, size, [lsl W(n(dst)), W(n(a)), by] [lsl X(n(dst)), X(n(a)), by]);
                }
                Shift::Right => {
                    sized!(b, size, [lsr W(n(dst)), W(n(a)), by] [lsr X(n(dst)), X(n(a)), by]);
                }
            }
        }
        Inst::Extract {
            size,
            dst,
            a,
            first,
            len,
        } => {
            let (first, len) = (u32::from(first), u32::from(len));
            sized!(b, size, [ubfx W(n(dst)), W(n(a)), first, len] [ubfx X(n(dst)), X(n(a)), first, len]);
        }
        Inst::Insert {
            size,
            dst,
            a,
            first,
            len,
        } => {
            let (first, len) = (u32::from(first), u32::from(len));
            sized!(b, size, [bfi W(n(dst)), W(n(a)), first, len] [bfi X(n(dst)), X(n(a)), first, len]);
        }
        Inst::Mul { size, dst, a, b: c } => {
            sized!(b, size, [mul W(n(dst)), W(n(a)), W(n(c))] [mul X(n(dst)), X(n(a)), X(n(c))]);
        }
        Inst::MulAdd {
            dst,
            a,
            b: factor,
            c,
        } => one!(b, madd X(n(dst)), X(n(a)), X(n(factor)), X(n(c))),
        Inst::Select {
            cond,
            size,
            dst,
            a,
            b: c,
        } => select(b, cond, size, [dst, a, c].map(n)),
        Inst::Set { cond, dst } => match cond {
            Cond::Equal => one!(b, cset W(n(dst)), eq),
            Cond::NotEqual => one!(b, cset W(n(dst)), ne),
            Cond::Below => one!(b, cset W(n(dst)), lo),
            Cond::BelowOrEqual => one!(b, cset W(n(dst)), ls),
            Cond::Above => one!(b, cset W(n(dst)), hi),
            Cond::AboveOrEqual => one!(b, cset W(n(dst)), hs),
        },
        Inst::ReverseBits { size, dst, src } => {
            sized!(b, size, [rbit W(n(dst)), W(n(src))] [rbit X(n(dst)), X(n(src))]);
        }
        Inst::LeadingZeros { size, dst, src } => {
            sized!(b, size, [clz W(n(dst)), W(n(src))] [clz X(n(dst)), X(n(src))]);
        }

        Inst::VectorMov { dst, src } => one!(b, mov V(n(dst)).b16, V(n(src)).b16),
        Inst::VectorZero { dst } => one!(b, movi V(n(dst)).d2, 0),
        Inst::VectorConstant { dst, offset } => {
            one!(b, ldr Q(n(dst)), =>(pool) + offset as isize);
        }
        Inst::VectorLoad {
            dst,
            address,
            width,
        } => match width {
            VectorWidth::B1 => access!(b, address, 0, ldr ldur B(n(dst))),
            VectorWidth::B2 => access!(b, address, 1, ldr ldur H(n(dst))),
            VectorWidth::B4 => access!(b, address, 2, ldr ldur S(n(dst))),
            VectorWidth::B8 => access!(b, address, 3, ldr ldur D(n(dst))),
            VectorWidth::B16 => access!(b, address, 4, ldr ldur Q(n(dst))),
        },
        Inst::LoadPair {
            a,
            b: second,
            base,
            disp,
        } => one!(b, ldp Q(n(a)), Q(n(second)), [XSP(n(base)), disp.cast_signed()]),
        Inst::StorePair { src, base, disp } => {
            one!(b, stp Q(n(src)), Q(n(src)), [XSP(n(base)), disp.cast_signed()]);
        }
        Inst::StorePairOnStack { src, disp } => {
            one!(b, stp Q(n(src)), Q(n(src)), [sp, disp.cast_signed()]);
        }
        Inst::LoadEachLane { dst, base } => one!(b, ld1r {V(n(dst)).s4 * 1}, [XSP(n(base))]),
        Inst::SwapBytes { swap, dst, src } => match swap {
            Swap::In16 => one!(b, rev16 V(n(dst)).b16, V(n(src)).b16),
            Swap::In32 => one!(b, rev32 V(n(dst)).b16, V(n(src)).b16),
        },
        Inst::Broadcast { dst, src } => one!(b, dup V(n(dst)).s4, V(n(src)).s[0]),
        Inst::BroadcastScalar { dst, src } => one!(b, dup V(n(dst)).s4, W(n(src))),
        Inst::Vector {
            op,
            dst,
            a,
            b: second,
        } => vector(b, op, [dst, a, second].map(n)),
        Inst::EqualsZero { dst, src } => one!(b, cmeq V(n(dst)).s4, V(n(src)).s4, 0),
        Inst::Widen { op, dst, src } => match op {
            Widen::Low16 => one!(b, ushll V(n(dst)).s4, V(n(src)).h4, 0),
            Widen::High16 => one!(b, ushll2 V(n(dst)).s4, V(n(src)).h8, 0),
            Widen::Low8 => one!(b, ushll V(n(dst)).h8, V(n(src)).b8, 0),
        },
        Inst::Narrow { op, dst, src } => match op {
            Narrow::From16 => one!(b, xtn V(n(dst)).b8, V(n(src)).h8),
            Narrow::From32 => one!(b, xtn V(n(dst)).h4, V(n(src)).s4),
        },
        Inst::Reduce { op, dst, src } => match op {
            Reduce::Min32 => one!(b, uminv S(n(dst)), V(n(src)).s4),
            Reduce::Sum32 => one!(b, addv S(n(dst)), V(n(src)).s4),
            Reduce::Sum16 => one!(b, addv H(n(dst)), V(n(src)).h8),
        },
        Inst::ToScalar { size, dst, src } => {
            sized!(b, size, [fmov W(n(dst)), S(n(src))] [fmov X(n(dst)), D(n(src))]);
        }
    }
}

/// The 12 bits of an arithmetic immediate, and whether they are shifted left by 12.
fn immediate(imm: u64) -> (u32, bool) {
    match imm >> 12 {
        0 => (imm as u32, false),
        high => (high as u32, true),
    }
}

fn alu(b: &mut Buffer, op: Alu, size: Size, (d, a): (u8, u8), second: Operand) {
    match (op, second) {
        (Alu::Add, Operand::Imm(imm)) => match immediate(imm) {
            (imm, false) => sized!(b, size, [add WSP(d), WSP(a), imm] [add XSP(d), XSP(a), imm]),
            (imm, true) => {
                sized!(b, size, [add WSP(d), WSP(a), imm, lsl 12] [add XSP(d), XSP(a), imm, lsl 12]);
            }
        },
        (Alu::Sub, Operand::Imm(imm)) => match immediate(imm) {
            (imm, false) => sized!(b, size, [sub WSP(d), WSP(a), imm] [sub XSP(d), XSP(a), imm]),
            (imm, true) => {
                sized!(b, size, [sub WSP(d), WSP(a), imm, lsl 12] [sub XSP(d), XSP(a), imm, lsl 12]);
            }
        },
        (Alu::And, Operand::Imm(imm)) => {
            sized!(b, size, [and WSP(d), W(a), imm as u32] [and XSP(d), X(a), imm]);
        }
        (Alu::Or, Operand::Imm(imm)) => {
            sized!(b, size, [orr WSP(d), W(a), imm as u32] [orr XSP(d), X(a), imm]);
        }
        (Alu::Xor, Operand::Imm(imm)) => {
            sized!(b, size, [eor WSP(d), W(a), imm as u32] [eor XSP(d), X(a), imm]);
        }
        (_, Operand::Reg(reg)) => alu(b, op, size, (d, a), Operand::Shifted(reg, 0)),
        (_, Operand::Shifted(reg, by)) => {
            let (c, by) = (reg.encoding(), u32::from(by));
            match op {
                Alu::Add => {
                    sized!(b, size, [add W(d), W(a), W(c), lsl by] [add X(d), X(a), X(c), lsl by])
                }
                Alu::Sub => {
                    sized!(b, size, [sub W(d), W(a), W(c), lsl by] [sub X(d), X(a), X(c), lsl by])
                }
                Alu::And => {
                    sized!(b, size, [and W(d), W(a), W(c), lsl by] [and X(d), X(a), X(c), lsl by])
                }
                Alu::Or => {
                    sized!(b, size, [orr W(d), W(a), W(c), lsl by] [orr X(d), X(a), X(c), lsl by])
                }
                Alu::Xor => {
                    sized!(b, size, [eor W(d), W(a), W(c), lsl by] [eor X(d), X(a), X(c), lsl by])
                }
            }
        }
    }
}

fn select(b: &mut Buffer, cond: Cond, size: Size, [d, a, c]: [u8; 3]) {
    match cond {
        Cond::Equal => sized!(b, size, [csel W(d), W(a), W(c), eq] [csel X(d), X(a), X(c), eq]),
        Cond::NotEqual => sized!(b, size, [csel W(d), W(a), W(c), ne] [csel X(d), X(a), X(c), ne]),
        Cond::Below => sized!(b, size, [csel W(d), W(a), W(c), lo] [csel X(d), X(a), X(c), lo]),
        Cond::BelowOrEqual => {
            sized!(b, size, [csel W(d), W(a), W(c), ls] [csel X(d), X(a), X(c), ls]);
        }
        Cond::Above => sized!(b, size, [csel W(d), W(a), W(c), hi] [csel X(d), X(a), X(c), hi]),
        Cond::AboveOrEqual => {
            sized!(b, size, [csel W(d), W(a), W(c), hs] [csel X(d), X(a), X(c), hs]);
        }
    }
}

fn vector(b: &mut Buffer, op: Vector, [d, a, c]: [u8; 3]) {
    match op {
        Vector::And => one!(b, and V(d).b16, V(a).b16, V(c).b16),
        Vector::AndNot => one!(b, bic V(d).b16, V(a).b16, V(c).b16),
        Vector::Or => one!(b, orr V(d).b16, V(a).b16, V(c).b16),
        Vector::OrNot => one!(b, orn V(d).b16, V(a).b16, V(c).b16),
        Vector::Xor => one!(b, eor V(d).b16, V(a).b16, V(c).b16),
        Vector::Sub => one!(b, sub V(d).s4, V(a).s4, V(c).s4),
        Vector::SubHalves => one!(b, sub V(d).h8, V(a).h8, V(c).h8),
        Vector::Min => one!(b, umin V(d).s4, V(a).s4, V(c).s4),
        Vector::MinHalves => one!(b, umin V(d).h8, V(a).h8, V(c).h8),
        Vector::Equal => one!(b, cmeq V(d).s4, V(a).s4, V(c).s4),
        Vector::HigherOrSame => one!(b, cmhs V(d).s4, V(a).s4, V(c).s4),
        Vector::Unzip16 => one!(b, uzp1 V(d).h8, V(a).h8, V(c).h8),
    }
}
