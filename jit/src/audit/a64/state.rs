//! What is known at one point of the code, whichever path led there.

use crate::audit::number::{Number, low_bits};
use crate::audit::value::{Base, Value};

/// x0 to x30.
const COUNT: usize = 31;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct State {
    values: [Value; COUNT],
    pub(super) flags: Flags,
    /// How many elements certainly exist from the current one on, so that their keys may be read and their results written.
    pub(super) elements: u64,
    pub(super) stack: Stack,
}

/// The stack: offsets count from the lowest byte of the frame that is declared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stack {
    /// Where sp was at the entry.
    pub(super) top: u64,
    /// Where it is; `None` where paths disagree.
    pub(super) sp: Option<u64>,
    /// The lowest place at which sp was touched, or the entry.
    pub(super) touched: u64,
}

/// What the flags say, as long as the registers that are named have not changed: they compare two operands of so many bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    Unknown,
    Compare {
        left: usize,
        right: Operand,
        bits: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    Register(usize),
    Number(u64),
}

/// How two numbers compare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Below,
    BelowOrEqual,
    Above,
    AboveOrEqual,
}

/// When a branch is taken, or an operand is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    Flags(Relation),
    /// The low bits of a register are all 0, or not all of them.
    Zero {
        register: usize,
        bits: u32,
        is_zero: bool,
    },
}

impl Relation {
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Below => Self::AboveOrEqual,
            Self::BelowOrEqual => Self::Above,
            Self::Above => Self::BelowOrEqual,
            Self::AboveOrEqual => Self::Below,
        }
    }

    /// What is known of two numbers that compare like that; `None` where they cannot.
    fn given(self, a: Number, b: Number) -> Option<(Number, Number)> {
        let below = |a: Number, b: Number| {
            let (max, min) = (b.max().checked_sub(1)?, a.min().checked_add(1)?);
            Some((a.at_most(max)?, b.at_least(min)?))
        };
        let not_above = |a: Number, b: Number| Some((a.at_most(b.max())?, b.at_least(a.min())?));
        let swap = |(b, a)| (a, b);
        match self {
            Self::Below => below(a, b),
            Self::Above => below(b, a).map(swap),
            Self::BelowOrEqual => not_above(a, b),
            Self::AboveOrEqual => not_above(b, a).map(swap),
            Self::Equal => {
                let (a, b) = not_above(a, b)?;
                not_above(b, a).map(swap)
            }
            Self::NotEqual => Some((a, b)),
        }
    }
}

impl Condition {
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Always => Self::Always,
            Self::Flags(relation) => Self::Flags(relation.negated()),
            Self::Zero {
                register,
                bits,
                is_zero,
            } => Self::Zero {
                register,
                bits,
                is_zero: !is_zero,
            },
        }
    }
}

impl State {
    /// At an entry with a frame of so many bytes, where the first registers hold arguments and nothing is known of the others.
    pub(super) fn entry(arguments: &[Value], elements: u64, frame: u64) -> Self {
        let mut values = [Value::ANY; COUNT];
        values[..arguments.len()].copy_from_slice(arguments);
        Self {
            values,
            flags: Flags::Unknown,
            elements,
            stack: Stack {
                top: frame,
                sp: Some(frame),
                touched: frame,
            },
        }
    }

    /// The low bits of a register.
    pub(super) fn read(&self, register: u16, bits: u32) -> Value {
        match (self.values.get(usize::from(register)), bits) {
            (Some(&value), 64) => value,
            (Some(value), bits) => Value::Number(value.truncate(bits)),
            // The zero register.
            (None, _) => Value::constant(0),
        }
    }

    /// sp as an address.
    pub(super) fn stack_pointer(&self) -> Value {
        match self.stack.sp {
            Some(sp) => Value::Pointer(Base::Stack.pointer().add(Number::constant(sp))),
            None => Value::ANY,
        }
    }

    pub(super) fn set(&mut self, register: u16, value: Value) {
        let register = usize::from(register);
        if let Some(held) = self.values.get_mut(register) {
            *held = value;
        }
        self.forget_flags_of(register);
    }

    /// A register that is about to be replaced by what is known of the counter of a loop.
    pub(super) fn counter(&mut self, register: usize) -> &mut Value {
        self.forget_flags_of(register);
        &mut self.values[register]
    }

    fn forget_flags_of(&mut self, register: usize) {
        if let Flags::Compare { left, right, .. } = self.flags
            && (left == register || right == Operand::Register(register))
        {
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
            stack: Stack {
                top: self.stack.top,
                sp: self.stack.sp.filter(|&sp| other.stack.sp == Some(sp)),
                touched: self.stack.touched.max(other.stack.touched),
            },
        }
    }

    /// What is known if `condition` holds as well; `None` where it cannot.
    pub(super) fn given(&self, condition: Condition) -> Option<Self> {
        let mut state = self.clone();
        match (condition, self.flags) {
            (Condition::Flags(relation), Flags::Compare { left, right, bits }) => {
                if let (Some(taken), Operand::Number(number), 64) = (self.taken(left), right, bits)
                    && relation == Relation::AboveOrEqual
                {
                    // That many are left after those that were taken.
                    state.elements = self.elements.max(taken.saturating_add(number));
                }
                let a = self.number_of(left, bits);
                let b = match right {
                    Operand::Register(register) => self.number_of(register, bits),
                    Operand::Number(number) => Some(Number::constant(number)),
                };
                let (Some(a), Some(b)) = (a, b) else {
                    return Some(state);
                };
                let (a, b) = relation.given(a, b)?;
                state.values[left] = Value::Number(a);
                if let Operand::Register(register) = right {
                    state.values[register] = Value::Number(b);
                }
            }
            (
                Condition::Zero {
                    register,
                    bits,
                    is_zero: true,
                },
                _,
            ) => {
                if let Some(number) = self.number_of(register, bits) {
                    state.values[register] = Value::Number(number.at_most(0)?);
                }
            }
            (Condition::Zero { register, bits, .. }, _) => match self.values[register] {
                Value::Remaining { .. } if bits == 64 => {
                    let more = self.taken(register).map_or(0, |taken| taken + 1);
                    state.elements = self.elements.max(more);
                }
                Value::Number(number) if number.max() <= low_bits(bits) => {
                    state.values[register] = Value::Number(number.at_least(1)?);
                }
                _ => {}
            },
            (Condition::Always | Condition::Flags(_), _) => {}
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
        match self.values[register] {
            Value::Remaining { taken } if taken <= self.elements => Some(taken),
            _ => None,
        }
    }

    /// How many elements have been taken off those that remain, at least one: so often only can a loop go on.
    pub(super) fn taken_elements(&self) -> Option<u64> {
        let taken = (0..COUNT).filter_map(|register| self.taken(register)).max();
        taken.filter(|&taken| taken > 0)
    }

    /// Makes the element that many after the current one the current one; so many exist.
    pub(super) fn later_element(&mut self, elements: u64) {
        self.values = self.values.map(|value| value.later_element(elements));
        self.elements -= elements;
    }
}
