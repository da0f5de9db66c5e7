//! The floor of a lookup: touches as many lines of tables as the lookup must read, with the same dependence between them,
//! and compares nothing.
//!
//! How many lines, how they depend on each other and how large the tables are is what the planner says of its structure.

use pktjit::{RuleSet, Structure};
use pktjit_ir::Cost;
use pktjit_ir::plan::{Choice, Options, PlanError, plan};

use crate::peer::Peer;
use crate::suite::Contender;

/// One cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u32; 16]);

/// Touches `LINES` lines, the first of them before the place of the others is known if `CHAINED`; answers nothing. All is
/// constant, since a loop would cost more than what it is to show.
struct Floor<const CHAINED: bool, const LINES: usize> {
    /// All zero, which the compiler cannot know.
    table: Vec<Line>,
    /// Where the bytes that tell keys apart are in the key: the last register of the first field.
    at: usize,
}

/// The floor of a lookup in `structure` over `rules`. Of more than eight lines, eight are touched: it stays a floor.
///
/// # Errors
/// Where the structure cannot hold the rules.
pub fn contender<'a>(rules: &RuleSet, structure: Structure) -> Result<Contender<'a>, PlanError> {
    let options = Options {
        structure: Choice::Only(structure),
        ..Options::default()
    };
    let plan = plan(rules, &options)?;
    let mut candidates = plan.decision().candidates().iter();
    let estimate = candidates.find_map(|candidate| candidate.estimate.as_ref().ok());
    let cost = estimate.map(|estimate| estimate.cost).unwrap_or_default();
    Ok(
        match (cost.dependent_loads > 1.0, cost.lines.ceil() as usize) {
            (false, 0 | 1) => floor::<false, 1>(rules, cost),
            (false, 2) => floor::<false, 2>(rules, cost),
            (false, 3) => floor::<false, 3>(rules, cost),
            (false, 4..=7) => floor::<false, 4>(rules, cost),
            (false, _) => floor::<false, 8>(rules, cost),
            (true, 0..=2) => floor::<true, 2>(rules, cost),
            (true, 3) => floor::<true, 3>(rules, cost),
            (true, 4..=7) => floor::<true, 4>(rules, cost),
            (true, _) => floor::<true, 8>(rules, cost),
        },
    )
}

fn floor<'a, const CHAINED: bool, const LINES: usize>(
    rules: &RuleSet,
    cost: Cost,
) -> Contender<'a> {
    let first = usize::from(rules.layout().fields()[0].bytes());
    Contender::build(|| Floor::<CHAINED, LINES> {
        table: vec![Line::default(); (cost.table_bytes / size_of::<Line>()).max(LINES)],
        at: first.next_multiple_of(4) - 4,
    })
}

impl<const CHAINED: bool, const LINES: usize> Peer for Floor<CHAINED, LINES> {
    fn name(&self) -> &'static str {
        "floor"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        let word = key[self.at..].first_chunk().copied();
        let scattered = word.map_or(0, u32::from_ne_bytes).wrapping_mul(0x9e37_79b1);
        let places = (self.table.len() - LINES + 1) as u64;
        let place = ((u64::from(scattered) * places) >> 32) as usize;
        let chained = if CHAINED {
            self.table[place].0[0] as usize
        } else {
            0
        };
        let lines = self.table[place + chained..].first_chunk::<LINES>();
        lines.map_or(0, |lines| lines.iter().fold(0, |sum, line| sum ^ line.0[0]))
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.table)
    }

    fn is_checked(&self) -> bool {
        false
    }
}
