//! The AVX-512 tier: on every machine its code is made and audited; where the CPU has it, or Bochs is there, it also runs.
//!
//! With `PKTJIT_REQUIRE_BOCHS` set, a machine that can do neither fails.

mod bochs;
mod disk;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use pktjit::formats::{KeyFile, RuleFile};
use pktjit::{Cpu, NativeCode, OsMemory, RuleSet, Structure};
use pktjit_fallback::{Interpreter, LinearScan};
use pktjit_fuzz::filetest::read_folder;
use pktjit_fuzz::r#gen::program;
use pktjit_fuzz::r#gen::rules;
use pktjit_ir::plan::{Choice, Machine, Options, plan};
use pktjit_ir::{VerifiedProgram, text, verify};
use pktjit_jit::audit::audit;
use pktjit_jit::{CompiledCode, Target, compile};
use quickcheck::{Arbitrary, Gen};

use disk::{CAPACITY, Case};

/// The widths of lanes that the tier has.
const LANES: [u8; 2] = [8, 16];

/// Audited code, or why there is none: what lookups have no room for, the code generator refuses.
fn code(program: &VerifiedProgram, target: &Target) -> Result<CompiledCode, String> {
    let code = match compile(program, target) {
        Err(error) if error.is_unsupported() => return Err(error.to_string()),
        code => code.unwrap_or_else(|error| panic!("{error}\n{program}")),
    };
    audit(&code, program, code.profile()).unwrap_or_else(|error| panic!("{error}\n{program}"));
    Ok(code)
}

/// Runs the cases wherever this machine can, and tells where.
fn execute(what: &str, cases: Vec<Case>) {
    let (n, keys) = (
        cases.len(),
        cases.iter().map(|case| case.rows.len()).sum::<usize>(),
    );
    if Cpu::host().runs(&Target::x86_64_avx512()) {
        for case in &cases {
            run_here(case);
        }
        eprintln!("{what}: {n} programs answered {keys} keys here");
        return;
    }
    match bochs::find() {
        Ok(()) => {
            bochs::run(cases).unwrap_or_else(|error| panic!("{what}: {error}"));
            eprintln!("{what}: {n} programs answered {keys} keys in bochs");
        }
        Err(reason) => {
            let is_required = std::env::var_os("PKTJIT_REQUIRE_BOCHS").is_some();
            assert!(!is_required, "{what}: {reason}");
            let cpu = Cpu::host().avx512_target().map(drop);
            eprintln!("{what}: {n} programs audited, not run: {cpu:?}, {reason}");
        }
    }
}

fn run_here(case: &Case) {
    let code = NativeCode::load(&case.code, &OsMemory::default()).expect("executable memory");
    let len = case.code.key_len();
    let mut rows = vec![0; case.rows.len()];
    code.lookup_batch(&case.keys, len, &mut rows).expect("keys");
    assert_eq!(rows, case.rows, "{}", case.name);
    for (key, row) in case.keys.chunks(len).zip(&case.rows) {
        let key = case.layout.key(key).expect("a key");
        assert_eq!(code.lookup(key), *row, "{}", case.name);
    }
}

#[test]
fn random_programs_return_what_the_interpreter_returns() {
    let mut g = Gen::from_size_and_seed(20, 512);
    let (mut cases, mut refused) = (Vec::new(), 0);
    for i in 0..300 {
        let lanes = LANES[i % 2];
        let program = verify(program::program(&mut g, lanes)).expect("a valid program");
        let Ok(code) = code(&program, &Target::x86_64_avx512()) else {
            refused += 1;
            continue;
        };
        let layout = program.program().layout.clone();
        let keys: Vec<Vec<u8>> = (0..40).map(|_| program::key(&mut g, &layout)).collect();
        let name = format!("program {i} of {lanes} lanes\n{program}");
        let interpreter = Interpreter::new(program);
        cases.push(Case {
            name,
            layout: layout.clone(),
            code,
            rows: keys
                .iter()
                .map(|key| interpreter.lookup(layout.key(key).expect("a key")))
                .collect(),
            keys: keys.concat(),
        });
    }
    assert!(refused < 20, "{refused} of 300 refused");
    execute("random programs", cases);
}

#[test]
fn filetests_return_the_listed_rows() {
    let mut cases = Vec::new();
    for test in read_folder("run").expect("readable filetests") {
        let program = text::parse(&test.program).unwrap_or_else(|error| panic!("{error}"));
        let program = verify(program).expect("a valid program");
        let code = match code(&program, &Target::x86_64_avx512()) {
            Ok(code) => code,
            Err(reason) => {
                assert!(
                    reason.ends_with("lanes, AVX-512 code has 8 or 16")
                        || reason.contains("more values are alive at once"),
                    "{}: {reason}",
                    test.name
                );
                continue;
            }
        };
        cases.push(Case {
            name: test.name,
            layout: program.program().layout.clone(),
            code,
            keys: test
                .lookups
                .iter()
                .flat_map(|lookup| lookup.key.clone())
                .collect(),
            rows: test.lookups.iter().map(|lookup| lookup.row).collect(),
        });
    }
    execute("filetests", cases);
}

/// The programs of a rule set by every structure that holds it, but for those too large for a disk, which it counts.
fn structures(what: &str, rules: &RuleSet, keys: &[u8], lanes: u8, cases: &mut Vec<Case>) -> usize {
    let layout = rules.layout();
    let scan = LinearScan::new(rules);
    let rows: Vec<u32> = keys
        .chunks(layout.len())
        .map(|key| scan.lookup(layout.key(key).expect("a key")))
        .collect();
    if rows.is_empty() {
        return 0;
    }
    let mut large = 0;
    for structure in Structure::ALL {
        let options = Options {
            structure: Choice::Only(structure),
            machine: Machine {
                lanes,
                ..Machine::default()
            },
            ..Options::default()
        };
        let Ok(plan) = plan(rules, &options) else {
            continue;
        };
        let name = format!("{what} as {structure} of {} lanes", plan.decision().lanes());
        let code = code(plan.program(), &Target::x86_64_avx512())
            .unwrap_or_else(|reason| panic!("{name}: {reason}"));
        let case = Case {
            name,
            layout: layout.clone(),
            code,
            keys: keys.into(),
            rows: rows.clone(),
        };
        match case.bytes() <= CAPACITY {
            true => cases.push(case),
            false => large += 1,
        }
    }
    large
}

fn execute_structures(what: &str, cases: Vec<Case>, large: usize) {
    // Most plans want eight lanes where there are sixteen, which take twice the time.
    let wide = cases.iter().filter(|case| case.name.ends_with(" 16 lanes"));
    let (all, wide) = (cases.len(), wide.count());
    eprintln!(
        "{what}: {wide} of {all} programs have sixteen lanes; {large} more audited, too large to run without an operating system"
    );
    assert!(all >= 400 && wide >= 20, "{wide} of {all}");
    execute(what, cases);
}

#[test]
fn structures_of_random_rules_answer_as_the_linear_scan() {
    let mut g = Gen::from_size_and_seed(60, 512);
    let (mut cases, mut large) = (Vec::new(), 0);
    for i in 0..40 {
        let case = rules::Case::arbitrary(&mut g);
        let (rules, keys) = (case.rule_set(), case.encoded_keys());
        for lanes in LANES {
            large += structures(&format!("rules {i}"), &rules, &keys, lanes, &mut cases);
        }
    }
    execute_structures("random rules", cases, large);
}

#[test]
fn structures_of_the_corpus_answer_as_the_linear_scan() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/corpus");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the corpus")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| {
            ["nft", "rules"]
                .map(OsStr::new)
                .map(Some)
                .contains(&path.extension())
        })
        .collect();
    files.sort();
    assert!(files.len() > 100, "{} files", files.len());
    let (mut cases, mut large) = (Vec::new(), 0);
    for path in files {
        let file = RuleFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let set = file.set(None).expect("one set");
        let layout = set.packed_layout().clone();
        let keys = KeyFile::open(path.with_extension("keys"), set).expect("keys");
        let keys: Vec<u8> = keys
            .flat_map(|key| layout.encode(&key.expect("a key").values))
            .collect();
        let rules = set.rule_set(layout, None).expect("rules");
        large += structures(&path.display().to_string(), &rules, &keys, 16, &mut cases);
    }
    execute_structures("corpus", cases, large);
}

#[test]
fn bochs_notices_a_wrong_row() {
    if let Err(reason) = bochs::find() {
        eprintln!("skipped: {reason}");
        return;
    }
    let text = "layout len=4 { mark \"m\" at 0 little } verdicts 9 block0: v0 = load_key.le8 0 v1 = const 7 v2 = and v0, v1 return v2";
    let case = |name: &str, row| {
        let program = verify(text::parse(text).expect("a program")).expect("a valid program");
        Case {
            name: name.into(),
            layout: program.program().layout.clone(),
            code: code(&program, &Target::x86_64_avx512()).expect("code"),
            keys: vec![1, 0, 0, 0, 2, 0, 0, 0],
            rows: vec![1, row],
        }
    };
    assert_eq!(bochs::run(vec![case("right", 2)]), Ok(()));
    let error = bochs::run(vec![case("right", 2), case("wrong", 3)]);
    let expected = "1 wrong, the first is wrong: [1, 1, 1] of 2 keys";
    assert_eq!(error, Err(expected.into()));
}

/// A cap of 256 bits leaves the masks, and takes the wide registers away.
#[test]
fn no_wider_register_is_used_than_allowed() {
    let mut narrow = Target::x86_64_avx512();
    narrow.max_vector_bits = 256;
    let mut g = Gen::from_size_and_seed(20, 256);
    let mut compiled = 0;
    for _ in 0..100 {
        let program = verify(program::program(&mut g, 8)).expect("a valid program");
        compiled += u32::from(code(&program, &narrow).is_ok());
        let program = verify(program::program(&mut g, 16)).expect("a valid program");
        let has_lanes = code(&program, &narrow).is_err_and(|reason| reason.contains("lanes"));
        assert!(
            has_lanes || code(&program, &Target::x86_64_avx2()).is_ok(),
            "{program}"
        );
    }
    assert!(compiled > 80, "{compiled}");
}
