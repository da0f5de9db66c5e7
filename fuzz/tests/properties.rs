//! What must hold for any rule set and any program: one answer, from every engine, structure and effort.
//!
//! `QUICKCHECK_TESTS` sets how many cases each property takes.

use std::sync::{LazyLock, Mutex};

use pktjit::{Effort, EngineKind, KeyRef, MISS, RuleId, Structure};
use pktjit_fallback::{Interpreter, LinearScan};
use pktjit_fuzz::ValidProgram;
use pktjit_fuzz::r#gen::program;
use pktjit_fuzz::r#gen::rules::Case;
use pktjit_fuzz::oracle::{Coverage, Questions, code_engines, native};
use pktjit_ir::plan::{Choice, Options, plan};
use pktjit_ir::{Program, text, verify};
use quickcheck::{Arbitrary, Gen, QuickCheck, TestResult};

const EFFORTS: [Effort; 3] = [Effort::Fast, Effort::Balanced, Effort::Best];

/// As many tests as the environment says, and all of them must pass.
fn quickcheck(tests: u64) -> QuickCheck {
    let asked = std::env::var("QUICKCHECK_TESTS").ok();
    let tests = asked.and_then(|tests| tests.parse().ok()).unwrap_or(tests);
    QuickCheck::new().tests(tests).min_tests_passed(tests)
}

/// The keys of a case and the rules that the linear scan finds for them.
fn answers(case: &Case) -> (Vec<Vec<u8>>, Vec<Option<RuleId>>) {
    let rules = case.rule_set();
    let scan = LinearScan::new(&rules);
    let keys: Vec<Vec<u8>> = case
        .keys
        .iter()
        .map(|values| rules.layout().encode(values))
        .collect();
    let rule = |key: &Vec<u8>| match scan.lookup(rules.layout().key(key).unwrap()) {
        MISS => None,
        row => Some(rules.rules()[row as usize].id),
    };
    let expected = keys.iter().map(rule).collect();
    (keys, expected)
}

#[test]
fn qc_every_engine_structure_and_effort_gives_the_answer_of_the_linear_scan() {
    static COVERAGE: LazyLock<Mutex<Coverage>> = LazyLock::new(Mutex::default);
    fn property(case: Case) -> Result<(), String> {
        let rules = case.rule_set();
        let (keys, expected) = answers(&case);
        let questions = Questions::new(&rules, &keys, &expected);
        let mut coverage = Coverage::default();
        let result = coverage.ask_all(&rules, &questions, &EFFORTS);
        COVERAGE.lock().unwrap().add(coverage);
        result
    }
    quickcheck(150).quickcheck(property as fn(Case) -> Result<(), String>);
    let coverage = COVERAGE.lock().unwrap();
    eprintln!("generated rule sets\n{coverage}");
    coverage.is_complete().unwrap();
}

#[test]
fn generated_keys_hit_and_miss() {
    let mut g = Gen::from_size_and_seed(100, 1);
    let answers: Vec<Option<RuleId>> = (0..300)
        .flat_map(|_| answers(&Case::arbitrary(&mut g)).1)
        .collect();
    let hits = answers.iter().flatten().count();
    let floor = answers.len() / 5;
    assert!(
        hits >= floor && answers.len() - hits >= floor,
        "{hits} hits of {}",
        answers.len()
    );
}

#[test]
fn qc_every_plan_verifies_and_its_text_parses_to_it() {
    fn property(case: Case) -> Result<(), String> {
        let rules = case.rule_set();
        for structure in Structure::ALL {
            for effort in EFFORTS {
                let options = Options {
                    structure: Choice::Only(structure),
                    effort,
                    ..Options::default()
                };
                let Ok(plan) = plan(&rules, &options) else {
                    continue;
                };
                let program = plan.program().program();
                verify(program.clone()).map_err(|error| format!("{structure}: {error}"))?;
                if text::parse(&program.to_string()).as_ref() != Ok(program) {
                    return Err(format!(
                        "{structure}: another program comes back from\n{program}"
                    ));
                }
            }
        }
        Ok(())
    }
    quickcheck(300).quickcheck(property as fn(Case) -> Result<(), String>);
}

/// Shrinks a case for as long as it has two rules of which the second wins for some key: that takes two rules, one key.
#[test]
fn a_failing_case_shrinks_to_what_matters() {
    let fails = |case: &Case| {
        let second = case.rules.len().checked_sub(1).filter(|&last| last > 0);
        second.is_some_and(|last| answers(case).1.contains(&Some(RuleId::new(last as u32))))
    };
    let mut g = Gen::from_size_and_seed(100, 2);
    let mut case = std::iter::repeat_with(|| Case::arbitrary(&mut g))
        .find(fails)
        .unwrap();
    while let Some(smaller) = case.shrink().find(fails) {
        case = smaller;
    }
    assert_eq!(
        (case.rules.len(), case.keys.len(), case.fields.len()),
        (2, 1, 1),
        "{case:?}"
    );
}

#[test]
fn qc_machine_code_returns_what_the_interpreter_returns() {
    fn property(ValidProgram(program): ValidProgram, seed: u64) -> TestResult {
        let mut discarded = false;
        for engine in code_engines() {
            match differs(program.clone(), engine, seed) {
                Ok(None) => {}
                // More values alive at once than there are registers: no plan has as many, so no code exists for them.
                Ok(Some(_)) => discarded = true,
                Err(difference) => return TestResult::error(format!("{engine}: {difference}")),
            }
        }
        match discarded {
            true => TestResult::discard(),
            false => TestResult::passed(),
        }
    }
    // Tests that quickcheck throws away do not count as passed.
    quickcheck(1000).quickcheck(property as fn(ValidProgram, u64) -> TestResult);
}

/// Whether machine code of `engine` and interpreter differ on a key; or why there is no machine code.
fn differs(program: Program, engine: EngineKind, seed: u64) -> Result<Option<String>, String> {
    let program = verify(program).map_err(|error| error.to_string())?;
    let code = match native(&program, engine)? {
        Ok(code) => code,
        Err(reason) => return Ok(Some(reason)),
    };
    let layout = program.program().layout.clone();
    let interpreter = Interpreter::new(program);
    let mut g = Gen::from_size_and_seed(20, seed);
    let keys: Vec<Vec<u8>> = (0..72).map(|_| program::key(&mut g, &layout)).collect();
    let mut rows = vec![0; keys.len()];
    code.lookup_batch(&keys.concat(), layout.len(), &mut rows)
        .map_err(|error| error.to_string())?;
    let pointers: Vec<KeyRef<'_>> = keys.iter().map(|key| layout.key(key).unwrap()).collect();
    let mut pointed = vec![0; keys.len()];
    code.lookup_batch_keys(&pointers, &mut pointed)
        .map_err(|error| error.to_string())?;
    for ((&key, row), pointed) in pointers.iter().zip(rows).zip(pointed) {
        let expected = interpreter.lookup(key);
        let single = code.lookup(key);
        if [single, row, pointed] != [expected; 3] {
            return Err(format!(
                "key {key:02x?}: {expected} interpreted, {single} alone, {row} and {pointed} in batches"
            ));
        }
    }
    Ok(None)
}

#[test]
fn most_generated_programs_become_machine_code() {
    let Some(engine) = code_engines().find(|&engine| engine != EngineKind::Cranelift) else {
        return;
    };
    let mut g = Gen::from_size_and_seed(20, 3);
    let refusals: Vec<String> = (0..300)
        .filter_map(|seed| {
            let program = ValidProgram::arbitrary(&mut g).0;
            differs(program, engine, seed).unwrap()
        })
        .collect();
    // Plans gather no bits by a mask out of a table, where the machine cannot.
    let has_no_pext = |reason: &String| reason.contains("pext by a mask");
    let crowded = refusals.iter().filter(|reason| !has_no_pext(reason));
    let crowded = crowded.inspect(|reason| {
        assert!(reason.contains("more values are alive at once"), "{reason}");
    });
    let crowded = crowded.count();
    assert!(crowded < 10, "{crowded} of 300 have too many values");
    assert!(refusals.len() < 100, "{} of 300 refused", refusals.len());
    eprintln!("generated programs: {} of 300 refused", refusals.len());
}
