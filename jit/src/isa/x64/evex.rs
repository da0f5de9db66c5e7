//! The instructions of the AVX-512 tier and their opcodes: EVEX for lanes, VEX for masks alone.
//!
//! Here is what lowering uses and no more: vector registers are the sixteen that VEX names too, so that the shorter AVX2 forms
//! serve wherever eight lanes make no mask. Masks live in k1 to k7, where comparisons put them: as a general register each
//! would cost a `kmov`, and could not be what the next comparison works under, which is how masks are anded for nothing.
//! `vpternlogd` only makes ones: its other uses save nothing where operands come from memory, one an instruction.

use super::encode::Length::{self, L128, L256, L512};
use super::encode::{Buffer, NONE, op};
use super::inst::{
    Address, Class, Inst, Narrow, Piece, Reg, Role, Size, for_each_register, instructions,
    operations,
};

operations!(
    /// How many lanes of 32 bits an instruction works on.
    Lanes { X8, X16 }
);
operations!(
    /// `dst = a op b`, lane by lane but for what has halves of lanes, or bytes.
    Lanewise { And, Xor, Sub, SubHalves, MinHalves, ShuffleBytes }
);
operations!(
    /// Where the mask is set: `a = b`, `a <= b`, `a >= b` unsigned, or `a & b = 0`.
    Comparison { Equal, AtMost, AtLeast, Disjoint }
);
operations!(
    /// `dst = a op b`; `AndNot` negates a.
    MaskOp { And, AndNot, Or, Xor }
);

/// The last operand of an instruction on lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneSource {
    /// A register.
    Reg(Reg),
    /// As many bytes in memory as there are in the lanes.
    Mem(Address),
    /// Four bytes in memory, for all lanes alike.
    Splat(Address),
}

instructions! {
/// One instruction of AVX-512, on 16 lanes where it has no number of them.
Avx512 {
    /// `vmovdqa32 dst, src`
    Mov { dst: Reg, src: Reg },
    /// `vmovdqu32 dst, [address]`
    Load { dst: Reg, address: Address },
    /// `vpbroadcastd dst, src`: the low half of a general register in each lane.
    Broadcast { lanes: Lanes, dst: Reg, src: Reg },
    /// `vpbroadcastb`, `w` or `d dst, [address]`
    BroadcastLoad { dst: Reg, address: Address, piece: Piece },
    /// `vpmovzxbd` or `vpmovzxwd dst, [address]`: sixteen numbers, widened.
    WidenLoad { dst: Reg, address: Address, narrow: Narrow },
    /// `vpternlogd dst, dst, dst, 0xff`: all bits are 1.
    Ones { lanes: Lanes, dst: Reg },
    /// `vpandd` and so on `dst, a, b`
    Lanewise { op: Lanewise, lanes: Lanes, dst: Reg, a: Reg, b: LaneSource },
    /// `vpminud dst{mask}, dst, src`: lanes outside the mask stay.
    MaskedMin { lanes: Lanes, dst: Reg, mask: Reg, src: LaneSource },
    /// `vextracti64x4 dst, src, 1`: the upper half.
    UpperHalf { dst: Reg, src: Reg },
    /// `vpcmpeqd`, `vpcmpud` or `vptestnmd dst{under}, a, b`: bits of lanes outside `under` are 0.
    Compare { op: Comparison, lanes: Lanes, dst: Reg, under: Option<Reg>, a: Reg, b: LaneSource },

    /// `kmovw dst, src`
    MaskMov { dst: Reg, src: Reg },
    /// `kandw`, `kandnw`, `korw` or `kxorw dst, a, b`
    MaskOp { op: MaskOp, dst: Reg, a: Reg, b: Reg },
    /// `kmovb` or `kmovw dst, src`: a bit a lane in a general register, the others 0.
    MaskBits { lanes: Lanes, dst: Reg, src: Reg },
}
}

impl From<Avx512> for Inst {
    fn from(inst: Avx512) -> Self {
        Self::Avx512 { inst }
    }
}

impl Avx512 {
    /// As [`Inst::for_each_operand`](super::inst::Inst::for_each_operand).
    pub(super) fn for_each_operand(&mut self, f: &mut dyn FnMut(Class, Role, &mut Reg)) {
        use Class::{General, Mask, Vector};
        use Role::{Def, Modify, Use};
        let source =
            |source: &mut LaneSource, f: &mut dyn FnMut(Class, Role, &mut Reg)| match source {
                LaneSource::Reg(reg) => f(Vector, Use, reg),
                LaneSource::Mem(address) | LaneSource::Splat(address) => {
                    for_each_register(address, |reg| f(General, Use, reg));
                }
            };
        match self {
            Self::Mov { dst, src } | Self::UpperHalf { dst, src } => {
                f(Vector, Use, src);
                f(Vector, Def, dst);
            }
            Self::Load { dst, address }
            | Self::BroadcastLoad { dst, address, .. }
            | Self::WidenLoad { dst, address, .. } => {
                for_each_register(address, |reg| f(General, Use, reg));
                f(Vector, Def, dst);
            }
            Self::Broadcast { dst, src, .. } => {
                f(General, Use, src);
                f(Vector, Def, dst);
            }
            Self::Ones { dst, .. } => f(Vector, Def, dst),
            Self::Lanewise { dst, a, b, .. } => {
                f(Vector, Use, a);
                source(b, f);
                f(Vector, Def, dst);
            }
            Self::MaskedMin { dst, mask, src, .. } => {
                f(Mask, Use, mask);
                source(src, f);
                f(Vector, Modify, dst);
            }
            Self::Compare {
                dst, under, a, b, ..
            } => {
                if let Some(under) = under {
                    f(Mask, Use, under);
                }
                f(Vector, Use, a);
                source(b, f);
                f(Mask, Def, dst);
            }
            Self::MaskMov { dst, src } => {
                f(Mask, Use, src);
                f(Mask, Def, dst);
            }
            Self::MaskOp { dst, a, b, .. } => {
                f(Mask, Use, a);
                f(Mask, Use, b);
                f(Mask, Def, dst);
            }
            Self::MaskBits { dst, src, .. } => {
                f(Mask, Use, src);
                f(General, Def, dst);
            }
        }
    }
}

/// Appends `inst`, whose registers are all physical.
pub(super) fn emit(b: &mut Buffer, inst: &Avx512) {
    match *inst {
        Avx512::Mov { dst, src } => op(0x66_00_0f_6f, dst, src).evex(b, L512, NONE, NONE),
        Avx512::Load { dst, address } => op(0xf3_00_0f_6f, dst, address).evex(b, L512, NONE, NONE),
        Avx512::Broadcast { lanes, dst, src } => {
            op(0x66_0f_38_7c, dst, src).evex(b, lanes.length(), NONE, NONE);
        }
        Avx512::BroadcastLoad {
            dst,
            address,
            piece,
        } => {
            let (opcode, unit) = match piece {
                Piece::B1 => (0x66_0f_38_78, 1),
                Piece::B2 => (0x66_0f_38_79, 2),
                Piece::B4 => (0x66_0f_38_58, 4),
            };
            let op = op(opcode, dst, address).unit(unit);
            op.evex(b, L512, NONE, NONE);
        }
        Avx512::WidenLoad {
            dst,
            address,
            narrow,
        } => {
            let (opcode, unit) = match narrow {
                Narrow::B1 => (0x66_0f_38_31, 16),
                Narrow::B2 => (0x66_0f_38_33, 32),
            };
            let op = op(opcode, dst, address).unit(unit);
            op.evex(b, L512, NONE, NONE);
        }
        Avx512::Ones { lanes, dst } => {
            let op = op(0x66_0f_3a_25, dst, dst).byte(0xff);
            op.evex(b, lanes.length(), dst, NONE);
        }
        Avx512::Lanewise {
            op: operation,
            lanes,
            dst,
            a,
            b: second,
        } => {
            let opcode = match operation {
                Lanewise::And => 0x66_00_0f_db,
                Lanewise::Xor => 0x66_00_0f_ef,
                Lanewise::Sub => 0x66_00_0f_fa,
                Lanewise::SubHalves => 0x66_00_0f_f9,
                Lanewise::MinHalves => 0x66_0f_38_3a,
                Lanewise::ShuffleBytes => 0x66_0f_38_00,
            };
            op(opcode, dst, second).evex(b, lanes.length(), a, NONE);
        }
        Avx512::MaskedMin {
            lanes,
            dst,
            mask,
            src,
        } => op(0x66_0f_38_3b, dst, src).evex(b, lanes.length(), dst, mask),
        // What is written is the operand that might be in memory.
        Avx512::UpperHalf { dst, src } => {
            let op = op(0x66_0f_3a_3b, src, dst).size(Size::S64).byte(1);
            op.evex(b, L512, NONE, NONE);
        }
        Avx512::Compare {
            op: comparison,
            lanes,
            dst,
            under,
            a,
            b: second,
        } => {
            let op = match comparison {
                Comparison::Equal => op(0x66_00_0f_76, dst, second),
                Comparison::AtMost => op(0x66_0f_3a_1e, dst, second).byte(2),
                Comparison::AtLeast => op(0x66_0f_3a_1e, dst, second).byte(5),
                Comparison::Disjoint => op(0xf3_0f_38_27, dst, second),
            };
            op.evex(b, lanes.length(), a, under.unwrap_or(NONE));
        }
        Avx512::MaskMov { dst, src } => op(0x0f_90, dst, src).vex(b, L128, NONE),
        Avx512::MaskOp {
            op: operation,
            dst,
            a,
            b: second,
        } => {
            let opcode = match operation {
                MaskOp::And => 0x0f_41,
                MaskOp::AndNot => 0x0f_42,
                MaskOp::Or => 0x0f_45,
                MaskOp::Xor => 0x0f_47,
            };
            op(opcode, dst, second).vex(b, L256, a);
        }
        Avx512::MaskBits { lanes, dst, src } => {
            let opcode = match lanes {
                Lanes::X8 => 0x66_00_0f_93,
                Lanes::X16 => 0x0f_93,
            };
            op(opcode, dst, src).vex(b, L128, NONE);
        }
    }
}

impl Lanes {
    fn length(self) -> Length {
        match self {
            Self::X8 => L256,
            Self::X16 => L512,
        }
    }
}
