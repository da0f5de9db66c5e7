//! `pktjit check`, `explain`, `engines` and `demo`.

use super::*;

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
    assert!(works("cranelift") && works("interp") && works("linear") && !works("neon"));
    assert_eq!(works("avx2"), has_avx2());
    let has_avx512 = pktjit::Cpu::host().avx512_target().is_ok();
    assert_eq!(works("avx512"), has_avx512);
    let text = stdout(PKTJIT, &["engines"]);
    assert!(
        text.contains("neon       no   engine `neon` cannot serve: this is not"),
        "{text}"
    );
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
fn help_and_version_succeed() {
    for (tool, args) in [
        (PKTJIT, &["classify", "--help"][..]),
        (PKTJIT, &["bench", "--help"]),
        (JITDUMP, &["--help"]),
    ] {
        assert!(stdout(tool, args).contains("Example: "));
    }
    assert_eq!(
        stdout(PKTJIT, &["--version"]),
        format!("pktjit {}\n", env!("CARGO_PKG_VERSION"))
    );
}
