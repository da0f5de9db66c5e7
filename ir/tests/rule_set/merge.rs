//! The merge policy.

use pktjit_ir::{Note, Overlap, Rule, RuleSetError, Verdict};
use quickcheck::QuickCheck;

use super::{
    addresses, build, id, ip4, merge, octets, port, prefix, range, stored, strict, verdict,
};

#[test]
fn b87_one_overlapping_entry_is_named_or_merged() {
    let list = [
        prefix([192, 168, 0, 0], 24),
        prefix([192, 168, 0, 1], 32),
        addresses([10, 0, 0, 1], [10, 0, 0, 20]),
        addresses([10, 0, 0, 10], [10, 0, 0, 30]),
    ];
    let error = strict(ip4(), &list).unwrap_err();
    assert_eq!(error.to_string(), "rule3 overlaps rule2");
    let rules = merge(ip4(), &list).unwrap();
    let expected = [(0, list[0]), (2, addresses([10, 0, 0, 1], [10, 0, 0, 30]))];
    assert_eq!(stored(&rules), expected);
    let merged = |rule, into| Note::Merged {
        rule: id(rule),
        into: id(into),
    };
    assert_eq!(rules.notes(), [merged(1, 0), merged(3, 2)]);
}

#[test]
fn merged_intervals_go_to_the_smallest_id_even_when_the_bridge_comes_last() {
    let rules = merge(port(), &[range(20, 29), range(0, 9), range(10, 19)]).unwrap();
    assert_eq!(stored(&rules), [(0, range(0, 29))]);
}

#[test]
fn intervals_with_other_verdicts_touch_but_do_not_merge() {
    let rule = |found, verdict| Rule::new([found]).with_verdict(verdict);
    let touching = [
        rule(range(0, 9), Verdict::Accept),
        rule(range(10, 19), Verdict::Drop),
    ];
    assert_eq!(build(port(), Overlap::Merge, touching).unwrap().len(), 2);
    let overlapping = [
        rule(range(0, 9), Verdict::Accept),
        rule(range(9, 19), Verdict::Drop),
    ];
    let refusal = RuleSetError::Overlap {
        rule: id(1),
        earlier: id(0),
    };
    assert_eq!(build(port(), Overlap::Merge, overlapping), Err(refusal));
}

#[test]
fn qc_merge_keeps_the_matched_values_and_merges_all_it_may() {
    fn property(elements: Vec<((u8, u8), bool)>) -> bool {
        let layout = octets(1);
        let field = &layout.fields()[0];
        let rule = |&((start, len), accept): &((u8, u8), bool)| {
            let hi = start.saturating_add(len % 8);
            Rule::new([range(start.into(), hi.into())]).with_verdict(verdict(accept))
        };
        let rules: Vec<Rule> = elements.iter().take(12).map(rule).collect();
        // The verdicts that the rules as written ask for.
        let wanted = |value: u128, of: &[&Rule]| {
            let matching = of
                .iter()
                .filter(|rule| rule.matches[0].matches(field, value));
            let mut verdicts: Vec<bool> = matching
                .map(|rule| rule.verdict == Verdict::Accept)
                .collect();
            verdicts.sort_unstable();
            verdicts.dedup();
            verdicts
        };
        let asked: Vec<&Rule> = rules.iter().collect();
        let is_clean = (0..=255).all(|value| wanted(value, &asked).len() <= 1);
        let Ok(merged) = build(layout.clone(), Overlap::Merge, rules.clone()) else {
            return !is_clean;
        };
        let kept: Vec<&Rule> = merged.rules().iter().map(|stored| &stored.rule).collect();
        let mut spans: Vec<(u128, u128, &Verdict)> = kept
            .iter()
            .map(|rule| {
                (
                    rule.matches[0].lower(field),
                    rule.matches[0].upper(field),
                    &rule.verdict,
                )
            })
            .collect();
        spans.sort_by_key(|&(lo, ..)| lo);
        let apart = spans.windows(2).all(|pair| {
            pair[0].1 < pair[1].0 && (pair[0].1 + 1 < pair[1].0 || pair[0].2 != pair[1].2)
        });
        // Each kept rule has the smallest id of those that it covers.
        let smallest = merged.rules().iter().all(|stored| {
            let covered = |rule: &&Rule| stored.rule.matches[0].covers(&rule.matches[0], field);
            rules.iter().position(|rule| covered(&rule)) == Some(stored.id.index())
        });
        is_clean
            && apart
            && smallest
            && (0..=255).all(|value| wanted(value, &asked) == wanted(value, &kept))
    }
    QuickCheck::new()
        .tests(3_000)
        .min_tests_passed(3_000)
        .quickcheck(property as fn(Vec<((u8, u8), bool)>) -> bool);
}
