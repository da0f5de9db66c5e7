//! The sets that are loaded: their fields, and elements that nf_tables accepts.

use pktjit::{Field, KeyLayout, Match, Rule, RuleSet, RuleSetBuilder};

use crate::nft;
use crate::random::Random;
use crate::traffic::{KEY_AT, SEQUENCE_BYTES};

/// What the elements of a set have in one field.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    Single,
    Prefix,
    Range,
    /// Each element has one of the above.
    Mixed,
}

use Content::{Mixed, Prefix, Range, Single};

/// What a set looks like.
pub(crate) struct SetShape {
    pub(crate) name: &'static str,
    /// Bytes and content of each field.
    fields: &'static [(u8, Content)],
    size: u32,
    has_catch_all: bool,
}

const fn shape(name: &'static str, fields: &'static [(u8, Content)], size: u32) -> SetShape {
    SetShape {
        name,
        fields,
        size,
        has_catch_all: false,
    }
}

const fn with_catch_all(shape: SetShape) -> SetShape {
    SetShape {
        has_catch_all: true,
        ..shape
    }
}

/// Single fields are hash tables and trees in the kernel, concatenations hash tables and pipapo.
pub(crate) const SHAPES: [SetShape; 20] = [
    shape("1 single", &[(1, Single)], 100),
    shape("4 single", &[(4, Single)], 1000),
    with_catch_all(shape("16 single, *", &[(16, Single)], 300)),
    shape("1 mixed", &[(1, Mixed)], 20),
    with_catch_all(shape("2 range, *", &[(2, Range)], 100)),
    shape("4 prefix", &[(4, Prefix)], 1000),
    shape("6 range, alone", &[(6, Range)], 1),
    shape("8 mixed", &[(8, Mixed)], 500),
    shape("16 mixed", &[(16, Mixed)], 1000),
    shape("4.2 single", &[(4, Single), (2, Single)], 1000),
    with_catch_all(shape(
        "6.4.1 single, *",
        &[(6, Single), (4, Single), (1, Single)],
        200,
    )),
    shape("4.2 net,port", &[(4, Prefix), (2, Range)], 1000),
    shape("2.4 port,net", &[(2, Range), (4, Prefix)], 100),
    shape("2.1 port,proto", &[(2, Range), (1, Single)], 1000),
    shape(
        "16.2.6 net6,port,mac",
        &[(16, Prefix), (2, Range), (6, Single)],
        10,
    ),
    shape(
        "16.2.6.1 mixed",
        &[(16, Mixed), (2, Mixed), (6, Mixed), (1, Mixed)],
        1000,
    ),
    shape(
        "4.4.2.2.1 mixed",
        &[(4, Mixed), (4, Mixed), (2, Mixed), (2, Mixed), (1, Mixed)],
        1000,
    ),
    with_catch_all(shape("8.8 mixed, *", &[(8, Mixed), (8, Mixed)], 300)),
    shape("1.1.1 mixed", &[(1, Mixed), (1, Mixed), (1, Mixed)], 100),
    shape(
        "16.16.16.16 range",
        &[(16, Range), (16, Range), (16, Range), (16, Range)],
        300,
    ),
];

/// The values from `lo` to `hi`.
#[derive(Clone, Copy)]
pub(crate) struct Interval {
    pub(crate) lo: u128,
    pub(crate) hi: u128,
}

impl Interval {
    fn contains(self, value: u128) -> bool {
        self.lo <= value && value <= self.hi
    }
}

/// An interval per field.
#[derive(Clone)]
pub(crate) struct Element {
    pub(crate) fields: Vec<Interval>,
}

impl Element {
    /// Whether every field of `key` lies in this element's interval.
    pub(crate) fn matches(&self, key: &[u128]) -> bool {
        self.fields
            .iter()
            .zip(key)
            .all(|(interval, &value)| interval.contains(value))
    }

    fn corners(&self) -> [Vec<u128>; 2] {
        let lowest = self.fields.iter().map(|interval| interval.lo);
        let highest = self.fields.iter().map(|interval| interval.hi);
        [lowest.collect(), highest.collect()]
    }

    fn rule(&self, fields: &[Field], mark: u32) -> Rule {
        let matches = self
            .fields
            .iter()
            .zip(fields)
            .map(|(&Interval { lo, hi }, field)| {
                // As prefixes and single values where they are some: each is another way into the kernel.
                Match::Range { lo, hi }.canonical(field)
            });
        Rule::new(matches).with_verdict(nft::verdict(mark))
    }
}

impl SetShape {
    /// The number of elements, the catch-all apart. Their marks are 1 to this.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Whether this is a set without the flag `interval`.
    pub(crate) fn is_exact(&self) -> bool {
        self.fields.iter().all(|&(_, content)| content == Single)
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        let bytes = self.fields.iter().map(|&(bytes, _)| bytes);
        bytes
            .map(|bytes| Field::integer("raw", bytes).unwrap())
            .collect()
    }

    /// Keys are frames: the fields follow the Ethernet header.
    pub(crate) fn layout(&self) -> KeyLayout {
        layout(self.fields())
    }

    /// Elements in an order in which a set accepts them all, some of them touching or crossing an earlier one.
    pub(crate) fn elements(&self, random: &mut Random) -> Vec<Element> {
        let mut elements: Vec<Element> = Vec::new();
        for _ in 0..100 * self.size {
            if elements.len() == self.size as usize {
                return elements;
            }
            let new = if random.below(4) == 0 && !elements.is_empty() {
                self.neighbour(random.pick(&elements), random)
            } else {
                Some(self.element(random))
            };
            elements.extend(new.filter(|new| is_accepted(new, &elements)));
        }
        panic!("{}: no room for {} elements", self.name, self.size);
    }

    fn element(&self, random: &mut Random) -> Element {
        let widest = match self.fields {
            // Elements must be disjoint, so they all have to find room.
            [(bytes, _)] => (bytes * 8).saturating_sub(self.size.ilog2() as u8 + 2),
            _ => 128,
        };
        let fields = self
            .fields
            .iter()
            .map(|&(bytes, content)| interval(bytes * 8, widest.min(bytes * 8), content, random));
        Element {
            fields: fields.collect(),
        }
    }

    /// `element` with another interval in one field: one that begins where the old one ended, or one that reaches beyond it
    /// at both ends. `None` where there is no room.
    fn neighbour(&self, element: &Element, random: &mut Random) -> Option<Element> {
        let index = random.below(self.fields.len());
        let (bytes, content) = self.fields[index];
        let Interval { lo, hi } = element.fields[index];
        let new = if matches!(content, Range | Mixed) && random.below(2) == 0 {
            let beyond = 1 + random.bits(bytes * 4);
            Interval {
                lo: lo.checked_sub(beyond)?,
                hi: hi.checked_add(beyond)?,
            }
        } else {
            let start = hi.checked_add(1)?;
            Interval {
                lo: start,
                hi: start.checked_add(hi - lo)?,
            }
        };
        let mut neighbour = element.clone();
        neighbour.fields[index] = new;
        (new.hi <= self.fields()[index].max()).then_some(neighbour)
    }

    /// The elements as rules, their positions from 1 on as marks, and the catch-all behind them.
    pub(crate) fn rule_set(&self, elements: &[Element]) -> RuleSet {
        let layout = self.layout();
        let mut rules = RuleSet::builder(layout.clone()).exact(self.is_exact());
        for (mark, element) in (1..).zip(elements) {
            rules.push(element.rule(layout.fields(), mark));
        }
        if self.has_catch_all {
            let rule = Rule::catch_all(layout.fields().len());
            rules.push(rule.with_verdict(nft::verdict(self.size + 1)));
        }
        rules
            .build()
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

fn layout(fields: Vec<Field>) -> KeyLayout {
    let mut end = KEY_AT;
    let placed = fields.into_iter().map(|field| {
        let offset = end;
        end += usize::from(field.bytes());
        (field, offset)
    });
    let layout = KeyLayout::at(placed).unwrap();
    let len = layout.len() + SEQUENCE_BYTES;
    layout.with_len(len).unwrap()
}

/// The law of nf_tables for a new element: its corners are free. For single fields that are disjoint intervals, it must
/// contain no earlier element either.
fn is_accepted(new: &Element, earlier: &[Element]) -> bool {
    let is_free = |corner: &[u128]| !earlier.iter().any(|element| element.matches(corner));
    let contains_none = || {
        !earlier
            .iter()
            .any(|element| new.matches(&element.corners()[0]))
    };
    new.corners().iter().all(|corner| is_free(corner)) && (new.fields.len() > 1 || contains_none())
}

/// An interval of a field of `bits` bits, of at most 2^`widest` values.
fn interval(bits: u8, widest: u8, content: Content, random: &mut Random) -> Interval {
    let max = u128::MAX >> (128 - bits);
    let value = match random.below(16) {
        0 => 0,
        1 => max,
        _ => random.bits(bits),
    };
    // Small and large ones are equally likely.
    let size = random.below(usize::from(widest) + 1) as u8;
    match content {
        Single => Interval {
            lo: value,
            hi: value,
        },
        Prefix => {
            let hosts = u128::MAX.checked_shr(128 - u32::from(size)).unwrap_or(0);
            Interval {
                lo: value & !hosts,
                hi: value | hosts,
            }
        }
        Range => {
            let span = random.bits(size);
            if random.below(2) == 0 {
                Interval {
                    lo: value,
                    hi: value.saturating_add(span).min(max),
                }
            } else {
                Interval {
                    lo: value.saturating_sub(span),
                    hi: value,
                }
            }
        }
        Mixed => {
            let content = *random.pick(&[Single, Prefix, Range]);
            interval(bits, widest, content, random)
        }
    }
}

/// A few elements so close together that half of such sets have an overlap which nf_tables refuses.
pub(crate) fn small(random: &mut Random) -> RuleSetBuilder {
    const WIDTHS: [&[u8]; 5] = [&[2], &[16], &[1, 1], &[4, 2], &[2, 16, 1]];
    let fields: Vec<Field> = random
        .pick(&WIDTHS)
        .iter()
        .map(|&bytes| Field::integer("raw", bytes).unwrap())
        .collect();
    let mut rules = RuleSet::builder(layout(fields.clone()));
    for _ in 0..2 + random.below(4) {
        // Few marks, so that elements are repeated with the same one and with another one.
        let mark = 1 + random.below(2) as u32;
        rules.push(if random.below(8) == 0 {
            Rule::catch_all(fields.len()).with_verdict(nft::verdict(mark))
        } else {
            let intervals = fields.iter().map(|field| small_interval(field, random));
            Element {
                fields: intervals.collect(),
            }
            .rule(&fields, mark)
        });
    }
    rules
}

/// An interval with ends among the first six and the last two values of `field`; often a single value.
fn small_interval(field: &Field, random: &mut Random) -> Interval {
    let ends = [0, 1, 2, 3, 4, 5, field.max() - 1, field.max()];
    let (one, other) = (*random.pick(&ends), *random.pick(&ends));
    match random.below(4) {
        0 => Interval { lo: one, hi: one },
        _ => Interval {
            lo: one.min(other),
            hi: one.max(other),
        },
    }
}
