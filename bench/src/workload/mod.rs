//! Elements, and the traffic that is sent through them.
//!
//! [`rows`] says which there are, `elements` how they are made, [`lists`] holds prioritised lists. Which element a key hits
//! is found here, by a search in sorted elements or by asking each; [`Set::check`] has the linear scan confirm it.

mod elements;
pub mod lists;
pub mod rows;

use std::error::Error;

use pktjit::cli::random::Random;
use pktjit::{MISS, RuleSet};
use pktjit_fallback::LinearScan;

pub(crate) use elements::Elements;
pub use rows::{ROWS, Row};

/// Keys that a loop goes over: too many for a branch predictor to learn by heart. Of 8192 a Zen 4 knows most after a few
/// passes (2026-11-30: net_port, half misses, AVX2 pipapo 47 ns, hash map 2.8; of 65,536 keys 57 and 10.4).
pub const KEYS: usize = 1 << 16;

/// A closed interval.
type Interval = (u128, u128);

/// Which keys are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// One key, which hits the last element, as the kernel measures.
    Same,
    /// Keys inside random elements.
    Hits,
    /// Half of the keys hit nothing, as far as such are found: each of their fields is from another element.
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

    fn push(&mut self, key: &[u8], element: u32) {
        self.bytes.extend_from_slice(key);
        self.expected.push(element);
    }
}

/// The same traffic for those who know ranges, for a peer that looks at the first field alone, and for one that knows
/// nothing but exact keys. Where elements may overlap, the latter two are empty.
#[derive(Clone, Debug, Default)]
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
    /// The fields of all elements, one element after the other.
    intervals: Vec<Interval>,
    /// The elements by their lower corners, where the last one that does not lie behind a key is the only one to ask.
    by_corner: Option<Vec<u32>>,
    /// Values of the first field, from which one is drawn where a key that shall miss hits.
    spare: Interval,
}

/// A field of a key: its value, and the lower end of the interval that it was drawn from.
type Value = (u128, u128);

impl Set {
    /// The elements of `row`.
    ///
    /// # Errors
    /// Where the row is wrong.
    pub fn new(row: &Row) -> Result<Self, Box<dyn Error>> {
        let (rules, spare) = elements::rules(row)?;
        let fields = rules.layout().fields();
        let rows = rules.rules().iter();
        let intervals = rows.flat_map(|stored| {
            let conditions = stored.rule.matches.iter().zip(fields);
            conditions.map(|(condition, field)| (condition.lower(field), condition.upper(field)))
        });
        let mut set = Self {
            intervals: intervals.collect(),
            rules,
            by_corner: None,
            spare,
        };
        set.by_corner = set.sorted();
        Ok(set)
    }

    /// The elements by their lower corners, where each is a point or has the values of its first field for itself.
    fn sorted(&self) -> Option<Vec<u32>> {
        let corner = |element: &u32| self.element(*element).iter().map(|interval| interval.0);
        let mut sorted: Vec<u32> = (0..self.len() as u32).collect();
        sorted.sort_by(|a, b| corner(a).cmp(corner(b)));
        let is_point = |element| self.element(element).iter().all(|(lo, hi)| lo == hi);
        let are_apart = |pair: &[u32]| {
            self.element(pair[0])[0].1 < self.element(pair[1])[0].0
                || is_point(pair[0]) && is_point(pair[1])
        };
        sorted.windows(2).all(are_apart).then_some(sorted)
    }

    /// Whether it is plain that no two elements overlap.
    #[must_use]
    pub fn is_disjoint(&self) -> bool {
        self.by_corner.is_some()
    }

    fn element(&self, element: u32) -> &[Interval] {
        let fields = self.rules.layout().fields().len();
        &self.intervals[element as usize * fields..][..fields]
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lower corner of each element, as a key.
    pub fn exact_keys(&self) -> impl Iterator<Item = Vec<u8>> {
        (0..self.len() as u32).map(|element| {
            let corner = self.element(element).iter().map(|interval| interval.0);
            self.rules.layout().encode(&corner.collect::<Vec<_>>())
        })
    }

    /// The first element that holds `values`, which may be the first fields alone.
    fn winner(&self, values: &[u128]) -> u32 {
        let holds = |element: &u32| {
            let mut fields = self.element(*element).iter().zip(values);
            fields.all(|(&(lo, hi), &value)| lo <= value && value <= hi)
        };
        let corner = |element: u32| self.element(element)[..values.len()].iter().map(|i| i.0);
        let found = match &self.by_corner {
            Some(sorted) => {
                let behind =
                    sorted.partition_point(|&element| corner(element).le(values.iter().copied()));
                sorted[..behind].last().copied().filter(holds)
            }
            None => (0..self.len() as u32).find(holds),
        };
        found.unwrap_or(MISS)
    }

    /// `count` keys, always the same ones.
    #[must_use]
    pub fn send(&self, traffic: Traffic, count: usize) -> Sent {
        let random = &mut Random(self.len() as u64);
        let mut sent = Sent::default();
        for keys in [&mut sent.ranges, &mut sent.first_field, &mut sent.exact] {
            keys.stride = self.rules.layout().len();
        }
        if traffic == Traffic::Same {
            let last = self.element(self.len() as u32 - 1).iter();
            sent.push(self, &last.map(|&(lo, _)| (lo, lo)).collect::<Vec<_>>());
            for keys in [&mut sent.ranges, &mut sent.first_field, &mut sent.exact] {
                keys.bytes = keys.bytes.repeat(count);
                keys.expected = keys.expected.repeat(count);
            }
            return sent;
        }
        for _ in 0..count {
            let key: Vec<Value> = match traffic {
                // By chance, so that no branch predictor learns whose turn it is.
                Traffic::Misses if random.below(2) != 0 => self.miss(random),
                _ => {
                    let fields = self.element(below(random, self.len())).iter();
                    fields
                        .map(|&interval| (within(interval, random), interval.0))
                        .collect()
                }
            };
            sent.push(self, &key);
        }
        sent
    }

    /// Each field from a random element; where that hits after all, the first one from anywhere. Where elements leave nearly
    /// no room it may still hit: what counts is that the answer is known.
    fn miss(&self, random: &mut Random) -> Vec<Value> {
        let fields = 0..self.rules.layout().fields().len();
        let mut key: Vec<Value> = fields
            .map(|field| {
                let interval = self.element(below(random, self.len()))[field];
                (within(interval, random), interval.0)
            })
            .collect();
        for _ in 0..100 {
            let values: Vec<u128> = key.iter().map(|value| value.0).collect();
            if self.winner(&values) == MISS {
                break;
            }
            let value = within(self.spare, random);
            key[0] = (value, value);
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

impl Sent {
    fn push(&mut self, set: &Set, key: &[Value]) {
        let (values, corner): (Vec<u128>, Vec<u128>) = key.iter().copied().unzip();
        let layout = set.rules.layout();
        let bytes = layout.encode(&values);
        self.ranges.push(&bytes, set.winner(&values));
        if set.is_disjoint() {
            self.first_field.push(&bytes, set.winner(&values[..1]));
            self.exact
                .push(&layout.encode(&corner), set.winner(&corner));
        }
    }
}

/// An element below `n`.
fn below(random: &mut Random, n: usize) -> u32 {
    random.below(n as u64) as u32
}

/// A value of the interval.
fn within((lo, hi): Interval, random: &mut Random) -> u128 {
    match (hi - lo).checked_add(1) {
        Some(count) => lo + random.bits() % count,
        None => random.bits(),
    }
}
