//! Memory that generated code and its tables live in: written once, then sealed for good.
//!
//! What holds at every moment: no byte of memory is writable and executable at once; sealed memory has no writable alias
//! and is never written again; it is unmapped when its owner is dropped.
//!
//! The default, [`OsMemory`], gives each image private anonymous pages of its own: mapped readable and writable, filled,
//! then made readable and executable. The other way, a memfd mapped twice (once to write, once to run), was measured and
//! rejected. Publishing one page takes 31 us that way against 12 us. Only an arena that keeps its writable alias for ever is
//! faster (0.4 us, of a compile that takes a hundred times as long), and such an alias is what W^X is about; being
//! `MAP_SHARED`, it even lets a forked child edit its parent's code; and `vm.memfd_noexec` may forbid it.
//!
//! An image takes whole pages, 4 KiB at least. Large tables are read at random, and with 4 KiB pages nearly every read would
//! miss the TLB too: from 2 MiB on they start and end at huge pages, and the kernel is advised to use these. Only advice: where
//! it has none at hand, small ones serve. Code is never on them.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};

use memmap2::{Mmap, MmapMut};
use thiserror::Error;

/// What sealed memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Tables: readable.
    Read,
    /// Code and its constants: readable and executable.
    Execute,
}

/// Why there is no memory for an image.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The operating system, or a policy that it enforces, said no.
    #[error("no memory of {len} bytes to {}: {source}", match .access { Access::Read => "read", Access::Execute => "execute" })]
    Refused {
        /// Bytes asked for.
        len: usize,
        /// What they were for.
        access: Access,
        /// The operating system's words.
        source: io::Error,
    },
    /// A policy against executable memory refused some earlier, and is not asked again.
    #[error("executable memory was refused before: {0}")]
    RefusedBefore(String),
}

/// Where code and tables are put; embedders may bring their own.
///
/// # Safety
/// What [`seal`](Self::seal) returns holds exactly the bytes that `fill` left, starts at a multiple of 64, permits the
/// access asked for, and neither moves, nor changes, nor goes away before it is dropped.
pub unsafe trait CodeMemory: Send + Sync {
    /// Hands `len` zeroed, writable bytes to `fill`, which is called once, and seals them.
    ///
    /// `len` is at least 1.
    ///
    /// # Errors
    /// Where memory of that kind is not to be had.
    fn seal(
        &self,
        len: usize,
        access: Access,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Box<dyn SealedMemory>, MemoryError>;
}

/// Memory that will not change any more; freed when dropped.
pub trait SealedMemory: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// For how many of them the operating system took the advice to use huge pages; whether it does is up to it.
    fn huge_page_bytes(&self) -> usize {
        0
    }
}

/// A huge page, and the size from which on tables are put on some.
const HUGE_PAGE: usize = 2 << 20;

/// Sealed pages.
struct Pages {
    map: Mmap,
    /// The part that was asked for; what is around it for alignment is never touched and so takes no memory.
    asked: Range<usize>,
    is_advised: bool,
}

impl SealedMemory for Pages {
    fn bytes(&self) -> &[u8] {
        &self.map[self.asked.clone()]
    }

    fn huge_page_bytes(&self) -> usize {
        if self.is_advised { self.asked.len() } else { 0 }
    }
}

/// Pages from the operating system.
#[derive(Debug, Default)]
pub struct OsMemory {
    /// Set once a policy has refused executable memory: it would say the same again, and log each attempt.
    refusal: OnceLock<String>,
}

impl OsMemory {
    /// The one that every classifier uses unless told otherwise.
    pub(crate) fn shared() -> Arc<dyn CodeMemory> {
        static SHARED: LazyLock<Arc<OsMemory>> = LazyLock::new(Arc::default);
        Arc::clone(&SHARED) as Arc<dyn CodeMemory>
    }
}

// SAFETY:
// - `map_anon` maps fresh zeroed pages of `len` bytes at least, page-aligned, private, without an alias; of large tables
//   `asked` begins at the first huge page, and `len` bytes are left behind it, since one more than they need was mapped.
// - `fill` has them alone; afterwards `make_exec` and `make_read_only` consume the writable handle, and a `Mmap` has no
//   safe way to write, move or unmap before it is dropped.
// - Both return an error where the protection could not be had; then the pages are unmapped.
unsafe impl CodeMemory for OsMemory {
    fn seal(
        &self,
        len: usize,
        access: Access,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Box<dyn SealedMemory>, MemoryError> {
        if access == Access::Execute
            && let Some(refusal) = self.refusal.get()
        {
            return Err(MemoryError::RefusedBefore(refusal.clone()));
        }
        let refused = |source| MemoryError::Refused {
            len,
            access,
            source,
        };
        let is_large = access == Access::Read && len >= HUGE_PAGE;
        let mapped = if is_large {
            // Whole huge pages, and one more to begin at one.
            len.saturating_add(2 * HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE
        } else {
            len
        };
        let mut pages = MmapMut::map_anon(mapped).map_err(refused)?;
        let start = if is_large {
            pages.as_ptr().addr().wrapping_neg() % HUGE_PAGE
        } else {
            0
        };
        let asked = start..start + len;
        let is_advised = is_large && advise_huge_pages(&pages);
        fill(&mut pages[asked.clone()]);
        let sealed = match access {
            Access::Read => pages.make_read_only(),
            Access::Execute => pages.make_exec().inspect(guard_branches),
        };
        match sealed {
            Ok(map) => Ok(Box::new(Pages {
                map,
                asked,
                is_advised,
            })),
            Err(source) => {
                if source.kind() == io::ErrorKind::PermissionDenied {
                    self.refusal.get_or_init(|| source.to_string());
                }
                Err(refused(source))
            }
        }
    }
}

/// Where the CPU can, lets indirect branches into the pages land on `bti` alone, which is what entries start with.
fn guard_branches(pages: &Mmap) {
    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    if std::arch::is_aarch64_feature_detected!("bti") {
        const PROT_BTI: libc::c_int = 0x10;
        let protection = libc::PROT_READ | libc::PROT_EXEC | PROT_BTI;
        // SAFETY: `pages` are whole pages that stay as readable and executable as they are, and belong to the caller.
        // Where the kernel refuses, they stay unguarded.
        unsafe { libc::mprotect(pages.as_ptr().cast_mut().cast(), pages.len(), protection) };
    }
    #[cfg(not(all(target_os = "linux", target_arch = "aarch64")))]
    let _ = pages;
}

/// Whether the kernel takes the advice.
fn advise_huge_pages(pages: &MmapMut) -> bool {
    #[cfg(target_os = "linux")]
    return pages.advise(memmap2::Advice::HugePage).is_ok();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pages;
        false
    }
}

impl fmt::Debug for dyn CodeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CodeMemory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_memory_holds_what_was_filled_in() {
        for access in [Access::Read, Access::Execute] {
            for len in [1, 4095, 4096, 4097, (4 << 20) + 1] {
                let sealed = OsMemory::default()
                    .seal(len, access, &mut |bytes| {
                        assert!(bytes.iter().all(|&byte| byte == 0));
                        bytes[0] = 1;
                        bytes[len - 1] = 2;
                    })
                    .unwrap();
                assert_eq!(sealed.bytes().len(), len);
                assert_eq!(sealed.bytes()[len - 1], 2);
                assert_eq!(sealed.bytes().as_ptr().addr() % 64, 0);
            }
        }
    }

    #[test]
    fn large_tables_alone_begin_at_a_huge_page() {
        for (len, access) in [
            (HUGE_PAGE, Access::Read),
            (3 * HUGE_PAGE + 1, Access::Read),
            (HUGE_PAGE - 1, Access::Read),
            (2 * HUGE_PAGE, Access::Execute),
        ] {
            let sealed = OsMemory::default();
            let sealed = sealed
                .seal(len, access, &mut |bytes| bytes.fill(7))
                .unwrap();
            assert_eq!(sealed.bytes().len(), len);
            let (start, huge) = (sealed.bytes().as_ptr().addr(), sealed.huge_page_bytes());
            if access == Access::Read && len >= HUGE_PAGE {
                assert_eq!(start % HUGE_PAGE, 0, "{len}");
                // A kernel may be built without them.
                assert!(huge == len || huge == 0, "{huge} of {len}");
            } else {
                assert_eq!(huge, 0, "{len} {access:?}");
            }
        }
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        for len in [isize::MAX as usize, 1 << 60] {
            let sealed = OsMemory::default().seal(len, Access::Read, &mut |_| unreachable!());
            assert!(matches!(sealed, Err(MemoryError::Refused { .. })), "{len}");
        }
    }

    #[test]
    fn a_policy_is_asked_once() {
        let memory = OsMemory::default();
        memory.refusal.set("not here".into()).unwrap();
        let code = memory.seal(64, Access::Execute, &mut |_| unreachable!());
        assert!(matches!(code, Err(MemoryError::RefusedBefore(_))));
        assert!(memory.seal(64, Access::Read, &mut |_| ()).is_ok());
    }
}
