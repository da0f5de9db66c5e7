//! Keys near and inside the elements of a set, and frames that carry them.

use pktjit::{Classifier, Field, KeyLayout};

use crate::kernel::ETHERTYPE;
use crate::nft;
use crate::random::Random;
use crate::sets::{Element, Interval};

/// Where a frame's Ethernet type lies; the fields of the key follow.
const TYPE_AT: usize = 12;
pub(crate) const KEY_AT: usize = 14;
/// A frame ends in its sequence number.
pub(crate) const SEQUENCE_BYTES: usize = 4;

/// `count` keys: inside an element, on edges of one or one beyond, fields mixed of different elements, and random.
pub(crate) fn keys(
    elements: &[Element],
    fields: &[Field],
    count: u32,
    random: &mut Random,
) -> Vec<Vec<u128>> {
    (0..count)
        .map(|_| {
            let one = random.pick(elements);
            let off = random.below(fields.len());
            let kind = random.below(8);
            let value = |(index, field): (usize, &Field)| match kind {
                0 | 1 => inside(one.fields[index], random),
                2 | 3 => near_edge(one.fields[index], field, random),
                // All fields but one are inside.
                4 if index == off => near_edge(one.fields[index], field, random),
                4 => inside(one.fields[index], random),
                5 | 6 => {
                    let other = random.pick(elements).fields[index];
                    if random.below(2) == 0 {
                        inside(other, random)
                    } else {
                        near_edge(other, field, random)
                    }
                }
                _ => random.bits(field.bits()),
            };
            fields.iter().enumerate().map(value).collect()
        })
        .collect()
}

fn inside(interval: Interval, random: &mut Random) -> u128 {
    let size = (interval.hi - interval.lo).saturating_add(1);
    interval.lo + random.bits(128) % size
}

/// An end of `interval`, or the value beyond it if there is one.
fn near_edge(interval: Interval, field: &Field, random: &mut Random) -> u128 {
    match random.below(8) {
        0..=2 => interval.lo,
        3..=5 => interval.hi,
        6 => interval.lo.saturating_sub(1),
        _ => interval.hi.saturating_add(1).min(field.max()),
    }
}

/// Frames of equal length, one after the other.
pub(crate) struct Traffic {
    bytes: Vec<u8>,
    frame_len: usize,
    first: u32,
}

impl Traffic {
    /// A frame for each of `keys`, laid out by `layout`; numbered from `first` on.
    pub(crate) fn new(layout: &KeyLayout, keys: &[Vec<u128>], first: u32) -> Self {
        let mut bytes = Vec::with_capacity(keys.len() * layout.len());
        for (sequence, key) in (first..).zip(keys) {
            let mut frame = layout.encode(key);
            frame[TYPE_AT..][..2].copy_from_slice(&ETHERTYPE.to_be_bytes());
            let end = frame.len() - SEQUENCE_BYTES;
            frame[end..].copy_from_slice(&sequence.to_be_bytes());
            bytes.extend(frame);
        }
        Self {
            bytes,
            frame_len: layout.len(),
            first,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.frame_len
    }

    pub(crate) fn frame(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.frame_len..][..self.frame_len]
    }

    /// Which of the frames `frame` is; `None` where it is of other traffic.
    pub(crate) fn index(&self, frame: &[u8]) -> Option<usize> {
        let sequence = u32::from_be_bytes(*frame.last_chunk()?);
        let index = sequence.checked_sub(self.first)? as usize;
        (index < self.len()).then_some(index)
    }

    /// The mark that `classifier` has for each frame, 0 for none.
    pub(crate) fn classify(&self, classifier: &Classifier) -> Vec<u32> {
        let mut rows = vec![0; self.len()];
        classifier
            .lookup_batch(&self.bytes, self.frame_len, &mut rows)
            .expect("each frame is a key");
        let winners = rows.into_iter().map(|row| classifier.hit(row));
        winners
            .map(|hit| hit.map_or(0, |hit| nft::mark(hit.verdict)))
            .collect()
    }
}
