//! Blocks, loops and what is passed between them.
//!
//! Arguments become parameters by parallel moves on the edge: ahead of the jump where there is one successor, and
//! behind the conditional jump where there are two. A `repeat` moves first, then counts; so nothing that is needed
//! after the loop may be in a register that it overwrites, and [`Lowering::enter_loop`] sees to that.

use pktjit_ir::program::Terminator;
use pktjit_ir::{BlockId, ValueId};

use super::{END, Held, LineNote, Lowering, Machine};
use crate::isa::inst::{Class, Label, Reg, Size};
use crate::isa::regs::{MoveSource, Node};
use crate::isa::staged::Pass;

/// A loop whose end has not come yet.
pub(super) struct OpenLoop {
    /// Its first node.
    start: usize,
    /// Parameters that are used after it, and the copies that serve there.
    escaping: Vec<(ValueId, Held)>,
}

/// The label at which a block starts.
fn label_of(block: BlockId) -> Label {
    Label(block.as_u32() + 1)
}

/// Control.
impl<'a, I: Machine> Lowering<'a, I> {
    /// Gives each block parameter its register.
    pub(super) fn parameters(&mut self) {
        for block in &self.program.blocks {
            for &(value, ty) in &block.params {
                self.registers[value.index()] = Some(I::registers(self, ty));
            }
        }
    }

    pub(super) fn block(&mut self, id: BlockId) {
        let program = self.program;
        let block = &program.blocks[id.index()];
        self.block = id;
        self.in_block = I::InBlock::default();
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
        for &(value, ty) in &self.program.blocks[head.index()].params {
            let held = self.held(value);
            for index in held.regs().filter_map(Reg::virtual_index) {
                self.body.registers[index].loop_head = Some(start);
            }
            if self.uses.is_used_after(value, tail) || exit_args.contains(&value) {
                let kept = I::registers(self, ty);
                for (dst, src) in kept.regs().zip(held.regs()) {
                    self.push(I::copy(self.class(src), dst, src));
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
                    Some(result) => self.push_all(I::constant(I::RESULT, result)),
                    None => {
                        let result = self.reg(*value);
                        self.push(I::mov(Size::S32, I::RESULT, result));
                    }
                }
                if self.block.index() + 1 < self.program.blocks.len() {
                    self.push(I::jump(END));
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
        if then_args.is_empty() && !(self.is_next(then) && else_args.is_empty()) {
            I::jump_if(self, cond, true, label_of(then));
            self.go(otherwise, else_args);
            return;
        }
        // Arguments are moved on the way to `then` alone.
        let to_else = if else_args.is_empty() {
            label_of(otherwise)
        } else {
            self.new_label()
        };
        I::jump_if(self, cond, false, to_else);
        self.go(then, then_args);
        if !else_args.is_empty() {
            if self.is_next(then) {
                // What follows is in between.
                self.push(I::jump(label_of(then)));
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
            I::next_trip(self, counter, trips, label_of(head));
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
            self.push(I::jump(label_of(to)));
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
                    let args = self.held(arg);
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

    fn is_next(&self, block: BlockId) -> bool {
        block.index() == self.block.index() + 1
    }
}
