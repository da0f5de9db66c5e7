//! What one instruction does to what is known: the values that it computes, the flags, the memory that it touches.
//!
//! Everything that an instruction writes is forgotten first; then come the results that are known better. So an instruction
//! that is not modelled here costs precision, never soundness.

use yaxpeax_arm::armv8::a64::{Instruction, Opcode, Operand, ShiftStyle, SizeCode};

use super::function::Op;
use super::rules::{self, STACK, bits, general};
use super::state::{self, Condition, Flags, State};
use crate::audit::Accesses;
use crate::audit::analysis::State as _;
use crate::audit::fault::FaultKind;
use crate::audit::layout::{Access, Layout, within};
use crate::audit::number::{Number, low_bits};
use crate::audit::relation::Relation;
use crate::audit::value::{Base, Pointer, Value};

/// What cannot be proved of an instruction.
type Doubt = (FaultKind, String);

/// The least that a guard page covers.
const PAGE: u64 = 4096;

/// Carries `state` across one instruction.
///
/// # Errors
/// What cannot be proved; the state is right all the same, as if the access had been harmless.
pub(super) fn step(
    layout: Layout<'_>,
    state: &mut State,
    op: &Op,
    counts: &mut Accesses,
) -> Result<(), Doubt> {
    let (loaded, doubt) = match access(layout, state, op, counts) {
        Ok(loaded) => (loaded, None),
        Err(doubt) => (Value::ANY, Some(doubt)),
    };
    let Op { instruction, .. } = op;
    let moved = moved_stack(state, instruction);
    let result = Reader {
        layout,
        state,
        op,
        loaded,
    }
    .result();
    let advanced = advanced(state, instruction);
    let flags = flags(instruction);
    for register in rules::written(instruction) {
        state.set(register, Value::ANY);
    }
    if let Some((register, bits)) = general(instruction.operands[0])
        && rules::written(instruction).any(|written| written == register)
    {
        let result = match bits {
            64 => result,
            bits => result.low(bits),
        };
        state.set(register, result);
    }
    if let Some((register, value)) = advanced {
        state.set(register, value);
    }
    if let Some(flags) = flags {
        state.flags = flags;
    }
    if let Some(doubt) = doubt {
        return Err(doubt);
    }
    if let Some(sp) = moved {
        return move_stack(state, sp).map_err(|detail| (FaultKind::Stack, detail));
    }
    if instruction.opcode == Opcode::RET && state.stack.sp != Some(state.stack.top) {
        let detail = "sp is not where it was".into();
        return Err((FaultKind::Stack, detail));
    }
    Ok(())
}

/// Where an instruction moves sp, if it does; `None` inside where that is not known.
fn moved_stack(state: &State, instruction: &Instruction) -> Option<Option<u64>> {
    let Instruction {
        opcode, operands, ..
    } = *instruction;
    if rules::written(instruction).any(|register| register == STACK)
        && !matches!(operands[0], Operand::Register(..))
    {
        let is_from_stack = operands[1] == Operand::RegisterOrSP(SizeCode::X, STACK);
        let by = immediate(operands[2]).filter(|_| is_from_stack);
        return Some(match (opcode, by, state.stack.sp) {
            (Opcode::ADD, Some(by), Some(sp)) => sp.checked_add(by),
            (Opcode::SUB, Some(by), Some(sp)) => sp.checked_sub(by),
            _ => None,
        });
    }
    let advances_stack = operands.into_iter().any(|operand| {
        matches!(
            operand,
            Operand::RegPostIndex(STACK, _) | Operand::RegPreIndex(STACK, _, true)
        )
    });
    advances_stack.then_some(None)
}

/// Pages are touched one after the other, so that a guard page is never jumped over.
fn move_stack(state: &mut State, sp: Option<u64>) -> Result<(), String> {
    let stack = &mut state.stack;
    stack.sp = sp;
    let sp = sp.ok_or("sp moves by what is not known, or below the frame that is declared")?;
    if sp > stack.top || !sp.is_multiple_of(16) {
        return Err("sp is above the frame, or at no multiple of 16".into());
    }
    if stack.touched.saturating_sub(sp) > PAGE {
        return Err("a page is not touched".into());
    }
    Ok(())
}

/// Proves the memory access of an instruction, if it has one, and tells what it loads.
fn access(
    layout: Layout<'_>,
    state: &mut State,
    op: &Op,
    counts: &mut Accesses,
) -> Result<Value, Doubt> {
    let Some(access) = rules::access(&op.instruction) else {
        return Ok(Value::ANY);
    };
    let kind = if access.is_write {
        FaultKind::Write
    } else {
        FaultKind::Read
    };
    let address = address(layout, state, op);
    let proof = match address {
        Value::Pointer(pointer) => match pointer.base {
            Base::Stack => on_stack(state, pointer, access).inspect(|_| counts.scratch += 1),
            Base::Code => match relocated(layout, pointer, access) {
                Ok(Some(table)) => {
                    counts.pool += 1;
                    Ok(table)
                }
                Ok(None) => layout.access(pointer, access, state.elements, counts),
                Err(why) => Err(why),
            },
            _ => layout.access(pointer, access, state.elements, counts),
        },
        _ => Err("not an address of anything".into()),
    };
    proof.map_err(|why| {
        let detail = format!("{} bytes at {address}: {why}", access.bytes);
        (kind, detail)
    })
}

/// Memory of the frame that is allocated.
fn on_stack(state: &mut State, pointer: Pointer, access: Access) -> Result<Value, String> {
    let stack = &mut state.stack;
    let sp = stack.sp.ok_or("it is not known where sp is")?;
    within(pointer, access.bytes, sp, stack.top)?;
    if pointer.offset.as_constant() == Some(sp) {
        stack.touched = stack.touched.min(sp);
    }
    Ok(Value::Number(Number::of_bits(
        8 * access.bytes.min(8) as u32,
    )))
}

/// The address of a table, where that is what is loaded; nothing else may see a part of one, since the runtime writes it.
fn relocated(
    layout: Layout<'_>,
    pointer: Pointer,
    access: Access,
) -> Result<Option<Value>, String> {
    let (first, past) = (
        pointer.offset.min(),
        pointer.offset.max().saturating_add(access.bytes),
    );
    for relocation in &layout.code.relocations {
        let start = relocation.offset as u64;
        if access.bytes == 8 && pointer.offset.as_constant() == Some(start) {
            let base = layout.table_base(relocation.table);
            return Ok(base.map(Value::Pointer));
        }
        if first < start + 8 && start < past {
            return Err("part of the address of a table".into());
        }
    }
    Ok(None)
}

/// The address of the memory operand.
fn address(layout: Layout<'_>, state: &State, op: &Op) -> Value {
    let base = |register| match register {
        STACK => state.stack_pointer(),
        register => state.read(register, 64),
    };
    if let Some(offset) = op.relative() {
        return Value::Pointer(layout.code_address(offset));
    }
    let mut operands = op.instruction.operands.iter();
    let found = operands.find_map(|operand| {
        Some(match *operand {
            Operand::RegPreIndex(register, disp, _) => {
                base(register).add(Value::constant(i64::from(disp).cast_unsigned()))
            }
            Operand::RegPostIndex(register, _) => base(register),
            Operand::RegRegOffset(register, index, SizeCode::X, ShiftStyle::LSL, by) => {
                base(register).add(shifted(state.read(index, 64), by))
            }
            _ => return None,
        })
    });
    found.unwrap_or(Value::ANY)
}

/// A base register that advances, and what it holds then.
fn advanced(state: &State, instruction: &Instruction) -> Option<(u16, Value)> {
    instruction
        .operands
        .into_iter()
        .find_map(|operand| match operand {
            Operand::RegPostIndex(base, by) | Operand::RegPreIndex(base, by, true) => {
                let by = Value::constant(i64::from(by).cast_unsigned());
                Some((base, state.read(base, 64).add(by)))
            }
            _ => None,
        })
}

/// `value << by`
fn shifted(value: Value, by: u8) -> Value {
    match (value, by) {
        (value, 0) => value,
        (Value::Strides(count), by) => Value::Strides(count.mul(Number::constant(1 << by))),
        (value, by) => Value::Number(value.number().shl(by.into())),
    }
}

/// The number that an operand is.
pub(super) fn immediate(operand: Operand) -> Option<u64> {
    match operand {
        Operand::Immediate(value) => Some(value.into()),
        Operand::Imm64(value) => Some(value),
        Operand::Imm16(value) => Some(value.into()),
        Operand::ImmShift(value, by) => Some(u64::from(value) << by),
        _ => None,
    }
}

/// What the flags say afterwards, if the instruction sets them.
fn flags(instruction: &Instruction) -> Option<Flags> {
    let Instruction {
        opcode, operands, ..
    } = *instruction;
    if opcode != Opcode::SUBS {
        return None;
    }
    let right = match operands[2] {
        Operand::RegShift(ShiftStyle::LSL, 0, _, register) if register < STACK => {
            Some(state::Operand::Register(register.into()))
        }
        operand => immediate(operand).map(state::Operand::Number),
    };
    Some(match (general(operands[1]), right) {
        (Some((left, bits)), Some(right)) if left < STACK => Flags::Compare {
            left: left.into(),
            right,
            bits,
        },
        _ => Flags::Unknown,
    })
}

/// Reads operands of one instruction from the state before it.
struct Reader<'a> {
    layout: Layout<'a>,
    state: &'a State,
    op: &'a Op,
    /// What the memory operand holds.
    loaded: Value,
}

impl Reader<'_> {
    fn operand(&self, i: usize) -> Operand {
        self.op.instruction.operands[i]
    }

    /// Bits of the first operand.
    fn bits(&self) -> u32 {
        general(self.operand(0)).map_or(64, |(_, bits)| bits)
    }

    fn value(&self, i: usize) -> Value {
        match self.operand(i) {
            Operand::RegisterOrSP(SizeCode::X, STACK) => self.state.stack_pointer(),
            Operand::Register(size, register) | Operand::RegisterOrSP(size, register) => {
                self.state.read(register, bits(size))
            }
            Operand::RegShift(ShiftStyle::LSL, by, size, register) => {
                shifted(self.state.read(register, bits(size)), by)
            }
            operand => immediate(operand).map_or(Value::ANY, Value::constant),
        }
    }

    fn number(&self, i: usize) -> Number {
        self.value(i).number()
    }

    fn constant(&self, i: usize) -> Option<u32> {
        u32::try_from(immediate(self.operand(i))?).ok()
    }

    /// What the instruction writes to its first operand.
    fn result(&self) -> Value {
        use Opcode as O;
        let bits = self.bits();
        let any = Value::Number(Number::of_bits(bits));
        match self.op.instruction.opcode {
            O::ADD => self.sum(),
            O::SUB => self.value(1).sub(self.value(2)),
            O::AND => Value::Number(self.number(1).and(self.number(2))),
            // `mov` is an `orr` with the zero register.
            O::ORR if self.is_zero(1) => self.value(2),
            O::ORR => Value::Number(self.number(1).or(self.number(2))),
            O::EOR => Value::Number(self.number(1).xor(self.number(2))),
            O::MOVZ => self.value(1),
            O::MOVN => Value::Number(Number::constant(low_bits(bits)).sub(self.number(1))),
            O::MOVK => match (self.number(0).as_constant(), self.operand(1)) {
                (Some(held), Operand::ImmShift(imm, by)) => {
                    Value::constant(held & !(0xffff << by) | u64::from(imm) << by)
                }
                _ => any,
            },
            O::ADR => (self.op.relative()).map_or(any, |offset| {
                Value::Pointer(self.layout.code_address(offset))
            }),
            O::UBFM => self.bit_field().map_or(any, Value::Number),
            O::BFM => self.inserted().map_or(any, Value::Number),
            O::MADD => self.value(1).mul(self.value(2)).add(self.value(3)),
            O::CSEL => self.choice(),
            // As `cset`, which is all that it is used for.
            O::CSINC if self.is_zero(1) && self.is_zero(2) => Value::Number(Number::up_to(1)),
            // The bytes of two stay two.
            O::REV16 if self.number(1).max() <= low_bits(16) => Value::Number(Number::of_bits(16)),
            O::RBIT => Value::Number(self.number(1).truncate(bits).reversed(bits)),
            O::CLZ => Value::Number(self.number(1).truncate(bits).leading_zeros(bits)),
            O::LDR | O::LDRB | O::LDRH | O::LDUR | O::LDURB | O::LDURH => self.loaded,
            _ => any,
        }
    }

    fn sum(&self) -> Value {
        match (self.operand(1), self.operand(2)) {
            // `r + (r << n)` is a product: all of it are multiples of 1 + 2^n.
            (
                Operand::Register(_, one),
                Operand::RegShift(ShiftStyle::LSL, by @ 1..32, size, other),
            ) if one == other => {
                let factor = Value::constant(1 + (1 << by));
                self.state.read(one, bits(size)).mul(factor)
            }
            _ => self.value(1).add(self.value(2)),
        }
    }

    /// `bfi`: the low bits of operand 1 in place of some of operand 0.
    fn inserted(&self) -> Option<Number> {
        let (right, last, bits) = (self.constant(2)?, self.constant(3)?, self.bits());
        let first = bits.checked_sub(right).filter(|_| last < right)?;
        let replaced = low_bits(last + 1) << first;
        let kept = Number::constant(low_bits(bits) & !replaced);
        let inserted = self.number(1).truncate(last + 1).shl(first);
        Some(self.number(0).and(kept).or(inserted))
    }

    fn is_zero(&self, i: usize) -> bool {
        matches!(self.operand(i), Operand::Register(_, STACK))
    }

    /// `ubfm`: bits `last` down to `first` at the low end, or where that is less, `last` and below moved up by what is left.
    fn bit_field(&self) -> Option<Number> {
        let (first, last, bits) = (self.constant(2)?, self.constant(3)?, self.bits());
        let number = self.number(1);
        Some(if last >= first {
            number.truncate(last + 1).shr(first)
        } else {
            number.truncate(last + 1).shl(bits - first)
        })
    }

    /// Operand 1 where the condition holds, else operand 2, each with what the condition says about it.
    fn choice(&self) -> Value {
        let relation = match self.operand(3) {
            Operand::ConditionCode(condition) => rules::relation(condition),
            _ => None,
        };
        let Some(relation) = relation else {
            return self.value(1).join(self.value(2));
        };
        let given = |relation: Relation, i: usize| {
            let state = self.state.given(Condition::Flags(relation))?;
            Some(
                Reader {
                    state: &state,
                    ..*self
                }
                .value(i),
            )
        };
        match (given(relation, 1), given(relation.negated(), 2)) {
            (Some(one), Some(other)) => one.join(other),
            (Some(value), None) | (None, Some(value)) => value,
            (None, None) => Value::ANY,
        }
    }
}
