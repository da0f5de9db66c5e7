//! What registers hold at the start of each block: the least state, up to widening, that covers every path.
//!
//! Blocks are visited in the order of the code until nothing changes; ways back are few and each loop settles in a few
//! rounds. Only then, with states that hold on every path, accesses are proved and faults reported.

use std::collections::BTreeSet;
use std::ops::Range;

use super::fault::{FaultKind, Faults};
use super::layout::Layout;
use super::value::Value;
use super::{Accesses, AuditReport};

/// One instruction of a machine.
pub(super) trait Op {
    type State: State;

    /// Where it is, and its text.
    fn place(&self) -> (usize, String);

    /// Carries `state` across it.
    ///
    /// # Errors
    /// What cannot be proved; the state is right all the same, as if the access had been harmless.
    fn step(
        &self,
        layout: Layout<'_>,
        state: &mut Self::State,
        counts: &mut Accesses,
    ) -> Result<(), (FaultKind, String)>;
}

/// What is known at one point of the code, whichever path led there.
pub(super) trait State: Clone + PartialEq {
    /// When a branch is taken.
    type Condition: Copy;

    /// What is known if `condition` holds as well; `None` where it cannot.
    fn given(&self, condition: Self::Condition) -> Option<Self>;

    /// What holds whether this state does or the other; bounds that move are widened if `widen`.
    fn join(&self, other: &Self, widen: bool) -> Self;

    /// All that is followed: what registers hold, and what is kept in the frame.
    fn values(&mut self) -> impl Iterator<Item = &mut Value>;

    /// How many elements certainly exist from the current one on, so that their keys may be read and their results written.
    fn elements(&mut self) -> &mut u64;
}

/// What is known of a register by `value` is known of all that is certainly the same.
pub(super) fn learn<S: State>(state: &mut S, old: Value, value: Value) {
    for held in state.values().filter(|held| held.is_same_trip(old)) {
        *held = value;
    }
}

/// How many elements exist whether so many do or `other`; none if bounds that move are widened.
pub(super) fn join_elements(elements: u64, other: u64, widen: bool) -> u64 {
    if other < elements && widen {
        0
    } else {
        elements.min(other)
    }
}

/// The code of one entry, decoded.
pub(super) struct Function<O: Op> {
    pub(super) name: &'static str,
    pub(super) ops: Vec<O>,
    /// In the order of the code; the first is the entry.
    pub(super) blocks: Vec<Block<<O::State as State>::Condition>>,
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
    /// Whether it leads back in the code, to the head of a loop.
    pub(super) is_back: bool,
}

/// How often a block's state may change before bounds are widened. More than the rounds that a batch loop around an inner
/// loop needs to settle by itself.
const PATIENCE: u32 = 8;

/// Analyses one function, reports what cannot be proved, and adds what was to `report`.
pub(super) fn run<O: Op>(
    layout: Layout<'_>,
    function: &Function<O>,
    arguments: O::State,
    report: &mut AuditReport,
    faults: &mut Faults,
) {
    let mut is_head = vec![false; function.blocks.len()];
    for edge in function.blocks.iter().flat_map(|block| &block.edges) {
        is_head[edge.to] |= edge.is_back;
    }
    let analysis = Analysis {
        layout,
        function,
        is_head,
    };
    let states = analysis.settle(arguments);
    for (b, state) in states.into_iter().enumerate() {
        if let Some(state) = state {
            analysis.prove(b, state, &mut report.accesses, faults);
        }
    }
}

struct Analysis<'a, O: Op> {
    layout: Layout<'a>,
    function: &'a Function<O>,
    /// For each block, whether it is the head of a loop.
    is_head: Vec<bool>,
}

impl<O: Op> Analysis<'_, O> {
    /// The state at the start of each block.
    fn settle(&self, arguments: O::State) -> Vec<Option<O::State>> {
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
                let _ = op.step(self.layout, &mut state, &mut Accesses::default());
            }
            for edge in &blocks[b].edges {
                let Some((taken, _)) = self.take(&state, edge) else {
                    continue;
                };
                let old: &mut Option<O::State> = &mut states[edge.to];
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

    fn prove(&self, b: usize, mut state: O::State, counts: &mut Accesses, faults: &mut Faults) {
        let block = &self.function.blocks[b];
        let ops = &self.function.ops[block.ops.clone()];
        let mut fault = |at: usize, kind, detail: String| {
            let at = ops[at].place();
            faults.push_at(kind, self.layout.code, self.function.name, at, detail);
        };
        for (i, op) in ops.iter().enumerate() {
            if let Err((kind, detail)) = op.step(self.layout, &mut state, counts) {
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
    ///
    /// Why loops end: a count only goes back to 0 on a way forward to the head of its loop. On a path without end, let the first
    /// of the heads be the one that infinitely many ways back lead to. Code before it is reached finitely often, and so is it from
    /// there; from then on its count goes up with each way back, or there are fewer elements, and both have a bound.
    fn take(
        &self,
        state: &O::State,
        edge: &Edge<<O::State as State>::Condition>,
    ) -> Option<(O::State, Option<&'static str>)> {
        let mut taken = state.given(edge.condition)?;
        if edge.is_back {
            let goes_on = next_trip(&mut taken, edge.to) || next_element(&mut taken);
            let doubt = "a way back that neither counts to a constant nor takes any of the remaining elements";
            return Some((taken, (!goes_on).then_some(doubt)));
        }
        if self.is_head[edge.to] {
            for value in taken.values() {
                *value = value.first_trip(edge.to);
            }
        }
        Some((taken, None))
    }
}

/// Makes the next trip of a loop that counts to a constant the current one; whether it is such a loop.
fn next_trip<S: State>(state: &mut S, head: usize) -> bool {
    let Some(gain) = state.values().filter_map(|value| value.gain(head)).min() else {
        return false;
    };
    for value in state.values() {
        *value = value.next_trip(head, gain);
    }
    true
}

/// Makes the element behind those that were taken the current one; whether any was.
fn next_element<S: State>(state: &mut S) -> bool {
    let elements = *state.elements();
    let taken = state.values().filter_map(|value| value.taken(elements));
    let Some(taken) = taken.max().filter(|&taken| taken > 0) else {
        return false;
    };
    for value in state.values() {
        *value = value.later_element(taken);
    }
    *state.elements() -= taken;
    true
}
