//! Whole programs for AVX-512: masks, sixteen lanes, and where the shorter forms stay.

use super::*;

/// The code of `lookup` for a program on a table of two columns of `lanes` numbers, `v1` its first row.
fn lookup(lanes: u8, body: &str) -> String {
    let program = format!(
        "layout len=8 {{ mark \"m\" at 0 little mark \"n\" at 4 little }} verdicts 4294967295
         table0 \"t\" row_bytes={} {{ \"a\" u32 x {lanes} at 0 max=0xffffffff \"b\" u32 x {lanes} at {} max=0xffffffff data {} }}
         block0: v0 = const 0 v1 = row table0[v0] {body}",
        8 * lanes,
        4 * lanes,
        "01000000 ".repeat(2 * usize::from(lanes)),
    );
    let program = verified(pktjit_ir::text::parse(&program).expect("a program"));
    let target = Target::x86_64_avx512();
    let code = compile(&program, &target).expect("the program fits the target");
    audit(&code, &program, code.profile()).expect("the code keeps its promises");
    assert!(entries(&code).iter().all(|insts| {
        let mut mnemonics = insts.iter().map(Instruction::mnemonic);
        mnemonics.any(|mnemonic| mnemonic == Mnemonic::Vzeroupper)
    }));
    body_text(&code)
}

#[test]
fn a_conjunction_of_comparisons_is_a_comparison_under_a_mask() {
    let two_ranges = |lanes| {
        format!(
            "v2 = load_key.le32 0 v3 = splat.{lanes} v2 v4 = load_key.le32 4 v5 = splat.{lanes} v4
             v6 = load_lanes.{lanes} v1.0[0] v7 = load_lanes.{lanes} v1.1[0] v8 = in_range_lanes v3, v6, v7
             v9 = load_lanes.{lanes} v1.1[0] v10 = load_lanes.{lanes} v1.0[0] v11 = in_range_lanes v5, v9, v10
             v12 = and_masks v8, v11 v13 = lane_bits v12 return v13"
        )
    };
    same(
        &lookup(16, &two_ranges(16)),
        "vpbroadcastd zmm0,[rdi]
        vpbroadcastd zmm1,[rdi+4]
        vpsubd zmm0,zmm0,[pool+0]
        vpcmpleud k1,zmm0,[pool+64]
        vpsubd zmm1,zmm1,[pool+64]
        vpcmpleud k1{k1},zmm1,[pool+0]
        kmovw eax,k1",
    );
    same(
        &lookup(8, &two_ranges(8)),
        "vpbroadcastd ymm0,[rdi]
        vpbroadcastd ymm1,[rdi+4]
        vpsubd ymm0,ymm0,[pool+0]
        vpcmpleud k1,ymm0,[pool+32]
        vpsubd ymm1,ymm1,[pool+32]
        vpcmpleud k1{k1},ymm1,[pool+0]
        kmovb eax,k1",
    );
}

#[test]
fn lanes_without_a_common_bit_take_one_instruction() {
    same(
        &lookup(
            16,
            "v2 = load_key.le32 0 v3 = splat.16 v2 v4 = load_lanes.16 v1.0[0] v5 = and_lanes v3, v4
             v6 = splat.16 v0 v7 = eq_lanes v5, v6 v8 = lane_bits v7 return v8",
        ),
        "vpbroadcastd zmm0,[rdi]
        vptestnmd k1,zmm0,[pool+0]
        kmovw eax,k1",
    );
}

#[test]
fn a_minimum_under_a_mask_starts_from_ones_and_constants_are_read_into_all_lanes() {
    same(
        &lookup(
            16,
            "v2 = load_key.le32 0 v3 = splat.16 v2 v4 = const 0x11 v5 = splat.16 v4 v6 = eq_lanes v3, v5
             v7 = const 0xffffffff v8 = splat.16 v7 v9 = load_lanes.16 v1.0[0] v10 = masked_min v8, v6, v9
             v11 = horizontal_min v10 return v11",
        ),
        "vpbroadcastd zmm0,[rdi]
        vpcmpeqd k1,zmm0,[pool+128]
        vpternlogd zmm0,zmm0,zmm0,0FFh
        vpminud zmm0{k1},zmm0,[pool+0]
        vextracti64x4 ymm1,zmm0,1
        vpminud ymm0,ymm0,ymm1
        vextracti128 xmm1,ymm0,1
        vpminud xmm0,xmm0,xmm1
        vpshufd xmm1,xmm0,0EEh
        vpminud xmm0,xmm0,xmm1
        vpshufd xmm1,xmm0,55h
        vpminud xmm0,xmm0,xmm1
        vmovd eax,xmm0",
    );
}

#[test]
fn masks_that_change_places_in_a_loop_are_swapped_without_a_third() {
    let text = lookup(
        16,
        "v2 = load_key.le32 0 v3 = splat.16 v2 v4 = load_lanes.16 v1.0[0] v5 = load_lanes.16 v1.1[0]
         v6 = eq_lanes v3, v4 v7 = le_lanes v3, v5 jump block1(v0, v6, v7)
         block1(v8: scalar, v9: mask.16, v10: mask.16) trips=3: repeat block1(v10, v9), block2(v9, v10)
         block2(v11: mask.16, v12: mask.16): v13 = and_not_masks v11, v12 v14 = lane_bits v13 return v14",
    );
    assert_eq!(text.matches("kxorw").count(), 3, "{text}");
    assert!(text.contains("kandnw"), "{text}");
}

#[test]
fn eight_lanes_are_compared_as_avx2_does_where_masks_gain_nothing() {
    let compare = |rest: &str| {
        let loads = "v2 = load_key.le32 0 v3 = splat.8 v2 v4 = load_lanes.8 v1.0[0] v5 = load_lanes.8 v1.1[0]";
        lookup(8, &format!("{loads} {rest}"))
    };
    let equal = compare("v6 = eq_lanes v3, v4 v7 = lane_bits v6 return v7");
    let wide = compare(
        "v6 = le_lanes v3, v4 v7 = eq_lanes v3, v5 v8 = and_not_masks v6, v7 v9 = lane_bits v8 return v9",
    );
    for text in [equal, wide] {
        assert!(text.contains("vmovmskps"), "{text}");
        assert!(!text.contains("kmov"), "{text}");
    }
    let unsigned = compare("v6 = le_lanes v3, v4 v7 = lane_bits v6 return v7");
    assert!(unsigned.contains("vpcmpleud k1,"), "{unsigned}");
}

#[test]
fn sixteen_lanes_are_refused_where_registers_have_eight() {
    let program = || {
        let mut b = builder();
        let saddr = b.load_key(0, 4, ByteOrder::Big);
        let splat = b.splat(saddr, 16);
        let least = b.inst(Inst::HorizontalMin { a: splat });
        b.ret(least);
        b
    };
    let mut narrow = Target::x86_64_avx512();
    narrow.max_vector_bits = 256;
    let reason = "v1 has 16 lanes, AVX-512 code has 8";
    assert_eq!(refusal(program(), &narrow), reason);
    let reason = "v1 has 16 lanes, AVX2 code has 8";
    assert_eq!(refusal(program(), &Target::x86_64_avx2()), reason);
    compiled_for(program(), &Target::x86_64_avx512());
}
