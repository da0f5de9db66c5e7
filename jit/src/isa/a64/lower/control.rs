//! Blocks, loops and what is passed between them.
//!
//! Arguments become parameters by parallel moves on the edge: ahead of the jump where there is one successor, and behind
//! the conditional jump where there are two. A `repeat` moves first, then counts; so nothing that is needed after the loop
//! may be in a register that it overwrites, and [`Lowering::enter_loop`] sees to that.

use pktjit_ir::program::{CompareOp, Inst as Ir, Terminator};
use pktjit_ir::{BlockId, ValueId};

use super::{END, Held, LineNote, Lowering, OpenLoop, label_of};
use crate::isa::a64::abi::{self, Pass, next_trip};
use crate::isa::a64::immediate::{constant, is_arithmetic};
use crate::isa::a64::inst::{Class, Cond, Inst, Label, Operand, Reg, Size};
use crate::isa::a64::regs::{MachineInst, MoveSource, Node};

/// Control.
impl<'a> Lowering<'a> {
    /// Gives each block parameter its register.
    pub(super) fn parameters(&mut self) {
        for block in &self.program.blocks {
            for &(value, ty) in &block.params {
                self.held[value.index()] = Some(self.new_held(ty));
            }
        }
    }

    pub(super) fn block(&mut self, id: BlockId) {
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
        if self.pass == Pass::Fetch {
            self.prefetch();
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
            let held = self.held(value);
            for index in held.regs().filter_map(Reg::virtual_index) {
                self.body.registers[index].loop_head = Some(start);
            }
            if self.uses.is_used_after(value, tail) || exit_args.contains(&value) {
                let kept = self.new_held(self.facts.facts(value).ty);
                for (dst, src) in kept.regs().zip(held.regs()) {
                    self.push(Inst::copy(self.class(src), dst, src));
                }
                escaping.push((value, kept));
            }
        }
        self.line.note = "";
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
                    Some(result) => self.push_all(constant(abi::RESULT, result)),
                    None => {
                        let src = self.reg(*value);
                        self.push(Inst::Mov {
                            dst: abi::RESULT,
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
        let test = self.test(cond);
        if then_args.is_empty() && !(self.is_next(then) && else_args.is_empty()) {
            self.jump_if(test, label_of(then));
            self.go(otherwise, else_args);
            return;
        }
        // Arguments are moved on the way to `then` alone.
        let to_else = if else_args.is_empty() {
            label_of(otherwise)
        } else {
            self.new_label()
        };
        self.jump_if(test.negated(), to_else);
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
        self.pass_arguments(head, 1, args);
        if let (Some(trips), Some(&(counter, _))) = (block.trips, block.params.first()) {
            let counter = self.reg(counter);
            let trips = u64::from(trips);
            let trips = if is_arithmetic(trips) {
                Operand::Imm(trips)
            } else {
                Operand::Reg(self.set(trips))
            };
            self.push_all(next_trip(counter, trips, label_of(head)));
        }
        if let Some(OpenLoop { start, escaping }) = self.loops.pop() {
            self.body.loops.push((start, self.body.nodes.len() - 1));
            for (value, kept) in escaping {
                self.held[value.index()] = Some(kept);
            }
        }
        self.line.note = "branch";
        self.go(exit, exit_args);
    }

    /// Passes arguments to a later block and goes there.
    fn go(&mut self, to: BlockId, args: &[ValueId]) {
        self.pass_arguments(to, 0, args);
        if !self.is_next(to) {
            self.push(Inst::Jump { to: label_of(to) });
        }
    }

    /// Sets the parameters of `to` after the first `skip` ones.
    fn pass_arguments(&mut self, to: BlockId, skip: usize, args: &[ValueId]) {
        let params = &self.program.blocks[to.index()].params[skip..];
        let mut moves = Vec::with_capacity(args.len());
        for (&arg, &(param, _)) in args.iter().zip(params) {
            let params = self.held(param);
            match self.uses.constant(arg) {
                Some(constant) => {
                    moves.push((Class::General, params.low, MoveSource::Const(constant)));
                }
                None => {
                    let args: Held = self.held(arg);
                    for (dst, src) in params.regs().zip(args.regs()) {
                        moves.push((self.class(dst), dst, MoveSource::Reg(src)));
                    }
                }
            }
        }
        if !moves.is_empty() {
            self.body.nodes.push(Node::Moves(moves));
        }
    }

    /// The register file of a virtual register.
    fn class(&self, reg: Reg) -> Class {
        match reg.virtual_index() {
            Some(index) => self.body.registers[index].class,
            None => Class::General,
        }
    }

    /// What holds where a scalar is not 0: a comparison with 0 needs no flags.
    fn test(&mut self, value: ValueId) -> Test {
        let (a, is_zero) = match self.uses.inst(value) {
            Some(&Ir::Compare {
                op: op @ (CompareOp::Eq | CompareOp::Ne),
                a,
                b,
            }) if self.held[value.index()].is_none() && self.uses.constant(b) == Some(0) => {
                (a, op == CompareOp::Eq)
            }
            Some(Ir::Compare { .. }) if self.held[value.index()].is_none() => {
                return Test::Flags(self.condition(value));
            }
            _ => (value, false),
        };
        Test::Zero {
            size: self.size(a),
            a: self.reg(a),
            is_zero,
        }
    }

    fn jump_if(&mut self, test: Test, to: Label) {
        self.push(match test {
            Test::Flags(cond) => Inst::JumpIf { cond, to },
            Test::Zero { size, a, is_zero } => Inst::JumpIfZero {
                size,
                a,
                is_zero,
                to,
            },
        });
    }

    fn is_next(&self, block: BlockId) -> bool {
        block.index() == self.block.index() + 1
    }
}

/// When a conditional jump jumps.
#[derive(Clone, Copy)]
enum Test {
    /// By the flags.
    Flags(Cond),
    /// Where a register is 0, or where it is not.
    Zero { size: Size, a: Reg, is_zero: bool },
}

impl Test {
    fn negated(self) -> Self {
        match self {
            Self::Flags(cond) => Self::Flags(cond.negated()),
            Self::Zero { size, a, is_zero } => Self::Zero {
                size,
                a,
                is_zero: !is_zero,
            },
        }
    }
}
