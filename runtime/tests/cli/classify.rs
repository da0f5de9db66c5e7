//! `pktjit classify`.

use super::*;

#[test]
fn classify_prints_a_line_for_each_key() {
    let file = File::new(NFT);
    let args = [
        "classify",
        file.name(),
        "--set",
        "services",
        "192.0.2.9  .  22",
        "10.0.0.5 . 2000",
        "1.1.1.1 . 1 # x",
    ];
    assert_eq!(
        stdout(PKTJIT, &args),
        "192.0.2.9 . 22\trule 0\taccept\n10.0.0.5 . 2000\trule 1\tjump high\n1.1.1.1 . 1\trule 3\tgoto rest\n"
    );
    let args = [
        "classify",
        file.name(),
        "--set",
        "inet filter hosts",
        "10.0.0.2",
        "10.0.0.3",
    ];
    assert_eq!(
        stdout(PKTJIT, &args),
        "10.0.0.2\trule 1\tmatch\n10.0.0.3\tmiss\n"
    );
}

#[test]
fn classify_reads_nft_json() {
    let file = File::new(
        r#"{"nftables": [{"metainfo": {"json_schema_version": 1}}, {"map": {"family": "ip", "table": "t", "name": "m",
        "type": ["ipv4_addr", "inet_service"], "map": "verdict", "flags": ["interval"], "elem": [
        [{"concat": [{"prefix": {"addr": "192.0.2.0", "len": 24}}, {"range": [20, 30]}]}, {"jump": {"target": "high"}}],
        ["*", {"drop": null}]]}}]}"#,
    );
    let args = ["classify", file.name(), "192.0.2.9 . 22", "192.0.2.9 . 80"];
    assert_eq!(
        stdout(PKTJIT, &args),
        "192.0.2.9 . 22\trule 0\tjump high\n192.0.2.9 . 80\trule 1\tdrop\n"
    );
}

#[test]
fn classify_prints_an_object_for_each_key() {
    let file = File::new(NFT);
    let args = [
        "classify",
        file.name(),
        "--set",
        "hosts",
        "10.0.0.2",
        "10.0.0.3",
        "--format",
        "json",
    ];
    assert_eq!(
        stdout(PKTJIT, &args),
        "{\"key\":\"10.0.0.2\",\"rule\":1,\"verdict\":\"match\"}\n{\"key\":\"10.0.0.3\",\"rule\":null,\"verdict\":null}\n"
    );
}

#[test]
fn classify_reads_compressed_rules_and_keys() {
    let pack = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        File::new(encoder.finish().unwrap())
    };
    let rules = pack(ACL);
    let keys = pack(
        "# a trace\n167772161 1 2 80 6 0\n\n1.1.1.1 192.0.2.1\t1024 9 udp 1\n1.1.1.1 1 2 3 4 -1\n",
    );
    let args = ["classify", rules.name(), "--keys", keys.name(), "--check"];
    assert_eq!(
        stdout(PKTJIT, &args),
        "167772161 1 2 80 6\trule 0\tmatch\n1.1.1.1 192.0.2.1 1024 9 udp\trule 1\tmatch\n1.1.1.1 1 2 3 4\tmiss\n"
    );
}

#[test]
fn summary_replaces_the_lines() {
    let file = File::new(NFT);
    let args = [
        "classify",
        file.name(),
        "--set",
        "hosts",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.4",
        "--summary",
    ];
    let engine = ["--engine", "interp", "--structure", "linear"];
    let text = stdout(PKTJIT, &[&args[..], &engine[..]].concat());
    let lines: Vec<(&str, &str)> = text
        .lines()
        .map(|line| line.split_once(char::is_whitespace).unwrap())
        .collect();
    let value = |name: &str| lines.iter().find(|line| line.0 == name).unwrap().1.trim();
    assert_eq!(
        (value("keys"), value("hits"), value("misses")),
        ("3", "1", "2")
    );
    assert_eq!((value("engine"), value("structure")), ("interp", "linear"));
    assert!(value("ns/lookup").parse::<f64>().unwrap() > 0.0);

    let object = json(&stdout(
        PKTJIT,
        &[&args[..], &engine[..], &["--format", "json"]].concat(),
    ));
    assert_eq!(
        (&object["keys"], &object["hits"], &object["misses"]),
        (&3.into(), &1.into(), &2.into())
    );
    assert_eq!(
        (&object["engine"], &object["structure"]),
        (&"interp".into(), &"linear".into())
    );
    assert!(object["ns_per_lookup"].as_f64().unwrap() > 0.0);
}

#[test]
fn check_fails_where_a_key_hits_another_rule_than_expected() {
    let rules = File::new(ACL);
    let keys =
        File::new("10.1.0.1 1 2 80 6 2\n10.0.0.1 1 2 80 6 0\n10.0.0.1 1 2 80 6 -1\n1 1 1 1 1 0\n");
    let message = error(
        PKTJIT,
        &["classify", rules.name(), "--keys", keys.name(), "--check"],
    );
    assert_eq!(
        message,
        "3 of 4 keys hit another rule than expected\n  10.1.0.1 1 2 80 6: rule 0, expected rule 2\n  \
         10.0.0.1 1 2 80 6: rule 0, expected a miss\n  1 1 1 1 1: a miss, expected rule 0"
    );
    // The same keys are only classified without `--check`.
    assert_eq!(
        stdout(PKTJIT, &["classify", rules.name(), "--keys", keys.name()])
            .lines()
            .count(),
        4
    );
}

#[test]
fn check_needs_an_expected_rule_for_each_key() {
    let rules = File::new(ACL);
    let keys = File::new("10.0.0.1 1 2 80 6 0\n10.0.0.1 1 2 80 6\n");
    let message = error(
        PKTJIT,
        &["classify", rules.name(), "--keys", keys.name(), "--check"],
    );
    assert_eq!(
        message,
        format!(
            "{}:2:1: no expected rule follows the key `10.0.0.1 1 2 80 6`",
            keys.name()
        )
    );
}

#[test]
fn every_engine_and_structure_gives_the_same_lines_or_says_why_not() {
    let rules = File::new(ACL);
    let keys = [
        "10.1.0.1 1 2 80 6",
        "1.1.1.1 192.0.2.1 1024 9 17",
        "1 1 1 1 1",
    ];
    let classify = |extra: &[&str]| -> Vec<String> {
        let args = [&["classify", rules.name()], &keys[..], extra].concat();
        args.into_iter().map(str::to_owned).collect()
    };
    let expected = stdout(PKTJIT, &classify(&["--engine", "linear"]));
    for engine in ["avx2", "interp"] {
        if engine == "avx2" && !has_avx2() {
            eprintln!("skipped: no AVX2 here");
            continue;
        }
        for structure in ["auto", "inline", "bucket", "linear"] {
            let args = classify(&["--engine", engine, "--structure", structure]);
            assert_eq!(stdout(PKTJIT, &args), expected, "{engine} {structure}");
        }
        let message = error(
            PKTJIT,
            &classify(&["--engine", engine, "--structure", "hash"]),
        );
        assert!(
            message.starts_with("structure `hash` cannot hold the rules: "),
            "{message}"
        );
    }
    let message = error(
        PKTJIT,
        &classify(&["--engine", "linear", "--structure", "bucket"]),
    );
    assert_eq!(
        message,
        "engine `linear` cannot serve: it has no structure `bucket`"
    );
    let args = classify(&["--engine", "linear", "--structure", "linear"]);
    assert_eq!(stdout(PKTJIT, &args), expected);
}
