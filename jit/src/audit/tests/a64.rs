//! Faults that are planted in code for AArch64, one word at a time.

use pktjit_ir::plan::{Choice, Options, plan};
use pktjit_ir::{Field, KeyLayout, Match, Rule, RuleSet, Structure, VerifiedProgram};

use crate::audit::{AuditReport, Fault, FaultKind, Profile, audit};
use crate::code::CompiledCode;
use crate::target::Target;

fn program(n: u32, structure: Structure) -> VerifiedProgram {
    let layout = KeyLayout::packed([Field::ipv4_addr("saddr"), Field::inet_service("dport")]);
    let mut rules = RuleSet::builder(layout.unwrap());
    for i in 0..n {
        let lo = u128::from(1000 * i);
        rules.push(Rule::new([
            Match::Range { lo, hi: lo + 300 },
            Match::Range { lo: 1, hi: 500 },
        ]));
    }
    let options = Options {
        structure: Choice::Only(structure),
        ..Options::default()
    };
    let plan = plan(&rules.build().unwrap(), &options).unwrap();
    plan.program().clone()
}

/// Three rules compared at once; keys of six bytes.
fn sound() -> (CompiledCode, VerifiedProgram) {
    let program = program(3, Structure::Inline);
    let code = crate::compile(&program, &Target::aarch64_neon()).unwrap();
    (code, program)
}

/// The faults of the sound code with `word` as the instruction at `offset`, and those of them that are about it.
fn planted(offset: usize, word: u32) -> Vec<Fault> {
    let (mut code, program) = sound();
    code.bytes[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
    let error = audit(&code, &program, code.profile()).unwrap_err();
    let faults = error.faults().iter();
    faults
        .filter(|fault| fault.offset == offset)
        .cloned()
        .collect()
}

/// A word in place of the second instruction of `lookup`, which is not a branch.
fn kinds(word: u32) -> Vec<FaultKind> {
    planted(4, word).iter().map(|fault| fault.kind).collect()
}

#[test]
fn sound_code_passes_and_is_told_apart() {
    let (code, program) = sound();
    let AuditReport {
        accesses, loops, ..
    } = audit(&code, &program, Profile::Leaf).unwrap();
    assert_eq!(loops, 2, "those of the batches");
    assert!(accesses.key >= 6 && accesses.pool >= 12 && accesses.result == 2);
    assert_eq!(accesses.pointer, 1);
}

#[test]
fn every_planted_word_is_found_for_what_it_is() {
    for (word, kind, what) in [
        (0xd61f_03c0, FaultKind::IndirectJump, "br x30"),
        (0xd65f_00c0, FaultKind::IndirectJump, "ret x6"),
        (0xd63f_00c0, FaultKind::IndirectCall, "blr x6"),
        (0x9400_0000, FaultKind::Call, "bl"),
        (0xaa00_03f3, FaultKind::CalleeSaved, "mov x19, x0"),
        (0xaa00_03f2, FaultKind::CalleeSaved, "mov x18, x0"),
        (0xaa00_03fe, FaultKind::CalleeSaved, "mov x30, x0"),
        (0x4ea0_1c08, FaultKind::CalleeSaved, "mov v8.16b, v0.16b"),
        (0xb900_0006, FaultKind::Write, "str w6, [x0]"),
        (0xf940_0006, FaultKind::Read, "ldr x6, [x0]"),
        (0xb940_0406, FaultKind::Read, "ldr w6, [x0, #4]"),
        (0xb85f_f006, FaultKind::Read, "ldur w6, [x0, #-1]"),
        (0xb940_0026, FaultKind::Read, "ldr w6, [x1]"),
        (0x5800_0006, FaultKind::Read, "ldr x6, the code itself"),
        (0xd400_0001, FaultKind::Instruction, "svc #0"),
        (0xd53b_4206, FaultKind::Instruction, "mrs x6, nzcv"),
        (0x885f_7c06, FaultKind::Instruction, "ldxr w6, [x0]"),
        (0xd503_201f, FaultKind::Instruction, "nop"),
        (0xffff_ffff, FaultKind::Undecodable, "no instruction"),
        (0x0000_0000, FaultKind::Instruction, "udf, the padding"),
        (
            0x1404_0000,
            FaultKind::BranchTarget,
            "b out of the function",
        ),
        (0xb400_0000, FaultKind::UnboundedLoop, "cbz x0 to itself"),
        (0xd100_43ff, FaultKind::Stack, "sub sp, sp, #16"),
        (0xf81f_0fe6, FaultKind::Stack, "str x6, [sp, #-16]!"),
    ] {
        let kinds = kinds(word);
        // What moves sp to write there is found for both.
        let is_found =
            kinds.contains(&kind) || kind == FaultKind::Stack && kinds.contains(&FaultKind::Write);
        assert!(is_found, "{what}: {kinds:?}");
    }
}

#[test]
fn an_entry_without_a_landing_pad() {
    let faults = planted(0, 0xd503_201f);
    assert!(
        faults
            .iter()
            .any(|fault| fault.kind == FaultKind::MissingEndbr)
    );
}

#[test]
fn an_address_of_a_table_anywhere_else() {
    let program = program(2000, Structure::Bucket);
    let sound = crate::compile(&program, &Target::aarch64_neon()).unwrap();
    assert!(audit(&sound, &program, Profile::Leaf).is_ok());
    let first = sound.relocations[0].offset;
    for offset in [0, first - 8, first + 4, sound.bytes.len()] {
        let mut code = sound.clone();
        code.relocations[0].offset = offset;
        assert!(audit(&code, &program, Profile::Leaf).is_err(), "{offset}");
    }
}
