//! The suites at reduced size: every contender answers rightly, and results keep their format.

use pktjit_bench::measure::Effort;
use pktjit_bench::record::Record;
use pktjit_bench::suite::{Settings, calls, compile_all, floor, peers, selftest};
use pktjit_bench::workload::{ROWS, Row, Set, Traffic};
use pktjit_bench::{dispatch, plot, report, scaling};

/// The fields of a result, in order, as scripts expect them.
const FIELDS: [&str; 13] = [
    "suite",
    "row",
    "rules",
    "traffic",
    "what",
    "requested",
    "engine",
    "structure",
    "mode",
    "ns",
    "ci95",
    "bytes",
    "build_ms",
];

fn small(row: &Row) -> Row {
    row.with_rules(row.rules.min(300))
}

fn settings(suite: &'static str) -> Settings {
    Settings {
        suite,
        engines: vec![None],
        structures: vec![None],
        effort: Effort {
            rounds: 2,
            sample_ns: 1.0,
        },
        keys: 256,
    }
}

#[test]
fn all_contenders_give_the_expected_element_for_every_row_and_traffic() {
    for row in ROWS.iter().map(small) {
        for first_field_only in [false, true] {
            let set = Set::new(&row, first_field_only).unwrap();
            let compiled = compile_all(&set.rules, &settings("test")).unwrap();
            let mut contenders = calls(&compiled);
            contenders.extend(peers(&set));
            assert!(contenders.len() >= 4, "{}", row.name);
            for traffic in Traffic::ALL {
                let sent = set.send(traffic, 512);
                for keys in [&sent.ranges, &sent.exact] {
                    set.check(keys).unwrap();
                }
                for contender in &mut contenders {
                    let keys = contender.peer.keys(&sent);
                    contender
                        .check(keys)
                        .unwrap_or_else(|error| panic!("{} {}: {error}", row.name, traffic.name()));
                }
            }
        }
    }
}

#[test]
fn traffic_hits_and_misses_as_its_name_says() {
    for row in ROWS.iter().map(small) {
        for first_field_only in [false, true] {
            let set = Set::new(&row, first_field_only).unwrap();
            for (traffic, misses) in [
                (Traffic::Same, 0..=0),
                (Traffic::Hits, 0..=0),
                (Traffic::Misses, 96..=160),
            ] {
                let keys = set.send(traffic, 256).ranges;
                let found = keys.expected.iter().filter(|&&hit| hit == pktjit::MISS);
                assert!(misses.contains(&found.count()), "{} {traffic:?}", row.name);
            }
        }
    }
}

#[test]
fn a_wrong_expectation_fails_the_check() {
    let set = Set::new(&small(&ROWS[0]), false).unwrap();
    let mut keys = set.send(Traffic::Hits, 64).ranges;
    *keys.expected.last_mut().unwrap() ^= 1;
    assert!(set.check(&keys).is_err());
    for mut peer in peers(&set).into_iter().take(2) {
        let error = peer.check(&keys).unwrap_err();
        assert!(error.contains("key 63"), "{error}");
    }
}

#[test]
fn the_rows_are_the_eight_of_the_published_table() {
    let rows = ROWS.map(|row| format!("{}:{}", row.name, row.rules));
    assert_eq!(
        rows.join(" "),
        "net_port:1000 port_net:100 net6_port:1000 port_proto:10000 port_proto:30000 net6_port_mac:10 \
         net6_port_mac_proto:1000 net_mac:1000"
    );
    let set = Set::new(&ROWS[5], false).unwrap();
    assert_eq!(set.len(), 11);
    let first = set.exact_keys().next().unwrap();
    // 2001:db8::a . 11 . 00:01:00:00:00:0a, each padded to 4 bytes.
    let mac = [0, 1, 0, 0, 0, 10, 0, 0];
    assert_eq!(first[..4], [0x20, 1, 0x0d, 0xb8]);
    assert_eq!(first[15..20], [10, 0, 11, 0, 0]);
    assert_eq!(first[20..], mac);
}

#[test]
fn rows_are_parsed_with_and_without_a_size() {
    assert_eq!(Row::parse("port_proto").unwrap().len(), 2);
    assert_eq!(Row::parse("net_port:50").unwrap()[0].rules, 50);
    for wrong in ["nope", "net_port:0", "net_port:x", "port_proto:40000"] {
        assert!(Row::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn results_have_exactly_the_fixed_fields_in_every_suite() {
    let mut records: Vec<Record> = Vec::new();
    let row = ROWS[0].with_rules(50);
    selftest(&row, &settings("selftest"), &mut |record| {
        records.push(record)
    })
    .unwrap();
    floor(&row, &settings("floor"), &mut |record| records.push(record)).unwrap();
    scaling::run(&row, &settings("scaling"), &mut |record| {
        records.push(record)
    })
    .unwrap();
    dispatch::run(&dispatch::ROW, &settings("dispatch"), &mut |record| {
        records.push(record)
    })
    .unwrap();
    for record in &records {
        let line = serde_json::to_string(record).unwrap();
        let places: Vec<usize> = FIELDS
            .iter()
            .map(|field| line.find(&format!("\"{field}\":")).expect(field))
            .collect();
        assert!(places.is_sorted(), "{line}");
        let object: serde_json::Map<_, _> = serde_json::from_str(&line).unwrap();
        assert_eq!(object.len(), FIELDS.len(), "{line}");
        serde_json::from_str::<Record>(&line).unwrap();
    }
    for what in [
        "pktjit-lookup",
        "rbtree",
        "hash",
        "pipapo-scalar",
        "floor",
        "spin-2",
        "retpoline",
    ] {
        assert!(records.iter().any(|record| record.what == what), "{what}");
    }
    let page = report::page(&[report::Run {
        file: "all.json".into(),
        date: "2026-11-30".into(),
        records: records.clone(),
    }]);
    for suite in ["selftest", "floor", "scaling", "dispatch"] {
        assert!(page.contains(&format!("\n## {suite}\n")), "{suite}");
    }
    let picture = std::env::temp_dir().join(format!("pktjit-bench-{}.svg", std::process::id()));
    plot::draw(&records, &picture).unwrap();
    let drawn = std::fs::read_to_string(&picture).unwrap();
    std::fs::remove_file(&picture).unwrap();
    assert!(drawn.contains("<svg") && drawn.contains("pipapo-scalar"));
}
