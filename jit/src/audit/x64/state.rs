//! What is known at one point of the code, whichever path led there.

use iced_x86::{ConditionCode, Register};

use super::registers::{COUNT, general};
use crate::audit::number::{Number, low_bits};
use crate::audit::value::Value;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct State {
    values: [Value; COUNT],
    pub(super) flags: Flags,
    /// Whether the current element certainly exists, so that its key may be read and its result written.
    pub(super) has_element: bool,
    /// Whether upper halves of vector registers may be in use.
    pub(super) has_upper_halves: bool,
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
    /// Where the zero flag is clear, this register holds `position`.
    FoundBit {
        register: usize,
        position: Number,
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
    pub(super) fn entry(arguments: &[(Register, Value)], has_element: bool) -> Self {
        let mut values = [Value::ANY; COUNT];
        for &(register, value) in arguments {
            if let Some(register) = general(register) {
                values[register] = value;
            }
        }
        Self {
            values,
            flags: Flags::Unknown,
            has_element,
            has_upper_halves: false,
        }
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
            bytes => Value::Number(value.number().truncate(8 * bytes as u32)),
        }
    }

    /// What the whole register holds once `value` has been written to it, or to the part of it that is named.
    pub(super) fn merged(&self, register: Register, value: Value) -> Value {
        match register.size() {
            8 => value,
            4 => Value::Number(value.number().truncate(32)),
            _ if is_high_byte(register) => Value::ANY,
            bytes => {
                let bits = 8 * bytes as u32;
                let low = value.number().truncate(bits);
                let old = self.read(register.full_register()).number();
                if old.max() <= low_bits(bits) {
                    return Value::Number(low);
                }
                Value::Number(old.shr(bits).shl(bits).add(low))
            }
        }
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
            has_element: self.has_element && other.has_element,
            has_upper_halves: self.has_upper_halves || other.has_upper_halves,
        }
    }

    /// Adds that `condition` holds.
    pub(super) fn assume(&mut self, condition: ConditionCode) {
        match (self.flags, condition) {
            (Flags::Compare { left, right, bits }, _) => {
                self.assume_order(left, right, bits, condition);
            }
            (Flags::ZeroOf { register, bits }, ConditionCode::ne) => match self.values[register] {
                // n - i is not 0, and i never exceeds n.
                Value::Remaining { taken: 0 } if bits == 64 => self.has_element = true,
                Value::Number(number) => self.values[register] = Value::Number(number.at_least(1)),
                _ => {}
            },
            (Flags::ZeroOf { register, bits }, ConditionCode::e) => {
                if let Some(number) = self.number_of(register, bits) {
                    self.values[register] = Value::Number(number.at_most(0));
                }
            }
            (Flags::FoundBit { register, position }, ConditionCode::ne) => {
                self.values[register] = Value::Number(position);
            }
            _ => {}
        }
    }

    fn assume_order(&mut self, left: usize, right: Operand, bits: u32, condition: ConditionCode) {
        let a = self.number_of(left, bits);
        let b = match right {
            Operand::Register(register) => self.number_of(register, bits),
            Operand::Number(number) => Some(number),
        };
        let (Some(a), Some(b)) = (a, b) else {
            return;
        };
        let (a, b) = match condition {
            ConditionCode::b => below(a, b),
            ConditionCode::be => not_above(a, b),
            ConditionCode::a => swap(below(b, a)),
            ConditionCode::ae => swap(not_above(b, a)),
            ConditionCode::e => (
                a.at_most(b.max()).at_least(b.min()),
                b.at_most(a.max()).at_least(a.min()),
            ),
            _ => return,
        };
        self.values[left] = Value::Number(a);
        if let Operand::Register(register) = right {
            self.values[register] = Value::Number(b);
        }
    }

    /// The number in a register, where its low `bits` bits are all of it.
    fn number_of(&self, register: usize, bits: u32) -> Option<Number> {
        match self.values[register] {
            Value::Number(number) if number.max() <= low_bits(bits) => Some(number),
            _ => None,
        }
    }

    /// Whether the batch loop may go on where `condition` holds: exactly one element has been taken off those that remain,
    /// and there is another one.
    pub(super) fn takes_one_element(&self, condition: ConditionCode) -> bool {
        let Flags::ZeroOf { register, bits: 64 } = self.flags else {
            return false;
        };
        condition == ConditionCode::ne
            && self.has_element
            && self.values[register] == Value::Remaining { taken: 1 }
    }

    /// Makes the next element, which exists, the current one.
    pub(super) fn next_element(&mut self) {
        self.values = self.values.map(Value::next_element);
    }
}

fn is_high_byte(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}

/// a < b
fn below(a: Number, b: Number) -> (Number, Number) {
    match (a.min().checked_add(1), b.max().checked_sub(1)) {
        (Some(min), Some(max)) => (a.at_most(max), b.at_least(min)),
        _ => (a, b),
    }
}

/// a <= b
fn not_above(a: Number, b: Number) -> (Number, Number) {
    (a.at_most(b.max()), b.at_least(a.min()))
}

fn swap<T>((b, a): (T, T)) -> (T, T) {
    (a, b)
}
