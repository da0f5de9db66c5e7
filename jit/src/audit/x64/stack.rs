//! The stack of a function that may use it.
//!
//! ```text
//! ENTRY  return address
//!        saved registers     pushed before anything is allocated, popped in reverse; nothing else touches them
//!        scratch             allocated below by moving rsp; all that loads and stores may touch, registers saved by
//!                            stores among it
//! rsp
//! ```
//!
//! At each instruction on some path rsp is known exactly, and no deeper than a page below what was touched for certain:
//! a guard page is hit, not jumped over. A path that breaks this is a fault where it does, and what follows it unknown.

use iced_x86::{Code, Instruction, Mnemonic, Register};

use super::function::Op;
use super::registers::general;
use super::state::State;
use super::transfer::Doubt;
use crate::audit::fault::FaultKind;
use crate::audit::layout::{Access, within};
use crate::audit::number::Number;
use crate::audit::value::{Base, Pointer, Value};

/// Where rsp is at an entry, in bytes from [`Base::Stack`]; 8 more than a multiple of 16, as the ABI has it. It is more
/// than any frame takes, so that offsets are never negative.
const ENTRY: u64 = (128 << 10) - 8;
/// Most scratch that a function may declare: what a program may have, and half a page for what is spilled and aligned.
const MAX_SCRATCH: u64 = 4 * pktjit_ir::MAX_SCRATCH as u64 + PAGE / 2;
/// The least that a guard page covers.
pub(super) const PAGE: u64 = 4096;
/// Bytes of a saved register.
const SLOT: u64 = 8;
/// The number of rsp among the general registers.
const RSP: usize = 4;

/// Registers whose values belong to the caller.
pub(super) const CALLEE_SAVED: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Registers that a call may change, but for vector registers, which are not followed.
pub(super) const CALLER_SAVED: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// What is known of the stack.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Stack {
    /// The rules of single instructions forbid all use of it.
    Unused,
    Frame(Frame),
    /// Paths disagree, or a fault was found.
    Unknown,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Registers that were pushed, first to last.
    saved: Vec<usize>,
    /// Where in the scratch registers were stored, and what they held: Cranelift stores those of the caller there, and what it
    /// has no register for.
    stored: Vec<(u64, Value)>,
    /// The lowest byte that was touched for certain.
    touched: u64,
    /// Bytes that may be allocated.
    room: u64,
}

impl Frame {
    /// That of a function with `scratch` bytes, of which [`MAX_SCRATCH`] count, at its entry.
    pub(super) fn new(scratch: u32) -> Self {
        Self {
            saved: Vec::new(),
            stored: Vec::new(),
            // The return address.
            touched: ENTRY,
            room: u64::from(scratch).min(MAX_SCRATCH).next_multiple_of(16),
        }
    }

    /// What the registers hold at an entry: the stack pointer, and what belongs to the caller.
    pub(super) fn registers() -> impl Iterator<Item = (usize, Value)> {
        let callee_saved = CALLEE_SAVED.into_iter().filter_map(general);
        callee_saved
            .map(|register| (register, Value::Initial { register }))
            .chain([(RSP, address(ENTRY))])
    }

    /// The lowest byte of the saved registers.
    fn saves(&self) -> u64 {
        ENTRY - SLOT * self.saved.len() as u64
    }

    fn push(&mut self, rsp: Value, register: usize, value: Value) -> Result<Value, Doubt> {
        if rsp != address(self.saves()) {
            return Err(doubt("registers are saved before scratch is allocated"));
        }
        if value != (Value::Initial { register }) || self.saved.contains(&register) {
            return Err(doubt("not a register that still belongs to the caller"));
        }
        self.saved.push(register);
        self.touched = self.touched.min(self.saves());
        Ok(address(self.saves()))
    }

    fn pop(&mut self, rsp: Value, register: usize) -> Result<Value, Doubt> {
        if rsp != address(self.saves()) {
            return Err(doubt("rsp is not where registers were saved"));
        }
        if self.saved.pop() != Some(register) {
            return Err(doubt("not the register that was saved last"));
        }
        Ok(address(self.saves()))
    }

    fn stored_in_both(
        &self,
        other: &Self,
        combine: fn(Value, Value) -> Value,
    ) -> Vec<(u64, Value)> {
        let in_other = |at| other.stored.iter().find(|&&(slot, _)| slot == at);
        let both = self.stored.iter().filter_map(|&(at, value)| {
            let &(_, other) = in_other(at)?;
            Some((at, combine(value, other)))
        });
        both.filter(|&(_, value)| value != Value::ANY).collect()
    }

    /// Whether rsp may be moved there.
    fn moved(&mut self, rsp: Value) -> Result<(), Doubt> {
        let Some(to) = offset(rsp) else {
            return Err(doubt("it is not known where the stack pointer goes"));
        };
        match self.saves().checked_sub(to) {
            None => Err(doubt("saved registers or the return address are given up")),
            Some(bytes) if bytes > self.room => {
                let detail = format!("{bytes} bytes of scratch, {} are declared", self.room);
                Err((FaultKind::Stack, detail))
            }
            Some(_) if to + PAGE < self.touched => Err(doubt("a page is skipped without a probe")),
            Some(_) => {
                // What is below rsp may be overwritten at any time.
                self.stored.retain(|&(slot, _)| slot >= to);
                Ok(())
            }
        }
    }

    /// Whether rsp may be moved from one place to the other page after page, each touched.
    fn probed(&mut self, from: Value, to: Value) -> Result<(), Doubt> {
        let (Some(from), Some(to)) = (offset(from), offset(to)) else {
            return Err(doubt("it is not known where the stack pointer goes"));
        };
        // The last page is a whole one.
        let room = self.room.next_multiple_of(PAGE);
        match self.saves().checked_sub(to) {
            Some(bytes) if bytes <= room && from >= self.touched => {
                self.touched = to;
                Ok(())
            }
            _ => Err(doubt("more is probed than is declared")),
        }
    }

    /// Whether a return leaves everything as it was.
    fn returns(&self, rsp: Value, value: impl Fn(usize) -> Value) -> Result<(), Doubt> {
        if rsp != address(ENTRY) || !self.saved.is_empty() {
            return Err(doubt("rsp is not where it was at the entry"));
        }
        for register in CALLEE_SAVED {
            let Some(number) = general(register) else {
                continue;
            };
            if value(number) != (Value::Initial { register: number }) {
                let detail = format!("{register:?} may not hold what it held at the entry");
                return Err((FaultKind::CalleeSaved, detail));
            }
        }
        Ok(())
    }

    /// Proves an access to be inside the scratch, and tells what it loads. `source` is what operand 1 holds if it is a
    /// register.
    ///
    /// # Errors
    /// What could not be proved.
    pub(super) fn access(
        &mut self,
        rsp: Value,
        pointer: Pointer,
        access: Access,
        instruction: &Instruction,
        source: Value,
    ) -> Result<Value, String> {
        let Some(bottom) = offset(rsp) else {
            return Err("it is not known where the stack pointer is".into());
        };
        within(pointer, access.bytes, bottom, self.saves())?;
        // Others may leave memory alone, by a mask for example.
        let is_certain = matches!(
            instruction.mnemonic(),
            Mnemonic::Mov | Mnemonic::Or | Mnemonic::Test
        );
        if is_certain {
            self.touched = self.touched.min(pointer.offset.max());
        }
        let at = pointer.offset.as_constant();
        let mut stored = self.stored.iter();
        let loaded = match stored.find(|&&(slot, _)| Some(slot) == at) {
            Some(&(_, value)) if access.bytes == SLOT => value,
            _ => Value::Number(Number::of_bits(8 * access.bytes.min(8) as u32)),
        };
        if access.is_write {
            let (first, past) = (pointer.offset.min(), pointer.offset.max() + access.bytes);
            self.stored
                .retain(|&(slot, _)| slot + SLOT <= first || slot >= past);
        }
        if let (Code::Mov_rm64_r64, Some(at)) = (instruction.code(), at)
            && source != Value::ANY
        {
            self.stored.push((at, source));
        }
        Ok(loaded)
    }
}

impl Stack {
    /// The values that are kept there.
    pub(super) fn stored(&mut self) -> impl Iterator<Item = &mut Value> {
        let frame = match self {
            Self::Frame(frame) => Some(frame),
            Self::Unused | Self::Unknown => None,
        };
        let stored = frame.into_iter().flat_map(|frame| &mut frame.stored);
        stored.map(|(_, value)| value)
    }

    /// What is known whether this is or the other; `combine` does so for values.
    pub(super) fn join(&self, other: &Self, combine: fn(Value, Value) -> Value) -> Self {
        match (self, other) {
            (Self::Unused, Self::Unused) => Self::Unused,
            (Self::Frame(a), Self::Frame(b)) if a.saved == b.saved => Self::Frame(Frame {
                saved: a.saved.clone(),
                stored: a.stored_in_both(b, combine),
                touched: a.touched.max(b.touched),
                room: a.room,
            }),
            _ => Self::Unknown,
        }
    }
}

/// Carries the stack across an instruction whose other effects `state` shows already. `rsp` is from before it.
///
/// # Errors
/// What cannot be proved.
pub(super) fn step(state: &mut State, op: &Op, rsp: Value) -> Result<(), Doubt> {
    if state.stack == Stack::Unused || !op.written.contains(RSP) {
        return Ok(());
    }
    // Nothing is known once something could not be proved.
    let Stack::Frame(mut frame) = std::mem::replace(&mut state.stack, Stack::Unknown) else {
        return Err(doubt("it is not known what is on the stack"));
    };
    let instruction = &op.instruction;
    if let Some(bytes) = op.probed {
        let to = rsp.sub(Value::constant(bytes));
        frame.probed(rsp, to)?;
        state.set(RSP, to);
        state.stack = Stack::Frame(frame);
        return Ok(());
    }
    match (instruction.mnemonic(), general(instruction.op0_register())) {
        (Mnemonic::Push, Some(register)) => {
            let rsp = frame.push(rsp, register, state.value(register))?;
            state.set(RSP, rsp);
        }
        (Mnemonic::Pop, Some(register)) => {
            let rsp = frame.pop(rsp, register)?;
            state.set(RSP, rsp);
            state.set(register, Value::Initial { register });
        }
        (Mnemonic::Call, _) => state.set(RSP, calls(rsp)?),
        (Mnemonic::Ret, _) => frame.returns(rsp, |register| state.value(register))?,
        _ => frame.moved(state.value(RSP))?,
    }
    state.stack = Stack::Frame(frame);
    Ok(())
}

/// What rsp is after a call at this one, which has to be aligned as the ABI has it.
fn calls(rsp: Value) -> Result<Value, Doubt> {
    match offset(rsp) {
        Some(to) if to.is_multiple_of(16) => Ok(rsp),
        _ => Err(doubt("rsp is not at a multiple of 16")),
    }
}

fn address(offset: u64) -> Value {
    Value::Pointer(Base::Stack.pointer().add(Number::constant(offset)))
}

/// Where an address on the stack is, if that is known exactly.
fn offset(address: Value) -> Option<u64> {
    match address {
        Value::Pointer(pointer) if pointer.base == Base::Stack => pointer.offset.as_constant(),
        _ => None,
    }
}

fn doubt(detail: &str) -> Doubt {
    (FaultKind::Stack, detail.into())
}
