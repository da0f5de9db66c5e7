//! `testdata/classbench`: the files are what the generator makes, and every engine and structure gives their answers.
//!
//! `PKTJIT_BLESS=1` writes the files anew.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use pktjit::Effort;
use pktjit_fuzz::r#gen::classbench::{Kind, List};
use pktjit_fuzz::oracle::{Coverage, Questions};
use pktjit_fuzz::trace::Trace;

/// The lists, and whether they are compressed.
const LISTS: [(&str, Kind, usize, bool); 6] = [
    ("acl_200", Kind::Acl, 200, false),
    ("fw_200", Kind::Firewall, 200, false),
    ("ipc_200", Kind::Chain, 200, false),
    ("acl_1000", Kind::Acl, 1000, false),
    ("fw_1000", Kind::Firewall, 1000, false),
    ("ipc_2000", Kind::Chain, 2000, true),
];
const KEYS: usize = 2000;

fn path(name: &str, suffix: &str, is_compressed: bool) -> PathBuf {
    let gz = if is_compressed { ".gz" } else { "" };
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../testdata/classbench/{name}.{suffix}{gz}"))
}

#[test]
fn the_files_are_what_the_generator_makes() {
    for (name, kind, count, is_compressed) in LISTS {
        let list = List::new(kind, count);
        for (suffix, text) in [("rules", list.text()), ("trace", list.trace(KEYS))] {
            let path = path(name, suffix, is_compressed);
            if std::env::var_os("PKTJIT_BLESS").is_some() {
                let content = if is_compressed {
                    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
                    encoder.write_all(text.as_bytes()).unwrap();
                    encoder.finish().unwrap()
                } else {
                    text.clone().into_bytes()
                };
                fs::write(&path, content).unwrap();
            }
            let mut content =
                fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if is_compressed {
                let packed = std::mem::take(&mut content);
                GzDecoder::new(&packed[..])
                    .read_to_end(&mut content)
                    .unwrap();
            }
            // Not `assert_eq`: nobody wants to read two lists.
            assert!(
                content == text.as_bytes(),
                "{} is not what the generator makes; PKTJIT_BLESS=1 writes it",
                path.display()
            );
        }
    }
}

#[test]
fn every_engine_and_structure_gives_the_answers_of_the_lists() {
    let mut coverage = Coverage::default();
    for (name, _, count, is_compressed) in LISTS {
        let trace = Trace::read(
            &path(name, "rules", is_compressed),
            &path(name, "trace", is_compressed),
        )
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((trace.rules.len(), trace.keys.len()), (count, KEYS));
        let misses = trace.expected.iter().filter(|rule| rule.is_none()).count();
        assert!(
            (KEYS / 5..KEYS * 4 / 5).contains(&misses),
            "{name}: {misses} misses"
        );
        let questions = Questions::new(&trace.rules, &trace.keys, &trace.expected);
        coverage
            .ask_all(&trace.rules, &questions, &[Effort::Balanced])
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    eprintln!("testdata/classbench: {} lists\n{coverage}", LISTS.len());
}
