//! The tool `jitdump`; see `jitdump --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pktjit::cli::jitdump()
}
