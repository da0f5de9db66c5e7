//! The command line of the benchmarks.

use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use pktjit::Structure;
#[cfg(target_arch = "x86_64")]
use pktjit_bench::dispatch;
use pktjit_bench::measure::Effort;
use pktjit_bench::record::Record;
use pktjit_bench::suite::{Done, Settings, floor, lookups};
use pktjit_bench::workload::{KEYS, ROWS, Row, rows};
use pktjit_bench::{build, calibrate, classbench, plot, report, scaling};

/// Measures pktjit and its peers in turns, and checks every answer
#[derive(Parser)]
#[command(name = "pktjit-bench")]
struct Cli {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
    /// The rows of the kernel's own measurements
    Selftest(Run),
    /// Their first fields alone
    SelftestFirst(Run),
    /// One field: random ranges and prefixes
    Single(Run),
    /// Sets without ranges
    Hash(Run),
    /// Random elements with IPv6 addresses, beside the same ones with IPv4 addresses
    Shapes(Run),
    /// Prioritised lists: those of ClassBench, where ../shared/data/classbench has them, and generated ones
    Classbench {
        #[command(flatten)]
        run: Run,
        /// Prints how far generated lists are from the given ones instead
        #[arg(long)]
        statistics: bool,
        /// Prints what the generator knows of a given set instead
        #[arg(long, value_name = "SET", conflicts_with = "statistics")]
        learn: Option<String>,
    },
    /// How long it takes to compile
    Build(Run),
    /// One thread and two, beside a loop that only computes
    Scaling(Run),
    /// Beside a loop that only touches the lines which the lookup must read
    Floor(Run),
    /// Inline, direct, through a pointer, through a retpoline
    #[cfg(target_arch = "x86_64")]
    Dispatch(Run),
    /// The constants of the planner's cost model, and how far its estimates are off
    Calibrate {
        /// About a minute
        #[arg(long)]
        quick: bool,
        /// Writes all that was measured
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Prints results as the page docs/performance.md
    Report {
        /// Files that --json wrote
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Args)]
struct Run {
    /// Rows, as ROW or ROW:RULES; all unless given
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Engines to take; the best unless given
    #[arg(long = "engine", value_name = "ENGINE", value_delimiter = ',')]
    engines: Vec<String>,
    /// Structures to take; unless given the planner's choice, in `selftest` and `selftest-first` also pipapo8
    #[arg(long = "structure", value_name = "STRUCTURE", value_delimiter = ',')]
    structures: Vec<String>,
    /// Less than two minutes
    #[arg(long)]
    quick: bool,
    /// Writes the results, one object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws random hits, single lookups
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Cli::parse().suite) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Most rules of a row of a quick run.
const MOST_QUICK_RULES: u32 = 30_000;

/// Runs a suite for one row.
type RunRow = fn(&Row, &Settings, Done<'_>) -> Result<(), Box<dyn Error>>;

fn run(suite: &Suite) -> Result<(), Box<dyn Error>> {
    let kernel = ROWS.to_vec();
    let (name, run_row, rows, run): (_, RunRow, _, _) = match suite {
        Suite::Selftest(run) => ("selftest", lookups, kernel, run),
        Suite::SelftestFirst(run) => {
            let rows = kernel.into_iter().map(Row::first_field).collect();
            ("selftest-first", lookups, rows, run)
        }
        Suite::Single(run) => ("single", lookups, rows::single(), run),
        Suite::Hash(run) => ("hash", lookups, rows::hash(), run),
        Suite::Shapes(run) => ("shapes", lookups, rows::shapes(), run),
        Suite::Classbench {
            statistics: true, ..
        } => return print(&classbench::statistics()?),
        Suite::Classbench {
            learn: Some(set), ..
        } => return print(&classbench::learn(set)?),
        Suite::Classbench { run, .. } => (
            "classbench",
            classbench::run,
            rows::CLASSBENCH.to_vec(),
            run,
        ),
        Suite::Build(run) => ("build", build::run, rows::build(), run),
        Suite::Scaling(run) => ("scaling", scaling::run, rows::scaling(), run),
        Suite::Floor(run) => ("floor", floor, kernel, run),
        #[cfg(target_arch = "x86_64")]
        Suite::Dispatch(run) => ("dispatch", dispatch::run, vec![dispatch::ROW], run),
        Suite::Calibrate { quick, json } => return calibrate(*quick, json.as_ref()),
        Suite::Report { files } => return print_report(files),
    };
    let (rows, settings) = (run.rows(rows)?, run.settings(name)?);
    // A file that cannot be written shall fail before the work, not after it.
    let json = run.json.as_ref().map(File::create).transpose()?;

    let command: Vec<String> = std::env::args().collect();
    let mut out = io::stdout();
    writeln!(out, "Machine: {}", report::machine())?;
    writeln!(out, "Command: {}", command.join(" "))?;
    if cfg!(debug_assertions) {
        writeln!(out, "This is a debug build: its figures mean nothing.")?;
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")?;
    let bar = ProgressBar::new(rows.len() as u64).with_style(style);
    let mut records: Vec<Record> = Vec::new();
    for row in &rows {
        let first = records.len();
        run_row(row, &settings, &mut |record| {
            bar.set_message(format!("{} {} {}", record.row, record.traffic, record.mode));
            records.push(record);
        })?;
        let table = report::tables(&records[first..]);
        bar.suspend(|| writeln!(out, "\n{table}"))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    writeln!(out, "{}", report::summary(&records))?;
    if let Some(file) = json {
        let mut file = BufWriter::new(file);
        for record in &records {
            serde_json::to_writer(&mut file, record)?;
            writeln!(file)?;
        }
        file.flush()?;
    }
    if let Some(path) = &run.plot {
        plot::draw(&records, path)?;
    }
    Ok(())
}

fn calibrate(quick: bool, json: Option<&PathBuf>) -> Result<(), Box<dyn Error>> {
    let json = json.map(File::create).transpose()?;
    let report = calibrate::run(if quick { Effort::QUICK } else { Effort::FULL })?;
    writeln!(io::stdout(), "{report}")?;
    if let Some(file) = json {
        serde_json::to_writer_pretty(file, &report)?;
    }
    Ok(())
}

fn print(text: &impl Display) -> Result<(), Box<dyn Error>> {
    Ok(write!(io::stdout(), "{text}")?)
}

fn print_report(files: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let read = |path: &PathBuf| {
        report::Run::read(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let runs: Result<Vec<_>, _> = files.iter().map(read).collect();
    print(&report::page(&runs?)?)
}

impl Run {
    /// Those of `all` that were asked for; in a quick run that asks for none, all but the largest.
    fn rows(&self, all: Vec<Row>) -> Result<Vec<Row>, String> {
        if self.rows.is_empty() {
            let small = |row: &Row| !self.quick || row.rules <= MOST_QUICK_RULES;
            return Ok(all.into_iter().filter(small).collect());
        }
        let rows: Result<Vec<_>, _> = self.rows.iter().map(|row| Row::parse(row, &all)).collect();
        Ok(rows?.concat())
    }

    fn settings(&self, suite: &'static str) -> Result<Settings, Box<dyn Error>> {
        Ok(Settings {
            suite,
            engines: match choices(&self.engines)? {
                given if given.is_empty() => vec![None],
                given => given,
            },
            structures: match (choices(&self.structures)?, suite) {
                (given, _) if !given.is_empty() => given,
                (_, "selftest" | "selftest-first") => {
                    let like_the_peer = Structure::ALL.iter().filter(|s| s.name() == "pipapo8");
                    std::iter::once(None)
                        .chain(like_the_peer.copied().map(Some))
                        .collect()
                }
                _ => vec![None],
            },
            effort: if self.quick {
                Effort::QUICK
            } else {
                Effort::FULL
            },
            keys: KEYS,
        })
    }
}

/// What the names mean, `None` for `auto`.
fn choices<T: FromStr>(names: &[String]) -> Result<Vec<Option<T>>, T::Err> {
    let choice = |name: &String| match &**name {
        "auto" => Ok(None),
        name => name.parse().map(Some),
    };
    names.iter().map(choice).collect()
}
