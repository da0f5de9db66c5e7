//! Runs `testdata/filetests`.

use pktjit_fallback::Interpreter;
use pktjit_fuzz::filetest::{Engine, Test, check_faults, check_lookups, read_file, read_folder};

/// Every engine that runs programs.
const ENGINES: &[Engine<'_>] = &[("interp", &|program| {
    let interpreter = Interpreter::new(program);
    Box::new(move |key| interpreter.lookup(key))
})];

/// Runs all tests of a folder and reports all failures at once.
fn check_all(folder: &str, check: impl Fn(&Test) -> Result<(), String>) {
    let tests = read_folder(folder).unwrap();
    let failures: Vec<String> = tests.iter().filter_map(|test| check(test).err()).collect();
    assert!(
        failures.is_empty(),
        "{} of {} tests failed\n{}",
        failures.len(),
        tests.len(),
        failures.join("\n")
    );
}

#[test]
fn verifier_reports_exactly_the_listed_faults() {
    check_all("verify", check_faults);
}

#[test]
fn every_engine_returns_the_listed_rows() {
    check_all("run", |test| check_lookups(test, ENGINES));
}

const TEST: &str = "; test: t
layout len=1 { inet_proto \"p\" at 0 big } verdicts 1
block0: v0 = load_key.be8 0 v1 = shl v0, 1 return v1
";

fn one(text: &str) -> Test {
    read_file("f", text).unwrap().remove(0)
}

#[test]
fn driver_notices_a_fault_that_is_not_listed() {
    let test = one(&TEST.replace("v0, 1", "v0, 64"));
    assert!(check_faults(&test).unwrap_err().contains("a shift by 64"));
}

#[test]
fn driver_notices_a_listed_fault_that_is_not_reported() {
    let test = one(&TEST.replace("; test: t", "; test: t\n; error: bad"));
    assert!(check_faults(&test).unwrap_err().contains("[\"bad\"]"));
}

#[test]
fn driver_notices_a_wrong_row() {
    let test = one(&TEST.replace("; test: t", "; test: t\n; run: 02 -> 4\n; run: 03 -> miss"));
    let error = check_lookups(&test, ENGINES).unwrap_err();
    assert_eq!(error, "f:1: t:\n  interp: [03] -> 6, not 4294967295");
}

#[test]
fn driver_notices_a_test_without_lookups() {
    assert!(check_lookups(&one(TEST), ENGINES).is_err());
}

#[test]
fn reader_refuses_a_directive_that_it_cannot_read() {
    for line in [
        "; run: 0 -> 1",
        "; run: 00 1",
        "; run: 0g -> 1",
        "; run: 00 -> -1",
    ] {
        assert!(
            read_file("f", &format!("; test: t\n{line}\n")).is_err(),
            "{line}"
        );
    }
}
