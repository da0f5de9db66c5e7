//! From a verified program to a body of machine instructions on virtual registers.
//!
//! What keeps registers free, of which there are few:
//! - a constant holds none: it is an immediate, an operand in the pool, or set where an instruction insists on a register;
//! - lanes, broadcast table entries and comparisons with a single use in their block are computed at that use
//!   ([`Uses::sinks`]), mostly as its memory operand or in the flags;
//! - a row with a constant index is an address, not a value;
//! - what the register assignment asks for is computed at each use (`recomputed`).
//!
//! Invariants: every node is one machine instruction; a virtual register is written once, except for block parameters and
//! two-operand instructions, which change the copy that was made for them; between an instruction that sets flags and the
//! one that reads them there is no other; upper halves of registers hold zeros wherever facts say below 2^32.

use pktjit_ir::program::{
    BinaryOp, Column, CompareOp, Inst as Ir, LaneCompareOp, MaskOp, Program, Table, Terminator,
    Type,
};
use pktjit_ir::{BlockId, ByteOrder, TableId, ValueId, VerifiedProgram};

use super::abi;
use super::inst::{
    Address, Alu, Class, Cond, Inst, Label, Piece, Reg, Scale, Scan, Shift, Size, Source, Vector,
    VectorSource, Width,
};
use super::regs::{Body, Line, MoveSource, Node, VirtualRegister, constant};
use super::uses::Uses;
use crate::code::Placement;
use crate::constant_pool::{ConstantPool, VECTOR_BYTES};
use crate::error::CompileError;
use crate::target::Features;

/// Lanes of a vector register.
const LANES: u8 = 8;
/// Where a body ends, with the result in eax. Block n starts at label n + 1.
pub(super) const END: Label = Label(0);

/// Lowers `program`; the values of `recomputed` are computed at each use.
///
/// # Errors
/// Where the program needs what AVX2 does not have.
pub(super) fn lower(
    program: &VerifiedProgram,
    features: Features,
    pool: &mut ConstantPool,
    recomputed: &[bool],
) -> Result<Body, CompileError> {
    check_lanes(program)?;
    let ir = program.program();
    let mut lowering = Lowering {
        facts: program,
        program: ir,
        features,
        pool,
        recomputed,
        uses: Uses::new(ir, program.value_count()),
        body: Body {
            labels: ir.blocks.len() + 1,
            ..Body::default()
        },
        registers: vec![None; program.value_count()],
        rows: vec![None; program.value_count()],
        loops: Vec::new(),
        line: LineNote::default(),
        block: BlockId::new(0),
        error: None,
    };
    lowering.parameters();
    for b in 0..ir.blocks.len() {
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
            && lanes != LANES
        {
            return Err(CompileError::Unsupported(format!(
                "{value} has {lanes} lanes, AVX2 code has {LANES}"
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
    features: Features,
    pool: &'a mut ConstantPool,
    recomputed: &'a [bool],
    uses: Uses<'a>,
    body: Body,
    /// The register of each value that has one.
    registers: Vec<Option<Reg>>,
    /// The address of each row that is not a block parameter.
    rows: Vec<Option<Address>>,
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

    /// The second operand of a vector instruction, and the table that it reads.
    fn vector_source(&mut self, value: ValueId) -> (VectorSource, Option<TableId>) {
        if self.registers[value.index()].is_none() {
            match self.uses.inst(value) {
                Some(&Ir::LoadLanes {
                    row, column, first, ..
                }) => {
                    let (address, table, _) = self.element(row, column, first.into());
                    return (VectorSource::Mem(address), Some(table));
                }
                Some(&Ir::Splat { a, .. }) if self.uses.constant(a).is_some() => {
                    let lane = self.uses.constant(a).unwrap_or(0) as u32;
                    return (VectorSource::Mem(self.pool_lanes(lane)), None);
                }
                _ => {}
            }
        }
        (VectorSource::Reg(self.reg(value)), None)
    }

    /// The same number in each lane, in the pool.
    fn pool_lanes(&mut self, lane: u32) -> Address {
        let mut bytes = [0; VECTOR_BYTES];
        for chunk in bytes.chunks_exact_mut(4) {
            chunk.copy_from_slice(&lane.to_le_bytes());
        }
        self.pool_vector(bytes)
    }

    fn pool_vector(&mut self, constant: [u8; VECTOR_BYTES]) -> Address {
        let offset = self.pool.vector(constant);
        pool_address(offset)
    }

    /// dst = a op b, and the register dst.
    fn vector_op(
        &mut self,
        op: Vector,
        a: Reg,
        (b, table): (VectorSource, Option<TableId>),
    ) -> Reg {
        let dst = self.vector();
        self.push_reading(Inst::Vector { op, dst, a, b }, table);
        dst
    }

    /// dst = a op b where either may be in memory, but not both.
    fn commutative_vector_op(&mut self, op: Vector, a: ValueId, b: ValueId) -> Reg {
        // The one in memory second.
        let (a, b) = if self.registers[a.index()].is_none() && self.registers[b.index()].is_some() {
            (b, a)
        } else {
            (a, b)
        };
        let a = self.reg(a);
        let b = self.vector_source(b);
        self.vector_op(op, a, b)
    }
}

/// Tables.
impl<'a> Lowering<'a> {
    fn row_table(&self, row: ValueId) -> TableId {
        match self.facts.facts(row).ty {
            Type::Row(table) => table,
            // The verifier has seen that it is a row.
            _ => TableId::new(0),
        }
    }

    fn table(&self, id: TableId) -> &'a Table {
        &self.program.tables[id.index()]
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
    fn row(&mut self, value: ValueId, table: TableId, index: ValueId) -> Address {
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
        // there is one access, or no multiplication. A loop parameter as index changes at the end of its block.
        if self.uses.is_local(value) && (multiplier == 1 || self.uses.is_single(value)) {
            return address;
        }
        Address::Base {
            base: self.address_register(address),
            disp: 0,
        }
    }

    /// `value * multiplier` in a register, the cheapest way.
    fn times(&mut self, value: ValueId, multiplier: u64) -> Reg {
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

    fn shift(&mut self, op: Shift, size: Size, dst: Reg, by: u8) {
        self.push(Inst::Shift { op, size, dst, by });
    }

    /// A register with an address.
    fn address_register(&mut self, address: Address) -> Reg {
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
    fn row_address(&mut self, row: ValueId) -> Address {
        match self.rows[row.index()] {
            Some(address) => address,
            None => Address::Base {
                base: self.reg(row),
                disp: 0,
            },
        }
    }

    /// The address of number `index` of a column of a row, its table and its column.
    fn element(&mut self, row: ValueId, column: u8, index: u64) -> (Address, TableId, &'a Column) {
        let table = self.row_table(row);
        let column = &self.table(table).columns[usize::from(column)];
        let address = self.row_address(row);
        let bytes = u64::from(column.offset) + index * u64::from(column.bytes);
        (self.advance(address, bytes), table, column)
    }

    /// The same for an index that may be a value.
    fn indexed_element(
        &mut self,
        row: ValueId,
        column: u8,
        index: Option<ValueId>,
    ) -> (Address, TableId, &'a Column) {
        let known = index.map_or(Some(0), |index| self.uses.constant(index));
        let (address, table, column) = self.element(row, column, known.unwrap_or(0));
        let Some(index) = index.filter(|_| known.is_none()) else {
            return (address, table, column);
        };
        let (base, disp) = match address {
            Address::Base { base, disp } => (base, disp),
            _ => (self.address_register(address), 0),
        };
        let address = Address::Indexed {
            base,
            index: self.reg(index),
            scale: Scale::from_shift(column.bytes.trailing_zeros()),
            disp,
        };
        (address, table, column)
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
            let is_cheap =
                matches!(inst, Ir::LoadKey { .. }) || self.uses.splatted_key(inst).is_some();
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
        let reg = match *inst {
            Ir::Const(constant) => self.set(constant),
            Ir::LoadKey {
                offset,
                bytes,
                order,
            } => self.load_key(offset, bytes, order),
            Ir::Binary { op, a, b } => self.binary(value, op, a, b),
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
            Ir::LoadLanes {
                row, column, first, ..
            } => {
                let (address, table, _) = self.element(row, column, first.into());
                let dst = self.vector();
                self.push_reading(Inst::VectorLoad { dst, address }, Some(table));
                dst
            }
            Ir::Splat { a, .. } => self.splat(inst, a),
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
            _ => {
                self.fail("an instruction that the x86-64 code generator does not know");
                self.general()
            }
        };
        self.line.value = before;
        reg
    }

    fn load_key(&mut self, offset: u16, bytes: u8, order: ByteOrder) -> Reg {
        let dst = self.general();
        let address = key_address(offset);
        let (width, size) = (width(bytes), if bytes == 8 { Size::S64 } else { Size::S32 });
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

    fn binary(&mut self, value: ValueId, op: BinaryOp, a: ValueId, b: ValueId) -> Reg {
        let is_commutative = !matches!(op, BinaryOp::Sub | BinaryOp::Pext);
        let (a, b) = if is_commutative && self.uses.constant(a).is_some() {
            (b, a)
        } else {
            (a, b)
        };
        match op {
            BinaryOp::And => self.alu(Alu::And, self.and_size(a, b), a, b),
            BinaryOp::Or => self.alu(Alu::Or, self.common_size(a, b), a, b),
            BinaryOp::Xor => self.alu(Alu::Xor, self.common_size(a, b), a, b),
            // Where the sum or product is known to fit 32 bits, so are the operands, and nothing is lost above.
            BinaryOp::Add => self.alu(Alu::Add, self.size(value), a, b),
            BinaryOp::Sub => self.alu(Alu::Sub, Size::S64, a, b),
            BinaryOp::Mul => self.mul(self.size(value), a, b),
            BinaryOp::MulHi => self.mul_high(a, b),
            BinaryOp::Min => self.extreme(Cond::Above, a, b),
            BinaryOp::Max => self.extreme(Cond::Below, a, b),
            BinaryOp::Pext => self.pext(a, b),
        }
    }

    fn alu(&mut self, op: Alu, size: Size, a: ValueId, b: ValueId) -> Reg {
        let constant = self.uses.constant(b);
        let src = match (op, size, constant) {
            // The other operand has no bits above.
            (Alu::And, Size::S32, Some(mask)) => Source::Imm((mask as u32).cast_signed()),
            _ => self.source(b, size),
        };
        let dst = self.copy(a);
        self.push(Inst::Alu { op, size, dst, src });
        dst
    }

    /// An `and` has no more bits than its narrower operand.
    fn and_size(&self, a: ValueId, b: ValueId) -> Size {
        Size::of(self.max(a).min(self.max(b)))
    }

    fn mul(&mut self, size: Size, a: ValueId, b: ValueId) -> Reg {
        match self.source(b, size) {
            Source::Imm(imm) => {
                let (src, dst) = (self.reg(a), self.general());
                self.push(Inst::MulImm {
                    size,
                    dst,
                    src,
                    imm,
                });
                dst
            }
            Source::Reg(src) => {
                let dst = self.copy(a);
                self.push(Inst::Mul { size, dst, src });
                dst
            }
        }
    }

    fn mul_high(&mut self, a: ValueId, b: ValueId) -> Reg {
        let factor = if self.features.bmi2 {
            abi::RDX
        } else {
            abi::RAX
        };
        let src = self.reg(a);
        match self.uses.constant(b) {
            Some(imm) => self.push(constant(factor, imm)),
            None => {
                let (second, size) = (self.reg(b), self.size(b));
                self.push(Inst::Mov {
                    dst: factor,
                    src: second,
                    size,
                });
            }
        }
        let dst = self.general();
        if self.features.bmi2 {
            self.push(Inst::MulHighX { dst, src });
        } else {
            self.push(Inst::MulHigh { src });
            self.push(Inst::Mov {
                dst,
                src: abi::RDX,
                size: Size::S64,
            });
        }
        dst
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
    fn shift_by(&mut self, widest: ValueId, op: Shift, a: ValueId, by: u8) -> Reg {
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

    /// Sets the flags, and tells the condition that holds where the comparison does.
    fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> Cond {
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
        let size = self.common_size(a, b);
        let (a, b) = (self.reg(a), self.source(b, size));
        self.push(match (cond, b) {
            (Cond::Equal | Cond::NotEqual, Source::Imm(0)) => Inst::TestSelf { size, a },
            _ => Inst::Cmp { size, a, b },
        });
        cond
    }

    /// Sets the flags, and tells the condition that holds where the scalar is not 0.
    fn condition(&mut self, value: ValueId) -> Cond {
        if self.registers[value.index()].is_none()
            && let Some(&Ir::Compare { op, a, b }) = self.uses.inst(value)
        {
            let before = self.line.value.replace(value);
            let cond = self.compare(op, a, b);
            self.line.value = before;
            return cond;
        }
        let (a, size) = (self.reg(value), self.size(value));
        self.push(Inst::TestSelf { size, a });
        Cond::NotEqual
    }

    fn select(&mut self, value: ValueId, cond: ValueId, a: ValueId, b: ValueId) -> Reg {
        let size = self.size(value);
        let src = self.reg(a);
        let dst = self.copy(b);
        let cond = self.condition(cond);
        self.push(Inst::Cmov {
            cond,
            size,
            dst,
            src,
        });
        dst
    }

    fn first_bit(&mut self, a: ValueId) -> Reg {
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

/// Lanes.
impl Lowering<'_> {
    fn splat(&mut self, inst: &Ir, a: ValueId) -> Reg {
        if let Some(constant) = self.uses.constant(a) {
            let (dst, address) = (self.vector(), self.pool_lanes(constant as u32));
            self.push(Inst::VectorLoad { dst, address });
            return dst;
        }
        if let Some(&Ir::LoadKey {
            offset,
            bytes,
            order,
        }) = self.uses.splatted_key(inst)
        {
            return self.broadcast(key_address(offset), None, bytes, order);
        }
        if self.registers[a.index()].is_none()
            && let Some(&Ir::Load { row, column, index }) = self.uses.inst(a)
        {
            let (address, table, column) = self.indexed_element(row, column, index);
            return self.broadcast(address, Some(table), column.bytes, ByteOrder::Little);
        }
        let (src, low, dst) = (self.reg(a), self.vector(), self.vector());
        self.push(Inst::ToVector { dst: low, src });
        self.push(Inst::Broadcast { dst, src: low });
        dst
    }

    /// A number in memory in each lane, without a detour through a general register.
    fn broadcast(
        &mut self,
        address: Address,
        table: Option<TableId>,
        bytes: u8,
        order: ByteOrder,
    ) -> Reg {
        // What fits a lane has its eight bytes in little-endian order and zeros in the upper four.
        let (piece, bytes) = match bytes {
            1 => (Piece::B1, 1),
            2 => (Piece::B2, 2),
            _ => (Piece::B4, 4),
        };
        let dst = self.vector();
        self.push_reading(
            Inst::BroadcastLoad {
                dst,
                address,
                piece,
            },
            table,
        );
        if (bytes, order) == (4, ByteOrder::Little) {
            return dst;
        }
        // `vpshufb` picks bytes within 128 bits; 0x80 gives a zero.
        let mut pick = [0x80; VECTOR_BYTES];
        for (lane, chunk) in pick.chunks_exact_mut(4).enumerate() {
            for (i, byte) in chunk[..bytes].iter_mut().enumerate() {
                let from = match order {
                    ByteOrder::Little => i,
                    ByteOrder::Big => bytes - 1 - i,
                };
                *byte = (lane % 4 * 4 + from) as u8;
            }
        }
        let pick = VectorSource::Mem(self.pool_vector(pick));
        self.vector_op(Vector::ShufB, dst, (pick, None))
    }

    fn compare_lanes(&mut self, op: LaneCompareOp, a: ValueId, b: ValueId) -> Reg {
        match op {
            LaneCompareOp::Eq => self.commutative_vector_op(Vector::CmpEqD, a, b),
            // AVX2 compares signed numbers only: a <= b where a is the smaller of both.
            LaneCompareOp::Le => {
                let a = self.reg(a);
                let b = self.vector_source(b);
                let smaller = self.vector_op(Vector::MinUD, a, b);
                self.vector_op(Vector::CmpEqD, a, (VectorSource::Reg(smaller), None))
            }
        }
    }

    fn in_range(&mut self, x: ValueId, lo: ValueId, len: ValueId) -> Reg {
        let x = self.reg(x);
        let lo = self.vector_source(lo);
        let distance = self.vector_op(Vector::SubD, x, lo);
        let len = self.vector_source(len);
        let clamped = self.vector_op(Vector::MinUD, distance, len);
        self.vector_op(Vector::CmpEqD, distance, (VectorSource::Reg(clamped), None))
    }

    /// Lanes outside the mask become all ones, which no minimum prefers.
    ///
    /// `vpblendvb` would save an instruction, but is two to three micro-operations on Intel and puts its latency into the
    /// chain of accumulators; here that chain is one `vpminud` a step.
    fn masked_min(&mut self, acc: ValueId, mask: ValueId, x: ValueId) -> Reg {
        let mask = self.reg(mask);
        let ones = VectorSource::Mem(self.pool_lanes(u32::MAX));
        let outside = self.vector_op(Vector::AndNot, mask, (ones, None));
        let x = self.vector_source(x);
        let candidates = self.vector_op(Vector::Or, outside, x);
        if self.is_splat_of(acc, u32::MAX) {
            return candidates;
        }
        let acc = self.reg(acc);
        self.vector_op(Vector::MinUD, acc, (VectorSource::Reg(candidates), None))
    }

    fn is_splat_of(&self, value: ValueId, lane: u32) -> bool {
        matches!(self.uses.inst(value), Some(&Ir::Splat { a, .. })
            if self.uses.constant(a) == Some(lane.into()))
    }

    /// Halves the number of lanes three times.
    fn horizontal_min(&mut self, a: ValueId) -> Reg {
        let src = self.reg(a);
        let upper = self.vector();
        self.push(Inst::UpperHalf { dst: upper, src });
        let mut least = self.min_128(src, upper);
        // Lanes 2 and 3 next to 0 and 1, then lane 1 next to 0.
        for imm in [0b11_10_11_10, 0b01_01_01_01] {
            let other = self.vector();
            self.push(Inst::Shuffle128 {
                dst: other,
                src: least,
                imm,
            });
            least = self.min_128(least, other);
        }
        let dst = self.general();
        self.push(Inst::ToScalar { dst, src: least });
        dst
    }

    fn min_128(&mut self, a: Reg, b: Reg) -> Reg {
        let dst = self.vector();
        self.push(Inst::Min128 { dst, a, b });
        dst
    }
}

/// Control.
impl<'a> Lowering<'a> {
    /// Gives each block parameter its register.
    fn parameters(&mut self) {
        for block in &self.program.blocks {
            for &(value, ty) in &block.params {
                self.registers[value.index()] = Some(self.new_register(class_of(ty)));
            }
        }
    }

    fn block(&mut self, id: BlockId) {
        let program = self.program;
        let block = &program.blocks[id.index()];
        self.block = id;
        self.line = LineNote::default();
        let start = self.body.nodes.len();
        self.body.nodes.push(Node::Bind(label_of(id)));
        if block.trips.is_some() {
            self.enter_loop(id, start);
        }
        for (value, inst) in &block.insts {
            self.inst(*value, inst);
        }
        self.terminator(&block.terminator);
    }

    /// Sets up the loop whose head is `head` and whose first node is `start`.
    ///
    /// A parameter that is used after the loop is copied on each trip, since going round overwrites its register.
    fn enter_loop(&mut self, head: BlockId, start: usize) {
        let (tail, exit_args) = self.loop_end(head);
        self.line.note = "kept past the loop";
        let mut escaping = Vec::new();
        for &(value, _) in &self.program.blocks[head.index()].params {
            let reg = self.reg(value);
            let Some(index) = reg.virtual_index() else {
                continue;
            };
            self.body.registers[index].loop_head = Some(start);
            if self.uses.is_used_after(value, tail) || exit_args.contains(&value) {
                let class = self.body.registers[index].class;
                let kept = self.new_register(class);
                self.push(match class {
                    Class::General => Inst::Mov {
                        dst: kept,
                        src: reg,
                        size: Size::S64,
                    },
                    Class::Vector => Inst::VectorMov {
                        dst: kept,
                        src: reg,
                    },
                });
                escaping.push((value, kept));
            }
        }
        self.loops.push(OpenLoop { start, escaping });
    }

    /// The last block of a loop and what it passes on after the last trip.
    fn loop_end(&self, of: BlockId) -> (BlockId, &'a [ValueId]) {
        let program = self.program;
        let after = program.blocks.iter().enumerate().skip(of.index());
        after
            .filter_map(|(b, block)| match &block.terminator {
                Terminator::Repeat {
                    head, exit_args, ..
                } if *head == of => Some((BlockId::new(b as u32), &exit_args[..])),
                _ => None,
            })
            .next()
            // The verifier has seen the end of each loop.
            .unwrap_or((of, &[]))
    }

    fn terminator(&mut self, terminator: &Terminator) {
        self.line.note = "branch";
        match terminator {
            Terminator::Jump { to, args } => self.go(*to, args),
            Terminator::BranchIf {
                cond,
                then,
                then_args,
                otherwise,
                else_args,
            } => self.branch((*then, then_args), (*otherwise, else_args), *cond),
            Terminator::Repeat {
                head,
                args,
                exit,
                exit_args,
            } => self.repeat(*head, args, *exit, exit_args),
            Terminator::Return { value } => {
                self.line.note = "result";
                match self.uses.constant(*value) {
                    Some(result) => self.push(constant(abi::RAX, result)),
                    None => {
                        let src = self.reg(*value);
                        self.push(Inst::Mov {
                            dst: abi::RAX,
                            src,
                            size: Size::S32,
                        });
                    }
                }
                if self.block.index() + 1 < self.program.blocks.len() {
                    self.push(Inst::Jump { to: END });
                }
            }
        }
    }

    fn branch(
        &mut self,
        (then, then_args): (BlockId, &[ValueId]),
        (otherwise, else_args): (BlockId, &[ValueId]),
        cond: ValueId,
    ) {
        let cond = self.condition(cond);
        if then_args.is_empty() && !(self.is_next(then) && else_args.is_empty()) {
            let to = label_of(then);
            self.push(Inst::JumpIf { cond, to });
            self.go(otherwise, else_args);
            return;
        }
        // Arguments are moved on the way to `then` alone.
        let to_else = if else_args.is_empty() {
            label_of(otherwise)
        } else {
            self.new_label()
        };
        self.push(Inst::JumpIf {
            cond: cond.negated(),
            to: to_else,
        });
        self.go(then, then_args);
        if !else_args.is_empty() {
            if self.is_next(then) {
                // What follows is in between.
                self.push(Inst::Jump { to: label_of(then) });
            }
            self.body.nodes.push(Node::Bind(to_else));
            self.go(otherwise, else_args);
        }
    }

    fn repeat(&mut self, head: BlockId, args: &[ValueId], exit: BlockId, exit_args: &[ValueId]) {
        self.line.note = "loop";
        let block = &self.program.blocks[head.index()];
        self.pass(head, 1, args);
        if let (Some(trips), Some(&(counter, _))) = (block.trips, block.params.first()) {
            let (counter, size) = (self.reg(counter), Size::S32);
            self.push(Inst::Alu {
                op: Alu::Add,
                size,
                dst: counter,
                src: Source::Imm(1),
            });
            self.push(Inst::Cmp {
                size,
                a: counter,
                b: Source::Imm(trips.cast_signed()),
            });
            self.push(Inst::JumpIf {
                cond: Cond::Below,
                to: label_of(head),
            });
        }
        if let Some(OpenLoop { start, escaping }) = self.loops.pop() {
            self.body.loops.push((start, self.body.nodes.len() - 1));
            for (value, kept) in escaping {
                self.registers[value.index()] = Some(kept);
            }
        }
        self.line.note = "branch";
        self.go(exit, exit_args);
    }

    /// Passes arguments to a later block and goes there.
    fn go(&mut self, to: BlockId, args: &[ValueId]) {
        self.pass(to, 0, args);
        if !self.is_next(to) {
            self.push(Inst::Jump { to: label_of(to) });
        }
    }

    /// Sets the parameters of `to` after the first `skip` ones.
    fn pass(&mut self, to: BlockId, skip: usize, args: &[ValueId]) {
        let params = &self.program.blocks[to.index()].params[skip..];
        let mut moves = Vec::with_capacity(args.len());
        for (&arg, &(param, _)) in args.iter().zip(params) {
            let source = match self.uses.constant(arg) {
                Some(constant) => MoveSource::Const(constant),
                None => MoveSource::Reg(self.reg(arg)),
            };
            let dst = self.reg(param);
            let class = class_of(self.facts.facts(param).ty);
            moves.push((class, dst, source));
        }
        if !moves.is_empty() {
            self.body.nodes.push(Node::Moves(moves));
        }
    }

    fn is_next(&self, block: BlockId) -> bool {
        block.index() == self.block.index() + 1
    }
}

/// The register file that holds values of a type.
fn class_of(ty: Type) -> Class {
    match ty {
        Type::Scalar | Type::Row(_) => Class::General,
        Type::Lanes(_) | Type::Mask(_) => Class::Vector,
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
