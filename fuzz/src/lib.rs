//! Generators, oracles and regressions that look for the key on which two engines differ.

pub mod guard;
