//! `pktjit explain`: why a key hits the rule that it hits.
//!
//! It asks each rule in turn, and no engine, so that it can be trusted where an engine is in doubt.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::values;
use super::{Format, Json, Output, Rules};
use crate::formats::SourceSet;
use crate::{RuleSet, StoredRule};

/// Most losers and most rules that never win that are listed one by one.
const SHOWN: usize = 20;

/// Why a key hits the rule that it hits
///
/// Shows the winner with its conditions, the rules that match too and why they lose, and the rules of the set that no key
/// can ever hit because one stronger rule covers them.
#[derive(Args)]
#[command(after_help = "Example: pktjit explain rules.nft --set services '192.0.2.1 . 80'")]
pub(super) struct Explain {
    #[command(flatten)]
    rules: Rules,

    /// The key as the set's elements are written; for ClassBench 'sip dip sport dport proto'
    #[arg(value_name = "KEY")]
    key: String,

    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

#[derive(Serialize)]
struct Report<'a> {
    key: &'a str,
    winner: Option<Winner<'a>>,
    losers: Vec<Loser<'a>>,
    /// How many rules match and lose; the first of them are listed.
    loser_count: usize,
    never: Vec<Never<'a>>,
    /// How many rules can never win; the first of them are listed.
    never_count: usize,
}

#[derive(Serialize)]
struct Named<'a> {
    rule: u32,
    element: &'a str,
    verdict: &'a str,
    at: String,
}

#[derive(Serialize)]
struct Winner<'a> {
    #[serde(flatten)]
    rule: Named<'a>,
    conditions: Vec<Condition<'a>>,
}

#[derive(Serialize)]
struct Condition<'a> {
    field: &'a str,
    value: String,
    condition: String,
}

#[derive(Serialize)]
struct Loser<'a> {
    #[serde(flatten)]
    rule: Named<'a>,
    why: &'static str,
}

#[derive(Serialize)]
struct Never<'a> {
    #[serde(flatten)]
    rule: Named<'a>,
    covered_by: Named<'a>,
}

impl Explain {
    pub(super) fn run(&self) -> Output {
        let file = self.rules.read()?;
        let set = self.rules.set(&file)?;
        let rules = self.rules.rule_set(set)?;
        let key = set.key(&self.key)?;
        let report = Report::new(set, &rules, &key.text, &key.values);
        Ok(match self.format {
            Format::Json => format!("{}\n", Json(report)),
            Format::Text => report.text(),
        })
    }
}

impl<'a> Report<'a> {
    fn new(set: &'a SourceSet, rules: &'a RuleSet, key: &'a str, key_values: &[u128]) -> Self {
        /// Pairs of rules to look at for each rule.
        const EFFORT: u64 = 500;
        let fields = set.fields();
        let matches = |stored: &&StoredRule| {
            let conditions = stored.rule.matches.iter().zip(fields).zip(key_values);
            conditions
                .into_iter()
                .all(|((found, field), &value)| found.matches(field, value))
        };
        let mut candidates = rules.rules().iter().filter(matches);
        let winner = candidates.next();
        let losers: Vec<&StoredRule> = candidates.collect();
        let shadowed = rules.shadowed(EFFORT * rules.len() as u64);
        let row = |row: u32| named(set, &rules.rules()[row as usize]);
        Self {
            key,
            winner: winner.map(|stored| Winner {
                rule: named(set, stored),
                conditions: stored
                    .rule
                    .matches
                    .iter()
                    .zip(fields)
                    .zip(key_values)
                    .map(|((found, field), &value)| Condition {
                        field: field.name(),
                        value: values::value(field, value),
                        condition: values::condition(field, found),
                    })
                    .collect(),
            }),
            loser_count: losers.len(),
            losers: losers
                .into_iter()
                .take(SHOWN)
                .map(|loser| Loser {
                    rule: named(set, loser),
                    why: match winner {
                        Some(winner) if winner.rule.priority > loser.rule.priority => {
                            "lower priority"
                        }
                        _ => "comes later",
                    },
                })
                .collect(),
            never_count: shadowed.len(),
            never: shadowed
                .into_iter()
                .take(SHOWN)
                .map(|pair| Never {
                    rule: row(pair.row),
                    covered_by: row(pair.by),
                })
                .collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "key     {}", self.key);
        match &self.winner {
            None => {
                let _ = writeln!(text, "winner  none, no rule matches");
            }
            Some(Winner { rule, conditions }) => {
                let _ = writeln!(text, "winner  {rule}");
                let width = conditions.iter().map(|c| c.field.len()).max().unwrap_or(0);
                for Condition {
                    field,
                    value,
                    condition,
                } in conditions
                {
                    let _ = writeln!(
                        text,
                        "          {field:<width$}  {value} matches {condition}"
                    );
                }
            }
        }
        for Loser { rule, why } in &self.losers {
            let _ = writeln!(text, "loses   {rule}: {why}");
        }
        more(
            &mut text,
            self.loser_count - self.losers.len(),
            "match and lose",
        );
        for Never { rule, covered_by } in &self.never {
            let _ = writeln!(text, "never   {rule}: covered by {covered_by}");
        }
        more(
            &mut text,
            self.never_count - self.never.len(),
            "can never win",
        );
        text
    }
}

fn more(text: &mut String, hidden: usize, what: &str) {
    if hidden > 0 {
        let _ = writeln!(text, "        and {hidden} more rules {what}");
    }
}

fn named<'a>(set: &'a SourceSet, stored: &StoredRule) -> Named<'a> {
    // Every rule comes from an element.
    let element = set.element(stored.id);
    Named {
        rule: stored.id.as_u32(),
        element: element.map_or("", |element| element.text()),
        verdict: element.map_or("", |element| element.verdict_text()),
        at: element.map_or(String::new(), |element| {
            set.element_location(element).to_string()
        }),
    }
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            rule,
            element,
            verdict,
            at,
        } = self;
        write!(f, "rule {rule} `{element}`")?;
        if *verdict != "match" {
            write!(f, " : {verdict}")?;
        }
        write!(f, " ({at})")
    }
}
