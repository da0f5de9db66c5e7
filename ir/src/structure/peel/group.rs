//! A rule group: the rules that one index of key bits can tell apart, and the lists of rules that its cells hold.
//!
//! A rule goes to every cell that a key which it matches can select, except to those where a stronger rule of the same cell
//! matches whatever it matches: that rule is compared in this group or in a later one, and wins. Rules that would be copied
//! too often, or that find a cell full, are left over as a whole, for the next group.

use super::select::{self, Aim};
use super::ternary::Ternaries;
use crate::structure::Input;
use crate::structure::bits::{Gather, Index, Ternary, subsets};
use crate::structure::lists::Lists;

/// Copies of rules in all cells together, per rule, that are allowed.
const MAX_COPIES: usize = 8;
/// Rules of a cell that are asked whether they cover another one.
const MAX_COVERING: usize = 64;
/// Units of work for a rule in a cell: it is placed, compared with others, and shares a leaf.
const WORK_PER_COPY: usize = 32;
/// Rules that bits are chosen by.
const MAX_SAMPLE: usize = 1 << 12;

/// How a group is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// How specific its rules are, see [`Ternaries::is_specific`].
    pub(super) levels: u32,
    /// Most bits of the index in which a rule may be wild.
    pub(super) max_wild: u32,
    /// Most bits of the index.
    pub(super) max_bits: usize,
    /// Vectors of rules that a leaf holds.
    pub(super) blocks: usize,
}

/// Rules by cell.
pub(super) struct Group {
    /// The bits of the key that number the cells.
    pub(super) index: Index,
    /// The rules of each cell, the strongest first, at most `capacity`.
    pub(super) cells: Lists<u32>,
    /// Most rules of a cell.
    pub(super) capacity: usize,
    /// The rules that are in some cell, and those that are in none; the strongest first.
    pub(super) kept: Vec<u32>,
    pub(super) left_over: Vec<u32>,
}

impl Group {
    /// The group of those `rules` that `settings` let in, with an index out of the bits of `word`: those that are `known` to be
    /// the best, or what is chosen now.
    pub(super) fn new(
        input: &Input<'_>,
        ternaries: &Ternaries,
        rules: &[u32],
        word: &Index,
        settings: &Settings,
        known: Option<u64>,
    ) -> Self {
        let is_let_in = |&rule: &u32| ternaries.is_specific(rule, settings.levels);
        let (rules, mut left_over): (Vec<u32>, Vec<u32>) =
            rules.iter().copied().partition(is_let_in);
        let gathered: Vec<Ternary> = rules
            .iter()
            .map(|&rule| ternaries.gather(rule, word))
            .collect();
        let lanes = usize::from(input.machine.lanes);
        let mask = known.unwrap_or_else(|| {
            let sample = every(&gathered, MAX_SAMPLE);
            let aim = Aim {
                capacity: (lanes * sample.len() / rules.len().max(1)).max(1),
                max_bits: settings.max_bits,
                max_wild: settings.max_wild,
            };
            let steps = select::choose(sample, all_bits(word), &aim, &input.work).steps;
            steps.last().map_or(0, |step| step.mask)
        });

        let mut build = Build {
            input,
            ternaries,
            rules: &rules,
            gathered: &gathered,
            is_left_over: vec![false; rules.len()],
        };
        let capacity = settings.blocks * lanes;
        let cells = build.cells(mask, settings.max_wild);
        let cells = build.prune_all(&cells, mask, &ternaries.fixed(word, mask));
        build.leave_overflow(&cells, capacity);
        let is_left_over = build.is_left_over;
        let mut kept = Lists::default();
        for cell in cells.iter() {
            let members = cell
                .iter()
                .filter(|&&member| !is_left_over[member as usize]);
            kept.push(members.map(|&member| rules[member as usize]));
        }
        let own = |is_left: bool| {
            let flags = rules.iter().zip(&is_left_over);
            flags
                .filter(move |&(_, &flag)| flag == is_left)
                .map(|(&rule, _)| rule)
        };
        left_over.extend(own(true));
        left_over.sort_unstable();
        let bits = word.order().iter().enumerate();
        let bits = bits
            .filter(|(i, _)| mask >> i & 1 == 1)
            .map(|(_, &bit)| bit);
        Self {
            index: Index::new(input.layout(), &bits.collect::<Vec<_>>()),
            cells: kept,
            capacity,
            kept: own(false).collect(),
            left_over,
        }
    }
}

/// The bits of `word`.
pub(super) fn all_bits(word: &Index) -> u64 {
    u64::MAX.checked_shr(64 - word.bits() as u32).unwrap_or(0)
}

/// Every n-th, so that all parts of a list are heard, and at most `most` are.
pub(super) fn every<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    all.iter()
        .copied()
        .step_by(all.len().div_ceil(most).max(1))
        .collect()
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
    /// The members of each cell; leaves over those that go to too many.
    fn cells(&mut self, mask: u64, max_wild: u32) -> Lists<u32> {
        let mut copies = MAX_COPIES * self.rules.len();
        for (rule, is_left_over) in self.gathered.iter().zip(&mut self.is_left_over) {
            let wild = rule.wild(mask);
            *is_left_over = wild > max_wild || 1 << wild > copies;
            if !*is_left_over {
                copies -= 1 << wild;
            }
        }
        let placed = MAX_COPIES * self.rules.len() - copies;
        self.input
            .work
            .spend(WORK_PER_COPY * placed + (1 << mask.count_ones()));
        let members = 0..self.rules.len() as u32;
        let members = members.filter(|&member| !self.is_left_over[member as usize]);
        distribute(members, self.gathered, mask)
    }

    /// The cells without the members that never win there.
    fn prune_all(&self, cells: &Lists<u32>, mask: u64, fixed: &[u64]) -> Lists<u32> {
        let mut pruned = Lists::default();
        let mut members = Vec::new();
        for cell in cells.iter() {
            members.clear();
            members.extend_from_slice(cell);
            self.prune(&mut members, mask, fixed);
            pruned.push(members.iter().copied());
        }
        pruned
    }

    /// Drops the members that a stronger one covers where the bits `mask` of the word, `fixed` of the key, are fixed.
    fn prune(&self, members: &mut Vec<u32>, mask: u64, fixed: &[u64]) {
        let mut kept = 0;
        for i in 0..members.len() {
            let member = members[i] as usize;
            let rule = self.gathered[member];
            let is_covered = members[..kept.min(MAX_COVERING)].iter().any(|&by| {
                self.gathered[by as usize].covers(rule, mask)
                    && self.ternaries.covers(
                        self.input,
                        self.rules[by as usize],
                        self.rules[member],
                        fixed,
                    )
            });
            if !is_covered {
                members[kept] = member as u32;
                kept += 1;
            }
        }
        members.truncate(kept);
    }

    /// Leaves over rules of cells that hold more than a leaf, the least specific first.
    fn leave_overflow(&mut self, cells: &Lists<u32>, capacity: usize) {
        for cell in cells.iter().filter(|cell| cell.len() > capacity) {
            let mut members: Vec<u32> = cell
                .iter()
                .copied()
                .filter(|&member| !self.is_left_over[member as usize])
                .collect();
            members.sort_by_key(|&member| self.ternaries.specificity(self.rules[member as usize]));
            for &member in &members[..members.len().saturating_sub(capacity)] {
                self.is_left_over[member as usize] = true;
            }
        }
    }
}

/// The members that go to each combination of the bits `mask`, in their order.
fn distribute(
    members: impl Iterator<Item = u32> + Clone,
    gathered: &[Ternary],
    mask: u64,
) -> Lists<u32> {
    let gather = Gather::new(mask);
    let cells = |member: u32| {
        let rule = gathered[member as usize];
        let fixed = gather.of(rule.value);
        subsets(gather.of(!rule.care)).map(move |wild| (fixed | wild) as usize)
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
    Lists::new(numbers, ends)
}
