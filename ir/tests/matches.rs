//! Single matches against brute force over every value of an 8-bit field.

use std::collections::HashMap;

use pktjit_ir::{Field, Match, MatchError};
use quickcheck::QuickCheck;

fn octet() -> Field {
    Field::integer("octet", 1).unwrap()
}

/// Every match that an 8-bit field can have.
fn all_matches() -> Vec<Match> {
    let values = || 0..=255u128;
    let mut all = vec![Match::Any];
    all.extend(values().map(Match::Exact));
    all.extend((0..=8).flat_map(|len| values().map(move |value| Match::Prefix { value, len })));
    all.extend(values().flat_map(|hi| (0..=hi).map(move |lo| Match::Range { lo, hi })));
    all.extend(values().flat_map(|mask| values().map(move |value| Match::Mask { value, mask })));
    all
}

/// The matched values as a set of 256 bits.
fn matched(found: &Match) -> [u128; 2] {
    let mut set = [0; 2];
    for value in 0..=255u128 {
        if found.matches(&octet(), value) {
            set[value as usize / 128] |= 1 << (value % 128);
        }
    }
    set
}

fn is_subset(inner: [u128; 2], outer: [u128; 2]) -> bool {
    inner[0] & !outer[0] == 0 && inner[1] & !outer[1] == 0
}

#[test]
fn canonical_form_matches_the_same_values() {
    for found in all_matches() {
        let canonical = found.canonical(&octet());
        assert_eq!(
            matched(&canonical),
            matched(&found),
            "{found:?} became {canonical:?}"
        );
    }
}

#[test]
fn matches_of_the_same_values_have_one_canonical_form() {
    let mut forms = HashMap::new();
    for found in all_matches() {
        let canonical = found.canonical(&octet());
        let known = *forms.entry(matched(&found)).or_insert(canonical);
        assert_eq!(known, canonical, "{found:?}");
        assert_eq!(canonical.canonical(&octet()), canonical, "{found:?}");
    }
}

#[test]
fn ends_are_the_smallest_and_the_largest_matched_value() {
    for found in all_matches() {
        let mut values = (0..=255).filter(|&value| found.matches(&octet(), value));
        let lowest = values.next().unwrap();
        let ends = (found.lower(&octet()), found.upper(&octet()));
        assert_eq!(
            ends,
            (lowest, values.next_back().unwrap_or(lowest)),
            "{found:?}"
        );
    }
}

#[test]
fn every_form_covers_exactly_its_subsets() {
    // A part of them: all would be 10^10 pairs.
    let samples = all_matches().into_iter().step_by(131);
    let samples: Vec<_> = samples.map(|found| (matched(&found), found)).collect();
    for (ones, one) in &samples {
        for (others, other) in &samples {
            let is_subset = is_subset(*others, *ones);
            assert_eq!(
                one.covers(other, &octet()),
                is_subset,
                "{one:?} covers {other:?}"
            );
        }
    }
}

#[test]
fn qc_covers_agrees_with_brute_force() {
    fn property(one: (u8, u8, u8), other: (u8, u8, u8)) -> bool {
        let (one, other) = (any_match(one), any_match(other));
        one.covers(&other, &octet()) == is_subset(matched(&other), matched(&one))
    }
    QuickCheck::new()
        .tests(10_000)
        .min_tests_passed(10_000)
        .quickcheck(property as fn((u8, u8, u8), (u8, u8, u8)) -> bool);
}

/// Few different bits, so that random pairs often cover each other.
fn any_match((kind, a, b): (u8, u8, u8)) -> Match {
    let (value, other) = (u128::from(a & 0xc3), u128::from(b & 0xc3));
    match kind % 5 {
        0 => Match::Any,
        1 => Match::Exact(value),
        2 => Match::Prefix { value, len: b % 9 },
        3 => Match::Range {
            lo: value.min(other),
            hi: value.max(other),
        },
        _ => Match::Mask { value, mask: other },
    }
}

#[test]
fn b58_prefix_lengths_zero_and_full_of_every_width() {
    for (bytes, lens) in [
        (4, [0, 1, 31, 32]),
        (8, [0, 1, 63, 64]),
        (16, [0, 64, 127, 128]),
    ] {
        let field = Field::integer("field", bytes).unwrap();
        for len in lens {
            let prefix = Match::Prefix { value: 0, len };
            let hi = field.max().checked_shr(len.into()).unwrap_or(0);
            assert_eq!((prefix.lower(&field), prefix.upper(&field)), (0, hi));
            assert!(prefix.matches(&field, hi));
            assert_eq!(prefix.matches(&field, field.max()), len == 0);
        }
    }
}

#[test]
fn b57_a_prefix_longer_than_the_field_is_refused() {
    for (field, len) in [
        (Field::ipv4_addr("saddr"), 33),
        (Field::ipv4_addr("saddr"), 255),
        (Field::ipv6_addr("saddr"), 129),
        (Field::ipv6_addr("saddr"), 255),
    ] {
        let bits = field.bits();
        let refusal = Err(MatchError::PrefixTooLong { len, bits });
        assert_eq!(Match::Prefix { value: 0, len }.check(&field), refusal);
    }
}

#[test]
fn values_wider_than_the_field_are_refused_in_every_form() {
    let value = 256;
    let refusal = Err(MatchError::ValueTooLarge { value, bits: 8 });
    for found in [
        Match::Exact(value),
        Match::Prefix { value, len: 8 },
        Match::Range { lo: 0, hi: value },
        Match::Mask { value, mask: 1 },
        Match::Mask {
            value: 1,
            mask: value,
        },
    ] {
        assert_eq!(found.check(&octet()), refusal, "{found:?}");
    }
}
