//! What a register holds on every path: a number, or an address that was derived from what the caller passed or from
//! where the tables are. Whatever is neither is [`Value::ANY`].
//!
//! **Elements.** In the batch entries, what is known is relative to the current element i, the number of elements that trips
//! of the batch loops have taken so far: `Remaining { taken: 0 }` is n - i, `Key { ahead: 0 }` the key i, the array and result
//! pointers count bytes from element i. Advancing a register makes it point ahead; the way back to the head of the loop makes
//! a later element the current one ([`Value::later_element`]), and what was not advanced is lost.

use std::fmt;

use pktjit_ir::TableId;

use super::number::Number;

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
    /// Elements that are left, less those `taken` already: n - i - taken.
    Remaining {
        taken: u64,
    },
    /// What a register that belongs to the caller held at the entry.
    Initial {
        register: usize,
    },
}

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
            Self::Number(number) => number,
            _ => Number::ANY,
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
            _ => Self::ANY,
        }
    }

    pub(super) fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(a.add(b)),
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
            Self::Number(_) | Self::Low { .. } | Self::Strides(_) | Self::Initial { .. } => self,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "the number {number}"),
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
