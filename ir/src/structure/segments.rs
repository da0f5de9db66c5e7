//! Rules that differ in one field, flattened: every value of the field belongs to one segment, and a segment has one result.
//!
//! ```text
//! rules, the strongest first   5-9 -> 0    0-99 -> 1    200-255 -> 2           a field of one byte
//! segments, by last value      4 -> 1 | 9 -> 0 | 99 -> 1 | 199 -> miss | 255 -> 2
//! ```
//!
//! Priorities, overlaps and nesting are gone then: n rules are at most 2 n + 1 segments, found by one sweep over the values
//! with a heap of the rules that hold there, in n log n steps. What remains is the search of a number among sorted ones.
//!
//! A segment is known by its *last* value, since the first segment whose last value is not below x is then the one that x is
//! in: a comparison and a first set bit.
//!
//! **Prefix.** Where nothing matches outside an aligned block of values, the segments are those of the block alone, and the
//! leading bits that all its values have are compared once ([`Common`]). So are the bits that all rules want of other fields.
//!
//! **Classes.** [`classes`](crate::structure::classes) makes segments of a field of its own, with the number of a class as
//! the result of each ([`Segments::of_classes`]). Then every segment has one, and nothing is known of other fields.
//!
//! Invariants: segments are sorted, there is at least one, neighbours differ in their results, the last one ends with the block.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::field::Field;
use crate::key::{KeyLayout, Word};
use crate::program::{Column, MISS, Program};
use crate::rule::{Match, prefix_mask};
use crate::structure::common::Common;
use crate::structure::compare::{Comparison, result_column};
use crate::structure::{Cost, Input, Refusal};

/// The segments of the field in which rules differ.
pub(crate) struct Segments {
    field: FieldId,
    /// Bits that all rules want of the other fields.
    settled: Vec<Wanted>,
    /// The leading bits of the field that are the same in all values of the block.
    prefix_bits: u8,
    lasts: Vec<u128>,
    rows: Vec<u32>,
    /// How many classes there are, where `rows` are numbers of classes.
    classes: Option<u32>,
    words: Vec<Word>,
}

/// Bits of a field, and what they must be.
struct Wanted {
    field: FieldId,
    mask: u128,
    value: u128,
}

impl Segments {
    /// Flattens the rules.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Refusal> {
        let layout = input.layout();
        if input.rows.is_empty() {
            return Ok(Self {
                field: FieldId::new(0),
                settled: Vec::new(),
                prefix_bits: 0,
                lasts: vec![layout.field(FieldId::new(0)).max()],
                rows: vec![MISS],
                classes: None,
                words: Vec::new(),
            });
        }
        let name = |id: FieldId| -> Box<str> { layout.field(id).name().into() };
        let conditions =
            |id: FieldId| (input.rows.iter()).map(move |&row| &input.rule(row).matches[id.index()]);
        let settled = |id: FieldId| {
            let first = conditions(id).next()?;
            let mask = first.care(layout.field(id))?;
            let value = first.lower(layout.field(id));
            let wanted = Wanted {
                field: id,
                mask,
                value,
            };
            conditions(id).all(|other| other == first).then_some(wanted)
        };
        let mut ranged = layout.field_ids().filter(|&id| settled(id).is_none());
        let field = ranged.next().unwrap_or(FieldId::new(0));
        if let Some(other) = ranged.next() {
            return Err(Refusal::TwoRangedFields {
                first: name(field),
                second: name(other),
            });
        }
        if conditions(field).any(|condition| matches!(condition, Match::Mask { .. })) {
            return Err(Refusal::NotAnInterval { field: name(field) });
        }
        let others = layout.field_ids().filter(|&id| id != field);
        let settled = others.filter_map(settled).collect();
        let ends = |condition: &Match| {
            let field = layout.field(field);
            (condition.lower(field), condition.upper(field))
        };
        let (lasts, rows) = flatten(
            conditions(field).map(ends),
            &input.rows,
            layout.field(field).max(),
        );
        let mut segments = Self {
            field,
            settled,
            prefix_bits: 0,
            lasts,
            rows,
            classes: None,
            words: Vec::new(),
        };
        segments.strip_prefix(layout.field(field));
        segments.choose_words(layout);
        Ok(segments)
    }

    /// Segments of all values of a field, each with its class, out of so many.
    pub(crate) fn of_classes(
        layout: &KeyLayout,
        field: FieldId,
        lasts: Vec<u128>,
        of_segment: Vec<u32>,
        classes: u32,
    ) -> Self {
        let mut segments = Self {
            field,
            settled: Vec::new(),
            prefix_bits: 0,
            lasts,
            rows: of_segment,
            classes: Some(classes),
            words: Vec::new(),
        };
        segments.choose_words(layout);
        segments
    }

    /// Leaves out what lies outside the smallest aligned block of values with all that match.
    fn strip_prefix(&mut self, field: &Field) {
        let count = self.rows.len();
        let first = if self.rows[0] == MISS {
            self.lasts[0].wrapping_add(1)
        } else {
            0
        };
        let last = if self.rows[count - 1] == MISS && count > 1 {
            self.lasts[count - 2]
        } else {
            field.max()
        };
        let varying_bits = 128 - (first ^ last).leading_zeros() as u8;
        self.prefix_bits = field.bits() - varying_bits;
        let wild = field.max() & !prefix_mask(field, self.prefix_bits);
        let (block_first, block_last) = (first & !wild, first | wild);
        let start = self.lasts.partition_point(|&last| last < block_first);
        let end = self.lasts.partition_point(|&last| last < block_last) + 1;
        self.lasts.truncate(end);
        self.lasts[end - 1] = block_last;
        self.rows.truncate(end);
        self.lasts.drain(..start);
        self.rows.drain(..start);
    }

    /// Leaves out the words inside the prefix, and those at the end that are all ones in every last value, as for prefixes.
    fn choose_words(&mut self, layout: &KeyLayout) {
        let free_bits = layout.field(self.field).bits() - self.prefix_bits;
        let is_free = |word: &Word| word.shift < free_bits;
        let mut words: Vec<Word> = layout.words(self.field).filter(is_free).collect();
        let is_all_ones = |word: &Word| self.lasts.iter().all(|&last| word.of(last) == word.max());
        while words.pop_if(|word| is_all_ones(word)).is_some() {}
        self.words = words;
    }

    /// The number of segments.
    pub(crate) fn len(&self) -> usize {
        self.lasts.len()
    }

    /// The last value of each segment.
    pub(crate) fn lasts(&self) -> &[u128] {
        &self.lasts
    }

    /// The row of each segment, or [`MISS`]; or its class.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The column of the rows or classes of `width` segments, behind `columns` others as wide.
    pub(crate) fn result_column(&self, columns: u32, width: u32) -> Column {
        let rows = result_column(columns, width, width);
        match self.classes {
            None => rows,
            Some(classes) => Column {
                name: "class".into(),
                max: u64::from(classes) - 1,
                is_result: false,
                ..rows
            },
        }
    }

    /// The field.
    pub(crate) fn field(&self) -> FieldId {
        self.field
    }

    /// The leading bits of the field that need not be looked at to tell segments apart.
    pub(crate) fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    /// The words of the field that tell segments apart, the most significant first. There is none for a single segment.
    pub(crate) fn words(&self) -> &[Word] {
        &self.words
    }

    /// What all rules want alike.
    fn common(&self, layout: &KeyLayout) -> Common {
        let mut common = Common::new(layout.len());
        let prefix = prefix_mask(layout.field(self.field), self.prefix_bits);
        common.want_field(layout, self.field, prefix, self.lasts[0]);
        for wanted in &self.settled {
            common.want_field(layout, wanted.field, wanted.mask, wanted.value);
        }
        common
    }

    /// What comparing the common bits costs: that, and a choice between the result and a miss.
    pub(crate) fn common_cost(&self, layout: &KeyLayout) -> Cost {
        let compared = self.common(layout).instructions();
        Cost {
            instructions: if compared > 0.0 { compared + 2.0 } else { 0.0 },
            ..Cost::default()
        }
    }

    /// Ends a program that has found the row of a segment.
    pub(crate) fn finish(
        &self,
        input: &Input<'_>,
        mut b: ProgramBuilder,
        found: ValueId,
    ) -> Program {
        let layout = input.layout();
        let differing = self.common(layout).emit(&mut b);
        let found = Comparison::emit_unless_differing(&mut b, differing, found, MISS.into());
        input.finish(b, found)
    }
}

/// The last value and the row of each segment of the values up to `max`; `intervals` are those of `rows`.
fn flatten(
    intervals: impl Iterator<Item = (u128, u128)>,
    rows: &[u32],
    max: u128,
) -> (Vec<u128>, Vec<u32>) {
    let with_rank = (0u32..).zip(intervals);
    let mut by_first: Vec<(u128, u32, u128)> = with_rank
        .map(|(rank, (first, last))| (first, rank, last))
        .collect();
    by_first.sort_unstable();
    let mut starting = by_first.into_iter().peekable();
    let mut lasts: Vec<u128> = Vec::new();
    let mut results: Vec<u32> = Vec::new();
    // The rules that hold at `at`, the strongest on top, and some that have ended below it.
    let mut holding: BinaryHeap<Reverse<(u32, u128)>> = BinaryHeap::new();
    let mut at = 0;
    loop {
        while let Some((_, rank, last)) = starting.next_if(|&(first, ..)| first <= at) {
            holding.push(Reverse((rank, last)));
        }
        while holding.peek().is_some_and(|&Reverse((_, last))| last < at) {
            holding.pop();
        }
        let (row, end) = match holding.peek() {
            Some(&Reverse((rank, last))) => (rows[rank as usize], last),
            None => (MISS, max),
        };
        // Whoever starts next starts above `at`.
        let last = starting
            .peek()
            .map_or(end, |&(first, ..)| end.min(first - 1));
        if results.last() == Some(&row) {
            lasts.pop();
        } else {
            results.push(row);
        }
        lasts.push(last);
        if last == max {
            return (lasts, results);
        }
        at = last + 1;
    }
}
