//! The code of one entry, decoded: instructions, basic blocks, loops.
//!
//! Instructions come from one sweep over the bytes, so none overlap; branches have to hit their starts. What holds without
//! knowing any register is checked here; `analysis` proves the rest.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Formatter, Instruction,
    InstructionInfoFactory, IntelFormatter, Mnemonic, OpKind, Register,
};
use pktjit_ir::TableId;

use super::registers::{Registers, general};
use super::rules::{self, reads, writes};
use super::stack::{CALLER_SAVED, PAGE};
use super::state::State;
use super::transfer;
use crate::audit::analysis;
use crate::audit::fault::{FaultKind, Faults};
use crate::audit::layout::{Access, Layout};
use crate::audit::{Accesses, AuditReport, Profile};

/// Alignment of an entry.
const ENTRY_ALIGN: usize = 64;

pub(super) type Function = crate::audit::analysis::Function<Op>;
type Block = crate::audit::analysis::Block<ConditionCode>;
type Edge = crate::audit::analysis::Edge<ConditionCode>;

/// One instruction and what the analysis asks of it again and again.
pub(super) struct Op {
    pub(super) instruction: Instruction,
    /// The table whose address the runtime will write into the immediate.
    pub(super) relocated: Option<TableId>,
    /// General registers that may be written.
    pub(super) written: Registers,
    /// What happens to the memory operand, if there is one.
    pub(super) access: Option<Access>,
    /// By how many bytes the loop that this instruction starts moves rsp, if that is one of probes.
    pub(super) probed: Option<u64>,
}

impl analysis::Op for Op {
    type State = State;

    fn place(&self) -> (usize, String) {
        (self.offset(), self.text())
    }

    fn step(
        &self,
        layout: Layout<'_>,
        state: &mut State,
        counts: &mut Accesses,
    ) -> Result<(), (FaultKind, String)> {
        transfer::step(layout, state, self, counts)
    }
}

impl Op {
    pub(super) fn offset(&self) -> usize {
        self.instruction.ip() as usize
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        IntelFormatter::new().format(&self.instruction, &mut text);
        text
    }

    fn ends_block(&self) -> bool {
        self.instruction.flow_control() != FlowControl::Next
    }

    fn is_padding(&self) -> bool {
        matches!(self.instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
    }

    fn branches(&self) -> bool {
        matches!(
            self.instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
        )
    }

    /// Whether execution may go on behind it.
    fn goes_on(&self) -> bool {
        matches!(
            self.instruction.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Call
        )
    }
}

/// Decodes the function whose bytes are `range`. `None` where its control flow is not understood, which is a fault.
pub(super) fn decode(
    layout: Layout<'_>,
    name: &'static str,
    range: Range<usize>,
    profile: Profile,
    report: &mut AuditReport,
    faults: &mut Faults,
) -> Option<Function> {
    let before = faults.len();
    if !range.start.is_multiple_of(ENTRY_ALIGN) || range.is_empty() {
        let detail = format!("the entry is not in the code, at a multiple of {ENTRY_ALIGN}");
        faults.push(FaultKind::MisalignedEntry, Some(name), range.start, detail);
        return None;
    }
    let ops = sweep(layout, name, range, faults)?;
    let mut reader = Reader {
        layout,
        name,
        profile,
        ops,
        targets: BTreeMap::new(),
        faults,
    };
    if reader.ops[0].instruction.code() != Code::Endbr64 {
        reader.fault(FaultKind::MissingEndbr, 0, "the entry is no landing pad");
    }
    let reached = reader.follow();
    let Reader {
        mut ops,
        mut targets,
        ..
    } = reader;
    if faults.len() > before {
        return None;
    }
    let reached_ops = || ops.iter().zip(&reached).filter(|(_, reached)| **reached);
    report.instructions += reached_ops().count();
    for (op, _) in reached_ops() {
        let features = op.instruction.cpuid_features().iter();
        report
            .features
            .extend(features.filter_map(|&f| rules::extension(f)));
    }
    report.loops += probes(&mut ops, &mut targets);
    let blocks = blocks(&ops, &reached, &targets);
    report.blocks += blocks.len();
    let is_back = |edge: &&Edge| edge.is_back;
    report.loops += blocks.iter().flat_map(|b| &b.edges).filter(is_back).count();
    Some(Function { name, ops, blocks })
}

/// All instructions of `range`, one after the other.
fn sweep(
    layout: Layout<'_>,
    name: &'static str,
    range: Range<usize>,
    faults: &mut Faults,
) -> Option<Vec<Op>> {
    let bytes = &layout.code.bytes[range.clone()];
    let mut decoder = Decoder::with_ip(64, bytes, range.start as u64, DecoderOptions::NONE);
    let mut ops = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            let detail = "no instruction, or one that goes on in what follows".into();
            let offset = instruction.ip() as usize;
            faults.push(FaultKind::Undecodable, Some(name), offset, detail);
            return None;
        }
        let immediate = decoder
            .get_constant_offsets(&instruction)
            .immediate_offset();
        let relocated = layout.code.relocations.iter().find(|relocation| {
            instruction.code() == Code::Mov_r64_imm64
                && relocation.offset == instruction.ip() as usize + immediate
        });
        ops.push(Op {
            instruction,
            relocated: relocated.map(|relocation| relocation.table),
            written: Registers::default(),
            access: None,
            probed: None,
        });
    }
    Some(ops)
}

struct Reader<'a> {
    layout: Layout<'a>,
    name: &'static str,
    profile: Profile,
    ops: Vec<Op>,
    /// For each branch the instruction that it goes to, both as positions in `ops`.
    targets: BTreeMap<usize, usize>,
    faults: &'a mut Faults,
}

impl Reader<'_> {
    fn fault(&mut self, kind: FaultKind, op: usize, detail: impl Into<String>) {
        let op = &self.ops[op];
        let at = (op.offset(), op.text());
        self.faults
            .push_at(kind, self.layout.code, self.name, at, detail.into());
    }

    /// Follows all paths from the entry, checks each instruction once, and tells which were reached.
    fn follow(&mut self) -> Vec<bool> {
        let mut reached = vec![false; self.ops.len()];
        let mut pending = vec![0];
        let mut infos = InstructionInfoFactory::new();
        let before = self.faults.len();
        while let Some(i) = pending.pop() {
            if std::mem::replace(&mut reached[i], true) {
                continue;
            }
            self.inspect(i, &mut infos);
            if self.ops[i].branches() {
                let target = self.ops[i].instruction.near_branch_target();
                match self
                    .ops
                    .binary_search_by_key(&target, |op| op.instruction.ip())
                {
                    Ok(to) => {
                        self.targets.insert(i, to);
                        pending.push(to);
                    }
                    Err(_) => self.fault(
                        FaultKind::BranchTarget,
                        i,
                        format!("{target:#x} is not the start of an instruction of this function"),
                    ),
                }
            }
            if self.profile == Profile::Chain && rules::is_call(&self.ops[i].instruction) {
                self.inspect_call(i);
            }
            if !self.ops[i].goes_on() {
                continue;
            }
            if i + 1 == self.ops.len() {
                self.fault(FaultKind::RunsOff, i, "the function goes on after its end");
            } else {
                pending.push(i + 1);
            }
        }
        // What is not reached because of a fault is no fault of its own.
        let dead = (0..self.ops.len()).find(|&i| !reached[i] && !self.ops[i].is_padding());
        if let Some(dead) = dead
            && self.faults.len() == before
        {
            self.fault(FaultKind::Unreachable, dead, "no path leads here");
        }
        reached
    }

    /// Only `lookup` is called, and it calls nothing: so there is no recursion.
    fn inspect_call(&mut self, i: usize) {
        for register in CALLER_SAVED.into_iter().filter_map(general) {
            self.ops[i].written.insert(register);
        }
        let lookup = self.layout.code.entries.lookup;
        if self.ops[0].offset() == lookup {
            self.fault(FaultKind::Call, i, "lookup calls nothing");
        }
        if self.ops[i].instruction.near_branch_target() != lookup as u64 {
            self.fault(FaultKind::Call, i, "only lookup is called, at its start");
        }
    }

    fn inspect(&mut self, i: usize, infos: &mut InstructionInfoFactory) {
        let op = &mut self.ops[i];
        let info = infos.info(&op.instruction);
        for used in info.used_registers() {
            if writes(used.access())
                && let Some(register) = general(used.register())
            {
                op.written.insert(register);
            }
        }
        op.access = info
            .used_memory()
            .iter()
            .find(|used| reads(used.access()) || writes(used.access()))
            .filter(|_| op.instruction.op_kinds().any(|kind| kind == OpKind::Memory))
            .map(|used| Access {
                bytes: used.memory_size().size() as u64,
                alignment: rules::alignment(&op.instruction),
                is_read: reads(used.access()),
                is_write: writes(used.access()),
            })
            .or_else(|| rules::prefetch(&op.instruction));
        let target = &self.layout.code.target;
        if let Err((kind, detail)) = rules::check(&op.instruction, info, target, self.profile) {
            self.fault(kind, i, detail);
        }
    }
}

/// Finds loops that probe the stack page after page, and makes each of them one step of the instruction that it starts with:
///
/// ```text
/// mov r, rsp
/// sub r, bytes            a multiple of a page
/// head: sub rsp, page     nothing else leads here or further down
/// mov dword [rsp], 0
/// cmp rsp, r              or the other way round
/// jne head
/// ```
///
/// So rsp goes down by `bytes`, and stays above what is touched by no more than a page. Returns how many there are.
fn probes(ops: &mut [Op], targets: &mut BTreeMap<usize, usize>) -> usize {
    let latches: Vec<usize> = targets
        .iter()
        .filter(|&(&latch, &head)| latch == head + 3 && head >= 2)
        .map(|(&latch, _)| latch)
        .collect();
    let mut found = 0;
    for latch in latches {
        let head = latch - 3;
        let is_entered_elsewhere = targets
            .iter()
            .any(|(&from, to)| from != latch && (head - 1..=latch).contains(to));
        if !is_entered_elsewhere && let Some(bytes) = probed_bytes(&ops[head - 2..=latch]) {
            ops[head].probed = Some(bytes);
            targets.remove(&latch);
            found += 1;
        }
    }
    found
}

/// By how many bytes six instructions move rsp if they are a loop of probes, whose last goes back to the third.
fn probed_bytes(ops: &[Op]) -> Option<u64> {
    let [copy, limit, step, touch, compare, branch] = ops else {
        return None;
    };
    let [copy, limit, step, touch, compare, branch] =
        [copy, limit, step, touch, compare, branch].map(|op| op.instruction);
    let register = copy.op0_register();
    let is = |instruction: Instruction, mnemonic, a, b| {
        instruction.mnemonic() == mnemonic
            && (instruction.op0_register(), instruction.op1_register()) == (a, b)
    };
    let none = Register::None;
    let bytes = limit.try_immediate(1).ok()?;
    let is_probe = register.is_gpr64()
        && register != Register::RSP
        && is(copy, Mnemonic::Mov, register, Register::RSP)
        && is(limit, Mnemonic::Sub, register, none)
        && (PAGE..=i32::MAX as u64).contains(&bytes)
        && bytes.is_multiple_of(PAGE)
        && is(step, Mnemonic::Sub, Register::RSP, none)
        && step.try_immediate(1).ok() == Some(PAGE)
        && touch.code() == Code::Mov_rm32_imm32
        && (touch.memory_base(), touch.memory_index()) == (Register::RSP, none)
        && touch.memory_displacement64() == 0
        && (is(compare, Mnemonic::Cmp, Register::RSP, register)
            || is(compare, Mnemonic::Cmp, register, Register::RSP))
        && branch.condition_code() == ConditionCode::ne;
    is_probe.then_some(bytes)
}

fn blocks(ops: &[Op], reached: &[bool], targets: &BTreeMap<usize, usize>) -> Vec<Block> {
    let mut starts = vec![false; ops.len() + 1];
    starts[0] = true;
    for (&from, &to) in targets {
        starts[to] = true;
        starts[from + 1] = true;
    }
    // Maximal runs of reached instructions, cut at each start.
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for i in (0..ops.len()).filter(|&i| reached[i]) {
        match ranges.last_mut() {
            Some(range) if range.end == i && !starts[i] && !ops[i - 1].ends_block() => {
                range.end = i + 1;
            }
            _ => ranges.push(i..i + 1),
        }
    }
    let block_at = |op: usize| ranges.partition_point(|range| range.end <= op);
    let edges = |range: &Range<usize>| {
        let last = range.end - 1;
        let instruction = &ops[last].instruction;
        let mut edges = Vec::with_capacity(2);
        if let Some(&to) = targets.get(&last) {
            edges.push(Edge {
                to: block_at(to),
                condition: instruction.condition_code(),
                is_back: to <= last,
            });
        }
        if ops[last].goes_on() {
            edges.push(Edge {
                to: block_at(range.end),
                condition: negate(instruction.condition_code()),
                is_back: false,
            });
        }
        edges
    };
    ranges
        .iter()
        .map(|range| Block {
            ops: range.clone(),
            edges: edges(range),
        })
        .collect()
}

/// The opposite of a condition; none of none.
pub(super) fn negate(condition: ConditionCode) -> ConditionCode {
    use ConditionCode as C;
    match condition {
        C::None => C::None,
        C::o => C::no,
        C::no => C::o,
        C::b => C::ae,
        C::ae => C::b,
        C::e => C::ne,
        C::ne => C::e,
        C::be => C::a,
        C::a => C::be,
        C::s => C::ns,
        C::ns => C::s,
        C::p => C::np,
        C::np => C::p,
        C::l => C::ge,
        C::ge => C::l,
        C::le => C::g,
        C::g => C::le,
    }
}
