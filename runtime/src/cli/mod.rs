//! The tools `pktjit` and `jitdump`.
//!
//! Each command takes its arguments and returns the text that belongs on stdout: a tool prints all of its output or none,
//! and what goes wrong is one message on stderr. Exit codes: 0, or 1 for everything that is wrong with files, keys, names
//! and engines, or 2 for words that clap refuses.
//!
//! Names of engines, structures and targets are read here and not by clap: an unknown one is an ordinary error.

mod asm;
mod bench;
mod call;
mod check;
mod classify;
mod demo;
mod engines;
mod explain;
mod jitdump;
pub mod measure;
pub mod random;
pub mod record;
mod stdout;
mod tables;
mod values;

use std::error::Error;
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use serde::Serialize;

use crate::formats::{FormatError, RuleFile, SourceSet};
use crate::{Classifier, ClassifierBuilder, Effort, EngineKind, Overlap, RuleSet, Structure};

/// What a command returns: its whole output, or what to say on stderr.
type Output = Result<String, Box<dyn Error>>;

/// Compiles packet-classifier rule sets to machine code, and classifies with them
#[derive(Parser)]
#[command(name = "pktjit", version)]
struct Pktjit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Classify(classify::Classify),
    Check(check::Check),
    Explain(explain::Explain),
    Bench(bench::Bench),
    Engines(engines::Engines),
    Demo(demo::Demo),
}

/// The tool `pktjit`.
#[must_use]
pub fn pktjit() -> ExitCode {
    exit(match Pktjit::parse().command {
        Command::Classify(classify) => classify.run(),
        Command::Check(check) => check.run(),
        Command::Explain(explain) => explain.run(),
        Command::Bench(bench) => bench.run(),
        Command::Engines(engines) => engines.run(),
        Command::Demo(demo) => demo.run(),
    })
}

/// The tool `jitdump`.
#[must_use]
pub fn jitdump() -> ExitCode {
    exit(jitdump::Jitdump::parse().run())
}

/// Prints what a command returned.
fn exit(output: Output) -> ExitCode {
    let printed = output.and_then(|text| {
        if stdout::was_closed() {
            return Err("stdout cannot be written: it is closed".into());
        }
        let mut stdout = std::io::stdout().lock();
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
            .map_err(|error| format!("stdout cannot be written: {error}").into())
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is closed too, the exit code has to do.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Which rules.
#[derive(Args)]
struct Rules {
    /// nft text, nft JSON or a ClassBench list, may be compressed with gzip
    #[arg(value_name = "RULES")]
    rules: PathBuf,

    /// The set or map: NAME, "TABLE NAME" or "FAMILY TABLE NAME"; needed where the file has several
    #[arg(long, value_name = "NAME")]
    set: Option<String>,

    /// What overlapping rules mean; unless given, strict (or what the set says) for nft, first for ClassBench
    #[arg(long, value_name = "POLICY")]
    overlap: Option<Policy>,
}

impl Rules {
    fn read(&self) -> Result<RuleFile, FormatError> {
        RuleFile::read(&self.rules)
    }

    fn set<'a>(&self, file: &'a RuleFile) -> Result<&'a SourceSet, FormatError> {
        file.set(self.set.as_deref())
    }

    /// The rules of `set` for keys without gaps.
    fn rule_set(&self, set: &SourceSet) -> Result<RuleSet, FormatError> {
        let overlap = self.overlap.map(Overlap::from);
        set.rule_set(set.packed_layout().clone(), overlap)
    }
}

/// [`Overlap`] as an argument.
#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// What nftables accepts
    Strict,
    /// All rules are kept, the first match wins
    First,
    /// Touching and overlapping ranges with the same verdict become one
    Merge,
}

impl From<Policy> for Overlap {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Strict => Self::Strict,
            Policy::First => Self::First,
            Policy::Merge => Self::Merge,
        }
    }
}

/// The names that `--structure` takes.
fn structure_help() -> String {
    let names = Structure::names("or");
    format!("auto (the planner chooses, the default), {names}")
}

/// How to compile.
#[derive(Args)]
struct Compiler {
    /// auto (the best that works here, the default), avx512, avx2, interp or linear
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,

    #[arg(long, value_name = "STRUCTURE", help = structure_help())]
    structure: Option<String>,

    /// How hard the planner looks for a better plan
    #[arg(long, value_name = "EFFORT", default_value = "balanced")]
    effort: Diligence,
}

impl Compiler {
    fn builder(&self) -> Result<ClassifierBuilder, Box<dyn Error>> {
        let engine = named(self.engine.as_deref())?;
        let structure = named(self.structure.as_deref())?;
        Ok(builder(engine, structure).effort(self.effort.into()))
    }
}

/// Forces what is named.
fn builder(engine: Option<EngineKind>, structure: Option<Structure>) -> ClassifierBuilder {
    let mut builder = Classifier::builder();
    if let Some(engine) = engine {
        builder = builder.engine(engine);
    }
    if let Some(structure) = structure {
        builder = builder.structure(structure);
    }
    builder
}

/// What `name` means; `auto` is the same as no name.
fn named<T: FromStr>(name: Option<&str>) -> Result<Option<T>, T::Err> {
    name.filter(|&name| name != "auto")
        .map(str::parse)
        .transpose()
}

/// [`Effort`] as an argument.
#[derive(Clone, Copy, ValueEnum)]
enum Diligence {
    Fast,
    Balanced,
    Best,
}

impl From<Diligence> for Effort {
    fn from(diligence: Diligence) -> Self {
        match diligence {
            Diligence::Fast => Self::Fast,
            Diligence::Balanced => Self::Balanced,
            Diligence::Best => Self::Best,
        }
    }
}

/// A bar on stderr that goes away with the value. It is not drawn unless stderr is a terminal.
fn progress_bar(count: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {eta} left");
    ProgressBar::new(count as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what)
        .with_finish(ProgressFinish::AndClear)
}

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// One line of JSON.
struct Json<T>(T);

impl<T: Serialize> fmt::Display for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).map_err(|_| fmt::Error)?)
    }
}
