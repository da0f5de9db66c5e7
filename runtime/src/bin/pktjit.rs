//! The tool `pktjit`; see `pktjit --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pktjit::cli::pktjit()
}
