//! The lookup in vectors of 256 bits.

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_load_si256,
    _mm256_movemask_pd, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_store_si256,
    _mm256_testz_si256,
};

use super::{Block, FieldTable, MISS, Scratch, Tables, by_groups, fill, selected_rows};

#[target_feature(enable = "avx2")]
pub(super) fn lookup(tables: &Tables, scratch: &mut Scratch, key: &[u8]) -> u32 {
    let Scratch { from, to } = scratch;
    let (mut from, mut to) = (from, to);
    let last = tables.fields.len() - 1;
    let mut found = 0;
    for (index, field) in tables.fields.iter().enumerate() {
        let start = found as usize / 256;
        found = by_groups!(
            field,
            step(field, key, index == 0, index == last, start, from, to)
        );
        if found == MISS {
            break;
        }
        std::mem::swap(&mut from, &mut to);
    }
    found
}

/// One field, from block `start` on: the element if it is the `last`, else the lowest piece that it filled into `to`.
#[target_feature(enable = "avx2")]
fn step<const GROUPS: usize, const BITS: usize>(
    field: &FieldTable,
    key: &[u8],
    first: bool,
    last: bool,
    start: usize,
    from: &mut [Block],
    to: &mut [Block],
) -> u32 {
    let rows = selected_rows::<GROUPS, BITS>(field, key);
    debug_assert_eq!(field.rows.len(), (GROUPS << BITS) * field.blocks);
    let row_block = |row: usize, block: usize| {
        // SAFETY: `block` is below `field.blocks`, and there are so many for each value of each group.
        load(unsafe { field.rows.get_unchecked(row + block) })
    };
    let from = &mut from[..field.blocks];
    let mut found = MISS;
    for block in start..field.blocks {
        let mut filled = _mm256_set1_epi8(-1);
        if !first {
            filled = load(&from[block]);
            if _mm256_testz_si256(filled, filled) != 0 {
                continue;
            }
            store(&mut from[block], _mm256_setzero_si256());
        }
        // Two chains: one would be as long as there are groups.
        let mut halves = [filled, row_block(rows[0], block)];
        for (group, &row) in rows.iter().enumerate().skip(1) {
            let half = &mut halves[group % 2];
            *half = _mm256_and_si256(*half, row_block(row, block));
        }
        let bits = _mm256_and_si256(halves[0], halves[1]);
        if _mm256_testz_si256(bits, bits) != 0 {
            continue;
        }
        let mut words = Block::default();
        store(&mut words, bits);
        let zero = _mm256_cmpeq_epi64(bits, _mm256_setzero_si256());
        // One bit for each word that is not zero: mostly there is one, and asking each word would be mispredicted.
        let mut words_left = !_mm256_movemask_pd(_mm256_castsi256_pd(zero)) as u32 & 0xf;
        while words_left != 0 {
            let word = words_left.trailing_zeros() as usize;
            let mut bits = words.0[word];
            while bits != 0 {
                let piece = block * 256 + word * 64 + bits.trailing_zeros() as usize;
                let mapping = field.mapping[piece];
                if last {
                    if !first {
                        // This block is clear already.
                        for rest in &mut from[block + 1..] {
                            store(rest, _mm256_setzero_si256());
                        }
                    }
                    return mapping.first;
                }
                fill(to, mapping);
                found = found.min(mapping.first);
                bits &= bits - 1;
            }
            words_left &= words_left - 1;
        }
    }
    found
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(block: &Block) -> __m256i {
    // SAFETY: a block is 32 bytes, aligned to 32.
    unsafe { _mm256_load_si256(std::ptr::from_ref(block).cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(block: &mut Block, bits: __m256i) {
    // SAFETY: a block is 32 bytes, aligned to 32, and borrowed mutably.
    unsafe { _mm256_store_si256(std::ptr::from_mut(block).cast(), bits) }
}
