//! `testdata/corpus`: every engine and structure gives the answers of the files.
//!
//! `PKTJIT_ONE_LAYOUT` asks each file in one layout instead of all, in turns, where an emulator makes it long.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pktjit::formats::{KeyFile, RuleFile, SourceSet};
use pktjit::{Classifier, Cpu, Effort, KeyLayout, RuleId, RuleSet, Structure};
use pktjit_fuzz::oracle::{Coverage, Questions, configurations};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testdata")
        .join(name)
}

/// The rule files of a folder in the order of their names.
fn rule_files(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(name)).unwrap();
    let is_rules = |path: &PathBuf| {
        let name = path.to_string_lossy();
        [".nft", ".rules", ".rules.gz"]
            .iter()
            .any(|suffix| name.ends_with(suffix))
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(is_rules)
        .collect();
    files.sort();
    files
}

/// What the `.expected` file says of each key, as `pktjit classify` prints it: the rule, or none.
fn expected_rules(path: &Path, set: &SourceSet, texts: &[&str]) -> Vec<Option<RuleId>> {
    let expected = fs::read_to_string(path).unwrap();
    assert_eq!(expected.lines().count(), texts.len(), "{}", path.display());
    let line = |(line, text): (&str, &str)| {
        let columns: Vec<&str> = line.split('\t').collect();
        assert_eq!(columns[0], text, "{}", path.display());
        match columns[1..] {
            ["miss"] => None,
            [rule, verdict] => {
                let rule = rule.strip_prefix("rule ").unwrap().parse().unwrap();
                assert_eq!(
                    verdict,
                    set.elements()[rule as usize].verdict_text(),
                    "{line}"
                );
                Some(RuleId::new(rule))
            }
            _ => panic!("{}: {line}", path.display()),
        }
    };
    expected
        .lines()
        .zip(texts.iter().copied())
        .map(line)
        .collect()
}

/// The layouts that keys of a set are tried in: without gaps, padded as nftables does, and the other way round at odd
/// offsets.
fn layouts(set: &SourceSet) -> [KeyLayout; 3] {
    let fields = set.fields();
    let mut offset = 3;
    let mut scattered: Vec<_> = fields
        .iter()
        .rev()
        .map(|field| {
            let here = offset;
            offset += usize::from(field.bytes()) + 1;
            (field.clone(), here)
        })
        .collect();
    scattered.reverse();
    [
        set.packed_layout().clone(),
        KeyLayout::nft_registers(fields.iter().cloned()).unwrap(),
        KeyLayout::at(scattered).unwrap(),
    ]
}

/// Calls `check` with the rules of each file of the corpus in each layout, and the questions that go with them; returns how many
/// files there are.
fn for_each_set(mut check: impl FnMut(&RuleSet, &Questions) -> Result<(), String>) -> usize {
    let files = rule_files("corpus");
    let is_one_enough = std::env::var_os("PKTJIT_ONE_LAYOUT").is_some();
    for (turn, path) in files.iter().enumerate() {
        let file = RuleFile::read(path).unwrap_or_else(|error| panic!("{error}"));
        let set = file.set(None).unwrap();
        let keys = KeyFile::open(path.with_extension("keys"), set).unwrap();
        let keys: Vec<_> = keys
            .map(|key| key.unwrap_or_else(|error| panic!("{error}")))
            .collect();
        let texts: Vec<&str> = keys.iter().map(|key| &*key.text).collect();
        let expected = expected_rules(&path.with_extension("expected"), set, &texts);
        let mut layouts = layouts(set).to_vec();
        if is_one_enough {
            layouts = vec![layouts.swap_remove(turn % 3)];
        }
        for layout in layouts {
            let bytes: Vec<Vec<u8>> = keys.iter().map(|key| layout.encode(&key.values)).collect();
            let rules = set
                .rule_set(layout, None)
                .unwrap_or_else(|error| panic!("{error}"));
            let questions = Questions::new(&rules, &bytes, &expected);
            check(&rules, &questions).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
    files.len()
}

#[test]
fn every_engine_and_structure_gives_the_answers_of_the_corpus() {
    let mut coverage = Coverage::default();
    let files =
        for_each_set(|rules, questions| coverage.ask_all(rules, questions, &[Effort::Balanced]));
    eprintln!("corpus: {files} files\n{coverage}");
    coverage.is_complete().unwrap();
}

/// On a machine without a second-level cache every table is far.
#[test]
fn batches_that_ask_for_rows_ahead_give_the_answers_of_the_corpus() {
    let mut cpu = *Cpu::host();
    cpu.caches.l2 = 0;
    let mut staged = BTreeMap::<Structure, usize>::new();
    for_each_set(|rules, questions| {
        for (engine, structure) in configurations() {
            let Some(structure) = structure.filter(|_| engine.is_native()) else {
                continue;
            };
            let builder = Classifier::builder().engine(engine).structure(structure);
            let Ok(classifier) = builder.cpu(cpu).audit(true).compile(rules) else {
                continue;
            };
            if classifier.why().contains("ask for rows of") {
                questions.ask(&classifier)?;
                *staged.entry(structure).or_default() += 1;
            }
        }
        Ok(())
    });
    eprintln!("corpus: batches that ask for rows ahead: {staged:?}");
    use Structure::{Bucket, Classes, Direct, Hash, Peel, Radix, Tree};
    if Cpu::host().target().is_ok() {
        let expected = BTreeSet::from([Hash, Direct, Bucket, Peel, Radix, Tree, Classes]);
        assert_eq!(staged.into_keys().collect::<BTreeSet<_>>(), expected);
    }
}

#[test]
fn no_file_of_the_corpus_is_left_out() {
    let names = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let stems: BTreeSet<String> = rule_files("corpus")
        .into_iter()
        .map(|path| names(path.with_extension("")))
        .collect();
    let present: BTreeSet<String> = fs::read_dir(folder("corpus"))
        .unwrap()
        .map(|entry| names(entry.unwrap().path()))
        .collect();
    let wanted: BTreeSet<String> = stems
        .iter()
        .flat_map(|stem| {
            let rules = if present.contains(&format!("{stem}.nft")) {
                "nft"
            } else {
                "rules"
            };
            [rules, "keys", "expected"].map(|suffix| format!("{stem}.{suffix}"))
        })
        .collect();
    assert_eq!(present, wanted);
    assert!(stems.len() >= 100, "{} files", stems.len());
}
