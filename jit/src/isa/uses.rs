//! Who uses each value: what lowering asks before it decides where to compute one.
//!
//! Invariants: only uses by instructions that are alive count, so a value without uses is dead, unless it changes scratch; a
//! use that lowering serves without the operand's register (a splat reads the key bytes itself) does not count.

use pktjit_ir::program::{BinaryOp, Inst, LaneCompareOp, MaskOp, Program, Terminator};
use pktjit_ir::{BlockId, ValueId};

/// Uses and definitions of the values of one program.
pub(super) struct Uses<'a> {
    values: Vec<Value<'a>>,
    /// Whether comparisons work under masks, and compare conjunctions with zero.
    has_masks: bool,
}

#[derive(Clone, Copy, Default)]
struct Value<'a> {
    /// `None` for block parameters.
    inst: Option<&'a Inst>,
    home: usize,
    /// How many instructions that change scratch come before the definition.
    changes: u32,
    count: u32,
    /// Whether all uses are in the block of the definition.
    is_local: bool,
    is_used_after: usize,
    user: User<'a>,
}

/// An instruction or terminator that uses a value.
#[derive(Clone, Copy, Default)]
enum User<'a> {
    #[default]
    None,
    Inst(ValueId, &'a Inst),
    Terminator(&'a Terminator),
}

impl<'a> Uses<'a> {
    /// Counts the uses in `program`, which is verified and has `values` values.
    pub(super) fn new(program: &'a Program, values: usize, has_masks: bool) -> Self {
        let mut uses = Self {
            has_masks,
            values: vec![
                Value {
                    is_local: true,
                    ..Value::default()
                };
                values
            ],
        };
        let mut changes = 0;
        for (b, block) in program.blocks.iter().enumerate() {
            for &(value, _) in &block.params {
                uses.values[value.index()].home = b;
            }
            for (value, inst) in &block.insts {
                let value = &mut uses.values[value.index()];
                (value.home, value.inst, value.changes) = (b, Some(inst), changes);
                changes += u32::from(changes_scratch(inst));
            }
        }
        // Backwards, users come before what they use.
        for (b, block) in program.blocks.iter().enumerate().rev() {
            let terminator = &block.terminator;
            terminator.for_each_operand(|v| uses.add(v, b, User::Terminator(terminator)));
            for (value, inst) in block.insts.iter().rev() {
                if uses.is_dead(*value) || uses.splatted_key(inst).is_some() {
                    continue;
                }
                inst.for_each_operand(|v| uses.add(v, b, User::Inst(*value, inst)));
            }
        }
        uses
    }

    fn add(&mut self, value: ValueId, block: usize, user: User<'a>) {
        let value = &mut self.values[value.index()];
        value.count += 1;
        value.is_local &= value.home == block;
        value.is_used_after = value.is_used_after.max(block);
        value.user = user;
    }

    /// The instruction that defines a value; `None` for a block parameter.
    pub(super) fn inst(&self, value: ValueId) -> Option<&'a Inst> {
        self.values[value.index()].inst
    }

    /// The number that a value always is.
    pub(super) fn constant(&self, value: ValueId) -> Option<u64> {
        match self.inst(value) {
            Some(&Inst::Const(constant)) => Some(constant),
            _ => None,
        }
    }

    /// Whether nothing uses the value, and computing it changes nothing.
    pub(super) fn is_dead(&self, value: ValueId) -> bool {
        let Value { count, inst, .. } = self.values[value.index()];
        count == 0 && !inst.is_some_and(changes_scratch)
    }

    /// Whether there is one use alone.
    pub(super) fn is_single(&self, value: ValueId) -> bool {
        self.values[value.index()].count == 1
    }

    /// The instruction that alone uses the value, in the block of the definition, and what that defines.
    pub(super) fn only_user(&self, value: ValueId) -> Option<(ValueId, &'a Inst)> {
        let Value {
            count,
            is_local,
            user,
            ..
        } = self.values[value.index()];
        match user {
            User::Inst(user, inst) if count == 1 && is_local => Some((user, inst)),
            _ => None,
        }
    }

    /// Whether the only use of a row adds an index to its address.
    pub(super) fn is_indexed(&self, row: ValueId) -> bool {
        let Value { count, user, .. } = self.values[row.index()];
        let index = match user {
            User::Inst(_, &Inst::Load { index, .. }) => index,
            _ => None,
        };
        count == 1 && index.is_some_and(|index| self.constant(index).is_none())
    }

    /// Whether all uses are in the block of the definition.
    pub(super) fn is_local(&self, value: ValueId) -> bool {
        self.values[value.index()].is_local
    }

    /// Whether a block after `block` uses the value.
    pub(super) fn is_used_after(&self, value: ValueId, block: BlockId) -> bool {
        self.values[value.index()].is_used_after > block.index()
    }

    /// The key load that a splat repeats in all lanes, if that is what `inst` does.
    pub(super) fn splatted_key(&self, inst: &Inst) -> Option<&'a Inst> {
        let Inst::Splat { a, .. } = *inst else {
            return None;
        };
        self.inst(a)
            .filter(|load| matches!(load, Inst::LoadKey { .. }))
    }

    /// Whether a value is the number 0, or lanes of it.
    pub(super) fn is_zero(&self, value: ValueId) -> bool {
        match self.inst(value) {
            Some(&Inst::Splat { a, .. }) => self.constant(a) == Some(0),
            _ => self.constant(value) == Some(0),
        }
    }

    /// The value that `inst` clears the lowest set bit of: `x & (x - 1)`.
    pub(super) fn cleared_lowest_bit(&self, inst: &Inst) -> Option<ValueId> {
        let Inst::Binary {
            op: BinaryOp::And,
            a,
            b,
        } = *inst
        else {
            return None;
        };
        let is_one_less = |x, less| match self.inst(less) {
            Some(&Inst::Binary {
                op: BinaryOp::Sub,
                a,
                b,
            }) => a == x && self.constant(b) == Some(1),
            _ => false,
        };
        if is_one_less(a, b) {
            Some(a)
        } else {
            is_one_less(b, a).then_some(b)
        }
    }

    /// Whether computing a value once more costs next to nothing and needs nothing but the key.
    pub(super) fn is_cheap(&self, inst: &Inst) -> bool {
        let is_leaf = |value| {
            matches!(
                self.inst(value),
                Some(Inst::Const(_) | Inst::LoadKey { .. })
            )
        };
        match *inst {
            Inst::LoadKey { .. } => true,
            Inst::Splat { .. } => self.splatted_key(inst).is_some(),
            Inst::Shl { a, .. } | Inst::Shr { a, .. } => is_leaf(a),
            Inst::Binary { op, a, b } => op != BinaryOp::Pext && is_leaf(a) && is_leaf(b),
            _ => false,
        }
    }

    /// Whether a value is best computed where its only use is, in the same block: it becomes an operand in memory or a
    /// condition in the flags there, and holds no register in between.
    pub(super) fn sinks(&self, value: ValueId) -> bool {
        let Value {
            inst: Some(inst),
            count: 1,
            is_local: true,
            changes,
            user,
            ..
        } = self.values[value.index()]
        else {
            return false;
        };
        // What reads scratch goes to a user that stays where it is, and past no change.
        let keeps_scratch = match user {
            User::Inst(user, _) => self.values[user.index()].changes == changes,
            _ => false,
        };
        let is_operand = |user: &Inst| match *user {
            Inst::Binary { op, b, .. } => match op {
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Add => true,
                BinaryOp::Sub => b == value,
                _ => false,
            },
            _ => false,
        };
        match (inst, user) {
            (Inst::LoadLanes { .. }, User::Inst(..)) => true,
            (Inst::LoadScratchLanes { .. }, User::Inst(..)) => keeps_scratch,
            (Inst::LoadScratch { .. }, User::Inst(_, user)) => keeps_scratch && is_operand(user),
            (Inst::Load { .. }, User::Inst(_, Inst::Splat { .. } | Inst::Compare { .. })) => true,
            (Inst::Load { .. }, User::Inst(_, user)) => is_operand(user),
            (
                Inst::CompareLanes { .. }
                | Inst::InRangeLanes { .. }
                | Inst::InRangeHalves { .. }
                | Inst::MaskedEqLanes { .. },
                User::Inst(_, Inst::CombineMasks { op, .. }),
            ) => self.has_masks && keeps_scratch && *op == MaskOp::And,
            (Inst::AndLanes { .. }, User::Inst(_, Inst::CompareLanes { op, a, b })) => {
                self.has_masks
                    && keeps_scratch
                    && *op == LaneCompareOp::Eq
                    && (self.is_zero(*a) || self.is_zero(*b))
            }
            (Inst::Binary { .. }, User::Inst(_, user)) => self.cleared_lowest_bit(user).is_some(),
            (Inst::Compare { .. }, User::Inst(_, Inst::Select { cond, .. }))
            | (Inst::Compare { .. }, User::Terminator(Terminator::BranchIf { cond, .. })) => {
                *cond == value
            }
            _ => false,
        }
    }
}

fn changes_scratch(inst: &Inst) -> bool {
    matches!(inst, Inst::OrScratch { .. })
}
