//! What the fuzz targets once found, and what they start from: no input is a finding.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pktjit_fuzz::targets::{TARGETS, Target};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn target(name: &str) -> Target {
    let found = TARGETS.into_iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("no target {name}"))
}

/// Runs a target on its seeds and its regressions.
fn replay(name: &str) {
    let target = target(name);
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    for (i, seed) in seeds.iter().enumerate() {
        eprintln!("seed {i}");
        (target.run)(seed);
    }
    // Git keeps no empty folder.
    let entries = fs::read_dir(folder("regressions").join(name));
    for entry in entries.into_iter().flatten() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        (target.run)(&fs::read(path).unwrap());
    }
}

#[test]
fn classbench_replays() {
    replay("classbench");
}

#[test]
fn differential_replays() {
    replay("differential");
}

#[test]
fn ir_text_replays() {
    replay("ir_text");
}

#[test]
fn key_layout_replays() {
    replay("key_layout");
}

#[test]
fn nft_json_replays() {
    replay("nft_json");
}

#[test]
fn nft_text_replays() {
    replay("nft_text");
}

#[test]
fn every_folder_of_regressions_and_every_fuzz_target_is_one_of_the_targets() {
    let targets = BTreeSet::from(TARGETS.map(|target| target.name.to_owned()));
    let names = |name: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(folder(name)).into_iter().flatten();
        let stem = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        entries.map(|entry| stem(entry.unwrap().path())).collect()
    };
    assert_eq!(names("fuzz_targets"), targets);
    assert!(names("regressions").is_subset(&targets));
}
