//! Known faults of systems like this one as rule sets with the right answers.
//!
//! Engine-neutral: the crate root says in `check` what it runs a case on. Answers are ids of rules, which
//! are positions in the lists below; never computed by the code under test.

use std::net::{Ipv4Addr, Ipv6Addr};

use pktjit_ir::{Field, KeyLayout, Match, Overlap, Rule, RuleSet};

/// A test for each of these functions, which make cases.
macro_rules! tests {
    ($($name:ident)*) => {
        mod named {
            $(
                #[test]
                fn $name() {
                    super::$name().iter().for_each(crate::check);
                }
            )*
        }
    };
}

mod fields;
mod priorities;
mod sets;

/// A rule set, and keys (their field values) with the id of the rule that wins.
pub(crate) struct Case {
    pub(crate) rules: RuleSet,
    pub(crate) lookups: Vec<(Vec<u128>, Option<u32>)>,
}

const MISS: Option<u32> = None;

fn hit(id: u32) -> Option<u32> {
    Some(id)
}

fn case_in<K: Into<Vec<u128>>>(
    layout: KeyLayout,
    overlap: Overlap,
    rules: impl IntoIterator<Item = Rule>,
    lookups: impl IntoIterator<Item = (K, Option<u32>)>,
) -> Case {
    let mut builder = RuleSet::builder(layout).overlap(overlap);
    for rule in rules {
        builder.push(rule);
    }
    let lookups = lookups.into_iter().map(|(key, id)| (key.into(), id));
    Case {
        rules: builder.build().unwrap(),
        lookups: lookups.collect(),
    }
}

fn case<K: Into<Vec<u128>>>(
    fields: impl IntoIterator<Item = Field>,
    overlap: Overlap,
    rules: impl IntoIterator<Item = Rule>,
    lookups: impl IntoIterator<Item = (K, Option<u32>)>,
) -> Case {
    case_in(KeyLayout::packed(fields).unwrap(), overlap, rules, lookups)
}

fn rule(matches: impl IntoIterator<Item = Match>) -> Rule {
    Rule::new(matches)
}

fn range(lo: u128, hi: u128) -> Match {
    Match::Range { lo, hi }
}

/// The number of an IPv4 address as text.
fn ip(address: &str) -> u128 {
    address.parse::<Ipv4Addr>().unwrap().to_bits().into()
}

fn ip6(address: &str) -> u128 {
    address.parse::<Ipv6Addr>().unwrap().to_bits()
}

/// An IPv4 or IPv6 prefix as text.
fn net(text: &str) -> Match {
    let (address, len) = text.split_once('/').unwrap();
    let value = if address.contains(':') {
        ip6(address)
    } else {
        ip(address)
    };
    Match::Prefix {
        value,
        len: len.parse().unwrap(),
    }
}

fn addresses(lo: &str, hi: &str) -> Match {
    range(ip(lo), ip(hi))
}

fn ifname(name: &str) -> u128 {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    u128::from_be_bytes(bytes)
}

fn saddr() -> Field {
    Field::ipv4_addr("saddr")
}

fn saddr6() -> Field {
    Field::ipv6_addr("saddr")
}

fn port() -> Field {
    Field::inet_service("port")
}

fn proto() -> Field {
    Field::inet_proto("proto")
}

fn octet(name: &str) -> Field {
    Field::integer(name, 1).unwrap()
}
