//! The ways to ask a classifier that tools check and time. The only file of the tools that calls machine code.
//!
//! [`Call::answers`] and [`Call::timed_loop`] cut the keys; all that they hand to an [`Ask`] has the length that the layout
//! says.

use super::measure::{BATCH, Loop, Mode, batch, latency, single};
use crate::{Classifier, MISS, RawLookup, RuleId};

/// A way to ask a classifier.
#[derive(Clone, Copy)]
pub(super) enum Call<'a> {
    /// Through the bare function pointers.
    Raw(Raw<'a>),
    /// Through [`Classifier::lookup`] and [`Classifier::lookup_batch`].
    Safe(Safe<'a>),
}

impl<'a> Call<'a> {
    /// Through the bare function pointers, where there is machine code.
    pub(super) fn raw(classifier: &'a Classifier) -> Option<Self> {
        let raw = classifier.raw()?;
        Some(Self::Raw(Raw { classifier, raw }))
    }

    /// Through the calls that take any key.
    pub(super) fn safe(classifier: &'a Classifier) -> Self {
        Self::Safe(Safe { classifier })
    }

    /// The winners for `keys`, which lie one after the other: asked for one by one, and in batches.
    pub(super) fn answers(self, keys: &[u8]) -> [Vec<Option<RuleId>>; 2] {
        match self {
            Self::Raw(raw) => answers(raw, keys),
            Self::Safe(safe) => answers(safe, keys),
        }
    }

    /// The loop that asks for `keys`, which lie one after the other.
    pub(super) fn timed_loop(self, mode: Mode, keys: &'a [u8]) -> Loop<'a> {
        match self {
            Self::Raw(raw) => timed_loop(raw, mode, keys),
            Self::Safe(safe) => timed_loop(safe, mode, keys),
        }
    }
}

fn answers<'a>(ask: impl Ask<'a>, keys: &[u8]) -> [Vec<Option<RuleId>>; 2] {
    let classifier = ask.classifier();
    let stride = classifier.layout().len();
    let single = keys.chunks_exact(stride).map(|key| ask.rule(key));
    let mut rows = vec![MISS; keys.len() / stride];
    for (keys, rows) in keys.chunks(BATCH * stride).zip(rows.chunks_mut(BATCH)) {
        ask.many(keys, rows);
    }
    let batch = rows.into_iter().map(|row| classifier.hit(row));
    [
        single.collect(),
        batch.map(|hit| hit.map(|hit| hit.rule)).collect(),
    ]
}

/// Made once for each [`Ask`], so that nothing but machine code is called by pointer within the loop.
fn timed_loop<'a>(ask: impl Ask<'a>, mode: Mode, keys: &'a [u8]) -> Loop<'a> {
    let stride = ask.classifier().layout().len();
    match mode {
        Mode::Single => single(keys, stride, move |key| ask.one(key)),
        Mode::Batch => batch(keys, stride, move |keys, rows| ask.many(keys, rows)),
        Mode::Latency => latency(keys, stride, move |key| ask.one(key)),
    }
}

trait Ask<'a>: Copy + 'a {
    fn classifier(self) -> &'a Classifier;

    /// The winner for one key.
    fn rule(self, key: &[u8]) -> Option<RuleId>;

    /// The same as cheap as can be: some number that depends on the answer.
    fn one(self, key: &[u8]) -> u32;

    /// The rows of the winners for as many keys as there are `rows`.
    fn many(self, keys: &[u8], rows: &mut [u32]);
}

#[derive(Clone, Copy)]
pub(super) struct Raw<'a> {
    classifier: &'a Classifier,
    raw: RawLookup<'a>,
}

impl<'a> Ask<'a> for Raw<'a> {
    fn classifier(self) -> &'a Classifier {
        self.classifier
    }

    fn rule(self, key: &[u8]) -> Option<RuleId> {
        self.classifier.hit(self.one(key)).map(|hit| hit.rule)
    }

    #[inline]
    fn one(self, key: &[u8]) -> u32 {
        debug_assert_eq!(key.len(), self.classifier.layout().len());
        // SAFETY: the classifier is borrowed for as long as `raw` is, and the key has the length of its layout (see the
        // top of the file).
        unsafe { (self.raw.lookup)(key.as_ptr()) }
    }

    #[inline]
    fn many(self, keys: &[u8], rows: &mut [u32]) {
        let stride = self.classifier.layout().len();
        debug_assert_eq!(keys.len(), rows.len() * stride);
        // SAFETY: the classifier is borrowed for as long as `raw` is; there are as many keys of the layout's length as rows
        // (see the top of the file), and these are borrowed mutably, so that they overlap no key.
        unsafe { (self.raw.lookup_batch)(keys.as_ptr(), stride, rows.len(), rows.as_mut_ptr()) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Safe<'a> {
    classifier: &'a Classifier,
}

impl<'a> Ask<'a> for Safe<'a> {
    fn classifier(self) -> &'a Classifier {
        self.classifier
    }

    #[inline]
    fn rule(self, key: &[u8]) -> Option<RuleId> {
        let key = self.classifier.layout().key(key).ok()?;
        self.classifier.lookup(key).map(|hit| hit.rule)
    }

    #[inline]
    fn one(self, key: &[u8]) -> u32 {
        self.rule(key).map_or(MISS, RuleId::as_u32)
    }

    #[inline]
    fn many(self, keys: &[u8], rows: &mut [u32]) {
        // It could only fail for fewer keys than rows.
        let _ = self
            .classifier
            .lookup_batch(keys, self.classifier.layout().len(), rows);
    }
}
