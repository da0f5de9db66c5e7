//! The constants of the cost model, printed by `cargo run --release -p pktjit-bench -- calibrate`.

use super::cost::{Calibration, Level};

/// Of throw-away prototypes before the project began, x86-64 at 3.4 GHz, 2026.
pub(super) const CALIBRATION: Calibration = Calibration {
    call: 1.2,
    instruction: 0.09,
    levels: [
        Level {
            line: 0.05,
            load: 0.1,
        },
        Level {
            line: 0.15,
            load: 0.3,
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
