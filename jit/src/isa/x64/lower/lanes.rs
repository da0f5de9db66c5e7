//! Lane instructions: eight lanes in one ymm register, tables and constants as operands in memory.
//!
//! What AVX-512 does in another way, masks and sixteen lanes first of all, is in `avx512`.

use pktjit_ir::program::{Inst as Ir, LaneCompareOp};
use pktjit_ir::{ByteOrder, TableId, ValueId};

use super::{Lowering, key_address, pool_address};
use crate::isa::x64::evex::{Avx512, LaneSource, Lanes, Lanewise};
use crate::isa::x64::inst::{Address, Inst, Piece, Reg, Vector, VectorSource};

/// Lanes.
impl Lowering<'_> {
    pub(super) fn splat(&mut self, inst: &Ir, a: ValueId, lanes: u8) -> Reg {
        if let Some(constant) = self.uses.constant(a) {
            let dst = self.vector();
            let inst = match constant {
                0 => Inst::VectorZero { dst },
                _ => Inst::VectorLoad {
                    dst,
                    address: self.pool_lanes(constant as u32),
                },
            };
            self.push(inst);
            return dst;
        }
        if let Some(&Ir::LoadKey {
            offset,
            bytes,
            order,
        }) = self.uses.splatted_key(inst)
        {
            return self.broadcast((key_address(offset), None), lanes, bytes, order);
        }
        if self.registers[a.index()].is_none()
            && let Some(&Ir::Load { row, column, index }) = self.uses.inst(a)
        {
            let (address, table, column) = self.indexed_element(row, column, index);
            let place = (address, Some(table));
            return self.broadcast(place, lanes, column.bytes, ByteOrder::Little);
        }
        let (src, low, dst) = (self.reg(a), self.vector(), self.vector());
        self.push(Inst::ToVector { dst: low, src });
        self.push(Inst::Broadcast { dst, src: low });
        dst
    }

    /// A number in memory in each lane, without a detour through a general register.
    fn broadcast(
        &mut self,
        (address, table): (Address, Option<TableId>),
        lanes: u8,
        bytes: u8,
        order: ByteOrder,
    ) -> Reg {
        // What fits a lane has its eight bytes in little-endian order and zeros in the upper four.
        let (piece, bytes) = match bytes {
            1 => (Piece::B1, 1),
            2 => (Piece::B2, 2),
            _ => (Piece::B4, 4),
        };
        let dst = self.vector();
        let load = match lanes {
            16 => Avx512::BroadcastLoad {
                dst,
                address,
                piece,
            }
            .into(),
            _ => Inst::BroadcastLoad {
                dst,
                address,
                piece,
            },
        };
        self.push_reading(load, table);
        if (bytes, order) == (4, ByteOrder::Little) {
            return dst;
        }
        // `vpshufb` picks bytes within 128 bits; 0x80 gives a zero.
        let mut pick = vec![0x80; 4 * usize::from(lanes)];
        for (lane, chunk) in pick.chunks_exact_mut(4).enumerate() {
            for (i, byte) in chunk[..bytes].iter_mut().enumerate() {
                let from = match order {
                    ByteOrder::Little => i,
                    ByteOrder::Big => bytes - 1 - i,
                };
                *byte = (lane % 4 * 4 + from) as u8;
            }
        }
        let pick = self.pool_vector(&pick);
        match lanes {
            16 => {
                let pick = (LaneSource::Mem(pick), None);
                self.lanewise(Lanewise::ShuffleBytes, Lanes::X16, dst, pick)
            }
            _ => self.vector_op(Vector::ShufB, dst, (VectorSource::Mem(pick), None)),
        }
    }

    pub(super) fn compare_lanes(&mut self, op: LaneCompareOp, a: ValueId, b: ValueId) -> Reg {
        match op {
            LaneCompareOp::Eq => self.commutative_vector_op(Vector::CmpEqD, a, b),
            // AVX2 compares signed numbers only: a <= b where a is the smaller of both.
            LaneCompareOp::Le => {
                let a = self.reg(a);
                let b = self.vector_source(b);
                let smaller = self.vector_op(Vector::MinUD, a, b);
                self.vector_op(Vector::CmpEqD, a, (VectorSource::Reg(smaller), None))
            }
        }
    }

    /// Where `x - lo` is the smaller one of itself and `len`; `sub` and `min` say of which numbers.
    pub(super) fn in_range(
        &mut self,
        x: ValueId,
        lo: ValueId,
        len: ValueId,
        [sub, min]: [Vector; 2],
    ) -> Reg {
        let x = self.reg(x);
        let lo = self.vector_source(lo);
        let distance = self.vector_op(sub, x, lo);
        let len = self.vector_source(len);
        let clamped = self.vector_op(min, distance, len);
        self.vector_op(Vector::CmpEqD, distance, (VectorSource::Reg(clamped), None))
    }

    /// Lanes outside the mask become all ones, which no minimum prefers.
    ///
    /// `vpblendvb` would save an instruction, but is two to three micro-operations on Intel and puts its latency into the
    /// chain of accumulators; here that chain is one `vpminud` a step.
    pub(super) fn masked_min(&mut self, acc: ValueId, mask: ValueId, x: ValueId) -> Reg {
        let mask = self.reg(mask);
        let ones = VectorSource::Mem(self.pool_lanes(u32::MAX));
        let outside = self.vector_op(Vector::AndNot, mask, (ones, None));
        let x = self.vector_source(x);
        let candidates = self.vector_op(Vector::Or, outside, x);
        if self.is_splat_of(acc, u32::MAX) {
            return candidates;
        }
        let acc = self.reg(acc);
        self.vector_op(Vector::MinUD, acc, (VectorSource::Reg(candidates), None))
    }

    fn is_splat_of(&self, value: ValueId, lane: u32) -> bool {
        matches!(self.uses.inst(value), Some(&Ir::Splat { a, .. })
            if self.uses.constant(a) == Some(lane.into()))
    }

    /// Halves the number of lanes three times, or four.
    pub(super) fn horizontal_min(&mut self, a: ValueId) -> Reg {
        let src = self.lower_minima(a);
        let upper = self.vector();
        self.push(Inst::UpperHalf { dst: upper, src });
        let mut least = self.min_128(src, upper);
        // Lanes 2 and 3 next to 0 and 1, then lane 1 next to 0.
        for imm in [0b11_10_11_10, 0b01_01_01_01] {
            let other = self.vector();
            self.push(Inst::Shuffle128 {
                dst: other,
                src: least,
                imm,
            });
            least = self.min_128(least, other);
        }
        let dst = self.general();
        self.push(Inst::ToScalar { dst, src: least });
        dst
    }

    fn min_128(&mut self, a: Reg, b: Reg) -> Reg {
        let dst = self.vector();
        self.push(Inst::Min128 { dst, a, b });
        dst
    }

    pub(super) fn vector_source(&mut self, value: ValueId) -> (VectorSource, Option<TableId>) {
        if self.registers[value.index()].is_none()
            && let Some(inst) = self.uses.inst(value)
        {
            if self.widening(inst).is_none()
                && let Some((address, table)) = self.lanes_address(inst)
            {
                return (VectorSource::Mem(address), table);
            }
            if let Ir::Splat { a, .. } = *inst
                && let Some(lane) = self.uses.constant(a)
            {
                let source = match lane {
                    0 => VectorSource::Reg(self.zeros(value)),
                    _ => VectorSource::Mem(self.pool_lanes(lane as u32)),
                };
                return (source, None);
            }
        }
        (VectorSource::Reg(self.reg(value)), None)
    }

    /// A register with the lanes `value`, which are zeros, the same for all uses in a block while registers last: clearing
    /// one costs no load, and no execution unit either.
    pub(super) fn zeros(&mut self, value: ValueId) -> Reg {
        if let Some(reg) = self.in_block.zeros {
            return reg;
        }
        let reg = self.reg(value);
        if let Some(index) = reg.virtual_index()
            && !self.recomputed[value.index()]
        {
            self.body.registers[index].recomputable = Some(value);
            self.in_block.zeros = Some(reg);
        }
        reg
    }

    /// The same number in each lane, in the pool.
    fn pool_lanes(&mut self, lane: u32) -> Address {
        self.pool_vector(&lane.to_le_bytes().repeat(8))
    }

    pub(super) fn pool_vector(&mut self, constant: &[u8]) -> Address {
        let offset = self.pool.vector(constant);
        pool_address(offset)
    }

    /// dst = a op b, and the register dst.
    pub(super) fn vector_op(
        &mut self,
        op: Vector,
        a: Reg,
        (b, table): (VectorSource, Option<TableId>),
    ) -> Reg {
        let dst = self.vector();
        self.push_reading(Inst::Vector { op, dst, a, b }, table);
        dst
    }

    /// dst = a op b where either may be in memory, but not both.
    pub(super) fn commutative_vector_op(&mut self, op: Vector, a: ValueId, b: ValueId) -> Reg {
        // The one in memory second.
        let (a, b) = if self.registers[a.index()].is_none() && self.registers[b.index()].is_some() {
            (b, a)
        } else {
            (a, b)
        };
        let a = self.reg(a);
        let b = self.vector_source(b);
        self.vector_op(op, a, b)
    }
}
