//! Rule lists and traces with the shape of ClassBench's, in its own format: the same ones every time.
//!
//! What makes such lists hard is kept: a few networks in which most addresses lie, pairs of prefix lengths and of port
//! classes that come together, wide rules behind the narrow ones that they hold. The expected rule of each key in a trace
//! is found by the loop in `List::winner`, which shares nothing with the library.

use std::collections::HashSet;
use std::fmt::Write as _;

/// The kinds of lists that ClassBench has seeds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Access control: long prefixes, mostly exact destination ports.
    Acl,
    /// Firewall: many wildcards, port ranges on both sides.
    Firewall,
    /// IP chains: between the two.
    Chain,
}

/// A rule list.
#[derive(Clone, Debug)]
pub struct List {
    rules: Vec<Rule>,
    random: Random,
}

/// The closed interval of each field, in the order of the columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rule([(u64, u64); 5]);

/// The largest value of each field.
const TOP: [u64; 5] = [0xffff_ffff, 0xffff_ffff, 0xffff, 0xffff, 0xff];

const TCP: u64 = 6;
const UDP: u64 = 17;
const ICMP: u64 = 1;

/// The classes of port ranges.
#[derive(Clone, Copy)]
enum Ports {
    /// Wildcard.
    Any,
    /// 1024 to 65535.
    High,
    /// 0 to 1023.
    Low,
    /// One port.
    Exact,
    /// Any range.
    Range,
}

/// What the rules of a kind are drawn from, each with its weight.
struct Shape {
    /// Lengths of the source and of the destination prefix.
    prefixes: &'static [(u32, (u32, u32))],
    /// Classes of the source and of the destination ports.
    ports: &'static [(u32, (Ports, Ports))],
    /// Protocols; `None` is any.
    protocols: &'static [(u32, Option<u64>)],
    /// Networks in which the addresses lie.
    networks: usize,
}

impl Kind {
    fn shape(self) -> Shape {
        use Ports::{Any, Exact, High, Low, Range};
        match self {
            Self::Acl => Shape {
                prefixes: &[
                    (40, (32, 32)),
                    (15, (0, 32)),
                    (15, (24, 32)),
                    (10, (28, 30)),
                    (8, (16, 24)),
                    (6, (27, 32)),
                    (4, (0, 24)),
                    (2, (8, 16)),
                ],
                ports: &[
                    (60, (Any, Exact)),
                    (15, (Any, Range)),
                    (15, (Any, Any)),
                    (10, (Any, High)),
                ],
                protocols: &[(75, Some(TCP)), (15, Some(UDP)), (4, Some(ICMP)), (6, None)],
                networks: 12,
            },
            Self::Firewall => Shape {
                prefixes: &[
                    (20, (0, 32)),
                    (20, (32, 0)),
                    (20, (32, 32)),
                    (10, (0, 0)),
                    (10, (28, 27)),
                    (10, (24, 0)),
                    (5, (0, 21)),
                    (5, (16, 31)),
                ],
                ports: &[
                    (20, (Any, Exact)),
                    (20, (Exact, Any)),
                    (20, (High, Exact)),
                    (15, (Exact, High)),
                    (10, (Any, Any)),
                    (8, (Range, Any)),
                    (7, (Low, High)),
                ],
                protocols: &[
                    (50, Some(TCP)),
                    (35, Some(UDP)),
                    (5, Some(ICMP)),
                    (10, None),
                ],
                networks: 5,
            },
            Self::Chain => Shape {
                prefixes: &[
                    (35, (32, 32)),
                    (15, (31, 32)),
                    (12, (24, 24)),
                    (12, (0, 32)),
                    (12, (32, 0)),
                    (8, (20, 26)),
                    (4, (8, 9)),
                    (2, (0, 0)),
                ],
                ports: &[
                    (35, (Any, Exact)),
                    (20, (Any, Any)),
                    (15, (Exact, Exact)),
                    (15, (Exact, Any)),
                    (10, (Any, Range)),
                    (5, (Low, Low)),
                ],
                protocols: &[
                    (60, Some(TCP)),
                    (25, Some(UDP)),
                    (5, Some(ICMP)),
                    (10, None),
                ],
                networks: 20,
            },
        }
    }
}

impl List {
    /// The list of `count` different rules.
    #[must_use]
    pub fn new(kind: Kind, count: usize) -> Self {
        let shape = kind.shape();
        let mut random = Random(count as u64 * 3 + kind as u64);
        let networks: Vec<u64> = (0..shape.networks)
            .map(|_| random.below(1 << 32) & !0xff_ffff)
            .collect();
        let mut seen = HashSet::new();
        // Each rule with how wide it is: narrow ones shall mostly come first.
        let mut drawn = Vec::new();
        while drawn.len() < count {
            let (source, destination) = random.pick(shape.prefixes);
            let (sport, dport) = random.pick(shape.ports);
            let proto = random.pick(shape.protocols);
            let rule = Rule([
                prefix(random.address(&networks), source),
                prefix(random.address(&networks), destination),
                random.ports(sport),
                random.ports(dport),
                proto.map_or((0, TOP[4]), |proto| (proto, proto)),
            ]);
            // A rule that matches every key would leave no misses.
            let matches_all = rule
                .0
                .iter()
                .zip(TOP)
                .all(|(&range, top)| range == (0, top));
            if !matches_all && seen.insert(rule.clone()) {
                drawn.push((random.below(24) as u32 + 64 - source - destination, rule));
            }
        }
        drawn.sort_by_key(|(width, _)| *width);
        Self {
            rules: drawn.into_iter().map(|(_, rule)| rule).collect(),
            random,
        }
    }

    /// The rule file.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Rule([source, destination, sport, dport, proto]) in &self.rules {
            let address = |(lo, hi): (u64, u64)| {
                let [.., a, b, c, d] = lo.to_be_bytes();
                format!("{a}.{b}.{c}.{d}/{}", 32 - (hi - lo + 1).ilog2())
            };
            // Rules for TCP ask for flags too, which are no part of the key.
            let (proto, flags) = match *proto {
                (TCP, TCP) => ("0x06/0xFF".into(), "0x0000/0x0200"),
                (proto, hi) if proto == hi => (format!("0x{proto:02x}/0xFF"), "0x0000/0x0000"),
                _ => ("0x00/0x00".into(), "0x0000/0x0000"),
            };
            let _ = writeln!(
                text,
                "@{}\t{}\t{} : {}\t{} : {}\t{proto}\t{flags}\t",
                address(*source),
                address(*destination),
                sport.0,
                sport.1,
                dport.0,
                dport.1
            );
        }
        text
    }

    /// A trace of `count` keys, each with the rule that it hits: by turns inside a rule, on the edges of one or one beyond,
    /// with each field from another rule, and anywhere.
    #[must_use]
    pub fn trace(&self, count: usize) -> String {
        let mut random = self.random.clone();
        let mut text =
            String::from("# sip dip sport dport proto expected-rule (zero-based, -1 = none)\n");
        for turn in 0..count {
            let rule = random.rule(&self.rules);
            let key: [u64; 5] = std::array::from_fn(|field| {
                let (lo, hi) = rule.0[field];
                match (turn % 4, random.below(8)) {
                    (0, _) => random.between(lo, hi),
                    (1, 0) => lo.wrapping_sub(1) & TOP[field],
                    (1, 1) => (hi + 1) & TOP[field],
                    (1, 2..5) => lo,
                    (1, _) => hi,
                    (2, _) => {
                        let (lo, hi) = random.rule(&self.rules).0[field];
                        random.between(lo, hi)
                    }
                    _ => random.below(TOP[field] + 1),
                }
            });
            for value in key {
                let _ = write!(text, "{value} ");
            }
            let _ = match self.winner(&key) {
                Some(rule) => writeln!(text, "{rule}"),
                None => writeln!(text, "-1"),
            };
        }
        text
    }

    /// The first rule that matches.
    fn winner(&self, key: &[u64; 5]) -> Option<usize> {
        self.rules.iter().position(|rule| {
            let mut fields = rule.0.iter().zip(key);
            fields.all(|(&(lo, hi), &value)| lo <= value && value <= hi)
        })
    }
}

/// The addresses that share the first `len` bits.
fn prefix(address: u64, len: u32) -> (u64, u64) {
    let host = TOP[0] >> len;
    (address & !host, address | host)
}

/// SplitMix64: the same numbers on every machine, for ever.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn between(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.below(hi - lo + 1)
    }

    /// One of the weighted options.
    fn pick<T: Copy>(&mut self, options: &[(u32, T)]) -> T {
        let total: u64 = options.iter().map(|&(weight, _)| u64::from(weight)).sum();
        let mut left = self.below(total);
        for &(weight, option) in options {
            match left.checked_sub(weight.into()) {
                Some(rest) => left = rest,
                None => return option,
            }
        }
        unreachable!("the weights add up to the total")
    }

    fn rule(&mut self, rules: &[Rule]) -> Rule {
        rules[self.below(rules.len() as u64) as usize].clone()
    }

    /// An address in one of the networks, more often in the first ones and in few subnets of each.
    fn address(&mut self, networks: &[u64]) -> u64 {
        let last = self.between(1, networks.len() as u64);
        let network = networks[self.below(last) as usize];
        let subnet = self.below(16) * self.below(16);
        network | subnet << 12 | self.below(1 << 12)
    }

    fn ports(&mut self, class: Ports) -> (u64, u64) {
        const WELL_KNOWN: [u64; 12] = [20, 21, 22, 25, 53, 80, 110, 123, 161, 443, 1521, 8080];
        match class {
            Ports::Any => (0, TOP[2]),
            Ports::High => (1024, TOP[2]),
            Ports::Low => (0, 1023),
            Ports::Exact => {
                let known = WELL_KNOWN[self.below(WELL_KNOWN.len() as u64) as usize];
                let port = [known, self.below(TOP[2] + 1)][self.below(2) as usize];
                (port, port)
            }
            Ports::Range => {
                let lo = self.below(60000);
                (lo, lo + self.below(5000))
            }
        }
    }
}
