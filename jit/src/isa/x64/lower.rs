//! What lowering to x86-64 does beyond what it does for all instruction sets.
//!
//! What keeps registers free, of which there are few:
//! - a constant holds none: it is an immediate, an operand in the pool, or set where an instruction insists on a register;
//! - lanes, broadcast table entries and comparisons with a single use in their block are computed at that use
//!   (`Uses::sinks`), mostly as its memory operand or in the flags; loads of scratch only while scratch does not change;
//! - a row with a constant index is an address, not a value;
//! - what the register assignment asks for is computed at each use (`recomputed`).
//!
//! Invariants: a virtual register is written once, except for block parameters and two-operand instructions, which
//! change the copy that was made for them; between an instruction that sets flags and the one that reads them there is
//! no other.

mod avx512;
mod lanes;
mod scalars;
mod scratch;
mod staged;
mod tables;

pub(crate) use avx512::gains as gains_from_avx512;

use std::collections::HashMap;

use pktjit_ir::program::{Inst as Ir, MaskOp, Type};
use pktjit_ir::{TableId, ValueId};

use super::abi;
use super::inst::{
    Address, Class, Cond, Inst, Label, Reg, Shift, Size, Source, Vector, VectorSource, Width,
};
use crate::isa::lower::{Held, Machine};
use crate::target::Target;

pub(super) type Lowering<'a> = crate::isa::lower::Lowering<'a, Inst>;

/// What the rest of a block need not compute again.
#[derive(Default)]
pub(super) struct InBlock {
    /// Indices times a power of two in registers, by the power's logarithm.
    scaled: HashMap<(ValueId, u8), Reg>,
    /// Lanes of zeros in a register.
    zeros: Option<Reg>,
}

impl Machine for Inst {
    type Place = Address;
    type InBlock = InBlock;

    const RESULT: Reg = abi::RAX;

    fn vectors(target: &Target) -> (&'static str, &'static [u8]) {
        match (target.features.avx512, target.lanes()) {
            (false, _) => ("AVX2", &[8]),
            (true, 8) => ("AVX-512", &[8]),
            (true, _) => ("AVX-512", &[8, 16]),
        }
    }

    fn has_masks(target: &Target) -> bool {
        target.features.avx512
    }

    fn mov(size: Size, to: Reg, from: Reg) -> Self {
        let (dst, src) = (to, from);
        Self::Mov { dst, src, size }
    }

    fn jump(to: Label) -> Self {
        Self::Jump { to }
    }

    fn test(size: Size, a: Reg) -> Self {
        Self::TestSelf { size, a }
    }

    fn compare(lowering: &mut Lowering<'_>, cond: Cond, a: ValueId, b: ValueId) {
        lowering.set_flags(cond, a, b);
    }

    fn jump_if(lowering: &mut Lowering<'_>, value: ValueId, is_nonzero: bool, to: Label) {
        let cond = lowering.condition(value);
        let cond = if is_nonzero { cond } else { cond.negated() };
        lowering.push(Self::JumpIf { cond, to });
    }

    fn next_trip(lowering: &mut Lowering<'_>, counter: Reg, trips: u32, head: Label) {
        lowering.push_all(abi::next_trip(counter, trips.cast_signed(), head));
    }

    fn registers(lowering: &mut Lowering<'_>, ty: Type) -> Held {
        let class = match ty {
            Type::Scalar | Type::Row(_) | Type::Nothing => Class::General,
            Type::Mask(_) if lowering.features.avx512 => Class::Mask,
            Type::Lanes(16) => Class::Wide,
            Type::Lanes(_) | Type::Mask(_) => Class::Vector,
        };
        Held::one(lowering.new_register(class))
    }

    /// Lanes of a constant are an operand in the pool.
    fn is_left_out(lowering: &Lowering<'_>, _: ValueId, inst: &Ir) -> bool {
        matches!(*inst, Ir::Splat { a, .. } if lowering.uses.constant(a).is_some())
    }

    fn instruction(lowering: &mut Lowering<'_>, value: ValueId, inst: &Ir) -> Held {
        let better = lowering.with_avx512(inst);
        Held::one(better.unwrap_or_else(|| lowering.instruction(value, inst)))
    }

    fn row(lowering: &mut Lowering<'_>, value: ValueId, table: TableId, index: ValueId) -> Address {
        lowering.row(value, table, index)
    }

    fn prefetch(
        lowering: &mut Lowering<'_>,
        row: Address,
        bytes: impl Iterator<Item = u32>,
        table: TableId,
    ) {
        for address in bytes.filter_map(|bytes| row.plus(bytes.into())) {
            lowering.push_reading(Self::Prefetch { address }, Some(table));
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
    /// A fresh register that starts out as the scalar `value` and may be changed.
    fn copy(&mut self, value: ValueId) -> Reg {
        if self.registers[value.index()].is_none() {
            // Computed for this use alone.
            return self.reg(value);
        }
        let (dst, size) = (self.general(), self.size(value));
        let src = self.reg(value);
        self.push(Inst::Mov { dst, src, size });
        dst
    }

    /// The second operand of a scalar instruction.
    fn source(&mut self, value: ValueId, size: Size) -> Source {
        let constant = self.uses.constant(value);
        match constant.and_then(|constant| size.immediate(constant)) {
            Some(imm) => Source::Imm(imm),
            None => Source::Reg(self.reg(value)),
        }
    }
}

/// Instructions.
impl Lowering<'_> {
    fn instruction(&mut self, value: ValueId, inst: &Ir) -> Reg {
        match *inst {
            Ir::Const(constant) => self.set(constant),
            Ir::LoadKey {
                offset,
                bytes,
                order,
            } => self.load_key(offset, bytes, order),
            Ir::Binary { op, a, b } => match self.uses.cleared_lowest_bit(inst) {
                Some(a) if self.features.bmi1 => {
                    let (src, dst, size) = (self.reg(a), self.general(), self.size(a));
                    self.push(Inst::ClearLowestBit { size, dst, src });
                    dst
                }
                _ => self.binary(value, op, a, b),
            },
            Ir::Shl { a, by } => self.shift_by(value, Shift::Left, a, by),
            Ir::Shr { a, by } => self.shift_by(a, Shift::Right, a, by),
            Ir::Compare { op, a, b } => {
                let cond = self.compare(op, a, b);
                let dst = self.general();
                self.push(Inst::Set { cond, dst });
                self.push(Inst::ZeroExtendByte { dst });
                dst
            }
            Ir::Select { cond, a, b } => self.select(value, cond, a, b),
            Ir::FirstBit { a } => self.first_bit(a),
            Ir::Row { .. } => {
                let address = self.row_address(value);
                self.address_register(address)
            }
            Ir::Load { row, column, index } => {
                let (address, table, column) = self.indexed_element(row, column, index);
                let (dst, width) = (self.general(), Width::of(column.bytes));
                self.push_reading(
                    Inst::Load {
                        dst,
                        address,
                        width,
                    },
                    Some(table),
                );
                dst
            }
            Ir::LoadLanes { .. } | Ir::LoadScratchLanes { .. } => {
                let dst = self.vector();
                if let Some((address, table)) = self.lanes_address(inst) {
                    let load = match self.widening(inst) {
                        Some(narrow) => Inst::WidenLoad {
                            dst,
                            address,
                            narrow,
                        },
                        None => Inst::VectorLoad { dst, address },
                    };
                    self.push_reading(load, table);
                }
                dst
            }
            Ir::LoadScratch { index } => {
                let (address, dst) = (self.scratch_number(index), self.general());
                let width = Width::B4;
                self.push(Inst::Load {
                    dst,
                    address,
                    width,
                });
                dst
            }
            Ir::OrScratch { index, bits } => {
                self.or_scratch(index, bits);
                // Never read, so that it occupies nothing.
                self.general()
            }
            Ir::AndLanes { a, b } => self.commutative_vector_op(Vector::And, a, b),
            Ir::Splat { a, lanes } => self.splat(inst, a, lanes),
            Ir::CompareLanes { op, a, b } => self.compare_lanes(op, a, b),
            Ir::InRangeLanes { x, lo, len } => {
                self.in_range(x, lo, len, [Vector::SubD, Vector::MinUD])
            }
            Ir::InRangeHalves { x, lo, len } => {
                self.in_range(x, lo, len, [Vector::SubW, Vector::MinUW])
            }
            Ir::MaskedEqLanes { x, mask, value } => {
                let masked = self.commutative_vector_op(Vector::And, x, mask);
                let value = self.vector_source(value);
                self.vector_op(Vector::CmpEqD, masked, value)
            }
            Ir::CombineMasks { op, a, b } => {
                let (a, b) = (self.reg(a), self.reg(b));
                // `vpandn` negates its first operand.
                let (op, a, b) = match op {
                    MaskOp::And => (Vector::And, a, b),
                    MaskOp::Or => (Vector::Or, a, b),
                    MaskOp::AndNot => (Vector::AndNot, b, a),
                };
                self.vector_op(op, a, (VectorSource::Reg(b), None))
            }
            Ir::LaneBits { mask } => {
                let (src, dst) = (self.reg(mask), self.general());
                self.push(Inst::LaneBits { dst, src });
                dst
            }
            Ir::MaskedMin { acc, mask, x } => self.masked_min(acc, mask, x),
            Ir::HorizontalMin { a } => self.horizontal_min(a),
        }
    }
}

fn key_address(offset: u16) -> Address {
    Address::Base {
        base: abi::KEY,
        disp: offset.into(),
    }
}

fn pool_address(offset: usize) -> Address {
    // The pool is far smaller than 2 GiB, or the code is refused before it is used.
    let offset = i32::try_from(offset).unwrap_or(i32::MAX);
    Address::Pool { offset }
}
