//! The planner: which lookup structure for these rules on this machine.
//!
//! ```text
//! RuleSet -> normalise -> prepare each structure -> estimate -> build the cheapest -> verify -> Plan
//!            drop what can never win              \-> refused, or not tried: why
//! ```
//!
//! Preparing may be dear, so structures that are quick to prepare go first, and one whose *floor*, what any program of it
//! costs at least, is above the best estimate so far is not prepared at all. `peel` and `bucket`, the dearest, learn more while
//! they search, and give up where the groups so far, and what is expected for the rules that these leave over, are no better
//! than that estimate: then they are among the losers without one of their own. `direct` goes first with the bits in which
//! rules differ, which are quick to try, and last with others. The searches for indexes draw on a budget of work; the others
//! do a bounded number of steps for each rule. The decision, with the losers' estimates
//! and the reasons of those that cannot serve, is kept beside the program.
//! Plans depend on the rules and the options alone, never on a clock or on chance: the same input gives the same program.

mod calibration;
mod cost;
#[cfg(test)]
mod tests;
mod work;

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;

use thiserror::Error;

use crate::program::{Inst, Program, Table};
use crate::rule::Match;
use crate::rule_set::RuleSet;
use crate::structure::bucket::Bucket;
use crate::structure::classes::Classes;
use crate::structure::direct::Direct;
use crate::structure::hash::Hash;
use crate::structure::inline::Inline;
use crate::structure::linear::Linear;
use crate::structure::peel::Peel;
use crate::structure::pipapo::{GroupBits, Pipapo};
use crate::structure::radix::Radix;
use crate::structure::tree::Tree;
use crate::structure::{Cost, Input, Refusal, Structure, hash, peel, radix, tree};
use crate::verify::{MAX_TABLE_BYTES, VerifiedProgram, VerifyError, verify};
pub use cost::{Calibration, Level, Machine, Pext};
pub(crate) use work::Work;

/// How much work planning may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Effort {
    /// Small samples, few alternatives.
    Fast,
    /// The default.
    #[default]
    Balanced,
    /// Large samples, all alternatives.
    Best,
}

/// Which structures are considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Choice {
    /// The cheapest of all.
    #[default]
    Auto,
    /// This one or none.
    Only(Structure),
}

/// What the planner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which structures are considered.
    pub structure: Choice,
    /// How much work planning may be.
    pub effort: Effort,
    /// The machine that the program is for.
    pub machine: Machine,
    /// Most bytes of all tables; more than one table may have, 4 GiB, are not used.
    pub table_budget: usize,
}

impl Default for Options {
    /// Any structure, balanced effort, a default machine, 1 GiB of tables.
    fn default() -> Self {
        Self {
            structure: Choice::Auto,
            effort: Effort::default(),
            machine: Machine::default(),
            table_budget: 1 << 30,
        }
    }
}

/// A program for a rule set, and why it is this one.
#[derive(Clone, Debug)]
pub struct Plan {
    program: VerifiedProgram,
    decision: Decision,
}

/// What was considered, and what was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    structure: Structure,
    lanes: u8,
    rules: usize,
    live_rules: usize,
    candidates: Vec<Candidate>,
    is_cut_short: bool,
    work: u64,
    staged: Option<Box<str>>,
}

/// A structure that was considered.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which one.
    pub structure: Structure,
    /// What a lookup would cost, or why it cannot serve.
    pub estimate: Result<Estimate, Refusal>,
}

/// The estimate for one structure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// What a lookup does.
    pub cost: Cost,
    /// How long that takes, in nanoseconds.
    pub nanoseconds: f64,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No structure that was allowed can hold the rules.
    #[error("{}", list_refusals(.0))]
    Refused(Vec<(Structure, Refusal)>),
    /// There are no vectors of so many lanes.
    #[error("vectors have 4, 8 or 16 lanes, not {0}")]
    Lanes(u8),
    /// A structure built a program that is not valid; please report it.
    #[error("internal fault: structure `{structure}` built an invalid program: {error}")]
    Invalid {
        /// The structure.
        structure: Structure,
        /// What the verifier says.
        error: VerifyError,
    },
}

fn list_refusals(refusals: &[(Structure, Refusal)]) -> String {
    let one = |(structure, refusal): &(Structure, Refusal)| {
        format!("structure `{structure}` cannot hold the rules: {refusal}")
    };
    refusals.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl Plan {
    /// The program.
    #[must_use]
    pub fn program(&self) -> &VerifiedProgram {
        &self.program
    }

    /// The structure of the program.
    #[must_use]
    pub fn structure(&self) -> Structure {
        self.decision.structure
    }

    /// What was considered.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The program and the decision.
    #[must_use]
    pub fn into_parts(self) -> (VerifiedProgram, Decision) {
        (self.program, self.decision)
    }
}

impl Decision {
    /// The structure that was chosen.
    #[must_use]
    pub fn structure(&self) -> Structure {
        self.structure
    }

    /// Lanes of the machine that the program was made for; fewer than it has where more gain nothing.
    #[must_use]
    pub fn lanes(&self) -> u8 {
        self.lanes
    }

    /// Rules of the rule set.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.rules
    }

    /// Rules that can win, as far as that is known.
    #[must_use]
    pub fn live_rules(&self) -> usize {
        self.live_rules
    }

    /// Whether the work that planning may be was done before all was tried; more [`Effort`] may find something better.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// The steps of work that planning took, each about what a loop over numbers takes for one of them.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.work
    }

    /// The table whose rows batches ask for ahead, if there is one: [`Program::staged`](crate::Program::staged).
    #[must_use]
    pub fn staged(&self) -> Option<&str> {
        self.staged.as_deref()
    }

    /// The structures that were considered.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "rules      {} (at most {} can win)",
            self.rules, self.live_rules
        )?;
        match self.lanes {
            16 => writeln!(f, "structure  {}, 16 lanes", self.structure)?,
            _ => writeln!(f, "structure  {}", self.structure)?,
        }
        if let Some(table) = &self.staged {
            writeln!(f, "batches    ask for rows of `{table}` ahead")?;
        }
        if self.is_cut_short {
            writeln!(
                f,
                "effort     the work that planning may be was done before all was tried"
            )?;
        }
        for Candidate {
            structure,
            estimate,
        } in &self.candidates
        {
            let mark = if *structure == self.structure {
                '*'
            } else {
                ' '
            };
            match estimate {
                Ok(Estimate { cost, nanoseconds }) => writeln!(
                    f,
                    "{mark} {structure:<8} {nanoseconds:>8.1} ns: {:.0} instructions, {:.0} dependent loads, {:.1} lines, {} bytes",
                    cost.instructions, cost.dependent_loads, cost.lines, cost.table_bytes
                )?,
                Err(untried @ (Refusal::Slower { .. } | Refusal::OutOfWork)) => {
                    writeln!(f, "{mark} {structure:<8}  not tried: {untried}")?;
                }
                Err(refusal) => writeln!(f, "{mark} {structure:<8}  refused: {refusal}")?,
            }
        }
        Ok(())
    }
}

/// A structure that is ready to be built.
enum Prepared {
    Inline(Inline),
    Hash(Hash),
    Direct(Box<Direct>),
    Bucket(Box<Bucket>),
    Peel(Peel),
    Radix(Radix),
    Tree(Tree),
    Pipapo(Pipapo),
    Classes(Classes),
    Linear(Linear),
}

impl Prepared {
    fn new(structure: Structure, input: &Input<'_>) -> Result<Self, Refusal> {
        Ok(match structure {
            Structure::Inline => Self::Inline(Inline::prepare(input)?),
            Structure::Hash => Self::Hash(Hash::prepare(input)?),
            Structure::Direct => Self::Direct(Box::new(Direct::prepare(input)?)),
            Structure::Bucket => Self::Bucket(Box::new(Bucket::prepare(input)?)),
            Structure::Peel => Self::Peel(Peel::prepare(input)?),
            Structure::Radix => Self::Radix(Radix::prepare(input)?),
            Structure::Tree => Self::Tree(Tree::prepare(input)?),
            Structure::Pipapo4 => Self::Pipapo(Pipapo::prepare(input, GroupBits::Four)?),
            Structure::Pipapo8 => Self::Pipapo(Pipapo::prepare(input, GroupBits::Eight)?),
            Structure::Pipapo => Self::Pipapo(Pipapo::prepare(input, GroupBits::BySize)?),
            Structure::Classes => {
                let least = Classes::least_cost(input, &input.rows);
                input.is_worth(input.machine.nanoseconds(&least))?;
                Self::Classes(Classes::prepare(input, &input.rows)?)
            }
            Structure::Linear => Self::Linear(Linear::prepare(input)?),
        })
    }

    /// What a lookup in any program of this structure costs at least, as far as that can be told without preparing it.
    fn floor(structure: Structure, input: &Input<'_>) -> Cost {
        if input.rows.len() < 2 {
            return Cost::default();
        }
        match structure {
            Structure::Inline | Structure::Direct => Cost::default(),
            Structure::Hash => hash::FLOOR,
            Structure::Radix => radix::FLOOR,
            Structure::Tree => tree::FLOOR,
            Structure::Bucket => Bucket::floor(input),
            Structure::Peel => peel::FLOOR,
            Structure::Pipapo | Structure::Pipapo4 | Structure::Pipapo8 => Pipapo::floor(input),
            Structure::Classes => Classes::floor(input),
            Structure::Linear => Linear::floor(input),
        }
    }

    fn cost(&self, input: &Input<'_>) -> Cost {
        match self {
            Self::Inline(inline) => inline.cost(input),
            Self::Hash(hash) => hash.cost(input),
            Self::Direct(direct) => direct.cost(input),
            Self::Bucket(bucket) => bucket.cost(input),
            Self::Peel(peel) => peel.cost(input),
            Self::Radix(radix) => radix.cost(),
            Self::Tree(tree) => tree.cost(),
            Self::Pipapo(pipapo) => pipapo.cost(input),
            Self::Classes(classes) => classes.cost(input),
            Self::Linear(linear) => linear.cost(input),
        }
    }

    fn build(&self, input: &Input<'_>) -> Result<Program, Refusal> {
        match self {
            Self::Inline(inline) => Ok(inline.build(input)),
            Self::Hash(hash) => hash.build(input),
            Self::Direct(direct) => Ok(direct.build(input)),
            Self::Bucket(bucket) => Ok(bucket.build(input)),
            Self::Peel(peel) => Ok(peel.build(input)),
            Self::Radix(radix) => radix.build(input),
            Self::Tree(tree) => tree.build(input),
            Self::Pipapo(pipapo) => Ok(pipapo.build(input)),
            Self::Classes(classes) => Ok(classes.build(input)),
            Self::Linear(linear) => Ok(linear.build(input)),
        }
    }
}

/// Plans a lookup structure for exactly these rules.
///
/// Time and memory are bounded by a constant for each rule, which `options.effort` scales.
///
/// # Errors
/// Where no structure that `options` allows can hold the rules within the budget. With [`Choice::Auto`] that takes more
/// rules than the budget has bytes for. Also where the machine's lanes are not 4, 8 or 16.
///
/// # Examples
/// ```
/// use pktjit_ir::{Field, KeyLayout, Match, Rule, RuleSet, plan};
/// let layout = KeyLayout::packed([Field::inet_service("dport")]).unwrap();
/// let rules = RuleSet::builder(layout).rule(Rule::new([Match::Range { lo: 1, hi: 1023 }])).build().unwrap();
/// let plan = plan::plan(&rules, &plan::Options::default()).unwrap();
/// println!("{}", plan.decision());
/// ```
pub fn plan(rule_set: &RuleSet, options: &Options) -> Result<Plan, PlanError> {
    if !matches!(options.machine.lanes, 4 | 8 | 16) {
        return Err(PlanError::Lanes(options.machine.lanes));
    }
    let input = normalise(rule_set, options);
    // Wide vectors compare more rules at once, and make rows larger that have fewer: both are estimated, one is built.
    let narrower = (input.machine.lanes > 8).then(|| {
        let mut narrower = input.clone();
        narrower.machine.lanes = 8;
        narrower
    });
    let mut searches: Vec<Search<'_>> = Vec::new();
    for input in narrower.iter().chain([&input]) {
        let search = Search::new(input, options, searches.first());
        searches.push(search);
    }
    while searches.iter().any(|search| search.best.is_some()) {
        let cheapest = searches
            .iter_mut()
            .min_by(|a, b| a.nanoseconds().total_cmp(&b.nanoseconds()));
        if let Some(plan) = cheapest.map_or(Ok(None), Search::build)? {
            return Ok(plan);
        }
    }
    let refusals = searches[0]
        .candidates
        .iter()
        .filter_map(|c| Some((c.structure, c.estimate.clone().err()?)));
    Err(PlanError::Refused(refusals.collect()))
}

/// Batches ask for rows ahead where their table is larger than so many second-level caches; what is nearer comes in time by
/// itself. `hash` of IPv4 addresses in batches of 32 keys, at equal distances and behind pointers, was so many times as quick
/// for asking (AMD EPYC, family 25, 1 MiB, 2026-11-30): 0.6 and 0.9 with 1000 (16 KiB), 0.9 and 1.1 with 100,000 (0.9 MiB),
/// 0.95 and 1.1 with 200,000 (1.8 MiB), 1.25 and 1.2 with 400,000 (3.7 MiB), 1.6 and more with 1 M (9.2 MiB).
const FAR_CACHES: usize = 2;

/// The table of the row that `program` stages.
fn staged_table(program: &Program) -> Option<&Table> {
    let rows = &program.blocks.first()?.insts;
    let (_, row) = rows
        .iter()
        .find(|(value, _)| program.staged == Some(*value))?;
    match row {
        Inst::Row { table, .. } => program.tables.get(table.index()),
        _ => None,
    }
}

/// The structures that are considered, those first that are quick to prepare or to refuse. `pipapo` is whichever of
/// `pipapo4` and `pipapo8` suits each field.
const ORDER: [Structure; 10] = [
    Structure::Inline,
    Structure::Direct,
    Structure::Hash,
    Structure::Radix,
    Structure::Tree,
    Structure::Peel,
    Structure::Bucket,
    Structure::Linear,
    Structure::Classes,
    Structure::Pipapo,
];

/// The search for the cheapest structure with vectors of as many lanes as the machine of the input has.
struct Search<'a> {
    input: &'a Input<'a>,
    candidates: Vec<Candidate>,
    /// Most bytes of tables.
    budget: usize,
    /// The nanoseconds of the best with fewer lanes.
    narrower: f64,
    /// The nanoseconds of the best so far, which it is, and what it has prepared.
    best: Option<(f64, Structure, Prepared)>,
}

impl<'a> Search<'a> {
    /// Considers all structures that `options` allows, after a search with fewer lanes has: what has no lanes is as it was
    /// there.
    fn new(input: &'a Input<'a>, options: &Options, narrower: Option<&Self>) -> Self {
        let mut search = Self {
            input,
            candidates: Vec::new(),
            budget: options
                .table_budget
                .min(usize::try_from(MAX_TABLE_BYTES).unwrap_or(usize::MAX)),
            narrower: narrower.map_or(f64::INFINITY, Self::nanoseconds),
            best: None,
        };
        let considered = match options.structure {
            Choice::Auto => &ORDER[..],
            Choice::Only(ref structure) => std::slice::from_ref(structure),
        };
        for (i, &structure) in considered.iter().enumerate() {
            let known = narrower.filter(|_| !structure.has_lanes());
            let candidate = match known {
                Some(known) => known.candidates[i].clone(),
                None => Candidate {
                    structure,
                    estimate: search.consider(structure),
                },
            };
            search.candidates.push(candidate);
        }
        if narrower.is_none() {
            search.consider_chosen();
        }
        search
    }

    /// Gives `direct` a second look: it goes first, since it is the best where the bits in which rules differ are few, and last
    /// with others, which take a search.
    fn consider_chosen(&mut self) {
        let is_dense = match &self.best {
            Some((.., Prepared::Direct(direct))) => direct.is_dense(self.input),
            _ => false,
        };
        let is_direct = |candidate: &Candidate| candidate.structure == Structure::Direct;
        let Some(place) = self
            .candidates
            .iter()
            .position(is_direct)
            .filter(|_| !is_dense)
        else {
            return;
        };
        let chosen = self.consider_as(Structure::Direct, |input| {
            Ok(Prepared::Direct(Box::new(Direct::prepare_chosen(input)?)))
        });
        let before = &mut self.candidates[place].estimate;
        let placed = |estimate: &Result<Estimate, Refusal>| match estimate {
            Err(Refusal::SharedClasses { placed, .. }) => *placed,
            _ => usize::MAX,
        };
        let is_better = match (&*before, &chosen) {
            (Ok(before), Ok(chosen)) => chosen.nanoseconds < before.nanoseconds,
            (Ok(_), Err(_)) => false,
            (Err(_), Ok(_)) => true,
            (Err(_), Err(_)) => placed(&chosen) > placed(before),
        };
        if is_better {
            *before = chosen;
        }
    }

    /// The estimated time of a lookup in the best structure, in nanoseconds.
    fn nanoseconds(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |best| best.0)
    }

    /// Builds the best structure; `None` where there is none or it refuses, so that another is the best.
    fn build(&mut self) -> Result<Option<Plan>, PlanError> {
        let Some((_, structure, ready)) = self.best.take() else {
            return Ok(None);
        };
        match ready.build(self.input) {
            Ok(mut program) => {
                let staged = staged_table(&program)
                    .filter(|table| table.data.len() / FAR_CACHES > self.input.machine.l2)
                    .map(|table| table.name.clone());
                if staged.is_none() {
                    program.staged = None;
                }
                let program =
                    verify(program).map_err(|error| PlanError::Invalid { structure, error })?;
                let decision = Decision {
                    structure,
                    lanes: self.input.machine.lanes,
                    rules: self.input.rule_set.len(),
                    live_rules: self.input.rows.len() + usize::from(self.input.default.is_some()),
                    candidates: std::mem::take(&mut self.candidates),
                    is_cut_short: !self.input.work.is_left(),
                    work: self.input.work.spent(),
                    staged,
                };
                Ok(Some(Plan { program, decision }))
            }
            Err(refusal) => {
                self.reconsider(structure, &refusal);
                Ok(None)
            }
        }
    }

    /// Gives what was dearer than a structure that refused its chance again.
    fn reconsider(&mut self, refused: Structure, refusal: &Refusal) {
        for i in 0..self.candidates.len() {
            let Candidate {
                structure,
                estimate,
            } = &self.candidates[i];
            let estimate = match estimate {
                _ if *structure == refused => Err(refusal.clone()),
                Ok(_) | Err(Refusal::Slower { .. }) => self.consider(*structure),
                Err(_) => continue,
            };
            self.candidates[i].estimate = estimate;
        }
        if refused != Structure::Direct {
            self.consider_chosen();
        }
    }

    /// Prepares a structure, unless it cannot be better than the best so far.
    fn consider(&mut self, structure: Structure) -> Result<Estimate, Refusal> {
        self.consider_as(structure, |input| Prepared::new(structure, input))
    }

    fn consider_as(
        &mut self,
        structure: Structure,
        prepare: impl FnOnce(&Input<'_>) -> Result<Prepared, Refusal>,
    ) -> Result<Estimate, Refusal> {
        let least = self.nanoseconds();
        self.input.least.set(least.min(self.narrower));
        let machine = &self.input.machine;
        let at_least = machine.nanoseconds(&Prepared::floor(structure, self.input));
        self.input.is_worth(at_least)?;
        let ready = prepare(self.input)?;
        let cost = ready.cost(self.input);
        if cost.table_bytes > self.budget {
            return Err(Refusal::OverBudget {
                bytes: cost.table_bytes,
                budget: self.budget,
            });
        }
        let nanoseconds = machine.nanoseconds(&cost);
        if nanoseconds < least {
            self.best = Some((nanoseconds, structure, ready));
        }
        Ok(Estimate { cost, nanoseconds })
    }
}

/// Leaves out what can never win, and takes the rule that matches everything apart: it needs no comparison.
pub(crate) fn normalise<'a>(rule_set: &'a RuleSet, options: &Options) -> Input<'a> {
    let per_rule = match options.effort {
        Effort::Fast => 50,
        Effort::Balanced => 500,
        Effort::Best => 5000,
    };
    let mut rows = rule_set.live_rows(per_rule * rule_set.len() as u64);
    let matches_all = |&row: &u32| {
        rule_set.rules()[row as usize]
            .rule
            .matches
            .iter()
            .all(|m| *m == Match::Any)
    };
    let default = rows.iter().position(matches_all).map(|position| {
        let default = rows[position];
        // What follows it is weaker and never wins.
        rows.truncate(position);
        default
    });
    Input {
        rule_set,
        rows,
        default,
        machine: options.machine,
        effort: options.effort,
        work: Work::for_rules(rule_set.len(), options.effort),
        least: Cell::new(f64::INFINITY),
        segments: Rc::new(OnceCell::new()),
        comparison: Rc::new(OnceCell::new()),
    }
}
