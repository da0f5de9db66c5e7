//! Faults of single instructions: features, registers, the stack, what a lookup has no use for.

use iced_x86::code_asm::*;

use super::*;

#[test]
fn clobbered_rbx() {
    let found = faults(Spot::LoopBody, |a, _| a.mov(ebx, eax));
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn clobbered_low_byte_of_r12() {
    let found = faults(Spot::LoopBody, |a, _| a.setb(r12b));
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn missing_vzeroupper_on_one_of_two_exits() {
    let found = faults(Spot::MissUpper, |_, _| Ok(()));
    only(FaultKind::UpperHalves, &found);
    assert_eq!(found.len(), 1);
}

#[test]
fn wider_registers_than_the_target_has() {
    let found = faults(Spot::LoopBody, |a, _| a.vpaddd(zmm0, zmm0, zmm1));
    only(FaultKind::Feature, &found);
}

#[test]
fn avx512_instruction_on_narrow_registers() {
    let found = faults(Spot::LoopBody, |a, _| a.vpternlogd(ymm0, ymm0, ymm1, 1));
    only(FaultKind::Feature, &found);
}

#[test]
fn bmi2_instruction_where_the_target_has_none() {
    let mut code = code(Spot::LoopBody, &|a, _| a.pext(r11, r11, r11));
    assert_eq!(run(&code).map(|_| ()), Ok(()));
    code.target.features.bmi2 = false;
    only(FaultKind::Feature, run(&code).unwrap_err().faults());
}

#[test]
fn lzcnt_is_no_feature_of_any_target() {
    let found = faults(Spot::LoopBody, |a, _| a.lzcnt(r11, r11));
    only(FaultKind::Feature, &found);
}

#[test]
fn push() {
    let found = faults(Spot::LoopBody, |a, _| a.push(rax));
    only(FaultKind::Stack, &found);
}

#[test]
fn load_from_the_stack() {
    let found = faults(Spot::LoopBody, |a, _| a.mov(r11, qword_ptr(rsp - 8)));
    only(FaultKind::Stack, &found);
}

#[test]
fn return_that_pops_arguments() {
    let found = faults(Spot::Exit, |a, _| a.ret_1(8));
    only(FaultKind::Instruction, &found);
}

#[test]
fn syscall() {
    let found = faults(Spot::LoopBody, |a, _| a.syscall());
    only(FaultKind::Instruction, &found);
}

#[test]
fn trap() {
    let found = faults(Spot::LoopBody, |a, _| a.int3());
    only(FaultKind::Instruction, &found);
}

#[test]
fn string_instruction() {
    let found = faults(Spot::LoopBody, |a, _| a.rep().stosb());
    only(FaultKind::Instruction, &found);
}

#[test]
fn direction_flag() {
    let found = faults(Spot::LoopBody, |a, _| a.std());
    only(FaultKind::Instruction, &found);
}

#[test]
fn segment_override() {
    let found = faults(Spot::LoadKey, |a, c| a.movzx(eax, word_ptr(c.key + 4).gs()));
    only(FaultKind::Instruction, &found);
}

#[test]
fn implied_store_of_a_vector() {
    let found = faults(Spot::Store, |a, _| a.vmaskmovdqu(xmm0, xmm1));
    only(FaultKind::Instruction, &found);
}

#[test]
fn gather() {
    let found = faults(Spot::Compare, |a, c| {
        a.vpgatherdd_3(ymm0, dword_ptr(c.key + ymm1), ymm2)
    });
    only(FaultKind::Instruction, &found);
}

#[test]
fn address_of_32_bits() {
    let found = faults(Spot::LoadRow, |a, _| a.mov(eax, dword_ptr(r9d + 32)));
    only(FaultKind::Instruction, &found);
}

/// The code with `plant` in the body of its loop, as if it were for a target with AVX-512 and so many bits.
fn with_avx512(bits: u16, plant: &Plant) -> Result<AuditReport, AuditError> {
    let mut code = code(Spot::LoopBody, plant);
    code.target = Target::x86_64_avx512();
    code.target.max_vector_bits = bits;
    run(&code)
}

#[test]
fn avx512_instructions_where_the_target_has_them() {
    let report = with_avx512(512, &|a, _| {
        a.vpcmpud(k1, zmm0, zmm1, 2)?;
        a.vptestnmd(k1.k1(), ymm0, ymm1)?;
        a.kandw(k2, k1, k1)?;
        a.kmovb(r11d, k2)
    });
    let features = report.unwrap().features;
    for feature in ["avx512f", "avx512dq", "avx512vl"] {
        assert!(features.contains(feature), "{feature}");
    }
}

#[test]
fn wider_registers_than_the_target_allows() {
    let error = with_avx512(256, &|a, _| a.vpaddd(zmm0, zmm0, zmm1)).unwrap_err();
    only(FaultKind::Feature, error.faults());
}

#[test]
fn extensions_of_avx512_that_are_not_among_the_four() {
    let error = with_avx512(512, &|a, _| a.vpopcntd(zmm0, zmm1)).unwrap_err();
    only(FaultKind::Feature, error.faults());
    let error = with_avx512(512, &|a, _| a.vpermb(zmm0, zmm0, zmm1)).unwrap_err();
    only(FaultKind::Feature, error.faults());
}

#[test]
fn a_gather_under_a_mask() {
    let error = with_avx512(512, &|a, _| {
        a.vpgatherdd(zmm0.k1(), zmmword_ptr(rdi + zmm1 * 4))
    });
    only(FaultKind::Instruction, error.unwrap_err().faults());
}

#[test]
fn a_masked_load_counts_with_all_of_its_bytes() {
    let error = with_avx512(512, &|a, _| a.vmovdqu32(zmm0.k1(), zmmword_ptr(rdi)));
    only(FaultKind::Read, error.unwrap_err().faults());
}

#[test]
fn missing_vzeroupper_after_512_bits() {
    let error = {
        let mut code = code(Spot::Exit, &|a, _| {
            a.vzeroupper()?;
            a.vpxord(zmm0, zmm0, zmm0)?;
            a.ret()
        });
        code.target = Target::x86_64_avx512();
        run(&code).unwrap_err()
    };
    only(FaultKind::UpperHalves, error.faults());
}
