//! Buckets whose numbers are as narrow as their fields: what planners do where tables leave the caches, asked of small sets.

use pktjit_fallback::Interpreter;
use pktjit_fuzz::oracle::{code_engines, native};
use pktjit_ir::plan::{Choice, Machine, Options, plan};
use pktjit_ir::{Field, KeyLayout, MISS, Match, Overlap, Rule, RuleSet, Structure};
use quickcheck::{Arbitrary, Gen};

#[test]
fn ports_and_protocols_in_few_bytes_are_found_up_to_their_ends() {
    let layout = KeyLayout::packed([
        Field::inet_proto("proto"),
        Field::inet_service("sport"),
        Field::inet_service("dport"),
    ])
    .unwrap();
    let g = &mut Gen::from_size_and_seed(100, 7);
    let range = |g: &mut Gen, most: u16, max: u128| {
        let lo = u128::from(u16::arbitrary(g)) & max;
        let hi = (lo + u128::from(u16::arbitrary(g) % most)).min(max);
        Match::Range { lo, hi }
    };
    let rules: Vec<[Match; 3]> = (0..400)
        .map(|_| [range(g, 3, 255), range(g, 400, 65535), range(g, 400, 65535)])
        .collect();
    let builder = RuleSet::builder(layout.clone()).overlap(Overlap::First);
    let stored = rules.iter().map(|&rule| Rule::new(rule));
    let rule_set = builder.rules(stored).build().unwrap();
    let options = Options {
        structure: Choice::Only(Structure::Bucket),
        // Everything is in memory, so that lines are what counts.
        machine: Machine {
            l1d: 1,
            l2: 1,
            l3: 1,
            ..Machine::default()
        },
        ..Options::default()
    };
    let plan = plan(&rule_set, &options).unwrap();
    let tables = plan.program().program().tables.iter();
    let widths: Vec<u8> = tables
        .filter(|table| &*table.name == "buckets")
        .flat_map(|table| table.columns.iter().map(|column| column.bytes))
        .collect();
    assert!(widths.contains(&1) && widths.contains(&2), "{widths:?}");

    let interpreter = Interpreter::new(plan.program().clone());
    let natives = code_engines().filter_map(|engine| native(plan.program(), engine).unwrap().ok());
    let natives: Vec<_> = natives.collect();
    let mut hits = 0;
    for turn in 0..4000 {
        let rule = &rules[usize::arbitrary(g) % rules.len()];
        let beside = usize::arbitrary(g) % 6;
        let key: Vec<u128> = (0..3)
            .map(|i| {
                let field = &layout.fields()[i];
                let (lo, hi) = (rule[i].lower(field), rule[i].upper(field));
                let value = if turn % 2 == 0 { lo } else { hi };
                let step = if i == beside { 1 } else { 0 };
                (if turn % 2 == 0 {
                    value.wrapping_sub(step)
                } else {
                    value + step
                }) & field.max()
            })
            .collect();
        let holds = |rule: &[Match; 3]| {
            let fields = layout.fields().iter();
            let mut all = fields.zip(rule).zip(&key);
            all.all(|((field, m), &value)| m.matches(field, value))
        };
        let expected = rules.iter().position(holds).map_or(MISS, |row| row as u32);
        hits += u32::from(expected != MISS);
        let bytes = layout.encode(&key);
        let key = layout.key(&bytes).unwrap();
        assert_eq!(interpreter.lookup(key), expected, "{bytes:02x?}");
        for native in &natives {
            assert_eq!(native.lookup(key), expected, "{bytes:02x?}");
        }
    }
    assert!((1000..4000).contains(&hits), "{hits}");
}
