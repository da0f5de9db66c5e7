//! Results as tables that people read, in Markdown: the same on a terminal and in `docs/performance.md`.

use std::fmt::Write as _;
use std::fs;

use crate::record::Record;

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

/// One table for the results of one row of a suite: a line for each traffic and mode, a column for each contender.
fn row_table(records: &[&Record]) -> String {
    let mut text = String::new();
    let Some(first) = records.first() else {
        return text;
    };
    let columns = distinct(records, column);
    let lines = distinct(records, |record| (&*record.traffic, &*record.mode));
    let _ = writeln!(text, "### {}, {} rules\n", first.row, first.rules);
    let _ = writeln!(text, "| ns a lookup | {} |", columns.join(" | "));
    let _ = writeln!(text, "| --- |{}", " --- |".repeat(columns.len()));
    for (traffic, mode) in lines {
        let _ = write!(text, "| {traffic}, {mode} |");
        let line = records
            .iter()
            .filter(|record| (&*record.traffic, &*record.mode) == (traffic, mode));
        let base = line.clone().next().map_or(f64::NAN, |record| record.ns);
        for (i, record) in line.enumerate() {
            let _ = write!(text, " {:.1} ± {:.1}", record.ns, record.ci95);
            let _ = match i {
                0 => write!(text, " |"),
                _ => write!(text, " ({:.1}x) |", record.ns / base),
            };
        }
        text.push('\n');
    }
    for (name, figure) in [
        (
            "KB",
            (|record| record.bytes as f64 / 1e3) as fn(&Record) -> f64,
        ),
        ("built in ms", |record| record.build_ms),
    ] {
        let _ = write!(text, "| {name} |");
        for name in &columns {
            let found = records.iter().find(|record| column(record) == *name);
            let _ = write!(
                text,
                " {:.1} |",
                found.map_or(f64::NAN, |record| figure(record))
            );
        }
        text.push('\n');
    }
    text
}

/// How many times as long as pktjit each peer takes: the geometric mean over all rows of one suite, and the least.
#[must_use]
pub fn summary(records: &[Record]) -> String {
    let all: Vec<&Record> = records.iter().collect();
    let mut peers = distinct(&all, |record| &*record.what);
    if !peers
        .first()
        .is_some_and(|first| first.starts_with("pktjit"))
    {
        return String::new();
    }
    peers.retain(|peer| !peer.starts_with("pktjit"));
    let mut text = format!(
        "### All rows: times as long as pktjit, mean and least\n\n| | {} |\n| --- |{}\n",
        peers.join(" | "),
        " --- |".repeat(peers.len()),
    );
    for (traffic, mode) in distinct(&all, |record| (&*record.traffic, &*record.mode)) {
        let _ = write!(text, "| {traffic}, {mode} |");
        for peer in &peers {
            let ratios = ratios(&all, peer, traffic, mode);
            let Some((row, least)) = ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
                let _ = write!(text, " |");
                continue;
            };
            let logs: f64 = ratios.iter().map(|(_, ratio)| ratio.ln()).sum();
            let mean = (logs / ratios.len() as f64).exp();
            let _ = write!(text, " {mean:.1}x, {least:.1}x ({row}) |");
        }
        text.push('\n');
    }
    text
}

/// For each row, how many times as long as the first contender `peer` takes.
fn ratios(records: &[&Record], peer: &str, traffic: &str, mode: &str) -> Vec<(String, f64)> {
    let here = |record: &&&Record| record.traffic == traffic && record.mode == mode;
    let mut ratios = Vec::new();
    for (row, rules) in distinct(records, |record| (&*record.row, record.rules)) {
        let mut line = records
            .iter()
            .filter(here)
            .filter(|record| (&*record.row, record.rules) == (row, rules));
        let Some(first) = line.next() else { continue };
        if !first.what.starts_with("pktjit") {
            continue;
        }
        if let Some(peer) = line.find(|record| record.what == peer) {
            ratios.push((format!("{row}:{rules}"), peer.ns / first.ns));
        }
    }
    ratios
}

/// All results, suite by suite: `docs/performance.md`.
#[must_use]
pub fn page(records: &[Record]) -> String {
    let mut text = String::from(INTRODUCTION);
    let _ = writeln!(text, "Machine: {}.", machine());
    let all: Vec<&Record> = records.iter().collect();
    for suite in distinct(&all, |record| &*record.suite) {
        let _ = writeln!(text, "\n## {suite}\n");
        let records: Vec<Record> = records
            .iter()
            .filter(|record| record.suite == suite)
            .cloned()
            .collect();
        text.push_str(&tables(&records));
        let _ = write!(text, "\n{}", summary(&records));
    }
    text
}

/// The tables of one suite, one for each row.
#[must_use]
pub fn tables(records: &[Record]) -> String {
    let all: Vec<&Record> = records.iter().collect();
    let rows = distinct(&all, |record| (&*record.row, record.rules));
    let tables = rows.into_iter().map(|place| {
        let here = all
            .iter()
            .filter(|record| (&*record.row, record.rules) == place);
        row_table(&here.copied().collect::<Vec<_>>())
    });
    tables.collect::<Vec<String>>().join("\n")
}

/// The name of a contender's column.
fn column(record: &Record) -> String {
    match (&record.engine, &record.structure) {
        (Some(engine), Some(structure)) => format!("{} {engine} {structure}", record.what),
        _ => record.what.clone(),
    }
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

const INTRODUCTION: &str = "# Performance

Generated by `pktjit-bench report`; see CONTRIBUTING.md for the commands. Do not edit.

Nanoseconds a lookup: medians of rounds in which all contenders take turns, with the half width of the 95 % interval of the
mean difference to the first contender (for the first, of its own mean). In brackets: times as long as the first. `pktjit` is
the call through the function pointer, `pktjit-lookup` the safe call. `pipapo` is the structure of Linux, generic, of our own
writing; `rbtree` a B-tree on the first field alone; `hash` a hash map of exact keys, which knows no ranges. `single` is one
key a call, `batch` 32 keys a call, `latency` a chain in which each key waits for the answer before it. `same` is one key, `hits`
are random keys inside elements, `misses` the same but for one half that hits nothing. Every answer was compared with the expected one.

";
