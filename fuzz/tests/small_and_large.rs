//! Known faults that take whole key spaces or thousands of elements: the winner is found here, by the law itself.

use pktjit::{Effort, Field, KeyLayout, MISS, Match, Overlap, Rule, RuleId, RuleSet, RuleSetError};
use pktjit_fuzz::oracle::{Coverage, Questions, compile, configurations};
use quickcheck::{Arbitrary, Gen};

fn below(g: &mut Gen, n: u64) -> u64 {
    u64::arbitrary(g) % n
}

/// Whether a condition of an 8-bit field means this value.
fn means(condition: Match, value: u128) -> bool {
    match condition {
        Match::Any => true,
        Match::Exact(exact) => value == exact,
        Match::Prefix { value: start, len } => value >> (8 - len) == start >> (8 - len),
        Match::Range { lo, hi } => lo <= value && value <= hi,
        Match::Mask { value: bits, mask } => (value ^ bits) & mask == 0,
    }
}

fn nibble_condition(g: &mut Gen) -> Match {
    let (a, b) = (u128::from(below(g, 16)), u128::from(below(g, 16)));
    match below(g, 5) {
        0 => Match::Any,
        1 => Match::Exact(a),
        2 => Match::Prefix {
            value: a,
            len: 4 + below(g, 5) as u8,
        },
        3 => Match::Range {
            lo: a.min(b),
            hi: a.max(b),
        },
        _ => Match::Mask { value: a, mask: b },
    }
}

/// `QUICKCHECK_TESTS` sets the number of rule sets, which is small here since each is compiled nine times.
#[test]
fn b54_small_rule_sets_agree_with_brute_force_on_the_whole_key_space() {
    let asked = std::env::var("QUICKCHECK_TESTS").ok();
    let sets: u64 = asked.and_then(|tests| tests.parse().ok()).unwrap_or(2000);
    let layout = KeyLayout::packed([Field::inet_proto("a"), Field::inet_proto("b")]).unwrap();
    let space: Vec<[u8; 2]> = (0..256)
        .map(|key: usize| [(key / 16) as u8, (key % 16) as u8])
        .collect();
    let mut lookups = 0;
    for seed in 0..sets {
        let g = &mut Gen::from_size_and_seed(10, seed);
        let rules: Vec<[Match; 2]> = (0..2 + below(g, 5))
            .map(|_| [nibble_condition(g), nibble_condition(g)])
            .collect();
        let builder = RuleSet::builder(layout.clone()).overlap(Overlap::First);
        let stored = rules.iter().map(|&rule| Rule::new(rule));
        let rule_set = builder.rules(stored).build().unwrap();
        // All priorities are equal, so that a rule's row is its position.
        let expected: Vec<u32> = space
            .iter()
            .map(|&[a, b]| {
                rules
                    .iter()
                    .position(|rule| means(rule[0], a.into()) && means(rule[1], b.into()))
            })
            .map(|rule| rule.map_or(MISS, |rule| rule as u32))
            .collect();
        for (engine, structure) in configurations() {
            let Ok(classifier) = compile(&rule_set, engine, structure, Effort::Balanced).unwrap()
            else {
                continue;
            };
            let mut rows = vec![0; 256];
            classifier
                .lookup_batch(space.as_flattened(), 2, &mut rows)
                .unwrap();
            assert_eq!(
                rows, expected,
                "{engine} {structure:?}, seed {seed}: {rules:?}"
            );
            lookups += rows.len();
        }
    }
    eprintln!("{sets} rule sets, {lookups} lookups");
}

/// The closed interval of each field of an element.
type Element = [(u128, u128); 4];

/// Some values around a centre: one, a prefix, or a range; the wider the larger `width` is.
fn around(g: &mut Gen, field: &Field, centre: u128, width: u32) -> (u128, u128) {
    let span = (1u128 << width.min(field.bits().into()).min(127)) - 1;
    match below(g, 3) {
        0 if width < 6 => (centre, centre),
        1 => (centre & !span, centre | span),
        _ => {
            let random = |g: &mut Gen| u128::arbitrary(g) & span;
            (
                centre.saturating_sub(random(g)),
                centre.saturating_add(random(g)).min(field.max()),
            )
        }
    }
}

#[test]
fn overlapping_elements_of_four_fields_give_the_winner_that_the_law_names() {
    const ELEMENTS: usize = 2500;
    let layout = KeyLayout::packed([
        Field::ipv6_addr("saddr"),
        Field::inet_service("dport"),
        Field::ether_addr("mac"),
        Field::inet_proto("proto"),
    ])
    .unwrap();
    let fields = layout.fields();
    let g = &mut Gen::from_size_and_seed(100, 2500);
    let centres: Vec<[u128; 4]> = (0..700)
        .map(|_| std::array::from_fn(|f| u128::arbitrary(g) & fields[f].max()))
        .collect();
    // nft refuses an element whose lower or upper corner an earlier one holds: so the narrow ones come first.
    let mut elements: Vec<Element> = (0..ELEMENTS * 5 / 4)
        .map(|i| {
            let width = (i * 40 / ELEMENTS) as u32;
            let centre = centres[below(g, 700) as usize];
            std::array::from_fn(|f| around(g, &fields[f], centre[f], width >> (f % 2)))
        })
        .collect();
    let rules = loop {
        let rules = elements
            .iter()
            .map(|element| Rule::new(element.map(|(lo, hi)| Match::Range { lo, hi })));
        match rules
            .fold(RuleSet::builder(layout.clone()), |builder, rule| {
                builder.rule(rule)
            })
            .build()
        {
            Ok(_) if elements.len() > ELEMENTS => elements.truncate(ELEMENTS),
            Ok(rules) => break rules,
            Err(RuleSetError::Overlap { rule, .. }) => drop(elements.remove(rule.index())),
            Err(error) => panic!("{error}"),
        }
    };
    // A few are repeats of others, which count but are not stored again.
    assert_eq!(rules.added(), ELEMENTS);
    let matching = |key: &[u128; 4]| -> Vec<usize> {
        let holds = |element: &Element| {
            element
                .iter()
                .zip(key)
                .all(|(&(lo, hi), &value)| lo <= value && value <= hi)
        };
        (0..ELEMENTS).filter(|&i| holds(&elements[i])).collect()
    };
    let keys: Vec<[u128; 4]> = (0..2000)
        .map(|turn| {
            let element = elements[below(g, ELEMENTS as u64) as usize];
            let other = elements[below(g, ELEMENTS as u64) as usize];
            let centre = centres[below(g, 700) as usize];
            std::array::from_fn(|f| match turn % 4 {
                0 => centre[f],
                1 => element[f].0,
                2 => [element[f].1, centre[f].wrapping_add(1) & fields[f].max()]
                    [below(g, 2) as usize],
                _ => [element[f].0, other[f].1][below(g, 2) as usize],
            })
        })
        .collect();
    let matches: Vec<Vec<usize>> = keys.iter().map(matching).collect();
    let count = |at_least: usize| {
        matches
            .iter()
            .filter(|matches| matches.len() >= at_least)
            .count()
    };
    let (hits, contested) = (count(1), count(2));
    assert!(
        hits < 1600 && contested > 400,
        "{hits} hits, {contested} of them of several elements"
    );

    let expected: Vec<Option<RuleId>> = matches
        .iter()
        .map(|matches| Some(RuleId::new(*matches.first()? as u32)))
        .collect();
    let keys: Vec<Vec<u8>> = keys.iter().map(|values| layout.encode(values)).collect();
    let mut coverage = Coverage::default();
    coverage
        .ask_all(
            &rules,
            &Questions::new(&rules, &keys, &expected),
            &[Effort::Balanced],
        )
        .unwrap();
    eprintln!("{ELEMENTS} elements, {hits} hits, {contested} of several\n{coverage}");
}
