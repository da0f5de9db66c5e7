//! What the planner estimates of a lookup, beside what the code that is made does: `testdata/corpus` and
//! `testdata/classbench`, in every structure that holds them.
#![cfg(feature = "formats")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pktjit::formats::RuleFile;
use pktjit::{RuleSet, Structure, Target};
use pktjit_ir::plan::{Choice, Estimate, Options, plan};
use pktjit_jit::{LookupStats, compile, lookup_stats};

/// The rule sets of both folders, by the names of their files.
fn rule_sets() -> Vec<(String, RuleSet)> {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata");
    let mut paths: Vec<PathBuf> = ["corpus", "classbench"]
        .iter()
        .flat_map(|folder| fs::read_dir(testdata.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.to_string_lossy();
            [".nft", ".rules", ".rules.gz"]
                .iter()
                .any(|end| name.ends_with(end))
        })
        .collect();
    paths.sort();
    let mut sets = Vec::new();
    for path in paths {
        let file = RuleFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
        for set in file.sets() {
            let rules = set.rule_set(set.packed_layout().clone(), None);
            let rules = rules.unwrap_or_else(|error| panic!("{error}"));
            sets.push((path.file_name().unwrap().to_string_lossy().into(), rules));
        }
    }
    sets
}

/// What is told of a structure of a rule set: which these are, the estimate, and what the code does.
type Told = (String, Estimate, LookupStats);

/// Each structure of each rule set that it holds.
static TOLD: LazyLock<Vec<Told>> = LazyLock::new(|| {
    let mut told = Vec::new();
    for (name, rules) in rule_sets() {
        for structure in Structure::ALL {
            let options = Options {
                structure: Choice::Only(structure),
                ..Options::default()
            };
            let Ok(plan) = plan(&rules, &options) else {
                continue;
            };
            let program = plan.program();
            // Maps between stages of `pipapo` are counted at their worst, and estimated as they are on average.
            let has_maps = program.program().scratch > 0;
            let Ok(code) = compile(program, &Target::x86_64_avx2()) else {
                continue;
            };
            if has_maps || plan.decision().live_rules() < 2 {
                continue;
            }
            let estimate = plan.decision().candidates()[0].estimate.clone().unwrap();
            let stats = lookup_stats(&code, program).expect("x86-64 is counted");
            told.push((format!("{name} {structure}"), estimate, stats));
        }
    }
    told
});

/// Calls `check` with each estimate and what the code does, and says which failed.
fn check_all(check: impl Fn(&Estimate, &LookupStats) -> bool) {
    assert!(TOLD.len() > 300, "{}", TOLD.len());
    let failed: Vec<String> = TOLD
        .iter()
        .filter(|(_, estimate, stats)| !check(estimate, stats))
        .map(|(name, estimate, stats)| format!("{name}: {:?}, but {stats:?}", estimate.cost))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        TOLD.len(),
        failed.join("\n")
    );
}

#[test]
fn instructions_are_estimated_within_a_factor_of_two() {
    // Within 1.5, but for `pipapo` with so many groups that registers run out.
    check_all(|estimate, stats| {
        // What every function has: its landing pad, and what leaves it.
        let factor = (estimate.cost.instructions + 3.0) / stats.instructions as f64;
        (0.5..=2.0).contains(&factor)
    });
}

#[test]
fn no_load_that_waits_for_another_is_missing_in_an_estimate() {
    check_all(|estimate, stats| {
        estimate.cost.dependent_loads + 1.0 >= f64::from(stats.dependent_load_depth)
    });
}

#[test]
fn estimates_have_no_more_lines_than_the_code_has_loads() {
    check_all(|estimate, stats| estimate.cost.lines <= stats.loads as f64);
}
