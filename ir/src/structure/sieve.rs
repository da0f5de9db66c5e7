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
use crate::field::Field;
use crate::key::{KeyLayout, Word};
use crate::program::BinaryOp;
use crate::rule::{Match, Rule};
use crate::structure::rule_rows::RuleRows;
use crate::structure::scalar::ScalarComparison;
use crate::structure::{Cost, Input};

/// Most words of a sieve. With more, as much is compared as without one.
const MAX_WORDS: usize = 3;
/// Buckets by which words are judged.
const SAMPLE: usize = 1 << 5;

/// How many leading words of each field are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sieve {
    depths: Vec<usize>,
}

impl Sieve {
    /// Calls `try_one` with sieves of more and more words, and with the rules, ascending, that each fails to tell apart from
    /// stronger ones of a bucket: at most `most_mixed`. `buckets` are lists of numbers, of rules that `rule` yields, the
    /// strongest first. Which word is added is judged by a sample of the buckets.
    pub(crate) fn for_each<'r>(
        layout: &KeyLayout,
        buckets: &[Vec<u32>],
        most_mixed: usize,
        rule: impl Fn(u32) -> &'r Rule,
        mut try_one: impl FnMut(Self, Vec<u32>),
    ) {
        let step = buckets.len().div_ceil(SAMPLE).max(1);
        let sample: Vec<&[u32]> = buckets.iter().step_by(step).map(Vec::as_slice).collect();
        let mut sieve = Self {
            depths: vec![0; layout.fields().len()],
        };
        for _ in 0..MAX_WORDS {
            let deeper = layout.field_ids().filter_map(|id| {
                let mut deeper = sieve.clone();
                deeper.depths[id.index()] += 1;
                (deeper.depths[id.index()] <= layout.words(id).count()).then(|| {
                    let mixed = deeper.mixed(layout, &sample, &rule);
                    (deeper, mixed)
                })
            });
            let Some((best, mut mixed)) = deeper.min_by_key(|(_, mixed)| mixed.len()) else {
                return;
            };
            if step * mixed.len() <= most_mixed {
                if step > 1 {
                    let all: Vec<&[u32]> = buckets.iter().map(Vec::as_slice).collect();
                    mixed = best.mixed(layout, &all, &rule);
                }
                let is_enough = mixed.is_empty();
                if mixed.len() <= most_mixed {
                    try_one(best.clone(), mixed);
                }
                if is_enough {
                    return;
                }
            }
            sieve = best;
        }
    }

    /// The rules that are not told apart from a stronger one of a bucket that is.
    fn mixed<'r>(
        &self,
        layout: &KeyLayout,
        buckets: &[&[u32]],
        rule: impl Fn(u32) -> &'r Rule,
    ) -> Vec<u32> {
        let compared: Vec<(FieldId, Vec<Word>)> = layout
            .field_ids()
            .map(|id| (id, self.words(layout, id).collect()))
            .filter(|(_, words): &(_, Vec<Word>)| !words.is_empty())
            .collect();
        let mut mixed = Vec::new();
        // The ends of the intervals of the rules told apart so far, field by field.
        let mut apart: Vec<(u128, u128)> = Vec::new();
        for bucket in buckets {
            apart.clear();
            for &number in *bucket {
                let known = apart.len();
                let ends = compared.iter().map(|(id, words)| {
                    let condition = &rule(number).matches[id.index()];
                    rounded(layout.field(*id), words, condition)
                });
                apart.extend(ends);
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

    /// The words of a field that are compared.
    fn words(&self, layout: &KeyLayout, id: FieldId) -> impl Iterator<Item = Word> + use<> {
        layout.words(id).take(self.depths[id.index()])
    }

    /// What lanes compare of a field of `rule`.
    fn condition(&self, layout: &KeyLayout, id: FieldId, rule: &Rule) -> Match {
        let words: Vec<Word> = self.words(layout, id).collect();
        let field = layout.field(id);
        let (lo, hi) = rounded(field, &words, &rule.matches[id.index()]);
        Match::Range { lo, hi }.canonical(field)
    }
}

/// The ends of a condition, rounded outwards to what the leading words of its field can tell.
fn rounded(field: &Field, words: &[Word], condition: &Match) -> (u128, u128) {
    let (lo, hi) = (condition.lower(field), condition.upper(field));
    // After the first word whose ends differ, the others run over everything.
    let is_decisive = |word: &&Word| word.of(lo) != word.of(hi);
    let decisive = words.iter().find(is_decisive).or(words.last());
    let Some(Word { shift, .. }) = decisive else {
        return (0, field.max());
    };
    let wild = (1 << shift) - 1;
    (lo & !wild, hi | wild)
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
    /// The rules of `rows`, in ascending order, behind `sieve`; `None` where nothing is left to verify, or where fields
    /// overlap in the key and some rule contradicts itself there, which a row of numbers cannot say.
    pub(crate) fn new(input: &Input<'_>, rows: &[u32], sieve: Sieve) -> Option<Self> {
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
        let is_possible = |rule: &Rule| comparison.is_possible(rule);
        if comparison.columns().is_empty() || !verified.iter().all(is_possible) {
            return None;
        }
        let mut rules = vec![None; input.rule_set.len()];
        for (&row, rule) in rows.iter().zip(verified) {
            rules[row as usize] = Some(rule);
        }
        Some(Self {
            sieve,
            rules,
            comparison,
            decides: decided.contains(&true),
        })
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

    /// Emits the tests of the rule of the verdict's row `found`; yields `found` where it matches, else `MISS`.
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

/// What finding and verifying one of `rules` takes at least, where lanes compare a word and decide the field that is the dearest
/// to verify.
pub(crate) fn least_cost<'r>(
    layout: &KeyLayout,
    rules: impl Iterator<Item = &'r Rule> + Clone,
) -> Cost {
    let without = |id: FieldId| {
        let open = |rule: &Rule| {
            let mut rule = rule.clone();
            rule.matches[id.index()] = Match::Any;
            rule
        };
        let rules: Vec<Rule> = rules.clone().map(open).collect();
        ScalarComparison::new(layout, &rules).instructions()
    };
    let verify = layout.field_ids().map(without).min_by(f64::total_cmp);
    Cost {
        // A word is spread, compared and made a scalar; the lane, the row number; the row to verify.
        instructions: 2.0 + 5.0 + 5.0 + 6.0 + verify.unwrap_or(0.0),
        dependent_loads: 2.0,
        lines: 2.0,
        table_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use crate::plan::{Choice, Options, normalise, plan};
    use crate::structure::tests::set;

    fn layout() -> KeyLayout {
        KeyLayout::packed([Field::ipv6_addr("daddr"), Field::inet_service("dport")]).unwrap()
    }

    fn rule(address: (u128, u128), port: u128) -> Rule {
        let (lo, hi) = address;
        let address = Match::Range { lo, hi };
        Rule::new([address, Match::Exact(port)])
    }

    /// The depths of all sieves that are tried for one bucket of `rules`, and the rules that each does not tell apart.
    fn sieves(rules: &[Rule]) -> Vec<(Vec<usize>, Vec<u32>)> {
        let mut tried = Vec::new();
        let bucket = (0..rules.len() as u32).collect();
        let rule = |number: u32| &rules[number as usize];
        Sieve::for_each(&layout(), &[bucket], usize::MAX, rule, |sieve, mixed| {
            tried.push((sieve.depths, mixed));
        });
        tried
    }

    #[test]
    fn one_word_is_enough_where_rules_differ_in_it() {
        let rules = [1, 2, 3].map(|n| rule((n << 96, (n << 96) + 5), 80));
        assert_eq!(sieves(&rules), [(vec![1, 0], vec![])]);
    }

    #[test]
    fn words_are_added_until_all_rules_are_told_apart() {
        let rules = [(1, 80), (1, 81), (2, 80)].map(|(n, port)| rule((n << 96, n << 96), port));
        assert_eq!(
            sieves(&rules),
            [(vec![1, 0], vec![1]), (vec![1, 1], vec![])]
        );
    }

    #[test]
    fn a_range_that_crosses_words_takes_all_of_the_first() {
        // The first ends in the word in which the second begins.
        let rules = [(5, 1 << 96), ((1 << 96) + 1, (1 << 96) + 2)].map(|ends| rule(ends, 80));
        let told_apart = sieves(&rules);
        assert!(
            told_apart.iter().all(|(_, mixed)| mixed == &[1]),
            "{told_apart:?}"
        );
    }

    #[test]
    fn a_wide_key_is_compared_in_few_lanes_and_verified_once() {
        // Addresses without a pattern.
        let address = |i: u128| i.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let range = |i: u128| Match::Range {
            lo: address(i),
            hi: address(i).saturating_add(1 << 40),
        };
        let fields = [Field::ipv6_addr("saddr"), Field::ipv6_addr("daddr")];
        let rules = (1..=500).map(|i| Rule::new([range(i), range(i + 500)]));
        let rule_set = set(KeyLayout::packed(fields).unwrap(), rules);
        let options = Options {
            structure: Choice::Only(Structure::Bucket),
            ..Options::default()
        };
        let plan = plan(&rule_set, &options).unwrap();
        let tables = &plan.program().program().tables;
        let table = |name: &str| tables.iter().find(|table| *table.name == *name).unwrap();
        // The first word of one address, its low end and length or its value, and the row.
        let columns = table("buckets").columns.len();
        assert!(columns <= 3, "{columns}");
        assert_eq!(table("rows").rows(), 500);
    }

    #[test]
    fn rules_that_contradict_themselves_where_fields_overlap_are_not_behind_a_sieve() {
        let fields = [Field::ipv4_addr("a"), Field::ipv4_addr("b")];
        let layout = KeyLayout::at(fields.into_iter().zip([0, 3])).unwrap();
        // The last byte of `a` is the first of `b`.
        let rules = [
            (0x28, 0x2800_0001),
            (0x29, 0x2900_0001),
            (0x28, 0x3e00_0000),
        ];
        let rules = set(
            layout,
            rules.map(|(a, b)| Rule::new([a, b].map(Match::Exact))),
        );
        let input = normalise(&rules, &Options::default());
        let nothing = || Sieve { depths: vec![0, 0] };
        assert!(Sieved::new(&input, &[0, 1], nothing()).is_some());
        assert!(Sieved::new(&input, &[0, 1, 2], nothing()).is_none());
    }
}
