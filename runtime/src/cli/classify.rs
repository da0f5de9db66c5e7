//! `pktjit classify`: which rule wins for each key.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::{Compiler, Format, Json, Output, Rules, progress_bar};
use crate::formats::{Expected, KeyFile, SourceSet, TextKey};
use crate::{BatchError, Classifier};

/// Which rule wins for each key
///
/// Prints a line for each key, in order: the key, a tab and `miss`, or the key, a tab, `rule N`, a tab and the verdict. N is
/// the position of the element in the set, counted from 0.
#[derive(Args)]
#[command(after_help = "Example: pktjit classify rules.nft --set services '192.0.2.1 . 80'")]
pub(super) struct Classify {
    #[command(flatten)]
    rules: Rules,

    /// Keys as the set's elements are written; for ClassBench 'sip dip sport dport proto'
    #[arg(value_name = "KEY", required_unless_present = "file")]
    keys: Vec<String>,

    /// A file with a key on each line, may be compressed with gzip; lines that start with # are comments
    #[arg(
        long = "keys",
        id = "file",
        value_name = "FILE",
        conflicts_with = "keys"
    )]
    file: Option<PathBuf>,

    /// Compare with the rule that follows each key of a ClassBench trace
    #[arg(long, conflicts_with = "keys")]
    check: bool,

    #[command(flatten)]
    compiler: Compiler,

    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,

    /// Print counts and times in place of the lines
    #[arg(long)]
    summary: bool,
}

impl Classify {
    pub(super) fn run(&self) -> Output {
        let builder = self.compiler.builder()?;
        let file = self.rules.read()?;
        let set = self.rules.set(&file)?;
        let rules = self.rules.rule_set(set)?;
        let keys = self.keys(set)?;
        let classifier = builder.compile(&rules)?;
        let layout = classifier.layout();
        let bytes: Vec<u8> = keys
            .iter()
            .flat_map(|key| layout.encode(&key.values))
            .collect();
        let (rows, ns) = look_up(&classifier, &bytes, keys.len())?;
        if self.check {
            check(&classifier, &keys, &rows)?;
        }
        Ok(if self.summary {
            Summary::new(&classifier, &rows, ns).print(self.format)
        } else {
            self.lines(&classifier, set, &keys, &rows)
        })
    }

    fn keys(&self, set: &SourceSet) -> Result<Vec<TextKey>, Box<dyn Error>> {
        let Some(path) = &self.file else {
            let keys = self.keys.iter().zip(1..).map(|(text, number)| {
                // Places in an argument read like those in a file whose lines are the arguments.
                set.key(text).map_err(|error| {
                    format!("key:{number}:{}: {}", error.column(), error.message()).into()
                })
            });
            return keys.collect();
        };
        let mut file = KeyFile::open(path, set)?;
        let mut keys = Vec::new();
        while let Some(key) = file.next() {
            let key = key?;
            if self.check && key.expected.is_none() {
                let (path, line, text) = (path.display(), file.line(), key.text);
                return Err(
                    format!("{path}:{line}:1: no expected rule follows the key `{text}`").into(),
                );
            }
            keys.push(key);
        }
        Ok(keys)
    }

    fn lines(
        &self,
        classifier: &Classifier,
        set: &SourceSet,
        keys: &[TextKey],
        rows: &[u32],
    ) -> String {
        let mut lines = String::new();
        for (TextKey { text: key, .. }, &row) in keys.iter().zip(rows) {
            let rule = classifier.hit(row).map(|hit| hit.rule);
            let verdict = rule
                .and_then(|rule| set.element(rule))
                .map(|element| element.verdict_text());
            let rule = rule.map(|rule| rule.as_u32());
            // Writing to a string cannot fail.
            let _ = match (self.format, rule) {
                (Format::Json, rule) => writeln!(lines, "{}", Json(Line { key, rule, verdict })),
                (Format::Text, None) => writeln!(lines, "{key}\tmiss"),
                (Format::Text, Some(rule)) => {
                    writeln!(lines, "{key}\trule {rule}\t{}", verdict.unwrap_or("match"))
                }
            };
        }
        lines
    }
}

#[derive(Serialize)]
struct Line<'a> {
    key: &'a str,
    rule: Option<u32>,
    verdict: Option<&'a str>,
}

/// The winners' rows of `n` keys, and the nanoseconds that one lookup took in the median of several passes.
fn look_up(
    classifier: &Classifier,
    keys: &[u8],
    n: usize,
) -> Result<(Vec<u32>, f64), Box<dyn Error>> {
    /// Time for passes after the first one: enough to be neither cold nor disturbed in most of them.
    const ENOUGH: Duration = Duration::from_millis(20);
    let mut rows = vec![0; n];
    let mut passes = vec![pass(classifier, keys, &mut rows)?];
    while passes.iter().sum::<Duration>() < ENOUGH && passes.len() < 1000 {
        passes.push(pass(classifier, keys, &mut rows)?);
    }
    passes.sort_unstable();
    let median = passes[passes.len() / 2];
    Ok((rows, median.as_secs_f64() * 1e9 / n.max(1) as f64))
}

/// Looks all keys up once.
fn pass(classifier: &Classifier, keys: &[u8], rows: &mut [u32]) -> Result<Duration, BatchError> {
    /// Few enough keys to show progress with a slow engine, enough to forget the clock.
    const BATCH: usize = 1024;
    let (n, stride) = (rows.len(), classifier.layout().len());
    let mut time = Duration::ZERO;
    let mut bar = None;
    for (batch, out) in rows.chunks_mut(BATCH).enumerate() {
        let start = Instant::now();
        classifier.lookup_batch(&keys[batch * BATCH * stride..], stride, out)?;
        time += start.elapsed();
        if time > Duration::from_secs(1) {
            bar.get_or_insert_with(|| progress_bar(n, "keys"))
                .set_position((batch * BATCH) as u64);
        }
    }
    Ok(time)
}

/// Whether every key has hit the rule that it was expected to hit.
fn check(classifier: &Classifier, keys: &[TextKey], rows: &[u32]) -> Result<(), Box<dyn Error>> {
    const SHOWN: usize = 5;
    let mut differences = 0;
    let mut shown = String::new();
    for (key, &row) in keys.iter().zip(rows) {
        let found = classifier
            .hit(row)
            .map_or(Expected::Miss, |hit| Expected::Rule(hit.rule));
        let Some(expected) = key.expected.filter(|&expected| expected != found) else {
            continue;
        };
        differences += 1;
        if differences <= SHOWN {
            let name = |rule| match rule {
                Expected::Miss => "a miss".to_owned(),
                Expected::Rule(rule) => format!("rule {}", rule.as_u32()),
            };
            let _ = write!(
                shown,
                "\n  {}: {}, expected {}",
                key.text,
                name(found),
                name(expected)
            );
        }
    }
    if differences > SHOWN {
        shown.push_str("\n  ...");
    }
    match differences {
        0 => Ok(()),
        _ => Err(format!(
            "{differences} of {} keys hit another rule than expected{shown}",
            keys.len()
        )
        .into()),
    }
}

#[derive(Serialize)]
struct Summary {
    keys: usize,
    hits: usize,
    misses: usize,
    engine: &'static str,
    structure: &'static str,
    ns_per_lookup: f64,
}

impl Summary {
    fn new(classifier: &Classifier, rows: &[u32], ns: f64) -> Self {
        let hits = rows
            .iter()
            .filter(|&&row| classifier.hit(row).is_some())
            .count();
        Self {
            keys: rows.len(),
            hits,
            misses: rows.len() - hits,
            engine: classifier.engine().name(),
            structure: classifier.structure().name(),
            ns_per_lookup: (ns * 100.0).round() / 100.0,
        }
    }

    fn print(&self, format: Format) -> String {
        if format == Format::Json {
            return format!("{}\n", Json(self));
        }
        let Self {
            keys,
            hits,
            misses,
            engine,
            structure,
            ns_per_lookup,
        } = self;
        format!(
            "keys       {keys}\nhits       {hits}\nmisses     {misses}\nengine     {engine}\nstructure  {structure}\n\
             ns/lookup  {ns_per_lookup:.2}\n"
        )
    }
}
