//! What it costs to get to a function: a body of one load, inlined, called directly, through a pointer, and through a
//! retpoline, as kernels call through pointers that nobody may speculate on.

use std::arch::{asm, naked_asm};
use std::error::Error;
use std::hint::black_box;

use pktjit::LookupFn;

use crate::measure::Mode;
use crate::peer::Peer;
use crate::suite::{Contender, Done, Place, Settings, take_turns};
use crate::workload::{Elements, Keys, Row, Traffic};

/// The only row of the suite.
pub const ROW: Row = Row::new("call", 0, &[], Elements::Counted(0));

/// Bytes of a key.
const KEY: usize = 4;

/// The body.
///
/// # Safety
/// `key` has 4 readable bytes.
#[unsafe(naked)]
unsafe extern "sysv64" fn load(key: *const u8) -> u32 {
    naked_asm!("mov eax, [rdi]", "ret")
}

/// Goes to `target` by a return, whose predicted place is the endless loop behind the call.
///
/// # Safety
/// As for `target`.
#[unsafe(naked)]
unsafe extern "sysv64" fn retpoline(key: *const u8, target: LookupFn) -> u32 {
    naked_asm!(
        "call 3f",
        "2:",
        "pause",
        "lfence",
        "jmp 2b",
        "3:",
        "mov [rsp], rsi",
        "ret",
    )
}

/// A way to get to the body.
macro_rules! way {
    ($way:ident $(($target:ident))?, $name:literal, $call:expr) => {
        struct $way $((#[doc = "The function."] $target))?;

        impl Peer for $way {
            fn name(&self) -> &'static str {
                $name
            }

            #[inline]
            fn lookup(&mut self, key: &[u8]) -> u32 {
                assert!(key.len() >= KEY);
                let call: fn(&Self, *const u8) -> u32 = $call;
                call(self, key.as_ptr())
            }

            fn bytes(&self) -> usize {
                0
            }
        }
    };
}

way!(Inline, "inline", |_, key| {
    let value;
    // SAFETY: `key` has 4 readable bytes. Assembly, so that the compiler does not make vectors of it.
    unsafe {
        asm!("mov {0:e}, [{1}]", out(reg) value, in(reg) key, options(pure, readonly, nostack))
    };
    value
});
way!(Direct, "direct", |_, key| {
    // SAFETY: `key` has 4 readable bytes.
    unsafe { load(key) }
});
way!(Pointer(LookupFn), "pointer", |way, key| {
    // SAFETY: `key` has 4 readable bytes; the function is `load`.
    unsafe { (way.0)(key) }
});
way!(Retpoline(LookupFn), "retpoline", |way, key| {
    // SAFETY: `key` has 4 readable bytes; the function is `load`.
    unsafe { retpoline(key, way.0) }
});

/// Runs the suite.
///
/// # Errors
/// A wrong answer.
pub fn run(row: &Row, settings: &Settings, done: Done<'_>) -> Result<(), Box<dyn Error>> {
    let expected: Vec<u32> = (0..settings.keys as u32).collect();
    let keys = Keys {
        bytes: expected.iter().flat_map(|n| n.to_ne_bytes()).collect(),
        stride: KEY,
        expected,
    };
    // The compiler must not see through the pointers.
    let mut contenders = [
        Contender::build(|| Direct),
        Contender::build(|| Inline),
        Contender::build(|| Pointer(black_box(load as LookupFn))),
        Contender::build(|| Retpoline(black_box(load as LookupFn))),
    ];
    for contender in &mut contenders {
        contender.check(&keys)?;
    }
    for mode in [Mode::Single, Mode::Latency] {
        let place = Place {
            suite: settings.suite,
            row: row.name,
            rules: row.rules,
            traffic: Traffic::Hits.name(),
            mode,
        };
        take_turns(&mut contenders, &place, |_| &keys, settings.effort, done);
    }
    Ok(())
}
