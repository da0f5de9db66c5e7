//! `jitdump`.

use super::*;

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
    let args = [rules.name(), "--structure", "bucket", "--show"];
    let shown = |what| stdout(JITDUMP, &[&args[..], &[what]].concat());
    let asm = shown("asm");
    for part in [
        "lookup:\n",
        "je L2",
        "L2:\n",
        "[table0",
        " = splat.8 v",
        "vzeroupper",
    ] {
        assert!(asm.contains(part), "{part}\n{asm}");
    }
    let tables = shown("tables");
    assert!(tables.contains("rule 0 `@10.0.0.0/8 0.0.0.0/0"), "{tables}");
    assert!(tables.contains("\nconstants of the code\n"), "{tables}");
    // The program is shown as filetests write it.
    let ir = shown("ir");
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
    assert_eq!(object["plan"]["candidates"].as_array().unwrap().len(), 10);
}

#[test]
fn jitdump_shows_code_for_aarch64_on_any_machine() {
    let rules = File::new(ACL);
    let args = [
        rules.name(),
        "--target",
        "aarch64-neon",
        "--show",
        "asm,audit,stats",
    ];
    let text = stdout(JITDUMP, &args);
    for line in ["bti c", "cbz x2, L", "uses: neon"] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    assert!(!text.contains('$'), "a distance without a name in\n{text}");
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
