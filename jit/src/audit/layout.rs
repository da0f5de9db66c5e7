//! Where things are in finished code, and what a load from there yields: neutral of the instruction set.
//!
//! The facts about columns were checked by the verifier against the program's tables; they hold for what the code reads
//! because tables in the pool are compared byte by byte here, and so are those that go into the region.

use std::ops::Range;
use std::sync::Arc;

use pktjit_ir::program::{TABLE_ALIGN, Table};
use pktjit_ir::{Program, TableId};

use super::Accesses;
use super::fault::{FaultKind, Faults};
use super::number::{Number, low_bits};
use super::value::{ADDRESS_BYTES, Base, Pointer, RESULT_BYTES, Value};
use crate::code::{CompiledCode, Placement};

/// Finished code and the program that it claims to be.
#[derive(Clone, Copy)]
pub(super) struct Layout<'a> {
    pub(super) code: &'a CompiledCode,
    pub(super) program: &'a Program,
}

/// What an instruction does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) bytes: u64,
    /// What the address has to be a multiple of, or the CPU traps.
    pub(super) alignment: u64,
    pub(super) is_read: bool,
    pub(super) is_write: bool,
}

impl<'a> Layout<'a> {
    /// Sizes agree with the program, every table has a place of its own, and those in the pool are there.
    pub(super) fn check(self, faults: &mut Faults) {
        let (code, program) = (self.code, self.program);
        let mut fault =
            |offset, detail: String| faults.push(FaultKind::Placement, None, offset, detail);
        if code.key_len != program.layout.len() {
            fault(
                0,
                format!(
                    "keys of {} bytes, the program has {}",
                    code.key_len,
                    program.layout.len()
                ),
            );
        }
        if code.pool_offset > code.bytes.len() {
            fault(code.pool_offset, "the pool starts behind its end".into());
        }
        for constants in &code.constants {
            if constants.start > constants.end || constants.end > code.pool_offset {
                fault(constants.start, "constants outside of the code".into());
            }
        }
        if code.tables.len() != program.tables.len() {
            fault(
                0,
                format!(
                    "{} tables have a place, the program has {}",
                    code.tables.len(),
                    program.tables.len()
                ),
            );
        }
        let mut taken = [Vec::new(), Vec::new()];
        for (i, (placement, table)) in code.tables.iter().zip(&program.tables).enumerate() {
            let (place, start, limits) = match *placement {
                Placement::Pool(start) => (0, start, code.pool_offset..code.bytes.len()),
                Placement::Region(start) => (1, start, 0..code.region_len()),
            };
            let end = start.saturating_add(table.data.len());
            if start < limits.start || end > limits.end {
                fault(
                    start,
                    format!("table{i} ends at {end}, outside of {limits:?}"),
                );
                continue;
            }
            if place == 1 && !start.is_multiple_of(TABLE_ALIGN) {
                fault(
                    start,
                    format!("table{i} is not at a multiple of {TABLE_ALIGN}"),
                );
            }
            let is_its_own = |(at, data): &(usize, Arc<[u8]>)| {
                *at == start && (Arc::ptr_eq(data, &table.data) || *data == table.data)
            };
            if place == 1 && !code.region.iter().any(is_its_own) {
                fault(
                    start,
                    format!("table{i} in the region is not the program's"),
                );
            }
            if place == 0 && code.bytes[start..end] != table.data[..] {
                fault(start, format!("table{i} in the pool is not the program's"));
            }
            taken[place].push(start..end);
        }
        for ranges in &mut taken {
            ranges.sort_by_key(|range| range.start);
            for pair in ranges.windows(2) {
                if pair[0].end > pair[1].start {
                    fault(pair[1].start, "tables overlap".into());
                }
            }
        }
    }

    /// The address of the first byte of a table.
    pub(super) fn table_base(self, table: TableId) -> Option<Pointer> {
        let row_bytes = self.program.tables.get(table.index())?.row_bytes.into();
        Some(Base::Table { table, row_bytes }.pointer())
    }

    /// The address of a byte of the code or the pool.
    pub(super) fn code_address(self, offset: u64) -> Pointer {
        let tables = self
            .program
            .tables
            .iter()
            .zip(&self.code.tables)
            .enumerate();
        for (i, (table, placement)) in tables {
            if let Placement::Pool(start) = *placement
                && let Some(inside) = offset.checked_sub(start as u64)
                && inside < table.data.len() as u64
                && let Some(base) = self.table_base(TableId::new(i as u32))
            {
                return base.add(Number::constant(inside));
            }
        }
        Base::Code.pointer().add(Number::constant(offset))
    }

    /// Proves an access to lie inside of what it may touch, counts it, and tells what it loads.
    ///
    /// # Errors
    /// What could not be proved.
    pub(super) fn access(
        self,
        pointer: Pointer,
        access: Access,
        elements: u64,
        counts: &mut Accesses,
    ) -> Result<Value, String> {
        if access.bytes == 0 {
            return Err("it is not known how many bytes".into());
        }
        if !self.is_aligned(pointer, access.alignment) {
            return Err(format!("not at a multiple of {}", access.alignment));
        }
        let is_result = matches!(pointer.base, Base::Results);
        if access.is_write && !is_result {
            return Err("only results are written".into());
        }
        if access.is_read && is_result && self.program.staged.is_none() {
            return Err("results are not read".into());
        }
        // Of elements from the current one on, whether all that may be accessed are known to exist.
        let exist = |element: Number| {
            if element.max() < elements {
                Ok(())
            } else {
                Err("there may be no element".to_owned())
            }
        };
        let is_one_of = |bytes| pointer.offset.is_multiple_of(bytes) && access.bytes == bytes;
        let any = Value::Number(Number::of_bits(8 * access.bytes.min(8) as u32));
        match pointer.base {
            Base::Key { ahead } => {
                exist(ahead)?;
                within(pointer, access.bytes, 0, self.code.key_len as u64)?;
                counts.key += 1;
                Ok(any)
            }
            Base::KeyArray if is_one_of(ADDRESS_BYTES) => {
                let ahead = pointer.offset.shr(ADDRESS_BYTES.trailing_zeros());
                exist(ahead)?;
                counts.pointer += 1;
                Ok(Value::Pointer(Base::Key { ahead }.pointer()))
            }
            Base::KeyArray => Err("not the address of a key, of 8 bytes".into()),
            Base::Results if is_one_of(RESULT_BYTES) => {
                exist(pointer.offset.shr(RESULT_BYTES.trailing_zeros()))?;
                counts.result += 1;
                Ok(any)
            }
            Base::Results => Err("not the result of an element, of 4 bytes".into()),
            Base::Table { table, .. } => {
                let found = self.program.tables.get(table.index());
                let (Some(found), Some(placement)) = (found, self.code.tables.get(table.index()))
                else {
                    return Err(format!("there is no {table}"));
                };
                within(pointer, access.bytes, 0, found.data.len() as u64)?;
                match placement {
                    Placement::Pool(_) => counts.pool += 1,
                    Placement::Region(_) => counts.table += 1,
                }
                Ok(match column_max(found, pointer, access.bytes) {
                    Some(max) => Value::Number(Number::up_to(max)),
                    None => any,
                })
            }
            Base::Stack => Err("the stack is no part of the code".into()),
            Base::Code => {
                let pool = self.code.pool_offset..self.code.bytes.len();
                let inside = |range: &Range<usize>| {
                    within(pointer, access.bytes, range.start as u64, range.end as u64)
                };
                if !self
                    .code
                    .constants
                    .iter()
                    .any(|range| inside(range).is_ok())
                {
                    inside(&pool)?;
                }
                counts.pool += 1;
                Ok(self.constant(pointer, access.bytes).unwrap_or(any))
            }
        }
    }

    /// The number that is in the pool at a constant offset.
    fn constant(self, pointer: Pointer, bytes: u64) -> Option<Value> {
        let start = pointer.offset.as_constant()? as usize;
        let bytes = self.code.bytes.get(start..start + bytes as usize)?;
        let number = (bytes.len() <= 8).then(|| {
            let little_endian = bytes.iter().rev();
            little_endian.fold(0, |number, &byte| number << 8 | u64::from(byte))
        });
        number.map(Value::constant)
    }

    /// Whether an address is a multiple of `alignment`: code and region start at multiples of [`TABLE_ALIGN`].
    pub(super) fn is_aligned(self, pointer: Pointer, alignment: u64) -> bool {
        let base = match pointer.base {
            _ if alignment == 1 => return true,
            Base::Key { .. } | Base::KeyArray | Base::Results => return false,
            Base::Stack if alignment > 16 => return false,
            Base::Code | Base::Stack => 0,
            Base::Table { table, .. } => match self.code.tables.get(table.index()) {
                Some(&Placement::Pool(start) | &Placement::Region(start)) => start as u64,
                None => return false,
            },
        };
        alignment <= TABLE_ALIGN as u64
            && base.is_multiple_of(alignment)
            && pointer.row.is_multiple_of(alignment)
            && pointer.offset.is_multiple_of(alignment)
    }
}

/// Whether all bytes of an access lie in `start..end`, counted from the base.
pub(super) fn within(pointer: Pointer, bytes: u64, start: u64, end: u64) -> Result<(), String> {
    let first = u128::from(pointer.row.min()) + u128::from(pointer.offset.min());
    let past = u128::from(pointer.row.max()) + u128::from(pointer.offset.max()) + u128::from(bytes);
    if first < start.into() || past > end.into() {
        return Err(format!("may touch bytes {first}..{past} of {start}..{end}"));
    }
    Ok(())
}

/// The largest number that a load from a row can yield, where it certainly is a whole number of one column.
fn column_max(table: &Table, pointer: Pointer, bytes: u64) -> Option<u64> {
    let offset = pointer.offset;
    if !pointer.row.is_multiple_of(table.row_bytes.into()) {
        return None;
    }
    let column = table.columns.iter().find(|column| {
        let start = u64::from(column.offset);
        let size = u64::from(column.bytes) * u64::from(column.count);
        let is_inside = offset.min() >= start && offset.max() < start + size;
        // Where rows are nothing but this column, any number of rows may be part of the offset.
        is_inside || size == u64::from(table.row_bytes)
    })?;
    // Columns are aligned to their width, and so then is what lies a multiple of it from the start of a row.
    let is_number = u64::from(column.bytes) == bytes && offset.is_multiple_of(bytes);
    is_number.then(|| column.max.min(low_bits(8 * bytes as u32)))
}
