//! Planning is bounded for rules that no index tells apart, of which there are many, or that look at many fields: it ends,
//! with a program, and always the same one. Before planning had a budget, some of these took minutes. Steps are counted, not
//! time; each bound is a third or a half above what was counted (2026-12-01).

use pktjit_ir::plan::{Effort, Options, Plan, plan};
use pktjit_ir::{Field, KeyLayout, Match, Overlap, Rule, RuleSet, Structure};

/// Numbers without pattern: SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

fn set(fields: Vec<Field>, rules: impl IntoIterator<Item = Rule>) -> RuleSet {
    let mut builder = RuleSet::builder(KeyLayout::packed(fields).unwrap()).overlap(Overlap::First);
    rules.into_iter().for_each(|rule| {
        builder.push(rule);
    });
    builder.build().unwrap()
}

/// Ranges that are wide in every field.
fn wide(count: usize, fields: Vec<Field>) -> RuleSet {
    let mut random = Random(5);
    let mut range = |field: &Field| {
        let [a, b] = [0; 2].map(|_: u8| u128::from(random.next()) & field.max());
        Match::Range {
            lo: a.min(b),
            hi: a.max(b),
        }
    };
    let rules: Vec<Rule> = (0..count)
        .map(|_| Rule::new(fields.iter().map(&mut range)))
        .collect();
    set(fields, rules)
}

fn addresses(count: usize) -> Vec<Field> {
    (0..count)
        .map(|i| Field::ipv4_addr(&format!("a{i}")))
        .collect()
}

/// Plans in at most so many steps of work for each rule.
fn plan_within(steps: u64, rules: &RuleSet) -> Plan {
    let options = Options {
        effort: Effort::Fast,
        ..Options::default()
    };
    let plan = plan(rules, &options).unwrap();
    let (work, most) = (plan.decision().work(), steps * rules.len() as u64);
    assert!(work <= most, "{work} steps for {} rules", rules.len());
    plan
}

#[test]
fn fields_that_are_wild_in_all_rules() {
    let rules = set(
        addresses(2),
        (0..10_000).map(|_| Rule::new([Match::Any, Match::Any])),
    );
    assert_eq!(plan_within(1, &rules).decision().live_rules(), 1);
}

#[test]
fn ten_thousand_duplicates() {
    let rule = || Rule::new([Match::Exact(7), Match::Range { lo: 5, hi: 90 }]);
    let rules = set(addresses(2), (0..10_000).map(|_| rule()));
    assert_eq!(plan_within(1, &rules).decision().live_rules(), 1);
}

#[test]
fn every_port_is_a_table_of_rows() {
    let port = vec![Field::inet_service("dport")];
    let rules = set(
        port,
        (0..65_536).map(|port| Rule::new([Match::Exact(port)])),
    );
    assert_eq!(plan_within(20, &rules).structure(), Structure::Direct);
}

#[test]
fn a_rule_for_all_addresses_before_a_hundred_thousand_single_ones() {
    let mut random = Random(9);
    let wide = Rule::new([Match::Any, Match::Exact(5)]);
    let ports = Match::Range { lo: 1, hi: 1000 };
    let single =
        (0..100_000).map(|_| Rule::new([Match::Exact((random.next() as u32).into()), ports]));
    let fields = vec![Field::ipv4_addr("saddr"), Field::inet_service("dport")];
    plan_within(500, &set(fields, std::iter::once(wide).chain(single)));
}

#[test]
fn rules_that_all_hold_at_one_point() {
    let rule = |i: u128| {
        let lo = 0x0a00_0000 - 3 * i * i;
        Rule::new([
            Match::Range {
                lo,
                hi: 0x0a00_0000 + 5 * i,
            },
            Match::Range {
                lo: 500 - i,
                hi: 500 + i,
            },
        ])
    };
    let fields = vec![Field::ipv4_addr("saddr"), Field::inet_service("dport")];
    plan_within(4000, &set(fields, (0..173).map(rule)));
}

#[test]
fn ten_thousand_wide_ranges_of_ten_fields() {
    plan_within(3000, &wide(10_000, addresses(10)));
}

#[test]
fn wide_ranges_of_as_many_fields_as_there_may_be() {
    plan_within(3000, &wide(10_000, addresses(16)));
}

#[test]
fn a_hundred_thousand_wide_ranges_of_five_fields() {
    let [sport, dport] = ["sport", "dport"].map(Field::inet_service);
    let fields = vec![
        Field::ipv4_addr("saddr"),
        Field::ipv4_addr("daddr"),
        sport,
        dport,
        Field::inet_proto("proto"),
    ];
    plan_within(3000, &wide(100_000, fields));
}

#[test]
fn a_million_exact_rules_are_hashed() {
    let mut random = Random(3);
    let fields = vec![Field::ipv4_addr("saddr"), Field::inet_service("dport")];
    let rule = |_| {
        let bits = random.next();
        Rule::new([
            Match::Exact((bits as u32).into()),
            Match::Exact((bits >> 48).into()),
        ])
    };
    let rules: Vec<Rule> = (0..1_000_000).map(rule).collect();
    assert_eq!(
        plan_within(150, &set(fields, rules)).structure(),
        Structure::Hash
    );
}

#[test]
fn the_same_rules_give_the_same_plan_when_the_work_runs_out() {
    let rules = wide(2_000, addresses(10));
    let [one, other] = [0; 2].map(|_| plan_within(6000, &rules));
    assert!(one.decision().is_cut_short());
    assert_eq!(one.decision(), other.decision());
    assert_eq!(one.program().program(), other.program().program());
}

#[test]
fn more_effort_is_more_work_within_its_budget() {
    let rules = wide(2_000, addresses(5));
    let work = |effort| {
        let options = Options {
            effort,
            ..Options::default()
        };
        plan(&rules, &options).unwrap().decision().work()
    };
    let [fast, balanced] = [Effort::Fast, Effort::Balanced].map(work);
    assert!(
        fast < balanced && balanced <= 12 * fast,
        "{fast} {balanced}"
    );
}
