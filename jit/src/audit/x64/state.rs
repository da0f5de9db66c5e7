//! What is known at one point of the code, whichever path led there.

use iced_x86::{ConditionCode, Register};

use super::registers::{COUNT, general};
use super::stack::{Frame, Stack};
use crate::audit::analysis::{self, join_elements};
use crate::audit::number::{Number, low_bits};
use crate::audit::relation::Relation;
use crate::audit::value::Value;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct State {
    values: [Value; COUNT],
    pub(super) flags: Flags,
    /// How many elements certainly exist from the current one on, so that their keys may be read and their results written.
    pub(super) elements: u64,
    /// Whether upper halves of vector registers may be in use.
    pub(super) has_upper_halves: bool,
    pub(super) stack: Stack,
}

/// What the flags say, as long as the registers that are named have not changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    Unknown,
    /// Those of the subtraction of two operands of `bits` bits.
    Compare {
        left: usize,
        right: Operand,
        bits: u32,
        /// A register to which one of the operands has been copied since, and that operand.
        copy: Option<(usize, usize)>,
    },
    /// The zero flag is set if the low `bits` bits of this register are 0.
    ZeroOf {
        register: usize,
        bits: u32,
    },
    /// Where the zero flag is clear, this register holds `position`; it is clear if a bit is certainly set.
    FoundBit {
        register: usize,
        position: Number,
        is_certain: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    Register(usize),
    Number(Number),
}

impl Flags {
    fn depends_on(self, register: usize) -> bool {
        match self {
            Self::Unknown => false,
            Self::Compare { left, right, .. } => {
                left == register || right == Operand::Register(register)
            }
            Self::ZeroOf { register: r, .. } | Self::FoundBit { register: r, .. } => r == register,
        }
    }

    /// What they still say once a register is written.
    fn without(self, register: usize) -> Self {
        match self {
            _ if self.depends_on(register) => Self::Unknown,
            Self::Compare {
                left,
                right,
                bits,
                copy: Some((to, _)),
            } if to == register => Self::Compare {
                left,
                right,
                bits,
                copy: None,
            },
            _ => self,
        }
    }
}

impl State {
    /// At an entry, where some registers hold arguments and nothing is known of the others.
    pub(super) fn entry(arguments: &[(Register, Value)], elements: u64) -> Self {
        let mut values = [Value::ANY; COUNT];
        for &(register, value) in arguments {
            if let Some(register) = general(register) {
                values[register] = value;
            }
        }
        Self {
            values,
            flags: Flags::Unknown,
            elements,
            has_upper_halves: false,
            stack: Stack::Unused,
        }
    }

    /// The same in a function that may use the stack.
    pub(super) fn with_frame(mut self, frame: Frame) -> Self {
        for (register, value) in Frame::registers() {
            self.values[register] = value;
        }
        self.stack = Stack::Frame(frame);
        self
    }

    pub(super) fn value(&self, register: usize) -> Value {
        self.values[register]
    }

    /// What a register, or the part of it that is named, holds.
    pub(super) fn read(&self, register: Register) -> Value {
        let Some(full) = general(register) else {
            return Value::ANY;
        };
        let value = self.values[full];
        match register.size() {
            8 => value,
            _ if is_high_byte(register) => Value::Number(Number::of_bits(8)),
            bytes => value.low(8 * bytes as u32),
        }
    }

    /// What the whole register holds once `value` has been written to it, or to the part of it that is named.
    pub(super) fn merged(&self, register: Register, value: Value) -> Value {
        match register.size() {
            8 => value,
            4 => value.low(32),
            _ if is_high_byte(register) => Value::ANY,
            bytes => {
                let bits = 8 * bytes as u32;
                let number = value.number().truncate(bits);
                match self.read(register.full_register()) {
                    Value::Number(old) if old.max() <= low_bits(bits) => Value::Number(number),
                    _ => Value::Low { bits, number },
                }
            }
        }
    }

    pub(super) fn set(&mut self, register: usize, value: Value) {
        self.values[register] = value;
        self.flags = self.flags.without(register);
    }

    /// One register has been copied to another: what flags say of the one they say of the other.
    pub(super) fn copied(&mut self, to: usize, from: usize) {
        let is_copied = self.flags.depends_on(from);
        if let Flags::Compare { copy, .. } = &mut self.flags
            && is_copied
        {
            *copy = Some((to, from));
        }
    }

    /// The number in a register, where its low `bits` bits are all of it.
    fn number_of(&self, register: usize, bits: u32) -> Option<Number> {
        self.values[register].number_of(bits)
    }

    fn learn(&mut self, register: usize, value: Value) {
        analysis::learn(self, self.values[register], value);
        self.values[register] = value;
    }
}

impl analysis::State for State {
    type Condition = ConditionCode;

    fn join(&self, other: &Self, widen: bool) -> Self {
        let combine = if widen { Value::widen } else { Value::join };
        Self {
            values: std::array::from_fn(|i| combine(self.values[i], other.values[i])),
            flags: if self.flags == other.flags {
                self.flags
            } else {
                Flags::Unknown
            },
            elements: join_elements(self.elements, other.elements, widen),
            has_upper_halves: self.has_upper_halves || other.has_upper_halves,
            stack: self.stack.join(&other.stack, combine),
        }
    }

    fn given(&self, condition: ConditionCode) -> Option<Self> {
        let mut state = self.clone();
        match (self.flags, condition) {
            (
                Flags::Compare {
                    left,
                    right,
                    bits,
                    copy,
                },
                _,
            ) => {
                if let (Some(taken), Operand::Number(number), 64) =
                    (self.values[left].taken(self.elements), right, bits)
                    && condition == ConditionCode::ae
                {
                    // That many are left after those that were taken.
                    state.elements = self.elements.max(taken.saturating_add(number.min()));
                }
                let a = self.number_of(left, bits);
                let b = match right {
                    Operand::Register(register) => self.number_of(register, bits),
                    Operand::Number(number) => Some(number),
                };
                let (Some(a), Some(b)) = (a, b) else {
                    return Some(state);
                };
                let Some(relation) = relation(condition) else {
                    return Some(state);
                };
                let known = relation.given(a, b)?;
                state.learn(left, self.values[left].given(known.0, relation, b));
                if let Operand::Register(register) = right {
                    let value = self.values[register];
                    state.learn(register, value.given(known.1, relation.swapped(), a));
                }
                if let Some((to, from)) = copy {
                    state.values[to] = state.values[from];
                }
            }
            (Flags::ZeroOf { register, bits }, ConditionCode::ne) => match self.values[register] {
                Value::Remaining { .. } if bits == 64 => {
                    let more = self.values[register]
                        .taken(self.elements)
                        .map_or(0, |taken| taken + 1);
                    state.elements = self.elements.max(more);
                }
                Value::Number(number) => {
                    state.values[register] = Value::Number(number.at_least(1)?);
                }
                _ => {}
            },
            (Flags::ZeroOf { register, bits }, ConditionCode::e) => {
                if let Some(number) = self.number_of(register, bits) {
                    let known = number.at_most(0)?;
                    let value = self.values[register];
                    state.learn(register, value.given(known, Relation::Equal, Number::ZERO));
                }
            }
            (Flags::FoundBit { is_certain, .. }, ConditionCode::e) if is_certain => return None,
            (
                Flags::FoundBit {
                    register, position, ..
                },
                ConditionCode::ne,
            ) => {
                state.values[register] = Value::Number(position);
            }
            _ => {}
        }
        Some(state)
    }

    fn values(&mut self) -> impl Iterator<Item = &mut Value> {
        self.values.iter_mut().chain(self.stack.stored())
    }

    fn elements(&mut self) -> &mut u64 {
        &mut self.elements
    }
}

fn is_high_byte(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}

/// What a condition says of two operands that were compared, unless it is about their signs.
fn relation(condition: ConditionCode) -> Option<Relation> {
    Some(match condition {
        ConditionCode::e => Relation::Equal,
        ConditionCode::ne => Relation::NotEqual,
        ConditionCode::b => Relation::Below,
        ConditionCode::be => Relation::BelowOrEqual,
        ConditionCode::a => Relation::Above,
        ConditionCode::ae => Relation::AboveOrEqual,
        _ => return None,
    })
}
