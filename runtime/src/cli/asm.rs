//! Finished code as text: each instruction with the IR value that it computes, labels in place of addresses, and tables by
//! their names.
//!
//! Nothing here depends on where code would be placed: all offsets are those in the code.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter,
    MemorySizeOptions, SymbolResolver, SymbolResult,
};
use pktjit_ir::program::Inst;
use pktjit_ir::{Program, TableId, ValueId};
use pktjit_jit::{CompiledCode, ListingEntry};
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

/// The three entries of `code`, which was compiled from `program`.
pub(super) fn functions(code: &CompiledCode, program: &Program) -> Vec<Function> {
    let entries = code.entries();
    let ends = [
        ("lookup", entries.lookup_batch),
        ("lookup_batch", entries.lookup_batch_ptrs),
        ("lookup_batch_ptrs", code.pool_offset()),
    ];
    let instructions: Vec<Instruction> = code
        .listing()
        .iter()
        .map(|entry| decode(code, entry.offset))
        .collect();
    let labels = labels(&instructions);
    let mut formatter = formatter(Symbols::new(code, program, labels.clone()));
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
            let mut text = String::new();
            formatter.format(instruction, &mut text);
            let bytes = &code.bytes()[entry.offset..entry.offset + instruction.len()];
            lines.push(Line {
                label: labels.get(&entry.offset).cloned(),
                offset: entry.offset,
                bytes: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                text,
                comment: comment(entry, last, &insts),
            });
            last = entry.value;
        }
        functions.push(Function { name, lines });
    }
    functions
}

fn decode(code: &CompiledCode, offset: usize) -> Instruction {
    let bytes = &code.bytes()[offset..code.pool_offset()];
    Decoder::with_ip(64, bytes, offset as u64, DecoderOptions::NONE).decode()
}

/// A name for each place that something jumps to.
fn labels(instructions: &[Instruction]) -> BTreeMap<usize, String> {
    let branches = instructions
        .iter()
        .filter(|instruction| is_branch(instruction));
    let targets: BTreeSet<u64> = branches.map(Instruction::near_branch_target).collect();
    let named = targets.into_iter().zip(1..);
    named
        .map(|(target, number)| (target as usize, format!("L{number}")))
        .collect()
}

fn is_branch(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    )
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

fn formatter(symbols: Symbols) -> IntelFormatter {
    let mut formatter = IntelFormatter::with_options(Some(Box::new(symbols)), None);
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    options.set_space_between_memory_add_operators(true);
    options.set_show_branch_size(false);
    options.set_memory_size_options(MemorySizeOptions::Minimal);
    formatter
}

/// The names of addresses.
struct Symbols {
    labels: BTreeMap<usize, String>,
    /// Where each table in the pool starts, and the constants behind the tables.
    pool: BTreeMap<usize, String>,
    /// Which table's address belongs at an offset of the code.
    relocations: BTreeMap<usize, TableId>,
}

impl Symbols {
    fn new(code: &CompiledCode, program: &Program, labels: BTreeMap<usize, String>) -> Self {
        let relocations = code.relocations().iter();
        let mut pool: BTreeMap<usize, String> = pool_tables(code)
            .map(|(id, start)| (start, id.to_string()))
            .collect();
        pool.insert(constants(code, program).0, "constants".into());
        Self {
            labels,
            pool,
            relocations: relocations
                .map(|relocation| (relocation.offset, relocation.table))
                .collect(),
        }
    }
}

impl SymbolResolver for Symbols {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        let (ip, here) = (instruction.ip() as usize, address as usize);
        if is_branch(instruction) {
            return self
                .labels
                .get(&here)
                .map(|label| SymbolResult::with_str(address, label));
        }
        if instruction.is_ip_rel_memory_operand() {
            let (&start, name) = self.pool.range(..=here).next_back()?;
            return Some(SymbolResult::with_str(start as u64, name));
        }
        let (_, table) = self
            .relocations
            .range(ip..instruction.next_ip() as usize)
            .next()?;
        Some(SymbolResult::with_string(address, table.to_string()))
    }
}
