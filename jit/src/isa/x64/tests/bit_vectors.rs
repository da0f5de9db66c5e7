//! Bit vectors: intersections of rows in lanes and in scalars, and walks over set bits into scratch.

use super::*;

/// Rows of `runs` runs of eight numbers, one for each value of a byte.
fn bits_table(runs: u32) -> Table {
    let column = Column {
        name: "bits".into(),
        offset: 0,
        bytes: 4,
        count: 8 * runs,
        max: u32::MAX.into(),
        is_result: false,
    };
    Table {
        name: "bits".into(),
        row_bytes: 32 * runs,
        columns: vec![column],
        data: vec![0; 256 * 32 * runs as usize].into(),
    }
}

/// Bit i of the result is set where number i of the intersection is not 0.
fn occupied(b: &mut ProgramBuilder, lanes: ValueId) -> ValueId {
    let zero = b.constant(0);
    let zeros = b.splat(zero, 8);
    let empty = b.compare_lanes(LaneCompareOp::Eq, lanes, zeros);
    let empty = b.lane_bits(empty);
    b.binary_const(BinaryOp::Xor, empty, 0xff)
}

/// The first common bit of the rows that three bytes of the key name, two runs at once.
fn intersection() -> ProgramBuilder {
    let mut b = builder();
    let tables: Vec<TableId> = (0..3).map(|_| b.table(bits_table(2))).collect();
    let rows = |b: &mut ProgramBuilder| -> Vec<ValueId> {
        let tables = tables.iter().enumerate();
        tables
            .map(|(i, &table)| {
                let byte = b.load_key(i as u16, 1, ByteOrder::Little);
                b.row(table, byte)
            })
            .collect()
    };
    let in_lanes = rows(&mut b);
    let both: Vec<ValueId> = (0..2)
        .map(|run| {
            let lanes = in_lanes.iter().map(|&row| b.load_lanes(row, 0, 8 * run, 8));
            let lanes: Vec<ValueId> = lanes.collect();
            lanes
                .into_iter()
                .reduce(|x, y| b.and_lanes(x, y))
                .expect("three")
        })
        .collect();
    let (low, high) = (occupied(&mut b, both[0]), occupied(&mut b, both[1]));
    let high = b.shl(high, 8);
    let numbers = b.binary(BinaryOp::Or, low, high);
    let none = b.binary_const(BinaryOp::Or, numbers, 1 << 15);
    let first = b.first_bit(none);
    let words = rows(&mut b);
    let words: Vec<ValueId> = words
        .into_iter()
        .map(|row| b.load(row, 0, Some(first)))
        .collect();
    let word = words
        .into_iter()
        .reduce(|x, y| b.binary(BinaryOp::And, x, y))
        .expect("three");
    let bit = b.first_bit(word);
    let base = b.shl(first, 5);
    let found = b.binary(BinaryOp::Add, base, bit);
    let miss = b.constant(MISS.into());
    let row = b.select(numbers, found, miss);
    b.ret(row);
    b
}

#[test]
fn rows_of_bits_are_operands_in_memory() {
    same(
        &body_text(&compiled(intersection())),
        "push rbx
        movzx eax,byte ptr [rdi]
        mov rdx,0
        shl eax,3
        lea rdx,[rdx+rax*8]
        movzx eax,byte ptr [rdi+1]
        mov r8,0
        shl eax,3
        lea r8,[r8+rax*8]
        movzx eax,byte ptr [rdi+2]
        mov r9,0
        shl eax,3
        lea r9,[r9+rax*8]
        vmovdqu ymm0,[rdx]
        vpand ymm0,ymm0,[r8]
        vpand ymm0,ymm0,[r9]
        vmovdqu ymm1,[rdx+20h]
        vpand ymm1,ymm1,[r8+20h]
        vpand ymm1,ymm1,[r9+20h]
        vpxor xmm2,xmm2,xmm2
        vpcmpeqd ymm0,ymm0,ymm2
        vmovmskps eax,ymm0
        xor eax,0FFh
        vpcmpeqd ymm1,ymm1,ymm2
        vmovmskps edx,ymm1
        xor edx,0FFh
        shl edx,8
        or eax,edx
        mov edx,eax
        or edx,8000h
        tzcnt edx,edx
        movzx r8d,byte ptr [rdi]
        mov r9,0
        shl r8d,3
        lea r9,[r9+r8*8]
        movzx r8d,byte ptr [rdi+1]
        mov r10,0
        shl r8d,3
        lea r10,[r10+r8*8]
        movzx r8d,byte ptr [rdi+2]
        mov rbx,0
        shl r8d,3
        lea rbx,[rbx+r8*8]
        mov r10d,[r10+rdx*4]
        and r10d,[r9+rdx*4]
        and r10d,[rbx+rdx*4]
        tzcnt r10,r10
        shl edx,5
        lea rdx,[rdx+r10]
        test eax,eax
        mov eax,0FFFFFFFFh
        cmovne eax,edx",
    );
}

/// A program of the tables that the walk needs and this body.
fn from_text(scratch: u32, body: &str) -> VerifiedProgram {
    let text = format!(
        "layout len=2 {{ integer.1 \"a\" at 0 big integer.1 \"b\" at 1 big }}
         verdicts 4294967295
         table0 \"bits\" row_bytes=32 {{ \"bits\" u32 x 8 at 0 max=0xffffffff data {0} {0} }}
         table1 \"mapping\" row_bytes=4 {{ \"number\" u32 x 1 at 0 max=63 data {0} {0} {0} {0} {0} {0} {0} {0} }}
         scratch {scratch}
         {body}",
        "00".repeat(64)
    );
    verified(pktjit_ir::text::parse(&text).expect("the test's text is sound"))
}

fn compiled_text(scratch: u32, body: &str) -> CompiledCode {
    let program = from_text(scratch, body);
    let code = compile(&program, &Target::x86_64_avx2()).expect("the program fits");
    audit(&code, &program, code.profile()).expect("the code keeps its promises");
    code
}

/// The bits of scratch, intersected with a row, run by run; each common bit sets the bits of a number that it maps to.
const WALK: &str = "
    block0: v0 = load_key.be8 0 v1 = const 1 v2 = and v0, v1 v3 = shl v2, 1
      v4 = const 0 v5 = const 0xff v6 = const 7 v7 = const 31 v8 = splat.8 v4 jump block1(v4)
    block1(v9: scalar) trips=2:
      v10 = add v3, v9 v11 = row table0[v10] v12 = load_lanes.8 v11.0[0] v13 = load_scratch_lanes.8 [v9]
      v14 = and_lanes v13, v12 v15 = eq_lanes v14, v8 v16 = lane_bits v15 v17 = xor v16, v5 jump block2(v4, v17)
    block2(v18: scalar, v19: scalar) trips=9: branch_if v19, block3, block7
    block3: v20 = first_bit v19 v21 = and v20, v6 v22 = shl v9, 3 v23 = or v22, v21
      v24 = load_scratch [v23] v25 = load v11.0[v21] v26 = and v24, v25 v27 = shl v23, 5 jump block4(v4, v26)
    block4(v28: scalar, v29: scalar) trips=33: branch_if v29, block5, block6
    block5: v30 = first_bit v29 v31 = and v30, v7 v32 = and v27, v6 v33 = add v32, v31
      v34 = row table1[v33] v35 = load v34.0 v36 = or_scratch [v35], v35
      v37 = sub v29, v1 v38 = and v29, v37 repeat block4(v38), block6
    block6: v39 = sub v19, v1 v40 = and v19, v39 repeat block2(v40), block7
    block7: repeat block1, block8
    block8: v41 = load_scratch [v5] return v41";

#[test]
fn a_walk_over_common_bits_holds_all_in_registers() {
    same(
        &body_text(&compiled_text(256, WALK)),
        "push rbx
        push rbp
        push r12
        push r14
        push r15
        sub rsp,400h
        vpxor xmm0,xmm0,xmm0
        xor eax,eax
        mov edx,eax
        shl edx,5
        vmovdqu [rsp+rdx*8],ymm0
        vmovdqu [rsp+rdx*8+20h],ymm0
        vmovdqu [rsp+rdx*8+40h],ymm0
        vmovdqu [rsp+rdx*8+60h],ymm0
        vmovdqu [rsp+rdx*8+80h],ymm0
        vmovdqu [rsp+rdx*8+0A0h],ymm0
        vmovdqu [rsp+rdx*8+0C0h],ymm0
        vmovdqu [rsp+rdx*8+0E0h],ymm0
        add eax,1
        cmp eax,4
        jb line 9
        movzx eax,byte ptr [rdi]
        and eax,1
        shl eax,1
        xor edx,edx
        lea r8,[rax+rdx]
        lea r9,[pool+0]
        shl r8d,2
        lea r9,[r9+r8*8]
        mov r8d,edx
        shl r8d,2
        vmovdqu ymm0,[rsp+r8*8]
        vpand ymm0,ymm0,[r9]
        vpxor xmm1,xmm1,xmm1
        vpcmpeqd ymm0,ymm0,ymm1
        vmovmskps r8d,ymm0
        xor r8d,0FFh
        xor r10d,r10d
        test r8,r8
        je line 68
        tzcnt rbx,r8
        and ebx,7
        mov ebp,edx
        shl ebp,3
        or ebp,ebx
        mov ebx,[r9+rbx*4]
        and ebx,[rsp+rbp*4]
        shl ebp,5
        xor r14d,r14d
        test rbx,rbx
        je line 64
        tzcnt r15,rbx
        and r15d,1Fh
        mov r12d,ebp
        and r12d,7
        lea r12,[r12+r15]
        lea r15,[pool+128]
        mov r15d,[r15+r12*4]
        or [rsp+r15*4],r15d
        blsr rbx,rbx
        add r14d,1
        cmp r14d,21h
        jb line 50
        blsr r8,r8
        add r10d,1
        cmp r10d,9
        jb line 39
        add edx,1
        cmp edx,2
        jb line 26
        mov eax,[rsp+3FCh]",
    );
}

#[test]
fn a_load_of_scratch_is_no_operand_behind_a_change() {
    let body = |between: &str| {
        let body = format!(
            "block0: v0 = load_key.be8 0 v1 = const 1 v2 = load_scratch [v1]
             {between} v4 = xor v0, v2 return v4"
        );
        body_text(&compiled_text(8, &body))
    };
    let stays = body("v3 = const 2");
    assert!(stays.contains("xor eax,[rsp+4]"), "{stays}");
    let moves = body("v3 = or_scratch [v1], v0");
    let load = moves.find("mov edx,[rsp+4]").expect(&moves);
    assert!(
        load < moves.find("or [rsp+4],eax").expect(&moves),
        "{moves}"
    );
}

#[test]
fn lanes_of_scratch_are_no_operand_behind_a_change() {
    let body = |between: &str| {
        let body = format!(
            "block0: v0 = load_key.be8 0 v1 = const 1 v2 = const 0 v3 = row table0[v2] v4 = load_lanes.8 v3.0[0]
             v5 = load_scratch_lanes.8 [v1] v6 = load_scratch_lanes.8 [v2] {between}
             v8 = and_lanes v5, v6 v9 = and_lanes v8, v4 v10 = horizontal_min v9 return v10"
        );
        body_text(&compiled_text(16, &body))
    };
    let stays = body("v7 = const 2");
    assert!(stays.contains("vpand ymm0,ymm0,[rsp]"), "{stays}");
    let moves = body("v7 = or_scratch [v1], v0");
    assert!(moves.contains("vpand ymm0,ymm0,ymm1"), "{moves}");
    assert!(moves.contains("vpand ymm0,ymm0,[pool+0]"), "{moves}");
}

#[test]
fn constant_indices_are_displacements_and_constant_bits_immediates() {
    let code = compiled_text(
        24,
        "block0: v0 = const 2 v1 = const 23 v2 = const 0x80000000 v3 = or_scratch [v1], v2
         v4 = load_scratch_lanes.8 [v0] v5 = const 1 v6 = row table0[v5] v7 = load_lanes.8 v6.0[0]
         v8 = and_lanes v4, v7 v9 = horizontal_min v8 return v9",
    );
    let text = body_text(&code);
    for line in [
        "or dword ptr [rsp+5Ch],80000000h",
        "vmovdqu ymm0,[rsp+40h]",
        "vpand ymm0,ymm0,[pool+32]",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[test]
fn an_index_of_runs_is_scaled_once_in_a_block() {
    let code = compiled_text(
        16,
        "block0: v0 = load_key.be8 0 v1 = const 1 v2 = and v0, v1 v3 = const 0 v4 = splat.8 v3
         v5 = load_scratch_lanes.8 [v2] v6 = eq_lanes v5, v4 v7 = lane_bits v6 v8 = or_scratch [v3], v7
         v9 = load_scratch_lanes.8 [v2] v10 = horizontal_min v9 return v10",
    );
    let shifts = decode(&code, code.entries().lookup);
    let shifts = shifts.iter().filter(|i| i.mnemonic() == Mnemonic::Shl);
    assert_eq!(shifts.count(), 1);
}

#[test]
fn each_key_of_a_batch_finds_scratch_cleared() {
    for scratch in [9, 2000] {
        let code = compiled_text(
            scratch,
            "block0: v0 = load_key.be8 0 v1 = const 8 v2 = or_scratch [v1], v0
             v3 = load_scratch [v1] return v3",
        );
        let [_, batch, batch_ptrs] = entries(&code);
        for insts in [batch, batch_ptrs] {
            let back = insts.iter().rfind(|i| i.is_jcc_short_or_near());
            let back = back.expect("the loop over the keys").near_branch_target();
            let clears = insts
                .iter()
                .filter(|i| i.mnemonic() == Mnemonic::Vmovdqu && i.memory_base() == Register::RSP);
            assert!(clears.clone().count() > 0);
            for clear in clears {
                assert!(clear.ip() > back, "{clear:?}");
            }
        }
    }
}

#[test]
fn without_bmi1_the_lowest_bit_is_cleared_by_subtraction() {
    let target = Target {
        features: Features {
            bmi1: false,
            ..Target::x86_64_avx2().features
        },
        ..Target::x86_64_avx2()
    };
    let program = from_text(
        0,
        "block0: v0 = load_key.be8 0 v1 = const 1 v2 = sub v0, v1 v3 = and v2, v0 return v3",
    );
    let code = compile(&program, &target).expect("the program fits");
    same(
        &body_text(&code),
        "movzx eax,byte ptr [rdi]
        mov edx,eax
        sub rdx,1
        and edx,eax
        mov eax,edx",
    );
}
