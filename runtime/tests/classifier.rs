//! What every engine has to do, and what the builder does with what it is told.

mod common;

use pktjit::{
    BatchError, BuildError, Classifier, ClassifierBuilder, Cpu, EngineKind, Field, Hit, KeyLayout,
    KeyRef, MISS, Match, Rule, RuleId, RuleSet, Structure, Verdict,
};

/// A classifier of `rules` for each engine that runs here.
fn on_each_engine(rules: &RuleSet) -> Vec<Classifier> {
    EngineKind::ALL
        .into_iter()
        .filter(|kind| kind.check(Cpu::host()).is_ok())
        .map(|kind| {
            let classifier = Classifier::builder().engine(kind).compile(rules).unwrap();
            assert_eq!(classifier.engine(), kind);
            classifier
        })
        .collect()
}

fn is_machine_code(kind: EngineKind) -> bool {
    !matches!(kind, EngineKind::Interp | EngineKind::Linear)
}

#[test]
fn a_hit_names_the_rule_and_its_verdict() {
    for classifier in on_each_engine(&common::small()) {
        let lookup = |bytes: [u8; 6]| classifier.lookup(classifier.layout().key(&bytes).unwrap());
        let hit = |rule| {
            Some(Hit {
                rule: RuleId::new(rule),
                verdict: &Verdict::Accept,
            })
        };
        assert_eq!(lookup([10, 0, 0, 1, 0, 80]), hit(0), "{classifier:?}");
        assert_eq!(lookup([10, 0, 0, 2, 0, 80]), hit(1), "{classifier:?}");
        assert_eq!(lookup([11, 0, 0, 2, 0x17, 0x70]), hit(2), "{classifier:?}");
        assert_eq!(lookup([11, 0, 0, 2, 0x17, 0x71]), None, "{classifier:?}");
    }
}

#[test]
fn a_set_without_rules_matches_nothing() {
    for classifier in on_each_engine(&common::builder().build().unwrap()) {
        let rows = common::rows(&classifier, &common::keys(50));
        assert_eq!(rows, [MISS; 50], "{classifier:?}");
    }
}

#[test]
fn rows_that_do_not_exist_are_no_hit() {
    for classifier in on_each_engine(&common::small()) {
        assert!(classifier.hit(2).is_some());
        for row in [3, MISS - 1, MISS] {
            assert_eq!(classifier.hit(row), None, "{classifier:?}");
        }
    }
}

#[test]
fn a_key_of_another_length_matches_nothing() {
    let [short, long] =
        [5, 7].map(|bytes| KeyLayout::packed([Field::integer("f", bytes).unwrap()]).unwrap());
    for classifier in on_each_engine(&common::constant(1)) {
        for layout in [&short, &long] {
            let bytes = vec![0; layout.len()];
            let key = layout.key(&bytes).unwrap();
            assert_eq!(classifier.lookup(key), None, "{classifier:?}");
            let mut out = [7];
            assert_eq!(
                classifier.lookup_batch_keys(&[key], &mut out),
                Err(BatchError::KeyLength {
                    index: 0,
                    expected: 6,
                    actual: layout.len()
                })
            );
            assert_eq!(out, [7]);
        }
    }
}

#[test]
fn batches_of_any_size_answer_as_single_lookups_do() {
    let rules = common::many(300);
    for classifier in on_each_engine(&rules) {
        for n in [0, 1, 2, 7, 8, 9, 31, 32, 63, 64, 65, 128, 300] {
            let keys = common::keys(n as u32);
            let expected = common::rows(&classifier, &keys);
            // Slots behind the batch stay as they are.
            let mut out = vec![0xdead_beef; n + 1];
            classifier.lookup_batch(&keys, 6, &mut out[..n]).unwrap();
            assert_eq!(out[..n], expected, "{classifier:?}");
            assert_eq!(out[n], 0xdead_beef);

            let refs: Vec<KeyRef<'_>> = keys
                .chunks(6)
                .map(|key| classifier.layout().key(key).unwrap())
                .collect();
            let mut out = vec![0xdead_beef; n + 1];
            classifier.lookup_batch_keys(&refs, &mut out[..n]).unwrap();
            assert_eq!(out[..n], expected, "{classifier:?}");
            assert_eq!(out[n], 0xdead_beef);
        }
    }
}

#[test]
fn keys_of_a_batch_may_overlap_or_be_far_apart() {
    let rules = common::many(300);
    let bytes = common::keys(400);
    for classifier in on_each_engine(&rules) {
        for stride in [1, 2, 5, 6, 7, 64, 1000] {
            let n = (bytes.len() - 6) / stride + 1;
            let mut out = vec![0; n];
            classifier.lookup_batch(&bytes, stride, &mut out).unwrap();
            for (i, row) in out.into_iter().enumerate() {
                let key = classifier.layout().key(&bytes[i * stride..][..6]).unwrap();
                assert_eq!(
                    row,
                    classifier.lookup_row(key),
                    "{classifier:?} {stride} {i}"
                );
            }
        }
    }
}

#[test]
fn a_batch_that_is_refused_leaves_the_results_alone() {
    for classifier in on_each_engine(&common::constant(1)) {
        let keys = [0; 12];
        for (stride, n) in [(0, 1), (7, 2), (6, 3), (usize::MAX, 2), (1 << 63, 3)] {
            let mut out = vec![7; n];
            let result = classifier.lookup_batch(&keys, stride, &mut out);
            assert!(result.is_err(), "{classifier:?} {stride} {n}");
            assert_eq!(out, vec![7; n]);
        }
        let mut out = [7; 2];
        assert_eq!(
            classifier.lookup_batch_keys(&[], &mut out),
            Err(BatchError::Count {
                keys: 0,
                results: 2
            })
        );
        assert_eq!(out, [7; 2]);
    }
}

#[test]
fn the_bare_functions_answer_as_the_classifier_does() {
    let rules = common::many(300);
    let keys = common::keys(100);
    for classifier in on_each_engine(&rules) {
        assert_eq!(
            classifier.raw().is_some(),
            is_machine_code(classifier.engine())
        );
        let Some(raw) = classifier.raw() else {
            continue;
        };
        let expected = common::rows(&classifier, &keys);
        let addresses: Vec<*const u8> = keys.chunks(6).map(<[u8]>::as_ptr).collect();
        let (mut batch, mut batch_ptrs) = (vec![0; 100], vec![0; 100]);
        // SAFETY: the classifier lives, the keys have six bytes each, and there are as many slots as keys.
        let single: Vec<u32> = unsafe {
            (raw.lookup_batch)(keys.as_ptr(), 6, 100, batch.as_mut_ptr());
            (raw.lookup_batch_ptrs)(addresses.as_ptr(), 100, batch_ptrs.as_mut_ptr());
            addresses.iter().map(|&key| (raw.lookup)(key)).collect()
        };
        assert_eq!(
            [single, batch, batch_ptrs],
            [(); 3].map(|()| expected.clone())
        );
    }
}

#[test]
fn each_structure_answers_as_the_linear_scan_does() {
    let rules = common::small();
    let keys = common::keys(300);
    let builder = Classifier::builder().engine(EngineKind::Linear);
    let expected = common::rows(&builder.compile(&rules).unwrap(), &keys);
    let mut served = 0;
    for structure in Structure::ALL {
        let builder = Classifier::builder().structure(structure);
        match builder.compile(&rules) {
            Ok(classifier) => {
                assert_eq!(classifier.structure(), structure);
                assert_eq!(common::rows(&classifier, &keys), expected, "{structure}");
                served += 1;
            }
            Err(BuildError::Plan(_)) => {}
            Err(error) => panic!("{structure}: {error}"),
        }
    }
    // The rules differ in which bits they want, which `hash` cannot hold, and in two fields, which `radix` and `tree` cannot.
    assert_eq!(served, Structure::ALL.len() - 3);
}

#[test]
fn the_linear_engine_has_no_other_structure() {
    let builder = Classifier::builder().engine(EngineKind::Linear);
    let rules = common::small();
    let plain = builder.compile(&rules).unwrap();
    assert_eq!(plain.structure(), Structure::Linear);
    assert!(
        builder
            .clone()
            .structure(Structure::Linear)
            .compile(&rules)
            .is_ok()
    );
    let error = builder
        .structure(Structure::Hash)
        .compile(&rules)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "engine `linear` cannot serve: it has no structure `hash`"
    );
}

#[cfg(feature = "cranelift")]
#[test]
fn without_avx2_cranelift_answers_and_says_why() {
    let cpu = Cpu {
        avx2: Err("the CPU has no AVX2"),
        features: pktjit::Features::NONE,
        ..*Cpu::host()
    };
    let builder = Classifier::builder().cpu(cpu);
    let classifier = builder.compile(&common::small()).unwrap();
    assert_eq!(classifier.engine(), EngineKind::Cranelift);
    let why = classifier.why();
    assert!(
        why.contains("engine `avx2` cannot serve: the CPU has no AVX2"),
        "{why}"
    );
    let error = builder.engine(EngineKind::Avx2).compile(&common::small());
    assert!(matches!(error, Err(BuildError::Engine { .. })));
}

/// Ten rules, which `inline` compares with sixteen lanes at once, or eight after eight.
fn ten_pairs() -> RuleSet {
    let fields = [Field::ipv4_addr("saddr"), Field::inet_service("dport")];
    let mut builder = RuleSet::builder(KeyLayout::packed(fields).unwrap());
    for i in 0..10 {
        let lo = 0x0a00_0000 + 1000 * i;
        let [saddr, dport] = [(lo, lo + 300), (10 * i, 10 * i + 5)];
        builder.push(Rule::new(
            [saddr, dport].map(|(lo, hi)| Match::Range { lo, hi }),
        ));
    }
    builder.build().unwrap()
}

/// A machine with AVX-512, on which code for it is made and refused if the real one has none.
fn with_avx512() -> ClassifierBuilder {
    Classifier::builder().cpu(Cpu {
        avx512: Ok(()),
        ..*Cpu::host()
    })
}

#[test]
fn avx512_is_passed_over_where_the_program_gains_nothing_from_it() {
    if Cpu::host().avx2.is_err() {
        return;
    }
    // There is nothing to compare.
    let classifier = with_avx512().compile(&common::constant(7)).unwrap();
    let why = classifier.why();
    assert_eq!(classifier.engine(), EngineKind::Avx2, "{why}");
    let gains_nothing = "engine `avx512` cannot serve: the program gains nothing from it";
    assert!(why.contains(gains_nothing), "{why}");
}

#[test]
fn avx512_is_taken_where_the_program_gains_and_the_machine_has_it() {
    let Ok(host) = Cpu::host().target() else {
        return;
    };
    let builder = with_avx512().structure(Structure::Inline);
    // Eight lanes gain from masks, too.
    let narrow = builder.clone().max_vector_bits(256).compile(&ten_pairs());
    let expected = match Cpu::host().avx512 {
        Ok(()) => EngineKind::Avx512,
        Err(_) => EngineKind::Avx2,
    };
    assert_eq!(narrow.unwrap().engine(), expected);
    let classifier = builder.compile(&ten_pairs()).unwrap();
    let why = classifier.why();
    if Cpu::host().avx512.is_ok() {
        assert_eq!(classifier.engine(), EngineKind::Avx512, "{why}");
        return;
    }
    assert!(why.contains("machine that has more"), "{host}: {why}");
    // What was planned for sixteen lanes is no plan for the next engine.
    assert_eq!(classifier.engine(), EngineKind::Avx2, "{why}");
    let forced = builder.engine(EngineKind::Avx512).compile(&ten_pairs());
    assert!(matches!(forced, Err(BuildError::Engine { .. })));
}

#[test]
fn over_the_table_budget_the_linear_scan_answers() {
    let (rules, keys) = (common::many(300), common::keys(300));
    let builder = Classifier::builder();
    let expected = common::rows(&builder.compile(&rules).unwrap(), &keys);
    let classifier = builder.clone().table_budget(0).compile(&rules).unwrap();
    assert_eq!(
        classifier.engine(),
        EngineKind::Linear,
        "{}",
        classifier.why()
    );
    assert_eq!(common::rows(&classifier, &keys), expected);
    let forced = builder
        .structure(Structure::Bucket)
        .table_budget(0)
        .compile(&rules);
    assert!(matches!(forced, Err(BuildError::Plan(_))));
}

#[test]
fn over_the_code_budget_the_interpreter_answers() {
    if Cpu::host().avx2.is_err() {
        return;
    }
    let builder = Classifier::builder().code_budget(16);
    let classifier = builder.compile(&common::small()).unwrap();
    assert_eq!(classifier.engine(), EngineKind::Interp);
    assert!(
        classifier.why().contains("the budget is 16"),
        "{}",
        classifier.why()
    );
    let forced = builder.engine(EngineKind::Avx2).compile(&common::small());
    assert!(matches!(forced, Err(BuildError::Engine { .. })));
}

#[test]
fn statistics_name_what_the_engine_has() {
    let rules = common::many(300);
    for classifier in on_each_engine(&rules) {
        let stats = classifier.stats();
        let kind = classifier.engine();
        assert_eq!(stats.rules, 300);
        assert!(0 < stats.live_rules && stats.live_rules <= 300);
        let is_machine_code = is_machine_code(kind);
        assert_eq!(stats.code_bytes > 0, is_machine_code);
        assert_eq!(stats.instructions > 0, is_machine_code);
        assert_eq!(stats.stack_bytes > 0, is_machine_code);
        assert_eq!(stats.table_bytes > 0, kind != EngineKind::Linear);
    }
}

#[test]
fn the_reasons_name_the_structures_that_lost() {
    let classifier = Classifier::compile(&common::small()).unwrap();
    // `pipapo4` and `pipapo8` are asked for by name alone.
    for structure in Structure::ALL {
        let why = classifier.why();
        let name = structure.name().trim_end_matches(['4', '8']);
        assert!(why.contains(name), "{why}");
    }
}
