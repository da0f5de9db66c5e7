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

use super::call::Call;
use super::measure::{Effort, Mode, in_turns, single};
use super::random::Random;
use super::{Output, asm};
use crate::formats::{RuleFile, SourceSet};
use crate::{Classifier, Cpu, EngineKind, KeyLayout, MISS, RuleSet, builder};

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
/// Each way to look up takes a tenth of a second.
const EFFORT: Effort = Effort {
    rounds: 101,
    sample_ns: 1e6,
};
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
    if classifier.raw().is_some() {
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
        "  Medians of {} rounds in which all take turns over {KEYS} keys. The hash map has only the lowest key of each\n  \
         element and is asked for those: it cannot hold ranges.",
        EFFORT.rounds
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
        let mut below = |bound: u32| random.below(bound.into()) as u32;
        let encode = |(a, p): (u32, u16)| rules.layout().encode(&[a.into(), p.into()]);
        let (mut keys, mut exact) = (Vec::new(), Vec::new());
        for i in 0..KEYS {
            let element = 1 + 2 * below(ELEMENTS);
            let other = if with_misses && i % 2 == 1 {
                1 + 2 * below(ELEMENTS)
            } else {
                element
            };
            keys.extend(encode((
                address(element + below(2)),
                port(other + below(2)),
            )));
            exact.push(exact_key(address(element), port(other)));
        }
        Self { keys, exact }
    }

    /// Compares all answers with those of `scan`, and tells how many there were.
    fn check(&self, classifier: &Classifier, scan: &Classifier) -> Result<usize, String> {
        let [found, expected] = [classifier, scan].map(|one| Call::safe(one).answers(&self.keys));
        if found == expected {
            Ok(found.iter().map(Vec::len).sum())
        } else {
            Err("the compiled classifier and the linear scan disagree; please report it".into())
        }
    }
}

/// The key of the hash map.
fn exact_key(address: u32, port: u16) -> [u8; 8] {
    (u64::from(address) << 16 | u64::from(port)).to_be_bytes()
}

/// The nanoseconds that one lookup takes, for each way to do it.
fn measure<'a>(
    classifier: &'a Classifier,
    scan: &'a Classifier,
    traffic: &'a Traffic,
) -> Vec<(&'static str, f64)> {
    let elements = (0..ELEMENTS).map(|i| (exact_key(address(1 + 2 * i), port(1 + 2 * i)), i));
    let map: HashMap<[u8; 8], u32> = elements.collect();
    let way = |name, call: Call<'a>, mode| (name, call.timed_loop(mode, &traffic.keys));
    let mut ways = Vec::new();
    if let Some(raw) = Call::raw(classifier) {
        ways.push(way("machine code, one key a call", raw, Mode::Single));
        ways.push(way("machine code, 32 keys a call", raw, Mode::Batch));
    }
    ways.push(way(
        "Classifier::lookup",
        Call::safe(classifier),
        Mode::Single,
    ));
    ways.push(way("linear scan", Call::safe(scan), Mode::Single));
    let exact = single(traffic.exact.as_flattened(), 8, |key| {
        map.get(key).copied().unwrap_or(MISS)
    });
    ways.push(("std HashMap, exact keys only", exact));
    let (names, mut loops): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
    let times = in_turns(&mut loops, EFFORT).into_iter();
    names.into_iter().zip(times.map(|time| time.ns)).collect()
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
    let machine = builder::machine(target.features, target.caches, target.lanes());
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
