//! The command line of the benchmarks.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use pktjit::{EngineKind, Structure};
use pktjit_bench::measure::Effort;
use pktjit_bench::record::Record;
use pktjit_bench::suite::{Settings, floor, selftest};
use pktjit_bench::workload::{KEYS, ROWS, Row};
#[cfg(target_arch = "x86_64")]
use pktjit_bench::dispatch;
use pktjit_bench::{plot, report, scaling};

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
    /// One thread and two, beside a loop that only computes
    Scaling(Run),
    /// Beside a loop that only touches the lines which the lookup must read
    Floor(Run),
    /// Inline, direct, through a pointer, through a retpoline
    #[cfg(target_arch = "x86_64")]
    Dispatch(Run),
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
    #[arg(long, value_delimiter = ',', value_parser = Row::parse)]
    rows: Vec<std::vec::Vec<Row>>,
    /// Engines to take; the best unless given
    #[arg(long = "engine", value_name = "ENGINE")]
    engines: Vec<String>,
    /// Structures to take; the planner's choice unless given
    #[arg(long = "structure", value_name = "STRUCTURE")]
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

fn run(suite: &Suite) -> Result<(), Box<dyn Error>> {
    let (name, run) = match suite {
        Suite::Selftest(run) => ("selftest", run),
        Suite::SelftestFirst(run) => ("selftest-first", run),
        Suite::Scaling(run) => ("scaling", run),
        Suite::Floor(run) => ("floor", run),
        #[cfg(target_arch = "x86_64")]
        Suite::Dispatch(run) => ("dispatch", run),
        Suite::Report { files } => {
            let mut records = Vec::new();
            for file in files {
                for line in fs::read_to_string(file)?.lines() {
                    records.push(serde_json::from_str(line)?);
                }
            }
            return Ok(write!(io::stdout(), "{}", report::page(&records))?);
        }
    };
    let settings = run.settings(name)?;
    let command: Vec<String> = std::env::args().collect();
    writeln!(io::stdout(), "Machine: {}", report::machine())?;
    writeln!(io::stdout(), "Command: {}", command.join(" "))?;
    if cfg!(debug_assertions) {
        writeln!(
            io::stdout(),
            "This is a debug build: its figures mean nothing."
        )?;
    }
    // A file that cannot be written shall fail before the work, not after it.
    let mut json = run
        .json
        .as_ref()
        .map(File::create)
        .transpose()?
        .map(BufWriter::new);

    let bar = ProgressBar::new(settings.rows.len() as u64).with_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")?,
    );
    let mut records: Vec<Record> = Vec::new();
    if name == "dispatch" {
        dispatch::run(&settings, &mut |record| records.push(record))?;
        writeln!(io::stdout(), "\n{}", report::tables(&records))?;
    } else {
        for row in &settings.rows {
            let mut here = Vec::new();
            let mut done = |record: Record| {
                bar.set_message(format!("{} {} {}", record.row, record.traffic, record.mode));
                here.push(record);
            };
            match name {
                "scaling" => scaling::run(row, &settings, &mut done)?,
                "floor" => floor(row, &settings, &mut done)?,
                _ => selftest(row, &settings, &mut done)?,
            }
            let table = report::row_table(&here.iter().collect::<Vec<_>>());
            bar.suspend(|| writeln!(io::stdout(), "\n{table}"))?;
            bar.inc(1);
            records.extend(here);
        }
        bar.finish_and_clear();
        writeln!(io::stdout(), "{}", report::summary(&records))?;
    }
    if let Some(json) = &mut json {
        for record in &records {
            serde_json::to_writer(&mut *json, record)?;
            writeln!(json)?;
        }
        json.flush()?;
    }
    if let Some(path) = &run.plot {
        plot::draw(&records, path)?;
    }
    Ok(())
}

impl Run {
    fn settings(&self, suite: &'static str) -> Result<Settings, Box<dyn Error>> {
        let mut rows = self.rows.concat();
        if rows.is_empty() {
            rows = ROWS.to_vec();
        }
        let (mut engines, mut structures) = (Vec::new(), Vec::new());
        for name in &self.engines {
            engines.push(match &**name {
                "auto" => None,
                name => Some(name.parse::<EngineKind>()?),
            });
        }
        for name in &self.structures {
            structures.push(match &**name {
                "auto" => None,
                name => Some(name.parse::<Structure>()?),
            });
        }
        if engines.is_empty() {
            engines.push(None);
        }
        if structures.is_empty() {
            structures.push(None);
        }
        Ok(Settings {
            suite,
            rows,
            engines,
            structures,
            effort: if self.quick {
                Effort::QUICK
            } else {
                Effort::FULL
            },
            keys: KEYS,
        })
    }
}
