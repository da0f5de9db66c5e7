//! Bytes of code while they are written, with their labels, relocations and listing.
//!
//! The buffer owns labels and fixups and refuses to finish with a hole: an unbound label or a target out of reach is an
//! error of [`CodeBuffer::finish`], never a wrong jump. It wraps dynasmrt's `VecAssembler`, which writes into plain memory
//! and needs no executable page.
//!
//! Invariants: code, filler up to a multiple of 64, pool; the listing has one entry for each instruction, in order.

use dynasmrt::relocations::Relocation as Fixup;
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, VecAssembler};
use pktjit_ir::TableId;
use pktjit_ir::program::TABLE_ALIGN;

use crate::code::{CompiledCode, Entries, ListingEntry, Relocation, StackUse};
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::target::Target;

/// Most bytes of code, pool included.
pub(crate) const MAX_CODE: usize = 64 << 20;

/// Growable code for the architecture whose fixups `F` describes.
pub(crate) struct CodeBuffer<F: Fixup> {
    /// Where instructions are written.
    pub(crate) assembler: VecAssembler<F>,
    /// The first byte of the pool.
    pub(crate) pool: DynamicLabel,
    /// Fills gaps; stops whoever runs into it.
    filler: u8,
    relocations: Vec<Relocation>,
    listing: Vec<ListingEntry>,
}

impl<F: Fixup> CodeBuffer<F> {
    /// An empty buffer whose gaps are filled with `filler`.
    pub(crate) fn new(filler: u8) -> Self {
        let mut assembler = VecAssembler::new(0);
        let pool = assembler.new_dynamic_label();
        Self {
            assembler,
            pool,
            filler,
            relocations: Vec::new(),
            listing: Vec::new(),
        }
    }

    /// The number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.assembler.offset().0
    }

    /// A label that is not bound yet.
    pub(crate) fn label(&mut self) -> DynamicLabel {
        self.assembler.new_dynamic_label()
    }

    /// Binds a label to the end of the code so far.
    pub(crate) fn bind(&mut self, label: DynamicLabel) {
        self.assembler.dynamic_label(label);
    }

    /// Fills up to the next cache line.
    pub(crate) fn align(&mut self) {
        self.assembler.align(TABLE_ALIGN, self.filler);
    }

    /// Writes into the listing what the next instruction is there for; the offset of `entry` is set here.
    pub(crate) fn list(&mut self, entry: ListingEntry) {
        let offset = self.len();
        self.listing.push(ListingEntry { offset, ..entry });
    }

    /// Notes that the last eight bytes are to become the address of `table`.
    pub(crate) fn relocate(&mut self, table: TableId) {
        let offset = self.len() - 8;
        self.relocations.push(Relocation { offset, table });
    }

    /// Resolves all labels and puts the pool behind the code.
    ///
    /// # Errors
    /// Too much code, or a label that cannot be resolved.
    pub(crate) fn finish(
        mut self,
        pool: ConstantPool,
        entries: Entries,
        target: Target,
        key_len: usize,
        stack: StackUse,
    ) -> Result<CompiledCode, CompileError> {
        self.align();
        let pool_offset = self.len();
        check_len(pool_offset + pool.len(), MAX_CODE)?;
        self.bind(self.pool);
        let mut bytes = self
            .assembler
            .finalize()
            .map_err(|error| CompileError::Bug(error.to_string()))?;
        self.relocations.extend(pool.relocations(pool_offset));
        let (pool_bytes, tables, region) = pool.finish(pool_offset);
        bytes.extend(pool_bytes);
        Ok(CompiledCode {
            target,
            bytes,
            pool_offset,
            constants: Vec::new(),
            entries,
            tables,
            region,
            relocations: self.relocations,
            listing: self.listing,
            key_len,
            stack,
        })
    }
}

/// Checks a number of bytes of code and constants.
pub(crate) fn check_len(bytes: usize, limit: usize) -> Result<(), CompileError> {
    if bytes > limit {
        return Err(CompileError::Limit {
            what: "bytes of code and constants",
            actual: bytes as u64,
            limit: limit as u64,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dynasmrt::x64::X64Relocation;
    use dynasmrt::{DynasmLabelApi, dynasm};

    use super::*;

    fn finish(buffer: CodeBuffer<X64Relocation>) -> Result<CompiledCode, CompileError> {
        let entries = Entries {
            lookup: 0,
            lookup_batch: 0,
            lookup_batch_ptrs: 0,
        };
        let pool = ConstantPool::new(&[]);
        buffer.finish(pool, entries, Target::x86_64_avx2(), 1, StackUse::LEAF)
    }

    #[test]
    fn a_jump_to_nowhere_is_a_bug_not_code() {
        let mut buffer = CodeBuffer::new(0xcc);
        let nowhere = buffer.label();
        dynasm!(buffer.assembler ; .arch x64 ; jmp =>nowhere);
        assert!(matches!(finish(buffer), Err(CompileError::Bug(_))));
    }

    #[test]
    fn code_is_filled_up_to_the_pool() {
        let mut buffer = CodeBuffer::<X64Relocation>::new(0xcc);
        dynasm!(buffer.assembler ; .arch x64 ; ret);
        let code = finish(buffer).expect("no labels");
        assert_eq!(code.pool_offset(), 64);
        assert_eq!(code.bytes()[0], 0xc3);
        assert!(code.bytes()[1..64].iter().all(|&byte| byte == 0xcc));
    }

    #[test]
    fn too_much_code_is_a_limit() {
        assert_eq!(check_len(MAX_CODE, MAX_CODE), Ok(()));
        assert!(matches!(
            check_len(MAX_CODE + 1, MAX_CODE),
            Err(CompileError::Limit { .. })
        ));
    }
}
