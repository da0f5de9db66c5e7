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
//! | `Both` | intervals and masks are mixed | 4 | 6 | both of the above |
//! | `Wide` | an interval that does not fall apart into words | 2 a word | 8 a word | lexicographic |
//!
//! An interval of a wide field falls apart into words where its ends agree in the leading words and the words after the
//! first differing one run over everything, as in a prefix; then each word is tested on its own. `10.0.0.1-10.0.0.9` of a
//! 4-byte field is one `Range`; `2001:db8::1-2001:db8::9` is three common words and one `Range`;
//! `2001:db8::ffff:0-2001:db8::1:0:5` is `Wide`.
//!
//! Lanes without a rule may match anything: whoever uses the mask gives them the row number [`MISS`].

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::field::ByteOrder;
use crate::key::{KeyLayout, Word};
use crate::program::{BinaryOp, Column, CompareOp, Inst, LaneCompareOp, MISS, MaskOp};
use crate::rule::{Match, Rule};
use crate::structure::Cost;

/// What one rule wants of one word: an interval, and bits. One of the two is trivial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WordMatch {
    lo: u32,
    hi: u32,
    mask: u32,
    value: u32,
}

impl WordMatch {
    fn interval(lo: u32, hi: u32, max: u32) -> Self {
        let varying = lo ^ hi;
        // An aligned block is a set of bits as well.
        if varying & varying.wrapping_add(1) == 0 && lo & varying == 0 {
            Self {
                lo,
                hi,
                mask: max & !varying,
                value: lo,
            }
        } else {
            Self {
                lo,
                hi,
                mask: 0,
                value: 0,
            }
        }
    }

    fn bits(mask: u32, value: u32, max: u32) -> Self {
        let wild = max & !mask;
        if wild & wild.wrapping_add(1) == 0 {
            Self::interval(value, value | wild, max)
        } else {
            Self {
                lo: 0,
                hi: max,
                mask,
                value,
            }
        }
    }

    fn is_any(&self, max: u32) -> bool {
        self.lo == 0 && self.hi == max && self.mask == 0
    }

    fn is_exact(&self) -> bool {
        self.lo == self.hi
    }

    /// Whether `mask` and `value` say it all.
    fn is_bits(&self, max: u32) -> bool {
        self.mask != 0 || self.is_any(max)
    }

    /// Whether `lo` and `hi` say it all.
    fn is_interval(&self, max: u32) -> bool {
        self.lo != 0 || self.hi != max || self.mask == 0
    }
}

/// What a canonical match wants of each word of its field, or `None` where it does not fall apart into words.
fn word_matches(layout: &KeyLayout, id: FieldId, condition: &Match) -> Option<Vec<WordMatch>> {
    let field = layout.field(id);
    if let Match::Mask { value, mask } = *condition {
        return Some(
            layout
                .words(id)
                .map(|w| WordMatch::bits(w.of(mask), w.of(value), w.max()))
                .collect(),
        );
    }
    let (lower, upper) = (condition.lower(field), condition.upper(field));
    let mut is_decided = false;
    layout
        .words(id)
        .map(|word| {
            let (lo, hi) = (word.of(lower), word.of(upper));
            if is_decided && (lo, hi) != (0, word.max()) {
                return None;
            }
            is_decided |= lo != hi;
            Some(WordMatch::interval(lo, hi, word.max()))
        })
        .collect()
}

/// How a word is tested in the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Eq,
    Masked,
    Range,
    Both,
}

/// The tests of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldTest {
    /// Words on their own.
    Words(Vec<(Word, Test)>),
    /// All words of an interval together, the most significant first.
    Wide(Vec<Word>),
}

/// The tests for a group of rules.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    layout: KeyLayout,
    tests: Vec<(FieldId, FieldTest)>,
    common: Common,
}

/// Bits that all rules of a group want to be the same: for each key byte which ones, and what they must be.
#[derive(Clone, Debug)]
struct Common {
    mask: Vec<u8>,
    value: Vec<u8>,
}

/// Most words that stay spread over vector registers from one block of rules to the next; where there are more, each block
/// spreads them again. Leaves 7 of 16 vector registers to the tests themselves.
pub(crate) const MAX_KEPT_WORDS: usize = 9;

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
        let mut comparison = Self {
            layout: layout.clone(),
            tests: Vec::new(),
            common: Common {
                mask: vec![0; layout.len()],
                value: vec![0; layout.len()],
            },
        };
        for id in layout.field_ids() {
            let matches = || rules.clone().map(|rule| &rule.matches[id.index()]);
            let split: Option<Vec<Vec<WordMatch>>> =
                matches().map(|m| word_matches(layout, id, m)).collect();
            match split {
                Some(split) => comparison.add_words(id, &split),
                None => comparison.add_wide(id, matches()),
            }
        }
        comparison
    }

    fn add_wide<'a>(&mut self, id: FieldId, mut matches: impl Iterator<Item = &'a Match>) {
        let words: Vec<Word> = self.layout.words(id).collect();
        // The ends of a mask let through values between them that it does not match.
        if matches.any(|condition| matches!(condition, Match::Mask { .. })) {
            let masked = words.iter().map(|&word| (word, Test::Masked)).collect();
            self.tests.push((id, FieldTest::Words(masked)));
        }
        self.tests.push((id, FieldTest::Wide(words)));
    }

    fn add_words(&mut self, id: FieldId, rules: &[Vec<WordMatch>]) {
        let mut tests = Vec::new();
        for (i, word) in self.layout.clone().words(id).enumerate() {
            let max = word.max();
            let all = |test: &dyn Fn(&WordMatch) -> bool| rules.iter().all(|words| test(&words[i]));
            let Some(first) = rules.first().map(|words| words[i]) else {
                continue;
            };
            if all(&|m| m.is_any(max)) {
                continue;
            }
            if first.is_bits(max) && all(&|m| *m == first) && self.add_common(word, first) {
                continue;
            }
            let test = if all(&WordMatch::is_exact) {
                Test::Eq
            } else if all(&|m| m.is_bits(max)) {
                Test::Masked
            } else if all(&|m| m.is_interval(max)) {
                Test::Range
            } else {
                Test::Both
            };
            tests.push((word, test));
        }
        if !tests.is_empty() {
            self.tests.push((id, FieldTest::Words(tests)));
        }
    }

    /// Adds what all rules want of a word to the common bits, unless that contradicts what they want of an overlapping
    /// field: then no key matches, and the lanes have to find that out.
    fn add_common(&mut self, word: Word, wanted: WordMatch) -> bool {
        let bytes = (0..word.bytes).map(|i| {
            let shift = match word.order {
                ByteOrder::Big => 8 * (word.bytes - 1 - i),
                ByteOrder::Little => 8 * i,
            };
            let mask = (wanted.mask >> shift) as u8;
            (mask, (wanted.value >> shift) as u8 & mask)
        });
        let start = usize::from(word.offset);
        let known = self.common.mask[start..]
            .iter_mut()
            .zip(&mut self.common.value[start..]);
        let mut slots: Vec<_> = bytes.zip(known).collect();
        if slots
            .iter()
            .any(|((mask, value), known)| (value ^ *known.1) & mask & *known.0 != 0)
        {
            return false;
        }
        for ((mask, value), known) in &mut slots {
            *known.0 |= *mask;
            *known.1 |= *value;
        }
        true
    }

    /// Columns of a row that holds `capacity` rules, without the one for row numbers.
    pub(crate) fn columns(&self, capacity: u32) -> Vec<Column> {
        let mut columns = Vec::new();
        let mut add = |field: FieldId, word: &Word, what: &str| {
            let name = match word.shift {
                0 if self.layout.words(field).count() == 1 => {
                    format!("{} {what}", self.layout.field(field).name())
                }
                shift => format!("{}>>{shift} {what}", self.layout.field(field).name()),
            };
            columns.push(Column {
                name: name.into(),
                offset: columns.len() as u32 * capacity * 4,
                bytes: 4,
                count: capacity,
                max: u32::MAX.into(),
                is_result: false,
            });
        };
        for (field, test) in &self.tests {
            match test {
                FieldTest::Words(words) => {
                    for (word, test) in words {
                        for what in test.columns() {
                            add(*field, word, what);
                        }
                    }
                }
                FieldTest::Wide(words) => {
                    for word in words {
                        add(*field, word, "lo");
                        add(*field, word, "hi");
                    }
                }
            }
        }
        columns
    }

    /// The number of columns.
    pub(crate) fn column_count(&self) -> u32 {
        self.tests
            .iter()
            .map(|(_, test)| match test {
                FieldTest::Words(words) => words
                    .iter()
                    .map(|(_, test)| test.columns().len() as u32)
                    .sum(),
                FieldTest::Wide(words) => 2 * words.len() as u32,
            })
            .sum()
    }

    /// The numbers of `rule` for the columns, in their order.
    pub(crate) fn numbers(&self, rule: &Rule, out: &mut Vec<u32>) {
        for (id, test) in &self.tests {
            let condition = &rule.matches[id.index()];
            match test {
                FieldTest::Words(words) => {
                    let all = word_matches(&self.layout, *id, condition).unwrap_or_default();
                    for (word, test) in words {
                        // What does not fall apart into words is beside them as `Wide`.
                        let any = WordMatch::interval(0, word.max(), word.max());
                        let wanted = self
                            .layout
                            .words(*id)
                            .zip(&all)
                            .find(|(w, _)| w == word)
                            .map_or(any, |(_, &m)| m);
                        match test {
                            Test::Eq => out.push(wanted.lo),
                            Test::Masked => out.extend([wanted.mask, wanted.value]),
                            Test::Range => out.extend([wanted.lo, wanted.hi - wanted.lo]),
                            Test::Both => {
                                out.extend([
                                    wanted.lo,
                                    wanted.hi - wanted.lo,
                                    wanted.mask,
                                    wanted.value,
                                ]);
                            }
                        }
                    }
                }
                FieldTest::Wide(words) => {
                    let field = self.layout.field(*id);
                    let (lower, upper) = (condition.lower(field), condition.upper(field));
                    out.extend(
                        words
                            .iter()
                            .flat_map(|word| [word.of(lower), word.of(upper)]),
                    );
                }
            }
        }
    }

    /// The number of words that have to be spread over the lanes.
    fn words(&self) -> usize {
        self.tests
            .iter()
            .map(|(_, test)| match test {
                FieldTest::Words(words) => words.len(),
                FieldTest::Wide(words) => words.len(),
            })
            .sum()
    }

    /// Whether the words stay in registers from one block of rules to the next.
    pub(crate) fn keeps_words(&self) -> bool {
        self.words() <= MAX_KEPT_WORDS
    }

    /// Spreads all words that [`emit`](Self::emit) needs in the current block.
    pub(crate) fn splat_all(&self, b: &mut ProgramBuilder, lanes: u8, splats: &mut Splats) {
        for (_, test) in &self.tests {
            match test {
                FieldTest::Words(words) => {
                    for (word, _) in words {
                        splats.get(b, *word, lanes);
                    }
                }
                FieldTest::Wide(words) => {
                    for word in words {
                        splats.get(b, *word, lanes);
                    }
                }
            }
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
        let and = |b: &mut ProgramBuilder, mask: &mut Option<ValueId>, more| {
            *mask = Some(match *mask {
                None => more,
                Some(mask) => b.combine_masks(MaskOp::And, mask, more),
            });
        };
        for (_, test) in &self.tests {
            match test {
                FieldTest::Words(words) => {
                    for (word, test) in words {
                        let x = splats.get(b, *word, lanes);
                        let mut load = || {
                            column += 1;
                            b.load_lanes(row, column - 1, first, lanes)
                        };
                        if *test == Test::Eq {
                            let value = load();
                            let hit = b.compare_lanes(LaneCompareOp::Eq, x, value);
                            and(b, &mut mask, hit);
                            continue;
                        }
                        if matches!(test, Test::Range | Test::Both) {
                            let (lo, len) = (load(), load());
                            let hit = b.inst(Inst::InRangeLanes { x, lo, len });
                            and(b, &mut mask, hit);
                        }
                        if matches!(test, Test::Masked | Test::Both) {
                            let [bits, value] =
                                [column, column + 1].map(|c| b.load_lanes(row, c, first, lanes));
                            column += 2;
                            let hit = b.inst(Inst::MaskedEqLanes {
                                x,
                                mask: bits,
                                value,
                            });
                            and(b, &mut mask, hit);
                        }
                    }
                }
                FieldTest::Wide(words) => {
                    let xs: Vec<ValueId> = words
                        .iter()
                        .map(|word| splats.get(b, *word, lanes))
                        .collect();
                    for end in [End::Lo, End::Hi] {
                        let hit = lexicographic(b, &xs, end, |b, word| {
                            b.load_lanes(row, column + 2 * word as u8 + end as u8, first, lanes)
                        });
                        and(b, &mut mask, hit);
                    }
                    column += 2 * words.len() as u8;
                }
            }
        }
        mask
    }

    /// Emits the scalar test of the common bits: a scalar that is 0 where they are all as they should be, or `None` where
    /// there are none.
    pub(crate) fn emit_common(&self, b: &mut ProgramBuilder) -> Option<ValueId> {
        let mut differing: Option<ValueId> = None;
        for window in windows(self.common.mask.iter().copied()) {
            let (mask, value) = (
                window.read(&self.common.mask),
                window.read(&self.common.value),
            );
            let mut x = b.load_key(window.offset as u16, window.bytes, ByteOrder::Little);
            if mask != window.max() {
                x = b.binary_const(BinaryOp::And, x, mask);
            }
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
    pub(crate) fn block_cost(&self) -> Cost {
        let mut instructions = 0.0;
        for (_, test) in &self.tests {
            instructions += match test {
                FieldTest::Words(words) => words
                    .iter()
                    .map(|(_, test)| test.instructions() + 1.0)
                    .sum(),
                FieldTest::Wide(words) => 14.0 * words.len() as f64,
            };
        }
        Cost {
            instructions,
            ..Cost::default()
        }
    }

    /// What is paid for a key and its `blocks` blocks of rules: spreading the words, testing the common bits.
    pub(crate) fn key_cost(&self, blocks: f64) -> Cost {
        let spreads = if self.keeps_words() { 1.0 } else { blocks };
        let windows = windows(self.common.mask.iter().copied()).count() as f64;
        let common = if windows > 0.0 {
            3.0 * windows + 2.0
        } else {
            0.0
        };
        Cost {
            instructions: 3.0 * spreads * self.words() as f64 + common,
            ..Cost::default()
        }
    }
}

impl Test {
    fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Eq => &["value"],
            Self::Masked => &["mask", "value"],
            Self::Range => &["lo", "len"],
            Self::Both => &["lo", "len", "mask", "value"],
        }
    }

    fn instructions(self) -> f64 {
        match self {
            Self::Eq => 1.0,
            Self::Masked => 2.0,
            Self::Range => 3.0,
            Self::Both => 6.0,
        }
    }
}

/// An end of an interval, and the position of its column among the two of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lo = 0,
    Hi = 1,
}

/// Where the number of the words `xs`, the most significant first, is not beyond the end of its interval.
///
/// From the last word to the first: a word that is within its end decides, unless it is equal to it; then the words after
/// it decide. `m = within & !(equal & !m)`.
fn lexicographic(
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

/// A stretch of the key that one load reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) offset: usize,
    pub(crate) bytes: u8,
}

impl Window {
    /// What the load yields for a key, or for the care bits of a key: little-endian.
    pub(crate) fn read(&self, key: &[u8]) -> u64 {
        let bytes = &key[self.offset..self.offset + usize::from(self.bytes)];
        bytes
            .iter()
            .rev()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// The largest number that the load can yield.
    pub(crate) fn max(&self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.bytes))
    }
}

/// Few loads of 8, 4, 2 or 1 bytes, inside the key, that together read every byte whose mask is not 0.
///
/// From left to right, the widest load that does not run over the end of the key; near the end a load starts earlier and
/// reads some bytes again, which costs nothing.
pub(crate) fn windows(
    masks: impl ExactSizeIterator<Item = u8> + Clone,
) -> impl Iterator<Item = Window> {
    let len = masks.len();
    let wanted: Vec<usize> = masks
        .enumerate()
        .filter(|&(_, mask)| mask != 0)
        .map(|(i, _)| i)
        .collect();
    let mut next = 0;
    std::iter::from_fn(move || {
        let &start = wanted.get(next)?;
        let last = *wanted.iter().take_while(|&&i| i < start + 8).last()?;
        let need = last - start + 1;
        let bytes = need.next_power_of_two().min(8);
        let bytes = if bytes <= len {
            bytes
        } else {
            1 << len.ilog2()
        };
        let offset = start.min(len - bytes);
        next = wanted.partition_point(|&i| i < offset + bytes);
        Some(Window {
            offset,
            bytes: bytes as u8,
        })
    })
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
