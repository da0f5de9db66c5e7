//! Rule sets: what they accept, leave out, merge and refuse, and which rules can never win.
//!
//! Names `bNN_...` are those of publicly known faults of systems like this one.

mod admission;
mod concatenations;
mod intervals;
mod merge;
mod shadow;

use pktjit_ir::{Field, KeyLayout, Match, Overlap, Rule, RuleId, RuleSet, RuleSetError, Verdict};

fn id(index: u32) -> RuleId {
    RuleId::new(index)
}

fn range(lo: u128, hi: u128) -> Match {
    Match::Range { lo, hi }
}

fn prefix(value: [u8; 4], len: u8) -> Match {
    let value = u32::from_be_bytes(value).into();
    Match::Prefix { value, len }
}

fn addresses(lo: [u8; 4], hi: [u8; 4]) -> Match {
    range(u32::from_be_bytes(lo).into(), u32::from_be_bytes(hi).into())
}

fn ports() -> KeyLayout {
    KeyLayout::packed([Field::inet_service("sport"), Field::inet_service("dport")]).unwrap()
}

fn port() -> KeyLayout {
    KeyLayout::packed([Field::inet_service("port")]).unwrap()
}

fn ip4() -> KeyLayout {
    KeyLayout::packed([Field::ipv4_addr("saddr")]).unwrap()
}

fn build(
    layout: KeyLayout,
    overlap: Overlap,
    rules: impl IntoIterator<Item = Rule>,
) -> Result<RuleSet, RuleSetError> {
    let mut builder = RuleSet::builder(layout).overlap(overlap);
    for rule in rules {
        builder.push(rule);
    }
    builder.build()
}

/// The ids and the only match of each stored rule, in winning order.
fn stored(rules: &RuleSet) -> Vec<(u32, Match)> {
    let stored = rules.rules().iter();
    stored
        .map(|stored| (stored.id.as_u32(), stored.rule.matches[0]))
        .collect()
}

fn ids(rules: &RuleSet) -> Vec<u32> {
    rules
        .rules()
        .iter()
        .map(|stored| stored.id.as_u32())
        .collect()
}

fn strict(layout: KeyLayout, matches: &[Match]) -> Result<RuleSet, RuleSetError> {
    build(
        layout,
        Overlap::Strict,
        matches.iter().map(|&found| Rule::new([found])),
    )
}

fn merge(layout: KeyLayout, matches: &[Match]) -> Result<RuleSet, RuleSetError> {
    build(
        layout,
        Overlap::Merge,
        matches.iter().map(|&found| Rule::new([found])),
    )
}

/// Small matches of a one-byte field, all forms among them.
fn small_match((kind, a, b): (u8, u8, u8)) -> Match {
    let (a, b) = (a % 16, b % 16);
    let (value, other) = (u128::from(a), u128::from(b));
    match kind % 6 {
        0 => Match::Exact(value),
        1 => Match::Prefix {
            value,
            len: 4 + b % 5,
        },
        2 => Match::Mask {
            value,
            mask: 0xf0 | other,
        },
        _ => range(value.min(other), value.max(other)),
    }
}

fn octets(count: usize) -> KeyLayout {
    let octet = |index| Field::integer(&format!("octet{index}"), 1).unwrap();
    KeyLayout::packed((0..count).map(octet)).unwrap()
}

fn verdict(accept: bool) -> Verdict {
    if accept {
        Verdict::Accept
    } else {
        Verdict::Drop
    }
}

/// Runs `test` where a stack that grows with the rules would overflow.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(test)
        .unwrap();
    thread.join().unwrap();
}
