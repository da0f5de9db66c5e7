//! Rows and the numbers in them: addresses from indices.
//!
//! A row with a constant index is an address without code where its table is in the pool. Otherwise it is the table's
//! base and a scaled index, kept as two registers or added up, whichever is cheaper for its uses.

use pktjit_ir::program::{Column, Inst as Ir};
use pktjit_ir::{TableId, ValueId};

use super::{Lowering, pool_address};
use crate::code::Placement;
use crate::isa::x64::inst::{Address, Alu, Inst, Narrow, Reg, Scale, Shift, Size, Source};

/// Tables.
impl<'a> Lowering<'a> {
    /// The size of the numbers in a column.
    pub(super) fn column_width(&self, row: ValueId, column: u8) -> Option<Size> {
        let table = self.table(self.row_table(row));
        match table.columns[usize::from(column)].bytes {
            4 => Some(Size::S32),
            8 => Some(Size::S64),
            _ => None,
        }
    }

    /// A register with the address of a table.
    fn table_base(&mut self, table: TableId) -> Reg {
        let dst = self.general();
        self.push(match self.pool.table(table) {
            Placement::Pool(offset) => Inst::Lea {
                dst,
                address: pool_address(offset),
            },
            Placement::Region(_) => Inst::TableAddress { dst, table },
        });
        dst
    }

    /// The address of row `index` of a table.
    pub(super) fn row(&mut self, value: ValueId, table: TableId, index: ValueId) -> Address {
        let row_bytes = u64::from(self.table(table).row_bytes);
        if let Some(index) = self.uses.constant(index) {
            let start = match self.pool.table(table) {
                Placement::Pool(offset) => pool_address(offset),
                Placement::Region(_) => Address::Base {
                    base: self.table_base(table),
                    disp: 0,
                },
            };
            return self.advance(start, index * row_bytes);
        }
        let base = self.table_base(table);
        let shift = row_bytes.trailing_zeros().min(3);
        let multiplier = row_bytes >> shift;
        let index_reg = self.times(index, multiplier);
        let address = Address::Indexed {
            base,
            index: index_reg,
            scale: Scale::from_shift(shift),
            disp: 0,
        };
        // An address of two registers costs nothing, but occupies both and makes wider micro-operations. It pays where
        // there is one access, or no multiplication, unless a third register is added. A loop parameter as index changes
        // at the end of its block.
        if self.uses.is_local(value)
            && (multiplier == 1 || self.uses.is_single(value))
            && !self.uses.is_indexed(value)
        {
            return address;
        }
        Address::Base {
            base: self.address_register(address),
            disp: 0,
        }
    }

    /// `value * multiplier` in a register, the cheapest way; a fresh one unless the multiplier is 1. It is not 0.
    pub(super) fn times(&mut self, value: ValueId, multiplier: u64) -> Reg {
        let shift = multiplier.trailing_zeros();
        let odd = multiplier >> shift;
        let size = Size::of(self.max(value).saturating_mul(multiplier));
        match odd {
            1 if shift == 0 => self.reg(value),
            1 => {
                let dst = self.copy(value);
                self.shift(Shift::Left, size, dst, shift as u8);
                dst
            }
            3 | 5 | 9 => {
                let (index, dst) = (self.reg(value), self.general());
                let address = Address::Indexed {
                    base: index,
                    index,
                    scale: Scale::from_shift(odd.ilog2()),
                    disp: 0,
                };
                self.push(Inst::Lea { dst, address });
                if shift > 0 {
                    self.shift(Shift::Left, size, dst, shift as u8);
                }
                dst
            }
            _ => match size.immediate(multiplier) {
                Some(imm) => {
                    let (src, dst) = (self.reg(value), self.general());
                    self.push(Inst::MulImm {
                        size,
                        dst,
                        src,
                        imm,
                    });
                    dst
                }
                None => {
                    let (src, dst) = (self.reg(value), self.set(multiplier));
                    self.push(Inst::Mul { size, dst, src });
                    dst
                }
            },
        }
    }

    pub(super) fn shift(&mut self, op: Shift, size: Size, dst: Reg, by: u8) {
        self.push(Inst::Shift { op, size, dst, by });
    }

    /// A register with an address.
    pub(super) fn address_register(&mut self, address: Address) -> Reg {
        match address {
            Address::Base { base, disp: 0 } => base,
            _ => {
                let dst = self.general();
                self.push(Inst::Lea { dst, address });
                dst
            }
        }
    }

    /// The place `bytes` after `address`.
    fn advance(&mut self, address: Address, bytes: u64) -> Address {
        address.plus(bytes).unwrap_or_else(|| {
            let dst = self.set(bytes);
            let src = Source::Reg(self.address_register(address));
            self.push(Inst::Alu {
                op: Alu::Add,
                size: Size::S64,
                dst,
                src,
            });
            Address::Base { base: dst, disp: 0 }
        })
    }

    /// The address of a row that a load reads.
    pub(super) fn row_address(&mut self, row: ValueId) -> Address {
        match self.rows[row.index()] {
            Some(address) => address,
            None => Address::Base {
                base: self.reg(row),
                disp: 0,
            },
        }
    }

    /// The address of number `index` of a column of a row, its table and its column.
    pub(super) fn element(
        &mut self,
        row: ValueId,
        column: u8,
        index: u64,
    ) -> (Address, TableId, &'a Column) {
        let table = self.row_table(row);
        let column = &self.table(table).columns[usize::from(column)];
        let address = self.row_address(row);
        let bytes = u64::from(column.offset) + index * u64::from(column.bytes);
        (self.advance(address, bytes), table, column)
    }

    /// The same for an index that may be a value.
    pub(super) fn indexed_element(
        &mut self,
        row: ValueId,
        column: u8,
        index: Option<ValueId>,
    ) -> (Address, TableId, &'a Column) {
        let (address, table, column) = self.element(row, column, 0);
        let address = match index {
            Some(index) => self.run(address, index, column.bytes.into()),
            None => address,
        };
        (address, table, column)
    }

    /// How the numbers that `inst` loads as lanes are widened, if they are.
    pub(super) fn widening(&self, inst: &Ir) -> Option<Narrow> {
        let Ir::LoadLanes { row, column, .. } = *inst else {
            return None;
        };
        match self.table(self.row_table(row)).columns[usize::from(column)].bytes {
            1 => Some(Narrow::B1),
            2 => Some(Narrow::B2),
            _ => None,
        }
    }

    /// Where the numbers are that a load of lanes reads, and in which table; `None` of other instructions.
    pub(super) fn lanes_address(&mut self, inst: &Ir) -> Option<(Address, Option<TableId>)> {
        Some(match *inst {
            Ir::LoadLanes {
                row, column, first, ..
            } => {
                let (address, table, _) = self.element(row, column, first.into());
                (address, Some(table))
            }
            Ir::LoadScratchLanes { index, lanes } => (self.scratch_lanes(index, lanes), None),
            _ => return None,
        })
    }

    /// The place `index` times `bytes`, a power of two, after `address`.
    pub(super) fn run(&mut self, address: Address, index: ValueId, bytes: u32) -> Address {
        if let Some(index) = self.uses.constant(index) {
            return self.advance(address, index * u64::from(bytes));
        }
        let (base, disp) = match address {
            Address::Base { base, disp } => (base, disp),
            _ => (self.address_register(address), 0),
        };
        let shift = bytes.trailing_zeros();
        Address::Indexed {
            base,
            index: self.scaled(index, shift.saturating_sub(3) as u8),
            scale: Scale::from_shift(shift),
            disp,
        }
    }

    /// `index << by` in a register, the same for all uses in a block.
    fn scaled(&mut self, index: ValueId, by: u8) -> Reg {
        if by == 0 {
            return self.reg(index);
        }
        if let Some(&reg) = self.in_block.scaled.get(&(index, by)) {
            return reg;
        }
        let reg = self.times(index, 1 << by);
        self.in_block.scaled.insert((index, by), reg);
        reg
    }
}
