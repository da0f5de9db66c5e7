//! The constants of the cost model: the table that `cargo run --release -p pktjit-bench -- calibrate` printed, but for the far
//! caches.
//!
//! 2026-11-30, AMD EPYC, family 25 model 17, 2 CPUs, caches of 32 KiB, 1 MiB and 32 MiB, Linux 6.18.44, load 11; a second run
//! differed by 1 %, in the second level by 11 %.
//!
//! Not of that run are the third level and memory: there 6.8 and 8.3 ns a line and 19 and 21 ns a load were measured, and on the
//! quiet machine (load 1, `--quick`) 6.6 and 6.6, 17 and 29: the virtual machine shares that cache. With these, plans avoid the
//! third level at the price of thousands of instructions. The figures are those of the prototypes, of a machine of its own.

use super::cost::{Calibration, Level};

pub(super) const CALIBRATION: Calibration = Calibration {
    call: 3.181,
    instruction: 0.092,
    levels: [
        Level {
            line: 0.02,
            load: 0.02,
        },
        Level {
            line: 0.02,
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
