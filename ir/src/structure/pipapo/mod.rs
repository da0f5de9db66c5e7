//! `pipapo`: pieces of the key select rows of bits, and their conjunction says which elements match.
//!
//! ```text
//! pieces   each field of a rule as ternary pieces: 10.0.0.6-10.0.0.9 = 10.0.0.6/31, 10.0.0.8/31
//! groups   4 or 8 bits of a field, each with one row of bits for each value of the group: bit p is set where piece p
//!          allows the value
//! stage    the rows that the key selects, anded: the pieces that match
//! map      a piece that matches sets the bits of all pieces of its rule in the next stage, where they are one row more
//! result   the rule of the first piece of the last stage that matches: pieces lie in the order of the rules
//! ```
//!
//! This is the structure of Linux `nft_set_pipapo` (Brivio, 2020), which goes back to the bit vectors of Lakshman and
//! Stiliadis (1998) over slices of the key (Taylor and Turner's survey, 2005). There a stage is a field, and one lookup
//! function serves every set. Here a lookup is written for one set:
//!
//! - **fewer stages**: fields are one stage where that is estimated to be less work than a map between them. Most sets, all
//!   of whose rules have one piece or few in each field, have one stage and no map: a single conjunction over the key;
//! - **fewer groups**: a group in which all pieces agree is not looked up. Where they want the same bits, these are compared,
//!   with all other such bits at once; where they want none, there is nothing to do;
//! - **no loops** over rows of up to 64 numbers: they are unrolled, and groups are visited once. Longer rows are visited in
//!   blocks of such a length;
//! - sizes, places and masks are constants of the code, and tables that are small lie behind it.
//!
//! Example: 10.0.0.4/31 . 80 and 10.0.0.6/31 . 443 in groups of 4 bits. Both rules want 10.0.0 and 0 in the high nibble of
//! the last byte: 28 bits that are compared, as is the high nibble of the port. Four groups are left. The row of nibble 4 of
//! the address is 01, that of 5 too, those of 6 and 7 are 10, all others 00; the rows of the port's nibbles are 01 for 0, 5
//! and 0, and 10 for 1, 11 and 11. Of the key 10.0.0.7 . 443 they give 10 & 10 & 10 & 10: rule 1.
//!
//! Cost: without a map, one load a group for each 256 pieces, and little that waits for another load. With maps it depends
//! on how many pieces match before the last stage: bounded, but not flat. Memory is groups * 16 or 256 * pieces / 8.

mod emit;
mod stage;

use crate::program::Program;
use crate::structure::common::Common;
use crate::structure::{Cost, Input, Refusal, empty};
use crate::verify::{MAX_SCRATCH, MAX_STEPS};
use stage::Stage;

/// How many bits the groups of a field have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupBits {
    Four,
    Eight,
    /// Eight, or four where the tables of the field would be large: the rule of Linux.
    BySize,
}

/// Each stage with the one behind it.
fn with_next(stages: &[Stage]) -> impl Iterator<Item = (&Stage, Option<&Stage>)> {
    let next = stages.iter().skip(1).map(Some).chain([None]);
    stages.iter().zip(next)
}

/// Which number is the first, which bit, and the rule's row.
const FIXED: Cost = Cost {
    instructions: 12.0,
    dependent_loads: 2.0,
    lines: 1.0,
    table_bytes: 0,
};

/// A map between two stages: branches that cannot be foreseen, of about 5 ns each.
const MAP: Cost = Cost {
    instructions: 90.0,
    dependent_loads: 3.0,
    lines: 1.0,
    table_bytes: 0,
};

/// Instructions that a piece that matches before a map is worth: its number again, its row of the map and the bits that it
/// sets, one after the other. Where hundreds match, each takes 7 to 10 ns (AMD EPYC, 2026-11-30).
const MAPPED_PIECE: f64 = 80.0;

/// Rules in whose middles estimates look.
const SAMPLE: usize = 32;

/// Stages, the first one first; none without rules.
pub(crate) struct Pipapo {
    stages: Vec<Stage>,
}

impl Pipapo {
    pub(crate) fn prepare(input: &Input<'_>, bits: GroupBits) -> Result<Self, Refusal> {
        if input.rows.is_empty() {
            return Ok(Self { stages: Vec::new() });
        }
        let stages = stage::stages(input, bits);
        let scratch: usize = stages.iter().skip(1).map(Stage::numbers).sum();
        if scratch > MAX_SCRATCH as usize {
            return Err(Refusal::OverScratch {
                bytes: 4 * scratch,
                max: 4 * MAX_SCRATCH as usize,
            });
        }
        let steps = with_next(&stages).map(|(stage, next)| stage.steps(next));
        let steps = steps.fold(0u64, u64::saturating_add);
        if steps > MAX_STEPS {
            return Err(Refusal::TooLong {
                steps,
                max: MAX_STEPS,
            });
        }
        Ok(Self { stages })
    }

    /// What a lookup costs at least: a bit for each rule in each byte of the key in which lower ends differ, or a map.
    pub(crate) fn floor(input: &Input<'_>) -> Cost {
        // Whole ones: few rules take none.
        let vectors = (input.rows.len() / 256) as f64;
        let groups = f64::from(input.differing_bytes());
        let one_stage = Cost {
            instructions: groups * (vectors + 2.0) + 4.0 * vectors,
            lines: groups * vectors / 2.0,
            ..Cost::default()
        };
        let two_stages = Cost {
            instructions: MAP.instructions + MAPPED_PIECE + groups * 2.0 + 4.0 * vectors,
            ..MAP
        };
        FIXED + input.machine.cheaper(one_stage, two_stages)
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        let mut sum = FIXED;
        let mut common = Common::new(input.layout().len());
        for agreed in self.stages.iter().flat_map(|stage| &stage.agreed) {
            common.want(usize::from(agreed.offset), agreed.care, agreed.value);
        }
        sum.instructions += common.instructions();
        let matching = self.matching(input);
        let mut of_maps = matching.iter().copied();
        let mut before = None;
        for (stage, next) in with_next(&self.stages) {
            sum = sum + stage.cost(before);
            let found = of_maps.next();
            let of_pieces = match next {
                None => stage.shape.rules_bytes(),
                Some(next) => {
                    sum.instructions += 4.0 * stage.group_count() as f64;
                    sum.instructions += MAPPED_PIECE * found.unwrap_or_default();
                    sum = sum + MAP;
                    stage.map_bytes(next)
                }
            };
            sum.table_bytes = sum.table_bytes.saturating_add(of_pieces);
            before = found;
        }
        sum
    }

    /// How many pieces match before each map: the mean over keys in the middle of some rules. A rule that matches has one
    /// piece that does.
    fn matching(&self, input: &Input<'_>) -> Vec<f64> {
        let mut stages = self.stages.iter();
        stages.next_back();
        let mut sums = vec![0; stages.len()];
        if sums.is_empty() {
            return Vec::new();
        }
        let every = input.rows.len().div_ceil(SAMPLE).max(1);
        let sample = input.rows.iter().step_by(every);
        for &row in sample.clone() {
            let key = middle(input, row);
            let mut matching = input.rows.clone();
            for (sum, stage) in sums.iter_mut().zip(stages.clone()) {
                matching.retain(|&row| stage.matches(input, row, &key));
                *sum += matching.len();
            }
        }
        let mean = |sum| sum as f64 / sample.len() as f64;
        sums.into_iter().map(mean).collect()
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        if input.rows.is_empty() {
            return empty(input);
        }
        emit::program(input, &self.stages)
    }
}

/// The values of the fields of a key in the middle of the rule of `row`.
fn middle(input: &Input<'_>, row: u32) -> Vec<u128> {
    let conditions = input.layout().fields().iter().zip(&input.rule(row).matches);
    conditions
        .map(|(field, condition)| {
            let (lo, hi) = (condition.lower(field), condition.upper(field));
            let middle = lo + (hi - lo) / 2;
            // What a mask asks for need not lie there.
            if condition.matches(field, middle) {
                middle
            } else {
                lo
            }
        })
        .collect()
}
