//! Generators, oracles and drivers that look for the key on which two engines differ.

pub mod filetest;
pub mod r#gen;

pub use r#gen::program::ValidProgram;
