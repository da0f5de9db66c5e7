//! Code memory: never writable and executable at once, given back, and not needed for a right answer.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use common::{in_child, mappings, status_bytes};
use pktjit::{
    Access, BuildError, Classifier, CodeMemory, EngineKind, MemoryError, OsMemory, SealedMemory,
    Verdict,
};

type Fill<'a> = &'a mut dyn FnMut(&mut [u8]);
type Sealed = Result<Box<dyn SealedMemory>, MemoryError>;

/// Has memory for tables and none for code.
struct NoCode(OsMemory);

// SAFETY: hands on what `OsMemory` gives, or an error.
unsafe impl CodeMemory for NoCode {
    fn seal(&self, len: usize, access: Access, fill: Fill<'_>) -> Sealed {
        if access == Access::Execute {
            return Err(MemoryError::Refused {
                len,
                access,
                source: std::io::ErrorKind::OutOfMemory.into(),
            });
        }
        self.0.seal(len, access, fill)
    }
}

#[test]
fn without_memory_for_code_the_interpreter_answers() {
    let rules = common::many(300);
    let keys = common::keys(500);
    let granted = Classifier::compile(&rules).unwrap();
    assert!(granted.raw().is_some(), "{}", granted.why());
    let refused = Classifier::builder()
        .memory(Arc::new(NoCode(OsMemory::default())))
        .compile(&rules)
        .unwrap();
    assert_eq!(refused.engine(), EngineKind::Interp);
    assert!(refused.why().contains("no memory of"), "{}", refused.why());
    assert_eq!(common::rows(&refused, &keys), common::rows(&granted, &keys));
}

#[test]
fn without_memory_for_code_an_engine_asked_for_by_name_is_an_error() {
    let error = Classifier::builder()
        .engine(EngineKind::Cranelift)
        .memory(Arc::new(NoCode(OsMemory::default())))
        .compile(&common::small())
        .unwrap_err();
    assert!(
        matches!(&error, BuildError::Engine { engine: EngineKind::Cranelift, reason } if reason.contains("no memory of")),
        "{error}"
    );
}

/// Looks at all mappings of the process before, between and after the steps of publishing.
struct Watched(OsMemory);

fn assert_no_mapping_is_writable_and_executable() {
    for mapping in mappings() {
        let access = &mapping.access;
        assert!(
            !(access.contains('w') && access.contains('x')),
            "{mapping:?}"
        );
    }
}

// SAFETY: hands on what `OsMemory` gives.
unsafe impl CodeMemory for Watched {
    fn seal(&self, len: usize, access: Access, fill: Fill<'_>) -> Sealed {
        let sealed = self.0.seal(len, access, &mut |bytes| {
            assert_no_mapping_is_writable_and_executable();
            fill(bytes);
            assert_no_mapping_is_writable_and_executable();
        })?;
        let start = sealed.bytes().as_ptr().addr();
        let expected = match access {
            Access::Read => "r--p",
            Access::Execute => "r-xp",
        };
        let mut found = false;
        for mapping in mappings() {
            if mapping.start <= start && start < mapping.end {
                assert_eq!(mapping.access, expected);
                found = true;
            }
        }
        assert!(found);
        Ok(sealed)
    }
}

#[test]
fn no_mapping_is_ever_writable_and_executable() {
    let memory = Arc::new(Watched(OsMemory::default()));
    let builder = Classifier::builder().memory(memory);
    let (small, many) = (common::small(), common::many(100));
    for i in 0..1000 {
        let rules = if i % 50 == 0 { &many } else { &small };
        let classifier = builder.compile(rules).unwrap();
        assert!(classifier.raw().is_some());
        assert_no_mapping_is_writable_and_executable();
    }
}

/// `PKTJIT_CYCLES` asks for more than a debug build does in a few seconds.
#[test]
fn memory_is_given_back() {
    in_child("memory_is_given_back", &[], || {
        let cycles = std::env::var("PKTJIT_CYCLES").map_or(5_000, |n| n.parse().unwrap());
        let rules = common::small();
        let builder = Classifier::builder().audit(false);
        let cycle = |n| {
            for _ in 0..n {
                let classifier = builder.compile(&rules).unwrap();
                let key = [10, 0, 0, 1, 0, 80];
                assert_eq!(common::rows(&classifier, &key), [0]);
            }
        };
        cycle(200);
        let before = (mappings().len(), status_bytes("VmRSS"));
        cycle(cycles);
        let after = (mappings().len(), status_bytes("VmRSS"));
        assert!(after.0 <= before.0 + 4, "mappings: {before:?}, {after:?}");
        assert!(
            after.1 <= before.1 + (10 << 20),
            "bytes: {before:?}, {after:?}"
        );
    });
}

#[test]
fn memory_is_given_back_in_any_order() {
    in_child("memory_is_given_back_in_any_order", &[], || {
        let rules = common::small();
        let builder = Classifier::builder().audit(false);
        let make = |n| -> Vec<_> { (0..n).map(|_| builder.compile(&rules).unwrap()).collect() };
        drop(make(100));
        let before = mappings().len();
        let mut live = make(1000);
        while let Some(last) = live.len().checked_sub(1) {
            // 7919 is a prime: an order that is neither that of making nor its reverse.
            drop(live.swap_remove(live.len() * 7919 % (last + 1).max(1)));
            if let Some(classifier) = live.first() {
                assert_eq!(common::rows(classifier, &[10, 0, 0, 1, 0, 80]), [0]);
            }
        }
        let after = mappings().len();
        assert!(after <= before + 4, "mappings: {before}, {after}");
    });
}

#[test]
fn code_in_recycled_memory_is_the_new_code_on_every_core() {
    let (send, receive) = mpsc::sync_channel::<(u32, Classifier)>(4);
    let check = |n: u32, classifier: &Classifier| {
        let key = classifier.layout().key(&[1, 2, 3, 4, 5, 6]).unwrap();
        let verdict = classifier.lookup(key).map(|hit| hit.verdict.clone());
        assert_eq!(verdict, Some(Verdict::Data(n.to_le_bytes().into())));
    };
    let other = thread::spawn(move || {
        let mut seen = 0;
        for (n, classifier) in receive {
            check(n, &classifier);
            seen += 1;
        }
        seen
    });
    let builder = Classifier::builder().audit(false);
    for n in 0..2000 {
        let classifier = builder.compile(&common::constant(n)).unwrap();
        check(n, &classifier);
        send.send((n, classifier)).unwrap();
    }
    drop(send);
    assert_eq!(other.join().unwrap(), 2000);
}

#[test]
fn the_last_handle_keeps_the_code() {
    let rules = common::many(300);
    let keys = common::keys(2000);
    let classifier = Classifier::compile(&rules).unwrap();
    let expected = common::rows(&classifier, &keys);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (classifier, keys, expected) = (classifier.clone(), &keys, &expected);
            scope.spawn(move || {
                for _ in 0..10 {
                    assert_eq!(common::rows(&classifier, keys), *expected);
                }
            });
        }
        drop(classifier);
        // Others come and go meanwhile, at the addresses that would be free if the code were gone.
        for n in 0..100 {
            drop(Classifier::compile(&common::constant(n)).unwrap());
        }
    });
}
