//! Reading bytes of the key that lie anywhere with few wide loads.

use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::field::ByteOrder;
use crate::program::BinaryOp;

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

    /// Emits the load; bits of the key that `care` does not have are 0.
    pub(crate) fn emit(&self, b: &mut ProgramBuilder, care: &[u8]) -> ValueId {
        let x = b.load_key(self.offset as u16, self.bytes, ByteOrder::Little);
        let mask = self.read(care);
        if mask == self.max() {
            x
        } else {
            b.binary_const(BinaryOp::And, x, mask)
        }
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
