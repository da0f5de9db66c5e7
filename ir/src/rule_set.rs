//! The rules of one classifier, with the policy that says what overlapping rules mean.
//!
//! Stored rules are kept in winning order: larger priority first, then earlier insertion. A rule's position in that order
//! is its *row*; lookups return rows, and the lowest matching row is the answer.

use crate::entity::RuleId;
use crate::error::RuleSetError;
use crate::key::KeyLayout;
use crate::rule::{Rule, StoredRule};

/// What happens where a rule overlaps an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Overlap {
    /// What nftables accepts.
    ///
    /// One field: intervals are disjoint; touching is fine; an identical rule is a no-op; the same key with another
    /// verdict is an error. Several fields: a rule is refused only if the tuple of its lower bounds, or that of its upper
    /// bounds, is matched by a stored rule; everything else is stored.
    #[default]
    Strict,
    /// Everything is kept and the order decides.
    First,
    /// One field: touching and overlapping intervals with the same verdict become one, with the smallest id.
    /// Several fields: as [`Strict`](Self::Strict), as nftables does.
    Merge,
}

/// Something that was done to a rule and that its author may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Bits below a prefix or outside a mask were set, and were cleared.
    HostBits(RuleId),
    /// The rule repeats an earlier one and was left out.
    Repeated {
        /// The later rule.
        rule: RuleId,
        /// The earlier one.
        earlier: RuleId,
    },
    /// The rule became part of the interval of an earlier one.
    Merged {
        /// The rule that is gone.
        rule: RuleId,
        /// The rule that now covers it.
        into: RuleId,
    },
}

/// The rules of one classifier. Immutable: [`RuleSet::builder`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    layout: KeyLayout,
    overlap: Overlap,
    rules: Vec<StoredRule>,
    notes: Vec<Note>,
}
