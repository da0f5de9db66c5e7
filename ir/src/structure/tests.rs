//! What the parts of structures promise, without running a program: that is done where engines are at hand.

use quickcheck::{QuickCheck, TestResult};

use super::bits::{self, Aim, COARSE, FINE, Index};
use super::compare::Comparison;
use super::windows::windows;
use crate::plan::{Choice, Options, PlanError, plan};
use crate::{Field, KeyLayout, Match, Overlap, Refusal, Rule, RuleSet, Structure};

fn ports() -> KeyLayout {
    KeyLayout::packed([Field::inet_service("sport"), Field::inet_service("dport")]).unwrap()
}

fn range(lo: u128, hi: u128) -> Match {
    Match::Range { lo, hi }.canonical(&Field::inet_service("p"))
}

fn set(layout: KeyLayout, rules: impl IntoIterator<Item = Rule>) -> RuleSet {
    let builder = RuleSet::builder(layout).overlap(Overlap::First);
    rules
        .into_iter()
        .fold(builder, |builder, rule| builder.rule(rule))
        .build()
        .unwrap()
}

/// Whether a key of `layout` selects one of the cells of some piece.
fn is_in_a_cell(index: &Index, layout: &KeyLayout, key: &[u128], pieces: &[bits::Piece]) -> bool {
    // A key is a rule of single values, so its one piece has one cell.
    let exact = Rule::new(key.iter().map(|&value| Match::Exact(value)));
    let mut own = Vec::new();
    bits::pieces(layout, &exact, FINE, &mut own);
    let (cell, wild) = index.cells(&own[0]);
    assert_eq!(wild, 0);
    pieces.iter().any(|piece| {
        let (fixed, wild) = index.cells(piece);
        (cell ^ fixed) & !wild == 0
    })
}

#[test]
fn qc_the_cells_of_a_rule_hold_every_key_that_it_matches() {
    fn holds(
        a: (u16, u16),
        b: (u16, u16),
        chosen: Vec<u8>,
        at: (u16, u16),
        is_fine: bool,
    ) -> TestResult {
        let layout = ports();
        let end = |a: u16, b: u16| (u128::from(a.min(b)), u128::from(a.max(b)));
        let (lo, hi) = (end(a.0, b.0), end(a.1, b.1));
        let rule = Rule::new([range(lo.0, lo.1), range(hi.0, hi.1)]);
        let mut pieces = Vec::new();
        bits::pieces(
            &layout,
            &rule,
            if is_fine { FINE } else { COARSE },
            &mut pieces,
        );
        let mut chosen: Vec<bits::Bit> = chosen.iter().map(|&bit| u16::from(bit % 32)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let index = Index::new(&layout, &chosen);
        let inside = |(lo, hi): (u128, u128), at: u16| lo + u128::from(at) % (hi - lo + 1);
        let key = [inside(lo, at.0), inside(hi, at.1)];
        let ends = [[lo.0, hi.0], [lo.1, hi.1], key];
        TestResult::from_bool(
            ends.iter()
                .all(|key| is_in_a_cell(&index, &layout, key, &pieces)),
        )
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(2000)
        .quickcheck(holds as fn((u16, u16), (u16, u16), Vec<u8>, (u16, u16), bool) -> TestResult);
}

#[test]
fn an_interval_of_two_unaligned_values_is_two_pieces() {
    let mut pieces = Vec::new();
    bits::pieces(
        &ports(),
        &Rule::new([range(7, 8), Match::Any]),
        COARSE,
        &mut pieces,
    );
    assert_eq!(pieces.len(), 2);
    // Bit 3 of the first field tells 7 from 8, and so does bit 0.
    let index = Index::new(&ports(), &[0, 3]);
    let mut cells: Vec<(u32, u32)> = pieces.iter().map(|piece| index.cells(piece)).collect();
    cells.sort_unstable();
    assert_eq!(cells, [(0b01, 0), (0b10, 0)]);
}

#[test]
fn bits_that_tell_nothing_apart_are_not_chosen() {
    let layout = ports();
    let mut pieces = Vec::new();
    // Only bits 4 and 5 of the first field differ; the second field is wild.
    for value in [0x1200, 0x1210, 0x1220, 0x1230] {
        bits::pieces(
            &layout,
            &Rule::new([Match::Exact(value), Match::Any]),
            FINE,
            &mut pieces,
        );
    }
    let aim = Aim {
        max_bits: 8,
        capacity: 1.0,
        max_wild: 1,
    };
    let mut chosen = bits::choose(&layout, &pieces, &aim).bits;
    chosen.sort_unstable();
    assert_eq!(chosen, [4, 5]);
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
    assert_eq!(
        only(Structure::Bucket).unwrap().structure(),
        Structure::Bucket
    );
    assert_eq!(
        only(Structure::Linear).unwrap().structure(),
        Structure::Linear
    );
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
    // All but the two variants of `pipapo`.
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
    let boxes = set(
        ports(),
        (0..5000)
            .map(grid)
            .map(|(x, y)| Rule::new([range(x, x + 4), range(y, y + 4)])),
    );
    assert_eq!(auto(&boxes), Structure::Bucket);
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
