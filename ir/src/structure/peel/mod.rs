//! `peel`: rule groups taken off a prioritised list one after the other, each with an index of its own.

mod emit;
mod group;
mod leaves;
mod select;
mod ternary;

use self::emit::Stage;
use self::group::{Group, Settings, all_bits, every};
use self::select::{Aim, MAX_BLOCKS, choose};
use self::ternary::{Ternaries, Ternary};
use crate::plan::Effort;
use crate::program::Program;
use crate::structure::bits::Index;
use crate::structure::compare::Comparison;
use crate::structure::linear::Blocks;
use crate::structure::{Cost, Input, Refusal, empty};

/// Most groups.
const MAX_GROUPS: usize = 8;
/// Most bits of an index.
const MAX_INDEX_BITS: usize = 20;
/// Most vectors of rules that are compared with every key outside a loop.
const MAX_REST_BLOCKS: usize = 6;

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
        while left.len() > lanes && stages.len() < MAX_GROUPS {
            let t = std::time::Instant::now();
            let sample = every(&left, knob("K_SAMPLE", 1024.0) as usize);
            let word = Index::new(input.layout(), &ternaries.telling_bits(&sample));
            let Some((ns, settings)) = cheapest(input, &ternaries, &left, &sample, &word) else { break };
            let t1 = t.elapsed();
            let group = Group::new(input, &ternaries, &left, &word, &settings);
            let t2 = t.elapsed();
            if knob("PEEL", 0.0) > 0.0 { eprintln!("{} rules: {settings:x?} {ns:.1} -> kept {} copies {} left {} cells {}; {:?} {:?}", left.len(), group.kept.len(), group.cells.total(), group.left_over.len(), group.cells.len(), t1, t2 - t1); }
            if group.kept.is_empty() { break; }
            left.clone_from(&group.left_over);
            stages.push(Stage::new(input, group));
            if knob("PEEL", 0.0) > 0.0 { eprintln!("   stage {:?} {:?}", t.elapsed() - t2, stages.last().unwrap().cost(&input.machine)); }
        }
        let mut rest = None;
        if left.len() > MAX_REST_BLOCKS * lanes {
            let rows: Vec<u32> = left.iter().map(|&rule| input.rows[rule as usize]).collect();
            rest = Some(Blocks::prepare(input, &rows)?);
        } else if !left.is_empty() {
            stages.push(Stage::new(input, Group::whole(input, left)));
        }
        Ok(Self { stages, rest })
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        let rest = self.rest.as_ref().map_or(Cost::default(), |rest| rest.cost(input));
        let keys = self.stages.first().map_or(Cost::default(), Stage::key_cost);
        self.stages.iter().fold(rest + keys, |sum, stage| sum + stage.cost(&input.machine))
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        if input.rows.is_empty() {
            return empty(input);
        }
        emit::build(input, &self.stages, self.rest.as_ref())
    }
}

/// The settings for which a group of a sample of the rules that are left is cheapest together with what it leaves over.
fn cheapest(input: &Input<'_>, ternaries: &Ternaries, left: &[u32], sample: &[u32], word: &Index) -> Option<(f64, Settings)> {
    let machine = &input.machine;
    let lanes = usize::from(machine.lanes);
    let scale = left.len() as f64 / sample.len() as f64;
    let more_bits = scale.log2().round() as usize;
    let gathered: Vec<Ternary> = sample.iter().map(|&rule| ternaries.gather(rule, word)).collect();
    let mut best: Option<(f64, Settings)> = None;
    for levels in filters(input, ternaries, sample) {
        let is_let_in = |&rule: &u32| levels & !ternaries.levels(rule) == 0;
        let own: Vec<u32> = sample.iter().copied().filter(is_let_in).collect();
        let rule = |&rule: &u32| input.rule(input.rows[rule as usize]);
        let shape = every(&own, 128);
        let comparison = Comparison::new(input.layout(), shape.iter().map(rule));
        for max_wild in [1, 2, 4] {
            let ternaries: Vec<Ternary> = sample.iter().zip(&gathered).filter(|(rule, _)| is_let_in(rule)).map(|(_, &t)| t).collect();
            let aim = Aim { capacity: lanes, max_bits: (own.len().max(2).ilog2() as usize + 1).min(MAX_INDEX_BITS - more_bits), max_wild };
            let steps = choose(ternaries, all_bits(word), &aim);
            for (bits, step) in steps.iter().enumerate() {
                for blocks in 1..=MAX_BLOCKS {
                    let leaves = (step.placed / (blocks * lanes)) as f64 * 1.2 + 1.0;
                    let entries = (1usize << bits) as f64 * 2.0;
                    let index = Cost { instructions: 10.0, ..Cost::default() };
                    let cost = index + emit::path_cost((entries * scale) as usize)
                        + emit::leaf_cost(&comparison, machine, blocks, (leaves * scale) as usize);
                    let lost = sample.len() - own.len() + step.given_up + step.overflow[blocks - 1];
                    if lost as f64 > knob("K_SHARE", 0.75) * sample.len() as f64 { continue; }
                    let ns = machine.nanoseconds(&cost) + knob("K_LINE", 0.0) * cost.lines + further(input, lost as f64 * scale);
                    if best.is_none_or(|(least, _)| ns < least) {
                        best = Some((ns, Settings { levels, max_wild, max_bits: if bits == 0 { 0 } else { bits + more_bits }, blocks }));
                    }
                }
            }
        }
    }
    best
}

/// The filters that let in different shares of the sample.
fn filters(input: &Input<'_>, ternaries: &Ternaries, sample: &[u32]) -> Vec<u32> {
    let fields = input.layout().fields().len();
    let mut levels = vec![0u32];
    let singles: Vec<u32> = (0..fields).flat_map(|f| [1 << (2 * f), 3 << (2 * f)]).collect();
    levels.extend(&singles);
    for (i, a) in singles.iter().enumerate() { for b in &singles[i + 1..] { if a & b == 0 { levels.push(a | b); } } }
    let mut counts: Vec<usize> = Vec::new();
    levels.retain(|levels| {
        let count = sample.iter().filter(|&&rule| levels & !ternaries.levels(rule) == 0).count();
        let keep = count >= sample.len() / 8 && !counts.iter().any(|&c| c.abs_diff(count) <= sample.len() / 32);
        if keep { counts.push(count); }
        keep
    });
    let _ = Effort::Fast;
    levels
}

fn further(input: &Input<'_>, rules: f64) -> f64 {
    let blocks = rules / f64::from(input.machine.lanes);
    if blocks <= 2.0 { 1.8 * blocks } else { 3.6 + knob("K_LOG", 2.6) * (blocks / 2.0).log2() }
}
fn knob(name: &str, default: f64) -> f64 { std::env::var(name).map_or(default, |v| v.parse().unwrap()) }
