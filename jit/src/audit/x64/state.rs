//! What is known at one point of the code, whichever path led there.

use iced_x86::{ConditionCode, Register};

use super::registers::{COUNT, general};
use super::stack::{Frame, Stack};
use crate::audit::number::{Number, low_bits};
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
            bytes => Value::Number(value.truncate(8 * bytes as u32)),
        }
    }

    /// What the whole register holds once `value` has been written to it, or to the part of it that is named.
    pub(super) fn merged(&self, register: Register, value: Value) -> Value {
        match register.size() {
            8 => value,
            4 => Value::Number(value.truncate(32)),
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

    /// A register that is about to be replaced by what is known of the counter of a loop.
    pub(super) fn counter(&mut self, register: usize) -> &mut Value {
        if self.flags.depends_on(register) {
            self.flags = Flags::Unknown;
        }
        &mut self.values[register]
    }

    pub(super) fn set(&mut self, register: usize, value: Value) {
        self.values[register] = value;
        if self.flags.depends_on(register) {
            self.flags = Flags::Unknown;
        }
    }

    /// What holds whether this state does or the other; bounds that move are widened if `widen`.
    pub(super) fn join(&self, other: &Self, widen: bool) -> Self {
        let combine = if widen { Value::widen } else { Value::join };
        Self {
            values: std::array::from_fn(|i| combine(self.values[i], other.values[i])),
            flags: if self.flags == other.flags {
                self.flags
            } else {
                Flags::Unknown
            },
            elements: match other.elements {
                fewer if fewer < self.elements && widen => 0,
                elements => elements.min(self.elements),
            },
            has_upper_halves: self.has_upper_halves || other.has_upper_halves,
            stack: self.stack.join(&other.stack, combine),
        }
    }

    /// What is known if `condition` holds as well; `None` where it cannot.
    pub(super) fn given(&self, condition: ConditionCode) -> Option<Self> {
        let mut state = self.clone();
        match (self.flags, condition) {
            (Flags::Compare { left, right, bits }, _) => {
                if let (Some(taken), Operand::Number(number), 64) = (self.taken(left), right, bits)
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
                let (a, b) = ordered(a, b, condition)?;
                state.values[left] = Value::Number(a);
                if let Operand::Register(register) = right {
                    state.values[register] = Value::Number(b);
                }
            }
            (Flags::ZeroOf { register, bits }, ConditionCode::ne) => match self.values[register] {
                Value::Remaining { .. } if bits == 64 => {
                    let more = self.taken(register).map_or(0, |taken| taken + 1);
                    state.elements = self.elements.max(more);
                }
                Value::Number(number) => {
                    state.values[register] = Value::Number(number.at_least(1)?);
                }
                _ => {}
            },
            (Flags::ZeroOf { register, bits }, ConditionCode::e) => {
                if let Some(number) = self.number_of(register, bits) {
                    state.values[register] = Value::Number(number.at_most(0)?);
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

    /// The number in a register, where its low `bits` bits are all of it.
    fn number_of(&self, register: usize, bits: u32) -> Option<Number> {
        match self.values[register] {
            Value::Number(number) if number.max() <= low_bits(bits) => Some(number),
            _ => None,
        }
    }

    /// How many elements are taken off those that remain, in a register that counts them; `None` where it does not, or where
    /// so many may not exist.
    fn taken(&self, register: usize) -> Option<u64> {
        self.taken_in(self.values[register])
    }

    fn taken_in(&self, value: Value) -> Option<u64> {
        match value {
            Value::Remaining { taken } if taken <= self.elements => Some(taken),
            _ => None,
        }
    }

    /// How many elements have been taken off those that remain, at least one: so often only can a loop go on.
    pub(super) fn taken_elements(&self) -> Option<u64> {
        let values = self.values.into_iter().chain(self.stack.stored());
        let taken = values.filter_map(|value| self.taken_in(value)).max();
        taken.filter(|&taken| taken > 0)
    }

    /// Makes the element that many after the current one the current one; so many exist.
    pub(super) fn later_element(&mut self, elements: u64) {
        self.values = self.values.map(|value| value.later_element(elements));
        self.stack.later_element(elements);
        self.elements -= elements;
    }
}

fn is_high_byte(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}

/// What is known of two numbers that compare like that; `None` where they cannot.
fn ordered(a: Number, b: Number, condition: ConditionCode) -> Option<(Number, Number)> {
    let below = |a: Number, b: Number| {
        let (max, min) = (b.max().checked_sub(1)?, a.min().checked_add(1)?);
        Some((a.at_most(max)?, b.at_least(min)?))
    };
    let not_above = |a: Number, b: Number| Some((a.at_most(b.max())?, b.at_least(a.min())?));
    let swap = |(b, a)| (a, b);
    match condition {
        ConditionCode::b => below(a, b),
        ConditionCode::a => below(b, a).map(swap),
        ConditionCode::be => not_above(a, b),
        ConditionCode::ae => not_above(b, a).map(swap),
        ConditionCode::e => {
            let (a, b) = not_above(a, b)?;
            not_above(b, a).map(swap)
        }
        _ => Some((a, b)),
    }
}
