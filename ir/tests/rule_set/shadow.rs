//! Rules that can never win.

use pktjit_ir::{Field, KeyLayout, Match, Overlap, Rule, RuleSet, Shadowed};
use quickcheck::QuickCheck;

use super::range;

const NO_LIMIT: u64 = u64::MAX;

/// A rule set of two 8-bit fields under `first`.
fn rule_set(rules: impl IntoIterator<Item = Rule>) -> RuleSet {
    let fields = ["a", "b"].map(|name| Field::integer(name, 1).unwrap());
    let mut builder = RuleSet::builder(KeyLayout::packed(fields).unwrap()).overlap(Overlap::First);
    for rule in rules {
        builder.push(rule);
    }
    builder.build().unwrap()
}

#[test]
fn a_covered_rule_is_shadowed_by_the_strongest_that_covers_it() {
    let rules = rule_set([
        Rule::new([range(0, 9), range(0, 9)]),
        Rule::new([range(10, 19), range(0, 99)]),
        Rule::new([range(10, 29), range(0, 99)]),
        Rule::new([range(10, 15), range(50, 60)]),
        Rule::new([range(0, 10), range(0, 9)]),
    ]);
    assert_eq!(rules.shadowed(NO_LIMIT), [Shadowed { row: 3, by: 1 }]);
    assert_eq!(rules.live_rows(NO_LIMIT), [0, 1, 2, 4]);
}

#[test]
fn a_weaker_rule_shadows_nothing() {
    let narrow = Rule::new([Match::Exact(1), Match::Exact(1)]);
    let wide = Rule::new([Match::Exact(1), Match::Any]).with_priority(-1);
    assert_eq!(rule_set([wide, narrow]).live_rows(NO_LIMIT), [0, 1]);
}

#[test]
fn nothing_lives_behind_a_rule_that_matches_all() {
    let rules = rule_set([
        Rule::new([Match::Exact(1), Match::Any]),
        Rule::new([Match::Any, Match::Any]),
        Rule::new([Match::Exact(2), Match::Any]),
        Rule::catch_all(2),
    ]);
    // Seen without looking at pairs of rules.
    assert_eq!(rules.live_rows(0), [0, 1]);
    assert_eq!(rules.shadowed(0), [2, 3].map(|row| Shadowed { row, by: 1 }));
}

#[test]
fn a_mask_covers_only_what_it_matches() {
    let odd = Match::Mask { value: 1, mask: 1 };
    let rules = rule_set([
        Rule::new([odd, Match::Any]),
        Rule::new([Match::Exact(7), Match::Exact(1)]),
        Rule::new([Match::Exact(8), Match::Exact(1)]),
    ]);
    assert_eq!(rules.shadowed(NO_LIMIT), [Shadowed { row: 1, by: 0 }]);
}

#[test]
fn without_work_every_rule_is_kept() {
    let rule = Rule::new([Match::Exact(1), Match::Any]);
    assert_eq!(rule_set([rule.clone(), rule]).live_rows(0), [0, 1]);
}

#[test]
fn no_rules_no_rows() {
    assert_eq!(rule_set([]).live_rows(NO_LIMIT), []);
}

#[test]
fn qc_shadowed_rules_are_those_that_one_stronger_rule_covers() {
    /// The ends in both fields, in any order, and the priority.
    type Shape = ((u8, u8), (u8, u8), i8);
    fn property(shapes: Vec<Shape>) -> bool {
        let interval = |(one, other): (u8, u8)| {
            let (one, other) = (u128::from(one % 16), u128::from(other % 16));
            range(one.min(other), one.max(other))
        };
        let rules = rule_set(shapes.into_iter().map(|(a, b, priority)| {
            Rule::new([interval(a), interval(b)]).with_priority((priority % 2).into())
        }));
        let fields = rules.layout().fields();
        let expected: Vec<Shadowed> = (0..rules.len())
            .filter_map(|row| {
                let rule = &rules.rules()[row].rule;
                let covers = |by: &usize| rules.rules()[*by].rule.covers(rule, fields);
                let by = (0..row).find(covers)?;
                Some(Shadowed {
                    row: row as u32,
                    by: by as u32,
                })
            })
            .collect();
        rules.shadowed(NO_LIMIT) == expected
    }
    QuickCheck::new()
        .tests(2_000)
        .min_tests_passed(2_000)
        .quickcheck(property as fn(Vec<Shape>) -> bool);
}
