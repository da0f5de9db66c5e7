//! Rules as bits of the key, and the choice of those bits that tell rules apart: the index of `bucket` and `direct`.
//! `peel` chooses in a way of its own.
//!
//! A rule becomes a few ternary [pieces](mod@pieces): bits that must be 0, bits that must be 1, wild bits. The index may let
//! through too much, never too little.
//!
//! [`Candidates::choose`] then picks bits one after the other. Each doubles the cells; a piece goes to one of the two
//! halves of its cell, or to both where the bit is wild in it. The next bit is the one that leaves the cells best filled:
//!
//! ```text
//! f(x) = max(0, x - capacity / 2)^2 + x        summed over all cells
//! ```
//!
//! The square punishes cells that overflow, the linear term punishes copies; a piece that is wild in too many chosen bits is
//! given up for a fixed penalty, since it would be copied to too many cells. With rules 0000, 0001, 1000 and 1001 over four
//! bits and a capacity of 2, bit 3 gives cells of 2 and 2, bit 0 the same, bits 1 and 2 nothing: one bit is enough.
//!
//! All candidates are judged in one go over the cells: a piece has a byte for each, and bytes are added eight at a time.

mod pieces;
#[cfg(test)]
mod tests;

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::field::ByteOrder;
use crate::key::KeyLayout;
use crate::plan::{Pext, Work};
use crate::program::BinaryOp;
use crate::rule::Rule;
use crate::structure::Cost;
use crate::structure::windows::{Window, windows};

#[cfg(test)]
use pieces::get;
pub(crate) use pieces::{
    Bit, COARSE, EXACT, FINE, Fineness, Piece, field_pieces, pieces, put_bits,
};

/// Bits that are looked at: those that tell most rules apart.
const MAX_CANDIDATES: usize = 64;

/// What [`Candidates::choose`] aims at.
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
const GIVEN_UP: u32 = 4;

/// Units of work for looking at all candidates of one piece in one cell.
const WORK_PER_ENTRY: usize = 8;

/// Bits that were chosen.
pub(crate) struct Chosen {
    /// The candidates by number, in the order in which they were found useful.
    pub(crate) candidates: Vec<u8>,
    /// Whether another `max_wild` might have led to others.
    pub(crate) is_limited: bool,
}

/// The bits that tell most pieces apart: an index is made of some of them. Candidates are numbered in the order of their
/// places in the key.
pub(crate) struct Candidates {
    bits: Vec<Bit>,
    /// Field after field.
    stretches: Vec<Stretch>,
}

/// Candidates whose numbers follow each other, of one half of the sixteen bytes that a field may have.
struct Stretch {
    field: FieldId,
    shift: u8,
    gather: Gather,
    /// The number of the first of these candidates.
    first: u8,
}

/// Bits that must have a value, out of at most 64: of a piece, those that are candidates, by number. Bits of `value` outside
/// `care` are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ternary {
    pub(crate) care: u64,
    pub(crate) value: u64,
}

impl Ternary {
    /// How many bits of `mask` may have both values.
    pub(crate) fn wild(self, mask: u64) -> u32 {
        (mask & !self.care).count_ones()
    }

    /// Whether it covers whatever `other` matches where the bits of `mask` are fixed and both are possible.
    pub(crate) fn covers(self, other: Self, mask: u64) -> bool {
        self.care & !(other.care | mask) == 0
            && (self.value ^ other.value) & self.care & other.care == 0
    }
}

impl Candidates {
    /// Those that `pieces` suggest.
    pub(crate) fn new(layout: &KeyLayout, pieces: &[Piece]) -> Self {
        let total: usize = layout
            .fields()
            .iter()
            .map(|field| usize::from(field.bits()))
            .sum();
        let of_limb = |limb: usize| {
            pieces.iter().map(move |piece| Ternary {
                care: piece.care[limb],
                value: piece.value[limb],
            })
        };
        Self::of(layout, &telling_bits(total.div_ceil(64), of_limb))
    }

    /// These bits, at most [`MAX_CANDIDATES`]. Bits of overlapping fields may be the same bit of the key, and count once.
    pub(crate) fn of(layout: &KeyLayout, bits: &[Bit]) -> Self {
        let mut located: Vec<(usize, FieldId, Bit)> = bits
            .iter()
            .map(|&bit| {
                let (field, place) = locate(layout, bit);
                (8 * layout.offset(field) + place, field, bit)
            })
            .collect();
        located.sort_unstable();
        located.dedup_by_key(|&mut (place, ..)| place);
        let half = |&(place, field, _): &(usize, FieldId, Bit)| {
            (field, (place - 8 * layout.offset(field)) / 64)
        };
        let mut first = 0;
        let mut stretches: Vec<Stretch> = located
            .chunk_by(|a, b| half(a) == half(b))
            .map(|bits| {
                let (field, half) = half(&bits[0]);
                let start = 8 * layout.offset(field) + 64 * half;
                let mask = bits
                    .iter()
                    .fold(0, |mask, (place, ..)| mask | 1 << (place - start));
                first += bits.len() as u8;
                Stretch {
                    field,
                    shift: 64 * half as u8,
                    gather: Gather::new(mask),
                    first: first - bits.len() as u8,
                }
            })
            .collect();
        stretches.sort_by_key(|stretch| stretch.field);
        Self {
            bits: located.into_iter().map(|(.., bit)| bit).collect(),
            stretches,
        }
    }

    /// The numbers of all.
    pub(crate) fn all(&self) -> impl Iterator<Item = u8> + use<> {
        0..self.bits.len() as u8
    }

    /// The bits of some candidates.
    pub(crate) fn bits(&self, candidates: &[u8]) -> Vec<Bit> {
        candidates
            .iter()
            .map(|&candidate| self.bits[usize::from(candidate)])
            .collect()
    }

    /// A bit for each of the candidates `bits`, by number.
    pub(crate) fn mask(&self, bits: &[Bit]) -> u64 {
        let numbers = self.bits.iter().zip(0..);
        let chosen = numbers.filter(|(bit, _)| bits.contains(bit));
        chosen.fold(0, |mask, (_, number)| mask | 1 << number)
    }

    /// Chooses bits one after the other, as far as the work allows.
    pub(crate) fn choose(&self, pieces: &[Ternary], aim: &Aim, work: &Work) -> Chosen {
        let half_full = aim.capacity / 2.0;
        let badness = |count: u32| {
            let over = (f64::from(count) - half_full).max(0.0);
            over * over
        };
        let mut chosen: Vec<u8> = Vec::new();
        let mut is_limited = false;
        let mut halves: Vec<Halves> = pieces.iter().map(Halves::new).collect();
        // In how many chosen bits each piece is wild.
        let mut wilds = vec![0u32; pieces.len()];
        // The pieces of the cells that are more than half full, and of all others together: of those only copies count.
        let mut cells: Vec<Vec<u32>> = vec![(0..pieces.len() as u32).collect()];
        let mut sparse: Vec<u32> = Vec::new();
        let mut current = badness(pieces.len() as u32) + pieces.len() as f64;
        while chosen.len() < aim.max_bits
            && cells.iter().any(|cell| cell.len() as f64 > aim.capacity)
        {
            let entries = sparse.len() + cells.iter().map(Vec::len).sum::<usize>();
            if !work.spend(WORK_PER_ENTRY * entries) {
                break;
            }
            for (halves, &wild) in halves.iter_mut().zip(&wilds) {
                // One more wild bit would be too many.
                if wild >= aim.max_wild {
                    halves.give_up_wild();
                    is_limited = true;
                }
            }
            let mut totals = [0.0; MAX_CANDIDATES];
            let crowded = cells.iter().map(|cell| (cell, false));
            for (cell, is_sparse) in crowded.chain([(&sparse, true)]) {
                let counts = Counts::new(cell, &halves);
                let Counts([zeros, ones, placed]) = &counts;
                for (i, total) in totals.iter_mut().enumerate() {
                    let (zeros, ones, placed) = (zeros[i], ones[i], placed[i]);
                    *total += f64::from(zeros + ones + GIVEN_UP * (cell.len() as u32 - placed));
                    if !is_sparse {
                        *total += badness(zeros) + badness(ones);
                    }
                }
            }
            let best = self
                .all()
                .filter(|candidate| !chosen.contains(candidate))
                .min_by(|&a, &b| totals[usize::from(a)].total_cmp(&totals[usize::from(b)]));
            let Some(best) = best.filter(|&best| totals[usize::from(best)] < current) else {
                break;
            };
            let is_in = |side: usize| {
                let halves = &halves;
                move |piece: &u32| halves[*piece as usize].has(side, best)
            };
            let half = |cell: &Vec<u32>, side| cell.iter().copied().filter(is_in(side)).collect();
            sparse = [0, 1]
                .into_iter()
                .flat_map(|side| -> Vec<u32> { half(&sparse, side) })
                .collect();
            let split = std::mem::take(&mut cells);
            for cell in split.iter().flat_map(|cell| [half(cell, 0), half(cell, 1)]) {
                if cell.len() as f64 > half_full {
                    cells.push(cell);
                } else {
                    sparse.extend(cell);
                }
            }
            for (wild, piece) in wilds.iter_mut().zip(pieces) {
                *wild += u32::from(piece.care >> best & 1 == 0);
            }
            let of_cell = |cell: &Vec<u32>| badness(cell.len() as u32) + cell.len() as f64;
            current = sparse.len() as f64 + cells.iter().map(of_cell).sum::<f64>();
            chosen.push(best);
        }
        Chosen {
            candidates: chosen,
            is_limited,
        }
    }
}

/// Splits rules into pieces, of which it keeps the candidates alone: what differs in other bits becomes one, and fields without
/// candidates are not split.
pub(crate) struct Splitter<'a> {
    layout: &'a KeyLayout,
    candidates: &'a Candidates,
    fineness: Fineness,
    /// Of the rule at hand, and of one of its fields.
    pieces: Vec<Ternary>,
    parts: Vec<(u128, u128)>,
}

impl<'a> Splitter<'a> {
    pub(crate) fn new(
        layout: &'a KeyLayout,
        candidates: &'a Candidates,
        fineness: Fineness,
    ) -> Self {
        Self {
            layout,
            candidates,
            fineness,
            pieces: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// The pieces of a rule whose matches are canonical, ascending: at least one.
    pub(crate) fn split(&mut self, rule: &Rule) -> &[Ternary] {
        self.pieces.clear();
        self.pieces.push(Ternary::default());
        let stretches = &self.candidates.stretches;
        for stretches in stretches.chunk_by(|a, b| a.field == b.field) {
            let id = stretches[0].field;
            let field = self.layout.field(id);
            let room = self.fineness.room(self.pieces.len());
            field_pieces(field, &rule.matches[id.index()], room, &mut self.parts);
            let in_key = |bits: u128| match field.byte_order() {
                ByteOrder::Big => bits.swap_bytes() >> (128 - field.bits()),
                ByteOrder::Little => bits,
            };
            let gather = |bits: u128| {
                let bits = in_key(bits);
                stretches.iter().fold(0, |gathered, stretch| {
                    gathered | stretch.gather.of((bits >> stretch.shift) as u64) << stretch.first
                })
            };
            let known = self.pieces.len();
            for (i, &(care, value)) in self.parts.iter().enumerate().rev() {
                let (care, value) = (gather(care), gather(value));
                for at in 0..known {
                    let piece = Ternary {
                        care: self.pieces[at].care | care,
                        value: self.pieces[at].value | value,
                    };
                    // The first part is the last one to be added, to the pieces themselves.
                    if i == 0 {
                        self.pieces[at] = piece;
                    } else {
                        self.pieces.push(piece);
                    }
                }
            }
        }
        if self.pieces.len() > 1 {
            self.pieces.sort_unstable();
            self.pieces.dedup();
        }
        &self.pieces
    }
}

/// For each candidate whether a piece goes to the half of its cell where the bit is 0, and to that where it is 1: a byte that
/// is 0 or 1, so that pieces are added for eight candidates at once.
struct Halves([[u64; MAX_CANDIDATES / 8]; 2]);

impl Halves {
    fn new(piece: &Ternary) -> Self {
        let spread_all = |bits: u64| std::array::from_fn(|byte| spread((bits >> (8 * byte)) as u8));
        Self([
            spread_all(!piece.value),
            spread_all(!piece.care | piece.value),
        ])
    }

    /// Puts the piece into neither half where the bit is wild.
    fn give_up_wild(&mut self) {
        let [zeros, ones] = &mut self.0;
        for (zero, one) in zeros.iter_mut().zip(ones) {
            let wild = *zero & *one;
            *zero ^= wild;
            *one ^= wild;
        }
    }

    fn has(&self, side: usize, candidate: u8) -> bool {
        self.0[side][usize::from(candidate) / 8] >> (candidate % 8 * 8) & 1 == 1
    }
}

/// How many pieces of a cell go to the one half, to the other, and to any, for each candidate.
struct Counts([[u32; MAX_CANDIDATES]; 3]);

impl Counts {
    fn new(cell: &[u32], halves: &[Halves]) -> Self {
        let mut counts = [[0; MAX_CANDIDATES]; 3];
        // A byte counts no further.
        for pieces in cell.chunks(255) {
            let mut sums = [[0u64; MAX_CANDIDATES / 8]; 3];
            let [zeros, ones, placed] = &mut sums;
            for &piece in pieces {
                let Halves([zero, one]) = &halves[piece as usize];
                for i in 0..MAX_CANDIDATES / 8 {
                    zeros[i] += zero[i];
                    ones[i] += one[i];
                    placed[i] += zero[i] | one[i];
                }
            }
            for (counts, sums) in counts.iter_mut().zip(&sums) {
                let bytes = sums.iter().flat_map(|sum| sum.to_le_bytes());
                for (count, byte) in counts.iter_mut().zip(bytes) {
                    *count += u32::from(byte);
                }
            }
        }
        Self(counts)
    }
}

/// Byte i of the result is bit i.
fn spread(byte: u8) -> u64 {
    let repeated = u64::from(byte) * 0x0101_0101_0101_0101;
    let bits = repeated & 0x8040_2010_0804_0201;
    // What is not 0 carries into the highest bit of its byte.
    (bits + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101
}

/// The bits that tell most rules apart, the best first, at most [`MAX_CANDIDATES`]; `of_limb` yields what the rules want of 64
/// bits, limb after limb.
pub(crate) fn telling_bits<I: Iterator<Item = Ternary>>(
    limbs: usize,
    of_limb: impl Fn(usize) -> I,
) -> Vec<Bit> {
    let mut scored: Vec<(u32, Bit)> = Vec::new();
    for limb in 0..limbs {
        let ones = count_bits(of_limb(limb).map(|ternary| ternary.value));
        let cares = count_bits(of_limb(limb).map(|ternary| ternary.care));
        for (bit, (ones, cares)) in (64 * limb as Bit..).zip(ones.into_iter().zip(cares)) {
            let rarer = ones.min(cares - ones);
            if rarer > 0 {
                // Worth most where it splits evenly, and where few rules are wild in it.
                scored.push((16 * rarer + cares, bit));
            }
        }
    }
    scored.sort_unstable_by_key(|&(score, bit)| (std::cmp::Reverse(score), bit));
    scored.truncate(MAX_CANDIDATES);
    scored.into_iter().map(|(_, bit)| bit).collect()
}

/// For each of 64 bits, how many of the words have it.
pub(crate) fn count_bits(words: impl Iterator<Item = u64>) -> [u32; 64] {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let mut totals = [0; 64];
    // Byte k of number j counts bit 8k + j.
    let mut counters = [0u64; 8];
    let mut flush = |counters: &mut [u64; 8]| {
        for (j, counter) in counters.iter_mut().enumerate() {
            for (k, count) in counter.to_le_bytes().into_iter().enumerate() {
                totals[8 * k + j] += u32::from(count);
            }
            *counter = 0;
        }
    };
    for (i, word) in words.enumerate() {
        if i % 255 == 254 {
            flush(&mut counters);
        }
        for (j, counter) in counters.iter_mut().enumerate() {
            *counter += word >> j & LOW;
        }
    }
    flush(&mut counters);
    totals
}

/// All combinations of the bits of `wild`, each once.
pub(crate) fn subsets(wild: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0u64), move |subset| {
        let next = subset.wrapping_sub(wild) & wild;
        (next != 0).then_some(next)
    })
}

/// Gathers the bits of a mask side by side, as `pext` does: the bits move to the right by powers of two (Warren, "Hacker's
/// Delight", 7-4).
#[derive(Clone, Copy)]
pub(crate) struct Gather {
    mask: u64,
    /// The bits that move by 1, 2, 4 ... places.
    moves: [u64; 6],
}

impl Gather {
    pub(crate) fn new(mask: u64) -> Self {
        let mut left = mask;
        // The places whose right neighbour is not gathered.
        let mut gaps = !mask << 1;
        let moves = std::array::from_fn(|step| {
            let is_odd = [1, 2, 4, 8, 16, 32]
                .iter()
                .fold(gaps, |parity, by| parity ^ parity << by);
            let moving = is_odd & left;
            left = left ^ moving | moving >> (1 << step);
            gaps &= !is_odd;
            moving
        });
        Self { mask, moves }
    }

    pub(crate) fn of(&self, x: u64) -> u64 {
        let places = self.moves.iter().enumerate();
        places.fold(x & self.mask, |x, (step, moving)| {
            let moving = x & moving;
            x ^ moving | moving >> (1 << step)
        })
    }
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

    #[cfg(test)]
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
    pub(crate) fn emit(&self, b: &mut ProgramBuilder, pext: Pext) -> ValueId {
        let mut index: Option<ValueId> = None;
        let mut shift = 0;
        for (window, gathered) in &self.windows {
            let x = b.load_key(window.offset as u16, window.bytes, ByteOrder::Little);
            let part = match pext {
                Pext::Fast | Pext::Slow => b.binary_const(BinaryOp::Pext, x, *gathered),
                Pext::None => gather_runs(b, x, *gathered),
            };
            let part = b.shl(part, shift);
            shift += gathered.count_ones() as u8;
            index = Some(index.map_or(part, |before| b.binary(BinaryOp::Or, before, part)));
        }
        index.unwrap_or_else(|| b.constant(0))
    }

    /// What the index costs: for each load a shift and an or beside gathering.
    pub(crate) fn cost(&self, pext: Pext) -> Cost {
        let gather = |mask: u64| match pext {
            // The mask is a number of its own.
            Pext::Fast => 2.0,
            // A shift, a mask, and an or with those before.
            Pext::Slow | Pext::None => 4.0 * runs(mask).count() as f64,
        };
        let gathered = self.windows.iter().map(|&(_, mask)| 3.0 + gather(mask));
        Cost {
            instructions: gathered.sum(),
            ..Cost::default()
        }
    }
}

/// Runs of adjacent bits of a mask, the lowest first.
pub(crate) fn runs(mut mask: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        // Adding the lowest bit clears the run that starts there.
        let lowest = mask & mask.wrapping_neg();
        let run = mask & !mask.wrapping_add(lowest);
        mask ^= run;
        (run != 0).then_some(run)
    })
}

/// Emits what `pext` does by a shift and a mask for each run of bits.
fn gather_runs(b: &mut ProgramBuilder, x: ValueId, mask: u64) -> ValueId {
    let mut gathered: Option<ValueId> = None;
    let mut bits = 0;
    for run in runs(mask) {
        let shifted = b.shr(x, run.trailing_zeros() as u8);
        let part = b.binary_const(BinaryOp::And, shifted, run >> run.trailing_zeros());
        let part = b.shl(part, bits);
        bits += run.count_ones() as u8;
        gathered = Some(gathered.map_or(part, |before| b.binary(BinaryOp::Or, before, part)));
    }
    gathered.unwrap_or_else(|| b.constant(0))
}

/// Where a bit lies in the key: 8 times the byte, plus the bit in the byte.
fn place(layout: &KeyLayout, bit: Bit) -> usize {
    let (field, place) = locate(layout, bit);
    8 * layout.offset(field) + place
}

/// The field of a bit, and its place in the bytes of the field in the key.
fn locate(layout: &KeyLayout, bit: Bit) -> (FieldId, usize) {
    let mut base = 0;
    for id in layout.field_ids() {
        let field = layout.field(id);
        if usize::from(bit) < base + usize::from(field.bits()) {
            let in_field = usize::from(bit) - base;
            let byte = match field.byte_order() {
                ByteOrder::Big => usize::from(field.bytes()) - 1 - in_field / 8,
                ByteOrder::Little => in_field / 8,
            };
            return (id, 8 * byte + in_field % 8);
        }
        base += usize::from(field.bits());
    }
    // Candidates are bits of the layout's fields only.
    (FieldId::new(0), 0)
}
