//! The errors of this crate: each says what is wrong, where, and with which figures.

use thiserror::Error;

use crate::entity::{FieldId, RuleId};

/// Why fields do not make a key layout.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A key needs at least one field.
    #[error("a key needs at least one field")]
    NoFields,
    /// More fields than nftables allows.
    #[error("a key has at most {max} fields")]
    TooManyFields {
        /// The limit.
        max: usize,
    },
    /// A field of no byte or of more than 16.
    #[error("field `{name}` is {bytes} bytes wide; a field has 1 to 16 bytes")]
    FieldWidth {
        /// The field's name.
        name: Box<str>,
        /// Its width.
        bytes: usize,
    },
    /// The fields have too many bytes together.
    #[error("the fields are {bytes} bytes wide together; a key has at most {max}")]
    TooWide {
        /// Their sum so far.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A field ends beyond the span of a key.
    #[error("field `{name}` at byte {offset} ends beyond byte {max} of the key")]
    BeyondSpan {
        /// The field's name.
        name: Box<str>,
        /// Its offset.
        offset: usize,
        /// The limit.
        max: usize,
    },
    /// A key is shorter than its fields or longer than the span.
    #[error("a key of {len} bytes, not {end} to {max}")]
    Length {
        /// The length that was asked for.
        len: usize,
        /// The end of the last field.
        end: usize,
        /// The limit.
        max: usize,
    },
}

/// A key of the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the key has {actual} bytes, its layout {expected}")]
pub struct KeyError {
    /// What the layout asks for.
    pub expected: usize,
    /// What was given.
    pub actual: usize,
}

/// Why one match of a rule is wrong for its field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MatchError {
    /// A value with more bits than the field.
    #[error("value {value:#x} does not fit into {bits} bits")]
    ValueTooLarge {
        /// The value.
        value: u128,
        /// The field's width.
        bits: u8,
    },
    /// A prefix longer than the field.
    #[error("prefix length {len} is longer than the field's {bits} bits")]
    PrefixTooLong {
        /// The length asked for.
        len: u8,
        /// The field's width.
        bits: u8,
    },
    /// A range whose end lies before its start.
    #[error("the range is reversed: {lo:#x} is above {hi:#x}")]
    ReversedRange {
        /// Start.
        lo: u128,
        /// End.
        hi: u128,
    },
}

/// Why a rule set was refused. Nothing is built from a refused rule set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleSetError {
    /// A rule with more or fewer matches than the layout has fields.
    #[error("{rule} has {actual} fields, the key {expected}")]
    FieldCount {
        /// The rule.
        rule: RuleId,
        /// Fields of the layout.
        expected: usize,
        /// Matches of the rule.
        actual: usize,
    },
    /// One match of a rule is wrong.
    #[error("{rule}, field {} (`{name}`): {error}", field.index() + 1)]
    Match {
        /// The rule.
        rule: RuleId,
        /// The field.
        field: FieldId,
        /// The field's name.
        name: Box<str>,
        /// What is wrong with it.
        error: MatchError,
    },
    /// A range, prefix or mask in a set that holds single values only.
    #[error("{rule}, field {} (`{name}`): the set does not hold ranges", field.index() + 1)]
    NotExact {
        /// The rule.
        rule: RuleId,
        /// The field.
        field: FieldId,
        /// The field's name.
        name: Box<str>,
    },
    /// A rule that clashes with an earlier one under the set's overlap policy.
    #[error("{rule} overlaps {earlier}")]
    Overlap {
        /// The later rule.
        rule: RuleId,
        /// The earlier one.
        earlier: RuleId,
    },
    /// The same key as an earlier rule, with another verdict.
    #[error("{rule} has the key of {earlier} and another verdict")]
    Conflict {
        /// The later rule.
        rule: RuleId,
        /// The earlier one.
        earlier: RuleId,
    },
    /// Verdict data of more than 64 bytes.
    #[error("{rule} holds {bytes} bytes of data; at most {max} are possible")]
    DataTooLong {
        /// The rule.
        rule: RuleId,
        /// Bytes given.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// More rules than row numbers.
    #[error("a rule set has at most {max} rules")]
    TooManyRules {
        /// The limit.
        max: usize,
    },
}
