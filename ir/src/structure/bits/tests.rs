//! That the cells of an index hold every key that a rule matches, and that bits are chosen and gathered as they say.

use quickcheck::{QuickCheck, TestResult};

use super::{Aim, COARSE, Candidates, FINE, Gather, Index, Splitter, Ternary, count_bits};
use crate::plan::{Pext, Work};
use crate::structure::bits;
use crate::structure::tests::{ports, range};
use crate::{Field, KeyLayout, Match, Rule};

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
    // Only bits 4 and 5 of the first field differ; the second field is wild.
    let rules =
        [0x1200, 0x1210, 0x1220, 0x1230].map(|value| Rule::new([Match::Exact(value), Match::Any]));
    let pieces = pieces(&layout, &rules);
    let aim = Aim {
        max_bits: 8,
        capacity: 1.0,
        max_wild: 1,
    };
    let candidates = Candidates::new(&layout, &pieces);
    let pieces = split(&layout, &candidates, &rules);
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
fn random_rules(layout: &KeyLayout, values: &[(u16, u16)]) -> Vec<Rule> {
    let rule = |&(value, wild): &(u16, u16)| {
        let mask = Match::Mask {
            value: u128::from(value & !wild),
            mask: u128::from(!wild),
        };
        Rule::new([
            mask.canonical(&layout.fields()[0]),
            Match::Exact(u128::from(value % 7)),
        ])
    };
    values.iter().map(rule).collect()
}

fn pieces(layout: &KeyLayout, rules: &[Rule]) -> Vec<bits::Piece> {
    let mut pieces = Vec::new();
    for rule in rules {
        bits::pieces(layout, rule, COARSE, &mut pieces);
    }
    pieces
}

/// The same, reduced to the candidates.
fn split(layout: &KeyLayout, candidates: &Candidates, rules: &[Rule]) -> Vec<Ternary> {
    let mut splitter = Splitter::new(layout, candidates, COARSE);
    let mut pieces = Vec::new();
    for rule in rules {
        pieces.extend_from_slice(splitter.split(rule));
    }
    pieces
}

#[test]
fn qc_choosing_bits_agrees_with_its_definition() {
    /// The first bit: the badness of both halves of the only cell, piece by piece.
    fn holds(values: Vec<(u16, u16)>, capacity: u8) -> TestResult {
        let layout = ports();
        let rules = random_rules(&layout, &values);
        let capacity = f64::from(capacity % 16) + 0.5;
        let candidates = Candidates::new(&layout, &pieces(&layout, &rules));
        let reduced = split(&layout, &candidates, &rules);
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

#[test]
fn qc_splitting_a_rule_keeps_the_candidates_of_its_pieces() {
    /// Fields of both byte orders, one of more than 64 bits; the first two overlap in the key.
    fn holds(a: (u32, u32), b: (u16, u16), c: (u64, u64), chosen: Vec<u8>) -> TestResult {
        let fields = [
            Field::ipv4_addr("a"),
            Field::mark("b"),
            Field::ipv6_addr("c"),
        ];
        let layout = KeyLayout::at(fields.into_iter().zip([0, 3, 7])).unwrap();
        let chosen: Vec<bits::Bit> = chosen.iter().map(|&bit| u16::from(bit) % 192).collect();
        if chosen.is_empty() || chosen.len() > 20 {
            return TestResult::discard();
        }
        let ends = |a: u128, b: u128| Match::Range {
            lo: a.min(b),
            hi: a.max(b),
        };
        let wide = |x: u64| u128::from(x) << 32;
        let mut rule = Rule::new([
            ends(a.0.into(), a.1.into()),
            ends(b.0.into(), b.1.into()),
            ends(wide(c.0), wide(c.1)),
        ]);
        for (found, field) in rule.matches.iter_mut().zip(layout.fields()) {
            *found = found.canonical(field);
        }
        let candidates = Candidates::of(&layout, &chosen);
        let index = Index::new(&layout, &chosen);
        let mut whole = Vec::new();
        bits::pieces(&layout, &rule, FINE, &mut whole);
        let mask = (1u64 << index.bits()) - 1;
        let is_known = |piece: &Ternary| {
            let (fixed, wild) = (piece.value, !piece.care & mask);
            // What is not split so finely for the sake of other fields covers what is.
            whole.iter().any(|piece| {
                let (value, own) = index.cells(piece);
                (u64::from(value) ^ fixed) & !(wild | u64::from(own)) == 0
            })
        };
        let mut splitter = Splitter::new(&layout, &candidates, FINE);
        TestResult::from_bool(splitter.split(&rule).iter().all(is_known))
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(500)
        .quickcheck(holds as fn((u32, u32), (u16, u16), (u64, u64), Vec<u8>) -> TestResult);
}
