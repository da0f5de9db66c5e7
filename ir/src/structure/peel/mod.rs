//! `peel`: rule groups taken off a prioritised list one after the other, each with an index of its own.

mod emit;
mod group;
mod leaves;
mod select;
mod ternary;

use self::emit::Stage;
use self::group::{Group, Settings, every};
use self::ternary::Ternaries;
use crate::plan::Effort;
use crate::program::Program;
use crate::structure::linear::Blocks;
use crate::structure::{Cost, Input, Refusal, empty};

/// Most groups.
const MAX_GROUPS: usize = 8;

/// Rules in groups, and a rest.
pub(crate) struct Peel {
    stages: Vec<Stage>,
    rest: Option<Blocks>,
}

impl Peel {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        let ternaries = Ternaries::new(input);
        let mut left: Vec<u32> = (0..input.rows.len() as u32).collect();
        let mut stages = Vec::new();
        let lanes = usize::from(input.machine.lanes);
        while left.len() > 2 * lanes && stages.len() < MAX_GROUPS {
            let sample = every(&left, 2000);
            let mut best: Option<(f64, Settings)> = None;
            let verbose = std::env::var("PEEL").is_ok();
            let t = std::time::Instant::now();
            let mut n = 0;
            for settings in candidates(input, &ternaries, &sample) {
                n += 1;
                let group = Group::new(input, &ternaries, &sample, &settings);
                let scale = left.len() as f64 / sample.len() as f64;
                let (kept, copies) = (group.kept.len(), group.parts.total());
                let over = group.left_over.len() as f64 * scale;
                if kept == 0 { continue; }
                let mut cost = Stage::new(input, group).cost(&input.machine);
                cost.table_bytes = (cost.table_bytes as f64 * scale) as usize;
                let ns = input.machine.nanoseconds(&cost) + further(input, over);
                if verbose && std::env::var("PEEL").unwrap() == "2" {
                    eprintln!("   {:x} wild {} cap {} two {}: kept {kept} copies {copies} over {over:.0} ns {ns:.1}", settings.levels, settings.max_wild, settings.capacity, settings.has_two_levels);
                }
                if best.is_none_or(|(least, _)| ns < least) {
                    best = Some((ns, settings));
                }
            }
            let Some((ns, settings)) = best else { break };
            let t1 = t.elapsed();
            let group = Group::new(input, &ternaries, &left, &settings);
            let t2 = t.elapsed();
            if verbose { eprintln!("{} rules, {n} tried: {settings:x?} {ns:.1} -> kept {} copies {} left {} cells {} parts {}; {:?} {:?}", left.len(), group.kept.len(), group.parts.total(), group.left_over.len(), group.cells.len(), group.parts.len(), t1, t2 - t1); }
            if group.kept.is_empty() { break; }
            left.clone_from(&group.left_over);
            stages.push(Stage::new(input, group));
            if verbose { eprintln!("   stage {:?} {:?}", t.elapsed() - t2, stages.last().unwrap().cost(&input.machine)); }
        }
        let rows: Vec<u32> = left.iter().map(|&rule| input.rows[rule as usize]).collect();
        let mut rest = None;
        if left.len() > 6 * lanes {
            rest = Some(Blocks::prepare(input, &rows)?);
        } else if !left.is_empty() {
            let settings = Settings { levels: 0, max_wild: 0, capacity: left.len().next_multiple_of(lanes), has_two_levels: false };
            stages.push(Stage::new(input, Group::whole(input, left, settings)));
        }
        Ok(Self { stages, rest })
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        let rest = self.rest.as_ref().map_or(Cost::default(), |rest| rest.cost(input));
        self.stages.iter().fold(rest, |sum, stage| sum + stage.cost(&input.machine))
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        if input.rows.is_empty() {
            return empty(input);
        }
        emit::build(input, &self.stages, self.rest.as_ref())
    }
}

fn candidates(input: &Input<'_>, ternaries: &Ternaries, sample: &[u32]) -> Vec<Settings> {
    let lanes = usize::from(input.machine.lanes);
    let fields = input.layout().fields().len();
    let mut levels = vec![0u32];
    let singles: Vec<u32> = (0..fields).flat_map(|f| [1 << (2 * f), 3 << (2 * f)]).collect();
    levels.extend(&singles);
    for (i, a) in singles.iter().enumerate() { for b in &singles[i + 1..] { if a & b == 0 { levels.push(a | b); } } }
    let mut counts: Vec<usize> = Vec::new();
    levels.retain(|levels| {
        let count = sample.iter().filter(|&&rule| levels & !ternaries.levels(rule) == 0).count();
        let keep = count >= sample.len() / 8 && !counts.contains(&count);
        counts.push(count);
        keep
    });
    let _ = Effort::Fast;
    let mut all = Vec::new();
    for levels in levels { for max_wild in [1, 2, 4] { for blocks in [1, 2, 3, 4] { for has_two_levels in [false, true] {
        all.push(Settings { levels, max_wild, capacity: blocks * lanes, has_two_levels });
    } } } }
    all
}

fn further(input: &Input<'_>, rules: f64) -> f64 {
    let blocks = rules / f64::from(input.machine.lanes);
    if blocks <= 2.0 { 1.8 * blocks } else { 3.6 + 4.0 * (blocks / 2.0).log2() }
}
