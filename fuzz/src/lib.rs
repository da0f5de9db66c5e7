//! Generators, oracles, drivers and regressions that look for the key on which two engines differ.

pub mod filetest;
pub mod r#gen;
pub mod guard;
pub mod oracle;
pub mod targets;
pub mod trace;

pub use r#gen::program::ValidProgram;
