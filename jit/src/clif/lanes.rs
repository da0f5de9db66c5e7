//! Lanes and masks: vectors of 128 bits, as many as it takes, where Cranelift has them; numbers of 32 bits elsewhere.
//!
//! Both go by the same instructions. A mask has all bits of a lane set, or none.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Type, Value, types};
use pktjit_ir::ValueId;
use pktjit_ir::program::{LaneCompareOp, MaskOp};

use super::lower::{Body, SCRATCH};
use crate::target::Isa;

/// What several lanes are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Four lanes each.
    Vectors,
    /// One lane each.
    Scalars,
}

impl Shape {
    pub(super) fn of(isa: Isa) -> Self {
        match isa {
            Isa::X86_64 | Isa::AArch64 | Isa::S390x => Self::Vectors,
            // Vectors are an extension there.
            Isa::Riscv64 => Self::Scalars,
        }
    }

    pub(super) fn ty(self) -> Type {
        match self {
            Self::Vectors => types::I32X4,
            Self::Scalars => types::I32,
        }
    }

    /// How many parts so many lanes are.
    pub(super) fn parts(self, lanes: u8) -> usize {
        usize::from(lanes) / self.ty().lane_count() as usize
    }
}

impl Body<'_, '_, '_> {
    /// Adjacent numbers of at most 4 bytes.
    pub(super) fn load_lanes(
        &mut self,
        row: Value,
        offset: u32,
        bytes: u8,
        lanes: u8,
    ) -> Box<[Value]> {
        let flags = self.table_lanes();
        let part_bytes = u32::from(bytes) * self.shape.ty().lane_count();
        let parts = 0..self.shape.parts(lanes) as u32;
        let mut offsets = parts.map(|part| (offset + part * part_bytes).cast_signed());
        match (self.shape, bytes) {
            (Shape::Vectors, 1) if lanes > 4 => offsets
                .step_by(2)
                .flat_map(|offset| {
                    let eight = self.b.ins().uload8x8(flags, row, offset);
                    [
                        self.b.ins().uwiden_low(eight),
                        self.b.ins().uwiden_high(eight),
                    ]
                })
                .collect(),
            (Shape::Vectors, 1) => offsets
                .by_ref()
                .map(|offset| self.four_bytes(flags, row, offset))
                .collect(),
            (Shape::Vectors, 2) => offsets
                .map(|offset| self.b.ins().uload16x4(flags, row, offset))
                .collect(),
            (Shape::Scalars, 1) => offsets
                .map(|offset| self.b.ins().uload8(types::I32, flags, row, offset))
                .collect(),
            (Shape::Scalars, 2) => offsets
                .map(|offset| self.b.ins().uload16(types::I32, flags, row, offset))
                .collect(),
            _ => self.load_parts(flags, row, offset, lanes),
        }
    }

    /// Four bytes as lanes.
    fn four_bytes(&mut self, flags: MemFlagsData, row: Value, offset: i32) -> Value {
        let four = self.b.ins().load(types::I32, flags, row, offset);
        let four = self.b.ins().scalar_to_vector(types::I32X4, four);
        let order = MemFlagsData::new().with_endianness(Endianness::Little);
        let four = self.b.ins().bitcast(types::I8X16, order, four);
        let four = self.b.ins().uwiden_low(four);
        self.b.ins().uwiden_low(four)
    }

    pub(super) fn load_scratch_lanes(&mut self, address: Value, lanes: u8) -> Box<[Value]> {
        self.load_parts(SCRATCH, address, 0, lanes)
    }

    /// Adjacent numbers of 4 bytes.
    fn load_parts(
        &mut self,
        flags: MemFlagsData,
        address: Value,
        offset: u32,
        lanes: u8,
    ) -> Box<[Value]> {
        let ty = self.shape.ty();
        let parts = 0..self.shape.parts(lanes) as u32;
        let offsets = parts.map(|part| (offset + part * ty.bytes()).cast_signed());
        offsets
            .map(|offset| self.b.ins().load(ty, flags, address, offset))
            .collect()
    }

    pub(super) fn splat(&mut self, a: ValueId, lanes: u8) -> Box<[Value]> {
        let a = self.scalar(a);
        let lane = self.b.ins().ireduce(types::I32, a);
        let part = match self.shape {
            Shape::Vectors => self.b.ins().splat(types::I32X4, lane),
            Shape::Scalars => lane,
        };
        vec![part; self.shape.parts(lanes)].into()
    }

    /// What `f` makes of each part of some vectors.
    fn parts_of<const N: usize>(
        &mut self,
        vectors: [ValueId; N],
        mut f: impl FnMut(&mut Self, [Value; N]) -> Value,
    ) -> Box<[Value]> {
        let count = self.vector(vectors[0]).len();
        (0..count)
            .map(|part| {
                let parts = vectors.map(|vector| self.vector(vector)[part]);
                f(self, parts)
            })
            .collect()
    }

    /// A mask: where the condition holds.
    fn compare(&mut self, condition: IntCC, a: Value, b: Value) -> Value {
        let holds = self.b.ins().icmp(condition, a, b);
        match self.shape {
            Shape::Vectors => holds,
            Shape::Scalars => self.b.ins().bmask(types::I32, holds),
        }
    }

    pub(super) fn and_lanes(&mut self, a: ValueId, b: ValueId) -> Box<[Value]> {
        self.parts_of([a, b], |body, [a, b]| body.b.ins().band(a, b))
    }

    pub(super) fn compare_lanes(
        &mut self,
        op: LaneCompareOp,
        a: ValueId,
        b: ValueId,
    ) -> Box<[Value]> {
        let condition = match op {
            LaneCompareOp::Eq => IntCC::Equal,
            LaneCompareOp::Le => IntCC::UnsignedLessThanOrEqual,
        };
        self.parts_of([a, b], |body, [a, b]| body.compare(condition, a, b))
    }

    pub(super) fn in_range_lanes(&mut self, x: ValueId, lo: ValueId, len: ValueId) -> Box<[Value]> {
        self.parts_of([x, lo, len], |body, [x, lo, len]| {
            let distance = body.b.ins().isub(x, lo);
            body.compare(IntCC::UnsignedLessThanOrEqual, distance, len)
        })
    }

    pub(super) fn in_range_halves(
        &mut self,
        x: ValueId,
        lo: ValueId,
        len: ValueId,
    ) -> Box<[Value]> {
        self.parts_of([x, lo, len], |body, parts| match body.shape {
            Shape::Vectors => {
                let order = MemFlagsData::new().with_endianness(Endianness::Little);
                let halves = parts.map(|part| body.b.ins().bitcast(types::I16X8, order, part));
                let distance = body.b.ins().isub(halves[0], halves[1]);
                let clamped = body.b.ins().umin(distance, halves[2]);
                let [distance, clamped] = [distance, clamped]
                    .map(|halves| body.b.ins().bitcast(types::I32X4, order, halves));
                body.compare(IntCC::Equal, distance, clamped)
            }
            Shape::Scalars => {
                let both = [0, 16].map(|half| {
                    let halves = parts.map(|part| {
                        let half = body.b.ins().ushr_imm_u(part, half);
                        body.b.ins().ireduce(types::I16, half)
                    });
                    let distance = body.b.ins().isub(halves[0], halves[1]);
                    body.compare(IntCC::UnsignedLessThanOrEqual, distance, halves[2])
                });
                body.b.ins().band(both[0], both[1])
            }
        })
    }

    pub(super) fn masked_eq_lanes(
        &mut self,
        x: ValueId,
        mask: ValueId,
        value: ValueId,
    ) -> Box<[Value]> {
        self.parts_of([x, mask, value], |body, [x, mask, value]| {
            let masked = body.b.ins().band(x, mask);
            body.compare(IntCC::Equal, masked, value)
        })
    }

    pub(super) fn combine_masks(&mut self, op: MaskOp, a: ValueId, b: ValueId) -> Box<[Value]> {
        self.parts_of([a, b], |body, [a, b]| match op {
            MaskOp::And => body.b.ins().band(a, b),
            MaskOp::Or => body.b.ins().bor(a, b),
            MaskOp::AndNot => body.b.ins().band_not(a, b),
        })
    }

    /// Vectors are first narrowed to one: there is one bit to gather for each lane then, however wide lanes are.
    pub(super) fn lane_bits(&mut self, mask: ValueId) -> Value {
        let mut parts = self.vector(mask).to_vec();
        match self.shape {
            Shape::Vectors => {
                while parts.len() > 1 {
                    let pairs = parts.chunks_exact(2);
                    parts = pairs
                        .map(|pair| self.b.ins().snarrow(pair[0], pair[1]))
                        .collect();
                }
                self.b.ins().vhigh_bits(types::I64, parts[0])
            }
            Shape::Scalars => {
                let mut bits = self.b.ins().iconst(types::I32, 0);
                for (lane, part) in parts.into_iter().enumerate() {
                    let bit = self.b.ins().band_imm_u(part, 1 << lane);
                    bits = self.b.ins().bor(bits, bit);
                }
                self.b.ins().uextend(types::I64, bits)
            }
        }
    }

    /// Lanes that do not count are as large as can be.
    pub(super) fn masked_min(&mut self, acc: ValueId, mask: ValueId, x: ValueId) -> Box<[Value]> {
        self.parts_of([acc, mask, x], |body, [acc, mask, x]| {
            let others = body.b.ins().bnot(mask);
            let x = body.b.ins().bor(x, others);
            body.b.ins().umin(acc, x)
        })
    }

    pub(super) fn horizontal_min(&mut self, a: ValueId) -> Value {
        let mut parts = self.vector(a).to_vec().into_iter();
        let first = parts.next().expect("a vector has parts");
        let smallest = parts.fold(first, |smallest, part| self.b.ins().umin(smallest, part));
        let smallest = match self.shape {
            Shape::Scalars => smallest,
            Shape::Vectors => {
                let lanes = [0_u8, 1, 2, 3].map(|lane| self.b.ins().extractlane(smallest, lane));
                let [a, b, c, d] = lanes;
                let (ab, cd) = (self.b.ins().umin(a, b), self.b.ins().umin(c, d));
                self.b.ins().umin(ab, cd)
            }
        };
        self.b.ins().uextend(types::I64, smallest)
    }
}
