//! x86-64 with AVX2, or with AVX-512 (`evex`).
//!
//! ```text
//! VerifiedProgram -> lower (inst, uses) -> Body on virtual registers -> regs -> steps -> emit (encode) for each entry (abi)
//! ```
//!
//! The body of a lookup is lowered and assigned once. Each of the three entries is the body with the code around it that
//! `abi` lists, in a stack frame (`frame`) where there is scratch or too few registers are free.

mod abi;
mod emit;
mod encode;
mod evex;
mod frame;
mod inst;
mod lower;
mod regs;
mod uses;

#[cfg(test)]
mod tests;

use dynasmrt::DynamicLabel;
use pktjit_ir::VerifiedProgram;

use crate::code::{CompiledCode, Entries, ListingEntry, StackUse};
use crate::code_buffer::check_len;
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::target::Target;
use abi::Part;
use frame::Frame;
use inst::{Class, Inst, Reg, Role};
use regs::{Body, Line, Pressure, Step};

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where the target or the registers do not suffice, or the code would be too large.
pub(crate) fn compile(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<CompiledCode, CompileError> {
    let mut pool = ConstantPool::new(&program.program().tables);
    let body = body(program, target, &mut pool)?;
    let mut code = emit::Buffer::new();
    let entries = Entries {
        lookup: entry(&mut code, abi::LOOKUP, &body)?,
        lookup_batch: entry(&mut code, abi::LOOKUP_BATCH, &body)?,
        lookup_batch_ptrs: entry(&mut code, abi::LOOKUP_BATCH_PTRS, &body)?,
    };
    let key_len = program.program().layout.len();
    let stack = StackUse {
        bytes: body.frame.bytes(),
        allocated: body.frame.allocated(),
    };
    code.finish(pool, entries, *target, key_len, stack)
}

/// The body on physical registers: without a frame where that is possible.
fn body(
    program: &VerifiedProgram,
    target: &Target,
    pool: &mut ConstantPool,
) -> Result<Assigned, CompileError> {
    let scratch = program.program().scratch;
    let leaf = match scratch {
        0 => assigned(program, target, pool, abi::GENERAL)?.ok(),
        _ => None,
    };
    let (steps, labels) = match leaf {
        Some(leaf) => leaf,
        None => assigned(program, target, pool, abi::FRAMED)?.map_err(|class| {
            let (what, count) = match class {
                Class::General => ("general", abi::FRAMED.len()),
                Class::Vector | Class::Wide => ("vector", abi::VECTOR.len()),
                Class::Mask => ("mask", abi::MASK.len()),
            };
            CompileError::Unsupported(format!(
                "more values are alive at once than the {count} {what} registers hold"
            ))
        })?,
    };
    let saved = abi::SAVED.iter().copied();
    let saved = saved.filter(|&reg| steps.iter().any(|step| writes(step, reg)));
    Ok(Assigned {
        frame: Frame::new(saved.collect(), scratch),
        has_vectors: steps.iter().any(uses_vectors),
        steps,
        labels,
    })
}

/// The body on the `general` registers with the number of its labels, or the kind of registers of which there are too few.
fn assigned(
    program: &VerifiedProgram,
    target: &Target,
    pool: &mut ConstantPool,
    general: &[Reg],
) -> Result<Result<(Vec<Step>, usize), Class>, CompileError> {
    // Each round computes one more value at its uses, so there are no more rounds than values.
    let mut recomputed = vec![false; program.value_count()];
    loop {
        let body: Body = lower::lower(program, target, pool, &recomputed)?;
        match regs::assign(&body, general) {
            Ok(steps) => return Ok(Ok((steps, body.labels))),
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
    frame: Frame,
    /// Whether it leaves the upper halves of vector registers dirty.
    has_vectors: bool,
}

fn writes(step: &Step, register: Reg) -> bool {
    let Step::Inst(line) = step else {
        return false;
    };
    let mut writes = false;
    let mut inst = line.inst;
    inst.for_each_operand(|_, role, reg| writes |= role != Role::Use && *reg == register);
    writes
}

fn uses_vectors(step: &Step) -> bool {
    let Step::Inst(line) = step else {
        return false;
    };
    let mut has_vector = false;
    let mut inst = line.inst;
    inst.for_each_operand(|class, _, _| {
        has_vector |= matches!(class, Class::Vector | Class::Wide);
    });
    has_vector
}

/// Appends one entry and returns where it starts.
fn entry(code: &mut emit::Buffer, parts: &[Part], body: &Assigned) -> Result<usize, CompileError> {
    code.align();
    let start = code.len();
    let around: Vec<DynamicLabel> = (0..abi::LABELS).map(|_| code.label()).collect();
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
            Part::Inst(Inst::Vzeroupper, _) if !body.has_vectors => {}
            Part::Inst(inst, note) => add(code, inst, note),
            Part::Bind(label) => code.bind(around[label.0 as usize]),
            Part::Enter => {
                for inst in body.frame.enter() {
                    add(code, inst, "entry");
                }
            }
            Part::Leave => {
                for inst in body.frame.leave() {
                    add(code, inst, "exit");
                }
            }
            Part::Body => {
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
    Ok(start)
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
