//! Random rule sets and keys, biased towards what breaks classifiers: edges of intervals and one beyond, rules that cover,
//! repeat or narrowly miss each other, wide fields, odd layouts.

use pktjit_ir::{ByteOrder, Field, KeyLayout, Match, Overlap, Rule, RuleSet};
use quickcheck::{Arbitrary, Gen};

use super::Choices;

/// A rule set of policy [`Overlap::First`] and keys to ask it for.
///
/// Holds parts, not a [`RuleSet`], so that it can shrink and print.
#[derive(Clone, Debug)]
pub struct Case {
    /// Fields and their byte offsets.
    pub fields: Vec<(Field, usize)>,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// Field values of each key.
    pub keys: Vec<Vec<u128>>,
}

impl Case {
    /// The layout.
    ///
    /// # Panics
    /// Never for generated cases, whose fields fit.
    #[must_use]
    pub fn layout(&self) -> KeyLayout {
        KeyLayout::at(self.fields.iter().cloned()).expect("generated fields fit a key")
    }

    /// The rule set.
    ///
    /// # Panics
    /// Never for generated cases, whose rules are valid.
    #[must_use]
    pub fn rule_set(&self) -> RuleSet {
        let builder = RuleSet::builder(self.layout()).overlap(Overlap::First);
        let rules = self.rules.iter().cloned();
        builder
            .rules(rules)
            .build()
            .expect("generated rules are valid")
    }

    /// The bytes of the keys, end to end.
    #[must_use]
    pub fn encoded_keys(&self) -> Vec<u8> {
        let layout = self.layout();
        self.keys
            .iter()
            .flat_map(|values| layout.encode(values))
            .collect()
    }
}

impl Case {
    /// Fields and rules that follow from `choices`, without keys.
    pub fn choose(choices: &mut impl Choices) -> Self {
        let fields = fields(choices);
        let count = choices.pick(&[0, 1, 2, 7, 8, 9, 16, 30, 62, 63, 64, 65, 100, 300]);
        let style = Style::choose(choices);
        let mut rules: Vec<Rule> = Vec::new();
        while rules.len() < count && !choices.is_exhausted() {
            let rule = match choices.one_of(&rules).cloned() {
                Some(parent) if choices.below(4) == 0 => relative(choices, &fields, parent),
                _ => Rule::new(
                    fields
                        .iter()
                        .map(|(field, _)| condition(choices, field, style))
                        .collect::<Vec<_>>(),
                ),
            };
            let priority = if choices.below(8) == 0 {
                choices.below(3) as i32 - 1
            } else {
                0
            };
            rules.push(rule.with_priority(priority));
        }
        Self {
            fields,
            rules,
            keys: Vec::new(),
        }
    }

    /// The same rules with so many keys.
    #[must_use]
    pub fn with_keys(mut self, count: usize, choices: &mut impl Choices) -> Self {
        let key = |_| key(choices, &self.fields, &self.rules);
        self.keys = (0..count).map(key).collect();
        self
    }
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Self {
        Self::choose(g).with_keys(64, g)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let cuts = |len: usize, edit: fn(usize, usize) -> Edit| {
            let sizes = std::iter::successors(Some(len.div_ceil(2)), |&size| {
                (size > 1).then_some(size / 2)
            });
            sizes.flat_map(move |size| {
                (0..len)
                    .step_by(size.max(1))
                    .map(move |start| edit(start, size))
            })
        };
        let fields = self.fields.len();
        let edits: Vec<Edit> = cuts(self.keys.len(), Edit::DropKeys)
            .chain(cuts(self.rules.len(), Edit::DropRules))
            .chain((0..fields).filter(|_| fields > 1).map(Edit::DropField))
            .chain(
                (0..self.rules.len())
                    .flat_map(|rule| (0..fields).map(move |field| Edit::Widen(rule, field))),
            )
            .collect();
        let case = self.clone();
        Box::new(edits.into_iter().filter_map(move |edit| case.edited(&edit)))
    }
}

/// One way to make a case simpler.
enum Edit {
    /// So many keys from this one on.
    DropKeys(usize, usize),
    /// So many rules from this one on.
    DropRules(usize, usize),
    /// A field with all its conditions and values.
    DropField(usize),
    /// Let a rule match everything in a field.
    Widen(usize, usize),
}

impl Case {
    fn edited(&self, edit: &Edit) -> Option<Self> {
        let mut case = self.clone();
        match *edit {
            Edit::DropKeys(start, size) => {
                drop(case.keys.drain(start..(start + size).min(self.keys.len())))
            }
            Edit::DropRules(start, size) => drop(
                case.rules
                    .drain(start..(start + size).min(self.rules.len())),
            ),
            Edit::DropField(field) => {
                case.fields.remove(field);
                for rule in &mut case.rules {
                    rule.matches.remove(field);
                }
                for key in &mut case.keys {
                    key.remove(field);
                }
            }
            Edit::Widen(rule, field) => {
                let condition = &mut case.rules[rule].matches[field];
                if *condition == Match::Any {
                    return None;
                }
                *condition = Match::Any;
            }
        }
        Some(case)
    }
}

/// What the conditions of a rule set look like: structures fit some sets only.
#[derive(Clone, Copy, Debug)]
enum Style {
    /// Anything.
    Mixed,
    /// Single values.
    Exact,
    /// Few values in each field, so that rules overlap in all ways.
    Dense,
    /// As the first field of each, other values: prefixes of one length.
    SameMask,
}

impl Style {
    fn choose(choices: &mut impl Choices) -> Self {
        choices.pick(&[
            Self::Mixed,
            Self::Mixed,
            Self::Exact,
            Self::Dense,
            Self::SameMask,
        ])
    }
}

/// Fields of all kinds at packed, padded, scattered or overlapping offsets.
fn fields(choices: &mut impl Choices) -> Vec<(Field, usize)> {
    let most = if choices.below(4) == 0 { 16 } else { 5 };
    let count = 1 + choices.below(most);
    let gap = choices.below(3) as usize * 3;
    let overlaps = choices.below(8) == 0;
    let (mut offset, mut sum) = (gap, 0);
    let mut fields = Vec::new();
    for i in 0..count {
        let name = format!("f{i}");
        let field = match choices.below(9) {
            0 | 1 => Field::ipv4_addr(&name),
            2 => Field::ipv6_addr(&name),
            3 => Field::ether_addr(&name),
            4 => Field::inet_proto(&name),
            5 | 6 => Field::inet_service(&name),
            7 => Field::mark(&name),
            _ => Field::integer(&name, 1 + choices.below(16) as u8)
                .unwrap_or_else(|_| Field::mark(&name)),
        };
        let field = if choices.below(5) == 0 {
            field.with_byte_order(ByteOrder::Little)
        } else {
            field
        };
        sum += usize::from(field.bytes());
        if sum > 64 {
            break;
        }
        let width = usize::from(field.bytes());
        fields.push((field, offset));
        offset += if overlaps {
            1 + choices.below(width as u64) as usize
        } else {
            width + gap
        };
    }
    fields
}

/// A value near zero, near the largest, near a power of two, or anywhere.
fn value(choices: &mut impl Choices, field: &Field, style: Style) -> u128 {
    let max = field.max();
    if matches!(style, Style::Dense) {
        return u128::from(choices.below(8)) & max;
    }
    match choices.below(8) {
        0 => u128::from(choices.below(4)) & max,
        1 => max - (u128::from(choices.below(4)) & max),
        2 => {
            (1u128 << choices.below(field.bits().into()))
                .wrapping_sub(choices.below(3).into())
                .wrapping_add(1)
                & max
        }
        // Few distinct values, so that rules share them.
        3 | 4 => (u128::from(choices.below(300)) * 0x0001_0001_0001_0001_0001) & max,
        _ => choices.up_to(max),
    }
}

fn condition(choices: &mut impl Choices, field: &Field, style: Style) -> Match {
    let a = value(choices, field, style);
    match style {
        Style::Exact => return Match::Exact(a),
        Style::SameMask => {
            return Match::Prefix {
                value: a,
                len: field.bits() / 2 + 1,
            };
        }
        Style::Mixed | Style::Dense => {}
    }
    match choices.below(10) {
        0 => Match::Any,
        1..=3 => Match::Exact(a),
        4 | 5 => Match::Prefix {
            value: a,
            len: choices.below(u64::from(field.bits()) + 1) as u8,
        },
        6 => {
            let b = value(choices, field, style);
            Match::Range {
                lo: a.min(b),
                hi: a.max(b),
            }
        }
        7 | 8 => {
            let width = u128::from(choices.below(40));
            Match::Range {
                lo: a,
                hi: a.saturating_add(width).min(field.max()),
            }
        }
        _ => Match::Mask {
            value: a,
            mask: value(choices, field, style),
        },
    }
}

/// The same rule again, or one that covers, narrows or nearly meets it.
fn relative(choices: &mut impl Choices, fields: &[(Field, usize)], mut rule: Rule) -> Rule {
    let i = choices.below(fields.len() as u64) as usize;
    let field = &fields[i].0;
    let (lo, hi) = (rule.matches[i].lower(field), rule.matches[i].upper(field));
    let max = field.max();
    rule.matches[i] = match choices.below(6) {
        0 => return rule,
        1 => Match::Any,
        2 => Match::Range {
            lo: lo.saturating_sub(1),
            hi: if hi < max { hi + 1 } else { max },
        },
        3 => Match::Exact(lo),
        4 if hi < max => Match::Range {
            lo: hi + 1,
            hi: hi.saturating_add(1 + u128::from(choices.below(9))).min(max),
        },
        _ => Match::Range {
            lo: lo + (hi - lo) / 2,
            hi,
        },
    };
    rule
}

/// A key inside a rule, on its edges or one beyond, with fields of another rule, or anywhere.
fn key(choices: &mut impl Choices, fields: &[(Field, usize)], rules: &[Rule]) -> Vec<u128> {
    let style = Style::Mixed;
    let Some(rule) = choices.one_of(rules).cloned() else {
        return fields
            .iter()
            .map(|(field, _)| value(choices, field, style))
            .collect();
    };
    let wild = choices.below(8);
    fields
        .iter()
        .enumerate()
        .map(|(i, (field, _))| {
            let condition = match (wild, choices.one_of(rules)) {
                (0, Some(other)) => other.matches[i],
                _ => rule.matches[i],
            };
            let (lo, hi) = (condition.lower(field), condition.upper(field));
            match choices.below(12) {
                0..=3 => lo,
                4..=6 => hi,
                7 => lo.wrapping_sub(1) & field.max(),
                8 => hi.wrapping_add(1) & field.max(),
                9 => value(choices, field, style),
                _ => match condition {
                    Match::Mask { value, mask } => {
                        value & mask | choices.up_to(field.max()) & !mask
                    }
                    _ => lo + choices.up_to(hi - lo),
                },
            }
        })
        .collect()
}
