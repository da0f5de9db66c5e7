//! No engine reads a byte beyond the key, wherever the key ends.

use pktjit::{Classifier, Cpu, EngineKind, KeyLayout, KeyRef, Match, Rule, RuleSet, Structure};
use pktjit_fuzz::guard::GuardedBytes;

/// One field of each width, so that the last load of a key is as narrow as can be.
fn layouts() -> Vec<KeyLayout> {
    (1..=16)
        .flat_map(|bytes| {
            let field = pktjit::Field::integer("f", bytes).unwrap();
            [
                KeyLayout::packed([field.clone()]).unwrap(),
                KeyLayout::packed([pktjit::Field::ipv4_addr("saddr"), field.clone()]).unwrap(),
                KeyLayout::at([(field, 3)]).unwrap(),
            ]
        })
        .collect()
}

fn rules(layout: &KeyLayout, n: u128) -> RuleSet {
    let fields = layout.fields();
    let rules = (0..n).map(|i| {
        // The last field tells the rules apart; the others are as wide as they can be.
        let last = fields.len() - 1;
        Rule::new(fields.iter().enumerate().map(|(f, field)| {
            if f == last {
                Match::Exact((i * 3) & field.max())
            } else {
                Match::Any
            }
        }))
    });
    let builder = RuleSet::builder(layout.clone()).overlap(pktjit::Overlap::First);
    builder.rules(rules).build().unwrap()
}

#[test]
fn keys_may_end_where_memory_ends() {
    let mut checked = 0;
    for layout in layouts() {
        for n in [1, 20, 70] {
            let rules = rules(&layout, n);
            let guarded: Vec<GuardedBytes> = (0..12)
                .map(|i| GuardedBytes::at_end(&layout.encode(&vec![i * 3; layout.fields().len()])))
                .collect();
            let keys: Vec<KeyRef<'_>> =
                guarded.iter().map(|key| layout.key(key).unwrap()).collect();
            let packed: Vec<u8> = guarded.iter().flat_map(|key| key.iter().copied()).collect();
            let packed = GuardedBytes::at_end(&packed);
            let linear = Classifier::builder().engine(EngineKind::Linear);
            let linear = linear.compile(&rules).unwrap();
            let expected: Vec<u32> = keys.iter().map(|&key| linear.lookup_row(key)).collect();
            for engine in EngineKind::ALL {
                if engine.check(Cpu::host()).is_err() {
                    continue;
                }
                for structure in Structure::ALL {
                    let builder = Classifier::builder().engine(engine).structure(structure);
                    let Ok(classifier) = builder.compile(&rules) else {
                        continue;
                    };
                    let single: Vec<u32> =
                        keys.iter().map(|&key| classifier.lookup_row(key)).collect();
                    let (mut strided, mut pointed) = (vec![0; keys.len()], vec![0; keys.len()]);
                    classifier
                        .lookup_batch(&packed, layout.len(), &mut strided)
                        .unwrap();
                    classifier.lookup_batch_keys(&keys, &mut pointed).unwrap();
                    for rows in [single, strided, pointed] {
                        assert_eq!(rows, expected, "{engine} {structure} {layout:?}");
                    }
                    checked += 1;
                }
            }
        }
    }
    // Interpreter, linear scan and machine code, with most structures for most of the 144 sets.
    assert!(checked > 400, "only {checked} classifiers");
}
