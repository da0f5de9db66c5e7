//! Scalar instructions, in 32 bits where the facts say that nothing is lost.

use pktjit_ir::program::{BinaryOp, CompareOp, Inst as Ir};
use pktjit_ir::{ByteOrder, ValueId};

use super::Lowering;
use crate::isa::a64::abi::KEY;
use crate::isa::a64::immediate::{is_arithmetic, is_mask};
use crate::isa::a64::inst::{Address, Alu, Cond, Inst, Label, Operand, Reg, Shift, Size, Width};

/// Scalars.
impl Lowering<'_> {
    pub(super) fn load_key(&mut self, offset: u16, bytes: u8, order: ByteOrder) -> Reg {
        let loaded = self.general();
        // A key has at most 256 bytes, so that no offset is too large.
        self.push(Inst::Load {
            dst: loaded,
            address: key_address(offset),
            width: Width::of(bytes),
        });
        if order == ByteOrder::Little || bytes == 1 {
            return loaded;
        }
        let (src, dst) = (loaded, self.general());
        self.push(match bytes {
            2 => Inst::Reverse16 { dst, src },
            4 => Inst::Reverse {
                size: Size::S32,
                dst,
                src,
            },
            _ => Inst::Reverse {
                size: Size::S64,
                dst,
                src,
            },
        });
        dst
    }

    pub(super) fn binary(&mut self, value: ValueId, op: BinaryOp, a: ValueId, b: ValueId) -> Reg {
        let (a, b) = self.operands(op, a, b);
        match op {
            BinaryOp::And => self.bitwise(Alu::And, self.and_size(a, b), a, b),
            BinaryOp::Or => self.bitwise(Alu::Or, self.common_size(a, b), a, b),
            BinaryOp::Xor => self.bitwise(Alu::Xor, self.common_size(a, b), a, b),
            BinaryOp::Add => self.sum(Alu::Add, Alu::Sub, a, b),
            BinaryOp::Sub => self.sum(Alu::Sub, Alu::Add, a, b),
            // Where the product is known to fit 32 bits, so are the operands, and nothing is lost above.
            BinaryOp::Mul => self.mul(value, a, b),
            BinaryOp::Min => self.extreme(Cond::Below, a, b),
            BinaryOp::Max => self.extreme(Cond::Above, a, b),
            BinaryOp::Pext => self.pext(a, b),
        }
    }

    fn bitwise(&mut self, op: Alu, size: Size, a: ValueId, b: ValueId) -> Reg {
        let b = match self.uses.constant(b) {
            Some(imm) => {
                // Of an `and` in 32 bits the other operand has no bits above.
                let imm = match size {
                    Size::S32 => imm & u64::from(u32::MAX),
                    Size::S64 => imm,
                };
                if is_mask(imm, size) {
                    Operand::Imm(imm)
                } else {
                    Operand::Reg(self.set(imm))
                }
            }
            None => Operand::Reg(self.reg(b)),
        };
        let (a, dst) = (self.reg(a), self.general());
        self.push(Inst::Alu {
            op,
            size,
            dst,
            a,
            b,
        });
        dst
    }

    /// A sum or difference modulo 2^64; `opposite` takes the negative of a constant.
    fn sum(&mut self, op: Alu, opposite: Alu, a: ValueId, b: ValueId) -> Reg {
        let (op, b) = match self.uses.constant(b).map(u64::wrapping_neg) {
            Some(negative) if is_arithmetic(negative) => (opposite, Operand::Imm(negative)),
            _ => (op, self.arithmetic(b)),
        };
        let (a, dst) = (self.reg(a), self.general());
        self.push(Inst::Alu {
            op,
            size: Size::S64,
            dst,
            a,
            b,
        });
        dst
    }

    fn mul(&mut self, value: ValueId, a: ValueId, b: ValueId) -> Reg {
        match self.uses.constant(b) {
            Some(0) => self.set(0),
            Some(1) => self.copy(a),
            Some(constant) => self.times(a, constant),
            None => {
                let size = self.size(value);
                let (a, b, dst) = (self.reg(a), self.reg(b), self.general());
                self.push(Inst::Mul { size, dst, a, b });
                dst
            }
        }
    }

    /// The minimum or maximum: a where `cond` holds for (a, b), else b.
    fn extreme(&mut self, cond: Cond, a: ValueId, b: ValueId) -> Reg {
        let size = self.common_size(a, b);
        let (a, b) = (self.reg(a), self.reg(b));
        self.push(Inst::Cmp {
            size,
            a,
            b: Operand::Reg(b),
        });
        let dst = self.general();
        self.push(Inst::Select {
            cond,
            size,
            dst,
            a,
            b,
        });
        dst
    }

    /// `pext` by a constant: each run of bits of the mask is put in its place, the first by `ubfx`, the others by `bfi`.
    fn pext(&mut self, a: ValueId, b: ValueId) -> Reg {
        let Some(mask) = self.uses.constant(b) else {
            self.fail("AArch64 has no pext by a mask that is not constant");
            return self.general();
        };
        let size = self.size(a);
        // Bits of the mask above those of `a` gather zeros.
        let mut mask = mask
            & self
                .max(a)
                .checked_ilog2()
                .map_or(0, |top| u64::MAX >> (63 - top));
        let mut filled = 0;
        let mut result = None;
        while mask != 0 {
            let first = mask.trailing_zeros() as u8;
            let len = (mask >> first).trailing_ones() as u8;
            mask &= !(u64::MAX >> (64 - len) << first);
            let src = self.reg(a);
            match result {
                None => {
                    let dst = self.general();
                    self.push(Inst::Extract {
                        size,
                        dst,
                        a: src,
                        first,
                        len,
                    });
                    result = Some(dst);
                }
                Some(dst) => {
                    let run = self.shift(Shift::Right, size, src, first);
                    self.push(Inst::Insert {
                        size,
                        dst,
                        a: run,
                        first: filled,
                        len,
                    });
                }
            }
            filled += len;
        }
        result.unwrap_or_else(|| self.set(0))
    }

    /// A register of its own, whatever becomes of that of `a`: a loop writes that of its parameter.
    fn copy(&mut self, a: ValueId) -> Reg {
        let (size, src, dst) = (self.size(a), self.reg(a), self.general());
        self.push(Inst::Mov { size, dst, src });
        dst
    }

    /// `a` shifted by a number of bits below its size.
    pub(super) fn shift(&mut self, op: Shift, size: Size, a: Reg, by: u8) -> Reg {
        let dst = self.general();
        self.push(Inst::Shift {
            op,
            size,
            dst,
            a,
            by,
        });
        dst
    }

    /// A shift of `a`; `widest` is the value whose bound sets the size.
    pub(super) fn shift_by(&mut self, widest: ValueId, op: Shift, a: ValueId, by: u8) -> Reg {
        if by == 0 {
            return self.copy(a);
        }
        // A 32-bit shift counts modulo 32.
        let size = if by < 32 {
            self.size(widest)
        } else {
            Size::S64
        };
        let a = self.reg(a);
        self.shift(op, size, a, by)
    }

    /// Goes to a label where a scalar is not 0, or where it is. A comparison with 0 needs no flags.
    pub(super) fn jump_if(&mut self, value: ValueId, is_nonzero: bool, to: Label) {
        let (a, is_zero) = match self.uses.inst(value) {
            Some(&Ir::Compare {
                op: op @ (CompareOp::Eq | CompareOp::Ne),
                a,
                b,
            }) if self.registers[value.index()].is_none() && self.uses.constant(b) == Some(0) => {
                (a, (op == CompareOp::Eq) == is_nonzero)
            }
            Some(Ir::Compare { .. }) if self.registers[value.index()].is_none() => {
                let cond = self.condition(value);
                let cond = if is_nonzero { cond } else { cond.negated() };
                self.push(Inst::JumpIf { cond, to });
                return;
            }
            _ => (value, !is_nonzero),
        };
        let (size, a) = (self.size(a), self.reg(a));
        self.push(Inst::JumpIfZero {
            size,
            a,
            is_zero,
            to,
        });
    }

    pub(super) fn select(&mut self, value: ValueId, cond: ValueId, a: ValueId, b: ValueId) -> Reg {
        let size = self.size(value);
        // Computed before the flags are set, which computing them might change.
        let (a, b) = (self.reg(a), self.reg(b));
        let cond = self.condition(cond);
        let dst = self.general();
        self.push(Inst::Select {
            cond,
            size,
            dst,
            a,
            b,
        });
        dst
    }

    /// Bits are counted from the top alone, so they are reversed first. Zero gives the size.
    pub(super) fn first_bit(&mut self, a: ValueId) -> Reg {
        if let Some(first) = self.first_lane(a) {
            return self.first_of_lanes(first);
        }
        let is_nonzero = self.facts.facts(a).ones != 0;
        // Zero gives 64, which a 32-bit count would not.
        let size = if is_nonzero { self.size(a) } else { Size::S64 };
        let src = self.reg(a);
        self.trailing_zeros(size, src)
    }

    pub(super) fn trailing_zeros(&mut self, size: Size, src: Reg) -> Reg {
        let (reversed, dst) = (self.general(), self.general());
        self.push(Inst::ReverseBits {
            size,
            dst: reversed,
            src,
        });
        self.push(Inst::LeadingZeros {
            size,
            dst,
            src: reversed,
        });
        dst
    }
}

pub(super) fn key_address(offset: u16) -> Address {
    Address::Base {
        base: KEY,
        disp: offset.into(),
    }
}
