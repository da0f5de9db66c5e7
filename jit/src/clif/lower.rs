//! The body of a lookup: each instruction of the program as CLIF that computes the same, each block as a block.
//!
//! A scalar is an `i64`; so is a row, the address of its first byte. Lanes and masks are several values, see `lanes`. Scratch is
//! a stack slot. Nothing can trap: the verifier has proved every access.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, BlockArg, Endianness, ExternalName, GlobalValueData, InstBuilder, MemFlagsData,
    SourceLoc, StackSlot, StackSlotData, StackSlotKind, Type as ClifType, UserExternalName, Value,
    types,
};
use cranelift_frontend::FunctionBuilder;
use pktjit_ir::program::{BinaryOp, Block, Column, CompareOp, Inst, Program, Terminator, Type};
use pktjit_ir::{ByteOrder, ValueId, VerifiedProgram};

use super::lanes::Shape;
use crate::code::ListingEntry;
use crate::target::{Isa, Target};

/// Reads keys and tables, which do not change while a lookup runs.
const CONSTANT: MemFlagsData = MemFlagsData::new().with_notrap().with_readonly();
/// Reads and writes scratch.
pub(super) const SCRATCH: MemFlagsData = MemFlagsData::new().with_notrap();
/// Scratch is cleared so many bytes at a time, by stores of 8: rounding up costs less than a rest would.
const CLEARED: u32 = 64;
/// Up to so many bytes of scratch are cleared without a loop.
const CLEARED_AT_ONCE: u32 = 256;

/// What an instruction is there for, if it computes no value of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    Entry,
    Scratch,
    Jump,
    Loop,
    Exit,
}

impl Note {
    const ALL: [Self; 5] = [
        Self::Entry,
        Self::Scratch,
        Self::Jump,
        Self::Loop,
        Self::Exit,
    ];
    /// Source locations from here on are notes, those below are values.
    const FIRST: u32 = 1 << 31;

    fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Scratch => "scratch",
            Self::Jump => "jump",
            Self::Loop => "loop",
            Self::Exit => "exit",
        }
    }

    pub(super) fn location(self) -> SourceLoc {
        SourceLoc::new(Self::FIRST + self as u32)
    }
}

/// What the instruction at `offset` is there for, which Cranelift has made at `location`.
pub(super) fn listing_entry(offset: usize, location: SourceLoc) -> ListingEntry {
    let bits = location.bits();
    let note = |note: &Note| note.location() == location;
    ListingEntry {
        offset,
        value: (bits < Note::FIRST).then(|| ValueId::new(bits)),
        table: None,
        // Cranelift's own prologues and moves have no location.
        note: Note::ALL
            .iter()
            .find(|&n| note(n))
            .map_or("frame", |note| note.name()),
    }
}

/// Emits the lookup of `key` at the end of the current block; goes on in a new one, and returns the row there, an `i32`.
pub(super) fn body(
    b: &mut FunctionBuilder<'_>,
    facts: &VerifiedProgram,
    target: &Target,
    key: Value,
) -> Value {
    let program = facts.program();
    let tables = (0..program.tables.len()).map(|table| {
        let name = UserExternalName::new(0, table as u32);
        let name = b.func.declare_imported_user_function(name);
        b.create_global_value(GlobalValueData::Symbol {
            name: ExternalName::user(name),
            offset: 0.into(),
            colocated: false,
            tls: false,
        })
    });
    let tables = tables.collect();
    let scratch = (program.scratch > 0).then(|| {
        let bytes = (4 * program.scratch).next_multiple_of(CLEARED);
        b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4))
    });
    let done = b.create_block();
    let row = b.append_block_param(done, types::I32);
    let mut body = Body {
        facts,
        program,
        shape: Shape::of(target.isa),
        is_big_endian: target.isa == Isa::S390x,
        key,
        tables,
        scratch,
        values: vec![Box::default(); facts.value_count()],
        blocks: Vec::new(),
        done,
        b,
    };
    body.clear_scratch();
    body.lower();
    b.switch_to_block(done);
    row
}

/// One body on its way.
pub(super) struct Body<'a, 'b, 'f> {
    pub(super) b: &'b mut FunctionBuilder<'f>,
    facts: &'a VerifiedProgram,
    program: &'a Program,
    pub(super) shape: Shape,
    is_big_endian: bool,
    key: Value,
    tables: Vec<ir::GlobalValue>,
    scratch: Option<StackSlot>,
    /// What each value of the program is here: one value for a scalar or a row, some for lanes and masks.
    values: Vec<Box<[Value]>>,
    blocks: Vec<ir::Block>,
    /// Where each `return` goes to.
    done: ir::Block,
}

impl<'a> Body<'a, '_, '_> {
    fn lower(&mut self) {
        for block in &self.program.blocks {
            let here = self.b.create_block();
            self.blocks.push(here);
            for &(param, ty) in &block.params {
                let (parts, ty) = self.parts(ty);
                let values = (0..parts).map(|_| self.b.append_block_param(here, ty));
                self.values[param.index()] = values.collect();
            }
        }
        self.b.set_srcloc(Note::Jump.location());
        self.b.ins().jump(self.blocks[0], &[]);
        for (i, block) in self.program.blocks.iter().enumerate() {
            self.b.switch_to_block(self.blocks[i]);
            self.block(block);
        }
    }

    /// How many values of which type a value of the program is.
    fn parts(&self, ty: Type) -> (usize, ClifType) {
        match ty {
            Type::Scalar | Type::Row(_) => (1, types::I64),
            Type::Lanes(lanes) | Type::Mask(lanes) => (self.shape.parts(lanes), self.shape.ty()),
            Type::Nothing => (0, types::INVALID),
        }
    }

    fn block(&mut self, block: &Block) {
        for &(value, ref inst) in &block.insts {
            self.b.set_srcloc(SourceLoc::new(value.as_u32()));
            self.values[value.index()] = self.inst(inst);
        }
        self.b.set_srcloc(Note::Jump.location());
        self.terminator(&block.terminator);
    }

    /// The one value that a scalar or a row is.
    pub(super) fn scalar(&self, value: ValueId) -> Value {
        self.values[value.index()][0]
    }

    pub(super) fn vector(&self, value: ValueId) -> &[Value] {
        &self.values[value.index()]
    }

    /// The number that a value is known to be: there are no bits but those that are certainly set.
    fn constant(&self, value: ValueId) -> Option<u64> {
        let facts = self.facts.facts(value);
        (facts.max == facts.ones).then_some(facts.max)
    }

    fn inst(&mut self, inst: &Inst) -> Box<[Value]> {
        let one = |value| Box::from([value]);
        one(match *inst {
            Inst::Const(value) => self.number(value),
            Inst::LoadKey {
                offset,
                bytes,
                order,
            } => self.load(self.key, offset.into(), bytes, order),
            Inst::Binary { op, a, b } => self.binary(op, a, b),
            Inst::Shl { a, by } => {
                let a = self.scalar(a);
                self.b.ins().ishl_imm_u(a, i64::from(by))
            }
            Inst::Shr { a, by } => {
                let a = self.scalar(a);
                self.b.ins().ushr_imm_u(a, i64::from(by))
            }
            Inst::Compare { op, a, b } => {
                let condition = match op {
                    CompareOp::Eq => IntCC::Equal,
                    CompareOp::Ne => IntCC::NotEqual,
                    CompareOp::Lt => IntCC::UnsignedLessThan,
                    CompareOp::Le => IntCC::UnsignedLessThanOrEqual,
                };
                let (a, b) = (self.scalar(a), self.scalar(b));
                let holds = self.b.ins().icmp(condition, a, b);
                self.b.ins().uextend(types::I64, holds)
            }
            Inst::Select { cond, a, b } => {
                let [cond, a, b] = [cond, a, b].map(|value| self.scalar(value));
                self.b.ins().select(cond, a, b)
            }
            Inst::FirstBit { a } => {
                let a = self.scalar(a);
                self.b.ins().ctz(a)
            }
            Inst::Row { table, index } => {
                let row_bytes = self.program.tables[table.index()].row_bytes;
                let base = self
                    .b
                    .ins()
                    .symbol_value(types::I64, self.tables[table.index()]);
                self.element(base, index, row_bytes.into())
            }
            Inst::Load { row, column, index } => {
                let &Column { offset, bytes, .. } = self.column(row, column);
                let row = self.scalar(row);
                let address = match index {
                    Some(index) => self.element(row, index, bytes.into()),
                    None => row,
                };
                self.load(address, offset, bytes, ByteOrder::Little)
            }
            Inst::LoadLanes {
                row,
                column,
                first,
                lanes,
            } => {
                let &Column { offset, bytes, .. } = self.column(row, column);
                let offset = offset + u32::from(bytes) * u32::from(first);
                let row = self.scalar(row);
                return self.load_lanes(row, offset, bytes, lanes);
            }
            Inst::LoadScratch { index } => {
                let address = self.scratch(index, 4);
                self.b.ins().uload32(SCRATCH, address, 0)
            }
            Inst::LoadScratchLanes { index, lanes } => {
                let address = self.scratch(index, 4 * u64::from(lanes));
                return self.load_scratch_lanes(address, lanes);
            }
            Inst::OrScratch { index, bits } => {
                let address = self.scratch(index, 4);
                let old = self.b.ins().load(types::I32, SCRATCH, address, 0);
                let bits = self.scalar(bits);
                let bits = self.b.ins().ireduce(types::I32, bits);
                let new = self.b.ins().bor(old, bits);
                self.b.ins().store(SCRATCH, new, address, 0);
                return Box::default();
            }
            Inst::AndLanes { a, b } => return self.and_lanes(a, b),
            Inst::Splat { a, lanes } => return self.splat(a, lanes),
            Inst::CompareLanes { op, a, b } => return self.compare_lanes(op, a, b),
            Inst::InRangeLanes { x, lo, len } => return self.in_range_lanes(x, lo, len),
            Inst::InRangeHalves { x, lo, len } => return self.in_range_halves(x, lo, len),
            Inst::MaskedEqLanes { x, mask, value } => return self.masked_eq_lanes(x, mask, value),
            Inst::CombineMasks { op, a, b } => return self.combine_masks(op, a, b),
            Inst::LaneBits { mask } => self.lane_bits(mask),
            Inst::MaskedMin { acc, mask, x } => return self.masked_min(acc, mask, x),
            Inst::HorizontalMin { a } => self.horizontal_min(a),
        })
    }

    /// A number as a scalar.
    pub(super) fn number(&mut self, value: u64) -> Value {
        self.b.ins().iconst(types::I64, value.cast_signed())
    }

    /// A number of 1, 2, 4 or 8 bytes in constant memory.
    fn load(&mut self, address: Value, offset: u32, bytes: u8, order: ByteOrder) -> Value {
        let offset = offset.cast_signed();
        let is_native = bytes == 1 || (order == ByteOrder::Big) == self.is_big_endian;
        if !is_native {
            let ty = match bytes {
                2 => types::I16,
                4 => types::I32,
                _ => types::I64,
            };
            let loaded = self.b.ins().load(ty, CONSTANT, address, offset);
            let swapped = self.b.ins().bswap(loaded);
            return match bytes {
                8 => swapped,
                _ => self.b.ins().uextend(types::I64, swapped),
            };
        }
        let ins = self.b.ins();
        match bytes {
            1 => ins.uload8(types::I64, CONSTANT, address, offset),
            2 => ins.uload16(types::I64, CONSTANT, address, offset),
            4 => ins.uload32(CONSTANT, address, offset),
            _ => ins.load(types::I64, CONSTANT, address, offset),
        }
    }

    /// How vectors of numbers in tables are read.
    pub(super) fn table_lanes(&self) -> MemFlagsData {
        CONSTANT.with_endianness(Endianness::Little)
    }

    /// The address of the `index`-th run of `bytes` bytes.
    fn element(&mut self, base: Value, index: ValueId, bytes: u64) -> Value {
        let index = self.scalar(index);
        let bytes = bytes.cast_signed();
        let offset = self.b.ins().imul_imm_u(index, bytes);
        self.b.ins().iadd(base, offset)
    }

    /// The address of the `index`-th run of `bytes` bytes of scratch.
    fn scratch(&mut self, index: ValueId, bytes: u64) -> Value {
        let base = self.scratch_base();
        self.element(base, index, bytes)
    }

    fn scratch_base(&mut self) -> Value {
        let slot = self.scratch.expect("verified: the program has scratch");
        self.b.ins().stack_addr(types::I64, slot, 0)
    }

    fn column(&self, row: ValueId, column: u8) -> &'a Column {
        match self.facts.facts(row).ty {
            Type::Row(table) => &self.program.tables[table.index()].columns[usize::from(column)],
            _ => unreachable!("verified: the operand is a row"),
        }
    }

    /// Sets all scratch to zero, as it is when the lookup of a key starts.
    fn clear_scratch(&mut self) {
        if self.scratch.is_none() {
            return;
        }
        self.b.set_srcloc(Note::Scratch.location());
        let bytes = (4 * self.program.scratch).next_multiple_of(CLEARED);
        let base = self.scratch_base();
        let zero = self.number(0);
        let clear = |b: &mut FunctionBuilder<'_>, from: Value, bytes: u32| {
            for offset in (0..bytes).step_by(8) {
                b.ins().store(SCRATCH, zero, from, offset.cast_signed());
            }
        };
        if bytes <= CLEARED_AT_ONCE {
            clear(self.b, base, bytes);
            return;
        }
        let (head, exit) = (self.b.create_block(), self.b.create_block());
        let trip = self.b.append_block_param(head, types::I64);
        self.b.ins().jump(head, &[BlockArg::Value(zero)]);
        self.b.switch_to_block(head);
        let offset = self.b.ins().imul_imm_u(trip, i64::from(CLEARED));
        let from = self.b.ins().iadd(base, offset);
        clear(self.b, from, CLEARED);
        self.next_trip(trip, bytes / CLEARED, (head, &[]), (exit, &[]));
        self.b.switch_to_block(exit);
    }

    fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Value {
        let (x, y) = (self.scalar(a), self.scalar(b));
        let ins = self.b.ins();
        match op {
            BinaryOp::And => ins.band(x, y),
            BinaryOp::Or => ins.bor(x, y),
            BinaryOp::Xor => ins.bxor(x, y),
            BinaryOp::Add => ins.iadd(x, y),
            BinaryOp::Sub => ins.isub(x, y),
            BinaryOp::Mul => ins.imul(x, y),
            BinaryOp::Min => ins.umin(x, y),
            BinaryOp::Max => ins.umax(x, y),
            BinaryOp::Pext => match self.constant(b) {
                Some(mask) => self.gather_runs(x, mask),
                None => self.gather(x, y),
            },
        }
    }

    /// `pext` by a constant: each run of bits of the mask is shifted into its place.
    fn gather_runs(&mut self, a: Value, mut mask: u64) -> Value {
        let mut result = self.number(0);
        let mut filled = 0;
        while mask != 0 {
            let start = mask.trailing_zeros();
            let len = (mask >> start).trailing_ones();
            let run = u64::MAX >> (64 - len);
            mask &= !(run << start);
            // Of the bits below no more have been gathered than there are.
            let part = self.b.ins().ushr_imm_u(a, i64::from(start - filled));
            let part = self.b.ins().band_imm_u(part, (run << filled).cast_signed());
            result = self.b.ins().bor(result, part);
            filled += len;
        }
        result
    }

    /// `pext` by any mask: bits move to the right by powers of two, those first that have an odd number of gaps below them
    /// (Warren, "Hacker's Delight", compress).
    fn gather(&mut self, a: Value, mask: Value) -> Value {
        let (mut gathered, mut mask) = (self.b.ins().band(a, mask), mask);
        let gaps = self.b.ins().bnot(mask);
        let mut gaps = self.b.ins().ishl_imm_u(gaps, 1);
        for step in 0..6 {
            // Bit i: whether there is an odd number of gaps below bit i.
            let mut odd = gaps;
            for by in 0..6 {
                let shifted = self.b.ins().ishl_imm_u(odd, 1 << by);
                odd = self.b.ins().bxor(odd, shifted);
            }
            let moving = self.b.ins().band(odd, mask);
            mask = self.moved(mask, moving, 1 << step);
            let moving = self.b.ins().band(gathered, moving);
            gathered = self.moved(gathered, moving, 1 << step);
            gaps = self.b.ins().band_not(gaps, odd);
        }
        gathered
    }

    /// `x` with the bits that are `moving` so much further to the right.
    fn moved(&mut self, x: Value, moving: Value, by: i64) -> Value {
        let staying = self.b.ins().bxor(x, moving);
        let moved = self.b.ins().ushr_imm_u(moving, by);
        self.b.ins().bor(staying, moved)
    }

    fn terminator(&mut self, terminator: &Terminator) {
        match *terminator {
            Terminator::Jump { to, ref args } => {
                let args = self.args(args);
                self.b.ins().jump(self.blocks[to.index()], &args);
            }
            Terminator::BranchIf {
                cond,
                then,
                ref then_args,
                otherwise,
                ref else_args,
            } => {
                let cond = self.scalar(cond);
                let (then_args, else_args) = (self.args(then_args), self.args(else_args));
                let (then, otherwise) = (self.blocks[then.index()], self.blocks[otherwise.index()]);
                self.b
                    .ins()
                    .brif(cond, then, &then_args, otherwise, &else_args);
            }
            Terminator::Repeat {
                head,
                ref args,
                exit,
                ref exit_args,
            } => {
                let block = &self.program.blocks[head.index()];
                let counter = self.scalar(block.params[0].0);
                let (args, exit_args) = (self.args(args), self.args(exit_args));
                let (head, exit) = (self.blocks[head.index()], self.blocks[exit.index()]);
                let trips = block.trips.unwrap_or(1);
                self.next_trip(counter, trips, (head, &args), (exit, &exit_args));
            }
            Terminator::Return { value } => {
                let value = self.scalar(value);
                let row = self.b.ins().ireduce(types::I32, value);
                self.b.ins().jump(self.done, &[BlockArg::Value(row)]);
            }
        }
    }

    /// Back to `head` with the counter one higher, on to `exit` after the last trip.
    fn next_trip(
        &mut self,
        counter: Value,
        trips: u32,
        (head, args): (ir::Block, &[BlockArg]),
        (exit, exit_args): (ir::Block, &[BlockArg]),
    ) {
        let next = self.b.ins().iadd_imm_u(counter, 1);
        let has_more = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedLessThan, next, i64::from(trips));
        let args = [&[BlockArg::Value(next)], args].concat();
        self.b.ins().brif(has_more, head, &args, exit, exit_args);
    }

    fn args(&self, args: &[ValueId]) -> Vec<BlockArg> {
        let parts = args.iter().flat_map(|&arg| self.vector(arg));
        parts.copied().map(BlockArg::Value).collect()
    }
}
