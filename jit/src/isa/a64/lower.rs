//! What lowering to AArch64 does beyond what it does for all instruction sets.
//!
//! Eight lanes are two vector registers, which `ldp` loads at once; four are one. So a program has as many lanes as for AVX2,
//! and the index, the row and the first lane of a bucket are computed once for eight rules. A bucket of four lanes would need
//! all of that twice for the same rules.
//!
//! There are registers enough for most programs, so values are computed where they are used (`Uses::sinks`) less
//! to hold none than because that is where x86-64 computes them, too.
//!
//! Invariants: `immediate` has agreed to the immediates of every instruction; a virtual register is written once,
//! except for block parameters, `movk` and `bfi`, which change what was made for them.

mod lanes;
mod memory;
mod scalars;
mod staged;

use pktjit_ir::program::{Inst as Ir, MaskOp, Type};
use pktjit_ir::{TableId, ValueId};

use super::abi;
use super::immediate::is_arithmetic;
use super::inst::{self, Cond, Inst, Label, Operand, Reg, Shift, Size, Vector};
use crate::isa::lower::{Held, Machine};
use crate::target::Target;
use memory::Place;

pub(super) type Lowering<'a> = crate::isa::lower::Lowering<'a, Inst>;

impl Machine for Inst {
    type Place = Place;
    type InBlock = ();

    const RESULT: Reg = abi::RESULT;

    fn vectors(_: &Target) -> (&'static str, &'static [u8]) {
        ("NEON", &[4, 8])
    }

    fn has_masks(_: &Target) -> bool {
        false
    }

    fn mov(size: Size, to: Reg, from: Reg) -> Self {
        let (dst, src) = (to, from);
        Self::Mov { size, dst, src }
    }

    fn jump(to: Label) -> Self {
        Self::Jump { to }
    }

    fn test(size: Size, a: Reg) -> Self {
        let b = Operand::Imm(0);
        Self::Cmp { size, a, b }
    }

    fn compare(lowering: &mut Lowering<'_>, _: Cond, a: ValueId, b: ValueId) {
        let size = lowering.common_size(a, b);
        let (a, b) = (lowering.reg(a), lowering.arithmetic(b));
        lowering.push(Self::Cmp { size, a, b });
    }

    fn jump_if(lowering: &mut Lowering<'_>, value: ValueId, is_nonzero: bool, to: Label) {
        lowering.jump_if(value, is_nonzero, to);
    }

    fn next_trip(lowering: &mut Lowering<'_>, counter: Reg, trips: u32, head: Label) {
        let trips = u64::from(trips);
        let trips = if is_arithmetic(trips) {
            Operand::Imm(trips)
        } else {
            Operand::Reg(lowering.set(trips))
        };
        lowering.push_all(abi::next_trip(counter, trips, head));
    }

    fn registers(lowering: &mut Lowering<'_>, ty: Type) -> Held {
        match ty {
            Type::Scalar | Type::Row(_) | Type::Nothing => Held::one(lowering.general()),
            Type::Lanes(lanes) | Type::Mask(lanes) => {
                let low = lowering.vector();
                let high = (lanes > 4).then(|| lowering.vector());
                Held { low, high }
            }
        }
    }

    fn is_left_out(lowering: &Lowering<'_>, value: ValueId, _: &Ir) -> bool {
        lowering.is_of_first_lane(value)
    }

    fn instruction(lowering: &mut Lowering<'_>, value: ValueId, inst: &Ir) -> Held {
        lowering.instruction(value, inst)
    }

    fn row(lowering: &mut Lowering<'_>, value: ValueId, table: TableId, index: ValueId) -> Place {
        lowering.row(value, table, index)
    }

    /// What begins further on than a displacement reaches is left to the CPU, which by then sees where it goes.
    fn prefetch(
        lowering: &mut Lowering<'_>,
        row: Place,
        bytes: impl Iterator<Item = u32>,
        table: TableId,
    ) {
        let base = lowering.place_register(row);
        for disp in bytes.take_while(|&disp| disp <= inst::MAX_PREFETCH_DISP) {
            lowering.push_reading(Self::Prefetch { base, disp }, Some(table));
        }
    }

    fn staged_index(lowering: &mut Lowering<'_>, to: Reg, max: u64) {
        lowering.read_staged_index(to, max);
    }

    fn clear(lowering: &mut Lowering<'_>, trips: u32, rest: u32) {
        lowering.clear(trips, rest);
    }
}

/// Operands.
impl Lowering<'_> {
    /// The second operand of `add`, `sub` or `cmp`.
    fn arithmetic(&mut self, value: ValueId) -> Operand {
        match self.uses.constant(value) {
            Some(imm) if is_arithmetic(imm) => Operand::Imm(imm),
            _ => Operand::Reg(self.reg(value)),
        }
    }
}

/// Instructions.
impl Lowering<'_> {
    fn instruction(&mut self, value: ValueId, inst: &Ir) -> Held {
        match *inst {
            Ir::Const(constant) => Held::one(self.set(constant)),
            Ir::LoadKey {
                offset,
                bytes,
                order,
            } => Held::one(self.load_key(offset, bytes, order)),
            Ir::Binary { op, a, b } => Held::one(self.binary(value, op, a, b)),
            Ir::Shl { a, by } => Held::one(self.shift_by(value, Shift::Left, a, by)),
            Ir::Shr { a, by } => Held::one(self.shift_by(a, Shift::Right, a, by)),
            Ir::Compare { op, a, b } => {
                let cond = self.compare(op, a, b);
                let dst = self.general();
                self.push(Inst::Set { cond, dst });
                Held::one(dst)
            }
            Ir::Select { cond, a, b } => Held::one(self.select(value, cond, a, b)),
            Ir::FirstBit { a } => Held::one(self.first_bit(a)),
            Ir::Row { .. } => {
                let place = self.row_place(value);
                Held::one(self.place_register(place))
            }
            Ir::Load { row, column, index } => Held::one(self.load(row, column, index)),
            Ir::LoadLanes { .. } | Ir::LoadScratchLanes { .. } => self.load_lanes(inst),
            Ir::LoadScratch { index } => Held::one(self.load_scratch(index)),
            Ir::OrScratch { index, bits } => {
                self.or_scratch(index, bits);
                // Never read, so that it occupies nothing.
                Held::one(self.general())
            }
            Ir::AndLanes { a, b } => self.lanewise(Vector::And, a, b),
            Ir::Splat { a, lanes } => self.splat(inst, a, lanes),
            Ir::CompareLanes { op, a, b } => self.compare_lanes(op, a, b),
            Ir::InRangeLanes { x, lo, len } => self.in_range(x, lo, len),
            Ir::InRangeHalves { x, lo, len } => self.in_range_halves(x, lo, len),
            Ir::MaskedEqLanes { x, mask, value } => {
                let masked = self.lanewise(Vector::And, x, mask);
                let value = self.held(value);
                self.each(Vector::Equal, masked, value)
            }
            Ir::CombineMasks { op, a, b } => {
                let op = match op {
                    MaskOp::And => Vector::And,
                    MaskOp::Or => Vector::Or,
                    MaskOp::AndNot => Vector::AndNot,
                };
                self.lanewise(op, a, b)
            }
            Ir::LaneBits { mask } => Held::one(self.lane_bits(mask)),
            Ir::MaskedMin { acc, mask, x } => self.masked_min(acc, mask, x),
            Ir::HorizontalMin { a } => Held::one(self.horizontal_min(a)),
        }
    }
}
