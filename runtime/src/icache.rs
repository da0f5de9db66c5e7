//! Makes sealed code visible to the instruction fetch of every core, before its address is handed out.

/// On x86-64 there is nothing to do: stores invalidate what was fetched from the same line, and an address that comes
/// back has been through `munmap`, whose TLB shootdown serialises every core that ran there.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn synchronize(_code: &[u8]) {}

/// On AArch64 instructions are fetched past the data cache. Each line of `code` is written back to where fetches meet it
/// (`dc cvau`), then what the instruction caches of all cores have of it is invalidated (`ic ivau`), and at last what this core
/// has fetched ahead is dropped (`isb`). Other cores learn the address by a store that comes after; what they could
/// have fetched ahead from a page that was unmapped and mapped again is long through.
#[cfg(target_arch = "aarch64")]
pub(crate) fn synchronize(code: &[u8]) {
    use std::arch::asm;

    let sizes: u64;
    // SAFETY: reads a register that Linux lets every process read.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack, preserves_flags)) };
    // The logarithms of the smallest lines, in words of four bytes.
    let line = |log: u64| 4_usize << (log & 0xf);
    let (data, instructions) = (line(sizes >> 16), line(sizes));
    let bytes = code.as_ptr_range();
    let lines = |size: usize| (bytes.start.addr() & !(size - 1)..bytes.end.addr()).step_by(size);
    // SAFETY: maintenance of caches changes no memory; all addresses are on lines of `code`, which is mapped and readable.
    unsafe {
        for address in lines(data) {
            asm!("dc cvau, {}", in(reg) address, options(nostack, preserves_flags));
        }
        asm!("dsb ish", options(nostack, preserves_flags));
        for address in lines(instructions) {
            asm!("ic ivau, {}", in(reg) address, options(nostack, preserves_flags));
        }
        asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}
