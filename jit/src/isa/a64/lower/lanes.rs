//! Lane instructions: four lanes in each vector register.
//!
//! There is no `movmskps`. The first lane of a mask is found without one: the mask is narrowed until it has 64 bits (`uzp1`,
//! `xtn`), moved to a general register, and its first bit divided by the bits of a lane: six instructions for eight lanes and no
//! constant. `uminv` of the lanes' numbers, which a `bsl` selects, has two fewer, but loads two constants, and its three
//! to five cycles come on top of those of `bsl` and of the same move. Where the bits of all lanes are needed as such, each
//! lane keeps the bit of its own number (`and`), and `addv` adds them up.

use pktjit_ir::program::{BinaryOp, Inst as Ir, LaneCompareOp, Type};
use pktjit_ir::{ByteOrder, ValueId};

use super::scalars::key_address;
use super::{Held, Lowering};
use crate::isa::a64::abi::KEY;
use crate::isa::a64::inst::{
    Alu, Inst, Narrow, Operand, Reduce, Reg, Shift, Size, Swap, Vector, VectorWidth,
};

/// The first of the lanes of a mask, up to a limit that is at most the number of lanes.
#[derive(Clone, Copy)]
pub(super) struct FirstLane {
    mask: ValueId,
    lanes: u8,
    limit: u8,
}

/// Lanes.
impl Lowering<'_> {
    pub(super) fn splat(&mut self, inst: &Ir, a: ValueId, lanes: u8) -> Held {
        let reg = self.splatted(inst, a);
        Held {
            low: reg,
            high: (lanes > 4).then_some(reg),
        }
    }

    /// The scalar `a` in each of four lanes.
    fn splatted(&mut self, inst: &Ir, a: ValueId) -> Reg {
        if let Some(constant) = self.uses.constant(a) {
            if constant == 0 {
                let dst = self.vector();
                self.push(Inst::VectorZero { dst });
                return dst;
            }
            return self.pool_vector(&(constant as u32).to_le_bytes().repeat(4));
        }
        if let Some(&Ir::LoadKey {
            offset,
            bytes,
            order,
        }) = self.uses.splatted_key(inst)
        {
            return self.splatted_key(offset, bytes, order);
        }
        if self.registers[a.index()].is_none()
            && let Some(&Ir::Load { row, column, index }) = self.uses.inst(a)
        {
            let (src, dst) = (self.load_to_vector(row, column, index), self.vector());
            self.push(Inst::Broadcast { dst, src });
            return dst;
        }
        let (src, dst) = (self.reg(a), self.vector());
        self.push(Inst::BroadcastScalar { dst, src });
        dst
    }

    /// A number of the key in each lane, without a detour through a general register.
    fn splatted_key(&mut self, offset: u16, bytes: u8, order: ByteOrder) -> Reg {
        // What fits a lane has zeros in the upper four of its eight bytes.
        let (offset, bytes) = match (bytes, order) {
            (8, ByteOrder::Big) => (offset + 4, 4),
            (8, ByteOrder::Little) => (offset, 4),
            _ => (offset, bytes),
        };
        let loaded = self.vector();
        let is_everywhere = offset == 0 && bytes == 4;
        self.push(if is_everywhere {
            Inst::LoadEachLane {
                dst: loaded,
                base: KEY,
            }
        } else {
            Inst::VectorLoad {
                dst: loaded,
                address: key_address(offset),
                width: match bytes {
                    1 => VectorWidth::B1,
                    2 => VectorWidth::B2,
                    _ => VectorWidth::B4,
                },
            }
        });
        let swap = match (order, bytes) {
            (ByteOrder::Big, 2) => Some(Swap::In16),
            (ByteOrder::Big, 4) => Some(Swap::In32),
            _ => None,
        };
        let src = match swap {
            None => loaded,
            Some(swap) => {
                let (src, dst) = (loaded, self.vector());
                self.push(Inst::SwapBytes { swap, dst, src });
                dst
            }
        };
        if is_everywhere {
            return src;
        }
        let dst = self.vector();
        self.push(Inst::Broadcast { dst, src });
        dst
    }

    /// A constant in the pool.
    fn pool_vector(&mut self, constant: &[u8]) -> Reg {
        let (offset, dst) = (self.pool.vector(constant), self.vector());
        self.push(Inst::VectorConstant { dst, offset });
        dst
    }

    /// `a op b`, four lanes after the other.
    pub(super) fn lanewise(&mut self, op: Vector, a: ValueId, b: ValueId) -> Held {
        let (a, b) = (self.held(a), self.held(b));
        self.each(op, a, b)
    }

    pub(super) fn each(&mut self, op: Vector, a: Held, b: Held) -> Held {
        let low = self.vector_op(op, a.low, b.low);
        let high = match (a.high, b.high) {
            // All lanes are alike.
            (Some(high), Some(other)) if (high, other) == (a.low, b.low) => Some(low),
            (Some(high), Some(other)) => Some(self.vector_op(op, high, other)),
            _ => None,
        };
        Held { low, high }
    }

    fn vector_op(&mut self, op: Vector, a: Reg, b: Reg) -> Reg {
        let dst = self.vector();
        self.push(Inst::Vector { op, dst, a, b });
        dst
    }

    pub(super) fn compare_lanes(&mut self, op: LaneCompareOp, a: ValueId, b: ValueId) -> Held {
        match op {
            LaneCompareOp::Eq if self.uses.is_zero(b) => self.equals_zero(a),
            LaneCompareOp::Eq if self.uses.is_zero(a) => self.equals_zero(b),
            LaneCompareOp::Eq => self.lanewise(Vector::Equal, a, b),
            LaneCompareOp::Le => self.lanewise(Vector::HigherOrSame, b, a),
        }
    }

    fn equals_zero(&mut self, a: ValueId) -> Held {
        let a = self.held(a);
        let mut test = |src| {
            let dst = self.vector();
            self.push(Inst::EqualsZero { dst, src });
            dst
        };
        Held {
            low: test(a.low),
            high: a.high.map(test),
        }
    }

    pub(super) fn in_range(&mut self, x: ValueId, lo: ValueId, len: ValueId) -> Held {
        let distance = self.lanewise(Vector::Sub, x, lo);
        let len = self.held(len);
        self.each(Vector::HigherOrSame, len, distance)
    }

    /// Both halves are within where none is more than its length: then the smaller ones are the distances.
    pub(super) fn in_range_halves(&mut self, x: ValueId, lo: ValueId, len: ValueId) -> Held {
        let distance = self.lanewise(Vector::SubHalves, x, lo);
        let len = self.held(len);
        let clamped = self.each(Vector::MinHalves, distance, len);
        self.each(Vector::Equal, distance, clamped)
    }

    /// Lanes outside the mask become all ones, which no minimum prefers.
    pub(super) fn masked_min(&mut self, acc: ValueId, mask: ValueId, x: ValueId) -> Held {
        let candidates = self.lanewise(Vector::OrNot, x, mask);
        let is_first = matches!(self.uses.inst(acc), Some(&Ir::Splat { a, .. })
            if self.uses.constant(a) == Some(u32::MAX.into()));
        if is_first {
            return candidates;
        }
        let acc = self.held(acc);
        self.each(Vector::Min, acc, candidates)
    }

    pub(super) fn horizontal_min(&mut self, a: ValueId) -> Reg {
        let Held { low, high } = self.held(a);
        let src = match high {
            Some(high) => self.vector_op(Vector::Min, low, high),
            None => low,
        };
        self.reduced(Reduce::Min32, src)
    }

    fn reduced(&mut self, op: Reduce, src: Reg) -> Reg {
        let dst = self.vector();
        self.push(Inst::Reduce { op, dst, src });
        self.scalar_of(Size::S32, dst)
    }

    fn scalar_of(&mut self, size: Size, src: Reg) -> Reg {
        let dst = self.general();
        self.push(Inst::ToScalar { size, dst, src });
        dst
    }

    /// Bit i for lane i.
    pub(super) fn lane_bits(&mut self, mask: ValueId) -> Reg {
        let Held { low, high } = self.held(mask);
        let (lanes, sum, weights): (_, _, Vec<u8>) = match high {
            Some(high) => {
                let lanes = self.vector_op(Vector::Unzip16, low, high);
                let weights = (0..8).flat_map(|lane| (1u16 << lane).to_le_bytes());
                (lanes, Reduce::Sum16, weights.collect())
            }
            None => {
                let weights = (0..4).flat_map(|lane| (1u32 << lane).to_le_bytes());
                (low, Reduce::Sum32, weights.collect())
            }
        };
        let weights = self.pool_vector(&weights);
        let bits = self.vector_op(Vector::And, lanes, weights);
        self.reduced(sum, bits)
    }

    /// The mask of which a scalar has the bits of all lanes, and one more bit of a constant.
    pub(super) fn first_lane(&self, bits: ValueId) -> Option<FirstLane> {
        let &Ir::Binary {
            op: BinaryOp::Or,
            a,
            b,
        } = self.uses.inst(bits)?
        else {
            return None;
        };
        let (a, b) = match self.uses.constant(a) {
            Some(_) => (b, a),
            None => (a, b),
        };
        let &Ir::LaneBits { mask } = self.uses.inst(a)? else {
            return None;
        };
        let Type::Mask(lanes) = self.facts.facts(mask).ty else {
            return None;
        };
        let is_alone = [bits, a]
            .into_iter()
            .all(|value| self.uses.is_single(value) && self.uses.is_local(value));
        let known = self
            .uses
            .constant(b)
            .filter(|known| known.is_power_of_two())?;
        let limit = known.trailing_zeros();
        (is_alone && limit <= lanes.into()).then_some(FirstLane {
            mask,
            lanes,
            limit: limit as u8,
        })
    }

    /// Whether a value is part of what [`first_lane`](Self::first_lane) finds, and its only user is the first bit.
    pub(super) fn is_of_first_lane(&self, value: ValueId) -> bool {
        match self.uses.only_user(value) {
            Some((_, &Ir::FirstBit { a })) => self.first_lane(a).is_some(),
            Some((user, Ir::Binary { .. })) => {
                matches!(self.uses.only_user(user), Some((_, Ir::FirstBit { .. })))
                    && self.first_lane(user).is_some()
            }
            _ => false,
        }
    }

    /// The number of the first lane that the mask holds in, or the limit if that is less.
    pub(super) fn first_of_lanes(&mut self, first: FirstLane) -> Reg {
        let FirstLane { mask, lanes, limit } = first;
        let Held { low, high } = self.held(mask);
        let (op, src) = match high {
            Some(high) => {
                let lanes = self.vector_op(Vector::Unzip16, low, high);
                (Narrow::From16, lanes)
            }
            None => (Narrow::From32, low),
        };
        let narrow = self.vector();
        let dst = narrow;
        self.push(Inst::Narrow { op, dst, src });
        let mut bits = self.scalar_of(Size::S64, narrow);
        let bits_of_lane = 64 / lanes;
        // Without any bit 64 zeros are counted, which are as many as of all lanes.
        if limit < lanes {
            let (a, dst) = (bits, self.general());
            self.push(Inst::Alu {
                op: Alu::Or,
                size: Size::S64,
                dst,
                a,
                b: Operand::Imm(1 << (limit * bits_of_lane)),
            });
            bits = dst;
        }
        let first = self.trailing_zeros(Size::S64, bits);
        self.shift(
            Shift::Right,
            Size::S32,
            first,
            bits_of_lane.trailing_zeros() as u8,
        )
    }
}
