//! The rules of one classifier, with the policy that says what overlapping rules mean.
//!
//! Stored rules are kept in winning order: larger priority first, then earlier insertion. A rule's position in that order
//! is its *row*; lookups return rows, and the lowest matching row is the answer.

mod box_tree;
mod clusters;
mod overlap;
mod shadow;

use std::cmp::Reverse;

use crate::entity::{FieldId, RuleId};
use crate::error::RuleSetError;
use crate::field::Field;
use crate::key::KeyLayout;
use crate::program::MISS;
use crate::rule::{Match, Rule, StoredRule, prefix_mask};
use crate::verdict::{MAX_DATA_BYTES, Verdict};

pub use shadow::Shadowed;

/// Most rules of one set: each needs a row number, and the last number of all means "no match".
const MAX_RULES: usize = MISS as usize - 1;

/// What happens where a rule overlaps an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Overlap {
    /// What nftables accepts.
    ///
    /// One field: intervals are disjoint; touching is fine; an identical rule is a no-op; the same key with another
    /// verdict is an error. A mask that is no prefix counts as the interval between its ends. Several fields: a rule is
    /// refused only if the tuple of its lower bounds, or that of its upper bounds, is matched by a stored rule;
    /// everything else is stored.
    ///
    /// Only rules of equal priority are compared, as all elements of a set are: where priorities differ, they decide.
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

impl Note {
    /// The rule that the note is about.
    #[must_use]
    pub fn rule(&self) -> RuleId {
        match *self {
            Self::HostBits(rule) | Self::Repeated { rule, .. } | Self::Merged { rule, .. } => rule,
        }
    }
}

/// The rules of one classifier. Immutable: [`RuleSet::builder`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    layout: KeyLayout,
    overlap: Overlap,
    rules: Vec<StoredRule>,
    /// The rows in the order of their rules' ids, for finding a rule by its id.
    rows_by_id: Vec<u32>,
    notes: Vec<Note>,
    added: usize,
}

impl RuleSet {
    /// Starts a rule set whose keys are laid out as `layout` says.
    ///
    /// ```
    /// use pktjit_ir::{Field, KeyLayout, Match, Overlap, Rule, RuleSet, Verdict};
    /// let layout = KeyLayout::packed([Field::ipv4_addr("saddr")]).unwrap();
    /// let rules = RuleSet::builder(layout)
    ///     .overlap(Overlap::First)
    ///     .rule(Rule::new([Match::Prefix { value: 0x0a00_0000, len: 8 }]).with_verdict(Verdict::Drop))
    ///     .rule(Rule::catch_all(1).with_verdict(Verdict::Accept))
    ///     .build()
    ///     .unwrap();
    /// assert_eq!(rules.len(), 2);
    /// ```
    #[must_use]
    pub fn builder(layout: KeyLayout) -> RuleSetBuilder {
        RuleSetBuilder {
            layout,
            overlap: Overlap::default(),
            exact: false,
            rules: Vec::new(),
        }
    }

    /// How keys are laid out.
    #[must_use]
    pub fn layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// The policy that the rules were accepted under.
    #[must_use]
    pub fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// The stored rules in winning order: a rule's index here is its row.
    #[must_use]
    pub fn rules(&self) -> &[StoredRule] {
        &self.rules
    }

    /// The number of stored rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether no rule is stored, so that every lookup misses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The row of a rule; `None` where it was left out, merged into another one, or never added.
    #[must_use]
    pub fn row_of(&self, id: RuleId) -> Option<usize> {
        self.rows_by_id
            .binary_search_by_key(&id, |&row| self.rules[row as usize].id)
            .ok()
            .map(|position| self.rows_by_id[position] as usize)
    }

    /// The stored rule with this id; `None` where it was left out, merged into another one, or never added.
    #[must_use]
    pub fn get(&self, id: RuleId) -> Option<&StoredRule> {
        self.row_of(id).map(|row| &self.rules[row])
    }

    /// What was done to rules on the way in, in the order of their ids.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The number of rules that were added, with those that were left out or merged.
    #[must_use]
    pub fn added(&self) -> usize {
        self.added
    }
}

/// Collects rules; [`build`](Self::build) checks them all at once.
#[derive(Clone, Debug)]
pub struct RuleSetBuilder {
    layout: KeyLayout,
    overlap: Overlap,
    exact: bool,
    rules: Vec<Rule>,
}

impl RuleSetBuilder {
    /// Sets what happens where rules overlap; [`Overlap::Strict`] unless said otherwise.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets whether the rules may hold single values only, as in an nft set without the flag `interval`.
    ///
    /// A prefix of full length and a range from a value to itself are single values. A [catch-all](Rule::catch_all) is
    /// allowed in any set.
    #[must_use]
    pub fn exact(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// Adds a rule, for chaining.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.push(rule);
        self
    }

    /// Adds rules, for chaining.
    #[must_use]
    pub fn rules(self, rules: impl IntoIterator<Item = Rule>) -> Self {
        rules.into_iter().fold(self, Self::rule)
    }

    /// Adds a rule and tells the id that it has from now on.
    pub fn push(&mut self, rule: Rule) -> RuleId {
        // Beyond 2^32 rules the id is of no use, since `build` will refuse them.
        let id = RuleId::try_from_usize(self.rules.len()).unwrap_or(RuleId::new(u32::MAX));
        self.rules.push(rule);
        id
    }

    /// The number of rules added so far: the index of the next one's id.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a count, not a collection")]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Checks every rule, applies the overlap policy, and sorts what is kept into winning order.
    ///
    /// # Errors
    /// A rule that is wrong by itself, or one that the overlap policy refuses. Nothing is built then.
    pub fn build(self) -> Result<RuleSet, RuleSetError> {
        let added = self.rules.len();
        if added > MAX_RULES {
            return Err(RuleSetError::TooManyRules { max: MAX_RULES });
        }
        let mut notes = Vec::new();
        let mut rules = Vec::with_capacity(added);
        for (index, rule) in (0u32..).zip(self.rules) {
            let stored = StoredRule {
                id: RuleId::new(index),
                rule,
            };
            rules.push(admit(stored, &self.layout, self.exact, &mut notes)?);
        }
        // A stable sort: equal priorities stay in the order of their ids.
        rules.sort_by_key(|stored| Reverse(stored.rule.priority));
        overlap::settle(self.overlap, self.layout.fields(), &mut rules, &mut notes)?;
        leave_out(&mut rules, &notes, added);
        notes.sort_by_key(Note::rule);

        let mut rows_by_id: Vec<u32> = (0..rules.len() as u32).collect();
        rows_by_id.sort_by_key(|&row| rules[row as usize].id);
        Ok(RuleSet {
            layout: self.layout,
            overlap: self.overlap,
            rules,
            rows_by_id,
            notes,
            added,
        })
    }
}

/// Checks what can be said about a rule without looking at the others, and makes its matches canonical.
fn admit(
    mut stored: StoredRule,
    layout: &KeyLayout,
    exact: bool,
    notes: &mut Vec<Note>,
) -> Result<StoredRule, RuleSetError> {
    let (id, rule) = (stored.id, &mut stored.rule);
    if rule.matches.len() != layout.fields().len() {
        return Err(RuleSetError::FieldCount {
            rule: id,
            expected: layout.fields().len(),
            actual: rule.matches.len(),
        });
    }
    if let Verdict::Data(data) = &rule.verdict
        && data.len() > MAX_DATA_BYTES
    {
        return Err(RuleSetError::DataTooLong {
            rule: id,
            bytes: data.len(),
            max: MAX_DATA_BYTES,
        });
    }
    let mut has_host_bits = false;
    for (field_id, found) in layout.field_ids().zip(&mut rule.matches) {
        let field = layout.field(field_id);
        found.check(field).map_err(|error| RuleSetError::Match {
            rule: id,
            field: field_id,
            name: field.name().into(),
            error,
        })?;
        has_host_bits |= host_bits(found, field) != 0;
        *found = found.canonical(field);
    }
    if has_host_bits {
        notes.push(Note::HostBits(id));
    }
    let is_single = |found: &Match| matches!(found, Match::Exact(_));
    if exact
        && !is_catch_all(rule)
        && let Some(ranged) = rule.matches.iter().position(|found| !is_single(found))
    {
        return Err(RuleSetError::NotExact {
            rule: id,
            field: FieldId::new(ranged as u32),
            name: layout.fields()[ranged].name().into(),
        });
    }
    Ok(stored)
}

/// The bits of a match's value that do not count.
fn host_bits(found: &Match, field: &Field) -> u128 {
    match *found {
        Match::Prefix { value, len } => value & !prefix_mask(field, len),
        Match::Mask { value, mask } => value & !mask,
        Match::Any | Match::Exact(_) | Match::Range { .. } => 0,
    }
}

/// Whether a rule with canonical matches is nft's `*` element, which overlaps nothing.
fn is_catch_all(rule: &Rule) -> bool {
    rule.priority == i32::MIN && rule.matches.iter().all(|&found| found == Match::Any)
}

/// Removes the rules that the notes name as repeated or merged.
fn leave_out(rules: &mut Vec<StoredRule>, notes: &[Note], added: usize) {
    let mut is_left_out = vec![false; added];
    for note in notes {
        if let Note::Repeated { rule, .. } | Note::Merged { rule, .. } = note {
            is_left_out[rule.index()] = true;
        }
    }
    rules.retain(|stored| !is_left_out[stored.id.index()]);
}
