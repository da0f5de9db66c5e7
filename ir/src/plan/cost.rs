//! The cost model: from what a lookup does to nanoseconds on a machine.
//!
//! ```text
//! ns = either(call, instructions * instruction) + lines * line(bytes) + dependent loads * load(bytes)
//! either(a, b) = (a^2 + b^2)^(1/2)
//! ```
//!
//! | what | counted by structures | constant |
//! | --- | --- | --- |
//! | the call | - | `call`: instructions of one lookup run while the next is called, so the longer of the two counts most |
//! | instructions | scalar and vector ones alike, for the machine's lanes and its way to gather bits | `instruction` |
//! | wide ones | tests of sixteen lanes, each as so many of eight: see [`Machine::on_lanes`] | `wide` |
//! | lines | lines of tables that are touched; a quarter of those that are read in order | `line`, in each cache |
//! | dependent loads | loads from tables that wait for a load from a table | `load`: what the wait adds |
//! | bytes | of all tables | with the sizes of caches, where lines and loads are found |
//!
//! With random keys a line of the tables is in a cache with the probability that the size of the cache and that of the
//! tables give, so that the figures of the levels are averaged by it. So an estimate grows with each of its arguments and has
//! no steps, neither where tables outgrow a cache nor where the instructions outgrow the call.
//! Figures are for throughput: out-of-order execution overlaps independent lookups, so that a dependent load costs little
//! while tables are near. The constants are those of [`calibration`](super::calibration), which names the run that
//! measured them; only ratios between structures matter for the choice.

use super::calibration::CALIBRATION;
use crate::structure::Cost;

/// How quickly `pext` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pext {
    /// In one step.
    Fast,
    /// The code generator takes it, but makes shifts of it: it is not there, or microcoded.
    Slow,
    /// The code generator does not take it: programs shift and mask themselves.
    None,
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

/// The constants of the model, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// A call through a function pointer and back.
    pub call: f64,
    /// A machine instruction.
    pub instruction: f64,
    /// How many tests of eight lanes take as long as one of sixteen: one where a machine has as many units for vectors of 512
    /// bits as for those of 256, two where such a vector takes a unit twice.
    pub wide: f64,
    /// The first-level cache, the second, the third, and memory; none is quicker than the one before.
    pub levels: [Level; 4],
}

/// What it takes to load from a level of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// A line that is touched.
    pub line: f64,
    /// What it adds to wait for the load before.
    pub load: f64,
}

impl Machine {
    /// The one of two that takes less time.
    pub(crate) fn cheaper(&self, one: Cost, other: Cost) -> Cost {
        if self.nanoseconds(&one) <= self.nanoseconds(&other) {
            one
        } else {
            other
        }
    }

    /// What so many instructions that test eight lanes count where they test all lanes of the machine.
    pub(crate) fn on_lanes(&self, instructions: f64) -> f64 {
        match self.lanes {
            16 => CALIBRATION.wide * instructions,
            _ => instructions,
        }
    }

    /// The estimated time of one lookup, in nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self, cost: &Cost) -> f64 {
        let Calibration {
            call,
            instruction,
            levels,
            ..
        } = CALIBRATION;
        let share = |cache: usize| (cache as f64 / cost.table_bytes.max(1) as f64).min(1.0);
        let within = [share(self.l1d), share(self.l2), share(self.l3), 1.0];
        let (mut line, mut load, mut nearer) = (0.0, 0.0, 0.0);
        for (level, within) in levels.into_iter().zip(within) {
            // A small cache behind a large one holds nothing more.
            let here = (within - nearer).max(0.0);
            line += here * level.line;
            load += here * level.load;
            nearer = within.max(nearer);
        }
        let work = cost.instructions * instruction;
        let either = (call * call + work * work).sqrt();
        either + cost.lines * line + cost.dependent_loads * load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Cost = Cost {
        instructions: 20.0,
        dependent_loads: 2.0,
        lines: 3.0,
        table_bytes: 5 << 20,
    };

    fn nanoseconds(cost: Cost) -> f64 {
        Machine::default().nanoseconds(&cost)
    }

    #[test]
    fn an_estimate_grows_with_each_of_its_arguments() {
        for i in 0..64 {
            let before = Cost {
                instructions: f64::from(i),
                dependent_loads: f64::from(i % 7),
                lines: f64::from(i % 11),
                table_bytes: 1 << (i / 2),
            };
            let Cost {
                instructions,
                dependent_loads,
                lines,
                table_bytes,
            } = before;
            for after in [
                Cost {
                    instructions: instructions + 1.0,
                    ..before
                },
                Cost {
                    dependent_loads: dependent_loads + 1.0,
                    ..before
                },
                Cost {
                    lines: lines + 1.0,
                    ..before
                },
            ] {
                assert!(
                    nanoseconds(after) > nanoseconds(before),
                    "{before:?} {after:?}"
                );
            }
            let larger = Cost {
                table_bytes: 2 * table_bytes,
                ..before
            };
            assert!(nanoseconds(larger) >= nanoseconds(before), "{before:?}");
        }
    }

    #[test]
    fn a_byte_more_than_a_cache_is_no_step() {
        let Machine { l1d, l2, l3, .. } = Machine::default();
        for cache in [l1d, l2, l3] {
            let [within, beyond] = [cache, cache + 64].map(|table_bytes| {
                nanoseconds(Cost {
                    table_bytes,
                    ..SOME
                })
            });
            assert!(beyond - within < 0.01 * within, "{within} {beyond}");
        }
    }

    #[test]
    fn instructions_that_outgrow_the_call_are_no_step() {
        for instructions in 0..40 {
            let [less, more] = [0.0, 1.0].map(|more| {
                nanoseconds(Cost {
                    instructions: f64::from(instructions) + more,
                    ..Cost::default()
                })
            });
            assert!(
                more - less <= CALIBRATION.instruction + 1e-9,
                "{instructions}: {less} {more}"
            );
        }
    }

    #[test]
    fn larger_caches_never_make_a_lookup_slower() {
        let small = Machine {
            l1d: 16 << 10,
            l2: 256 << 10,
            l3: 4 << 20,
            ..Machine::default()
        };
        assert!(small.nanoseconds(&SOME) > nanoseconds(SOME));
    }

    #[test]
    fn lines_of_the_second_level_count_where_there_are_dozens() {
        // Two ways to hold acl1_10k, which took 12 and 16 ns (AMD EPYC, family 25 model 17, 2026-12-01), and with tables that do
        // not leave the nearest cache would be as quick as each other.
        let peel = Cost {
            instructions: 153.0,
            dependent_loads: 3.0,
            lines: 8.4,
            table_bytes: 351_968,
        };
        let bucket = Cost {
            instructions: 149.0,
            dependent_loads: 4.0,
            lines: 27.3,
            table_bytes: 785_216,
        };
        assert!(nanoseconds(peel) + 3.0 < nanoseconds(bucket));
        let near = |cost| Cost {
            table_bytes: 16 << 10,
            ..cost
        };
        let apart = nanoseconds(near(peel)) - nanoseconds(near(bucket));
        assert!(apart.abs() < 0.5, "{apart}");
    }

    #[test]
    fn a_test_of_sixteen_lanes_counts_more_than_one_of_eight_and_no_more_than_two() {
        let machine = |lanes| Machine {
            lanes,
            ..Machine::default()
        };
        let [four, eight, sixteen] = [4, 8, 16].map(|lanes| machine(lanes).on_lanes(3.0));
        assert_eq!((four, eight), (3.0, 3.0));
        assert!((3.0..=6.0).contains(&sixteen), "{sixteen}");
    }

    #[test]
    fn a_farther_level_is_never_quicker() {
        for levels in CALIBRATION.levels.windows(2) {
            assert!(levels[0].line <= levels[1].line && levels[0].load <= levels[1].load);
        }
    }
}
