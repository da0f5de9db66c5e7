//! Bytes at the very end of readable memory, so that reading one more is a crash and not luck.

use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

/// A copy of some bytes whose end is the end of a page before an inaccessible one.
pub struct GuardedBytes {
    base: NonNull<u8>,
    /// Bytes of the whole mapping, the inaccessible page included.
    mapped: usize,
    /// Where the copy starts in the mapping.
    start: usize,
    len: usize,
}

impl GuardedBytes {
    /// Copies `bytes` to the end of fresh pages.
    ///
    /// # Panics
    /// Where there is no memory.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        // SAFETY: asks for a number, and every Linux knows this one.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let readable = bytes.len().next_multiple_of(page).max(page);
        let mapped = readable + page;
        // SAFETY: a private anonymous mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(base != libc::MAP_FAILED, "no memory for {mapped} bytes");
        let base: *mut u8 = base.cast();
        let start = readable - bytes.len();
        // SAFETY: `start..readable` and the last page lie inside the mapping, which nobody else knows of.
        let protected = unsafe {
            base.add(start)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            libc::mprotect(base.add(readable).cast(), page, libc::PROT_NONE)
        };
        assert_eq!(protected, 0, "the last page could not be protected");
        Self {
            base: NonNull::new(base).expect("mmap gives no null page"),
            mapped,
            start,
            len: bytes.len(),
        }
    }
}

impl Deref for GuardedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the readable part of the mapping ends at `start + len`, was written by `new`, and stays until the drop.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(self.start), self.len) }
    }
}

impl Drop for GuardedBytes {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and slices of it do not outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_a_copy_at_the_end_of_a_page() {
        for len in [0, 1, 8, 4095, 4096, 4097] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let guarded = GuardedBytes::new(&bytes);
            assert_eq!(*guarded, bytes[..]);
            assert_eq!((guarded.as_ptr().addr() + len) % 4096, 0);
        }
    }

    #[test]
    fn one_byte_further_is_a_crash() {
        let guarded = GuardedBytes::new(&[1, 2, 3]);
        let end = guarded.as_ptr_range().end;
        // SAFETY: the child only reads a byte and exits; that the byte is not readable is what the test is about.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let byte = end.read_volatile();
                libc::_exit(i32::from(byte));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        assert!(libc::WIFSIGNALED(status), "{status}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    }
}
