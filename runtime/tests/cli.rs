//! The tools as scripts call them: their output, their messages and their exit codes.
#![cfg(feature = "cli")]

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

const PKTJIT: &str = env!("CARGO_BIN_EXE_pktjit");
const JITDUMP: &str = env!("CARGO_BIN_EXE_jitdump");

const NFT: &str = "\
table inet filter {
  map services {
    type ipv4_addr . inet_service : verdict
    flags interval
    elements = { 192.0.2.0/24 . ssh : accept,
                 10.0.0.1-10.0.0.9 . 1024-65535 : jump high,
                 10.0.0.0-10.0.0.255 . 2000 : drop,
                 * : goto rest }
  }
  set hosts { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 } }
  chain input { type filter hook input priority 0; }
}
";

/// The first rule covers the third.
const ACL: &str = "\
@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF
@0.0.0.0/0 192.0.2.0/24 1024 : 65535 0 : 65535 0x11/0xFF
@10.1.0.0/16 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF
";

/// A file that goes away with the value.
struct File(PathBuf);

impl File {
    fn new(content: impl AsRef<[u8]>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pktjit-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(tool: &str, args: &[impl AsRef<OsStr>]) -> Output {
    Command::new(tool)
        .args(args)
        .env_remove("PKTJIT_ENGINE")
        .output()
        .unwrap()
}

/// The stdout of a call that must succeed.
fn stdout(tool: &str, args: &[impl AsRef<OsStr> + Debug]) -> String {
    let output = run(tool, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    assert_eq!(stderr, "", "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a call that must fail: exit 1, one error, nothing on stdout.
fn error(tool: &str, args: &[impl AsRef<OsStr> + Debug]) -> String {
    let output = run(tool, args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert_eq!(output.stdout, b"", "{args:?}");
    assert_eq!(stderr.matches("error: ").count(), 1, "{args:?}: {stderr}");
    let message = stderr.strip_prefix("error: ").unwrap();
    message.trim_end().into()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Whether machine code runs here; everything else must work anywhere.
fn has_avx2() -> bool {
    pktjit::Cpu::host().avx2.is_ok()
}

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

#[test]
fn names_that_nobody_knows_or_that_are_not_built_yet_are_errors() {
    let rules = File::new(ACL);
    for (option, name, message) in [
        ("--engine", "avx3", "there is no engine `avx3`"),
        ("--engine", "avx512", "engine `avx512` is not built yet"),
        ("--structure", "trie", "there is no structure `trie`"),
        (
            "--structure",
            "pipapo",
            "structure `pipapo` is not built yet",
        ),
    ] {
        for (tool, args) in [
            (PKTJIT, &["classify", rules.name(), "1 1 1 1 1"][..]),
            (JITDUMP, &[rules.name()]),
        ] {
            let found = error(tool, &[args, &[option, name]].concat());
            assert!(found.starts_with(message), "{found}");
        }
    }
    for (target, message) in [
        ("x86_64-avx512", "target `x86_64-avx512` is not built yet"),
        ("aarch64-neon", "target `aarch64-neon` is not built yet"),
        (
            "riscv64gc-unknown-linux-gnu",
            "target `riscv64gc-unknown-linux-gnu` is not built yet",
        ),
        ("pdp11", "there is no target `pdp11`"),
    ] {
        let found = error(JITDUMP, &[rules.name(), "--target", target]);
        assert!(found.starts_with(message), "{found}");
    }
}

#[test]
fn sets_are_chosen_by_name_where_there_are_several() {
    let file = File::new(NFT);
    let message = error(PKTJIT, &["classify", file.name(), "10.0.0.1"]);
    assert!(
        message.ends_with("choose a set: `inet filter services`, `inet filter hosts`"),
        "{message}"
    );
    let message = error(
        PKTJIT,
        &["classify", file.name(), "--set", "nope", "10.0.0.1"],
    );
    assert!(message.contains("no set `nope`"), "{message}");
}

/// A file with one set, and a key for it.
fn bad_rules(set: &str, message: &str) {
    let file = File::new(format!("table ip t {{\n set s {{ {set} }}\n}}\n"));
    for args in [
        &["classify", file.name(), "10.0.0.1"][..],
        &["check", file.name()],
        &["explain", file.name(), "10.0.0.1"],
    ] {
        let found = error(PKTJIT, args);
        assert!(found.starts_with(&format!("{}:2:", file.name())), "{found}");
        assert!(found.contains(message), "{found}");
    }
    assert!(error(JITDUMP, &[file.name()]).contains(message));
}

#[test]
fn reversed_range_is_refused() {
    bad_rules(
        "type ipv4_addr; flags interval; elements = { 10.0.0.9-10.0.0.1 }",
        "the range is reversed",
    );
}

#[test]
fn too_long_prefix_is_refused() {
    bad_rules(
        "type ipv4_addr; flags interval; elements = { 10.0.0.0/33 }",
        "prefix length `33` is longer",
    );
}

#[test]
fn element_with_too_many_fields_is_refused() {
    bad_rules(
        "type ipv4_addr; elements = { 10.0.0.1 . 80 }",
        "one field more than the key has",
    );
}

#[test]
fn element_with_too_few_fields_is_refused() {
    bad_rules(
        "type ipv4_addr . inet_service; elements = { 10.0.0.1 }",
        "expected",
    );
}

#[test]
fn unknown_type_is_refused() {
    bad_rules("type ipv5_addr; elements = { 10.0.0.1 }", "ipv5_addr");
}

#[test]
fn range_in_an_exact_set_is_refused() {
    bad_rules(
        "type ipv4_addr; elements = { 10.0.0.1-10.0.0.2 }",
        "interval",
    );
}

#[test]
fn prefix_in_an_exact_set_is_refused() {
    bad_rules("type ipv4_addr; elements = { 10.0.0.0/8 }", "interval");
}

#[test]
fn overlap_under_strict_is_refused() {
    bad_rules(
        "type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 10.0.0.1 }",
        "overlaps `10.0.0.0/8`",
    );
}

#[test]
fn too_large_port_is_refused() {
    bad_rules(
        "type inet_service; elements = { 70000 }",
        "`70000` is too large",
    );
}

#[test]
fn address_with_a_byte_too_large_is_refused() {
    bad_rules(
        "type ipv4_addr; elements = { 10.0.0.256 }",
        "`10.0.0.256` is not an IPv4 address",
    );
}

#[test]
fn unknown_protocol_is_refused() {
    bad_rules("type inet_proto; elements = { tcpp }", "tcpp");
}

#[test]
fn key_with_a_missing_field_is_refused() {
    let file = File::new(NFT);
    let args = [
        "classify",
        file.name(),
        "--set",
        "services",
        "10.0.0.1 . 1",
        "10.0.0.1",
    ];
    let message = error(PKTJIT, &args);
    assert!(message.starts_with("key:2:9: "), "{message}");
}

#[test]
fn wrong_key_late_in_a_file_leaves_nothing_on_stdout() {
    let rules = File::new(ACL);
    let keys = File::new(format!("{}1 2 3\n", "1 2 3 4 5\n".repeat(20_000)));
    let message = error(PKTJIT, &["classify", rules.name(), "--keys", keys.name()]);
    assert!(
        message.starts_with(&format!("{}:20001:6: ", keys.name())),
        "{message}"
    );
}

#[test]
fn file_that_does_not_exist_is_refused() {
    let rules = File::new(ACL);
    for (tool, args) in [
        (PKTJIT, &["classify", "/nonexistent", "1"][..]),
        (
            PKTJIT,
            &["classify", rules.name(), "--keys", "/nonexistent"],
        ),
        (PKTJIT, &["check", "/nonexistent"]),
        (PKTJIT, &["explain", "/nonexistent", "1"]),
        (JITDUMP, &["/nonexistent"]),
    ] {
        let message = error(tool, args);
        assert!(
            message.starts_with("/nonexistent:1:1: cannot be opened: "),
            "{message}"
        );
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut state = 1u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(100_000_000)
    .collect();
    let file = File::new(bytes);
    error(PKTJIT, &["classify", file.name(), "10.0.0.1"]);
    let rules = File::new(ACL);
    error(PKTJIT, &["classify", rules.name(), "--keys", file.name()]);
}

#[test]
fn closed_stdout_is_an_error_and_no_panic() {
    let rules = File::new(ACL);
    let keys = File::new("1 2 3 4 5\n".repeat(20_000));
    for (tool, args) in [
        (
            PKTJIT,
            &["classify", rules.name(), "--keys", keys.name()][..],
        ),
        (PKTJIT, &["engines"]),
        (JITDUMP, &[rules.name()]),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = Command::new(tool)
            .args(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.starts_with("error: stdout cannot be written"),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn words_that_make_no_command_line_exit_with_2() {
    let rules = File::new(ACL);
    for (tool, args) in [
        (PKTJIT, &["classify", rules.name()][..]),
        (PKTJIT, &["classify", rules.name(), "1", "--check"]),
        (PKTJIT, &["classify", rules.name(), "1", "--keys", "x"]),
        (PKTJIT, &["classify", rules.name(), "--pcap", "x"]),
        (PKTJIT, &["classify", rules.name(), "1", "--format", "xml"]),
        (PKTJIT, &["clasify"]),
        (PKTJIT, &[]),
        (JITDUMP, &[rules.name(), "--emit", "bin"]),
        (JITDUMP, &[rules.name(), "--show", "everything"]),
    ] {
        let output = run(tool, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(output.stdout, b"", "{args:?}");
    }
}

#[test]
fn check_tells_what_was_read_and_what_was_skipped() {
    let file = File::new(NFT);
    let text = stdout(PKTJIT, &["check", file.name()]);
    let name = file.name();
    for line in [
        format!("{name}:2: verdict map inet filter services"),
        "  key       ipv4_addr . inet_service".into(),
        "  elements  4".into(),
        format!("{name}:10: set inet filter hosts"),
        format!("{name}:11:3: note: `chain input` is skipped"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let object = json(&stdout(PKTJIT, &["check", file.name(), "--format", "json"]));
    assert_eq!(object["sets"][0]["fields"][1]["name"], "inet_service");
    assert_eq!(object["sets"][0]["flags"][0], "interval");
    assert_eq!(object["sets"][1]["elements"], 2);
    assert_eq!(
        (&object["notes"][0]["line"], &object["notes"][0]["column"]),
        (&11.into(), &3.into())
    );
}

#[test]
fn explain_tells_the_winner_and_why_the_others_lose() {
    let file = File::new(NFT);
    let name = file.name();
    let text = stdout(
        PKTJIT,
        &["explain", name, "--set", "services", "10.0.0.5 . 2000"],
    );
    let expected = format!(
        "key     10.0.0.5 . 2000
winner  rule 1 `10.0.0.1-10.0.0.9 . 1024-65535` : jump high ({name}:6:18)
          ipv4_addr     10.0.0.5 matches 10.0.0.1-10.0.0.9
          inet_service  2000 matches 1024-65535
loses   rule 2 `10.0.0.0-10.0.0.255 . 2000` : drop ({name}:7:18): comes later
loses   rule 3 `*` : goto rest ({name}:8:18): lower priority
"
    );
    assert_eq!(text, expected);
    let args = [
        "explain",
        name,
        "--set",
        "services",
        "10.0.0.5 . 2000",
        "--format",
        "json",
    ];
    let object = json(&stdout(PKTJIT, &args));
    assert_eq!(
        (&object["winner"]["rule"], &object["losers"][0]["rule"]),
        (&1.into(), &2.into())
    );

    let text = stdout(PKTJIT, &["explain", name, "--set", "hosts", "10.0.0.5"]);
    assert_eq!(text, "key     10.0.0.5\nwinner  none, no rule matches\n");
}

#[test]
fn explain_lists_rules_that_a_stronger_one_covers() {
    let file = File::new(ACL);
    let name = file.name();
    let text = stdout(PKTJIT, &["explain", name, "1 1 1 1 1"]);
    assert_eq!(
        text,
        format!(
            "key     1 1 1 1 1\nwinner  none, no rule matches\n\
             never   rule 2 `@10.1.0.0/16 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF` ({name}:3:1): \
             covered by rule 0 `@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF` ({name}:1:1)\n"
        )
    );
    let object = json(&stdout(
        PKTJIT,
        &["explain", name, "1 1 1 1 1", "--format", "json"],
    ));
    assert_eq!(object["winner"], Value::Null);
    assert_eq!(
        (
            &object["never"][0]["rule"],
            &object["never"][0]["covered_by"]["rule"]
        ),
        (&2.into(), &0.into())
    );
}

#[test]
fn engines_lists_all_and_obeys_the_environment() {
    let engines = |value: &str| {
        let output = Command::new(PKTJIT)
            .args(["engines", "--format", "json"])
            .env("PKTJIT_ENGINE", value)
            .output();
        json(std::str::from_utf8(&output.unwrap().stdout).unwrap())
    };
    let object = engines("interp");
    assert_eq!(object["auto"], "interp");
    let list = object["engines"].as_array().unwrap();
    let works = |name: &str| {
        list.iter().find(|engine| engine["engine"] == name).unwrap()["works"]
            .as_bool()
            .unwrap()
    };
    assert!(works("interp") && works("linear") && !works("avx512"));
    assert_eq!(works("avx2"), has_avx2());
    let text = stdout(PKTJIT, &["engines"]);
    assert!(text.contains("cranelift  no   not built yet"), "{text}");
}

#[test]
fn demo_checks_its_answers_and_measures_them() {
    let text = stdout(PKTJIT, &["demo"]);
    assert!(
        text.contains(
            "16384 answers, single and in batches, all equal to those of the linear scan"
        ),
        "{text}"
    );
    let measured = ["Classifier::lookup ", "linear scan ", "std HashMap"];
    for name in measured {
        assert!(
            text.lines().any(|line| line.trim_start().starts_with(name)),
            "{name}\n{text}"
        );
    }
    assert!(text.contains("endbr64"), "{text}");
    assert!(
        !text.contains('\x1b'),
        "no colours, since this is no terminal"
    );
}

#[test]
fn jitdump_is_the_same_on_every_run() {
    let rules = File::new(ACL);
    for format in ["text", "json"] {
        let args = [
            rules.name(),
            "--show",
            "plan,ir,asm,tables,audit,stats",
            "--format",
            format,
        ];
        assert_eq!(stdout(JITDUMP, &args), stdout(JITDUMP, &args));
    }
}

#[test]
fn jitdump_shows_plan_ir_and_asm_unless_told_otherwise() {
    let rules = File::new(ACL);
    let headings = |args: &[&str]| -> Vec<String> {
        let text = stdout(JITDUMP, &[&[rules.name()], args].concat());
        text.lines()
            .filter(|line| line.starts_with("== "))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(headings(&[]), ["== plan", "== ir", "== asm"]);
    assert_eq!(headings(&["--engine", "interp"]), ["== plan", "== ir"]);
    assert_eq!(
        headings(&["--show", "stats,audit,tables"]),
        ["== tables", "== audit", "== stats"]
    );
}

#[test]
fn jitdump_names_values_labels_tables_and_rules() {
    let rules = File::new(ACL);
    let asm = stdout(JITDUMP, &[rules.name(), "--show", "asm"]);
    for part in [
        "lookup:\n",
        "je lookup_batch.2",
        "lookup_batch.2:\n",
        "[table0",
        " = splat.8 v",
        "vzeroupper",
    ] {
        assert!(asm.contains(part), "{part}\n{asm}");
    }
    let tables = stdout(JITDUMP, &[rules.name(), "--show", "tables"]);
    assert!(tables.contains("rule 0 `@10.0.0.0/8 0.0.0.0/0"), "{tables}");
    // The program is shown as filetests write it.
    let ir = stdout(JITDUMP, &[rules.name(), "--show", "ir"]);
    assert!(pktjit_ir::text::parse(&ir).is_ok(), "{ir}");
}

#[test]
fn jitdump_stats_agree_with_the_emitted_bytes() {
    let rules = File::new(NFT);
    for structure in ["inline", "bucket", "linear"] {
        let bin = File::new("");
        let args = [rules.name(), "--set", "services", "--structure", structure];
        let emit = ["--emit", "bin", "-o", bin.name()];
        assert_eq!(stdout(JITDUMP, &[&args[..], &emit[..]].concat()), "");
        let code = std::fs::read(bin.name()).unwrap();

        let text = stdout(
            JITDUMP,
            &[&args[..], &["--show", "stats", "--format", "json"]].concat(),
        );
        assert_eq!(text.matches("code_bytes").count(), 1);
        let stats = json(&text);
        let number = |name: &str| stats[name].as_u64().unwrap() as usize;
        assert_eq!(number("code_bytes") + number("pool_bytes"), code.len());
        assert_eq!(number("code_bytes") % 64, 0);
        // Padding follows the last return, and then the pool.
        let before_pool = &code[..number("code_bytes")];
        assert_eq!(
            before_pool.iter().rev().find(|&&byte| byte != 0xcc),
            Some(&0xc3)
        );
        assert!(number("instructions") > number("loads") && number("loads") > 0);
        assert!(number("dependent_load_depth") > 0 && number("table_bytes") > 0);
    }
}

#[test]
fn jitdump_shows_what_the_auditor_proved() {
    let rules = File::new(NFT);
    let text = stdout(
        JITDUMP,
        &[rules.name(), "--set", "services", "--show", "audit"],
    );
    assert!(text.contains("proved: "), "{text}");
    let args = [
        rules.name(),
        "--set",
        "services",
        "--show",
        "plan,audit",
        "--format",
        "json",
    ];
    let object = json(&stdout(JITDUMP, &args));
    assert_eq!(object["audit"]["loops"], 2);
    assert!(object["plan"]["candidates"].as_array().unwrap().len() == 4);
}

#[test]
fn jitdump_says_what_an_engine_without_code_cannot_show() {
    let rules = File::new(ACL);
    let message = error(
        JITDUMP,
        &[rules.name(), "--engine", "interp", "--show", "asm"],
    );
    assert!(
        message.starts_with("engine `interp` has no asm"),
        "{message}"
    );
    let message = error(JITDUMP, &[rules.name(), "--engine", "linear"]);
    assert!(
        message.starts_with("engine `linear` has nothing to show"),
        "{message}"
    );
}

#[test]
fn jitdump_that_cannot_write_fails() {
    let rules = File::new(ACL);
    let message = error(
        JITDUMP,
        &[rules.name(), "--emit", "bin", "-o", "/nonexistent/x"],
    );
    assert!(
        message.starts_with("/nonexistent/x: cannot be written: "),
        "{message}"
    );
}

#[test]
fn help_and_version_succeed() {
    for (tool, args) in [
        (PKTJIT, &["classify", "--help"][..]),
        (JITDUMP, &["--help"]),
    ] {
        assert!(stdout(tool, args).contains("Example: "));
    }
    assert_eq!(
        stdout(PKTJIT, &["--version"]),
        format!("pktjit {}\n", env!("CARGO_PKG_VERSION"))
    );
}
