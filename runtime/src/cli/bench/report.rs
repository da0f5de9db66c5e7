//! What came out, as aligned tables or as a JSON object a line.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::traffic::Traffic;
use super::{Attempt, Compiled, EFFORT};
use crate::RuleSet;
use crate::cli::Json;
use crate::cli::measure::Mode;
use crate::cli::record::{Record, bytes};

pub(super) struct Report<'a> {
    pub(super) row: &'a str,
    pub(super) rules: &'a RuleSet,
    pub(super) attempts: &'a [Attempt],
    pub(super) traffics: &'a [Traffic],
    /// For each traffic, each way with its modes.
    pub(super) records: &'a [Record],
}

/// A combination that cannot serve, beside the records.
#[derive(Serialize)]
struct Refused<'a> {
    suite: &'static str,
    row: &'a str,
    rules: usize,
    requested: &'static str,
    engine: &'static str,
    refused: &'a str,
}

impl Report<'_> {
    /// The combinations that cannot serve, with the reason.
    fn refused(&self) -> impl Iterator<Item = (&Attempt, &String)> {
        let attempts = self.attempts.iter();
        attempts.filter_map(|attempt| Some((attempt, attempt.outcome.as_ref().err()?)))
    }

    pub(super) fn json(&self) -> String {
        let mut lines = String::new();
        // Writing to a string cannot fail.
        for (attempt, refused) in self.refused() {
            let line = Refused {
                suite: "user",
                row: self.row,
                rules: self.rules.len(),
                requested: attempt.structure,
                engine: attempt.engine,
                refused,
            };
            let _ = writeln!(lines, "{}", Json(line));
        }
        for record in self.records {
            let _ = writeln!(lines, "{}", Json(record));
        }
        lines
    }

    pub(super) fn text(&self) -> String {
        let (row, rules, stride) = (self.row, self.rules.len(), self.rules.layout().len());
        let mut text = format!("{row}: {rules} rules, keys of {stride} bytes\n\n");
        text += &self.compiled();
        // Writing to a string cannot fail.
        for (attempt, reason) in self.refused() {
            let Attempt {
                engine, structure, ..
            } = attempt;
            let _ = writeln!(text, "engine {engine}, structure {structure}: {reason}");
        }
        let records = self.records.chunk_by(|a, b| a.traffic == b.traffic);
        for (traffic, records) in self.traffics.iter().zip(records) {
            let hits = traffic.expected.iter().flatten().count();
            let (name, misses) = (traffic.name, traffic.expected.len() - hits);
            let _ = writeln!(text, "\n{name}: {hits} keys hit, {misses} miss");
            text += &times(records);
        }
        let rounds = EFFORT.rounds;
        let _ = writeln!(
            text,
            "\nNanoseconds a lookup, medians of {rounds} rounds in which all take turns. \u{b1} is half the width of the 95 %\n\
             interval: in the first line of a table that of the mean, below that of the mean difference to the first line."
        );
        if cfg!(debug_assertions) {
            text +=
                "This is a debug build: all but the machine code is slower than it should be.\n";
        }
        text
    }

    /// What it took to compile, and the memory.
    fn compiled(&self) -> String {
        let mut lines = vec![
            [
                "engine",
                "structure",
                "plan ms",
                "generate ms",
                "publish ms",
                "code bytes",
                "table bytes",
            ]
            .map(str::to_owned),
        ];
        for attempt in self.attempts {
            let Ok(Compiled { classifier, .. }) = &attempt.outcome else {
                continue;
            };
            let stats = classifier.stats();
            let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
            lines.push([
                classifier.engine().name().into(),
                structure(classifier.structure().name(), attempt.structure),
                ms(stats.plan_time),
                ms(stats.compile_time),
                ms(stats.publish_time),
                stats.code_bytes.to_string(),
                (bytes(&stats) - stats.code_bytes).to_string(),
            ]);
        }
        aligned(&lines, 2)
    }
}

/// The times for one traffic.
fn times(records: &[Record]) -> String {
    let [single, batch, latency] = Mode::ALL.map(|mode| mode.name().to_owned());
    let mut lines = vec![[
        "engine".to_owned(),
        "structure".into(),
        "call".into(),
        single,
        batch,
        latency,
    ]];
    for modes in records.chunks_exact(Mode::ALL.len()) {
        let Record {
            engine,
            structure: served,
            requested,
            what,
            ..
        } = &modes[0];
        let served = served.as_deref().zip(requested.as_deref());
        let [single, batch, latency] = [0, 1, 2]
            .map(|mode: usize| format!("{:.2} \u{b1}{:.2}", modes[mode].ns, modes[mode].ci95));
        lines.push([
            engine.as_deref().unwrap_or("-").into(),
            served.map_or("-".into(), |(served, requested)| {
                structure(served, requested)
            }),
            what.clone(),
            single,
            batch,
            latency,
        ]);
    }
    aligned(&lines, 3)
}

/// The structure that serves, with a mark where the planner chose it.
fn structure(served: &str, requested: &str) -> String {
    match requested {
        "auto" => format!("{served} (auto)"),
        _ => served.into(),
    }
}

/// Columns as wide as their widest cell: the first `left` ones start alike, the others, which hold numbers, end alike.
fn aligned<const N: usize>(lines: &[[String; N]], left: usize) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let mut text = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = match column < left {
                true => write!(text, "{gap}{cell:<width$}"),
                false => write!(text, "{gap}{cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}
