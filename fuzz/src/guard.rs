//! Bytes at the very end or start of readable memory, so that reading one more is a crash and not luck.

use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

/// A copy of some bytes in fresh pages, between two inaccessible ones.
pub struct GuardedBytes {
    base: NonNull<u8>,
    /// Bytes of the whole mapping, the inaccessible pages included.
    mapped: usize,
    /// Where the copy starts in the mapping.
    start: usize,
    len: usize,
}

impl GuardedBytes {
    /// Copies `bytes` to where one byte more could not be read.
    ///
    /// # Panics
    /// Where there is no memory.
    #[must_use]
    pub fn at_end(bytes: &[u8]) -> Self {
        Self::new(bytes, |free| free)
    }

    /// Copies `bytes` to where the byte before the first could not be read.
    ///
    /// # Panics
    /// Where there is no memory.
    #[must_use]
    pub fn at_start(bytes: &[u8]) -> Self {
        Self::new(bytes, |_| 0)
    }

    /// Copies `bytes` to `place(free)`, counted from the first readable byte, where `free` readable bytes are left over.
    fn new(bytes: &[u8], place: fn(usize) -> usize) -> Self {
        // SAFETY: asks for a number, and every Linux knows this one.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let readable = bytes.len().next_multiple_of(page).max(page);
        let mapped = page + readable + page;
        // SAFETY: a private anonymous mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(base != libc::MAP_FAILED, "no memory for {mapped} bytes");
        let base: *mut u8 = base.cast();
        // SAFETY: the pages between the first and the last lie inside the mapping, which nobody else knows of.
        let protected = unsafe {
            libc::mprotect(
                base.add(page).cast(),
                readable,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        assert_eq!(protected, 0, "the pages could not be made readable");
        let start = page + place(readable - bytes.len()).min(readable - bytes.len());
        // SAFETY: `start..start + bytes.len()` lies inside the pages that were just made writable, see the line above.
        unsafe {
            base.add(start)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
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
        // SAFETY: `start..start + len` is readable, was written by `new`, and stays until the drop.
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

    const LENGTHS: [usize; 6] = [0, 1, 8, 4095, 4096, 4097];

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| i as u8).collect()
    }

    #[test]
    fn the_bytes_are_a_copy_at_the_end_of_a_page() {
        for bytes in LENGTHS.map(bytes) {
            let guarded = GuardedBytes::at_end(&bytes);
            assert_eq!(*guarded, bytes[..]);
            assert_eq!((guarded.as_ptr().addr() + bytes.len()) % 4096, 0);
        }
    }

    #[test]
    fn the_bytes_are_a_copy_at_the_start_of_a_page() {
        for bytes in LENGTHS.map(bytes) {
            let guarded = GuardedBytes::at_start(&bytes);
            assert_eq!(*guarded, bytes[..]);
            assert_eq!(guarded.as_ptr().addr() % 4096, 0);
        }
    }

    #[test]
    fn one_byte_further_is_a_crash() {
        assert!(crashes(GuardedBytes::at_end(&[1, 2, 3]).as_ptr_range().end));
    }

    #[test]
    fn one_byte_before_is_a_crash() {
        assert!(crashes(
            GuardedBytes::at_start(&[1, 2, 3]).as_ptr().wrapping_sub(1)
        ));
    }

    /// Whether reading the byte there ends the process.
    fn crashes(byte: *const u8) -> bool {
        // SAFETY: the child only reads a byte and exits; that the byte is not readable is what the test is about.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(byte.read_volatile()));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV
    }
}
