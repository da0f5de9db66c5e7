//! How the elements of a row are made: counted up as the kernel's, or drawn, always the same ones.

use std::collections::HashSet;
use std::error::Error;
use std::hash::Hash;

use pktjit::cli::random::Random;
use pktjit::formats::RuleFile;
use pktjit::{Field, KeyLayout, Match, Overlap, Rule, RuleSet};
use pktjit_fuzz::r#gen::classbench;
use pktjit_fuzz::r#gen::lists::Seed;

use super::Interval;
use super::rows::Row;

/// A port of the kernel's elements wraps around after so many numbers.
const PORTS: u32 = 65_534;

/// Most values of a range of addresses that [`Elements::Mixed`] draws, as a power of two; of ports there may be as many as
/// there are.
const RANGE_BITS: u64 = 16;

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Net,
    Net6,
    Port,
    Proto,
    Mac,
}

/// How elements are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Elements {
    /// As the kernel's selftest does: every field of an element is the closed range `f(n) ..= f(n + 1)`, where `f` makes an
    /// address, a port or a MAC of a number ([`Kind::counted`]). The first element has this `n`, the next ones an `n` that
    /// is larger by two, so that they touch and never overlap. There is one more than the row says.
    Counted(u32),
    /// Disjoint ranges of one field that cover half of its values, with ends anywhere.
    Ranges,
    /// Disjoint prefixes of one field.
    Prefixes,
    /// Values anywhere.
    Exact,
    /// Each field a value, a prefix or a range, by turns of a die, as users write them. Elements may overlap.
    Mixed,
    /// A prioritised list.
    List(classbench::Kind),
    /// A prioritised list of the suite `classbench`, which [`lists`](super::lists) reads or makes.
    Lists(Lists),
}

/// Where the rules of a list come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lists {
    /// ClassBench itself: the given set that has the name of the row.
    Given,
    /// Made to look like a given set.
    Like(fn() -> Seed),
    /// Made like a firewall's, with many rules over a few points.
    Deep,
}

/// The rules of a row, for keys as nft lays them out, and values of the first field from which keys that miss are drawn.
pub(super) fn rules(row: &Row) -> Result<(RuleSet, Interval), Box<dyn Error>> {
    let count = row.rules as usize;
    let random = &mut Random(u64::from(row.rules));
    let (elements, spare) = match row.elements {
        Elements::Counted(first) => {
            let (elements, beyond) = counted(row.fields, first, count + 1);
            (elements, Some(beyond))
        }
        Elements::Ranges => (ranges(row.fields[0], count, random), None),
        Elements::Prefixes => (prefixes(row.fields[0], count, random), None),
        Elements::Exact => {
            let element = || matches(row.fields, |kind| Match::Exact(kind.any(random)));
            (distinct(count, element), None)
        }
        Elements::Mixed => {
            let element = || matches(row.fields, |kind| kind.condition(random));
            (distinct(count, element), None)
        }
        Elements::List(kind) => return list(kind, row.rules),
        Elements::Lists(_) => {
            return Err(format!("{} is a row of `classbench` alone", row.name).into());
        }
    };
    let fields = row.fields.iter().map(|kind| kind.field());
    let layout = KeyLayout::nft_registers(fields)?;
    let spare = spare.unwrap_or((0, layout.fields()[0].max()));
    let builder = RuleSet::builder(layout).overlap(Overlap::First);
    let rules = elements.into_iter().map(Rule::new);
    Ok((builder.rules(rules).build()?, spare))
}

fn list(kind: classbench::Kind, rules: u32) -> Result<(RuleSet, Interval), Box<dyn Error>> {
    let text = classbench::List::new(kind, rules as usize).text();
    let file = RuleFile::parse("list", text.as_bytes())?;
    let list = file.set(None)?;
    let layout = KeyLayout::nft_registers(list.fields().iter().cloned())?;
    let spare = (0, layout.fields()[0].max());
    Ok((list.rule_set(layout, None)?, spare))
}

fn matches(fields: &[Kind], condition: impl FnMut(Kind) -> Match) -> Vec<Match> {
    fields.iter().copied().map(condition).collect()
}

/// The kernel's elements; what misses lies beyond them, where the next ones would be.
fn counted(fields: &[Kind], first: u32, count: usize) -> (Vec<Vec<Match>>, Interval) {
    let mut elements = Vec::new();
    let mut n = first;
    for _ in 0..count {
        // A range of ports must not wrap.
        if n / PORTS != (n + 1) / PORTS {
            n += 1;
        }
        elements.push(matches(fields, |kind| match kind {
            Kind::Proto => Match::Exact(kind.counted(n)),
            _ => Match::Range {
                lo: kind.counted(n),
                hi: kind.counted(n + 1),
            },
        }));
        n += 2;
    }
    let last = match fields[0] {
        Kind::Port => PORTS - 1,
        _ => n + 2 * count as u32,
    };
    (elements, (fields[0].counted(n), fields[0].counted(last)))
}

fn ranges(kind: Kind, count: usize, random: &mut Random) -> Vec<Vec<Match>> {
    let mut ends = distinct(2 * count, || kind.any(random));
    ends.sort_unstable();
    let mut ranges: Vec<Vec<Match>> = ends
        .as_chunks()
        .0
        .iter()
        .map(|&[lo, hi]| vec![Match::Range { lo, hi }])
        .collect();
    shuffle(&mut ranges, random);
    ranges
}

fn prefixes(kind: Kind, count: usize, random: &mut Random) -> Vec<Vec<Match>> {
    let field = kind.field();
    let (shortest, longest) = match kind {
        Kind::Net => (20, 28),
        _ => (32, 64),
    };
    let mut prefixes: Vec<Match> = Vec::new();
    while prefixes.len() < count {
        prefixes.extend((0..count).map(|_| kind.prefix(shortest, longest, random)));
        prefixes.sort_unstable_by_key(|prefix| prefix.lower(&field));
        let mut last: Option<u128> = None;
        prefixes.retain(|prefix| {
            let is_free = last.is_none_or(|last| prefix.lower(&field) > last);
            if is_free {
                last = Some(prefix.upper(&field));
            }
            is_free
        });
    }
    shuffle(&mut prefixes, random);
    prefixes.truncate(count);
    prefixes.into_iter().map(|prefix| vec![prefix]).collect()
}

/// So many values that differ, in the order in which they were drawn.
fn distinct<T: Clone + Eq + Hash>(count: usize, draw: impl FnMut() -> T) -> Vec<T> {
    let mut seen = HashSet::new();
    let drawn = std::iter::repeat_with(draw).filter(|value| seen.insert(value.clone()));
    drawn.take(count).collect()
}

/// Fisher and Yates.
fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
}

impl Kind {
    fn field(self) -> Field {
        match self {
            Self::Net => Field::ipv4_addr("daddr"),
            Self::Net6 => Field::ipv6_addr("daddr"),
            Self::Port => Field::inet_service("dport"),
            Self::Proto => Field::inet_proto("proto"),
            Self::Mac => Field::ether_addr("saddr"),
        }
    }

    /// The value that stands for `n` in the kernel's elements; every protocol is UDP.
    fn counted(self, n: u32) -> u128 {
        let n128 = u128::from(n);
        match self {
            Self::Net => 0x0a00_0005 + n128,
            Self::Net6 => (0x2001_0db8 << 96) + n128,
            Self::Port => u128::from(n % PORTS + 1),
            Self::Proto => 17,
            Self::Mac => (0x0001 << 32) + n128,
        }
    }

    /// Any value; of IPv6 addresses a global one, of protocols one that a firewall sees.
    fn any(self, random: &mut Random) -> u128 {
        const PROTOCOLS: [u128; 4] = [6, 17, 58, 132];
        match self {
            Self::Net6 => (1 << 125) | random.bits() >> 3,
            Self::Proto => PROTOCOLS[random.below(4) as usize],
            _ => random.bits() & self.field().max(),
        }
    }

    fn prefix(self, shortest: u64, longest: u64, random: &mut Random) -> Match {
        let len = (shortest + random.below(longest - shortest + 1)) as u8;
        let varying = self.field().max().checked_shr(len.into()).unwrap_or(0);
        Match::Prefix {
            value: self.any(random) & !varying,
            len,
        }
    }

    /// What a user asks of a field.
    fn condition(self, random: &mut Random) -> Match {
        match (random.below(3), self) {
            (0, _) | (_, Self::Proto) => Match::Exact(self.any(random)),
            (1, Self::Net) => self.prefix(8, 32, random),
            (1, Self::Net6) => self.prefix(32, 128, random),
            (1, Self::Mac) => self.prefix(24, 48, random),
            (_, Self::Port) => {
                let ends = [self.any(random), self.any(random)];
                Match::Range {
                    lo: ends[0].min(ends[1]),
                    hi: ends[0].max(ends[1]),
                }
            }
            _ => {
                let lo = self.any(random);
                let width = random.bits() & ((1 << random.below(RANGE_BITS + 1)) - 1);
                Match::Range {
                    lo,
                    hi: (lo + width).min(self.field().max()),
                }
            }
        }
    }
}
