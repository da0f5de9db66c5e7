//! What rules want of the words of a field, and what all rules of a group have in common there.

use crate::field::Field;
use crate::key::Word;
use crate::rule::Match;

/// What one rule wants of one word: an interval, and bits. One of the two is trivial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordMatch {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) mask: u64,
    pub(crate) value: u64,
}

impl WordMatch {
    pub(crate) fn interval(lo: u64, hi: u64, max: u64) -> Self {
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

    fn bits(mask: u64, value: u64, max: u64) -> Self {
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

    pub(crate) fn any(max: u64) -> Self {
        Self::interval(0, max, max)
    }

    fn is_any(&self, max: u64) -> bool {
        self.lo == 0 && self.hi == max && self.mask == 0
    }

    fn is_exact(&self) -> bool {
        self.lo == self.hi
    }

    /// Whether `mask` and `value` say it all.
    fn is_bits(&self, max: u64) -> bool {
        self.mask != 0 || self.is_any(max)
    }

    /// Whether `lo` and `hi` say it all.
    pub(crate) fn is_interval(&self, max: u64) -> bool {
        self.lo != 0 || self.hi != max || self.mask == 0
    }
}

/// Whether a canonical match of a field says the same as what it [wants](word_match) of each of its words.
pub(crate) fn falls_apart(
    field: &Field,
    words: impl Iterator<Item = Word>,
    condition: &Match,
) -> bool {
    if let Match::Mask { .. } = condition {
        return true;
    }
    let (lower, upper) = (condition.lower(field), condition.upper(field));
    // After the first word whose ends differ, the others must run over everything.
    let mut behind = words
        .skip_while(|word| word.of(lower) == word.of(upper))
        .skip(1);
    behind.all(|word| (word.of(lower), word.of(upper)) == (0, word.max()))
}

/// What a canonical match that [`falls_apart`] wants of a word of its field.
pub(crate) fn word_match(field: &Field, word: Word, condition: &Match) -> WordMatch {
    match *condition {
        Match::Mask { value, mask } => WordMatch::bits(word.of(mask), word.of(value), word.max()),
        _ => WordMatch::interval(
            word.of(condition.lower(field)),
            word.of(condition.upper(field)),
            word.max(),
        ),
    }
}

/// What holds for all rules of a group in one word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) word: Word,
    first: WordMatch,
    is_same: bool,
    pub(crate) is_any: bool,
    pub(crate) is_exact: bool,
    pub(crate) is_bits: bool,
    pub(crate) is_interval: bool,
}

impl Summary {
    fn new(word: Word, first: WordMatch) -> Self {
        let all = true;
        Self {
            word,
            first,
            is_same: all,
            is_any: all,
            is_exact: all,
            is_bits: all,
            is_interval: all,
        }
    }

    fn add(&mut self, wanted: WordMatch) {
        let max = self.word.max();
        self.is_same &= wanted == self.first;
        self.is_any &= wanted.is_any(max);
        self.is_exact &= wanted.is_exact();
        self.is_bits &= wanted.is_bits(max);
        self.is_interval &= wanted.is_interval(max);
    }

    /// The bits that every rule wants alike, if that is all that they want.
    pub(crate) fn common(&self) -> Option<WordMatch> {
        (self.is_same && self.is_bits).then_some(self.first)
    }
}

/// Sums up a field for the rules with these conditions; `None` where one does not fall apart into words. Without rules there
/// is nothing to sum up.
pub(crate) fn summarise<'a>(
    field: &Field,
    words: &[Word],
    conditions: impl Iterator<Item = &'a Match>,
) -> Option<Vec<Summary>> {
    let mut summaries: Vec<Summary> = Vec::new();
    // A match says what it wants of its only word.
    let is_split = words.len() > 1;
    for condition in conditions {
        if is_split && !falls_apart(field, words.iter().copied(), condition) {
            return None;
        }
        let wanted = |word: Word| word_match(field, word, condition);
        if summaries.is_empty() {
            summaries.extend(words.iter().map(|&word| Summary::new(word, wanted(word))));
        }
        for summary in &mut summaries {
            summary.add(wanted(summary.word));
        }
    }
    Some(summaries)
}
