//! What `nft` lists as text and as JSON, read as the same sets.

use std::fs;
use std::path::Path;
use std::process::Command;

use pktjit::formats::{RuleFile, SourceSet};

use crate::{nft, report, with_kernel};

/// What the corpus has not: options, `typeof`, verdicts that name chains, data.
const MORE: &str = r#"
table inet t {
  chain high { }
  set options { type ipv4_addr . inet_service . ifname; flags interval,timeout; timeout 1h; gc-interval 10s; size 100
    policy memory; comment "a"; elements = { 10.0.0.0/8 . 80-90 . "eth*" timeout 30m comment "b", 1.2.3.4-1.2.3.9 . ssh . "lo" } }
  set counted { typeof ip saddr . tcp dport; counter; elements = { 1.1.1.1 . 80 counter } }
  set merged { typeof ip saddr; flags interval; auto-merge; elements = { 1.1.1.1, 1.1.1.2, 2.0.0.0/8, 3.3.3.3-3.3.3.9, * } }
  set marks { type mark; flags interval; elements = { 0x5c511e00/24, 5-9 } }
  set states { type ct_state; elements = { new, established } }
  set names { type inet_proto . icmp_type . ether_addr . ifname; elements = { tcp . echo-request . 00:11:22:33:44:55 . "a#b" } }
  set types { type ether_type . mark; elements = { ip6 . 1, 0x1234 . 2 } }
  set wide { type ipv6_addr . ipv6_addr; flags interval; elements = { ::1-::5 . 2001:db8::/32 } }
  set fixed { type ipv4_addr; flags constant; elements = { 1.1.1.1 } }
  map verdicts { type ipv4_addr : verdict; flags interval
    elements = { 1.1.1.1 : accept, 2.2.2.2 : jump high, 4.4.4.4 : goto high, 5.5.5.5 : continue, 6.6.6.6 : return, * : drop } }
  map pairs { type ipv4_addr . inet_service : ipv4_addr . inet_service; flags timeout
    elements = { 1.1.1.1 . 80 timeout 1h comment "z" : 2.2.2.2 . 90 } }
  map intervals { type mark : interval ipv4_addr; elements = { 5 : 1.0.0.0/8, 6 : 2.2.2.2-2.2.2.4 } }
  map counters { typeof ip saddr . tcp dport : ct mark; counter; elements = { 1.1.1.1 . 5 : 7 } }
}
"#;

#[test]
fn json_and_text_listings_are_the_same_sets() {
    with_kernel(|_kernel| {
        compare("more", MORE).unwrap();
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/corpus");
        let entries = fs::read_dir(corpus).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "nft"));
        paths.sort();
        let (mut same, mut refusals) = (0, Vec::new());
        for path in &paths {
            let name = path.file_stem().unwrap().to_string_lossy();
            match compare(&name, &fs::read_to_string(path).unwrap()) {
                Ok(()) => same += 1,
                Err(reason) => refusals.push(format!("  {name}: {reason}")),
            }
        }
        let total = paths.len();
        report(&format!(
            "listings: {same} of {total} corpus files compared; not:"
        ));
        report(&refusals.join("\n"));
        assert!(4 * same > 3 * total, "too few listings were compared");
    });
}

/// Compares what `nft` lists in both forms after it has loaded `script`.
///
/// # Errors
/// `nft` does not take the script, or its listing says too little for any reader.
fn compare(name: &str, script: &str) -> Result<(), String> {
    nft::run(&format!("flush ruleset\n{script}"))?;
    let read = |options: &[&str]| RuleFile::parse(name, &list(options));
    // nft 1.0.6 loses the types of a concatenation that has raw payload, and writes `unknown verdict value 6`.
    let text = read(&[]).map_err(|error| format!("text: {error}"))?;
    let json = match read(&["-j"]) {
        Ok(json) => json,
        Err(error) if error.message().contains("`integer` has no width") => {
            return Err(format!("JSON: {error}"));
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(text.sets().len(), json.sets().len(), "{name}");
    for (text, json) in text.sets().iter().zip(json.sets()) {
        assert_eq!(content(text), content(json), "{name}");
    }
    Ok(())
}

fn list(options: &[&str]) -> Vec<u8> {
    let mut command = Command::new("nft");
    let output = command.args(options).args(["list", "ruleset"]).output();
    let output = output.unwrap();
    assert!(output.status.success());
    output.stdout
}

/// All that is in a set, but what the JSON of `nft` leaves out: `typeof`, `auto-merge` and `dynamic`.
fn content(set: &SourceSet) -> Vec<String> {
    let flags = set.flags();
    let head = format!(
        "{set} {:?} interval {} timeout {} constant {}",
        set.kind(),
        flags.interval,
        flags.timeout,
        flags.constant
    );
    let fields = set.fields().iter();
    let fields = fields.map(|field| format!("{:?} {}", field.kind(), field.bytes()));
    let elements = set.elements().iter();
    let elements = elements.map(|one| format!("{:?} {}", one.rule(), one.verdict_text()));
    [head].into_iter().chain(fields).chain(elements).collect()
}
