//! The figures of a suite.

use std::fmt::Write as _;

use super::distinct;
use crate::record::Record;

/// The tables of one suite: one for each row, or for `scaling` and `build` one for all.
#[must_use]
pub fn tables(records: &[Record]) -> String {
    let all: Vec<&Record> = records.iter().collect();
    if all.iter().any(|record| record.suite == "scaling") {
        return scaling_table(&all);
    }
    if all.iter().any(|record| record.suite == "build") {
        return build_table(&all);
    }
    let rows = distinct(&all, |record| (&*record.row, record.rules));
    let tables = rows.into_iter().map(|place| {
        let here = all
            .iter()
            .filter(|record| (&*record.row, record.rules) == place);
        row_table(&here.copied().collect::<Vec<_>>())
    });
    tables.collect::<Vec<String>>().join("\n")
}

/// One row: a line for each traffic and mode, a column for each contender.
fn row_table(records: &[&Record]) -> String {
    let mut text = String::new();
    let Some(first) = records.first() else {
        return text;
    };
    let columns = distinct(records, contender);
    let lines = distinct(records, |record| (&*record.traffic, &*record.mode));
    let _ = writeln!(text, "### {}, {} rules\n", first.row, first.rules);
    let _ = writeln!(text, "| ns a lookup | {} |", columns.join(" | "));
    let _ = writeln!(text, "| --- |{}", " --- |".repeat(columns.len()));
    for (traffic, mode) in lines {
        let _ = write!(text, "| {traffic}, {mode} |");
        let line = records
            .iter()
            .filter(|record| (&*record.traffic, &*record.mode) == (traffic, mode));
        for record in line {
            let _ = write!(text, " {:.1} ± {:.1} |", record.ns, record.ci95);
        }
        text.push('\n');
    }
    for name in ["KB", "built in ms"] {
        let _ = write!(text, "| {name} |");
        for column in &columns {
            let found = records.iter().find(|record| contender(record) == *column);
            let figure = found.map_or(f64::NAN, |record| match name {
                "KB" => record.bytes as f64 / 1e3,
                _ => record.build_ms,
            });
            let _ = write!(text, " {figure:.1} |");
        }
        text.push('\n');
    }
    text
}

/// All rows: what a lookup takes one thread, and how many times as much two get done.
fn scaling_table(records: &[&Record]) -> String {
    let name = |record: &Record, threads| {
        let what = record.what.strip_suffix(threads)?;
        Some(series(what, record))
    };
    let names = distinct(records, |record| name(record, "-1"));
    let names: Vec<String> = names.into_iter().flatten().collect();
    let mut text = format!(
        "| ns of one thread; gain of two | {} |\n| --- |{}\n",
        names.join(" | "),
        " --- |".repeat(names.len())
    );
    for row in distinct(records, row_name) {
        let _ = write!(text, "| {row} |");
        for wanted in &names {
            let ns = |threads| {
                let mut here = records.iter().filter(|record| row_name(record) == row);
                let found = here.find(|record| name(record, threads).as_ref() == Some(wanted));
                found.map_or(f64::NAN, |record| record.ns)
            };
            let (one, two) = (ns("-1"), ns("-2"));
            let _ = write!(text, " {one:.1}; {:.2}x |", 2.0 * one / two);
        }
        text.push('\n');
    }
    text
}

/// All rows: what it takes to build them, and the parts of that; in brackets the structures that others asked for.
fn build_table(records: &[&Record]) -> String {
    let columns = distinct(records, |record| series(&record.what, record));
    let mut text = format!(
        "| ms | {} |\n| --- |{}\n",
        columns.join(" | "),
        " --- |".repeat(columns.len())
    );
    for row in distinct(records, row_name) {
        let _ = write!(text, "| {row} |");
        for column in &columns {
            let mut here = records.iter().filter(|record| row_name(record) == row);
            let found = here.find(|record| series(&record.what, record) == *column);
            let _ = match found {
                Some(record) => {
                    let structure = match (&record.structure, &*record.what) {
                        (Some(structure), "pktjit") if record.requested != record.structure => {
                            format!(" ({structure})")
                        }
                        _ => String::new(),
                    };
                    write!(text, " {:.3}{structure} |", record.build_ms)
                }
                None => write!(text, " - |"),
            };
        }
        text.push('\n');
    }
    text
}

/// The name of a row, with its size: some have several.
pub(crate) fn row_name(record: &Record) -> String {
    format!("{}:{}", record.row, record.rules)
}

/// Who answered, whatever the row: for pktjit with the engine and the structure that was asked for.
pub(crate) fn series(what: &str, record: &Record) -> String {
    match (&record.engine, &record.requested) {
        (Some(engine), Some(requested)) => format!("{what} {engine} {requested}"),
        _ => what.into(),
    }
}

/// Who answered in one row: with the structure that served, too, where another name asked for it.
fn contender(record: &Record) -> String {
    let series = series(&record.what, record);
    match &record.structure {
        Some(structure) if record.requested.as_ref() != Some(structure) => {
            format!("{series}: {structure}")
        }
        _ => series,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn two_threads_gain_nothing_where_each_takes_twice_as_long() {
        let mut records = [
            record("pktjit-1", Some("auto"), 4.0),
            record("pktjit-2", Some("auto"), 8.0),
            record("spin-1", None, 2.0),
            record("spin-2", None, 2.0),
        ];
        for record in &mut records {
            record.suite = "scaling".into();
        }
        let table = tables(&records);
        let expected = [
            "pktjit avx2 auto | spin |",
            "| a:10 | 4.0; 1.00x | 2.0; 2.00x |",
        ];
        assert!(expected.iter().all(|part| table.contains(part)), "{table}");
    }

    #[test]
    fn a_column_names_the_structure_that_another_name_asked_for() {
        let mut auto = record("pktjit", Some("auto"), 1.0);
        auto.structure = Some("hash".into());
        assert_eq!(contender(&auto), "pktjit avx2 auto: hash");
        assert_eq!(
            contender(&record("pktjit", Some("hash"), 1.0)),
            "pktjit avx2 hash"
        );
        assert_eq!(contender(&record("rbtree", None, 1.0)), "rbtree");
    }
}
