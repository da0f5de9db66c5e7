//! What registers hold at the start of each block: the least state, up to widening, that covers every path.
//!
//! Blocks are visited in the order of the code until nothing changes; ways back are few and each loop settles in a few
//! rounds. Only then, with states that hold on every path, accesses are proved and faults reported.

use std::collections::BTreeSet;

use super::function::{Counter, Direction, Edge, Function};
use super::state::State;
use super::transfer::step;
use crate::audit::fault::{FaultKind, Faults};
use crate::audit::layout::Layout;
use crate::audit::number::Number;
use crate::audit::value::Value;
use crate::audit::{Accesses, AuditReport};

/// How often a block's state may change before bounds are widened. More than the rounds that a batch loop around an inner
/// loop needs to settle by itself.
const PATIENCE: u32 = 8;

/// Analyses one function, reports what cannot be proved, and adds what was to `report`.
pub(super) fn run(
    layout: Layout<'_>,
    function: &Function,
    arguments: State,
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

struct Analysis<'a> {
    layout: Layout<'a>,
    function: &'a Function,
    /// For each block, the counter of the loop that it is the head of.
    counters: Vec<Option<Counter>>,
}

fn counters(function: &Function) -> Vec<Option<Counter>> {
    let mut counters = vec![None; function.blocks.len()];
    for edge in function.blocks.iter().flat_map(|block| &block.edges) {
        if let Direction::Counted(counter) = edge.direction {
            counters[edge.to] = Some(counter);
        }
    }
    counters
}

impl Analysis<'_> {
    /// The state at the start of each block.
    fn settle(&self, arguments: State) -> Vec<Option<State>> {
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
                let _ = step(self.layout, &mut state, op, &mut Accesses::default());
            }
            for edge in &blocks[b].edges {
                let Some((taken, _)) = self.take(&state, edge) else {
                    continue;
                };
                let old: &mut Option<State> = &mut states[edge.to];
                let new = match old {
                    Some(old) => old.join(&taken, changes[edge.to] > PATIENCE),
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

    fn prove(&self, b: usize, mut state: State, counts: &mut Accesses, faults: &mut Faults) {
        let block = &self.function.blocks[b];
        let ops = &self.function.ops[block.ops.clone()];
        let mut fault = |at: usize, kind, detail: String| {
            let at = (ops[at].offset(), ops[at].text());
            faults.push_at(kind, self.layout.code, self.function.name, at, detail);
        };
        for (i, op) in ops.iter().enumerate() {
            if let Err((kind, detail)) = step(self.layout, &mut state, op, counts) {
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
    fn take(&self, state: &State, edge: &Edge) -> Option<(State, Option<&'static str>)> {
        let mut taken = state.given(edge.condition)?;
        let mut doubt = None;
        match edge.direction {
            Direction::Forward | Direction::Counted(_) => {}
            Direction::Back => match taken.taken_elements() {
                Some(elements) => taken.later_element(elements),
                None => {
                    doubt = Some(
                        "a way back that neither counts to a constant nor takes any of the remaining elements",
                    );
                }
            },
        }
        if let Some(counter) = self.counters[edge.to] {
            let is_next_trip = matches!(edge.direction, Direction::Counted(_));
            if !is_next_trip && taken.value(counter.register) != Value::constant(0) {
                doubt = Some("the counter of the loop does not start at 0");
            }
            // It is not written but by the step of the loop.
            let trips = Value::Number(Number::up_to(counter.trips - 1));
            taken.set(counter.register, trips);
        }
        Some((taken, doubt))
    }
}
