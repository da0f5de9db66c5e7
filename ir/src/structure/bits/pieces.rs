//! Pieces: what a rule wants, as bits of its fields that must be 0 or 1, or are wild.
//!
//! Prefixes and masks are one piece; an interval becomes the prefixes that it consists of, and where these would be too many,
//! the prefixes of a slightly larger interval: the pieces of a rule may match too much, never too little.

use crate::field::Field;
use crate::key::{KeyLayout, MAX_FIELD_BYTES_SUM};
use crate::rule::{Match, Rule};

/// Into how many pieces rules are split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fineness {
    /// Most pieces that an interval of one field becomes.
    field: usize,
    /// Most pieces that a rule becomes.
    rule: usize,
}

impl Fineness {
    /// Into how many the next field of a rule may be split that is so many pieces already.
    pub(super) fn room(self, pieces: usize) -> usize {
        self.field.min(self.rule / pieces).max(1)
    }
}

/// Few pieces, to choose bits by.
pub(crate) const COARSE: Fineness = Fineness { field: 2, rule: 4 };
/// Many pieces, so that a rule goes to few cells that it does not match in.
pub(crate) const FINE: Fineness = Fineness { field: 8, rule: 16 };
/// All pieces of an interval over 16 bits.
pub(crate) const EXACT: Fineness = Fineness {
    field: 32,
    rule: 64,
};

pub(super) const LIMBS: usize = MAX_FIELD_BYTES_SUM / 8;

/// A set of bits of the fields, field after field, the least significant bit of each field first.
pub(super) type Bits = [u64; LIMBS];

/// Bits that must have a value. Bits of `value` outside `care` are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(super) care: Bits,
    pub(super) value: Bits,
}

/// A bit of the fields by its position in [`Bits`].
pub(crate) type Bit = u16;

/// Sets bits of a field that starts at bit `base`.
pub(crate) fn put_bits(bits: &mut [u64], base: usize, field: u128) {
    let (limb, shift) = (base / 64, base % 64);
    // A field has at most 128 bits and starts at a multiple of 8, so it touches at most three limbs.
    let low = field << shift;
    let high = if shift == 0 {
        0
    } else {
        field >> (128 - shift)
    };
    for (i, part) in [low as u64, (low >> 64) as u64, high as u64]
        .into_iter()
        .enumerate()
    {
        if let Some(slot) = bits.get_mut(limb + i) {
            *slot |= part;
        }
    }
}

#[cfg(test)]
pub(super) fn get(bits: &Bits, bit: Bit) -> bool {
    bits[usize::from(bit) / 64] >> (bit % 64) & 1 == 1
}

/// Appends the pieces of a rule, whose matches are canonical; at least one.
pub(crate) fn pieces(layout: &KeyLayout, rule: &Rule, fineness: Fineness, out: &mut Vec<Piece>) {
    let start = out.len();
    out.push(Piece {
        care: [0; LIMBS],
        value: [0; LIMBS],
    });
    let mut base = 0;
    let mut parts: Vec<(u128, u128)> = Vec::new();
    for (field, condition) in layout.fields().iter().zip(&rule.matches) {
        field_pieces(
            field,
            condition,
            fineness.room(out.len() - start),
            &mut parts,
        );
        if let Some((&first, more)) = parts.split_first() {
            let known = out.len();
            for &(care, value) in more {
                for i in start..known {
                    let mut piece = out[i];
                    put_bits(&mut piece.care, base, care);
                    put_bits(&mut piece.value, base, value);
                    out.push(piece);
                }
            }
            for piece in &mut out[start..known] {
                put_bits(&mut piece.care, base, first.0);
                put_bits(&mut piece.value, base, first.1);
            }
        }
        base += usize::from(field.bits());
    }
}

/// Sets `out` to the pieces of one canonical condition as (care, value), at most `room`; none where it matches everything.
pub(crate) fn field_pieces(
    field: &Field,
    condition: &Match,
    room: usize,
    out: &mut Vec<(u128, u128)>,
) {
    out.clear();
    let (lo, hi) = (condition.lower(field), condition.upper(field));
    match condition.care(field) {
        Some(0) => {}
        Some(care) => out.push((care, lo)),
        None => interval_pieces(field.max(), lo, hi, room, out),
    }
}

/// Splits `lo..=hi` into at most `room` aligned blocks as (care, value), rounding outwards as far as that needs.
fn interval_pieces(max: u128, lo: u128, hi: u128, room: usize, out: &mut Vec<(u128, u128)>) {
    // Coarser units never need more blocks, and units of half of all values or of all differing bits need one: the finest
    // ones that fit are searched, since trying each in turn would take most of the time for wide ranges.
    let (mut fits, mut coarse) = (0, (128 - (lo ^ hi).leading_zeros()).min(127));
    while fits < coarse {
        // The finest units of all are right most often.
        let middle = if fits == 0 { 0 } else { (fits + coarse) / 2 };
        if block_count(lo >> middle, hi >> middle) as usize <= room {
            coarse = middle;
        } else {
            fits = middle + 1;
        }
    }
    blocks(max, lo, hi, coarse, out);
}

/// Into how many aligned blocks the values `first..=last` fall apart.
fn block_count(first: u128, last: u128) -> u32 {
    let Some(end) = last.checked_add(1) else {
        // All values together are one block too large.
        return match first {
            0 => 2,
            _ => first.wrapping_neg().count_ones(),
        };
    };
    // Blocks grow up to the highest multiple of a power of two that is in reach, and shrink behind it.
    let highest = (first ^ end).ilog2();
    let middle = end >> highest << highest;
    (middle - first).count_ones() + (end - middle).count_ones()
}

/// Sets `out` to the aligned blocks that `lo..=hi`, rounded outwards to units of `2^coarse` values, falls apart into.
fn blocks(max: u128, lo: u128, hi: u128, coarse: u32, out: &mut Vec<(u128, u128)>) {
    out.clear();
    // In units of 2^coarse values.
    let (mut next, last) = (lo >> coarse, hi >> coarse);
    loop {
        // The largest aligned block that starts here and does not run over the end.
        let room_left = last - next;
        let fits = if room_left == u128::MAX {
            127
        } else {
            (room_left + 1).ilog2()
        };
        let size = if next == 0 {
            fits
        } else {
            next.trailing_zeros().min(fits)
        };
        let wild = (1u128 << size) - 1;
        let shifted = wild.checked_shl(coarse).unwrap_or(0) | ((1u128 << coarse) - 1);
        out.push((max & !shifted, (next << coarse) & max & !shifted));
        if last - next <= wild {
            return;
        }
        next += wild + 1;
    }
}
