//! The rows of the kernel's own measurements: their elements, and the traffic that is sent through them.
//!
//! Linux measures sets of concatenated ranges with elements that its selftest script counts up: every field of an element
//! is the closed range `f(n) ..= f(n + 1)`, where `f` makes an address, a port or a MAC of a number (`Kind::value`). The next
//! element has an `n` that is larger by two, so that elements touch and never overlap; a row of N has N + 1 of them.
//!
//! Which element a key hits is known from how the key was made. [`Set::check`] has the linear scan confirm it.

use pktjit::cli::random::Random;
use pktjit::{Field, KeyLayout, LayoutError, MISS, Match, Overlap, Rule, RuleSet, RuleSetError};
use pktjit_fallback::LinearScan;

/// Keys that a loop goes over: too many for a branch predictor to learn by heart. Of 8192 a Zen 4 knows most after a few
/// passes (2026-11-30: net_port, half misses, AVX2 pipapo 47 ns, hash map 2.8; of 65,536 keys 57 and 10.4).
pub const KEYS: usize = 1 << 16;

/// A port wraps around after so many numbers.
const PORTS: u32 = 65_534;

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Net,
    Net6,
    Port,
    Proto,
    Mac,
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

    /// The value that stands for `n`; every protocol is UDP.
    fn value(self, n: u32) -> u128 {
        let n128 = u128::from(n);
        match self {
            Self::Net => 0x0a00_0005 + n128,
            Self::Net6 => (0x2001_0db8 << 96) + n128,
            Self::Port => u128::from(n % PORTS + 1),
            Self::Proto => 17,
            Self::Mac => (0x0001 << 32) + n128,
        }
    }
}

/// One row of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name on command lines and in results.
    pub name: &'static str,
    /// Its nominal size; the set has one element more.
    pub rules: u32,
    fields: &'static [Kind],
    /// The number that the first element stands for.
    first: u32,
}

use Kind::{Mac, Net, Net6, Port, Proto};

/// All rows, in the order of the published table.
pub const ROWS: [Row; 8] = [
    Row::new("net_port", 1000, &[Net, Port], 1),
    Row::new("port_net", 100, &[Port, Net], 1),
    Row::new("net6_port", 1000, &[Net6, Port], 10),
    Row::new("port_proto", 10_000, &[Port, Proto], 1),
    Row::new("port_proto", 30_000, &[Port, Proto], 1),
    Row::new("net6_port_mac", 10, &[Net6, Port, Mac], 10),
    Row::new("net6_port_mac_proto", 1000, &[Net6, Port, Mac, Proto], 10),
    Row::new("net_mac", 1000, &[Net, Mac], 1),
];

impl Row {
    pub(crate) const fn new(
        name: &'static str,
        rules: u32,
        fields: &'static [Kind],
        first: u32,
    ) -> Self {
        Self {
            name,
            rules,
            fields,
            first,
        }
    }

    /// The same row with another number of rules.
    #[must_use]
    pub const fn with_rules(self, rules: u32) -> Self {
        Self { rules, ..self }
    }

    /// The rows that `NAME` or `NAME:RULES` means; with a number, any size that the elements of the row allow.
    ///
    /// # Errors
    /// What is wrong with the words.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let (name, rules) = match text.split_once(':') {
            Some((name, rules)) => (name, Some(rules)),
            None => (text, None),
        };
        let mut rows: Vec<Self> = ROWS.into_iter().filter(|row| row.name == name).collect();
        let Some(first) = rows.first().copied() else {
            let names = ROWS.map(|row| row.name).join(", ");
            return Err(format!("there is no row `{name}`; the rows are {names}"));
        };
        if let Some(rules) = rules {
            let max = first.max_rules();
            let rules = rules.parse().ok().filter(|rules| (1..=max).contains(rules));
            let rules = rules.ok_or_else(|| format!("row `{name}` takes 1 to {max} rules"))?;
            rows = vec![first.with_rules(rules)];
        }
        Ok(rows)
    }

    /// Ports run out, and some must be left for keys that hit nothing.
    fn max_rules(&self) -> u32 {
        match self.fields[0] {
            Port => 32_000,
            _ => 1_000_000,
        }
    }
}

/// Which keys are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// One key, which hits the last element, as the kernel measures.
    Same,
    /// Keys inside random elements.
    Hits,
    /// Half of the keys hit nothing: each of their fields is from another element.
    Misses,
}

impl Traffic {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Same, Self::Hits, Self::Misses];

    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Hits => "hits",
            Self::Misses => "misses",
        }
    }
}

/// Keys one after the other, and the element that each hits.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// The length of a key.
    pub stride: usize,
    /// The element that each hits, or [`MISS`].
    pub expected: Vec<u32>,
}

impl Keys {
    /// The first `n` keys.
    pub fn first(&self, n: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.stride).take(n)
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.expected.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }
}

/// The same traffic for those who know ranges, for a peer that looks at the first field alone, and for one that knows
/// nothing but exact keys.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Anywhere inside the elements.
    pub ranges: Keys,
    /// Those keys, but with the element that the first field hits.
    pub first_field: Keys,
    /// At the lower corners of the elements.
    pub exact: Keys,
}

/// The elements of a row.
#[derive(Clone, Debug)]
pub struct Set {
    /// The rules, for keys as nft lays them out.
    pub rules: RuleSet,
    fields: &'static [Kind],
    /// The number that each element stands for.
    numbers: Vec<u32>,
}

impl Set {
    /// The elements of `row`, or of its first field alone.
    ///
    /// # Errors
    /// Never for a row of [`ROWS`].
    pub fn new(row: &Row, first_field_only: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let fields = if first_field_only {
            &row.fields[..1]
        } else {
            row.fields
        };
        let mut numbers = Vec::new();
        let mut n = row.first;
        for _ in 0..=row.rules {
            // A range of ports must not wrap.
            if n / PORTS != (n + 1) / PORTS {
                n += 1;
            }
            numbers.push(n);
            n += 2;
        }
        Ok(Self {
            rules: rule_set(layout(fields)?, fields, &numbers)?,
            fields,
            numbers,
        })
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The lower corner of each element, as a key.
    pub fn exact_keys(&self) -> impl Iterator<Item = Vec<u8>> {
        self.numbers.iter().map(|&n| {
            let values: Vec<u128> = self.fields.iter().map(|kind| kind.value(n)).collect();
            self.rules.layout().encode(&values)
        })
    }

    /// `count` keys, always the same ones.
    #[must_use]
    pub fn send(&self, traffic: Traffic, count: usize) -> Sent {
        let random = &mut Random(u64::from(self.numbers[0]) + self.numbers.len() as u64);
        let stride = self.rules.layout().len();
        let keys = Keys {
            stride,
            ..Keys::default()
        };
        let mut sent = Sent {
            ranges: keys.clone(),
            first_field: keys.clone(),
            exact: keys,
        };
        let last = self.numbers.len() - 1;
        for _ in 0..count {
            let hit = match traffic {
                Traffic::Same => Key::inside(last),
                Traffic::Hits => Key::inside(below(random, self.numbers.len())),
                // By chance, so that no branch predictor learns whose turn it is.
                Traffic::Misses if random.below(2) == 0 => {
                    Key::inside(below(random, self.numbers.len()))
                }
                Traffic::Misses => self.miss(random),
            };
            let upper = if traffic == Traffic::Same { 1 } else { 2 };
            sent.push(self, &hit, || random.below(upper) as u32);
        }
        sent
    }

    /// Each field from a random element; where that hits after all, the first field from none.
    fn miss(&self, random: &mut Random) -> Key {
        let places = std::array::from_fn(|_| Place::In(below(random, self.numbers.len())));
        let mut key = Key { places };
        if key.element(self.fields).is_some() {
            let free = self.numbers[self.numbers.len() - 1] + 2;
            let count = match self.fields[0] {
                Port => (PORTS - free) as usize,
                _ => 2 * self.numbers.len(),
            };
            key.places[0] = Place::Out(free + below(random, count) as u32);
        }
        key
    }

    /// Has the linear scan confirm some of the keys: all of a small set, fewer of a large one.
    ///
    /// # Errors
    /// Which key hits another element.
    pub fn check(&self, keys: &Keys) -> Result<(), String> {
        let scan = LinearScan::new(&self.rules);
        let step = 1 + keys.len() * self.len() / (1 << 22);
        let all = keys.first(keys.len()).zip(&keys.expected).enumerate();
        for (i, (key, &expected)) in all.step_by(step) {
            let key = self.rules.layout().key(key).map_err(|e| e.to_string())?;
            let row = scan.lookup(key);
            if row != expected {
                return Err(format!(
                    "key {i} was made to hit {expected}, the linear scan finds {row}"
                ));
            }
        }
        Ok(())
    }
}

fn layout(fields: &[Kind]) -> Result<KeyLayout, LayoutError> {
    KeyLayout::nft_registers(fields.iter().map(|kind| kind.field()))
}

fn rule_set(layout: KeyLayout, fields: &[Kind], numbers: &[u32]) -> Result<RuleSet, RuleSetError> {
    let mut builder = RuleSet::builder(layout).overlap(Overlap::Strict);
    for &n in numbers {
        builder.push(Rule::new(fields.iter().map(|kind| match kind {
            Proto => Match::Exact(kind.value(n)),
            _ => Match::Range {
                lo: kind.value(n),
                hi: kind.value(n + 1),
            },
        })));
    }
    builder.build()
}

/// Where a field of a key lies.
#[derive(Clone, Copy)]
enum Place {
    /// In this element.
    In(usize),
    /// At a number beyond the elements.
    Out(u32),
}

struct Key {
    places: [Place; 4],
}

impl Key {
    fn inside(element: usize) -> Self {
        Self {
            places: [Place::In(element); 4],
        }
    }

    /// The element that holds all fields. A protocol is in all of them.
    fn element(&self, fields: &[Kind]) -> Option<usize> {
        let mut found = None;
        for (kind, place) in fields.iter().zip(self.places) {
            match (*kind, place, found) {
                (Proto, ..) => {}
                (_, Place::In(element), None) => found = Some(element),
                (_, Place::In(element), Some(other)) if element == other => {}
                _ => return None,
            }
        }
        found
    }
}

impl Sent {
    fn push(&mut self, set: &Set, key: &Key, mut upper: impl FnMut() -> u32) {
        let element = |fields| key.element(fields).map_or(MISS, |element| element as u32);
        let number = |place| match place {
            Place::In(element) => set.numbers[element],
            Place::Out(n) => n,
        };
        let fields = set.fields.iter().zip(key.places);
        let exact: Vec<u128> = fields
            .clone()
            .map(|(kind, place)| kind.value(number(place)))
            .collect();
        let within: Vec<u128> = fields
            .map(|(kind, place)| match place {
                Place::In(_) => kind.value(number(place) + upper()),
                Place::Out(n) => kind.value(n),
            })
            .collect();
        let layout = set.rules.layout();
        let bytes = layout.encode(&within);
        for (keys, bytes, element) in [
            (&mut self.ranges, &bytes, element(set.fields)),
            (&mut self.first_field, &bytes, element(&set.fields[..1])),
            (&mut self.exact, &layout.encode(&exact), element(set.fields)),
        ] {
            keys.bytes.extend_from_slice(bytes);
            keys.expected.push(element);
        }
    }
}

/// A number below `n`.
fn below(random: &mut Random, n: usize) -> usize {
    random.below(n as u64) as usize
}
