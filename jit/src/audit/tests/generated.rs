//! What the emitter makes of each structure passes, whatever the target has.

use std::collections::BTreeSet;

use pktjit_ir::plan::{Choice, Machine, Options, plan};
use pktjit_ir::program::{BinaryOp, Block, Column, CompareOp, Inst, Program, Table, Terminator};
use pktjit_ir::{
    ByteOrder, Field, KeyLayout, MAX_SCRATCH, Match, Overlap, Rule, RuleSet, Structure, TableId,
    ValueId, VerifiedProgram, text, verify,
};
use quickcheck::{QuickCheck, TestResult};

use crate::audit::{Profile, audit};
use crate::code::CompiledCode;
use crate::target::{Features, Isa, Target};

/// The named targets, and what is left of the lesser one without each of its optional features, and without all.
fn targets() -> Vec<Target> {
    let full = Target::x86_64_avx2();
    let with = |change: fn(&mut Features)| {
        let mut target = full;
        change(&mut target.features);
        target
    };
    vec![
        full,
        with(|features| features.bmi1 = false),
        with(|features| features.bmi2 = false),
        with(|features| features.movbe = false),
        with(|features| features.fast_pext = false),
        with(|features| *features = Features::default()),
        Target::x86_64_avx512(),
        Target::aarch64_neon(),
    ]
    .into_iter()
    .chain(cranelift())
    .collect()
}

/// Cranelift's oldest machine and one of today, where it is built in.
fn cranelift() -> Vec<Target> {
    if cfg!(not(feature = "cranelift")) {
        return Vec::new();
    }
    let oldest = Target::cranelift(Isa::X86_64);
    let features = Target::x86_64_avx2().features;
    vec![oldest, Target { features, ..oldest }]
}

#[track_caller]
fn passes(program: &VerifiedProgram) {
    passes_for(targets(), program);
}

#[track_caller]
fn passes_for(targets: Vec<Target>, program: &VerifiedProgram) {
    for target in targets {
        let code = crate::compile(program, &target).unwrap();
        let features = target.features;
        let report = audit(&code, program, code.profile());
        let report =
            report.unwrap_or_else(|error| panic!("{target} {features:?}: {error}\n{program}"));
        assert!(report.accesses.key > 0, "{features:?}: {report}");
    }
}

/// `n` rules of two fields: narrow, wide, and overlapping ones.
fn rules(n: u32) -> RuleSet {
    let layout = KeyLayout::packed([Field::ipv4_addr("saddr"), Field::inet_service("dport")]);
    let mut builder = RuleSet::builder(layout.unwrap()).overlap(Overlap::First);
    for i in 0..n {
        let value = u128::from(0x0a00_0000 + (i.wrapping_mul(0x9e37_79b1) >> 8));
        let len = 20 + (i % 12) as u8;
        let lo = u128::from(i % 500 * 100);
        builder.push(Rule::new([
            Match::Prefix { value, len },
            Match::Range {
                lo,
                hi: lo + u128::from(i % 7) * 50,
            },
        ]));
    }
    builder.build().unwrap()
}

/// `n` addresses and ports.
fn exact(n: u32) -> RuleSet {
    let layout =
        KeyLayout::nft_registers([Field::ipv6_addr("saddr"), Field::inet_service("dport")]);
    let mut builder = RuleSet::builder(layout.unwrap()).overlap(Overlap::First);
    for i in 0..n {
        let address = u128::from(i.wrapping_mul(0x9e37_79b1)) << 70 | u128::from(i);
        builder.push(Rule::new([
            Match::Exact(address),
            Match::Exact(u128::from(i % 1000)),
        ]));
    }
    builder.build().unwrap()
}

/// `n` intervals of one field, some of them inside others.
fn one_field(n: u32) -> RuleSet {
    let layout = KeyLayout::packed([Field::ipv4_addr("saddr")]).unwrap();
    let mut builder = RuleSet::builder(layout).overlap(Overlap::First);
    for i in 0..n {
        let lo = u128::from(i.wrapping_mul(0x9e37_79b1) >> 1);
        let hi = lo + u128::from(i % 5) * 1_000_000;
        builder.push(Rule::new([Match::Range { lo, hi }]));
    }
    builder.build().unwrap()
}

/// `n` rules, each many prefixes in both of its fields.
fn many_pieces(n: u32) -> RuleSet {
    let layout = KeyLayout::packed([Field::ipv4_addr("saddr"), Field::inet_service("dport")]);
    let mut builder = RuleSet::builder(layout.unwrap()).overlap(Overlap::First);
    // The narrow ones first, or they could never win.
    for i in (0..u128::from(n)).rev() {
        let wide = |last: u128| Match::Range {
            lo: i + 1,
            hi: last - i - 1,
        };
        builder.push(Rule::new([wide(u32::MAX.into()), wide(u16::MAX.into())]));
    }
    builder.build().unwrap()
}

/// The program, and the lanes that it wants of those that there are.
fn planned(rules: &RuleSet, structure: Structure, lanes: u8) -> (VerifiedProgram, u8) {
    let options = Options {
        structure: Choice::Only(structure),
        machine: Machine {
            lanes,
            ..Machine::default()
        },
        ..Options::default()
    };
    let (program, decision) = plan(rules, &options).unwrap().into_parts();
    (program, decision.lanes())
}

/// What is planned for eight lanes is compiled for all targets, for sixteen lanes where there are as many.
#[track_caller]
fn structure_passes(rules: &RuleSet, structure: Structure) {
    passes(&planned(rules, structure, 8).0);
    let wide = vec![Target::x86_64_avx512()];
    passes_for(wide, &planned(rules, structure, 16).0);
}

#[test]
fn plans_that_gain_from_sixteen_lanes_are_among_those_that_pass() {
    for (rules, structure) in [
        (rules(60), Structure::Inline),
        (rules(700), Structure::Linear),
    ] {
        let (_, lanes) = planned(&rules, structure, 16);
        assert_eq!(lanes, 16, "{structure}");
        structure_passes(&rules, structure);
    }
}

#[test]
fn inline() {
    structure_passes(&rules(9), Structure::Inline);
}

#[test]
fn hash() {
    for n in [5, 300, 5000] {
        structure_passes(&exact(n), Structure::Hash);
    }
}

#[test]
fn bucket() {
    for n in [40, 3000] {
        structure_passes(&rules(n), Structure::Bucket);
    }
}

#[test]
fn linear() {
    for n in [9, 700] {
        structure_passes(&rules(n), Structure::Linear);
    }
}

#[test]
fn direct() {
    structure_passes(&rules(500), Structure::Direct);
}

#[test]
fn radix_and_tree() {
    for structure in [Structure::Radix, Structure::Tree] {
        structure_passes(&one_field(500), structure);
    }
}

#[test]
fn pipapo_in_one_stage() {
    // A scalar, one block, a loop over blocks.
    for n in [9, 500, 3000] {
        structure_passes(&rules(n), Structure::Pipapo4);
        structure_passes(&rules(n), Structure::Pipapo8);
    }
}

#[test]
fn pipapo_in_several_stages() {
    let rules = many_pieces(100);
    assert!(planned(&rules, Structure::Pipapo, 8).0.program().scratch > 0);
    structure_passes(&rules, Structure::Pipapo);
}

/// Changes and reads scratch at an index from the key, and in lanes.
fn with_scratch(numbers: u32) -> VerifiedProgram {
    let text = format!(
        "layout len=4 {{ mark \"m\" at 0 little }} verdicts 4294967295 scratch {numbers}
         block0: v0 = load_key.le32 0 v1 = const {0} v2 = min v0, v1 v3 = or_scratch [v2], v0 v4 = load_scratch [v2]
         v5 = const {1} v6 = min v0, v5 v7 = load_scratch_lanes.8 [v6] v8 = horizontal_min v7 v9 = xor v4, v8 return v9",
        numbers - 1,
        numbers / 8 - 1
    );
    verify(text::parse(&text).unwrap()).unwrap()
}

#[test]
fn scratch_of_all_sizes() {
    for numbers in [8, 192, 200, 1000, 1016, 1024, 2048, MAX_SCRATCH] {
        passes(&with_scratch(numbers));
    }
}

/// The kinds of faults of the code of a lookup with scratch, under `profile`, once `change` has changed it.
fn faults_of(
    numbers: u32,
    change: impl Fn(&mut CompiledCode),
    profile: Profile,
) -> BTreeSet<String> {
    let program = with_scratch(numbers);
    let mut code = crate::compile(&program, &Target::x86_64_avx2()).unwrap();
    change(&mut code);
    let faults = match audit(&code, &program, profile) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().to_vec(),
    };
    faults.iter().map(|f| format!("{:?}", f.kind)).collect()
}

#[test]
fn code_with_scratch_is_no_leaf_and_has_no_more_than_it_says() {
    let faults = |profile| faults_of(16, |_| {}, profile);
    assert_eq!(faults(Profile::Framed { scratch: 72 }), BTreeSet::new());
    assert!(faults(Profile::Framed { scratch: 64 }).contains("Stack"));
    assert!(faults(Profile::Leaf).contains("Stack"));
}

#[test]
fn one_more_trip_of_the_loop_that_clears_scratch() {
    let one_more = |code: &mut CompiledCode| {
        // cmp r32, 4
        let at = code
            .bytes
            .windows(3)
            .position(|bytes| bytes[0] == 0x83 && bytes[1] >> 3 == 0b11_111 && bytes[2] == 4);
        code.bytes[at.unwrap() + 2] += 1;
    };
    let profile = Profile::Framed { scratch: 1032 };
    assert_eq!(faults_of(256, |_| {}, profile), BTreeSet::new());
    let faults = faults_of(256, one_more, profile);
    assert_eq!(faults, BTreeSet::from(["Write".to_owned()]));
}

/// A program made of choices: scalars computed from the key, of which one that is bounded selects a row, whose number
/// selects a row of a second table. `None` where no scalar is bounded.
fn chained(choices: &[u8]) -> Option<VerifiedProgram> {
    const ROWS: usize = 300;
    let mut choices = choices.iter().copied();
    let row_bytes = [8, 24, 40, 64, 72, 96][usize::from(choices.next()? % 6)];
    let column = |name: &str, bytes, count, offset, max| Column {
        name: name.into(),
        offset,
        bytes,
        count,
        max,
        is_result: false,
    };
    let next = column("next", 2, 2, 0, ROWS as u64 - 1);
    let result = column("result", 4, 1, 4, 99);
    let table = |name: &str| Table {
        name: name.into(),
        row_bytes,
        columns: vec![next.clone(), result.clone()],
        data: vec![0; row_bytes as usize * ROWS].into(),
    };
    let mut insts = Vec::new();
    let define = |insts: &mut Vec<(ValueId, Inst)>, inst| {
        let value = ValueId::new(insts.len() as u32);
        insts.push((value, inst));
        value
    };
    for (offset, bytes) in [(0, 4), (4, 2), (0, 1)] {
        let order = ByteOrder::Big;
        define(
            &mut insts,
            Inst::LoadKey {
                offset,
                bytes,
                order,
            },
        );
    }
    while let (Some(op), Some(a), Some(b)) = (choices.next(), choices.next(), choices.next()) {
        let known = insts.len() as u32;
        let constant = u64::from(b) << (op % 29);
        let one = |choice: u8| ValueId::new(u32::from(choice) % known);
        let (a, by) = (one(a), b % 64);
        let b = match op & 64 {
            0 => one(b),
            _ => define(&mut insts, Inst::Const(constant)),
        };
        use BinaryOp as B;
        let ops = [
            B::And,
            B::Or,
            B::Xor,
            B::Add,
            B::Sub,
            B::Mul,
            B::Min,
            B::Max,
            B::Pext,
        ];
        let inst = match op % 16 {
            op @ 0..9 => Inst::Binary {
                op: ops[usize::from(op)],
                a,
                b,
            },
            9 | 10 => Inst::Shl { a, by },
            11 | 12 => Inst::Shr { a, by },
            13 => Inst::Compare {
                op: CompareOp::Lt,
                a,
                b,
            },
            14 => Inst::Select {
                cond: a,
                a: b,
                b: a,
            },
            _ => Inst::FirstBit { a },
        };
        define(&mut insts, inst);
    }
    let program = |insts: Vec<(ValueId, Inst)>, value| {
        verify(Program {
            layout: KeyLayout::packed([Field::ipv4_addr("a"), Field::inet_service("b")]).unwrap(),
            verdicts: 100,
            tables: vec![table("first"), table("second")],
            scratch: 0,
            staged: None,
            blocks: vec![Block {
                params: vec![],
                trips: None,
                insts,
                terminator: Terminator::Return { value },
            }],
        })
        .unwrap()
    };
    let facts = program(insts.clone(), ValueId::new(1));
    let bounded = |&&(value, ref inst): &&(ValueId, Inst)| {
        facts.facts(value).max < ROWS as u64 && !matches!(inst, Inst::Const(_))
    };
    let index = insts.iter().rfind(bounded)?.0;
    let (first, second) = (TableId::new(0), TableId::new(1));
    let row = define(
        &mut insts,
        Inst::Row {
            table: first,
            index,
        },
    );
    let one = define(&mut insts, Inst::Const(1));
    let which = define(
        &mut insts,
        Inst::Binary {
            op: BinaryOp::And,
            a: index,
            b: one,
        },
    );
    let index = define(
        &mut insts,
        Inst::Load {
            row,
            column: 0,
            index: Some(which),
        },
    );
    let row = define(
        &mut insts,
        Inst::Row {
            table: second,
            index,
        },
    );
    let value = define(
        &mut insts,
        Inst::Load {
            row,
            column: 1,
            index: None,
        },
    );
    Some(program(insts, value))
}

/// Whatever the verifier takes for bounded, the auditor proves of the code that was made of it.
#[test]
fn qc_bounds_of_the_verifier_are_proved_again() {
    fn property(choices: Vec<u8>) -> TestResult {
        let Some(program) = chained(&choices) else {
            return TestResult::discard();
        };
        for target in targets() {
            let Ok(code) = crate::compile(&program, &target) else {
                return TestResult::discard();
            };
            if let Err(error) = audit(&code, &program, code.profile()) {
                return TestResult::error(format!(
                    "{:?}: {error}\n{:?}",
                    target.features,
                    program.program().blocks
                ));
            }
        }
        TestResult::passed()
    }
    QuickCheck::new()
        .rng(quickcheck::Gen::new(60))
        .tests(500)
        .max_tests(20_000)
        .min_tests_passed(500)
        .quickcheck(property as fn(Vec<u8>) -> TestResult);
}
