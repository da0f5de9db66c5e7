//! What the auditor knows about an unsigned 64-bit number: an interval, the distance of the numbers in it that are
//! possible, and bits that are certainly set.
//!
//! Each operation covers every result of every pair of possible operands, modulo 2^64. It may cover more, never less.

use std::fmt;

/// The numbers `min`, `min + step`, ... `max` that have all `ones` set. `step` is 0 for a single number, and divides
/// `max - min` otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    min: u64,
    max: u64,
    step: u64,
    ones: u64,
}

impl Number {
    /// Any number.
    pub(super) const ANY: Self = Self::up_to(u64::MAX);
    /// Zero.
    pub(super) const ZERO: Self = Self::constant(0);

    pub(super) const fn constant(value: u64) -> Self {
        Self {
            min: value,
            max: value,
            step: 0,
            ones: value,
        }
    }

    pub(super) const fn up_to(max: u64) -> Self {
        let step = if max == 0 { 0 } else { 1 };
        Self {
            min: 0,
            max,
            step,
            ones: 0,
        }
    }

    /// Any number of that many bits.
    pub(super) const fn of_bits(bits: u32) -> Self {
        Self::up_to(low_bits(bits))
    }

    /// `max` need not be a whole number of steps from `min`.
    fn new(min: u64, max: u64, step: u64, ones: u64) -> Self {
        let step = step.max(1);
        let max = max - (max - min) % step;
        if min == max {
            return Self::constant(min);
        }
        Self {
            min,
            max,
            step,
            ones,
        }
    }

    pub(super) const fn min(self) -> u64 {
        self.min
    }

    pub(super) const fn max(self) -> u64 {
        self.max
    }

    pub(super) fn as_constant(self) -> Option<u64> {
        (self.min == self.max).then_some(self.min)
    }

    /// Whether every possible number is a multiple of `unit`.
    pub(super) fn is_multiple_of(self, unit: u64) -> bool {
        self.min.is_multiple_of(unit) && self.step.is_multiple_of(unit)
    }

    /// Low bits that are certainly clear.
    fn low_zeros(self) -> u32 {
        self.min.trailing_zeros().min(self.step.trailing_zeros())
    }

    /// Multiples of `2^zeros` up to `max`.
    fn aligned(min: u64, max: u64, zeros: u32, ones: u64) -> Self {
        match 1u64.checked_shl(zeros) {
            Some(step) => Self::new(min & !(step - 1), max & !(step - 1), step, ones),
            None => Self::ZERO,
        }
    }

    pub(super) fn join(self, other: Self) -> Self {
        let step = gcd(gcd(self.step, other.step), self.min.abs_diff(other.min));
        let (min, max) = (self.min.min(other.min), self.max.max(other.max));
        Self::new(min, max, step, self.ones & other.ones)
    }

    /// Like `join`, but a chain of these ends soon: bounds that move jump to 0 or to all bits of the next usual width.
    pub(super) fn widen(self, other: Self) -> Self {
        let joined = self.join(other);
        if joined == self {
            return self;
        }
        let min = if joined.min < self.min { 0 } else { joined.min };
        let max = if joined.max > self.max {
            low_bits(
                (64 - joined.max.leading_zeros())
                    .next_power_of_two()
                    .clamp(8, 64),
            )
        } else {
            joined.max
        };
        let step = gcd(joined.step, joined.min - min);
        Self::new(min, max, step, joined.ones)
    }

    pub(super) fn add(self, other: Self) -> Self {
        let (min, low_wraps) = self.min.overflowing_add(other.min);
        let (max, high_wraps) = self.max.overflowing_add(other.max);
        if low_wraps != high_wraps {
            return Self::ANY;
        }
        Self::new(min, max, gcd(self.step, other.step), 0)
    }

    pub(super) fn sub(self, other: Self) -> Self {
        let (min, low_wraps) = self.min.overflowing_sub(other.max);
        let (max, high_wraps) = self.max.overflowing_sub(other.min);
        if low_wraps != high_wraps {
            return Self::ANY;
        }
        Self::new(min, max, gcd(self.step, other.step), 0)
    }

    pub(super) fn mul(self, other: Self) -> Self {
        let Some(max) = self.max.checked_mul(other.max) else {
            return Self::ANY;
        };
        // (m + i s)(n + j t) = m n + j (m t) + i (n s) + i j (s t); no term is above `max`.
        let step = gcd(
            gcd(self.min * other.step, other.min * self.step),
            self.step * other.step,
        );
        Self::new(self.min * other.min, max, step, 0)
    }

    /// `by` below 64.
    pub(super) fn shl(self, by: u32) -> Self {
        if self.max.leading_zeros() < by {
            return Self::aligned(0, u64::MAX, by, self.ones << by);
        }
        Self::new(
            self.min << by,
            self.max << by,
            self.step << by,
            self.ones << by,
        )
    }

    /// `by` below 64.
    pub(super) fn shr(self, by: u32) -> Self {
        let step = if self.step.trailing_zeros() >= by {
            self.step >> by
        } else {
            1
        };
        Self::new(self.min >> by, self.max >> by, step, self.ones >> by)
    }

    pub(super) fn and(self, other: Self) -> Self {
        if let Some((a, b)) = self.constants(other) {
            return Self::constant(a & b);
        }
        for (mask, number) in [(self, other), (other, self)] {
            if mask.as_constant() == Some(all_bits(mask.max)) && number.max <= mask.max {
                return number;
            }
        }
        let zeros = self.low_zeros().max(other.low_zeros());
        let ones = self.ones & other.ones;
        Self::aligned(ones, self.max.min(other.max), zeros, ones)
    }

    pub(super) fn or(self, other: Self) -> Self {
        if let Some((a, b)) = self.constants(other) {
            return Self::constant(a | b);
        }
        let ones = self.ones | other.ones;
        let zeros = self.low_zeros().min(other.low_zeros());
        Self::aligned(
            self.min.max(other.min).max(ones),
            self.union_max(other),
            zeros,
            ones,
        )
    }

    pub(super) fn xor(self, other: Self) -> Self {
        if let Some((a, b)) = self.constants(other) {
            return Self::constant(a ^ b);
        }
        let zeros = self.low_zeros().min(other.low_zeros());
        Self::aligned(0, self.union_max(other), zeros, 0)
    }

    fn constants(self, other: Self) -> Option<(u64, u64)> {
        Some((self.as_constant()?, other.as_constant()?))
    }

    /// No number whose bits are bits of one or the other is above this.
    fn union_max(self, other: Self) -> u64 {
        all_bits(self.max | other.max).min(self.max.saturating_add(other.max))
    }

    /// The bits of `self` that `mask` selects, gathered at the low end.
    pub(super) fn pext(self, mask: Self) -> Self {
        let selected = match mask.as_constant() {
            Some(mask) => mask.count_ones(),
            None => 64 - mask.max.leading_zeros(),
        };
        Self::up_to(low_bits(selected).min(all_bits(self.max)))
    }

    /// The low `bits` bits.
    pub(super) fn truncate(self, bits: u32) -> Self {
        let mask = low_bits(bits);
        if self.max <= mask {
            return self;
        }
        if self.min & !mask == self.max & !mask {
            return Self::new(
                self.min & mask,
                self.max & mask,
                self.step,
                self.ones & mask,
            );
        }
        Self::aligned(0, mask, self.low_zeros(), self.ones & mask)
    }

    /// Position of the lowest set bit, where one is certainly set.
    pub(super) fn first_bit(self) -> Option<Self> {
        match (self.ones, self.min) {
            (0, 0) => None,
            (0, _) => Some(Self::up_to(self.max.ilog2().into())),
            (ones, _) => Some(Self::up_to(ones.trailing_zeros().into())),
        }
    }

    /// The low `bits` bits in the opposite order, of a number that has no more.
    pub(super) fn reversed(self, bits: u32) -> Self {
        match self.as_constant() {
            Some(value) => Self::constant(value.reverse_bits() >> (64 - bits)),
            None => Self::of_bits(bits).or(Self::constant(self.ones.reverse_bits() >> (64 - bits))),
        }
    }

    /// How many of its `bits` bits are clear above the highest one that is set.
    pub(super) fn leading_zeros(self, bits: u32) -> Self {
        let clear = |number: u64| u64::from((bits + number.leading_zeros()).saturating_sub(64));
        Self::new(clear(self.max), clear(self.min), 1, 0)
    }

    /// The number of set bits.
    pub(super) fn count_ones(self) -> Self {
        Self::up_to(u64::from(64 - self.max.leading_zeros()))
    }

    /// Those up to `max`, if any.
    pub(super) fn at_most(self, max: u64) -> Option<Self> {
        let max = max.min(self.max);
        (max >= self.min).then(|| Self::new(self.min, max, self.step, self.ones))
    }

    /// Those from `min` on, if any.
    pub(super) fn at_least(self, min: u64) -> Option<Self> {
        let more = min.saturating_sub(self.min);
        // Up to the next possible number; `max` is one, so there is a next one.
        let steps = more.div_ceil(self.step.max(1));
        (min <= self.max)
            .then(|| Self::new(self.min + steps * self.step, self.max, self.step, self.ones))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_constant() {
            Some(value) => write!(f, "{value}"),
            None if self.step > 1 => write!(f, "{}..={} by {}", self.min, self.max, self.step),
            None => write!(f, "{}..={}", self.min, self.max),
        }
    }
}

/// The number whose `bits` low bits are set, `bits` at most 64.
pub(super) const fn low_bits(bits: u32) -> u64 {
    match u64::MAX.checked_shr(64 - bits) {
        Some(mask) => mask,
        None => 0,
    }
}

/// All bits that a number up to `max` can have.
const fn all_bits(max: u64) -> u64 {
    low_bits(64 - max.leading_zeros())
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::{Arbitrary, Gen, QuickCheck};

    impl Number {
        fn holds(self, value: u64) -> bool {
            (self.min..=self.max).contains(&value)
                && (value - self.min).is_multiple_of(self.step.max(1))
                && value & self.ones == self.ones
        }
    }

    /// A few numbers of about the same size, and what is known about them.
    #[derive(Clone, Debug)]
    struct Sample(Vec<u64>);

    impl Sample {
        fn number(&self) -> Number {
            self.0
                .iter()
                .map(|&value| Number::constant(value))
                .reduce(Number::join)
                .unwrap_or(Number::ZERO)
        }
    }

    impl Arbitrary for Sample {
        fn arbitrary(g: &mut Gen) -> Self {
            let shift = u32::arbitrary(g) % 64;
            let unit = 1 + u64::from(u8::arbitrary(g) % 70);
            let count = 1 + usize::arbitrary(g) % 4;
            Self(
                (0..count)
                    .map(|_| (u64::arbitrary(g) >> shift).wrapping_mul(unit))
                    .collect(),
            )
        }

        fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
            Box::new(self.0.shrink().filter(|v| !v.is_empty()).map(Self))
        }
    }

    fn check(property: fn(Sample, Sample, u8) -> bool) {
        QuickCheck::new()
            .tests(5000)
            .min_tests_passed(5000)
            .quickcheck(property);
    }

    /// Every result of the concrete operation is covered by the abstract one.
    fn covers(a: &Sample, b: &Sample, concrete: impl Fn(u64, u64) -> u64, result: Number) -> bool {
        a.0.iter()
            .all(|&x| b.0.iter().all(|&y| result.holds(concrete(x, y))))
    }

    #[test]
    fn qc_arithmetic_covers_every_result() {
        check(|a, b, _| {
            let (x, y) = (a.number(), b.number());
            covers(&a, &b, u64::wrapping_add, x.add(y))
                && covers(&a, &b, u64::wrapping_sub, x.sub(y))
                && covers(&a, &b, u64::wrapping_mul, x.mul(y))
        });
    }

    #[test]
    fn qc_bit_operations_cover_every_result() {
        fn pext(value: u64, mask: u64) -> u64 {
            let bits = (0..64).filter(|bit| mask >> bit & 1 == 1);
            bits.enumerate()
                .fold(0, |sum, (to, from)| sum | (value >> from & 1) << to)
        }
        check(|a, b, _| {
            let (x, y) = (a.number(), b.number());
            covers(&a, &b, |x, y| x & y, x.and(y))
                && covers(&a, &b, |x, y| x | y, x.or(y))
                && covers(&a, &b, |x, y| x ^ y, x.xor(y))
                && covers(&a, &b, pext, x.pext(y))
                && covers(&a, &b, |x, _| x.count_ones().into(), x.count_ones())
                && x.first_bit()
                    .is_none_or(|bit| covers(&a, &b, |x, _| x.trailing_zeros().into(), bit))
        });
    }

    #[test]
    fn qc_shifts_and_truncation_cover_every_result() {
        check(|a, b, by| {
            let (x, by) = (a.number(), u32::from(by) % 64);
            covers(&a, &b, |x, _| x << by, x.shl(by))
                && covers(&a, &b, |x, _| x >> by, x.shr(by))
                && covers(&a, &b, |x, _| x & low_bits(by), x.truncate(by))
        });
    }

    #[test]
    fn qc_joins_and_refinements_keep_what_is_possible() {
        check(|a, b, _| {
            let (x, y) = (a.number(), b.number());
            let bound = b.0[0];
            let rest = |keep: fn(u64, u64) -> bool| {
                a.0.iter().copied().filter(move |&value| keep(value, bound))
            };
            covers(&a, &b, |x, _| x, x.join(y))
                && covers(&a, &b, |_, y| y, x.widen(y))
                && rest(|value, bound| value <= bound)
                    .all(|v| x.at_most(bound).is_some_and(|rest| rest.holds(v)))
                && rest(|value, bound| value >= bound)
                    .all(|v| x.at_least(bound).is_some_and(|rest| rest.holds(v)))
        });
    }
}
