//! Scalar instructions, in 32 bits where the facts say that nothing is lost.

use pktjit_ir::program::{BinaryOp, Inst as Ir};
use pktjit_ir::{ByteOrder, TableId, ValueId};

use super::{Lowering, key_address};
use crate::isa::x64::inst::{
    Address, Alu, Cond, Inst, Reg, Scale, Scan, Shift, Size, Source, Width,
};

/// Scalars.
impl Lowering<'_> {
    pub(super) fn load_key(&mut self, offset: u16, bytes: u8, order: ByteOrder) -> Reg {
        let dst = self.general();
        let address = key_address(offset);
        let (width, size) = (
            Width::of(bytes),
            if bytes == 8 { Size::S64 } else { Size::S32 },
        );
        if order == ByteOrder::Big && bytes >= 4 && self.features.movbe {
            self.push(Inst::LoadSwapped { dst, address, size });
            return dst;
        }
        self.push(Inst::Load {
            dst,
            address,
            width,
        });
        match (order, bytes) {
            (ByteOrder::Big, 4 | 8) => self.push(Inst::Bswap { dst, size }),
            (ByteOrder::Big, 2) => self.push(Inst::SwapLowBytes { dst }),
            _ => {}
        }
        dst
    }

    pub(super) fn binary(&mut self, value: ValueId, op: BinaryOp, a: ValueId, b: ValueId) -> Reg {
        let (a, b) = self.operands(op, a, b);
        match op {
            BinaryOp::And => self.alu(Alu::And, self.and_size(a, b), a, b),
            BinaryOp::Or => self.alu(Alu::Or, self.common_size(a, b), a, b),
            BinaryOp::Xor => self.alu(Alu::Xor, self.common_size(a, b), a, b),
            BinaryOp::Add => self.sum(value, a, b),
            BinaryOp::Sub => self.alu(Alu::Sub, Size::S64, a, b),
            // Where the product is known to fit 32 bits, so are the operands, and nothing is lost above.
            BinaryOp::Mul => self.mul(value, a, b),
            BinaryOp::Min => self.extreme(Cond::Above, a, b),
            BinaryOp::Max => self.extreme(Cond::Below, a, b),
            BinaryOp::Pext => self.pext(a, b),
        }
    }

    fn alu(&mut self, op: Alu, size: Size, a: ValueId, b: ValueId) -> Reg {
        // A number in memory is best second.
        let (a, b) = if op != Alu::Sub && self.is_sunk_load(a) && self.uses.constant(b).is_none() {
            (b, a)
        } else {
            (a, b)
        };
        let (src, table) = match (op, size, self.uses.constant(b)) {
            // The other operand has no bits above.
            (Alu::And, Size::S32, Some(mask)) => (Source::Imm((mask as u32).cast_signed()), None),
            _ => self.any_source(b, size),
        };
        let dst = self.copy(a);
        self.push_reading(Inst::Alu { op, size, dst, src }, table);
        dst
    }

    /// The sum as an address, which needs no copy of `a`; a number in memory can only be added to a copy.
    fn sum(&mut self, value: ValueId, a: ValueId, b: ValueId) -> Reg {
        if self.is_sunk_load(a) || self.is_sunk_load(b) {
            return self.alu(Alu::Add, self.size(value), a, b);
        }
        let base = self.reg(a);
        let address = match self.source(b, Size::S64) {
            Source::Reg(index) => Address::Indexed {
                base,
                index,
                scale: Scale::X1,
                disp: 0,
            },
            Source::Imm(disp) => Address::Base { base, disp },
            Source::Mem(_) => return base,
        };
        let dst = self.general();
        self.push(Inst::Lea { dst, address });
        dst
    }

    fn is_sunk_load(&self, value: ValueId) -> bool {
        self.registers[value.index()].is_none()
            && matches!(
                self.uses.inst(value),
                Some(Ir::Load { .. } | Ir::LoadScratch { .. })
            )
    }

    /// The second operand of a scalar instruction, in memory where it is used but once, and the table that it reads.
    fn any_source(&mut self, value: ValueId, size: Size) -> (Source, Option<TableId>) {
        if self.is_sunk_load(value) {
            match self.uses.inst(value) {
                Some(&Ir::Load { row, column, index })
                    if self.column_width(row, column) >= Some(size) =>
                {
                    // Of a wider number the low bytes come first, and they are all that counts.
                    let (address, table, _) = self.indexed_element(row, column, index);
                    return (Source::Mem(address), Some(table));
                }
                Some(&Ir::LoadScratch { index }) if size == Size::S32 => {
                    return (Source::Mem(self.scratch_number(index)), None);
                }
                _ => {}
            }
        }
        (self.source(value, size), None)
    }

    fn mul(&mut self, value: ValueId, a: ValueId, b: ValueId) -> Reg {
        match self.uses.constant(b) {
            Some(0) => self.set(0),
            // A register of its own, whatever becomes of that of `a`.
            Some(1) => self.copy(a),
            Some(constant) => self.times(a, constant),
            None => {
                let (src, size) = (self.reg(b), self.size(value));
                let dst = self.copy(a);
                self.push(Inst::Mul { size, dst, src });
                dst
            }
        }
    }

    /// The minimum or maximum: b where `cond` holds for (a, b), else a.
    fn extreme(&mut self, cond: Cond, a: ValueId, b: ValueId) -> Reg {
        let size = self.common_size(a, b);
        let src = self.reg(b);
        let dst = self.copy(a);
        self.push(Inst::Cmp {
            size,
            a: dst,
            b: Source::Reg(src),
        });
        self.push(Inst::Cmov {
            cond,
            size,
            dst,
            src,
        });
        dst
    }

    fn pext(&mut self, a: ValueId, b: ValueId) -> Reg {
        let size = self.and_size(a, b);
        match self.uses.constant(b) {
            Some(mask) if !(self.features.bmi2 && self.features.fast_pext) => {
                self.gather_bits(a, mask)
            }
            None if !self.features.bmi2 => {
                self.fail("pext by a mask from a table needs BMI2");
                self.general()
            }
            constant => {
                // A 32-bit constant is shorter, and bits of the mask above those of `a` gather zeros.
                let mask = match (size, constant) {
                    (Size::S32, Some(mask)) => self.set(mask & u64::from(u32::MAX)),
                    _ => self.reg(b),
                };
                let (src, dst) = (self.reg(a), self.general());
                self.push(Inst::Pext {
                    size,
                    dst,
                    src,
                    mask,
                });
                dst
            }
        }
    }

    /// `pext` by a constant without BMI2: each run of bits of the mask is shifted into its place.
    fn gather_bits(&mut self, a: ValueId, mask: u64) -> Reg {
        let size = self.size(a);
        let width = 64 - self.max(a).leading_zeros();
        let mut mask = mask & u64::MAX.unbounded_shr(64 - width);
        let mut filled = 0;
        let mut result = None;
        while mask != 0 {
            let start = mask.trailing_zeros();
            let len = (mask >> start).trailing_ones();
            let run = u64::MAX >> (64 - len);
            mask &= !(run << start);
            let part = self.copy(a);
            if start > filled {
                self.shift(Shift::Right, size, part, (start - filled) as u8);
            }
            let has_more = filled > 0 || start + len < width;
            if has_more {
                self.keep_bits(size, part, run << filled);
            }
            filled += len;
            result = match result {
                None => Some(part),
                Some(dst) => {
                    let src = Source::Reg(part);
                    self.push(Inst::Alu {
                        op: Alu::Or,
                        size,
                        dst,
                        src,
                    });
                    Some(dst)
                }
            };
        }
        result.unwrap_or_else(|| self.set(0))
    }

    fn keep_bits(&mut self, size: Size, dst: Reg, mask: u64) {
        let src = match size.immediate(mask) {
            Some(imm) => Source::Imm(imm),
            None => Source::Reg(self.set(mask)),
        };
        self.push(Inst::Alu {
            op: Alu::And,
            size,
            dst,
            src,
        });
    }

    /// A shift of `a`; `widest` is the value whose bound sets the size.
    pub(super) fn shift_by(&mut self, widest: ValueId, op: Shift, a: ValueId, by: u8) -> Reg {
        // A 32-bit shift counts modulo 32.
        let size = if by < 32 {
            self.size(widest)
        } else {
            Size::S64
        };
        let dst = self.copy(a);
        if by > 0 {
            self.shift(op, size, dst, by);
        }
        dst
    }

    /// Sets the flags for `cond` of `a` and `b`.
    pub(super) fn set_flags(&mut self, cond: Cond, a: ValueId, b: ValueId) {
        let size = self.common_size(a, b);
        let a = self.reg(a);
        let (b, table) = self.any_source(b, size);
        let inst = match (cond, b) {
            (Cond::Equal | Cond::NotEqual, Source::Imm(0)) => Inst::TestSelf { size, a },
            _ => Inst::Cmp { size, a, b },
        };
        self.push_reading(inst, table);
    }

    pub(super) fn select(&mut self, value: ValueId, cond: ValueId, a: ValueId, b: ValueId) -> Reg {
        let size = self.size(value);
        let src = self.reg(a);
        let (cond, dst) = match self.uses.constant(b) {
            // `mov` keeps the flags, and what was compared has left its register.
            Some(1..) => {
                let cond = self.condition(cond);
                (cond, self.copy(b))
            }
            _ => {
                let dst = self.copy(b);
                (self.condition(cond), dst)
            }
        };
        self.push(Inst::Cmov {
            cond,
            size,
            dst,
            src,
        });
        dst
    }

    pub(super) fn first_bit(&mut self, a: ValueId) -> Reg {
        let is_nonzero = self.facts.facts(a).ones != 0;
        // Zero gives 64, which a 32-bit scan would not.
        let size = if is_nonzero { self.size(a) } else { Size::S64 };
        let src = self.reg(a);
        if self.features.bmi1 {
            let dst = self.general();
            self.push(Inst::Scan {
                op: Scan::Tzcnt,
                size,
                dst,
                src,
            });
            return dst;
        }
        // `bsf` sets the zero flag for zero, and its result is undefined then.
        let none = (!is_nonzero).then(|| self.set(64));
        let dst = self.general();
        self.push(Inst::Scan {
            op: Scan::Bsf,
            size,
            dst,
            src,
        });
        if let Some(none) = none {
            self.push(Inst::Cmov {
                cond: Cond::Equal,
                size: Size::S32,
                dst,
                src: none,
            });
        }
        dst
    }
}
