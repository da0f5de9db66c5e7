//! Tables whose rows hold what a few rules want, for [scalar comparison](crate::structure::scalar).

use crate::program::{Column, MISS, Table};
use crate::rule::Rule;
use crate::structure::Cost;
use crate::structure::compare::result_column;
use crate::structure::scalar::ScalarComparison;

/// A rule and the row of its verdict.
pub(crate) type RuleAndRow<'a> = (&'a Rule, u32);

/// How the rows of a table look that hold at most so many rules each.
pub(crate) struct RuleRows<'a> {
    /// At least one number for each rule, its verdict's row counted.
    pub(crate) comparison: &'a ScalarComparison,
    /// At least one.
    pub(crate) rules: usize,
    /// Whether each rule has its verdict's row among its numbers.
    pub(crate) is_numbered: bool,
}

impl RuleRows<'_> {
    /// The columns of a row, rule after rule, the verdict's row last; and the bytes of a row.
    pub(crate) fn columns(&self) -> (Vec<Column>, u32) {
        let of_rule = self.comparison.columns();
        let mut columns: Vec<Column> = Vec::new();
        for _ in 0..self.rules {
            columns.extend(of_rule.iter().map(|(name, bytes)| Column {
                name: name.as_str().into(),
                offset: 0,
                bytes: *bytes,
                count: 1,
                max: u64::MAX >> (64 - 8 * u32::from(*bytes)),
                is_result: false,
            }));
            columns.extend(self.is_numbered.then(|| result_column(0, 1, 1)));
        }
        // Wide numbers come first, so that all are aligned.
        let mut end = 0;
        for bytes in [8, 4] {
            for column in columns.iter_mut().filter(|column| column.bytes == bytes) {
                column.offset = end;
                end += u32::from(bytes);
            }
        }
        // A small row lies in one cache line.
        let row_bytes = if end <= 64 {
            end.next_power_of_two()
        } else {
            end.next_multiple_of(32)
        };
        (columns, row_bytes)
    }

    /// The table; each of `rows` is a list of rules, the strongest first.
    pub(crate) fn table<'r, R: IntoIterator<Item = RuleAndRow<'r>>>(
        &self,
        rows: impl Iterator<Item = R>,
    ) -> Table {
        let (columns, row_bytes) = self.columns();
        let width = self.comparison.columns().len();
        let mut data = Vec::new();
        for rules in rows {
            let start = data.len();
            data.resize(start + row_bytes as usize, 0);
            let mut rules = rules.into_iter();
            for own in columns.chunks(columns.len() / self.rules) {
                let wanted = rules
                    .next()
                    .and_then(|(rule, row)| Some((self.comparison.numbers(rule)?, row)));
                // Whatever key equals zeros, it finds a miss.
                let (numbers, row) = wanted.unwrap_or((vec![0; own.len()], MISS));
                let numbers = numbers.into_iter().take(width).chain([row.into()]);
                for (column, number) in own.iter().zip(numbers) {
                    let bytes = usize::from(column.bytes);
                    let at = start + column.offset as usize;
                    data[at..at + bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
                }
            }
        }
        Table {
            name: "rows".into(),
            row_bytes,
            columns,
            data: data.into(),
        }
    }

    /// What finding one of `rows` rows, testing its rules and joining what they yield costs.
    pub(crate) fn cost(&self, rows: usize) -> Cost {
        let (_, row_bytes) = self.columns();
        // The table; the address of a row that is too large to be scaled; for each rule its verdict's row; the smallest of all.
        let address = if row_bytes <= 8 { 1.0 } else { 3.0 };
        let count = self.rules as f64;
        Cost {
            instructions: address
                + count * (self.comparison.instructions() + 1.0)
                + 2.0 * (count - 1.0),
            dependent_loads: 0.0,
            lines: (f64::from(row_bytes) / 64.0).max(1.0),
            table_bytes: rows * row_bytes as usize,
        }
    }
}
