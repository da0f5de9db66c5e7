//! The planner: which lookup structure for these rules on this machine.
//!
//! ```text
//! RuleSet -> normalise -> prepare each structure -> estimate -> build the cheapest -> verify -> Plan
//!            drop what can never win              \-> refused: why
//! ```
//!
//! The decision, with the losers' estimates and the reasons of those that cannot serve, is kept beside the program.
//! Plans depend on the rules and the options alone, never on a clock or on chance: the same input gives the same program.

mod cost;

use std::cell::OnceCell;
use std::fmt;

use thiserror::Error;

use crate::rule::Match;
use crate::rule_set::RuleSet;
use crate::structure::bucket::Bucket;
use crate::structure::direct::Direct;
use crate::structure::hash::Hash;
use crate::structure::inline::Inline;
use crate::structure::linear::Linear;
use crate::structure::peel::Peel;
use crate::structure::pipapo::{GroupBits, Pipapo};
use crate::structure::radix::Radix;
use crate::structure::tree::Tree;
use crate::structure::{Cost, Input, Refusal, Structure};
use crate::verify::{MAX_TABLE_BYTES, VerifiedProgram, VerifyError, verify};
pub use cost::{Machine, Pext};

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
    rules: usize,
    live_rules: usize,
    candidates: Vec<Candidate>,
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
        writeln!(f, "structure  {}", self.structure)?;
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
            Structure::Linear => Self::Linear(Linear::prepare(input)?),
        })
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
            Self::Pipapo(pipapo) => pipapo.cost(),
            Self::Linear(linear) => linear.cost(input),
        }
    }

    fn build(&self, input: &Input<'_>) -> Result<crate::Program, Refusal> {
        match self {
            Self::Inline(inline) => Ok(inline.build(input)),
            Self::Hash(hash) => hash.build(input),
            Self::Direct(direct) => Ok(direct.build(input)),
            Self::Bucket(bucket) => Ok(bucket.build(input)),
            Self::Peel(peel) => Ok(peel.build(input)),
            Self::Radix(radix) => radix.build(input),
            Self::Tree(tree) => tree.build(input),
            Self::Pipapo(pipapo) => Ok(pipapo.build(input)),
            Self::Linear(linear) => Ok(linear.build(input)),
        }
    }
}

/// Plans a lookup structure for exactly these rules.
///
/// Time and memory grow about linearly with the rules; `options.effort` scales them.
///
/// # Errors
/// Where no structure that `options` allows can hold the rules within the budget. With [`Choice::Auto`] that takes more
/// rules than the budget has bytes for.
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
    let input = normalise(rule_set, options);
    let most_bytes = usize::try_from(MAX_TABLE_BYTES).unwrap_or(usize::MAX);
    let budget = options.table_budget.min(most_bytes);
    // `pipapo` is whichever of the two others suits each field.
    let is_variant = |s: &Structure| matches!(s, Structure::Pipapo4 | Structure::Pipapo8);
    let considered: Vec<Structure> = match options.structure {
        Choice::Auto => Structure::ALL
            .into_iter()
            .filter(|s| !is_variant(s))
            .collect(),
        Choice::Only(structure) => vec![structure],
    };
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut prepared: Vec<(f64, usize, Prepared)> = Vec::new();
    for structure in considered {
        let ready = Prepared::new(structure, &input).and_then(|ready| {
            let cost = ready.cost(&input);
            match cost.table_bytes {
                bytes if bytes > budget => Err(Refusal::OverBudget { bytes, budget }),
                _ => Ok((ready, cost)),
            }
        });
        let estimate = ready.map(|(ready, cost)| {
            let nanoseconds = options.machine.nanoseconds(&cost);
            prepared.push((nanoseconds, candidates.len(), ready));
            Estimate { cost, nanoseconds }
        });
        candidates.push(Candidate {
            structure,
            estimate,
        });
    }
    prepared.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (_, position, ready) in prepared {
        let structure = candidates[position].structure;
        match ready.build(&input) {
            Ok(program) => {
                let program =
                    verify(program).map_err(|error| PlanError::Invalid { structure, error })?;
                let live_rules = input.rows.len() + usize::from(input.default.is_some());
                let decision = Decision {
                    structure,
                    rules: rule_set.len(),
                    live_rules,
                    candidates,
                };
                return Ok(Plan { program, decision });
            }
            Err(refusal) => candidates[position].estimate = Err(refusal),
        }
    }
    let refusals = candidates
        .into_iter()
        .filter_map(|c| c.estimate.err().map(|refusal| (c.structure, refusal)));
    Err(PlanError::Refused(refusals.collect()))
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
        segments: OnceCell::new(),
    }
}
