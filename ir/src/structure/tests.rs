//! What the parts of structures promise, without running a program: that is done where engines are at hand.

use quickcheck::{QuickCheck, TestResult};

use super::compare::Comparison;
use super::windows::windows;
use crate::plan::{Choice, Options, PlanError, normalise, plan};
use crate::program::MISS;
use crate::{Field, KeyLayout, Match, Overlap, Refusal, Rule, RuleSet, Structure};

pub(crate) fn ports() -> KeyLayout {
    KeyLayout::packed([Field::inet_service("sport"), Field::inet_service("dport")]).unwrap()
}

pub(crate) fn range(lo: u128, hi: u128) -> Match {
    Match::Range { lo, hi }.canonical(&Field::inet_service("p"))
}

pub(crate) fn set(layout: KeyLayout, rules: impl IntoIterator<Item = Rule>) -> RuleSet {
    let builder = RuleSet::builder(layout).overlap(Overlap::First);
    builder.rules(rules).build().unwrap()
}

#[test]
fn qc_windows_read_every_wanted_byte_and_none_outside() {
    fn holds(masks: Vec<u8>) -> TestResult {
        if masks.is_empty() || masks.len() > 256 {
            return TestResult::discard();
        }
        let mut left = masks.clone();
        for window in windows(masks.iter().copied()) {
            let end = window.offset + usize::from(window.bytes);
            if !window.bytes.is_power_of_two() || end > masks.len() {
                return TestResult::failed();
            }
            left[window.offset..end].fill(0);
        }
        TestResult::from_bool(left.iter().all(|&mask| mask == 0))
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(1000)
        .quickcheck(holds as fn(Vec<u8>) -> TestResult);
}

#[test]
fn words_that_all_rules_agree_on_are_not_compared_in_lanes() {
    let layout = KeyLayout::packed([Field::ipv6_addr("daddr")]).unwrap();
    let net = 0x2001_0db8_0000_0000_0000_0000_0000_0000u128;
    let rules = [(1, 9), (20, 29)].map(|(lo, hi)| {
        Rule::new([Match::Range {
            lo: net | lo,
            hi: net | hi,
        }])
    });
    let comparison = Comparison::new(&layout, rules.iter());
    // Three words are common; the last is an interval with its low end and its length.
    assert_eq!(comparison.column_count(), 2);
}

#[test]
fn bits_of_four_bytes_are_compared_as_they_lie_in_the_key() {
    let fields = [Field::ipv4_addr("saddr"), Field::ipv4_addr("daddr")];
    let layout = KeyLayout::packed(fields).unwrap();
    let rules = [0x0a01_0000, 0x0a02_0000].map(|value| {
        let prefix = Match::Prefix { value, len: 16 };
        let range = Match::Range {
            lo: value + 1,
            hi: value + 5,
        };
        Rule::new([prefix, range])
    });
    let comparison = Comparison::new(&layout, rules.iter());
    let columns = comparison.columns(8);
    let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
    let reversed = ["saddr reversed mask", "saddr reversed value"];
    assert_eq!(names, [&reversed[..], &["daddr lo", "daddr len"]].concat());
    let mut numbers = Vec::new();
    comparison.numbers(&rules[0], &mut numbers);
    assert_eq!(numbers, [0x0000_ffff, 0x0000_010a, 0x0a01_0001, 4]);
}

#[test]
fn an_interval_across_words_compares_both_ends_in_full() {
    let layout = KeyLayout::packed([Field::ipv6_addr("daddr")]).unwrap();
    let rule = Rule::new([Match::Range {
        lo: 0xffff_fff0,
        hi: 0x1_0000_0005,
    }]);
    assert_eq!(
        Comparison::new(&layout, [&rule].into_iter()).column_count(),
        8
    );
}

#[test]
fn each_structure_refuses_what_it_cannot_hold_and_says_why() {
    let ranges = set(
        ports(),
        (0..100).map(|i| Rule::new([range(10 * i, 10 * i + 4), Match::Any])),
    );
    let only = |structure| {
        plan(
            &ranges,
            &Options {
                structure: Choice::Only(structure),
                ..Options::default()
            },
        )
    };
    let refusal = |structure| match only(structure) {
        Err(PlanError::Refused(refusals)) => refusals[0].1.clone(),
        other => panic!("{structure} should refuse: {other:?}"),
    };
    assert_eq!(
        refusal(Structure::Inline),
        Refusal::TooManyRules {
            rules: 100,
            max: 63
        }
    );
    assert_eq!(
        refusal(Structure::Hash),
        Refusal::MixedMasks {
            field: "sport".into()
        }
    );
    let structures = [
        Structure::Bucket,
        Structure::Radix,
        Structure::Tree,
        Structure::Linear,
    ];
    for structure in structures {
        assert_eq!(only(structure).unwrap().structure(), structure);
    }
}

#[test]
fn searches_of_one_field_refuse_a_second_and_masks_and_crowds() {
    let refusal = |structure, rules: &RuleSet| {
        let options = Options {
            structure: Choice::Only(structure),
            ..Options::default()
        };
        match plan(rules, &options) {
            Err(PlanError::Refused(refusals)) => refusals[0].1.clone(),
            other => panic!("{structure} should refuse: {other:?}"),
        }
    };
    let rule = |i: u128| Rule::new([range(10 * i, 10 * i + 4), Match::Exact(i)]);
    let two_fields = set(ports(), (0..100).map(rule));
    let expected = Refusal::TwoRangedFields {
        first: "sport".into(),
        second: "dport".into(),
    };
    assert_eq!(refusal(Structure::Radix, &two_fields), expected);
    assert_eq!(refusal(Structure::Tree, &two_fields), expected);

    let odd = |value| Match::Mask { value, mask: 0x101 };
    let masks = [0, 1].map(|value| Rule::new([odd(value), Match::Any]));
    let expected = Refusal::NotAnInterval {
        field: "sport".into(),
    };
    assert_eq!(refusal(Structure::Tree, &set(ports(), masks)), expected);

    // 1000 values in one cell, since another rule is far away.
    let addresses = KeyLayout::packed([Field::ipv4_addr("daddr")]).unwrap();
    let values = (0..500).map(|i| 2 * i + 1).chain([u128::from(u32::MAX)]);
    let crowd = set(
        addresses,
        values.map(|value| Rule::new([Match::Exact(value)])),
    );
    let expected = Refusal::Crowded {
        segments: 1001,
        cells: 1 << 13,
    };
    assert_eq!(refusal(Structure::Radix, &crowd), expected);
}

#[test]
fn direct_names_the_field_that_leaves_too_many_rules() {
    let nested = set(
        ports(),
        (0..5).map(|i| Rule::new([range(490 - i, 510 + i), Match::Any])),
    );
    let options = Options {
        structure: Choice::Only(Structure::Direct),
        ..Options::default()
    };
    let Err(PlanError::Refused(refusals)) = plan(&nested, &options) else {
        panic!("five rules match port 500")
    };
    assert_eq!(
        refusals[0].1,
        Refusal::SharedClasses {
            max: 4,
            fields: "sport".into(),
            placed: 4,
            rules: 5
        }
    );
}

#[test]
fn direct_compares_nothing_of_a_field_whose_differing_bits_are_the_index() {
    let rules = set(
        ports(),
        (0..5000).map(|i| Rule::new([range(10 * i, 10 * i + 4), Match::Exact(80)])),
    );
    let options = Options {
        structure: Choice::Only(Structure::Direct),
        ..Options::default()
    };
    let plan = plan(&rules, &options).unwrap();
    let rows = &plan.program().program().tables[0];
    // `sport` is decided, and all want the same `dport`.
    let names: Vec<&str> = rows.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names, ["row"]);
}

#[test]
fn tables_over_the_budget_are_refused_with_the_figures() {
    let rules = set(
        ports(),
        (0..1000).map(|i| Rule::new([Match::Exact(i), Match::Exact(i)])),
    );
    let error = plan(
        &rules,
        &Options {
            table_budget: 100,
            ..Options::default()
        },
    )
    .unwrap_err();
    let PlanError::Refused(refusals) = &error else {
        panic!("{error}")
    };
    // All but `pipapo4` and `pipapo8`, which are asked for by name alone.
    assert_eq!(refusals.len(), Structure::ALL.len() - 2);
    assert!(error.to_string().contains("the budget is 100"), "{error}");
}

#[test]
fn the_rules_decide_the_structure() {
    let auto = |rules: &RuleSet| plan(rules, &Options::default()).unwrap().structure();
    // All match port 500, so that no index tells them apart.
    let nested = set(
        ports(),
        (0..8).map(|i| Rule::new([range(490 - i, 510 + i), Match::Any])),
    );
    assert_eq!(auto(&nested), Structure::Inline);
    let ranges = set(
        ports(),
        (0..5000).map(|i| Rule::new([range(10 * i, 10 * i + 4), Match::Any])),
    );
    assert_eq!(auto(&ranges), Structure::Direct);
    // Each value of a field has more rules than `direct` compares.
    let grid = |i: u128| (641 * (i % 97), 1201 * (i / 97));
    let exact = set(
        ports(),
        (0..5000)
            .map(grid)
            .map(|(x, y)| Rule::new([Match::Exact(x), Match::Exact(y)])),
    );
    assert_eq!(auto(&exact), Structure::Hash);
    // Side by side, both ports would be one test of `peel`.
    let apart = [("sport", 0), ("dport", 4)].map(|(name, at)| (Field::inet_service(name), at));
    let boxes = set(
        KeyLayout::at(apart).unwrap(),
        (0..5000)
            .map(grid)
            .map(|(x, y)| Rule::new([range(x, x + 4), range(y, y + 4)])),
    );
    eprintln!(
        "{}",
        plan(&boxes, &Options::default()).unwrap().into_parts().1
    );
    assert_eq!(auto(&boxes), Structure::Bucket);
    // Each interval around the one before, all of them in one corner of the addresses.
    let addresses = KeyLayout::packed([Field::ipv4_addr("daddr")]).unwrap();
    let around = |i: u128| Match::Range {
        lo: 10_000 - i,
        hi: 10_000 + i,
    };
    let corner = (0..5000).map(around);
    let far = Match::Exact(u32::MAX.into());
    let corner = corner.chain([far]).map(|found| Rule::new([found]));
    assert_eq!(auto(&set(addresses, corner)), Structure::Tree);
}

#[test]
fn the_same_rules_give_the_same_program() {
    let rules = set(
        ports(),
        (0..500).map(|i| Rule::new([range(10 * i, 10 * i + 6), range(i, 2 * i)])),
    );
    for structure in Structure::ALL {
        let options = Options {
            structure: Choice::Only(structure),
            ..Options::default()
        };
        let program = || {
            plan(&rules, &options)
                .ok()
                .map(|plan| plan.program().program().clone())
        };
        assert_eq!(program(), program());
    }
}

#[test]
fn rules_that_can_never_win_are_left_out() {
    let any = Rule::new([Match::Any, Match::Any]);
    let wide = Rule::new([range(0, 999), Match::Any]);
    let narrow = Rule::new([range(5, 9), Match::Exact(80)]);
    let rules = set(ports(), [wide, narrow.clone(), any, narrow]);
    let plan = plan(&rules, &Options::default()).unwrap();
    assert_eq!(
        (plan.decision().rules(), plan.decision().live_rules()),
        (4, 2)
    );
}

#[test]
fn ten_thousand_repeats_are_one_rule_at_the_least_effort() {
    let rule = Rule::new([range(5, 77), Match::Any]);
    let rules = set(ports(), std::iter::repeat_n(rule, 10_000));
    let options = Options {
        effort: crate::plan::Effort::Fast,
        ..Options::default()
    };
    assert_eq!(
        plan(&rules, &options).unwrap().decision().live_rules(),
        1,
        "repeats that stay alive fill buckets and blocks"
    );
}

fn one_byte() -> KeyLayout {
    KeyLayout::packed([Field::inet_proto("proto")]).unwrap()
}

/// The segments of a rule set, as pairs of their last values and rows.
fn segments_of(rules: &RuleSet) -> Vec<(u128, u32)> {
    let input = normalise(rules, &Options::default());
    let segments = input.segments().unwrap();
    let rows = segments.rows().iter().copied();
    segments.lasts().iter().copied().zip(rows).collect()
}

#[test]
fn nested_and_overlapping_rules_are_flattened_to_what_wins() {
    let range = |lo, hi| Rule::new([Match::Range { lo, hi }]);
    let rules = set(one_byte(), [range(5, 9), range(0, 99), range(200, 255)]);
    let expected = [(4, 1), (9, 0), (99, 1), (199, MISS), (255, 2)];
    assert_eq!(segments_of(&rules), expected);
}

#[test]
fn neighbours_with_the_same_result_are_one_segment() {
    // The second rule begins and ends inside the first.
    let range = |lo, hi| Rule::new([Match::Range { lo, hi }]);
    let rules = set(one_byte(), [range(0, 199), range(100, 220)]);
    assert_eq!(segments_of(&rules), [(199, 0), (220, 1), (255, MISS)]);
}

#[test]
fn values_outside_the_block_of_all_rules_are_in_no_segment() {
    let exact = |value| Rule::new([Match::Exact(value)]);
    let rules = set(one_byte(), [exact(0x41), exact(0x46)]);
    // 0x40..=0x47
    let expected = [
        (0x40, MISS),
        (0x41, 0),
        (0x45, MISS),
        (0x46, 1),
        (0x47, MISS),
    ];
    assert_eq!(segments_of(&rules), expected);
}

#[test]
fn qc_a_value_is_in_the_segment_of_the_rule_that_wins() {
    fn holds(ends: Vec<(u8, u8)>) -> TestResult {
        if ends.is_empty() {
            return TestResult::discard();
        }
        let rules = ends.iter().map(|&(a, b)| {
            Rule::new([Match::Range {
                lo: a.min(b).into(),
                hi: a.max(b).into(),
            }])
        });
        let rules = set(one_byte(), rules);
        let input = normalise(&rules, &Options::default());
        let segments = input.segments().unwrap();
        let field = Field::inet_proto("proto");
        let first = segments.lasts()[0] >> (8 - segments.prefix_bits());
        let expected = |value: u128| {
            let wins = |&row: &u32| input.rule(row).matches[0].matches(&field, value);
            input.rows.iter().copied().find(wins).or(input.default)
        };
        TestResult::from_bool((0..=255).all(|value: u128| {
            let is_outside = value >> (8 - segments.prefix_bits()) != first;
            let segment = segments.lasts().partition_point(|&last| last < value);
            let found = segments.rows().get(segment).filter(|_| !is_outside);
            let found = found.copied().filter(|&row| row != MISS).or(input.default);
            found == expected(value)
        }))
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(1000)
        .quickcheck(holds as fn(Vec<(u8, u8)>) -> TestResult);
}

/// Rules of two fields with few pieces in common, and one whose second field is many pieces.
fn one_rule_of_many_pieces() -> RuleSet {
    let layout = KeyLayout::packed([
        Field::integer("a", 3).unwrap(),
        Field::integer("b", 3).unwrap(),
    ]);
    let wide = Match::Range {
        lo: 1,
        hi: 0xff_fffe,
    };
    let rules = (0..2000).map(|i| Rule::new([wide, Match::Exact(i)]));
    set(layout.unwrap(), rules.chain([Rule::new([wide, wide])]))
}

#[test]
fn the_estimate_of_pipapo_counts_its_maps() {
    let rules = one_rule_of_many_pieces();
    let options = Options {
        structure: Choice::Only(Structure::Pipapo4),
        ..Options::default()
    };
    let plan = plan(&rules, &options).unwrap();
    let program = plan.program().program();
    assert!(program.scratch > 0);
    let built: usize = program.tables.iter().map(|table| table.data.len()).sum();
    let Ok(estimate) = &plan.decision().candidates()[0].estimate else {
        panic!("{}", plan.decision())
    };
    let estimated = estimate.cost.table_bytes;
    assert!(
        built <= estimated + 4,
        "{built} bytes, {estimated} estimated"
    );
}

#[test]
fn no_budget_lets_tables_grow_beyond_what_a_program_may_have() {
    let layout = KeyLayout::packed([Field::ipv6_addr("saddr")]).unwrap();
    // Each of them almost 200 prefixes.
    let block = 1u128 << 100;
    let rules = (0..60_000).map(|i| {
        Rule::new([Match::Range {
            lo: i * block + 1,
            hi: (i + 1) * block - 2,
        }])
    });
    let options = Options {
        structure: Choice::Only(Structure::Pipapo8),
        table_budget: usize::MAX,
        ..Options::default()
    };
    let error = match plan(&set(layout, rules), &options) {
        Err(error) => error.to_string(),
        Ok(plan) => panic!("{}", plan.decision()),
    };
    assert!(error.contains("the budget is 4294967296"), "{error}");
}
