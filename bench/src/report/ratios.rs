//! How many times as long as pktjit each peer takes.

use std::fmt::Write as _;

use super::distinct;
use super::tables::{row_name, series};
use crate::record::Record;

/// How many times as long as pktjit a peer takes.
struct Ratio {
    ratio: f64,
    /// Half the width of the 95 % interval of the paired difference, in units of pktjit's time.
    ci95: f64,
}

/// A table for each way in which pktjit took part: row by row for single lookups, mean and least for all modes.
pub(super) fn ratios(records: &[Record]) -> String {
    let all: Vec<&Record> = records.iter().collect();
    let own: Vec<&Record> = records
        .iter()
        .filter(|record| record.what == "pktjit")
        .collect();
    let tables = distinct(&own, |record| series(&record.what, record));
    let tables = tables.iter().map(|own| table(&all, own));
    tables.collect::<Vec<String>>().join("\n")
}

fn table(records: &[&Record], own: &str) -> String {
    let mut peers = distinct(records, |record| &*record.what);
    peers.retain(|peer| !peer.starts_with("pktjit"));
    let rows = distinct(records, row_name);
    let traffics = distinct(records, |record| &*record.traffic);
    let mut text = format!(
        "### Times as long as {own}\n\n| {} | {} |\n| --- |{}\n",
        traffics.join(" / "),
        peers.join(" | "),
        " --- |".repeat(peers.len()),
    );
    // A line of the table, whose cells have a part for each traffic.
    let mut line = |name: &str, part: &dyn Fn(&str, &str) -> String| {
        let cells = peers.iter().map(|peer| {
            let parts = traffics.iter().map(|traffic| part(peer, traffic));
            parts.collect::<Vec<_>>().join(" / ")
        });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        let _ = writeln!(text, "| {name} | {cells} |");
    };
    for row in &rows {
        line(
            row,
            &|peer, traffic| match ratio(records, own, peer, row, traffic, "single") {
                Some(Ratio { ratio, ci95 }) => format!("{ratio:.1} ± {ci95:.1}"),
                None => "-".into(),
            },
        );
    }
    for mode in distinct(records, |record| &*record.mode) {
        let all = |peer: &str, traffic: &str| -> Vec<f64> {
            let ratios = rows
                .iter()
                .filter_map(|row| ratio(records, own, peer, row, traffic, mode));
            ratios.map(|ratio| ratio.ratio).collect()
        };
        line(&format!("{mode}, geometric mean"), &|peer, traffic| {
            let all = all(peer, traffic);
            let logs: f64 = all.iter().map(|ratio| ratio.ln()).sum();
            format!("{:.1}", (logs / all.len() as f64).exp())
        });
        line(&format!("{mode}, least"), &|peer, traffic| {
            let all = all(peer, traffic);
            format!("{:.1}", all.into_iter().fold(f64::NAN, f64::min))
        });
    }
    text
}

fn ratio(
    records: &[&Record],
    own: &str,
    peer: &str,
    row: &str,
    traffic: &str,
    mode: &str,
) -> Option<Ratio> {
    let mut here = records.iter().filter(|record| {
        (&*record.traffic, &*record.mode) == (traffic, mode) && row_name(record) == row
    });
    let first = here.clone().next()?;
    let own = here
        .clone()
        .find(|record| record.what == "pktjit" && series("pktjit", record) == own)?;
    // A floor belongs to a structure.
    let belongs = |record: &Record| record.requested.is_none() || record.requested == own.requested;
    let peer = here.find(|record| record.what == peer && belongs(record))?;
    // Both are known beside the first; what they differ by is known no worse than the sum.
    let ci95 = match std::ptr::eq(*own, *first) {
        true => peer.ci95,
        false => own.ci95 + peer.ci95,
    };
    Some(Ratio {
        ratio: peer.ns / own.ns,
        ci95: ci95 / own.ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(what: &str, requested: Option<&str>, row: &str, ns: f64, ci95: f64) -> Record {
        Record {
            row: row.into(),
            ci95,
            ..super::super::tests::record(what, requested, ns)
        }
    }

    #[test]
    fn each_way_to_ask_pktjit_has_its_own_ratios_and_their_mean() {
        let records = [
            record("pktjit", Some("auto"), "a", 2.0, 0.1),
            record("pktjit", Some("hash"), "a", 4.0, 0.2),
            record("peer", None, "a", 16.0, 0.4),
            record("pktjit", Some("auto"), "b", 2.0, 0.1),
            record("pktjit", Some("hash"), "b", 4.0, 0.2),
            record("peer", None, "b", 4.0, 0.4),
        ];
        let expected = "### Times as long as pktjit avx2 auto\n\n| hits | peer |\n| --- | --- |\n| a:10 | 8.0 ± 0.2 |\n\
                        | b:10 | 2.0 ± 0.2 |\n| single, geometric mean | 4.0 |\n| single, least | 2.0 |\n\n\
                        ### Times as long as pktjit avx2 hash\n\n| hits | peer |\n| --- | --- |\n| a:10 | 4.0 ± 0.2 |\n\
                        | b:10 | 1.0 ± 0.2 |\n| single, geometric mean | 2.0 |\n| single, least | 1.0 |\n";
        assert_eq!(ratios(&records), expected);
    }
}
