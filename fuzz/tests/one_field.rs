//! `radix` and `tree` where they are meant to be: rules that differ in one field, wherever its values lie.

use pktjit::{
    ByteOrder, Effort, EngineKind, Field, KeyLayout, Match, Overlap, Rule, RuleId, RuleSet,
    Structure,
};
use pktjit_fuzz::oracle::{Questions, compile, configurations};
use pktjit_ir::plan::{Choice, Options, plan};
use quickcheck::{Arbitrary, Gen};

fn below(g: &mut Gen, n: u64) -> u64 {
    u64::arbitrary(g) % n
}

/// Where the values of rules lie.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Everywhere,
    /// In one block, so that leading bits are the same.
    Block,
    /// As many near one value as everywhere else, so that an index does not spread them.
    Crowd,
}

fn interval(g: &mut Gen, field: &Field, spread: Spread) -> Match {
    let near = 0x5555_5555_5555_5555_5555_5555_5555_5555 & field.max();
    let low_bits = field.max() >> (field.bits() / 2);
    let any = u128::arbitrary(g) & field.max();
    let value = match spread {
        Spread::Everywhere => any,
        Spread::Block => near & !low_bits | any & low_bits,
        Spread::Crowd if bool::arbitrary(g) => near ^ u128::from(below(g, 256)),
        Spread::Crowd => any,
    };
    match below(g, 3) {
        0 => Match::Exact(value),
        1 => Match::Prefix {
            value,
            len: field.bits() - below(g, u64::from(field.bits()) / 2) as u8,
        },
        _ => Match::Range {
            lo: value,
            hi: value.saturating_add(below(g, 300).into()).min(field.max()),
        },
    }
}

/// Every engine with each of the two structures.
fn one_field_configurations() -> impl Iterator<Item = (EngineKind, Structure)> {
    configurations().filter_map(|(engine, structure)| match structure? {
        structure @ (Structure::Radix | Structure::Tree) => Some((engine, structure)),
        _ => None,
    })
}

#[test]
fn a_field_of_any_width_and_spread() {
    let fields = [
        Field::inet_proto("proto"),
        Field::inet_service("dport"),
        Field::integer("label", 3).unwrap(),
        Field::ipv4_addr("daddr").with_byte_order(ByteOrder::Little),
        Field::ipv4_addr("daddr"),
        Field::ether_addr("mac"),
        Field::ipv6_addr("daddr"),
    ];
    let g = &mut Gen::from_size_and_seed(100, 1998);
    let mut lookups = 0;
    for field in fields {
        for spread in [Spread::Everywhere, Spread::Block, Spread::Crowd] {
            for count in [1, 7, 60, 2000] {
                lookups += check(g, &field, spread, count);
            }
        }
    }
    eprintln!("{lookups} lookups");
    assert!(lookups > 500_000, "{lookups}");
}

/// Ranges with gaps, so many in each of 64 stretches of 2^18 values of `10.0.0.0/8`.
fn ranges(g: &mut Gen, count: impl Fn(u64) -> u64) -> Vec<Match> {
    let mut ranges = Vec::new();
    for stretch in 0..64 {
        let count = count(stretch);
        let room = (1 << 18) / count;
        for i in 0..count {
            let lo = 0x0a00_0000 + (stretch << 18) + i * room + below(g, room / 2);
            let hi = lo + below(g, room / 2);
            let (lo, hi) = (lo.into(), hi.into());
            ranges.push(Match::Range { lo, hi });
        }
    }
    ranges
}

#[test]
fn cells_that_are_a_line_each_with_and_without_blocks() {
    let g = &mut Gen::from_size_and_seed(100, 2026);
    let radix = || one_field_configurations().filter(|&(_, found)| found == Structure::Radix);
    let tables = |rules: &RuleSet| -> Vec<String> {
        let options = Options {
            structure: Choice::Only(Structure::Radix),
            ..Options::default()
        };
        let plan = plan(rules, &options).unwrap();
        let tables = plan.program().program().tables.iter();
        tables.map(|table| table.name.to_string()).collect()
    };
    let field = Field::ipv4_addr("daddr");
    let even = ranges(g, |_| 400);
    ask(g, &field, &even, radix(), |rules| {
        assert_eq!(tables(rules), ["lines"]);
    });
    // One stretch needs cells that the others would be too many of.
    let uneven = ranges(g, |stretch| if stretch == 40 { 10_000 } else { 200 });
    ask(g, &field, &uneven, radix(), |rules| {
        assert_eq!(tables(rules), ["blocks", "lines"]);
    });
}

/// Asks about so many rules behind a field in which all rules agree; yields the number of lookups.
fn check(g: &mut Gen, field: &Field, spread: Spread, count: u64) -> usize {
    let elements: Vec<Match> = (0..count).map(|_| interval(g, field, spread)).collect();
    ask(g, field, &elements, one_field_configurations(), |_| {})
}

/// The same for rules that want these elements; `look` is shown the rules.
fn ask(
    g: &mut Gen,
    field: &Field,
    elements: &[Match],
    configurations: impl Iterator<Item = (EngineKind, Structure)>,
    look: impl FnOnce(&RuleSet),
) -> usize {
    let count = elements.len() as u64;
    let zone = Field::inet_service("zone");
    let layout = KeyLayout::packed([zone, field.clone()]).unwrap();
    let agreed = Match::Prefix {
        value: 0x1200,
        len: 8,
    };
    let builder = RuleSet::builder(layout.clone()).overlap(Overlap::First);
    let rules = elements
        .iter()
        .fold(builder, |builder, &element| {
            builder.rule(Rule::new([agreed, element]))
        })
        .build()
        .unwrap();
    look(&rules);
    let keys: Vec<[u128; 2]> = (0..150)
        .map(|_| {
            let element = &elements[below(g, count) as usize];
            let value = match below(g, 5) {
                0 => element.lower(field),
                1 => element.upper(field),
                2 => element.lower(field).wrapping_sub(1) & field.max(),
                3 => element.upper(field).wrapping_add(1) & field.max(),
                _ => u128::arbitrary(g) & field.max(),
            };
            [if below(g, 8) == 0 { 0x3400 } else { 0x12ab }, value]
        })
        .collect();
    let expected: Vec<Option<RuleId>> = keys
        .iter()
        .map(|&[zone, value]| {
            let first = elements.iter().position(|e| e.matches(field, value))?;
            (zone == 0x12ab).then(|| RuleId::new(first as u32))
        })
        .collect();
    let keys: Vec<Vec<u8>> = keys.iter().map(|key| layout.encode(key)).collect();
    let questions = Questions::new(&rules, &keys, &expected);
    let mut lookups = 0;
    for (engine, structure) in configurations {
        let classifier = compile(&rules, engine, Some(structure), Effort::Balanced)
            .unwrap()
            .unwrap();
        lookups += questions.ask(&classifier).unwrap();
    }
    lookups
}
