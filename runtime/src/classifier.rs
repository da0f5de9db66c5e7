//! The classifier: a rule set, ready to answer.

use std::fmt;
use std::sync::Arc;

use pktjit_ir::{KeyLayout, KeyRef, RuleId, RuleSet, Structure, Verdict};

use crate::batch::BatchError;
use crate::builder::ClassifierBuilder;
use crate::engine::{Engine, EngineKind};
use crate::entry::RawLookup;
use crate::error::BuildError;
use crate::stats::Stats;

/// Answers which rule of a set wins for a key.
///
/// Immutable, and a clone is another handle of the same: any number of threads look keys up at the same time without
/// waiting for each other. The code and its tables are freed with the last handle. Lookups do not allocate with the engines
/// [`Avx512`](EngineKind::Avx512), [`Avx2`](EngineKind::Avx2) and [`Cranelift`](EngineKind::Cranelift), and may be made there
/// from a signal handler whose stack has room for [`Stats::stack_bytes`].
#[derive(Clone)]
pub struct Classifier {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) layout: KeyLayout,
    /// What the winner of each row says.
    pub(crate) rows: Box<[(RuleId, Verdict)]>,
    pub(crate) kind: EngineKind,
    pub(crate) structure: Structure,
    pub(crate) why: String,
    pub(crate) stats: Stats,
}

/// The rule that won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// Its id in the rule set.
    pub rule: RuleId,
    /// What it says.
    pub verdict: &'a Verdict,
}

impl Classifier {
    /// Compiles `rules` for this machine with the default settings.
    ///
    /// # Errors
    /// Only where this library is at fault; see [`BuildError`].
    pub fn compile(rules: &RuleSet) -> Result<Self, BuildError> {
        Self::builder().compile(rules)
    }

    /// Settings other than the defaults.
    #[must_use]
    pub fn builder() -> ClassifierBuilder {
        ClassifierBuilder::default()
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The layout of the keys.
    #[must_use]
    pub fn layout(&self) -> &KeyLayout {
        &self.inner.layout
    }

    /// The rule that wins for `key`, `None` where none matches.
    ///
    /// Total: a key of a layout with another length matches nothing.
    #[must_use]
    #[inline]
    pub fn lookup(&self, key: KeyRef<'_>) -> Option<Hit<'_>> {
        self.hit(self.lookup_row(key))
    }

    /// The row of the rule that wins for `key`, [`MISS`](crate::MISS) where none matches.
    #[must_use]
    #[inline]
    pub fn lookup_row(&self, key: KeyRef<'_>) -> u32 {
        self.inner.engine.lookup(&self.inner.layout, key)
    }

    /// Looks up as many keys as `out` has slots, and writes the winners' rows there.
    ///
    /// The keys start every `stride` bytes in `keys`, and each has [`layout().len()`](KeyLayout::len) bytes; they may
    /// overlap. Bytes behind the last key are not read.
    ///
    /// # Errors
    /// Where the keys do not fit into `keys`, or `stride` is 0. Then `out` is as it was.
    pub fn lookup_batch(
        &self,
        keys: &[u8],
        stride: usize,
        out: &mut [u32],
    ) -> Result<(), BatchError> {
        let Inner { engine, layout, .. } = &*self.inner;
        engine.lookup_batch(layout, keys, stride, out)
    }

    /// Looks up keys that lie anywhere, and writes the winners' rows to `out`.
    ///
    /// # Errors
    /// Where `out` has not as many slots as there are keys, or a key has the length of another layout. Then `out` is as it
    /// was.
    pub fn lookup_batch_keys(
        &self,
        keys: &[KeyRef<'_>],
        out: &mut [u32],
    ) -> Result<(), BatchError> {
        let Inner { engine, layout, .. } = &*self.inner;
        engine.lookup_batch_keys(layout, keys, out)
    }

    /// What a row that a lookup returned means; `None` for [`MISS`](crate::MISS) and for rows that do not exist.
    #[must_use]
    #[inline]
    pub fn hit(&self, row: u32) -> Option<Hit<'_>> {
        let (rule, verdict) = self.inner.rows.get(row as usize)?;
        Some(Hit {
            rule: *rule,
            verdict,
        })
    }

    /// The machine code itself, if the engine has any.
    #[must_use]
    pub fn raw(&self) -> Option<RawLookup<'_>> {
        match &self.inner.engine {
            Engine::Native(code) => Some(code.raw()),
            Engine::Interp(_) | Engine::Linear(_) => None,
        }
    }

    /// The engine that answers.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.inner.kind
    }

    /// The structure that holds the rules.
    #[must_use]
    pub fn structure(&self) -> Structure {
        self.inner.structure
    }

    /// Why it is this engine and this structure: what was refused, and what the alternatives would have cost.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.inner.why
    }

    /// What it takes.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats
    }
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier")
            .field("engine", &self.inner.kind)
            .field("structure", &self.inner.structure)
            .field("rules", &self.inner.rows.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{RefUnwindSafe, UnwindSafe};

    #[test]
    fn a_classifier_may_go_to_any_thread_and_through_any_panic() {
        fn check<T: Send + Sync + UnwindSafe + RefUnwindSafe + Clone>() {}
        check::<Classifier>();
    }
}
