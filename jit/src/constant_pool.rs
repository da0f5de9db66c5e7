//! Where tables and constants live: in the pool behind the code, or in the region of large tables.
//!
//! ```text
//! pool    | small tables, each at a multiple of 64 | vector constants and addresses of large tables, each at a multiple of its size |
//! region  | large tables, each at a multiple of 64 |
//! ```
//!
//! Invariants: offsets never change once they are given out; equal constants are stored once; tables of the region are
//! only measured here, the runtime copies their bytes.

use std::collections::HashMap;
use std::sync::Arc;

use pktjit_ir::TableId;
use pktjit_ir::program::{TABLE_ALIGN, Table};

use crate::code::{Placement, Region, Relocation};

/// Bytes of the largest table that goes into the pool: one page, so that cold code shares no page with a big table.
const MAX_POOL_TABLE: usize = 4 << 10;
/// Bytes of tables that the pool takes in all.
const MAX_POOL_TABLES: usize = 64 << 10;
/// Addresses that differ by a multiple of this share a set of the first-level cache on most machines.
const PAGE: usize = 4 << 10;
/// The pool while it grows, and the tables of the region with their offsets.
#[derive(Debug)]
pub(crate) struct ConstantPool {
    bytes: Vec<u8>,
    tables: Vec<Placement>,
    region: Region,
    vectors: HashMap<Box<[u8]>, usize>,
    addresses: HashMap<TableId, usize>,
}

impl ConstantPool {
    /// Places `tables`: each goes into the pool if it is small, and while there is room.
    pub(crate) fn new(tables: &[Table]) -> Self {
        Self::with_room(tables, MAX_POOL_TABLES)
    }

    /// Places `tables` in the region, all of them.
    #[cfg(feature = "cranelift")]
    pub(crate) fn in_region(tables: &[Table]) -> Self {
        Self::with_room(tables, 0)
    }

    /// Places `tables`, those in the pool in no more than `room` bytes.
    fn with_room(tables: &[Table], room: usize) -> Self {
        let mut pool = Self {
            bytes: Vec::new(),
            tables: Vec::with_capacity(tables.len()),
            region: Vec::new(),
            vectors: HashMap::new(),
            addresses: HashMap::new(),
        };
        for table in tables {
            let len = table.data.len();
            let start = pool.bytes.len().next_multiple_of(TABLE_ALIGN);
            pool.tables
                .push(if len <= MAX_POOL_TABLE && start + len <= room {
                    pool.bytes.resize(start, 0);
                    pool.bytes.extend_from_slice(&table.data);
                    Placement::Pool(start)
                } else {
                    let start = pool.region.last().map_or(0, |(at, data)| {
                        // Equal rows of tables that are whole pages would compete for the same lines of the first-level
                        // cache: the next one begins a line later.
                        let skew = match data.len().is_multiple_of(PAGE) {
                            true => TABLE_ALIGN,
                            false => 0,
                        };
                        (at + data.len()).next_multiple_of(TABLE_ALIGN) + skew
                    });
                    pool.region.push((start, Arc::clone(&table.data)));
                    Placement::Region(start)
                });
        }
        pool
    }

    /// Where a table is; [`Placement::Pool`] counts from the start of the pool.
    pub(crate) fn table(&self, id: TableId) -> Placement {
        self.tables[id.index()]
    }

    /// Offset in the pool of the constant of a vector, or of each of its lanes.
    pub(crate) fn vector(&mut self, constant: &[u8]) -> usize {
        if let Some(&start) = self.vectors.get(constant) {
            return start;
        }
        let start = self.bytes.len().next_multiple_of(constant.len());
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(constant);
        self.vectors.insert(constant.into(), start);
        start
    }

    /// Offset in the pool of the address of a table of the region, for an ISA whose instructions hold none.
    pub(crate) fn address(&mut self, table: TableId) -> usize {
        *self.addresses.entry(table).or_insert_with(|| {
            let start = self.bytes.len().next_multiple_of(8);
            self.bytes.resize(start + 8, 0);
            start
        })
    }

    /// The addresses that the runtime has to write, in ascending order, if the pool starts at byte `start` of the code.
    pub(crate) fn relocations(&self, start: usize) -> Vec<Relocation> {
        let mut relocations: Vec<Relocation> = self
            .addresses
            .iter()
            .map(|(&table, at)| Relocation {
                offset: start + at,
                table,
            })
            .collect();
        relocations.sort_unstable_by_key(|relocation| relocation.offset);
        relocations
    }

    /// Bytes of the pool so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of the pool, where the tables are if it starts at byte `start` of the code, and the region.
    pub(crate) fn finish(self, start: usize) -> (Vec<u8>, Vec<Placement>, Region) {
        let place = |placement| match placement {
            Placement::Pool(offset) => Placement::Pool(start + offset),
            region @ Placement::Region(_) => region,
        };
        let tables = self.tables.into_iter().map(place).collect();
        (self.bytes, tables, self.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(bytes: usize) -> Table {
        Table {
            name: "t".into(),
            row_bytes: 1,
            columns: Vec::new(),
            data: vec![7; bytes].into(),
        }
    }

    #[test]
    fn small_tables_go_to_the_pool_and_large_ones_to_the_region_each_on_its_own_line() {
        let pool = ConstantPool::new(&[table(3), table(4096), table(4097), table(64), table(5000)]);
        let (bytes, tables, _) = pool.finish(128);
        assert_eq!(
            tables,
            [
                Placement::Pool(128),
                Placement::Pool(128 + 64),
                Placement::Region(0),
                Placement::Pool(128 + 64 + 4096),
                Placement::Region(4160),
            ]
        );
        assert_eq!(bytes.len(), 64 + 4096 + 64);
        assert_eq!((bytes[2], bytes[3], bytes[64]), (7, 0, 7));
    }

    #[test]
    fn a_full_pool_sends_further_tables_to_the_region() {
        let pool = ConstantPool::new(&vec![table(4096); 17]);
        assert_eq!(pool.table(TableId::new(15)), Placement::Pool(15 * 4096));
        assert_eq!(pool.table(TableId::new(16)), Placement::Region(0));
        assert_eq!(pool.region.len(), 1);
    }

    #[test]
    fn tables_of_whole_pages_do_not_start_in_the_same_set_of_a_cache() {
        let pool = ConstantPool::new(&vec![table(8192); 3]);
        let starts = [0, 8192 + 64, 2 * (8192 + 64)].map(Placement::Region);
        assert_eq!(pool.tables, starts);
    }

    #[test]
    fn the_address_of_a_table_has_one_place_in_the_pool() {
        let mut pool = ConstantPool::new(&[table(3), table(5000), table(5000)]);
        let [second, first] = [2, 1].map(TableId::new);
        assert_eq!(
            [second, first, second].map(|id| pool.address(id)),
            [8, 16, 8]
        );
        let offsets = pool.relocations(64);
        let offsets = offsets.iter().map(|at| (at.offset, at.table));
        assert_eq!(offsets.collect::<Vec<_>>(), [(72, second), (80, first)]);
    }

    #[test]
    fn equal_constants_are_stored_once_and_aligned() {
        let mut pool = ConstantPool::new(&[table(3)]);
        assert_eq!(pool.vector(&[1; 32]), 32);
        assert_eq!(pool.vector(&[2; 32]), 64);
        assert_eq!(pool.vector(&[1; 32]), 32);
        assert_eq!(pool.len(), 96);
    }
}
