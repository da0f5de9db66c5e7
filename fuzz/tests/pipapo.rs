//! `pipapo` at the sizes that it is known for: many elements of wide ranges, and where groups change their size.

use pktjit::{
    Effort, EngineKind, Field, KeyLayout, Match, Overlap, Rule, RuleId, RuleSet, Structure,
};
use pktjit_fuzz::oracle::{Questions, compile, configurations};
use pktjit_ir::plan::{Choice, Options, plan};
use quickcheck::{Arbitrary, Gen};

fn below(g: &mut Gen, n: u64) -> u64 {
    u64::arbitrary(g) % n
}

/// Every engine with each `pipapo` structure.
fn pipapo_configurations() -> impl Iterator<Item = (EngineKind, Structure)> {
    configurations().filter_map(|(engine, structure)| match structure? {
        structure @ (Structure::Pipapo4 | Structure::Pipapo8 | Structure::Pipapo) => {
            Some((engine, structure))
        }
        _ => None,
    })
}

/// A prefix, or a range of up to 4,096 values.
fn prefix_or_range(g: &mut Gen, field: &Field) -> Match {
    let value = u128::arbitrary(g) & field.max();
    match bool::arbitrary(g) {
        true => Match::Prefix {
            value,
            len: below(g, u64::from(field.bits()) + 1) as u8,
        },
        false => Match::Range {
            lo: value,
            hi: value.saturating_add(below(g, 4096).into()).min(field.max()),
        },
    }
}

#[test]
fn ten_thousand_pairs_of_ipv6_addresses_and_services() {
    const ELEMENTS: u64 = 10_000;
    let fields = [
        Field::ipv6_addr("saddr"),
        Field::inet_service("sport"),
        Field::ipv6_addr("daddr"),
        Field::inet_service("dport"),
    ];
    let layout = KeyLayout::nft_registers(fields.clone()).unwrap();
    let g = &mut Gen::from_size_and_seed(100, 10_000);
    let elements: Vec<[Match; 4]> = (0..ELEMENTS)
        .map(|_| std::array::from_fn(|f| prefix_or_range(g, &fields[f])))
        .collect();
    let rules = elements
        .iter()
        .fold(
            RuleSet::builder(layout.clone()).overlap(Overlap::First),
            |builder, &element| builder.rule(Rule::new(element)),
        )
        .build()
        .unwrap();
    // Inside one element, on its ends, and one field of another.
    let keys: Vec<[u128; 4]> = (0..600)
        .map(|turn| {
            let element = &elements[below(g, ELEMENTS) as usize];
            let other = &elements[below(g, ELEMENTS) as usize];
            let stranger = below(g, 8) as usize;
            std::array::from_fn(|f| {
                let wanted = if f == stranger { other[f] } else { element[f] };
                let (lo, hi) = (wanted.lower(&fields[f]), wanted.upper(&fields[f]));
                match turn % 3 {
                    0 => lo,
                    1 => hi,
                    _ => lo + u128::arbitrary(g) % (hi - lo).saturating_add(1),
                }
            })
        })
        .collect();
    let expected: Vec<Option<RuleId>> = keys
        .iter()
        .map(|key| {
            let matches = |element: &[Match; 4]| (0..4).all(|f| element[f].matches(&fields[f], key[f]));
            let first = elements.iter().position(matches)?;
            Some(RuleId::new(first as u32))
        })
        .collect();
    let hits = expected.iter().flatten().count();
    assert!((200..500).contains(&hits), "{hits} hits");
    let keys: Vec<Vec<u8>> = keys.iter().map(|key| layout.encode(key)).collect();
    let questions = Questions::new(&rules, &keys, &expected);
    for (engine, structure) in pipapo_configurations() {
        let classifier = compile(&rules, engine, Some(structure), Effort::Balanced)
            .unwrap()
            .unwrap();
        assert_eq!(classifier.structure(), structure);
        let lookups = questions.ask(&classifier).unwrap();
        eprintln!("{engine} {structure}: {lookups} lookups");
    }
}

/// Bits of the groups that `pipapo` gives the only field of these rules.
fn group_bits(rules: &RuleSet) -> u32 {
    let options = Options {
        structure: Choice::Only(Structure::Pipapo),
        ..Options::default()
    };
    let plan = plan(rules, &options).unwrap();
    let groups = plan.program().program().tables.iter().filter_map(|table| {
        let (_, bits) = table.name.split_once(" bits ")?;
        let (last, first) = bits.split_once("..")?;
        Some(last.parse::<u32>().ok()? - first.parse::<u32>().ok()? + 1)
    });
    let mut sizes: Vec<u32> = groups.collect();
    sizes.dedup();
    assert_eq!(sizes.len(), 1, "{sizes:?}");
    sizes[0]
}

/// The first numbers of elements that Linux divides into groups of 4 bits, by the bytes of the field; a field of one byte has
/// too few values to get there.
#[test]
fn groups_change_their_size_where_those_of_linux_do_while_elements_come_and_go() {
    let fields = [
        (Field::inet_service("dport"), 32_768),
        (Field::ipv4_addr("daddr"), 16_384),
        (Field::ether_addr("mac"), 10_752),
        (Field::ipv6_addr("daddr"), 4_096),
    ];
    for (field, most) in fields {
        let layout = KeyLayout::packed([field.clone()]).unwrap();
        // Odd multipliers keep values distinct; these spread them over all bytes.
        let value = |i: u64| {
            let spread = u128::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            spread & field.max()
        };
        for (count, bits) in [(most, 8), (most + 1, 4), (most + 2, 4), (most + 1, 4), (most, 8)] {
            let rules = (0..count)
                .fold(RuleSet::builder(layout.clone()), |builder, i| {
                    builder.rule(Rule::new([Match::Exact(value(i))]))
                })
                .build()
                .unwrap();
            assert_eq!(group_bits(&rules), bits, "{count} elements of {}", field.kind());
            // Those that come and go are asked for, and some that are there all the time.
            let asked: Vec<u64> = (most - 50..most + 5).chain(0..50).collect();
            let keys: Vec<Vec<u8>> = asked.iter().map(|&i| layout.encode(&[value(i)])).collect();
            let expected: Vec<Option<RuleId>> = asked
                .iter()
                .map(|&i| (i < count).then(|| RuleId::new(i as u32)))
                .collect();
            let questions = Questions::new(&rules, &keys, &expected);
            for (engine, structure) in pipapo_configurations() {
                let classifier = compile(&rules, engine, Some(structure), Effort::Balanced)
                    .unwrap()
                    .unwrap();
                questions.ask(&classifier).unwrap();
            }
        }
    }
}
