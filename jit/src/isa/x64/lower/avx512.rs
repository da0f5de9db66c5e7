//! What the AVX-512 tier does in another way: masks in mask registers, and sixteen lanes in one zmm register.
//!
//! - A comparison puts a bit a lane into a mask register. One whose mask is only anded with another is made under that one
//!   ([`Uses::sinks`](crate::isa::uses::Uses::sinks)), which is the `and`.
//! - Comparisons are unsigned, so that a closed interval takes two instructions, and lanes without a common bit take one.
//! - A constant is four bytes in the pool, read into all lanes by the instruction that wants it.
//! - Where eight lanes need none of this, the AVX2 forms are shorter. Whole programs keep them where masks gain nothing: see
//!   [`gains`].
//!
//! On a Zen 4 (family 25 model 17, 3.7 GHz, 2026-12-01, loops of one instruction) there are four units for lanes of AVX2, and
//! two for masks; 512 bits take a unit, and a load, twice. So many can start in a cycle, or so long it takes:
//!
//! | | 8 lanes, AVX2 | 8 lanes, masks | 16 lanes |
//! | --- | --- | --- | --- |
//! | comparison of two registers | 4 a cycle (equal ones) | 2 a cycle | 1 a cycle |
//! | comparison with memory | 2 a cycle | 1.6 a cycle | 1 a cycle; 0.7 across a line |
//! | subtraction of registers, from memory | 4, 2 a cycle | - | 2, 1 a cycle |
//! | minimum under a mask, in memory | three instructions | - | 1.7, 1 a cycle |
//! | `and`, `or`, `and not` of two masks | 4 a cycle | 2 a cycle | 2 a cycle |
//! | mask to a general register | 1 a cycle | 1 a cycle | 1 a cycle |
//! | comparison under the mask of one before | - | 4 cycles | 5 cycles |

use pktjit_ir::program::{Inst as Ir, LaneCompareOp, MaskOp as IrMaskOp, Type};
use pktjit_ir::{TableId, ValueId, VerifiedProgram};

use super::Lowering;
use crate::isa::x64::evex::{Avx512, Comparison, LaneSource, Lanes, Lanewise, MaskOp};
use crate::isa::x64::inst::{Address, Class, Inst, Piece, Reg, Vector, VectorSource};
use crate::isa::x64::regs::copy;

/// An operand with the table that it is in, if it is in one.
type Operand = (LaneSource, Option<TableId>);

/// Whether AVX-512 has something better for `program` than AVX2: sixteen lanes; or for eight unsigned comparisons and minima
/// under masks, unless masks are combined as those of wide numbers are, for which there are twice as many units where they
/// are lanes.
pub(crate) fn gains(program: &VerifiedProgram) -> bool {
    let mut is_better = false;
    let mut is_worse = false;
    for value in (0..program.value_count() as u32).map(ValueId::new) {
        if let Type::Lanes(16) | Type::Mask(16) = program.facts(value).ty {
            return true;
        }
    }
    for (_, inst) in program
        .program()
        .blocks
        .iter()
        .flat_map(|block| &block.insts)
    {
        match inst {
            Ir::InRangeLanes { .. } | Ir::InRangeHalves { .. } | Ir::MaskedMin { .. } => {
                is_better = true;
            }
            Ir::CompareLanes { op, .. } => is_better |= *op == LaneCompareOp::Le,
            Ir::CombineMasks { op, .. } => is_worse |= *op == IrMaskOp::AndNot,
            _ => {}
        }
    }
    is_better && !is_worse
}

impl Lowering<'_> {
    /// The code of an instruction for which AVX-512 has something better than AVX2, where the target has AVX-512.
    pub(super) fn with_avx512(&mut self, inst: &Ir) -> Option<Reg> {
        if !self.features.avx512 {
            return None;
        }
        Some(match *inst {
            Ir::LoadLanes { lanes: 16, .. } | Ir::LoadScratchLanes { lanes: 16, .. } => {
                let dst = self.vector();
                if let Some((address, table)) = self.lanes_address(inst) {
                    let load = match self.widening(inst) {
                        Some(narrow) => Avx512::WidenLoad {
                            dst,
                            address,
                            narrow,
                        },
                        None => Avx512::Load { dst, address },
                    };
                    self.push_reading(load.into(), table);
                }
                dst
            }
            Ir::Splat { a, lanes } => self.own_splat(inst, a, lanes)?,
            Ir::AndLanes { a, b } => {
                let (lanes, a, b) = self.commuting(a, b);
                self.lanewise(Lanewise::And, lanes, a, b)
            }
            Ir::CompareLanes { .. }
            | Ir::InRangeLanes { .. }
            | Ir::InRangeHalves { .. }
            | Ir::MaskedEqLanes { .. } => self.comparison(inst, None)?,
            Ir::CombineMasks { op, a, b } => self.combine_masks(op, a, b),
            Ir::LaneBits { mask } => {
                let (lanes, src, dst) = (self.lanes(mask), self.reg(mask), self.general());
                self.push(Avx512::MaskBits { lanes, dst, src }.into());
                dst
            }
            Ir::MaskedMin { acc, mask, x } => {
                let lanes = self.lanes(acc);
                let mask = self.reg(mask);
                let (src, table) = self.lane_source(x);
                let dst = self.vector_copy(acc, lanes);
                let min = Avx512::MaskedMin {
                    lanes,
                    dst,
                    mask,
                    src,
                };
                self.push_reading(min.into(), table);
                dst
            }
            _ => return None,
        })
    }

    fn lanes(&self, value: ValueId) -> Lanes {
        match self.facts.facts(value).ty {
            Type::Lanes(16) | Type::Mask(16) => Lanes::X16,
            _ => Lanes::X8,
        }
    }

    /// A splat for which AVX2 has nothing, or nothing as good.
    fn own_splat(&mut self, inst: &Ir, a: ValueId, lanes: u8) -> Option<Reg> {
        let width = if lanes == 16 { Lanes::X16 } else { Lanes::X8 };
        match self.uses.constant(a) {
            // Clearing the low 128 bits clears all.
            Some(0) => return None,
            Some(constant) if constant == u64::from(u32::MAX) => {
                let dst = self.vector();
                self.push(Avx512::Ones { lanes: width, dst }.into());
                return Some(dst);
            }
            Some(constant) => {
                let (address, dst) = (self.pool_lane(constant as u32), self.vector());
                let piece = Piece::B4;
                self.push(match width {
                    Lanes::X8 => Inst::BroadcastLoad {
                        dst,
                        address,
                        piece,
                    },
                    Lanes::X16 => Avx512::BroadcastLoad {
                        dst,
                        address,
                        piece,
                    }
                    .into(),
                });
                return Some(dst);
            }
            None => {}
        }
        let is_pending_load = self.registers[a.index()].is_none()
            && matches!(self.uses.inst(a), Some(Ir::Load { .. }));
        if self.uses.splatted_key(inst).is_some() || is_pending_load {
            return None;
        }
        let (src, dst) = (self.reg(a), self.vector());
        let lanes = width;
        self.push(Avx512::Broadcast { lanes, dst, src }.into());
        Some(dst)
    }

    /// The mask of a comparison, without the lanes outside the mask `under`; `None` of other instructions.
    fn comparison(&mut self, inst: &Ir, under: Option<Reg>) -> Option<Reg> {
        let (op, lanes, a, (b, table)) = match *inst {
            Ir::CompareLanes {
                op: LaneCompareOp::Eq,
                a,
                b,
            } => match (self.uses.is_zero(a), self.uses.is_zero(b)) {
                (_, true) => self.all_zero(a),
                (true, false) => self.all_zero(b),
                (false, false) => {
                    let (lanes, a, b) = self.commuting(a, b);
                    (Comparison::Equal, lanes, a, b)
                }
            },
            Ir::CompareLanes {
                op: LaneCompareOp::Le,
                a,
                b,
            } => {
                let lanes = self.lanes(a);
                if self.is_better_second(a, b) {
                    let b = self.reg(b);
                    (Comparison::AtLeast, lanes, b, self.lane_source(a))
                } else {
                    let a = self.reg(a);
                    (Comparison::AtMost, lanes, a, self.lane_source(b))
                }
            }
            Ir::InRangeLanes { x, lo, len } => {
                let (lanes, x) = (self.lanes(x), self.reg(x));
                let lo = self.lane_source(lo);
                let distance = self.lanewise(Lanewise::Sub, lanes, x, lo);
                (Comparison::AtMost, lanes, distance, self.lane_source(len))
            }
            Ir::InRangeHalves { x, lo, len } => {
                let (lanes, x) = (self.lanes(x), self.reg(x));
                let lo = self.whole_source(lo);
                let distance = self.lanewise(Lanewise::SubHalves, lanes, x, lo);
                let len = self.whole_source(len);
                let clamped = self.lanewise(Lanewise::MinHalves, lanes, distance, len);
                (
                    Comparison::Equal,
                    lanes,
                    distance,
                    (LaneSource::Reg(clamped), None),
                )
            }
            Ir::MaskedEqLanes { x, mask, value } if self.uses.is_zero(value) => {
                let (lanes, x, mask) = self.commuting(x, mask);
                (Comparison::Disjoint, lanes, x, mask)
            }
            Ir::MaskedEqLanes { x, mask, value } => {
                let (lanes, x, mask) = self.commuting(x, mask);
                let masked = self.lanewise(Lanewise::And, lanes, x, mask);
                (Comparison::Equal, lanes, masked, self.lane_source(value))
            }
            _ => return None,
        };
        let dst = self.new_register(Class::Mask);
        let compare = Avx512::Compare {
            op,
            lanes,
            dst,
            under,
            a,
            b,
        };
        self.push_reading(compare.into(), table);
        Some(dst)
    }

    /// The comparison of lanes with 0, which ands what is only compared.
    fn all_zero(&mut self, x: ValueId) -> (Comparison, Lanes, Reg, Operand) {
        let pending = self.uses.inst(x);
        let (lanes, a, b) = match pending {
            Some(&Ir::AndLanes { a, b }) if self.registers[x.index()].is_none() => {
                self.commuting(a, b)
            }
            _ => {
                let x_reg = self.reg(x);
                (self.lanes(x), x_reg, (LaneSource::Reg(x_reg), None))
            }
        };
        (Comparison::Disjoint, lanes, a, b)
    }

    fn combine_masks(&mut self, op: IrMaskOp, a: ValueId, b: ValueId) -> Reg {
        // What has no register yet is a comparison that was kept for this place.
        let (a, b) = if op == IrMaskOp::And && self.is_better_second(a, b) {
            (b, a)
        } else {
            (a, b)
        };
        let a = self.reg(a);
        if op == IrMaskOp::And
            && self.registers[b.index()].is_none()
            && let Some(inst) = self.uses.inst(b)
        {
            let before = self.line.value.replace(b);
            let both = self.comparison(inst, Some(a));
            self.line.value = before;
            if let Some(both) = both {
                return both;
            }
        }
        let b = self.reg(b);
        // `kandn` negates its first operand.
        let (op, a, b) = match op {
            IrMaskOp::And => (MaskOp::And, a, b),
            IrMaskOp::Or => (MaskOp::Or, a, b),
            IrMaskOp::AndNot => (MaskOp::AndNot, b, a),
        };
        let dst = self.new_register(Class::Mask);
        self.push(Avx512::MaskOp { op, dst, a, b }.into());
        dst
    }

    /// A fresh register that starts out as the lanes `value` and may be changed.
    fn vector_copy(&mut self, value: ValueId, lanes: Lanes) -> Reg {
        if self.registers[value.index()].is_none() {
            // Computed for this use alone.
            return self.reg(value);
        }
        let (src, dst) = (self.reg(value), self.vector());
        let class = match lanes {
            Lanes::X8 => Class::Vector,
            Lanes::X16 => Class::Wide,
        };
        self.push(copy(class, dst, src));
        dst
    }

    /// A register with eight lanes whose minimum is that of the lanes `a`.
    pub(super) fn lower_minima(&mut self, a: ValueId) -> Reg {
        let src = self.reg(a);
        if self.lanes(a) == Lanes::X8 {
            return src;
        }
        let upper = self.vector();
        self.push(Avx512::UpperHalf { dst: upper, src }.into());
        self.vector_op(Vector::MinUD, src, (VectorSource::Reg(upper), None))
    }

    /// dst = a op b, and the register dst.
    pub(super) fn lanewise(
        &mut self,
        op: Lanewise,
        lanes: Lanes,
        a: Reg,
        (b, table): Operand,
    ) -> Reg {
        let dst = self.vector();
        let short = match b {
            _ if lanes == Lanes::X16 => None,
            LaneSource::Reg(b) => Some(VectorSource::Reg(b)),
            LaneSource::Mem(address) => Some(VectorSource::Mem(address)),
            LaneSource::Splat(_) => None,
        };
        let inst = match short {
            Some(b) => {
                let op = match op {
                    Lanewise::And => Vector::And,
                    Lanewise::Xor => Vector::Xor,
                    Lanewise::Sub => Vector::SubD,
                    Lanewise::SubHalves => Vector::SubW,
                    Lanewise::MinHalves => Vector::MinUW,
                    Lanewise::ShuffleBytes => Vector::ShufB,
                };
                Inst::Vector { op, dst, a, b }
            }
            None => Avx512::Lanewise {
                op,
                lanes,
                dst,
                a,
                b,
            }
            .into(),
        };
        self.push_reading(inst, table);
        dst
    }

    /// Two operands in the better order where that does not matter, of which the second may be in memory.
    fn commuting(&mut self, a: ValueId, b: ValueId) -> (Lanes, Reg, Operand) {
        let (a, b) = if self.is_better_second(a, b) {
            (b, a)
        } else {
            (a, b)
        };
        let lanes = self.lanes(a);
        (lanes, self.reg(a), self.lane_source(b))
    }

    /// Whether `a` has no register yet and may be an operand in memory, and `b` has one.
    fn is_better_second(&self, a: ValueId, b: ValueId) -> bool {
        self.registers[a.index()].is_none() && self.registers[b.index()].is_some()
    }

    /// The last operand of an instruction on lanes.
    fn lane_source(&mut self, value: ValueId) -> Operand {
        if self.registers[value.index()].is_none()
            && let Some(inst) = self.uses.inst(value)
        {
            if self.widening(inst).is_none()
                && let Some((address, table)) = self.lanes_address(inst)
            {
                return (LaneSource::Mem(address), table);
            }
            if let Ir::Splat { a, .. } = *inst
                && let Some(lane) = self.uses.constant(a)
            {
                let source = match lane {
                    0 => LaneSource::Reg(self.zeros(value)),
                    _ => LaneSource::Splat(self.pool_lane(lane as u32)),
                };
                return (source, None);
            }
        }
        (LaneSource::Reg(self.reg(value)), None)
    }

    /// The last operand of an instruction that does not know of lanes, and so takes no lane for all.
    fn whole_source(&mut self, value: ValueId) -> Operand {
        match self.lane_source(value) {
            (LaneSource::Splat(_), _) => (LaneSource::Reg(self.reg(value)), None),
            source => source,
        }
    }

    /// Four bytes in the pool.
    fn pool_lane(&mut self, lane: u32) -> Address {
        self.pool_vector(&lane.to_le_bytes())
    }
}
