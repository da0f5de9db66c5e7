//! What a register holds on every path: a number, or an address that was derived from what the caller passed or from
//! where the tables are. Whatever is neither is [`Value::ANY`].
//!
//! **Elements.** In the batch entries, what is known is relative to the current element i, the number of elements that trips
//! of the batch loops have taken so far: `Remaining { taken: 0 }` is n - i, `Key { ahead: 0 }` the key i, the array and result
//! pointers count bytes from element i. Advancing a register makes it point ahead; the way back to the head of the loop makes
//! a later element the current one ([`Value::later_element`]), and what was not advanced is lost.
//!
//! **Trips.** Each loop has a count that no code need hold: 0 where the loop is entered, and with each way back so much more as
//! the value has gained that the way back is justified by. What is 0 where the loop is entered is that count until paths disagree
//! ([`Value::first_trip`]), wherever it is moved and stored; [`Trip::ahead`] is what was added to it since the head, and
//! [`Value::next_trip`] makes what is that much ahead the count of the next trip.

use std::fmt;

use pktjit_ir::TableId;

use super::number::{Number, low_bits};
use super::relation::Relation;

/// Bytes of a key address in the array of `lookup_batch_ptrs`.
pub(super) const ADDRESS_BYTES: u64 = 8;
/// Bytes of one result.
pub(super) const RESULT_BYTES: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(Number),
    /// Something whose low `bits` bits are this number: what a write of a part of a register leaves.
    Low {
        bits: u32,
        number: Number,
    },
    Pointer(Pointer),
    /// So many times the bytes from key to key.
    Strides(Number),
    Trip(Trip),
    /// Elements that are left, less those `taken` already: n - i - taken.
    Remaining {
        taken: u64,
    },
    /// What a register that belongs to the caller held at the entry.
    Initial {
        register: usize,
    },
}

/// The count of a loop, and what was added to it in the current trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trip {
    /// The block that is the head of the loop.
    head: usize,
    ahead: u64,
    /// The sum.
    number: Number,
    /// A bound of the sum that comparisons have shown in this trip, whatever it was at the head.
    bound: u64,
}

/// Most that a loop may count to, and by.
const MAX_TRIPS: u64 = i32::MAX as u64;

/// The address `base + row + offset`, modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) base: Base,
    /// What was added in whole rows, in bytes; 0 unless the base is a table. Kept apart, since `offset` tells the column.
    pub(super) row: Number,
    pub(super) offset: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The key of the element that many after the current one.
    Key { ahead: Number },
    /// Where the current element's key address is.
    KeyArray,
    /// The current element's result.
    Results,
    /// The first byte of a table.
    Table { table: TableId, row_bytes: u64 },
    /// The first byte of the code.
    Code,
    /// A multiple of 16 below all of the stack that a function may use.
    Stack,
}

/// The key of the current element.
pub(super) const CURRENT_KEY: Base = Base::Key {
    ahead: Number::ZERO,
};

impl Base {
    /// The address itself.
    pub(super) fn pointer(self) -> Pointer {
        Pointer {
            base: self,
            row: Number::ZERO,
            offset: Number::ZERO,
        }
    }
}

impl Pointer {
    pub(super) fn add(self, number: Number) -> Self {
        let Base::Table { row_bytes, .. } = self.base else {
            return Self {
                offset: self.offset.add(number),
                ..self
            };
        };
        if number.is_multiple_of(row_bytes) {
            return Self {
                row: self.row.add(number),
                ..self
            };
        }
        // The address of a number in a constant row; negative constants are large numbers and stay whole.
        let (rows, rest) = match number.as_constant() {
            Some(bytes) if bytes >> 63 == 0 => (
                Number::constant(bytes - bytes % row_bytes),
                Number::constant(bytes % row_bytes),
            ),
            _ => (Number::ZERO, number),
        };
        Self {
            row: self.row.add(rows),
            offset: self.offset.add(rest),
            ..self
        }
    }

    fn combine(self, other: Self, f: fn(Number, Number) -> Number) -> Option<Self> {
        let base = match (self.base, other.base) {
            (Base::Key { ahead: a }, Base::Key { ahead: b }) => Base::Key { ahead: f(a, b) },
            (a, b) if a == b => a,
            _ => return None,
        };
        Some(Self {
            base,
            row: f(self.row, other.row),
            offset: f(self.offset, other.offset),
        })
    }
}

impl Value {
    /// Whatever 64 bits can be.
    pub(super) const ANY: Self = Self::Number(Number::ANY);

    pub(super) const fn constant(value: u64) -> Self {
        Self::Number(Number::constant(value))
    }

    /// What is known about it as a number.
    pub(super) fn number(self) -> Number {
        match self {
            Self::Number(number) | Self::Trip(Trip { number, .. }) => number,
            _ => Number::ANY,
        }
    }

    /// The number, if it is one of `bits` bits and nothing else.
    pub(super) fn number_of(self, bits: u32) -> Option<Number> {
        match self {
            Self::Number(number) | Self::Trip(Trip { number, .. }) => Some(number),
            _ => None,
        }
        .filter(|number| number.max() <= low_bits(bits))
    }

    /// What no loop counts by.
    fn uncounted(self) -> Self {
        match self {
            Self::Trip(trip) => Self::Number(trip.number),
            _ => self,
        }
    }

    /// Its low bits.
    pub(super) fn low(self, bits: u32) -> Self {
        match self {
            Self::Trip(trip) if trip.number.max() <= low_bits(bits) => self,
            _ => Self::Number(self.truncate(bits)),
        }
    }

    /// Whether both are certainly the same number, since both are the count of a loop and as much.
    pub(super) fn is_same_trip(self, other: Self) -> bool {
        match (self, other) {
            (Self::Trip(a), Self::Trip(b)) => (a.head, a.ahead) == (b.head, b.ahead),
            _ => false,
        }
    }

    /// What is known of the number `a` once it is known to be `known` and to relate like that to `b`.
    pub(super) fn given(self, known: Number, relation: Relation, b: Number) -> Self {
        match self {
            Self::Trip(trip) => {
                let bound = relation.bound(trip.number, b).unwrap_or(u64::MAX);
                Self::Trip(Trip {
                    number: known,
                    bound: trip.bound.min(bound),
                    ..trip
                })
            }
            _ => Self::Number(known),
        }
    }

    /// The same where the loop is entered.
    pub(super) fn first_trip(self, head: usize) -> Self {
        let value = match self {
            // Of the last time that it was entered.
            Self::Trip(trip) if trip.head == head => self.uncounted(),
            _ => self,
        };
        if value != Self::constant(0) {
            return value;
        }
        Self::Trip(Trip {
            head,
            ahead: 0,
            number: Number::ZERO,
            bound: u64::MAX,
        })
    }

    /// How much further the count is than in the last trip, if it is and cannot go on without end.
    pub(super) fn gain(self, head: usize) -> Option<u64> {
        match self {
            Self::Trip(trip) if trip.head == head => (1..=MAX_TRIPS)
                .contains(&trip.ahead)
                .then_some(trip.ahead)
                .filter(|_| trip.bound <= MAX_TRIPS),
            _ => None,
        }
    }

    /// The same in the next trip, whose count is `gain` more than that of this one.
    pub(super) fn next_trip(self, head: usize, gain: u64) -> Self {
        match self {
            Self::Trip(trip) if trip.head == head && trip.ahead == gain => Self::Trip(Trip {
                ahead: 0,
                // At once all that it may ever be: so there is nothing to widen.
                number: Number::up_to(trip.bound),
                bound: u64::MAX,
                ..trip
            }),
            Self::Trip(trip) if trip.head == head => self.uncounted(),
            _ => self,
        }
    }

    /// How many elements were taken off those that remain; `None` where it does not tell, or where so many may not exist.
    pub(super) fn taken(self, elements: u64) -> Option<u64> {
        match self {
            Self::Remaining { taken } if taken <= elements => Some(taken),
            _ => None,
        }
    }

    /// What is known about its low bits as a number.
    pub(super) fn truncate(self, bits: u32) -> Number {
        match self {
            Self::Low { bits: low, number } if bits <= low => number.truncate(bits),
            _ => self.number().truncate(bits),
        }
    }

    pub(super) fn join(self, other: Self) -> Self {
        self.combine(other, Number::join)
    }

    pub(super) fn widen(self, other: Self) -> Self {
        self.combine(other, Number::widen)
    }

    fn combine(self, other: Self, f: fn(Number, Number) -> Number) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Number(a), Self::Number(b)) => Self::Number(f(a, b)),
            (Self::Low { bits, number: a }, Self::Low { bits: n, number: b }) if bits == n => {
                let number = f(a, b).truncate(bits);
                Self::Low { bits, number }
            }
            (Self::Pointer(a), Self::Pointer(b)) => {
                a.combine(b, f).map_or(Self::ANY, Self::Pointer)
            }
            (Self::Trip(a), Self::Trip(b)) if self.is_same_trip(other) => Self::Trip(Trip {
                number: f(a.number, b.number),
                bound: a.bound.max(b.bound),
                ..a
            }),
            (Self::Trip(_), _) | (_, Self::Trip(_)) => {
                self.uncounted().combine(other.uncounted(), f)
            }
            _ => Self::ANY,
        }
    }

    pub(super) fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(a.add(b)),
            (Self::Trip(trip), Self::Number(number)) | (Self::Number(number), Self::Trip(trip))
                if let Some(by) = number.as_constant() =>
            {
                Self::Trip(Trip {
                    ahead: trip.ahead.wrapping_add(by),
                    number: trip.number.add(number),
                    bound: trip.bound.saturating_add(by),
                    ..trip
                })
            }
            (Self::Trip(_), _) | (_, Self::Trip(_)) => self.uncounted().add(other.uncounted()),
            (Self::Pointer(pointer), Self::Number(number))
            | (Self::Number(number), Self::Pointer(pointer)) => Self::Pointer(pointer.add(number)),
            (Self::Pointer(pointer), Self::Strides(count))
            | (Self::Strides(count), Self::Pointer(pointer)) => match pointer.base {
                Base::Key { ahead } => Self::Pointer(Pointer {
                    base: Base::Key {
                        ahead: ahead.add(count),
                    },
                    ..pointer
                }),
                _ => Self::ANY,
            },
            (Self::Remaining { taken }, Self::Number(number))
            | (Self::Number(number), Self::Remaining { taken }) => match number.as_constant() {
                Some(number) => Self::Remaining {
                    taken: taken.wrapping_sub(number),
                },
                None => Self::ANY,
            },
            _ => Self::ANY,
        }
    }

    pub(super) fn sub(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(a.sub(b)),
            (Self::Trip(_), _) | (_, Self::Trip(_)) => self.uncounted().sub(other.uncounted()),
            (_, Self::Number(number)) => match number.as_constant() {
                Some(value) => self.add(Self::constant(value.wrapping_neg())),
                None => Self::ANY,
            },
            _ => Self::ANY,
        }
    }

    pub(super) fn mul(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(a.mul(b)),
            (Self::Trip(_), _) | (_, Self::Trip(_)) => self.uncounted().mul(other.uncounted()),
            (Self::Strides(a), Self::Number(b)) | (Self::Number(a), Self::Strides(b)) => {
                Self::Strides(a.mul(b))
            }
            _ => Self::ANY,
        }
    }

    /// The same 64 bits, told relative to the element that many after the current one.
    pub(super) fn later_element(self, elements: u64) -> Self {
        let less = |number: Number, less: u64| match number.as_constant() {
            Some(number) => number.checked_sub(less).map(Number::constant),
            None => None,
        };
        let past = |pointer: Pointer, bytes: u64| {
            let offset = less(pointer.offset, elements.checked_mul(bytes)?)?;
            Some(Pointer { offset, ..pointer })
        };
        let pointer = |pointer: Option<Pointer>| pointer.map_or(Self::ANY, Self::Pointer);
        match self {
            Self::Pointer(from) => match from.base {
                Base::Key { ahead } => pointer(less(ahead, elements).map(|ahead| Pointer {
                    base: Base::Key { ahead },
                    ..from
                })),
                Base::KeyArray => pointer(past(from, ADDRESS_BYTES)),
                Base::Results => pointer(past(from, RESULT_BYTES)),
                Base::Table { .. } | Base::Code | Base::Stack => self,
            },
            Self::Remaining { taken } => taken
                .checked_sub(elements)
                .map_or(Self::ANY, |taken| Self::Remaining { taken }),
            Self::Number(_)
            | Self::Low { .. }
            | Self::Trip(_)
            | Self::Strides(_)
            | Self::Initial { .. } => self,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) | Self::Trip(Trip { number, .. }) => {
                write!(f, "the number {number}")
            }
            Self::Low { bits, number } => write!(f, "low {bits} bits {number}"),
            Self::Strides(count) => write!(f, "strides {count}"),
            Self::Initial { .. } => f.write_str("a register of the caller"),
            Self::Remaining { taken } => write!(f, "the remaining elements - {taken}"),
            Self::Pointer(pointer) => {
                match pointer.base {
                    CURRENT_KEY => f.write_str("the key")?,
                    Base::Key { ahead } => write!(f, "the key {ahead} after the current one")?,
                    Base::KeyArray => f.write_str("the key addresses")?,
                    Base::Results => f.write_str("the results")?,
                    Base::Table { table, .. } => write!(f, "{table} + rows {}", pointer.row)?,
                    Base::Code => f.write_str("the code")?,
                    Base::Stack => f.write_str("the stack")?,
                }
                write!(f, " + {}", pointer.offset)
            }
        }
    }
}
