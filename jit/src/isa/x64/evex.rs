//! The instructions of the AVX-512 tier and their bytes, which dynasm does not know: EVEX for lanes, VEX for masks alone.
//!
//! ```text
//! EVEX   62 | R X B R' 0 mmm | W vvvv 1 pp | z L'L b V' aaa | opcode | ModRM [SIB] [displacement] [immediate]
//! VEX    c5 | R vvvv L pp    | opcode      | ModRM
//! ```
//!
//! R X B R' V' and vvvv are the high bits of register numbers and a whole one, all inverted; aaa is the mask under which the
//! instruction works, 0 for none. A displacement of one byte counts in units of what the instruction reads.
//!
//! Here is what lowering uses and no more: vector registers are the sixteen that VEX names too, so that the shorter AVX2 forms
//! serve wherever eight lanes make no mask. Masks live in k1 to k7, where comparisons put them: as a general register each
//! would cost a `kmov`, and could not be what the next comparison works under, which is how masks are anded for nothing.
//! `vpternlogd` only makes ones: its other uses save nothing where operands come from memory, one an instruction.

use dynasmrt::relocations::{Relocation, RelocationKind, RelocationSize};
use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynasmApi, DynasmLabelApi};

use super::emit::Buffer;
use super::inst::{
    Address, Class, Inst, Narrow, Piece, Reg, Role, for_each_register, instructions, operations,
};

operations!(
    /// How many lanes of 32 bits an instruction works on.
    Lanes { X8, X16 }
);
operations!(
    /// `dst = a op b`, lane by lane but for the shuffle of bytes.
    Lanewise { And, Xor, Sub, ShuffleBytes }
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
        Avx512::Mov { dst, src } => WIDE.emit(b, MOV_ALIGNED, dst, LaneSource::Reg(src)),
        Avx512::Load { dst, address } => WIDE.emit(b, MOV, dst, LaneSource::Mem(address)),
        Avx512::Broadcast { lanes, dst, src } => {
            Evex { lanes, ..WIDE }.emit(b, BROADCAST, dst, LaneSource::Reg(src));
        }
        Avx512::BroadcastLoad {
            dst,
            address,
            piece,
        } => {
            let (opcode, unit) = match piece {
                Piece::B1 => (BROADCAST_1, 1),
                Piece::B2 => (BROADCAST_2, 2),
                Piece::B4 => (BROADCAST_4, 4),
            };
            let unit = Some(unit);
            Evex { unit, ..WIDE }.emit(b, opcode, dst, LaneSource::Mem(address));
        }
        Avx512::WidenLoad {
            dst,
            address,
            narrow,
        } => {
            let (opcode, unit) = match narrow {
                Narrow::B1 => (WIDEN_1, 16),
                Narrow::B2 => (WIDEN_2, 32),
            };
            let unit = Some(unit);
            Evex { unit, ..WIDE }.emit(b, opcode, dst, LaneSource::Mem(address));
        }
        Avx512::Ones { lanes, dst } => Evex {
            lanes,
            a: Some(dst),
            immediate: Some(0xff),
            ..WIDE
        }
        .emit(b, TERNARY_LOGIC, dst, LaneSource::Reg(dst)),
        Avx512::Lanewise {
            op,
            lanes,
            dst,
            a,
            b: second,
        } => {
            let opcode = match op {
                Lanewise::And => AND,
                Lanewise::Xor => XOR,
                Lanewise::Sub => SUB,
                Lanewise::ShuffleBytes => SHUFFLE_BYTES,
            };
            let a = Some(a);
            Evex { lanes, a, ..WIDE }.emit(b, opcode, dst, second);
        }
        Avx512::MaskedMin {
            lanes,
            dst,
            mask,
            src,
        } => Evex {
            lanes,
            a: Some(dst),
            under: Some(mask),
            ..WIDE
        }
        .emit(b, MIN, dst, src),
        Avx512::UpperHalf { dst, src } => Evex {
            immediate: Some(1),
            ..WIDE
        }
        // What is written is the operand that might be in memory.
        .emit(b, EXTRACT, src, LaneSource::Reg(dst)),
        Avx512::Compare {
            op,
            lanes,
            dst,
            under,
            a,
            b: second,
        } => {
            let (opcode, immediate) = match op {
                Comparison::Equal => (EQUAL, None),
                Comparison::AtMost => (COMPARE, Some(2)),
                Comparison::AtLeast => (COMPARE, Some(5)),
                Comparison::Disjoint => (DISJOINT, None),
            };
            Evex {
                lanes,
                a: Some(a),
                under,
                immediate,
                ..WIDE
            }
            .emit(b, opcode, dst, second);
        }
        Avx512::MaskMov { dst, src } => vex(b, 0x90, 0, dst, Reg::mask(0), src),
        Avx512::MaskOp {
            op,
            dst,
            a,
            b: second,
        } => {
            let opcode = match op {
                MaskOp::And => 0x41,
                MaskOp::AndNot => 0x42,
                MaskOp::Or => 0x45,
                MaskOp::Xor => 0x47,
            };
            vex(b, opcode, VEX_L, dst, a, second);
        }
        Avx512::MaskBits { lanes, dst, src } => {
            let prefix = match lanes {
                Lanes::X8 => P66,
                Lanes::X16 => 0,
            };
            vex(b, 0x93, prefix, dst, Reg::mask(0), src);
        }
    }
}

/// An opcode: its map (1 to 3 for 0f, 0f38, 0f3a), its prefix (pp) and the bit W.
#[derive(Clone, Copy)]
struct Opcode(u8, u8, u8, u8);

const P66: u8 = 1;
const PF3: u8 = 2;

const MOV_ALIGNED: Opcode = Opcode(1, P66, 0, 0x6f);
const MOV: Opcode = Opcode(1, PF3, 0, 0x6f);
const BROADCAST: Opcode = Opcode(2, P66, 0, 0x7c);
const BROADCAST_1: Opcode = Opcode(2, P66, 0, 0x78);
const BROADCAST_2: Opcode = Opcode(2, P66, 0, 0x79);
const BROADCAST_4: Opcode = Opcode(2, P66, 0, 0x58);
const WIDEN_1: Opcode = Opcode(2, P66, 0, 0x31);
const WIDEN_2: Opcode = Opcode(2, P66, 0, 0x33);
const TERNARY_LOGIC: Opcode = Opcode(3, P66, 0, 0x25);
const AND: Opcode = Opcode(1, P66, 0, 0xdb);
const XOR: Opcode = Opcode(1, P66, 0, 0xef);
const SUB: Opcode = Opcode(1, P66, 0, 0xfa);
const MIN: Opcode = Opcode(2, P66, 0, 0x3b);
const SHUFFLE_BYTES: Opcode = Opcode(2, P66, 0, 0x00);
const EXTRACT: Opcode = Opcode(3, P66, 1, 0x3b);
const EQUAL: Opcode = Opcode(1, P66, 0, 0x76);
const COMPARE: Opcode = Opcode(3, P66, 0, 0x1e);
const DISJOINT: Opcode = Opcode(2, PF3, 0, 0x27);

/// What an EVEX instruction has beside its opcode and the operands in ModRM.
#[derive(Clone, Copy)]
struct Evex {
    lanes: Lanes,
    /// The operand in vvvv.
    a: Option<Reg>,
    under: Option<Reg>,
    immediate: Option<u8>,
    /// Bytes of the operand in memory, where that is not what the lanes and the operand say.
    unit: Option<i32>,
}

/// What an instruction on sixteen lanes has beside its two operands, if nothing.
const WIDE: Evex = Evex {
    lanes: Lanes::X16,
    a: None,
    under: None,
    immediate: None,
    unit: None,
};

impl Evex {
    fn emit(self, b: &mut Buffer, opcode: Opcode, reg: Reg, rm: LaneSource) {
        let Opcode(map, prefix, w, opcode) = opcode;
        let (index_high, base_high) = match rm {
            LaneSource::Reg(rm) => (0, high(rm)),
            LaneSource::Mem(address) | LaneSource::Splat(address) => match address {
                Address::Base { base, .. } => (0, high(base)),
                Address::Indexed { base, index, .. } => (high(index), high(base)),
                Address::Pool { .. } => (0, 0),
            },
        };
        let (length, bytes) = match self.lanes {
            Lanes::X8 => (0b01, 32),
            Lanes::X16 => (0b10, 64),
        };
        let is_splat = matches!(rm, LaneSource::Splat(_));
        let a = self.a.map_or(0, Reg::encoding);
        let under = self.under.map_or(0, Reg::encoding);
        // R' and V', inverted, stand for registers below 16.
        b.assembler.extend([
            0x62,
            (high(reg) << 7 | index_high << 6 | base_high << 5) ^ 0b1110_0000 | 1 << 4 | map,
            w << 7 | (a ^ 0b1111) << 3 | 1 << 2 | prefix,
            length << 5 | u8::from(is_splat) << 4 | 1 << 3 | under,
            opcode,
        ]);
        let reg = (reg.encoding() & 7) << 3;
        match rm {
            LaneSource::Reg(rm) => b.assembler.push(0b11 << 6 | reg | rm.encoding() & 7),
            LaneSource::Mem(address) => self.memory(b, reg, address, self.unit.unwrap_or(bytes)),
            LaneSource::Splat(address) => self.memory(b, reg, address, 4),
        }
        if let Some(immediate) = self.immediate {
            b.assembler.push(immediate);
        }
        if let LaneSource::Mem(Address::Pool { offset })
        | LaneSource::Splat(Address::Pool { offset }) = rm
        {
            // The four bytes ahead of the immediate, relative to the end of the instruction.
            let field = 4 + u8::from(self.immediate.is_some());
            let (pool, offset) = (b.pool, offset as isize);
            let kind = X64Relocation::from_size(RelocationKind::Relative, RelocationSize::DWord);
            b.assembler.dynamic_relocation(pool, offset, field, 0, kind);
        }
    }

    /// ModRM, with `reg` in its place, and what follows it.
    fn memory(self, b: &mut Buffer, reg: u8, address: Address, unit: i32) {
        const SIB: u8 = 0b100;
        const NO_INDEX: u8 = 0b100 << 3;
        const RIP: u8 = 0b101;
        let (base, sib, disp) = match address {
            Address::Pool { .. } => {
                b.assembler.extend([reg | RIP, 0, 0, 0, 0]);
                return;
            }
            Address::Base { base, disp } => {
                let base = base.encoding() & 7;
                // rsp and r12 stand for an SIB byte.
                (base, (base == SIB).then_some(NO_INDEX | base), disp)
            }
            Address::Indexed {
                base,
                index,
                scale,
                disp,
            } => {
                let base = base.encoding() & 7;
                let sib = (scale as u8) << 6 | (index.encoding() & 7) << 3 | base;
                (base, Some(sib), disp)
            }
        };
        let short = (disp % unit == 0)
            .then(|| i8::try_from(disp / unit).ok())
            .flatten();
        let mode = match short {
            // Without a displacement, rbp and r13 stand for something else.
            Some(0) if base != RIP => 0b00,
            Some(_) => 0b01,
            None => 0b10,
        };
        let rm = if sib.is_some() { SIB } else { base };
        b.assembler.push(mode << 6 | reg | rm);
        if let Some(sib) = sib {
            b.assembler.push(sib);
        }
        match (mode, short) {
            (0b00, _) => {}
            (_, Some(short)) => b.assembler.push(short.cast_unsigned()),
            (_, None) => b.assembler.extend(disp.to_le_bytes()),
        }
    }
}

/// The bit of VEX that tells `k` instructions of three operands from those of two.
const VEX_L: u8 = 1 << 2;

/// An instruction of the map 0f on masks; `reg` may also be a general register.
fn vex(b: &mut Buffer, opcode: u8, prefix: u8, reg: Reg, a: Reg, rm: Reg) {
    let inverted = (high(reg) << 7 | a.encoding() << 3) ^ 0b1111_1000;
    let modrm = 0b11 << 6 | (reg.encoding() & 7) << 3 | rm.encoding();
    b.assembler.extend([0xc5, inverted | prefix, opcode, modrm]);
}

/// The bit of a register's number that a prefix has.
fn high(reg: Reg) -> u8 {
    reg.encoding() >> 3
}
