//! Rules as bits of the key, and the choice of those bits that tell rules apart: the index of `bucket`.
//!
//! A rule becomes a few ternary *pieces*: bits that must be 0, bits that must be 1, wild bits. Prefixes and masks are one
//! piece; an interval becomes the prefixes that it consists of, and where these would be too many, the prefixes of a
//! slightly larger interval: the index may let through too much, never too little.
//!
//! [`choose`] then picks bits one after the other. Each doubles the cells; a piece goes to one of the two halves of its
//! cell, or to both where the bit is wild in it. The next bit is the one that leaves the cells best filled:
//!
//! ```text
//! f(x) = max(0, x - capacity / 2)^2 + x        summed over all cells
//! ```
//!
//! The square punishes cells that overflow, the linear term punishes copies; a piece that is wild in too many chosen bits is
//! given up for a fixed penalty, since it would be copied to too many cells. With rules 0000, 0001, 1000 and 1001 over four
//! bits and a capacity of 2, bit 3 gives cells of 2 and 2, bit 0 the same, bits 1 and 2 nothing: one bit is enough.

use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::field::{ByteOrder, Field};
use crate::key::{KeyLayout, MAX_FIELD_BYTES_SUM};
use crate::program::BinaryOp;
use crate::rule::{Match, Rule};
use crate::structure::Cost;
use crate::structure::windows::{Window, windows};

/// Into how many pieces rules are split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fineness {
    /// Most pieces that an interval of one field becomes.
    field: usize,
    /// Most pieces that a rule becomes.
    rule: usize,
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

/// Bits that are looked at: those that tell most rules apart.
const MAX_CANDIDATES: usize = 64;

const LIMBS: usize = MAX_FIELD_BYTES_SUM / 8;

/// A set of bits of the fields, field after field, the least significant bit of each field first.
type Bits = [u64; LIMBS];

/// Bits that must have a value. Bits of `value` outside `care` are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    care: Bits,
    value: Bits,
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

fn get(bits: &Bits, bit: Bit) -> bool {
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
        let room = fineness
            .field
            .min(fineness.rule / (out.len() - start))
            .max(1);
        field_pieces(field, condition, room, &mut parts);
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
        if blocks(max, lo, hi, middle, room, out) {
            coarse = middle;
        } else {
            fits = middle + 1;
        }
    }
    blocks(max, lo, hi, coarse, room, out);
}

/// Splits `lo..=hi`, rounded outwards to units of `2^coarse` values, into aligned blocks; `false` where it takes more than
/// `room`.
fn blocks(
    max: u128,
    lo: u128,
    hi: u128,
    coarse: u32,
    room: usize,
    out: &mut Vec<(u128, u128)>,
) -> bool {
    out.clear();
    // In units of 2^coarse values.
    let (mut next, last) = (lo >> coarse, hi >> coarse);
    loop {
        if out.len() == room {
            return false;
        }
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
            return true;
        }
        next += wild + 1;
    }
}

/// What [`choose`] aims at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    /// Most bits.
    pub(crate) max_bits: usize,
    /// Pieces that a cell should hold; less than one where the pieces are a sample.
    pub(crate) capacity: f64,
    /// A piece that is wild in more of the chosen bits is given up: it would be copied to too many cells.
    pub(crate) max_wild: u32,
}

/// What a piece that is given up counts for, in pieces kept in a cell that is not too full.
const GIVEN_UP: f64 = 4.0;

/// Bits that were chosen.
pub(crate) struct Chosen {
    /// The bits, in the order in which they were found useful.
    pub(crate) bits: Vec<Bit>,
    /// Whether another `max_wild` might have led to others.
    pub(crate) is_limited: bool,
}

/// Chooses bits one after the other.
pub(crate) fn choose(layout: &KeyLayout, pieces: &[Piece], aim: &Aim) -> Chosen {
    // For each candidate, how each piece wants the bit: 0, 1, or WILD. One run of memory per candidate.
    const WILD: u8 = 2;
    let wants: Vec<(Bit, Vec<u8>)> = candidates(layout, pieces)
        .into_iter()
        .map(|bit| {
            let want = |piece: &Piece| {
                if get(&piece.care, bit) {
                    u8::from(get(&piece.value, bit))
                } else {
                    WILD
                }
            };
            (bit, pieces.iter().map(want).collect())
        })
        .collect();
    let badness = |count: usize| {
        let count = count as f64;
        let over = (count - aim.capacity / 2.0).max(0.0);
        over * over + count
    };
    let mut chosen: Vec<Bit> = Vec::new();
    let mut is_limited = false;
    // The pieces of each cell, and in how many chosen bits each piece is wild.
    let mut cells: Vec<Vec<u32>> = vec![(0..pieces.len() as u32).collect()];
    let mut wilds = vec![0u32; pieces.len()];
    let mut current = badness(pieces.len());
    while chosen.len() < aim.max_bits && cells.iter().any(|cell| cell.len() as f64 > aim.capacity) {
        // One more wild bit would be too many for these.
        let is_full: Vec<bool> = wilds.iter().map(|&wild| wild >= aim.max_wild).collect();
        is_limited |= is_full.contains(&true);
        let score = |want: &[u8]| -> f64 {
            let cell_score = |cell: &Vec<u32>| {
                let mut counts = [0usize; 4];
                for &piece in cell {
                    let (piece, want) = (piece as usize, want[piece as usize]);
                    counts[usize::from(want + u8::from(want == WILD && is_full[piece]))] += 1;
                }
                let [zeros, ones, both, given_up] = counts;
                badness(zeros + both) + badness(ones + both) + GIVEN_UP * given_up as f64
            };
            cells.iter().map(cell_score).sum()
        };
        let best = wants
            .iter()
            .filter(|(bit, _)| !chosen.contains(bit))
            .map(|(bit, want)| (score(want), *bit, want))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let Some((total, bit, want)) = best else {
            break;
        };
        if total >= current {
            break;
        }
        let is_given_up = |piece: u32| want[piece as usize] == WILD && is_full[piece as usize];
        let half = |cell: &[u32], side: u8| -> Vec<u32> {
            cell.iter()
                .copied()
                .filter(|&piece| want[piece as usize] != 1 - side && !is_given_up(piece))
                .collect()
        };
        cells = cells
            .iter()
            .flat_map(|cell| [half(cell, 0), half(cell, 1)])
            .filter(|cell| !cell.is_empty())
            .collect();
        for (wild, &want) in wilds.iter_mut().zip(want) {
            *wild += u32::from(want == WILD);
        }
        current = cells.iter().map(|cell| badness(cell.len())).sum();
        chosen.push(bit);
    }
    Chosen {
        bits: chosen,
        is_limited,
    }
}

/// The bits that tell most pieces apart, the best first.
fn candidates(layout: &KeyLayout, pieces: &[Piece]) -> Vec<Bit> {
    let total: usize = layout
        .fields()
        .iter()
        .map(|field| usize::from(field.bits()))
        .sum();
    let mut scored: Vec<(usize, Bit)> = (0..total as Bit)
        .filter_map(|bit| {
            let ones = pieces.iter().filter(|piece| get(&piece.value, bit)).count();
            let zeros = pieces.iter().filter(|piece| get(&piece.care, bit)).count() - ones;
            // Worth most where it splits evenly, and where few rules are wild in it.
            let score = 16 * zeros.min(ones) + zeros + ones;
            (zeros.min(ones) > 0).then_some((score, bit))
        })
        .collect();
    scored.sort_by_key(|&(score, bit)| (std::cmp::Reverse(score), bit));
    scored.truncate(MAX_CANDIDATES);
    scored.into_iter().map(|(_, bit)| bit).collect()
}

/// An index made of key bits: loads of the key, the bits gathered by `pext`, and put side by side.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// Loads, and the bits of each that are gathered.
    windows: Vec<(Window, u64)>,
    /// The chosen bits from bit 0 of the index on.
    order: Vec<Bit>,
}

impl Index {
    /// The index of these bits. Bits of overlapping fields that are the same bit of the key become one.
    pub(crate) fn new(layout: &KeyLayout, bits: &[Bit]) -> Self {
        let mut places: Vec<(usize, Bit)> =
            bits.iter().map(|&bit| (place(layout, bit), bit)).collect();
        places.sort_unstable();
        places.dedup_by_key(|&mut (place, _)| place);
        let mut mask = vec![0u8; layout.len()];
        for &(place, _) in &places {
            mask[place / 8] |= 1 << (place % 8);
        }
        let mut left = mask.clone();
        let windows = windows(mask.iter().copied())
            .map(|window| {
                // A byte that two windows read counts in the first one.
                let gathered = window.read(&left);
                left[window.offset..window.offset + usize::from(window.bytes)].fill(0);
                (window, gathered)
            })
            .collect();
        Self {
            windows,
            order: places.into_iter().map(|(_, bit)| bit).collect(),
        }
    }

    /// The number of bits of the index.
    pub(crate) fn bits(&self) -> usize {
        self.order.len()
    }

    /// The bits of the index, from bit 0 on.
    pub(crate) fn order(&self) -> &[Bit] {
        &self.order
    }

    /// The cells of a piece: a number of the index, and bits of it that may be anything.
    pub(crate) fn cells(&self, piece: &Piece) -> (u32, u32) {
        self.order
            .iter()
            .enumerate()
            .fold((0, 0), |(fixed, wild), (i, &bit)| {
                if get(&piece.care, bit) {
                    (fixed | u32::from(get(&piece.value, bit)) << i, wild)
                } else {
                    (fixed, wild | 1 << i)
                }
            })
    }

    /// Emits the index; provably below 2^[`bits`](Self::bits).
    pub(crate) fn emit(&self, b: &mut ProgramBuilder) -> ValueId {
        let mut index: Option<ValueId> = None;
        let mut shift = 0;
        for (window, gathered) in &self.windows {
            let x = b.load_key(window.offset as u16, window.bytes, ByteOrder::Little);
            let part = b.binary_const(BinaryOp::Pext, x, *gathered);
            let part = b.shl(part, shift);
            shift += gathered.count_ones() as u8;
            index = Some(index.map_or(part, |before| b.binary(BinaryOp::Or, before, part)));
        }
        index.unwrap_or_else(|| b.constant(0))
    }

    /// What the index costs; `run` is what gathering one run of adjacent bits costs where there is no quick `pext`.
    pub(crate) fn cost(&self, has_pext: bool) -> Cost {
        let runs = |mask: u64| f64::from((mask & !(mask << 1)).count_ones());
        let gather = |mask: u64| if has_pext { 2.0 } else { 4.0 * runs(mask) };
        Cost {
            instructions: self
                .windows
                .iter()
                .map(|&(_, mask)| 3.0 + gather(mask))
                .sum(),
            ..Cost::default()
        }
    }
}

/// Where a bit lies in the key: 8 times the byte, plus the bit in the byte.
fn place(layout: &KeyLayout, bit: Bit) -> usize {
    let mut base = 0;
    for id in layout.field_ids() {
        let field = layout.field(id);
        if usize::from(bit) < base + usize::from(field.bits()) {
            let in_field = usize::from(bit) - base;
            let byte = match field.byte_order() {
                ByteOrder::Big => usize::from(field.bytes()) - 1 - in_field / 8,
                ByteOrder::Little => in_field / 8,
            };
            return 8 * (layout.offset(id) + byte) + in_field % 8;
        }
        base += usize::from(field.bits());
    }
    // `choose` offers bits of the layout's fields only.
    0
}
