//! AArch64 with NEON, by the procedure call standard of Arm (AAPCS64).
//!
//! ```text
//! VerifiedProgram -> lower (inst, immediate) -> Body on virtual registers -> regs -> steps -> emit for each entry (abi)
//! ```
//!
//! The body of a lookup is lowered and assigned once. Each of the three entries is the body with the code around it that
//! `abi` lists, in a stack frame (`frame`) where there is scratch. Batches of a program that stages a row have two bodies more
//! (`isa::staged`).

mod abi;
mod emit;
mod frame;
mod immediate;
mod inst;
mod lower;
mod regs;

#[cfg(test)]
mod tests;

use dynasmrt::DynamicLabel;
use pktjit_ir::{Program, VerifiedProgram};

use crate::code::{CompiledCode, Entries, ListingEntry, StackUse};
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::isa::lower::{self as shared, Lookup};
use crate::isa::staged as passes;
use crate::target::Target;
use abi::{Part, Pass};
use inst::Class;
use regs::{Allowed, Body, Line, Pressure, Step};

/// How far `ldr` and `adr` reach, and conditional branches: all of the code and the pool is within.
const REACH: usize = 1 << 20;

/// What is between the functions: `udf #0`, which stops whoever runs into it.
const FILLER: u8 = 0;

/// Registers of a body.
const ALLOWED: Allowed<'_> = Allowed {
    general: &abi::GENERAL,
    vector: &abi::VECTOR,
    mask: &[],
};

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where the target or the registers do not suffice, or the code would be too large.
pub(crate) fn compile(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<CompiledCode, CompileError> {
    let mut pool = ConstantPool::new(&program.program().tables);
    let whole = Lookup {
        facts: program,
        program: program.program(),
        pass: Pass::Whole,
    };
    let whole = assigned(whole, target, &mut pool)?.map_err(|class| {
        let (what, count) = match class {
            Class::General => ("general", ALLOWED.general.len()),
            _ => ("vector", ALLOWED.vector.len()),
        };
        CompileError::Unsupported(format!(
            "more values are alive at once than the {count} {what} registers hold"
        ))
    })?;
    let staged = in_blocks(program, target, &mut pool)?;
    let is_staged = staged.is_some();
    let mut bodies = vec![whole];
    bodies.extend(staged.into_iter().flatten());

    let mut code = emit::Buffer::new(FILLER);
    let scratch = crate::isa::frame::scratch_bytes(program.program().scratch);
    let mut entry = |parts: &[Part]| entry(&mut code, parts, &bodies, scratch, pool.len());
    let entries = Entries {
        lookup: entry(&abi::lookup())?,
        lookup_batch: entry(&abi::batch(is_staged))?,
        lookup_batch_ptrs: entry(&abi::batch_ptrs(is_staged))?,
    };
    let key_len = program.program().layout.len();
    // The return address is in a register.
    let stack = StackUse {
        bytes: scratch,
        allocated: scratch,
    };
    code.finish(pool, entries, *target, key_len, stack)
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
        assigned(lookup, target, pool)
    };
    let bodies = (body(&fetch, Pass::Fetch)?, body(&finish, Pass::Finish)?);
    Ok(match bodies {
        (Ok(fetch), Ok(finish)) => Some([fetch, finish]),
        _ => None,
    })
}

/// A body on physical registers.
struct Assigned {
    steps: Vec<Step>,
    labels: usize,
}

/// A body on physical registers, or the kind of registers of which there are too few.
fn assigned(
    lookup: Lookup<'_>,
    target: &Target,
    pool: &mut ConstantPool,
) -> Result<Result<Assigned, Class>, CompileError> {
    // Each round computes one more value at its uses, so there are no more rounds than values.
    let mut recomputed = vec![false; lookup.facts.value_count()];
    loop {
        let body: Body = shared::lower(lookup, target, pool, &recomputed)?;
        match regs::assign(&body, ALLOWED) {
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

/// Appends one entry and returns where it starts. `bodies` are in the order of [`Pass`].
fn entry(
    code: &mut emit::Buffer,
    parts: &[Part],
    bodies: &[Assigned],
    scratch: u32,
    pool_bytes: usize,
) -> Result<usize, CompileError> {
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
            Part::Inst(inst, note) => add(code, inst, note),
            Part::Bind(label) => code.bind(around[label.0 as usize]),
            Part::Enter => {
                for inst in frame::enter(scratch) {
                    add(code, inst, "entry");
                }
            }
            Part::Leave => {
                for inst in frame::leave(scratch) {
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
                    check_reach(code.len() + pool_bytes)?;
                }
                code.bind(labels[shared::END.0 as usize]);
            }
        }
    }
    check_reach(code.len() + pool_bytes)?;
    Ok(start)
}

/// Checks that everything is in reach of everything, padding up to the pool included.
fn check_reach(bytes: usize) -> Result<(), CompileError> {
    let limit = REACH - 64;
    if bytes > limit {
        return Err(CompileError::Limit {
            what: "bytes of code and constants",
            actual: bytes as u64,
            limit: limit as u64,
        });
    }
    Ok(())
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
