//! From a verified program to a body of machine instructions on virtual registers: what all instruction sets share.
//!
//! [`Lowering`] knows where each value is and where it had best be computed, and lowers blocks, loops and branches
//! (`control`), scratch and staged rows. Which instructions that takes, an instruction set tells in [`Machine`]; what
//! only one of them needs, it adds to its own `Lowering`.
//!
//! Invariants: every node is one machine instruction; between an instruction that sets flags and the one that reads
//! them none sets any; upper halves of registers hold zeros wherever facts say below 2^32.

mod control;
mod scratch;
mod staged;

use pktjit_ir::program::{BinaryOp, CompareOp, Inst as Ir, Program, Table, Type};
use pktjit_ir::{BlockId, TableId, ValueId, VerifiedProgram};

use super::inst::{Class, Cond, Label, Reg, Size};
use super::regs::{Body, Line, MachineInst, Node, VirtualRegister};
use super::staged::Pass;
use super::uses::Uses;
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::target::{Features, Target};
use control::OpenLoop;
pub(super) use scratch::STORES_OF_TRIP;

/// Where a body ends, with the result in [`Machine::RESULT`]. Block n starts at label n + 1.
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

/// What instruction sets differ in when a body is lowered.
pub(super) trait Machine: MachineInst {
    /// Where a row is that has no register of its own.
    type Place: Copy;
    /// What lowering remembers within a block.
    type InBlock: Default;

    /// The register of a body's result.
    const RESULT: Reg;

    /// What vectors are called, and how many lanes they may have.
    fn vectors(target: &Target) -> (&'static str, &'static [u8]);

    /// Whether comparisons work under masks, and compare conjunctions with zero.
    fn has_masks(target: &Target) -> bool;

    /// `to = from`, scalars of this size.
    fn mov(size: Size, to: Reg, from: Reg) -> Self;

    /// Goes to a label.
    fn jump(to: Label) -> Self;

    /// Sets the flags by comparing a scalar with 0.
    fn test(size: Size, a: Reg) -> Self;

    /// Sets the flags for `cond` of `a` and `b`; a constant is second.
    fn compare(lowering: &mut Lowering<'_, Self>, cond: Cond, a: ValueId, b: ValueId);

    /// Goes to a label where the scalar `value` is not 0, or where it is.
    fn jump_if(lowering: &mut Lowering<'_, Self>, value: ValueId, is_nonzero: bool, to: Label);

    /// Counts one trip more, and goes to `head` until there were as many as `trips`.
    fn next_trip(lowering: &mut Lowering<'_, Self>, counter: Reg, trips: u32, head: Label);

    /// Fresh registers for a value of a type.
    fn registers(lowering: &mut Lowering<'_, Self>, ty: Type) -> Held;

    /// Whether those who use the value do without its register, for a reason that [`Uses`] does not know.
    fn is_left_out(lowering: &Lowering<'_, Self>, value: ValueId, inst: &Ir) -> bool;

    /// The code of one instruction, and the registers with its result.
    fn instruction(lowering: &mut Lowering<'_, Self>, value: ValueId, inst: &Ir) -> Held;

    /// Where row `index` of a table is.
    fn row(
        lowering: &mut Lowering<'_, Self>,
        value: ValueId,
        table: TableId,
        index: ValueId,
    ) -> Self::Place;

    /// Asks for the cache lines that are so many bytes after the start of a row.
    fn prefetch(
        lowering: &mut Lowering<'_, Self>,
        row: Self::Place,
        bytes: impl Iterator<Item = u32>,
        table: TableId,
    );

    /// `to` = what is where the result of the key will be, or `max` if that is less.
    fn staged_index(lowering: &mut Lowering<'_, Self>, to: Reg, max: u64);

    /// Writes zeros to scratch: so many trips of a loop of [`STORES_OF_TRIP`] stores, and the `rest` of the stores
    /// after it.
    fn clear(lowering: &mut Lowering<'_, Self>, trips: u32, rest: u32);
}

/// Lowers a lookup that [`check_lanes`] has passed; the values of `recomputed` are computed at each use.
///
/// # Errors
/// Where the program needs what the target does not have.
pub(super) fn lower<I: Machine>(
    lookup: Lookup<'_>,
    target: &Target,
    pool: &mut ConstantPool,
    recomputed: &[bool],
) -> Result<Body<I>, CompileError> {
    let Lookup {
        facts,
        program,
        pass,
    } = lookup;
    let mut lowering = Lowering::<I> {
        facts,
        program,
        pass,
        features: target.features,
        pool,
        recomputed,
        uses: Uses::new(program, facts.value_count(), I::has_masks(target)),
        body: Body::new(program.blocks.len() + 1),
        registers: vec![None; facts.value_count()],
        rows: vec![None; facts.value_count()],
        in_block: I::InBlock::default(),
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

/// Checks that vectors have as many lanes as the target can give them.
///
/// # Errors
/// Where they have not.
pub(super) fn check_lanes<I: Machine>(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<(), CompileError> {
    let (vectors, all) = I::vectors(target);
    let ids = (0..program.value_count() as u32).map(ValueId::new);
    for value in ids {
        if let Type::Lanes(lanes) | Type::Mask(lanes) = program.facts(value).ty
            && !all.contains(&lanes)
        {
            let all: Vec<String> = all.iter().map(u8::to_string).collect();
            return Err(CompileError::Unsupported(format!(
                "{value} has {lanes} lanes, {vectors} code has {}",
                all.join(" or ")
            )));
        }
    }
    Ok(())
}

/// Where a value is: in one register or, where registers hold four lanes, its lanes from the fifth on in a second one.
/// Lanes that are all alike have one register that serves as both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The register, or that of the low lanes.
    pub(super) low: Reg,
    /// That of the other lanes.
    pub(super) high: Option<Reg>,
}

impl Held {
    /// In one register.
    pub(super) fn one(low: Reg) -> Self {
        Self { low, high: None }
    }

    /// The registers, the low lanes first.
    pub(super) fn regs(self) -> impl Iterator<Item = Reg> {
        [self.low].into_iter().chain(self.high)
    }
}

/// What the listing says about the instructions being made.
#[derive(Clone, Copy, Default)]
pub(super) struct LineNote {
    /// The value that they compute.
    pub(super) value: Option<ValueId>,
    /// What they do where no value says so.
    pub(super) note: &'static str,
}

/// A body being made.
pub(super) struct Lowering<'a, I: Machine> {
    pub(super) facts: &'a VerifiedProgram,
    pub(super) program: &'a Program,
    pass: Pass,
    pub(super) features: Features,
    pub(super) pool: &'a mut ConstantPool,
    pub(super) recomputed: &'a [bool],
    pub(super) uses: Uses<'a>,
    pub(super) body: Body<I>,
    /// The registers of each value that has some.
    pub(super) registers: Vec<Option<Held>>,
    /// Where each row is that is not a block parameter.
    pub(super) rows: Vec<Option<I::Place>>,
    pub(super) in_block: I::InBlock,
    /// The loops around the current block.
    loops: Vec<OpenLoop>,
    pub(super) line: LineNote,
    block: BlockId,
    /// The first error; the code after it is of no use.
    error: Option<CompileError>,
}

/// Code and registers.
impl<'a, I: Machine> Lowering<'a, I> {
    pub(super) fn push(&mut self, inst: I) {
        self.push_reading(inst, None);
    }

    pub(super) fn push_all(&mut self, insts: impl IntoIterator<Item = I>) {
        insts.into_iter().for_each(|inst| self.push(inst));
    }

    /// An instruction that reads memory of a table, if any.
    pub(super) fn push_reading(&mut self, inst: I, table: Option<TableId>) {
        let LineNote { value, note } = self.line;
        self.body.nodes.push(Node::Inst(Line {
            inst,
            value,
            table,
            note,
        }));
    }

    pub(super) fn new_register(&mut self, class: Class) -> Reg {
        let reg = Reg::virtual_register(self.body.registers.len());
        self.body.registers.push(VirtualRegister {
            class,
            recomputable: None,
            loop_head: None,
        });
        reg
    }

    pub(super) fn general(&mut self) -> Reg {
        self.new_register(Class::General)
    }

    pub(super) fn vector(&mut self) -> Reg {
        self.new_register(Class::Vector)
    }

    /// The register file of a virtual register.
    fn class(&self, reg: Reg) -> Class {
        match reg.virtual_index() {
            Some(index) => self.body.registers[index].class,
            None => Class::General,
        }
    }

    fn new_label(&mut self) -> Label {
        self.body.labels += 1;
        Label(self.body.labels as u32 - 1)
    }

    pub(super) fn fail(&mut self, what: &str) {
        self.error
            .get_or_insert_with(|| CompileError::Unsupported(what.into()));
    }
}

/// What is known of values.
impl<'a, I: Machine> Lowering<'a, I> {
    pub(super) fn max(&self, value: ValueId) -> u64 {
        self.facts.facts(value).max
    }

    pub(super) fn size(&self, value: ValueId) -> Size {
        Size::of(self.max(value))
    }

    /// The size that holds both values.
    pub(super) fn common_size(&self, a: ValueId, b: ValueId) -> Size {
        Size::of(self.max(a).max(self.max(b)))
    }

    /// The size that holds `a & b`: an `and` has no more bits than its narrower operand.
    pub(super) fn and_size(&self, a: ValueId, b: ValueId) -> Size {
        Size::of(self.max(a).min(self.max(b)))
    }

    /// The operands of `op`, a constant second where they may change places.
    pub(super) fn operands(&self, op: BinaryOp, a: ValueId, b: ValueId) -> (ValueId, ValueId) {
        let is_commutative = !matches!(op, BinaryOp::Sub | BinaryOp::Pext);
        if is_commutative && self.uses.constant(a).is_some() {
            (b, a)
        } else {
            (a, b)
        }
    }

    pub(super) fn row_table(&self, row: ValueId) -> TableId {
        match self.facts.facts(row).ty {
            Type::Row(table) => table,
            // The verifier has seen that it is a row.
            _ => TableId::new(0),
        }
    }

    pub(super) fn table(&self, id: TableId) -> &'a Table {
        &self.program.tables[id.index()]
    }
}

/// Values.
impl<'a, I: Machine> Lowering<'a, I> {
    fn inst(&mut self, value: ValueId, inst: &'a Ir) {
        if matches!(inst, Ir::Const(_))
            || self.uses.is_dead(value)
            || self.uses.sinks(value)
            || self.recomputed[value.index()]
            || I::is_left_out(self, value, inst)
        {
            return;
        }
        self.line.value = Some(value);
        if let Ir::Row { table, index } = *inst {
            self.rows[value.index()] = Some(I::row(self, value, table, index));
        } else {
            let held = self.compute(value, inst);
            if self.uses.is_cheap(inst) {
                for index in held.regs().filter_map(Reg::virtual_index) {
                    self.body.registers[index].recomputable = Some(value);
                }
            }
            self.registers[value.index()] = Some(held);
        }
        self.line.value = None;
    }

    fn compute(&mut self, value: ValueId, inst: &Ir) -> Held {
        let before = self.line.value.replace(value);
        let held = I::instruction(self, value, inst);
        self.line.value = before;
        held
    }

    /// Where a value is; what is nowhere yet is computed here.
    pub(super) fn held(&mut self, value: ValueId) -> Held {
        if let Some(held) = self.registers[value.index()] {
            return held;
        }
        match self.uses.inst(value) {
            Some(inst) => self.compute(value, inst),
            // Parameters have a register from the start.
            None => Held::one(self.general()),
        }
    }

    /// The register of a value that has one.
    pub(super) fn reg(&mut self, value: ValueId) -> Reg {
        self.held(value).low
    }

    /// A fresh register with a constant.
    pub(super) fn set(&mut self, value: u64) -> Reg {
        let dst = self.general();
        self.push_all(I::constant(dst, value));
        dst
    }

    /// Sets the flags, and tells the condition that holds where the comparison does.
    pub(super) fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> Cond {
        let cond = match op {
            CompareOp::Eq => Cond::Equal,
            CompareOp::Ne => Cond::NotEqual,
            CompareOp::Lt => Cond::Below,
            CompareOp::Le => Cond::BelowOrEqual,
        };
        let (a, b, cond) = if self.uses.constant(a).is_some() {
            (b, a, cond.swapped())
        } else {
            (a, b, cond)
        };
        I::compare(self, cond, a, b);
        cond
    }

    /// Sets the flags, and tells the condition that holds where the scalar is not 0.
    pub(super) fn condition(&mut self, value: ValueId) -> Cond {
        if self.registers[value.index()].is_none()
            && let Some(&Ir::Compare { op, a, b }) = self.uses.inst(value)
        {
            let before = self.line.value.replace(value);
            let cond = self.compare(op, a, b);
            self.line.value = before;
            return cond;
        }
        let (a, size) = (self.reg(value), self.size(value));
        self.push(I::test(size, a));
        Cond::NotEqual
    }
}
