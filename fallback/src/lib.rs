//! The engines of [pktjit](https://crates.io/crates/pktjit) that need no machine code.
//!
//! [`LinearScan`] asks rule after rule. It is the referee: every other engine and structure must give its answer.
//! [`Interpreter`] runs any verified program, slowly but everywhere.
//!
//! ```
//! use pktjit_fallback::LinearScan;
//! use pktjit_ir::{Field, KeyLayout, Match, Rule, RuleSet};
//!
//! let layout = KeyLayout::packed([Field::inet_service("dport")]).unwrap();
//! let rules = RuleSet::builder(layout.clone())
//!     .rule(Rule::new([Match::Range { lo: 1, hi: 1024 }]))
//!     .build()
//!     .unwrap();
//! let scan = LinearScan::new(&rules);
//! assert_eq!(scan.lookup(layout.key(&[0, 80]).unwrap()), 0);
//! ```
#![forbid(unsafe_code)]

mod interp;
mod linear;

pub use interp::Interpreter;
pub use linear::LinearScan;
