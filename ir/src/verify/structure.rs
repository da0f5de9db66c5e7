//! Rules 1 to 5: blocks, numbering, edges and loops.

use super::{Fault, MAX_STEPS, MAX_TRIPS, Verifier};
use crate::entity::BlockId;
use crate::program::{Terminator, Type};

/// A loop: the blocks from `head` to `tail`.
#[derive(Clone, Copy)]
struct Loop {
    head: usize,
    tail: usize,
    /// Trips of this loop times those of the loops around it.
    times: u64,
}

impl Loop {
    fn contains(&self, block: usize) -> bool {
        (self.head..=self.tail).contains(&block)
    }
}

impl Verifier<'_> {
    pub(super) fn structure(&mut self) {
        let blocks = &self.program.blocks;
        let Some(entry) = blocks.first() else {
            fault!(self, "there is no block");
            return;
        };
        if entry.trips.is_some() || !entry.params.is_empty() {
            fault!(self, "block0 has parameters or is a loop head");
        }
        self.numbering();
        let around = self.loops();
        self.edges(&around);
    }

    fn numbering(&mut self) {
        for (b, block) in self.program.blocks.iter().enumerate() {
            self.at = (Some(BlockId::new(b as u32)), None);
            let params = block.params.iter().map(|&(value, _)| value);
            let insts = block.insts.iter().map(|&(value, _)| value);
            for value in params.chain(insts) {
                match self.home.get(value.index()) {
                    None => fault!(
                        self,
                        "{value} is numbered beyond the {} values that there are",
                        self.home.len()
                    ),
                    Some(&usize::MAX) => self.home[value.index()] = b,
                    Some(_) => fault!(self, "{value} is defined twice"),
                }
            }
        }
        self.at = (None, None);
    }

    /// Checks the loops and the number of steps. Yields for each block the innermost loop around it; for a head that is
    /// not its own loop, but the one around.
    fn loops(&mut self) -> Vec<Option<Loop>> {
        let blocks = &self.program.blocks;
        // The blocks that repeat to each block: how many, and the last.
        let mut repeats = vec![(0u32, 0); blocks.len()];
        for (b, block) in blocks.iter().enumerate() {
            if let Terminator::Repeat { head, .. } = block.terminator {
                match blocks.get(head.index()) {
                    Some(target) if target.trips.is_some() => {
                        let (count, _) = repeats[head.index()];
                        repeats[head.index()] = (count + 1, b);
                    }
                    _ => {
                        self.at = (Some(BlockId::new(b as u32)), Some(block.insts.len()));
                        fault!(self, "`repeat` to {head}, which is no loop head");
                    }
                }
            }
        }
        let mut around = Vec::with_capacity(blocks.len());
        let mut open: Vec<Loop> = Vec::new();
        let mut steps = 0u64;
        for (b, block) in blocks.iter().enumerate() {
            self.at = (Some(BlockId::new(b as u32)), None);
            while open.last().is_some_and(|inner| inner.tail < b) {
                open.pop();
            }
            let outer = open.last().copied();
            around.push(outer);
            if let Some(trips) = block.trips {
                if trips == 0 || trips > MAX_TRIPS {
                    fault!(self, "{trips} trips, not 1 to {MAX_TRIPS}");
                }
                if !matches!(block.params.first(), Some((_, Type::Scalar))) {
                    fault!(self, "a loop head's first parameter is its scalar counter");
                }
                match repeats[b] {
                    (1, tail) if tail < b => {
                        fault!(self, "the `repeat` is in block{tail}, before its loop head")
                    }
                    (1, tail) if outer.is_some_and(|outer| tail > outer.tail) => {
                        fault!(
                            self,
                            "the loop ends in block{tail}, after the one around it"
                        );
                    }
                    (1, tail) => {
                        let times = outer.map_or(1, |outer| outer.times);
                        let times = times.saturating_mul(trips.into());
                        open.push(Loop {
                            head: b,
                            tail,
                            times,
                        });
                    }
                    (count, _) => fault!(self, "a loop head with {count} `repeat`s, not one"),
                }
            }
            let times = open.last().map_or(1, |inner| inner.times);
            steps = steps.saturating_add(times.saturating_mul(block.insts.len() as u64 + 1));
        }
        self.at = (None, None);
        if steps > MAX_STEPS {
            fault!(self, "a lookup may take {steps} steps, above {MAX_STEPS}");
        }
        around
    }

    /// Forward edges only go forward and enter loops at their heads; every block is reached; dominators.
    fn edges(&mut self, around: &[Option<Loop>]) {
        for (b, block) in self.program.blocks.iter().enumerate() {
            if !self.dominators.is_reached(b) {
                self.at = (Some(BlockId::new(b as u32)), None);
                fault!(self, "the block cannot be reached");
                continue;
            }
            self.at = (Some(BlockId::new(b as u32)), Some(block.insts.len()));
            for to in forward_targets(&block.terminator) {
                let t = to.index();
                if t <= b || t >= around.len() {
                    fault!(self, "{to} is not a later block");
                    continue;
                }
                // Loops nest: what is inside the innermost one is inside all of them.
                if around[t].is_some_and(|inner| !inner.contains(b)) {
                    fault!(
                        self,
                        "{to} is inside a loop, which is entered at its head alone"
                    );
                }
                self.dominators.edge(b, t);
            }
        }
        self.at = (None, None);
    }
}

/// The targets of a terminator other than the head of a `repeat`.
fn forward_targets(terminator: &Terminator) -> impl Iterator<Item = BlockId> {
    let pair = match *terminator {
        Terminator::Jump { to, .. } => [Some(to), None],
        Terminator::BranchIf {
            then, otherwise, ..
        } => [Some(then), Some(otherwise)],
        Terminator::Repeat { exit, .. } => [Some(exit), None],
        Terminator::Return { .. } => [None, None],
    };
    pair.into_iter().flatten()
}
