//! Results as tables that people read, in Markdown: the same on a terminal and in `docs/performance.md`.
//!
//! `tables` has the figures of a suite, `ratios` what they come to beside the peers, `fairness` the peers beside the
//! kernel, `shapes` IPv6 beside IPv4, `lists` what `classbench` comes to, `code` what is counted in the code of each target.
//! What was not measured by this crate is text: `*.md` in this folder.

mod code;
mod fairness;
mod lists;
mod ratios;
mod shapes;
mod tables;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use ratios::ratios;
pub use tables::tables;
pub(crate) use tables::{row_name, series};

use crate::record::Record;
use crate::workload::ROWS;

/// The results of one file.
#[derive(Clone, Debug)]
pub struct Run {
    /// The name of the file.
    pub file: String,
    /// The day on which it was written, as YYYY-MM-DD.
    pub date: String,
    /// What is in it.
    pub records: Vec<Record>,
}

impl Run {
    /// Reads what `--json` wrote.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is no result.
    pub fn read(path: &Path) -> io::Result<Self> {
        let lines = fs::read_to_string(path)?;
        let written = fs::metadata(path)?.modified()?;
        let seconds = written.duration_since(UNIX_EPOCH).unwrap_or_default();
        let records: Result<_, _> = lines.lines().map(serde_json::from_str).collect();
        Ok(Self {
            file: path.file_name().unwrap_or_default().display().to_string(),
            date: date(seconds.as_secs() / 86400),
            records: records?,
        })
    }

    /// The command that measured this, as far as the results tell.
    fn command(&self, suite: &str) -> String {
        let records: Vec<&Record> = self.records.iter().collect();
        let has_acl = records
            .iter()
            .any(|record| record.what.starts_with("rte_acl"));
        let features = if has_acl { " --features dpdk" } else { "" };
        let mut command = format!("cargo run --release -p pktjit-bench{features} -- {suite}");
        for structure in distinct(&records, |record| record.requested.as_deref()) {
            let _ = structure.map(|name| write!(command, " --structure {name}"));
        }
        let of = |name: &str, rules| format!("{name}:{rules}");
        let kernel = ROWS.map(|row| of(row.name, row.rules));
        let rows = records.iter().map(|record| of(&record.row, record.rules));
        let mut rows: Vec<String> = rows.collect();
        rows.dedup();
        if rows != kernel {
            let _ = write!(command, " --rows {}", rows.join(","));
        }
        let _ = write!(command, " --json {}", self.file);
        command
    }
}

/// All results, file by file, and what the code of each target takes: `docs/performance.md`.
///
/// # Errors
/// Where a row whose code is counted cannot be made.
pub fn page(runs: &[Run]) -> Result<String, Box<dyn Error>> {
    let mut text = String::from(include_str!("introduction.md"));
    let _ = writeln!(text, "\nMachine: {}.", machine());
    for run in runs {
        let all: Vec<&Record> = run.records.iter().collect();
        for suite in distinct(&all, |record| &*record.suite) {
            let records = all.iter().filter(|record| record.suite == suite);
            let records: Vec<Record> = records.map(|&record| record.clone()).collect();
            let command = run.command(suite);
            let _ = writeln!(text, "\n## {suite}\n\n`{command}`, {}\n", run.date);
            let summary = summary(&records);
            if !summary.is_empty() {
                let _ = writeln!(text, "{summary}");
            }
            text.push_str(&tables(&records));
        }
    }
    text.push_str(&code::section()?);
    text.push_str(include_str!("kernel.md"));
    Ok(text)
}

/// What the figures of one suite come to; those of `build` are few enough to be read.
#[must_use]
pub fn summary(records: &[Record]) -> String {
    if records.iter().any(|record| record.suite == "build") {
        return String::new();
    }
    if records.iter().any(|record| record.suite == "classbench") {
        return lists::table(records);
    }
    let parts = [ratios, fairness::table, shapes::table].map(|table| table(records));
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<String>>().join("\n")
}

/// The processor, the number of CPUs, the kernel and the load, each as far as the system tells.
#[must_use]
pub fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(": "))
            .map_or("unknown", |(_, value)| value)
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}, family {} model {}, {cpus} CPUs, Linux {}, load {}",
        field("model name"),
        field("cpu family"),
        field("model\t"),
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").split(' ').next().unwrap_or_default(),
    )
}

/// The date of a day that is counted from 1970-01-01.
fn date(day: u64) -> String {
    // Years begin in March here, so that a leap day is the last of its year; an era is 400 years.
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

/// What `of` gives for each record, without repetitions, in order of appearance.
fn distinct<'a, T: PartialEq>(records: &[&'a Record], of: impl Fn(&'a Record) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for record in records {
        let value = of(record);
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Single lookups with random hits in some row.
    pub(super) fn record(what: &str, requested: Option<&str>, ns: f64) -> Record {
        Record {
            suite: "selftest".into(),
            row: "a".into(),
            rules: 10,
            traffic: "hits".into(),
            what: what.into(),
            requested: requested.map(Into::into),
            engine: requested.map(|_| "avx2".into()),
            structure: requested.map(Into::into),
            mode: "single".into(),
            ns,
            ci95: 0.0,
            bytes: 0,
            build_ms: 0.0,
        }
    }

    #[test]
    fn days_are_counted_over_leap_years() {
        for (day, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_787, "2026-11-30"),
        ] {
            assert_eq!(date(day), expected);
        }
    }
}
