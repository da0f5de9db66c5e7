//! Rows, the numbers in them, and scratch: addresses from indices.
//!
//! An address is one register and an offset that the access can have, or two registers where a row is as long as the
//! number that is read from it. What an offset cannot be is added first.

use pktjit_ir::program::{Column, Inst as Ir};
use pktjit_ir::{TableId, ValueId};

use super::Lowering;
use crate::code::Placement;
use crate::isa::a64::immediate::{is_arithmetic, is_offset, is_pair_offset};
use crate::isa::a64::inst::{
    Address, Alu, Inst, Operand, Reg, Shift, Size, VectorWidth, Widen, Width,
};
use crate::isa::frame::STORE;
use crate::isa::lower::{Held, STORES_OF_TRIP};

/// Where a row is.
#[derive(Clone, Copy, Debug)]
pub(in crate::isa::a64) enum Place {
    /// So many bytes after a register.
    Base { base: Reg, disp: u64 },
    /// `index << shift` after a register.
    Indexed { base: Reg, index: Reg, shift: u8 },
}

/// Rows.
impl<'a> Lowering<'a> {
    /// A register with the address `bytes` after the start of a table.
    fn table_base(&mut self, table: TableId, bytes: u64) -> Reg {
        let dst = self.general();
        match self.pool.table(table) {
            Placement::Pool(start) => {
                let offset = start + bytes as usize;
                self.push(Inst::PoolAddress { dst, offset });
                dst
            }
            Placement::Region(_) => {
                let offset = self.pool.address(table);
                self.push(Inst::TableAddress { dst, table, offset });
                self.after(dst, bytes)
            }
        }
    }

    /// Where row `index` of a table is.
    pub(super) fn row(&mut self, value: ValueId, table: TableId, index: ValueId) -> Place {
        let row_bytes = u64::from(self.table(table).row_bytes);
        if let Some(index) = self.uses.constant(index) {
            let base = self.table_base(table, index * row_bytes);
            return Place::Base { base, disp: 0 };
        }
        let base = self.table_base(table, 0);
        let shift = row_bytes.trailing_zeros() as u8;
        match row_bytes >> shift {
            1 => {
                let index = self.reg(index);
                let place = Place::Indexed { base, index, shift };
                // A loop parameter as index changes at the end of its block.
                if self.uses.is_local(value) && self.uses.is_single(value) {
                    return place;
                }
                let base = self.place_register(place);
                Place::Base { base, disp: 0 }
            }
            3 | 5 | 9 | 17 => {
                let odd = self.times(index, row_bytes >> shift);
                let base = self.plus(base, Operand::Shifted(odd, shift));
                Place::Base { base, disp: 0 }
            }
            _ => {
                let (a, b, dst) = (self.reg(index), self.set(row_bytes), self.general());
                self.push(Inst::MulAdd { dst, a, b, c: base });
                Place::Base { base: dst, disp: 0 }
            }
        }
    }

    /// Where a row is that a load reads.
    pub(super) fn row_place(&mut self, row: ValueId) -> Place {
        match self.rows[row.index()] {
            Some(place) => place,
            None => match (self.registers[row.index()], self.uses.inst(row)) {
                (None, Some(&Ir::Row { table, index })) => self.row(row, table, index),
                _ => Place::Base {
                    base: self.reg(row),
                    disp: 0,
                },
            },
        }
    }

    /// A register with the address of a place.
    pub(super) fn place_register(&mut self, place: Place) -> Reg {
        match place {
            Place::Base { base, disp } => self.after(base, disp),
            Place::Indexed { base, index, shift } => {
                self.plus(base, Operand::Shifted(index, shift))
            }
        }
    }

    /// The address `bytes` after `base`.
    pub(super) fn after(&mut self, base: Reg, bytes: u64) -> Reg {
        match bytes {
            0 => base,
            _ if is_arithmetic(bytes) => self.plus(base, Operand::Imm(bytes)),
            _ => {
                let bytes = self.set(bytes);
                self.plus(base, Operand::Reg(bytes))
            }
        }
    }

    /// `base + b` in a register, 64 bits.
    fn plus(&mut self, base: Reg, b: Operand) -> Reg {
        let dst = self.general();
        self.push(Inst::Alu {
            op: Alu::Add,
            size: Size::S64,
            dst,
            a: base,
            b,
        });
        dst
    }

    /// A place as the address of an access to `1 << log2` bytes.
    fn address(&mut self, place: Place, log2: u8) -> Address {
        match place {
            Place::Base { base, disp } if is_offset(disp, log2) => Address::Base {
                base,
                disp: disp as u32,
            },
            Place::Indexed { base, index, shift } if shift == 0 || shift == log2 => {
                Address::Indexed { base, index, shift }
            }
            _ => Address::Base {
                base: self.place_register(place),
                disp: 0,
            },
        }
    }
}

/// Numbers in rows.
impl<'a> Lowering<'a> {
    /// Where number `index` of a column of a row is, its table and its column.
    fn element(
        &mut self,
        row: ValueId,
        column: u8,
        index: Option<ValueId>,
    ) -> (Place, TableId, &'a Column) {
        let table = self.row_table(row);
        let column = &self.table(table).columns[usize::from(column)];
        let row = self.row_place(row);
        let place = self.run(row, column.offset.into(), index, column.bytes.into());
        (place, table, column)
    }

    /// The place `disp + index * bytes` after another one; `bytes` is a power of two.
    fn run(&mut self, from: Place, disp: u64, index: Option<ValueId>, bytes: u32) -> Place {
        let constant = match index {
            None => Some(0),
            Some(index) => self.uses.constant(index),
        };
        let shift = bytes.trailing_zeros() as u8;
        match (constant, from, index) {
            (Some(0), from, _) if disp == 0 => from,
            (None, _, Some(index)) => {
                let start = self.place_register(from);
                let base = self.after(start, disp);
                let index = self.reg(index);
                Place::Indexed { base, index, shift }
            }
            (constant, from, _) => {
                let more = disp + (constant.unwrap_or(0) << shift);
                match from {
                    Place::Base { base, disp } => Place::Base {
                        base,
                        disp: disp + more,
                    },
                    Place::Indexed { .. } => Place::Base {
                        base: self.place_register(from),
                        disp: more,
                    },
                }
            }
        }
    }

    /// A number of a column as a scalar.
    pub(super) fn load(&mut self, row: ValueId, column: u8, index: Option<ValueId>) -> Reg {
        let (place, table, column) = self.element(row, column, index);
        let width = Width::of(column.bytes);
        let address = self.address(place, column.bytes.trailing_zeros() as u8);
        let dst = self.general();
        let load = Inst::Load {
            dst,
            address,
            width,
        };
        self.push_reading(load, Some(table));
        dst
    }

    /// A number of a column at the low end of a vector register.
    pub(super) fn load_to_vector(
        &mut self,
        row: ValueId,
        column: u8,
        index: Option<ValueId>,
    ) -> Reg {
        let (place, table, column) = self.element(row, column, index);
        // What fits a lane has zeros in the upper four of its eight bytes.
        let width = match column.bytes {
            1 => VectorWidth::B1,
            2 => VectorWidth::B2,
            _ => VectorWidth::B4,
        };
        self.load_vector(place, width, Some(table))
    }

    fn load_vector(&mut self, place: Place, width: VectorWidth, table: Option<TableId>) -> Reg {
        let log2 = match width {
            VectorWidth::B1 => 0,
            VectorWidth::B2 => 1,
            VectorWidth::B4 => 2,
            VectorWidth::B8 => 3,
            VectorWidth::B16 => 4,
        };
        let address = self.address(place, log2);
        let dst = self.vector();
        let load = Inst::VectorLoad {
            dst,
            address,
            width,
        };
        self.push_reading(load, table);
        dst
    }

    /// Numbers in memory as lanes.
    pub(super) fn load_lanes(&mut self, inst: &Ir) -> Held {
        let (place, table, bytes, lanes) = match *inst {
            Ir::LoadLanes {
                row,
                column,
                first,
                lanes,
            } => {
                let (start, table, column) = self.element(row, column, None);
                let place = self.run(start, u64::from(first) * u64::from(column.bytes), None, 1);
                (place, Some(table), column.bytes, lanes)
            }
            Ir::LoadScratchLanes { index, lanes } => {
                let place = self.scratch(index, 4 * u32::from(lanes));
                (place, None, 4, lanes)
            }
            _ => return Held::one(self.vector()),
        };
        match (bytes, lanes) {
            (1, 8) => {
                let packed = self.load_vector(place, VectorWidth::B8, table);
                let half = self.widen(Widen::Low8, packed);
                self.widen_both(half)
            }
            (1, _) => {
                let packed = self.load_vector(place, VectorWidth::B4, table);
                let half = self.widen(Widen::Low8, packed);
                Held::one(self.widen(Widen::Low16, half))
            }
            (2, 8) => {
                let packed = self.load_vector(place, VectorWidth::B16, table);
                self.widen_both(packed)
            }
            (2, _) => {
                let packed = self.load_vector(place, VectorWidth::B8, table);
                Held::one(self.widen(Widen::Low16, packed))
            }
            (_, 8) => {
                let (base, disp) = match place {
                    Place::Base { base, disp } if is_pair_offset(disp) => (base, disp as u32),
                    _ => (self.place_register(place), 0),
                };
                let (a, b) = (self.vector(), self.vector());
                self.push_reading(Inst::LoadPair { a, b, base, disp }, table);
                Held {
                    low: a,
                    high: Some(b),
                }
            }
            _ => Held::one(self.load_vector(place, VectorWidth::B16, table)),
        }
    }

    fn widen_both(&mut self, src: Reg) -> Held {
        Held {
            low: self.widen(Widen::Low16, src),
            high: Some(self.widen(Widen::High16, src)),
        }
    }

    fn widen(&mut self, op: Widen, src: Reg) -> Reg {
        let dst = self.vector();
        self.push(Inst::Widen { op, dst, src });
        dst
    }
}

/// Scratch: numbers on the stack from sp upwards.
impl Lowering<'_> {
    pub(super) fn clear(&mut self, trips: u32, rest: u32) {
        let src = self.vector();
        self.push(Inst::VectorZero { dst: src });
        if trips == 0 {
            for store in 0..rest {
                let disp = STORE * store;
                self.push(Inst::StorePairOnStack { src, disp });
            }
            return;
        }
        const TRIP: u32 = STORES_OF_TRIP * STORE;
        let start = self.stack_address();
        self.counted(trips, |lowering, counter| {
            let base = lowering.plus(
                start,
                Operand::Shifted(counter, TRIP.trailing_zeros() as u8),
            );
            lowering.store_pairs(src, base, STORES_OF_TRIP);
        });
        let base = self.after(start, (trips * TRIP).into());
        self.store_pairs(src, base, rest);
    }

    fn store_pairs(&mut self, src: Reg, base: Reg, count: u32) {
        for store in 0..count {
            let disp = STORE * store;
            self.push(Inst::StorePair { src, base, disp });
        }
    }

    /// The address of scratch. `sp` is no operand of what adds an index.
    fn stack_address(&mut self) -> Reg {
        let dst = self.general();
        self.push(Inst::StackAddress { dst, disp: 0 });
        dst
    }

    /// Where run `index` of so many bytes of scratch is.
    fn scratch(&mut self, index: ValueId, bytes: u32) -> Place {
        let base = self.stack_address();
        self.run(Place::Base { base, disp: 0 }, 0, Some(index), bytes)
    }

    pub(super) fn load_scratch(&mut self, index: ValueId) -> Reg {
        let place = self.scratch(index, 4);
        let (address, dst) = (self.address(place, 2), self.general());
        let width = Width::B4;
        self.push(Inst::Load {
            dst,
            address,
            width,
        });
        dst
    }

    pub(super) fn or_scratch(&mut self, index: ValueId, bits: ValueId) {
        let b = Operand::Reg(self.reg(bits));
        let place = self.scratch(index, 4);
        let address = self.address(place, 2);
        let (old, new) = (self.general(), self.general());
        let width = Width::B4;
        self.push(Inst::Load {
            dst: old,
            address,
            width,
        });
        self.push(Inst::Alu {
            op: Alu::Or,
            size: Size::S32,
            dst: new,
            a: old,
            b,
        });
        self.push(Inst::Store { address, src: new });
    }

    /// `value * multiplier` in a register, the cheapest way. The multiplier is above 1.
    pub(super) fn times(&mut self, value: ValueId, multiplier: u64) -> Reg {
        let a = self.reg(value);
        // Of a value that is always 0 the product fits any size, but the multiplier does not.
        let size = Size::of(self.max(value).max(1).saturating_mul(multiplier));
        let shift = multiplier.trailing_zeros() as u8;
        let odd = multiplier >> shift;
        if odd == 1 {
            return self.shift(Shift::Left, size, a, shift);
        }
        if shift == 0 && (odd - 1).is_power_of_two() {
            let dst = self.general();
            let b = Operand::Shifted(a, (odd - 1).trailing_zeros() as u8);
            let op = Alu::Add;
            self.push(Inst::Alu {
                op,
                size,
                dst,
                a,
                b,
            });
            return dst;
        }
        let (b, dst) = (self.set(multiplier), self.general());
        self.push(Inst::Mul { size, dst, a, b });
        dst
    }
}
