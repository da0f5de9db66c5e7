//! Fields of more than one word: elements that are told apart by few words and differ in all, with ranges that cross every
//! border between words, asked at and beside their ends.

use pktjit::{Effort, Field, KeyLayout, Match, Overlap, Rule, RuleId, RuleSet};
use pktjit_fuzz::oracle::{Coverage, Questions};
use quickcheck::{Arbitrary, Gen};

fn below(g: &mut Gen, n: u64) -> u64 {
    u64::arbitrary(g) % n
}

/// One value, a prefix, or a range around a value near a border between words; `most` bits at most are wild.
fn condition(g: &mut Gen, field: &Field, most: u32) -> Match {
    let bits = u32::from(field.bits());
    let border = 8 * below(g, u64::from(bits / 8)) as u32;
    let random = u128::arbitrary(g) & field.max();
    // Just above or below a multiple of 2^border, or anywhere.
    let near = match below(g, 3) {
        0 => random >> border << border,
        1 => random | ((1 << border) - 1),
        _ => random,
    };
    let wild = below(g, u64::from(most.min(bits)) + 1) as u32;
    let span = 1u128.checked_shl(wild).map_or(u128::MAX, |end| end - 1);
    match below(g, 4) {
        0 => Match::Exact(near),
        1 => Match::Prefix {
            value: near & !span,
            len: (bits - wild) as u8,
        },
        _ => Match::Range {
            lo: near.saturating_sub(u128::arbitrary(g) & span),
            hi: near
                .saturating_add(u128::arbitrary(g) & span)
                .min(field.max()),
        },
    }
}

/// Asks every engine and structure about `rules` random elements of `fields`.
fn check(fields: &[Field], rules: usize, most: u32, seed: u64, coverage: &mut Coverage) {
    let g = &mut Gen::from_size_and_seed(100, seed);
    let layout = match seed % 2 {
        0 => KeyLayout::packed(fields.iter().cloned()),
        _ => KeyLayout::nft_registers(fields.iter().cloned()),
    }
    .unwrap();
    let mut builder = RuleSet::builder(layout.clone()).overlap(Overlap::First);
    let rules: Vec<Rule> = (0..rules)
        .map(|_| Rule::new(fields.iter().map(|field| condition(g, field, most))))
        .collect();
    for rule in &rules {
        builder.push(rule.clone());
    }
    let rule_set = builder.build().unwrap();
    let keys: Vec<Vec<u128>> = (0..400)
        .map(|_| {
            let rule = &rules[below(g, rules.len() as u64) as usize];
            // One field may be beyond an end.
            let beside = below(g, 2 * fields.len() as u64) as usize;
            let values = fields.iter().zip(&rule.matches).enumerate();
            values
                .map(|(i, (field, condition))| {
                    let (lo, hi) = (condition.lower(field), condition.upper(field));
                    match (below(g, 2), i == beside) {
                        (0, false) => lo,
                        (_, false) => hi,
                        (0, true) => lo.wrapping_sub(1) & field.max(),
                        (_, true) => hi.wrapping_add(1) & field.max(),
                    }
                })
                .collect()
        })
        .collect();
    let expected: Vec<Option<RuleId>> = keys
        .iter()
        .map(|key| {
            let holds = |rule: &Rule| {
                let mut all = fields.iter().zip(&rule.matches).zip(key);
                all.all(|((field, condition), &value)| condition.matches(field, value))
            };
            rules
                .iter()
                .position(holds)
                .map(|row| RuleId::new(row as u32))
        })
        .collect();
    let hits = expected.iter().flatten().count();
    assert!((100..400).contains(&hits), "seed {seed}: {hits}");
    let keys: Vec<Vec<u8>> = keys.iter().map(|values| layout.encode(values)).collect();
    let questions = Questions::new(&rule_set, &keys, &expected);
    coverage
        .ask_all(&rule_set, &questions, &[Effort::Balanced])
        .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
}

#[test]
fn elements_of_wide_fields_are_found_up_to_their_ends() {
    let integer = |bytes| Field::integer("i", bytes).unwrap();
    let address = || Field::ipv6_addr("a");
    let sets: [(Vec<Field>, usize, u32); 6] = [
        (vec![address(), address()], 300, 96),
        (
            vec![address(), Field::inet_service("p"), address()],
            600,
            64,
        ),
        (vec![address(), Field::ether_addr("m")], 200, 128),
        (vec![Field::ether_addr("m")], 100, 40),
        (vec![integer(7), integer(3)], 100, 30),
        (vec![integer(13), integer(5)], 150, 90),
    ];
    let mut coverage = Coverage::default();
    for (i, (fields, rules, most)) in sets.into_iter().enumerate() {
        for turn in 0..2 {
            check(&fields, rules, most, 2 * i as u64 + turn, &mut coverage);
        }
    }
    eprintln!("{coverage}");
}
