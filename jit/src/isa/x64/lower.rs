//! From a verified program to a body of machine instructions on virtual registers.
//!
//! What keeps registers free, of which there are few:
//! - a constant holds none: it is an immediate, an operand in the pool, or set where an instruction insists on a register;
//! - lanes, broadcast table entries and comparisons with a single use in their block are computed at that use
//!   ([`Uses::sinks`]), mostly as its memory operand or in the flags; loads of scratch only while scratch does not change;
//! - a row with a constant index is an address, not a value;
//! - what the register assignment asks for is computed at each use (`recomputed`).
//!
//! Invariants: every node is one machine instruction; a virtual register is written once, except for block parameters and
//! two-operand instructions, which change the copy that was made for them; between an instruction that sets flags and the
//! one that reads them there is no other; upper halves of registers hold zeros wherever facts say below 2^32.

mod avx512;
mod control;
mod lanes;
mod scalars;
mod scratch;
mod staged;
mod tables;

pub(crate) use avx512::gains as gains_from_avx512;

use std::collections::HashMap;

use pktjit_ir::program::{Inst as Ir, MaskOp, Program, Type};
use pktjit_ir::{BlockId, TableId, ValueId, VerifiedProgram};

use super::abi::{self, Pass};
use super::inst::{
    Address, Class, Inst, Label, Reg, Shift, Size, Source, Vector, VectorSource, Width,
};
use super::regs::{Body, Line, Node, VirtualRegister, constant};
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::isa::uses::Uses;
use crate::target::{Features, Target};

/// Where a body ends, with the result in eax. Block n starts at label n + 1.
pub(super) const END: Label = Label(0);

/// What is lowered.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    /// What is known of all values.
    pub(super) facts: &'a VerifiedProgram,
    /// That program, or what a pass does of it.
    pub(super) program: &'a Program,
    /// Which pass.
    pub(super) pass: Pass,
}

/// Lowers a lookup; the values of `recomputed` are computed at each use.
///
/// # Errors
/// Where the program needs what the target does not have.
pub(super) fn lower(
    lookup: Lookup<'_>,
    target: &Target,
    pool: &mut ConstantPool,
    recomputed: &[bool],
) -> Result<Body, CompileError> {
    let Lookup {
        facts,
        program,
        pass,
    } = lookup;
    let mut lowering = Lowering {
        facts,
        program,
        pass,
        features: target.features,
        pool,
        recomputed,
        uses: Uses::new(program, facts.value_count(), target.features.avx512),
        body: Body::new(program.blocks.len() + 1),
        registers: vec![None; facts.value_count()],
        rows: vec![None; facts.value_count()],
        scaled: HashMap::new(),
        zeros: None,
        loops: Vec::new(),
        line: LineNote::default(),
        block: BlockId::new(0),
        error: None,
    };
    lowering.parameters();
    lowering.clear_scratch();
    if pass == Pass::Finish {
        lowering.staged_index();
    }
    for b in 0..program.blocks.len() {
        lowering.block(BlockId::new(b as u32));
    }
    match lowering.error {
        Some(error) => Err(error),
        None => Ok(lowering.body),
    }
}

/// Fails where `program` has other lanes than the target.
///
/// # Errors
/// Which lanes it has.
pub(super) fn check_lanes(program: &VerifiedProgram, target: &Target) -> Result<(), CompileError> {
    let (tier, all): (_, &[u8]) = match (target.features.avx512, target.lanes()) {
        (false, _) => ("AVX2", &[8]),
        (true, 8) => ("AVX-512", &[8]),
        (true, _) => ("AVX-512", &[8, 16]),
    };
    let ids = (0..program.value_count() as u32).map(ValueId::new);
    for value in ids {
        if let Type::Lanes(lanes) | Type::Mask(lanes) = program.facts(value).ty
            && !all.contains(&lanes)
        {
            let all: Vec<String> = all.iter().map(u8::to_string).collect();
            return Err(CompileError::Unsupported(format!(
                "{value} has {lanes} lanes, {tier} code has {}",
                all.join(" or ")
            )));
        }
    }
    Ok(())
}

/// What the listing says about the instructions being made.
#[derive(Clone, Copy, Default)]
struct LineNote {
    value: Option<ValueId>,
    note: &'static str,
}

/// A loop whose end has not come yet.
struct OpenLoop {
    /// Its first node.
    start: usize,
    /// Parameters that are used after it, and the copies that serve there.
    escaping: Vec<(ValueId, Reg)>,
}

struct Lowering<'a> {
    facts: &'a VerifiedProgram,
    program: &'a Program,
    pass: Pass,
    features: Features,
    pool: &'a mut ConstantPool,
    recomputed: &'a [bool],
    uses: Uses<'a>,
    body: Body,
    /// The register of each value that has one.
    registers: Vec<Option<Reg>>,
    /// The address of each row that is not a block parameter.
    rows: Vec<Option<Address>>,
    /// Indices times a power of two in registers, by the power's logarithm; of the current block.
    scaled: HashMap<(ValueId, u8), Reg>,
    /// Lanes of zeros in a register, in the current block.
    zeros: Option<Reg>,
    /// The loops around the current block.
    loops: Vec<OpenLoop>,
    line: LineNote,
    block: BlockId,
    /// The first error; the code after it is of no use.
    error: Option<CompileError>,
}

/// Code and registers.
impl<'a> Lowering<'a> {
    fn push(&mut self, inst: Inst) {
        self.push_reading(inst, None);
    }

    fn push_all(&mut self, insts: impl IntoIterator<Item = Inst>) {
        insts.into_iter().for_each(|inst| self.push(inst));
    }

    /// An instruction that reads memory of a table, if any.
    fn push_reading(&mut self, inst: Inst, table: Option<TableId>) {
        let LineNote { value, note } = self.line;
        self.body.nodes.push(Node::Inst(Line {
            inst,
            value,
            table,
            note,
        }));
    }

    fn new_register(&mut self, class: Class) -> Reg {
        let reg = Reg::virtual_register(self.body.registers.len());
        self.body.registers.push(VirtualRegister {
            class,
            recomputable: None,
            loop_head: None,
        });
        reg
    }

    fn general(&mut self) -> Reg {
        self.new_register(Class::General)
    }

    fn vector(&mut self) -> Reg {
        self.new_register(Class::Vector)
    }

    /// The register file that holds values of a type.
    fn class_of(&self, ty: Type) -> Class {
        match ty {
            Type::Scalar | Type::Row(_) | Type::Nothing => Class::General,
            Type::Mask(_) if self.features.avx512 => Class::Mask,
            Type::Lanes(16) => Class::Wide,
            Type::Lanes(_) | Type::Mask(_) => Class::Vector,
        }
    }

    fn new_label(&mut self) -> Label {
        self.body.labels += 1;
        Label(self.body.labels as u32 - 1)
    }

    fn fail(&mut self, what: &str) {
        self.error
            .get_or_insert_with(|| CompileError::Unsupported(what.into()));
    }

    fn max(&self, value: ValueId) -> u64 {
        self.facts.facts(value).max
    }

    fn size(&self, value: ValueId) -> Size {
        Size::of(self.max(value))
    }

    /// The size that holds both values.
    fn common_size(&self, a: ValueId, b: ValueId) -> Size {
        Size::of(self.max(a).max(self.max(b)))
    }
}

/// Operands.
impl<'a> Lowering<'a> {
    /// The register that holds a value; what holds none yet is computed here.
    fn reg(&mut self, value: ValueId) -> Reg {
        if let Some(reg) = self.registers[value.index()] {
            return reg;
        }
        match self.uses.inst(value) {
            Some(inst) => self.compute(value, inst),
            // Parameters have a register from the start.
            None => self.general(),
        }
    }

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

    /// A fresh register with a constant.
    fn set(&mut self, value: u64) -> Reg {
        let dst = self.general();
        self.push(constant(dst, value));
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
impl<'a> Lowering<'a> {
    fn inst(&mut self, value: ValueId, inst: &'a Ir) {
        let is_constant = match *inst {
            Ir::Const(_) => true,
            Ir::Splat { a, .. } => self.uses.constant(a).is_some(),
            _ => false,
        };
        if is_constant
            || self.uses.is_dead(value)
            || self.uses.sinks(value)
            || self.recomputed[value.index()]
        {
            return;
        }
        self.line.value = Some(value);
        if let Ir::Row { table, index } = *inst {
            self.rows[value.index()] = Some(self.row(value, table, index));
        } else {
            let reg = self.compute(value, inst);
            let is_cheap = self.uses.is_cheap(inst);
            if let Some(index) = reg.virtual_index().filter(|_| is_cheap) {
                self.body.registers[index].recomputable = Some(value);
            }
            self.registers[value.index()] = Some(reg);
        }
        self.line.value = None;
    }

    /// The code of one instruction, and the register with its result.
    fn compute(&mut self, value: ValueId, inst: &'a Ir) -> Reg {
        let before = self.line.value.replace(value);
        if let Some(reg) = self.with_avx512(inst) {
            self.line.value = before;
            return reg;
        }
        let reg = match *inst {
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
                let (dst, width) = (self.general(), width(column.bytes));
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
            Ir::InRangeLanes { x, lo, len } => self.in_range(x, lo, len),
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
        };
        self.line.value = before;
        reg
    }
}

/// The label at which a block starts.
fn label_of(block: BlockId) -> Label {
    Label(block.as_u32() + 1)
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

/// The width of a number of 1, 2, 4 or 8 bytes.
fn width(bytes: u8) -> Width {
    match bytes {
        1 => Width::B1,
        2 => Width::B2,
        4 => Width::B4,
        _ => Width::B8,
    }
}
