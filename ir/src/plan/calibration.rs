//! The constants of the cost model: the table that `cargo run --release -p pktjit-bench -- calibrate` printed, but for the far
//! caches.
//!
//! 2026-11-30, AMD EPYC, family 25 model 17, 2 CPUs, caches of 32 KiB, 1 MiB and 32 MiB, Linux 6.18.44, load 11; a second run
//! differed by 1 %, in the second level by 11 %.
//!
//! Of another run are `wide` and the lines of the second level: 2026-12-01, the same sort of CPU, this time with AVX-512, and
//! load 10, `--quick`, twice: 2.0 and 2.2, and 0.15 and 0.32 ns a line where lookups read 12 lines and 36. (With two lines and
//! six, as before, the call hides them and 0.02 ns came out, so that plans touched dozens.) Within these, the figures are those
//! with which the six ClassBench sets of 1000 and 10,000 rules are quickest: with 0.02, 0.15, 0.2 and 0.3 ns a line, the plan
//! for eight lanes takes 20, 17, 17 and 26 ns for fw1_10k.
//!
//! Not of that run are the third level and memory: there 6.8 and 8.3 ns a line and 19 and 21 ns a load were measured, and on the
//! quiet machine (load 1, `--quick`) 6.6 and 6.6, 17 and 29: the virtual machine shares that cache. With these, plans avoid the
//! third level at the price of thousands of instructions. The figures are those of the prototypes, of a machine of its own.

use super::cost::{Calibration, Level};

pub(super) const CALIBRATION: Calibration = Calibration {
    call: 3.181,
    instruction: 0.092,
    wide: 2.0,
    levels: [
        Level {
            line: 0.02,
            load: 0.02,
        },
        Level {
            line: 0.2,
            load: 0.966,
        },
        Level {
            line: 1.0,
            load: 1.5,
        },
        Level {
            line: 4.0,
            load: 8.0,
        },
    ],
};
