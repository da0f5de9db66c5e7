//! Writes the seeds of each fuzz target to `fuzz/corpus/TARGET`, where cargo-fuzz looks for them.

use std::path::Path;
use std::{fs, io};

use pktjit_fuzz::targets::TARGETS;

fn main() -> io::Result<()> {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(target.name);
        fs::create_dir_all(&folder)?;
        for (i, seed) in (target.seeds)().into_iter().enumerate() {
            fs::write(folder.join(format!("seed-{i:03}")), seed)?;
        }
    }
    Ok(())
}
