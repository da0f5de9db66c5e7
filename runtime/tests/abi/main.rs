//! What generated code leaves as it found it, seen from assembly: registers, flags, and the stack.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "../common/mod.rs"]
mod common;
#[cfg_attr(target_arch = "x86_64", path = "x64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "a64.rs")]
mod convention;

use convention::{After, LANDING_PAD, assert_left_alone, call};
use pktjit::{Classifier, Cpu, EngineKind, Structure};

/// Calls all entries of `classifier` for hits and misses.
fn check(classifier: &Classifier) {
    let raw = classifier.raw().unwrap();
    let before = || After::of_frame(classifier.stats().stack_bytes);
    let keys = common::keys(200);
    let expected = common::rows(classifier, &keys);
    for (key, &row) in keys.chunks(6).zip(&expected) {
        let mut after = before();
        // SAFETY: `lookup` takes the address of a key; the test runs only where machine code does.
        unsafe {
            call(
                raw.lookup as *const u8,
                &[key.as_ptr().addr(), 0, 0, 0],
                &mut after,
            )
        };
        assert_eq!(after.result as u32, row);
        assert_left_alone(&after, "lookup");
    }
    let addresses: Vec<*const u8> = keys.chunks(6).map(<[u8]>::as_ptr).collect();
    for n in [0, 1, 31, 200] {
        let mut out = vec![0; n];
        let mut after = before();
        let arguments = [
            keys.as_ptr().expose_provenance(),
            6,
            n,
            out.as_mut_ptr().expose_provenance(),
        ];
        // SAFETY: the arguments of `lookup_batch`: n keys of six bytes, and room for n results.
        unsafe { call(raw.lookup_batch as *const u8, &arguments, &mut after) };
        assert_eq!(out, expected[..n]);
        assert_left_alone(&after, "lookup_batch");

        let mut out = vec![0; n];
        let arguments = [
            addresses.as_ptr().expose_provenance(),
            n,
            out.as_mut_ptr().expose_provenance(),
            0,
        ];
        // SAFETY: the arguments of `lookup_batch_ptrs`: n addresses of keys, and room for n results.
        unsafe { call(raw.lookup_batch_ptrs as *const u8, &arguments, &mut after) };
        assert_eq!(out, expected[..n]);
        assert_left_alone(&after, "lookup_batch_ptrs");
    }
}

/// The engines of machine code that run here.
fn machine_code() -> impl Iterator<Item = EngineKind> {
    let engines = EngineKind::ALL.into_iter();
    engines.filter(|engine| engine.is_native() && engine.check(Cpu::host()).is_ok())
}

#[test]
fn calls_leave_registers_flags_and_stack_as_they_were() {
    if Cpu::host().target().is_err() {
        return;
    }
    for rules in [common::small(), common::many(20), common::many(500)] {
        let mut checked = 0;
        for structure in Structure::ALL {
            for engine in machine_code() {
                let builder = Classifier::builder().engine(engine);
                if let Ok(classifier) = builder.structure(structure).compile(&rules) {
                    check(&classifier);
                    checked += 1;
                }
            }
        }
        assert!(checked >= 4, "only {checked} structures hold the rules");
    }
}

#[test]
fn entries_are_landing_pads() {
    if Cpu::host().target().is_err() {
        return;
    }
    for engine in machine_code() {
        let builder = Classifier::builder().engine(engine);
        let classifier = builder.compile(&common::many(100)).unwrap();
        let raw = classifier.raw().unwrap();
        for entry in [
            raw.lookup as *const u8,
            raw.lookup_batch as *const u8,
            raw.lookup_batch_ptrs as *const u8,
        ] {
            assert_eq!(entry.addr() % 64, 0);
            // SAFETY: code is readable, and longer than one instruction.
            let first = unsafe { entry.cast::<[u8; 4]>().read() };
            assert_eq!(first, LANDING_PAD);
        }
    }
}
