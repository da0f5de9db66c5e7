//! The generic pipapo beside the kernel's own code, whose times were published (see the table's text).

use std::fmt::Write as _;

use crate::record::Record;

/// What a lookup takes with the same key, random hits, and half misses, in ns.
type Times = [f64; 3];

/// What the kernel's lookups took in a loop in user space, on another machine.
struct Reference {
    row: &'static str,
    rules: u32,
    scalar: Times,
    avx2: Times,
    /// Its hash of fixed size, for exact keys.
    hash: Times,
}

const fn reference(
    row: &'static str,
    rules: u32,
    scalar: Times,
    avx2: Times,
    hash: Times,
) -> Reference {
    Reference {
        row,
        rules,
        scalar,
        avx2,
        hash,
    }
}

const REFERENCES: [Reference; 8] = [
    reference(
        "net_port",
        1000,
        [92.5, 89.9, 101.0],
        [27.6, 48.2, 57.0],
        [6.2, 11.2, 19.3],
    ),
    reference(
        "port_net",
        100,
        [36.5, 42.8, 52.2],
        [22.3, 26.3, 36.7],
        [6.7, 10.9, 18.5],
    ),
    reference(
        "net6_port",
        1000,
        [234.0, 232.0, 237.0],
        [56.4, 90.6, 93.2],
        [9.6, 18.1, 26.2],
    ),
    reference(
        "port_proto",
        10_000,
        [395.0, 425.0, 395.0],
        [102.0, 150.0, 150.0],
        [6.6, 15.7, 20.3],
    ),
    reference(
        "port_proto",
        30_000,
        [982.0, 1168.0, 1198.0],
        [232.0, 435.0, 440.0],
        [6.6, 20.5, 24.0],
    ),
    reference(
        "net6_port_mac",
        10,
        [104.0, 105.0, 103.0],
        [40.2, 40.3, 43.0],
        [12.5, 22.6, 27.3],
    ),
    reference(
        "net6_port_mac_proto",
        1000,
        [327.0, 336.0, 288.0],
        [86.8, 122.0, 105.0],
        [11.9, 21.2, 28.1],
    ),
    reference(
        "net_mac",
        1000,
        [176.0, 172.0, 174.0],
        [38.9, 71.2, 72.9],
        [8.2, 15.5, 23.2],
    ),
];

/// The peers of `selftest` beside the kernel's, where all were measured; nothing for another suite.
pub(crate) fn table(records: &[Record]) -> String {
    let mut lines = String::new();
    for reference in &REFERENCES {
        let times = |what: &str| -> Option<Times> {
            let mut times = Times::default();
            for (time, traffic) in times.iter_mut().zip(["same", "hits", "misses"]) {
                let found = records.iter().find(|record| {
                    let place = (&*record.suite, &*record.row, record.rules);
                    place == ("selftest", reference.row, reference.rules)
                        && (&*record.what, &*record.traffic, &*record.mode)
                            == (what, traffic, "single")
                });
                *time = found?.ns;
            }
            Some(times)
        };
        let (Some(avx2), Some(scalar), Some(hash)) =
            (times("pipapo-avx2"), times("pipapo-scalar"), times("hash"))
        else {
            continue;
        };
        let _ = writeln!(
            lines,
            "| {}:{} | {} | {} | {} | {} | {} | {} | {} |",
            reference.row,
            reference.rules,
            shown(avx2, 1),
            shown(over(avx2, reference.avx2), 2),
            shown(scalar, 1),
            shown(over(scalar, reference.scalar), 2),
            shown(over(scalar, avx2), 1),
            shown(over(avx2, hash), 1),
            shown(over(reference.avx2, reference.hash), 1),
        );
    }
    if lines.is_empty() {
        return lines;
    }
    format!("{}{lines}", include_str!("fairness.md"))
}

fn over(times: Times, others: Times) -> Times {
    std::array::from_fn(|i| times[i] / others[i])
}

fn shown(times: Times, digits: usize) -> String {
    times.map(|time| format!("{time:.digits$}")).join(" / ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn a_row_is_compared_where_all_peers_were_measured() {
        let reference = &REFERENCES[0];
        let mut records = Vec::new();
        for (what, times) in [
            ("pipapo-avx2", reference.avx2),
            ("pipapo-scalar", reference.scalar),
            ("hash", reference.hash),
        ] {
            assert_eq!(table(&records), "");
            for (traffic, ns) in ["same", "hits", "misses"].into_iter().zip(times) {
                records.push(Record {
                    row: reference.row.into(),
                    rules: reference.rules,
                    traffic: traffic.into(),
                    ..record(what, None, ns)
                });
            }
        }
        let table = table(&records);
        assert!(
            table.contains("| net_port:1000 | 27.6 / 48.2 / 57.0 | 1.00 / 1.00 / 1.00 |"),
            "{table}"
        );
    }
}
