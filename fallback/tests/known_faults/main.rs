//! The linear scan against known faults of systems like this one, and against the definition of the winner.

mod cases;

use cases::Case;
use pktjit_fallback::LinearScan;
use pktjit_ir::{Field, KeyLayout, Match, Overlap, Rule, RuleSet};
use quickcheck::QuickCheck;

/// The id of the rule that wins `values`.
fn winner(rules: &RuleSet, scan: &LinearScan, values: &[u128]) -> Option<u32> {
    let key = rules.layout().encode(values);
    let row = scan.lookup(rules.layout().key(&key).unwrap());
    let stored = rules.rules().get(row as usize);
    stored.map(|stored| stored.id.as_u32())
}

/// Looks up every key of a case.
fn check(case: &Case) {
    let scan = LinearScan::new(&case.rules);
    for (values, expected) in &case.lookups {
        assert_eq!(winner(&case.rules, &scan, values), *expected, "{values:x?}");
    }
}

#[test]
fn qc_b54_the_winner_is_the_strongest_of_the_matching_rules() {
    type Shape = ((u8, u8), (u8, u8), i8);
    fn property(shapes: Vec<Shape>) -> bool {
        let interval = |(one, other): (u8, u8)| {
            let (one, other) = (u128::from(one % 16), u128::from(other % 16));
            Match::Range {
                lo: one.min(other),
                hi: one.max(other),
            }
        };
        let rule = |&(a, b, priority): &Shape| {
            Rule::new([interval(a), interval(b)]).with_priority(i32::from(priority % 3))
        };
        let written: Vec<Rule> = shapes.iter().map(rule).collect();
        let fields = ["a", "b"].map(|name| Field::integer(name, 1).unwrap());
        let mut builder =
            RuleSet::builder(KeyLayout::packed(fields.clone()).unwrap()).overlap(Overlap::First);
        for rule in &written {
            builder.push(rule.clone());
        }
        let rules = builder.build().unwrap();
        let scan = LinearScan::new(&rules);
        (0..256u128).all(|key| {
            let values = [key / 16, key % 16];
            let matches =
                |rule: &Rule| (0..2).all(|at| rule.matches[at].matches(&fields[at], values[at]));
            let matching = (0u32..).zip(&written).filter(|(_, rule)| matches(rule));
            // Of equal priorities `min_by_key` gives the first.
            let expected = matching
                .min_by_key(|(_, rule)| -rule.priority)
                .map(|(id, _)| id);
            winner(&rules, &scan, &values) == expected
        })
    }
    QuickCheck::new()
        .tests(1_000)
        .min_tests_passed(1_000)
        .quickcheck(property as fn(Vec<Shape>) -> bool);
}
