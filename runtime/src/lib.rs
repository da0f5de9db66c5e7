//! Compiles packet-classifier rule sets to machine code while the program runs.
//!
//! A [`RuleSet`] says which packets are meant: addresses, prefixes, ranges, ports, masks, with priorities and verdicts, as
//! in an nftables set or map. A [`Classifier`] says which rule wins for a packet's key, in nanoseconds, because
//! the rules have become straight-line code and tables made for them.
//!
//! ```
//! use pktjit::{Classifier, Field, KeyLayout, Match, Overlap, Rule, RuleSet, Verdict};
//!
//! // A key is the source address and the destination port, as they come off the wire.
//! let layout = KeyLayout::packed([Field::ipv4_addr("saddr"), Field::inet_service("dport")])?;
//! let net = Match::Prefix { value: 0x0a00_0000, len: 8 };
//! let rules = RuleSet::builder(layout)
//!     .overlap(Overlap::First)
//!     .rule(Rule::new([net, Match::Exact(22)]).with_verdict(Verdict::Drop))
//!     .rule(Rule::new([net, Match::Range { lo: 1, hi: 1023 }]).with_verdict(Verdict::Accept))
//!     .build()?;
//!
//! let classifier = Classifier::compile(&rules)?;
//!
//! let key = classifier.layout().key(&[10, 1, 2, 3, 0, 22])?;
//! assert_eq!(classifier.lookup(key).map(|hit| hit.verdict), Some(&Verdict::Drop));
//! let key = classifier.layout().key(&[10, 1, 2, 3, 0, 80])?;
//! assert_eq!(classifier.lookup(key).map(|hit| hit.verdict), Some(&Verdict::Accept));
//! let key = classifier.layout().key(&[192, 0, 2, 1, 0, 80])?;
//! assert_eq!(classifier.lookup(key), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # One answer, always
//! The rule of the largest priority wins, of equal ones the one added first. Every engine gives that answer, and a
//! classifier works on any machine: where there is no AVX2, no executable memory, or too little of a budget, the next
//! [engine](EngineKind) takes over, and [`Classifier::why`] tells.
//!
//! | engine | what it is | needs |
//! | --- | --- | --- |
//! | `avx512` | machine code with 512-bit vectors, where the plan gains from them | x86-64 with AVX-512 F, BW, DQ and VL, executable memory |
//! | `avx2` | machine code | x86-64 with AVX2, executable memory |
//! | `interp` | the interpreter of the same program | nothing |
//! | `linear` | one rule after the other | nothing, not even tables |
//!
//! The environment variable `PKTJIT_ENGINE` names the engine to try first; [`ClassifierBuilder::engine`] beats it.
//!
//! # Many keys at once
//! [`Classifier::lookup_batch`] and [`Classifier::lookup_batch_keys`] fill a slice with rows that [`Classifier::hit`]
//! resolves. [`Classifier::raw`] gives the bare function pointers.
//!
//! # Features
//! `formats` reads nft text, nft JSON and ClassBench files, `cli` builds the tools `pktjit` and `jitdump`. Both are on by
//! default, and neither is needed to embed the library.
//!
//! # Safety
//! The crates that plan, generate, audit and interpret forbid `unsafe`. What is left is here: `entry` calls generated code,
//! `cpu` asks which registers the operating system saves, and `code_memory` promises what sealed memory is. The tools add
//! two bits of their own: `call` calls the bare functions, and `stdout` is asked for before `main`.

mod batch;
mod builder;
mod classifier;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod code_memory;
mod cpu;
mod engine;
mod entry;
mod error;
#[cfg(feature = "formats")]
pub mod formats;
mod icache;
mod stats;

pub use batch::BatchError;
pub use builder::ClassifierBuilder;
pub use classifier::{Classifier, Hit};
pub use code_memory::{Access, CodeMemory, MemoryError, OsMemory, SealedMemory};
pub use cpu::Cpu;
pub use engine::{EngineKind, ParseEngineError};
/// Machine code of any verified program, for tests that compare engines on more than planners make.
#[doc(hidden)]
pub use entry::{LoadError, NativeCode};
pub use entry::{LookupBatchFn, LookupBatchPtrsFn, LookupFn, RawLookup};
pub use error::BuildError;
pub use stats::Stats;

pub use pktjit_ir::plan::{Effort, PlanError};
pub use pktjit_ir::verify::VerifyError;
pub use pktjit_ir::{
    ByteOrder, Field, FieldId, FieldKind, KeyError, KeyLayout, KeyRef, LayoutError, MISS, Match,
    MatchError, Note, Overlap, ParseStructureError, Refusal, Rule, RuleId, RuleSet, RuleSetBuilder,
    RuleSetError, Shadowed, StoredRule, Structure, Verdict,
};
pub use pktjit_jit::{Caches, CompileError, Features, Target, audit::AuditError};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
