//! Comparing many rules with one key at once: one rule a lane, one vector instruction or three for each word.
//!
//! A [`Comparison`] is made for a group of rules and says, word by word, the cheapest test that is exact for all of them:
//!
//! | test | when | columns | instructions | holds where |
//! | --- | --- | --- | --- | --- |
//! | none | every rule takes every value | 0 | 0 | always |
//! | common | every rule wants the same bits | 0 | 0 (a few scalar ones a key) | once for all lanes |
//! | `Eq` | every rule wants one value | 1 | 1 | `x = value` |
//! | `Masked` | every rule looks at some bits (prefixes are such) | 2 | 2 | `x & mask = value` |
//! | `Range` | every rule wants an interval | 2 | 3 | `x - lo <= len`, unsigned |
//! | both | intervals and masks are mixed | 4 | 6 | `Range` and `Masked` |
//! | `Halves` | two words of 2 bytes that lie side by side want intervals, in a narrow comparison | 2 | 3 | `Range`, half by half |
//! | `Wide` | an interval that does not fall apart into words | 2 a word | 8 a word | lexicographic |
//!
//! An interval of a wide field falls apart into words where its ends agree in the leading words and the words after the
//! first differing one run over everything, as in a prefix; then each word is tested on its own. `10.0.0.1-10.0.0.9` of a
//! 4-byte field is one `Range`; `2001:db8::1-2001:db8::9` is three common words and one `Range`;
//! `2001:db8::ffff:0-2001:db8::1:0:5` is `Wide`.
//!
//! Bits can be compared in any order of bytes: words of four bytes of which no interval is wanted are taken as they lie in
//! the key, which spares the lanes a shuffle. Their numbers in the table are *reversed* where the key has them big-endian.
//!
//! Lanes without a rule may match anything: whoever uses the mask gives them the row number [`MISS`].

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::field::ByteOrder;
use crate::key::{KeyLayout, Word};
use crate::plan::Machine;
use crate::program::{BinaryOp, Column, CompareOp, Inst, LaneCompareOp, MISS, MaskOp};
use crate::rule::{Match, Rule};
use crate::structure::Cost;
use crate::structure::windows::{Window, windows};
use crate::structure::words::{Summary, WordMatch, falls_apart, summarise, word_match};

/// How words are tested in the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Eq,
    Masked,
    Range,
    /// Two words beside each other, the one of the upper half first. [`Test::words`] has the one word that is both.
    Halves([Word; 2]),
    Wide,
}

/// What a column holds of a word of each rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The bits that count.
    Mask,
    /// What they must be.
    Value,
    /// First value of an interval.
    Lo,
    /// Number of values of an interval, less one.
    Len,
    /// Last value of an interval.
    Hi,
}

/// One test. It has a column for each role of each of its words, word after word.
#[derive(Clone, Debug)]
struct Test {
    kind: Kind,
    field: FieldId,
    /// One word; all words of the field, the most significant first, for `Wide`.
    words: Vec<Word>,
}

impl Test {
    fn roles(&self) -> &'static [Role] {
        match self.kind {
            Kind::Eq => &[Role::Value],
            Kind::Masked => &[Role::Mask, Role::Value],
            Kind::Range | Kind::Halves(_) => &[Role::Lo, Role::Len],
            Kind::Wide => &[Role::Lo, Role::Hi],
        }
    }

    fn columns(&self) -> impl Iterator<Item = (Word, Role)> + '_ {
        self.words
            .iter()
            .flat_map(|&word| self.roles().iter().map(move |&role| (word, role)))
    }

    fn column_count(&self) -> u8 {
        (self.words.len() * self.roles().len()) as u8
    }

    /// Machine instructions for one vector of rules, with joining the mask to what the tests before say.
    fn instructions(&self) -> f64 {
        match self.kind {
            Kind::Eq => 2.0,
            Kind::Masked => 3.0,
            Kind::Range | Kind::Halves(_) => 4.0,
            Kind::Wide => 10.0 * self.words.len() as f64,
        }
    }
}

/// The tests for a group of rules.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    layout: KeyLayout,
    tests: Vec<Test>,
    common: Common,
    /// Whether numbers of narrow words are narrow in the tables too: less memory, one more instruction for each column.
    pub(crate) is_narrow: bool,
}

/// Bits that all rules of a group want to be the same: for each key byte which ones, and what they must be.
#[derive(Clone, Debug)]
struct Common {
    mask: Vec<u8>,
    value: Vec<u8>,
}

/// Most words that stay spread over vector registers from one block of rules to the next; where there are more, each block
/// spreads them again. Leaves 7 of 16 vector registers to the tests themselves.
const MAX_KEPT_WORDS: usize = 9;

/// Rules in the lanes of one row of a table, the strongest first.
pub(crate) struct LaneRules {
    /// The row; its column of row numbers is behind those of the comparison.
    pub(crate) row: ValueId,
    /// The number of lanes, a multiple of `lanes`.
    pub(crate) capacity: u32,
    /// A lane without a rule, whose row number is [`MISS`]: it is found where no lane before it matches.
    pub(crate) none: u32,
    /// Lanes of one vector.
    pub(crate) lanes: u8,
}

/// Words of the key that are spread over all lanes already.
#[derive(Default)]
pub(crate) struct Splats(Vec<(Word, ValueId)>);

impl Splats {
    fn get(&mut self, b: &mut ProgramBuilder, word: Word, lanes: u8) -> ValueId {
        if let Some(&(_, value)) = self.0.iter().find(|(known, _)| *known == word) {
            return value;
        }
        let scalar = b.load_key(word.offset, word.bytes, word.order);
        let value = b.splat(scalar, lanes);
        self.0.push((word, value));
        value
    }
}

impl Comparison {
    /// The cheapest tests that are exact for all `rules`, whose matches are canonical.
    pub(crate) fn new<'a>(
        layout: &KeyLayout,
        rules: impl Iterator<Item = &'a Rule> + Clone,
    ) -> Self {
        let nothing = vec![0; layout.len()];
        let common = Common {
            mask: nothing.clone(),
            value: nothing,
        };
        let mut comparison = Self {
            layout: layout.clone(),
            tests: Vec::new(),
            common,
            is_narrow: false,
        };
        for id in layout.field_ids() {
            let conditions = || rules.clone().map(|rule| &rule.matches[id.index()]);
            let words: Vec<Word> = layout.words(id).collect();
            match summarise(layout.field(id), &words, conditions()) {
                Some(summaries) => {
                    for summary in &summaries {
                        comparison.add_word(summary);
                    }
                }
                None => comparison.add_wide(id, conditions()),
            }
        }
        comparison
    }

    /// The same with numbers as narrow as words are: less memory, and two narrow words beside each other are one test.
    pub(crate) fn narrow<'a>(
        layout: &KeyLayout,
        rules: impl Iterator<Item = &'a Rule> + Clone,
    ) -> Self {
        let mut comparison = Self::new(layout, rules.clone());
        comparison.is_narrow = true;
        let is_interval = |word: Word| {
            let field = layout.field(word.field);
            let wanted = |rule: &Rule| word_match(field, word, &rule.matches[word.field.index()]);
            let mut wanted = rules.clone().map(wanted);
            wanted.all(|wanted| wanted.is_interval(word.max()))
        };
        // The word of the only test of a field of 2 bytes, if its rules want intervals.
        let half = |test: &Test| match (test.kind, &test.words[..]) {
            (Kind::Eq | Kind::Masked | Kind::Range, &[word])
                if word.bytes == 2
                    && layout.field(word.field).bytes() == 2
                    && is_interval(word) =>
            {
                Some(word)
            }
            _ => None,
        };
        let mut at = 0;
        while let Some([one, other]) = comparison.tests.get(at..at + 2) {
            let both =
                (half(one).zip(half(other))).and_then(|(one, other)| side_by_side(one, other));
            if let Some((word, halves)) = both {
                comparison.tests.remove(at);
                comparison.tests[at] = Test {
                    kind: Kind::Halves(halves),
                    field: word.field,
                    words: vec![word],
                };
            }
            at += 1;
        }
        comparison
    }

    fn add(&mut self, kind: Kind, field: FieldId, words: Vec<Word>) {
        self.tests.push(Test { kind, field, words });
    }

    fn add_word(&mut self, summary: &Summary) {
        let word = summary.word;
        if summary.is_any {
            return;
        }
        if let Some(wanted) = summary.common()
            && self.common.add(word, wanted)
        {
            return;
        }
        if summary.is_exact {
            self.add(Kind::Eq, word.field, vec![as_it_lies(word)]);
            return;
        }
        if summary.is_bits {
            self.add(Kind::Masked, word.field, vec![as_it_lies(word)]);
            return;
        }
        self.add(Kind::Range, word.field, vec![word]);
        if !summary.is_interval {
            self.add(Kind::Masked, word.field, vec![word]);
        }
    }

    fn add_wide<'a>(&mut self, id: FieldId, mut conditions: impl Iterator<Item = &'a Match>) {
        // The ends of a mask let through values between them that it does not match.
        if conditions.any(|condition| matches!(condition, Match::Mask { .. })) {
            for word in self.layout.words(id) {
                self.add(Kind::Masked, id, vec![word]);
            }
        }
        let words = self.layout.words(id).collect();
        self.add(Kind::Wide, id, words);
    }

    /// Columns of a row that holds `capacity` rules, without the one for row numbers.
    pub(crate) fn columns(&self, capacity: u32) -> Vec<Column> {
        let all = self.tests.iter().flat_map(Test::columns);
        let column = |(word, role): (Word, Role)| {
            let bytes = self.number_bytes(word);
            Column {
                name: self.column_name(&word, role).into(),
                offset: 0,
                bytes,
                count: capacity,
                max: u64::MAX >> (64 - 8 * u32::from(bytes)),
                is_result: false,
            }
        };
        let mut columns: Vec<Column> = all.map(column).collect();
        // Wide numbers come first, so that their vectors do not straddle cache lines.
        let mut end = 0;
        for bytes in [4, 2, 1] {
            for column in columns.iter_mut().filter(|column| column.bytes == bytes) {
                column.offset = end;
                end += capacity * u32::from(bytes);
            }
        }
        columns
    }

    fn number_bytes(&self, word: Word) -> u8 {
        if self.is_narrow { word.bytes } else { 4 }
    }

    /// Bytes of the numbers of one rule.
    pub(crate) fn rule_bytes(&self) -> u32 {
        let columns = self.tests.iter().flat_map(Test::columns);
        columns
            .map(|(word, _)| u32::from(self.number_bytes(word)))
            .sum()
    }

    fn column_name(&self, word: &Word, role: Role) -> String {
        let field = self.layout.field(word.field);
        let role = match role {
            Role::Mask => "mask",
            Role::Value => "value",
            Role::Lo => "lo",
            Role::Len => "len",
            Role::Hi => "hi",
        };
        let reversed = if self.is_reversed(word) {
            " reversed"
        } else {
            ""
        };
        if word.bytes == field.bytes() {
            format!("{}{reversed} {role}", field.name())
        } else {
            format!("{}>>{}{reversed} {role}", field.name(), word.shift)
        }
    }

    /// Whether the bytes of a word are taken in the other order than that of its field.
    fn is_reversed(&self, word: &Word) -> bool {
        word.order != self.layout.field(word.field).byte_order()
    }

    /// The number of columns.
    pub(crate) fn column_count(&self) -> u32 {
        self.tests
            .iter()
            .map(|test| u32::from(test.column_count()))
            .sum()
    }

    /// The numbers of `rule` for the columns, in their order.
    pub(crate) fn numbers(&self, rule: &Rule, out: &mut Vec<u32>) {
        for test in &self.tests {
            if let Kind::Halves(halves) = test.kind {
                let wanted = halves.map(|word| {
                    let condition = &rule.matches[word.field.index()];
                    word_match(self.layout.field(word.field), word, condition)
                });
                let both = |[high, low]: [u64; 2]| (high << 16 | low) as u32;
                out.push(both(wanted.map(|half| half.lo)));
                out.push(both(wanted.map(|half| half.hi - half.lo)));
                continue;
            }
            let condition = &rule.matches[test.field.index()];
            let field = self.layout.field(test.field);
            let ends = (condition.lower(field), condition.upper(field));
            let words = self.layout.words(test.field);
            let is_split = test.kind != Kind::Wide && falls_apart(field, words, condition);
            for (word, role) in test.columns() {
                let wanted = if test.kind == Kind::Wide {
                    WordMatch {
                        lo: word.of(ends.0),
                        hi: word.of(ends.1),
                        mask: 0,
                        value: 0,
                    }
                } else if is_split {
                    word_match(field, word, condition)
                } else {
                    // What does not fall apart into words has a `Wide` test beside this one.
                    WordMatch::any(word.max())
                };
                let number = match role {
                    Role::Mask => wanted.mask,
                    Role::Value => wanted.value,
                    Role::Lo => wanted.lo,
                    Role::Len => wanted.hi - wanted.lo,
                    Role::Hi => wanted.hi,
                };
                // A word of at most 4 bytes, and of 4 if it is reversed.
                let number = number as u32;
                out.push(if self.is_reversed(&word) {
                    number.swap_bytes()
                } else {
                    number
                });
            }
        }
    }

    /// The words that have to be spread over the lanes.
    fn spread(&self) -> Vec<&Word> {
        let mut words: Vec<&Word> = self.tests.iter().flat_map(|test| &test.words).collect();
        words.dedup();
        words
    }

    /// The number of words that have to be spread over the lanes.
    pub(crate) fn words(&self) -> usize {
        self.spread().len()
    }

    /// Whether the words stay in registers from one block of rules to the next.
    pub(crate) fn keeps_words(&self) -> bool {
        self.words() <= MAX_KEPT_WORDS
    }

    /// Spreads all words that [`emit`](Self::emit) needs in the current block.
    pub(crate) fn splat_all(&self, b: &mut ProgramBuilder, lanes: u8, splats: &mut Splats) {
        for &word in self.tests.iter().flat_map(|test| &test.words) {
            splats.get(b, word, lanes);
        }
    }

    /// Emits the tests of the rules `first..first + lanes` of a row; yields the mask of those that match in all tests, or
    /// `None` where there is nothing to test.
    pub(crate) fn emit(
        &self,
        b: &mut ProgramBuilder,
        row: ValueId,
        first: u16,
        lanes: u8,
        splats: &mut Splats,
    ) -> Option<ValueId> {
        let mut own = Splats::default();
        let splats = if self.keeps_words() { splats } else { &mut own };
        let mut column = 0;
        let mut mask: Option<ValueId> = None;
        for test in &self.tests {
            let xs: Vec<ValueId> = test
                .words
                .iter()
                .map(|&word| splats.get(b, word, lanes))
                .collect();
            let load = |b: &mut ProgramBuilder, i: u8| b.load_lanes(row, column + i, first, lanes);
            let hit = match test.kind {
                Kind::Eq => {
                    let value = load(b, 0);
                    b.compare_lanes(LaneCompareOp::Eq, xs[0], value)
                }
                Kind::Masked => {
                    let (mask, value) = (load(b, 0), load(b, 1));
                    b.inst(Inst::MaskedEqLanes {
                        x: xs[0],
                        mask,
                        value,
                    })
                }
                Kind::Range => {
                    let (lo, len) = (load(b, 0), load(b, 1));
                    b.inst(Inst::InRangeLanes { x: xs[0], lo, len })
                }
                Kind::Halves(_) => {
                    let (lo, len) = (load(b, 0), load(b, 1));
                    b.inst(Inst::InRangeHalves { x: xs[0], lo, len })
                }
                Kind::Wide => {
                    let [lo, hi] = [End::Lo, End::Hi].map(|end| {
                        lexicographic(b, &xs, end, |b, word| load(b, 2 * word as u8 + end as u8))
                    });
                    b.combine_masks(MaskOp::And, lo, hi)
                }
            };
            mask = Some(mask.map_or(hit, |mask| b.combine_masks(MaskOp::And, mask, hit)));
            column += test.column_count();
        }
        mask
    }

    /// Emits the scalar test of the common bits: a scalar that is 0 where they are all as they should be, or `None` where
    /// there are none.
    pub(crate) fn emit_common(&self, b: &mut ProgramBuilder) -> Option<ValueId> {
        let mut differing: Option<ValueId> = None;
        for window in self.common.windows() {
            let mut x = window.emit(b, &self.common.mask);
            let value = window.read(&self.common.value);
            if value != 0 {
                x = b.binary_const(BinaryOp::Xor, x, value);
            }
            differing = Some(differing.map_or(x, |before| b.binary(BinaryOp::Or, before, x)));
        }
        differing
    }

    /// Emits the tests of all rules of a row; yields the row number of the first that matches. `differing` is what
    /// [`emit_common`](Self::emit_common) yielded: that goes first, while few other scalars are alive.
    pub(crate) fn emit_first(
        &self,
        b: &mut ProgramBuilder,
        differing: Option<ValueId>,
        rules: &LaneRules,
        splats: &mut Splats,
    ) -> ValueId {
        let LaneRules {
            row,
            capacity,
            none,
            lanes,
        } = *rules;
        let mut bits: Option<ValueId> = None;
        for first in (0..capacity).step_by(lanes.into()) {
            let more = match self.emit(b, row, first as u16, lanes, splats) {
                Some(mask) => b.lane_bits(mask),
                // Nothing to test: every rule matches.
                None => b.constant(1),
            };
            let more = b.shl(more, first as u8);
            bits = Some(bits.map_or(more, |bits| b.binary(BinaryOp::Or, bits, more)));
        }
        let bits = bits.unwrap_or_else(|| b.constant(0));
        let bits = Self::emit_unless_differing(b, differing, bits, 0);
        let bits = b.binary_const(BinaryOp::Or, bits, 1 << none);
        let lane = b.first_bit(bits);
        b.load(row, self.column_count() as u8, Some(lane))
    }

    /// Compares the vector of rules at number `first` of `row`, and takes the rows of verdicts of those that match into the
    /// running minimum `least`; yields the new one.
    pub(crate) fn emit_min(
        &self,
        b: &mut ProgramBuilder,
        (row, first): (ValueId, u16),
        lanes: u8,
        splats: &mut Splats,
        least: ValueId,
    ) -> ValueId {
        let mask = self.emit(b, row, first, lanes, splats);
        let rows = b.load_lanes(row, self.column_count() as u8, first, lanes);
        // Where there is nothing to test every rule matches.
        let mask = mask.unwrap_or_else(|| b.compare_lanes(LaneCompareOp::Eq, rows, rows));
        b.inst(Inst::MaskedMin {
            acc: least,
            mask,
            x: rows,
        })
    }

    /// `found` where the common bits are as they should be, else `otherwise`.
    pub(crate) fn emit_unless_differing(
        b: &mut ProgramBuilder,
        differing: Option<ValueId>,
        found: ValueId,
        otherwise: u64,
    ) -> ValueId {
        let Some(differing) = differing else {
            return found;
        };
        let zero = b.constant(0);
        let is_same = b.compare(CompareOp::Eq, differing, zero);
        let otherwise = b.constant(otherwise);
        b.select(is_same, found, otherwise)
    }

    /// What testing one vector of rules costs.
    pub(crate) fn block_cost(&self, machine: &Machine) -> Cost {
        Cost {
            instructions: machine.on_lanes(self.block_instructions()),
            ..Cost::default()
        }
    }

    /// Machine instructions that test one vector of rules.
    pub(crate) fn block_instructions(&self) -> f64 {
        let columns = self.tests.iter().flat_map(Test::columns);
        let widened = columns.filter(|&(word, _)| self.number_bytes(word) < 4);
        let tests: f64 = self.tests.iter().map(Test::instructions).sum();
        tests + widened.count() as f64
    }

    /// What is paid for a key and its `blocks` blocks of rules: spreading the words, testing the common bits.
    pub(crate) fn key_cost(&self, blocks: f64) -> Cost {
        let spreads = if self.keeps_words() { 1.0 } else { blocks };
        let windows = self.common.windows().count() as f64;
        let common = if windows > 0.0 {
            3.0 * windows + 2.0
        } else {
            0.0
        };
        let words = self.spread().into_iter().map(|&word| {
            // A broadcast, and a shuffle of what does not lie there as lanes have it.
            if word.bytes == 4 && word.order == ByteOrder::Little {
                1.0
            } else {
                2.0
            }
        });
        let instructions = spreads * words.sum::<f64>() + common;
        Cost {
            instructions,
            ..Cost::default()
        }
    }
}

/// The word without regard to the order of its bytes where a lane has no room for others.
fn as_it_lies(word: Word) -> Word {
    match word.bytes {
        4 => Word {
            order: ByteOrder::Little,
            ..word
        },
        _ => word,
    }
}

/// The word of 4 bytes that two words of 2 bytes make, and these, the one of its upper half first; `None` where they do not
/// lie side by side in the same order of bytes.
fn side_by_side(one: Word, other: Word) -> Option<(Word, [Word; 2])> {
    let (first, second) = if one.offset < other.offset {
        (one, other)
    } else {
        (other, one)
    };
    if first.offset + 2 != second.offset || first.order != second.order {
        return None;
    }
    let halves = match first.order {
        ByteOrder::Big => [first, second],
        ByteOrder::Little => [second, first],
    };
    let both = Word { bytes: 4, ..first };
    Some((both, halves))
}

impl Common {
    /// Adds what all rules want of a word, unless that contradicts what they want of an overlapping field: then no key
    /// matches, and the lanes have to find that out.
    fn add(&mut self, word: Word, wanted: WordMatch) -> bool {
        let bytes = (0..word.bytes).map(|i| {
            let shift = match word.order {
                ByteOrder::Big => 8 * (word.bytes - 1 - i),
                ByteOrder::Little => 8 * i,
            };
            let mask = (wanted.mask >> shift) as u8;
            (mask, (wanted.value >> shift) as u8 & mask)
        });
        let start = usize::from(word.offset);
        let known = self.mask[start..].iter_mut().zip(&mut self.value[start..]);
        let mut slots: Vec<_> = bytes.zip(known).collect();
        let contradicts = |((mask, value), known): &((u8, u8), (&mut u8, &mut u8))| {
            (value ^ *known.1) & mask & *known.0 != 0
        };
        if slots.iter().any(contradicts) {
            return false;
        }
        for ((mask, value), known) in &mut slots {
            *known.0 |= *mask;
            *known.1 |= *value;
        }
        true
    }

    fn windows(&self) -> impl Iterator<Item = Window> {
        windows(self.mask.iter().copied())
    }
}

/// An end of an interval, and the position of its column among the two of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Lo = 0,
    Hi = 1,
}

/// Where the number of the words `xs`, the most significant first, is not beyond the end of its interval.
///
/// From the last word to the first: a word that is within its end decides, unless it is equal to it; then the words after
/// it decide. `m = within & !(equal & !m)`.
pub(crate) fn lexicographic(
    b: &mut ProgramBuilder,
    xs: &[ValueId],
    end: End,
    mut load: impl FnMut(&mut ProgramBuilder, usize) -> ValueId,
) -> ValueId {
    let mut test = |b: &mut ProgramBuilder, word: usize, rest: Option<ValueId>| {
        let limit = load(b, word);
        let (small, large) = if end == End::Lo {
            (limit, xs[word])
        } else {
            (xs[word], limit)
        };
        let within = b.compare_lanes(LaneCompareOp::Le, small, large);
        let Some(rest) = rest else { return within };
        let equal = b.compare_lanes(LaneCompareOp::Eq, xs[word], limit);
        let fails = b.combine_masks(MaskOp::AndNot, equal, rest);
        b.combine_masks(MaskOp::AndNot, within, fails)
    };
    let last = xs.len() - 1;
    let decided = test(b, last, None);
    (0..last)
        .rev()
        .fold(decided, |rest, word| test(b, word, Some(rest)))
}

/// The column of row numbers of a row that holds `capacity` rules, after `columns` other columns.
pub(crate) fn result_column(columns: u32, capacity: u32, count: u32) -> Column {
    Column {
        name: "row".into(),
        offset: columns * capacity * 4,
        bytes: 4,
        count,
        max: MISS.into(),
        is_result: true,
    }
}
