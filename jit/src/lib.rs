//! Machine code for verified [pktjit](https://crates.io/crates/pktjit) programs.
//!
//! ```text
//! VerifiedProgram + Target -> lower -> code buffer -> CompiledCode -> audit     isa: generators of our own
//!                          -> CLIF  -> Cranelift   -> CompiledCode              clif: all other machines
//! ```
//!
//! It could run on another machine and mail you the bytes: no executable memory, no feature detection, no `unsafe`.
#![forbid(unsafe_code)]

pub mod audit;
#[cfg(feature = "cranelift")]
mod clif;
mod code;
mod code_buffer;
mod constant_pool;
mod error;
mod isa;
mod stats;
mod target;

#[cfg(feature = "cranelift")]
pub use clif::text as cranelift_text;
pub use code::{CompiledCode, Entries, ListingEntry, Placement, Relocation};
pub use error::CompileError;
pub use stats::{LookupStats, lookup_stats};
pub use target::{Caches, Features, Generator, Isa, Target};

use pktjit_ir::VerifiedProgram;

/// Whether code for AVX-512 is better than code for AVX2 where `program` is concerned; if not, [`compile`] makes the latter for
/// a target with AVX-512 too, and says so in [`CompiledCode::target`].
#[must_use]
pub fn gains_from_avx512(program: &VerifiedProgram) -> bool {
    isa::x64::gains_from_avx512(program)
}

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where the target cannot express the program, or the code would be too large.
pub fn compile(program: &VerifiedProgram, target: &Target) -> Result<CompiledCode, CompileError> {
    match (target.generator, target.isa) {
        (Generator::Own, Isa::X86_64) => isa::x64::compile(program, target),
        (Generator::Own, Isa::AArch64) => isa::a64::compile(program, target),
        #[cfg(feature = "cranelift")]
        (Generator::Cranelift, _) => clif::compile(program, target),
        _ => Err(CompileError::Unsupported(format!(
            "this build has no code generator for {target}"
        ))),
    }
}
