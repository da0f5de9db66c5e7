//! Readers of rule files. What they refuse they refuse at a place in the file; what they accept means the same however it
//! is asked: as a rule set by every engine, as keys, element by element, or written as another format.

use std::fs;

use pktjit::formats::{Location, RuleFile, SetKind, SourceSet};
use pktjit::{Classifier, MISS, Match, RuleSet, StoredRule};
use pktjit_fallback::LinearScan;

use super::json::json;
use super::testdata;

/// Most rules of a set that is compiled.
const MAX_RULES: usize = 64;

/// Most bytes of a seed: small inputs are varied faster, and show the same.
const MAX_SEED: usize = 4096;

/// Reads nft text.
///
/// # Panics
/// Where a place is none, an engine is wrong, or keys or nft JSON of the same content are read otherwise.
pub fn nft_text(input: &[u8]) {
    nft(input);
}

/// Reads nft JSON.
///
/// # Panics
/// As [`nft_text`].
pub fn nft_json(input: &[u8]) {
    nft(input);
}

fn nft(input: &[u8]) {
    let Some(file) = rule_file(input) else {
        return;
    };
    let is_nft = |set: &&SourceSet| set.kind() != SetKind::ClassBench;
    for set in file.sets().iter().filter(is_nft) {
        check_element_keys(set);
        if let Some(json) = json(set) {
            let again = RuleFile::parse("json", json.as_bytes());
            let again = again.unwrap_or_else(|error| panic!("{error}\n{json}"));
            let again = again.set(None).expect("one set");
            assert_eq!(again.packed_layout(), set.packed_layout(), "{json}");
            let rules = |set: &SourceSet| -> Vec<_> {
                let elements = set.elements().iter();
                elements.map(|element| element.rule().clone()).collect()
            };
            assert_eq!(rules(again), rules(set), "{json}");
        }
    }
}

/// An element that is a single value is a key.
fn check_element_keys(set: &SourceSet) {
    for element in set.elements() {
        let values = element.rule().matches.iter().map(|found| match *found {
            Match::Exact(value) => Some(value),
            _ => None,
        });
        if let Some(values) = values.collect::<Option<Vec<u128>>>()
            && is_whole(element.text())
        {
            let key = set.key(element.text());
            let key = key.unwrap_or_else(|error| panic!("`{}`: {error}", element.text()));
            assert_eq!(key.values, values, "{}", element.text());
        }
    }
}

/// Whether a text has all of the bytes that it was made of: interface names need not be UTF-8.
pub(super) fn is_whole(text: &str) -> bool {
    !text.contains(char::REPLACEMENT_CHARACTER)
}

/// Reads ClassBench rules.
///
/// # Panics
/// Where a place is none, an engine is wrong, or a rule on its own is read otherwise.
pub fn classbench(input: &[u8]) {
    let Some(file) = rule_file(input) else {
        return;
    };
    let is_classbench = |set: &&SourceSet| set.kind() == SetKind::ClassBench;
    let lists = file.sets().iter().filter(is_classbench);
    for element in lists.flat_map(SourceSet::elements) {
        let alone = RuleFile::parse("rule", element.text().as_bytes());
        let alone = alone.unwrap_or_else(|error| panic!("`{}`: {error}", element.text()));
        let [again] = alone.set(None).expect("one list").elements() else {
            panic!("`{}` is not one rule", element.text());
        };
        assert_eq!(
            (again.text(), again.rule()),
            (element.text(), element.rule())
        );
    }
}

/// Reads any rule file; `None` for what is refused.
fn rule_file(content: &[u8]) -> Option<RuleFile> {
    // Unpacking is not ours, and would take memory that no limit here bounds.
    if content.starts_with(&[0x1f, 0x8b]) {
        return None;
    }
    let check_place = |place: &Location, message: &dyn std::fmt::Display| {
        assert!(is_inside(content, place), "{message}");
    };
    let file = match RuleFile::parse("file", content) {
        Ok(file) => file,
        Err(error) => {
            check_place(error.location(), &error);
            return None;
        }
    };
    for note in file.notes() {
        check_place(note.location(), &note);
    }
    for set in file.sets() {
        check_place(&set.location(), set);
        for element in set.elements() {
            check_place(&set.element_location(element), &element.text());
        }
        match set.rule_set(set.packed_layout().clone(), None) {
            Ok(rules) => {
                for note in set.notes(&rules) {
                    check_place(note.location(), &note);
                }
                if rules.len() <= MAX_RULES {
                    check_answers(&rules);
                }
            }
            Err(error) => check_place(error.location(), &error),
        }
    }
    Some(file)
}

/// Whether a place is a byte of the text or lies right behind a line.
pub(super) fn is_inside(text: &[u8], place: &Location) -> bool {
    let mut lines = text.split(|&byte| byte == b'\n');
    let line = lines.nth((place.line() as usize).wrapping_sub(1));
    line.is_some_and(|line| (1..=line.len() + 1).contains(&(place.column() as usize)))
}

/// Compiles the rules, and looks up the corners of each.
fn check_answers(rules: &RuleSet) {
    let classifier = Classifier::builder().audit(true).compile(rules);
    let classifier = classifier.unwrap_or_else(|error| panic!("{error}\n{rules:?}"));
    let scan = LinearScan::new(rules);
    let layout = rules.layout();
    for StoredRule { rule, .. } in rules.rules() {
        for corner in [Match::lower, Match::upper] {
            let matches = rule.matches.iter().zip(layout.fields());
            let values: Vec<u128> = matches.map(|(found, field)| corner(found, field)).collect();
            let bytes = layout.encode(&values);
            let key = layout.key(&bytes).expect("encoded");
            let expected = scan.lookup(key);
            assert_ne!(expected, MISS, "{rule:?} does not match {bytes:02x?}");
            assert_eq!(
                classifier.lookup_row(key),
                expected,
                "{bytes:02x?} in {rules:?}"
            );
        }
    }
}

fn small_files(folder: &str, suffix: &str) -> impl Iterator<Item = Vec<u8>> {
    let files = testdata(folder, suffix).into_iter();
    let files = files.map(|path| fs::read(path).expect("a readable file"));
    files.filter(|file| file.len() <= MAX_SEED)
}

/// The corpus, and a file with all that sets and maps can have.
pub(super) fn nft_text_seeds() -> Vec<Vec<u8>> {
    let all = br#"#!/usr/sbin/nft -f
flush ruleset
define nets = { 10.0.0.0/8, 192.0.2.1 }
define port = 80; undefine port
table inet t {
    comment "a table"; flags dormant
    set a { typeof ip saddr . tcp dport; flags interval, timeout, constant, dynamic
        timeout 1d2h3m4s; gc-interval 10s; size 100; policy memory; comment "a set"; auto-merge; counter
        elements = { 10.0.0.0/8 . ssh timeout 5s expires 3s comment "x", 10.9.0.1-10.9.0.9 . 1-2 counter packets 1 bytes 2, * }
    }
    map b { type ifname . ether_addr : verdict; flags interval
        elements = { "eth*" . 00:11:22:33:44:55 : jump c, lo . 0:0:0:0:0:1 : goto c, "a#b" . 00:00:00:00:00:02 : continue }
    }
    map d { type ether_type : ipv6_addr . inet_service
        elements = { ip6 : ::1 . http, 0x88b5 : fe80::1 . 0x50 } }
    set e { typeof @nh,96,32 . meta mark . ct state; elements = { 0x1 . 5 . new } }
    set f { type icmp_type; elements = { echo-request, 3 } }
    chain c { type filter hook input priority 0; policy accept; ip saddr @a drop }
}
add table ip u
add set ip u s { type ipv4_addr; flags interval; }
add element ip u s { $nets }
create element ip u s { 203.0.113.7 }
add rule ip u c accept
delete table ip u
"#;
    let mut seeds: Vec<_> = small_files("corpus", ".nft").collect();
    seeds.push(all.into());
    seeds
}

/// The corpus as JSON, and a file with all that sets and maps can have.
pub(super) fn nft_json_seeds() -> Vec<Vec<u8>> {
    let all = br#"{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
{"table": {"family": "inet", "name": "t", "handle": 1}},
{"set": {"family": "inet", "name": "a", "table": "t", "handle": 2, "comment": "x", "policy": "memory", "size": 9, "timeout": 60,
 "gc-interval": 10, "auto-merge": true, "flags": ["interval", "timeout"], "stmt": [{"counter": null}],
 "type": {"typeof": {"concat": [{"payload": {"protocol": "ip", "field": "saddr"}}, {"meta": {"key": "mark"}},
  {"ct": {"key": "state"}}, {"payload": {"base": "nh", "offset": 96, "len": 32}}]}},
 "elem": [{"elem": {"val": {"concat": ["10.0.0.1", 5, "new", 1]}, "timeout": 5, "expires": 3, "comment": "y",
  "counter": {"packets": 1, "bytes": 2}}}]}},
{"map": {"family": "ip6", "name": "b", "table": "t", "type": ["ifname", "ether_addr"], "map": "verdict", "flags": "interval",
 "elem": [[{"concat": ["eth*", "00:11:22:33:44:55"]}, {"jump": {"target": "c"}}], ["*", {"drop": null}]]}},
{"map": {"family": "ip", "name": "d", "table": "t", "type": "inet_service", "map": ["ipv6_addr", "mark"], "flags": ["interval"],
 "elem": [[{"range": [1, "ssh"]}, {"concat": ["::1", "0x5"]}], [{"prefix": {"addr": 256, "len": 8}}, {"concat": ["::", 6]}]]}},
{"chain": {"family": "ip", "table": "t", "name": "c", "handle": 1}}]}"#;
    let mut seeds = vec![all.to_vec()];
    for text in small_files("corpus", ".nft") {
        let file = RuleFile::parse("corpus", &text).expect("a rule file");
        let sets = file.sets().iter();
        seeds.extend(sets.filter_map(json).map(String::into_bytes));
    }
    seeds
}

/// Lists of the corpus, and the first rules of longer ones.
pub(super) fn classbench_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = small_files("corpus", ".rules").collect();
    for path in testdata("classbench", ".rules") {
        let rules = fs::read_to_string(path).expect("rules in UTF-8");
        seeds.push(
            rules
                .split_inclusive('\n')
                .take(16)
                .collect::<String>()
                .into(),
        );
    }
    seeds.push(
        b"# a comment\n\n@1.2.3.4/32 0.0.0.0/0 0 : 65535 53 : 53 0x11/0xFF 0x1000/0x1000\n".into(),
    );
    seeds
}
