//! Lookups from a signal handler that interrupts lookups. A test file of its own, because the timer is the process's.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pktjit::Classifier;

struct Case {
    classifier: Classifier,
    keys: Vec<u8>,
    expected: Vec<u32>,
}

/// The set that the test itself looks up in, and another one.
static CASES: OnceLock<[Case; 2]> = OnceLock::new();
static INTERRUPTIONS: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Looks one key up on its own, and 31 in a batch.
fn look_up(case: &Case, turn: usize) {
    const BATCH: usize = 31;
    let layout = case.classifier.layout();
    let start = turn % (case.expected.len() - BATCH);
    let keys = &case.keys[start * layout.len()..][..BATCH * layout.len()];
    let mut out = [0; BATCH];
    let batch = case.classifier.lookup_batch(keys, layout.len(), &mut out);
    let single = layout
        .key(&keys[..layout.len()])
        .map(|key| case.classifier.lookup_row(key));
    let expected = &case.expected[start..start + BATCH];
    if batch.is_err() || out != *expected || single != Ok(expected[0]) {
        WRONG.fetch_add(1, Ordering::Relaxed);
    }
}

extern "C" fn on_timer(_: libc::c_int) {
    if let Some(cases) = CASES.get() {
        let turn = INTERRUPTIONS.fetch_add(1, Ordering::Relaxed) as usize;
        look_up(&cases[turn % 2], turn);
    }
}

fn interrupt_every(interval: libc::suseconds_t) {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: interval,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: a zeroed `sigaction` is valid; the handler only looks keys up and counts, which neither allocates nor locks.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_timer as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()),
            0
        );
        assert_eq!(
            libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()),
            0
        );
    }
}

/// `PKTJIT_SECONDS` says for how long.
#[test]
fn a_signal_handler_may_look_up_keys_while_a_lookup_runs() {
    let case = |rules| {
        let classifier = Classifier::compile(&rules).unwrap();
        let keys = common::keys(500);
        let expected = common::rows(&classifier, &keys);
        Case {
            classifier,
            keys,
            expected,
        }
    };
    let cases = [case(common::many(300)), case(common::small())];
    assert!(cases[0].classifier.raw().is_some());
    let [own, _] = CASES.get_or_init(|| cases);
    let seconds = std::env::var("PKTJIT_SECONDS").map_or(1, |n| n.parse().unwrap());
    interrupt_every(50);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut turn = 0;
    while Instant::now() < end {
        for _ in 0..1000 {
            look_up(own, turn);
            turn += 1;
        }
    }
    interrupt_every(0);
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    let interruptions = INTERRUPTIONS.load(Ordering::Relaxed);
    assert!(interruptions > 100, "only {interruptions} interruptions");
}
