//! Comparing one rule with one key by scalars: what a row of the table holds of a rule, and the code that tests it.
//!
//! | test | when | numbers in the row | instructions |
//! | --- | --- | --- | --- |
//! | bits | some rule looks at bits of up to 8 bytes | value, mask; none that all rules share | 3 or 4 |
//! | range | some rule wants an interval of a word | lo, len | 6 |
//! | span | an interval of two words that does not fall apart into them, of less than 2^64 values | lo, len of both | 15 |
//! | wide | any other interval that does not fall apart into words | lo and hi of each word | 11 a word |
//!
//! Bits are compared for all fields at once, in loads of 8 bytes that know nothing of fields: `10.0.0.6 . 80` in eight bytes
//! of a key is one load, one `xor` with the row, and one test for zero. An interval is `x - lo <= len`, unsigned: where x is
//! below lo, the difference is huge. Words have up to 8 bytes, so that prefixes and nearly all intervals of an IPv6 address
//! are two ranges. One that crosses a multiple of 2^64 makes its field a span: `x - lo` borrows from word to word, as on
//! paper, and its high word is at most 0 for such an interval. Where the interval is longer, the words are compared with
//! both ends, and the most significant one that is not equal decides.
//!
//! Numbers have 8 bytes where code subtracts or compares them in 64 bits, so that they are operands in memory.

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::field::ByteOrder;
use crate::key::{KeyLayout, Word};
use crate::program::{BinaryOp, CompareOp, MISS};
use crate::rule::{Match, Rule};
use crate::structure::windows::{Window, windows};
use crate::structure::words::{WordMatch, falls_apart, summarise, word_match};

/// What is compared of each rule of a group.
pub(crate) struct ScalarComparison {
    layout: KeyLayout,
    bits: Vec<BitTest>,
    /// Long words of which some rule looks at bits.
    masked: Vec<Word>,
    /// Words of which some rule wants an interval that is no set of bits.
    ranges: Vec<RangeTest>,
    /// Fields of which some rule wants an interval that does not fall apart into words.
    wide: Vec<FieldId>,
}

/// Bits of some bytes of the key. What is `None` is not the same for all rules: a number of the row.
struct BitTest {
    window: Window,
    mask: Option<u64>,
    value: Option<u64>,
}

/// What `x - lo <= len` is asked of.
#[derive(Clone, Copy)]
enum RangeTest {
    /// A word.
    Word(Word),
    /// Both words of a field; rules want at most 2^64 values in a row, or intervals that fall apart into words.
    Span { high: Word, low: Word },
}

/// An end of an interval.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Lo,
    Hi,
}

/// Bits of the key that a rule looks at, and what they must be.
struct KeyBits {
    care: Vec<u8>,
    value: Vec<u8>,
}

impl ScalarComparison {
    /// The tests for `rules`, whose matches are canonical.
    pub(crate) fn new(layout: &KeyLayout, rules: &[Rule]) -> Self {
        let mut comparison = Self {
            layout: layout.clone(),
            bits: Vec::new(),
            masked: Vec::new(),
            ranges: Vec::new(),
            wide: Vec::new(),
        };
        for id in layout.field_ids() {
            let conditions = || rules.iter().map(|rule| &rule.matches[id.index()]);
            let words: Vec<Word> = layout.long_words(id).collect();
            match summarise(layout.field(id), &words, conditions()) {
                Some(summaries) => {
                    for summary in summaries.iter().filter(|summary| !summary.is_any) {
                        if !summary.is_bits {
                            comparison.ranges.push(RangeTest::Word(summary.word));
                        }
                        if summary.is_bits || !summary.is_interval {
                            comparison.masked.push(summary.word);
                        }
                    }
                }
                None => {
                    match words[..] {
                        [high, low] if conditions().all(|c| is_span(layout, low, c)) => {
                            comparison.ranges.push(RangeTest::Span { high, low });
                        }
                        _ => comparison.wide.push(id),
                    }
                    // The ends of a mask let through values between them that it does not match.
                    if conditions().any(|condition| matches!(condition, Match::Mask { .. })) {
                        comparison.masked.extend(words);
                    }
                }
            }
        }
        let all: Vec<KeyBits> = rules
            .iter()
            .filter_map(|rule| comparison.key_bits(rule))
            .collect();
        comparison.bits = bit_tests(layout.len(), &all);
        comparison
    }

    /// What `rule` wants of one of the words of `word.field`.
    fn word_match(&self, rule: &Rule, word: Word) -> WordMatch {
        let condition = &rule.matches[word.field.index()];
        let field = self.layout.field(word.field);
        if falls_apart(field, self.layout.long_words(word.field), condition) {
            word_match(field, word, condition)
        } else {
            // It has a test of its own.
            WordMatch::any(word.max())
        }
    }

    /// The bits that `rule` wants; `None` where fields that overlap in the key want different things, which no key does.
    fn key_bits(&self, rule: &Rule) -> Option<KeyBits> {
        let nothing = vec![0; self.layout.len()];
        let mut bits = KeyBits {
            care: nothing.clone(),
            value: nothing,
        };
        for &word in &self.masked {
            let wanted = self.word_match(rule, word);
            for i in 0..word.bytes {
                let shift = match word.order {
                    ByteOrder::Big => 8 * (word.bytes - 1 - i),
                    ByteOrder::Little => 8 * i,
                };
                let (care, value) = ((wanted.mask >> shift) as u8, (wanted.value >> shift) as u8);
                let at = usize::from(word.offset) + usize::from(i);
                if (bits.value[at] ^ value) & bits.care[at] & care != 0 {
                    return None;
                }
                bits.care[at] |= care;
                bits.value[at] |= value & care;
            }
        }
        Some(bits)
    }

    /// What a row holds of one rule: the name and the bytes of each number.
    pub(crate) fn columns(&self) -> Vec<(String, u8)> {
        let mut columns = Vec::new();
        for BitTest {
            window,
            mask,
            value,
        } in &self.bits
        {
            let end = window.offset + usize::from(window.bytes);
            // A number of four bytes can be an operand in memory, a shorter one cannot.
            let bytes = window.bytes.max(4);
            if mask.is_none() {
                columns.push((format!("key {}..{end} mask", window.offset), bytes));
            }
            if value.is_none() {
                columns.push((format!("key {}..{end} value", window.offset), bytes));
            }
        }
        for (word, end) in self.wide_words() {
            let end = if end == End::Lo { "lo" } else { "hi" };
            columns.push((format!("{} {end}", self.name(&word)), 8));
        }
        for word in self.ranges.iter().flat_map(RangeTest::words) {
            columns.push((format!("{} lo", self.name(&word)), 8));
            columns.push((format!("{} len", self.name(&word)), 8));
        }
        columns
    }

    fn name(&self, word: &Word) -> String {
        let field = self.layout.field(word.field);
        if word.bytes == field.bytes() {
            field.name().into()
        } else {
            format!("{}>>{}", field.name(), word.shift)
        }
    }

    /// The words of the wide fields in the order in which they are compared with their ends: the least significant first.
    fn wide_words(&self) -> impl Iterator<Item = (Word, End)> + '_ {
        let ends = self
            .wide
            .iter()
            .flat_map(|&id| [(id, End::Lo), (id, End::Hi)]);
        ends.flat_map(|(id, end)| {
            let mut words: Vec<(Word, End)> =
                self.layout.long_words(id).map(|word| (word, end)).collect();
            words.reverse();
            words
        })
    }

    /// Whether some key can match `rule`: fields that overlap in the key may contradict each other.
    pub(crate) fn is_possible(&self, rule: &Rule) -> bool {
        self.key_bits(rule).is_some()
    }

    /// The numbers of `rule` for the columns, in their order; `None` where no key can match it.
    pub(crate) fn numbers(&self, rule: &Rule) -> Option<Vec<u64>> {
        let bits = self.key_bits(rule)?;
        let mut numbers = Vec::new();
        for BitTest {
            window,
            mask,
            value,
        } in &self.bits
        {
            if mask.is_none() {
                numbers.push(window.read(&bits.care));
            }
            if value.is_none() {
                numbers.push(window.read(&bits.value));
            }
        }
        for (word, end) in self.wide_words() {
            let condition = &rule.matches[word.field.index()];
            let field = self.layout.field(word.field);
            let end = match end {
                End::Lo => condition.lower(field),
                End::Hi => condition.upper(field),
            };
            numbers.push(word.of(end));
        }
        for test in &self.ranges {
            match *test {
                RangeTest::Word(word) => {
                    let WordMatch { lo, hi, .. } = self.word_match(rule, word);
                    numbers.extend([lo, hi - lo]);
                }
                RangeTest::Span { low, .. } => {
                    let condition = &rule.matches[low.field.index()];
                    let (lo, len) = span(&self.layout, low.field, condition);
                    numbers.extend(test.words().flat_map(|word| [word.of(lo), word.of(len)]));
                }
            }
        }
        Some(numbers)
    }

    /// Emits the tests of one rule; yields `found` where it matches, else [`MISS`]. Its numbers are the columns of `row` from
    /// `column` on.
    pub(crate) fn emit(
        &self,
        b: &mut ProgramBuilder,
        row: ValueId,
        mut column: u8,
        mut found: ValueId,
    ) -> ValueId {
        let mut next = |b: &mut ProgramBuilder| {
            column += 1;
            b.load(row, column - 1, None)
        };
        let mut differing: Option<ValueId> = None;
        let mut join = |b: &mut ProgramBuilder, x: ValueId| {
            differing = Some(differing.map_or(x, |before| b.binary(BinaryOp::Or, before, x)));
        };
        for test in &self.bits {
            let x = test.emit(b, &mut next);
            join(b, x);
        }
        // 1 where the words so far are beyond an end.
        let mut beyond: Option<ValueId> = None;
        for (word, end) in self.wide_words() {
            let (x, limit) = (self.load_word(b, word), next(b));
            let (small, large) = match end {
                End::Lo => (limit, x),
                End::Hi => (x, limit),
            };
            let mut is_beyond = b.compare(CompareOp::Lt, large, small);
            if let Some(beyond) = beyond {
                let is_equal = b.compare(CompareOp::Eq, x, limit);
                is_beyond = b.select(is_equal, beyond, is_beyond);
            }
            let is_last = Some(word) == self.layout.long_words(word.field).next();
            beyond = (!is_last).then_some(is_beyond);
            if is_last {
                join(b, is_beyond);
            }
        }
        let miss = b.constant(MISS.into());
        if let Some(differing) = differing {
            let zero = b.constant(0);
            let is_same = b.compare(CompareOp::Eq, differing, zero);
            found = b.select(is_same, found, miss);
        }
        for test in &self.ranges {
            let mut borrow: Option<ValueId> = None;
            for word in test.words() {
                let x = self.load_word(b, word);
                let (lo, len) = (next(b), next(b));
                let mut above = b.binary(BinaryOp::Sub, x, lo);
                if let Some(borrow) = borrow {
                    above = b.binary(BinaryOp::Sub, above, borrow);
                }
                if matches!(test, RangeTest::Span { low, .. } if *low == word) {
                    borrow = Some(b.compare(CompareOp::Lt, x, lo));
                }
                let is_within = b.compare(CompareOp::Le, above, len);
                found = b.select(is_within, found, miss);
            }
        }
        found
    }

    /// Emits the load of a long word. Where its width is no power of two, more bytes of the key are loaded and left out.
    fn load_word(&self, b: &mut ProgramBuilder, word: Word) -> ValueId {
        let bytes = word.bytes.next_power_of_two();
        let offset = word
            .offset
            .min((self.layout.len() - usize::from(bytes)) as u16);
        let before = (word.offset - offset) as u8;
        let behind = bytes - word.bytes - before;
        let (low, high) = match word.order {
            ByteOrder::Big => (behind, before),
            ByteOrder::Little => (before, behind),
        };
        let x = b.load_key(offset, bytes, word.order);
        let x = b.shr(x, 8 * low);
        if high > 0 {
            b.binary_const(BinaryOp::And, x, word.max())
        } else {
            x
        }
    }

    /// Machine instructions for one rule.
    pub(crate) fn instructions(&self) -> f64 {
        let bits: f64 = self.bits.iter().map(BitTest::instructions).sum();
        let end = if bits > 0.0 { 3.0 } else { 0.0 };
        let ranges: f64 = self.ranges.iter().map(RangeTest::instructions).sum();
        bits + end + ranges + 5.5 * self.wide_words().count() as f64
    }
}

impl RangeTest {
    /// The words, the least significant first.
    fn words(&self) -> impl Iterator<Item = Word> + use<> {
        let (low, high) = match *self {
            Self::Word(word) => (word, None),
            Self::Span { high, low } => (low, Some(high)),
        };
        std::iter::once(low).chain(high)
    }

    fn instructions(&self) -> f64 {
        match self {
            Self::Word(_) => 6.0,
            Self::Span { .. } => 15.0,
        }
    }
}

/// The first value that is wanted of a field, and how many follow; all of them where there is a mask, which is tested as
/// bits.
fn span(layout: &KeyLayout, id: FieldId, condition: &Match) -> (u128, u128) {
    let field = layout.field(id);
    match condition {
        Match::Mask { .. } => (0, field.max()),
        _ => {
            let lo = condition.lower(field);
            (lo, condition.upper(field) - lo)
        }
    }
}

/// Whether the words of a field, the lower of which is `low`, tell by `x - lo <= len`, word by word, if it is as wanted.
fn is_span(layout: &KeyLayout, low: Word, condition: &Match) -> bool {
    let (lo, len) = span(layout, low.field, condition);
    let is_aligned = low.of(lo) == 0 && low.of(len) == low.max();
    low.bytes == 8 && (len >> 64 == 0 || is_aligned)
}

impl BitTest {
    /// Emits a scalar that is 0 where the bits are as they should be.
    fn emit(
        &self,
        b: &mut ProgramBuilder,
        next: &mut impl FnMut(&mut ProgramBuilder) -> ValueId,
    ) -> ValueId {
        let Window { offset, bytes } = self.window;
        let mut x = b.load_key(offset as u16, bytes, ByteOrder::Little);
        match self.mask {
            Some(mask) if mask == self.window.max() => {}
            Some(mask) => x = b.binary_const(BinaryOp::And, x, mask),
            None => {
                let mask = next(b);
                x = b.binary(BinaryOp::And, x, mask);
            }
        }
        match self.value {
            Some(0) => x,
            Some(value) => b.binary_const(BinaryOp::Xor, x, value),
            None => {
                let value = next(b);
                b.binary(BinaryOp::Xor, x, value)
            }
        }
    }

    /// Machine instructions: the load, the mask, the comparison, joining it to those before. A constant of eight bytes is
    /// an instruction of its own.
    fn instructions(&self) -> f64 {
        let is_wide = self.window.bytes == 8;
        let constant = if is_wide { 2.0 } else { 1.0 };
        let mask = match self.mask {
            Some(mask) if mask == self.window.max() => 0.0,
            Some(_) => constant,
            None => 1.0,
        };
        let value = match self.value {
            Some(0) => 0.0,
            Some(_) => constant,
            None => 1.0,
        };
        1.0 + mask + value + 1.0
    }
}

/// The tests of all bits that some rule looks at. All rules look at bits of a key of `len` bytes.
fn bit_tests(len: usize, all: &[KeyBits]) -> Vec<BitTest> {
    let mut care = vec![0; len];
    for bits in all {
        for (care, own) in care.iter_mut().zip(&bits.care) {
            *care |= own;
        }
    }
    // What every rule has, if that is the same.
    let shared = |read: &dyn Fn(&KeyBits) -> u64| {
        let mut numbers = all.iter().map(read);
        let first = numbers.next()?;
        numbers.all(|number| number == first).then_some(first)
    };
    let test = |window: Window| BitTest {
        window,
        mask: shared(&|bits| window.read(&bits.care)),
        value: shared(&|bits| window.read(&bits.value)),
    };
    windows(care.into_iter()).map(test).collect()
}
