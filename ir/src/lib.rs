//! Rules, key layouts, planning and the IR of [pktjit](https://crates.io/crates/pktjit).
//!
//! ```text
//! KeyLayout, Rule -> RuleSet -> plan -> Program -> verify -> VerifiedProgram
//! ```
//!
//! Everything here would make sense on paper: no CPU, no clock, no file, no thread, no `unsafe`.
#![forbid(unsafe_code)]

mod builder;
pub mod entity;
mod error;
mod field;
mod key;
pub mod plan;
pub mod program;
mod rule;
mod rule_set;
mod structure;
mod table;
pub mod text;
mod verdict;
pub mod verify;

pub use builder::ProgramBuilder;
pub use entity::{BlockId, FieldId, RuleId, TableId, ValueId};
pub use error::{KeyError, LayoutError, MatchError, RuleSetError};
pub use field::{ByteOrder, Field, FieldKind, MAX_FIELD_BYTES};
pub use key::{KeyLayout, KeyRef, MAX_FIELD_BYTES_SUM, MAX_FIELDS, MAX_SPAN, Word};
pub use program::{MISS, Program};
pub use rule::{Match, Rule, StoredRule};
pub use rule_set::{Note, Overlap, RuleSet, RuleSetBuilder, Shadowed};
pub use structure::{Cost, ParseStructureError, Refusal, Structure};
pub use verdict::{MAX_DATA_BYTES, Verdict};
pub use verify::{MAX_SCRATCH, VerifiedProgram, VerifyError, verify};
