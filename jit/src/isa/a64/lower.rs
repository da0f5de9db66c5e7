//! From a verified program to a body of AArch64 instructions on virtual registers.
//!
//! Eight lanes are two vector registers, which `ldp` loads at once; four are one. So a program has as many lanes as for AVX2,
//! and the index, the row and the first lane of a bucket are computed once for eight rules. A bucket of four lanes would need
//! all of that twice for the same rules.
//!
//! There are registers enough for most programs, so values are computed where they are used ([`Uses::sinks`]) less to hold
//! none than because that is where x86-64 computes them, too.
//!
//! Invariants: every node is one machine instruction whose immediates `immediate` has agreed to; a virtual register is
//! written once, except for block parameters, `movk` and `bfi`, which change what was made for them; between an instruction
//! that sets flags and the one that reads them no other sets any; upper halves of registers hold zeros wherever facts say
//! below 2^32.

mod control;
mod lanes;
mod memory;
mod scalars;
mod staged;

use pktjit_ir::program::{Inst as Ir, MaskOp, Program, Type};
use pktjit_ir::{BlockId, TableId, ValueId, VerifiedProgram};

use super::abi::Pass;
use super::immediate;
use super::inst::{Class, Inst, Label, Operand, Reg, Shift, Size, Vector};
use super::regs::{Body, Line, Node, VirtualRegister};
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::isa::uses::Uses;
use memory::Place;

/// Where a body ends, with the result in w6. Block n starts at label n + 1.
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
    pool: &mut ConstantPool,
    recomputed: &[bool],
) -> Result<Body, CompileError> {
    let Lookup {
        facts,
        program,
        pass,
    } = lookup;
    check_lanes(facts)?;
    let mut lowering = Lowering {
        facts,
        program,
        pass,
        pool,
        recomputed,
        uses: Uses::new(program, facts.value_count(), false),
        body: Body::new(program.blocks.len() + 1),
        held: vec![None; facts.value_count()],
        rows: vec![None; facts.value_count()],
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

fn check_lanes(program: &VerifiedProgram) -> Result<(), CompileError> {
    let ids = (0..program.value_count() as u32).map(ValueId::new);
    for value in ids {
        if let Type::Lanes(lanes) | Type::Mask(lanes) = program.facts(value).ty
            && lanes > 8
        {
            return Err(CompileError::Unsupported(format!(
                "{value} has {lanes} lanes, NEON code has 4 or 8"
            )));
        }
    }
    Ok(())
}

/// Where a value is: in one register, or its lanes from the fifth on in a second one. Lanes that are all alike have one
/// register that serves as both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    low: Reg,
    high: Option<Reg>,
}

impl Held {
    /// A scalar, a row, or four lanes.
    fn one(low: Reg) -> Self {
        Self { low, high: None }
    }

    /// The registers, the low lanes first.
    fn regs(self) -> impl Iterator<Item = Reg> {
        [self.low].into_iter().chain(self.high)
    }
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
    escaping: Vec<(ValueId, Held)>,
}

struct Lowering<'a> {
    facts: &'a VerifiedProgram,
    program: &'a Program,
    pass: Pass,
    pool: &'a mut ConstantPool,
    recomputed: &'a [bool],
    uses: Uses<'a>,
    body: Body,
    /// The registers of each value that has some.
    held: Vec<Option<Held>>,
    /// Where each row is that is not a block parameter.
    rows: Vec<Option<Place>>,
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

    /// Fresh registers for a value of a type.
    fn new_held(&mut self, ty: Type) -> Held {
        match ty {
            Type::Scalar | Type::Row(_) | Type::Nothing => Held::one(self.general()),
            Type::Lanes(lanes) | Type::Mask(lanes) => {
                let low = self.vector();
                let high = (lanes > 4).then(|| self.vector());
                Held { low, high }
            }
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
    /// Where a value is; what is nowhere yet is computed here.
    fn held(&mut self, value: ValueId) -> Held {
        if let Some(held) = self.held[value.index()] {
            return held;
        }
        match self.uses.inst(value) {
            Some(inst) => self.compute(value, inst),
            // Parameters have a register from the start.
            None => Held::one(self.general()),
        }
    }

    /// The register of a scalar or a row.
    fn reg(&mut self, value: ValueId) -> Reg {
        self.held(value).low
    }

    /// A fresh register with a constant.
    fn set(&mut self, value: u64) -> Reg {
        let dst = self.general();
        self.push_all(immediate::constant(dst, value));
        dst
    }

    /// The second operand of `add`, `sub` or `cmp`.
    fn arithmetic(&mut self, value: ValueId) -> Operand {
        match self.uses.constant(value) {
            Some(imm) if immediate::is_arithmetic(imm) => Operand::Imm(imm),
            _ => Operand::Reg(self.reg(value)),
        }
    }
}

/// Instructions.
impl<'a> Lowering<'a> {
    fn inst(&mut self, value: ValueId, inst: &'a Ir) {
        if matches!(inst, Ir::Const(_))
            || self.uses.is_dead(value)
            || self.uses.sinks(value)
            || self.is_of_first_lane(value)
            || self.recomputed[value.index()]
        {
            return;
        }
        self.line.value = Some(value);
        if let Ir::Row { table, index } = *inst {
            self.rows[value.index()] = Some(self.row(value, table, index));
        } else {
            let held = self.compute(value, inst);
            if self.uses.is_cheap(inst) {
                for index in held.regs().filter_map(Reg::virtual_index) {
                    self.body.registers[index].recomputable = Some(value);
                }
            }
            self.held[value.index()] = Some(held);
        }
        self.line.value = None;
    }

    /// The code of one instruction, and the registers with its result.
    fn compute(&mut self, value: ValueId, inst: &'a Ir) -> Held {
        let before = self.line.value.replace(value);
        let held = match *inst {
            Ir::Const(constant) => Held::one(self.set(constant)),
            Ir::LoadKey {
                offset,
                bytes,
                order,
            } => Held::one(self.load_key(offset, bytes, order)),
            Ir::Binary { op, a, b } => Held::one(self.binary(value, op, a, b)),
            Ir::Shl { a, by } => Held::one(self.shift_by(value, Shift::Left, a, by)),
            Ir::Shr { a, by } => Held::one(self.shift_by(a, Shift::Right, a, by)),
            Ir::Compare { op, a, b } => {
                let cond = self.compare(op, a, b);
                let dst = self.general();
                self.push(Inst::Set { cond, dst });
                Held::one(dst)
            }
            Ir::Select { cond, a, b } => Held::one(self.select(value, cond, a, b)),
            Ir::FirstBit { a } => Held::one(self.first_bit(a)),
            Ir::Row { .. } => {
                let place = self.row_place(value);
                Held::one(self.place_register(place))
            }
            Ir::Load { row, column, index } => Held::one(self.load(row, column, index)),
            Ir::LoadLanes { .. } | Ir::LoadScratchLanes { .. } => self.load_lanes(inst),
            Ir::LoadScratch { index } => Held::one(self.load_scratch(index)),
            Ir::OrScratch { index, bits } => {
                self.or_scratch(index, bits);
                // Never read, so that it occupies nothing.
                Held::one(self.general())
            }
            Ir::AndLanes { a, b } => self.lanewise(Vector::And, a, b),
            Ir::Splat { a, lanes } => self.splat(inst, a, lanes),
            Ir::CompareLanes { op, a, b } => self.compare_lanes(op, a, b),
            Ir::InRangeLanes { x, lo, len } => self.in_range(x, lo, len),
            Ir::InRangeHalves { x, lo, len } => self.in_range_halves(x, lo, len),
            Ir::MaskedEqLanes { x, mask, value } => {
                let masked = self.lanewise(Vector::And, x, mask);
                let value = self.held(value);
                self.each(Vector::Equal, masked, value)
            }
            Ir::CombineMasks { op, a, b } => {
                let op = match op {
                    MaskOp::And => Vector::And,
                    MaskOp::Or => Vector::Or,
                    MaskOp::AndNot => Vector::AndNot,
                };
                self.lanewise(op, a, b)
            }
            Ir::LaneBits { mask } => Held::one(self.lane_bits(mask)),
            Ir::MaskedMin { acc, mask, x } => self.masked_min(acc, mask, x),
            Ir::HorizontalMin { a } => Held::one(self.horizontal_min(a)),
        };
        self.line.value = before;
        held
    }
}

/// The label at which a block starts.
fn label_of(block: BlockId) -> Label {
    Label(block.as_u32() + 1)
}
