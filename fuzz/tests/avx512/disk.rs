//! A disk that needs no operating system: it loads itself, switches AVX-512 on, and asks compiled code its questions.
//!
//! ```text
//! disk                          memory
//! sector 0   start-up code      0x07c00   sector 0
//! sector 1.. driver, cases      0x01000   page tables: the first 2 MiB where they are
//!                               0x10000   the driver, behind it code, tables, keys and rows of the cases
//!                               0x9f000   stack, downwards
//! ```
//!
//! For each case the driver writes three lines to port 0xe9: how many keys got another row than expected by `lookup`, by
//! `lookup_batch` and by `lookup_batch_ptrs`. An exception stops the machine, so that lines are missing.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use pktjit_ir::KeyLayout;
use pktjit_jit::{CompiledCode, Placement};

/// Code, keys one after the other, and the row that each must give.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) layout: KeyLayout,
    pub(super) code: CompiledCode,
    pub(super) keys: Vec<u8>,
    pub(super) rows: Vec<u32>,
}

impl Case {
    /// More bytes than the case takes on a disk.
    pub(super) fn bytes(&self) -> usize {
        let results = 16 * self.rows.len();
        self.code.bytes().len() + self.code.region_len() + self.keys.len() + results + 512
    }
}

/// Bytes of cases that a disk takes: what memory has below the stack, less the driver.
pub(super) const CAPACITY: usize = (STACK_LIMIT - DRIVER) as usize - (8 << 10);

const SECTOR: usize = 512;
/// Sectors of one read.
const READ: u16 = 64;
const BOOT: u64 = 0x7c00;
const PAGE_TABLES: u32 = 0x1000;
const DRIVER: u64 = 0x1_0000;
/// 64 KiB of scratch, and some for the driver.
const STACK_LIMIT: u64 = 0x8_c000;
const STACK: u64 = 0x9_f000;
const CASE_BYTES: i32 = 64;

/// The disk with so many cases, which [`CAPACITY`] bounds.
pub(super) fn disk(cases: &[Case]) -> Vec<u8> {
    // The driver is as long whatever the addresses in it are, which are known once it is there.
    let len = driver(0, 0, 0).expect("a driver").len();
    let mut memory = Memory(vec![0; len]);
    let mut table = Vec::new();
    for case in cases {
        table.extend(memory.case(case).map(u64::to_le_bytes).concat());
    }
    let most = cases.iter().map(|case| case.rows.len()).max().unwrap_or(0);
    let out = memory.put(&vec![0; 4 * most]);
    let first = memory.put(&table);
    let code = driver(first, cases.len() as u64, out).expect("a driver");
    memory.0[..code.len()].copy_from_slice(&code);

    assert!(DRIVER as usize + memory.0.len() <= STACK_LIMIT as usize);
    // The rest of the last read goes where the stack is not used yet.
    let unit = usize::from(READ) * SECTOR;
    memory.0.resize(memory.0.len().next_multiple_of(unit), 0);
    let mut disk = boot_sector((memory.0.len() / unit) as u16);
    disk.append(&mut memory.0);
    // A disk of less than a cylinder does not start.
    disk.resize(1 << 20, 0);
    disk
}

/// What is at [`DRIVER`] and above.
struct Memory(Vec<u8>);

impl Memory {
    /// Appends bytes and tells their address.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let start = self.0.len().next_multiple_of(64);
        self.0.resize(start, 0);
        self.0.extend(bytes);
        DRIVER + start as u64
    }

    /// Appends what a case consists of; yields what the driver wants to know of it.
    fn case(&mut self, case: &Case) -> [u64; 8] {
        let code = &case.code;
        let mut region = vec![0; code.region_len()];
        code.fill_region(&mut region);
        let region = self.put(&region);
        let mut bytes = code.bytes().to_vec();
        for relocation in code.relocations() {
            if let Placement::Region(at) = code.tables()[relocation.table.index()] {
                let address = region + at as u64;
                bytes[relocation.offset..][..8].copy_from_slice(&address.to_le_bytes());
            }
        }
        let start = self.put(&bytes);
        let keys = self.put(&case.keys);
        let rows: Vec<u8> = case.rows.iter().flat_map(|row| row.to_le_bytes()).collect();
        let rows = self.put(&rows);
        let (n, stride) = (case.rows.len() as u64, code.key_len() as u64);
        let pointers: Vec<u8> = (0..n)
            .flat_map(|i| (keys + i * stride).to_le_bytes())
            .collect();
        let pointers = self.put(&pointers);
        let entries = code.entries();
        let entry = |offset: usize| start + offset as u64;
        [
            entry(entries.lookup),
            entry(entries.lookup_batch),
            entry(entries.lookup_batch_ptrs),
            keys,
            stride,
            n,
            rows,
            pointers,
        ]
    }
}

/// Loads so many units behind itself and goes there in 64-bit mode, with vectors of 512 bits switched on but for XCR0.
fn boot_sector(units: u16) -> Vec<u8> {
    // What is at fixed places behind the code: how much is left to read, where from and to, and the segments.
    const LEFT: u64 = 0x1b0;
    const PACKET: u64 = 0x1c0;
    const SEGMENTS: u64 = 0x1d8;
    const SEGMENTS_POINTER: u64 = 0x1f0;
    let assemble = || {
        let mut a = CodeAssembler::new(16)?;
        let (mut next, mut failed) = (a.create_label(), a.create_label());
        a.cli()?;
        a.xor(ax, ax)?;
        for segment in [ds, es, ss] {
            a.mov(segment, ax)?;
        }
        a.mov(sp, BOOT as i32)?;
        a.set_label(&mut next)?;
        a.mov(ah, 0x42)?;
        a.mov(si, (BOOT + PACKET) as i32)?;
        a.int(0x13)?;
        a.jc(failed)?;
        a.add(word_ptr(BOOT + PACKET + 6), i32::from(READ) * 32)?;
        a.add(word_ptr(BOOT + PACKET + 8), i32::from(READ))?;
        a.dec(word_ptr(BOOT + LEFT))?;
        a.jnz(next)?;

        a.mov(di, PAGE_TABLES as i32)?;
        a.mov(cx, 0x3000 / 2)?;
        a.xor(ax, ax)?;
        a.cld()?;
        a.rep().stosw()?;
        for (level, entry) in [
            (0, PAGE_TABLES + 0x1003),
            (1, PAGE_TABLES + 0x2003),
            (2, 0x83),
        ] {
            a.mov(dword_ptr(u64::from(PAGE_TABLES + 0x1000 * level)), entry)?;
        }
        // PAE, OSFXSR, OSXMMEXCPT, OSXSAVE.
        a.mov(eax, 0x4_0620)?;
        a.mov(cr4, eax)?;
        a.mov(eax, PAGE_TABLES)?;
        a.mov(cr3, eax)?;
        // EFER.LME.
        a.mov(ecx, 0xc000_0080_u32)?;
        a.rdmsr()?;
        a.or(eax, 0x100)?;
        a.wrmsr()?;
        // Paging, protection, and a coprocessor that is monitored, not emulated.
        a.mov(eax, 0x8000_0013_u32)?;
        a.lgdt(fword_ptr(BOOT + SEGMENTS_POINTER))?;
        a.mov(cr0, eax)?;
        // Far jump to a 32-bit offset in segment 8.
        a.db(&[0x66, 0xea])?;
        a.dd(&[DRIVER as u32])?;
        a.dw(&[8])?;
        a.set_label(&mut failed)?;
        a.hlt()?;
        a.assemble(BOOT)
    };
    let mut sector = assemble().expect("start-up code");
    assert!(sector.len() <= LEFT as usize, "{} bytes", sector.len());
    sector.resize(SECTOR, 0);
    let mut put = |at: u64, bytes: &[u8]| {
        sector[at as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    put(LEFT, &units.to_le_bytes());
    put(PACKET, &[16, 0]);
    put(PACKET + 2, &READ.to_le_bytes());
    put(PACKET + 6, &((DRIVER >> 4) as u16).to_le_bytes());
    put(PACKET + 8, &[1]);
    // Nothing, and 64-bit code.
    put(SEGMENTS + 8, &0x0020_9a00_0000_0000_u64.to_le_bytes());
    put(SEGMENTS_POINTER, &[15, 0]);
    put(
        SEGMENTS_POINTER + 2,
        &((BOOT + SEGMENTS) as u32).to_le_bytes(),
    );
    put(510, &[0x55, 0xaa]);
    sector
}

/// Asks `count` cases whose table is at `first`, and uses `out` for results.
fn driver(first: u64, count: u64, out: u64) -> Result<Vec<u8>, IcedError> {
    const FIELD: [i32; 8] = [0, 8, 16, 24, 32, 40, 48, 56];
    let [lookup, batch, batch_ptrs, keys, stride, n, rows, pointers] = FIELD;
    let mut a = CodeAssembler::new(64)?;
    let mut next_case = a.create_label();
    let mut next_key = a.create_label();
    let mut check = a.create_label();
    let mut next_row = a.create_label();
    let mut next_digit = a.create_label();
    let mut is_decimal = a.create_label();
    let mut next_letter = a.create_label();
    let mut text = a.create_label();

    // x87, xmm, ymm, masks, zmm.
    a.xor(ecx, ecx)?;
    a.xor(edx, edx)?;
    a.mov(eax, 0xe7)?;
    a.xsetbv()?;
    a.mov(rsp, STACK)?;
    // An immediate of eight bytes, whatever the address: the length is measured with another one.
    a.db(&[0x48, 0xbb])?;
    a.dq(&[first])?;
    a.db(&[0x49, 0xbc])?;
    a.dq(&[count])?;

    a.set_label(&mut next_case)?;
    a.mov(r13, qword_ptr(rbx + keys))?;
    a.mov(r14, qword_ptr(rbx + n))?;
    a.db(&[0x49, 0xbf])?;
    a.dq(&[out])?;
    a.set_label(&mut next_key)?;
    a.mov(rdi, r13)?;
    a.call(qword_ptr(rbx + lookup))?;
    a.mov(dword_ptr(r15), eax)?;
    a.add(r15, 4)?;
    a.add(r13, qword_ptr(rbx + stride))?;
    a.dec(r14)?;
    a.jnz(next_key)?;
    a.call(check)?;

    a.mov(rdi, qword_ptr(rbx + keys))?;
    a.mov(rsi, qword_ptr(rbx + stride))?;
    a.mov(rdx, qword_ptr(rbx + n))?;
    a.db(&[0x48, 0xb9])?;
    a.dq(&[out])?;
    a.call(qword_ptr(rbx + batch))?;
    a.call(check)?;

    a.mov(rdi, qword_ptr(rbx + pointers))?;
    a.mov(rsi, qword_ptr(rbx + n))?;
    a.db(&[0x48, 0xba])?;
    a.dq(&[out])?;
    a.call(qword_ptr(rbx + batch_ptrs))?;
    a.call(check)?;

    a.add(rbx, CASE_BYTES)?;
    a.dec(r12)?;
    a.jnz(next_case)?;
    // What makes Bochs end.
    a.lea(rsi, ptr(text))?;
    a.mov(edx, 0x8900)?;
    a.mov(ecx, 8)?;
    a.set_label(&mut next_letter)?;
    a.lodsb()?;
    a.out(dx, al)?;
    a.dec(ecx)?;
    a.jnz(next_letter)?;
    a.hlt()?;
    a.set_label(&mut text)?;
    a.db(b"Shutdown")?;

    // Counts the results that are wrong, spoils them all, and writes `@` and the count in hexadecimal.
    a.set_label(&mut check)?;
    a.xor(ebp, ebp)?;
    a.mov(rcx, qword_ptr(rbx + n))?;
    a.mov(rsi, qword_ptr(rbx + rows))?;
    a.db(&[0x48, 0xbf])?;
    a.dq(&[out])?;
    a.set_label(&mut next_row)?;
    a.lodsd()?;
    a.cmp(eax, dword_ptr(rdi))?;
    a.setne(al)?;
    a.movzx(eax, al)?;
    a.add(ebp, eax)?;
    a.mov(dword_ptr(rdi), 0x5a5a_5a5a)?;
    a.add(rdi, 4)?;
    a.dec(rcx)?;
    a.jnz(next_row)?;
    a.mov(al, i32::from(b'@'))?;
    a.out(0xe9, al)?;
    a.mov(ecx, 8)?;
    a.set_label(&mut next_digit)?;
    a.rol(ebp, 4)?;
    a.mov(eax, ebp)?;
    a.and(eax, 15)?;
    a.add(eax, i32::from(b'0'))?;
    a.cmp(eax, i32::from(b'9'))?;
    a.jbe(is_decimal)?;
    a.add(eax, i32::from(b'a' - b'9' - 1))?;
    a.set_label(&mut is_decimal)?;
    a.out(0xe9, al)?;
    a.dec(ecx)?;
    a.jnz(next_digit)?;
    a.mov(al, i32::from(b'\n'))?;
    a.out(0xe9, al)?;
    a.ret()?;
    a.assemble(DRIVER)
}
