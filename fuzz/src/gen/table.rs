//! Random tables: any row size, columns of all widths with and without a maximum, and always lanes to load.

use pktjit_ir::program::{Column, Table};
use quickcheck::{Arbitrary, Gen};

use super::{below, pick};

/// A random table whose first column holds at least 16 numbers of at most 32 bits.
pub(super) fn table(g: &mut Gen) -> Table {
    let rows = pick(g, &[1, 2, 3, 4, 8, 13, 64]);
    // The first column always has room for 16 lanes, often for several runs of them.
    let runs = pick(g, &[1, 1, 2, 4]);
    let mut shapes = vec![(pick(g, &[1, 2, 4, 4]), 16 * runs + below(g, 4))];
    for _ in 0..below(g, 4) {
        shapes.push((pick(g, &[1, 2, 4, 8]), 1 + below(g, 5)));
    }
    let mut end = 0;
    let mut columns = Vec::new();
    for (i, (bytes, count)) in shapes.into_iter().enumerate() {
        let offset = (end + below(g, 2) * bytes).next_multiple_of(bytes);
        end = offset + bytes * count;
        let type_max = u64::MAX >> (64 - 8 * bytes);
        let small = 1 + below(g, 16) as u64;
        columns.push(Column {
            name: format!("c{i}").into(),
            offset: offset as u32,
            bytes: bytes as u8,
            count: count as u32,
            max: pick(g, &[type_max, type_max, small, type_max >> 1]),
            is_result: false,
        });
    }
    let row_bytes = pick(
        g,
        &[
            end,
            end + 1,
            end.next_multiple_of(8),
            end.next_multiple_of(64),
        ],
    );
    let mut data = vec![0; rows * row_bytes];
    for row in 0..rows {
        for column in &columns {
            let bytes = usize::from(column.bytes);
            for i in 0..column.count as usize {
                let number = match below(g, 12) {
                    0 => column.max,
                    1 => 0,
                    _ => u64::arbitrary(g) % column.max.saturating_add(1).max(1),
                };
                let start = row * row_bytes + column.offset as usize + i * bytes;
                data[start..start + bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
            }
        }
    }
    Table {
        name: "random".into(),
        row_bytes: row_bytes as u32,
        columns,
        data: data.into(),
    }
}
