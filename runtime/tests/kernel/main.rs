//! The running kernel as a witness: nf_tables holds the same elements and must find the same winners, and refuse the same
//! overlaps.
//!
//! Elements are those of a map in a network namespace of their own, which ends with the test. Fields are raw bytes of frames
//! of an experimental Ethernet type, so no addresses are involved, and the classifier reads the very frames that the
//! kernel reads. The winner's verdict comes back as the mark of the packet.
//!
//! Where several elements of a concatenation match, kernels disagree with each other about the winner (the scalar code of
//! `nft_set_pipapo` takes the earliest, the AVX2 code the lowest of the last block of 256 elements that has one), so that
//! only membership can be compared there.
//!
//! What `nft` lists in that namespace is also what our readers of its text and its JSON are compared on.
//!
//! Without privileges, without `nft`, or without the kernel's modules the tests say why and pass. Where the environment
//! variable `PKTJIT_REQUIRE_KERNEL` is set they fail.
#![cfg(target_os = "linux")]

mod kernel;
#[cfg(feature = "formats")]
mod listings;
mod nft;
mod random;
mod sets;
mod traffic;

use std::io::Write as _;
use std::{env, io, panic, thread};

use kernel::Kernel;
use pktjit::{BuildError, Classifier, EngineKind, Overlap, PlanError, RuleSet, Structure};
use random::Random;
use sets::SetShape;
use traffic::Traffic;

const KEYS: u32 = 20_000;

/// Runs `test` on a thread with a network namespace of its own.
fn with_kernel(test: fn(Kernel)) {
    let thread = thread::spawn(move || match Kernel::in_new_namespace() {
        Ok(kernel) => test(kernel),
        Err(reason) => {
            report(&format!("kernel witness skipped: {reason}"));
            let is_required = env::var_os("PKTJIT_REQUIRE_KERNEL").is_some();
            assert!(!is_required, "PKTJIT_REQUIRE_KERNEL is set, but {reason}");
        }
    });
    if let Err(cause) = thread.join() {
        panic::resume_unwind(cause);
    }
}

/// Writes a line that is seen of tests that pass, too.
fn report(line: &str) {
    // Unlike what `eprintln!` writes, this is not captured. Nothing depends on it.
    let _ = writeln!(io::stderr(), "{line}");
}

#[test]
fn every_engine_finds_the_kernels_winners() {
    with_kernel(|mut kernel| {
        report("shape                   elements   keys  winner member   hits misses  classifiers");
        for (index, shape) in (0..).zip(&sets::SHAPES) {
            let mut random = Random::new(index);
            let elements = shape.elements(&mut random);
            let keys = traffic::keys(&elements, &shape.fields(), KEYS, &mut random);
            let traffic = Traffic::new(&shape.layout(), &keys, index as u32 * KEYS);

            let rules = shape.rule_set(&elements);
            let refusal = kernel.load(&rules, shape.is_exact()).err();
            assert_eq!(refusal, None, "{}: nft refuses what we accept", shape.name);
            let marks = kernel.marks(&traffic);

            let count_matches =
                |key: &Vec<u128>| elements.iter().filter(|one| one.matches(key)).count();
            let matches: Vec<usize> = keys.iter().map(count_matches).collect();
            let names = compare(shape, &rules, &traffic, &marks, &matches);

            let count = |found: fn(usize) -> bool| matches.iter().filter(|&&n| found(n)).count();
            let (hits, misses) = (count(|n| n > 0), count(|n| n == 0));
            report(&format!(
                "{:<24}{:>8} {KEYS:>6} {:>7} {:>6} {hits:>6} {misses:>6}  {names}",
                shape.name,
                rules.len(),
                count(|n| n < 2),
                count(|n| n > 1),
            ));
            assert!(hits > 0 && misses > 0, "{}: one-sided keys", shape.name);
        }
    });
}

/// Compares the kernel's marks with the answers of every engine and structure that can hold the rules; tells which did.
///
/// `matches` says of each key how many elements match it, the catch-all apart.
fn compare(
    shape: &SetShape,
    rules: &RuleSet,
    traffic: &Traffic,
    marks: &[u32],
    matches: &[usize],
) -> String {
    let mut names = Vec::new();
    for engine in EngineKind::ALL {
        for structure in Structure::ALL {
            let builder = Classifier::builder().engine(engine).structure(structure);
            let classifier = match builder.compile(rules) {
                Ok(classifier) => classifier,
                Err(BuildError::Engine { .. } | BuildError::Plan(PlanError::Refused(_))) => {
                    continue;
                }
                Err(error) => panic!("{}, {engine}, {structure}: {error}", shape.name),
            };
            let answers = traffic.classify(&classifier);
            for (index, (&mark, &matches)) in marks.iter().zip(matches).enumerate() {
                let answer = answers[index];
                let agrees = match matches {
                    0 | 1 => answer == mark,
                    // The catch-all must not win here.
                    _ => [answer, mark]
                        .iter()
                        .all(|winner| (1..=shape.size()).contains(winner)),
                };
                assert!(
                    agrees,
                    "{}, {engine}, {structure}, frame {:02x?}: element {answer} here, {mark} in the kernel, {matches} match",
                    shape.name,
                    traffic.frame(index),
                );
            }
            names.push(format!("{engine}/{structure}"));
        }
    }
    for engine in EngineKind::ALL {
        let answered = names.iter().any(|name| name.starts_with(engine.name()));
        let can_run = engine.check(pktjit::Cpu::host()).is_ok();
        assert_eq!(answered, can_run, "{}, {engine}", shape.name);
    }
    names.join(" ")
}

/// One refused element refuses the whole set, on both sides.
///
/// Who refuses is not told apart. Overlapping intervals of a single field are found by `nft` itself (1.0.6), before it asks
/// the kernel; overlapping concatenations, and an element repeated with another mark, are refused by the kernel.
#[test]
fn the_kernel_refuses_the_same_overlaps() {
    with_kernel(|mut kernel| {
        let (mut accepted, mut refused) = (0, 0);
        for index in 0..200 {
            let small = sets::small(&mut Random::new(1000 + index));
            let ours = small.clone().overlap(Overlap::Strict).build();
            // The same elements without a law: what the kernel is given.
            let all = small.overlap(Overlap::First).build().unwrap();
            let refusals = (ours.err(), kernel.load(&all, false).err());
            match refusals {
                (None, None) => accepted += 1,
                (Some(_), Some(_)) => refused += 1,
                _ => panic!("ours and nft's: {refusals:?}\n{}", nft::script(&all, false)),
            }
        }
        report(&format!(
            "overlaps: {accepted} small sets accepted, {refused} refused"
        ));
        assert!(accepted > 50 && refused > 50, "one-sided sets");
    });
}
