//! Why code could not be generated: our bug, a limit, or something that the target cannot do.

use thiserror::Error;

/// Why a verified program has no code on a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompileError {
    /// The target lacks something that the program needs; another engine can run it.
    #[error("not possible on this target: {0}")]
    Unsupported(String),
    /// The program is larger than the code generator takes.
    #[error("{what} is {actual}, at most {limit} is possible")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        actual: u64,
        /// How much is possible.
        limit: u64,
    },
    /// A fault of this crate; please report it.
    #[error("internal fault of the code generator: {0}")]
    Bug(String),
}

impl CompileError {
    /// Whether another engine should be tried without further ado.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        !matches!(self, Self::Bug(_))
    }
}
