//! What the emitter makes of each structure passes, whatever the target has.

use pktjit_ir::plan::{Choice, Options, plan};
use pktjit_ir::program::{BinaryOp, Block, Column, CompareOp, Inst, Program, Table, Terminator};
use pktjit_ir::{
    ByteOrder, Field, KeyLayout, Match, Overlap, Rule, RuleSet, Structure, TableId, ValueId,
    VerifiedProgram, verify,
};
use quickcheck::{QuickCheck, TestResult};

use crate::audit::audit;
use crate::target::{Features, Target};

/// The named target, and what is left of it without each of its optional features, and without all.
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
    ]
}

#[track_caller]
fn passes(program: &VerifiedProgram) {
    for target in targets() {
        let code = crate::compile(program, &target).unwrap();
        let features = target.features;
        let report = audit(&code, program, code.profile());
        let report = report.unwrap_or_else(|error| panic!("{features:?}: {error}\n{program}"));
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

fn planned(rules: &RuleSet, structure: Structure) -> VerifiedProgram {
    let options = Options {
        structure: Choice::Only(structure),
        ..Options::default()
    };
    let plan = plan(rules, &options).unwrap();
    plan.into_parts().0
}

#[test]
fn inline() {
    passes(&planned(&rules(9), Structure::Inline));
}

#[test]
fn hash() {
    for n in [5, 300, 5000] {
        passes(&planned(&exact(n), Structure::Hash));
    }
}

#[test]
fn bucket() {
    for n in [40, 3000] {
        passes(&planned(&rules(n), Structure::Bucket));
    }
}

#[test]
fn linear() {
    for n in [9, 700] {
        passes(&planned(&rules(n), Structure::Linear));
    }
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
            B::MulHi,
            B::Min,
            B::Max,
            B::Pext,
        ];
        let inst = match op % 16 {
            op @ 0..10 => Inst::Binary {
                op: ops[usize::from(op)],
                a,
                b,
            },
            10 => Inst::Shl { a, by },
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
