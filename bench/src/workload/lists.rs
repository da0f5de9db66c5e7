//! Prioritised five-field lists: those of ClassBench, which are read, and those that look like them, which are made; and the
//! traffic that is sent through them.
//!
//! All contenders take the same keys of 16 bytes, `proto . . . source destination sport dport` with numbers big-endian: what
//! DPDK's own programs hand to `rte_acl`, whose first field must be one byte. Which rule a key hits is found by the tuple
//! space search; [`List::check`] has a plain loop over the rules confirm it for some of the keys, and the traces of the given
//! sets, which are another program's work, for all of theirs.

use std::error::Error;
use std::path::{Path, PathBuf};

use pktjit::cli::random::Random;
use pktjit::formats::{Expected, KeyFile, RuleFile};
use pktjit::{Field, KeyLayout, MISS, Match, Overlap, Rule, RuleSet};
use pktjit_fuzz::r#gen::lists::{self, Seed, TOP};

use super::elements::{Elements, Lists};
use super::{Keys, Row};
use crate::peer::{Peer, TupleSpace};

/// Rules that lie over one point of a row of [`Lists::Deep`].
const DEPTH: usize = 170;

/// Rules that the plain loop compares for one traffic: seconds.
const MOST_COMPARISONS: usize = 1 << 31;

/// Which keys are sent through a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Each inside a rule, all rules alike.
    Uniform,
    /// Each inside a rule, a few rules mostly: the n-th rule of a random order in proportion to 1/n.
    Zipf,
    /// Anything.
    Random,
    /// Each field from another rule, which may hit a weak rule or none.
    Hostile,
    /// Inside every rule once before one has its second turn, next to each other those that are far apart in the list of
    /// addresses: so that no line of a table is asked for again while it may still be near.
    Cold,
    /// The trace that belongs to a given set.
    Trace,
}

impl Traffic {
    /// All that lists have, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Uniform,
        Self::Zipf,
        Self::Random,
        Self::Hostile,
        Self::Cold,
        Self::Trace,
    ];

    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Random => "random",
            Self::Hostile => "hostile",
            Self::Cold => "cold",
            Self::Trace => "trace",
        }
    }
}

/// A list.
pub struct List {
    /// The rules, for keys of 16 bytes.
    pub rules: RuleSet,
    /// The same as plain intervals.
    pub intervals: Vec<lists::Rule>,
    tuples: TupleSpace,
    trace: Option<Keys>,
}

/// Where the given sets are, if they are there.
fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/classbench");
    folder.is_dir().then_some(folder)
}

/// A given set.
pub struct Given {
    /// The rules, as plain intervals.
    pub rules: Vec<lists::Rule>,
    /// Keys that come with it, and the rules that they hit.
    pub trace: Keys,
}

/// The given set `name`; none where it is not there.
///
/// # Errors
/// A file that is wrong.
pub fn given(name: &str) -> Result<Option<Given>, Box<dyn Error>> {
    let Some(folder) = folder() else {
        return Ok(None);
    };
    let file = RuleFile::read(folder.join(format!("{name}.rules.gz")))?;
    let set = file.set(None)?;
    let rule = |element: &pktjit::formats::Element| -> lists::Rule {
        let mut fields = element.rule().matches.iter().zip(set.fields());
        TOP.map(|top| match fields.next() {
            Some((condition, field)) => {
                (condition.lower(field) as u32, condition.upper(field) as u32)
            }
            None => (0, top),
        })
    };
    let rules: Vec<lists::Rule> = set.elements().iter().map(rule).collect();
    let mut trace = Keys {
        stride: layout()?.len(),
        ..Keys::default()
    };
    for key in KeyFile::open(folder.join(format!("{name}.trace.gz")), set)? {
        let key = key?;
        let expected = match key.expected {
            Some(Expected::Rule(rule)) => rule.as_u32(),
            _ => MISS,
        };
        trace.push(&layout()?.encode(&key.values), expected);
    }
    Ok(Some(Given { rules, trace }))
}

/// The keys that all contenders take.
fn layout() -> Result<KeyLayout, Box<dyn Error>> {
    Ok(KeyLayout::at([
        (Field::ipv4_addr("saddr"), 4),
        (Field::ipv4_addr("daddr"), 8),
        (Field::inet_service("sport"), 12),
        (Field::inet_service("dport"), 14),
        (Field::inet_proto("proto"), 0),
    ])?)
}

impl List {
    /// The list of `row`; none where it is given but not there.
    ///
    /// # Errors
    /// A file that is wrong, or a row that is no list.
    pub fn new(row: &Row) -> Result<Option<Self>, Box<dyn Error>> {
        let Elements::Lists(kind) = row.elements else {
            return Err(format!("{} is no list", row.name).into());
        };
        let count = row.rules as usize;
        let (intervals, trace) = match kind {
            Lists::Given => match given(row.name)? {
                Some(Given { rules, trace }) => (rules, Some(trace)),
                None => return Ok(None),
            },
            Lists::Like(seed) => (lists::list(&seed(), count), None),
            Lists::Deep => (lists::deep(&Seed::fw1(), count, DEPTH), None),
        };
        let rules = intervals.iter().map(|rule| {
            let [source, destination, sport, dport, (lo, hi)] = *rule;
            let range = |(lo, hi): (u32, u32)| Match::Range {
                lo: lo.into(),
                hi: hi.into(),
            };
            Rule::new([
                range(source),
                range(destination),
                range(sport),
                range(dport),
                range((lo, hi)),
            ])
        });
        let builder = RuleSet::builder(layout()?).overlap(Overlap::First);
        Ok(Some(Self {
            rules: builder.rules(rules).build()?,
            tuples: TupleSpace::new(&intervals),
            intervals,
            trace,
        }))
    }

    /// `count` keys, always the same ones; of cold ones as many as there are rules, if that is more; of a trace all. None
    /// where there is no trace.
    pub fn send(&mut self, traffic: Traffic, count: usize) -> Option<Keys> {
        if traffic == Traffic::Trace {
            return self.trace.clone();
        }
        let random = &mut Random(self.intervals.len() as u64);
        let rules = &self.intervals;
        let any = |random: &mut Random| &rules[random.below(rules.len() as u64) as usize];
        let within =
            |rule: &lists::Rule, random: &mut Random| rule.map(|range| value(range, random));
        let keys: Vec<[u32; 5]> = match traffic {
            Traffic::Zipf => {
                let zipf = Zipf::new(rules.len());
                let order = strides(rules.len());
                let draw = |_| within(&rules[order(zipf.draw(random))], random);
                (0..count).map(draw).collect()
            }
            Traffic::Random => {
                let draw = |_| TOP.map(|top| value((0, top), random));
                (0..count).map(draw).collect()
            }
            Traffic::Hostile => {
                let draw = |_| std::array::from_fn(|field| value(any(random)[field], random));
                (0..count).map(draw).collect()
            }
            Traffic::Cold => {
                let mut sorted: Vec<&lists::Rule> = rules.iter().collect();
                sorted.sort_unstable();
                let order = strides(rules.len());
                let draw = |i| within(sorted[order(i % rules.len())], random);
                (0..count.max(rules.len())).map(draw).collect()
            }
            Traffic::Uniform | Traffic::Trace => {
                let draw = |_| within(any(random), random);
                (0..count).map(draw).collect()
            }
        };
        let mut sent = Keys {
            stride: self.rules.layout().len(),
            ..Keys::default()
        };
        for key in keys {
            let bytes = self.rules.layout().encode(&key.map(u128::from));
            let expected = self.tuples.lookup(&bytes);
            sent.push(&bytes, expected);
        }
        Some(sent)
    }

    /// Has a plain loop over the rules confirm some of the answers, of a small list all, and returns of how many keys.
    ///
    /// # Errors
    /// Which key hits another rule.
    pub fn check(&self, keys: &Keys) -> Result<usize, String> {
        let step = (keys.len() * self.intervals.len()).div_ceil(MOST_COMPARISONS);
        let all = keys.first(keys.len()).zip(&keys.expected).enumerate();
        let mut checked = 0;
        for (i, (key, &expected)) in all.step_by(step.max(1)) {
            let number = |at: usize, len: usize| {
                key[at..at + len]
                    .iter()
                    .fold(0, |sum, &byte| sum << 8 | u32::from(byte))
            };
            let values = [
                number(4, 4),
                number(8, 4),
                number(12, 2),
                number(14, 2),
                number(0, 1),
            ];
            let matches = |rule: &lists::Rule| {
                let mut fields = rule.iter().zip(values);
                fields.all(|(&(lo, hi), value)| lo <= value && value <= hi)
            };
            let row = self.intervals.iter().position(matches);
            let row = row.map_or(MISS, |row| row as u32);
            if row != expected {
                return Err(format!(
                    "key {i} shall hit {expected}, a plain loop finds {row}"
                ));
            }
            checked += 1;
        }
        Ok(checked)
    }
}

/// A value of the interval.
fn value((lo, hi): (u32, u32), random: &mut Random) -> u32 {
    lo + random.below(u64::from(hi - lo) + 1) as u32
}

/// An order of all numbers below `len` in which neighbours are far apart: steps of about 0.618 of the length.
fn strides(len: usize) -> impl Fn(usize) -> usize {
    fn greatest_common_divisor(a: usize, b: usize) -> usize {
        if b == 0 {
            a
        } else {
            greatest_common_divisor(b, a % b)
        }
    }
    let golden = (len as f64 * 0.618) as usize;
    let step = (golden.max(1)..).find(|&step| greatest_common_divisor(step, len) == 1);
    let step = step.unwrap_or(1);
    move |i| i * step % len
}

/// Numbers, the n-th one in proportion to 1/n.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(len: usize) -> Self {
        let mut sum = 0.0;
        let sums = (1..=len).map(|n| {
            sum += 1.0 / n as f64;
            sum
        });
        Self(sums.collect())
    }

    fn draw(&self, random: &mut Random) -> usize {
        let all = self.0.last().copied().unwrap_or_default();
        let number = all * random.below(1 << 32) as f64 / 2f64.powi(32);
        self.0
            .partition_point(|&sum| sum <= number)
            .min(self.0.len() - 1)
    }
}
