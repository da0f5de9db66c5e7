//! The lookup in words of 64 bits.

use super::{Block, FieldTable, MISS, Scratch, Tables, by_groups, fill, lookup, selected_rows};

pub(super) fn lookup(tables: &Tables, scratch: &mut Scratch, key: &[u8]) -> u32 {
    lookup!(step, tables, scratch, key)
}

/// One field, from block `start` on: the element if it is the `last`, else the lowest piece that it filled into `to`.
fn step<const GROUPS: usize, const BITS: usize, const FIRST: bool>(
    field: &FieldTable,
    key: &[u8],
    last: bool,
    start: usize,
    from: &mut [Block],
    to: &mut [Block],
) -> u32 {
    let starts = selected_rows::<GROUPS, BITS>(field, key);
    let rows: [_; GROUPS] = std::array::from_fn(|group| {
        &field.rows[starts[group] as usize / size_of::<Block>()..][..field.blocks]
    });
    let from = &mut from[..field.blocks];
    let mut found = MISS;
    for block in start..field.blocks {
        for word in 0..4 {
            let mut bits = if FIRST {
                u64::MAX
            } else {
                std::mem::take(&mut from[block].0[word])
            };
            if bits == 0 {
                continue;
            }
            for row in rows {
                bits &= row[block].0[word];
            }
            while bits != 0 {
                let piece = block * 256 + word * 64 + bits.trailing_zeros() as usize;
                let mapping = field.mapping[piece];
                if last {
                    if !FIRST {
                        from[block..].fill(Block::default());
                    }
                    return mapping.first;
                }
                fill(to, mapping);
                found = found.min(mapping.first);
                bits &= bits - 1;
            }
        }
    }
    found
}
