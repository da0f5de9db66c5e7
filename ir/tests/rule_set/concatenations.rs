//! The strict policy for several fields.

use pktjit_ir::{Field, KeyLayout, Match, Overlap, Rule, RuleSetError, Verdict};
use quickcheck::QuickCheck;

use super::{build, id, ids, octets, on_a_small_stack, ports, prefix, range, small_match, verdict};

fn ifname(name: &str) -> Match {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Match::Exact(u128::from_be_bytes(bytes))
}

/// Adds the elements one by one and tells what becomes of each; refused ones are taken back.
fn outcomes(layout: &KeyLayout, elements: &[Rule]) -> Vec<&'static str> {
    let mut accepted: Vec<Rule> = Vec::new();
    let mut outcomes = Vec::new();
    for element in elements {
        let mut rules = accepted.clone();
        rules.push(element.clone());
        outcomes.push(match build(layout.clone(), Overlap::Strict, rules) {
            Ok(rules) if rules.len() == accepted.len() => "no-op",
            Ok(_) => {
                accepted.push(element.clone());
                "ok"
            }
            Err(RuleSetError::Conflict { .. }) => "conflict",
            Err(_) => "refuse",
        });
    }
    outcomes
}

#[test]
fn b16_acceptance_table_of_overlapping_concatenations() {
    let table = [
        (range(0, 2), range(0, 3), "ok"),
        (range(0, 2), range(0, 3), "no-op"),
        (range(0, 1), range(0, 2), "refuse"),
        (range(10, 20), range(30, 40), "ok"),
        (range(15, 20), range(50, 60), "ok"),
        (range(3, 9), range(4, 29), "ok"),
        (range(3, 9), range(4, 29), "no-op"),
        (range(11, 19), range(30, 40), "refuse"),
        (range(15, 20), range(49, 61), "ok"),
    ];
    let elements = table.map(|(sport, dport, _)| Rule::new([sport, dport]));
    assert_eq!(
        outcomes(&ports(), &elements),
        table.map(|(.., expected)| expected)
    );
}

#[test]
fn b13_a_wider_element_with_the_same_start_is_refused_not_swallowed() {
    let layout = KeyLayout::packed([Field::ifname("iif"), Field::ipv4_addr("saddr")]).unwrap();
    let lo =
        |len| Rule::new([ifname("lo"), prefix([10, 0, 0, 0], len)]).with_verdict(Verdict::Drop);
    assert_eq!(
        outcomes(&layout, &[lo(24), lo(24), lo(8)]),
        ["ok", "no-op", "refuse"]
    );
}

#[test]
fn b14_narrow_then_broad_is_accepted_and_broad_then_narrow_refused() {
    let fields = [
        Field::ifname("iif"),
        Field::ipv4_addr("daddr"),
        Field::ifname("oif"),
    ];
    let layout = KeyLayout::packed(fields).unwrap();
    let lo = |address| Rule::new([ifname("lo"), address, ifname("lo")]);
    let narrow = lo(prefix([127, 0, 0, 1], 32)).with_verdict(Verdict::Accept);
    let broad = lo(prefix([127, 0, 0, 0], 8)).with_verdict(Verdict::Drop);
    assert_eq!(
        outcomes(&layout, &[narrow.clone(), broad.clone()]),
        ["ok", "ok"]
    );
    assert_eq!(outcomes(&layout, &[broad, narrow]), ["ok", "refuse"]);
}

#[test]
fn b82_the_cost_of_a_range_is_not_its_size() {
    let fields = [
        Field::ipv4_addr("saddr"),
        Field::inet_service("dport"),
        Field::ipv4_addr("daddr"),
    ];
    let layout = KeyLayout::packed(fields).unwrap();
    let elements = [
        Rule::new([
            prefix([0; 4], 0),
            range(1, 2),
            prefix([192, 168, 230, 128], 25),
        ]),
        Rule::new([prefix([0; 4], 0), range(0, 65535), prefix([0; 4], 0)]),
    ];
    assert_eq!(outcomes(&layout, &elements), ["ok", "ok"]);
}

#[test]
fn a_repeated_concatenation_with_another_verdict_is_a_conflict() {
    let element = Rule::new([range(1, 2), Match::Any]).with_verdict(Verdict::Accept);
    let other = element.clone().with_verdict(Verdict::Drop);
    assert_eq!(outcomes(&ports(), &[element, other]), ["ok", "conflict"]);
}

#[test]
fn merge_of_several_fields_is_strict() {
    let elements = || [range(0, 4), range(5, 9)].map(|found| Rule::new([found, Match::Exact(1)]));
    let merged = build(ports(), Overlap::Merge, elements()).unwrap();
    let strict = build(ports(), Overlap::Strict, elements()).unwrap();
    assert_eq!(merged.rules(), strict.rules());
}

/// What the law for concatenations says, by asking every earlier element: the stored ids, or the refused one.
fn concatenation_law(layout: &KeyLayout, elements: &[Rule]) -> Result<Vec<u32>, u32> {
    let fields = layout.fields();
    let canonical = |rule: &Rule| -> Vec<Match> {
        fields
            .iter()
            .zip(&rule.matches)
            .map(|(field, found)| found.canonical(field))
            .collect()
    };
    let mut stored: Vec<u32> = Vec::new();
    for (index, element) in (0u32..).zip(elements) {
        let earlier = || stored.iter().map(|&earlier| &elements[earlier as usize]);
        if let Some(twin) = earlier().find(|earlier| canonical(earlier) == canonical(element)) {
            if twin.verdict != element.verdict {
                return Err(index);
            }
            continue;
        }
        let takes = |end: fn(&Match, &Field) -> u128| {
            earlier().any(|earlier| {
                let mut fields = fields.iter().zip(&earlier.matches).zip(&element.matches);
                fields.all(|((field, taken), new)| taken.matches(field, end(new, field)))
            })
        };
        if takes(Match::lower) || takes(Match::upper) {
            return Err(index);
        }
        stored.push(index);
    }
    Ok(stored)
}

#[test]
fn qc_strict_concatenations_follow_the_law() {
    type Element = ((u8, u8, u8), (u8, u8, u8), bool);
    fn property(elements: Vec<Element>) -> bool {
        let rule = |&(a, b, accept): &Element| {
            Rule::new([small_match(a), small_match(b)])
                .with_verdict(verdict(accept || a.0 % 4 != 0))
        };
        let mut rules: Vec<Rule> = elements.iter().map(rule).collect();
        // Most random lists are refused early: go on without the refused ones until the list is accepted.
        loop {
            let expected = concatenation_law(&octets(2), &rules);
            let built = build(octets(2), Overlap::Strict, rules.clone());
            match (expected, built) {
                (Ok(expected), Ok(built)) => return ids(&built) == expected,
                (
                    Err(refused),
                    Err(RuleSetError::Overlap { rule, .. } | RuleSetError::Conflict { rule, .. }),
                ) if rule == id(refused) => {
                    rules.remove(refused as usize);
                }
                _ => return false,
            }
        }
    }
    QuickCheck::new()
        .tests(2_000)
        .min_tests_passed(2_000)
        .quickcheck(property as fn(Vec<Element>) -> bool);
}

#[test]
fn b124_a_hundred_thousand_concatenations_are_checked_against_each_other() {
    on_a_small_stack(|| {
        let element = |index: u128| {
            Rule::new([
                range(index % 317 * 8, index % 317 * 8 + 7),
                range(index / 317 * 8, index / 317 * 8 + 7),
            ])
        };
        let mut elements: Vec<Rule> = (0..100_000).map(element).collect();
        assert_eq!(
            build(ports(), Overlap::Strict, elements.clone())
                .unwrap()
                .len(),
            100_000
        );
        elements.push(Rule::new([Match::Exact(317 * 8 - 1), Match::Exact(0)]));
        let refusal = RuleSetError::Overlap {
            rule: id(100_000),
            earlier: id(316),
        };
        assert_eq!(build(ports(), Overlap::Strict, elements), Err(refusal));
    });
}
