//! The engines: complete ways to answer lookups, and the order in which they are tried.
//!
//! An engine is an enum that is matched and called directly: no `dyn` on the way of a lookup.

use std::fmt;
use std::str::FromStr;

use pktjit_fallback::{Interpreter, LinearScan};
use pktjit_ir::{KeyLayout, KeyRef, MISS};
use thiserror::Error;

use crate::batch::{self, BatchError};
use crate::cpu::Cpu;
use crate::entry::NativeCode;

/// A complete way to answer lookups. All of them give the same answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Machine code with 512-bit vectors and mask registers, on x86-64.
    Avx512,
    /// Machine code with 256-bit vectors, on x86-64.
    Avx2,
    /// Machine code with 128-bit vectors, on AArch64.
    Neon,
    /// Machine code that [Cranelift](https://cranelift.dev) makes, with 128-bit vectors where it has them: on x86-64,
    /// 64-bit Arm, RISC-V and s390x.
    Cranelift,
    /// The interpreter of the program that the machine code would be made from, on any machine.
    Interp,
    /// Every rule in turn, on any machine and in any memory.
    Linear,
}

/// A name that is not that of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no engine `{0}`; the engines are avx512, avx2, neon, cranelift, interp, linear")]
pub struct ParseEngineError(String);

impl EngineKind {
    /// All engines, the best first.
    pub const ALL: [Self; 6] = [
        Self::Avx512,
        Self::Avx2,
        Self::Neon,
        Self::Cranelift,
        Self::Interp,
        Self::Linear,
    ];

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Neon => "neon",
            Self::Cranelift => "cranelift",
            Self::Interp => "interp",
            Self::Linear => "linear",
        }
    }

    /// Whether it answers with machine code.
    #[must_use]
    pub const fn is_native(self) -> bool {
        match self {
            Self::Avx512 | Self::Avx2 | Self::Neon | Self::Cranelift => true,
            Self::Interp | Self::Linear => false,
        }
    }

    /// Whether `cpu` can run it.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(self, cpu: &Cpu) -> Result<(), &'static str> {
        match self {
            Self::Avx512 => cpu.avx512_target().map(drop),
            Self::Avx2 => cpu.avx2,
            Self::Neon => cpu.neon,
            Self::Cranelift => cpu.cranelift_target().map(drop),
            Self::Interp | Self::Linear => Ok(()),
        }
    }

    /// The order to try engines in where `self` is preferred: it, the ones that ask less of the machine, then the others.
    pub(crate) fn order_from(self) -> impl Iterator<Item = Self> {
        let (more, less) = Self::ALL.split_at(self as usize);
        less.iter().chain(more.iter().rev()).copied()
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = ParseEngineError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.name() == name)
            .ok_or_else(|| ParseEngineError(name.into()))
    }
}

/// An engine with everything that it needs to answer.
#[derive(Debug)]
pub(crate) enum Engine {
    Native(NativeCode),
    Interp(Interpreter),
    Linear(LinearScan),
}

impl Engine {
    /// The row of the winner, [`MISS`] also for a key of another length than `layout` has.
    #[inline]
    pub(crate) fn lookup(&self, layout: &KeyLayout, key: KeyRef<'_>) -> u32 {
        match self {
            Self::Native(code) => code.lookup(key),
            _ if key.bytes().len() != layout.len() => MISS,
            Self::Interp(program) => program.lookup(key),
            Self::Linear(rules) => rules.lookup(key),
        }
    }

    pub(crate) fn lookup_batch(
        &self,
        layout: &KeyLayout,
        keys: &[u8],
        stride: usize,
        out: &mut [u32],
    ) -> Result<(), BatchError> {
        match self {
            Self::Native(code) => code.lookup_batch(keys, stride, out),
            Self::Interp(program) => {
                batch::one_by_one(layout, keys, stride, out, |key| program.lookup(key))
            }
            Self::Linear(rules) => {
                batch::one_by_one(layout, keys, stride, out, |key| rules.lookup(key))
            }
        }
    }

    pub(crate) fn lookup_batch_keys(
        &self,
        layout: &KeyLayout,
        keys: &[KeyRef<'_>],
        out: &mut [u32],
    ) -> Result<(), BatchError> {
        if let Self::Native(code) = self {
            return code.lookup_batch_keys(keys, out);
        }
        batch::check_keys(keys, out.len(), layout.len())?;
        for (row, &key) in out.iter_mut().zip(keys) {
            *row = self.lookup(layout, key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in EngineKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn a_wrong_name_is_told_which_names_there_are() {
        let error = "avx3".parse::<EngineKind>().unwrap_err().to_string();
        for kind in EngineKind::ALL {
            assert!(error.contains(kind.name()), "{error}");
        }
    }

    #[test]
    fn less_demanding_engines_are_tried_before_more_demanding_ones() {
        use EngineKind::{Avx2, Avx512, Cranelift, Interp, Linear, Neon};
        for (preferred, order) in [
            (Avx512, [Avx512, Avx2, Neon, Cranelift, Interp, Linear]),
            (Avx2, [Avx2, Neon, Cranelift, Interp, Linear, Avx512]),
            (Neon, [Neon, Cranelift, Interp, Linear, Avx2, Avx512]),
            (Cranelift, [Cranelift, Interp, Linear, Neon, Avx2, Avx512]),
            (Interp, [Interp, Linear, Cranelift, Neon, Avx2, Avx512]),
            (Linear, [Linear, Interp, Cranelift, Neon, Avx2, Avx512]),
        ] {
            assert_eq!(preferred.order_from().collect::<Vec<_>>(), order);
        }
    }
}
