//! The suites at reduced size: every contender answers rightly, and results keep their format.

use std::collections::HashSet;

use pktjit_bench::measure::Effort;
use pktjit_bench::record::Record;
use pktjit_bench::suite::{Settings, calls, compile_all, floor, lookups, peers};
use pktjit_bench::workload::lists::{self, List};
use pktjit_bench::workload::{ROWS, Row, Set, Traffic, rows};
use pktjit_bench::{build, classbench, dispatch, plot, report, scaling};
use pktjit_fuzz::r#gen::lists::Seed;

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

/// The rows of each suite that compares lookups, one for each name.
fn rows_of_suites() -> Vec<(&'static str, Row)> {
    let suites = [
        ("selftest", ROWS.to_vec()),
        ("selftest-first", ROWS.map(Row::first_field).to_vec()),
        ("single", rows::single()),
        ("hash", rows::hash()),
        ("shapes", rows::shapes()),
    ];
    let mut all: Vec<(&str, Row)> = Vec::new();
    for (suite, rows) in suites {
        for row in rows {
            let name = |other: &(&str, Row)| (other.0, other.1.name) == (suite, row.name);
            if !all.iter().any(name) {
                all.push((suite, small(&row)));
            }
        }
    }
    all
}

#[test]
fn all_contenders_give_the_expected_element_for_every_row_and_traffic() {
    for (suite, row) in rows_of_suites() {
        let set = Set::new(&row).unwrap();
        let compiled = compile_all(&set.rules, &settings(suite)).unwrap();
        let mut contenders = calls(&compiled);
        contenders.extend(peers(suite, &set));
        assert!(contenders.len() >= 3, "{suite} {}", row.name);
        for traffic in Traffic::ALL {
            let sent = set.send(traffic, 512);
            for keys in [&sent.ranges, &sent.exact] {
                set.check(keys).unwrap();
            }
            for contender in &mut contenders {
                let keys = contender.peer.keys(&sent);
                assert_eq!(keys.len(), 512, "{suite} {}", row.name);
                contender
                    .check(keys)
                    .unwrap_or_else(|error| panic!("{suite} {} {traffic:?}: {error}", row.name));
            }
        }
    }
}

#[test]
fn traffic_hits_and_misses_as_its_name_says() {
    for (suite, row) in rows_of_suites() {
        let set = Set::new(&row).unwrap();
        for (traffic, misses) in [
            (Traffic::Same, 0..=0),
            (Traffic::Hits, 0..=0),
            (Traffic::Misses, 96..=160),
        ] {
            let keys = set.send(traffic, 256).ranges;
            let found = keys.expected.iter().filter(|&&hit| hit == pktjit::MISS);
            let name = row.name;
            assert!(
                misses.contains(&found.count()),
                "{suite} {name} {traffic:?}"
            );
        }
    }
}

#[test]
fn random_elements_are_as_many_as_the_row_says_and_differ() {
    for (suite, row) in rows_of_suites() {
        let set = Set::new(&row).unwrap();
        let expected = row.rules as usize + usize::from(suite.starts_with("selftest"));
        assert_eq!(set.len(), expected, "{suite} {}", row.name);
        let rules = set.rules.rules().iter();
        let different: HashSet<_> = rules.map(|stored| &stored.rule.matches).collect();
        assert_eq!(different.len(), set.len(), "{suite} {}", row.name);
        assert!(
            set.is_disjoint() || suite == "shapes",
            "{suite} {}",
            row.name
        );
    }
}

#[test]
fn every_row_of_ipv6_has_one_of_ipv4_beside_it() {
    let rows = rows::shapes();
    for pair in rows.chunks(rows.len() / 3).flat_map(|shape| {
        let (narrow, wide) = shape.split_at(shape.len() / 2);
        narrow.iter().zip(wide)
    }) {
        let (narrow, wide) = pair;
        assert_eq!(wide.name.replace("net6", "net"), narrow.name);
        assert_eq!(wide.rules, narrow.rules);
    }
}

/// One small list of each kind that is made.
fn small_lists() -> Vec<Row> {
    let named = |name| Row::parse(name, &rows::CLASSBENCH).unwrap();
    let names = [
        "acl1_gen:300",
        "fw1_gen:300",
        "ipc1_gen:300",
        "fw1_deep:10000",
    ];
    names.into_iter().flat_map(named).collect()
}

#[test]
fn all_contenders_give_the_expected_rule_of_every_list_and_traffic() {
    for row in small_lists() {
        let mut list = List::new(&row).unwrap().unwrap();
        assert_eq!(list.rules.len(), row.rules as usize, "{}", row.name);
        let compiled = compile_all(&list.rules, &settings("classbench")).unwrap();
        let mut contenders = calls(&compiled);
        contenders.extend(classbench::peers(&list));
        assert!(contenders.iter().any(|it| it.peer.name() == "tss"));
        for traffic in lists::Traffic::ALL {
            let Some(keys) = list.send(traffic, 512) else {
                assert_eq!(traffic, lists::Traffic::Trace);
                continue;
            };
            assert_eq!(list.check(&keys).unwrap(), keys.len());
            for contender in &mut contenders {
                contender
                    .check(&keys)
                    .unwrap_or_else(|error| panic!("{} {traffic:?}: {error}", row.name));
            }
        }
    }
}

#[test]
fn the_traces_of_the_given_sets_agree_with_the_tuple_space_search() {
    for row in rows::CLASSBENCH
        .iter()
        .filter(|row| row.name.ends_with("_1k"))
    {
        let Some(mut list) = List::new(row).unwrap() else {
            eprintln!(
                "{}: skipped: there is no ../shared/data/classbench",
                row.name
            );
            continue;
        };
        let keys = list.send(lists::Traffic::Trace, 0).unwrap();
        assert_eq!(keys.len(), 20_000);
        let mut peers = classbench::peers(&list);
        peers[0]
            .check(&keys)
            .unwrap_or_else(|error| panic!("{}: {error}", row.name));
    }
}

#[test]
fn cold_keys_enter_every_rule_before_one_has_its_second_turn() {
    let mut list = List::new(&small_lists()[0]).unwrap().unwrap();
    let layout = list.rules.layout().clone();
    let keys = list.send(lists::Traffic::Cold, 10).unwrap();
    assert_eq!(keys.len(), 300);
    let inside = |rule: &pktjit_fuzz::r#gen::lists::Rule| {
        let mut keys = keys.first(300).map(|key| layout.key(key).unwrap());
        keys.any(|key| {
            let mut fields = rule.iter().zip(layout.field_ids());
            fields.all(|(&(lo, hi), field)| {
                (u128::from(lo)..=u128::from(hi)).contains(&layout.read(key, field))
            })
        })
    };
    assert!(list.intervals.iter().all(inside));
}

#[test]
fn a_wrong_expectation_of_a_list_fails_the_check() {
    let mut list = List::new(&small_lists()[0]).unwrap().unwrap();
    let mut keys = list.send(lists::Traffic::Uniform, 64).unwrap();
    *keys.expected.last_mut().unwrap() ^= 1;
    assert!(list.check(&keys).unwrap_err().contains("key 63"));
}

#[test]
fn seeds_are_what_the_given_sets_teach() {
    for (name, seed) in [
        ("acl1_100k", Seed::acl1()),
        ("fw1_100k", Seed::fw1()),
        ("ipc1_100k", Seed::ipc1()),
    ] {
        match classbench::learn(name) {
            Ok(learned) => assert!(learned.to_string() == seed.to_string(), "{name}"),
            Err(error) => eprintln!("{name}: skipped: {error}"),
        }
    }
}

#[test]
fn a_picture_of_lists_has_a_line_for_each_contender_and_kind() {
    let mut records: Vec<Record> = Vec::new();
    for rules in [50, 100] {
        for row in &small_lists()[..2] {
            let row = row.with_rules(rules);
            classbench::run(&row, &settings("classbench"), &mut |it| records.push(it)).unwrap();
        }
    }
    let picture = std::env::temp_dir().join(format!("pktjit-lists-{}.svg", std::process::id()));
    plot::draw(&records, &picture).unwrap();
    let drawn = std::fs::read_to_string(&picture).unwrap();
    std::fs::remove_file(&picture).unwrap();
    for part in ["acl1: ns a lookup", "fw1: ns a lookup", "tss", "<polyline"] {
        assert!(drawn.contains(part), "{part}");
    }
}

#[test]
fn a_wrong_expectation_fails_the_check() {
    let set = Set::new(&small(&ROWS[0])).unwrap();
    let mut keys = set.send(Traffic::Hits, 64).ranges;
    *keys.expected.last_mut().unwrap() ^= 1;
    assert!(set.check(&keys).is_err());
    for mut peer in peers("selftest", &set).into_iter().take(2) {
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
    let set = Set::new(&ROWS[5]).unwrap();
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
    assert_eq!(Row::parse("port_proto", &ROWS).unwrap().len(), 2);
    assert_eq!(Row::parse("net_port:50", &ROWS).unwrap()[0].rules, 50);
    for wrong in ["nope", "net_port:0", "net_port:x", "port_proto:40000"] {
        assert!(Row::parse(wrong, &ROWS).is_err(), "{wrong}");
    }
    assert!(Row::parse("acl1_1k:1000", &rows::CLASSBENCH).is_ok());
    assert!(Row::parse("acl1_1k:999", &rows::CLASSBENCH).is_err());
}

#[test]
fn results_have_exactly_the_fixed_fields_in_every_suite() {
    let mut records: Vec<Record> = Vec::new();
    let row = ROWS[0].with_rules(50);
    for (suite, row) in [
        ("selftest", row),
        ("single", rows::single()[0].with_rules(50)),
        ("hash", rows::hash()[0].with_rules(50)),
        ("shapes", rows::shapes()[0].with_rules(50)),
    ] {
        lookups(&row, &settings(suite), &mut |record| records.push(record)).unwrap();
    }
    build::run(&row, &settings("build"), &mut |record| records.push(record)).unwrap();
    floor(&row, &settings("floor"), &mut |record| records.push(record)).unwrap();
    scaling::run(&row, &settings("scaling"), &mut |record| {
        records.push(record)
    })
    .unwrap();
    dispatch::run(&dispatch::ROW, &settings("dispatch"), &mut |record| {
        records.push(record)
    })
    .unwrap();
    let picture_of_bars = records.clone();
    classbench::run(&small_lists()[0], &settings("classbench"), &mut |it| {
        records.push(it)
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
        "pktjit-plan",
        "rbtree",
        "bisect",
        "hash",
        "hash-call",
        "pipapo-scalar",
        "tss",
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
    }])
    .unwrap();
    for suite in [
        "selftest",
        "single",
        "hash",
        "shapes",
        "build",
        "classbench",
        "floor",
        "scaling",
        "dispatch",
        "code",
    ] {
        assert!(page.contains(&format!("\n## {suite}\n")), "{suite}");
    }
    let picture = std::env::temp_dir().join(format!("pktjit-bench-{}.svg", std::process::id()));
    plot::draw(&picture_of_bars, &picture).unwrap();
    let drawn = std::fs::read_to_string(&picture).unwrap();
    std::fs::remove_file(&picture).unwrap();
    assert!(drawn.contains("<svg") && drawn.contains("pipapo-scalar"));
}

#[test]
fn a_build_of_every_kind_of_rules_is_told_with_its_parts() {
    let mut names = Vec::new();
    for row in rows::build().iter().filter(|row| row.rules == 100) {
        let mut records: Vec<Record> = Vec::new();
        build::run(row, &settings("build"), &mut |record| records.push(record)).unwrap();
        let whats: Vec<&str> = records.iter().map(|record| &*record.what).collect();
        let own = ["pktjit", "pktjit-plan", "pktjit-codegen", "pktjit-publish"];
        assert_eq!(whats[..4], own, "{}", row.name);
        assert_eq!(whats[4], "pipapo-scalar", "{}", row.name);
        for record in &records {
            assert_eq!(record.build_ms, record.ns / 1e6, "{}", row.name);
        }
        names.push(row.name);
    }
    for name in [
        "net_port",
        "port_proto",
        "net6_port_net6_port",
        "acl",
        "fw",
        "ipc",
    ] {
        assert!(names.contains(&name), "{name}");
    }
}
