//! `pktjit bench`. No test looks at a time, but for there being one.

use super::*;

/// The objects of a run, one a line.
fn records(args: &[&str]) -> Vec<Value> {
    let args = [&["bench"], args, &["--format", "json"]].concat();
    stdout(PKTJIT, &args).lines().map(json).collect()
}

/// The distinct values of `key`, in the order of their first objects.
fn values(records: &[Value], key: &str) -> Vec<Value> {
    let mut values = Vec::new();
    for record in records {
        if !values.contains(&record[key]) {
            values.push(record[key].clone());
        }
    }
    values
}

#[test]
fn objects_have_the_keys_of_the_fixed_format() {
    let rules = File::new(NFT);
    let args = [
        "bench",
        rules.name(),
        "--set",
        "services",
        "--format",
        "json",
    ];
    let text = stdout(PKTJIT, &args);
    let records: Vec<Value> = text.lines().map(json).collect();
    let keys =
        "suite row rules traffic what requested engine structure mode ns ci95 bytes build_ms";
    for (line, record) in text.lines().zip(&records) {
        let places: Vec<_> = keys
            .split(' ')
            .map(|key| line.find(&format!("\"{key}\":")))
            .collect();
        assert!(places.is_sorted() && places[0].is_some(), "{line}");
        assert_eq!(record.as_object().unwrap().len(), places.len(), "{line}");
        assert!(record["ns"].as_f64().unwrap() > 0.0, "{line}");
        assert!(record["ci95"].as_f64().unwrap() >= 0.0, "{line}");
    }
    assert_eq!(values(&records, "suite"), ["user"]);
    assert_eq!(values(&records, "row"), ["services"]);
    assert_eq!(values(&records, "rules"), [4]);
    assert_eq!(values(&records, "traffic"), ["same", "hits", "misses"]);
    assert_eq!(values(&records, "mode"), ["single", "batch", "latency"]);
    let what = ["pktjit", "pktjit-lookup", "linear"];
    assert_eq!(values(&records, "what"), what);
    assert_eq!(records.len(), 3 * 3 * what.len());
    // Nobody asked for the linear scan: it is a peer here.
    let scan = records.iter().find(|record| record["what"] == "linear");
    for key in ["requested", "engine", "structure"] {
        assert_eq!(scan.unwrap()[key], Value::Null, "{key}");
    }
}

#[test]
fn every_combination_is_measured_or_refused_with_a_reason() {
    let rules = File::new(NFT);
    let mut args = vec![rules.name(), "--set", "services"];
    for engine in ["interp", "linear"] {
        args.extend(["--engine", engine]);
    }
    for structure in ["auto", "hash", "bucket"] {
        args.extend(["--structure", structure]);
    }
    let records = records(&args);
    let (refused, measured): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|record| record["refused"].is_string());
    let name = |record: &Value, key: &str| record[key].as_str().unwrap().to_owned();
    let combination = |record: &Value| (name(record, "engine"), name(record, "requested"));
    let mut served: Vec<_> = measured.iter().map(combination).collect();
    served.dedup();
    served.sort();
    served.dedup();
    let pair = |(engine, structure): (&str, &str)| (engine.to_owned(), structure.to_owned());
    assert_eq!(
        served,
        [("interp", "auto"), ("interp", "bucket"), ("linear", "auto")].map(pair)
    );
    let refusals: Vec<_> = refused
        .iter()
        .map(|record| (combination(record), name(record, "refused")))
        .collect();
    let hash = "structure `hash` cannot hold the rules: the rules do not all look at the same bits of field `ipv4_addr`";
    let linear =
        |structure| format!("engine `linear` cannot serve: it has no structure `{structure}`");
    assert_eq!(
        refusals,
        [
            (pair(("interp", "hash")), hash.to_owned()),
            (pair(("linear", "hash")), linear("hash")),
            (pair(("linear", "bucket")), linear("bucket")),
        ]
    );
}

#[test]
fn nothing_that_can_serve_is_an_error_with_every_reason() {
    let rules = File::new(ACL);
    let message = error(PKTJIT, &["bench", rules.name(), "--structure", "hash"]);
    assert!(
        message.starts_with("structure `hash` cannot hold the rules: "),
        "{message}"
    );
    let args = [
        "bench",
        rules.name(),
        "--engine",
        "linear",
        "--engine",
        "interp",
        "--structure",
        "hash",
    ];
    let message = error(PKTJIT, &args);
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(
        lines[0],
        "engine `linear` cannot serve: it has no structure `hash`"
    );
    assert!(
        lines[1].starts_with("structure `hash` cannot hold the rules: "),
        "{message}"
    );
    assert_eq!(lines.len(), 2, "{message}");
}

#[test]
fn keys_of_a_file_replace_those_made_from_the_rules() {
    let rules = File::new(ACL);
    let keys = File::new(
        "# a trace\n10.0.0.1 1 2 80 6 0\n10.0.0.1 1 2 80 6\n1.1.1.1 192.0.2.1 1024 9 17\n1 1 1 1 1 -1\n",
    );
    let text = stdout(
        PKTJIT,
        &[
            "bench",
            rules.name(),
            "--keys",
            keys.name(),
            "--engine",
            "interp",
        ],
    );
    let counts: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(" keys hit, "))
        .collect();
    assert_eq!(counts, ["keys: 3 keys hit, 1 miss"]);
    let records = records(&[rules.name(), "--keys", keys.name(), "--engine", "interp"]);
    assert_eq!(values(&records, "traffic"), ["keys"]);
}

#[test]
fn a_list_without_a_name_is_called_like_its_file() {
    let rules = File::new(ACL);
    let records = records(&[rules.name(), "--engine", "interp"]);
    let name = rules.0.file_stem().unwrap().to_str().unwrap();
    assert_eq!(values(&records, "row"), [name]);
}

#[test]
fn text_tells_how_each_combination_was_compiled_and_what_it_costs() {
    let rules = File::new(NFT);
    let args = [
        "bench",
        rules.name(),
        "--set",
        "hosts",
        "--engine",
        "interp",
        "--structure",
        "auto",
        "--structure",
        "linear",
    ];
    let text = stdout(PKTJIT, &args);
    assert!(
        text.starts_with("hosts: 2 rules, keys of 4 bytes\n"),
        "{text}"
    );
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let compiled = text
        .lines()
        .map(words)
        .filter(|words| words.len() == 7 && words[1] == "linear");
    assert_eq!(compiled.count(), 1, "{text}");
    for traffic in ["same", "hits", "misses"] {
        let mut lines = text
            .lines()
            .skip_while(|line| !line.starts_with(&format!("{traffic}: ")));
        lines.next();
        assert_eq!(
            words(lines.next().unwrap()),
            ["engine", "structure", "call", "single", "batch", "latency"]
        );
        let calls = [lines.next(), lines.next(), lines.next()].map(|line| words(line.unwrap()));
        assert!(calls[0].contains(&"(auto)".into()), "{text}");
        assert_eq!(calls[1][..3], ["interp", "linear", "pktjit-lookup"]);
        assert_eq!(calls[2][..3], ["-", "-", "linear"]);
    }
}

#[test]
fn no_keys_are_an_error() {
    let empty = File::new("table ip t {\n set s { type ipv4_addr; }\n}\n");
    let message = error(PKTJIT, &["bench", empty.name()]);
    assert_eq!(
        message,
        "there are no rules to make keys from; --keys takes some"
    );
    let key = File::new("10.0.0.1\n");
    let text = stdout(PKTJIT, &["bench", empty.name(), "--keys", key.name()]);
    assert!(text.contains("keys: 0 keys hit, 1 miss"), "{text}");
    let none = File::new("# nothing\n");
    let message = error(PKTJIT, &["bench", empty.name(), "--keys", none.name()]);
    assert_eq!(message, format!("{} holds no keys", none.name()));
}
