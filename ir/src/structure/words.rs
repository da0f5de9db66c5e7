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
    fn is_interval(&self, max: u64) -> bool {
        self.lo != 0 || self.hi != max || self.mask == 0
    }
}

/// Writes what a canonical match of a field wants of each of its words to `out`; false where it does not fall apart into words.
pub(crate) fn word_matches(
    field: &Field,
    words: &[Word],
    condition: &Match,
    out: &mut Vec<WordMatch>,
) -> bool {
    out.clear();
    if let Match::Mask { value, mask } = *condition {
        out.extend(
            words
                .iter()
                .map(|w| WordMatch::bits(w.of(mask), w.of(value), w.max())),
        );
        return true;
    }
    let (lower, upper) = (condition.lower(field), condition.upper(field));
    let mut is_decided = false;
    for word in words {
        let (lo, hi) = (word.of(lower), word.of(upper));
        // After the first word whose ends differ, the others must run over everything.
        if is_decided && (lo, hi) != (0, word.max()) {
            return false;
        }
        is_decided |= lo != hi;
        out.push(WordMatch::interval(lo, hi, word.max()));
    }
    true
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
    let mut wanted = Vec::new();
    for condition in conditions {
        if !word_matches(field, words, condition, &mut wanted) {
            return None;
        }
        if summaries.is_empty() {
            summaries.extend(
                words
                    .iter()
                    .zip(&wanted)
                    .map(|(&word, &first)| Summary::new(word, first)),
            );
        }
        for (summary, &wanted) in summaries.iter_mut().zip(&wanted) {
            summary.add(wanted);
        }
    }
    Some(summaries)
}
