//! A rule set as the text of an nft map, and the program that loads it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use pktjit::{Field, Match, Rule, RuleSet, Verdict};

use crate::kernel::DEVICE;

/// The packet mark that stands for a verdict.
pub(crate) fn mark(verdict: &Verdict) -> u32 {
    match verdict {
        Verdict::Data(bytes) => u32::from_be_bytes((**bytes).try_into().unwrap()),
        other => panic!("{other:?} is no mark"),
    }
}

/// The verdict that stands for a packet mark.
pub(crate) fn verdict(mark: u32) -> Verdict {
    Verdict::Data(mark.to_be_bytes().into())
}

/// Replaces everything in the namespace by a map from the fields of `rules` to marks, and a chain that marks each frame.
pub(crate) fn script(rules: &RuleSet, is_exact: bool) -> String {
    let layout = rules.layout();
    let fields: Vec<String> = layout
        .field_ids()
        .map(|id| format!("@ll,{},{}", layout.offset(id) * 8, layout.field(id).bits()))
        .collect();
    let key = fields.join(" . ");
    let flags = if is_exact { "" } else { "flags interval; " };
    let mut text = format!(
        "flush ruleset\ntable netdev t {{\nmap m {{ typeof {key} : meta mark; {flags}elements = {{\n"
    );
    for stored in rules.rules() {
        let mark = mark(&stored.rule.verdict);
        let _ = writeln!(text, "{} : {mark},", element(&stored.rule, layout.fields()));
    }
    // No `ether type`: nft would ask for an Ethernet device too.
    let _ = write!(
        text,
        "}}\n}}\nchain c {{ type filter hook ingress device {DEVICE} priority 0;\n\
         meta mark set {key} map @m\n}}\n}}\n"
    );
    text
}

fn element(rule: &Rule, fields: &[Field]) -> String {
    if rule.priority == i32::MIN {
        return "*".into();
    }
    let parts = rule
        .matches
        .iter()
        .zip(fields)
        .map(|(found, field)| match *found {
            Match::Exact(value) => format!("{value:#x}"),
            Match::Prefix { value, len } => format!("{value:#x}/{len}"),
            _ => format!("{:#x}-{:#x}", found.lower(field), found.upper(field)),
        });
    parts.collect::<Vec<_>>().join(" . ")
}

/// Runs `nft` in the namespace of this thread.
pub(crate) fn run(script: &str) -> Result<(), String> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("nft: {error}"))?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let written = stdin.write_all(script.as_bytes());
    drop(stdin);
    let output = child
        .wait_with_output()
        .map_err(|error| format!("nft: {error}"))?;
    if output.status.success() && written.is_ok() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "nft: {}",
        message.lines().next().unwrap_or("no message")
    ))
}
