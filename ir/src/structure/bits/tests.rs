//! That the cells of an index hold every key that a rule matches, and that bits are chosen and gathered as they say.

use quickcheck::{QuickCheck, TestResult};

use super::{Aim, COARSE, Candidates, FINE, Gather, Index, Ternary, count_bits};
use crate::plan::{Pext, Work};
use crate::structure::bits;
use crate::structure::tests::{ports, range};
use crate::{KeyLayout, Match, Rule};

/// Whether a key of `layout` selects one of the cells of some piece.
fn is_in_a_cell(index: &Index, layout: &KeyLayout, key: &[u128], pieces: &[bits::Piece]) -> bool {
    // A key is a rule of single values, so its one piece has one cell.
    let exact = Rule::new(key.iter().map(|&value| Match::Exact(value)));
    let mut own = Vec::new();
    bits::pieces(layout, &exact, FINE, &mut own);
    let (cell, wild) = index.cells(&own[0]);
    assert_eq!(wild, 0);
    pieces.iter().any(|piece| {
        let (fixed, wild) = index.cells(piece);
        (cell ^ fixed) & !wild == 0
    })
}

#[test]
fn qc_the_cells_of_a_rule_hold_every_key_that_it_matches() {
    fn holds(
        a: (u16, u16),
        b: (u16, u16),
        chosen: Vec<u8>,
        at: (u16, u16),
        is_fine: bool,
    ) -> TestResult {
        let layout = ports();
        let end = |a: u16, b: u16| (u128::from(a.min(b)), u128::from(a.max(b)));
        let (lo, hi) = (end(a.0, b.0), end(a.1, b.1));
        let rule = Rule::new([range(lo.0, lo.1), range(hi.0, hi.1)]);
        let mut pieces = Vec::new();
        bits::pieces(
            &layout,
            &rule,
            if is_fine { FINE } else { COARSE },
            &mut pieces,
        );
        let mut chosen: Vec<bits::Bit> = chosen.iter().map(|&bit| u16::from(bit % 32)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let index = Index::new(&layout, &chosen);
        let inside = |(lo, hi): (u128, u128), at: u16| lo + u128::from(at) % (hi - lo + 1);
        let key = [inside(lo, at.0), inside(hi, at.1)];
        let ends = [[lo.0, hi.0], [lo.1, hi.1], key];
        TestResult::from_bool(
            ends.iter()
                .all(|key| is_in_a_cell(&index, &layout, key, &pieces)),
        )
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(2000)
        .quickcheck(holds as fn((u16, u16), (u16, u16), Vec<u8>, (u16, u16), bool) -> TestResult);
}

#[test]
fn an_interval_of_two_unaligned_values_is_two_pieces() {
    let mut pieces = Vec::new();
    bits::pieces(
        &ports(),
        &Rule::new([range(7, 8), Match::Any]),
        COARSE,
        &mut pieces,
    );
    assert_eq!(pieces.len(), 2);
    // Bit 3 of the first field tells 7 from 8, and so does bit 0.
    let index = Index::new(&ports(), &[0, 3]);
    let mut cells: Vec<(u32, u32)> = pieces.iter().map(|piece| index.cells(piece)).collect();
    cells.sort_unstable();
    assert_eq!(cells, [(0b01, 0), (0b10, 0)]);
}

#[test]
fn bits_that_tell_nothing_apart_are_not_chosen() {
    let layout = ports();
    let mut pieces = Vec::new();
    // Only bits 4 and 5 of the first field differ; the second field is wild.
    for value in [0x1200, 0x1210, 0x1220, 0x1230] {
        bits::pieces(
            &layout,
            &Rule::new([Match::Exact(value), Match::Any]),
            FINE,
            &mut pieces,
        );
    }
    let aim = Aim {
        max_bits: 8,
        capacity: 1.0,
        max_wild: 1,
    };
    let candidates = Candidates::new(&layout, &pieces);
    let pieces: Vec<Ternary> = pieces
        .iter()
        .map(|piece| candidates.reduce(piece))
        .collect();
    let chosen = candidates.choose(&pieces, &aim, &Work::new(u64::MAX));
    let mut chosen = candidates.bits(&chosen.candidates);
    chosen.sort_unstable();
    assert_eq!(chosen, [4, 5]);
}

#[test]
fn qc_gathered_bits_are_those_of_the_mask_side_by_side() {
    fn holds(mask: u64, x: u64) -> bool {
        let of_mask = (0..64).filter(|bit| mask >> bit & 1 == 1);
        let expected = of_mask
            .enumerate()
            .fold(0, |bits, (to, from)| bits | (x >> from & 1) << to);
        Gather::new(mask).of(x) == expected
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(2000)
        .quickcheck(holds as fn(u64, u64) -> bool);
}

/// Random values of 32 bits, of which half are wild in some bits.
fn random_pieces(layout: &KeyLayout, values: &[(u16, u16)]) -> Vec<bits::Piece> {
    let mut pieces = Vec::new();
    for &(value, wild) in values {
        let mask = Match::Mask {
            value: u128::from(value & !wild),
            mask: u128::from(!wild),
        };
        let rule = Rule::new([
            mask.canonical(&layout.fields()[0]),
            Match::Exact(u128::from(value % 7)),
        ]);
        bits::pieces(layout, &rule, COARSE, &mut pieces);
    }
    pieces
}

#[test]
fn qc_choosing_bits_agrees_with_its_definition() {
    /// The first bit: the badness of both halves of the only cell, piece by piece.
    fn holds(values: Vec<(u16, u16)>, capacity: u8) -> TestResult {
        let layout = ports();
        let pieces = random_pieces(&layout, &values);
        let capacity = f64::from(capacity % 16) + 0.5;
        let candidates = Candidates::new(&layout, &pieces);
        let reduced: Vec<Ternary> = pieces
            .iter()
            .map(|piece| candidates.reduce(piece))
            .collect();
        let aim = Aim {
            max_bits: 1,
            capacity,
            max_wild: 1,
        };
        let chosen = candidates
            .choose(&reduced, &aim, &Work::new(u64::MAX))
            .candidates;
        let badness =
            |count: usize| (count as f64 - capacity / 2.0).max(0.0).powi(2) + count as f64;
        let score = |candidate: u8| {
            let halves = [0, 1].map(|side| {
                let goes =
                    |p: &&Ternary| p.care >> candidate & 1 == 0 || p.value >> candidate & 1 == side;
                badness(reduced.iter().filter(goes).count())
            });
            halves[0] + halves[1]
        };
        match chosen[..] {
            [] => TestResult::discard(),
            [best, ..] => TestResult::from_bool(
                score(best) < badness(reduced.len())
                    && candidates.all().all(|other| score(best) <= score(other)),
            ),
        }
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(500)
        .quickcheck(holds as fn(Vec<(u16, u16)>, u8) -> TestResult);
}

#[test]
fn gathering_scattered_bits_is_dearer_without_a_quick_pext() {
    let index = Index::new(&ports(), &[0, 2, 4, 6, 17]);
    let instructions = |pext| index.cost(pext).instructions;
    assert!(instructions(Pext::Slow) > instructions(Pext::Fast));
    assert!(instructions(Pext::None) > instructions(Pext::Fast));
}

#[test]
fn qc_runs_of_a_mask_are_apart_and_are_all_of_it() {
    fn holds(mask: u64) -> bool {
        let all: Vec<u64> = bits::runs(mask).collect();
        let is_one = |run: &u64| {
            (run >> run.trailing_zeros())
                .wrapping_add(1)
                .is_power_of_two()
                || *run >> run.trailing_zeros() == u64::MAX
        };
        all.iter().fold(0, |or, run| or | run) == mask
            && all.iter().all(is_one)
            && all.windows(2).all(|pair| {
                (u128::from(pair[0]) * 2) & u128::from(pair[1]) == 0 && pair[0] < pair[1]
            })
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(2000)
        .quickcheck(holds as fn(u64) -> bool);
}

#[test]
fn qc_all_bits_are_counted_at_once() {
    fn holds(words: Vec<u64>, times: u8) -> bool {
        // More than one counter of 8 bits holds.
        let all = || (0..times).flat_map(|_| words.iter().copied());
        let counts = count_bits(all());
        (0..64).all(|bit| counts[bit] as usize == all().filter(|word| word >> bit & 1 == 1).count())
    }
    QuickCheck::new()
        .min_tests_passed(100)
        .quickcheck(holds as fn(Vec<u64>, u8) -> bool);
}
