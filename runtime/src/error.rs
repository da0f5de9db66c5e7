//! Why a rule set did not become a classifier.

use pktjit_ir::plan::PlanError;
use pktjit_jit::CompileError;
use pktjit_jit::audit::AuditError;
use thiserror::Error;

use crate::engine::EngineKind;

/// Why a rule set did not become a classifier.
///
/// Unless an engine or a structure was asked for by name, it is a fault of this library; please report it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The engine that was asked for cannot serve.
    #[error("engine `{engine}` cannot serve: {reason}")]
    Engine {
        /// The engine.
        engine: EngineKind,
        /// Why not.
        reason: String,
    },
    /// The structure that was asked for cannot hold the rules, or not within the budget.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The code generator failed where it should not.
    #[error(transparent)]
    Compile(CompileError),
    /// The auditor could not prove the finished code harmless; it was not run.
    #[error("the generated code failed its audit: {0}")]
    Audit(#[from] AuditError),
}
