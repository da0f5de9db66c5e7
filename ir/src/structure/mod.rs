//! The lookup structures: each turns a group of rules into a program, and can say beforehand what a lookup will cost.
//!
//! | structure | idea | holds |
//! | --- | --- | --- |
//! | [`inline`] | all rules compared at once, as constants behind the code | up to 63 rules |
//! | [`hash`] | a perfect hash function finds the only candidate | rules that want the same bits, each with other values |
//! | [`direct`] | some key bits select a row with what the few rules want that they leave | rules that few bits tell apart |
//! | [`bucket`] | some key bits select a bucket of rules that are compared at once, in all words or in a few | everything; wide rules go to a linear rest |
//! | [`peel`] | groups of rules, each with an index of key bits and leaves that are compared at once | everything |
//! | [`radix`] | leading bits select a few boundaries that are compared at once | rules that differ in one field, where they spread |
//! | [`tree`] | a search tree whose nodes are compared at once | rules that differ in one field |
//! | [`pipapo`] | pieces of the key select rows of bits, one for each rule, which are anded | what its memory allows |
//! | [`classes`] | values of a field are in a class, which has a row of bits, one for each rule; these are anded | what its memory allows |
//! | [`linear`] | blocks of rules compared one block after the other | everything |
//!
//! `docs/structures.md` follows a key through each of them. Every structure compares exactly; what an index or a hash lets
//! through may be too much, never too little.

pub(crate) mod bit_rows;
pub(crate) mod bits;
pub(crate) mod bucket;
pub(crate) mod classes;
pub(crate) mod common;
pub(crate) mod compare;
pub(crate) mod direct;
pub(crate) mod group;
pub(crate) mod hash;
pub(crate) mod inline;
pub(crate) mod linear;
pub(crate) mod lists;
pub(crate) mod peel;
pub(crate) mod pipapo;
pub(crate) mod radix;
pub(crate) mod rule_rows;
pub(crate) mod scalar;
pub(crate) mod segments;
pub(crate) mod sieve;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tree;
pub(crate) mod windows;
pub(crate) mod words;

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use thiserror::Error;

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::key::KeyLayout;
use crate::plan::{Effort, Machine, Work};
use crate::program::{BinaryOp, MISS, Program};
use crate::rule::Rule;
use crate::rule_set::RuleSet;
use crate::structure::compare::Comparison;
use crate::structure::segments::Segments;

/// The name of a lookup structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// All rules compared at once, as constants behind the code.
    Inline,
    /// A perfect hash function.
    Hash,
    /// Key bits select a row with what the few rules want that they leave.
    Direct,
    /// Key bits select a bucket of rules.
    Bucket,
    /// Groups of rules, each with an index of key bits and leaves that are compared at once.
    Peel,
    /// Leading bits of the only ranged field select a few boundaries.
    Radix,
    /// A search tree over the boundaries of the only ranged field.
    Tree,
    /// Bit vectors selected by groups of 4 bits of the key.
    Pipapo4,
    /// Bit vectors selected by groups of 8 bits of the key.
    Pipapo8,
    /// The same, with groups of 8 bits where they take at most 2 MiB a field, of 4 bits elsewhere.
    Pipapo,
    /// Bit vectors selected by the class that each field's value is in.
    Classes,
    /// One block of rules after the other.
    Linear,
}

impl Structure {
    /// All structures.
    pub const ALL: [Self; 12] = [
        Self::Inline,
        Self::Hash,
        Self::Direct,
        Self::Bucket,
        Self::Peel,
        Self::Radix,
        Self::Tree,
        Self::Pipapo4,
        Self::Pipapo8,
        Self::Pipapo,
        Self::Classes,
        Self::Linear,
    ];

    /// The name as command lines spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Hash => "hash",
            Self::Direct => "direct",
            Self::Bucket => "bucket",
            Self::Peel => "peel",
            Self::Radix => "radix",
            Self::Tree => "tree",
            Self::Pipapo4 => "pipapo4",
            Self::Pipapo8 => "pipapo8",
            Self::Pipapo => "pipapo",
            Self::Classes => "classes",
            Self::Linear => "linear",
        }
    }
}

impl Structure {
    /// Whether a program of it compares rules in lanes, so that their number makes a difference.
    pub(crate) const fn has_lanes(self) -> bool {
        !matches!(self, Self::Hash | Self::Direct)
    }

    /// The names of all, with `last` before the last one: `inline, hash and linear`.
    #[must_use]
    pub fn names(last: &str) -> String {
        let names = Self::ALL.map(Self::name);
        let (end, others) = names.split_last().unwrap_or((&"", &[]));
        format!("{} {last} {end}", others.join(", "))
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is none of a structure's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseStructureError {
    /// There is no such structure.
    #[error("there is no structure `{0}`; there are {names}", names = Structure::names("and"))]
    Unknown(String),
}

impl FromStr for Structure {
    type Err = ParseStructureError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some(known) = Self::ALL.into_iter().find(|s| s.name() == name) {
            return Ok(known);
        }
        Err(ParseStructureError::Unknown(name.into()))
    }
}

/// What a structure is built from: the rules that can win.
#[derive(Clone)]
pub(crate) struct Input<'a> {
    pub(crate) rule_set: &'a RuleSet,
    /// Rows of the rules to be found by comparing, the strongest first.
    pub(crate) rows: Vec<u32>,
    /// Row of the rule that matches every key and so ends the list, if there is one.
    pub(crate) default: Option<u32>,
    pub(crate) machine: Machine,
    pub(crate) effort: Effort,
    /// How much planning may still do.
    pub(crate) work: Work,
    /// The time of a lookup in the best structure so far, in nanoseconds: what takes longer need not be prepared.
    pub(crate) least: Cell<f64>,
    /// See [`segments`](Self::segments); the same for all lanes, as are the tests.
    pub(crate) segments: Rc<OnceCell<Result<Segments, Refusal>>>,
    /// See [`comparison`](Self::comparison).
    pub(crate) comparison: Rc<OnceCell<Comparison>>,
}

impl Input<'_> {
    pub(crate) fn layout(&self) -> &KeyLayout {
        self.rule_set.layout()
    }

    /// The rule of a row.
    pub(crate) fn rule(&self, row: u32) -> &Rule {
        &self.rule_set.rules()[row as usize].rule
    }

    /// Fails where a lookup of so many nanoseconds or more is not worth it: the best structure so far is quicker.
    pub(crate) fn is_worth(&self, at_least: f64) -> Result<(), Refusal> {
        if at_least > self.least.get() {
            return Err(Refusal::Slower { at_least });
        }
        Ok(())
    }

    /// The rules flattened, if they differ in one field; computed once.
    pub(crate) fn segments(&self) -> Result<&Segments, Refusal> {
        let segments = self.segments.get_or_init(|| Segments::new(self));
        segments.as_ref().map_err(Clone::clone)
    }

    /// The tests of all rules in lanes; computed once.
    pub(crate) fn comparison(&self) -> &Comparison {
        let rules = || self.rows.iter().map(|&row| self.rule(row));
        self.comparison
            .get_or_init(|| Comparison::new(self.layout(), rules()))
    }

    /// How many bytes of the fields the rules' lower ends differ in.
    pub(crate) fn differing_bytes(&self) -> u32 {
        let differing = |id: FieldId| {
            let field = self.layout().field(id);
            let mut lowers = self
                .rows
                .iter()
                .map(|&row| self.rule(row).matches[id.index()].lower(field));
            let first = lowers.next().unwrap_or(0);
            lowers.fold(0, |differing, lower| differing | lower ^ first)
        };
        let bytes = |differing: u128| {
            differing
                .to_le_bytes()
                .into_iter()
                .filter(|&byte| byte != 0)
                .count()
        };
        self.layout()
            .field_ids()
            .map(|id| bytes(differing(id)) as u32)
            .sum()
    }

    /// An empty program for these rules.
    pub(crate) fn program(&self) -> ProgramBuilder {
        ProgramBuilder::new(self.layout().clone(), self.rule_set.rules().len() as u32)
    }

    /// Ends a program: the row found, or the rule that matches everything.
    pub(crate) fn finish(&self, mut b: ProgramBuilder, found: ValueId) -> Program {
        let result = match self.default {
            // It is the weakest of all and `MISS` is above it.
            Some(default) => b.binary_const(BinaryOp::Min, found, default.into()),
            None => found,
        };
        b.ret(result);
        b.finish()
    }
}

/// The program for no rules to compare: the default, or a miss.
pub(crate) fn empty(input: &Input<'_>) -> Program {
    let mut b = input.program();
    let result = b.constant(input.default.unwrap_or(MISS).into());
    b.ret(result);
    b.finish()
}

/// Why a structure cannot hold a rule set, or was not tried.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Too many rules for it.
    #[error("{rules} rules, at most {max} are possible")]
    TooManyRules {
        /// Rules that can win.
        rules: usize,
        /// The limit.
        max: usize,
    },
    /// The numbers of more classes would have to be kept than registers hold.
    #[error("the rules differ in {fields} fields, at most {max} are possible")]
    TooManyFields {
        /// Fields in which rules differ, those with few classes together counted once.
        fields: usize,
        /// The limit.
        max: usize,
    },
    /// A hash needs rules that all look at the same bits.
    #[error("the rules do not all look at the same bits of field `{field}`")]
    MixedMasks {
        /// The first field where they do not.
        field: Box<str>,
    },
    /// It searches one field only.
    #[error("the rules want intervals or different values of both `{first}` and `{second}`")]
    TwoRangedFields {
        /// One of the fields.
        first: Box<str>,
        /// Another.
        second: Box<str>,
    },
    /// The field's values do not lie side by side.
    #[error("a mask of field `{field}` is not a prefix")]
    NotAnInterval {
        /// The field.
        field: Box<str>,
    },
    /// No index spreads the boundaries.
    #[error("{segments} segments share one of {cells} cells")]
    Crowded {
        /// The most that do.
        segments: usize,
        /// The cells of the finest index.
        cells: usize,
    },
    /// No perfect hash function was found within the bound on tries.
    #[error("no perfect hash function was found in {tries} tries")]
    NoHash {
        /// How many were tried.
        tries: u32,
    },
    /// Every index that was tried leaves a key too many rules.
    #[error(
        "no index was found that leaves a key at most {max} of the rules; the best, of field `{fields}`, does so for {placed} of {rules}"
    )]
    SharedClasses {
        /// Most rules that may be left.
        max: usize,
        /// The fields of the best index.
        fields: Box<str>,
        /// Rules that it holds before the first that is too much.
        placed: usize,
        /// Rules that can win.
        rules: usize,
    },
    /// The tables would be larger than the budget.
    #[error("its tables need {bytes} bytes, the budget is {budget}")]
    OverBudget {
        /// What they need.
        bytes: usize,
        /// What is allowed.
        budget: usize,
    },
    /// What is passed from stage to stage would take more of the stack than a lookup may.
    #[error(
        "a lookup would need {bytes} bytes of scratch on the stack, at most {max} are possible"
    )]
    OverScratch {
        /// What it needs.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// It was not prepared: a lookup would take longer than one in a structure that had been.
    #[error("a lookup would take {at_least:.1} ns or more")]
    Slower {
        /// The least that a lookup would take, in nanoseconds.
        at_least: f64,
    },
    /// Planning may do no more.
    #[error("the work that planning may be is done")]
    OutOfWork,
    /// A lookup would take more steps than a program may.
    #[error("a lookup would take {steps} steps, at most {max} are possible")]
    TooLong {
        /// What it might take.
        steps: u64,
        /// The limit.
        max: u64,
    },
}

/// What one lookup costs, estimated before anything is built.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Cost {
    /// Machine instructions.
    pub instructions: f64,
    /// Loads from tables that have to wait for another load from a table.
    pub dependent_loads: f64,
    /// Cache lines of tables that are touched.
    pub lines: f64,
    /// Bytes of all tables.
    pub table_bytes: usize,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            dependent_loads: self.dependent_loads + other.dependent_loads,
            lines: self.lines + other.lines,
            table_bytes: self.table_bytes + other.table_bytes,
        }
    }
}
