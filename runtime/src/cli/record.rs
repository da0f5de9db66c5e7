//! One result of a benchmark. Other people's scripts read it: names and order of the fields are fixed.

use serde::{Deserialize, Serialize};

use crate::Stats;

/// What was measured, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The suite; `user` for a user's own rules.
    pub suite: String,
    /// The row of the suite; the name of the set for a user's own rules.
    pub row: String,
    /// The nominal number of rules.
    pub rules: u32,
    /// The traffic: `same`, `hits` or `misses`; of lists `uniform`, `zipf`, `random`, `hostile`, `cold` or `trace`; `keys` for
    /// keys of a file.
    pub traffic: String,
    /// Who answered: `pktjit`, `pktjit-lookup`, or a peer. In `scaling` the number of threads follows a hyphen.
    pub what: String,
    /// The structure that was asked for; none for peers, but for a floor that of which it is the floor.
    pub requested: Option<String>,
    /// The engine that served; none for peers.
    pub engine: Option<String>,
    /// The structure that served; none for peers.
    pub structure: Option<String>,
    /// `single`, `batch` or `latency`.
    pub mode: String,
    /// Median nanoseconds a lookup.
    pub ns: f64,
    /// Half the width of the 95 % interval over the pairs.
    pub ci95: f64,
    /// Bytes of tables and code.
    pub bytes: usize,
    /// Milliseconds that it took to build.
    pub build_ms: f64,
}

/// The tables and the code. Small tables lie in the pool and count once.
#[must_use]
pub fn bytes(stats: &Stats) -> usize {
    stats.code_bytes + stats.pool_bytes.max(stats.table_bytes)
}
