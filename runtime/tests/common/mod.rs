//! What several test files need: rule sets, a process of its own for a test, and a look at the process's mappings.
#![allow(dead_code, reason = "each test file uses a part")]

use std::process::Command;

use pktjit::{Classifier, Field, KeyLayout, Match, Overlap, Rule, RuleSet, Verdict};

/// Address and port; the first of the matching rules wins.
pub(crate) fn builder() -> pktjit::RuleSetBuilder {
    let layout = KeyLayout::packed([Field::ipv4_addr("saddr"), Field::inet_service("dport")]);
    RuleSet::builder(layout.unwrap()).overlap(Overlap::First)
}

/// Three overlapping rules: one host, its network, and a range of ports everywhere.
pub(crate) fn small() -> RuleSet {
    builder()
        .rule(rule(0x0a00_0001, 32, 80, 80))
        .rule(rule(0x0a00_0000, 8, 0, 1023))
        .rule(rule(0, 0, 5000, 6000))
        .build()
        .unwrap()
}

/// `n` networks with ranges of ports, some of which overlap.
pub(crate) fn many(n: u32) -> RuleSet {
    let rules = (0..n).map(|i| {
        let port = (i % 50 * 100) as u16;
        rule(
            0x0a00_0000 + (i << 8),
            24 + (i % 3) as u8 * 4,
            port,
            port + 150,
        )
    });
    builder().rules(rules).build().unwrap()
}

fn rule(addr: u32, len: u8, lo: u16, hi: u16) -> Rule {
    Rule::new([
        Match::Prefix {
            value: addr.into(),
            len,
        },
        Match::Range {
            lo: lo.into(),
            hi: hi.into(),
        },
    ])
    .with_verdict(Verdict::Accept)
}

/// Everything matches, and the verdict is `n`.
pub(crate) fn constant(n: u32) -> RuleSet {
    let all = Rule::catch_all(2).with_verdict(Verdict::Data(n.to_le_bytes().into()));
    builder().rule(all).build().unwrap()
}

/// Keys of [`builder`]'s layout that hit and miss the rules of [`many`], without gaps between them.
pub(crate) fn keys(n: u32) -> Vec<u8> {
    (0..n)
        .flat_map(|i| {
            // An odd multiplier spreads the keys over 512 networks and all ports.
            let spread = i.wrapping_mul(0x9e37_79b1);
            let [.., a, b, c] = (spread >> 7 & 0x1_ffff).to_be_bytes();
            let port = ((spread >> 3) % 6500) as u16;
            let [hi, lo] = port.to_be_bytes();
            [10, a, b, c, hi, lo]
        })
        .collect()
}

/// The rows that `classifier` gives for `keys`, one by one.
pub(crate) fn rows(classifier: &Classifier, keys: &[u8]) -> Vec<u32> {
    let layout = classifier.layout();
    keys.chunks(layout.len())
        .map(|key| classifier.lookup_row(layout.key(key).unwrap()))
        .collect()
}

/// Runs `body` in a process of its own, in which the test `name` is the only one, with `env` set.
pub(crate) fn in_child(name: &str, env: &[(&str, &str)], body: impl FnOnce()) {
    const CHILD: &str = "PKTJIT_TEST_CHILD";
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(CHILD, name)
        .env_remove("PKTJIT_ENGINE")
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    // A name that is misspelt here would run nothing, successfully.
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name}, {env:?}: {}\n{stdout}\n{stderr}",
        output.status
    );
}

/// One line of `/proc/self/maps`.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// `rwxp` or the like.
    pub(crate) access: String,
}

pub(crate) fn mappings() -> Vec<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next().unwrap().split_once('-').unwrap();
            Mapping {
                start: usize::from_str_radix(start, 16).unwrap(),
                end: usize::from_str_radix(end, 16).unwrap(),
                access: words.next().unwrap().into(),
            }
        })
        .collect()
}

/// A number of kilobytes of `/proc/self/status`, such as `VmRSS`, in bytes.
pub(crate) fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}
