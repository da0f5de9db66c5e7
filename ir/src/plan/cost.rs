//! The cost model: from what a lookup does to nanoseconds on a machine.
//!
//! ```text
//! ns = max(call, instructions * per_instruction) + lines * per_line(bytes) + dependent loads * per_load(bytes)
//! ```
//!
//! With random keys a line of the tables is in a cache with the probability that the size of the cache and that of the
//! tables give, so that the figures of the levels are averaged by it: an estimate has no steps where tables outgrow a cache.
//! Figures are for throughput: out-of-order execution overlaps independent lookups, so that a dependent load costs little
//! while tables are near.
//! `per_instruction` and the lines were measured on throw-away prototypes before the project began (x86-64 at 3.4 GHz, 2026);
//! only ratios between structures matter for the choice. They are not calibrated on this code yet.

use crate::structure::Cost;

/// How quickly `pext` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pext {
    /// In one step.
    Fast,
    /// Microcoded, or not there: bits are gathered by shifts.
    Slow,
}

/// What the planner knows of the machine that the program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Lanes of 32 bits in the widest vector: 4, 8 or 16. A plan may ask for eight where there are sixteen.
    pub lanes: u8,
    /// How bits are gathered.
    pub pext: Pext,
    /// Bytes of the first-level data cache.
    pub l1d: usize,
    /// Bytes of the second-level cache.
    pub l2: usize,
    /// Bytes of the third-level cache.
    pub l3: usize,
}

impl Default for Machine {
    /// Eight lanes, quick `pext`, 32 KiB, 1 MiB and 32 MiB of caches.
    fn default() -> Self {
        Self {
            lanes: 8,
            pext: Pext::Fast,
            l1d: 32 << 10,
            l2: 1 << 20,
            l3: 32 << 20,
        }
    }
}

/// A call through a function pointer and back.
const CALL_NS: f64 = 1.2;
const INSTRUCTION_NS: f64 = 0.09;
/// A line, and a load that waits for another, in each of the three caches and in memory.
const LEVEL_NS: [(f64, f64); 4] = [(0.05, 0.1), (0.15, 0.3), (1.0, 1.5), (4.0, 8.0)];

impl Machine {
    /// The estimated time of one lookup, in nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self, cost: &Cost) -> f64 {
        let share = |cache: usize| (cache as f64 / cost.table_bytes.max(1) as f64).min(1.0);
        let within = [share(self.l1d), share(self.l2), share(self.l3), 1.0];
        let (mut line, mut load, mut nearer) = (0.0, 0.0, 0.0);
        for ((line_ns, load_ns), within) in LEVEL_NS.into_iter().zip(within) {
            // A small cache behind a large one holds nothing more.
            let here = (within - nearer).max(0.0);
            line += here * line_ns;
            load += here * load_ns;
            nearer = within.max(nearer);
        }
        (cost.instructions * INSTRUCTION_NS).max(CALL_NS)
            + cost.lines * line
            + cost.dependent_loads * load
    }
}
