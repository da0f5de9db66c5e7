//! The code of one entry, decoded: instructions, basic blocks, loops.
//!
//! Every instruction is one word, so none overlap. What holds without knowing any register is checked here; `analysis` proves
//! the rest.

use std::collections::BTreeMap;
use std::ops::Range;

use yaxpeax_arch::{Arch, Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{ARMv8, Instruction, Opcode, Operand};

use super::rules::{self, Flow, general};
use super::state::{Condition, State};
use super::transfer;
use crate::audit::analysis;
use crate::audit::fault::{FaultKind, Faults};
use crate::audit::layout::Layout;
use crate::audit::{Accesses, AuditReport};

/// Alignment of an entry.
const ENTRY_ALIGN: usize = 64;
/// Bytes of an instruction.
const WORD: usize = 4;
/// `udf #0`, with which gaps are filled.
const PADDING: [u8; WORD] = [0; WORD];

pub(super) type Function = crate::audit::analysis::Function<Op>;
type Block = crate::audit::analysis::Block<Condition>;
type Edge = crate::audit::analysis::Edge<Condition>;

/// One instruction.
pub(super) struct Op {
    pub(super) instruction: Instruction,
    pub(super) offset: usize,
}

impl analysis::Op for Op {
    type State = State;

    fn place(&self) -> (usize, String) {
        (self.offset, self.instruction.to_string())
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
    /// The place that is named relative to the instruction.
    pub(super) fn relative(&self) -> Option<u64> {
        let mut operands = self.instruction.operands.iter();
        operands.find_map(|operand| match *operand {
            Operand::PCOffset(distance) => (self.offset as u64).checked_add_signed(distance),
            _ => None,
        })
    }

    /// When it branches.
    fn condition(&self) -> Condition {
        let Instruction {
            opcode, operands, ..
        } = self.instruction;
        match (opcode, general(operands[0])) {
            (Opcode::Bcc(condition), _) => {
                rules::relation(condition).map_or(Condition::Always, Condition::Flags)
            }
            // The zero register is zero.
            (Opcode::CBZ | Opcode::CBNZ, Some((register, bits))) if register < rules::STACK => {
                Condition::Zero {
                    register: register.into(),
                    bits,
                    is_zero: opcode == Opcode::CBZ,
                }
            }
            _ => Condition::Always,
        }
    }
}

/// Decodes the function whose bytes are `range`. `None` where its control flow is not understood, which is a fault.
pub(super) fn decode(
    layout: Layout<'_>,
    name: &'static str,
    range: Range<usize>,
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
        ops,
        flows: Vec::new(),
        targets: BTreeMap::new(),
        faults,
    };
    if !rules::is_landing_pad(&reader.ops[0].instruction) {
        reader.fault(FaultKind::MissingEndbr, 0, "the entry is no landing pad");
    }
    let reached = reader.follow();
    let Reader {
        ops,
        flows,
        targets,
        ..
    } = reader;
    if faults.len() > before {
        return None;
    }
    report.instructions += reached.iter().filter(|reached| **reached).count();
    let blocks = blocks(&ops, &flows, &targets);
    report.blocks += blocks.len();
    let is_back = |edge: &&Edge| edge.is_back;
    report.loops += blocks.iter().flat_map(|b| &b.edges).filter(is_back).count();
    Some(Function { name, ops, blocks })
}

/// All instructions of `range` up to the padding, one after the other.
fn sweep(
    layout: Layout<'_>,
    name: &'static str,
    range: Range<usize>,
    faults: &mut Faults,
) -> Option<Vec<Op>> {
    let words: Vec<&[u8]> = layout.code.bytes[range.clone()].chunks(WORD).collect();
    let end = words.iter().rposition(|word| **word != PADDING);
    let decoder = <ARMv8 as Arch>::Decoder::default();
    let mut ops = Vec::new();
    for (i, word) in words.iter().enumerate().take(end.map_or(1, |end| end + 1)) {
        let offset = range.start + WORD * i;
        match decoder.decode(&mut U8Reader::new(word)) {
            Ok(instruction) => ops.push(Op {
                instruction,
                offset,
            }),
            Err(error) => {
                let detail = format!("no instruction: {error}");
                faults.push(FaultKind::Undecodable, Some(name), offset, detail);
                return None;
            }
        }
    }
    Some(ops)
}

struct Reader<'a> {
    layout: Layout<'a>,
    name: &'static str,
    ops: Vec<Op>,
    /// Where execution goes on behind each of them.
    flows: Vec<Flow>,
    /// For each branch the instruction that it goes to, both as positions in `ops`.
    targets: BTreeMap<usize, usize>,
    faults: &'a mut Faults,
}

impl Reader<'_> {
    fn fault(&mut self, kind: FaultKind, op: usize, detail: impl Into<String>) {
        let op = &self.ops[op];
        let at = (op.offset, op.instruction.to_string());
        self.faults
            .push_at(kind, self.layout.code, self.name, at, detail.into());
    }

    /// Follows all paths from the entry, checks each instruction once, and tells which were reached.
    fn follow(&mut self) -> Vec<bool> {
        let before = self.faults.len();
        let mut reached = vec![false; self.ops.len()];
        let mut pending = vec![0];
        self.flows = vec![Flow::Next; self.ops.len()];
        while let Some(i) = pending.pop() {
            if std::mem::replace(&mut reached[i], true) {
                continue;
            }
            match rules::check(&self.ops[i].instruction) {
                Ok(flow) => self.flows[i] = flow,
                Err((kind, detail)) => self.fault(kind, i, detail),
            }
            if matches!(self.flows[i], Flow::Jump | Flow::Branch) {
                match self.target(i) {
                    Some(to) => {
                        self.targets.insert(i, to);
                        pending.push(to);
                    }
                    None => self.fault(
                        FaultKind::BranchTarget,
                        i,
                        "not to the start of an instruction of this function",
                    ),
                }
            }
            if matches!(self.flows[i], Flow::Jump | Flow::Return) {
                continue;
            }
            if i + 1 == self.ops.len() {
                self.fault(FaultKind::RunsOff, i, "the function goes on after its end");
            } else {
                pending.push(i + 1);
            }
        }
        // What is not reached because of a fault is no fault of its own.
        let dead = reached.iter().position(|reached| !reached);
        if let Some(dead) = dead
            && self.faults.len() == before
        {
            self.fault(FaultKind::Unreachable, dead, "no path leads here");
        }
        reached
    }

    /// The instruction that a branch goes to.
    fn target(&self, i: usize) -> Option<usize> {
        let to = usize::try_from(self.ops[i].relative()?).ok()?;
        self.ops.binary_search_by_key(&to, |op| op.offset).ok()
    }
}

/// All instructions are reached.
fn blocks(ops: &[Op], flows: &[Flow], targets: &BTreeMap<usize, usize>) -> Vec<Block> {
    let mut starts = vec![false; ops.len() + 1];
    starts[0] = true;
    for &to in targets.values() {
        starts[to] = true;
    }
    for (i, &flow) in flows.iter().enumerate() {
        starts[i + 1] |= flow != Flow::Next;
    }
    let firsts: Vec<usize> = (0..ops.len()).filter(|&i| starts[i]).collect();
    let block_at = |op: usize| firsts.partition_point(|&first| first <= op) - 1;
    let ends = firsts.iter().skip(1).copied().chain([ops.len()]);
    let ranges = firsts.iter().copied().zip(ends);
    ranges
        .map(|(first, end)| {
            let last = end - 1;
            let condition = ops[last].condition();
            let mut edges = Vec::with_capacity(2);
            if let Some(&to) = targets.get(&last) {
                edges.push(Edge {
                    to: block_at(to),
                    condition,
                    is_back: to <= last,
                });
            }
            if matches!(flows[last], Flow::Next | Flow::Branch) {
                edges.push(Edge {
                    to: block_at(end),
                    condition: condition.negated(),
                    is_back: false,
                });
            }
            Block {
                ops: first..end,
                edges,
            }
        })
        .collect()
}
