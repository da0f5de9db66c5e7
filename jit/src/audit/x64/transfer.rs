//! What one instruction does to what is known: the values that it computes, the flags, the memory that it touches.
//!
//! Everything that an instruction may write is forgotten first; then come the results that are known better. So an
//! instruction that is not modelled here costs precision, never soundness.

use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::function::{Op, negate};
use super::registers::{COUNT, general};
use super::rules::{is_cmov, is_setcc};
use super::stack::{self, Stack};
use super::state::{Flags, Operand, State};
use crate::audit::Accesses;
use crate::audit::analysis::State as _;
use crate::audit::fault::FaultKind;
use crate::audit::layout::Layout;
use crate::audit::number::{Number, low_bits};
use crate::audit::value::{Base, CURRENT_KEY, Value};

/// What cannot be proved of an instruction.
pub(super) type Doubt = (FaultKind, String);

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
    let instruction = &op.instruction;
    let rsp = state.read(Register::RSP);
    let key = state.read(Register::RDI);
    let (loaded, doubt) = match access(layout, state, op, counts) {
        Ok(loaded) => (loaded, None),
        Err(doubt) => (Value::ANY, Some(doubt)),
    };
    let reader = Reader {
        layout,
        state,
        op,
        loaded,
    };
    let results = reader.results();
    let flags = reader.flags();
    for register in (0..COUNT).filter(|&register| op.written.contains(register)) {
        state.set(register, Value::ANY);
    }
    for (register, value) in results.into_iter().flatten() {
        if op.written.contains(register) {
            state.set(register, value);
        }
    }
    if instruction.rflags_modified() != 0 {
        state.flags = flags;
    }
    if let (Code::Mov_r64_rm64 | Code::Mov_rm64_r64, Some(to), Some(from)) = (
        instruction.code(),
        general(instruction.op0_register()),
        general(instruction.op1_register()),
    ) && to != from
    {
        state.copied(to, from);
    }
    let doubt = doubt.or(stack::step(state, op, rsp).err());
    match instruction.mnemonic() {
        Mnemonic::Call => {
            // The callee leaves upper halves clean, if they are when it is called.
            state.flags = Flags::Unknown;
            if key != Value::Pointer(CURRENT_KEY.pointer()) || state.elements == 0 {
                let detail = format!("lookup takes the current key, not {key}");
                return Err((FaultKind::Call, detail));
            }
        }
        Mnemonic::Vzeroupper | Mnemonic::Vzeroall => state.has_upper_halves = false,
        Mnemonic::Ret if state.has_upper_halves => {
            let detail = "upper halves of vector registers may be in use".into();
            return Err((FaultKind::UpperHalves, detail));
        }
        _ => {
            let mut operands = 0..instruction.op_count();
            let is_wide = |register: Register| register.is_ymm() || register.is_zmm();
            state.has_upper_halves |= operands.any(|i| is_wide(instruction.op_register(i)));
        }
    }
    doubt.map_or(Ok(()), Err)
}

/// Proves the memory access of an instruction, if it has one, and tells what it loads.
fn access(
    layout: Layout<'_>,
    state: &mut State,
    op: &Op,
    counts: &mut Accesses,
) -> Result<Value, Doubt> {
    let Some(access) = op.access else {
        return Ok(Value::ANY);
    };
    let kind = if access.is_write {
        FaultKind::Write
    } else {
        FaultKind::Read
    };
    let address = address(layout, state, &op.instruction);
    let rsp = state.read(Register::RSP);
    let source = state.read(op.instruction.op1_register());
    let proof = match address {
        Value::Pointer(pointer) if pointer.base == Base::Stack => match &mut state.stack {
            _ if !layout.is_aligned(pointer, access.alignment) => {
                Err(format!("not at a multiple of {}", access.alignment))
            }
            Stack::Frame(frame) => frame
                .access(rsp, pointer, access, &op.instruction, source)
                .inspect(|_| counts.scratch += 1),
            _ => Err("it is not known what is on the stack".into()),
        },
        Value::Pointer(pointer) => layout.access(pointer, access, state.elements, counts),
        _ => Err("not an address of anything".into()),
    };
    proof.map_err(|why| {
        let detail = format!("{} bytes at {address}: {why}", access.bytes);
        (kind, detail)
    })
}

/// The address of the memory operand.
fn address(layout: Layout<'_>, state: &State, instruction: &Instruction) -> Value {
    let displacement = instruction.memory_displacement64();
    if instruction.is_ip_rel_memory_operand() {
        return Value::Pointer(layout.code_address(displacement));
    }
    let part = |register| match register {
        Register::None => Value::constant(0),
        _ => state.read(register),
    };
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let scale = u64::from(instruction.memory_index_scale());
    let scaled = |register, scale| match (part(register), scale) {
        (index, 1) => index,
        (index, scale) => Value::Number(index.number().mul(Number::constant(scale))),
    };
    // `[r + 4 r]` is a product: all of it are multiples of 5.
    let sum = if base == index {
        scaled(index, scale + 1)
    } else {
        part(base).add(scaled(index, scale))
    };
    sum.add(Value::constant(displacement))
}

/// Reads operands of one instruction from the state before it.
struct Reader<'a> {
    layout: Layout<'a>,
    state: &'a State,
    op: &'a Op,
    /// What the memory operand holds.
    loaded: Value,
}

/// A register, whole, and what is in it after an instruction.
type Written = Option<(usize, Value)>;

impl Reader<'_> {
    fn instruction(&self) -> &Instruction {
        &self.op.instruction
    }

    /// The register that is operand `i`, if that is a general one.
    fn register(&self, i: u32) -> Option<Register> {
        let instruction = self.instruction();
        (instruction.op_kind(i) == OpKind::Register)
            .then(|| instruction.op_register(i))
            .filter(|register| register.is_gpr())
    }

    /// Bits of operand `i`.
    fn bits(&self, i: u32) -> u32 {
        let bytes = match self.instruction().op_kind(i) {
            OpKind::Register => self.instruction().op_register(i).size(),
            OpKind::Memory => self.instruction().memory_size().size(),
            _ => 8,
        };
        8 * bytes.min(8) as u32
    }

    fn value(&self, i: u32) -> Value {
        let instruction = self.instruction();
        match instruction.op_kind(i) {
            OpKind::Register => self.state.read(instruction.op_register(i)),
            OpKind::Memory => self.loaded,
            // Immediates are as wide as the first operand.
            _ => match instruction.try_immediate(i) {
                Ok(value) => Value::constant(value & low_bits(self.bits(0))),
                Err(_) => Value::ANY,
            },
        }
    }

    fn number(&self, i: u32) -> Number {
        self.value(i).number()
    }

    /// Writes operand 0, where that is a register.
    fn result(&self, value: Value) -> [Written; 2] {
        [self.written(0, value), None]
    }

    fn written(&self, i: u32, value: Value) -> Written {
        let register = self.register(i)?;
        Some((general(register)?, self.state.merged(register, value)))
    }

    /// What the instruction computes; registers that it writes and that are not among them may hold anything.
    fn results(&self) -> [Written; 2] {
        use Mnemonic as M;
        let instruction = self.instruction();
        let bits = self.bits(0);
        let number = |number| self.result(Value::Number(number));
        if is_cmov(instruction) {
            return self.result(self.conditional_move());
        }
        if is_setcc(instruction) {
            return number(Number::up_to(1));
        }
        match instruction.mnemonic() {
            M::Mov => match self.op.relocated {
                Some(table) => {
                    let base = self.layout.table_base(table);
                    self.result(base.map_or(Value::ANY, Value::Pointer))
                }
                None => self.result(self.value(1)),
            },
            M::Movzx => self.result(self.value(1)),
            M::Movsx | M::Movsxd if self.number(1).max() <= low_bits(self.bits(1) - 1) => {
                self.result(self.value(1))
            }
            M::Movbe => number(Number::of_bits(self.bits(0))),
            M::Lea => self.result(address(self.layout, self.state, instruction)),
            M::Xchg => match (self.register(0), self.register(1)) {
                (Some(a), Some(b)) if a.full_register() != b.full_register() => [
                    self.written(0, self.value(1)),
                    self.written(1, self.value(0)),
                ],
                _ => [None; 2],
            },
            M::Add => self.result(self.value(0).add(self.value(1))),
            M::Sub if self.is_same() => number(Number::ZERO),
            M::Sub => self.result(self.value(0).sub(self.value(1))),
            M::Inc => self.result(self.value(0).add(Value::constant(1))),
            M::Dec => self.result(self.value(0).sub(Value::constant(1))),
            M::Neg => self.result(Value::constant(0).sub(self.value(0))),
            M::Not => number(Number::constant(low_bits(bits)).sub(self.number(0))),
            M::And => number(self.number(0).and(self.number(1))),
            M::Or => number(self.number(0).or(self.number(1))),
            M::Xor if self.is_same() => number(Number::ZERO),
            M::Xor => number(self.number(0).xor(self.number(1))),
            M::Andn => number(self.number(2).and(Number::of_bits(bits))),
            M::Imul if instruction.op_count() == 2 => self.result(self.value(0).mul(self.value(1))),
            M::Imul if instruction.op_count() == 3 => self.result(self.value(1).mul(self.value(2))),
            M::Shl => number(self.left(0, 1)),
            M::Shlx => number(self.left(1, 2)),
            M::Shr => number(self.right(0, 1)),
            M::Shrx => number(self.right(1, 2)),
            M::Rol | M::Ror => self.result(Value::ANY),
            M::Popcnt => number(self.number(1).count_ones()),
            M::Pext => number(self.number(1).pext(self.number(2))),
            M::Tzcnt => {
                let found = self.number(1).first_bit();
                number(found.unwrap_or(Number::up_to(bits.into())))
            }
            // Without a set bit the whole register, not only the part that is named, is undefined.
            M::Bsf => match self.number(1).first_bit() {
                Some(position) => number(position),
                None => [None; 2],
            },
            M::Bsr => [None; 2],
            M::Blsr | M::Blsi | M::Bextr | M::Bzhi => number(Number::up_to(self.number(1).max())),
            M::Movmskps
            | M::Vmovmskps
            | M::Movmskpd
            | M::Vmovmskpd
            | M::Pmovmskb
            | M::Vpmovmskb => number(Number::of_bits(self.lanes())),
            M::Kmovb => number(Number::of_bits(8)),
            M::Kmovw => number(Number::of_bits(16)),
            // The upper half of a register whose lower half is written is cleared.
            _ if bits == 32 => number(Number::of_bits(32)),
            _ => [None; 2],
        }
    }

    /// Whether both operands of a two-operand instruction are the same register.
    fn is_same(&self) -> bool {
        let register = self.register(0);
        register.is_some() && register == self.register(1)
    }

    /// Lanes of the vector whose sign bits are gathered.
    fn lanes(&self) -> u32 {
        let lane_bytes = match self.instruction().mnemonic() {
            Mnemonic::Movmskpd | Mnemonic::Vmovmskpd => 8,
            Mnemonic::Movmskps | Mnemonic::Vmovmskps => 4,
            _ => 1,
        };
        self.instruction().op1_register().size() as u32 / lane_bytes
    }

    fn left(&self, a: u32, by: u32) -> Number {
        match self.shift_count(by) {
            Some(by) => self.number(a).shl(by),
            None => Number::ANY,
        }
    }

    fn right(&self, a: u32, by: u32) -> Number {
        match self.shift_count(by) {
            Some(by) => self.number(a).shr(by),
            None => Number::up_to(self.number(a).max()),
        }
    }

    /// The CPU takes the count modulo 64 or 32.
    fn shift_count(&self, i: u32) -> Option<u32> {
        let modulus = self.bits(0).max(32);
        let count = self.number(i).as_constant()?;
        Some((count % u64::from(modulus)) as u32)
    }

    /// Operand 1 where the condition holds, else operand 0, each with what the condition says about it.
    fn conditional_move(&self) -> Value {
        let condition = self.instruction().condition_code();
        let given = |condition: ConditionCode, i: u32| {
            let state = self.state.given(condition)?;
            Some(match self.register(i) {
                Some(register) => state.read(register),
                None => self.value(i),
            })
        };
        match (given(condition, 1), given(negate(condition), 0)) {
            (Some(moved), Some(kept)) => moved.join(kept),
            (Some(value), None) | (None, Some(value)) => value,
            (None, None) => Value::ANY,
        }
    }

    /// What the flags say afterwards, if the instruction changes them.
    fn flags(&self) -> Flags {
        use Mnemonic as M;
        let Some(register) = self.register(0).filter(|register| register.size() >= 4) else {
            return Flags::Unknown;
        };
        let Some(left) = general(register) else {
            return Flags::Unknown;
        };
        let bits = self.bits(0);
        match self.instruction().mnemonic() {
            M::Cmp => {
                let right = match self.register(1).and_then(general) {
                    Some(right) => Operand::Register(right),
                    None => Operand::Number(self.number(1)),
                };
                Flags::Compare {
                    left,
                    right,
                    bits,
                    copy: None,
                }
            }
            M::Test if !self.is_same() => Flags::Unknown,
            M::Test | M::Add | M::Sub | M::And | M::Or | M::Xor | M::Inc | M::Dec | M::Neg => {
                Flags::ZeroOf {
                    register: left,
                    bits,
                }
            }
            M::Bsf => {
                let certain = self.number(1).first_bit();
                let last = self.number(1).max().max(1).ilog2();
                Flags::FoundBit {
                    register: left,
                    position: certain.unwrap_or(Number::up_to(last.into())),
                    is_certain: certain.is_some(),
                }
            }
            _ => Flags::Unknown,
        }
    }
}
