//! Workloads and peers that pktjit is measured with.
//!
//! ```text
//! cargo run --release -p pktjit-bench -- selftest --json results.json --plot results.svg
//! ```
//!
//! [`workload`] makes rules and traffic, [`peer`] holds what pktjit is compared with, [`measure`] times ways to do the same
//! in turns, [`suite`], [`classbench`] and [`build`] put them together, and [`report`] prints what came out.

pub mod build;
pub mod calibrate;
pub mod classbench;
#[cfg(target_arch = "x86_64")]
pub mod dispatch;
pub mod floor;
pub mod measure;
pub mod peer;
pub mod plot;
pub mod report;
pub mod scaling;
pub mod suite;
pub mod workload;

pub use pktjit::cli::record;
