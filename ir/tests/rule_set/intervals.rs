//! The strict policy for one field, and catch-alls.

use pktjit_ir::{Field, KeyLayout, Match, Note, Overlap, Rule, RuleSet, RuleSetError, Verdict};
use quickcheck::QuickCheck;

use super::{
    addresses, build, id, ids, ip4, merge, octets, on_a_small_stack, port, ports, prefix, range,
    small_match, stored, strict,
};

#[test]
fn b18_touching_intervals_are_accepted() {
    assert_eq!(
        strict(port(), &[Match::Exact(1), Match::Exact(2)])
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        strict(port(), &[range(0, 9), range(10, 19)]).unwrap().len(),
        2
    );
    assert_eq!(
        strict(port(), &[range(10, 65535), range(0, 9)])
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn b23_same_start_and_smaller_end_is_refused() {
    let refusal = RuleSetError::Overlap {
        rule: id(1),
        earlier: id(0),
    };
    assert_eq!(strict(port(), &[range(0, 3), range(0, 2)]), Err(refusal));
}

#[test]
fn the_later_one_of_two_overlapping_rules_is_the_refused_one() {
    let refusal = RuleSetError::Overlap {
        rule: id(1),
        earlier: id(0),
    };
    assert_eq!(strict(port(), &[range(5, 9), range(0, 6)]), Err(refusal));
}

#[test]
fn b24_a_range_from_one_element_to_another_is_refused() {
    let first = addresses([1, 1, 1, 1], [2, 2, 2, 2]);
    let second = addresses([3, 3, 3, 3], [4, 4, 4, 4]);
    let both = addresses([1, 1, 1, 1], [4, 4, 4, 4]);
    let refusal = strict(ip4(), &[first, second, both]).unwrap_err();
    assert!(matches!(refusal, RuleSetError::Overlap { rule, .. } if rule == id(2)));
    assert_eq!(
        ids(&strict(ip4(), &[first, second, first]).unwrap()),
        [0, 1]
    );
}

/// Disjoint blocks /8../32 that cover the whole space, so that all touch, with 255.255.255.255 among them.
fn disjoint_blocks() -> Vec<Match> {
    let mut blocks = Vec::new();
    let mut start = 0u64;
    while start < 1 << 32 {
        let largest = if start == 0 {
            24
        } else {
            start.trailing_zeros().min(24)
        };
        // Of the sizes that start here, take another one each time; small ones only near the end of the space.
        let near_end = start >= 0xffff_ff00;
        let host_bits = if near_end {
            0
        } else {
            largest.min(16 + (blocks.len() as u32 * 7) % 9)
        };
        blocks.push(Match::Prefix {
            value: start.into(),
            len: 32 - host_bits as u8,
        });
        start += 1 << host_bits;
    }
    blocks
}

/// Another order of `items`, always the same.
fn shuffled<T: Clone>(items: &[T]) -> Vec<T> {
    let step =
        (items.len() * 5 / 8..).find(|step| greatest_common_divisor(*step, items.len()) == 1);
    let step = step.unwrap_or(1);
    (0..items.len())
        .map(|index| items[index * step % items.len()].clone())
        .collect()
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[test]
fn b26_thousands_of_touching_blocks_load_in_any_order() {
    let mut blocks = disjoint_blocks();
    assert!(blocks.len() > 3_000, "{}", blocks.len());
    for order in [blocks.clone(), shuffled(&blocks)] {
        assert_eq!(strict(ip4(), &order).unwrap().len(), blocks.len());
        assert_eq!(stored(&merge(ip4(), &order).unwrap()), [(0, Match::Any)]);
    }
    blocks.reverse();
    assert_eq!(strict(ip4(), &blocks).unwrap().len(), blocks.len());
}

#[test]
fn b27_whole_space_and_single_values_are_intervals_like_others() {
    let everything = [prefix([0; 4], 0), addresses([0; 4], [255; 4])];
    let rules = strict(ip4(), &everything).unwrap();
    assert_eq!(stored(&rules), [(0, Match::Any)]);
    let ends = [range(0, 0), range(65535, 65535), range(1, 1)];
    let expected = [
        (0, Match::Exact(0)),
        (1, Match::Exact(65535)),
        (2, Match::Exact(1)),
    ];
    assert_eq!(stored(&strict(port(), &ends).unwrap()), expected);
    let ip6 = KeyLayout::packed([Field::ipv6_addr("saddr")]).unwrap();
    let everything = [Match::Prefix { value: 0, len: 0 }, range(0, u128::MAX)];
    assert_eq!(
        stored(&strict(ip6.clone(), &everything).unwrap()),
        [(0, Match::Any)]
    );
    let halves = [range(0, u128::MAX >> 1), range(1 << 127, u128::MAX)];
    assert_eq!(stored(&merge(ip6, &halves).unwrap()), [(0, Match::Any)]);
}

#[test]
fn b28_a_prefix_over_a_stored_end_is_refused_and_merges() {
    let elements = [Match::Exact(0xffff_ffff), prefix([255, 255, 255, 0], 24)];
    assert!(strict(ip4(), &elements).is_err());
    let all = [
        prefix([255, 255, 255, 0], 24),
        addresses([0; 4], [255, 255, 255, 0]),
    ];
    assert_eq!(stored(&merge(ip4(), &all).unwrap()), [(0, Match::Any)]);
}

#[test]
fn b76_a_repeated_line_is_no_new_element() {
    let mut lines: Vec<Match> = (0..1_000).map(|k| range(k * 16, k * 16 + 15)).collect();
    lines.push(lines[1]);
    let rules = strict(port(), &lines).unwrap();
    assert_eq!(rules.len(), 1_000);
    let repeated = Note::Repeated {
        rule: id(1_000),
        earlier: id(1),
    };
    assert_eq!(rules.notes(), [repeated]);
}

#[test]
fn the_same_key_with_another_verdict_is_a_conflict() {
    let rule = |verdict| Rule::new([Match::Exact(1)]).with_verdict(verdict);
    let refusal = RuleSetError::Conflict {
        rule: id(1),
        earlier: id(0),
    };
    for overlap in [Overlap::Strict, Overlap::Merge] {
        let result = build(
            port(),
            overlap,
            [rule(Verdict::Accept), rule(Verdict::Drop)],
        );
        assert_eq!(result, Err(refusal.clone()));
    }
}

#[test]
fn a_mask_that_is_no_prefix_counts_as_the_interval_between_its_ends() {
    let bit = Match::Mask { value: 2, mask: 2 };
    let expected = [(0, bit), (1, Match::Exact(1))];
    for set in [strict, merge] {
        assert!(set(port(), &[bit, Match::Exact(4)]).is_err());
        let rules = set(port(), &[bit, Match::Exact(1), bit]).unwrap();
        assert_eq!(stored(&rules), expected);
    }
}

#[test]
fn rules_of_different_priorities_may_overlap() {
    let rules = [range(0, 9), range(5, 7)].map(|found| Rule::new([found]));
    let [wide, narrow] = rules.clone();
    let apart = [wide, narrow.with_priority(1)];
    assert_eq!(ids(&build(port(), Overlap::Strict, apart).unwrap()), [1, 0]);
    assert!(build(port(), Overlap::Strict, rules).is_err());
}

#[test]
fn a_catch_all_overlaps_nothing_and_comes_last() {
    for overlap in [Overlap::Strict, Overlap::Merge] {
        let rules = [
            Rule::catch_all(1),
            Rule::new([range(0, 9)]),
            Rule::new([range(10, 19)]),
        ];
        let rules = build(port(), overlap, rules).unwrap();
        assert_eq!(rules.rules().last().unwrap().id, id(0));
    }
    let concatenation = [
        Rule::catch_all(2),
        Rule::new([Match::Exact(1), range(0, 9)]),
    ];
    assert_eq!(
        ids(&build(ports(), Overlap::Strict, concatenation).unwrap()),
        [1, 0]
    );
}

#[test]
fn a_rule_that_matches_all_is_a_catch_all_only_at_the_lowest_priority() {
    let all = || Rule::new([Match::Any]);
    let rules = [all(), Rule::new([range(0, 9)])];
    assert!(build(port(), Overlap::Strict, rules).is_err());
    assert!(
        RuleSet::builder(port())
            .exact(true)
            .rule(all())
            .build()
            .is_err()
    );
}

#[test]
fn a_second_catch_all_repeats_or_conflicts() {
    let accept = Rule::catch_all(1).with_verdict(Verdict::Accept);
    let same = build(port(), Overlap::Strict, [accept.clone(), accept.clone()]).unwrap();
    let repeated = Note::Repeated {
        rule: id(1),
        earlier: id(0),
    };
    assert_eq!((same.len(), same.notes()), (1, &[repeated][..]));
    let drop = accept.clone().with_verdict(Verdict::Drop);
    let conflict = RuleSetError::Conflict {
        rule: id(1),
        earlier: id(0),
    };
    assert_eq!(
        build(port(), Overlap::Strict, [accept, drop]),
        Err(conflict)
    );
}

/// Whether two matches have a value between the ends of both.
fn overlap(field: &Field, one: &Match, other: &Match) -> bool {
    one.lower(field) <= other.upper(field) && other.lower(field) <= one.upper(field)
}

#[test]
fn qc_strict_intervals_follow_the_law() {
    fn property(elements: Vec<(u8, u8, u8)>) -> bool {
        let layout = octets(1);
        let field = &layout.fields()[0];
        let spread = |&(kind, a, b): &(u8, u8, u8)| match small_match((kind, a, b)) {
            // Far apart, so that some lists are accepted.
            Match::Exact(value) => Match::Exact(value * 16),
            Match::Range { lo, hi } => range(lo * 16, (lo * 16 + hi).min(255)),
            other => other,
        };
        let matches: Vec<Match> = elements.iter().take(5).map(spread).collect();
        let clash = |at: usize| {
            let new = matches[at].canonical(field);
            let mut earlier = matches[..at].iter().map(|earlier| earlier.canonical(field));
            earlier.any(|earlier| earlier != new && overlap(field, &earlier, &new))
        };
        strict(layout.clone(), &matches).is_err() == (0..matches.len()).any(clash)
    }
    QuickCheck::new()
        .tests(5_000)
        .min_tests_passed(5_000)
        .quickcheck(property as fn(Vec<(u8, u8, u8)>) -> bool);
}

#[test]
fn b98_more_than_a_million_prefixes_need_no_deep_stack() {
    on_a_small_stack(|| {
        let prefix = |index: u128| Match::Prefix {
            value: index << 11,
            len: 21,
        };
        let prefixes: Vec<Match> = (0..1_100_000).map(prefix).collect();
        assert_eq!(strict(ip4(), &prefixes).unwrap().len(), prefixes.len());
    });
}
