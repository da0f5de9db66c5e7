//! How two unsigned numbers compare, and what that says about them.
//!
//! Conditions of the code generators are a type of their own: the auditor takes nothing from what made the code.

use super::number::Number;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Below,
    BelowOrEqual,
    Above,
    AboveOrEqual,
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

    /// The same with its operands the other way round.
    pub(super) fn swapped(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Below => Self::Above,
            Self::BelowOrEqual => Self::AboveOrEqual,
            Self::Above => Self::Below,
            Self::AboveOrEqual => Self::BelowOrEqual,
        }
    }

    /// What is known of two numbers that compare like that; `None` where they cannot.
    pub(super) fn given(self, a: Number, b: Number) -> Option<(Number, Number)> {
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

    /// A bound of `a` that comes from `b` rather than from what is known of `a` already.
    pub(super) fn bound(self, a: Number, b: Number) -> Option<u64> {
        match self {
            Self::Below => b.max().checked_sub(1),
            Self::BelowOrEqual | Self::Equal => Some(b.max()),
            // What is not above a number and not that number is below it.
            Self::NotEqual => b
                .as_constant()
                .filter(|&b| a.max() <= b)
                .and_then(|b| b.checked_sub(1)),
            Self::Above | Self::AboveOrEqual => None,
        }
    }
}
