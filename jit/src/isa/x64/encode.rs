//! The bytes of an instruction with registers or memory, by its opcode; all have their shortest form.
//!
//! ```text
//! legacy   [66, f3 or f2] [0100 WRXB] [0f] [38 or 3a]        | opcode | ModRM [SIB] [displacement] [immediate]
//! VEX      c5 | R vvvv L pp                                  | opcode | ModRM [SIB] [displacement] [immediate]
//!          c4 | R X B mmmmm | W vvvv L pp                    | opcode | ModRM [SIB] [displacement] [immediate]
//! EVEX     62 | R X B R' 0 mmm | W vvvv 1 pp | z L'L b V' aaa | opcode | ModRM [SIB] [displacement] [immediate]
//! ```
//!
//! ModRM names two operands: `reg`, a register or a digit of the opcode, and `rm`, a register or memory. R, X and B are the
//! high bits of `reg`, of an index, and of `rm` or a base; pp and mmm stand for the bytes ahead of a legacy opcode; vvvv is a
//! third register. The bits of registers are inverted in VEX and EVEX. EVEX counts a displacement of one byte in units of what
//! the instruction reads; aaa is the mask under which it works, 0 for none; b repeats four bytes of memory.
//!
//! dynasm was tried: its forms for registers that are chosen at run time make a lookup a fifth longer, and a batch of the
//! selftest rows 1.05 times as slow (AMD EPYC, November 2026). Its assembler keeps labels and what is relative to them.

use dynasmrt::relocations::{Relocation, RelocationKind, RelocationSize};
use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi};

use super::evex::LaneSource;
use super::inst::{Address, Reg, Size, VectorSource};
use crate::code_buffer::CodeBuffer;

/// The code of one compilation.
pub(super) type Buffer = CodeBuffer<X64Relocation>;

/// The operand `rm`.
#[derive(Clone, Copy)]
pub(super) enum Rm {
    Reg(Reg),
    /// The low byte of a general register, in legacy instructions.
    LowByte(Reg),
    Mem(Address),
    /// Four bytes for all lanes alike, in EVEX instructions.
    Splat(Address),
}

impl From<Reg> for Rm {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<Address> for Rm {
    fn from(address: Address) -> Self {
        Self::Mem(address)
    }
}

impl From<VectorSource> for Rm {
    fn from(source: VectorSource) -> Self {
        match source {
            VectorSource::Reg(reg) => Self::Reg(reg),
            VectorSource::Mem(address) => Self::Mem(address),
        }
    }
}

impl From<LaneSource> for Rm {
    fn from(source: LaneSource) -> Self {
        match source {
            LaneSource::Reg(reg) => Self::Reg(reg),
            LaneSource::Mem(address) => Self::Mem(address),
            LaneSource::Splat(address) => Self::Splat(address),
        }
    }
}

/// Bits of a vector instruction; those on masks and general registers say 128 or 256 for other reasons.
#[derive(Clone, Copy)]
pub(super) enum Length {
    L128,
    L256,
    L512,
}

/// What stands where an instruction has no third register, or works under no mask.
pub(super) const NONE: Reg = Reg::general(0);

/// A digit of the opcode where `reg` would be.
pub(super) const fn digit(digit: u8) -> Reg {
    Reg::general(digit)
}

/// An opcode and what belongs to it, however it is encoded.
#[derive(Clone, Copy)]
pub(super) struct Op {
    opcode: u32,
    reg: Reg,
    rm: Rm,
    size: Size,
    /// Bytes of the operand in memory, where that is not what the length of the vectors says.
    unit: Option<i32>,
    immediate: i32,
    immediate_bytes: u8,
}

/// `opcode` is as the manual spells it: 66, f3, f2 or 00; 0f 38, 0f 3a, 00 0f or 00 00; the opcode byte. `0x66_0f_38_3b` is
/// `66 0F 38 3B`, `VEX.66.0F38 3B` or `EVEX.66.0F38 3B`.
pub(super) fn op(opcode: u32, reg: Reg, rm: impl Into<Rm>) -> Op {
    Op {
        opcode,
        reg,
        rm: rm.into(),
        size: Size::S32,
        unit: None,
        immediate: 0,
        immediate_bytes: 0,
    }
}

impl Op {
    /// Sets W for 64 bits.
    pub(super) fn size(self, size: Size) -> Self {
        Self { size, ..self }
    }

    /// The operand in memory has `bytes` bytes, not those of a whole vector.
    pub(super) fn unit(self, bytes: i32) -> Self {
        Self {
            unit: Some(bytes),
            ..self
        }
    }

    /// Appends an immediate of one byte.
    pub(super) fn byte(self, immediate: u8) -> Self {
        Self {
            immediate: immediate.into(),
            immediate_bytes: 1,
            ..self
        }
    }

    /// Appends an immediate of four bytes.
    pub(super) fn dword(self, immediate: i32) -> Self {
        Self {
            immediate,
            immediate_bytes: 4,
            ..self
        }
    }

    /// Appends an immediate: of one byte, with the opcode `short`, where it fits.
    pub(super) fn immediate(self, short: u32, immediate: i32) -> Self {
        match i8::try_from(immediate) {
            Ok(byte) => Self {
                opcode: short,
                ..self.byte(byte.cast_unsigned())
            },
            Err(_) => self.dword(immediate),
        }
    }

    /// Writes it without VEX.
    pub(super) fn legacy(self, b: &mut Buffer) {
        // Without REX the byte registers 4 to 7 are ah, ch, dh and bh.
        let rex = match self.rm {
            Rm::LowByte(reg) if reg.encoding() >= 4 => REX,
            _ => 0,
        };
        legacy_opcode(b, self.opcode, rex | self.w() << 3 | self.high_bits());
        self.operands(b, 1);
    }

    /// Writes it with VEX: the third register `a` is in vvvv.
    pub(super) fn vex(self, b: &mut Buffer, length: Length, a: Reg) {
        let (pp, map, opcode) = self.packed_opcode();
        let (w, high) = (self.w(), self.high_bits());
        let last = (a.encoding() ^ 0b1111) << 3 | (length as u8) << 2 | pp;
        // The short prefix has R alone, and stands for the map 0f.
        if (w, high & 0b011, map) == (0, 0, 1) {
            b.assembler.extend([0xc5, (high << 5) ^ 1 << 7 | last]);
        } else {
            let first = (high << 5) ^ 0b111 << 5 | map;
            b.assembler.extend([0xc4, first, w << 7 | last]);
        }
        b.assembler.push(opcode);
        self.operands(b, 1);
    }

    /// Writes it with EVEX: the third register `a` is in vvvv, lanes outside the mask `under` stay or are 0.
    pub(super) fn evex(self, b: &mut Buffer, length: Length, a: Reg, under: Reg) {
        let (pp, map, opcode) = self.packed_opcode();
        let (is_splat, unit) = match self.rm {
            Rm::Splat(_) => (true, 4),
            _ => (false, self.unit.unwrap_or(16 << length as u8)),
        };
        // R' and V', inverted, stand for registers below 16.
        b.assembler.extend([
            0x62,
            (self.high_bits() << 5) ^ 0b111 << 5 | 1 << 4 | map,
            self.w() << 7 | (a.encoding() ^ 0b1111) << 3 | 1 << 2 | pp,
            (length as u8) << 5 | u8::from(is_splat) << 4 | 1 << 3 | under.encoding(),
            opcode,
        ]);
        self.operands(b, unit);
    }

    fn w(self) -> u8 {
        u8::from(self.size == Size::S64)
    }

    /// R, X and B.
    fn high_bits(self) -> u8 {
        let (index, rm) = match self.rm {
            Rm::Reg(reg) | Rm::LowByte(reg) => (0, high(reg)),
            Rm::Mem(address) | Rm::Splat(address) => match address {
                Address::Base { base, .. } => (0, high(base)),
                Address::Indexed { base, index, .. } => (high(index), high(base)),
                Address::Pool { .. } => (0, 0),
            },
        };
        high(self.reg) << 2 | index << 1 | rm
    }

    /// pp, mmm and the opcode byte.
    fn packed_opcode(self) -> (u8, u8, u8) {
        let [prefix, escapes @ .., opcode] = self.opcode.to_be_bytes();
        let pp = match prefix {
            0x66 => 1,
            0xf3 => 2,
            0xf2 => 3,
            _ => 0,
        };
        let map = match escapes {
            [0x0f, 0x38] => 2,
            [0x0f, 0x3a] => 3,
            _ => 1,
        };
        (pp, map, opcode)
    }

    /// ModRM and all that follows it; a displacement of one byte counts in `unit`s.
    fn operands(self, b: &mut Buffer, unit: i32) {
        let reg = (self.reg.encoding() & 7) << 3;
        match self.rm {
            Rm::Reg(rm) | Rm::LowByte(rm) => {
                b.assembler.push(0b11 << 6 | reg | rm.encoding() & 7);
            }
            Rm::Mem(address) | Rm::Splat(address) => memory(b, reg, address, unit),
        }
        let immediate = self.immediate.to_le_bytes();
        b.assembler
            .extend(&immediate[..usize::from(self.immediate_bytes)]);
        if let Rm::Mem(Address::Pool { offset }) | Rm::Splat(Address::Pool { offset }) = self.rm {
            relative(b, b.pool, offset as isize, 4 + self.immediate_bytes);
        }
    }
}

/// An instruction whose opcode names its register.
pub(super) fn in_opcode(b: &mut Buffer, opcode: u32, size: Size, reg: Reg) {
    let rex = u8::from(size == Size::S64) << 3 | high(reg);
    legacy_opcode(b, opcode | u32::from(reg.encoding() & 7), rex);
}

/// A jump whose opcode is `opcode`. It has four bytes of distance: the label may not be bound yet.
pub(super) fn jump(b: &mut Buffer, opcode: &[u8], to: DynamicLabel) {
    b.assembler.extend(opcode);
    b.assembler.extend([0; 4]);
    relative(b, to, 0, 4);
}

const REX: u8 = 0x40;
/// The number of rsp and r12, which in ModRM stands for an SIB byte.
const SIB: u8 = 0b100;
/// The number of rsp, which in an SIB byte stands for no index.
const NO_INDEX: u8 = 0b100 << 3;
/// The number of rbp and r13, which without a displacement stands for the instruction pointer and four bytes.
const RIP: u8 = 0b101;

/// The opcode with what comes ahead of it, `rex` only where a bit of it is set.
fn legacy_opcode(b: &mut Buffer, opcode: u32, rex: u8) {
    let [prefix, first, second, opcode] = opcode.to_be_bytes();
    let rex = if rex == 0 { 0 } else { REX | rex };
    let ahead = [prefix, rex, first, second];
    b.assembler
        .extend(ahead.into_iter().filter(|&byte| byte != 0));
    b.assembler.push(opcode);
}

/// ModRM, with `reg` in its place, SIB and displacement; that to the pool is yet to be filled in.
fn memory(b: &mut Buffer, reg: u8, address: Address, unit: i32) {
    let (base, sib, disp) = match address {
        Address::Pool { .. } => {
            b.assembler.extend([reg | RIP, 0, 0, 0, 0]);
            return;
        }
        Address::Base { base, disp } => {
            let base = base.encoding() & 7;
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
        Some(0) if base != RIP => 0b00,
        Some(_) => 0b01,
        None => 0b10,
    };
    let rm = if sib.is_some() { SIB } else { base };
    b.assembler.push(mode << 6 | reg | rm);
    b.assembler.extend(sib);
    match (mode, short) {
        (0b00, _) => {}
        (_, Some(short)) => b.assembler.push(short.cast_unsigned()),
        (_, None) => b.assembler.extend(disp.to_le_bytes()),
    }
}

/// Fills in the four bytes that start `back` bytes ahead: from here to `offset` behind a label.
fn relative(b: &mut Buffer, label: DynamicLabel, offset: isize, back: u8) {
    let kind = X64Relocation::from_size(RelocationKind::Relative, RelocationSize::DWord);
    b.assembler.dynamic_relocation(label, offset, back, 0, kind);
}

/// The bit of a register's number that a prefix has.
fn high(reg: Reg) -> u8 {
    reg.encoding() >> 3
}
