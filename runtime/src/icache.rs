//! Makes sealed code visible to the instruction fetch of every core, before its address is handed out.

/// On x86-64 there is nothing to do: stores invalidate what was fetched from the same line, and an address that comes
/// back has been through `munmap`, whose TLB shootdown serialises every core that ran there.
///
/// Code is generated for x86-64 alone so far. A target whose caches do not snoop has to flush all of `code` here, the
/// pool behind it included.
pub(crate) fn synchronize(code: &[u8]) {
    let _ = code;
}
