//! A rule group: the rules that one index of key bits can tell apart, and the lists of rules that its cells hold.
//!
//! Some bits of the key select a cell; where a cell holds more rules than a leaf, more bits, chosen for that cell alone, select
//! one of its parts. A rule goes to every part that a key which it matches can select, except to those where a stronger rule
//! of the same part matches whatever it matches: that rule is compared in this group or in a later one, and wins. Rules
//! that would be copied too often, or that find a part full, are left over as a whole, for the next group.

use super::select::{self, Aim, gather};
use super::ternary::{Ternaries, Ternary};
use crate::structure::Input;
use crate::structure::bits::Index;

/// Most bits of the index of a group, and of a cell.
const MAX_FIRST_BITS: u32 = 18;
pub(super) const MAX_CELL_BITS: u32 = 10;
/// Copies of rules in all cells together, per rule, that are allowed.
const MAX_COPIES: usize = 8;
/// Rules of a list that are asked whether they cover another one.
const MAX_COVERING: usize = 64;
/// Rules that bits are chosen by.
const MAX_SAMPLE: usize = 1 << 15;

/// How a group is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// How specific its rules are, as in [`Ternaries::levels`].
    pub(super) levels: u32,
    /// Most bits of the index in which a rule may be wild.
    pub(super) max_wild: u32,
    /// Most rules of a leaf.
    pub(super) capacity: usize,
    /// Whether full cells get bits of their own.
    pub(super) has_two_levels: bool,
}

/// The bits of a cell's own, and its first part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub(super) mask: u64,
    pub(super) base: u32,
}

/// Lists of numbers, one after the other.
#[derive(Default)]
pub(super) struct Lists {
    numbers: Vec<u32>,
    ends: Vec<usize>,
}

impl Lists {
    pub(super) fn push(&mut self, list: impl IntoIterator<Item = u32>) {
        self.numbers.extend(list);
        self.ends.push(self.numbers.len());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.numbers[start..end])
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Rules in all lists together.
    pub(super) fn total(&self) -> usize {
        self.numbers.len()
    }
}

/// Rules by cell.
pub(super) struct Group {
    /// The bits that masks are about.
    pub(super) word: Index,
    /// The bits of the word that select the cell.
    pub(super) first: u64,
    pub(super) cells: Vec<Cell>,
    /// The rules of each part, the strongest first, at most as many as a leaf holds.
    pub(super) parts: Lists,
    /// Most rules of a part.
    pub(super) capacity: usize,
    /// The rules that are in some part, and those that are in none; the strongest first.
    pub(super) kept: Vec<u32>,
    pub(super) left_over: Vec<u32>,
}

impl Group {
    /// The group of those `rules` that `settings` let in.
    pub(super) fn new(
        input: &Input<'_>,
        ternaries: &Ternaries,
        rules: &[u32],
        settings: &Settings,
    ) -> Self {
        let is_let_in = |&rule: &u32| settings.levels & !ternaries.levels(rule) == 0;
        let (rules, mut left_over): (Vec<u32>, Vec<u32>) = rules.iter().copied().partition(is_let_in);
        let sample = every(&rules, MAX_SAMPLE);
        let word = Index::new(input.layout(), &ternaries.telling_bits(&sample));
        let out_of = u64::MAX.checked_shr(64 - word.bits() as u32).unwrap_or(0);
        let depth = rules.len().max(2).ilog2();
        let aim = Aim {
            capacity: (settings.capacity * MAX_SAMPLE / rules.len().max(MAX_SAMPLE)).max(1),
            max_bits: MAX_FIRST_BITS.min(if settings.has_two_levels { depth.saturating_sub(3) } else { depth + 1 }),
            max_wild: settings.max_wild,
        };
        let gathered: Vec<Ternary> = rules.iter().map(|&rule| ternaries.gather(rule, &word)).collect();
        let first = select::choose(every(&gathered, MAX_SAMPLE), out_of, &aim);
        let mut build = Build {
            input,
            ternaries,
            rules: &rules,
            gathered: &gathered,
            is_left_over: vec![false; rules.len()],
        };
        let lists = build.first_cells(first, settings.max_wild);
        let mut parts = Lists::default();
        let mut cells = Vec::with_capacity(lists.len());
        let first_fixed = ternaries.fixed(&word, first);
        for list in lists.iter() {
            let base = parts.len() as u32;
            let mut list = list.to_vec();
            build.prune(&mut list, first, &first_fixed);
            let mut mask = 0;
            if list.len() > settings.capacity && settings.has_two_levels {
                let own = list.iter().map(|&member| gathered[member as usize]).collect();
                let aim = Aim { capacity: settings.capacity, max_bits: MAX_CELL_BITS, max_wild: u32::MAX };
                mask = select::choose(own, out_of & !first, &aim);
            }
            if mask == 0 {
                parts.push(list);
            } else {
                let fixed = ternaries.fixed(&word, first | mask);
                for mut part in build.split(&list, mask) {
                    build.prune(&mut part, first | mask, &fixed);
                    parts.push(part);
                }
            }
            cells.push(Cell { mask, base });
        }
        build.leave_overflow(&parts, settings.capacity);
        let is_left_over = build.is_left_over;
        let mut kept = Lists::default();
        for part in parts.iter() {
            let members = part.iter().filter(|&&member| !is_left_over[member as usize]);
            kept.push(members.map(|&member| rules[member as usize]));
        }
        let own = |is_left: bool| {
            let flags = rules.iter().zip(&is_left_over);
            flags.filter(move |&(_, &flag)| flag == is_left).map(|(&rule, _)| rule)
        };
        left_over.extend(own(true));
        left_over.sort_unstable();
        Self {
            word,
            first,
            cells,
            parts: kept,
            capacity: settings.capacity,
            kept: own(false).collect(),
            left_over,
        }
    }
}

/// Every n-th, so that all parts of a list are heard, and at most `most` are.
pub(super) fn every<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    all.iter().copied().step_by(all.len().div_ceil(most).max(1)).collect()
}

/// A group being built. Members are positions in `rules`.
struct Build<'a> {
    input: &'a Input<'a>,
    ternaries: &'a Ternaries,
    rules: &'a [u32],
    gathered: &'a [Ternary],
    is_left_over: Vec<bool>,
}

impl Build<'_> {
    /// The members of each cell of the index; leaves over those that go to too many.
    fn first_cells(&mut self, first: u64, max_wild: u32) -> Lists {
        let mut copies = MAX_COPIES * self.rules.len();
        for (rule, is_left_over) in self.gathered.iter().zip(&mut self.is_left_over) {
            let wild = rule.wild(first);
            *is_left_over = wild > max_wild || 1 << wild > copies;
            if !*is_left_over {
                copies -= 1 << wild;
            }
        }
        let members = (0..self.rules.len() as u32).filter(|&member| !self.is_left_over[member as usize]);
        distribute(members, self.gathered, first)
    }

    /// The members of a cell in each of its parts.
    fn split(&self, members: &[u32], mask: u64) -> Vec<Vec<u32>> {
        distribute(members.iter().copied(), self.gathered, mask).iter().map(<[u32]>::to_vec).collect()
    }

    /// Drops the members that a stronger one covers where the bits `mask` of the word, `fixed` of the key, are fixed.
    fn prune(&self, members: &mut Vec<u32>, mask: u64, fixed: &[u64]) {
        let mut kept = 0;
        for i in 0..members.len() {
            let member = members[i] as usize;
            let rule = self.gathered[member];
            let is_covered = members[..kept.min(MAX_COVERING)].iter().any(|&by| {
                self.gathered[by as usize].covers(rule, mask)
                    && self.ternaries.covers(self.input, self.rules[by as usize], self.rules[member], fixed)
            });
            if !is_covered {
                members[kept] = member as u32;
                kept += 1;
            }
        }
        members.truncate(kept);
    }

    /// Leaves over rules of parts that hold more than a leaf, the least specific first.
    fn leave_overflow(&mut self, parts: &Lists, capacity: usize) {
        for part in parts.iter().filter(|part| part.len() > capacity) {
            let mut members: Vec<u32> =
                part.iter().copied().filter(|&member| !self.is_left_over[member as usize]).collect();
            members.sort_by_key(|&member| self.ternaries.specificity(self.rules[member as usize]));
            for &member in &members[..members.len().saturating_sub(capacity)] {
                self.is_left_over[member as usize] = true;
            }
        }
    }
}

/// The members that go to each combination of the bits `mask`, in their order.
fn distribute(members: impl Iterator<Item = u32> + Clone, gathered: &[Ternary], mask: u64) -> Lists {
    let cells = |member: u32| {
        let rule = gathered[member as usize];
        let (fixed, wild) = (gather(rule.value, mask), gather(!rule.care, mask));
        let mut subset = Some(0u64);
        // All subsets of the wild bits.
        std::iter::from_fn(move || {
            let now = subset?;
            let next = now.wrapping_sub(wild) & wild;
            subset = (next != 0).then_some(next);
            Some((fixed | now) as usize)
        })
    };
    let mut ends = vec![0usize; 1 << mask.count_ones()];
    for member in members.clone() {
        for cell in cells(member) {
            ends[cell] += 1;
        }
    }
    let mut start = 0;
    for end in &mut ends {
        // For now where the list starts.
        start += std::mem::replace(end, start);
    }
    let mut numbers = vec![0; start];
    for member in members {
        for cell in cells(member) {
            numbers[ends[cell]] = member;
            ends[cell] += 1;
        }
    }
    Lists { numbers, ends }
}

impl Group {
    pub(super) fn whole(input: &Input<'_>, rules: Vec<u32>, settings: Settings) -> Self {
        let mut parts = Lists::default();
        parts.push(rules.iter().copied());
        Self { word: Index::new(input.layout(), &[]), first: 0, cells: vec![Cell::default()], parts, capacity: settings.capacity, kept: rules, left_over: Vec::new() }
    }
}
