//! The System V convention of x86-64.

use std::arch::naked_asm;

use pktjit::Cpu;

/// `endbr64`
pub(crate) const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

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
pub(crate) struct After {
    pub(crate) result: u64,
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

impl After {
    /// For a call of code that uses so many bytes of stack.
    pub(crate) fn of_frame(bytes: usize) -> Self {
        Self {
            frame: bytes as u64,
            ..Self::default()
        }
    }
}

/// Calls `code` with the four arguments, known values in every register that it must preserve, and clean ymm registers.
///
/// # Safety
/// `code` is a function that may be called with these arguments, and the CPU has AVX2.
#[unsafe(naked)]
pub(crate) unsafe extern "sysv64" fn call(
    code: *const u8,
    arguments: &[usize; 4],
    after: &mut After,
) {
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

pub(crate) fn assert_left_alone(after: &After, what: &str) {
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
    let mut after = After::of_frame(8);
    // SAFETY: breaks the calling convention only where `call` repairs it.
    unsafe { call(careless as *const u8, &[0; 4], &mut after) };
    assert_eq!(after.saved, [RBX, RBP, R12, 1, R14, R15]);
    assert_eq!(after.flags >> 10 & 1, 1);
    assert_eq!(after.stack_changed, 1);
    assert_eq!(after.upper, [u64::MAX; 2]);
}
