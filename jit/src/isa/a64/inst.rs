//! The machine form of AArch64: one value of [`Inst`] is one machine instruction of four bytes.
//!
//! `lower` makes it with virtual registers, `regs` replaces those by physical ones, `emit` turns it into bytes. Every
//! immediate in it can be encoded: `immediate` has the questions that `lower` asks before it makes one.

use pktjit_ir::TableId;

pub(super) use crate::isa::inst::{
    Class, Cond, Label, Reg, Role, Size, Width, instructions, operations,
};

/// The largest displacement of a prefetch.
pub(super) const MAX_PREFETCH_DISP: u32 = 255;

/// A place in memory. An offset is one that the access can have: a multiple of its size below 4096 times that, or below
/// 256; of a pair of vectors a multiple of 16 up to 1008.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// `[base, #disp]`
    Base { base: Reg, disp: u32 },
    /// `[base, index, lsl #shift]`, where the shift is 0 or the logarithm of the size of the access.
    Indexed { base: Reg, index: Reg, shift: u8 },
}

/// Second operand of a scalar instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// A register.
    Reg(Reg),
    /// A register, shifted left.
    Shifted(Reg, u8),
    /// A number: of 12 bits, or those shifted left by 12, for `add`, `sub` and `cmp`; a bit mask for the others.
    Imm(u64),
}

operations!(
    /// `dst = a op b`
    Alu { Add, Sub, And, Or, Xor }
);
operations!(
    /// Shifts by a constant.
    Shift { Left, Right }
);
operations!(
    /// Bytes that are loaded into the low end of a vector register; the others become zero.
    VectorWidth { B1, B2, B4, B8, B16 }
);
operations!(
    /// Which bytes change places: those of each 16 or 32 bits.
    Swap { In16, In32 }
);
operations!(
    /// `dst = a op b` on 128 bits; lanes have 32 bits, but for `Unzip16`: the low halves of the lanes of a, then those of b.
    Vector { And, AndNot, Or, OrNot, Xor, Sub, SubHalves, Min, MinHalves, Equal, HigherOrSame, Unzip16 }
);
operations!(
    /// Numbers that are extended by zeros: four of 16 bits from the low or high half, or eight of 8 bits from the low half.
    Widen { Low16, High16, Low8 }
);
operations!(
    /// Numbers of which the low halves are kept: eight of 16 bits, or four of 32.
    Narrow { From16, From32 }
);
operations!(
    /// One number out of all lanes: the smallest of four lanes of 32 bits, or the sum of four, or of eight lanes of 16 bits.
    Reduce { Min32, Sum32, Sum16 }
);

instructions! {
/// One machine instruction.
Inst {
    /// `bti c`: where indirect calls may land.
    Bti,
    /// `ret`
    Ret,
    /// `b to`
    Jump { to: Label },
    /// `b.cond to`
    JumpIf { cond: Cond, to: Label },
    /// `cbz a, to` or `cbnz a, to`
    JumpIfZero { size: Size, a: Reg, is_zero: bool, to: Label },

    /// `movz dst, imm, lsl #shift`: all other bits are zero.
    MovZ { dst: Reg, imm: u16, shift: u8 },
    /// `movn dst, imm, lsl #shift`: the complement, of this size.
    MovN { size: Size, dst: Reg, imm: u16, shift: u8 },
    /// `movk dst, imm, lsl #shift`: all other bits stay.
    MovK { dst: Reg, imm: u16, shift: u8 },
    /// `orr dst, zr, imm` with a bit mask of this size.
    MovMask { size: Size, dst: Reg, imm: u64 },
    /// `mov dst, src`
    Mov { size: Size, dst: Reg, src: Reg },
    /// `adr dst, pool + offset`
    PoolAddress { dst: Reg, offset: usize },
    /// `ldr dst, pool + offset`: the address of a table in the region, which the runtime writes there.
    TableAddress { dst: Reg, table: TableId, offset: usize },
    /// `add dst, sp, #disp`
    StackAddress { dst: Reg, disp: u32 },
    /// `sub sp, sp, #bytes`
    Allocate { bytes: u32 },
    /// `add sp, sp, #bytes`
    Release { bytes: u32 },
    /// `str xzr, [sp]`: touches its page.
    TouchStack,
    /// dst = the little-endian number at the address, extended by zeros.
    Load { dst: Reg, address: Address, width: Width },
    /// `str src32, address`
    Store { address: Address, src: Reg },
    /// `str src32, [base], #4`
    StoreAndAdvance { base: Reg, src: Reg },
    /// `ldr dst64, [base], #8`
    LoadAndAdvance { dst: Reg, base: Reg },
    /// `prfum pldl1keep, [base, #disp]`, up to [`MAX_PREFETCH_DISP`].
    Prefetch { base: Reg, disp: u32 },
    /// `rev dst, src`
    Reverse { size: Size, dst: Reg, src: Reg },
    /// `rev16 dst, src`, 32 bits: swaps the bytes of each half.
    Reverse16 { dst: Reg, src: Reg },

    /// `op dst, a, b`
    Alu { op: Alu, size: Size, dst: Reg, a: Reg, b: Operand },
    /// `cmp a, b`
    Cmp { size: Size, a: Reg, b: Operand },
    /// `lsl dst, a, #by` or `lsr dst, a, #by`
    Shift { op: Shift, size: Size, dst: Reg, a: Reg, by: u8 },
    /// `ubfx dst, a, #first, #len`: bits first to first + len - 1 at the low end.
    Extract { size: Size, dst: Reg, a: Reg, first: u8, len: u8 },
    /// `bfi dst, a, #first, #len`: the low bits of a become bits first to first + len - 1.
    Insert { size: Size, dst: Reg, a: Reg, first: u8, len: u8 },
    /// `mul dst, a, b`
    Mul { size: Size, dst: Reg, a: Reg, b: Reg },
    /// `madd dst, a, b, c`, 64 bits: a * b + c
    MulAdd { dst: Reg, a: Reg, b: Reg, c: Reg },
    /// `csel dst, a, b, cond`
    Select { cond: Cond, size: Size, dst: Reg, a: Reg, b: Reg },
    /// `cset dst, cond`
    Set { cond: Cond, dst: Reg },
    /// `rbit dst, src`
    ReverseBits { size: Size, dst: Reg, src: Reg },
    /// `clz dst, src`
    LeadingZeros { size: Size, dst: Reg, src: Reg },

    /// `mov dst.16b, src.16b`
    VectorMov { dst: Reg, src: Reg },
    /// `movi dst.2d, #0`
    VectorZero { dst: Reg },
    /// `ldr dst, pool + offset`, 128 bits
    VectorConstant { dst: Reg, offset: usize },
    /// `ldr dst, address`
    VectorLoad { dst: Reg, address: Address, width: VectorWidth },
    /// `ldp a, b, [base, #disp]`, 128 bits each
    LoadPair { a: Reg, b: Reg, base: Reg, disp: u32 },
    /// `stp src, src, [base, #disp]`, 128 bits each
    StorePair { src: Reg, base: Reg, disp: u32 },
    /// `stp src, src, [sp, #disp]`, 128 bits each
    StorePairOnStack { src: Reg, disp: u32 },
    /// `ld1r {dst.4s}, [base]`
    LoadEachLane { dst: Reg, base: Reg },
    /// `rev16` or `rev32 dst.16b, src.16b`
    SwapBytes { swap: Swap, dst: Reg, src: Reg },
    /// `dup dst.4s, src.s[0]`
    Broadcast { dst: Reg, src: Reg },
    /// `dup dst.4s, src32`
    BroadcastScalar { dst: Reg, src: Reg },
    /// `op dst, a, b`
    Vector { op: Vector, dst: Reg, a: Reg, b: Reg },
    /// `cmeq dst.4s, src.4s, #0`
    EqualsZero { dst: Reg, src: Reg },
    /// `ushll` or `ushll2 dst, src, #0`
    Widen { op: Widen, dst: Reg, src: Reg },
    /// `xtn dst, src`
    Narrow { op: Narrow, dst: Reg, src: Reg },
    /// `uminv` or `addv dst, src`
    Reduce { op: Reduce, dst: Reg, src: Reg },
    /// `fmov dst, src`: the low 32 or 64 bits as a scalar.
    ToScalar { size: Size, dst: Reg, src: Reg },
}
}

impl Inst {
    /// Calls `f` with each register operand, what is read before what is written.
    pub(super) fn for_each_operand(&mut self, mut f: impl FnMut(Class, Role, &mut Reg)) {
        use Class::{General, Vector};
        use Role::{Def, Modify, Use};
        match self {
            Self::Bti
            | Self::Ret
            | Self::Jump { .. }
            | Self::JumpIf { .. }
            | Self::Allocate { .. }
            | Self::Release { .. }
            | Self::TouchStack => {}
            Self::JumpIfZero { a, .. } => f(General, Use, a),

            Self::MovZ { dst, .. }
            | Self::MovN { dst, .. }
            | Self::MovMask { dst, .. }
            | Self::PoolAddress { dst, .. }
            | Self::TableAddress { dst, .. }
            | Self::StackAddress { dst, .. }
            | Self::Set { dst, .. } => f(General, Def, dst),
            Self::MovK { dst, .. } => f(General, Modify, dst),
            Self::Mov { dst, src, .. }
            | Self::Reverse { dst, src, .. }
            | Self::Reverse16 { dst, src }
            | Self::ReverseBits { dst, src, .. }
            | Self::LeadingZeros { dst, src, .. }
            | Self::Shift { dst, a: src, .. }
            | Self::Extract { dst, a: src, .. } => {
                f(General, Use, src);
                f(General, Def, dst);
            }
            Self::Insert { dst, a, .. } => {
                f(General, Use, a);
                f(General, Modify, dst);
            }
            Self::Load { dst, address, .. } => {
                address.for_each_register(|reg| f(General, Use, reg));
                f(General, Def, dst);
            }
            Self::Store { address, src } => {
                address.for_each_register(|reg| f(General, Use, reg));
                f(General, Use, src);
            }
            Self::StoreAndAdvance { base, src } => {
                f(General, Use, src);
                f(General, Modify, base);
            }
            Self::LoadAndAdvance { dst, base } => {
                f(General, Modify, base);
                f(General, Def, dst);
            }
            Self::Prefetch { base, .. } => f(General, Use, base),

            Self::Alu { dst, a, b, .. } => {
                f(General, Use, a);
                b.for_each_register(|reg| f(General, Use, reg));
                f(General, Def, dst);
            }
            Self::Cmp { a, b, .. } => {
                f(General, Use, a);
                b.for_each_register(|reg| f(General, Use, reg));
            }
            Self::Mul { dst, a, b, .. } | Self::Select { dst, a, b, .. } => {
                f(General, Use, a);
                f(General, Use, b);
                f(General, Def, dst);
            }
            Self::MulAdd { dst, a, b, c } => {
                f(General, Use, a);
                f(General, Use, b);
                f(General, Use, c);
                f(General, Def, dst);
            }

            Self::VectorZero { dst } | Self::VectorConstant { dst, .. } => f(Vector, Def, dst),
            Self::VectorMov { dst, src }
            | Self::SwapBytes { dst, src, .. }
            | Self::Broadcast { dst, src }
            | Self::EqualsZero { dst, src }
            | Self::Widen { dst, src, .. }
            | Self::Narrow { dst, src, .. }
            | Self::Reduce { dst, src, .. } => {
                f(Vector, Use, src);
                f(Vector, Def, dst);
            }
            Self::VectorLoad { dst, address, .. } => {
                address.for_each_register(|reg| f(General, Use, reg));
                f(Vector, Def, dst);
            }
            Self::LoadPair { a, b, base, .. } => {
                f(General, Use, base);
                f(Vector, Def, a);
                f(Vector, Def, b);
            }
            Self::StorePair { src, base, .. } => {
                f(General, Use, base);
                f(Vector, Use, src);
            }
            Self::StorePairOnStack { src, .. } => f(Vector, Use, src),
            Self::LoadEachLane { dst, base } => {
                f(General, Use, base);
                f(Vector, Def, dst);
            }
            Self::BroadcastScalar { dst, src } => {
                f(General, Use, src);
                f(Vector, Def, dst);
            }
            Self::Vector { dst, a, b, .. } => {
                f(Vector, Use, a);
                f(Vector, Use, b);
                f(Vector, Def, dst);
            }
            Self::ToScalar { dst, src, .. } => {
                f(Vector, Use, src);
                f(General, Def, dst);
            }
        }
    }
}

impl Address {
    fn for_each_register(&mut self, mut f: impl FnMut(&mut Reg)) {
        match self {
            Self::Base { base, .. } => f(base),
            Self::Indexed { base, index, .. } => {
                f(base);
                f(index);
            }
        }
    }
}

impl Operand {
    fn for_each_register(&mut self, f: impl FnOnce(&mut Reg)) {
        match self {
            Self::Reg(reg) | Self::Shifted(reg, _) => f(reg),
            Self::Imm(_) => {}
        }
    }
}
