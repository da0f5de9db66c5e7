//! Blocks, loops and what is passed between them.
//!
//! Arguments become parameters by parallel moves on the edge: ahead of the jump where there is one successor, and behind
//! the conditional jump where there are two. A `repeat` moves first, then counts; so nothing that is needed after the loop
//! may be in a register that it overwrites, and [`Lowering::enter_loop`] sees to that.

use pktjit_ir::program::Terminator;
use pktjit_ir::{BlockId, ValueId};

use super::{END, LineNote, Lowering, OpenLoop, label_of};
use crate::isa::x64::abi::{self, Pass, next_trip};
use crate::isa::x64::inst::{Inst, Size};
use crate::isa::x64::regs::{MoveSource, Node, constant, copy};

/// Control.
impl<'a> Lowering<'a> {
    /// Gives each block parameter its register.
    pub(super) fn parameters(&mut self) {
        for block in &self.program.blocks {
            for &(value, ty) in &block.params {
                self.registers[value.index()] = Some(self.new_register(self.class_of(ty)));
            }
        }
    }

    pub(super) fn block(&mut self, id: BlockId) {
        let program = self.program;
        let block = &program.blocks[id.index()];
        self.block = id;
        self.scaled.clear();
        self.zeros = None;
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
            let reg = self.reg(value);
            let Some(index) = reg.virtual_index() else {
                continue;
            };
            self.body.registers[index].loop_head = Some(start);
            if self.uses.is_used_after(value, tail) || exit_args.contains(&value) {
                let class = self.body.registers[index].class;
                let kept = self.new_register(class);
                self.push(copy(class, kept, reg));
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
        self.pass_arguments(head, 1, args);
        if let (Some(trips), Some(&(counter, _))) = (block.trips, block.params.first()) {
            let counter = self.reg(counter);
            self.push_all(next_trip(counter, trips.cast_signed(), label_of(head)));
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
            let source = match self.uses.constant(arg) {
                Some(constant) => MoveSource::Const(constant),
                None => MoveSource::Reg(self.reg(arg)),
            };
            let dst = self.reg(param);
            let class = self.class_of(self.facts.facts(param).ty);
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
