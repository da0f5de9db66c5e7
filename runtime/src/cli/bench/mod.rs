//! `pktjit bench`: what lookups in a user's own rules cost, for each engine and structure.
//!
//! Every answer is compared with that of the linear scan before anything is timed. All combinations take turns in the same
//! run, over the same keys.

mod report;
mod traffic;

use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use clap::Args;
use pktjit_ir::plan::PlanError;

use self::report::Report;
use self::traffic::Traffic;
use super::call::Call;
use super::measure::{Effort, Estimate, Mode, in_turns};
use super::record::{Record, bytes};
use super::{Format, Output, Rules, builder, named, progress_bar, structure_help};
use crate::formats::SourceSet;
use crate::{BuildError, Classifier, EngineKind, RuleSet, Structure};

/// What lookups in a rule set cost
///
/// Times one key a call (single), 32 keys a call (batch), and a chain in which each key waits for the answer before it
/// (latency), in nanoseconds a lookup: `pktjit` through the bare function pointers, where there is machine code, and
/// `pktjit-lookup` through the safe calls. Unless a file gives keys, they are made from the rules, the same in each run:
/// `same` is one key inside the last rule, `hits` are keys inside random rules, and in `misses` half of the keys have each
/// field from another rule, which need not miss.
///
/// Several engines and structures are timed in all combinations. What cannot serve is listed with the reason; it is an
/// error only where nothing can. Every answer is compared with the linear scan's, and a wrong one is an error: with large
/// lists this takes most of the time. The scan itself is timed with up to 16384 rules.
///
/// JSON has an object for each figure, with the keys that pktjit-bench writes, and one with the key `refused` for each
/// combination that cannot serve.
#[derive(Args)]
#[command(
    after_help = "Example: pktjit bench rules.nft --set services --structure auto --structure linear"
)]
pub(super) struct Bench {
    #[command(flatten)]
    rules: Rules,

    /// A file with a key on each line, may be compressed with gzip; lines that start with # are comments
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,

    /// auto (the best that works here, the default), avx512, avx2, interp or linear; may be repeated
    #[arg(long = "engine", value_name = "ENGINE")]
    engines: Vec<String>,

    #[arg(
        long = "structure",
        value_name = "STRUCTURE",
        help = format!("{}; may be repeated", structure_help())
    )]
    structures: Vec<String>,

    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

/// A way to call takes about a third of a second, all traffic and modes together.
const EFFORT: Effort = Effort {
    rounds: 31,
    sample_ns: 1e6,
};

/// Most rules with which the linear scan is timed beside the others; with more, it would take longer than all of them.
const SCANNED_RULES: usize = 1 << 14;

impl Bench {
    pub(super) fn run(&self) -> Output {
        let engines = choices(&self.engines)?;
        let structures = choices(&self.structures)?;
        let file = self.rules.read()?;
        let set = self.rules.set(&file)?;
        let rules = self.rules.rule_set(set)?;
        let mut traffics = match &self.keys {
            Some(path) => vec![Traffic::read(path, set, &rules)?],
            None => Traffic::generate(&rules)?.into(),
        };
        let attempts = compile(&engines, &structures, &rules)?;

        let scan = Classifier::builder()
            .engine(EngineKind::Linear)
            .compile(&rules)?;
        let stride = rules.layout().len();
        let keys = traffics.iter().map(|traffic| traffic.keys.len() / stride);
        let bar = progress_bar(keys.sum(), "keys scanned");
        for traffic in &mut traffics {
            traffic.scan(&scan, &bar);
        }
        drop(bar);

        let mut ways: Vec<Way<'_>> = attempts.iter().flat_map(Way::all).collect();
        let bar = progress_bar(ways.len() * traffics.len(), "checks");
        for way in &ways {
            for traffic in &traffics {
                way.check(traffic)?;
                bar.inc(1);
            }
        }
        drop(bar);
        let is_scan = |way: &Way<'_>| way.classifier.engine() == EngineKind::Linear;
        if rules.len() <= SCANNED_RULES && !ways.iter().any(is_scan) {
            ways.push(Way::scan(&scan));
        }
        let row = self.row(set);
        let records = measure(&ways, &traffics, &row);
        let report = Report {
            row: &row,
            rules: &rules,
            attempts: &attempts,
            traffics: &traffics,
            records: &records,
        };
        Ok(match self.format {
            Format::Text => report.text(),
            Format::Json => report.json(),
        })
    }

    /// The name of the set; a ClassBench list has none, but its file has.
    fn row(&self, set: &SourceSet) -> String {
        if !set.name().is_empty() {
            return set.name().into();
        }
        let mut path = self.rules.rules.clone();
        if path.extension().is_some_and(|extension| extension == "gz") {
            path.set_extension("");
        }
        let stem = path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into()
    }
}

/// What the names mean; no names mean `auto`.
fn choices<T: FromStr>(names: &[String]) -> Result<Vec<Option<T>>, T::Err> {
    if names.is_empty() {
        return Ok(vec![None]);
    }
    names.iter().map(|name| named(Some(name))).collect()
}

/// A combination of what was asked for, and what became of it.
struct Attempt {
    engine: &'static str,
    structure: &'static str,
    outcome: Result<Compiled, String>,
}

struct Compiled {
    classifier: Classifier,
    build_ms: f64,
}

impl Attempt {
    /// # Errors
    /// A fault of the library. Where the engine or the structure cannot serve, that is the outcome.
    fn new(
        engine: Option<EngineKind>,
        structure: Option<Structure>,
        rules: &RuleSet,
    ) -> Result<Self, BuildError> {
        let start = Instant::now();
        let outcome = match builder(engine, structure).compile(rules) {
            Ok(classifier) => Ok(Compiled {
                classifier,
                build_ms: start.elapsed().as_secs_f64() * 1e3,
            }),
            Err(error @ (BuildError::Engine { .. } | BuildError::Plan(PlanError::Refused(_)))) => {
                Err(error.to_string())
            }
            Err(fault) => return Err(fault),
        };
        Ok(Self {
            engine: engine.map_or("auto", EngineKind::name),
            structure: structure.map_or("auto", Structure::name),
            outcome,
        })
    }
}

/// Attempts all combinations of `engines` and `structures`.
///
/// # Errors
/// A fault of the library, or that none of them can serve.
fn compile(
    engines: &[Option<EngineKind>],
    structures: &[Option<Structure>],
    rules: &RuleSet,
) -> Result<Vec<Attempt>, Box<dyn Error>> {
    let bar = progress_bar(engines.len() * structures.len(), "combinations compiled");
    let mut attempts = Vec::new();
    let mut reasons = String::new();
    for &engine in engines {
        for &structure in structures {
            let attempt = Attempt::new(engine, structure, rules)?;
            if let Err(reason) = &attempt.outcome {
                if !reasons.is_empty() {
                    reasons.push('\n');
                }
                reasons.push_str(reason);
            }
            attempts.push(attempt);
            bar.inc(1);
        }
    }
    if attempts.iter().all(|attempt| attempt.outcome.is_err()) {
        return Err(reasons.into());
    }
    Ok(attempts)
}

/// A way to look keys up that is checked and timed.
struct Way<'a> {
    what: &'static str,
    call: Call<'a>,
    classifier: &'a Classifier,
    /// The structure that was asked for; nobody asked for the linear scan that stands beside the others.
    requested: Option<&'static str>,
    build_ms: f64,
}

impl<'a> Way<'a> {
    /// The ways to call what has been compiled: the bare pointers first, where there is machine code.
    fn all(attempt: &'a Attempt) -> impl Iterator<Item = Self> {
        attempt.outcome.iter().flat_map(|compiled| {
            let classifier = &compiled.classifier;
            let raw = Call::raw(classifier).map(|raw| ("pktjit", raw));
            let calls = raw
                .into_iter()
                .chain([("pktjit-lookup", Call::safe(classifier))]);
            calls.map(|(what, call)| Self {
                what,
                call,
                classifier,
                requested: Some(attempt.structure),
                build_ms: compiled.build_ms,
            })
        })
    }

    fn scan(scan: &'a Classifier) -> Self {
        Self {
            what: "linear",
            call: Call::safe(scan),
            classifier: scan,
            requested: None,
            build_ms: 0.0,
        }
    }

    /// Compares all answers with those of the linear scan.
    fn check(&self, traffic: &Traffic) -> Result<(), String> {
        // The scan would only be compared with itself.
        if self.classifier.engine() == EngineKind::Linear {
            return Ok(());
        }
        if self
            .call
            .answers(&traffic.keys)
            .iter()
            .any(|answers| *answers != traffic.expected)
        {
            let (engine, structure) = (self.classifier.engine(), self.classifier.structure());
            return Err(format!(
                "engine `{engine}` with structure `{structure}` and the linear scan disagree; please report it"
            ));
        }
        Ok(())
    }

    fn record(&self, row: &str, traffic: &Traffic, mode: Mode, estimate: Estimate) -> Record {
        let classifier = self.classifier;
        let asked = |name: &'static str| self.requested.map(|_| name.to_owned());
        Record {
            suite: "user".into(),
            row: row.into(),
            rules: classifier.stats().rules as u32,
            traffic: traffic.name.into(),
            what: self.what.into(),
            requested: self.requested.map(str::to_owned),
            engine: asked(classifier.engine().name()),
            structure: asked(classifier.structure().name()),
            mode: mode.name().into(),
            ns: estimate.ns,
            ci95: estimate.ci95,
            bytes: bytes(&classifier.stats()),
            build_ms: self.build_ms,
        }
    }
}

/// Times all `ways`: for each traffic, each way has its records in the order of the modes.
fn measure(ways: &[Way<'_>], traffics: &[Traffic], row: &str) -> Vec<Record> {
    let bar = progress_bar(traffics.len() * Mode::ALL.len(), "measurements");
    let mut records = Vec::new();
    for traffic in traffics {
        let estimates = Mode::ALL.map(|mode| {
            let loops = ways
                .iter()
                .map(|way| way.call.timed_loop(mode, &traffic.keys));
            let estimates = in_turns(&mut loops.collect::<Vec<_>>(), EFFORT);
            bar.inc(1);
            estimates
        });
        for (index, way) in ways.iter().enumerate() {
            for (mode, estimates) in Mode::ALL.into_iter().zip(&estimates) {
                records.push(way.record(row, traffic, mode, estimates[index]));
            }
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressBar;

    use super::*;
    use crate::formats::RuleFile;

    #[test]
    fn an_answer_that_is_not_the_scans_is_an_error() {
        let text =
            b"table ip t {\n set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 } }\n}\n";
        let file = RuleFile::parse("rules.nft", text).unwrap();
        let set = file.set(None).unwrap();
        let rules = set.rule_set(set.packed_layout().clone(), None).unwrap();
        let scan = Classifier::builder().engine(EngineKind::Linear);
        let scan = scan.compile(&rules).unwrap();
        let attempts = compile(&[None], &[None], &rules).unwrap();
        let ways: Vec<Way<'_>> = attempts.iter().flat_map(Way::all).collect();
        assert!(!ways.is_empty());

        let [_, mut hits, _] = Traffic::generate(&rules).unwrap();
        hits.scan(&scan, &ProgressBar::hidden());
        assert!(hits.expected.iter().all(Option::is_some));
        for way in &ways {
            assert_eq!(way.check(&hits), Ok(()), "{}", way.what);
        }
        if let Some(last) = hits.expected.last_mut() {
            *last = None;
        }
        for way in &ways {
            let error = way.check(&hits).unwrap_err();
            assert!(error.ends_with("disagree; please report it"), "{error}");
        }
    }
}
