//! The machine form: one value of [`Inst`] is one machine instruction, before registers are assigned as well as after.
//!
//! `lower` makes it with virtual registers, `regs` replaces those by physical ones, `emit` turns it into bytes. What an
//! instruction reads and writes is told once, in [`Inst::for_each_operand`].

use pktjit_ir::TableId;

use super::evex::Avx512;
pub(super) use crate::isa::inst::{
    Class, Cond, Label, Reg, Role, Size, Width, instructions, operations,
};

impl Size {
    /// `value` as the immediate of an instruction of this size, which extends its 32 bits by their sign.
    pub(super) fn immediate(self, value: u64) -> Option<i32> {
        match self {
            Self::S32 => u32::try_from(value).ok().map(u32::cast_signed),
            Self::S64 => i32::try_from(value.cast_signed()).ok(),
        }
    }
}

impl Scale {
    /// The multiplier `1 << shift`, the largest for larger shifts.
    pub(super) fn from_shift(shift: u32) -> Self {
        match shift {
            0 => Self::X1,
            1 => Self::X2,
            2 => Self::X4,
            _ => Self::X8,
        }
    }
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// `[base + disp]`
    Base { base: Reg, disp: i32 },
    /// `[base + index * scale + disp]`
    Indexed {
        base: Reg,
        index: Reg,
        scale: Scale,
        disp: i32,
    },
    /// A byte of the constant pool, relative to the instruction pointer.
    Pool { offset: i32 },
}

impl Address {
    /// The place `bytes` further on, if its displacement fits.
    pub(super) fn plus(self, bytes: u64) -> Option<Self> {
        let add = |disp: i32| i32::try_from(i64::from(disp).checked_add_unsigned(bytes)?).ok();
        Some(match self {
            Self::Base { base, disp } => Self::Base {
                base,
                disp: add(disp)?,
            },
            Self::Indexed {
                base,
                index,
                scale,
                disp,
            } => Self::Indexed {
                base,
                index,
                scale,
                disp: add(disp)?,
            },
            Self::Pool { offset } => Self::Pool {
                offset: add(offset)?,
            },
        })
    }
}

/// Second operand of a scalar instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Reg(Reg),
    Imm(i32),
    Mem(Address),
}

/// Second operand of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorSource {
    Reg(Reg),
    Mem(Address),
}

operations!(
    /// What a broadcast repeats: 1, 2 or 4 bytes.
    Piece { B1, B2, B4 }
);
operations!(
    /// Numbers in memory that are widened to lanes: 1 or 2 bytes each.
    Narrow { B1, B2 }
);
operations!(
    /// Multiplier of an index register.
    Scale { X1, X2, X4, X8 }
);
operations!(
    /// `dst = dst op src`
    Alu { Add, Sub, And, Or, Xor }
);
operations!(
    /// Shifts by a constant.
    Shift { Left, Right }
);
operations!(
    /// Position of the lowest set bit: `tzcnt` gives the operand size for zero, `bsf` nothing.
    Scan { Tzcnt, Bsf }
);
operations!(
    /// `dst = a op b` on 256 bits.
    Vector { And, AndNot, Or, Xor, SubD, SubW, MinUD, MinUW, CmpEqD, ShufB }
);

instructions! {
/// One machine instruction.
Inst {
    /// `endbr64`: where indirect calls may land.
    Endbr,
    /// `vzeroupper`
    Vzeroupper,
    /// `ret`
    Ret,
    /// `jmp to`
    Jump { to: Label },
    /// `jcc to`
    JumpIf { cond: Cond, to: Label },

    /// `xor dst, dst`: dst = 0; spoils the flags.
    Zero { dst: Reg },
    /// `mov dst, imm` with all 64 bits of dst set, in the shortest of its three forms.
    MovImm { dst: Reg, imm: u64 },
    /// `mov dst, imm64`, to be filled in with the address of a table in the region.
    TableAddress { dst: Reg, table: TableId },
    /// `mov dst, src`
    Mov { dst: Reg, src: Reg, size: Size },
    /// `xchg a, b`, 64 bits
    Xchg { a: Reg, b: Reg },
    /// `lea dst, address`, 64 bits
    Lea { dst: Reg, address: Address },
    /// dst = the little-endian number at the address, extended by zeros.
    Load {
        dst: Reg,
        address: Address,
        width: Width,
    },
    /// `movbe dst, address`: the big-endian number of 4 or 8 bytes.
    LoadSwapped {
        dst: Reg,
        address: Address,
        size: Size,
    },
    /// `mov dword [address], src`
    Store { address: Address, src: Reg },
    /// `prefetcht0 [address]`
    Prefetch { address: Address },
    /// `or dword [address], src` with a register or an immediate
    OrMemory { address: Address, src: Source },
    /// `push reg`
    Push { reg: Reg },
    /// `pop reg`
    Pop { reg: Reg },
    /// `bswap dst`
    Bswap { dst: Reg, size: Size },
    /// `rol dst16, 8`: swaps the two low bytes.
    SwapLowBytes { dst: Reg },

    /// `op dst, src`
    Alu {
        op: Alu,
        size: Size,
        dst: Reg,
        src: Source,
    },
    /// `cmp a, b`
    Cmp { size: Size, a: Reg, b: Source },
    /// `test a, a`
    TestSelf { size: Size, a: Reg },
    /// `dec dst`, 64 bits
    Dec { dst: Reg },
    /// `shl dst, by` or `shr dst, by`
    Shift {
        op: Shift,
        size: Size,
        dst: Reg,
        by: u8,
    },
    /// `imul dst, src`: the low half of the product.
    Mul { size: Size, dst: Reg, src: Reg },
    /// `imul dst, src, imm`
    MulImm {
        size: Size,
        dst: Reg,
        src: Reg,
        imm: i32,
    },
    /// `pext dst, src, mask`
    Pext {
        size: Size,
        dst: Reg,
        src: Reg,
        mask: Reg,
    },
    /// `blsr dst, src`: src without its lowest set bit.
    ClearLowestBit { size: Size, dst: Reg, src: Reg },
    /// `tzcnt dst, src` or `bsf dst, src`
    Scan {
        op: Scan,
        size: Size,
        dst: Reg,
        src: Reg,
    },
    /// `cmovcc dst, src`
    Cmov {
        cond: Cond,
        size: Size,
        dst: Reg,
        src: Reg,
    },
    /// `setcc dst8`: writes the low byte only.
    Set { cond: Cond, dst: Reg },
    /// `movzx dst, dst8`
    ZeroExtendByte { dst: Reg },

    /// `vmovdqa dst, src`
    VectorMov { dst: Reg, src: Reg },
    /// `vmovdqu dst, [address]`
    VectorLoad { dst: Reg, address: Address },
    /// `vpmovzxbd` or `vpmovzxwd dst, [address]`: eight numbers as lanes.
    WidenLoad {
        dst: Reg,
        address: Address,
        narrow: Narrow,
    },
    /// `vmovdqu [address], src`
    VectorStore { address: Address, src: Reg },
    /// `vpxor dst, dst, dst` on 128 bits: dst = 0, all 256 bits.
    VectorZero { dst: Reg },
    /// `vpbroadcastd dst, src`: the lowest lane everywhere.
    Broadcast { dst: Reg, src: Reg },
    /// `vpbroadcastb`, `w` or `d dst, [address]`
    BroadcastLoad {
        dst: Reg,
        address: Address,
        piece: Piece,
    },
    /// `op dst, a, b` on 256 bits
    Vector {
        op: Vector,
        dst: Reg,
        a: Reg,
        b: VectorSource,
    },
    /// `vmovd dst, src`: a 32-bit scalar to the lowest lane.
    ToVector { dst: Reg, src: Reg },
    /// `vmovd dst, src`: the lowest lane as a scalar.
    ToScalar { dst: Reg, src: Reg },
    /// `vmovmskps dst, src`: the top bits of the 8 lanes.
    LaneBits { dst: Reg, src: Reg },
    /// `vextracti128 dst, src, 1`: the upper half.
    UpperHalf { dst: Reg, src: Reg },
    /// `vpshufd dst, src, imm` on 128 bits
    Shuffle128 { dst: Reg, src: Reg, imm: u8 },
    /// `vpminud dst, a, b` on 128 bits
    Min128 { dst: Reg, a: Reg, b: Reg },
    /// An instruction of AVX-512.
    Avx512 { inst: Avx512 },
}
}

impl Inst {
    /// Calls `f` with each register operand, what is read before what is written; implied registers are copies, so that
    /// changing them has no effect.
    pub(super) fn for_each_operand(&mut self, mut f: impl FnMut(Class, Role, &mut Reg)) {
        use Class::{General, Vector};
        use Role::{Def, Modify, Use};
        let address = |address: &mut Address, f: &mut dyn FnMut(Class, Role, &mut Reg)| {
            for_each_register(address, |reg| f(General, Use, reg));
        };
        let source = |source: &mut Source, f: &mut dyn FnMut(Class, Role, &mut Reg)| match source {
            Source::Reg(reg) => f(General, Use, reg),
            Source::Imm(_) => {}
            Source::Mem(from) => address(from, f),
        };
        match self {
            Self::Endbr
            | Self::Vzeroupper
            | Self::Ret
            | Self::Jump { .. }
            | Self::JumpIf { .. } => {}
            Self::Zero { dst }
            | Self::MovImm { dst, .. }
            | Self::TableAddress { dst, .. }
            | Self::Set { dst, .. } => f(General, Def, dst),
            Self::Mov { dst, src, .. }
            | Self::MulImm { dst, src, .. }
            | Self::ClearLowestBit { dst, src, .. }
            | Self::Scan {
                op: Scan::Tzcnt,
                dst,
                src,
                ..
            } => {
                f(General, Use, src);
                f(General, Def, dst);
            }
            Self::Xchg { a, b } => {
                f(General, Modify, a);
                f(General, Modify, b);
            }
            Self::Lea { dst, address: from }
            | Self::Load {
                dst, address: from, ..
            }
            | Self::LoadSwapped {
                dst, address: from, ..
            } => {
                address(from, &mut f);
                f(General, Def, dst);
            }
            Self::Store { address: to, src } => {
                address(to, &mut f);
                f(General, Use, src);
            }
            Self::Prefetch { address: from } => address(from, &mut f),
            Self::OrMemory { address: to, src } => {
                address(to, &mut f);
                source(src, &mut f);
            }
            Self::Push { reg } => f(General, Use, reg),
            Self::Pop { reg } => f(General, Def, reg),
            Self::Bswap { dst, .. }
            | Self::SwapLowBytes { dst }
            | Self::Dec { dst }
            | Self::Shift { dst, .. }
            | Self::ZeroExtendByte { dst } => f(General, Modify, dst),
            Self::Alu { dst, src, .. } => {
                source(src, &mut f);
                f(General, Modify, dst);
            }
            Self::Cmp { a, b, .. } => {
                f(General, Use, a);
                source(b, &mut f);
            }
            Self::TestSelf { a, .. } => f(General, Use, a),
            // `bsf` leaves dst as it is where src is zero, and `cmov` where the condition does not hold.
            Self::Mul { dst, src, .. }
            | Self::Cmov { dst, src, .. }
            | Self::Scan {
                op: Scan::Bsf,
                dst,
                src,
                ..
            } => {
                f(General, Use, src);
                f(General, Modify, dst);
            }
            Self::Pext { dst, src, mask, .. } => {
                f(General, Use, src);
                f(General, Use, mask);
                f(General, Def, dst);
            }

            Self::VectorMov { dst, src }
            | Self::Broadcast { dst, src }
            | Self::UpperHalf { dst, src }
            | Self::Shuffle128 { dst, src, .. } => {
                f(Vector, Use, src);
                f(Vector, Def, dst);
            }
            Self::VectorLoad { dst, address: from }
            | Self::BroadcastLoad {
                dst, address: from, ..
            }
            | Self::WidenLoad {
                dst, address: from, ..
            } => {
                address(from, &mut f);
                f(Vector, Def, dst);
            }
            Self::VectorStore { address: to, src } => {
                address(to, &mut f);
                f(Vector, Use, src);
            }
            Self::VectorZero { dst } => f(Vector, Def, dst),
            Self::Vector { dst, a, b, .. } => {
                f(Vector, Use, a);
                match b {
                    VectorSource::Reg(b) => f(Vector, Use, b),
                    VectorSource::Mem(from) => address(from, &mut f),
                }
                f(Vector, Def, dst);
            }
            Self::Min128 { dst, a, b } => {
                f(Vector, Use, a);
                f(Vector, Use, b);
                f(Vector, Def, dst);
            }
            Self::ToVector { dst, src } => {
                f(General, Use, src);
                f(Vector, Def, dst);
            }
            Self::ToScalar { dst, src } | Self::LaneBits { dst, src } => {
                f(Vector, Use, src);
                f(General, Def, dst);
            }
            Self::Avx512 { inst } => inst.for_each_operand(&mut f),
        }
    }
}

/// Calls `f` with each register of an address.
pub(super) fn for_each_register(address: &mut Address, mut f: impl FnMut(&mut Reg)) {
    match address {
        Address::Base { base, .. } => f(base),
        Address::Indexed { base, index, .. } => {
            f(base);
            f(index);
        }
        Address::Pool { .. } => {}
    }
}
