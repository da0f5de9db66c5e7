//! What is wrong: one message, the exit code, and nothing on stdout.

use super::*;

#[test]
fn names_that_nobody_knows_are_errors() {
    let rules = File::new(ACL);
    for (option, name, message) in [
        ("--engine", "avx3", "there is no engine `avx3`"),
        ("--structure", "trie", "there is no structure `trie`"),
    ] {
        for (tool, args) in [
            (PKTJIT, &["classify", rules.name(), "1 1 1 1 1"][..]),
            (PKTJIT, &["bench", rules.name(), option, "linear"]),
            (JITDUMP, &[rules.name()]),
        ] {
            let found = error(tool, &[args, &[option, name]].concat());
            assert!(found.starts_with(message), "{found}");
        }
    }
    let found = error(JITDUMP, &[rules.name(), "--target", "pdp11"]);
    assert!(found.starts_with("there is no target `pdp11`"), "{found}");
    let mixed = ["--target", "x86_64-avx2", "--engine", "avx512"];
    let found = error(JITDUMP, &[&[rules.name()], &mixed[..]].concat());
    assert!(
        found.starts_with("engine `avx512` has no code for x86_64-avx2"),
        "{found}"
    );
}

#[test]
fn an_engine_that_the_cpu_cannot_run_is_an_error_where_it_is_forced() {
    let Err(reason) = pktjit::EngineKind::Avx512.check(pktjit::Cpu::host()) else {
        eprintln!("skipped: this CPU runs all engines");
        return;
    };
    let rules = File::new(ACL);
    let found = error(
        PKTJIT,
        &["classify", rules.name(), "--engine", "avx512", "1 1 1 1 1"],
    );
    assert!(
        found.starts_with(&format!("engine `avx512` cannot serve: {reason}")),
        "{found}"
    );
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
fn stdout_that_was_closed_before_the_start_is_an_error() {
    let rules = File::new(ACL);
    for tool in [
        &format!("{PKTJIT} engines"),
        &format!("{JITDUMP} {}", rules.name()),
    ] {
        let script = format!("exec {tool} >&-");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert_eq!(stderr, "error: stdout cannot be written: it is closed\n");
    }
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
