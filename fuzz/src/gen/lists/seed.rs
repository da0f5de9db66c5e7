//! What a list looks like, in numbers: what lists are made of, and what they must show when they are made.
//!
//! The files beside this one were written by `pktjit-bench classbench --learn acl1_100k` and its like. Format: a line each,
//! the kind of thing first and its number last, in rules unless said otherwise:
//!
//! ```text
//! rules 99378                       how many rules it was learned from
//! shape 32 31 any exact 6 8401      prefix lengths, classes of ports, protocol (`any` or a number)
//! source 1024 65534 12              ports of class `exact` or `range`
//! destination 80 80 391
//! source-level 5 1000 495 21        the tree at level 5: branching, skew and nesting, in thousandths
//! source-nesting 2 977              prefixes that have two others around them, in thousandths
//! overlap 50 14                     keys in rules: at the 50th percentile 14 rules match
//! ```

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;

use pktjit::cli::random::Random;

use super::trie::{LEVELS, Level, Trie};
use super::{Interval, Rule, TOP, prefix, prefix_len, shuffle};

/// The names of the two sides of a rule in files.
const SIDES: [&str; 2] = ["source", "destination"];

/// Shapes that are rarer than one rule in so many are left out of files, but for wide ones: few as they are, they match most
/// keys.
const RARE: u32 = 20_000;

/// Bits of both prefixes together that make a shape a wide one.
const WIDE: u8 = 16;

/// How often the ports of a rule are drawn that is there already.
const TRIES: usize = 8;

/// Keys that are asked for how many rules match them.
const OVERLAP_KEYS: usize = 400;

/// Percentiles of the number of rules that match a key.
const PERCENTILES: [usize; 4] = [10, 50, 90, 100];

/// A class of port ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Class {
    Any,
    High,
    Low,
    Exact,
    Range,
}

impl Class {
    const ALL: [(&'static str, Self); 5] = [
        ("any", Self::Any),
        ("high", Self::High),
        ("low", Self::Low),
        ("exact", Self::Exact),
        ("range", Self::Range),
    ];

    fn of(ports: Interval) -> Self {
        match ports {
            (0, 0xffff) => Self::Any,
            (1024, 0xffff) => Self::High,
            (0, 1023) => Self::Low,
            (lo, hi) if lo == hi => Self::Exact,
            _ => Self::Range,
        }
    }

    fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// What a rule looks like without its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Shape {
    lens: [u8; 2],
    classes: [Class; 2],
    protocol: Option<u32>,
}

impl Shape {
    fn of(rule: &Rule) -> Self {
        let [source, destination, sport, dport, (lo, hi)] = *rule;
        Self {
            lens: [source, destination].map(prefix_len),
            classes: [sport, dport].map(Class::of),
            protocol: (lo == hi).then_some(lo),
        }
    }
}

/// Things and how often each is there.
type Histogram<T> = BTreeMap<T, u32>;

/// What a list looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct Seed {
    rules: u32,
    shapes: Histogram<Shape>,
    /// The ports of each side that are of class `Exact` or `Range`.
    ports: [Histogram<Interval>; 2],
    tries: [Trie; 2],
    /// For each side, by the number of other prefixes around one, in thousandths of the different prefixes.
    nesting: [Histogram<usize>; 2],
    /// How many rules match a key, by percentile.
    overlap: Histogram<usize>,
}

/// How far a list is from what it was made to look like.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// What was compared.
    pub what: &'static str,
    /// The total variation of two distributions (the part of the rules that would have to change), a mean difference of
    /// probabilities, or for `overlap` the largest relative difference of percentiles.
    pub distance: f64,
    /// How large it may be.
    pub limit: f64,
}

impl Seed {
    /// The seed that was learned from acl1_100k: access control.
    #[must_use]
    pub fn acl1() -> Self {
        Self::included(include_str!("acl1.seed"))
    }

    /// The seed that was learned from fw1_100k: a firewall.
    #[must_use]
    pub fn fw1() -> Self {
        Self::included(include_str!("fw1.seed"))
    }

    /// The seed that was learned from ipc1_100k: IP chains.
    #[must_use]
    pub fn ipc1() -> Self {
        Self::included(include_str!("ipc1.seed"))
    }

    fn included(text: &str) -> Self {
        text.parse().expect("the files beside this one are seeds")
    }

    /// What `rules` look like, of which those that are there already do not count.
    ///
    /// # Panics
    /// Where there are none.
    #[must_use]
    pub fn learn(rules: &[Rule]) -> Self {
        assert!(!rules.is_empty(), "nothing looks like nothing");
        let mut seen = HashSet::new();
        let rules: Vec<Rule> = rules
            .iter()
            .filter(|rule| seen.insert(**rule))
            .copied()
            .collect();
        let mut shapes = Histogram::new();
        let mut ports = [Histogram::new(), Histogram::new()];
        for rule in &rules {
            let shape = Shape::of(rule);
            *shapes.entry(shape).or_default() += 1;
            for side in 0..2 {
                if matches!(shape.classes[side], Class::Exact | Class::Range) {
                    *ports[side].entry(rule[2 + side]).or_default() += 1;
                }
            }
        }
        let side = |side: usize| rules.iter().map(move |rule: &Rule| rule[side]);
        Self {
            rules: rules.len() as u32,
            shapes,
            ports,
            tries: [0, 1].map(|field| Trie::learn(side(field))),
            nesting: [0, 1].map(|field| nesting(side(field).collect())),
            overlap: overlap(&rules),
        }
    }

    /// At most `count` different rules, in no order.
    pub(super) fn draw(&self, count: usize, random: &mut Random) -> Vec<Rule> {
        let shapes = Drawer::new(&self.shapes);
        let mut rules = Vec::with_capacity(count);
        let ports = [0, 1].map(|side| {
            let of = |exact: bool| {
                let ports = self.ports[side].iter();
                let ports = ports.filter(|((lo, hi), _)| (lo == hi) == exact);
                Drawer::new(&ports.map(|(&ports, &n)| (ports, n)).collect())
            };
            [of(true), of(false)]
        });
        let drawn = shapes.draw_evenly(count, random);
        let scale = count as f64 / f64::from(self.rules);
        let [sources, destinations] = [0, 1].map(|side| {
            let lens: Vec<u8> = drawn.iter().map(|shape| shape.lens[side]).collect();
            self.tries[side].scaled(scale).place(&lens, random)
        });
        let mut seen = HashSet::with_capacity(count);
        for (shape, (source, destination)) in
            drawn.iter().zip(sources.into_iter().zip(destinations))
        {
            let mut rule = || {
                let [sport, dport] = [0, 1].map(|side| match shape.classes[side] {
                    Class::Any => (0, TOP[2]),
                    Class::High => (1024, TOP[2]),
                    Class::Low => (0, 1023),
                    Class::Exact => ports[side][0].draw(random),
                    Class::Range => ports[side][1].draw(random),
                });
                [
                    prefix(source, shape.lens[0]),
                    prefix(destination, shape.lens[1]),
                    sport,
                    dport,
                    shape
                        .protocol
                        .map_or((0, TOP[4]), |protocol| (protocol, protocol)),
                ]
            };
            // Of wide rules there are not many different ones: other ports, and they are found.
            if let Some(rule) = (0..TRIES).map(|_| rule()).find(|rule| !seen.contains(rule)) {
                seen.insert(rule);
                rules.push(rule);
            }
        }
        rules
    }

    /// How far a list that looks like `other` is from one that looks like this.
    #[must_use]
    pub fn distances(&self, other: &Self) -> Vec<Distance> {
        let variation = |what, limit, of: &dyn Fn(&Self) -> BTreeMap<String, f64>| Distance {
            what,
            distance: variation(&of(self), &of(other)),
            limit,
        };
        let levels = |level: fn(&Level) -> f64| {
            let of = |seed: &Self| -> Vec<f64> {
                let levels = seed.tries.iter().flat_map(|trie| &trie.0);
                levels.map(level).collect()
            };
            let (here, there) = (of(self), of(other));
            let differences = here.iter().zip(&there).map(|(a, b)| (a - b).abs());
            differences.sum::<f64>() / here.len() as f64
        };
        let percentiles = self.overlap.iter().filter_map(|(percentile, &here)| {
            let there = *other.overlap.get(percentile)?;
            Some(f64::from(here.max(there)) / f64::from(here.min(there)) - 1.0)
        });
        vec![
            variation("prefix lengths", 0.05, &|seed| {
                seed.share(|shape| format!("{:?}", shape.lens))
            }),
            variation("port classes", 0.05, &|seed| {
                seed.share(|shape| format!("{:?}", shape.classes))
            }),
            variation("protocols", 0.03, &|seed| {
                seed.share(|shape| format!("{:?}", shape.protocol))
            }),
            variation("ports", 0.03, &|seed| {
                let sides = seed.ports.iter().zip(SIDES);
                shares(sides.flat_map(|(ports, side)| {
                    ports
                        .iter()
                        .map(move |(ports, &n)| (format!("{side} {ports:?}"), n))
                }))
            }),
            Distance {
                what: "branching",
                distance: levels(|level| level.branching),
                limit: 0.3,
            },
            Distance {
                what: "skew",
                distance: levels(|level| level.skew),
                limit: 0.2,
            },
            variation("nesting", 0.15, &|seed| {
                let sides = seed.nesting.iter().zip(SIDES);
                shares(sides.flat_map(|(nesting, side)| {
                    nesting
                        .iter()
                        .map(move |(depth, &n)| (format!("{side} {depth}"), n))
                }))
            }),
            Distance {
                what: "overlap",
                distance: percentiles.fold(0.0, f64::max),
                limit: 1.0,
            },
        ]
    }

    fn share(&self, of: impl Fn(&Shape) -> String) -> BTreeMap<String, f64> {
        shares(self.shapes.iter().map(|(shape, &n)| (of(shape), n)))
    }
}

/// The part that each thing has of all.
fn shares(counts: impl Iterator<Item = (String, u32)>) -> BTreeMap<String, f64> {
    let (mut all, mut sum) = (BTreeMap::new(), 0.0);
    for (thing, n) in counts {
        *all.entry(thing).or_default() += f64::from(n);
        sum += f64::from(n);
    }
    all.values_mut().for_each(|share| *share /= sum);
    all
}

/// The part that must change for one distribution to become the other.
fn variation(a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>) -> f64 {
    let of = |all: &BTreeMap<String, f64>, thing: &String| all.get(thing).copied().unwrap_or(0.0);
    let things: HashSet<&String> = a.keys().chain(b.keys()).collect();
    let differences = things
        .iter()
        .map(|thing| (of(a, thing) - of(b, thing)).abs());
    differences.sum::<f64>() / 2.0
}

/// In thousandths of the different prefixes, how many have so many others around them.
fn nesting(mut prefixes: Vec<Interval>) -> Histogram<usize> {
    // Wide ones before those that they hold.
    prefixes.sort_unstable_by_key(|&(lo, hi)| (lo, u32::MAX - hi));
    prefixes.dedup();
    let (mut around, mut depths): (Vec<Interval>, Histogram<usize>) = Default::default();
    for &(lo, hi) in &prefixes {
        while around.pop_if(|outer| outer.1 < lo).is_some() {}
        *depths.entry(around.len()).or_default() += 1;
        around.push((lo, hi));
    }
    let thousandths = |n: u32| (u64::from(n) * 1000).div_ceil(prefixes.len() as u64) as u32;
    depths.values_mut().for_each(|n| *n = thousandths(*n));
    depths
}

/// How many rules match a key inside a rule, by percentile.
fn overlap(rules: &[Rule]) -> Histogram<usize> {
    let mut random = Random(1);
    let mut depths: Vec<u32> = (0..OVERLAP_KEYS)
        .map(|_| {
            let rule = &rules[random.below(rules.len() as u64) as usize];
            let key = rule.map(|(lo, hi)| lo + random.below(u64::from(hi - lo) + 1) as u32);
            let matches = |rule: &&Rule| {
                let mut fields = rule.iter().zip(&key);
                fields.all(|((lo, hi), value)| lo <= value && value <= hi)
            };
            rules.iter().filter(matches).count() as u32
        })
        .collect();
    depths.sort_unstable();
    let at = |percentile| depths[percentile * (OVERLAP_KEYS - 1) / 100];
    PERCENTILES
        .map(|percentile| (percentile, at(percentile)))
        .into()
}

/// Draws things by their weights.
struct Drawer<T> {
    things: Vec<T>,
    /// The sum of the weights up to and with each thing.
    sums: Vec<u64>,
}

impl<T: Copy> Drawer<T> {
    fn new(weights: &Histogram<T>) -> Self {
        let mut sum = 0;
        let sums = weights.values().map(|&n| {
            sum += u64::from(n);
            sum
        });
        Self {
            sums: sums.collect(),
            things: weights.keys().copied().collect(),
        }
    }

    fn draw(&self, random: &mut Random) -> T {
        self.at(random.below(self.sum()))
    }

    /// So many things, in no order, of each as many as is its due: what is rare is not left to chance.
    fn draw_evenly(&self, count: usize, random: &mut Random) -> Vec<T> {
        let sum = self.sum();
        let numbers = (0..count as u64).map(|i| (i * sum + random.below(sum)) / count as u64);
        let mut drawn: Vec<T> = numbers.map(|number| self.at(number)).collect();
        shuffle(&mut drawn, random);
        drawn
    }

    fn sum(&self) -> u64 {
        self.sums.last().copied().unwrap_or(0)
    }

    fn at(&self, number: u64) -> T {
        self.things[self.sums.partition_point(|&sum| sum <= number)]
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rules {}", self.rules)?;
        for (shape, n) in &self.shapes {
            if n * RARE < self.rules && shape.lens[0] + shape.lens[1] > WIDE {
                continue;
            }
            let Shape {
                lens,
                classes,
                protocol,
            } = shape;
            let [sport, dport] = classes.map(Class::name);
            let protocol = protocol.map_or("any".into(), |protocol| protocol.to_string());
            writeln!(
                f,
                "shape {} {} {sport} {dport} {protocol} {n}",
                lens[0], lens[1]
            )?;
        }
        for (side, name) in SIDES.into_iter().enumerate() {
            for ((lo, hi), n) in &self.ports[side] {
                writeln!(f, "{name} {lo} {hi} {n}")?;
            }
            for (number, level) in self.tries[side].0.iter().enumerate() {
                let parts = [level.branching, level.skew, level.nesting];
                let [branching, skew, nesting] = parts.map(|part| (part * 1e3).round());
                writeln!(f, "{name}-level {number} {branching} {skew} {nesting}")?;
            }
            for (depth, n) in &self.nesting[side] {
                writeln!(f, "{name}-nesting {depth} {n}")?;
            }
        }
        for (percentile, depth) in &self.overlap {
            writeln!(f, "overlap {percentile} {depth}")?;
        }
        Ok(())
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut seed = Self {
            rules: 0,
            shapes: Histogram::new(),
            ports: Default::default(),
            tries: [(); 2].map(|()| Trie([Level::default(); LEVELS])),
            nesting: Default::default(),
            overlap: Histogram::new(),
        };
        for line in text.lines() {
            seed.read(line)
                .ok_or_else(|| format!("no part of a seed: {line}"))?;
        }
        Ok(seed)
    }
}

impl Seed {
    /// Takes over what a line of a file says.
    fn read(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u32>().ok();
        let part = |word: &str| Some(f64::from(number(word)?) / 1e3);
        let kind = words[0];
        let side = SIDES.iter().position(|side| kind.starts_with(side));
        match (
            kind.split_once('-').map(|(_, kind)| kind),
            side,
            &words[1..],
        ) {
            (None, None, [rules]) if kind == "rules" => self.rules = number(rules)?,
            (None, None, [source, destination, sport, dport, protocol, n]) if kind == "shape" => {
                let class = |word: &str| {
                    let mut all = Class::ALL.into_iter();
                    Some(all.find(|(name, _)| *name == word)?.1)
                };
                let shape = Shape {
                    lens: [source.parse().ok()?, destination.parse().ok()?],
                    classes: [class(sport)?, class(dport)?],
                    protocol: match *protocol {
                        "any" => None,
                        number => Some(number.parse().ok()?),
                    },
                };
                self.shapes.insert(shape, number(n)?);
            }
            (None, None, [percentile, depth]) if kind == "overlap" => {
                self.overlap
                    .insert(percentile.parse().ok()?, number(depth)?);
            }
            (None, Some(side), [lo, hi, n]) => {
                self.ports[side].insert((number(lo)?, number(hi)?), number(n)?);
            }
            (Some("level"), Some(side), [level, branching, skew, nesting]) => {
                let level = self.tries[side].0.get_mut(number(level)? as usize)?;
                *level = Level {
                    branching: part(branching)?,
                    skew: part(skew)?,
                    nesting: part(nesting)?,
                };
            }
            (Some("nesting"), Some(side), [depth, n]) => {
                self.nesting[side].insert(depth.parse().ok()?, number(n)?);
            }
            _ => return None,
        }
        Some(())
    }
}
