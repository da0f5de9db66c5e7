//! The cost model: from what a lookup does to nanoseconds on a machine.
//!
//! ```text
//! ns = max(call, instructions * per_instruction) + lines * per_line(level) + dependent loads * per_load(level)
//! ```
//!
//! The level is the smallest cache that holds all tables of the structure. Figures are for throughput with random keys:
//! out-of-order execution overlaps independent lookups, so that a dependent load costs little while tables are near.
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
    /// Lanes of 32 bits in a vector: 4, 8 or 16.
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

impl Machine {
    /// The estimated time of one lookup, in nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self, cost: &Cost) -> f64 {
        let (line, load) = match cost.table_bytes {
            bytes if bytes <= self.l1d => (0.05, 0.1),
            bytes if bytes <= self.l2 => (0.15, 0.3),
            bytes if bytes <= self.l3 => (1.0, 1.5),
            _ => (4.0, 8.0),
        };
        (cost.instructions * INSTRUCTION_NS).max(CALL_NS)
            + cost.lines * line
            + cost.dependent_loads * load
    }
}
