//! Finished machine code that still has to be placed: bytes, the tables that they refer to, and the spots that want an
//! address which only the runtime knows.
//!
//! ```text
//! bytes   | lookup | lookup_batch | lookup_batch_ptrs | pool: small tables, vector constants |
//!         0                                           ^ pool_offset (multiple of 64)         len
//! region  | large tables, each at its offset, a multiple of 64 |
//! ```
//!
//! The pool is reached relative to the instruction pointer. Tables in the region are reached by an absolute address that
//! the runtime writes at each relocation, in the code or the pool, before it is sealed.

use std::ops::Range;
use std::sync::Arc;

use pktjit_ir::{TableId, ValueId};

use crate::audit::Profile;
use crate::target::Target;

/// Code of one program for one target. Only [`compile`](crate::compile) makes one.
#[derive(Clone, Debug)]
pub struct CompiledCode {
    pub(crate) target: Target,
    pub(crate) bytes: Vec<u8>,
    pub(crate) pool_offset: usize,
    /// Where in the code constants are, and not instructions.
    pub(crate) constants: Vec<Range<usize>>,
    pub(crate) entries: Entries,
    pub(crate) tables: Vec<Placement>,
    pub(crate) region: Region,
    pub(crate) relocations: Vec<Relocation>,
    pub(crate) listing: Vec<ListingEntry>,
    pub(crate) key_len: usize,
    pub(crate) stack: StackUse,
}

/// What an entry takes of the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackUse {
    /// All bytes, the return address included.
    pub(crate) bytes: u32,
    /// Those below the return address and saved registers.
    pub(crate) allocated: u32,
}

impl StackUse {
    /// The return address alone, where the call puts it on the stack.
    pub(crate) const LEAF: Self = Self {
        bytes: 8,
        allocated: 0,
    };

    /// What suffices for both.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            allocated: self.allocated.max(other.allocated),
        }
    }
}

/// The large tables with their offsets in the region, in ascending order.
pub(crate) type Region = Vec<(usize, Arc<[u8]>)>;

/// Byte offsets of the three entries; each is a multiple of 64 and starts with `endbr64` or `bti c`.
///
/// | entry | arguments, as the C convention passes them | result |
/// | --- | --- | --- |
/// | `lookup` | key | row or `MISS` |
/// | `lookup_batch` | first key, bytes from key to key, n, out | out\[0..n\] |
/// | `lookup_batch_ptrs` | array of n key addresses, n, out | out\[0..n\] |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries {
    /// `lookup(key) -> u32`
    pub lookup: usize,
    /// `lookup_batch(keys, stride, n, out)`
    pub lookup_batch: usize,
    /// `lookup_batch_ptrs(ptrs, n, out)`
    pub lookup_batch_ptrs: usize,
}

/// Where a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Behind the code, at this offset of the code bytes.
    Pool(usize),
    /// In the region of large tables, at this offset.
    Region(usize),
}

/// A spot that wants the absolute address of a table in the region: 8 bytes in the byte order of the target, on x86-64 inside a
/// `mov r64, imm64`, elsewhere in the pool. The bytes there hold zero until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Byte offset of the 8 bytes in the code.
    pub offset: usize,
    /// The table whose first byte is meant.
    pub table: TableId,
}

/// Ties an instruction to what it is there for. Entries are in ascending order of offset, one per machine instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingEntry {
    /// Byte offset of the instruction.
    pub offset: usize,
    /// The IR value that it computes; `None` in prologues, batch loops and jumps.
    pub value: Option<ValueId>,
    /// The table that it reads, if any.
    pub table: Option<TableId>,
    /// What it does where no value says so: `entry`, `loop`, `result`...
    pub note: &'static str,
}

impl CompiledCode {
    /// The target that it was made for.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The code, then the pool.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the pool starts in [`bytes`](Self::bytes).
    #[must_use]
    pub fn pool_offset(&self) -> usize {
        self.pool_offset
    }

    /// Where the entries are.
    #[must_use]
    pub fn entries(&self) -> Entries {
        self.entries
    }

    /// Where each table of the program is.
    #[must_use]
    pub fn tables(&self) -> &[Placement] {
        &self.tables
    }

    /// Bytes that the region of large tables needs; 0 where there are none.
    #[must_use]
    pub fn region_len(&self) -> usize {
        self.region.last().map_or(0, |(at, data)| at + data.len())
    }

    /// Copies the large tables to where the code expects them.
    ///
    /// # Panics
    /// Where `region` is shorter than [`region_len`](Self::region_len).
    pub fn fill_region(&self, region: &mut [u8]) {
        for (at, data) in &self.region {
            region[*at..at + data.len()].copy_from_slice(data);
        }
    }

    /// The spots that want an address.
    #[must_use]
    pub fn relocations(&self) -> &[Relocation] {
        &self.relocations
    }

    /// What each instruction is there for.
    #[must_use]
    pub fn listing(&self) -> &[ListingEntry] {
        &self.listing
    }

    /// Bytes of one key; no more are read.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.key_len
    }

    /// Bytes of stack that a lookup needs: the return address where the call puts it there, saved registers and scratch.
    #[must_use]
    pub fn stack_bytes(&self) -> usize {
        self.stack.bytes as usize
    }

    /// What the code may do beside computing: the profile by which to [`audit`](crate::audit::audit) it.
    #[must_use]
    pub fn profile(&self) -> Profile {
        if self.stack.bytes <= StackUse::LEAF.bytes {
            return Profile::Leaf;
        }
        Profile::Framed {
            scratch: self.stack.allocated,
        }
    }
}
