//! Random programs that the verifier accepts: all instructions, tables, branches, loops in loops.
//!
//! An index is bounded by the means that planners use (`and`, `min`, `mul_hi`, a set bit, a column's maximum...), so the
//! generator needs no bounds of its own, and everything that it writes is accepted by construction.
//!
//! Few values are live at once, so that an engine without spilling takes the programs: a *pool* holds those that later
//! instructions may use, and a full pool drops one for good. Before a branch or a loop the pool is cut down to what it
//! keeps across; that is *pinned*, and counts against what is inside. Scalars and rows are at most
//! [`MAX_LIVE_SCALARS`], lanes and masks at most [`MAX_LIVE_VECTORS`].

use pktjit_ir::program::{
    BinaryOp, CompareOp, Inst, LaneCompareOp, MaskOp, Table, Terminator, Type,
};
use pktjit_ir::{
    BlockId, ByteOrder, Field, KeyLayout, Program, ProgramBuilder, TableId, ValueId, verify,
};
use quickcheck::{Arbitrary, Gen};

pub use super::pool::{MAX_LIVE_SCALARS, MAX_LIVE_VECTORS};
use super::pool::{Pool, is_vector, most_of};
use super::shrink::simpler;
use super::table::table;
use super::{below, pick};

/// Most branches and loops around a block.
const MAX_DEPTH: usize = 2;

/// A random program of 8 lanes that the verifier accepts. Prints as text; shrinks to one where only what matters is not
/// constant.
#[derive(Clone)]
pub struct ValidProgram(pub Program);

impl std::fmt::Debug for ValidProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{}", self.0)
    }
}

impl Arbitrary for ValidProgram {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(program(g, 8))
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let smaller = simpler(&self.0).into_iter();
        Box::new(
            smaller
                .filter(|program| verify(program.clone()).is_ok())
                .map(Self),
        )
    }
}

/// A random key for a layout.
pub fn key(g: &mut Gen, layout: &KeyLayout) -> Vec<u8> {
    (0..layout.len())
        .map(|_| match below(g, 4) {
            0 => 0,
            1 => 0xff,
            _ => u8::arbitrary(g),
        })
        .collect()
}

/// A random program that the verifier accepts, all of whose lanes are that many.
pub fn program(g: &mut Gen, lanes: u8) -> Program {
    let fields = (0..1 + below(g, 4)).map(|i| {
        let field = Field::integer(&format!("f{i}"), 1 + below(g, 16) as u8);
        field.expect("1 to 16 bytes")
    });
    let layout = KeyLayout::packed(fields.collect::<Vec<_>>()).expect("at most 64 bytes");
    let mut b = ProgramBuilder::new(layout.clone(), u32::MAX);
    let tables: Vec<Table> = (0..1 + below(g, 3)).map(|_| table(g)).collect();
    for table in &tables {
        b.table(table.clone());
    }
    let mut writer = Writer {
        g,
        b,
        key_bytes: layout.len(),
        tables,
        lanes,
        current: BlockId::new(0),
        pool: Pool::default(),
    };
    writer.sequence(0);
    writer.ret();
    writer.b.finish()
}

/// A block that is to leave for one that does not exist yet.
struct Leaving {
    from: BlockId,
    args: Vec<ValueId>,
    /// `Some((cond, rest))` where the block leaves only if `cond` holds.
    only_if: Option<(ValueId, BlockId)>,
}

struct Writer<'g> {
    g: &'g mut Gen,
    b: ProgramBuilder,
    key_bytes: usize,
    tables: Vec<Table>,
    lanes: u8,
    current: BlockId,
    pool: Pool,
}

impl Writer<'_> {
    fn chance(&mut self, one_in: usize) -> bool {
        below(self.g, one_in) == 0
    }

    fn switch_to(&mut self, block: BlockId) {
        self.current = block;
        self.b.switch_to(block);
    }

    /// Straight code with branches and loops in between.
    fn sequence(&mut self, depth: usize) {
        for _ in 0..1 + below(self.g, 3) {
            for _ in 0..1 + below(self.g, 6) {
                self.inst();
            }
            if depth < MAX_DEPTH {
                match below(self.g, 4) {
                    0 => self.diamond(depth),
                    1 => self.repeated(depth),
                    _ => {}
                }
            }
        }
    }

    /// `if` or `if else`, with what both ways pass on as parameters of the block where they meet.
    fn diamond(&mut self, depth: usize) {
        let types = self.param_types();
        let (has_else, returns) = (bool::arbitrary(self.g), self.chance(4));
        let [cond] = self.scalars();
        // Where there is no second arm, the branch itself passes the arguments on.
        let direct = if has_else {
            Vec::new()
        } else {
            self.args(&types)
        };
        let from = self.current;
        let outer_pinned = self.pool.pinned;
        self.pool.cut_down(self.g, 0);
        let kept = self.pool.clone();

        let (then, _) = self.b.block(&[]);
        self.switch_to(then);
        self.sequence(depth + 1);
        let mut leaving = Vec::new();
        if returns {
            self.ret();
        } else {
            let args = self.args(&types);
            leaving.push(Leaving {
                from: self.current,
                args,
                only_if: None,
            });
        }
        let mut otherwise = None;
        if has_else {
            let (block, _) = self.b.block(&[]);
            otherwise = Some(block);
            self.pool = kept.clone();
            self.switch_to(block);
            self.sequence(depth + 1);
            let args = self.args(&types);
            leaving.push(Leaving {
                from: self.current,
                args,
                only_if: None,
            });
        }
        let meet = self.meet(leaving, &types, kept, outer_pinned);
        self.b.switch_to(from);
        self.b.terminate(Terminator::BranchIf {
            cond,
            then,
            then_args: Vec::new(),
            otherwise: otherwise.unwrap_or(meet),
            else_args: direct,
        });
        self.switch_to(meet);
    }

    /// A loop, perhaps left early.
    fn repeated(&mut self, depth: usize) {
        // The counter needs a register all the way round.
        if self.pool.pinned_count(false) + 1 >= most_of(false) {
            return;
        }
        let (head_types, exit_types) = (self.param_types(), self.param_types());
        let mut args = self.args(&head_types);
        args.insert(0, self.b.constant(0));
        let outer_pinned = self.pool.pinned;
        self.pool.cut_down(self.g, 1);
        let kept = self.pool.clone();

        let trips = 1 + below(self.g, 4) as u32;
        let (head, params) = self.b.loop_head(trips, &head_types);
        self.b.terminate(Terminator::Jump { to: head, args });
        self.switch_to(head);
        self.pool.add(self.g, params[0], Type::Scalar);
        self.pool.pin_last();
        for (&param, &ty) in params[1..].iter().zip(&head_types) {
            self.pool.add(self.g, param, ty);
        }
        self.sequence(depth + 1);
        let mut leaving = Vec::new();
        if bool::arbitrary(self.g) {
            let args = self.args(&exit_types);
            let [cond] = self.scalars();
            let (rest, _) = self.b.block(&[]);
            leaving.push(Leaving {
                from: self.current,
                args,
                only_if: Some((cond, rest)),
            });
            self.switch_to(rest);
            self.sequence(depth + 1);
        }
        let (args, exit_args) = (self.args(&head_types), self.args(&exit_types));
        let from = self.current;
        let exit = self.meet(leaving, &exit_types, kept, outer_pinned);
        self.b.switch_to(from);
        self.b.terminate(Terminator::Repeat {
            head,
            args,
            exit,
            exit_args,
        });
        self.switch_to(exit);
        // After the loop the counter is still that of its last trip.
        if self.chance(4) {
            self.pool.add(self.g, params[0], Type::Scalar);
        }
    }

    /// The block where ways meet, once they are all known; the pool is what they have in common.
    fn meet(
        &mut self,
        leaving: Vec<Leaving>,
        types: &[Type],
        kept: Pool,
        pinned: usize,
    ) -> BlockId {
        let (meet, params) = self.b.block(types);
        for Leaving {
            from,
            args,
            only_if,
        } in leaving
        {
            self.b.switch_to(from);
            self.b.terminate(match only_if {
                None => Terminator::Jump { to: meet, args },
                Some((cond, rest)) => Terminator::BranchIf {
                    cond,
                    then: meet,
                    then_args: args,
                    otherwise: rest,
                    else_args: Vec::new(),
                },
            });
        }
        self.pool = Pool { pinned, ..kept };
        for (param, &ty) in params.into_iter().zip(types) {
            self.pool.add(self.g, param, ty);
        }
        meet
    }

    fn param_types(&mut self) -> Vec<Type> {
        let all = [
            Type::Scalar,
            Type::Lanes(self.lanes),
            Type::Lanes(self.lanes),
            Type::Mask(self.lanes),
        ];
        all.into_iter()
            .filter(|_| bool::arbitrary(self.g))
            .collect()
    }

    fn args(&mut self, types: &[Type]) -> Vec<ValueId> {
        let arg = |&ty: &Type| {
            let [value] = match ty {
                Type::Lanes(_) => self.lanes(),
                Type::Mask(_) => self.masks(),
                Type::Scalar | Type::Row(_) => self.scalars(),
            };
            value
        };
        types.iter().map(arg).collect()
    }

    /// Returns something that depends on everything in the pool.
    fn ret(&mut self) {
        // Pinned scalars last: what is not pinned is over once it is mixed in.
        let mut values = self.pool.values.clone();
        values.reverse();
        values.sort_by_key(|&(_, ty)| is_vector(ty));
        let mut result = None;
        for (value, ty) in values {
            let scalar = match ty {
                Type::Scalar => value,
                Type::Row(_) => self.b.load(value, 0, None),
                Type::Lanes(_) => self.b.inst(Inst::HorizontalMin { a: value }),
                Type::Mask(_) => self.b.lane_bits(value),
            };
            result = Some(match result {
                None => scalar,
                Some(mixed) => self.b.binary(BinaryOp::Xor, mixed, scalar),
            });
        }
        let result = result.unwrap_or_else(|| self.b.constant(0));
        let high = self.b.shr(result, 32);
        let mixed = self.b.binary(BinaryOp::Xor, result, high);
        let result = self.b.binary_const(BinaryOp::And, mixed, u32::MAX.into());
        self.b.ret(result);
    }

    /// Adds a random instruction, with what it needs.
    fn inst(&mut self) {
        let lanes = self.lanes;
        let (inst, ty) = match below(self.g, 21) {
            0 => (Inst::Const(self.number()), Type::Scalar),
            1 | 19 | 20 => (self.load_key(), Type::Scalar),
            2..=4 => (self.binary(), Type::Scalar),
            5 => {
                let ([a], by) = (self.scalars(), below(self.g, 64) as u8);
                let by = pick(self.g, &[by, by, 0, 63]);
                let inst = match bool::arbitrary(self.g) {
                    true => Inst::Shl { a, by },
                    false => Inst::Shr { a, by },
                };
                (inst, Type::Scalar)
            }
            6 => {
                let op = pick(
                    self.g,
                    &[CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le],
                );
                let [a, b] = self.scalars();
                (Inst::Compare { op, a, b }, Type::Scalar)
            }
            7 => {
                let [cond, a, b] = self.scalars();
                (Inst::Select { cond, a, b }, Type::Scalar)
            }
            8 => {
                let [a] = self.scalars();
                (Inst::FirstBit { a }, Type::Scalar)
            }
            9 | 10 => {
                let (row, table) = self.row();
                let column = below(self.g, self.tables[table.index()].columns.len());
                let count = self.tables[table.index()].columns[column].count;
                let index = match bool::arbitrary(self.g) {
                    true => Some(self.index(count.into())),
                    false => None,
                };
                (
                    Inst::Load {
                        row,
                        column: column as u8,
                        index,
                    },
                    Type::Scalar,
                )
            }
            11 | 12 => (self.load_lanes(), Type::Lanes(lanes)),
            13 => (self.splat(), Type::Lanes(lanes)),
            14 => (self.lane_test(), Type::Mask(lanes)),
            15 => {
                let op = pick(self.g, &[MaskOp::And, MaskOp::Or, MaskOp::AndNot]);
                let [a, b] = self.masks();
                (Inst::CombineMasks { op, a, b }, Type::Mask(lanes))
            }
            16 => {
                let [mask] = self.masks();
                (Inst::LaneBits { mask }, Type::Scalar)
            }
            17 => {
                let [mask] = self.masks();
                let [acc, x] = self.lanes();
                (Inst::MaskedMin { acc, mask, x }, Type::Lanes(lanes))
            }
            _ => {
                let [a] = self.lanes();
                (Inst::HorizontalMin { a }, Type::Scalar)
            }
        };
        self.add(inst, ty);
    }

    fn add(&mut self, inst: Inst, ty: Type) {
        let value = self.b.inst(inst);
        self.pool.add(self.g, value, ty);
    }

    fn number(&mut self) -> u64 {
        let any = u64::arbitrary(self.g);
        let shift = below(self.g, 64);
        pick(
            self.g,
            &[any, any >> shift, 1 << shift, (1 << shift) - 1, u64::MAX, 0],
        )
    }

    fn load_key(&mut self) -> Inst {
        let fitting: Vec<usize> = [1, 2, 4, 8]
            .into_iter()
            .filter(|&bytes| bytes <= self.key_bytes)
            .collect();
        let bytes = pick(self.g, &fitting);
        Inst::LoadKey {
            offset: below(self.g, self.key_bytes - bytes + 1) as u16,
            bytes: bytes as u8,
            order: pick(self.g, &[ByteOrder::Big, ByteOrder::Little]),
        }
    }

    fn binary(&mut self) -> Inst {
        let all = [
            BinaryOp::And,
            BinaryOp::Or,
            BinaryOp::Xor,
            BinaryOp::Add,
            BinaryOp::Sub,
            BinaryOp::Mul,
            BinaryOp::MulHi,
            BinaryOp::Min,
            BinaryOp::Max,
            BinaryOp::Pext,
        ];
        let op = pick(self.g, &all);
        let [a, b] = self.scalars();
        // A constant as one operand is what engines treat apart.
        match below(self.g, 4) {
            0 => Inst::Binary {
                op,
                a,
                b: self.constant(),
            },
            1 => Inst::Binary {
                op,
                a: self.constant(),
                b,
            },
            _ => Inst::Binary { op, a, b },
        }
    }

    /// A constant that only the next instruction uses.
    fn constant(&mut self) -> ValueId {
        let number = self.number();
        self.b.constant(number)
    }

    fn load_lanes(&mut self) -> Inst {
        let (row, table) = self.row();
        let lanes = u32::from(self.lanes);
        let columns = self.tables[table.index()].columns.iter().enumerate();
        let fitting: Vec<(usize, u32)> = columns
            .filter(|(_, column)| column.bytes == 4 && column.count >= lanes)
            .map(|(i, column)| (i, column.count - lanes))
            .collect();
        let (column, last) = pick(self.g, &fitting);
        let first = below(self.g, last as usize + 1) as u16;
        Inst::LoadLanes {
            row,
            column: column as u8,
            first,
            lanes: self.lanes,
        }
    }

    fn splat(&mut self) -> Inst {
        let [wide] = self.scalars();
        let a = match below(self.g, 5) {
            0 | 1 => self.b.shr(wide, 32),
            2 | 3 => self.b.binary_const(BinaryOp::And, wide, u32::MAX.into()),
            _ => {
                let number = self.number() as u32;
                self.b.constant(number.into())
            }
        };
        Inst::Splat {
            a,
            lanes: self.lanes,
        }
    }

    fn lane_test(&mut self) -> Inst {
        let [a, b, c] = self.lanes();
        match below(self.g, 4) {
            0 => Inst::CompareLanes {
                op: LaneCompareOp::Eq,
                a,
                b,
            },
            1 => Inst::CompareLanes {
                op: LaneCompareOp::Le,
                a,
                b,
            },
            2 => Inst::InRangeLanes {
                x: a,
                lo: b,
                len: c,
            },
            _ => Inst::MaskedEqLanes {
                x: a,
                mask: b,
                value: c,
            },
        }
    }

    /// Values of the pool for which `fits`, one of them perhaps several times.
    fn choose<const N: usize>(&mut self, fits: impl Fn(Type) -> bool) -> Option<[ValueId; N]> {
        let fitting: Vec<ValueId> = (self.pool.values.iter())
            .filter(|&&(_, ty)| fits(ty))
            .map(|&(value, _)| value)
            .collect();
        (!fitting.is_empty()).then(|| std::array::from_fn(|_| pick(self.g, &fitting)))
    }

    fn scalars<const N: usize>(&mut self) -> [ValueId; N] {
        loop {
            if let Some(scalars) = self.choose(|ty| ty == Type::Scalar) {
                return scalars;
            }
            let fresh = self.load_key();
            self.add(fresh, Type::Scalar);
        }
    }

    fn lanes<const N: usize>(&mut self) -> [ValueId; N] {
        loop {
            if let Some(lanes) = self.choose(|ty| matches!(ty, Type::Lanes(_))) {
                return lanes;
            }
            let fresh = self.load_lanes();
            self.add(fresh, Type::Lanes(self.lanes));
        }
    }

    fn masks<const N: usize>(&mut self) -> [ValueId; N] {
        loop {
            if let Some(masks) = self.choose(|ty| matches!(ty, Type::Mask(_))) {
                return masks;
            }
            let fresh = self.lane_test();
            self.add(fresh, Type::Mask(self.lanes));
        }
    }

    fn row(&mut self) -> (ValueId, TableId) {
        loop {
            let known = self.pool.values.iter().filter_map(|&(value, ty)| match ty {
                Type::Row(table) => Some((value, table)),
                _ => None,
            });
            let known: Vec<_> = known.collect();
            if !known.is_empty() {
                return pick(self.g, &known);
            }
            let table = below(self.g, self.tables.len());
            let index = self.index(self.tables[table].rows() as u64);
            let table = TableId::new(table as u32);
            self.add(Inst::Row { table, index }, Type::Row(table));
        }
    }

    /// A scalar below `count`, which only the next instruction uses.
    fn index(&mut self, count: u64) -> ValueId {
        let bits = count.ilog2() as u8;
        let [x, y] = self.scalars();
        match below(self.g, 8) {
            0 => self.b.binary_const(BinaryOp::MulHi, x, count),
            1 if count.is_power_of_two() => self.b.binary_const(BinaryOp::And, x, count - 1),
            2 if bits > 0 => self.b.shr(x, 64 - bits),
            3 => {
                let mask = (0..bits).fold(0, |mask, i| mask | 1 << (63 - 5 * u32::from(i)));
                self.b.binary_const(BinaryOp::Pext, x, mask)
            }
            4 if count <= 64 => {
                let set = self.b.binary_const(BinaryOp::Or, x, 1 << (count - 1));
                self.b.first_bit(set)
            }
            5 if count >= 2 => self.b.compare(CompareOp::Lt, x, y),
            6 => {
                let index = u64::arbitrary(self.g) % count;
                self.b.constant(index)
            }
            7 => self
                .small_number(count)
                .unwrap_or_else(|| self.b.binary_const(BinaryOp::Min, x, count - 1)),
            _ => self.b.binary_const(BinaryOp::Min, x, count - 1),
        }
    }

    /// A number of a column that holds only numbers below `count`, if the pool has a row with one.
    fn small_number(&mut self, count: u64) -> Option<ValueId> {
        for (row, ty) in self.pool.values.clone() {
            let Type::Row(table) = ty else { continue };
            let columns = &self.tables[table.index()].columns;
            if let Some(column) = columns.iter().position(|column| column.max < count) {
                return Some(self.b.load(row, column as u8, None));
            }
        }
        None
    }
}
