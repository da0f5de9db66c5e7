//! The lookup in vectors of 256 bits, as the kernel's: the loads and ANDs of a field's groups are unrolled, and a block is
//! skipped where the field before has filled nothing into it.

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_load_si256,
    _mm256_movemask_pd, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_store_si256,
    _mm256_testz_si256,
};

use super::{
    Block, FieldTable, GROUP_GAP, MISS, Scratch, Tables, by_groups, fill, lookup, selected_rows,
};

#[target_feature(enable = "avx2")]
pub(super) fn lookup(tables: &Tables, scratch: &mut Scratch, key: &[u8]) -> u32 {
    lookup!(step, tables, scratch, key)
}

/// One field, from block `start` on: the element if it is the `last`, else the lowest piece that it filled into `to`.
#[target_feature(enable = "avx2")]
fn step<const GROUPS: usize, const BITS: usize, const FIRST: bool>(
    field: &FieldTable,
    key: &[u8],
    last: bool,
    start: usize,
    from: &mut [Block],
    to: &mut [Block],
) -> u32 {
    let rows = selected_rows::<GROUPS, BITS>(field, key);
    debug_assert_eq!(
        field.rows.len(),
        GROUPS * ((1 << BITS) * field.blocks + GROUP_GAP)
    );
    let row_block = |group: usize, block: usize| {
        let row = field.rows.as_ptr().wrapping_byte_add(rows[group] as usize);
        // SAFETY: `selected_rows` gives the start of a row of a field of this form, and `block` is below `field.blocks`, the
        // length of each row.
        load(unsafe { &*row.add(block) })
    };
    let from = &mut from[..field.blocks];
    let mut found = MISS;
    for block in start..field.blocks {
        let mut filled = _mm256_set1_epi8(-1);
        if !FIRST {
            filled = load(&from[block]);
            if _mm256_testz_si256(filled, filled) != 0 {
                continue;
            }
            store(&mut from[block], _mm256_setzero_si256());
        }
        // Two chains, since one would be as long as there are groups; and they need not wait for what was filled.
        let mut halves = [row_block(0, block), _mm256_set1_epi8(-1)];
        for group in 1..GROUPS {
            let half = &mut halves[group % 2];
            *half = _mm256_and_si256(*half, row_block(group, block));
        }
        let bits = _mm256_and_si256(filled, _mm256_and_si256(halves[0], halves[1]));
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
                    if !FIRST {
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
