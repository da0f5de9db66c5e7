//! What a batch of keys has to be, checked once for all of its keys.

use pktjit_ir::{KeyLayout, KeyRef, MISS};
use thiserror::Error;

/// Why a batch was refused; nothing was looked up, and the results were not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The keys do not advance.
    #[error("the stride is 0 bytes, at least 1 is needed")]
    ZeroStride,
    /// The last key would end beyond the bytes given.
    #[error("the keys take {needed} bytes, there are {actual}")]
    TooShort {
        /// Bytes up to the end of the last key; saturated.
        needed: usize,
        /// Bytes there are.
        actual: usize,
    },
    /// There are not as many results as keys.
    #[error("there are {keys} keys and {results} results")]
    Count {
        /// Number of keys.
        keys: usize,
        /// Number of result slots.
        results: usize,
    },
    /// One key has the length of another layout.
    #[error("key {index} has {actual} bytes, the layout {expected}")]
    KeyLength {
        /// Which key.
        index: usize,
        /// What the layout asks for.
        expected: usize,
        /// What the key has.
        actual: usize,
    },
}

/// Whether `n` keys of `key_len` bytes, one every `stride` bytes, lie inside `len` bytes.
pub(crate) fn check_span(
    len: usize,
    stride: usize,
    n: usize,
    key_len: usize,
) -> Result<(), BatchError> {
    if stride == 0 {
        return Err(BatchError::ZeroStride);
    }
    let Some(last) = n.checked_sub(1) else {
        return Ok(());
    };
    // Saturation cannot let a batch pass: no slice has `usize::MAX` bytes.
    let needed = last.saturating_mul(stride).saturating_add(key_len);
    if needed <= len {
        Ok(())
    } else {
        Err(BatchError::TooShort {
            needed,
            actual: len,
        })
    }
}

/// Whether there are `n` keys, each of `key_len` bytes.
pub(crate) fn check_keys(keys: &[KeyRef<'_>], n: usize, key_len: usize) -> Result<(), BatchError> {
    if keys.len() != n {
        return Err(BatchError::Count {
            keys: keys.len(),
            results: n,
        });
    }
    match keys.iter().position(|key| key.bytes().len() != key_len) {
        None => Ok(()),
        Some(index) => Err(BatchError::KeyLength {
            index,
            expected: key_len,
            actual: keys[index].bytes().len(),
        }),
    }
}

/// A batch for engines that only know single keys.
pub(crate) fn one_by_one(
    layout: &KeyLayout,
    keys: &[u8],
    stride: usize,
    out: &mut [u32],
    lookup: impl Fn(KeyRef<'_>) -> u32,
) -> Result<(), BatchError> {
    check_span(keys.len(), stride, out.len(), layout.len())?;
    for (i, row) in out.iter_mut().enumerate() {
        let key = layout.key(&keys[i * stride..][..layout.len()]);
        *row = key.map_or(MISS, &lookup);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_key_must_end_inside() {
        assert_eq!(check_span(6, 6, 1, 6), Ok(()));
        assert_eq!(check_span(12, 6, 2, 6), Ok(()));
        assert_eq!(check_span(7, 1, 2, 6), Ok(()));
        assert_eq!(
            check_span(11, 6, 2, 6),
            Err(BatchError::TooShort {
                needed: 12,
                actual: 11
            })
        );
        assert_eq!(
            check_span(5, 1, 1, 6),
            Err(BatchError::TooShort {
                needed: 6,
                actual: 5
            })
        );
    }

    #[test]
    fn no_keys_take_no_bytes() {
        assert_eq!(check_span(0, 1, 0, 256), Ok(()));
        assert_eq!(check_span(0, usize::MAX, 0, 256), Ok(()));
    }

    #[test]
    fn arithmetic_that_wraps_is_refused() {
        let len = isize::MAX as usize;
        for (stride, n) in [
            (usize::MAX, 2),
            (1 << 63, 3),
            (1 << 32, (1 << 32) + 1),
            (1, usize::MAX),
            (usize::MAX, usize::MAX),
            (usize::MAX / 2 + 1, 2),
        ] {
            assert!(
                matches!(
                    check_span(len, stride, n, 8),
                    Err(BatchError::TooShort { .. })
                ),
                "{stride} {n}"
            );
        }
    }

    #[test]
    fn keys_that_do_not_advance_are_refused() {
        assert_eq!(check_span(100, 0, 2, 6), Err(BatchError::ZeroStride));
    }
}
