//! The lookup in words of 64 bits.

use super::{Block, FieldTable, MISS, Scratch, Tables, by_groups, fill, selected_rows};

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
fn step<const GROUPS: usize, const BITS: usize>(
    field: &FieldTable,
    key: &[u8],
    first: bool,
    last: bool,
    start: usize,
    from: &mut [Block],
    to: &mut [Block],
) -> u32 {
    let rows =
        selected_rows::<GROUPS, BITS>(field, key).map(|row| &field.rows[row..][..field.blocks]);
    let from = &mut from[..field.blocks];
    let mut found = MISS;
    for block in start..field.blocks {
        for word in 0..4 {
            let mut bits = if first {
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
                    if !first {
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
