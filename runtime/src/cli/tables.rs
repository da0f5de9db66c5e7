//! The tables and constants that code loads from, as text: columns by their names, results as the rules that they name.

use std::fmt;

use pktjit_ir::program::{Column, Table};
use pktjit_ir::{Program, RuleSet, TableId};
use pktjit_jit::{CompiledCode, Placement};
use serde::Serialize;

use crate::formats::SourceSet;

/// All that code loads from beside the key.
#[derive(Serialize)]
pub(super) struct Data<'a> {
    tables: Vec<TableView<'a>>,
    constants: Vec<Constant>,
}

/// A vector constant of the code, in hexadecimal.
#[derive(Serialize)]
struct Constant {
    /// Where it is behind the first one.
    offset: usize,
    bytes: String,
}

/// A table, or the first rows of a long one.
#[derive(Serialize)]
struct TableView<'a> {
    table: String,
    name: &'a str,
    rows: usize,
    row_bytes: u32,
    place: String,
    first_rows: Vec<Vec<ColumnView<'a>>>,
}

/// One column of one row.
#[derive(Serialize)]
struct ColumnView<'a> {
    column: &'a str,
    values: Vec<u64>,
    /// What the values name, where they are results; `None` for no rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<Option<RuleView<'a>>>>,
}

/// A rule that a result names.
#[derive(Clone, Serialize)]
struct RuleView<'a> {
    rule: u32,
    element: &'a str,
    verdict: &'a str,
}

/// What a program that was made for `rules` loads from, with at most `limit` rows of each table.
pub(super) fn data<'a>(
    program: &'a Program,
    code: Option<&CompiledCode>,
    set: &'a SourceSet,
    rules: &RuleSet,
    limit: usize,
) -> Data<'a> {
    let rule = |row: u64| {
        let id = rules.rules().get(usize::try_from(row).ok()?)?.id;
        let element = set.element(id)?;
        Some(RuleView {
            rule: id.as_u32(),
            element: element.text(),
            verdict: element.verdict_text(),
        })
    };
    let column = |table: &'a Table, row: usize, column: &'a Column| {
        let values: Vec<u64> = (0..column.count as usize)
            .filter_map(|index| table.get(row, column, index))
            .collect();
        let rules = column
            .is_result
            .then(|| values.iter().map(|&row| rule(row)).collect());
        ColumnView {
            column: &column.name,
            values,
            rules,
        }
    };
    let view = |(index, table): (usize, &'a Table)| TableView {
        table: TableId::new(index as u32).to_string(),
        name: &table.name,
        rows: table.rows(),
        row_bytes: table.row_bytes,
        place: match code.and_then(|code| code.tables().get(index)) {
            None => "memory".into(),
            Some(Placement::Pool(offset)) => format!("pool at {offset:#x}"),
            Some(Placement::Region(offset)) => format!("region at {offset:#x}"),
        },
        first_rows: (0..table.rows().min(limit))
            .map(|row| {
                table
                    .columns
                    .iter()
                    .map(|of| column(table, row, of))
                    .collect()
            })
            .collect(),
    };
    let vectors = code
        .map_or(&[][..], |code| constants(code, program).1)
        .chunks(CONSTANT_BYTES);
    let constant = |(index, bytes): (usize, &[u8])| Constant {
        offset: index * CONSTANT_BYTES,
        bytes: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    Data {
        tables: program.tables.iter().enumerate().map(view).collect(),
        constants: vectors.enumerate().map(constant).collect(),
    }
}

/// The tables in the pool and the offset at which each starts.
pub(super) fn pool_tables(code: &CompiledCode) -> impl Iterator<Item = (TableId, usize)> + '_ {
    code.tables()
        .iter()
        .zip(0..)
        .filter_map(|(place, id)| match *place {
            Placement::Pool(start) => Some((TableId::new(id), start)),
            Placement::Region(_) => None,
        })
}

/// The constants of the code and the offset at which they start: what lies behind the tables in the pool.
pub(super) fn constants<'a>(code: &'a CompiledCode, program: &Program) -> (usize, &'a [u8]) {
    let ends = pool_tables(code).map(|(id, start)| start + program.tables[id.index()].data.len());
    let start = ends
        .max()
        .unwrap_or(code.pool_offset())
        .next_multiple_of(CONSTANT_BYTES)
        .min(code.bytes().len());
    (start, &code.bytes()[start..])
}

/// Bytes of one constant: a vector.
const CONSTANT_BYTES: usize = 32;

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables.iter().try_for_each(|table| table.fmt(f))?;
        if !self.constants.is_empty() {
            writeln!(f, "constants of the code")?;
        }
        let mut constants = self.constants.iter();
        constants.try_for_each(|Constant { offset, bytes }| writeln!(f, "  {offset:#6x}  {bytes}"))
    }
}

impl fmt::Display for TableView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            name,
            rows,
            row_bytes,
            place,
            first_rows,
        } = self;
        writeln!(
            f,
            "{table} {name:?}: {rows} rows of {row_bytes} bytes, {place}"
        )?;
        let columns = first_rows.iter().flatten();
        let width = columns.map(|column| column.column.len()).max().unwrap_or(0);
        for (row, columns) in first_rows.iter().enumerate() {
            for (position, column) in columns.iter().enumerate() {
                match position {
                    0 => write!(f, "  {row:>6}")?,
                    _ => write!(f, "  {:6}", "")?,
                }
                writeln!(f, "  {:<width$}  {column}", column.column)?;
            }
        }
        match rows - first_rows.len() {
            0 => Ok(()),
            more => writeln!(f, "  {more} more rows (--all shows them)"),
        }
    }
}

impl fmt::Display for ColumnView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separated =
            |f: &mut fmt::Formatter<'_>, index| f.write_str(if index > 0 { ", " } else { "" });
        match &self.rules {
            None => self
                .values
                .iter()
                .enumerate()
                .try_for_each(|(index, value)| {
                    separated(f, index)?;
                    write!(f, "{value:#x}")
                }),
            Some(rules) => rules.iter().enumerate().try_for_each(|(index, rule)| {
                separated(f, index)?;
                match rule {
                    None => f.write_str("-"),
                    Some(RuleView {
                        rule,
                        element,
                        verdict,
                    }) => {
                        write!(f, "rule {rule} `{element}`")?;
                        if *verdict == "match" {
                            Ok(())
                        } else {
                            write!(f, " : {verdict}")
                        }
                    }
                }
            }),
        }
    }
}
