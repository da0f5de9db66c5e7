//! Hand-made code that keeps every promise, and the same code with one fault planted, one test per fault.
//!
//! The code is what an emitter would make of a bucket lookup with a loop in front of it. Each [`Spot`] of it can be
//! replaced by something else.

use std::sync::Arc;

use iced_x86::code_asm::*;
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};
use pktjit_ir::program::{Block, Column, Inst, Program, Table, Terminator};
use pktjit_ir::{Field, KeyLayout, MISS, TableId, ValueId, VerifiedProgram, verify};

use super::{AuditError, AuditReport, Fault, FaultKind, Profile, audit};
use crate::code::{CompiledCode, Entries, Placement, Relocation};
use crate::target::Target;

/// Bytes of each of the three functions, padding included.
const SLOT: usize = 512;
/// Where the pool is: the table of buckets, then one constant of 32 bytes.
const POOL: usize = 3 * SLOT;
const BUCKETS: usize = 4;
const BUCKET_BYTES: usize = 64;
const CONSTANT: usize = POOL + BUCKETS * BUCKET_BYTES;
const POOL_END: usize = CONSTANT + 32;
/// Stands for the address of the table of cells until the code is finished.
const CELLS: u64 = 0x1122_3344_5566_7788;

type Asm = CodeAssembler;
type Done = Result<(), IcedError>;

/// A place in the code where a test may put something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Nowhere,
    Landing,
    LoadKey,
    TableBase,
    CounterStart,
    LoopBody,
    CounterStep,
    LoopEnd,
    LoadCell,
    ClampCell,
    Compare,
    FirstLane,
    LoadRow,
    MissUpper,
    EmptyCheck,
    LoadPointer,
    Store,
    AdvanceKey,
    AdvanceResult,
    BatchEnd,
    Exit,
}

/// Registers of the key and labels that planted code may want.
#[derive(Clone, Copy)]
struct Context {
    key: AsmRegister64,
    stride: AsmRegister64,
    results: AsmRegister64,
    n: AsmRegister64,
    loop_head: CodeLabel,
    batch_head: CodeLabel,
}

type Plant = dyn Fn(&mut Asm, &Context) -> Done;

/// An instruction whose second operand is at an offset of the code, reached relative to the instruction pointer.
fn relative(asm: &mut Asm, code: Code, to: Register, offset: usize) -> Done {
    let memory = MemoryOperand::with_base_displ_size(Register::RIP, offset as i64, 4);
    asm.add_instruction(Instruction::with2(code, to, memory)?)
}

struct Builder<'a> {
    asm: Asm,
    context: Context,
    at: Spot,
    plant: &'a Plant,
}

impl<'a> Builder<'a> {
    fn new(at: Spot, plant: &'a Plant) -> Result<Self, IcedError> {
        let mut asm = CodeAssembler::new(64)?;
        let context = Context {
            key: rdi,
            stride: rsi,
            results: rcx,
            n: rdx,
            loop_head: asm.create_label(),
            batch_head: asm.create_label(),
        };
        Ok(Self {
            asm,
            context,
            at,
            plant,
        })
    }

    fn part(&mut self, spot: Spot, own: impl Fn(&mut Asm, &Context) -> Done) -> Done {
        if spot == self.at {
            (self.plant)(&mut self.asm, &self.context)
        } else {
            own(&mut self.asm, &self.context)
        }
    }

    /// Leaves the row in eax and goes on at `found`, or goes to `miss`. Uses rax, r8 to r11, ymm0, ymm1.
    fn body(&mut self, miss: CodeLabel) -> Done {
        // The smallest row of all buckets; nothing needs it.
        self.part(Spot::CounterStart, |a, _| a.xor(r10d, r10d))?;
        self.asm.mov(eax, -1)?;
        self.asm.set_label(&mut self.context.loop_head)?;
        self.part(Spot::LoopBody, |_, _| Ok(()))?;
        self.asm.mov(r9, r10)?;
        self.asm.shl(r9, 6)?;
        relative(&mut self.asm, Code::Lea_r64_m, Register::R8, POOL)?;
        self.asm.mov(r11d, dword_ptr(r8 + r9 + 32))?;
        self.asm.cmp(r11d, eax)?;
        self.asm.cmovb(eax, r11d)?;
        self.part(Spot::CounterStep, |a, _| a.add(r10d, 1))?;
        self.asm.cmp(r10d, BUCKETS as i32)?;
        self.part(Spot::LoopEnd, |a, c| a.jb(c.loop_head))?;
        // The bucket: a cell selected by the high byte of the port.
        self.part(Spot::LoadKey, |a, c| a.movzx(eax, word_ptr(c.key + 4)))?;
        self.asm.rol(ax, 8)?;
        self.asm.shr(eax, 8)?;
        self.part(Spot::TableBase, |a, _| a.mov(r8, CELLS))?;
        self.part(Spot::LoadCell, |a, _| a.movzx(eax, word_ptr(r8 + rax * 2)))?;
        self.part(Spot::ClampCell, |_, _| Ok(()))?;
        self.asm.shl(eax, 6)?;
        relative(&mut self.asm, Code::Lea_r64_m, Register::R9, POOL)?;
        self.asm.add(r9, rax)?;
        self.part(Spot::Compare, |a, c| {
            a.vpbroadcastd(ymm0, dword_ptr(c.key))?;
            relative(a, Code::VEX_Vmovdqu_ymm_ymmm256, Register::YMM1, CONSTANT)?;
            a.vpxor(ymm0, ymm0, ymm1)?;
            a.vpcmpeqd(ymm0, ymm0, ymmword_ptr(r9))
        })?;
        self.asm.vmovmskps(eax, ymm0)?;
        self.asm.test(eax, eax)?;
        self.asm.je(miss)?;
        self.part(Spot::FirstLane, |a, _| a.tzcnt(eax, eax))?;
        self.part(Spot::LoadRow, |a, _| {
            a.mov(eax, dword_ptr(r9 + rax * 4 + 32))
        })
    }

    fn lookup(mut self) -> Result<Vec<u8>, IcedError> {
        let mut miss = self.asm.create_label();
        self.part(Spot::Landing, |a, _| a.endbr64())?;
        self.body(miss)?;
        self.asm.vzeroupper()?;
        self.asm.ret()?;
        self.asm.set_label(&mut miss)?;
        self.asm.mov(eax, -1)?;
        self.part(Spot::MissUpper, |a, _| a.vzeroupper())?;
        self.part(Spot::Exit, |a, _| a.ret())?;
        self.asm.assemble(0)
    }

    fn batch(mut self) -> Result<Vec<u8>, IcedError> {
        self.part(Spot::Landing, |a, _| a.endbr64())?;
        self.elements(
            SLOT,
            |_| Ok(()),
            |builder| builder.part(Spot::AdvanceKey, |a, c| a.add(c.key, c.stride)),
        )
    }

    fn batch_ptrs(mut self) -> Result<Vec<u8>, IcedError> {
        self.part(Spot::Landing, |a, _| a.endbr64())?;
        let pointers = rsi;
        self.asm.mov(rcx, rdx)?;
        self.asm.mov(rdx, rsi)?;
        self.asm.mov(pointers, rdi)?;
        self.elements(
            2 * SLOT,
            |builder| builder.part(Spot::LoadPointer, |a, c| a.mov(c.key, qword_ptr(rsi))),
            |builder| builder.asm.add(rsi, 8),
        )
    }

    fn elements(
        mut self,
        start: usize,
        key: impl Fn(&mut Self) -> Done,
        advance: impl Fn(&mut Self) -> Done,
    ) -> Result<Vec<u8>, IcedError> {
        let [mut miss, mut store, mut exit] = [(); 3].map(|()| self.asm.create_label());
        self.asm.test(self.context.n, self.context.n)?;
        self.part(Spot::EmptyCheck, |a, _| a.je(exit))?;
        self.asm.set_label(&mut self.context.batch_head)?;
        key(&mut self)?;
        self.body(miss)?;
        self.asm.jmp(store)?;
        self.asm.set_label(&mut miss)?;
        self.asm.mov(eax, -1)?;
        self.asm.set_label(&mut store)?;
        self.part(Spot::Store, |a, c| a.mov(dword_ptr(c.results), eax))?;
        advance(&mut self)?;
        self.part(Spot::AdvanceResult, |a, c| a.add(c.results, 4))?;
        self.part(Spot::BatchEnd, |a, c| {
            a.dec(c.n)?;
            a.jne(c.batch_head)
        })?;
        self.asm.set_label(&mut exit)?;
        self.asm.vzeroupper()?;
        self.part(Spot::Exit, |a, _| a.ret())?;
        self.asm.assemble(start as u64)
    }
}

/// Keys of an address and a port; cells of which each names one of four buckets, whose rows have 8 addresses and 8 rows.
fn program(cell_max: u64) -> VerifiedProgram {
    let column = |name: &str, offset, bytes, count, max| Column {
        name: name.into(),
        offset,
        bytes,
        count,
        max,
        is_result: false,
    };
    let cells = Table {
        name: "cells".into(),
        row_bytes: 2,
        columns: vec![column("bucket", 0, 2, 1, cell_max)],
        data: Arc::from(vec![0; 256 * 2]),
    };
    let buckets = Table {
        name: "buckets".into(),
        row_bytes: BUCKET_BYTES as u32,
        columns: vec![
            column("address", 0, 4, 8, u32::MAX.into()),
            column("row", 32, 4, 8, 100),
        ],
        data: Arc::from(vec![7; BUCKETS * BUCKET_BYTES]),
    };
    let mut tables = vec![cells, buckets];
    tables[1].columns[1].max = u64::from(MISS);
    let value = ValueId::new(0);
    verify(Program {
        layout: KeyLayout::packed([Field::ipv4_addr("saddr"), Field::inet_service("dport")])
            .unwrap(),
        verdicts: 1,
        tables,
        blocks: vec![Block {
            params: vec![],
            trips: None,
            insts: vec![(value, Inst::Const(0))],
            terminator: Terminator::Return { value },
        }],
    })
    .unwrap()
}

/// The code with `plant` in place of what belongs `at` a spot.
fn code(at: Spot, plant: &Plant) -> CompiledCode {
    let functions = [
        Builder::new(at, plant).and_then(Builder::lookup),
        Builder::new(at, plant).and_then(Builder::batch),
        Builder::new(at, plant).and_then(Builder::batch_ptrs),
    ];
    let mut bytes = Vec::new();
    for (i, function) in functions.into_iter().enumerate() {
        bytes.extend(function.unwrap());
        assert!(bytes.len() <= (i + 1) * SLOT, "the function fits its slot");
        bytes.resize((i + 1) * SLOT, 0x90);
    }
    bytes.resize(CONSTANT, 7);
    bytes.resize(POOL_END, 0);
    let mut relocations = Vec::new();
    for offset in 0..POOL - 8 {
        if bytes[offset..offset + 8] == CELLS.to_le_bytes() {
            bytes[offset..offset + 8].fill(0);
            relocations.push(Relocation {
                offset,
                table: TableId::new(0),
            });
        }
    }
    CompiledCode {
        target: Target::x86_64_avx2(),
        bytes,
        pool_offset: POOL,
        entries: Entries {
            lookup: 0,
            lookup_batch: SLOT,
            lookup_batch_ptrs: 2 * SLOT,
        },
        tables: vec![Placement::Region(0), Placement::Pool(POOL)],
        region_len: 512,
        relocations,
        listing: vec![],
        key_len: 6,
    }
}

fn sound() -> CompiledCode {
    code(Spot::Nowhere, &|_, _| Ok(()))
}

fn run(code: &CompiledCode) -> Result<AuditReport, AuditError> {
    audit(code, &program(3), Profile::Leaf)
}

/// The faults of the code with `plant` at a spot.
fn faults(at: Spot, plant: impl Fn(&mut Asm, &Context) -> Done + 'static) -> Vec<Fault> {
    match run(&code(at, &plant)) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().to_vec(),
    }
}

/// Asserts that there are faults, all of one kind.
#[track_caller]
fn only(kind: FaultKind, faults: &[Fault]) {
    assert!(!faults.is_empty(), "no fault was found");
    for fault in faults {
        assert_eq!(fault.kind, kind, "{fault}");
    }
}

// Code that keeps every promise.

#[test]
fn sound_code_of_all_entries_passes() {
    let report = run(&sound()).unwrap_or_else(|error| panic!("{error}"));
    // A loop over the buckets in each entry, and the two over the elements.
    assert_eq!(report.loops, 5);
    // In each entry: port and address; cell; two loads each of rows and lanes, and the constant.
    let accesses = report.accesses;
    assert_eq!(accesses.key, 6);
    assert_eq!(accesses.table, 3);
    assert_eq!(accesses.pool, 12);
    assert_eq!((accesses.pointer, accesses.result), (1, 2));
    let features: Vec<_> = report.features.iter().map(String::as_str).collect();
    assert!(
        features.contains(&"AVX2") && features.contains(&"BMI1"),
        "{features:?}"
    );
    assert!(!features.contains(&"BMI2"), "{features:?}");
}

#[test]
fn a_report_reads_well() {
    let text = run(&sound()).unwrap().to_string();
    assert!(text.contains("5 loops") && text.contains("6 key"), "{text}");
}

// Control flow.

#[test]
fn indirect_jump() {
    let found = faults(Spot::Exit, |a, _| a.jmp(rax));
    only(FaultKind::IndirectJump, &found);
}

#[test]
fn jump_through_memory() {
    let found = faults(Spot::Exit, |a, _| a.jmp(qword_ptr(rdi)));
    only(FaultKind::IndirectJump, &found);
}

#[test]
fn indirect_call() {
    let found = faults(Spot::LoopBody, |a, _| a.call(rax));
    only(FaultKind::IndirectCall, &found);
}

#[test]
fn direct_call() {
    let found = faults(Spot::LoopBody, |a, c| a.call(c.loop_head));
    only(FaultKind::Call, &found);
}

#[test]
fn jump_into_the_middle_of_an_instruction() {
    // To the second byte of what follows.
    let found = faults(Spot::LoopBody, |a, _| a.db(&[0xeb, 0x01]));
    only(FaultKind::BranchTarget, &found);
}

#[test]
fn jump_to_another_entry() {
    let found = faults(Spot::Exit, |a, _| a.jmp(SLOT as u64));
    assert!(
        found
            .iter()
            .any(|f| f.kind == FaultKind::BranchTarget && f.entry == Some("lookup"))
    );
}

#[test]
fn jump_beyond_the_code() {
    let found = faults(Spot::Exit, |a, _| a.jmp(POOL as u64));
    only(FaultKind::BranchTarget, &found);
}

#[test]
fn code_that_runs_into_the_pool() {
    let found = faults(Spot::Exit, |_, _| Ok(()));
    only(FaultKind::RunsOff, &found);
}

#[test]
fn bytes_that_are_no_instruction() {
    let found = faults(Spot::Exit, |a, _| a.db(&[0xc3, 0x06]));
    only(FaultKind::Undecodable, &found);
}

#[test]
fn instructions_that_no_path_reaches() {
    let found = faults(Spot::Exit, |a, _| {
        a.ret()?;
        a.xor(eax, eax)?;
        a.ret()
    });
    only(FaultKind::Unreachable, &found);
}

#[test]
fn entry_without_landing_pad() {
    let found = faults(Spot::Landing, |a, _| a.nop());
    only(FaultKind::MissingEndbr, &found);
}

#[test]
fn misaligned_entry() {
    let mut code = sound();
    let at = code.entries.lookup_batch_ptrs;
    // Where it is, preceded by a byte of padding less.
    code.bytes.remove(at - 1);
    code.bytes.insert(POOL - 1, 0x90);
    code.entries.lookup_batch_ptrs -= 1;
    for relocation in &mut code.relocations {
        relocation.offset -= usize::from(relocation.offset > at);
    }
    let error = run(&code).unwrap_err();
    only(FaultKind::MisalignedEntry, error.faults());
}

#[test]
fn entry_beyond_the_code() {
    let mut code = sound();
    code.entries.lookup_batch_ptrs = POOL + 64;
    let error = run(&code).unwrap_err();
    assert!(
        error
            .faults()
            .iter()
            .any(|f| f.kind == FaultKind::MisalignedEntry)
    );
}

// Loops.

#[test]
fn backward_jump_without_bound() {
    let found = faults(Spot::LoopEnd, |a, c| a.jmp(c.loop_head));
    // What follows is not reached, but that is not the fault.
    assert!(
        found
            .iter()
            .any(|f| f.kind == FaultKind::UnboundedLoop || f.kind == FaultKind::Unreachable)
    );
}

#[test]
fn backward_branch_on_data() {
    let found = faults(Spot::LoopEnd, |a, c| {
        a.test(r11d, r11d)?;
        a.jne(c.loop_head)
    });
    only(FaultKind::UnboundedLoop, &found);
}

#[test]
fn counter_that_is_written_twice() {
    let found = faults(Spot::LoopBody, |a, _| a.mov(r10d, r10d));
    assert!(found.iter().any(|f| f.kind == FaultKind::UnboundedLoop));
}

#[test]
fn counter_that_does_not_start_at_zero() {
    let found = faults(Spot::CounterStart, |a, _| a.mov(r10d, 1));
    only(FaultKind::UnboundedLoop, &found);
}

#[test]
fn counter_that_starts_anywhere() {
    let found = faults(Spot::CounterStart, |_, _| Ok(()));
    only(FaultKind::UnboundedLoop, &found);
}

#[test]
fn counter_that_goes_by_two() {
    let found = faults(Spot::CounterStep, |a, _| a.add(r10d, 2));
    assert!(found.iter().any(|f| f.kind == FaultKind::UnboundedLoop));
}

#[test]
fn loop_that_is_entered_behind_its_head() {
    let found = faults(Spot::CounterStart, |a, _| {
        a.xor(r10d, r10d)?;
        // `js` over `mov eax, -1` and `mov r9, r10`.
        a.db(&[0x78, 0x08])
    });
    assert!(found.iter().any(|f| f.kind == FaultKind::UnboundedLoop));
}

#[test]
fn batch_loop_that_takes_two_elements_a_trip() {
    let found = faults(Spot::BatchEnd, |a, c| {
        a.sub(c.n, 2)?;
        a.jne(c.batch_head)
    });
    assert!(found.iter().any(|f| f.kind == FaultKind::UnboundedLoop));
}

#[test]
fn batch_loop_that_goes_on_at_zero() {
    let found = faults(Spot::BatchEnd, |a, c| {
        a.dec(c.n)?;
        a.jns(c.batch_head)
    });
    assert!(found.iter().any(|f| f.kind == FaultKind::UnboundedLoop));
}

#[test]
fn batch_loop_that_counts_half_of_n() {
    let found = faults(Spot::BatchEnd, |a, c| {
        a.dec(c.n)?;
        a.test(edx, edx)?;
        a.jne(c.batch_head)
    });
    assert!(found.iter().any(|f| f.kind == FaultKind::UnboundedLoop));
}

#[test]
fn batch_without_a_check_for_no_elements() {
    let found = faults(Spot::EmptyCheck, |_, _| Ok(()));
    assert!(found.iter().any(|f| f.kind == FaultKind::Read));
    assert!(found.iter().any(|f| f.kind == FaultKind::Write));
}

// Memory.

#[test]
fn load_past_the_key() {
    let found = faults(Spot::LoadKey, |a, c| a.movzx(eax, word_ptr(c.key + 5)));
    only(FaultKind::Read, &found);
}

#[test]
fn load_before_the_key() {
    let found = faults(Spot::LoadKey, |a, c| a.movzx(eax, word_ptr(c.key - 1)));
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_the_next_key() {
    let found = faults(Spot::LoadKey, |a, c| {
        a.movzx(eax, word_ptr(c.key + c.stride))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_through_the_key_after_advancing_it() {
    let found = faults(Spot::AdvanceKey, |a, c| {
        a.add(c.key, c.stride)?;
        a.mov(eax, dword_ptr(c.key))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn key_that_is_not_advanced() {
    let found = faults(Spot::AdvanceKey, |_, _| Ok(()));
    only(FaultKind::Read, &found);
}

#[test]
fn key_that_is_advanced_twice() {
    let found = faults(Spot::AdvanceKey, |a, c| {
        a.add(c.key, c.stride)?;
        a.add(c.key, c.stride)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_one_row_past_a_table() {
    // The cells may name bucket 4, of 0 to 3.
    let error = audit(&sound(), &program(4), Profile::Leaf).unwrap_err();
    only(FaultKind::Read, error.faults());
    let fault = &error.faults()[0];
    assert!(
        fault.detail.contains("table1 + rows 0..=256 by 64"),
        "{fault}"
    );
    assert!(fault.instruction.starts_with("vpcmpeqd"), "{fault}");
}

#[test]
fn load_through_an_unbounded_number() {
    let found = faults(Spot::LoadCell, |a, _| a.mov(eax, dword_ptr(r8 + rax)));
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_a_cell_that_straddles_two_has_no_column() {
    let found = faults(Spot::LoadCell, |a, _| a.movzx(eax, word_ptr(r8 + rax)));
    only(FaultKind::Read, &found);
}

#[test]
fn lane_past_a_row_through_a_wrong_scale() {
    let found = faults(Spot::LoadRow, |a, _| {
        a.mov(eax, dword_ptr(r9 + rax * 8 + 32))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_from_a_pool_table_past_the_pool() {
    let found = faults(Spot::LoadRow, |a, _| {
        relative(a, Code::Mov_r32_rm32, Register::EAX, POOL_END - 3)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_that_starts_in_a_pool_table_and_ends_behind_it() {
    let found = faults(Spot::LoadRow, |a, _| {
        relative(a, Code::Mov_r32_rm32, Register::EAX, CONSTANT - 2)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_code() {
    let found = faults(Spot::LoadRow, |a, _| {
        relative(a, Code::Mov_r32_rm32, Register::EAX, POOL - 4)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn load_from_an_absolute_address() {
    let found = faults(Spot::LoadRow, |a, _| a.mov(eax, dword_ptr(0x1000)));
    only(FaultKind::Read, &found);
}

#[test]
fn table_address_that_the_runtime_does_not_write() {
    let found = faults(Spot::TableBase, |a, _| a.mov(r8, 0x7000_0000_0000u64));
    only(FaultKind::Read, &found);
}

#[test]
fn load_of_a_result() {
    let found = faults(Spot::Store, |a, c| a.mov(eax, dword_ptr(c.results)));
    only(FaultKind::Read, &found);
}

#[test]
fn store_beyond_the_result() {
    let found = faults(Spot::Store, |a, c| a.mov(dword_ptr(c.results + 4), eax));
    only(FaultKind::Write, &found);
}

#[test]
fn store_of_a_wide_result() {
    let found = faults(Spot::Store, |a, c| a.mov(qword_ptr(c.results), rax));
    only(FaultKind::Write, &found);
}

#[test]
fn results_that_are_not_advanced() {
    let found = faults(Spot::AdvanceResult, |_, _| Ok(()));
    only(FaultKind::Write, &found);
}

#[test]
fn store_to_the_key() {
    let found = faults(Spot::Store, |a, c| a.mov(dword_ptr(c.key), eax));
    only(FaultKind::Write, &found);
}

#[test]
fn store_to_a_table() {
    let found = faults(Spot::LoadRow, |a, _| a.mov(dword_ptr(r9), eax));
    only(FaultKind::Write, &found);
}

#[test]
fn read_and_write_of_a_result() {
    let found = faults(Spot::Store, |a, c| a.add(dword_ptr(c.results), eax));
    only(FaultKind::Write, &found);
}

#[test]
fn half_of_a_key_address() {
    let found = faults(Spot::LoadPointer, |a, c| a.mov(c.key, qword_ptr(rsi + 4)));
    only(FaultKind::Read, &found);
}

// What proves an access, and what does not.

#[test]
fn clamp_by_conditional_move_bounds_a_number() {
    let clamped = code(Spot::ClampCell, &|a, _| {
        a.mov(eax, dword_ptr(rdi))?;
        a.mov(r11d, 3)?;
        a.cmp(eax, r11d)?;
        a.cmova(eax, r11d)
    });
    assert_eq!(run(&clamped).map(|_| ()), Ok(()));
}

#[test]
fn clamp_of_flags_that_compare_an_older_value() {
    let found = faults(Spot::ClampCell, |a, _| {
        a.mov(r11d, 3)?;
        a.cmp(eax, r11d)?;
        a.mov(eax, dword_ptr(rdi))?;
        a.cmova(eax, r11d)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn clamp_the_wrong_way_round() {
    let found = faults(Spot::ClampCell, |a, _| {
        a.mov(eax, dword_ptr(rdi))?;
        a.mov(r11d, 3)?;
        a.cmp(eax, r11d)?;
        a.cmovb(eax, r11d)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn mask_bounds_a_number() {
    let masked = code(Spot::ClampCell, &|a, _| {
        a.mov(eax, dword_ptr(rdi))?;
        a.and(eax, 3)
    });
    assert_eq!(run(&masked).map(|_| ()), Ok(()));
}

#[test]
fn high_half_of_a_product_bounds_a_number() {
    let scaled = code(Spot::ClampCell, &|a, c| {
        // `mul` writes rdx, the n of a batch.
        a.mov(r11, c.n)?;
        a.mov(rax, qword_ptr(r8))?;
        a.mov(r8d, BUCKETS as i32)?;
        a.mul(r8)?;
        a.mov(rax, rdx)?;
        a.mov(c.n, r11)
    });
    assert_eq!(run(&scaled).map(|_| ()), Ok(()));
}

#[test]
fn first_bit_is_bounded_by_a_bit_that_is_set() {
    let found = code(Spot::FirstLane, &|a, c| {
        a.mov(eax, dword_ptr(c.key))?;
        a.or(eax, 0x80)?;
        a.tzcnt(eax, eax)
    });
    assert_eq!(run(&found).map(|_| ()), Ok(()));
}

#[test]
fn first_bit_of_what_may_be_zero() {
    let found = faults(Spot::FirstLane, |a, c| {
        a.mov(eax, dword_ptr(c.key))?;
        a.tzcnt(eax, eax)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn bit_scan_leaves_anything_where_there_is_no_bit() {
    let found = faults(Spot::FirstLane, |a, _| {
        a.and(eax, 0x7e)?;
        a.bsf(eax, eax)
    });
    only(FaultKind::Read, &found);
}

#[test]
fn bit_scan_with_a_move_for_no_bit() {
    let found = code(Spot::FirstLane, &|a, _| {
        a.and(eax, 0x7e)?;
        a.mov(r11d, 7)?;
        a.bsf(eax, eax)?;
        a.cmove(eax, r11d)
    });
    assert_eq!(run(&found).map(|_| ()), Ok(()));
}

// Registers and instructions.

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

// Placement.

#[test]
fn pool_that_is_not_the_programs() {
    let mut code = sound();
    code.bytes[POOL + 3] ^= 1;
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn table_beyond_the_region() {
    let mut code = sound();
    code.region_len -= 64;
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn tables_that_overlap() {
    let mut code = sound();
    code.region_len = 1024;
    code.tables[1] = Placement::Region(448);
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn relocation_of_something_else_than_an_immediate() {
    let mut code = sound();
    let offset = code.relocations[0].offset + 1;
    code.relocations.push(Relocation {
        offset,
        table: TableId::new(0),
    });
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn faults_are_bounded_and_name_the_entry() {
    let found = faults(Spot::LoopBody, |a, _| {
        for _ in 0..40 {
            a.mov(r11d, dword_ptr(r11))?;
        }
        Ok(())
    });
    only(FaultKind::Read, &found);
    assert_eq!(found.len(), super::MAX_FAULTS);
    assert_eq!(found[0].entry, Some("lookup"));
    assert!(
        found[0].to_string().starts_with("lookup 0x"),
        "{}",
        found[0]
    );
}
