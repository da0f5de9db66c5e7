//! x86-64, by iced-x86.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter,
    MemorySizeOptions, SymbolResolver, SymbolResult,
};
use pktjit_jit::CompiledCode;

use super::{Disassembled, Names};

/// The instructions of the listing.
pub(super) fn disassemble(code: &CompiledCode, mut names: Names) -> Vec<Disassembled> {
    let listing = code.listing().iter();
    let instructions: Vec<Instruction> = listing.map(|entry| decode(code, entry.offset)).collect();
    let branches = instructions
        .iter()
        .filter(|instruction| is_branch(instruction));
    names.label(branches.map(|branch| branch.near_branch_target() as usize));
    let labels = names.labels.clone();
    let mut formatter = formatter(names);
    let texts = instructions.iter().map(|instruction| {
        let mut text = String::new();
        formatter.format(instruction, &mut text);
        Disassembled {
            label: labels.get(&(instruction.ip() as usize)).cloned(),
            len: instruction.len(),
            text,
        }
    });
    texts.collect()
}

fn decode(code: &CompiledCode, offset: usize) -> Instruction {
    let bytes = &code.bytes()[offset..code.pool_offset()];
    Decoder::with_ip(64, bytes, offset as u64, DecoderOptions::NONE).decode()
}

fn is_branch(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    )
}

fn formatter(names: Names) -> IntelFormatter {
    let mut formatter = IntelFormatter::with_options(Some(Box::new(names)), None);
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

impl SymbolResolver for Names {
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
            let (start, name) = self.in_pool(here)?;
            return Some(SymbolResult::with_str(start as u64, name));
        }
        let (_, table) = self
            .relocations
            .range(ip..instruction.next_ip() as usize)
            .next()?;
        Some(SymbolResult::with_string(address, table.to_string()))
    }
}
