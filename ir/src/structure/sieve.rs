//! A sieve: the few words that tell the rules of every bucket apart.
//!
//! Where the rules of a bucket are disjoint in some words already, a key passes at most one of them there: the lanes compare
//! those words alone, and the rule that is found is verified by [scalars](crate::structure::scalar), which costs a wide key
//! less than all lanes do. IPv6 addresses that differ in their first 32 bits are one word in the lanes, not four:
//!
//! ```text
//! bucket | addr>>96 lo x K | addr>>96 len x K | row x K |
//! rules  | addr lo, len of both halves | port lo, len | ... |      at the row that was found
//! ```
//!
//! A sieve compares the leading words of each field, of some fields none. What a rule wants there is rounded outwards to
//! an interval that falls apart into words: it may let through too much, never too little.

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::key::{KeyLayout, Word};
use crate::program::BinaryOp;
use crate::rule::{Match, Rule};
use crate::structure::rule_rows::RuleRows;
use crate::structure::scalar::ScalarComparison;
use crate::structure::{Cost, Input};

/// Most words of a sieve. With more, as much is compared as without one.
const MAX_WORDS: usize = 3;

/// How many leading words of each field are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sieve {
    depths: Vec<usize>,
}

impl Sieve {
    /// Calls `try_one` with sieves of more and more words, and with the rules, ascending, that each fails to tell apart from
    /// stronger ones of a bucket. `buckets` are lists of numbers, of rules that `rule` yields, the strongest first.
    pub(crate) fn for_each<'r>(
        layout: &KeyLayout,
        buckets: &[Vec<u32>],
        rule: impl Fn(u32) -> &'r Rule,
        mut try_one: impl FnMut(Self, Vec<u32>),
    ) {
        let mut sieve = Self {
            depths: vec![0; layout.fields().len()],
        };
        for _ in 0..MAX_WORDS {
            let deeper = layout.field_ids().filter_map(|id| {
                let mut deeper = sieve.clone();
                deeper.depths[id.index()] += 1;
                (deeper.depths[id.index()] <= layout.words(id).count()).then(|| {
                    let mixed = deeper.mixed(layout, buckets, &rule);
                    (deeper, mixed)
                })
            });
            let Some((best, mixed)) = deeper.min_by_key(|(_, mixed)| mixed.len()) else {
                return;
            };
            let is_enough = mixed.is_empty();
            try_one(best.clone(), mixed);
            if is_enough {
                return;
            }
            sieve = best;
        }
    }

    /// The rules that are not told apart from a stronger one of a bucket that is.
    fn mixed<'r>(
        &self,
        layout: &KeyLayout,
        buckets: &[Vec<u32>],
        rule: impl Fn(u32) -> &'r Rule,
    ) -> Vec<u32> {
        let compared: Vec<FieldId> = layout
            .field_ids()
            .filter(|id| self.depths[id.index()] > 0)
            .collect();
        let mut mixed = Vec::new();
        // The ends of the intervals of the rules told apart so far, field by field.
        let mut apart: Vec<(u128, u128)> = Vec::new();
        for bucket in buckets {
            apart.clear();
            for &number in bucket {
                let known = apart.len();
                for &id in &compared {
                    let wanted = self.condition(layout, id, rule(number));
                    let field = layout.field(id);
                    apart.push((wanted.lower(field), wanted.upper(field)));
                }
                let (others, own) = apart.split_at(known);
                let overlaps = |other: &[(u128, u128)]| {
                    let mut both = other.iter().zip(own);
                    both.all(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
                };
                if others.chunks(compared.len()).any(overlaps) {
                    apart.truncate(known);
                    mixed.push(number);
                }
            }
        }
        mixed.sort_unstable();
        mixed.dedup();
        mixed
    }

    /// What lanes compare of a field of `rule`.
    fn condition(&self, layout: &KeyLayout, id: FieldId, rule: &Rule) -> Match {
        let (field, condition) = (layout.field(id), &rule.matches[id.index()]);
        let words = || layout.words(id).take(self.depths[id.index()]);
        let (lo, hi) = (condition.lower(field), condition.upper(field));
        // After the first word whose ends differ, the others run over everything.
        let is_decisive = |word: &Word| word.of(lo) != word.of(hi);
        let decisive = words().find(is_decisive).or_else(|| words().last());
        let Some(Word { shift, .. }) = decisive else {
            return Match::Any;
        };
        let wild = (1 << shift) - 1;
        let rounded = Match::Range {
            lo: lo & !wild,
            hi: hi | wild,
        };
        rounded.canonical(field)
    }
}

/// The rules of buckets behind a sieve, and what is verified of the one that a key finds.
pub(crate) struct Sieved {
    sieve: Sieve,
    /// What is verified of the rule of each row of verdicts that is in a bucket.
    rules: Vec<Option<Rule>>,
    comparison: ScalarComparison,
    /// Whether the lanes are all that tests some field.
    pub(crate) decides: bool,
}

impl Sieved {
    /// The rules of `rows`, in ascending order, behind `sieve`.
    pub(crate) fn new(input: &Input<'_>, rows: &[u32], sieve: Sieve) -> Self {
        let layout = input.layout();
        // The lanes decide a field where they compare all that each rule wants of it.
        let decided: Vec<bool> = layout
            .field_ids()
            .map(|id| {
                let all = |&row: &u32| {
                    let rule = input.rule(row);
                    sieve.condition(layout, id, rule) == rule.matches[id.index()]
                };
                rows.iter().all(all)
            })
            .collect();
        let verified = |row: &u32| {
            let matches = input.rule(*row).matches.iter().zip(&decided);
            Rule::new(matches.map(
                |(&condition, &decided)| {
                    if decided { Match::Any } else { condition }
                },
            ))
        };
        let verified: Vec<Rule> = rows.iter().map(verified).collect();
        let comparison = ScalarComparison::new(layout, &verified);
        let mut rules = vec![None; input.rule_set.len()];
        for (&row, rule) in rows.iter().zip(verified) {
            rules[row as usize] = Some(rule);
        }
        Self {
            sieve,
            rules,
            comparison,
            decides: decided.contains(&true),
        }
    }

    /// What the lanes compare of a rule.
    pub(crate) fn in_lanes(&self, layout: &KeyLayout, rule: &Rule) -> Rule {
        let condition = |id| self.sieve.condition(layout, id, rule);
        Rule::new(layout.field_ids().map(condition))
    }

    fn rule_rows(&self) -> RuleRows<'_> {
        RuleRows {
            comparison: &self.comparison,
            rules: 1,
            is_numbered: false,
        }
    }

    /// Emits the tests of the rule of the verdict's row `found`; yields `found` where it matches, else [`MISS`].
    pub(crate) fn emit(&self, b: &mut ProgramBuilder, found: ValueId) -> ValueId {
        let rows = self.rules.iter().enumerate();
        let rules = rows.map(|(row, rule)| rule.as_ref().map(|rule| (rule, row as u32)));
        let table = b.table(self.rule_rows().table(rules));
        // `MISS` stays what it is, whatever is verified.
        let last = self.rules.len() as u64 - 1;
        let number = b.binary_const(BinaryOp::Min, found, last);
        let row = b.row(table, number);
        self.comparison.emit(b, row, 0, found)
    }

    /// What verifying a rule costs.
    pub(crate) fn cost(&self) -> Cost {
        let mut cost = self.rule_rows().cost(self.rules.len());
        // The row within the table.
        cost.instructions += 3.0;
        cost.dependent_loads += 1.0;
        cost
    }
}
