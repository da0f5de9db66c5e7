//! Calls into generated code. The only file that makes function pointers out of bytes.
//!
//! Why calling sealed code is sound, once for all entries:
//! - **It is code.** `pktjit_jit::compile` alone makes a [`CompiledCode`], with each entry at the offset that it declares;
//!   code memory promises to hold just those bytes, executable, for as long as its owner lives ([`CodeMemory`]).
//! - **It runs here.** Code for more than the *detected* CPU offers is refused by [`NativeCode::load`].
//! - **It stays inside.** The program is verified: every table access is in range and every key load is below the length of
//!   the layout. The code reads `key_len` bytes of each key and its tables, writes `out[0..n]`, and returns. The auditor
//!   proves that again from the bytes, where it is asked to.
//! - **It leaves no trace.** It keeps the calling convention that the types of the entries name: `sysv64` on x86-64, elsewhere
//!   that of the system.
//! - **It does not go away.** The pointers are private to [`NativeCode`], which owns the memory.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use pktjit_ir::{KeyRef, MISS};
use pktjit_jit::{CompiledCode, Placement};
use thiserror::Error;

use crate::batch::{self, BatchError};
use crate::code_memory::{Access, CodeMemory, MemoryError, SealedMemory};
use crate::cpu::Cpu;
use crate::icache;

macro_rules! entry_types {
    ($abi:literal) => {
        /// `lookup(key)`: the row of the winner, or [`MISS`](pktjit_ir::MISS).
        pub type LookupFn = unsafe extern $abi fn(key: *const u8) -> u32;
        /// `lookup_batch(keys, stride, n, out)`: the key of `out[i]` starts at `keys + i * stride`.
        pub type LookupBatchFn =
            unsafe extern $abi fn(keys: *const u8, stride: usize, n: usize, out: *mut u32);
        /// `lookup_batch_ptrs(keys, n, out)`: the key of `out[i]` starts at `keys[i]`.
        pub type LookupBatchPtrsFn =
            unsafe extern $abi fn(keys: *const *const u8, n: usize, out: *mut u32);
    };
}

#[cfg(target_arch = "x86_64")]
entry_types!("sysv64");
// The convention of the system is that of the code elsewhere; where no code is generated, the names exist so that callers
// need no `cfg`.
#[cfg(not(target_arch = "x86_64"))]
entry_types!("C");

/// The entries of a classifier's machine code, as function pointers that cost nothing but the call.
///
/// # Safety
/// What a caller of each must see to:
/// - The classifier, or a clone of it, lives until the call returns.
/// - Each key has [`KeyLayout::len`](pktjit_ir::KeyLayout::len) readable bytes.
/// - `out` has room for `n` numbers, which are written before they are read, and overlaps no key; with `n` = 0, pointers
///   are not looked at.
#[derive(Clone, Copy, Debug)]
pub struct RawLookup<'a> {
    /// One key.
    pub lookup: LookupFn,
    /// Keys at equal distances.
    pub lookup_batch: LookupBatchFn,
    /// Keys behind pointers.
    pub lookup_batch_ptrs: LookupBatchPtrsFn,
    owner: std::marker::PhantomData<&'a NativeCode>,
}

/// Machine code in its final place, with the memory that it lives in.
pub struct NativeCode {
    lookup: LookupFn,
    lookup_batch: LookupBatchFn,
    lookup_batch_ptrs: LookupBatchPtrsFn,
    key_len: usize,
    /// Held for its drop: the entries point into it.
    _code: Box<dyn SealedMemory>,
    /// The code points into it.
    tables: Option<Box<dyn SealedMemory>>,
}

// What generated code refers to never changes, so a panic elsewhere cannot leave it half-changed.
impl UnwindSafe for NativeCode {}
impl RefUnwindSafe for NativeCode {}

/// Why compiled code cannot be called here.
#[derive(Debug, Error)]
pub enum LoadError {
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// It was made for a machine with more features.
    #[error("the code is for a machine that has more than this one")]
    Target,
}

impl NativeCode {
    /// Puts `code` and its tables into memory of their own and seals them.
    pub fn load(code: &CompiledCode, memory: &dyn CodeMemory) -> Result<Self, LoadError> {
        if !Cpu::host().runs(code.target()) {
            return Err(LoadError::Target);
        }
        let tables = match code.region_len() {
            0 => None,
            len => Some(memory.seal(len, Access::Read, &mut |region| {
                code.fill_region(region);
            })?),
        };
        let region = tables
            .as_ref()
            .map_or(0, |tables| tables.bytes().as_ptr().expose_provenance());
        let code_memory = memory.seal(code.bytes().len(), Access::Execute, &mut |bytes| {
            bytes.copy_from_slice(code.bytes());
            for relocation in code.relocations() {
                if let Placement::Region(at) = code.tables()[relocation.table.index()] {
                    let address = (region + at) as u64;
                    bytes[relocation.offset..relocation.offset + 8]
                        .copy_from_slice(&address.to_ne_bytes());
                }
            }
        })?;
        let bytes = code_memory.bytes();
        icache::synchronize(bytes);
        let entries = code.entries();
        let at = |offset: usize| bytes[offset..].as_ptr();
        // SAFETY: each offset is where the code declares the entry with that signature; `CompiledCode` is only made by
        // `compile`, for a machine that this one covers (checked above), and the bytes are executable and stay where
        // they are for as long as `_code` lives. Calling is another matter: the types are `unsafe fn`.
        let (lookup, lookup_batch, lookup_batch_ptrs) = unsafe {
            (
                std::mem::transmute::<*const u8, LookupFn>(at(entries.lookup)),
                std::mem::transmute::<*const u8, LookupBatchFn>(at(entries.lookup_batch)),
                std::mem::transmute::<*const u8, LookupBatchPtrsFn>(at(entries.lookup_batch_ptrs)),
            )
        };
        Ok(Self {
            lookup,
            lookup_batch,
            lookup_batch_ptrs,
            key_len: code.key_len(),
            _code: code_memory,
            tables,
        })
    }

    /// Bytes of tables that are advised to be on huge pages.
    pub(crate) fn huge_page_bytes(&self) -> usize {
        (self.tables.as_ref()).map_or(0, |tables| tables.huge_page_bytes())
    }

    /// The entries, for as long as `self` is borrowed.
    pub(crate) fn raw(&self) -> RawLookup<'_> {
        RawLookup {
            lookup: self.lookup,
            lookup_batch: self.lookup_batch,
            lookup_batch_ptrs: self.lookup_batch_ptrs,
            owner: std::marker::PhantomData,
        }
    }

    /// The row of the winner, [`MISS`] also for a key of another length.
    #[inline]
    pub fn lookup(&self, key: KeyRef<'_>) -> u32 {
        let key = key.bytes();
        if key.len() != self.key_len {
            return MISS;
        }
        // SAFETY: see the top of the file; the key has as many bytes as the code reads.
        unsafe { (self.lookup)(key.as_ptr()) }
    }

    /// The rows of the winners for `out.len()` keys, one every `stride` bytes.
    pub fn lookup_batch(
        &self,
        keys: &[u8],
        stride: usize,
        out: &mut [u32],
    ) -> Result<(), BatchError> {
        batch::check_span(keys.len(), stride, out.len(), self.key_len)?;
        // SAFETY: see the top of the file; the last of the keys ends inside `keys`, and `out` is borrowed mutably, so it
        // overlaps nothing.
        unsafe { (self.lookup_batch)(keys.as_ptr(), stride, out.len(), out.as_mut_ptr()) };
        Ok(())
    }

    /// The rows of the winners for the keys.
    pub fn lookup_batch_keys(
        &self,
        keys: &[KeyRef<'_>],
        out: &mut [u32],
    ) -> Result<(), BatchError> {
        batch::check_keys(keys, out.len(), self.key_len)?;
        // The code wants bare addresses, a `KeyRef` has a length besides. They are gathered without an allocation.
        const CHUNK: usize = 64;
        let mut addresses = [std::ptr::null(); CHUNK];
        for (keys, out) in keys.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
            for (address, key) in addresses.iter_mut().zip(keys) {
                *address = key.bytes().as_ptr();
            }
            // SAFETY: see the top of the file; the first `keys.len()` addresses are those of keys whose lengths were
            // checked, and `out` has as many slots, since both slices are equally long and are cut alike.
            unsafe { (self.lookup_batch_ptrs)(addresses.as_ptr(), keys.len(), out.as_mut_ptr()) };
        }
        Ok(())
    }
}

impl fmt::Debug for NativeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeCode")
            .field("key_len", &self.key_len)
            .finish_non_exhaustive()
    }
}
