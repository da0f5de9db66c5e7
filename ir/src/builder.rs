//! Writes a [`Program`] one instruction at a time.
//!
//! The builder numbers values densely and knows nothing of types or bounds: the verifier judges the result.

use crate::entity::{BlockId, TableId, ValueId};
use crate::field::ByteOrder;
use crate::key::KeyLayout;
use crate::program::{
    BinaryOp, Block, Column, CompareOp, Inst, LaneCompareOp, MaskOp, Program, Table, Terminator,
    Type,
};

/// A program being written. Instructions go to the end of the current block, at first block 0.
///
/// ```
/// use pktjit_ir::{ByteOrder, Field, KeyLayout, ProgramBuilder, program::CompareOp, verify};
/// let layout = KeyLayout::packed([Field::inet_service("dport")]).unwrap();
/// let mut b = ProgramBuilder::new(layout, 1);
/// let port = b.load_key(0, 2, ByteOrder::Big);
/// let https = b.constant(443);
/// let hit = b.compare(CompareOp::Eq, port, https);
/// let (row, miss) = (b.constant(0), b.constant(u32::MAX.into()));
/// let result = b.select(hit, row, miss);
/// b.ret(result);
/// assert!(verify(b.finish()).is_ok());
/// ```
#[derive(Debug)]
pub struct ProgramBuilder {
    program: Program,
    current: BlockId,
    next_value: u32,
}

impl ProgramBuilder {
    /// An empty program over keys of `layout` whose results are below `verdicts`.
    #[must_use]
    pub fn new(layout: KeyLayout, verdicts: u32) -> Self {
        let program = Program {
            layout,
            verdicts,
            tables: Vec::new(),
            scratch: 0,
            staged: None,
            blocks: Vec::new(),
        };
        let mut builder = Self {
            program,
            current: BlockId::new(0),
            next_value: 0,
        };
        builder.block(&[]);
        builder
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) -> TableId {
        self.program.tables.push(table);
        TableId::new(self.program.tables.len() as u32 - 1)
    }

    /// The columns of a table.
    ///
    /// # Panics
    /// Where `table` was not added here.
    #[must_use]
    pub fn columns(&self, table: TableId) -> &[Column] {
        &self.program.tables[table.index()].columns
    }

    /// Adds so many 32-bit numbers to scratch and yields the index of the first.
    pub fn scratch(&mut self, numbers: u32) -> u32 {
        let first = self.program.scratch;
        self.program.scratch = first.saturating_add(numbers);
        first
    }

    /// Names the row that batches may ask for ahead: [`Program::staged`].
    pub fn stage(&mut self, row: ValueId) {
        self.program.staged = Some(row);
    }

    /// Adds a block with parameters of these types; it does not become current. Until it gets a terminator it ends in a
    /// return of its first value.
    pub fn block(&mut self, params: &[Type]) -> (BlockId, Vec<ValueId>) {
        let ids: Vec<ValueId> = params.iter().map(|_| self.value()).collect();
        self.program.blocks.push(Block {
            params: ids.iter().copied().zip(params.iter().copied()).collect(),
            trips: None,
            insts: Vec::new(),
            terminator: Terminator::Return {
                value: ValueId::new(0),
            },
        });
        (BlockId::new(self.program.blocks.len() as u32 - 1), ids)
    }

    /// Adds the head of a loop of `trips` trips: the first of the values that it yields is the counter, the others are
    /// parameters of these types.
    pub fn loop_head(&mut self, trips: u32, params: &[Type]) -> (BlockId, Vec<ValueId>) {
        let types: Vec<Type> = std::iter::once(Type::Scalar)
            .chain(params.iter().copied())
            .collect();
        let (id, values) = self.block(&types);
        self.program.blocks[id.index()].trips = Some(trips);
        (id, values)
    }

    /// Lets the following instructions go to the end of `block`.
    pub fn switch_to(&mut self, block: BlockId) {
        self.current = block;
    }

    /// Ends the current block.
    pub fn terminate(&mut self, terminator: Terminator) {
        self.program.blocks[self.current.index()].terminator = terminator;
    }

    /// Ends the current block with a return.
    pub fn ret(&mut self, value: ValueId) {
        self.terminate(Terminator::Return { value });
    }

    /// The program as written so far.
    #[must_use]
    pub fn finish(self) -> Program {
        self.program
    }

    fn value(&mut self) -> ValueId {
        self.next_value += 1;
        ValueId::new(self.next_value - 1)
    }

    /// Adds an instruction.
    pub fn inst(&mut self, inst: Inst) -> ValueId {
        let value = self.value();
        self.program.blocks[self.current.index()]
            .insts
            .push((value, inst));
        value
    }

    /// [`Inst::Const`]
    pub fn constant(&mut self, value: u64) -> ValueId {
        self.inst(Inst::Const(value))
    }

    /// [`Inst::LoadKey`]
    pub fn load_key(&mut self, offset: u16, bytes: u8, order: ByteOrder) -> ValueId {
        self.inst(Inst::LoadKey {
            offset,
            bytes,
            order,
        })
    }

    /// [`Inst::Binary`]
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        self.inst(Inst::Binary { op, a, b })
    }

    /// [`Inst::Binary`] with a constant as second operand.
    pub fn binary_const(&mut self, op: BinaryOp, a: ValueId, b: u64) -> ValueId {
        let b = self.constant(b);
        self.binary(op, a, b)
    }

    /// [`Inst::Shl`], nothing where `by` is 0.
    pub fn shl(&mut self, a: ValueId, by: u8) -> ValueId {
        if by == 0 {
            a
        } else {
            self.inst(Inst::Shl { a, by })
        }
    }

    /// [`Inst::Shr`], nothing where `by` is 0.
    pub fn shr(&mut self, a: ValueId, by: u8) -> ValueId {
        if by == 0 {
            a
        } else {
            self.inst(Inst::Shr { a, by })
        }
    }

    /// [`Inst::Compare`]
    pub fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> ValueId {
        self.inst(Inst::Compare { op, a, b })
    }

    /// [`Inst::Select`]
    pub fn select(&mut self, cond: ValueId, a: ValueId, b: ValueId) -> ValueId {
        self.inst(Inst::Select { cond, a, b })
    }

    /// [`Inst::FirstBit`]
    pub fn first_bit(&mut self, a: ValueId) -> ValueId {
        self.inst(Inst::FirstBit { a })
    }

    /// [`Inst::Row`]
    pub fn row(&mut self, table: TableId, index: ValueId) -> ValueId {
        self.inst(Inst::Row { table, index })
    }

    /// [`Inst::Load`]
    pub fn load(&mut self, row: ValueId, column: u8, index: Option<ValueId>) -> ValueId {
        self.inst(Inst::Load { row, column, index })
    }

    /// [`Inst::LoadLanes`]
    pub fn load_lanes(&mut self, row: ValueId, column: u8, first: u16, lanes: u8) -> ValueId {
        self.inst(Inst::LoadLanes {
            row,
            column,
            first,
            lanes,
        })
    }

    /// [`Inst::AndLanes`]
    pub fn and_lanes(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.inst(Inst::AndLanes { a, b })
    }

    /// [`Inst::LoadScratch`]
    pub fn load_scratch(&mut self, index: ValueId) -> ValueId {
        self.inst(Inst::LoadScratch { index })
    }

    /// [`Inst::LoadScratchLanes`]
    pub fn load_scratch_lanes(&mut self, index: ValueId, lanes: u8) -> ValueId {
        self.inst(Inst::LoadScratchLanes { index, lanes })
    }

    /// [`Inst::OrScratch`]
    pub fn or_scratch(&mut self, index: ValueId, bits: ValueId) {
        self.inst(Inst::OrScratch { index, bits });
    }

    /// [`Inst::Splat`]
    pub fn splat(&mut self, a: ValueId, lanes: u8) -> ValueId {
        self.inst(Inst::Splat { a, lanes })
    }

    /// [`Inst::CompareLanes`]
    pub fn compare_lanes(&mut self, op: LaneCompareOp, a: ValueId, b: ValueId) -> ValueId {
        self.inst(Inst::CompareLanes { op, a, b })
    }

    /// [`Inst::CombineMasks`]
    pub fn combine_masks(&mut self, op: MaskOp, a: ValueId, b: ValueId) -> ValueId {
        self.inst(Inst::CombineMasks { op, a, b })
    }

    /// [`Inst::LaneBits`]
    pub fn lane_bits(&mut self, mask: ValueId) -> ValueId {
        self.inst(Inst::LaneBits { mask })
    }
}
