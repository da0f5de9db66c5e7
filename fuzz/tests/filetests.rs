//! Runs `testdata/filetests`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pktjit::EngineKind;
use pktjit_fallback::Interpreter;
use pktjit_fuzz::filetest::{
    Compiled, Engine, Test, check_faults, check_lookups, read_file, read_folder,
};
use pktjit_fuzz::oracle::{code_engines, native};
use pktjit_ir::VerifiedProgram;

const INTERP: Engine<'static> = ("interp", &|program| {
    let interpreter = Interpreter::new(program);
    Ok(Box::new(move |key| interpreter.lookup(key)))
});

/// Machine code of `engine`.
fn code(program: VerifiedProgram, engine: EngineKind) -> Result<Compiled, String> {
    let code = native(&program, engine).unwrap_or_else(|error| panic!("{error}"))?;
    Ok(Box::new(move |key| {
        let row = code.lookup(key);
        // What one lookup of a batch leaves behind must not change the next one; two blocks and more.
        let mut rows = [0; 67];
        let batch = code.lookup_batch_keys(&[key; 67], &mut rows);
        assert_eq!((batch, rows), (Ok(()), [row; 67]), "a batch of {key:02x?}");
        row
    }))
}

/// What machine code cannot do and the interpreter can, as the code generator says it.
const LIMITS: [&str; 5] = [
    "lanes, AVX2 code has 8",
    "more values are alive at once than the 11 general registers hold",
    "lanes, NEON code has 4 or 8",
    "more values are alive at once than the 12 general registers hold",
    "AArch64 has no pext by a mask that is not constant",
];

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
    let machine_code = |engine| move |program| code(program, engine);
    let avx2 = machine_code(EngineKind::Avx2);
    let neon = machine_code(EngineKind::Neon);
    let cranelift = machine_code(EngineKind::Cranelift);
    let all: [Engine<'_>; 4] = [
        INTERP,
        ("avx2", &avx2),
        ("neon", &neon),
        ("cranelift", &cranelift),
    ];
    let is_here = |name: &str| code_engines().any(|engine| engine.name() == name);
    let (engines, absent): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|(name, _)| *name == "interp" || is_here(name));
    for (name, _) in absent {
        eprintln!("{name}: skipped");
    }
    let skips = RefCell::new(BTreeMap::<&str, u32>::new());
    check_all("run", |test| {
        for skipped in check_lookups(test, &engines)? {
            let reason = LIMITS.iter().find(|&&limit| skipped.ends_with(limit));
            let reason = reason.ok_or(skipped.as_str())?;
            *skips.borrow_mut().entry(reason).or_default() += 1;
        }
        Ok(())
    });
    eprintln!("not run as machine code: {:#?}", skips.borrow());
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
    let error = check_lookups(&test, &[INTERP]).unwrap_err();
    assert_eq!(error, "f:1: t:\n  interp: [03] -> 6, not 4294967295");
}

#[test]
fn driver_notices_a_test_without_lookups() {
    assert!(check_lookups(&one(TEST), &[INTERP]).is_err());
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
