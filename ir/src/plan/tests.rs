//! What the planner relies on: that floors are below estimates, and that programs and batches suit the machine.

use quickcheck::QuickCheck;

use super::*;
use crate::program::{BinaryOp, Inst};
use crate::structure::tests::{ports, range, set};
use crate::{Field, KeyLayout, Rule, ValueId};

/// The floor and the estimate, in nanoseconds, of each structure that holds the rules.
fn floors(rule_set: &RuleSet) -> impl Iterator<Item = (Structure, f64, f64)> {
    let options = Options::default();
    let input = normalise(rule_set, &options);
    Structure::ALL.into_iter().filter_map(move |structure| {
        let ready = Prepared::new(structure, &input).ok()?;
        let costs = [Prepared::floor(structure, &input), ready.cost(&input)];
        let [floor, estimate] = costs.map(|cost| options.machine.nanoseconds(&cost));
        Some((structure, floor, estimate))
    })
}

/// Rules with little in common: exact values, prefixes, ranges and wildcards of two fields, `seed` by `seed` the same.
fn mixed(seeds: &[(u16, u16)]) -> RuleSet {
    let one = |seed: u16| match seed % 4 {
        0 => Match::Exact(u128::from(seed)),
        1 => range(u128::from(seed), u128::from(seed | 0xff)),
        2 => Match::Any,
        _ => range(u128::from(seed / 2), u128::from(seed)),
    };
    set(
        ports(),
        seeds.iter().map(|&(a, b)| Rule::new([one(a), one(b)])),
    )
}

/// Sets of which each structure holds some.
fn sets_of_all_kinds() -> Vec<RuleSet> {
    let seeds = |n: u16| {
        (0..n)
            .map(|i| (i.wrapping_mul(40_503), i.wrapping_mul(30_011)))
            .collect::<Vec<_>>()
    };
    let mut sets: Vec<RuleSet> = [2, 9, 60, 700].map(|n| mixed(&seeds(n))).into();
    sets.push(set(
        ports(),
        (0..500).map(|i| Rule::new([Match::Exact(i * 131 % 65_521), Match::Exact(i)])),
    ));
    sets.push(set(
        ports(),
        (0..500).map(|i| Rule::new([range(10 * i, 10 * i + 4), Match::Any])),
    ));
    sets.push(set(
        ports(),
        (0..500).map(|i| Rule::new([range(10 * i, 10 * i + 4), range(20 * i, 20 * i + 9)])),
    ));
    sets
}

#[test]
fn qc_no_structure_is_estimated_below_the_floor_that_may_have_ruled_it_out() {
    fn holds(seeds: Vec<(u16, u16)>, is_exact: bool) -> bool {
        let exact =
            |&(a, b): &(u16, u16)| Rule::new([a, b].map(|value| Match::Exact(value.into())));
        let rules = if is_exact {
            set(ports(), seeds.iter().map(exact))
        } else {
            mixed(&seeds)
        };
        floors(&rules).all(|(_, floor, estimate)| floor <= estimate)
    }
    QuickCheck::new()
        .tests(300)
        .min_tests_passed(300)
        .quickcheck(holds as fn(Vec<(u16, u16)>, bool) -> bool);
}

#[test]
fn floors_hold_for_sets_of_all_kinds() {
    for rules in sets_of_all_kinds() {
        for (structure, floor, estimate) in floors(&rules) {
            assert!(floor <= estimate, "{structure}: {floor} {estimate}");
        }
    }
}

#[test]
fn what_is_given_up_in_the_middle_would_not_have_been_chosen() {
    for rules in sets_of_all_kinds() {
        let options = Options::default();
        let input = normalise(&rules, &options);
        let alone = Structure::ALL.into_iter().filter_map(|structure| {
            let ready = Prepared::new(structure, &input).ok()?;
            Some(options.machine.nanoseconds(&ready.cost(&input)))
        });
        let least = alone.fold(f64::INFINITY, f64::min);
        let plan = plan(&rules, &options).unwrap();
        let decision = plan.decision();
        let chosen = |c: &&Candidate| c.structure == decision.structure();
        let chosen = decision.candidates().iter().find(chosen).unwrap();
        let taken = chosen.estimate.as_ref().unwrap().nanoseconds;
        assert!(taken <= least, "{least}\n{decision}");
    }
}

#[test]
fn a_structure_that_is_beaten_is_given_up_in_the_middle() {
    // Two ranges each, all over the place.
    let wide = |i: u128, step: u128| range(i * step % 50_000, i * step % 50_000 + 300);
    let rules = (0..700).map(|i| Rule::new([wide(i, 8_311), wide(i, 5_903)]));
    let rules = set(ports(), rules);
    let input = normalise(&rules, &Options::default());
    for structure in [Structure::Bucket, Structure::Peel] {
        let floor = Prepared::floor(structure, &input);
        let floor = input.machine.nanoseconds(&floor);
        input.least.set(floor + 0.1);
        let prepared = Prepared::new(structure, &input);
        assert!(
            matches!(prepared, Err(Refusal::Slower { at_least }) if at_least > floor),
            "{structure}"
        );
    }
}

/// The number of `pext` in the program of each structure that holds the rules, all together.
fn pexts(rules: &RuleSet, pext: Pext) -> usize {
    let machine = Machine {
        pext,
        ..Machine::default()
    };
    let programs = Structure::ALL.into_iter().filter_map(|structure| {
        let options = Options {
            structure: Choice::Only(structure),
            machine,
            ..Options::default()
        };
        plan(rules, &options).ok()
    });
    let is_pext = |(_, inst): &&(ValueId, Inst)| {
        matches!(
            inst,
            Inst::Binary {
                op: BinaryOp::Pext,
                ..
            }
        )
    };
    let count = |plan: Plan| {
        let blocks = plan.program().program().blocks.iter();
        blocks
            .flat_map(|block| &block.insts)
            .filter(is_pext)
            .count()
    };
    programs.map(count).sum()
}

#[test]
fn a_machine_without_pext_gets_programs_without_it() {
    let all = |pext| {
        sets_of_all_kinds()
            .iter()
            .map(|rules| pexts(rules, pext))
            .sum::<usize>()
    };
    assert_eq!(all(Pext::None), 0);
    assert!(all(Pext::Fast) > 0 && all(Pext::Slow) > 0);
}

#[test]
fn a_map_of_pipapo_is_priced_by_the_pieces_that_match_before_it() {
    // Ranges around the middle, so that each key there matches all rules in both fields.
    let wide = |i: u128| range(1000 + 17 * i, 60_000 - 13 * i);
    let rules = set(
        ports(),
        (0..1000).map(|i| Rule::new([wide(i), wide(999 - i)])),
    );
    let options = Options::default();
    let input = normalise(&rules, &options);
    let ready = Prepared::new(Structure::Pipapo8, &input).unwrap();
    assert!(ready.cost(&input).instructions > 10_000.0);
    let taken = plan(&rules, &options).unwrap();
    assert!(
        taken.structure() != Structure::Pipapo,
        "{}",
        taken.decision()
    );
}

/// The decision for rules on a machine with sixteen lanes.
fn of_sixteen_lanes(rules: &RuleSet, structure: Choice) -> Decision {
    let mut options = Options {
        structure,
        ..Options::default()
    };
    options.machine.lanes = 16;
    plan(rules, &options).unwrap().decision().clone()
}

#[test]
fn sixteen_lanes_are_taken_where_they_spare_more_than_they_cost() {
    let pair = |i: u128| range(100 * i, 100 * i + 50);
    let few = |count| {
        set(
            ports(),
            (0..count).map(|i| Rule::new([pair(i), pair(2 * i)])),
        )
    };
    // One vector of eight lanes, and two.
    let lanes = [8, 12].map(|count| of_sixteen_lanes(&few(count), Choice::Only(Structure::Inline)));
    assert_eq!(lanes.map(|decision| decision.lanes()), [8, 16]);
}

#[test]
fn wide_ranges_are_compared_eight_at_a_time() {
    // Four words, of which all masks are combined (1000 random ones took 3.5 ns, and 5.0 with sixteen lanes).
    let layout = KeyLayout::packed([Field::ipv6_addr("saddr")]).unwrap();
    let start = |i: u128| i.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let rules = (1..=1000).map(|i| {
        let (lo, hi) = (start(i), start(i).saturating_add(1 << 100));
        Rule::new([Match::Range { lo, hi }])
    });
    let decision = of_sixteen_lanes(&set(layout, rules), Choice::Only(Structure::Radix));
    assert_eq!(decision.lanes(), 8, "{decision}");
}

#[test]
fn lanes_that_no_vector_has_are_an_error() {
    let rules = set(ports(), [Rule::new([Match::Exact(1), Match::Exact(2)])]);
    for lanes in (0..=u8::MAX).filter(|lanes| ![4, 8, 16].contains(lanes)) {
        let mut options = Options::default();
        options.machine.lanes = lanes;
        assert_eq!(plan(&rules, &options).err(), Some(PlanError::Lanes(lanes)));
    }
}

#[test]
fn batches_ask_for_rows_ahead_where_their_table_is_larger_than_two_second_level_caches() {
    let layout = KeyLayout::packed([Field::ipv4_addr("saddr")]).unwrap();
    let rules = (0..1000).map(|i| Rule::new([Match::Exact(i * 0x0001_0101)]));
    let rules = set(layout, rules);
    let staged = |l2| {
        let options = Options {
            structure: Choice::Only(Structure::Hash),
            machine: Machine {
                l2,
                ..Machine::default()
            },
            ..Options::default()
        };
        let (program, decision) = plan(&rules, &options).unwrap().into_parts();
        assert_eq!(
            program.program().staged.is_some(),
            decision.staged().is_some()
        );
        let told = decision.to_string().contains("rows of `slots` ahead");
        assert_eq!(told, decision.staged() == Some("slots"));
        told
    };
    // 2048 slots of 8 bytes.
    assert_eq!(
        [0, 8191, 8192, 1 << 20].map(staged),
        [true, true, false, false]
    );
}
