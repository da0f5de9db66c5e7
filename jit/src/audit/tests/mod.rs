//! Hand-made code that keeps every promise, and the same code with one fault planted, one test per fault.
//!
//! The code is what an emitter would make of a bucket lookup with a loop in front of it. Each [`Spot`] of it can be
//! replaced by something else.

mod a64;
mod bounds;
mod chain;
mod control;
mod framed;
mod generated;
mod instructions;
mod loops;
mod memory;
mod placement;
mod spilled;
mod staged;

use std::sync::Arc;

use iced_x86::code_asm::*;
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};
use pktjit_ir::program::{Block, Column, Inst, Program, Table, Terminator};
use pktjit_ir::{Field, KeyLayout, MISS, TableId, ValueId, VerifiedProgram, verify};

use super::{AuditError, AuditReport, Fault, FaultKind, MAX_FAULTS, Profile, audit};
use crate::code::{CompiledCode, Entries, Placement, Relocation, StackUse};
use crate::target::Target;

/// Bytes of each of the three functions, padding included.
const SLOT: usize = 512;
/// Where the pool is: the table of buckets, then one constant of 32 bytes.
const POOL: usize = 3 * SLOT;
const BUCKETS: usize = 4;
const BUCKET_BYTES: usize = 64;
const CONSTANT: usize = POOL + BUCKETS * BUCKET_BYTES;
const POOL_END: usize = CONSTANT + 32;
/// A row of 6 bytes for each high byte of a port.
const CELLS_BYTES: usize = 256 * 6;
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
        self.asm.lea(rax, ptr(rax + rax * 2))?;
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
        row_bytes: 6,
        columns: vec![
            column("bucket", 0, 2, 1, cell_max),
            column("other", 2, 2, 2, u16::MAX.into()),
        ],
        data: Arc::from(vec![0; CELLS_BYTES]),
    };
    let buckets = Table {
        name: "buckets".into(),
        row_bytes: BUCKET_BYTES as u32,
        columns: vec![
            column("address", 0, 4, 8, u32::MAX.into()),
            column("row", 32, 4, 8, MISS.into()),
        ],
        data: Arc::from(vec![7; BUCKETS * BUCKET_BYTES]),
    };
    let value = ValueId::new(0);
    verify(Program {
        layout: KeyLayout::packed([Field::ipv4_addr("saddr"), Field::inet_service("dport")])
            .unwrap(),
        verdicts: 1,
        tables: vec![cells, buckets],
        scratch: 0,
        staged: None,
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
    compiled(functions)
}

/// The functions, each in its slot, and the pool behind them.
fn compiled(functions: [Result<Vec<u8>, IcedError>; 3]) -> CompiledCode {
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
        constants: Vec::new(),
        entries: Entries {
            lookup: 0,
            lookup_batch: SLOT,
            lookup_batch_ptrs: 2 * SLOT,
        },
        tables: vec![Placement::Region(0), Placement::Pool(POOL)],
        region: vec![(0, Arc::from(vec![0; CELLS_BYTES]))],
        relocations,
        listing: vec![],
        key_len: 6,
        stack: StackUse::LEAF,
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

/// Asserts that there is a fault of this kind; others may follow from it.
#[track_caller]
fn includes(kind: FaultKind, faults: &[Fault]) {
    let kinds: Vec<_> = faults.iter().map(|fault| fault.kind).collect();
    assert!(kinds.contains(&kind), "{kind:?} is not among {kinds:?}");
}

/// Asserts that there are faults, all of one kind.
#[track_caller]
fn only(kind: FaultKind, faults: &[Fault]) {
    assert!(!faults.is_empty(), "no fault was found");
    for fault in faults {
        assert_eq!(fault.kind, kind, "{fault}");
    }
}

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
    let features: Vec<_> = report.features.iter().copied().collect();
    assert!(
        features.contains(&"avx2") && features.contains(&"bmi1"),
        "{features:?}"
    );
    assert!(!features.contains(&"bmi2"), "{features:?}");
}

#[test]
fn a_report_reads_well() {
    let text = run(&sound()).unwrap().to_string();
    assert!(text.contains("5 loops") && text.contains("6 key"), "{text}");
}
