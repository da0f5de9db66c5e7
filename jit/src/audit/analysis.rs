//! What registers hold at the start of each block: the least state, up to widening, that covers every path.
//!
//! Blocks are visited in the order of the code until nothing changes; ways back are few and each loop settles in a few
//! rounds. Only then, with states that hold on every path, accesses are proved and faults reported.

use std::collections::BTreeSet;
use std::ops::Range;

use super::fault::{FaultKind, Faults};
use super::layout::Layout;
use super::number::Number;
use super::value::Value;
use super::{Accesses, AuditReport};

/// The instructions of a machine, and what is known between them.
pub(super) trait Machine {
    /// One instruction.
    type Op;
    /// When a branch is taken.
    type Condition: Copy;
    /// What is known at one point of the code.
    type State: Clone + PartialEq;

    /// Where an instruction is, and its text.
    fn place(op: &Self::Op) -> (usize, String);

    /// Carries `state` across one instruction.
    ///
    /// # Errors
    /// What cannot be proved; the state is right all the same, as if the access had been harmless.
    fn step(
        layout: Layout<'_>,
        state: &mut Self::State,
        op: &Self::Op,
        counts: &mut Accesses,
    ) -> Result<(), (FaultKind, String)>;

    /// What is known if `condition` holds as well; `None` where it cannot.
    fn given(state: &Self::State, condition: Self::Condition) -> Option<Self::State>;

    /// What holds whether one state does or the other; bounds that move are widened if `widen`.
    fn join(one: &Self::State, other: &Self::State, widen: bool) -> Self::State;

    /// How many elements have been taken off those that remain, at least one.
    fn taken_elements(state: &Self::State) -> Option<u64>;

    /// Makes the element that many after the current one the current one; so many exist.
    fn later_element(state: &mut Self::State, elements: u64);

    /// The register that counts trips.
    fn counter(state: &mut Self::State, register: usize) -> &mut Value;
}

/// The code of one entry, decoded.
pub(super) struct Function<M: Machine> {
    pub(super) name: &'static str,
    pub(super) ops: Vec<M::Op>,
    /// In the order of the code; the first is the entry.
    pub(super) blocks: Vec<Block<M::Condition>>,
}

pub(super) struct Block<C> {
    /// Positions in [`Function::ops`].
    pub(super) ops: Range<usize>,
    pub(super) edges: Vec<Edge<C>>,
}

/// A way from one block to another.
#[derive(Clone, Copy)]
pub(super) struct Edge<C> {
    pub(super) to: usize,
    /// What is known where this way is taken.
    pub(super) condition: C,
    pub(super) direction: Direction,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    /// Back to the head of a loop that counts this register up to a constant.
    Counted(Counter),
    /// Back to the head of a loop of another kind.
    Back,
}

/// A register that is 0 when a loop is entered, one more with each trip, and below `trips` at its head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) register: usize,
    pub(super) trips: u64,
}

/// How often a block's state may change before bounds are widened. More than the rounds that a batch loop around an inner
/// loop needs to settle by itself.
const PATIENCE: u32 = 8;

/// Analyses one function, reports what cannot be proved, and adds what was to `report`.
pub(super) fn run<M: Machine>(
    layout: Layout<'_>,
    function: &Function<M>,
    arguments: M::State,
    report: &mut AuditReport,
    faults: &mut Faults,
) {
    let analysis = Analysis {
        layout,
        function,
        counters: counters(function),
    };
    let states = analysis.settle(arguments);
    for (b, state) in states.into_iter().enumerate() {
        if let Some(state) = state {
            analysis.prove(b, state, &mut report.accesses, faults);
        }
    }
}

struct Analysis<'a, M: Machine> {
    layout: Layout<'a>,
    function: &'a Function<M>,
    /// For each block, the counter of the loop that it is the head of.
    counters: Vec<Option<Counter>>,
}

fn counters<M: Machine>(function: &Function<M>) -> Vec<Option<Counter>> {
    let mut counters = vec![None; function.blocks.len()];
    for edge in function.blocks.iter().flat_map(|block| &block.edges) {
        if let Direction::Counted(counter) = edge.direction {
            counters[edge.to] = Some(counter);
        }
    }
    counters
}

impl<M: Machine> Analysis<'_, M> {
    /// The state at the start of each block.
    fn settle(&self, arguments: M::State) -> Vec<Option<M::State>> {
        let blocks = &self.function.blocks;
        let mut states = vec![None; blocks.len()];
        let mut changes = vec![0; blocks.len()];
        states[0] = Some(arguments);
        let mut pending = BTreeSet::from([0]);
        while let Some(b) = pending.pop_first() {
            let Some(mut state) = states[b].clone() else {
                continue;
            };
            for op in &self.function.ops[blocks[b].ops.clone()] {
                // Doubts about a state that may still grow are not final.
                let _ = M::step(self.layout, &mut state, op, &mut Accesses::default());
            }
            for edge in &blocks[b].edges {
                let Some((taken, _)) = self.take(&state, edge) else {
                    continue;
                };
                let old: &mut Option<M::State> = &mut states[edge.to];
                let new = match old {
                    Some(old) => M::join(old, &taken, changes[edge.to] > PATIENCE),
                    None => taken,
                };
                if old.as_ref() != Some(&new) {
                    *old = Some(new);
                    changes[edge.to] += 1;
                    pending.insert(edge.to);
                }
            }
        }
        states
    }

    fn prove(&self, b: usize, mut state: M::State, counts: &mut Accesses, faults: &mut Faults) {
        let block = &self.function.blocks[b];
        let ops = &self.function.ops[block.ops.clone()];
        let mut fault = |at: usize, kind, detail: String| {
            let at = M::place(&ops[at]);
            faults.push_at(kind, self.layout.code, self.function.name, at, detail);
        };
        for (i, op) in ops.iter().enumerate() {
            if let Err((kind, detail)) = M::step(self.layout, &mut state, op, counts) {
                fault(i, kind, detail);
            }
        }
        for edge in &block.edges {
            if let Some((_, Some(doubt))) = self.take(&state, edge) {
                fault(ops.len() - 1, FaultKind::UnboundedLoop, doubt.into());
            }
        }
    }

    /// The state after taking an edge, and what is wrong with taking it; `None` where it never is.
    fn take(
        &self,
        state: &M::State,
        edge: &Edge<M::Condition>,
    ) -> Option<(M::State, Option<&'static str>)> {
        let mut taken = M::given(state, edge.condition)?;
        let mut doubt = None;
        match edge.direction {
            Direction::Forward | Direction::Counted(_) => {}
            Direction::Back => match M::taken_elements(&taken) {
                Some(elements) => M::later_element(&mut taken, elements),
                None => {
                    doubt = Some(
                        "a way back that neither counts to a constant nor takes any of the remaining elements",
                    );
                }
            },
        }
        if let Some(counter) = self.counters[edge.to] {
            let is_next_trip = matches!(edge.direction, Direction::Counted(_));
            let held = M::counter(&mut taken, counter.register);
            if !is_next_trip && *held != Value::constant(0) {
                doubt = Some("the counter of the loop does not start at 0");
            }
            // It is not written but by the step of the loop.
            *held = Value::Number(Number::up_to(counter.trips - 1));
        }
        Some((taken, doubt))
    }
}
