//! What surrounds the process: its environment, its limits, and the policies that it runs under.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use std::sync::Barrier;
use std::thread;

use common::in_child;
use pktjit::{BuildError, Classifier, Cpu, EngineKind};

/// The first of `engines` that this machine has.
fn first_of(engines: &[EngineKind]) -> EngineKind {
    let mut engines = engines.iter().copied();
    engines
        .find(|engine| engine.check(Cpu::host()).is_ok())
        .unwrap_or(EngineKind::Cranelift)
}

/// The best engine of this machine: the sets of these tests gain from all that it has.
fn best() -> EngineKind {
    first_of(&[EngineKind::Avx512, EngineKind::Avx2])
}

#[test]
fn the_environment_says_which_engine_goes_first() {
    for (value, expected, why) in [
        ("interp", EngineKind::Interp, "PKTJIT_ENGINE=interp"),
        ("linear", EngineKind::Linear, "PKTJIT_ENGINE=linear"),
        ("avx2", first_of(&[EngineKind::Avx2]), "PKTJIT_ENGINE=avx2"),
        (
            "cranelift",
            EngineKind::Cranelift,
            "PKTJIT_ENGINE=cranelift",
        ),
        ("avx512", best(), "PKTJIT_ENGINE=avx512"),
        (
            "neon",
            EngineKind::Cranelift,
            "engine `neon` cannot serve: this is not an AArch64 machine",
        ),
        ("cranelift", EngineKind::Cranelift, "engine"),
        ("AVX2", best(), "there is no engine `AVX2`"),
        ("", best(), "engine"),
        ("auto", best(), "engine"),
    ] {
        let name = "the_environment_says_which_engine_goes_first";
        in_child(
            name,
            &[
                ("PKTJIT_ENGINE", value),
                ("EXPECTED", expected.name()),
                ("WHY", why),
            ],
            || {
                let classifier = Classifier::compile(&common::small()).unwrap();
                let expected = std::env::var("EXPECTED").unwrap();
                assert_eq!(classifier.engine().name(), expected);
                let why = std::env::var("WHY").unwrap();
                assert!(classifier.why().contains(&why), "{}", classifier.why());
            },
        );
        if std::env::var_os("EXPECTED").is_some() {
            // This is the child, which has done its part.
            return;
        }
    }
}

#[test]
fn an_engine_asked_for_beats_the_environment() {
    let name = "an_engine_asked_for_beats_the_environment";
    in_child(name, &[("PKTJIT_ENGINE", "interp")], || {
        let builder = Classifier::builder().engine(EngineKind::Linear);
        let classifier = builder.compile(&common::small()).unwrap();
        assert_eq!(classifier.engine(), EngineKind::Linear);
    });
}

#[test]
fn a_structure_asked_for_beats_the_engine_of_the_environment() {
    let name = "a_structure_asked_for_beats_the_engine_of_the_environment";
    in_child(name, &[("PKTJIT_ENGINE", "linear")], || {
        let builder = Classifier::builder().structure(pktjit::Structure::Inline);
        let classifier = builder.compile(&common::small()).unwrap();
        assert_eq!(
            classifier.engine(),
            EngineKind::Interp,
            "{}",
            classifier.why()
        );
        assert_eq!(classifier.structure(), pktjit::Structure::Inline);
    });
}

#[test]
fn first_classifiers_of_many_threads_agree() {
    in_child("first_classifiers_of_many_threads_agree", &[], || {
        let rules = common::small();
        let barrier = Barrier::new(64);
        let engines: Vec<_> = thread::scope(|scope| {
            let handles: Vec<_> = (0..64)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        Classifier::compile(&rules).unwrap().engine()
                    })
                })
                .collect();
            handles
                .into_iter()
                .map(|handle| handle.join().unwrap())
                .collect()
        });
        assert_eq!(engines, [best(); 64]);
    });
}

/// Makes `mmap`, `mprotect` and `pkey_mprotect` fail with EACCES on this thread where they ask for executable memory.
fn forbid_executable_memory() {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let statement = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // Offsets in `struct seccomp_data`: the system call's number, and the low half of its third argument.
    const NUMBER: u32 = 0;
    const THIRD: u32 = 32;
    let load = BPF_LD | BPF_W | BPF_ABS;
    let is_equal = BPF_JMP | BPF_JEQ | BPF_K;
    let mut filter = [
        statement(load, 0, 0, NUMBER),
        statement(is_equal, 2, 0, libc::SYS_mmap as u32),
        statement(is_equal, 1, 0, libc::SYS_mprotect as u32),
        statement(is_equal, 0, 3, libc::SYS_pkey_mprotect as u32),
        statement(load, 0, 0, THIRD),
        statement(BPF_ALU | BPF_AND | BPF_K, 0, 0, libc::PROT_EXEC as u32),
        statement(is_equal, 1, 0, libc::PROT_EXEC as u32),
        statement(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        statement(
            BPF_RET | BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EACCES as u32,
        ),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: both calls take plain numbers and a program that lives until they return.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

#[test]
fn under_a_policy_against_executable_memory_the_interpreter_answers() {
    let name = "under_a_policy_against_executable_memory_the_interpreter_answers";
    in_child(name, &[], || {
        let (rules, keys) = (common::many(200), common::keys(300));
        let before = Classifier::compile(&rules).unwrap();
        let expected = common::rows(&before, &keys);
        forbid_executable_memory();
        for reason in ["Permission denied", "refused before"] {
            let after = Classifier::compile(&rules).unwrap();
            assert_eq!(after.engine(), EngineKind::Interp);
            assert_eq!(common::rows(&after, &keys), expected);
            assert!(after.why().contains(reason), "{}", after.why());
        }
        let forced = Classifier::builder().engine(best()).compile(&rules);
        assert!(matches!(forced, Err(BuildError::Engine { .. })));
        assert_eq!(before.engine(), best());
        assert_eq!(common::rows(&before, &keys), expected);
    });
}

fn limit_address_space(bytes: usize) {
    let limit = libc::rlimit {
        rlim_cur: bytes as u64,
        rlim_max: bytes as u64,
    };
    // SAFETY: the limit lives until the call returns.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[test]
fn classifiers_fit_into_a_small_address_space() {
    let name = "classifiers_fit_into_a_small_address_space";
    in_child(name, &[], || {
        for limit in [1 << 30, 256 << 20] {
            limit_address_space(limit);
            let classifier = Classifier::compile(&common::many(200)).unwrap();
            assert_eq!(classifier.engine(), best(), "{}", classifier.why());
        }
    });
}

#[test]
fn in_a_full_address_space_the_interpreter_answers() {
    let name = "in_a_full_address_space_the_interpreter_answers";
    in_child(name, &[], || {
        // What planning takes has been taken once, so that the heap has it.
        let rules = common::small();
        drop(Classifier::compile(&rules).unwrap());
        limit_address_space(common::status_bytes("VmSize"));
        let classifier = Classifier::compile(&rules).unwrap();
        assert_eq!(
            classifier.engine(),
            EngineKind::Interp,
            "{}",
            classifier.why()
        );
        assert_eq!(common::rows(&classifier, &[10, 0, 0, 1, 0, 80]), [0]);
    });
}
