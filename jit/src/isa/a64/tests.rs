//! What the code of whole programs looks like.

use pktjit_ir::plan::{Choice, Machine, Options, plan};
use pktjit_ir::{Field, KeyLayout, Match, Rule, RuleSet, Structure, VerifiedProgram, text, verify};

use crate::code::Placement;
use crate::{CompileError, CompiledCode, LookupStats, Target, compile, lookup_stats};

fn program(text: &str) -> VerifiedProgram {
    verify(text::parse(text).unwrap()).unwrap()
}

fn code(program: &VerifiedProgram) -> CompiledCode {
    compile(program, &Target::aarch64_neon()).unwrap()
}

/// Rules of two fields for `structure`.
fn planned(n: u32, structure: Structure, pext: pktjit_ir::plan::Pext) -> VerifiedProgram {
    let layout = KeyLayout::packed([Field::ipv4_addr("saddr"), Field::inet_service("dport")]);
    let mut rules = RuleSet::builder(layout.unwrap());
    for i in 0..n {
        let (lo, port) = (u128::from(0x0a00_0000 + 1000 * i), u128::from(i % 60_000));
        let hi = lo + 300;
        rules.push(Rule::new([
            Match::Range { lo, hi },
            Match::Range {
                lo: port,
                hi: port + 5,
            },
        ]));
    }
    let options = Options {
        structure: Choice::Only(structure),
        machine: Machine {
            pext,
            ..Machine::default()
        },
        ..Options::default()
    };
    let plan = plan(&rules.build().unwrap(), &options).unwrap();
    plan.program().clone()
}

#[test]
fn every_entry_is_a_landing_pad_at_a_cache_line() {
    let code = code(&planned(3, Structure::Inline, pktjit_ir::plan::Pext::Slow));
    let entries = code.entries();
    for start in [
        entries.lookup,
        entries.lookup_batch,
        entries.lookup_batch_ptrs,
    ] {
        assert_eq!(start % 64, 0);
        assert_eq!(code.bytes()[start..start + 4], [0x5f, 0x24, 0x03, 0xd5]);
    }
    assert_eq!(code.stack_bytes(), 0);
}

#[test]
fn the_address_of_a_large_table_is_one_load_from_the_pool() {
    let program = planned(2000, Structure::Bucket, pktjit_ir::plan::Pext::Slow);
    let code = code(&program);
    let large = code
        .tables()
        .iter()
        .filter(|table| matches!(table, Placement::Region(_)));
    assert_eq!(code.relocations().len(), large.count());
    for relocation in code.relocations() {
        assert!(relocation.offset >= code.pool_offset() && relocation.offset % 8 == 0);
    }
}

/// Per rule compared; loads of columns are instructions of their own, and lanes come by four.
#[test]
fn a_vector_of_rules_takes_at_most_twice_the_instructions_of_avx2() {
    use pktjit_ir::plan::Pext;
    for (n, structure) in [
        (8, Structure::Inline),
        (48, Structure::Inline),
        (1000, Structure::Bucket),
        (1000, Structure::Linear),
    ] {
        let program = planned(n, structure, Pext::Fast);
        let count = |target| {
            let code = compile(&program, &target).unwrap();
            let LookupStats { instructions, .. } = lookup_stats(&code, &program).unwrap();
            instructions
        };
        let (avx2, neon) = (count(Target::x86_64_avx2()), count(Target::aarch64_neon()));
        eprintln!("{structure} of {n} rules: {avx2} instructions with AVX2, {neon} with NEON");
        assert!(neon <= 2 * avx2, "{structure}: {neon} to {avx2}");
    }
}

#[test]
fn numbers_that_no_instruction_holds_are_no_panic() {
    let code = code(&program(
        "layout len=8 { integer.8 \"k\" at 0 little } verdicts 1
block0:
  v0 = load_key.le64 0
  v1 = const 0x123456789abcdef1
  v2 = xor v0, v1
  v3 = const 0x12345
  v4 = add v2, v3
  v5 = const 0x7fffffffffff
  v6 = sub v4, v5
  v7 = const 0x1234567
  v8 = lt v6, v7
  v9 = const 0x0
  v10 = select v8, v9, v9
  return v10",
    ));
    assert!(!code.bytes().is_empty());
}

/// What `qc_machine_code_returns_what_the_interpreter_returns` found.
#[test]
fn a_product_with_zero_is_shifted_in_a_size_that_has_so_many_bits() {
    let code = code(&program(
        "layout len=1 { inet_proto \"p\" at 0 big } verdicts 1
block0:
  v0 = load_key.be8 0
  v1 = const 0x0
  v2 = and v0, v1
  v3 = const 0x8000000000000
  v4 = mul v2, v3
  v5 = eq v4, v0
  v6 = select v5, v1, v1
  return v6",
    ));
    assert!(!code.bytes().is_empty());
}

#[test]
fn sixteen_lanes_are_refused() {
    let program = program(
        "layout len=1 { inet_proto \"p\" at 0 big } verdicts 1
block0:
  v0 = load_key.be8 0
  v1 = splat.16 v0
  v2 = horizontal_min v1
  v3 = const 0x0
  return v3",
    );
    let error = compile(&program, &Target::aarch64_neon()).unwrap_err();
    assert!(
        matches!(&error, CompileError::Unsupported(why) if why.contains("NEON code has 4 or 8")),
        "{error:?}"
    );
}
