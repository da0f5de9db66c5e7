//! Finished code as text: each instruction with the IR value that it computes, labels in place of addresses, and tables by
//! their names.
//!
//! Nothing here depends on where code would be placed: all offsets are those in the code.

mod a64;
mod x64;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use pktjit_ir::program::Inst;
use pktjit_ir::{Program, TableId, ValueId};
use pktjit_jit::{CompiledCode, Generator, Isa, ListingEntry, Target};
use serde::Serialize;

use super::tables::{constants, pool_tables};

/// The code of one entry.
#[derive(Serialize)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) lines: Vec<Line>,
}

/// One instruction.
#[derive(Serialize)]
pub(super) struct Line {
    /// The label in front of it, if something jumps here.
    label: Option<String>,
    offset: usize,
    /// In hexadecimal.
    bytes: String,
    text: String,
    /// The IR value that it computes, or what it is there for.
    comment: String,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.name)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            label,
            offset,
            bytes,
            text,
            comment,
        } = self;
        if let Some(label) = label {
            writeln!(f, "{label}:")?;
        }
        write!(f, "  {offset:4x}  {bytes:<20}  {text:<44}  ; {comment}")
    }
}

/// Whether code for `target` can be read here; Cranelift shows what it makes for other instruction sets itself.
pub(super) fn is_read(target: &Target) -> bool {
    matches!(
        (target.isa, target.generator),
        (Isa::X86_64, _) | (Isa::AArch64, Generator::Own)
    )
}

/// The three entries of `code`, which was compiled from `program`.
pub(super) fn functions(code: &CompiledCode, program: &Program) -> Vec<Function> {
    let entries = code.entries();
    let ends = [
        ("lookup", entries.lookup_batch),
        ("lookup_batch", entries.lookup_batch_ptrs),
        ("lookup_batch_ptrs", code.pool_offset()),
    ];
    let names = Names::new(code, program);
    let instructions = match code.target().isa {
        Isa::AArch64 => a64::disassemble(code, names),
        _ => x64::disassemble(code, names),
    };
    let insts: HashMap<ValueId, Inst> = program
        .blocks
        .iter()
        .flat_map(|block| block.insts.iter().copied())
        .collect();
    let mut all = instructions.iter().zip(code.listing()).peekable();
    let mut functions = Vec::new();
    for (name, end) in ends {
        let mut lines = Vec::new();
        let mut last = None;
        while let Some((instruction, entry)) = all.next_if(|(_, entry)| entry.offset < end) {
            let bytes = &code.bytes()[entry.offset..entry.offset + instruction.len];
            lines.push(Line {
                label: instruction.label.clone(),
                offset: entry.offset,
                bytes: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                text: instruction.text.clone(),
                comment: comment(entry, last, &insts),
            });
            last = entry.value;
        }
        functions.push(Function { name, lines });
    }
    functions
}

/// An instruction of the listing.
struct Disassembled {
    /// The label in front of it.
    label: Option<String>,
    len: usize,
    text: String,
}

/// What an instruction is there for. Several may compute one value: the first one tells what it is.
fn comment(entry: &ListingEntry, last: Option<ValueId>, insts: &HashMap<ValueId, Inst>) -> String {
    let mut comment = match entry.value {
        None => entry.note.to_owned(),
        Some(value) => match insts.get(&value).filter(|_| last != Some(value)) {
            None => value.to_string(),
            Some(inst) => format!("{value} = {inst}"),
        },
    };
    if let Some(table) = entry.table {
        comment.push_str(&format!(", reads {table}"));
    }
    comment
}

/// The names of addresses.
struct Names {
    labels: BTreeMap<usize, String>,
    /// Where each table in the pool starts, and the constants behind the tables.
    pool: BTreeMap<usize, String>,
    /// Which table's address belongs at an offset of the code or the pool.
    relocations: BTreeMap<usize, TableId>,
}

impl Names {
    fn new(code: &CompiledCode, program: &Program) -> Self {
        let relocations = code.relocations().iter();
        let mut pool: BTreeMap<usize, String> = pool_tables(code)
            .map(|(id, start)| (start, id.to_string()))
            .collect();
        pool.insert(constants(code, program).0, "constants".into());
        Self {
            labels: BTreeMap::new(),
            pool,
            relocations: relocations
                .map(|relocation| (relocation.offset, relocation.table))
                .collect(),
        }
    }

    /// Names each place that something jumps to.
    fn label(&mut self, targets: impl Iterator<Item = usize>) {
        let targets: BTreeSet<usize> = targets.collect();
        let named = targets.into_iter().zip(1..);
        self.labels = named
            .map(|(target, number)| (target, format!("L{number}")))
            .collect();
    }

    /// What in the pool is at or before `offset`, and where it starts.
    fn in_pool(&self, offset: usize) -> Option<(usize, &str)> {
        let (&start, name) = self.pool.range(..=offset).next_back()?;
        Some((start, name))
    }
}
