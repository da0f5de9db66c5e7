//! The verifier: the only way from a [`Program`] to a [`VerifiedProgram`], and so the reason why generated code needs no
//! checks.
//!
//! What holds for every verified program:
//!
//! *Structure*
//! 1. There is a block 0, it has no parameters and is no loop head, and every block can be reached from it.
//! 2. Values are numbered densely and defined once; a definition comes before its uses on every path (dominance).
//! 3. Jumps and branches go to later blocks, and never to a loop head from inside its own loop.
//! 4. A loop is the run of blocks from its head, the only block with `trips`, to its only `repeat`. It is entered at its
//!    head alone, and loops nest. Trips are 1 to 2^24; the head's first parameter is a scalar that every jump from
//!    before sets to the constant 0.
//! 5. All instructions, each times the trips of the loops around it, are at most 2^30.
//! 6. Arguments agree with the parameters of the target in number and type.
//!
//! *Types and bounds*
//! 7. Operands have the type that the instruction asks for; lanes and masks have 4, 8 or 16 lanes, equal in one instruction.
//! 8. A key load lies inside the key; its width is 1, 2, 4 or 8 bytes.
//! 9. A `row` index is below the number of rows; a `load` index is below the column's count; `load_lanes` reads 4-byte
//!    numbers inside the column.
//! 10. Shifts are below 64. What is splatted is below 2^32.
//! 11. A returned value is below 2^32.
//!
//! *Tables*
//! 12. A table has at least one row, a whole number of rows, 1 to 256 columns and at most 2^32 bytes.
//! 13. Columns lie inside the row, are aligned to their width of 1, 2, 4 or 8 bytes, do not overlap, and hold no number
//!     above their declared maximum; where numbers are results, each is below `verdicts` or is [`MISS`].
//!
//! All faults are reported, not only the first.

use std::fmt;

use crate::entity::{BlockId, TableId, ValueId};
use crate::program::{BinaryOp, Column, Inst, MISS, Program, Table, Terminator, Type};

/// Most trips of one loop.
pub const MAX_TRIPS: u32 = 1 << 24;
/// Most instructions that one lookup may take.
pub const MAX_STEPS: u64 = 1 << 30;
/// Most bytes of one table.
pub const MAX_TABLE_BYTES: u64 = 1 << 32;

/// A program for which everything at the top of `verify.rs` holds.
#[derive(Clone, Debug)]
pub struct VerifiedProgram {
    program: Program,
    values: Vec<ValueFacts>,
}

/// What the verifier knows about one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueFacts {
    /// Its type.
    pub ty: Type,
    /// Scalars: no larger number is possible. Rows: no larger row index. Otherwise 0.
    pub max: u64,
    /// Scalars: bits that are certainly set.
    pub ones: u64,
}

/// One way in which a program is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The block that it is in, if any.
    pub block: Option<BlockId>,
    /// Position of the instruction in the block; one past the last is the terminator.
    pub inst: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(block) = self.block {
            write!(f, "{block}")?;
            if let Some(inst) = self.inst {
                write!(f, " instruction {inst}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    faults: Vec<Fault>,
}

impl VerifyError {
    /// The faults, in the order of the program; at least one.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for VerifyError {}

impl VerifiedProgram {
    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What is known about a value.
    ///
    /// # Panics
    /// Where `value` is not of this program.
    #[must_use]
    pub fn facts(&self, value: ValueId) -> ValueFacts {
        self.values[value.index()]
    }

    /// The number of values; ids are below it.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.values.len()
    }
}

/// Checks everything at the top of `verify.rs`.
///
/// Takes time linear in the size of the program and of its tables.
///
/// # Errors
/// All faults of the program.
pub fn verify(program: Program) -> Result<VerifiedProgram, VerifyError> {
    let mut verifier = Verifier::new(&program);
    verifier.tables();
    verifier.structure();
    // Types and bounds mean something only where control flow and numbering do.
    if verifier.faults.is_empty() {
        verifier.values();
    }
    let Verifier { facts, faults, .. } = verifier;
    if !faults.is_empty() {
        return Err(VerifyError { faults });
    }
    // Every value is defined: `structure` has checked that the numbering is dense, `values` has visited each definition.
    let values = facts.into_iter().flatten().collect();
    Ok(VerifiedProgram { program, values })
}

/// A loop: the blocks from `head` to `tail`.
#[derive(Clone, Copy)]
struct Loop {
    head: usize,
    tail: usize,
    trips: u32,
}

struct Verifier<'a> {
    program: &'a Program,
    facts: Vec<Option<ValueFacts>>,
    /// Block in which each value is defined.
    home: Vec<usize>,
    /// Immediate dominator of each block.
    idom: Vec<usize>,
    at: (Option<BlockId>, Option<usize>),
    faults: Vec<Fault>,
}

macro_rules! fault {
    ($self:expr, $($arg:tt)*) => {
        $self.faults.push(Fault { block: $self.at.0, inst: $self.at.1, message: format!($($arg)*) })
    };
}

impl<'a> Verifier<'a> {
    fn new(program: &'a Program) -> Self {
        let values = program
            .blocks
            .iter()
            .map(|b| b.params.len() + b.insts.len())
            .sum();
        Self {
            program,
            facts: vec![None; values],
            home: vec![usize::MAX; values],
            idom: vec![0; program.blocks.len()],
            at: (None, None),
            faults: Vec::new(),
        }
    }

    fn tables(&mut self) {
        for (i, table) in self.program.tables.iter().enumerate() {
            let id = TableId::new(i as u32);
            let (row_bytes, bytes) = (table.row_bytes as usize, table.data.len());
            if row_bytes == 0
                || bytes == 0
                || !bytes.is_multiple_of(row_bytes)
                || bytes as u64 > MAX_TABLE_BYTES
            {
                fault!(
                    self,
                    "{id}: {bytes} bytes are not 1 to 2^32 bytes of whole rows of {row_bytes}"
                );
                continue;
            }
            if table.columns.is_empty() || table.columns.len() > 256 {
                fault!(self, "{id}: {} columns, not 1 to 256", table.columns.len());
            }
            let mut taken = vec![false; row_bytes];
            for column in &table.columns {
                let width = u64::from(column.bytes);
                let (start, size) = (u64::from(column.offset), width * u64::from(column.count));
                if !matches!(width, 1 | 2 | 4 | 8)
                    || size == 0
                    || start % width.max(1) != 0
                    || start + size > row_bytes as u64
                {
                    fault!(
                        self,
                        "{id}: column `{}` does not lie aligned inside the row",
                        column.name
                    );
                    continue;
                }
                let taken = &mut taken[start as usize..(start + size) as usize];
                if taken.contains(&true) {
                    fault!(self, "{id}: column `{}` overlaps another", column.name);
                }
                taken.fill(true);
                self.column(id, table, column);
            }
        }
    }

    fn column(&mut self, id: TableId, table: &Table, column: &Column) {
        let type_max = u64::MAX >> (64 - 8 * u32::from(column.bytes));
        let verdicts = u64::from(self.program.verdicts);
        if column.max >= type_max && !column.is_result {
            return;
        }
        for row in 0..table.rows() {
            for index in 0..column.count as usize {
                let number = table.get(row, column, index).unwrap_or(u64::MAX);
                if number > column.max
                    || column.is_result && number >= verdicts && number != u64::from(MISS)
                {
                    fault!(
                        self,
                        "{id}: row {row}, column `{}` holds {number}, above its maximum",
                        column.name
                    );
                    return;
                }
            }
        }
    }

    /// Rules 1 to 5: blocks, numbering, dominators, loops.
    fn structure(&mut self) {
        let blocks = &self.program.blocks;
        if blocks.is_empty() {
            fault!(self, "there is no block");
            return;
        }
        for (b, block) in blocks.iter().enumerate() {
            let ids = block
                .params
                .iter()
                .map(|&(v, _)| v)
                .chain(block.insts.iter().map(|&(v, _)| v));
            for value in ids {
                match self.home.get(value.index()) {
                    None => fault!(
                        self,
                        "{value} is numbered beyond the {} values that there are",
                        self.home.len()
                    ),
                    Some(&usize::MAX) => self.home[value.index()] = b,
                    Some(_) => fault!(self, "{value} is defined twice"),
                }
            }
        }
        let loops = self.loops();
        self.edges(&loops);
        if blocks[0].trips.is_some() || !blocks[0].params.is_empty() {
            fault!(self, "block0 has parameters or is a loop head");
        }
        let mut steps = 0u64;
        for (b, block) in blocks.iter().enumerate() {
            let around = loops.iter().filter(|l| (l.head..=l.tail).contains(&b));
            let times = around.fold(1u64, |n, l| n.saturating_mul(l.trips.into()));
            steps = steps.saturating_add(times.saturating_mul(block.insts.len() as u64 + 1));
        }
        if steps > MAX_STEPS {
            fault!(self, "a lookup may take {steps} steps, above {MAX_STEPS}");
        }
    }

    fn loops(&mut self) -> Vec<Loop> {
        let blocks = &self.program.blocks;
        let mut loops: Vec<Loop> = Vec::new();
        for (b, block) in blocks.iter().enumerate() {
            self.at = (Some(BlockId::new(b as u32)), None);
            if let Some(trips) = block.trips {
                if trips == 0 || trips > MAX_TRIPS {
                    fault!(self, "{trips} trips, not 1 to {MAX_TRIPS}");
                }
                if block
                    .params
                    .first()
                    .is_none_or(|&(_, ty)| ty != Type::Scalar)
                {
                    fault!(self, "a loop head's first parameter is its scalar counter");
                }
                let tails: Vec<usize> = (0..blocks.len())
                    .filter(|&t| matches!(&blocks[t].terminator, Terminator::Repeat { head, .. } if head.index() == b))
                    .collect();
                match tails[..] {
                    [tail] if tail >= b => loops.push(Loop {
                        head: b,
                        tail,
                        trips,
                    }),
                    _ => fault!(
                        self,
                        "a loop head has exactly one `repeat`, at or after it; this one has {}",
                        tails.len()
                    ),
                }
            }
            if let Terminator::Repeat { head, .. } = &block.terminator
                && blocks
                    .get(head.index())
                    .is_none_or(|head| head.trips.is_none())
            {
                fault!(self, "`repeat` to {head}, which is no loop head");
            }
        }
        self.at = (None, None);
        for (i, outer) in loops.iter().enumerate() {
            for inner in &loops[i + 1..] {
                if inner.head <= outer.tail && inner.tail > outer.tail {
                    fault!(
                        self,
                        "the loops of block{} and block{} cross",
                        outer.head,
                        inner.head
                    );
                }
            }
        }
        loops
    }

    /// Forward edges only go forward and enter loops at their heads; every block is reached; immediate dominators.
    fn edges(&mut self, loops: &[Loop]) {
        let blocks = &self.program.blocks;
        let mut reached = vec![false; blocks.len()];
        reached[0] = true;
        for (b, block) in blocks.iter().enumerate() {
            self.at = (Some(BlockId::new(b as u32)), Some(block.insts.len()));
            if !reached[b] {
                fault!(self, "the block cannot be reached");
                continue;
            }
            for to in forward_targets(&block.terminator) {
                let t = to.index();
                if t >= blocks.len() || t <= b {
                    fault!(self, "{to} is not a later block");
                    continue;
                }
                if loops
                    .iter()
                    .any(|l| l.head < t && t <= l.tail && !(l.head..=l.tail).contains(&b))
                {
                    fault!(
                        self,
                        "{to} is inside a loop that is entered at its head alone"
                    );
                }
                if reached[t] {
                    self.idom[t] = self.common_dominator(self.idom[t], b);
                } else {
                    reached[t] = true;
                    self.idom[t] = b;
                }
            }
        }
        self.at = (None, None);
    }

    fn common_dominator(&self, mut a: usize, mut b: usize) -> usize {
        while a != b {
            if a > b {
                a = self.idom[a];
            } else {
                b = self.idom[b];
            }
        }
        a
    }

    fn dominates(&self, above: usize, mut block: usize) -> bool {
        while block > above {
            block = self.idom[block];
        }
        block == above
    }

    /// Rules 2 and 6 to 11. Blocks in order: what a forward edge supplies is known when its target is visited.
    fn values(&mut self) {
        let program = self.program;
        for (b, block) in program.blocks.iter().enumerate() {
            self.at = (Some(BlockId::new(b as u32)), None);
            for (i, &(value, ty)) in block.params.iter().enumerate() {
                if let Type::Lanes(lanes) | Type::Mask(lanes) = ty {
                    self.lane_count(lanes);
                }
                let row_max = match ty {
                    Type::Row(table) => self.table(table).map_or(0, |t| t.rows() as u64 - 1),
                    _ => 0,
                };
                // Edges from before have joined what they supply into the slot; around a loop nothing is known but the
                // counter.
                let slot = &mut self.facts[value.index()];
                *slot = Some(match (ty, block.trips, slot.take()) {
                    (Type::Scalar, Some(trips), _) if i == 0 => ValueFacts {
                        ty,
                        max: u64::from(trips).saturating_sub(1),
                        ones: 0,
                    },
                    (Type::Scalar, None, Some(joined)) => ValueFacts { ty, ..joined },
                    (Type::Scalar, _, _) => ValueFacts {
                        ty,
                        max: u64::MAX,
                        ones: 0,
                    },
                    _ => ValueFacts {
                        ty,
                        max: row_max,
                        ones: 0,
                    },
                });
            }
            for (i, &(value, ref inst)) in block.insts.iter().enumerate() {
                self.at = (Some(BlockId::new(b as u32)), Some(i));
                // A faulty instruction still gets the type that it would have had, so that one fault is one report.
                let facts = self.inst(b, inst);
                self.facts[value.index()] = Some(facts);
            }
            self.at = (Some(BlockId::new(b as u32)), Some(block.insts.len()));
            self.terminator(b, &block.terminator);
        }
    }

    fn terminator(&mut self, b: usize, terminator: &Terminator) {
        match terminator {
            Terminator::Jump { to, args } => self.pass(b, *to, args, false),
            Terminator::BranchIf {
                cond,
                then,
                then_args,
                otherwise,
                else_args,
            } => {
                self.scalar(b, *cond);
                self.pass(b, *then, then_args, false);
                self.pass(b, *otherwise, else_args, false);
            }
            Terminator::Repeat {
                head,
                args,
                exit,
                exit_args,
            } => {
                self.pass(b, *head, args, true);
                self.pass(b, *exit, exit_args, false);
            }
            Terminator::Return { value } => {
                let max = self.scalar(b, *value).max;
                if max > u64::from(u32::MAX) {
                    fault!(
                        self,
                        "the result {value} may be as large as {max}, beyond 32 bits"
                    );
                }
            }
        }
    }

    fn pass(&mut self, b: usize, to: BlockId, args: &[ValueId], is_repeat: bool) {
        let target = &self.program.blocks[to.index()];
        let skip = usize::from(is_repeat);
        if args.len() + skip != target.params.len() {
            fault!(
                self,
                "{} arguments for the {} parameters of {to}",
                args.len() + skip,
                target.params.len()
            );
            return;
        }
        for (i, (&arg, &(param, ty))) in args.iter().zip(&target.params[skip..]).enumerate() {
            let facts = self.used(b, arg);
            if facts.ty != ty {
                fault!(
                    self,
                    "{arg} is {:?}, parameter {param} of {to} is {ty:?}",
                    facts.ty
                );
            }
            if is_repeat {
                continue;
            }
            if i == 0 && target.trips.is_some() && (facts.max != 0 || facts.ty != Type::Scalar) {
                fault!(
                    self,
                    "the counter of {to} starts at {arg}, which is not the constant 0"
                );
            }
            // The parameter knows what holds for all of its arguments.
            let slot = &mut self.facts[param.index()];
            *slot = Some(match *slot {
                None => facts,
                Some(other) => ValueFacts {
                    ty,
                    max: other.max.max(facts.max),
                    ones: other.ones & facts.ones,
                },
            });
        }
    }

    /// The facts of an operand of an instruction of block `b`.
    fn used(&mut self, b: usize, value: ValueId) -> ValueFacts {
        let home = self.home.get(value.index()).copied();
        let facts = self.facts.get(value.index()).copied().flatten();
        match (home, facts) {
            (Some(home), Some(facts)) if self.dominates(home, b) => facts,
            _ => {
                fault!(self, "{value} is not defined before it is used");
                ValueFacts {
                    ty: Type::Scalar,
                    max: 0,
                    ones: 0,
                }
            }
        }
    }

    fn scalar(&mut self, b: usize, value: ValueId) -> ValueFacts {
        let facts = self.used(b, value);
        if facts.ty != Type::Scalar {
            fault!(self, "{value} is {:?}, not a scalar", facts.ty);
        }
        facts
    }

    fn lanes(&mut self, b: usize, value: ValueId) -> u8 {
        match self.used(b, value).ty {
            Type::Lanes(lanes) => lanes,
            ty => {
                fault!(self, "{value} is {ty:?}, not lanes");
                8
            }
        }
    }

    fn mask(&mut self, b: usize, value: ValueId) -> u8 {
        match self.used(b, value).ty {
            Type::Mask(lanes) => lanes,
            ty => {
                fault!(self, "{value} is {ty:?}, not a mask");
                8
            }
        }
    }

    fn same(&mut self, lanes: &[u8]) {
        if lanes.windows(2).any(|pair| pair[0] != pair[1]) {
            fault!(self, "operands with different numbers of lanes: {lanes:?}");
        }
    }

    fn lane_count(&mut self, lanes: u8) {
        if !matches!(lanes, 4 | 8 | 16) {
            fault!(self, "{lanes} lanes, not 4, 8 or 16");
        }
    }

    fn table(&mut self, id: TableId) -> Option<&'a Table> {
        let table = self.program.tables.get(id.index());
        if table.is_none() {
            fault!(self, "there is no {id}");
        }
        table
    }

    /// The column that a load means, and the operand's row.
    fn column_of(&mut self, b: usize, row: ValueId, column: u8) -> Option<&'a Column> {
        let Type::Row(id) = self.used(b, row).ty else {
            fault!(self, "{row} is not a row");
            return None;
        };
        let table = self.table(id)?;
        let found = table.columns.get(usize::from(column));
        if found.is_none() {
            fault!(self, "{id} has no column {column}");
        }
        found
    }

    fn inst(&mut self, b: usize, inst: &Inst) -> ValueFacts {
        let scalar = |max| ValueFacts {
            ty: Type::Scalar,
            max,
            ones: 0,
        };
        let of = |ty| ValueFacts {
            ty,
            max: 0,
            ones: 0,
        };
        match *inst {
            Inst::Const(value) => ValueFacts {
                ty: Type::Scalar,
                max: value,
                ones: value,
            },
            Inst::LoadKey { offset, bytes, .. } => {
                if !matches!(bytes, 1 | 2 | 4 | 8) {
                    fault!(self, "a key load of {bytes} bytes, not 1, 2, 4 or 8");
                    return scalar(u64::MAX);
                }
                let (end, len) = (
                    usize::from(offset) + usize::from(bytes),
                    self.program.layout.len(),
                );
                if end > len {
                    fault!(self, "a key load up to byte {end} of a key of {len}");
                }
                scalar(low_bits(8 * u32::from(bytes)))
            }
            Inst::Binary { op, a, b: second } => {
                let (a, second) = (self.scalar(b, a), self.scalar(b, second));
                binary(op, a, second)
            }
            Inst::Shl { a, by } | Inst::Shr { a, by } if by >= 64 => {
                self.scalar(b, a);
                fault!(self, "a shift by {by}");
                scalar(u64::MAX)
            }
            Inst::Shl { a, by } => {
                let a = self.scalar(b, a);
                let max = if a.max.leading_zeros() >= by.into() {
                    a.max << by
                } else {
                    u64::MAX
                };
                ValueFacts {
                    ty: Type::Scalar,
                    max,
                    ones: a.ones << by,
                }
            }
            Inst::Shr { a, by } => {
                let a = self.scalar(b, a);
                ValueFacts {
                    ty: Type::Scalar,
                    max: a.max >> by,
                    ones: a.ones >> by,
                }
            }
            Inst::Compare { a, b: second, .. } => {
                self.scalar(b, a);
                self.scalar(b, second);
                scalar(1)
            }
            Inst::Select { cond, a, b: second } => {
                self.scalar(b, cond);
                let (a, second) = (self.scalar(b, a), self.scalar(b, second));
                ValueFacts {
                    ty: Type::Scalar,
                    max: a.max.max(second.max),
                    ones: a.ones & second.ones,
                }
            }
            // `trailing_zeros` of no known bit is 64, which is just what `FirstBit` may then yield.
            Inst::FirstBit { a } => scalar(self.scalar(b, a).ones.trailing_zeros().into()),
            Inst::Row { table: id, index } => {
                let index_max = self.scalar(b, index).max;
                if let Some(table) = self.table(id)
                    && index_max >= table.rows() as u64
                {
                    fault!(
                        self,
                        "row {index} of {id} may be {index_max}, the last is {}",
                        table.rows() - 1
                    );
                }
                ValueFacts {
                    ty: Type::Row(id),
                    max: index_max,
                    ones: 0,
                }
            }
            Inst::Load { row, column, index } => {
                let index_max = index.map_or(0, |index| self.scalar(b, index).max);
                let Some(column) = self.column_of(b, row, column) else {
                    return scalar(u64::MAX);
                };
                if index_max >= column.count.into() {
                    fault!(
                        self,
                        "number {index_max} of column `{}`, which has {}",
                        column.name,
                        column.count
                    );
                }
                scalar(column.max.min(low_bits(8 * u32::from(column.bytes))))
            }
            Inst::LoadLanes {
                row,
                column,
                first,
                lanes,
            } => {
                self.lane_count(lanes);
                if let Some(column) = self.column_of(b, row, column) {
                    let end = u32::from(first) + u32::from(lanes);
                    if column.bytes != 4 || end > column.count {
                        fault!(
                            self,
                            "lanes up to {end} of column `{}`: {} x {} bytes",
                            column.name,
                            column.count,
                            column.bytes
                        );
                    }
                }
                of(Type::Lanes(lanes))
            }
            Inst::Splat { a, lanes } => {
                self.lane_count(lanes);
                let max = self.scalar(b, a).max;
                if max > u64::from(u32::MAX) {
                    fault!(self, "{a} may be as large as {max}, beyond a 32-bit lane");
                }
                of(Type::Lanes(lanes))
            }
            Inst::CompareLanes { a, b: second, .. } => {
                let lanes = [self.lanes(b, a), self.lanes(b, second)];
                self.same(&lanes);
                of(Type::Mask(lanes[0]))
            }
            Inst::InRangeLanes { x, lo, len } => {
                let lanes = [self.lanes(b, x), self.lanes(b, lo), self.lanes(b, len)];
                self.same(&lanes);
                of(Type::Mask(lanes[0]))
            }
            Inst::MaskedEqLanes { x, mask, value } => {
                let lanes = [self.lanes(b, x), self.lanes(b, mask), self.lanes(b, value)];
                self.same(&lanes);
                of(Type::Mask(lanes[0]))
            }
            Inst::CombineMasks { a, b: second, .. } => {
                let lanes = [self.mask(b, a), self.mask(b, second)];
                self.same(&lanes);
                of(Type::Mask(lanes[0]))
            }
            Inst::LaneBits { mask } => scalar(low_bits(self.mask(b, mask).into())),
            Inst::MaskedMin { acc, mask, x } => {
                let lanes = [self.lanes(b, acc), self.mask(b, mask), self.lanes(b, x)];
                self.same(&lanes);
                of(Type::Lanes(lanes[0]))
            }
            Inst::HorizontalMin { a } => {
                self.lanes(b, a);
                scalar(u32::MAX.into())
            }
        }
    }
}

/// The number whose `bits` low bits are set, `bits` at most 64.
fn low_bits(bits: u32) -> u64 {
    u64::MAX.checked_shr(64 - bits).unwrap_or(0)
}

/// The number of all bits that a number up to `max` can have.
fn all_bits(max: u64) -> u64 {
    low_bits(64 - max.leading_zeros())
}

fn binary(op: BinaryOp, a: ValueFacts, b: ValueFacts) -> ValueFacts {
    let (max, ones) = match op {
        BinaryOp::And => (a.max.min(b.max), a.ones & b.ones),
        BinaryOp::Or => (
            all_bits(a.max | b.max).min(a.max.saturating_add(b.max)),
            a.ones | b.ones,
        ),
        BinaryOp::Xor => (all_bits(a.max | b.max).min(a.max.saturating_add(b.max)), 0),
        BinaryOp::Add => (a.max.saturating_add(b.max), 0),
        BinaryOp::Sub => (u64::MAX, 0),
        BinaryOp::Mul => (a.max.saturating_mul(b.max), 0),
        BinaryOp::MulHi => (((u128::from(a.max) * u128::from(b.max)) >> 64) as u64, 0),
        BinaryOp::Min => (a.max.min(b.max), 0),
        BinaryOp::Max => (a.max.max(b.max), 0),
        BinaryOp::Pext => {
            // A constant mask has its bits both certain and as its maximum.
            let bits = if b.ones == b.max {
                b.max.count_ones()
            } else {
                64 - b.max.leading_zeros()
            };
            (low_bits(bits).min(low_bits(64 - a.max.leading_zeros())), 0)
        }
    };
    ValueFacts {
        ty: Type::Scalar,
        max,
        ones,
    }
}

/// The targets of a terminator other than the head of a `repeat`.
fn forward_targets(terminator: &Terminator) -> impl Iterator<Item = BlockId> {
    let pair = match *terminator {
        Terminator::Jump { to, .. } => [Some(to), None],
        Terminator::BranchIf {
            then, otherwise, ..
        } => [Some(then), Some(otherwise)],
        Terminator::Repeat { exit, .. } => [Some(exit), None],
        Terminator::Return { .. } => [None, None],
    };
    pair.into_iter().flatten()
}
