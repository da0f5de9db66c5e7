//! Fills the rows of a [`Table`] whose columns are numbers of at most 4 bytes.

use crate::program::{Column, MISS, Table};

/// A table being written. Numbers that are not set are 0, results are [`MISS`].
pub(crate) struct TableWriter {
    name: Box<str>,
    row_bytes: usize,
    columns: Vec<Column>,
    data: Vec<u8>,
}

impl TableWriter {
    /// `rows` rows that consist of `columns`; a row is padded to whole vectors of 32 bytes
    /// where it is that large, so that no vector straddles two cache lines.
    pub(crate) fn new(name: &str, columns: Vec<Column>, rows: usize) -> Self {
        let end = columns
            .iter()
            .map(|c| (c.offset + c.count * u32::from(c.bytes)) as usize)
            .max()
            .unwrap_or(4);
        let row_bytes = end.next_multiple_of(if end > 16 { 32 } else { 4 });
        let mut writer = Self {
            name: name.into(),
            row_bytes,
            columns,
            data: vec![0; rows * row_bytes],
        };
        for column in writer.columns.iter().filter(|column| column.is_result) {
            for row in 0..rows {
                for index in 0..column.count as usize {
                    let start = row * row_bytes + column.offset as usize + 4 * index;
                    writer.data[start..start + 4].copy_from_slice(&MISS.to_le_bytes());
                }
            }
        }
        writer
    }

    /// Writes one number of each column: what one rule wants.
    pub(crate) fn set_lane(&mut self, row: usize, lane: usize, numbers: &[u32]) {
        for (column, number) in self.columns.iter().zip(numbers) {
            let bytes = usize::from(column.bytes);
            let start = row * self.row_bytes + column.offset as usize + bytes * lane;
            self.data[start..start + bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
        }
    }

    /// The table.
    pub(crate) fn finish(self) -> Table {
        Table {
            name: self.name,
            row_bytes: self.row_bytes as u32,
            columns: self.columns,
            data: self.data.into(),
        }
    }
}

/// A table with one number a row, as narrow as its largest number allows.
pub(crate) fn flat(name: &str, column: &str, numbers: &[u32]) -> Table {
    let max = numbers.iter().copied().max().unwrap_or(0);
    let bytes: usize = match max {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    };
    let data: Vec<u8> = numbers
        .iter()
        .flat_map(|n| n.to_le_bytes().into_iter().take(bytes))
        .collect();
    let column = Column {
        name: column.into(),
        offset: 0,
        bytes: bytes as u8,
        count: 1,
        max: max.into(),
        is_result: false,
    };
    Table {
        name: name.into(),
        row_bytes: bytes as u32,
        columns: vec![column],
        data: data.into(),
    }
}
