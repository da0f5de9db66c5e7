//! One condition on one field, and one rule.

use crate::entity::RuleId;
use crate::error::MatchError;
use crate::field::Field;
use crate::verdict::Verdict;

/// A condition on one field. Values are host-order numbers as wide as the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// Every value.
    Any,
    /// One value.
    Exact(u128),
    /// The values whose `len` most significant bits are those of `value`. The other bits of `value` are ignored.
    Prefix {
        /// The leading bits.
        value: u128,
        /// How many of them count, 0 to the field's width.
        len: u8,
    },
    /// The values of the closed interval `lo..=hi`.
    Range {
        /// First value.
        lo: u128,
        /// Last value.
        hi: u128,
    },
    /// The values that agree with `value` in all bits that are set in `mask`. The other bits of `value` are ignored.
    Mask {
        /// The bits to agree with.
        value: u128,
        /// The bits that count.
        mask: u128,
    },
}

impl Match {
    /// Whether this is a condition that `field` can have.
    ///
    /// # Errors
    /// A value or mask wider than the field, a prefix longer than the field, a reversed range.
    pub fn check(&self, field: &Field) -> Result<(), MatchError> {
        let fits = |value: u128| {
            if value <= field.max() {
                Ok(())
            } else {
                Err(MatchError::ValueTooLarge {
                    value,
                    bits: field.bits(),
                })
            }
        };
        match *self {
            Self::Any => Ok(()),
            Self::Exact(value) => fits(value),
            Self::Prefix { value, len } => {
                fits(value)?;
                if len <= field.bits() {
                    Ok(())
                } else {
                    Err(MatchError::PrefixTooLong {
                        len,
                        bits: field.bits(),
                    })
                }
            }
            Self::Range { lo, hi } => {
                fits(lo).and(fits(hi))?;
                if lo <= hi {
                    Ok(())
                } else {
                    Err(MatchError::ReversedRange { lo, hi })
                }
            }
            Self::Mask { value, mask } => fits(value).and(fits(mask)),
        }
    }

    /// Whether the condition holds for `value`: the definition that everything else is measured against.
    #[must_use]
    pub fn matches(&self, field: &Field, value: u128) -> bool {
        match *self {
            Self::Any => true,
            Self::Exact(exact) => value == exact,
            Self::Prefix { value: prefix, len } => (value ^ prefix) & prefix_mask(field, len) == 0,
            Self::Range { lo, hi } => lo <= value && value <= hi,
            Self::Mask { value: bits, mask } => (value ^ bits) & mask == 0,
        }
    }

    /// The smallest value that matches.
    #[must_use]
    pub fn lower(&self, field: &Field) -> u128 {
        match *self {
            Self::Any => 0,
            Self::Exact(value) => value,
            Self::Prefix { value, len } => value & prefix_mask(field, len),
            Self::Range { lo, .. } => lo,
            Self::Mask { value, mask } => value & mask,
        }
    }

    /// The largest value that matches.
    #[must_use]
    pub fn upper(&self, field: &Field) -> u128 {
        match *self {
            Self::Any => field.max(),
            Self::Exact(value) => value,
            Self::Prefix { value, len } => {
                value & prefix_mask(field, len) | field.max() & !prefix_mask(field, len)
            }
            Self::Range { hi, .. } => hi,
            Self::Mask { value, mask } => value & mask | field.max() & !mask,
        }
    }

    /// The bits of a value that decide whether the condition holds, where it asks for bits: those of [`lower`](Self::lower).
    /// `None` for a range, also for one that is a prefix: see [`canonical`](Self::canonical).
    ///
    /// ```
    /// use pktjit_ir::{Field, Match};
    /// let net = Match::Prefix { value: 0x0a00_0000, len: 8 };
    /// assert_eq!(net.care(&Field::ipv4_addr("saddr")), Some(0xff00_0000));
    /// ```
    #[must_use]
    pub fn care(&self, field: &Field) -> Option<u128> {
        match *self {
            Self::Any => Some(0),
            Self::Exact(_) => Some(field.max()),
            Self::Prefix { len, .. } => Some(prefix_mask(field, len)),
            Self::Mask { mask, .. } => Some(mask),
            Self::Range { .. } => None,
        }
    }

    /// The same condition in its simplest form: `Exact` for one value, `Any` for all, `Prefix` where a range or a mask
    /// is one, without host bits. Equal conditions have equal simplest forms.
    #[must_use]
    pub fn canonical(&self, field: &Field) -> Self {
        let (lo, hi) = (self.lower(field), self.upper(field));
        let varying = match *self {
            // Only a mask whose set bits are not the leading ones skips values between its ends.
            Self::Mask { mask, .. }
                if (field.max() & !mask) & (field.max() & !mask).wrapping_add(1) != 0 =>
            {
                return Self::Mask { value: lo, mask };
            }
            _ => lo ^ hi,
        };
        if lo == hi {
            Self::Exact(lo)
        } else if lo == 0 && hi == field.max() {
            Self::Any
        } else if varying & varying.wrapping_add(1) == 0
            && lo & varying == 0
            && hi & varying == varying
        {
            Self::Prefix {
                value: lo,
                len: field.bits() - varying.count_ones() as u8,
            }
        } else {
            Self::Range { lo, hi }
        }
    }

    /// Whether every value that `other` matches is matched here too.
    #[must_use]
    pub fn covers(&self, other: &Self, field: &Field) -> bool {
        match (*self, *other) {
            (
                Self::Mask { value, mask },
                Self::Mask {
                    value: inner,
                    mask: inner_mask,
                },
            ) => mask & !inner_mask == 0 && (value ^ inner) & mask == 0,
            (Self::Mask { value, mask }, _) => {
                // The bits that are the same in the whole interval are its common leading bits.
                let (lo, hi) = (other.lower(field), other.upper(field));
                let common = match (lo ^ hi).checked_ilog2() {
                    Some(127) => 0,
                    Some(top) => field.max() & !((2u128 << top) - 1),
                    None => field.max(),
                };
                mask & !common == 0 && (value ^ lo) & mask == 0
            }
            _ => self.lower(field) <= other.lower(field) && other.upper(field) <= self.upper(field),
        }
    }
}

/// The mask of the `len` most significant bits of `field`; total in `len`.
#[must_use]
pub(crate) fn prefix_mask(field: &Field, len: u8) -> u128 {
    let host_bits = u32::from(field.bits().saturating_sub(len));
    field.max() & u128::MAX.checked_shl(host_bits).unwrap_or(0)
}

/// One match per field, a priority, and the verdict for the packets that match in all fields.
///
/// ```
/// use pktjit_ir::{Match, Rule, Verdict};
/// let rule = Rule::new([Match::Prefix { value: 0x0a00_0000, len: 8 }, Match::Range { lo: 1, hi: 1024 }])
///     .with_verdict(Verdict::Drop)
///     .with_priority(7);
/// assert_eq!(rule.matches.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// One condition per field of the layout, in its order.
    pub matches: Vec<Match>,
    /// Larger wins; equal priorities go to the rule that was added first.
    pub priority: i32,
    /// What the winner says.
    pub verdict: Verdict,
}

impl Rule {
    /// A rule of priority 0 with the verdict [`Verdict::Match`].
    #[must_use]
    pub fn new(matches: impl IntoIterator<Item = Match>) -> Self {
        Self {
            matches: matches.into_iter().collect(),
            priority: 0,
            verdict: Verdict::Match,
        }
    }

    /// The rule that matches every key of `fields` fields, at the lowest priority: nft's `*` element.
    #[must_use]
    pub fn catch_all(fields: usize) -> Self {
        Self::new(std::iter::repeat_n(Match::Any, fields)).with_priority(i32::MIN)
    }

    /// The same rule with another verdict.
    #[must_use]
    pub fn with_verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }

    /// The same rule with another priority.
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Whether every key that `other` matches is matched here too.
    ///
    /// Both rules are of a layout with `fields`.
    #[must_use]
    pub fn covers(&self, other: &Self, fields: &[Field]) -> bool {
        fields
            .iter()
            .zip(&self.matches)
            .zip(&other.matches)
            .all(|((field, mine), theirs)| mine.covers(theirs, field))
    }
}

/// A rule that a rule set kept, with the id that it was added under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRule {
    /// The position among the rules as they were added.
    pub id: RuleId,
    /// The rule; its matches are canonical.
    pub rule: Rule,
}
