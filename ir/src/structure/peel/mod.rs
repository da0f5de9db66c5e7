//! `peel`: rule groups are taken off a prioritised list one after the other, each with an index of its own.
//!
//! ```text
//! for each group:  cell  = pext(key, bits)                         the bits that tell its rules apart
//!                  leaf  = cells[cell]
//!                  best  = masked minimum of best and the rows of the rules of leaves[leaf] that match
//! at the end:      the least lane of best
//! ```
//!
//! One index over all rules of a firewall would copy every rule that is wild in its bits to half of the cells, and overlapping
//! rules would still meet in one of them. So the list is *peeled*: the rules that some bits tell apart well become a
//! group, and what is wild in those bits or finds its cell full is left over for the next group, which looks at other bits.
//! The number of groups follows the overlap of the rules, not their number.
//!
//! **A worked example.** Of the 794 rules of `fw1_1k`, 775 can win. Nine bits of the key tell some hundreds that
//! want certain destination ports apart so well that no cell holds more than 8: 68 leaves for 512 cells. The others, fewer
//! than 512, overlap so much that bit vectors of two words of 256 bits are quicker than more groups.
//!
//! **The search.** A group is judged on a sample, by the time of its own lookup plus what is expected for the rules that it
//! leaves over. Tried are filters (up to two fields in which all rules of the group must be specific), limits on the bits in
//! which a rule may be wild, every number of index bits, and leaves of one to four vectors; one [selection](select) of bits
//! serves all of the last two. Time grows linearly with the rules, memory too: constants bound what is done for a rule
//! and a group, and the choice of bits draws on the budget of work.
//!
//! **The rest.** What the groups leave over, or what the last of them would take, is compared block after block, or has bit
//! vectors ([`classes`](crate::structure::classes)), whichever is quicker: a thousand wide rules that all hold at one point
//! are told apart by no index, and are a few vectors a field there.
//!
//! **Leaves** hold ports and protocols as narrow as they are: an instruction more for each such column, and three quarters
//! of the memory. Of lists of 100,000 rules, whose tables are in the third-level cache, batches took 0.86 of the time, of
//! those of 1000 rules the same (AMD EPYC, 8 lanes, 2026-11-30).
//!
//! **Cost** of a group: two dependent loads, and about 4 instructions a field for each vector of rules. The ways of four groups
//! are computed before the first of their leaves is compared, so that their loads wait at the same time.
//!
//! **Tried and dropped**: bits of a cell's own where it is too full (a second level). It takes fewer groups, but its
//! chain of loads cost more than they did: 31 instead of 20 ns on `fw1_1k`, 38 instead of 23 on `fw1_10k`, 15 instead
//! of 11.5 on `acl1_1k` (AMD EPYC, 8 lanes, 2026-11-30).
//!
//! **Updates** of a live list are not there, and nothing here is in their way. A cell names its leaf by a number, a leaf never
//! changes, and no leaf has an order: a rule would be added by writing a new leaf behind the others and then its number into the
//! cells, one aligned store each, and be deleted likewise, with what it had covered in the cells written anew. That takes
//! row numbers with gaps, room behind the leaves, and tables that may be written.
//!
//! Sources: independent groups by which fields are wide are EffiCuts' separable trees (Vamanan et al., 2010), bits anywhere
//! in the key instead of cuts are those of modular classification (Woo, 2000) and ByteCuts (Daly and Torng, 2018). Leaves
//! that are compared at once and one minimum over all groups are ours.

mod emit;
mod group;
mod leaves;
mod select;
mod ternary;
#[cfg(test)]
mod tests;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use self::emit::{Stage, comparison, leaf_cost, path_cost};
use self::group::{Group, Settings, all_bits, every};
use self::select::{Aim, MAX_BLOCKS, Step, choose};
use self::ternary::Ternaries;
use crate::plan::{Effort, Machine};
use crate::program::Program;
use crate::structure::bits::{Index, Ternary};
use crate::structure::classes::Classes;
use crate::structure::compare::Comparison;
use crate::structure::group::{MAX_INDEX_BITS, MAX_WILD};
use crate::structure::linear::Blocks;
use crate::structure::{Cost, Input, Refusal, empty};

/// Most groups. What they leave is compared in a loop.
const MAX_GROUPS: usize = 16;
/// A group takes at least a quarter of the rules. Smaller ones look cheap, but eight of them took 640 of 88,753 rules.
const MIN_SHARE: f64 = 0.25;
/// Groups of a sample that are built, to judge them by what they really leave over. With two, three and four of them, lists
/// made like ClassBench's had estimates of 0.945, 0.934 and 0.982 of those of four with bits chosen by 32,768 rules (geometric
/// mean of acl, fw and ipc with 1000 and 10,000 rules, 8 lanes, 2026-12-01).
const MOST_BUILT: usize = 3;
/// Most rules that may be left to bit vectors: 16 blocks of 256, for each field.
const MAX_CLASSED: usize = 4096;
/// Most rules for which both outlooks are tried with balanced effort: there it takes few milliseconds.
const FEW_RULES: usize = 1 << 11;
/// Most rules for which the eager outlook is better.
const MANY_RULES: usize = 1 << 14;
/// Rules whose tests stand for those of a group in estimates.
const SHAPE_SAMPLE: usize = 128;

/// A lookup costs at least this: a leaf of one vector, compared in one word.
pub(crate) const FLOOR: Cost = Cost {
    instructions: 16.0,
    dependent_loads: 1.0,
    lines: 0.0,
    table_bytes: 0,
};

/// Rules in groups, and a rest.
pub(crate) struct Peel {
    stages: Vec<Rc<Stage>>,
    rest: Option<Rest>,
}

/// What rules that are left over are expected to cost, in nanoseconds: smooth in their number, so that the search is not misled
/// by steps.
struct Outlook {
    /// Each of the first two vectors of rules, of eight lanes.
    vector: f64,
    /// Whenever there are twice as many.
    doubling: f64,
}

/// Takes what is told apart cheaply and leaves over the rest. Over the nine ClassBench sets (2026-11-30), batches of acl1_1k,
/// fw1_1k, ipc1_1k, acl1_10k, fw1_10k and ipc1_10k took 10.8, 17.4, 13.3, 16.6, 18.9 and 36.0 ns with it, and 14.6, 17.4,
/// 14.1, 24.4, 19.3 and 38.1 ns with the patient one; of fw1_100k and ipc1_100k 81 and 45 ns, and 70 and 30 ns.
const EAGER: Outlook = Outlook {
    vector: 1.2,
    doubling: 1.0,
};
/// Takes more rules, with larger leaves, so that fewer groups follow.
const PATIENT: Outlook = Outlook {
    vector: 1.8,
    doubling: 2.6,
};

/// The rules that are in no group.
pub(crate) enum Rest {
    /// One block after the other.
    Blocks(Blocks),
    /// Bit vectors: what no index tells apart since it overlaps deeply.
    Classes(Classes),
}

impl Rest {
    fn cost(&self, input: &Input<'_>) -> Cost {
        match self {
            Self::Blocks(blocks) => blocks.cost(input),
            Self::Classes(classes) => classes.cost(input),
        }
    }

    /// The rows of its rules.
    #[cfg(test)]
    fn rows(&self) -> &[u32] {
        match self {
            Self::Blocks(blocks) => blocks.rows(),
            Self::Classes(classes) => classes.rows(),
        }
    }
}

impl Peel {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        let ternaries = Ternaries::new(input);
        let (likely, other) = if input.rows.len() <= MANY_RULES {
            (EAGER, PATIENT)
        } else {
            (PATIENT, EAGER)
        };
        let all: Vec<u32> = (0..input.rows.len() as u32).collect();
        // What is found out about the first group holds for both outlooks.
        let first = (!all.is_empty()).then(|| Search::new(input, &ternaries, &all));
        let peeled = |outlook| Self::peeled(input, &ternaries, first.as_ref(), outlook);
        let peel = peeled(&likely)?;
        let tries_both = match input.effort {
            Effort::Fast => false,
            Effort::Balanced => input.rows.len() <= FEW_RULES,
            Effort::Best => true,
        };
        if !tries_both {
            return Ok(peel);
        }
        let nanoseconds = |peel: &Self| input.machine.nanoseconds(&peel.cost(input));
        match peeled(&other) {
            Ok(other) if nanoseconds(&other) < nanoseconds(&peel) => Ok(other),
            _ => Ok(peel),
        }
    }

    /// The groups that are found with that outlook, and the cheapest rest; `first` is the search for the first of them.
    fn peeled(
        input: &Input<'_>,
        ternaries: &Ternaries,
        first: Option<&Search<'_>>,
        outlook: &Outlook,
    ) -> Result<Self, Refusal> {
        let rows = |left: &[u32]| -> Vec<u32> {
            left.iter().map(|&rule| input.rows[rule as usize]).collect()
        };
        let nanoseconds = |stages: &[Rc<Stage>], rest: Option<&Rest>| {
            input.machine.nanoseconds(&cost(input, stages, rest))
        };
        let mut left: Vec<u32> = (0..input.rows.len() as u32).collect();
        let mut stages: Vec<Rc<Stage>> = Vec::new();
        // What so many groups leave over, where that may have bit vectors.
        let mut classable = Vec::new();
        while !left.is_empty() && stages.len() < MAX_GROUPS {
            let own;
            let search = match first.filter(|_| stages.is_empty()) {
                Some(first) => first,
                None => {
                    own = Search::new(input, ternaries, &left);
                    &own
                }
            };
            let estimates = search.estimates(outlook);
            if let (true, Some(best)) = (stages.is_empty(), estimates.first()) {
                input.is_worth(best.nanoseconds)?;
            }
            let Some(settings) = search.cheapest(estimates, outlook) else {
                break;
            };
            let stage = search.stage(&settings, &left);
            if !stage.has_rules {
                break;
            }
            left.clone_from(&stage.left_over);
            stages.push(stage);
            if (1..=MAX_CLASSED).contains(&left.len()) {
                classable.push((stages.len(), left.clone()));
            }
        }
        let blocks = match left.len() {
            0 => Ok(None),
            _ => Blocks::prepare(input, &rows(&left)).map(|blocks| Some(Rest::Blocks(blocks))),
        };
        let mut best = blocks.map(|rest| (nanoseconds(&stages, rest.as_ref()), stages.len(), rest));
        for (count, left) in classable {
            let least = best.as_ref().map_or(f64::INFINITY, |best| best.0);
            let rows = rows(&left);
            let own = cost(input, &stages[..count], None);
            let at_least = |rest: Cost| input.machine.nanoseconds(&(own + rest));
            if at_least(Cost::default()) >= least
                || at_least(Classes::least_cost(input, &rows)) >= least
            {
                continue;
            }
            let Ok(classes) = Classes::prepare(input, &rows) else {
                continue;
            };
            let rest = Some(Rest::Classes(classes));
            let time = nanoseconds(&stages[..count], rest.as_ref());
            if time < least {
                best = Ok((time, count, rest));
            }
        }
        let (_, count, rest) = best?;
        stages.truncate(count);
        Ok(Self { stages, rest })
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        cost(input, &self.stages, self.rest.as_ref())
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        if input.rows.is_empty() {
            return empty(input);
        }
        emit::build(input, &self.stages, self.rest.as_ref())
    }
}

/// The cost of some groups and a rest.
fn cost(input: &Input<'_>, stages: &[Rc<Stage>], rest: Option<&Rest>) -> Cost {
    let rest = rest.map_or(Cost::default(), |rest| rest.cost(input));
    // The words of the key are spread once for all groups.
    let blocks = stages
        .iter()
        .map(|stage| stage.blocks(&input.machine))
        .sum();
    let key = stages
        .first()
        .map_or(Cost::default(), |stage| stage.key_cost(blocks));
    let least = Cost {
        instructions: 8.0,
        ..Cost::default()
    };
    let costs = stages.iter().map(|stage| stage.cost(&input.machine));
    let all = costs
        .clone()
        .fold(rest + key + least, |sum, cost| sum + cost);
    let far = |cost: Cost| nearer(&input.machine, cost, all.table_bytes);
    let priced = costs
        .map(far)
        .fold(rest + key + least, |sum, cost| sum + cost);
    Cost {
        // However near the tables are, a leaf waits for its cell.
        dependent_loads: priced.dependent_loads.max(FLOOR.dependent_loads),
        ..priced
    }
}

/// The cost of a group in lines and loads of tables of `all_bytes`: every lookup reads all groups, so the tables of a small one
/// stay in near caches beside those of a large one.
fn nearer(machine: &Machine, group: Cost, all_bytes: usize) -> Cost {
    let nanoseconds =
        |cost: Cost| machine.nanoseconds(&cost) - machine.nanoseconds(&Cost::default());
    let share = |one: Cost| {
        let of = |table_bytes| nanoseconds(Cost { table_bytes, ..one });
        of(group.table_bytes) / of(all_bytes)
    };
    let line = Cost {
        lines: 1.0,
        ..Cost::default()
    };
    let load = Cost {
        dependent_loads: 1.0,
        ..Cost::default()
    };
    Cost {
        lines: group.lines * share(line),
        dependent_loads: group.dependent_loads * share(load),
        ..group
    }
}

/// The search for the next group. What does not depend on the outlook is found out once.
struct Search<'a> {
    input: &'a Input<'a>,
    ternaries: &'a Ternaries,
    /// A sample of the rules that are left, and how many there are for each rule of it.
    sample: Vec<u32>,
    scale: f64,
    /// The bits that indexes are chosen from, and those of the sample.
    word: Index,
    gathered: Vec<Ternary>,
    filters: Vec<Filter>,
    /// Groups of the sample.
    built: RefCell<Vec<(Settings, Rc<Stage>)>>,
}

/// Rules of a sample that are specific enough.
struct Filter {
    levels: u32,
    /// How many rules it shuts out.
    shut_out: usize,
    /// Their tests.
    comparison: Comparison,
    /// For limits on the bits in which a rule may be wild, the bits that are chosen.
    chosen: OnceCell<Vec<(u32, Vec<Step>)>>,
}

/// What a group is judged by before it is built.
struct Estimate {
    nanoseconds: f64,
    settings: Settings,
    /// The bits of its index, for the sample.
    mask: u64,
}

impl<'a> Search<'a> {
    /// A search among the rules that are left, at least one.
    fn new(input: &'a Input<'a>, ternaries: &'a Ternaries, left: &[u32]) -> Self {
        let sample = match input.effort {
            Effort::Fast => 512,
            Effort::Balanced => 1024,
            Effort::Best => 4096,
        };
        let sample = every(left, sample);
        let word = Index::new(input.layout(), &ternaries.telling_bits(&sample));
        let gathered = sample
            .iter()
            .map(|&rule| ternaries.gather(rule, &word))
            .collect();
        let mut search = Self {
            input,
            ternaries,
            scale: left.len() as f64 / sample.len() as f64,
            sample,
            word,
            gathered,
            filters: Vec::new(),
            built: RefCell::default(),
        };
        search.filters = search.filters();
        search
    }

    /// The settings of the group that is cheapest together with what it leaves over.
    fn cheapest(&self, estimates: Vec<Estimate>, outlook: &Outlook) -> Option<Settings> {
        let built = estimates.into_iter().take(MOST_BUILT);
        let timed = built.filter_map(|estimate| {
            Some((
                self.built_nanoseconds(&estimate, outlook)?,
                estimate.settings,
            ))
        });
        let (_, best) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
        // A sample of every second rule has one bit less to choose.
        let more_bits = if best.max_bits == 0 {
            0
        } else {
            self.more_bits()
        };
        Some(Settings {
            max_bits: best.max_bits + more_bits,
            ..best
        })
    }

    /// Bits of an index that a sample has no need of.
    fn more_bits(&self) -> usize {
        self.scale.log2().round() as usize
    }

    /// For each filter and limit on wild bits the best settings, with the time that is estimated from the cells alone; the
    /// quickest first.
    fn estimates(&self, outlook: &Outlook) -> Vec<Estimate> {
        let by_time = |a: &Estimate, b: &Estimate| a.nanoseconds.total_cmp(&b.nanoseconds);
        let mut estimates: Vec<Estimate> = Vec::new();
        for filter in &self.filters {
            // What cannot be among those that are built is not searched.
            let least = leaf_cost(&filter.comparison, &self.input.machine, 1, 1);
            let least = self.with_further(&least, filter.shut_out, outlook);
            estimates.sort_by(by_time);
            estimates.truncate(MOST_BUILT);
            let is_hopeless = |most: f64| least.is_none_or(|least| least > most);
            if estimates.len() == MOST_BUILT && is_hopeless(estimates[MOST_BUILT - 1].nanoseconds) {
                continue;
            }
            for (max_wild, steps) in self.chosen(filter) {
                let ways = steps.iter().enumerate().flat_map(|(max_bits, step)| {
                    (1..=MAX_BLOCKS).map(move |blocks| (max_bits, step, blocks))
                });
                let timed = ways.filter_map(|(max_bits, step, blocks)| {
                    Some(Estimate {
                        nanoseconds: self.nanoseconds(filter, step, blocks, outlook)?,
                        settings: Settings {
                            levels: filter.levels,
                            max_wild: *max_wild,
                            max_bits,
                            blocks,
                        },
                        mask: step.mask,
                    })
                });
                estimates.extend(timed.min_by(by_time));
            }
        }
        estimates.sort_by(by_time);
        estimates
    }

    /// For limits on the bits in which a rule may be wild, the bits that are chosen for the rules of a filter.
    fn chosen<'f>(&self, filter: &'f Filter) -> &'f [(u32, Vec<Step>)] {
        filter.chosen.get_or_init(|| {
            let own = self.sample.iter().zip(&self.gathered);
            let own = own.filter(|&(&rule, _)| self.ternaries.is_specific(rule, filter.levels));
            let own: Vec<Ternary> = own.map(|(_, &gathered)| gathered).collect();
            let max_bits = own.len().max(1).ilog2() as usize + 1;
            let mut chosen = Vec::new();
            for max_wild in MAX_WILD {
                let aim = Aim {
                    capacity: self.input.machine.lanes.into(),
                    max_bits: max_bits.min(MAX_INDEX_BITS.saturating_sub(self.more_bits())),
                    max_wild,
                };
                let bits = choose(own.clone(), all_bits(&self.word), &aim, &self.input.work);
                chosen.push((max_wild, bits.steps));
                if !bits.is_limited {
                    break;
                }
            }
            chosen
        })
    }

    /// The time of the group of the sample, built; `None` where it takes too few.
    fn built_nanoseconds(&self, estimate: &Estimate, outlook: &Outlook) -> Option<f64> {
        let built = |settings: &Settings| {
            let built = self.built.borrow();
            let known = built.iter().find(|(known, _)| known == settings);
            known.map(|(_, stage)| stage.clone())
        };
        let stage = built(&estimate.settings).unwrap_or_else(|| {
            let group = Group::new(
                self.input,
                self.ternaries,
                &self.sample,
                &self.word,
                &estimate.settings,
                Some(estimate.mask),
            );
            let stage = Rc::new(Stage::new(self.input, group));
            let mut built = self.built.borrow_mut();
            built.push((estimate.settings, stage.clone()));
            stage
        });
        let mut cost = stage.cost(&self.input.machine);
        cost.table_bytes = (cost.table_bytes as f64 * self.scale) as usize;
        self.with_further(&cost, stage.left_over.len(), outlook)
    }

    /// The group of the rules that are `left`: where they are all in the sample, it has been built already.
    fn stage(&self, settings: &Settings, left: &[u32]) -> Rc<Stage> {
        if self.sample.len() == left.len() {
            let built = self.built.borrow();
            if let Some((_, stage)) = built.iter().find(|(known, _)| known == settings) {
                return stage.clone();
            }
        }
        let group = Group::new(self.input, self.ternaries, left, &self.word, settings, None);
        Rc::new(Stage::new(self.input, group))
    }

    /// The filters that let in a good share of the sample, each another one: in which fields rules have to be how specific.
    fn filters(&self) -> Vec<Filter> {
        let fields = self.input.layout().fields().len();
        let one_field = |field: usize| [1 << (2 * field), 3 << (2 * field)];
        let one: Vec<u32> = (0..fields).flat_map(one_field).collect();
        let pairs = one
            .iter()
            .enumerate()
            .flat_map(|(i, a)| one[..i].iter().map(move |b| a | b));
        let all = std::iter::once(0).chain(one.iter().copied()).chain(pairs);
        let mut counts: Vec<usize> = Vec::new();
        let mut filters = Vec::new();
        for levels in all {
            let is_let_in = |&&rule: &&u32| self.ternaries.is_specific(rule, levels);
            let count = self.sample.iter().filter(is_let_in).count();
            let is_another = |known: &usize| known.abs_diff(count) > self.sample.len() / 32;
            let is_new = 8 * count >= self.sample.len() && counts.iter().all(is_another);
            if !is_new && levels != 0 {
                continue;
            }
            counts.push(count);
            let own: Vec<u32> = self.sample.iter().filter(is_let_in).copied().collect();
            filters.push(Filter {
                levels,
                shut_out: self.sample.len() - count,
                comparison: comparison(self.input, &every(&own, SHAPE_SAMPLE)),
                chosen: OnceCell::new(),
            });
        }
        filters
    }

    /// The estimated time of a group of the rules of `filter` with an index that achieves `step`; `None` where it takes too few.
    fn nanoseconds(
        &self,
        filter: &Filter,
        step: &Step,
        blocks: usize,
        outlook: &Outlook,
    ) -> Option<f64> {
        let machine = &self.input.machine;
        let capacity = (blocks * usize::from(machine.lanes)) as f64;
        // Leaves are filled to about five sixths.
        let leaves = self.scale * 1.2 * step.placed as f64 / capacity + 1.0;
        let index = match step.mask {
            0 => Cost::default(),
            mask => {
                let entries = self.scale * 2f64.powi(mask.count_ones() as i32);
                let gather = Cost {
                    instructions: 10.0,
                    ..Cost::default()
                };
                gather + path_cost((2.0 * entries) as usize)
            }
        };
        let cost = index + leaf_cost(&filter.comparison, machine, blocks, leaves as usize);
        let left_over = filter.shut_out + step.given_up + step.overflow[blocks - 1];
        self.with_further(&cost, left_over, outlook)
    }

    /// The time of a group of that cost and of what it leaves over, so many rules of the sample; `None` where it takes too few.
    fn with_further(&self, group: &Cost, left_over: usize, outlook: &Outlook) -> Option<f64> {
        let left_over = left_over as f64;
        let further = self.further_nanoseconds(self.scale * left_over, outlook);
        (left_over <= (1.0 - MIN_SHARE) * self.sample.len() as f64)
            .then(|| self.input.machine.nanoseconds(group) + further)
    }

    /// The expected time for so many rules in further groups.
    fn further_nanoseconds(&self, rules: f64, outlook: &Outlook) -> f64 {
        let blocks = rules / f64::from(self.input.machine.lanes);
        let Outlook { vector, doubling } = outlook;
        self.input.machine.on_lanes(*vector) * blocks.min(2.0)
            + doubling * (blocks / 2.0).max(1.0).log2()
    }
}
