//! What generated code leaves as it found it, seen from assembly: registers, flags, and the stack.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use std::arch::naked_asm;

use pktjit::{Classifier, Cpu, EngineKind, Structure};

const RBX: u64 = 0x0101_0101_0101_0101;
const RBP: u64 = 0x0202_0202_0202_0202;
const R12: u64 = 0x0303_0303_0303_0303;
const R13: u64 = 0x0404_0404_0404_0404;
const R14: u64 = 0x0505_0505_0505_0505;
const R15: u64 = 0x0606_0606_0606_0606;
/// What the 4 KiB below the frame are filled with.
const STACK: u64 = 0x0707_0707_0707_0707;

/// What a call left behind.
#[derive(Debug, Default)]
#[repr(C)]
struct After {
    rax: u64,
    /// rbx, rbp, r12, r13, r14, r15.
    saved: [u64; 6],
    flags: u64,
    /// 8-byte words below the frame that are not [`STACK`] any more: 0 or 1.
    stack_changed: u64,
    /// The upper halves of all ymm registers, ORed.
    upper: [u64; 2],
    /// Bytes of stack that the code may use, the return address included; set by the caller.
    frame: u64,
}

/// Calls `code` with the four arguments, known values in every register that it must preserve, and clean ymm registers.
///
/// # Safety
/// `code` is a function that may be called with these arguments, and the CPU has AVX2.
#[unsafe(naked)]
unsafe extern "sysv64" fn call(code: *const u8, arguments: &[usize; 4], after: &mut After) {
    naked_asm!(
        "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15", "push rdx",
        // Behind these seven and our return address the stack is aligned, as the convention asks before a call.
        "mov r11, rdi",
        "mov r10, rsi",
        "lea rdi, [rsp - 4096]",
        "sub rdi, [rdx + 88]",
        "mov ecx, 512",
        "movabs rax, {stack}",
        "rep stosq",
        "mov rdi, [r10]", "mov rsi, [r10 + 8]", "mov rdx, [r10 + 16]", "mov rcx, [r10 + 24]",
        "movabs rbx, {rbx}", "movabs rbp, {rbp}",
        "movabs r12, {r12}", "movabs r13, {r13}", "movabs r14, {r14}", "movabs r15, {r15}",
        "vzeroupper",
        "call r11",
        "mov rdx, [rsp]",
        "mov [rdx], rax",
        "mov [rdx + 8], rbx", "mov [rdx + 16], rbp",
        "mov [rdx + 24], r12", "mov [rdx + 32], r13", "mov [rdx + 40], r14", "mov [rdx + 48], r15",
        "pushfq", "pop rax", "mov [rdx + 56], rax",
        "cld",
        "lea rdi, [rsp - 4096]",
        "sub rdi, [rdx + 88]",
        "mov ecx, 512",
        "movabs rax, {stack}",
        "repe scasq",
        "setne al", "movzx eax, al", "mov [rdx + 64], rax",
        // xmm0 and xmm1 are free now, their upper halves are not yet looked at.
        "vextracti128 xmm0, ymm0, 1", "vextracti128 xmm1, ymm1, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm2, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm3, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm4, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm5, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm6, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm7, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm8, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm9, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm10, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm11, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm12, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm13, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm14, 1", "vpor xmm0, xmm0, xmm1",
        "vextracti128 xmm1, ymm15, 1", "vpor xmm0, xmm0, xmm1",
        "vmovdqu [rdx + 72], xmm0",
        "vzeroupper",
        "pop rdx", "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
        "ret",
        stack = const STACK,
        rbx = const RBX,
        rbp = const RBP,
        r12 = const R12,
        r13 = const R13,
        r14 = const R14,
        r15 = const R15,
    )
}

fn assert_left_alone(after: &After, what: &str) {
    assert_eq!(
        after.saved,
        [RBX, RBP, R12, R13, R14, R15],
        "{what}: saved registers"
    );
    assert_eq!(after.flags & 1 << 10, 0, "{what}: direction flag");
    assert_eq!(after.stack_changed, 0, "{what}: stack below the frame");
    assert_eq!(
        after.upper, [0; 2],
        "{what}: upper halves of vector registers"
    );
}

/// Calls all entries of `classifier` for hits and misses.
fn check(classifier: &Classifier) {
    let raw = classifier.raw().unwrap();
    let before = || After {
        frame: classifier.stats().stack_bytes as u64,
        ..After::default()
    };
    let keys = common::keys(200);
    let expected = common::rows(classifier, &keys);
    for (key, &row) in keys.chunks(6).zip(&expected) {
        let mut after = before();
        // SAFETY: `lookup` takes the address of a key; the test runs with AVX2 only.
        unsafe {
            call(
                raw.lookup as *const u8,
                &[key.as_ptr().addr(), 0, 0, 0],
                &mut after,
            )
        };
        assert_eq!(after.rax as u32, row);
        assert_left_alone(&after, "lookup");
    }
    let addresses: Vec<*const u8> = keys.chunks(6).map(<[u8]>::as_ptr).collect();
    for n in [0, 1, 31, 200] {
        let mut out = vec![0; n];
        let mut after = before();
        let arguments = [
            keys.as_ptr().expose_provenance(),
            6,
            n,
            out.as_mut_ptr().expose_provenance(),
        ];
        // SAFETY: the arguments of `lookup_batch`: n keys of six bytes, and room for n results.
        unsafe { call(raw.lookup_batch as *const u8, &arguments, &mut after) };
        assert_eq!(out, expected[..n]);
        assert_left_alone(&after, "lookup_batch");

        let mut out = vec![0; n];
        let arguments = [
            addresses.as_ptr().expose_provenance(),
            n,
            out.as_mut_ptr().expose_provenance(),
            0,
        ];
        // SAFETY: the arguments of `lookup_batch_ptrs`: n addresses of keys, and room for n results.
        unsafe { call(raw.lookup_batch_ptrs as *const u8, &arguments, &mut after) };
        assert_eq!(out, expected[..n]);
        assert_left_alone(&after, "lookup_batch_ptrs");
    }
}

#[test]
fn calls_leave_registers_flags_and_stack_as_they_were() {
    if Cpu::host().avx2.is_err() {
        return;
    }
    for rules in [common::small(), common::many(20), common::many(500)] {
        let mut checked = 0;
        for structure in Structure::ALL {
            for engine in [EngineKind::Avx2, EngineKind::Cranelift] {
                let builder = Classifier::builder().engine(engine);
                if let Ok(classifier) = builder.structure(structure).compile(&rules) {
                    check(&classifier);
                    checked += 1;
                }
            }
        }
        assert!(checked >= 4, "only {checked} structures hold the rules");
    }
}

#[test]
fn entries_are_landing_pads() {
    if Cpu::host().avx2.is_err() {
        return;
    }
    for engine in [EngineKind::Avx2, EngineKind::Cranelift] {
        let builder = Classifier::builder().engine(engine);
        let classifier = builder.compile(&common::many(100)).unwrap();
        let raw = classifier.raw().unwrap();
        for entry in [
            raw.lookup as *const u8,
            raw.lookup_batch as *const u8,
            raw.lookup_batch_ptrs as *const u8,
        ] {
            assert_eq!(entry.addr() % 64, 0);
            // SAFETY: code is readable, and longer than one instruction.
            let first = unsafe { entry.cast::<[u8; 4]>().read() };
            assert_eq!(first, [0xf3, 0x0f, 0x1e, 0xfa], "endbr64");
        }
    }
}

#[test]
fn the_call_notices_what_it_looks_for() {
    if Cpu::host().avx2.is_err() {
        return;
    }
    #[unsafe(naked)]
    unsafe extern "sysv64" fn careless() {
        naked_asm!(
            "mov r13, 1",
            "push r13",
            "pop r13",
            "vpcmpeqd ymm9, ymm9, ymm9",
            "std",
            "ret"
        )
    }
    let mut after = After {
        frame: 8,
        ..After::default()
    };
    // SAFETY: breaks the calling convention only where `call` repairs it.
    unsafe { call(careless as *const u8, &[0; 4], &mut after) };
    assert_eq!(after.saved, [RBX, RBP, R12, 1, R14, R15]);
    assert_eq!(after.flags >> 10 & 1, 1);
    assert_eq!(after.stack_changed, 1);
    assert_eq!(after.upper, [u64::MAX; 2]);
}
