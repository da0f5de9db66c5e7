//! What is known at one point of the code, whichever path led there.

use crate::audit::analysis::{self, join_elements};
use crate::audit::number::{Number, low_bits};
use crate::audit::relation::Relation;
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
            (Some(value), bits) => value.low(bits),
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

    fn forget_flags_of(&mut self, register: usize) {
        if let Flags::Compare { left, right, .. } = self.flags
            && (left == register || right == Operand::Register(register))
        {
            self.flags = Flags::Unknown;
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
    type Condition = Condition;

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
            stack: Stack {
                top: self.stack.top,
                sp: self.stack.sp.filter(|&sp| other.stack.sp == Some(sp)),
                touched: self.stack.touched.max(other.stack.touched),
            },
        }
    }

    fn given(&self, condition: Condition) -> Option<Self> {
        let mut state = self.clone();
        match (condition, self.flags) {
            (Condition::Flags(relation), Flags::Compare { left, right, bits }) => {
                if let (Some(taken), Operand::Number(number), 64) =
                    (self.values[left].taken(self.elements), right, bits)
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
                let known = relation.given(a, b)?;
                state.learn(left, self.values[left].given(known.0, relation, b));
                if let Operand::Register(register) = right {
                    let value = self.values[register];
                    state.learn(register, value.given(known.1, relation.swapped(), a));
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
                    let known = number.at_most(0)?;
                    let value = self.values[register];
                    state.learn(register, value.given(known, Relation::Equal, Number::ZERO));
                }
            }
            (Condition::Zero { register, bits, .. }, _) => match self.values[register] {
                Value::Remaining { .. } if bits == 64 => {
                    let more = self.values[register]
                        .taken(self.elements)
                        .map_or(0, |taken| taken + 1);
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

    fn values(&mut self) -> impl Iterator<Item = &mut Value> {
        self.values.iter_mut()
    }

    fn elements(&mut self) -> &mut u64 {
        &mut self.elements
    }
}
