//! x86-64 with AVX2.
//!
//! ```text
//! VerifiedProgram -> lower (inst, uses) -> Body on virtual registers -> regs -> steps -> emit, once for each entry (abi)
//! ```
//!
//! The body of a lookup is lowered and assigned once. Each of the three entries is the body with the code around it that
//! `abi` lists.

mod abi;
mod emit;
mod inst;
mod lower;
mod regs;
mod uses;

#[cfg(test)]
mod tests;

use dynasmrt::DynamicLabel;
use pktjit_ir::VerifiedProgram;

use crate::code::{CompiledCode, Entries, ListingEntry};
use crate::code_buffer::check_len;
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::target::Target;
use abi::Part;
use inst::{Class, Inst};
use regs::{Body, Line, Step};

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where AVX2 or the registers do not suffice, or the code would be too large.
pub(crate) fn compile(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<CompiledCode, CompileError> {
    let mut pool = ConstantPool::new(&program.program().tables);
    let (steps, labels) = body(program, target, &mut pool)?;
    let body = Assigned {
        steps: &steps,
        labels,
        has_vectors: steps.iter().any(uses_vectors),
    };
    let mut code = emit::Buffer::new();
    let entries = Entries {
        lookup: entry(&mut code, abi::LOOKUP, &body)?,
        lookup_batch: entry(&mut code, abi::LOOKUP_BATCH, &body)?,
        lookup_batch_ptrs: entry(&mut code, abi::LOOKUP_BATCH_PTRS, &body)?,
    };
    let key_len = program.program().layout.len();
    code.finish(pool, entries, *target, key_len)
}

/// The body on physical registers and the number of its labels.
fn body(
    program: &VerifiedProgram,
    target: &Target,
    pool: &mut ConstantPool,
) -> Result<(Vec<Step>, usize), CompileError> {
    // Each round computes one more value at its uses, so there are no more rounds than values.
    let mut recomputed = vec![false; program.value_count()];
    loop {
        let body: Body = lower::lower(program, target.features, pool, &recomputed)?;
        match regs::assign(&body) {
            Ok(steps) => return Ok((steps, body.labels)),
            Err(pressure) => match pressure.recompute {
                Some(value) => recomputed[value.index()] = true,
                None => {
                    let (what, count) = match pressure.class {
                        Class::General => ("general", abi::GENERAL.len()),
                        Class::Vector => ("vector", abi::VECTOR.len()),
                    };
                    return Err(CompileError::Unsupported(format!(
                        "more values are alive at once than the {count} {what} registers hold"
                    )));
                }
            },
        }
    }
}

/// A body on physical registers.
struct Assigned<'a> {
    steps: &'a [Step],
    labels: usize,
    /// Whether it leaves the upper halves of vector registers dirty.
    has_vectors: bool,
}

fn uses_vectors(step: &Step) -> bool {
    let Step::Inst(line) = step else {
        return false;
    };
    let mut has_vector = false;
    let mut inst = line.inst;
    inst.for_each_operand(|class, _, _| has_vector |= class == Class::Vector);
    has_vector
}

/// Appends one entry and returns where it starts.
fn entry(
    code: &mut emit::Buffer,
    parts: &[Part],
    body: &Assigned<'_>,
) -> Result<usize, CompileError> {
    code.align();
    let start = code.len();
    let around: Vec<DynamicLabel> = (0..abi::LABELS).map(|_| code.label()).collect();
    for part in parts {
        match *part {
            Part::Inst(Inst::Vzeroupper, _) if !body.has_vectors => {}
            Part::Inst(inst, note) => {
                let line = Line {
                    inst,
                    value: None,
                    table: None,
                    note,
                };
                append(code, &line, &around);
            }
            Part::Bind(label) => code.bind(around[label.0 as usize]),
            Part::Body => {
                let labels: Vec<DynamicLabel> = (0..body.labels).map(|_| code.label()).collect();
                for step in body.steps {
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
