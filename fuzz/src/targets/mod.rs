//! What a fuzzer does with its bytes. Each target is a function that panics where something is wrong; `fuzz/fuzz_targets`
//! hands it to libFuzzer, and `fuzz/tests/targets.rs` runs it on its seeds and on every file of `fuzz/regressions`.
//!
//! Whatever the bytes are, a target ends soon and takes little memory: it skips what is valid but large.

mod differential;
mod ir_text;
mod json;
mod key_layout;
mod rule_file;

use std::fs;
use std::path::{Path, PathBuf};

pub use differential::differential;
pub use ir_text::ir_text;
pub use key_layout::key_layout;
pub use rule_file::{classbench, nft_json, nft_text};

/// A fuzz target.
pub struct Target {
    /// Its name, in `fuzz/fuzz_targets` and `fuzz/regressions` too.
    pub name: &'static str,
    /// What is done with an input.
    pub run: fn(&[u8]),
    /// Inputs to start from, made of `testdata`.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 6] = [
    Target {
        name: "classbench",
        run: classbench,
        seeds: rule_file::classbench_seeds,
    },
    Target {
        name: "differential",
        run: differential,
        seeds: differential::seeds,
    },
    Target {
        name: "ir_text",
        run: ir_text,
        seeds: ir_text::seeds,
    },
    Target {
        name: "key_layout",
        run: key_layout,
        seeds: key_layout::seeds,
    },
    Target {
        name: "nft_json",
        run: nft_json,
        seeds: rule_file::nft_json_seeds,
    },
    Target {
        name: "nft_text",
        run: nft_text,
        seeds: rule_file::nft_text_seeds,
    },
];

/// The files of a folder of `testdata` whose names end in `suffix`, in the order of their names.
fn testdata(folder: &str, suffix: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testdata")
        .join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    paths.sort();
    paths
}
