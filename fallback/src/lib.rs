//! The engines of [pktjit](https://crates.io/crates/pktjit) that need no machine code.
#![forbid(unsafe_code)]

mod interp;

pub use interp::Interpreter;
