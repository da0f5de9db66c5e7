//! What the figures of `classbench` come to: pktjit beside `rte_acl` and the tuple space search, and what was to be shown.

use std::fmt::Write as _;

use super::distinct;
use super::tables::{row_name, series};
use crate::record::Record;

/// One way to ask pktjit and its peers, row by row; then what this comes to. Nothing for another suite.
pub(super) fn table(records: &[Record]) -> String {
    let all: Vec<&Record> = records
        .iter()
        .filter(|record| record.suite == "classbench")
        .collect();
    let own = all.iter().filter(|record| record.what == "pktjit");
    let own: Vec<&Record> = own.copied().collect();
    let names = distinct(&own, |record| series(&record.what, record));
    let tables = names.iter().map(|name| {
        let rows = distinct(&own, row_name);
        let rows = rows.iter().filter_map(|row| Row::new(&all, name, row));
        let rows: Vec<Row> = rows.collect();
        format!(
            "### {name} beside its peers\n\n{}\n{}\n{}",
            algorithms(&all),
            lines(&rows),
            sums(&rows)
        )
    });
    tables.collect::<Vec<String>>().join("\n")
}

/// The figures of one row.
struct Row<'a> {
    name: String,
    family: &'a str,
    rules: u32,
    structure: &'a str,
    single: f64,
    batch: f64,
    /// The longest time with hostile keys over that with uniform ones, single.
    hostile: f64,
    /// Of each peer that took part, its figures.
    acl: Option<Acl<'a>>,
    tss: Option<f64>,
    bytes: f64,
    build_ms: f64,
    tss_build_ms: Option<f64>,
}

/// `rte_acl` in one row.
struct Acl<'a> {
    /// The fastest algorithm, one key a call.
    single: (&'a str, f64),
    /// The fastest algorithm, 32 keys a call.
    batch: (&'a str, f64),
    /// With AVX2, 32 keys a call.
    avx2: Option<f64>,
    build_ms: f64,
}

impl<'a> Row<'a> {
    fn new(records: &[&'a Record], own: &str, row: &str) -> Option<Self> {
        let here = records
            .iter()
            .copied()
            .filter(|record| row_name(record) == row);
        let here: Vec<&'a Record> = here.collect();
        let of = |traffic: &str, mode: &str| -> Vec<&'a Record> {
            let wanted = |record: &&&Record| (&*record.traffic, &*record.mode) == (traffic, mode);
            here.iter().filter(wanted).copied().collect()
        };
        let find = |traffic: &str, mode: &str| {
            let mut all = of(traffic, mode).into_iter();
            all.find(|record| record.what == "pktjit" && series(&record.what, record) == own)
        };
        let fastest = |mode: &str| {
            let all = of("uniform", mode).into_iter();
            let acl = all.filter(|record| record.what.starts_with("rte_acl-"));
            acl.min_by(|a, b| a.ns.total_cmp(&b.ns))
        };
        let peer = |what: &str, mode: &str| {
            of("uniform", mode)
                .into_iter()
                .find(|record| record.what == what)
        };
        let named = |record: &'a Record| (&record.what["rte_acl-".len()..], record.ns);
        let single = find("uniform", "single")?;
        let acl = fastest("single").zip(fastest("batch"));
        Some(Self {
            name: row.into(),
            family: &single.row,
            rules: single.rules,
            structure: single.structure.as_deref().unwrap_or_default(),
            single: single.ns,
            batch: find("uniform", "batch")?.ns,
            hostile: find("hostile", "single")?.ns / single.ns,
            acl: acl.map(|(one, many)| Acl {
                single: named(one),
                batch: named(many),
                avx2: peer("rte_acl-avx2", "batch").map(|record| record.ns),
                build_ms: one.build_ms,
            }),
            tss: peer("tss", "single").map(|record| record.ns),
            bytes: single.bytes as f64 / f64::from(single.rules),
            build_ms: single.build_ms,
            tss_build_ms: peer("tss", "single").map(|record| record.build_ms),
        })
    }
}

/// Which algorithms of `rte_acl` took part, and what that means for those with AVX-512.
fn algorithms(records: &[&Record]) -> String {
    let whats = distinct(records, |record| &*record.what);
    let names = whats
        .iter()
        .filter_map(|what| what.strip_prefix("rte_acl-"));
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return "`rte_acl` did not take part.\n".into();
    }
    let mut text = format!("Algorithms of `rte_acl`: {}.", names.join(", "));
    if names.iter().all(|name| !name.starts_with("avx512")) {
        text.push_str(" Those with AVX-512 do not run on this machine, which has none.");
    }
    text.push('\n');
    text
}

fn lines(rows: &[Row<'_>]) -> String {
    let mut text = String::from(
        "Uniform traffic, ns a lookup. Of `rte_acl` the fastest algorithm, and how many times as long it takes as pktjit.\n\n\
         | row | structure | single | rte_acl | over | tss | over | 32 keys | rte_acl | over | avx2 over | hostile over uniform \
         | bytes a rule | built in ms | rte_acl | tss |\n| --- |",
    );
    text.push_str(&" --- |".repeat(15));
    text.push('\n');
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    for row in rows {
        let acl = row.acl.as_ref();
        let fastest = |fastest: (&str, f64)| format!("{:.1} ({})", fastest.1, fastest.0);
        let cells = [
            row.name.clone(),
            row.structure.into(),
            format!("{:.1}", row.single),
            or(acl.map(|acl| fastest(acl.single))),
            or(acl.map(|acl| format!("{:.1}", acl.single.1 / row.single))),
            or(row.tss.map(|ns| format!("{ns:.0}"))),
            or(row.tss.map(|ns| format!("{:.1}", ns / row.single))),
            format!("{:.1}", row.batch),
            or(acl.map(|acl| fastest(acl.batch))),
            or(acl.map(|acl| format!("{:.1}", acl.batch.1 / row.batch))),
            or(acl.and_then(|acl| Some(format!("{:.1}", acl.avx2? / row.batch)))),
            format!("{:.2}", row.hostile),
            format!("{:.0}", row.bytes),
            format!("{:.0}", row.build_ms),
            or(acl.map(|acl| format!("{:.0}", acl.build_ms))),
            or(row.tss_build_ms.map(|ms| format!("{ms:.1}"))),
        ];
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// What was to be shown, and what these rows show of it.
fn sums(rows: &[Row<'_>]) -> String {
    let up_to = |rules: u32| rows.iter().filter(move |row| row.rules <= rules);
    let ratios = |rules, ratio: fn(&Row<'_>) -> Option<f64>| -> Vec<f64> {
        let given = up_to(rules).filter(|row| row.family.ends_with('k'));
        given.filter_map(ratio).collect()
    };
    let acl_ns = |rules: u32, batch: bool| {
        let mut here = rows.iter().filter(|row| row.rules == rules);
        let row = here.find(|row| row.family.starts_with("acl1"))?;
        Some(if batch { row.batch } else { row.single })
    };
    let mean_and_least = |ratios: Vec<f64>| {
        let least = ratios.iter().copied().reduce(f64::min)?;
        let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        Some(format!(
            "{:.1}x, least {least:.1}x",
            (logs / ratios.len() as f64).exp()
        ))
    };
    let most = |values: Vec<f64>| values.into_iter().reduce(f64::max);
    let built = |rules: u32| {
        let here = rows.iter().filter(|row| row.rules == rules);
        most(here.map(|row| row.build_ms).collect())
    };
    let single = mean_and_least(ratios(10_000, |row| {
        Some(row.acl.as_ref()?.single.1 / row.single)
    }));
    let batch = mean_and_least(ratios(100_000, |row| {
        Some(row.acl.as_ref()?.batch.1 / row.batch)
    }));
    let avx2 = mean_and_least(ratios(100_000, |row| {
        Some(row.acl.as_ref()?.avx2? / row.batch)
    }));
    let builds = mean_and_least(ratios(100_000, |row| {
        Some(row.acl.as_ref()?.build_ms / row.build_ms)
    }));
    let is_deep = |row: &&Row| row.family.ends_with("_deep") && row.rules >= 100_000;
    let deep = rows.iter().find(is_deep);
    let growth = acl_ns(1000, false).zip(acl_ns(100_000, false));
    let large = rows.iter().filter(|row| row.rules == 100_000);
    let compiled = [1000, 10_000, 100_000].map(|rules| match built(rules) {
        Some(ms) => format!("{ms:.0}"),
        None => "-".into(),
    });
    let shown = [
        (
            "given sets of 1k and 10k, single, over rte_acl's best algorithm",
            "10x, least 7x",
            single,
        ),
        (
            "given sets, 32 keys, over rte_acl's best algorithm here",
            "3x, least 2.2x (AVX-512)",
            batch,
        ),
        (
            "given sets, 32 keys, over rte_acl with AVX2",
            "3x, least 2x",
            avx2,
        ),
        (
            "hostile over uniform, up to 100k rules",
            "1.25",
            most(up_to(100_000).map(|row| row.hostile).collect()).map(|most| format!("{most:.2}")),
        ),
        (
            "170 rules over one point, 100k rules, single",
            "150 ns",
            deep.map(|row| format!("{:.0} ns", row.single)),
        ),
        (
            "acl1 from 1k to 100k rules, single",
            "4x",
            growth.map(|(few, many)| format!("{:.1}x", many / few)),
        ),
        (
            "acl1 of 1 M rules, 32 keys",
            "60 ns",
            acl_ns(1_000_000, true).map(|ns| format!("{ns:.0} ns")),
        ),
        (
            "bytes a rule at 100k, most",
            "60",
            most(large.map(|row| row.bytes).collect()).map(|most| format!("{most:.0}")),
        ),
        (
            "compiled in ms, 1k / 10k / 100k, most",
            "10 / 100 / 1000",
            (!rows.is_empty()).then(|| compiled.join(" / ")),
        ),
        (
            "rte_acl's build of the same given sets over that",
            "1x",
            builds,
        ),
    ];
    let mut text = String::from("| what | must | is |\n| --- | --- | --- |\n");
    for (what, must, is) in shown {
        if let Some(is) = is {
            let _ = writeln!(text, "| {what} | {must} | {is} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    fn all(row: &str, rules: u32, scale: f64) -> Vec<Record> {
        let mut records = Vec::new();
        for (traffic, slower) in [("uniform", 1.0), ("hostile", 1.2)] {
            for (mode, faster) in [("single", 1.0), ("batch", 0.5)] {
                for (what, requested, ns) in [
                    ("pktjit", Some("auto"), 10.0),
                    ("tss", None, 300.0),
                    ("rte_acl-scalar", None, 100.0),
                    ("rte_acl-avx2", None, 80.0),
                ] {
                    records.push(Record {
                        suite: "classbench".into(),
                        row: row.into(),
                        rules,
                        traffic: traffic.into(),
                        mode: mode.into(),
                        bytes: 40 * rules as usize,
                        build_ms: 5.0,
                        ..record(what, requested, ns * faster * slower * scale)
                    });
                }
            }
        }
        records
    }

    #[test]
    fn a_row_is_divided_by_the_fastest_algorithm_and_rows_by_their_mean_and_least() {
        let mut records = all("acl1_1k", 1000, 1.0);
        for mut record in all("acl1_100k", 100_000, 2.0) {
            if record.what.starts_with("rte_acl") {
                record.ns *= 4.0;
            }
            records.push(record);
        }
        let text = table(&records);
        for part in [
            "| acl1_1k:1000 | auto | 10.0 | 80.0 (avx2) | 8.0 | 300 | 30.0 | 5.0 | 40.0 (avx2) | 8.0 | 8.0 | 1.20 | 40 | 5 | 5 | 5.0 |",
            "over rte_acl's best algorithm | 10x, least 7x | 8.0x, least 8.0x |",
            "over rte_acl with AVX2 | 3x, least 2x | 16.0x, least 8.0x |",
            "| acl1 from 1k to 100k rules, single | 4x | 2.0x |",
            "| compiled in ms, 1k / 10k / 100k, most | 10 / 100 / 1000 | 5 / - / 5 |",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("170 rules"), "{text}");
    }

    #[test]
    fn other_suites_have_no_such_table() {
        assert_eq!(table(&[record("pktjit", Some("auto"), 1.0)]), "");
    }
}
