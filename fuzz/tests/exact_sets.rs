//! `hash` where it is meant to be: sets of exact keys of any width, at random and with patterns, up to a million.

use std::collections::HashMap;

use pktjit::{
    Classifier, Effort, Field, KeyLayout, Match, Overlap, Rule, RuleId, RuleSet, Structure,
};
use pktjit_fuzz::oracle::{Questions, compile, configurations};
use quickcheck::{Arbitrary, Gen, QuickCheck};

/// How the keys of a set lie.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    Random,
    /// One after the other.
    Sequence,
    /// Multiples of a power of two.
    Stride(u32),
    /// Powers of two.
    OneBit,
}

impl Pattern {
    fn key(self, i: u64, g: &mut Gen) -> u128 {
        match self {
            Self::Random => Arbitrary::arbitrary(g),
            Self::Sequence => i.into(),
            Self::Stride(bits) => u128::from(i) << bits,
            Self::OneBit => 1 << (i % 128),
        }
    }
}

/// A set of exact keys, and keys near them.
#[derive(Clone, Debug)]
struct ExactSet {
    layout: KeyLayout,
    elements: Vec<Vec<u128>>,
    asked: Vec<Vec<u128>>,
}

fn layouts() -> [KeyLayout; 6] {
    let address = Field::ipv4_addr("saddr");
    let (port, proto) = (Field::inet_service("dport"), Field::inet_proto("proto"));
    let (mac, address6) = (Field::ether_addr("mac"), Field::ipv6_addr("saddr6"));
    let five = [
        address.clone(),
        Field::ipv4_addr("daddr"),
        Field::inet_service("sport"),
        port.clone(),
        proto,
    ];
    [
        KeyLayout::packed([address.clone()]),
        KeyLayout::packed([mac.clone()]),
        KeyLayout::packed([address6.clone()]),
        KeyLayout::nft_registers([address.clone(), port]),
        KeyLayout::nft_registers([address6, mac, address]),
        KeyLayout::packed(five),
    ]
    .map(Result::unwrap)
}

impl ExactSet {
    fn generate(g: &mut Gen, layout: KeyLayout, patterns: &[Pattern], count: u64) -> Self {
        let fields = layout.fields();
        // A field follows a pattern, or is the same in all keys.
        let mut column = || {
            let pattern = g.choose(patterns).copied();
            let pattern = pattern.filter(|_| u8::arbitrary(g) % 4 > 0);
            (pattern, u128::arbitrary(g))
        };
        let columns: Vec<(Option<Pattern>, u128)> = fields.iter().map(|_| column()).collect();
        let elements: Vec<Vec<u128>> = (0..count)
            .map(|i| {
                let values = fields.iter().zip(&columns);
                let value = |(field, &(pattern, start)): (&Field, &(Option<Pattern>, u128))| {
                    let step = pattern.map_or(0, |pattern| pattern.key(i, g));
                    start.wrapping_add(step) & field.max()
                };
                values.map(value).collect()
            })
            .collect();
        let near = |g: &mut Gen| {
            let mut values = g.choose(&elements).cloned().unwrap_or_default();
            let changed = usize::arbitrary(g) % fields.len();
            if bool::arbitrary(g) {
                values[changed] ^= 1 << (u32::arbitrary(g) % u32::from(fields[changed].bits()));
            }
            values
        };
        let asked = (0..200).map(|_| near(g)).collect();
        Self {
            layout,
            elements,
            asked,
        }
    }

    fn rules(&self) -> RuleSet {
        let rule = |values: &Vec<u128>| Rule::new(values.iter().map(|&value| Match::Exact(value)));
        let builder = RuleSet::builder(self.layout.clone()).overlap(Overlap::First);
        let rules = self.elements.iter().map(rule);
        builder.rules(rules).build().unwrap()
    }
}

impl Arbitrary for ExactSet {
    fn arbitrary(g: &mut Gen) -> Self {
        let patterns = [
            Pattern::Random,
            Pattern::Sequence,
            Pattern::Stride(u32::arbitrary(g) % 100),
            Pattern::OneBit,
        ];
        let layout = g.choose(&layouts()).unwrap().clone();
        let count = 1 + u64::arbitrary(g) % (1 << (1 + u32::arbitrary(g) % 10));
        Self::generate(g, layout, &patterns, count)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let set = self.clone();
        let fewer = self
            .elements
            .shrink()
            .filter(|elements| !elements.is_empty());
        Box::new(fewer.map(move |elements| Self {
            elements,
            ..set.clone()
        }))
    }
}

/// Compares what `hash` finds, with every engine, with the first equal element.
fn finds_the_first_equal_element(set: ExactSet) -> bool {
    let mut first: HashMap<&[u128], RuleId> = HashMap::new();
    for (id, values) in (0..).map(RuleId::new).zip(&set.elements) {
        first.entry(values).or_insert(id);
    }
    let expected: Vec<Option<RuleId>> = (set.asked.iter())
        .map(|values| first.get(&values[..]).copied())
        .collect();
    let keys: Vec<Vec<u8>> = set.asked.iter().map(|v| set.layout.encode(v)).collect();
    let rules = set.rules();
    let questions = Questions::new(&rules, &keys, &expected);
    for (engine, structure) in configurations() {
        if structure == Some(Structure::Hash) {
            let classifier = compile(&rules, engine, structure, Effort::Balanced);
            let classifier = classifier.unwrap().unwrap();
            questions.ask(&classifier).unwrap();
        }
    }
    true
}

#[test]
fn qc_hash_finds_the_first_equal_element() {
    QuickCheck::new()
        .tests(200)
        .min_tests_passed(200)
        .quickcheck(finds_the_first_equal_element as fn(ExactSet) -> bool);
}

/// A million in optimised builds.
#[test]
fn a_large_set_of_addresses_is_hashed_and_each_is_found() {
    let count: u32 = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let layout = KeyLayout::packed([Field::ipv4_addr("daddr")]).unwrap();
    // An odd multiplier takes each number to another.
    let address = |i: u32| i.wrapping_mul(0x9e37_79b1);
    let builder = RuleSet::builder(layout.clone()).overlap(Overlap::First);
    let rules = (0..count).map(|i| Rule::new([Match::Exact(address(i).into())]));
    let rules = builder.rules(rules).build().unwrap();
    let classifier = Classifier::builder()
        .structure(Structure::Hash)
        .compile(&rules)
        .unwrap();
    assert!(classifier.stats().table_bytes <= 11 * count as usize);
    for i in 0..2 * count {
        let bytes = address(i).to_be_bytes();
        let hit = classifier.lookup(layout.key(&bytes).unwrap());
        let expected = (i < count).then(|| RuleId::new(i));
        assert_eq!(hit.map(|hit| hit.rule), expected, "{i}");
    }
}
