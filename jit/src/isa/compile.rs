//! From a verified program to the code of its three entries.
//!
//! ```text
//! VerifiedProgram -> lower -> Body on virtual registers -> regs -> steps -> emit for each entry (entries)
//! ```
//!
//! The body of a lookup is lowered and assigned once. Each of the three entries is the body with the code around it
//! that `entries` lists, in a stack frame where it needs one. Batches of a program that stages a row have two bodies
//! more (`staged`).

use dynasmrt::DynamicLabel;
use dynasmrt::relocations::Relocation as Fixup;
use pktjit_ir::{Program, VerifiedProgram};

use super::entries::{self, Around, Part};
use super::frame::Frame;
use super::inst::Class;
use super::lower::{self, Lookup};
use super::regs::{self, Allowed, Line, Pressure, Step};
use super::staged::{self, Pass};
use crate::code::{CompiledCode, Entries, ListingEntry, StackUse};
use crate::code_buffer::{CodeBuffer, check_len};
use crate::constant_pool::ConstantPool;
use crate::error::CompileError;
use crate::target::Target;

/// An instruction set: what its code is made of, from the program to the bytes.
pub(super) trait InstructionSet: Around {
    /// How jumps and addresses in its code are filled in.
    type Fixup: Fixup;

    /// What is between the functions; stops whoever runs into it.
    const FILLER: u8;
    /// Most bytes of code and constants.
    const MAX_BYTES: usize;
    /// The registers of the bodies of a block.
    const IN_BLOCKS: Allowed<'static>;

    /// The registers of a body with so many numbers of scratch, to be tried one after the other.
    fn allowed(scratch: u32) -> &'static [Allowed<'static>];

    /// The frame of an entry that consists of these instructions.
    fn frame(insts: impl Iterator<Item = Self>, scratch: u32) -> Frame<Self>;

    /// Appends the instruction, whose registers are all physical and whose labels `labels` resolves.
    fn emit(&self, code: &mut CodeBuffer<Self::Fixup>, labels: &[DynamicLabel]);
}

/// Generates the code of `program` for `target`.
///
/// # Errors
/// Where the target or the registers do not suffice, or the code would be too large.
pub(super) fn compile<I: InstructionSet>(
    program: &VerifiedProgram,
    target: &Target,
) -> Result<CompiledCode, CompileError> {
    lower::check_lanes::<I>(program, target)?;
    let mut pool = ConstantPool::new(&program.program().tables);
    let mut bodies = vec![whole::<I>(program, target, &mut pool)?];
    let staged = in_blocks(program, target, &mut pool)?;
    let is_staged = staged.is_some();
    bodies.extend(staged.into_iter().flatten());

    let mut code = CodeBuffer::new(I::FILLER);
    let scratch = program.program().scratch;
    let mut stack = StackUse::default();
    let mut entry = |parts: &[Part<I>]| {
        let (start, used) = entry(&mut code, parts, &bodies, scratch, pool.len())?;
        stack = stack.max(used);
        Ok::<usize, CompileError>(start)
    };
    let entries = Entries {
        lookup: entry(&entries::lookup())?,
        lookup_batch: entry(&entries::batch(&I::STRIDED, is_staged))?,
        lookup_batch_ptrs: entry(&entries::batch(&I::POINTERS, is_staged))?,
    };
    let key_len = program.program().layout.len();
    code.finish(pool, entries, *target, key_len, stack)
}

/// The body of a whole lookup.
fn whole<I: InstructionSet>(
    program: &VerifiedProgram,
    target: &Target,
    pool: &mut ConstantPool,
) -> Result<Assigned<I>, CompileError> {
    let lookup = Lookup {
        facts: program,
        program: program.program(),
        pass: Pass::Whole,
    };
    let mut too_few = (0, "");
    for &allowed in I::allowed(program.program().scratch) {
        match assigned(lookup, target, pool, allowed)? {
            Ok(body) => return Ok(body),
            Err(class) => {
                let what = match class {
                    Class::General => "general",
                    Class::Vector | Class::Wide => "vector",
                    Class::Mask => "mask",
                };
                too_few = (allowed.of(class).len(), what);
            }
        }
    }
    let (count, what) = too_few;
    Err(CompileError::Unsupported(format!(
        "more values are alive at once than the {count} {what} registers hold"
    )))
}

/// The bodies of the two passes over a block, if the program stages a row and the registers suffice.
fn in_blocks<I: InstructionSet>(
    facts: &VerifiedProgram,
    target: &Target,
    pool: &mut ConstantPool,
) -> Result<Option<[Assigned<I>; 2]>, CompileError> {
    let Some(index) = staged::index(facts) else {
        return Ok(None);
    };
    let fetch = staged::fetch(facts.program(), index);
    let finish = staged::finish(facts.program(), index);
    let mut body = |program: &Program, pass| {
        let lookup = Lookup {
            facts,
            program,
            pass,
        };
        assigned(lookup, target, pool, I::IN_BLOCKS)
    };
    let bodies = (body(&fetch, Pass::Fetch)?, body(&finish, Pass::Finish)?);
    Ok(match bodies {
        (Ok(fetch), Ok(finish)) => Some([fetch, finish]),
        _ => None,
    })
}

/// A body on physical registers.
struct Assigned<I> {
    steps: Vec<Step<I>>,
    labels: usize,
}

/// A body on the `allowed` registers, or the kind of registers of which there are too few.
fn assigned<I: InstructionSet>(
    lookup: Lookup<'_>,
    target: &Target,
    pool: &mut ConstantPool,
    allowed: Allowed<'_>,
) -> Result<Result<Assigned<I>, Class>, CompileError> {
    // Each round computes one more value at its uses, so there are no more rounds than values.
    let mut recomputed = vec![false; lookup.facts.value_count()];
    loop {
        let body = lower::lower(lookup, target, pool, &recomputed)?;
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

/// Appends one entry and returns where it starts, and what it takes of the stack. `bodies` are in the order of
/// [`Pass`].
fn entry<I: InstructionSet>(
    code: &mut CodeBuffer<I::Fixup>,
    parts: &[Part<I>],
    bodies: &[Assigned<I>],
    scratch: u32,
    pool_bytes: usize,
) -> Result<(usize, StackUse), CompileError> {
    code.align();
    let start = code.len();
    let frame = I::frame(insts(parts, bodies), scratch);
    let around: Vec<DynamicLabel> = (0..entries::LABELS).map(|_| code.label()).collect();
    let add = |code: &mut CodeBuffer<I::Fixup>, inst, note| {
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
            Part::Enter => frame
                .enter
                .iter()
                .for_each(|&inst| add(code, inst, "entry")),
            Part::Leave => frame.leave.iter().for_each(|&inst| add(code, inst, "exit")),
            Part::Body(pass) => {
                let body = &bodies[pass as usize];
                let labels: Vec<DynamicLabel> = (0..body.labels).map(|_| code.label()).collect();
                for step in &body.steps {
                    match step {
                        Step::Bind(label) => code.bind(labels[label.0 as usize]),
                        Step::Inst(line) => append(code, line, &labels),
                    }
                    check_len(code.len() + pool_bytes, I::MAX_BYTES)?;
                }
                code.bind(labels[lower::END.0 as usize]);
            }
        }
    }
    check_len(code.len() + pool_bytes, I::MAX_BYTES)?;
    Ok((start, frame.stack))
}

/// The instructions of an entry, but for those of its frame.
fn insts<'a, I: Copy>(
    parts: &'a [Part<I>],
    bodies: &'a [Assigned<I>],
) -> impl Iterator<Item = I> + 'a {
    parts.iter().flat_map(|part| {
        let (around, steps) = match *part {
            Part::Inst(inst, _) => (Some(inst), &[][..]),
            Part::Body(pass) => (None, &bodies[pass as usize].steps[..]),
            Part::Bind(_) | Part::Enter | Part::Leave => (None, &[][..]),
        };
        let steps = steps.iter().filter_map(|step| match step {
            Step::Inst(line) => Some(line.inst),
            Step::Bind(_) => None,
        });
        around.into_iter().chain(steps)
    })
}

fn append<I: InstructionSet>(
    code: &mut CodeBuffer<I::Fixup>,
    line: &Line<I>,
    labels: &[DynamicLabel],
) {
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
    inst.emit(code, labels);
}
