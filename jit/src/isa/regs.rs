//! Register assignment: linear scan over the body, which is straight but for forward branches and bounded loops.
//!
//! A virtual register occupies one interval of positions, from its first definition to its last use in the order of the
//! code. Since branches go forward, that covers every path; a value from outside a loop that is used inside it lives to
//! the loop's end. Positions are doubled: instruction i reads at 2i and writes at 2i+1, so a result may take the register
//! of an operand that dies there.
//!
//! There is no spilling. Where registers run out, the assignment names a value that is cheap to compute again ([`Pressure`]),
//! and the body is lowered once more with that value computed at each use; where there is no such value, the body gets a
//! frame and the registers that a frame saves.

use pktjit_ir::{TableId, ValueId};

use super::inst::{Class, Label, Reg, Role};

/// A machine instruction of some ISA.
pub(super) trait MachineInst: Copy {
    /// Calls `f` with each register operand, what is read before what is written.
    fn for_each_operand(&mut self, f: impl FnMut(Class, Role, &mut Reg));

    /// Destination and source, if it only copies one register to another of its class.
    fn as_copy(&self) -> Option<(Reg, Reg)>;

    /// `dst = src`, all that the class has of them.
    fn copy(class: Class, dst: Reg, src: Reg) -> Self;

    /// Swaps two registers of a class without a third.
    fn swap(class: Class, a: Reg, b: Reg) -> Vec<Self>;

    /// Sets a general register; may spoil the flags.
    fn constant(dst: Reg, imm: u64) -> Vec<Self>;
}

/// The registers that a body may use, those to be preferred first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed<'a> {
    /// General registers.
    pub(super) general: &'a [Reg],
    /// Vector registers.
    pub(super) vector: &'a [Reg],
    /// Mask registers.
    pub(super) mask: &'a [Reg],
}

impl<'a> Allowed<'a> {
    /// Those of a class.
    pub(super) fn of(self, class: Class) -> &'a [Reg] {
        match class {
            Class::General => self.general,
            Class::Vector | Class::Wide => self.vector,
            Class::Mask => self.mask,
        }
    }
}

/// A body on virtual registers.
#[derive(Debug)]
pub(super) struct Body<I> {
    /// The code.
    pub(super) nodes: Vec<Node<I>>,
    /// The virtual registers.
    pub(super) registers: Vec<VirtualRegister>,
    /// First and last node of each loop.
    pub(super) loops: Vec<(usize, usize)>,
    /// How many labels there are.
    pub(super) labels: usize,
}

impl<I> Body<I> {
    /// An empty one with so many labels.
    pub(super) fn new(labels: usize) -> Self {
        Self {
            nodes: Vec::new(),
            registers: Vec::new(),
            loops: Vec::new(),
            labels,
        }
    }
}

/// A virtual register.
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtualRegister {
    /// Its register file.
    pub(super) class: Class,
    /// The value that it holds, if computing that again at each use is possible and cheap.
    pub(super) recomputable: Option<ValueId>,
    /// For the parameter of a loop head: the first node of the loop. It is first written before.
    pub(super) loop_head: Option<usize>,
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub(super) enum Node<I> {
    /// A place to jump to.
    Bind(Label),
    /// All of these at once: block arguments become parameters.
    Moves(Vec<(Class, Reg, MoveSource)>),
    /// An instruction.
    Inst(Line<I>),
}

/// What a parameter is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveSource {
    /// The value of a register.
    Reg(Reg),
    /// A number, for general registers only.
    Const(u64),
}

/// An instruction and what it is there for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<I> {
    /// The instruction.
    pub(super) inst: I,
    /// The IR value that it computes.
    pub(super) value: Option<ValueId>,
    /// The table that it reads.
    pub(super) table: Option<TableId>,
    /// What it does where no value says so.
    pub(super) note: &'static str,
}

/// A piece of a body on physical registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<I> {
    /// A place to jump to.
    Bind(Label),
    /// An instruction.
    Inst(Line<I>),
}

/// Registers ran out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Which ones.
    pub(super) class: Class,
    /// A value that holds one at that place and can be computed again; `None` where there is none.
    pub(super) recompute: Option<ValueId>,
}

/// What is known about a virtual register while intervals are built.
#[derive(Clone, Copy, Debug)]
struct Interval {
    /// First definition.
    start: usize,
    /// Last use, loops taken into account.
    last_use: usize,
    /// Last definition.
    last_def: usize,
    /// A register, physical or virtual, that saves a move if it can be shared.
    hint: Option<Reg>,
    /// The register into which this one was merged.
    merged_into: Option<usize>,
}

impl Interval {
    fn end(&self) -> usize {
        self.last_use.max(self.last_def)
    }
}

/// Assigns one of the `allowed` registers to each virtual one, and resolves parallel moves.
///
/// # Errors
/// Where more values are alive than there are registers.
pub(super) fn assign<I: MachineInst>(
    body: &Body<I>,
    allowed: Allowed<'_>,
) -> Result<Vec<Step<I>>, Pressure> {
    let mut intervals = intervals(body);
    merge_loop_arguments(body, &mut intervals);
    let assigned = scan(body, &intervals, allowed)?;
    Ok(resolve(body, &assigned))
}

fn intervals<I: MachineInst>(body: &Body<I>) -> Vec<Option<Interval>> {
    let mut intervals: Vec<Option<Interval>> = vec![None; body.registers.len()];
    let define = |intervals: &mut Vec<Option<Interval>>, reg: Reg, at: usize, hint| {
        if let Some(index) = reg.virtual_index() {
            let interval = intervals[index].get_or_insert(Interval {
                start: at,
                last_use: at,
                last_def: at,
                hint,
                merged_into: None,
            });
            interval.last_def = at;
            interval.hint = interval.hint.or(hint);
        }
    };
    let mut around: Vec<(usize, usize)> = Vec::new();
    let mut loops = body.loops.clone();
    loops.sort_unstable_by_key(|&(head, _)| std::cmp::Reverse(head));
    for (i, node) in body.nodes.iter().enumerate() {
        around.retain(|&(_, tail)| tail >= i);
        while let Some(inner) = loops.pop_if(|&mut (head, _)| head == i) {
            around.push(inner);
        }
        let touch = |intervals: &mut Vec<Option<Interval>>, reg: Reg| {
            let Some((index, interval)) = reg
                .virtual_index()
                .and_then(|index| Some((index, intervals[index].as_mut()?)))
            else {
                return;
            };
            let home = body.registers[index]
                .loop_head
                .map_or(interval.start, |head| 2 * head);
            // Defined outside, used inside: needed again on the next trip. Outer loops come first.
            let outermost = around.iter().find(|&&(head, _)| home < 2 * head);
            let last = outermost.map_or(2 * i, |&(_, tail)| 2 * tail + 1);
            interval.last_use = interval.last_use.max(last);
        };
        match node {
            Node::Bind(_) => {}
            Node::Moves(moves) => {
                for &(_, _, source) in moves {
                    if let MoveSource::Reg(reg) = source {
                        touch(&mut intervals, reg);
                    }
                }
                for &(_, dst, source) in moves {
                    let hint = match source {
                        MoveSource::Reg(reg) => Some(reg),
                        MoveSource::Const(_) => None,
                    };
                    define(&mut intervals, dst, 2 * i + 1, hint);
                }
            }
            Node::Inst(line) => {
                let mut hint = None;
                let mut inst = line.inst;
                inst.for_each_operand(|class, role, reg| match role {
                    Role::Use => {
                        touch(&mut intervals, *reg);
                        hint = hint.or(Some((class, *reg)));
                    }
                    Role::Def | Role::Modify => {
                        if role == Role::Modify {
                            touch(&mut intervals, *reg);
                        }
                        let same_file = hint.filter(|&(file, _)| file == class);
                        define(
                            &mut intervals,
                            *reg,
                            2 * i + 1,
                            same_file.map(|(_, reg)| reg),
                        );
                    }
                });
            }
        }
    }
    backward_hints(body, &mut intervals);
    intervals
}

/// What is moved into a fixed register had best be computed there.
fn backward_hints<I: MachineInst>(body: &Body<I>, intervals: &mut [Option<Interval>]) {
    for node in body.nodes.iter().rev() {
        let Node::Inst(Line { inst, .. }) = node else {
            continue;
        };
        let Some((dst, src)) = inst.as_copy() else {
            continue;
        };
        let fixed = match dst.virtual_index() {
            None => Some(dst),
            Some(index) => intervals[index]
                .and_then(|interval| interval.hint)
                .filter(|hint| hint.virtual_index().is_none()),
        };
        if let (Some(fixed), Some(index)) = (fixed, src.virtual_index())
            && let Some(interval) = &mut intervals[index]
        {
            interval.hint = Some(fixed);
        }
    }
}

/// Lets the next value of a loop parameter take the parameter's register where the old value is dead by then, so that
/// going round costs no move.
fn merge_loop_arguments<I>(body: &Body<I>, intervals: &mut [Option<Interval>]) {
    for &(head, tail) in &body.loops {
        for node in &body.nodes[head..=tail] {
            let Node::Moves(moves) = node else { continue };
            for &(_, param, source) in moves {
                let MoveSource::Reg(argument) = source else {
                    continue;
                };
                let (Some(p), Some(a)) = (param.virtual_index(), argument.virtual_index()) else {
                    continue;
                };
                let (Some(old), Some(new)) = (intervals[p], intervals[a]) else {
                    continue;
                };
                if body.registers[p].loop_head == Some(head)
                    && old.merged_into.is_none()
                    && new.merged_into.is_none()
                    && body.registers[a].loop_head.is_none()
                    && new.start > 2 * head
                    && old.last_use < new.start
                {
                    intervals[p] = Some(Interval {
                        last_use: new.last_use,
                        last_def: old.last_def.max(new.last_def),
                        ..old
                    });
                    intervals[a] = Some(Interval {
                        merged_into: Some(p),
                        ..new
                    });
                }
            }
        }
    }
}

/// When instructions with fixed registers need them: ranges of positions for each physical register.
fn fixed_ranges<I: MachineInst>(body: &Body<I>) -> Vec<Vec<(usize, usize)>> {
    let mut ranges: Vec<Vec<(usize, usize)>> = vec![Vec::new(); Reg::PHYSICAL];
    for (i, node) in body.nodes.iter().enumerate() {
        let Node::Inst(line) = node else { continue };
        let mut inst = line.inst;
        inst.for_each_operand(|_, role, reg| {
            if reg.virtual_index().is_some() {
                return;
            }
            let ranges = &mut ranges[reg.physical_index()];
            if role != Role::Def
                && let Some(last) = ranges.last_mut()
            {
                last.1 = 2 * i;
            }
            if role != Role::Use {
                ranges.push((2 * i + 1, 2 * i + 1));
            }
        });
    }
    ranges
}

fn scan<I: MachineInst>(
    body: &Body<I>,
    intervals: &[Option<Interval>],
    allowed: Allowed<'_>,
) -> Result<Vec<Option<Reg>>, Pressure> {
    let fixed = fixed_ranges(body);
    let is_free = |reg: Reg, start: usize, end: usize| {
        let ranges = &fixed[reg.physical_index()];
        let next = ranges.partition_point(|&(_, last)| last < start);
        ranges.get(next).is_none_or(|&(first, _)| first > end)
    };
    let mut order: Vec<usize> = (0..intervals.len())
        .filter(|&v| intervals[v].is_some_and(|interval| interval.merged_into.is_none()))
        .collect();
    // Of what starts at once, those first that can save a move.
    order.sort_by_key(|&v| intervals[v].map(|i| (i.start, i.hint.is_none())));

    let hinted = intervals.iter().flatten().filter_map(|interval| {
        let reg = interval.hint?;
        reg.virtual_index()
            .is_none()
            .then_some((reg, interval.start))
    });
    let hinted: Vec<(Reg, usize)> = hinted.collect();

    let mut assigned: Vec<Option<Reg>> = vec![None; intervals.len()];
    let mut active: Vec<(usize, Reg)> = Vec::new();
    let end_of = |v: usize| intervals[v].map_or(0, |interval| interval.end());
    for v in order {
        let Some(interval) = intervals[v] else {
            continue;
        };
        let class = body.registers[v].class;
        active.retain(|&(other, _)| end_of(other) >= interval.start);
        let is_taken = |reg: Reg| {
            active.iter().any(|&(_, taken)| taken == reg)
                || !is_free(reg, interval.start, interval.end())
        };
        let allowed = allowed.of(class);
        let hint = interval
            .hint
            .and_then(|hint| match hint.virtual_index() {
                Some(index) => assigned[find(intervals, index)],
                None => Some(hint),
            })
            .filter(|&reg| allowed.contains(&reg) && !is_taken(reg));
        // It leaves a register to a value that starts before its end and had best be there.
        let within = interval.start + 1..=interval.end();
        let is_wanted = |reg| {
            let wants = |&(wanted, start): &(Reg, usize)| wanted == reg && within.contains(&start);
            hinted.iter().any(wants)
        };
        let mut free = allowed.iter().copied().filter(|&reg| !is_taken(reg));
        let unwanted = free.clone().find(|&reg| !is_wanted(reg));
        let free = hint.or(unwanted).or_else(|| free.next());
        let Some(reg) = free else {
            let candidates = active.iter().map(|&(other, _)| other).chain([v]);
            let recompute = candidates
                .filter(|&c| body.registers[c].class == class)
                .filter(|&c| body.registers[c].recomputable.is_some())
                .max_by_key(|&c| end_of(c))
                .and_then(|c| body.registers[c].recomputable);
            return Err(Pressure { class, recompute });
        };
        assigned[v] = Some(reg);
        active.push((v, reg));
    }
    for v in 0..assigned.len() {
        assigned[v] = assigned[find(intervals, v)];
    }
    Ok(assigned)
}

fn find(intervals: &[Option<Interval>], mut v: usize) -> usize {
    while let Some(into) = intervals[v].and_then(|interval| interval.merged_into) {
        v = into;
    }
    v
}

/// Replaces virtual registers, turns parallel moves into instructions and drops moves to the same register.
fn resolve<I: MachineInst>(body: &Body<I>, assigned: &[Option<Reg>]) -> Vec<Step<I>> {
    let physical = |reg: Reg| match reg.virtual_index() {
        Some(index) => assigned[index].unwrap_or(reg),
        None => reg,
    };
    let mut steps = Vec::with_capacity(body.nodes.len());
    for node in &body.nodes {
        match node {
            Node::Bind(label) => steps.push(Step::Bind(*label)),
            Node::Moves(moves) => {
                let moves = moves.iter().map(|&(class, dst, source)| {
                    let source = match source {
                        MoveSource::Reg(reg) => MoveSource::Reg(physical(reg)),
                        constant @ MoveSource::Const(_) => constant,
                    };
                    (class, physical(dst), source)
                });
                let insts = sequence(moves.collect());
                steps.extend(insts.into_iter().map(|inst| {
                    Step::Inst(Line {
                        inst,
                        value: None,
                        table: None,
                        note: "arguments",
                    })
                }));
            }
            Node::Inst(line) => {
                let mut line = *line;
                line.inst
                    .for_each_operand(|_, _, reg| *reg = physical(*reg));
                let is_idle = line.inst.as_copy().is_some_and(|(dst, src)| dst == src);
                if !is_idle {
                    steps.push(Step::Inst(line));
                }
            }
        }
    }
    steps
}

/// Parallel moves of physical registers as instructions, one after the other.
///
/// A move whose destination nobody else still reads goes first. Where none is left but cycles, swapping the registers of
/// one move completes it and shortens its cycle by one; no spare register is needed. Constants come last: they read nothing.
pub(super) fn sequence<I: MachineInst>(moves: Vec<(Class, Reg, MoveSource)>) -> Vec<I> {
    let mut insts = Vec::new();
    let mut pending: Vec<(Class, Reg, Reg)> = Vec::new();
    let mut constants = Vec::new();
    for (class, dst, source) in moves {
        match source {
            MoveSource::Reg(src) if src != dst => pending.push((class, dst, src)),
            MoveSource::Reg(_) => {}
            MoveSource::Const(imm) => constants.extend(I::constant(dst, imm)),
        }
    }
    while !pending.is_empty() {
        let ready = pending
            .iter()
            .position(|&(_, dst, _)| pending.iter().all(|&(_, _, src)| src != dst));
        let (class, dst, src) = pending.swap_remove(ready.unwrap_or(0));
        match ready {
            Some(_) => insts.push(I::copy(class, dst, src)),
            None => insts.extend(I::swap(class, dst, src)),
        }
        if ready.is_none() {
            // What was in dst is now in src.
            for (_, _, other) in &mut pending {
                if *other == dst {
                    *other = src;
                }
            }
            pending.retain(|&(_, dst, src)| dst != src);
        }
    }
    insts.extend(constants);
    insts
}
