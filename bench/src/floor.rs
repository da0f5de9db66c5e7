//! The floor of a lookup: touches as many lines of tables as the lookup must read, with the same dependence between them,
//! and compares nothing.
//!
//! How many lines, how they depend on each other and how large the tables are is what the planner says of its structure.

use pktjit::{RuleSet, Structure};
use pktjit_ir::plan::{Choice, Options, PlanError, plan};

use crate::peer::Peer;

/// One cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u32; 16]);

/// Touches lines, and answers nothing.
pub struct Floor {
    /// All zero, which the compiler cannot know.
    table: Vec<Line>,
    /// Lines of one place.
    lines: usize,
    /// Loads in a chain, each of which needs the one before it.
    depth: usize,
    /// Where the bytes that tell keys apart are in the key: the last register of the first field.
    at: usize,
}

impl Floor {
    /// The floor of a lookup in `structure` over `rules`.
    ///
    /// # Errors
    /// Where the structure cannot hold the rules.
    pub fn new(rules: &RuleSet, structure: Structure) -> Result<Self, PlanError> {
        let options = Options {
            structure: Choice::Only(structure),
            ..Options::default()
        };
        let plan = plan(rules, &options)?;
        let estimates = plan.decision().candidates().iter();
        let cost = estimates
            .filter(|candidate| candidate.structure == structure)
            .find_map(|candidate| candidate.estimate.as_ref().ok())
            .map(|estimate| estimate.cost)
            .unwrap_or_default();
        let lines = (cost.lines.ceil() as usize).max(1);
        let first = usize::from(rules.layout().fields()[0].bytes());
        Ok(Self {
            table: vec![Line::default(); (cost.table_bytes / size_of::<Line>()).max(lines)],
            lines,
            depth: cost.dependent_loads.ceil() as usize,
            at: first.next_multiple_of(4) - 4,
        })
    }
}

impl Peer for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        let word = match key[self.at..].first_chunk() {
            Some(bytes) => u32::from_ne_bytes(*bytes),
            None => 0,
        };
        let places = self.table.len() - self.lines + 1;
        let scattered = if self.depth == 0 {
            0
        } else {
            word.wrapping_mul(0x9e37_79b1)
        };
        let mut place = ((u64::from(scattered) * places as u64) >> 32) as usize;
        let chained = self.depth.saturating_sub(1).min(self.lines);
        for line in 0..chained {
            place += self.table[place + line].0[0] as usize;
        }
        let rest = &self.table[place + chained..place + self.lines];
        word ^ match rest.len() {
            0 => 0,
            1 => touch::<1>(rest),
            2 => touch::<2>(rest),
            3 => touch::<3>(rest),
            4 => touch::<4>(rest),
            _ => rest.iter().fold(0, |sum, line| sum ^ line.0[0]),
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.table)
    }

    fn is_checked(&self) -> bool {
        false
    }
}

/// Reads a word of each of the first `N` lines, without a loop.
#[inline(always)]
fn touch<const N: usize>(lines: &[Line]) -> u32 {
    let lines = lines.first_chunk::<N>();
    lines.map_or(0, |lines| lines.iter().fold(0, |sum, line| sum ^ line.0[0]))
}
