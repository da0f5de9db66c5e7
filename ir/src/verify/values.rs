//! Rules 2 and 6 to 11: every operand is defined, of the right type and in bounds.

use super::facts::{binary, low_bits};
use super::{Fault, ValueFacts, Verifier};
use crate::entity::{BlockId, TableId, ValueId};
use crate::program::{Column, Inst, Table, Terminator, Type};

impl<'a> Verifier<'a> {
    /// Rules 2 and 6 to 11. Blocks in order: what a forward edge supplies is known when its target is visited.
    pub(super) fn values(&mut self) {
        let program = self.program;
        for (b, block) in program.blocks.iter().enumerate() {
            self.at = (Some(BlockId::new(b as u32)), None);
            for (i, &(value, ty)) in block.params.iter().enumerate() {
                match ty {
                    Type::Lanes(lanes) | Type::Mask(lanes) => self.lane_count(lanes),
                    Type::Nothing => fault!(self, "parameter {value} is nothing"),
                    Type::Scalar | Type::Row(_) => {}
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
            let Some(facts) = self.used(b, arg) else {
                continue;
            };
            if facts.ty != ty {
                fault!(
                    self,
                    "{arg} is {}, parameter {param} of {to} is {ty}",
                    facts.ty
                );
                continue;
            }
            if is_repeat {
                continue;
            }
            if i == 0 && target.trips.is_some() && facts.max != 0 {
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
    fn used(&mut self, b: usize, value: ValueId) -> Option<ValueFacts> {
        let home = self.home.get(value.index()).copied();
        let facts = self.facts.get(value.index()).copied().flatten();
        match (home, facts) {
            (Some(home), Some(facts)) if self.dominators.dominates(home, b) => Some(facts),
            _ => {
                fault!(self, "{value} is not defined before it is used");
                None
            }
        }
    }

    /// The facts of a scalar operand; those of 0 where a fault has been reported instead, since 0 is in all bounds.
    fn scalar(&mut self, b: usize, value: ValueId) -> ValueFacts {
        let zero = ValueFacts {
            ty: Type::Scalar,
            max: 0,
            ones: 0,
        };
        match self.used(b, value) {
            Some(facts) if facts.ty == Type::Scalar => facts,
            Some(facts) => {
                fault!(self, "{value} is {}, not a scalar", facts.ty);
                zero
            }
            None => zero,
        }
    }

    /// The number of lanes of an operand, `None` where a fault has been reported instead.
    fn lanes(&mut self, b: usize, value: ValueId) -> Option<u8> {
        match self.used(b, value)?.ty {
            Type::Lanes(lanes) => Some(lanes),
            ty => {
                fault!(self, "{value} is {ty}, not lanes");
                None
            }
        }
    }

    /// The number of lanes of an operand, `None` where a fault has been reported instead.
    fn mask(&mut self, b: usize, value: ValueId) -> Option<u8> {
        match self.used(b, value)?.ty {
            Type::Mask(lanes) => Some(lanes),
            ty => {
                fault!(self, "{value} is {ty}, not a mask");
                None
            }
        }
    }

    /// The number of lanes that all operands have, and so the result.
    fn same<const N: usize>(&mut self, operands: [Option<u8>; N]) -> u8 {
        let mut known = operands.into_iter().flatten();
        let first = known.next().unwrap_or(8);
        if let Some(other) = known.find(|&other| other != first) {
            fault!(self, "operands of {first} and of {other} lanes");
        }
        first
    }

    fn lane_count(&mut self, lanes: u8) {
        if !matches!(lanes, 4 | 8 | 16) {
            fault!(self, "{lanes} lanes, not 4, 8 or 16");
        }
    }

    /// The first number after the last run of `lanes` numbers that `index` may name.
    fn run_end(&mut self, b: usize, index: ValueId, lanes: u8) -> u64 {
        let runs = self.scalar(b, index).max.saturating_add(1);
        runs.saturating_mul(lanes.into())
    }

    fn in_scratch(&mut self, end: u64) {
        let scratch = self.program.scratch;
        if end > scratch.into() {
            fault!(self, "scratch up to number {end}, there are {scratch}");
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
        let ty = self.used(b, row)?.ty;
        let Type::Row(id) = ty else {
            fault!(self, "{row} is {ty}, not a row");
            return None;
        };
        let table = self.table(id)?;
        let found = table.columns.get(usize::from(column));
        if found.is_none() {
            fault!(self, "{id} has no column {column}");
        }
        found
    }

    /// Lanes are numbers of at most 4 bytes, and number `end - 1` is the last that is read.
    fn lanes_in_column(&mut self, b: usize, row: ValueId, column: u8, end: u64) {
        if let Some(column) = self.column_of(b, row, column)
            && (column.bytes > 4 || end > column.count.into())
        {
            fault!(
                self,
                "lanes up to {end} of column `{}`: {} x {} bytes",
                column.name,
                column.count,
                column.bytes
            );
        }
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
                self.lanes_in_column(b, row, column, u64::from(first) + u64::from(lanes));
                of(Type::Lanes(lanes))
            }
            Inst::LoadScratch { index } => {
                let end = self.run_end(b, index, 1);
                self.in_scratch(end);
                scalar(u32::MAX.into())
            }
            Inst::LoadScratchLanes { index, lanes } => {
                self.lane_count(lanes);
                let end = self.run_end(b, index, lanes);
                self.in_scratch(end);
                of(Type::Lanes(lanes))
            }
            Inst::OrScratch { index, bits } => {
                let end = self.run_end(b, index, 1);
                self.in_scratch(end);
                let max = self.scalar(b, bits).max;
                if max > u64::from(u32::MAX) {
                    fault!(self, "{bits} may be as large as {max}, beyond 32 bits");
                }
                of(Type::Nothing)
            }
            Inst::AndLanes { a, b: second } => {
                let lanes = [self.lanes(b, a), self.lanes(b, second)];
                of(Type::Lanes(self.same(lanes)))
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
                of(Type::Mask(self.same(lanes)))
            }
            Inst::InRangeLanes { x, lo, len } | Inst::InRangeHalves { x, lo, len } => {
                let lanes = [self.lanes(b, x), self.lanes(b, lo), self.lanes(b, len)];
                of(Type::Mask(self.same(lanes)))
            }
            Inst::MaskedEqLanes { x, mask, value } => {
                let lanes = [self.lanes(b, x), self.lanes(b, mask), self.lanes(b, value)];
                of(Type::Mask(self.same(lanes)))
            }
            Inst::CombineMasks { a, b: second, .. } => {
                let lanes = [self.mask(b, a), self.mask(b, second)];
                of(Type::Mask(self.same(lanes)))
            }
            Inst::LaneBits { mask } => scalar(low_bits(self.mask(b, mask).unwrap_or(0).into())),
            Inst::MaskedMin { acc, mask, x } => {
                let lanes = [self.lanes(b, acc), self.mask(b, mask), self.lanes(b, x)];
                of(Type::Lanes(self.same(lanes)))
            }
            Inst::HorizontalMin { a } => {
                self.lanes(b, a);
                scalar(u32::MAX.into())
            }
        }
    }
}
