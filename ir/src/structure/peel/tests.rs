//! What the parts of `peel` promise; that programs give the right answer is tested where engines are.

use quickcheck::{QuickCheck, TestResult};

use super::Peel;
use super::leaves::Leaves;
use super::select::{Aim, choose};
use super::ternary::Ternaries;
use crate::plan::{Options, Work, normalise};
use crate::structure::bits::{self, FINE, Index, Ternary};
use crate::structure::lists::Lists;
use crate::structure::tests::{ports, set};
use crate::{Field, Match, Rule};

/// A condition among few values, so that rules overlap deeply and shadow each other.
fn condition((kind, a, b): (u8, u8, u8)) -> Match {
    let (a, b) = (u128::from(a % 32) << 6, u128::from(b % 32) << 6);
    match kind % 4 {
        0 => Match::Any,
        1 => Match::Exact(a),
        2 => Match::Prefix {
            value: a,
            len: 6 + kind / 4 % 5,
        },
        _ => Match::Range {
            lo: a.min(b),
            hi: a.max(b) + 9,
        },
    }
}

type Seed = Vec<((u8, u8, u8), (u8, u8, u8))>;

#[test]
fn qc_the_winner_is_in_the_leaf_of_a_group_unless_it_is_left_to_the_rest() {
    fn holds(seed: Seed, keys: Vec<(u8, u8)>) -> TestResult {
        if seed.is_empty() {
            return TestResult::discard();
        }
        let rules = set(
            ports(),
            seed.iter()
                .map(|&(a, b)| Rule::new([condition(a), condition(b)])),
        );
        let input = normalise(&rules, &Options::default());
        let peel = Peel::prepare(&input).unwrap();
        let layout = ports();
        let is_found = |key: [u128; 2]| {
            let matches = |rule: &Rule| {
                let fields = rule.matches.iter().zip(layout.fields()).zip(key);
                fields
                    .into_iter()
                    .all(|((found, field), value)| found.matches(field, value))
            };
            let winner = (0..input.rows.len() as u32)
                .find(|&rule| matches(input.rule(input.rows[rule as usize])));
            // A key is a rule of single values, so its one piece has one cell.
            let mut own = Vec::new();
            bits::pieces(&layout, &Rule::new(key.map(Match::Exact)), FINE, &mut own);
            winner.is_none_or(|winner| {
                let row = &input.rows[winner as usize];
                peel.rest
                    .as_ref()
                    .is_some_and(|rest| rest.rows().contains(row))
                    || peel.stages.iter().any(|stage| {
                        let (cell, _) = stage.index.cells(&own[0]);
                        let leaf = stage.leaves.of_cell[cell as usize];
                        stage.leaves.leaves[leaf as usize].contains(&winner)
                    })
            })
        };
        let keys = keys
            .iter()
            .map(|&(a, b)| [u128::from(a) << 3, u128::from(b) << 3]);
        let corners = rules.rules().iter().flat_map(|stored| {
            let ends = |end: fn(&Match, &Field) -> u128| {
                let fields = layout.fields();
                [0, 1].map(|f| end(&stored.rule.matches[f], &fields[f]))
            };
            [ends(Match::lower), ends(Match::upper)]
        });
        TestResult::from_bool(keys.chain(corners).all(is_found))
    }
    QuickCheck::new()
        .tests(300)
        .min_tests_passed(250)
        .quickcheck(holds as fn(Seed, Vec<(u8, u8)>) -> TestResult);
}

fn exact(value: u64) -> Ternary {
    Ternary {
        care: u64::MAX,
        value,
    }
}

#[test]
fn only_bits_that_tell_rules_apart_are_chosen() {
    let rules = [0x1200, 0x1210, 0x1220, 0x1230].map(exact).to_vec();
    let aim = Aim {
        capacity: 1,
        max_bits: 8,
        max_wild: 1,
    };
    let steps = choose(rules, u64::MAX, &aim, &Work::new(u64::MAX)).steps;
    assert_eq!(steps.last().map(|step| step.mask), Some(0x30));
    let overflow: Vec<usize> = steps.iter().map(|step| step.overflow[0]).collect();
    assert_eq!(overflow, [3, 2, 0]);
}

#[test]
fn a_rule_that_is_wild_in_too_many_bits_is_given_up() {
    let wild = Ternary {
        care: 0xf000,
        value: 0x1000,
    };
    let rules = (0..16)
        .map(|i| exact(0x1200 + 0x10 * i))
        .chain([wild])
        .collect();
    let aim = Aim {
        capacity: 4,
        max_bits: 8,
        max_wild: 1,
    };
    let steps = choose(rules, u64::MAX, &aim, &Work::new(u64::MAX)).steps;
    let last = steps.last().unwrap();
    assert_eq!(
        (last.mask.count_ones(), last.placed, last.given_up),
        (2, 16, 1)
    );
}

#[test]
fn a_rule_covers_another_where_the_index_fixes_what_it_asks_for() {
    let low = Match::Prefix { value: 0, len: 8 };
    let rules = [[low, Match::Any], [Match::Any, Match::Exact(7)]].map(Rule::new);
    let rules = set(ports(), rules);
    let input = normalise(&rules, &Options::default());
    let ternaries = Ternaries::new(&input);
    // The leading 8 bits of `sport`, which is the first field.
    let index = Index::new(&ports(), &[8, 9, 10, 11, 12, 13, 14, 15]);
    assert!(ternaries.covers(&input, 0, 1, &ternaries.fixed(&index, 0xff)));
    assert!(!ternaries.covers(&input, 0, 1, &ternaries.fixed(&index, 0x7f)));
    assert!(!ternaries.covers(&input, 1, 0, &ternaries.fixed(&index, 0xff)));
}

#[test]
fn an_interval_covers_what_it_contains_not_what_its_prefix_does() {
    let range = |lo, hi| [Match::Range { lo, hi }, Match::Any];
    // All three within 0..=31.
    let rules = [range(10, 20), range(5, 30), range(12, 19), range(4, 30)].map(Rule::new);
    let rules = set(ports(), rules);
    let input = normalise(&rules, &Options::default());
    assert_eq!(input.rows, [0, 1, 3]);
    let ternaries = Ternaries::new(&input);
    assert!(!ternaries.covers(&input, 0, 1, &[0]));
    assert!(ternaries.covers(&input, 1, 0, &[0]));
}

#[test]
fn qc_each_cell_has_its_rules_in_its_leaf_and_no_leaf_is_too_long() {
    fn holds(cells: Vec<Vec<u8>>) -> bool {
        const CAPACITY: usize = 8;
        let mut lists = Lists::default();
        for mut cell in cells {
            cell.sort_unstable();
            cell.dedup();
            cell.truncate(CAPACITY);
            lists.push(cell.into_iter().map(u32::from));
        }
        let Leaves { of_cell, leaves } = Leaves::pack(&lists, CAPACITY);
        let has_all = |(cell, &leaf): (&[u32], &u32)| {
            cell.iter().all(|rule| leaves[leaf as usize].contains(rule))
        };
        lists.iter().zip(&of_cell).all(has_all) && leaves.iter().all(|leaf| leaf.len() <= CAPACITY)
    }
    QuickCheck::new()
        .min_tests_passed(100)
        .quickcheck(holds as fn(Vec<Vec<u8>>) -> bool);
}

#[test]
fn neighbouring_cells_share_a_leaf_and_so_do_small_ones() {
    let mut lists = Lists::default();
    // The first two have a rule in common; the last fits beside the third.
    for cell in [&[1, 2, 3][..], &[3, 4], &[5, 6, 7], &[8, 9, 10, 11], &[12]] {
        lists.push(cell.iter().copied());
    }
    let Leaves { of_cell, leaves } = Leaves::pack(&lists, 4);
    assert_eq!(leaves.len(), 3);
    assert_eq!((of_cell[0], of_cell[2]), (of_cell[1], of_cell[4]));
}
