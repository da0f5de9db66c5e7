//! `pktjit demo`: the whole way from rules to figures, on rules that ship inside.
//!
//! The large set is the one that the kernel's own selftest measures as `net,port`: entry i is the range of two addresses
//! and the range of two ports that start at 1 + 2 i. Traffic comes from a fixed seed. Every answer is compared with the
//! linear scan before anything is measured.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::IsTerminal as _;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::styling::{AnsiColor, Style};
use pktjit_ir::plan::{self, Options};
use pktjit_jit::{Target, compile};

use super::{Output, asm};
use crate::formats::{RuleFile, SourceSet};
use crate::{Classifier, Cpu, EngineKind, KeyLayout, KeyRef, RuleSet, builder};

/// Rules that ship inside: compiled, checked, measured and shown as machine code
///
/// Nothing is read and nothing is written. Takes about a second.
#[derive(Args)]
#[command(after_help = "Example: pktjit demo")]
pub(super) struct Demo;

/// Elements of the large set.
const ELEMENTS: u32 = 1001;
/// Keys of one kind of traffic.
const KEYS: usize = 4096;
/// Keys that the linear scan, which is slow, has to do with in a round.
const SCANNED: usize = 64;
/// Keys in a batch: what a network card delivers at once.
const BATCH: usize = 32;
/// Rounds of measurements, in which all take turns.
const ROUNDS: usize = 101;
/// Instructions that are shown.
const INSTRUCTIONS: usize = 32;

impl Demo {
    pub(super) fn run(&self) -> Output {
        let paint = Paint::for_stdout();
        let mut text = String::new();
        writeln!(text, "{}", paint.title("Rules in, answers out"))?;
        small(&mut text)?;

        let file = RuleFile::parse("demo", net_port().as_bytes())?;
        let set = file.set(None)?;
        let rules = set.rule_set(
            KeyLayout::nft_registers(set.fields().iter().cloned())?,
            None,
        )?;
        writeln!(
            text,
            "\n{}",
            paint.title("A thousand elements with ranges in both fields")
        )?;
        large(&mut text, &paint, set, &rules)?;

        let title =
            "What runs: the first instructions of a lookup, with the IR values that they compute";
        writeln!(text, "\n{}", paint.title(title))?;
        disassembly(&mut text, &rules)?;
        writeln!(
            text,
            "\nNext: pktjit classify RULES KEY, and jitdump RULES for all of the code."
        )?;
        Ok(text)
    }
}

/// A map that fits on the screen, and what it says about some packets.
fn small(text: &mut String) -> Result<(), Box<dyn Error>> {
    const RULES: &str = include_str!("demo.nft");
    let packets = [
        "192.0.2.80 . tcp . 443",
        "192.0.2.53 . udp . 53",
        "198.51.100.7 . tcp . 22",
        "198.51.100.7 . udp . 33500",
        "203.0.113.9 . tcp . 8080",
        "8.8.8.8 . tcp . 80",
    ];
    let file = RuleFile::parse("demo.nft", RULES.as_bytes())?;
    let set = file.set(None)?;
    let classifier = Classifier::compile(&set.rule_set(set.packed_layout().clone(), None)?)?;
    let rules = RULES
        .lines()
        .skip_while(|line| !line.contains("elements"))
        .take_while(|line| line.trim() != "}");
    for line in rules {
        writeln!(text, "  {}", line.strip_prefix("        ").unwrap_or(line))?;
    }
    writeln!(text, "  }}")?;
    for packet in packets {
        let key = set.packed_layout().encode(&set.key(packet)?.values);
        let hit = classifier.lookup(classifier.layout().key(&key)?);
        let element = hit.and_then(|hit| set.element(hit.rule));
        writeln!(
            text,
            "  {packet:<28} -> {}",
            element.map_or("miss", |element| element.verdict_text())
        )?;
    }
    Ok(())
}

/// The nft text of the large set.
fn net_port() -> String {
    let elements = (0..ELEMENTS).map(|i| {
        let n = 1 + 2 * i;
        let (low, high) = (Ipv4Addr::from(address(n)), Ipv4Addr::from(address(n + 1)));
        format!("{low}-{high} . {}-{}", port(n), port(n + 1))
    });
    let elements = elements.collect::<Vec<_>>().join(",\n");
    format!(
        "table inet demo {{\n set net_port {{\n  type ipv4_addr . inet_service\n  flags interval\n  elements = {{ {elements} }}\n }}\n}}\n"
    )
}

fn address(n: u32) -> u32 {
    0x0a00_0005 + n
}

fn port(n: u32) -> u16 {
    (n % 65534 + 1) as u16
}

fn large(
    text: &mut String,
    paint: &Paint,
    set: &SourceSet,
    rules: &RuleSet,
) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        black_box(Classifier::builder().audit(false).compile(rules)?);
        times.push(start.elapsed());
    }
    let classifier = Classifier::builder().audit(true).compile(rules)?;
    let stats = classifier.stats();
    let elements = set.elements();
    writeln!(
        text,
        "  elements   {} ... {}",
        elements[0].text(),
        elements[elements.len() - 1].text()
    )?;
    writeln!(text, "  engine     {}", classifier.engine())?;
    writeln!(text, "  structure  {}", classifier.structure())?;
    writeln!(
        text,
        "  compiled   in {:.1} ms",
        milliseconds(median(&mut times))
    )?;
    if classifier.engine() == EngineKind::Avx2 {
        writeln!(
            text,
            "  audited    in {:.1} ms: every access and branch proved from the finished bytes",
            milliseconds(stats.audit_time)
        )?;
    }
    let (code, tables) = (stats.code_bytes, stats.table_bytes);
    writeln!(
        text,
        "  memory     {code} bytes of code, {tables} bytes of tables"
    )?;

    let scan = Classifier::builder()
        .engine(EngineKind::Linear)
        .compile(rules)?;
    let traffics = [false, true].map(|with_misses| Traffic::new(rules, with_misses));
    let checked = traffics
        .iter()
        .map(|traffic| traffic.check(&classifier, &scan))
        .sum::<Result<usize, String>>()?;
    writeln!(
        text,
        "  checked    {} answers, single and in batches, all equal to those of the linear scan",
        paint.good(&checked.to_string())
    )?;

    let [hits, misses] = traffics.map(|traffic| measure(&classifier, &scan, &traffic));
    writeln!(
        text,
        "\n  {:<36} {:>12} {:>12}",
        "ns per lookup", "random hits", "half misses"
    )?;
    for ((name, hits), (_, misses)) in hits.into_iter().zip(misses) {
        writeln!(text, "  {name:<36} {hits:>12.1} {misses:>12.1}")?;
    }
    writeln!(
        text,
        "  Medians of {ROUNDS} rounds in which all take turns over {KEYS} keys (the linear scan over {SCANNED}). The hash\n  \
         map has only the lowest key of each element and is asked for those: it cannot hold ranges."
    )?;
    if classifier.raw().is_none() {
        writeln!(
            text,
            "  No machine code runs here: `pktjit engines` tells why."
        )?;
    }
    if cfg!(debug_assertions) {
        writeln!(
            text,
            "  This is a debug build: all but the machine code is slower than it should be."
        )?;
    }
    Ok(())
}

/// Keys to look up, one after the other, and exact keys for the hash map that stands beside.
struct Traffic {
    keys: Vec<u8>,
    exact: Vec<[u8; 8]>,
}

impl Traffic {
    /// Each key is inside a random element; with misses, every other key has its port from another one.
    fn new(rules: &RuleSet, with_misses: bool) -> Self {
        let mut random = Random(1);
        let encode = |(a, p): (u32, u16)| rules.layout().encode(&[a.into(), p.into()]);
        let (mut keys, mut exact) = (Vec::new(), Vec::new());
        for i in 0..KEYS {
            let element = 1 + 2 * random.below(ELEMENTS);
            let other = if with_misses && i % 2 == 1 {
                1 + 2 * random.below(ELEMENTS)
            } else {
                element
            };
            keys.extend(encode((
                address(element + random.below(2)),
                port(other + random.below(2)),
            )));
            exact.push(exact_key(address(element), port(other)));
        }
        Self { keys, exact }
    }

    /// Compares all answers with those of `scan`, and tells how many there were.
    fn check(&self, classifier: &Classifier, scan: &Classifier) -> Result<usize, String> {
        let mut rows = [vec![0; KEYS], vec![0; KEYS]];
        for (rows, classifier) in rows.iter_mut().zip([classifier, scan]) {
            let stride = classifier.layout().len();
            classifier
                .lookup_batch(&self.keys, stride, rows)
                .map_err(|error| error.to_string())?;
        }
        let [batch, expected] = rows;
        let single = self.refs(classifier).map(|key| classifier.lookup_row(key));
        if batch == expected && single.eq(expected) {
            Ok(2 * KEYS)
        } else {
            Err("the compiled classifier and the linear scan disagree; please report it".into())
        }
    }

    fn refs<'a>(&'a self, classifier: &'a Classifier) -> impl Iterator<Item = KeyRef<'a>> {
        let layout = classifier.layout();
        self.keys
            .chunks(layout.len())
            .filter_map(|key| layout.key(key).ok())
    }
}

/// The key of the hash map.
fn exact_key(address: u32, port: u16) -> [u8; 8] {
    (u64::from(address) << 16 | u64::from(port)).to_be_bytes()
}

/// The nanoseconds that one lookup takes, for each way to do it.
fn measure(
    classifier: &Classifier,
    scan: &Classifier,
    traffic: &Traffic,
) -> Vec<(&'static str, f64)> {
    let stride = classifier.layout().len();
    let refs: Vec<KeyRef<'_>> = traffic.refs(classifier).collect();
    let elements = (0..ELEMENTS).map(|i| (exact_key(address(1 + 2 * i), port(1 + 2 * i)), i));
    let map: HashMap<[u8; 8], u32> = elements.collect();
    let mut ways: Vec<Way<'_>> = Vec::new();
    if let Some(raw) = classifier.raw() {
        ways.push(Way::new("machine code, one key a call", KEYS, move || {
            let keys = traffic.keys.chunks_exact(stride);
            // SAFETY: each key has the length of the layout, and `classifier` lives longer than `raw`.
            keys.map(|key| unsafe { (raw.lookup)(key.as_ptr()) })
                .fold(0, u32::wrapping_add)
        }));
        ways.push(Way::new("machine code, 32 keys a call", KEYS, move || {
            let mut sum = 0u32;
            let mut rows = [0; BATCH];
            for keys in traffic.keys.chunks_exact(BATCH * stride) {
                // SAFETY: there are `BATCH` keys of `stride` bytes each, which is the length of the layout, and as many
                // rows; `classifier` lives longer than `raw`.
                unsafe { (raw.lookup_batch)(keys.as_ptr(), stride, BATCH, rows.as_mut_ptr()) };
                sum = sum.wrapping_add(black_box(rows)[0]);
            }
            sum
        }));
    }
    ways.push(Way::new("Classifier::lookup", KEYS, || {
        let hits = refs.iter().filter_map(|&key| classifier.lookup(key));
        hits.map(|hit| hit.rule.as_u32()).fold(0, u32::wrapping_add)
    }));
    ways.push(Way::new("linear scan", SCANNED, || {
        refs[..SCANNED]
            .iter()
            .map(|&key| scan.lookup_row(key))
            .fold(0, u32::wrapping_add)
    }));
    ways.push(Way::new("std HashMap, exact keys only", KEYS, || {
        traffic
            .exact
            .iter()
            .filter_map(|key| map.get(key))
            .copied()
            .fold(0, u32::wrapping_add)
    }));
    for _ in 0..ROUNDS {
        ways.iter_mut().for_each(Way::round);
    }
    ways.into_iter().map(|way| way.result()).collect()
}

/// One way to look keys up, with what has been measured of it.
struct Way<'a> {
    name: &'static str,
    keys: usize,
    run: Box<dyn Fn() -> u32 + 'a>,
    times: Vec<Duration>,
}

impl<'a> Way<'a> {
    fn new(name: &'static str, keys: usize, run: impl Fn() -> u32 + 'a) -> Self {
        Self {
            name,
            keys,
            run: Box::new(run),
            times: Vec::new(),
        }
    }

    fn round(&mut self) {
        let start = Instant::now();
        black_box((self.run)());
        self.times.push(start.elapsed());
    }

    fn result(mut self) -> (&'static str, f64) {
        (
            self.name,
            median(&mut self.times).as_secs_f64() * 1e9 / self.keys as f64,
        )
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The first lines of the code of `lookup`, for this machine if it can run any.
fn disassembly(text: &mut String, rules: &RuleSet) -> Result<(), Box<dyn Error>> {
    let target = Cpu::host().target().unwrap_or(Target::x86_64_avx2());
    let machine = builder::machine(target.features, target.caches);
    let plan = plan::plan(
        rules,
        &Options {
            machine,
            ..Options::default()
        },
    )?;
    let code = compile(plan.program(), &target)?;
    let functions = asm::functions(&code, plan.program().program());
    let lines = &functions[0].lines;
    for line in lines.iter().take(INSTRUCTIONS) {
        writeln!(text, "{line}")?;
    }
    if lines.len() > INSTRUCTIONS {
        writeln!(
            text,
            "  ... {} more to the return",
            lines.len() - INSTRUCTIONS
        )?;
    }
    Ok(())
}

/// Numbers without pattern, the same in every run: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (((bits >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// Colours, where stdout is a terminal and the environment does not ask for none.
struct Paint {
    is_on: bool,
}

impl Paint {
    fn for_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            is_on: std::io::stdout().is_terminal() && !is_set("NO_COLOR"),
        }
    }

    fn title(&self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    fn good(&self, text: &str) -> String {
        self.paint(AnsiColor::Green.on_default(), text)
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.is_on {
            format!("{style}{text}{style:#}")
        } else {
            text.into()
        }
    }
}
