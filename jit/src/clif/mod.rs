//! Code for every instruction set that Cranelift knows.
//!
//! ```text
//! VerifiedProgram -> lower (lanes) -> CLIF, once for each entry (entries) -> Cranelift (machine) -> one function after the other
//! ```
//!
//! | bytes of an entry | |
//! | --- | --- |
//! | at a multiple of 64 | a landing pad, where the instruction set has them |
//! | | the function as Cranelift makes it, with a frame of its own |
//! | | its vector constants, reached relative to the instruction pointer |
//!
//! What Cranelift is never asked for: calls, traps, jump tables. So the only addresses that are missing from its code are those
//! of tables. All tables are in the region, since the ways to reach something near differ from one instruction set to the next,
//! and an absolute address is eight bytes in all of them.

mod entries;
mod lanes;
mod lower;
mod machine;

#[cfg(test)]
mod tests;

use std::ops::Range;

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{ExternalName, Function, SourceLoc};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CodegenError, Context, FinalizedMachReloc, FinalizedRelocTarget};
use pktjit_ir::program::TABLE_ALIGN;
use pktjit_ir::{TableId, VerifiedProgram};

use crate::code::{CompiledCode, Entries, ListingEntry, Relocation, StackUse};
use crate::code_buffer::{MAX_CODE, check_len};
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::target::Target;
use entries::Entry;
use lower::Note;

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where Cranelift cannot make it, was built without the instruction set, or the code would be too large.
pub(crate) fn compile(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<CompiledCode, CompileError> {
    let isa = machine::isa(target)?;
    let mut image = Image {
        isa: &*isa,
        target,
        bytes: Vec::new(),
        constants: Vec::new(),
        relocations: Vec::new(),
        listing: Vec::new(),
        stack: StackUse::LEAF,
    };
    let mut append = |entry| image.append(entries::function(entry, program, target, &*isa));
    let entries = Entries {
        lookup: append(Entry::Lookup)?,
        lookup_batch: append(Entry::Batch)?,
        lookup_batch_ptrs: append(Entry::BatchPtrs)?,
    };
    image.align();
    let pool_offset = image.bytes.len();
    check_len(pool_offset, MAX_CODE)?;
    let tables = ConstantPool::in_region(&program.program().tables);
    let (_, tables, region) = tables.finish(pool_offset);
    Ok(CompiledCode {
        target: *target,
        bytes: image.bytes,
        pool_offset,
        constants: image.constants,
        entries,
        tables,
        region,
        relocations: image.relocations,
        listing: image.listing,
        key_len: program.program().layout.len(),
        stack: image.stack,
    })
}

/// The code of `program` for `target` as Cranelift writes it, for instruction sets that nothing here can decode.
///
/// # Errors
/// As [`compile`](crate::compile).
pub fn text(program: &VerifiedProgram, target: &Target) -> Result<String, CompileError> {
    let isa = machine::isa(target)?;
    let mut text = String::new();
    for (name, entry) in [
        ("lookup", Entry::Lookup),
        ("lookup_batch", Entry::Batch),
        ("lookup_batch_ptrs", Entry::BatchPtrs),
    ] {
        let function = entries::function(entry, program, target, &*isa);
        let mut context = Context::for_function(function);
        context.set_disasm(true);
        let code = compiled(&mut context, &*isa)?;
        text.push_str(&format!(
            "{name}:\n{}\n",
            code.vcode.as_deref().unwrap_or("")
        ));
    }
    Ok(text)
}

fn compiled<'a>(
    context: &'a mut Context,
    isa: &dyn TargetIsa,
) -> Result<&'a cranelift_codegen::CompiledCode, CompileError> {
    context
        .compile(isa, &mut ControlPlane::default())
        .map_err(|error| refusal(&error.inner))
}

/// The code of the entries so far.
struct Image<'a> {
    isa: &'a dyn TargetIsa,
    target: &'a Target,
    bytes: Vec<u8>,
    /// Where vector constants are.
    constants: Vec<Range<usize>>,
    relocations: Vec<Relocation>,
    listing: Vec<ListingEntry>,
    stack: StackUse,
}

impl Image<'_> {
    /// Fills up to the next cache line.
    fn align(&mut self) {
        let len = self.bytes.len().next_multiple_of(TABLE_ALIGN);
        self.bytes.resize(len, machine::filler(self.target.isa));
    }

    /// Appends an entry, and returns where it starts.
    fn append(&mut self, function: Function) -> Result<usize, CompileError> {
        self.align();
        let entry = self.bytes.len();
        let landing_pad = machine::landing_pad(self.target.isa);
        self.bytes.extend_from_slice(landing_pad);
        self.list(entry..self.bytes.len(), Note::Entry.location());

        let start = self.bytes.len();
        let mut context = Context::for_function(function);
        let code = compiled(&mut context, self.isa)?;
        let buffer = &code.buffer;
        self.bytes.extend_from_slice(buffer.data());
        for relocation in buffer.relocs() {
            self.relocations.push(self.relocation(start, relocation)?);
        }
        // Each instruction has a location, constants behind the last one have none.
        let mut end = start;
        for place in buffer.get_srclocs_sorted() {
            let first = start + place.start as usize;
            // What Cranelift adds by itself, before the first location, is the frame.
            self.list(end..first, SourceLoc::default());
            end = start + place.end as usize;
            self.list(first..end, place.loc);
        }
        self.constants
            .extend((end < self.bytes.len()).then_some(end..self.bytes.len()));

        let frame = buffer
            .frame_layout()
            .map_or(0, |frame| frame.frame_to_fp_offset);
        self.stack.allocated = self.stack.allocated.max(frame);
        let around = machine::frame_record(self.target.isa);
        self.stack.bytes = self.stack.bytes.max(frame + around);
        Ok(entry)
    }

    /// What Cranelift leaves open: nothing but addresses of tables.
    fn relocation(
        &self,
        start: usize,
        relocation: &FinalizedMachReloc,
    ) -> Result<Relocation, CompileError> {
        match (&relocation.target, relocation.kind, relocation.addend) {
            (FinalizedRelocTarget::ExternalName(ExternalName::User(name)), Reloc::Abs8, 0) => {
                Ok(Relocation {
                    offset: start + relocation.offset as usize,
                    // Names are declared in the order of the tables.
                    table: TableId::new(name.as_u32()),
                })
            }
            _ => Err(CompileError::Bug(format!(
                "Cranelift leaves open {relocation:?}"
            ))),
        }
    }

    /// Lists the instructions in `range`.
    fn list(&mut self, range: Range<usize>, location: SourceLoc) {
        let mut at = range.start;
        while at < range.end {
            self.listing.push(lower::listing_entry(at, location));
            at += machine::instruction_len(self.target.isa, &self.bytes[at..]);
        }
    }
}

/// Why Cranelift does not compile a function.
fn refusal(error: &CodegenError) -> CompileError {
    match error {
        CodegenError::ImplLimitExceeded | CodegenError::CodeTooLarge => {
            CompileError::Unsupported(format!("Cranelift: {error}"))
        }
        _ => CompileError::Bug(format!("Cranelift: {error:?}")),
    }
}
