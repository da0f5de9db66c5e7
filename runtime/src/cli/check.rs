//! `pktjit check`: what a rule file holds, and what was skipped or changed in it.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

use super::{Format, Json, Output, Policy};
use crate::formats::{FormatNote, RuleFile, SetFlags, SetKind, SourceSet};
use crate::{Overlap, RuleSet};

/// What a rule file holds, with notes about what was skipped or changed
///
/// What is wrong with it is told as file:line:col.
#[derive(Args)]
#[command(after_help = "Example: pktjit check /etc/nftables.conf")]
pub(super) struct Check {
    /// nft text, nft JSON or a ClassBench list, may be compressed with gzip
    #[arg(value_name = "RULES")]
    rules: PathBuf,

    /// What overlapping rules mean; unless given, strict (or what the set says) for nft, first for ClassBench
    #[arg(long, value_name = "POLICY")]
    overlap: Option<Policy>,

    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

impl Check {
    pub(super) fn run(&self) -> Output {
        let file = RuleFile::read(&self.rules)?;
        let mut sets = Vec::new();
        let mut notes: Vec<Note> = file.notes().iter().map(Note::new).collect();
        for set in file.sets() {
            let overlap = self.overlap.map(Overlap::from);
            let rules = set.rule_set(set.packed_layout().clone(), overlap)?;
            notes.extend(set.notes(&rules).map(|note| Note::new(&note)));
            sets.push(Set::new(set, &rules));
        }
        let name = self.rules.to_string_lossy();
        Ok(match self.format {
            Format::Json => format!(
                "{}\n",
                Json(Report {
                    file: &name,
                    sets,
                    notes
                })
            ),
            Format::Text => Report {
                file: &name,
                sets,
                notes,
            }
            .text(),
        })
    }
}

#[derive(Serialize)]
struct Report<'a> {
    file: &'a str,
    sets: Vec<Set>,
    notes: Vec<Note>,
}

#[derive(Serialize)]
struct Set {
    name: String,
    kind: &'static str,
    line: u32,
    fields: Vec<Field>,
    flags: Vec<&'static str>,
    overlap: &'static str,
    elements: usize,
    rules: usize,
}

#[derive(Serialize)]
struct Field {
    name: String,
    kind: &'static str,
    bytes: u8,
}

#[derive(Serialize)]
struct Note {
    file: String,
    line: u32,
    column: u32,
    message: String,
}

impl Note {
    fn new(note: &FormatNote) -> Self {
        let location = note.location();
        Self {
            file: location.file().into(),
            line: location.line(),
            column: location.column(),
            message: note.message().into(),
        }
    }
}

impl Set {
    fn new(set: &SourceSet, rules: &RuleSet) -> Self {
        let fields = set.fields().iter().map(|field| Field {
            name: field.name().into(),
            kind: field.kind().name(),
            bytes: field.bytes(),
        });
        Self {
            name: set.to_string(),
            kind: match set.kind() {
                SetKind::Set => "set",
                SetKind::Map => "map",
                SetKind::VerdictMap => "verdict map",
                SetKind::ClassBench => "list",
            },
            line: set.location().line(),
            fields: fields.collect(),
            flags: flags(set.flags()),
            overlap: match rules.overlap() {
                Overlap::Strict => "strict",
                Overlap::First => "first",
                Overlap::Merge => "merge",
            },
            elements: set.elements().len(),
            rules: rules.len(),
        }
    }
}

fn flags(flags: SetFlags) -> Vec<&'static str> {
    let SetFlags {
        interval,
        auto_merge,
        constant,
        timeout,
        dynamic,
    } = flags;
    let all = [
        (interval, "interval"),
        (auto_merge, "auto-merge"),
        (constant, "constant"),
        (timeout, "timeout"),
        (dynamic, "dynamic"),
    ];
    all.into_iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, name)| name)
        .collect()
}

impl Report<'_> {
    fn text(&self) -> String {
        let mut text = String::new();
        for Set {
            name,
            kind,
            line,
            fields,
            flags,
            overlap,
            elements,
            rules,
        } in &self.sets
        {
            let fields: Vec<String> = fields
                .iter()
                .map(|Field { name, kind, .. }| {
                    if name == kind {
                        name.clone()
                    } else {
                        format!("{name}: {kind}")
                    }
                })
                .collect();
            let flags = if flags.is_empty() {
                "none".into()
            } else {
                flags.join(", ")
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}:{line}: {kind} {name}", self.file);
            let _ = writeln!(text, "  key       {}", fields.join(" . "));
            let _ = writeln!(text, "  flags     {flags}");
            let _ = writeln!(text, "  overlap   {overlap}");
            let _ = writeln!(text, "  elements  {elements}");
            let _ = writeln!(text, "  rules     {rules}");
        }
        if self.sets.is_empty() {
            let _ = writeln!(text, "{}: no sets", self.file);
        }
        for Note {
            file,
            line,
            column,
            message,
        } in &self.notes
        {
            let _ = writeln!(text, "{file}:{line}:{column}: note: {message}");
        }
        text
    }
}
