//! Random programs that the verifier accepts: all instructions, tables, scratch, branches, loops in loops, staged rows.
//!
//! Few values are live at once, so that an engine without spilling takes the programs: a *pool* holds those that later
//! instructions may use, and a full pool drops one for good. Before a branch or a loop the pool is cut down to what it
//! keeps across; that is *pinned*, and counts against what is inside. Scalars and rows are at most
//! [`FEW_LIVE_SCALARS`] or, in one program of four, [`MAX_LIVE_SCALARS`]; lanes and masks at most [`MAX_LIVE_VECTORS`].

use pktjit_ir::program::{BinaryOp, Inst, Table, Terminator, Type};
use pktjit_ir::verify::MAX_SCRATCH;
use pktjit_ir::{BlockId, Field, KeyLayout, Program, ProgramBuilder, ValueId, verify};
use quickcheck::{Arbitrary, Gen};

pub use super::pool::{FEW_LIVE_SCALARS, MAX_LIVE_SCALARS, MAX_LIVE_VECTORS};
use super::pool::{Pool, is_vector};
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
    let scratch = scratch_size(g, lanes);
    b.scratch(scratch);
    let few = FEW_LIVE_SCALARS;
    let max_scalars = pick(g, &[few, few, few, MAX_LIVE_SCALARS]);
    let mut writer = Writer {
        g,
        b,
        key_bytes: layout.len(),
        tables,
        lanes,
        scratch,
        counters: Vec::new(),
        current: BlockId::new(0),
        pool: Pool::new(max_scalars),
    };
    writer.sequence(0);
    writer.ret();
    let mut program = writer.b.finish();
    if program.scratch == 0 {
        let rows = program.blocks[0].insts.iter();
        let rows = rows.filter(|(_, inst)| matches!(inst, Inst::Row { .. }));
        let rows: Vec<ValueId> = rows.map(|&(row, _)| row).collect();
        program.staged = g.choose(&rows).copied();
    }
    program
}

/// Numbers of scratch: often none or few, since only then do loads meet what was set.
fn scratch_size(g: &mut Gen, lanes: u8) -> u32 {
    let few = 1 + below(g, 3 * usize::from(lanes)) as u32;
    match below(g, 16) {
        0..=5 => 0,
        6 => MAX_SCRATCH,
        7 => 1,
        8 | 9 => 2 * u32::from(lanes),
        _ => few,
    }
}

/// A block that is to leave for one that does not exist yet.
struct Leaving {
    from: BlockId,
    args: Vec<ValueId>,
    /// `Some((cond, rest))` where the block leaves only if `cond` holds.
    only_if: Option<(ValueId, BlockId)>,
}

/// The program being written. How instructions come about is in `insts`.
pub(super) struct Writer<'g> {
    pub(super) g: &'g mut Gen,
    pub(super) b: ProgramBuilder,
    pub(super) key_bytes: usize,
    pub(super) tables: Vec<Table>,
    pub(super) lanes: u8,
    pub(super) scratch: u32,
    /// The counters of all loops so far, with their trips.
    pub(super) counters: Vec<(ValueId, u32)>,
    current: BlockId,
    pub(super) pool: Pool,
}

impl Writer<'_> {
    pub(super) fn chance(&mut self, one_in: usize) -> bool {
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
        if self.pool.pinned_count(false) + 1 >= self.pool.room(false) {
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
        self.counters.push((params[0], trips));
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
        self.pool = kept;
        self.pool.pinned = pinned;
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
                Type::Scalar | Type::Row(_) | Type::Nothing => self.scalars(),
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
                Type::Nothing => unreachable!("the pool holds no nothing"),
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
}
