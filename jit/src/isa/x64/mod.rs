//! x86-64 with AVX2, or with AVX-512 (`evex`).
//!
//! ```text
//! VerifiedProgram -> lower (inst, uses) -> Body on virtual registers -> regs -> steps -> emit (encode) for each entry (abi)
//! ```
//!
//! The body of a lookup is lowered and assigned once. Each of the three entries is the body with the code around it that
//! `abi` lists, in a stack frame (`frame`) where there is scratch or too few registers are free. Batches of a program that
//! stages a row have two bodies more (`staged`).

mod abi;
mod emit;
mod encode;
mod evex;
mod frame;
mod inst;
mod lower;
mod regs;
mod staged;

#[cfg(test)]
mod tests;

use dynasmrt::DynamicLabel;
use pktjit_ir::{Program, VerifiedProgram};

use crate::code::{CompiledCode, Entries, ListingEntry, StackUse};
use crate::code_buffer::check_len;
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::isa::staged as passes;
use crate::target::{Features, Target};
use abi::{Part, Pass};
use frame::Frame;
use inst::{Class, Inst, Reg, Role};
pub(crate) use lower::gains_from_avx512;
use lower::{Lookup, check_lanes};
use regs::{Allowed, Body, Line, Pressure, Step};

/// What is between the functions: `int3`, which stops whoever runs into it.
const FILLER: u8 = 0xcc;

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where the target or the registers do not suffice, or the code would be too large.
pub(crate) fn compile(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<CompiledCode, CompileError> {
    check_lanes(program, target)?;
    let target = &Target {
        features: Features {
            avx512: target.features.avx512 && gains_from_avx512(program),
            ..target.features
        },
        ..*target
    };
    let mut pool = ConstantPool::new(&program.program().tables);
    let mut bodies = vec![whole(program, target, &mut pool)?];
    let staged = in_blocks(program, target, &mut pool)?;
    let (blocks, ptrs_blocks) = match staged {
        Some(_) => (staged::batch_blocks(), staged::batch_ptrs_blocks()),
        None => (Vec::new(), Vec::new()),
    };
    bodies.extend(staged.into_iter().flatten());

    let mut code = emit::Buffer::new(FILLER);
    let scratch = program.program().scratch;
    let mut stack = StackUse::LEAF;
    let mut entry = |parts: &[&[Part]]| {
        let (start, frame) = entry(&mut code, &parts.concat(), &bodies, scratch)?;
        stack.bytes = stack.bytes.max(frame.bytes());
        stack.allocated = stack.allocated.max(frame.allocated());
        Ok::<usize, CompileError>(start)
    };
    let entries = Entries {
        lookup: entry(&[abi::LOOKUP])?,
        lookup_batch: entry(&[abi::BATCH, &blocks, abi::BATCH_KEYS])?,
        lookup_batch_ptrs: entry(&[abi::BATCH_PTRS, &ptrs_blocks, abi::BATCH_PTRS_KEYS])?,
    };
    let key_len = program.program().layout.len();
    code.finish(pool, entries, *target, key_len, stack)
}

/// The body of a whole lookup: without a frame where that is possible.
fn whole(
    program: &VerifiedProgram,
    target: &Target,
    pool: &mut ConstantPool,
) -> Result<Assigned, CompileError> {
    let lookup = Lookup {
        facts: program,
        program: program.program(),
        pass: Pass::Whole,
    };
    if program.program().scratch == 0
        && let Ok(leaf) = assigned(lookup, target, pool, abi::GENERAL)?
    {
        return Ok(leaf);
    }
    assigned(lookup, target, pool, abi::FRAMED)?.map_err(|class| {
        let (what, count) = match class {
            Class::General => ("general", abi::FRAMED.len()),
            Class::Vector | Class::Wide => ("vector", abi::VECTOR.len()),
            Class::Mask => ("mask", abi::MASK.len()),
        };
        CompileError::Unsupported(format!(
            "more values are alive at once than the {count} {what} registers hold"
        ))
    })
}

/// The bodies of the two passes over a block, if the program stages a row and the registers suffice.
fn in_blocks(
    facts: &VerifiedProgram,
    target: &Target,
    pool: &mut ConstantPool,
) -> Result<Option<[Assigned; 2]>, CompileError> {
    let Some(index) = passes::index(facts) else {
        return Ok(None);
    };
    let fetch = passes::fetch(facts.program(), index);
    let finish = passes::finish(facts.program(), index);
    let mut body = |program: &Program, pass| {
        let lookup = Lookup {
            facts,
            program,
            pass,
        };
        assigned(lookup, target, pool, abi::IN_BLOCKS)
    };
    let bodies = (body(&fetch, Pass::Fetch)?, body(&finish, Pass::Finish)?);
    Ok(match bodies {
        (Ok(fetch), Ok(finish)) => Some([fetch, finish]),
        _ => None,
    })
}

/// A body on the `general` registers, or the kind of registers of which there are too few.
fn assigned(
    lookup: Lookup<'_>,
    target: &Target,
    pool: &mut ConstantPool,
    general: &[Reg],
) -> Result<Result<Assigned, Class>, CompileError> {
    // Each round computes one more value at its uses, so there are no more rounds than values.
    let mut recomputed = vec![false; lookup.facts.value_count()];
    loop {
        let body: Body = lower::lower(lookup, target, pool, &recomputed)?;
        let allowed = Allowed {
            general,
            vector: &abi::VECTOR,
            mask: &abi::MASK,
        };
        match regs::assign(&body, allowed) {
            Ok(steps) => {
                let labels = body.labels;
                return Ok(Ok(Assigned { steps, labels }));
            }
            Err(Pressure {
                recompute: Some(value),
                ..
            }) => recomputed[value.index()] = true,
            Err(Pressure { class, .. }) => return Ok(Err(class)),
        }
    }
}

/// A body on physical registers.
struct Assigned {
    steps: Vec<Step>,
    labels: usize,
}

/// Appends one entry and returns where it starts, and its frame. `bodies` are in the order of [`Pass`].
fn entry(
    code: &mut emit::Buffer,
    parts: &[Part],
    bodies: &[Assigned],
    scratch: u32,
) -> Result<(usize, Frame), CompileError> {
    code.align();
    let start = code.len();
    let touched = Touched::new(parts, bodies);
    let saved = abi::SAVED.iter().copied();
    let saved = saved.filter(|reg| touched.written[reg.physical_index()]);
    let frame = Frame::new(saved.collect(), scratch);
    let around: Vec<DynamicLabel> = (0..staged::LABELS).map(|_| code.label()).collect();
    let add = |code: &mut emit::Buffer, inst, note| {
        let line = Line {
            inst,
            value: None,
            table: None,
            note,
        };
        append(code, &line, &around);
    };
    for part in parts {
        match *part {
            Part::Inst(Inst::Vzeroupper, _) if !touched.has_vectors => {}
            Part::Inst(inst, note) => add(code, inst, note),
            Part::Bind(label) => code.bind(around[label.0 as usize]),
            Part::Enter => {
                for inst in frame.enter() {
                    add(code, inst, "entry");
                }
            }
            Part::Leave => {
                for inst in frame.leave() {
                    add(code, inst, "exit");
                }
            }
            Part::Body(pass) => {
                let body = &bodies[pass as usize];
                let labels: Vec<DynamicLabel> = (0..body.labels).map(|_| code.label()).collect();
                for step in &body.steps {
                    match step {
                        Step::Bind(label) => code.bind(labels[label.0 as usize]),
                        Step::Inst(line) => append(code, line, &labels),
                    }
                    check_len(code.len())?;
                }
                code.bind(labels[lower::END.0 as usize]);
            }
        }
    }
    Ok((start, frame))
}

/// What the instructions of an entry do to registers.
struct Touched {
    written: [bool; Reg::PHYSICAL],
    has_vectors: bool,
}

impl Touched {
    /// By the bodies and what is around them, but for what saves and cleans registers.
    fn new(parts: &[Part], bodies: &[Assigned]) -> Self {
        let mut touched = Self {
            written: [false; Reg::PHYSICAL],
            has_vectors: false,
        };
        for part in parts {
            match *part {
                Part::Inst(Inst::Vzeroupper, _) | Part::Bind(_) | Part::Enter | Part::Leave => {}
                Part::Inst(inst, _) => touched.add(inst),
                Part::Body(pass) => {
                    for step in &bodies[pass as usize].steps {
                        if let Step::Inst(line) = step {
                            touched.add(line.inst);
                        }
                    }
                }
            }
        }
        touched
    }

    fn add(&mut self, mut inst: Inst) {
        inst.for_each_operand(|class, role, reg| {
            self.has_vectors |= matches!(class, Class::Vector | Class::Wide);
            self.written[reg.physical_index()] |= role != Role::Use;
        });
    }
}

fn append(code: &mut emit::Buffer, line: &Line, labels: &[DynamicLabel]) {
    let Line {
        inst,
        value,
        table,
        note,
    } = *line;
    code.list(ListingEntry {
        offset: 0,
        value,
        table,
        note,
    });
    emit::emit(code, &inst, labels);
}
