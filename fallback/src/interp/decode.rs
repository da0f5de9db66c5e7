//! Makes the list of operations of a program, once.
//!
//! Blocks are laid out in their order. A jump is the copies of its arguments and then the jump; a branch is a test that
//! skips the first of two jumps.

use std::collections::HashSet;

use pktjit_ir::program::{Column, Inst, Table, Terminator, Type};
use pktjit_ir::{BlockId, TableId, ValueId, VerifiedProgram};

use super::{Interpreter, Op, Pc, Slot};

pub(super) fn decode(program: &VerifiedProgram) -> Interpreter {
    let mut decoder = Decoder::new(program);
    let mut starts = Vec::new();
    for block in &program.program().blocks {
        starts.push(decoder.pc());
        for &(value, inst) in &block.insts {
            let op = decoder.inst(decoder.slot(value), inst);
            decoder.code.push(op);
        }
        decoder.terminator(&block.terminator);
    }
    // Only now is it known where the blocks start.
    for op in &mut decoder.code {
        if let Op::Jump { to } = op {
            *to = starts[*to as usize];
        }
    }
    let tables = program.program().tables.iter();
    Interpreter {
        code: decoder.code,
        tables: tables.map(|table| table.data.clone()).collect(),
        scalars: (decoder.scalars + decoder.saved) as usize,
        lanes: (decoder.lanes + decoder.saved) as usize,
        scratch: program.program().scratch as usize,
    }
}

struct Decoder<'a> {
    program: &'a VerifiedProgram,
    /// The slot of each value: scalars, rows and masks are numbered apart from lanes.
    slots: Vec<Slot>,
    scalars: u32,
    lanes: u32,
    /// Slots behind those of the values, of each sort, that hold arguments while parameters are overwritten.
    saved: u32,
    code: Vec<Op>,
}

impl<'a> Decoder<'a> {
    fn new(program: &'a VerifiedProgram) -> Self {
        let (mut scalars, mut lanes) = (0, 0);
        let slots = (0..program.value_count() as u32)
            .map(|value| {
                let next = match program.facts(ValueId::new(value)).ty {
                    Type::Lanes(_) => &mut lanes,
                    // What is nothing has a slot that no operation uses.
                    Type::Scalar | Type::Row(_) | Type::Mask(_) | Type::Nothing => &mut scalars,
                };
                *next += 1;
                *next - 1
            })
            .collect();
        Self {
            program,
            slots,
            scalars,
            lanes,
            saved: 0,
            code: Vec::new(),
        }
    }

    fn pc(&self) -> Pc {
        self.code.len() as Pc
    }

    fn slot(&self, value: ValueId) -> Slot {
        self.slots[value.index()]
    }

    fn ty(&self, value: ValueId) -> Type {
        self.program.facts(value).ty
    }

    fn lanes_of(&self, value: ValueId) -> u8 {
        match self.ty(value) {
            Type::Lanes(lanes) | Type::Mask(lanes) => lanes,
            _ => unreachable!("verified: the operand is a vector"),
        }
    }

    fn table(&self, id: TableId) -> &'a Table {
        &self.program.program().tables[id.index()]
    }

    fn column(&self, row: ValueId, column: u8) -> (TableId, &'a Column) {
        match self.ty(row) {
            Type::Row(table) => (table, &self.table(table).columns[usize::from(column)]),
            _ => unreachable!("verified: the operand is a row"),
        }
    }

    fn inst(&self, to: Slot, inst: Inst) -> Op {
        let slot = |value| self.slot(value);
        match inst {
            Inst::Const(value) => Op::Const { to, value },
            Inst::LoadKey {
                offset,
                bytes,
                order,
            } => Op::LoadKey {
                to,
                offset,
                bytes,
                order,
            },
            Inst::Binary { op, a, b } => Op::Binary {
                op,
                to,
                a: slot(a),
                b: slot(b),
            },
            Inst::Shl { a, by } => Op::Shl { to, a: slot(a), by },
            Inst::Shr { a, by } => Op::Shr { to, a: slot(a), by },
            Inst::Compare { op, a, b } => Op::Compare {
                op,
                to,
                a: slot(a),
                b: slot(b),
            },
            Inst::Select { cond, a, b } => Op::Select {
                to,
                cond: slot(cond),
                a: slot(a),
                b: slot(b),
            },
            Inst::FirstBit { a } => Op::FirstBit { to, a: slot(a) },
            Inst::Row { table, index } => Op::Row {
                to,
                row_bytes: self.table(table).row_bytes,
                index: slot(index),
            },
            Inst::Load { row, column, index } => {
                let (table, &Column { offset, bytes, .. }) = self.column(row, column);
                let row = slot(row);
                match index {
                    None => Op::Load {
                        to,
                        table,
                        row,
                        offset,
                        bytes,
                    },
                    Some(index) => Op::LoadAt {
                        to,
                        table,
                        row,
                        offset,
                        bytes,
                        index: slot(index),
                    },
                }
            }
            Inst::LoadLanes {
                row,
                column,
                first,
                lanes,
            } => {
                let (table, column) = self.column(row, column);
                let bytes = column.bytes;
                let offset = column.offset + u32::from(bytes) * u32::from(first);
                Op::LoadLanes {
                    to,
                    table,
                    row: slot(row),
                    offset,
                    bytes,
                    lanes,
                }
            }
            Inst::LoadScratch { index } => Op::LoadScratch {
                to,
                index: slot(index),
            },
            Inst::LoadScratchLanes { index, lanes } => Op::LoadScratchLanes {
                to,
                index: slot(index),
                lanes,
            },
            Inst::OrScratch { index, bits } => Op::OrScratch {
                index: slot(index),
                bits: slot(bits),
            },
            Inst::AndLanes { a, b } => Op::AndLanes {
                to,
                a: slot(a),
                b: slot(b),
            },
            Inst::Splat { a, lanes: _ } => Op::Splat { to, a: slot(a) },
            Inst::CompareLanes { op, a, b } => Op::CompareLanes {
                op,
                to,
                a: slot(a),
                b: slot(b),
                lanes: self.lanes_of(a),
            },
            Inst::InRangeLanes { x, lo, len } => Op::InRangeLanes {
                to,
                x: slot(x),
                lo: slot(lo),
                len: slot(len),
                lanes: self.lanes_of(x),
            },
            Inst::InRangeHalves { x, lo, len } => Op::InRangeHalves {
                to,
                x: slot(x),
                lo: slot(lo),
                len: slot(len),
                lanes: self.lanes_of(x),
            },
            Inst::MaskedEqLanes { x, mask, value } => Op::MaskedEqLanes {
                to,
                x: slot(x),
                mask: slot(mask),
                value: slot(value),
                lanes: self.lanes_of(x),
            },
            Inst::CombineMasks { op, a, b } => Op::CombineMasks {
                op,
                to,
                a: slot(a),
                b: slot(b),
            },
            // A mask is already kept as its bits.
            Inst::LaneBits { mask } => Op::CopyScalar {
                to,
                from: slot(mask),
            },
            Inst::MaskedMin { acc, mask, x } => Op::MaskedMin {
                to,
                acc: slot(acc),
                mask: slot(mask),
                x: slot(x),
            },
            Inst::HorizontalMin { a } => Op::HorizontalMin {
                to,
                a: slot(a),
                lanes: self.lanes_of(a),
            },
        }
    }

    fn terminator(&mut self, terminator: &Terminator) {
        match terminator {
            Terminator::Jump { to, args } => self.jump(*to, args, None),
            Terminator::BranchIf {
                cond,
                then,
                then_args,
                otherwise,
                else_args,
            } => {
                let cond = self.slot(*cond);
                let test = self.code.len();
                self.code.push(Op::JumpIfZero { cond, to: 0 });
                self.jump(*then, then_args, None);
                self.code[test] = Op::JumpIfZero {
                    cond,
                    to: self.pc(),
                };
                self.jump(*otherwise, else_args, None);
            }
            Terminator::Repeat {
                head,
                args,
                exit,
                exit_args,
            } => {
                let block = &self.program.program().blocks[head.index()];
                let counter = self.slot(block.params[0].0);
                let trips = block.trips.unwrap_or(1);
                let test = self.code.len();
                self.code.push(Op::JumpIfLast {
                    counter,
                    trips,
                    to: 0,
                });
                self.jump(*head, args, Some(counter));
                self.code[test] = Op::JumpIfLast {
                    counter,
                    trips,
                    to: self.pc(),
                };
                self.jump(*exit, exit_args, None);
            }
            Terminator::Return { value } => self.code.push(Op::Return {
                value: self.slot(*value),
            }),
        }
    }

    /// Arguments to parameters, all at once, and the jump; to the head of a loop with its `counter` one higher.
    fn jump(&mut self, to: BlockId, args: &[ValueId], counter: Option<Slot>) {
        let params = &self.program.program().blocks[to.index()].params;
        let params = params.iter().skip(usize::from(counter.is_some()));
        let mut overwritten = HashSet::new();
        let mut copies = Vec::new();
        let mut used = 0;
        for (&arg, &(param, ty)) in args.iter().zip(params) {
            let (mut from, to) = (self.slot(arg), self.slot(param));
            if overwritten.contains(&arg) {
                let saved = used
                    + if matches!(ty, Type::Lanes(_)) {
                        self.lanes
                    } else {
                        self.scalars
                    };
                self.code.push(copy(ty, saved, from));
                from = saved;
                used += 1;
            }
            copies.push(copy(ty, to, from));
            overwritten.insert(param);
        }
        self.saved = self.saved.max(used);
        self.code.extend(copies);
        // The counter as an argument is that of the trip that ends.
        self.code
            .extend(counter.map(|counter| Op::Increment { counter }));
        self.code.push(Op::Jump { to: to.as_u32() });
    }
}

fn copy(ty: Type, to: Slot, from: Slot) -> Op {
    match ty {
        Type::Lanes(_) => Op::CopyLanes { to, from },
        Type::Scalar | Type::Row(_) | Type::Mask(_) => Op::CopyScalar { to, from },
        Type::Nothing => unreachable!("verified: no parameter is nothing"),
    }
}
