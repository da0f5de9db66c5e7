//! What machines of a known model offer. `PKTJIT_MODEL` names the model that this one is or that an emulator pretends to be;
//! `.ci/old-cpus` sets it.
#![cfg(target_arch = "x86_64")]

mod common;

use pktjit::{Classifier, Cpu, EngineKind, Features};

/// The model of this machine, if it is one of those whose features are known.
fn model() -> Option<(EngineKind, Features)> {
    let nehalem = Features {
        ssse3: true,
        sse41: true,
        popcnt: true,
        ..Features::NONE
    };
    let sandy_bridge = Features {
        avx: true,
        ..nehalem
    };
    let haswell = Features {
        avx2: true,
        bmi1: true,
        bmi2: true,
        fast_pext: true,
        movbe: true,
        ..sandy_bridge
    };
    let zen = Features {
        fast_pext: false,
        ..haswell
    };
    let model = std::env::var("PKTJIT_MODEL").ok()?;
    Some(match model.as_str() {
        "Nehalem" => (EngineKind::Cranelift, nehalem),
        "SandyBridge" => (EngineKind::Cranelift, sandy_bridge),
        "Haswell" => (EngineKind::Avx2, haswell),
        "EPYC" => (EngineKind::Avx2, zen),
        _ => panic!("nothing is known of the model {model}"),
    })
}

#[test]
fn the_machine_has_the_features_of_its_model() {
    let Some((engine, features)) = model() else {
        eprintln!("skipped: PKTJIT_MODEL is not set");
        return;
    };
    let cpu = Cpu::host();
    assert_eq!(cpu.features, features);
    assert_eq!(cpu.avx2.is_ok(), engine == EngineKind::Avx2);
    assert!(cpu.avx512_target().is_err());
}

#[test]
fn the_engine_is_the_best_that_the_model_runs() {
    let Some((engine, _)) = model() else {
        eprintln!("skipped: PKTJIT_MODEL is not set");
        return;
    };
    let rules = common::many(300);
    let classifier = Classifier::compile(&rules).unwrap();
    assert_eq!(classifier.engine(), engine, "{}", classifier.why());
    let linear = Classifier::builder().engine(EngineKind::Linear);
    let keys = common::keys(500);
    let expected = common::rows(&linear.compile(&rules).unwrap(), &keys);
    assert_eq!(common::rows(&classifier, &keys), expected);
    eprintln!("{engine} answers here");
}
