//! The procedure call standard of Arm, 64 bits.

use std::arch::naked_asm;

/// `bti c`
pub(crate) const LANDING_PAD: [u8; 4] = [0x5f, 0x24, 0x03, 0xd5];

/// What x18 to x29 hold before the call, each in all of its bytes: what `mov` can set at once.
const GENERAL: [u64; 12] = [
    0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x03, 0x06, 0x0c, 0x18,
];
const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// What a call left behind.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct After {
    pub(crate) result: u64,
    /// x18, which belongs to the platform, and x19 to x29.
    general: [u64; 12],
    /// d8 to d15.
    vector: [u64; 8],
    /// Bytes of stack that the code may use; set by the caller.
    frame: u64,
    /// Bits that have changed in the 4 KiB below the frame.
    stack_changed: u64,
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

/// Calls `code` with the four arguments, and known values in every register that it must preserve. x30 needs no look: without
/// it the call would not come back.
///
/// # Safety
/// `code` is a function that may be called with these arguments.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call(code: *const u8, arguments: &[usize; 4], after: &mut After) {
    naked_asm!(
        "stp x29, x30, [sp, #-176]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "stp x2, x18, [sp, #160]",
        "ldr x10, [x2, #168]",
        "sub x10, sp, x10",
        "mov x11, #512",
        "mov x12, #0x0707070707070707",
        "2: str x12, [x10, #-8]!",
        "subs x11, x11, #1",
        "b.ne 2b",
        "mov x16, x0",
        "mov x9, x1",
        "ldp x0, x1, [x9]",
        "ldp x2, x3, [x9, #16]",
        "mov x18, #0x0101010101010101",
        "mov x19, #0x0202020202020202",
        "mov x20, #0x0404040404040404",
        "mov x21, #0x0808080808080808",
        "mov x22, #0x1010101010101010",
        "mov x23, #0x2020202020202020",
        "mov x24, #0x4040404040404040",
        "mov x25, #0x8080808080808080",
        "mov x26, #0x0303030303030303",
        "mov x27, #0x0606060606060606",
        "mov x28, #0x0c0c0c0c0c0c0c0c",
        "mov x29, #0x1818181818181818",
        "fmov d8, x18",
        "fmov d9, x19",
        "fmov d10, x20",
        "fmov d11, x21",
        "fmov d12, x22",
        "fmov d13, x23",
        "fmov d14, x24",
        "fmov d15, x25",
        "blr x16",
        "ldr x9, [sp, #160]",
        "stp x0, x18, [x9]",
        "stp x19, x20, [x9, #16]",
        "stp x21, x22, [x9, #32]",
        "stp x23, x24, [x9, #48]",
        "stp x25, x26, [x9, #64]",
        "stp x27, x28, [x9, #80]",
        "str x29, [x9, #96]",
        "stp d8, d9, [x9, #104]",
        "stp d10, d11, [x9, #120]",
        "stp d12, d13, [x9, #136]",
        "stp d14, d15, [x9, #152]",
        "ldr x10, [x9, #168]",
        "sub x10, sp, x10",
        "mov x11, #512",
        "mov x12, #0x0707070707070707",
        "mov x13, #0",
        "2: ldr x14, [x10, #-8]!",
        "eor x14, x14, x12",
        "orr x13, x13, x14",
        "subs x11, x11, #1",
        "b.ne 2b",
        "str x13, [x9, #176]",
        "ldr x18, [sp, #168]",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x27, x28, [sp, #80]",
        "ldp x25, x26, [sp, #64]",
        "ldp x23, x24, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #176",
        "ret",
    )
}

pub(crate) fn assert_left_alone(after: &After, what: &str) {
    let before = GENERAL.map(|byte| byte * EVERY_BYTE);
    assert_eq!(after.general, before, "{what}: x18 to x29");
    assert_eq!(after.vector[..], before[..8], "{what}: d8 to d15");
    assert_eq!(after.stack_changed, 0, "{what}: stack below the frame");
}

#[test]
fn the_call_notices_what_it_looks_for() {
    #[unsafe(naked)]
    unsafe extern "C" fn careless() {
        naked_asm!("mov x21, #1", "fmov d10, x21", "str x21, [sp, #-8]", "ret")
    }
    let mut after = After::default();
    // SAFETY: breaks the calling convention only where `call` repairs it.
    unsafe { call(careless as *const u8, &[0; 4], &mut after) };
    let mut general = GENERAL.map(|byte| byte * EVERY_BYTE);
    let mut vector = general;
    general[3] = 1;
    vector[2] = 1;
    assert_eq!(after.general, general);
    assert_eq!(after.vector[..], vector[..8]);
    assert_ne!(after.stack_changed, 0);
}
