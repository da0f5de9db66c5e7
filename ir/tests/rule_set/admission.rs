//! What a rule is refused for by itself, and how accepted ones are numbered and ordered.

use pktjit_ir::{FieldId, Match, MatchError, Note, Overlap, Rule, RuleSet, RuleSetError, Verdict};

use super::{build, id, ids, ip4, port, ports, prefix, range, strict};

#[test]
fn b12_a_reversed_range_is_refused_in_every_field() {
    for (sport, dport, bad) in [
        (range(10, 20), range(40, 30), Some(1)),
        (range(40, 30), range(10, 20), Some(0)),
        (range(10, 20), range(30, 30), None),
    ] {
        let result = build(ports(), Overlap::Strict, [Rule::new([sport, dport])]);
        let named = match result {
            Err(RuleSetError::Match {
                field,
                error: MatchError::ReversedRange { lo: 40, hi: 30 },
                ..
            }) => Some(field.index()),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        };
        assert_eq!(named, bad);
    }
}

#[test]
fn b45_a_bad_match_is_refused_with_rule_field_and_figures() {
    let good = || Rule::new([Match::Any, Match::Any]);
    let bad = Rule::new([Match::Any, range(0xfff0, 0x0010)]);
    let error = build(ports(), Overlap::First, [good(), bad]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rule1, field 2 (`dport`): the range is reversed: 0xfff0 is above 0x10"
    );
}

#[test]
fn b57_a_prefix_longer_than_the_field_names_the_rule() {
    let error = strict(ip4(), &[prefix([10, 0, 0, 0], 33)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rule0, field 1 (`saddr`): prefix length 33 is longer than the field's 32 bits"
    );
}

#[test]
fn b84_host_bits_are_cleared_with_a_note() {
    let rules = strict(
        ip4(),
        &[prefix([10, 0, 1, 1], 31), prefix([10, 0, 0, 0], 24)],
    )
    .unwrap();
    assert_eq!(rules.notes(), [Note::HostBits(id(0))]);
    assert_eq!(rules.rules()[0].rule.matches, [prefix([10, 0, 1, 0], 31)]);
}

#[test]
fn b86_an_exact_set_holds_no_ranges() {
    let exact = |rule: Rule| RuleSet::builder(ports()).exact(true).rule(rule).build();
    for (sport, dport, bad) in [
        (range(1, 2), Match::Exact(1), 0),
        (Match::Exact(1), Match::Any, 1),
        (Match::Exact(1), Match::Prefix { value: 0, len: 15 }, 1),
        (Match::Mask { value: 1, mask: 1 }, Match::Exact(1), 0),
    ] {
        let name = ["sport", "dport"][bad];
        let refusal = RuleSetError::NotExact {
            rule: id(0),
            field: FieldId::new(bad as u32),
            name: name.into(),
        };
        assert_eq!(exact(Rule::new([sport, dport])), Err(refusal));
    }
}

#[test]
fn b88_a_range_from_a_value_to_itself_is_that_value() {
    let rule = Rule::new([
        range(80, 80),
        Match::Prefix {
            value: 443,
            len: 16,
        },
    ]);
    let rules = RuleSet::builder(ports())
        .exact(true)
        .rule(rule)
        .build()
        .unwrap();
    assert_eq!(rules.rules()[0].rule.matches, [80, 443].map(Match::Exact));
}

#[test]
fn an_exact_set_may_hold_a_catch_all() {
    let rule = Rule::catch_all(2);
    assert!(
        RuleSet::builder(ports())
            .exact(true)
            .rule(rule)
            .build()
            .is_ok()
    );
}

#[test]
fn b89_too_few_and_too_many_matches_are_refused() {
    for actual in [0, 1, 3, 17] {
        let rule = Rule::new(vec![Match::Any; actual]);
        let refusal = RuleSetError::FieldCount {
            rule: id(0),
            expected: 2,
            actual,
        };
        assert_eq!(build(ports(), Overlap::First, [rule]), Err(refusal));
    }
}

#[test]
fn data_of_more_than_64_bytes_is_refused() {
    let rule = |bytes| Rule::new([Match::Any]).with_verdict(Verdict::Data(vec![0; bytes].into()));
    assert!(build(port(), Overlap::Strict, [rule(64)]).is_ok());
    let refusal = RuleSetError::DataTooLong {
        rule: id(0),
        bytes: 65,
        max: 64,
    };
    assert_eq!(build(port(), Overlap::Strict, [rule(65)]), Err(refusal));
}

#[test]
fn rows_are_by_priority_and_then_by_id() {
    let rule = |priority| Rule::new([Match::Exact(1)]).with_priority(priority);
    let rules = build(port(), Overlap::First, [0, 5, i32::MIN, 5, -1].map(rule)).unwrap();
    assert_eq!(ids(&rules), [1, 3, 0, 4, 2]);
    for (row, stored) in rules.rules().iter().enumerate() {
        assert_eq!(rules.row_of(stored.id), Some(row));
        assert_eq!(rules.get(stored.id), Some(stored));
    }
    assert_eq!(rules.row_of(id(5)), None);
}

#[test]
fn repeats_count_for_ids_and_are_found_no_more() {
    let rules = strict(port(), &[1, 1, 2].map(Match::Exact)).unwrap();
    assert_eq!((ids(&rules), rules.added()), (vec![0, 2], 3));
    assert_eq!((rules.row_of(id(1)), rules.row_of(id(2))), (None, Some(1)));
}

#[test]
fn notes_are_in_the_order_of_the_rules() {
    let host_bits = Match::Prefix { value: 3, len: 15 };
    let rules = strict(port(), &[Match::Exact(9), Match::Exact(9), host_bits]).unwrap();
    let repeated = Note::Repeated {
        rule: id(1),
        earlier: id(0),
    };
    assert_eq!(rules.notes(), [repeated, Note::HostBits(id(2))]);
}

#[test]
fn first_keeps_everything_even_repeats_with_other_verdicts() {
    let rule = Rule::new([Match::Exact(1)]);
    let dropping = rule.clone().with_verdict(Verdict::Drop);
    let rules = build(port(), Overlap::First, [rule.clone(), dropping, rule]).unwrap();
    assert_eq!((ids(&rules), rules.notes()), (vec![0, 1, 2], &[][..]));
}
