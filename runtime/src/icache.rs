//! Makes sealed code visible to the instruction fetch of every core, before its address is handed out.

/// On x86-64 there is nothing to do: stores invalidate what was fetched from the same line, and an address that comes
/// back has been through `munmap`, whose TLB shootdown serialises every core that ran there.
///
/// On a machine whose caches do not snoop, this flushes all of `code`, the pool behind it included.
pub(crate) fn synchronize(code: &[u8]) {
    let _ = code;
}
