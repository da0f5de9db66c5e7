//! Random instructions, with what they need, for the program that a [`Writer`] writes.
//!
//! An index is bounded by the means that planners use (`and`, `min`, a set bit, a column's maximum, the counter of
//! a loop...), so the generator needs no bounds of its own, and everything that it writes is accepted by construction.

use pktjit_ir::program::{BinaryOp, CompareOp, Inst, LaneCompareOp, MaskOp, Type};
use pktjit_ir::{ByteOrder, TableId, ValueId};
use quickcheck::Arbitrary;

use super::program::Writer;
use super::{below, pick};

impl Writer<'_> {
    /// Adds a random instruction, with what it needs.
    pub(super) fn inst(&mut self) {
        let lanes = self.lanes;
        let (inst, ty) = match below(self.g, 27) {
            0 => (Inst::Const(self.number()), Type::Scalar),
            1 | 19 | 20 => (self.load_key(), Type::Scalar),
            2..=4 => (self.binary(), Type::Scalar),
            5 => {
                let ([a], by) = (self.scalars(), below(self.g, 64) as u8);
                let by = pick(self.g, &[by, by, 0, 63]);
                let inst = match bool::arbitrary(self.g) {
                    true => Inst::Shl { a, by },
                    false => Inst::Shr { a, by },
                };
                (inst, Type::Scalar)
            }
            6 => {
                let op = pick(
                    self.g,
                    &[CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le],
                );
                let [a, b] = self.scalars();
                (Inst::Compare { op, a, b }, Type::Scalar)
            }
            7 => {
                let [cond, a, b] = self.scalars();
                (Inst::Select { cond, a, b }, Type::Scalar)
            }
            8 => {
                let [a] = self.scalars();
                (Inst::FirstBit { a }, Type::Scalar)
            }
            9 | 10 => {
                let (row, table) = self.row();
                let column = below(self.g, self.tables[table.index()].columns.len());
                let count = self.tables[table.index()].columns[column].count;
                let index = match bool::arbitrary(self.g) {
                    true => Some(self.index(count.into())),
                    false => None,
                };
                (
                    Inst::Load {
                        row,
                        column: column as u8,
                        index,
                    },
                    Type::Scalar,
                )
            }
            11 | 12 => (self.load_lanes(), Type::Lanes(lanes)),
            13 => (self.splat(), Type::Lanes(lanes)),
            14 => (self.lane_test(), Type::Mask(lanes)),
            15 => {
                let op = pick(self.g, &[MaskOp::And, MaskOp::Or, MaskOp::AndNot]);
                let [a, b] = self.masks();
                (Inst::CombineMasks { op, a, b }, Type::Mask(lanes))
            }
            16 => {
                let [mask] = self.masks();
                (Inst::LaneBits { mask }, Type::Scalar)
            }
            17 => {
                let [mask] = self.masks();
                let [acc, x] = self.lanes();
                (Inst::MaskedMin { acc, mask, x }, Type::Lanes(lanes))
            }
            18 => {
                let [a] = self.lanes();
                (Inst::HorizontalMin { a }, Type::Scalar)
            }
            21 => {
                let [a, b] = self.lanes();
                (Inst::AndLanes { a, b }, Type::Lanes(lanes))
            }
            _ => return self.use_scratch(),
        };
        self.add(inst, ty);
    }

    fn add(&mut self, inst: Inst, ty: Type) -> ValueId {
        let value = self.b.inst(inst);
        self.pool.add(self.g, value, ty);
        value
    }

    /// Loads from scratch or sets bits there, if there is scratch.
    fn use_scratch(&mut self) {
        let numbers = u64::from(self.scratch);
        if numbers == 0 {
            return;
        }
        match below(self.g, 6) {
            0 => {
                let index = self.index(numbers);
                self.add(Inst::LoadScratch { index }, Type::Scalar);
            }
            1 if self.scratch >= u32::from(self.lanes) => {
                let index = self.index(numbers / u64::from(self.lanes));
                self.load_scratch_lanes(index);
            }
            2 => {
                let bits = self.small();
                self.pool.add(self.g, bits, Type::Scalar);
                let index = self.index(numbers);
                self.b.or_scratch(index, bits);
            }
            _ => self.set_between_loads(),
        }
    }

    /// A load, bits set, a load of the same number again, and a comparison of the two, whose order an engine may confuse.
    fn set_between_loads(&mut self) {
        let number = u64::arbitrary(self.g) % u64::from(self.scratch);
        let run = number / u64::from(self.lanes);
        let is_in_run = (run + 1) * u64::from(self.lanes) <= u64::from(self.scratch);
        // Either way the pool gets lanes, since another live scalar would be one too many.
        let as_lanes = is_in_run && bool::arbitrary(self.g);
        let load = |writer: &mut Self| {
            if as_lanes {
                let index = writer.b.constant(run);
                writer.load_scratch_lanes(index)
            } else {
                let index = writer.b.constant(number);
                let a = writer.b.load_scratch(index);
                let lanes = writer.lanes;
                writer.add(Inst::Splat { a, lanes }, Type::Lanes(lanes))
            }
        };
        let a = load(self);
        let bits = self.small();
        self.pool.add(self.g, bits, Type::Scalar);
        let index = self.b.constant(number);
        self.b.or_scratch(index, bits);
        let b = load(self);
        let is_same = Inst::CompareLanes {
            op: LaneCompareOp::Eq,
            a,
            b,
        };
        self.add(is_same, Type::Mask(self.lanes));
    }

    fn load_scratch_lanes(&mut self, index: ValueId) -> ValueId {
        let lanes = self.lanes;
        self.add(Inst::LoadScratchLanes { index, lanes }, Type::Lanes(lanes))
    }

    fn number(&mut self) -> u64 {
        let any = u64::arbitrary(self.g);
        let shift = below(self.g, 64);
        pick(
            self.g,
            &[any, any >> shift, 1 << shift, (1 << shift) - 1, u64::MAX, 0],
        )
    }

    fn load_key(&mut self) -> Inst {
        let fitting: Vec<usize> = [1, 2, 4, 8]
            .into_iter()
            .filter(|&bytes| bytes <= self.key_bytes)
            .collect();
        let bytes = pick(self.g, &fitting);
        Inst::LoadKey {
            offset: below(self.g, self.key_bytes - bytes + 1) as u16,
            bytes: bytes as u8,
            order: pick(self.g, &[ByteOrder::Big, ByteOrder::Little]),
        }
    }

    fn binary(&mut self) -> Inst {
        let all = [
            BinaryOp::And,
            BinaryOp::Or,
            BinaryOp::Xor,
            BinaryOp::Add,
            BinaryOp::Sub,
            BinaryOp::Mul,
            BinaryOp::Min,
            BinaryOp::Max,
            BinaryOp::Pext,
        ];
        let op = pick(self.g, &all);
        let [a, b] = self.scalars();
        // A constant as one operand is what engines treat apart.
        match below(self.g, 4) {
            0 => Inst::Binary {
                op,
                a,
                b: self.constant(),
            },
            1 => Inst::Binary {
                op,
                a: self.constant(),
                b,
            },
            _ => Inst::Binary { op, a, b },
        }
    }

    /// A constant that only the next instruction uses.
    fn constant(&mut self) -> ValueId {
        let number = self.number();
        self.b.constant(number)
    }

    fn load_lanes(&mut self) -> Inst {
        let (row, table) = self.row();
        let columns = self.tables[table.index()].columns.iter().enumerate();
        let fitting: Vec<(usize, u32)> = columns
            .filter(|(_, column)| column.bytes <= 4 && column.count >= self.lanes.into())
            .map(|(i, column)| (i, column.count))
            .collect();
        let (column, count) = pick(self.g, &fitting);
        let last = count - u32::from(self.lanes);
        Inst::LoadLanes {
            row,
            column: column as u8,
            first: below(self.g, last as usize + 1) as u16,
            lanes: self.lanes,
        }
    }

    fn splat(&mut self) -> Inst {
        Inst::Splat {
            a: self.small(),
            lanes: self.lanes,
        }
    }

    /// A scalar below 2^32, which only the next instruction uses.
    fn small(&mut self) -> ValueId {
        let [wide] = self.scalars();
        match below(self.g, 5) {
            0 | 1 => self.b.shr(wide, 32),
            2 | 3 => self.b.binary_const(BinaryOp::And, wide, u32::MAX.into()),
            _ => {
                let number = self.number() as u32;
                self.b.constant(number.into())
            }
        }
    }

    fn lane_test(&mut self) -> Inst {
        let [a, b, c] = self.lanes();
        match below(self.g, 5) {
            0 => Inst::CompareLanes {
                op: LaneCompareOp::Eq,
                a,
                b,
            },
            1 => Inst::CompareLanes {
                op: LaneCompareOp::Le,
                a,
                b,
            },
            2 => Inst::InRangeLanes {
                x: a,
                lo: b,
                len: c,
            },
            3 => Inst::InRangeHalves {
                x: a,
                lo: b,
                len: c,
            },
            _ => Inst::MaskedEqLanes {
                x: a,
                mask: b,
                value: c,
            },
        }
    }

    /// Values of the pool for which `fits`, one of them perhaps several times.
    fn choose<const N: usize>(&mut self, fits: impl Fn(Type) -> bool) -> Option<[ValueId; N]> {
        let fitting: Vec<ValueId> = (self.pool.values.iter())
            .filter(|&&(_, ty)| fits(ty))
            .map(|&(value, _)| value)
            .collect();
        (!fitting.is_empty()).then(|| std::array::from_fn(|_| pick(self.g, &fitting)))
    }

    pub(super) fn scalars<const N: usize>(&mut self) -> [ValueId; N] {
        loop {
            if let Some(scalars) = self.choose(|ty| ty == Type::Scalar) {
                return scalars;
            }
            let fresh = self.load_key();
            self.add(fresh, Type::Scalar);
        }
    }

    pub(super) fn lanes<const N: usize>(&mut self) -> [ValueId; N] {
        loop {
            if let Some(lanes) = self.choose(|ty| matches!(ty, Type::Lanes(_))) {
                return lanes;
            }
            let fresh = self.load_lanes();
            self.add(fresh, Type::Lanes(self.lanes));
        }
    }

    pub(super) fn masks<const N: usize>(&mut self) -> [ValueId; N] {
        loop {
            if let Some(masks) = self.choose(|ty| matches!(ty, Type::Mask(_))) {
                return masks;
            }
            let fresh = self.lane_test();
            self.add(fresh, Type::Mask(self.lanes));
        }
    }

    fn row(&mut self) -> (ValueId, TableId) {
        loop {
            let known = self.pool.values.iter().filter_map(|&(value, ty)| match ty {
                Type::Row(table) => Some((value, table)),
                _ => None,
            });
            let known: Vec<_> = known.collect();
            if !known.is_empty() {
                return pick(self.g, &known);
            }
            let table = below(self.g, self.tables.len());
            let index = self.index(self.tables[table].rows() as u64);
            let table = TableId::new(table as u32);
            self.add(Inst::Row { table, index }, Type::Row(table));
        }
    }

    /// A scalar below `count`, which only the next instruction uses.
    fn index(&mut self, count: u64) -> ValueId {
        let bits = count.ilog2() as u8;
        let [x, y] = self.scalars();
        match below(self.g, 9) {
            0 if count.is_power_of_two() => self.b.binary_const(BinaryOp::And, x, count - 1),
            1 if bits > 0 => self.b.shr(x, 64 - bits),
            2 => {
                let mask = (0..bits).fold(0, |mask, i| mask | 1 << (63 - 4 * u32::from(i)));
                self.b.binary_const(BinaryOp::Pext, x, mask)
            }
            3 if count <= 64 => {
                let set = self.b.binary_const(BinaryOp::Or, x, 1 << (count - 1));
                self.b.first_bit(set)
            }
            4 if count >= 2 => self.b.compare(CompareOp::Lt, x, y),
            5 => {
                let index = u64::arbitrary(self.g) % count;
                self.b.constant(index)
            }
            6 => self
                .small_number(count)
                .unwrap_or_else(|| self.b.binary_const(BinaryOp::Min, x, count - 1)),
            7 | 8 => self
                .counter(count)
                .unwrap_or_else(|| self.b.binary_const(BinaryOp::Min, x, count - 1)),
            _ => self.b.binary_const(BinaryOp::Min, x, count - 1),
        }
    }

    /// The counter of a loop that has at most `count` trips, if the pool has one.
    fn counter(&self, count: u64) -> Option<ValueId> {
        let in_pool = |value| self.pool.values.iter().any(|&(other, _)| other == value);
        let mut counters = self.counters.iter().rev();
        let found = counters.find(|&&(value, trips)| u64::from(trips) <= count && in_pool(value));
        found.map(|&(value, _)| value)
    }

    /// A number of a column that holds only numbers below `count`, if the pool has a row with one.
    fn small_number(&mut self, count: u64) -> Option<ValueId> {
        for (row, ty) in self.pool.values.clone() {
            let Type::Row(table) = ty else { continue };
            let columns = &self.tables[table.index()].columns;
            if let Some(column) = columns.iter().position(|column| column.max < count) {
                return Some(self.b.load(row, column as u8, None));
            }
        }
        None
    }
}
