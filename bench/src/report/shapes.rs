//! Rows with IPv6 addresses beside the same rows with IPv4 addresses.

use std::fmt::Write as _;

use super::distinct;
use super::tables::{row_name, series};
use crate::record::Record;

/// How many times as long as with IPv4 each contender of `shapes` takes with IPv6, single lookups; nothing for another suite.
pub(crate) fn table(records: &[Record]) -> String {
    let single = records
        .iter()
        .filter(|record| (&*record.suite, &*record.mode) == ("shapes", "single"));
    let records: Vec<&Record> = single.collect();
    let contenders = distinct(&records, |record| series(&record.what, record));
    let traffics = distinct(&records, |record| &*record.traffic);
    let mut lines = String::new();
    for row in distinct(&records, row_name) {
        let narrow = row.replace("net6", "net");
        if narrow == row || records.iter().all(|record| row_name(record) != narrow) {
            continue;
        }
        let _ = write!(lines, "| {row} |");
        for contender in &contenders {
            let ratio = |traffic: &&str| {
                let ns = |row: &str| {
                    let found = records.iter().find(|record| {
                        row_name(record) == row
                            && record.traffic == **traffic
                            && series(&record.what, record) == *contender
                    });
                    found.map_or(f64::NAN, |record| record.ns)
                };
                format!("{:.2}", ns(&row) / ns(&narrow))
            };
            let ratios: Vec<String> = traffics.iter().map(ratio).collect();
            let _ = write!(lines, " {} |", ratios.join(" / "));
        }
        lines.push('\n');
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "### Times as long as with IPv4\n\n| {} | {} |\n| --- |{}\n{lines}",
        traffics.join(" / "),
        contenders.join(" | "),
        " --- |".repeat(contenders.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn a_row_of_ipv6_is_divided_by_the_row_of_ipv4_that_has_as_many_rules() {
        let row = |row: &str, rules, ns| Record {
            suite: "shapes".into(),
            row: row.into(),
            rules,
            ..record("pktjit", Some("auto"), ns)
        };
        let records = [
            row("net_mac", 10, 2.0),
            row("net6_mac", 10, 5.0),
            row("net_mac", 20, 3.0),
            row("net6_mac", 30, 9.0),
        ];
        let expected = "### Times as long as with IPv4\n\n| hits | pktjit avx2 auto |\n| --- | --- |\n| net6_mac:10 | 2.50 |\n";
        assert_eq!(table(&records), expected);
    }

    #[test]
    fn other_suites_have_no_such_table() {
        let row = |row: &str| Record {
            row: row.into(),
            ..record("pktjit", Some("auto"), 1.0)
        };
        assert_eq!(table(&[row("net_port"), row("net6_port")]), "");
    }
}
