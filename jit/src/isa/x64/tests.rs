//! Whole programs: what the finished bytes look like to another decoder, and the exact code of a few of them.

mod avx512;
mod bit_vectors;
mod frames;
mod staged;

use std::collections::BTreeSet;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, Register,
};
use pktjit_ir::program::{
    BinaryOp, Column, CompareOp, Inst, LaneCompareOp, MISS, MaskOp, Program, Table, Terminator,
    Type,
};
use pktjit_ir::{
    ByteOrder, Field, KeyLayout, ProgramBuilder, TableId, ValueId, VerifiedProgram, verify,
};

use crate::audit::{Profile, audit};
use crate::code::{CompiledCode, Placement};
use crate::compile;
use crate::error::CompileError;
use crate::target::{Features, Target};

fn builder() -> ProgramBuilder {
    let fields = [
        Field::ipv4_addr("saddr"),
        Field::inet_service("dport"),
        Field::ether_addr("mac"),
    ];
    ProgramBuilder::new(KeyLayout::packed(fields).expect("12 bytes"), 1000)
}

/// A table of `rows` rows with `columns` columns of eight 4-byte numbers.
fn lanes_table(rows: usize, columns: u32) -> Table {
    let column = |c| Column {
        name: "c".into(),
        offset: 32 * c,
        bytes: 4,
        count: 8,
        max: u32::MAX.into(),
        is_result: false,
    };
    Table {
        name: "lanes".into(),
        row_bytes: 32 * columns,
        columns: (0..columns).map(column).collect(),
        data: vec![1; rows * 32 * columns as usize].into(),
    }
}

/// A table of `rows` 4-byte numbers up to `max`.
fn flat_table(rows: usize, max: u64) -> Table {
    Table {
        name: "flat".into(),
        row_bytes: 4,
        columns: vec![Column {
            name: "x".into(),
            offset: 0,
            bytes: 4,
            count: 1,
            max,
            is_result: false,
        }],
        data: vec![0; 4 * rows].into(),
    }
}

fn verified(program: Program) -> VerifiedProgram {
    verify(program).expect("the test's program is sound")
}

fn compiled(builder: ProgramBuilder) -> CompiledCode {
    compiled_for(builder, &Target::x86_64_avx2())
}

fn compiled_for(builder: ProgramBuilder, target: &Target) -> CompiledCode {
    let program = verified(builder.finish());
    let code = compile(&program, target).expect("the program fits the target");
    audit(&code, &program, code.profile()).expect("the code keeps its promises");
    code
}

fn refusal(builder: ProgramBuilder, target: &Target) -> String {
    match compile(&verified(builder.finish()), target) {
        Err(CompileError::Unsupported(what)) => what,
        other => panic!("{other:?}"),
    }
}

/// The code of one entry, up to its `ret`.
fn decode(code: &CompiledCode, entry: usize) -> Vec<Instruction> {
    let bytes = &code.bytes()[..code.pool_offset()];
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    decoder
        .set_position(entry)
        .expect("an entry is in the code");
    decoder.set_ip(entry as u64);
    let mut insts = Vec::new();
    for inst in &mut decoder {
        insts.push(inst);
        if inst.mnemonic() == Mnemonic::Ret {
            break;
        }
    }
    insts
}

fn entries(code: &CompiledCode) -> [Vec<Instruction>; 3] {
    let entries = code.entries();
    [
        entries.lookup,
        entries.lookup_batch,
        entries.lookup_batch_ptrs,
    ]
    .map(|entry| decode(code, entry))
}

/// The code of `lookup` between `endbr64` and `vzeroupper` or `ret`, a line an instruction; what lies in the pool is
/// `pool+offset`, a jump goes to a line, counted from 1.
fn body_text(code: &CompiledCode) -> String {
    let mut formatter = IntelFormatter::new();
    let insts = decode(code, code.entries().lookup);
    let mut text = String::new();
    let is_exit = |i: &Instruction| matches!(i.mnemonic(), Mnemonic::Vzeroupper | Mnemonic::Ret);
    let end = insts.iter().position(is_exit).expect("an exit");
    for inst in &insts[1..end] {
        let mut line = String::new();
        formatter.format(inst, &mut line);
        if inst.flow_control() == FlowControl::ConditionalBranch {
            let to = insts
                .iter()
                .position(|i| i.ip() == inst.near_branch_target());
            let name = line.split(' ').next().unwrap_or_default();
            line = format!("{name} line {}", to.expect("a jump to an instruction"));
        }
        if inst.is_ip_rel_memory_operand() {
            let offset = inst.ip_rel_memory_address() - code.pool_offset() as u64;
            let start = line.find('[').expect("a memory operand");
            line.replace_range(start.., &format!("[pool+{offset}]"));
        }
        text += &line;
        text.push('\n');
    }
    text
}

fn same(text: &str, expected: &str) {
    let expected: String = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(text, expected, "the code is\n{text}");
}

/// Two groups of rules on address and port, each with an index by `pext` into a small table of buckets' numbers, the
/// buckets themselves in a large table: all kinds of table access.
fn buckets() -> ProgramBuilder {
    let mut b = builder();
    let cells = b.table(flat_table(256, 255));
    let rows = b.table(lanes_table(256, 5));
    let saddr = b.load_key(0, 4, ByteOrder::Big);
    let dport = b.load_key(4, 2, ByteOrder::Big);
    let (saddrs, dports) = (b.splat(saddr, 8), b.splat(dport, 8));
    let miss = b.constant(MISS.into());
    let mut best = b.splat(miss, 8);
    for bits in [0xff00_0000, 0x00f0_f000] {
        let index = b.binary_const(BinaryOp::Pext, saddr, bits);
        let cell = b.row(cells, index);
        let bucket = b.load(cell, 0, None);
        let row = b.row(rows, bucket);
        let columns: Vec<ValueId> = (0..5).map(|c| b.load_lanes(row, c, 0, 8)).collect();
        let in_saddr = in_range(&mut b, saddrs, columns[0], columns[1]);
        let in_dport = in_range(&mut b, dports, columns[2], columns[3]);
        let mask = b.combine_masks(MaskOp::And, in_saddr, in_dport);
        best = b.inst(Inst::MaskedMin {
            acc: best,
            mask,
            x: columns[4],
        });
    }
    let found = b.inst(Inst::HorizontalMin { a: best });
    b.ret(found);
    b
}

fn in_range(b: &mut ProgramBuilder, x: ValueId, lo: ValueId, len: ValueId) -> ValueId {
    b.inst(Inst::InRangeLanes { x, lo, len })
}

/// A loop over all rows of a table.
fn blocks_of_rules() -> ProgramBuilder {
    let mut b = builder();
    let rows = b.table(lanes_table(100, 3));
    let saddr = b.load_key(0, 4, ByteOrder::Little);
    let saddrs = b.splat(saddr, 8);
    let (miss, zero) = (b.constant(MISS.into()), b.constant(0));
    let none = b.splat(miss, 8);
    let (head, params) = b.loop_head(100, &[Type::Lanes(8)]);
    let (exit, results) = b.block(&[Type::Lanes(8)]);
    b.terminate(Terminator::Jump {
        to: head,
        args: vec![zero, none],
    });
    b.switch_to(head);
    let row = b.row(rows, params[0]);
    let columns: Vec<ValueId> = (0..3).map(|c| b.load_lanes(row, c, 0, 8)).collect();
    let mask = in_range(&mut b, saddrs, columns[0], columns[1]);
    let best = b.inst(Inst::MaskedMin {
        acc: params[1],
        mask,
        x: columns[2],
    });
    b.terminate(Terminator::Repeat {
        head,
        args: vec![best],
        exit,
        exit_args: vec![best],
    });
    b.switch_to(exit);
    let found = b.inst(Inst::HorizontalMin { a: results[0] });
    b.ret(found);
    b
}

#[test]
fn products_with_constants_are_shifts_and_addresses_where_these_do() {
    let product = |by: u64| {
        let mut b = builder();
        let byte = b.load_key(0, 1, ByteOrder::Little);
        let product = b.binary_const(BinaryOp::Mul, byte, by);
        let sum = b.binary(BinaryOp::Xor, product, byte);
        b.ret(sum);
        let text = body_text(&compiled(b));
        text.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(product(1), "mov edx,eax");
    assert_eq!(product(2), "mov edx,eax");
    assert_eq!(product(5), "lea rax,[rdx+rdx*4]");
    assert_eq!(product(7), "imul eax,edx,7");
    assert_eq!(product(0), "xor eax,eax");
}

/// Branches with arguments, an early return, and scalar arithmetic of all kinds.
fn branches() -> ProgramBuilder {
    let mut b = builder();
    let saddr = b.load_key(0, 4, ByteOrder::Big);
    let mac = b.load_key(4, 8, ByteOrder::Big);
    let top = b.shr(mac, 40);
    let hash = b.binary_const(BinaryOp::Mul, mac, 1000);
    let bits = b.binary_const(BinaryOp::Pext, mac, 0xff0f_0000_0fff);
    let first = b.first_bit(mac);
    let (early, _) = b.block(&[]);
    let (late, numbers) = b.block(&[Type::Scalar, Type::Scalar]);
    let cond = b.compare(CompareOp::Lt, saddr, top);
    b.terminate(Terminator::BranchIf {
        cond,
        then: early,
        then_args: vec![],
        otherwise: late,
        else_args: vec![hash, first],
    });
    b.switch_to(early);
    let least = b.binary_const(BinaryOp::Min, bits, 999);
    b.ret(least);
    b.switch_to(late);
    let sum = b.binary(BinaryOp::Add, numbers[0], numbers[1]);
    let result = b.binary_const(BinaryOp::And, sum, 0xff);
    b.ret(result);
    b
}

fn programs() -> [CompiledCode; 3] {
    [buckets(), blocks_of_rules(), branches()].map(compiled)
}

#[test]
fn each_entry_is_aligned_lands_and_cleans_up() {
    for code in programs() {
        for insts in entries(&code) {
            let [first, middle @ .., before, last] = &insts[..] else {
                panic!("{insts:?}");
            };
            let is_vector = |i: &Instruction| {
                (0..i.op_count()).any(|op| i.op_register(op).is_vector_register())
            };
            assert_eq!(first.ip() % 64, 0);
            assert_eq!(first.mnemonic(), Mnemonic::Endbr64);
            // Upper halves are cleaned where they may be dirty, and nowhere else.
            let is_dirty = middle.iter().any(is_vector);
            assert_eq!(before.mnemonic() == Mnemonic::Vzeroupper, is_dirty);
            assert_eq!(last.mnemonic(), Mnemonic::Ret);
        }
        assert_eq!(code.pool_offset() % 64, 0);
    }
}

#[test]
fn jumps_are_direct_and_go_to_instructions_of_their_entry() {
    for insts in programs().iter().flat_map(entries) {
        let starts: BTreeSet<u64> = insts.iter().map(Instruction::ip).collect();
        for inst in &insts {
            match inst.flow_control() {
                FlowControl::Next | FlowControl::Return => {}
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    assert!(starts.contains(&inst.near_branch_target()), "{inst:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn the_listing_has_one_entry_for_each_instruction() {
    for code in programs() {
        let starts: Vec<u64> = entries(&code)
            .iter()
            .flatten()
            .map(Instruction::ip)
            .collect();
        let listed: Vec<u64> = code
            .listing()
            .iter()
            .map(|line| line.offset as u64)
            .collect();
        assert_eq!(listed, starts);
    }
}

#[test]
fn the_listing_names_the_tables_that_are_read() {
    let code = compiled(buckets());
    let count = |id| {
        let lines = code.listing().iter();
        lines
            .filter(|line| line.table == Some(TableId::new(id)))
            .count()
    };
    // Three entries with two groups; one load of a bucket number, five of lanes.
    assert_eq!((count(0), count(1)), (3 * 2, 3 * 2 * 5));
}

#[test]
fn relocations_are_the_immediates_of_moves_and_hold_zero() {
    let code = compiled(buckets());
    assert_eq!(code.relocations().len(), 6);
    let insts: Vec<Instruction> = entries(&code).into_iter().flatten().collect();
    for relocation in code.relocations() {
        assert_eq!(relocation.table, TableId::new(1));
        let inst = insts
            .iter()
            .find(|inst| inst.next_ip() == relocation.offset as u64 + 8)
            .expect("an instruction ends behind the address");
        assert_eq!((inst.mnemonic(), inst.len()), (Mnemonic::Mov, 10));
        assert_eq!(inst.immediate64(), 0);
    }
}

#[test]
fn small_tables_are_in_the_pool_and_large_ones_in_the_region() {
    let code = compiled(buckets());
    assert_eq!(
        code.tables(),
        [Placement::Pool(code.pool_offset()), Placement::Region(0)]
    );
    assert_eq!(code.region_len(), 256 * 160);
}

#[test]
fn only_caller_saved_registers_are_written() {
    let saved = [
        Register::RBX,
        Register::RBP,
        Register::RSP,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    let mut factory = InstructionInfoFactory::new();
    for inst in programs().iter().flat_map(entries).flatten() {
        for used in factory.info(&inst).used_registers() {
            let is_read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            let is_ret = inst.mnemonic() == Mnemonic::Ret;
            assert!(
                is_read || is_ret || !saved.contains(&used.register().full_register()),
                "{inst:?}"
            );
        }
    }
}

#[test]
fn a_plain_target_gets_no_extension_but_avx2() {
    let target = Target {
        features: Features::default(),
        ..Target::x86_64_avx2()
    };
    let used: BTreeSet<String> = [buckets(), blocks_of_rules(), branches()]
        .into_iter()
        .flat_map(|b| entries(&compiled_for(b, &target)))
        .flatten()
        .flat_map(|inst| inst.cpuid_features())
        .map(|feature| format!("{feature:?}"))
        .collect();
    let allowed = [
        "AVX",
        "AVX2",
        "CET_IBT",
        "CMOV",
        "INTEL386",
        "INTEL486",
        "INTEL8086",
        "X64",
    ];
    let others: Vec<&String> = used
        .iter()
        .filter(|f| !allowed.contains(&f.as_str()))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn lanes_are_read_in_place_and_key_words_need_no_general_register() {
    same(
        &body_text(&compiled(buckets())),
        "movbe eax,[rdi]
        vpbroadcastd ymm0,[rdi]
        vpshufb ymm0,ymm0,[pool+1024]
        vpbroadcastw ymm1,[rdi+4]
        vpshufb ymm1,ymm1,[pool+1056]
        mov edx,0FF000000h
        pext edx,eax,edx
        lea r8,[pool+0]
        mov r8d,[r8+rdx*4]
        mov rdx,0
        lea r8,[r8+r8*4]
        shl r8d,2
        lea rdx,[rdx+r8*8]
        vpsubd ymm2,ymm0,[rdx]
        vpminud ymm3,ymm2,[rdx+20h]
        vpcmpeqd ymm2,ymm2,ymm3
        vpsubd ymm3,ymm1,[rdx+40h]
        vpminud ymm4,ymm3,[rdx+60h]
        vpcmpeqd ymm3,ymm3,ymm4
        vpand ymm2,ymm2,ymm3
        vpandn ymm2,ymm2,[pool+1088]
        vpor ymm2,ymm2,[rdx+80h]
        mov edx,0F0F000h
        pext eax,eax,edx
        lea rdx,[pool+0]
        mov edx,[rdx+rax*4]
        mov rax,0
        lea rdx,[rdx+rdx*4]
        shl edx,2
        lea rax,[rax+rdx*8]
        vpsubd ymm0,ymm0,[rax]
        vpminud ymm3,ymm0,[rax+20h]
        vpcmpeqd ymm0,ymm0,ymm3
        vpsubd ymm1,ymm1,[rax+40h]
        vpminud ymm3,ymm1,[rax+60h]
        vpcmpeqd ymm1,ymm1,ymm3
        vpand ymm0,ymm0,ymm1
        vpandn ymm0,ymm0,[pool+1088]
        vpor ymm0,ymm0,[rax+80h]
        vpminud ymm2,ymm2,ymm0
        vextracti128 xmm0,ymm2,1
        vpminud xmm2,xmm2,xmm0
        vpshufd xmm0,xmm2,0EEh
        vpminud xmm2,xmm2,xmm0
        vpshufd xmm0,xmm2,55h
        vpminud xmm2,xmm2,xmm0
        vmovd eax,xmm2",
    );
}

#[test]
fn going_round_a_loop_costs_no_move() {
    same(
        &body_text(&compiled(blocks_of_rules())),
        "vpbroadcastd ymm0,[rdi]
        vmovdqu ymm1,[pool+0]
        xor eax,eax
        mov rdx,0
        lea r8,[rax+rax*2]
        shl r8d,2
        lea rdx,[rdx+r8*8]
        vpsubd ymm2,ymm0,[rdx]
        vpminud ymm3,ymm2,[rdx+20h]
        vpcmpeqd ymm2,ymm2,ymm3
        vpandn ymm2,ymm2,[pool+0]
        vpor ymm2,ymm2,[rdx+40h]
        vpminud ymm1,ymm1,ymm2
        add eax,1
        cmp eax,64h
        jb line 4
        vextracti128 xmm0,ymm1,1
        vpminud xmm1,xmm1,xmm0
        vpshufd xmm0,xmm1,0EEh
        vpminud xmm1,xmm1,xmm0
        vpshufd xmm0,xmm1,55h
        vpminud xmm1,xmm1,xmm0
        vmovd eax,xmm1",
    );
}

#[test]
fn a_comparison_with_one_use_stays_in_the_flags() {
    let mut b = builder();
    let port = b.load_key(4, 2, ByteOrder::Little);
    let https = b.constant(443);
    let cond = b.compare(CompareOp::Eq, port, https);
    let (row, miss) = (b.constant(0), b.constant(MISS.into()));
    let result = b.select(cond, row, miss);
    b.ret(result);
    same(
        &body_text(&compiled(b)),
        "movzx eax,word ptr [rdi+4]
        xor edx,edx
        cmp eax,1BBh
        mov eax,0FFFFFFFFh
        cmove eax,edx",
    );
}

#[test]
fn a_loop_parameter_that_is_needed_afterwards_is_kept() {
    let mut b = builder();
    let zero = b.constant(0);
    let (head, params) = b.loop_head(5, &[]);
    let (exit, _) = b.block(&[]);
    b.terminate(Terminator::Jump {
        to: head,
        args: vec![zero],
    });
    b.switch_to(head);
    b.terminate(Terminator::Repeat {
        head,
        args: vec![],
        exit,
        exit_args: vec![],
    });
    b.switch_to(exit);
    // 4, not the 5 that the counter's register ends with.
    b.ret(params[0]);
    same(
        &body_text(&compiled(b)),
        "xor eax,eax
        mov rdx,rax
        add eax,1
        cmp eax,5
        jb line 2
        mov eax,edx",
    );
}

#[test]
fn a_one_word_comparison_reads_the_table_in_place() {
    let mut b = builder();
    let table = b.table(flat_table(4, u32::MAX.into()));
    let port = b.load_key(4, 1, ByteOrder::Little);
    let index = b.binary_const(BinaryOp::And, port, 3);
    let row = b.row(table, index);
    let wanted = b.load(row, 0, None);
    let differing = b.binary(BinaryOp::Xor, wanted, port);
    b.ret(differing);
    same(
        &body_text(&compiled(b)),
        "movzx eax,byte ptr [rdi+4]
        mov edx,eax
        and edx,3
        lea r8,[pool+0]
        xor eax,[r8+rdx*4]",
    );
}

#[test]
fn other_numbers_of_lanes_are_refused() {
    for lanes in [4, 16] {
        let mut b = builder();
        let saddr = b.load_key(0, 4, ByteOrder::Big);
        let a = b.splat(saddr, lanes);
        let least = b.inst(Inst::HorizontalMin { a });
        b.ret(least);
        let why = refusal(b, &Target::x86_64_avx2());
        assert!(why.contains("lanes"), "{why}");
    }
}

#[test]
fn pext_by_a_value_needs_bmi2() {
    let mut b = builder();
    let saddr = b.load_key(0, 4, ByteOrder::Big);
    let mask = b.load_key(4, 4, ByteOrder::Big);
    let bits = b.binary(BinaryOp::Pext, saddr, mask);
    b.ret(bits);
    let target = Target {
        features: Features::default(),
        ..Target::x86_64_avx2()
    };
    assert!(refusal(b, &target).contains("BMI2"));
}

#[test]
fn a_block_of_constants_alone_returns_them() {
    let mut b = builder();
    let miss = b.constant(MISS.into());
    b.ret(miss);
    same(&body_text(&compiled(b)), "mov eax,0FFFFFFFFh");
}
