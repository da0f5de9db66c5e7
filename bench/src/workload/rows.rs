//! The rows of all suites: their names, their fields, how their elements are made, and their sizes.

use super::elements::Elements::{self, Counted, Exact, List, Mixed, Prefixes, Ranges};
use super::elements::Kind::{Mac, Net, Net6, Port, Proto};
use super::elements::{Kind, Lists};
use pktjit_fuzz::r#gen::classbench;
use pktjit_fuzz::r#gen::lists::Seed;

/// One row of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name on command lines and in results.
    pub name: &'static str,
    /// Its nominal size; the kernel's sets have one element more.
    pub rules: u32,
    pub(super) fields: &'static [Kind],
    pub(super) elements: Elements,
}

/// The rows of the kernel's own measurements, in the order of the published table.
pub const ROWS: [Row; 8] = [
    Row::new("net_port", 1000, &[Net, Port], Counted(1)),
    Row::new("port_net", 100, &[Port, Net], Counted(1)),
    Row::new("net6_port", 1000, &[Net6, Port], Counted(10)),
    Row::new("port_proto", 10_000, &[Port, Proto], Counted(1)),
    Row::new("port_proto", 30_000, &[Port, Proto], Counted(1)),
    Row::new("net6_port_mac", 10, &[Net6, Port, Mac], Counted(10)),
    Row::new(
        "net6_port_mac_proto",
        1000,
        &[Net6, Port, Mac, Proto],
        Counted(10),
    ),
    Row::new("net_mac", 1000, &[Net, Mac], Counted(1)),
];

/// What [`single`] has in several sizes.
const SINGLE: [Row; 6] = [
    Row::new("net_ranges", 0, &[Net], Ranges),
    Row::new("net_prefixes", 0, &[Net], Prefixes),
    Row::new("net6_ranges", 0, &[Net6], Ranges),
    Row::new("net6_prefixes", 0, &[Net6], Prefixes),
    Row::new("mac_ranges", 0, &[Mac], Ranges),
    Row::new("port_ranges", 0, &[Port], Ranges),
];

/// What [`hash`] has in several sizes.
const HASH: [Row; 6] = [
    Row::new("net", 0, &[Net], Exact),
    Row::new("net6", 0, &[Net6], Exact),
    Row::new("mac", 0, &[Mac], Exact),
    Row::new("net_port", 0, &[Net, Port], Exact),
    Row::new("net6_port", 0, &[Net6, Port], Exact),
    Row::new(
        "net_port_net_port_proto",
        0,
        &[Net, Port, Net, Port, Proto],
        Exact,
    ),
];

/// What [`shapes`] has in several sizes: each shape of IPv4 before the same one of IPv6.
const SHAPES: [Row; 6] = [
    Row::new("net_net", 0, &[Net, Net], Mixed),
    Row::new("net6_net6", 0, &[Net6, Net6], Mixed),
    Row::new("net_port_net_port", 0, &[Net, Port, Net, Port], Mixed),
    Row::new("net6_port_net6_port", 0, &[Net6, Port, Net6, Port], Mixed),
    Row::new("net_mac_proto", 0, &[Net, Mac, Proto], Mixed),
    Row::new("net6_mac_proto", 0, &[Net6, Mac, Proto], Mixed),
];

/// Prioritised lists like ClassBench's.
const LISTS: [Row; 3] = [
    Row::new("acl", 0, &[], List(classbench::Kind::Acl)),
    Row::new("fw", 0, &[], List(classbench::Kind::Firewall)),
    Row::new("ipc", 0, &[], List(classbench::Kind::Chain)),
];

/// The sets of ClassBench, and lists that look like those of 100k rules. The names of given sets say the size that was asked
/// for; they have a few rules fewer.
pub const CLASSBENCH: [Row; 19] = [
    Row::given("acl1_1k", 1000),
    Row::given("fw1_1k", 1000),
    Row::given("ipc1_1k", 1000),
    Row::given("acl1_10k", 10_000),
    Row::given("fw1_10k", 10_000),
    Row::given("ipc1_10k", 10_000),
    Row::given("acl1_100k", 100_000),
    Row::given("fw1_100k", 100_000),
    Row::given("ipc1_100k", 100_000),
    Row::like("acl1_gen", 100_000, Seed::acl1),
    Row::like("fw1_gen", 100_000, Seed::fw1),
    Row::like("ipc1_gen", 100_000, Seed::ipc1),
    Row::new("fw1_deep", 100_000, &[], Elements::Lists(Lists::Deep)),
    Row::like("acl1_gen", 500_000, Seed::acl1),
    Row::like("fw1_gen", 500_000, Seed::fw1),
    Row::like("ipc1_gen", 500_000, Seed::ipc1),
    Row::like("acl1_gen", 1_000_000, Seed::acl1),
    Row::like("fw1_gen", 1_000_000, Seed::fw1),
    Row::like("ipc1_gen", 1_000_000, Seed::ipc1),
];

/// One field, ranges or prefixes that are disjoint.
#[must_use]
pub fn single() -> Vec<Row> {
    in_sizes(&SINGLE, &[1000, 10_000, 100_000, 1_000_000])
}

/// Sets without ranges.
#[must_use]
pub fn hash() -> Vec<Row> {
    in_sizes(&HASH, &[1000, 10_000, 100_000, 1_000_000])
}

/// Random elements as users write them, with IPv4 and with IPv6 addresses.
#[must_use]
pub fn shapes() -> Vec<Row> {
    in_sizes(&SHAPES, &[1000, 10_000])
}

/// Some of everything, to be compiled: the kernel's rows up to a million elements, others up to a tenth of that.
#[must_use]
pub fn build() -> Vec<Row> {
    let sizes = [100, 1000, 10_000, 100_000];
    let mut kernel: Vec<Row> = Vec::new();
    for row in ROWS {
        if kernel.iter().all(|other| other.name != row.name) {
            kernel.push(row);
        }
    }
    let random = SHAPES.iter().filter(|row| row.name.ends_with("_port"));
    let random: Vec<Row> = random.copied().collect();
    let mut rows = in_sizes(&kernel, &[&sizes[..], &[1_000_000]].concat());
    rows.extend(in_sizes(&[&random[..], &LISTS].concat(), &sizes));
    rows
}

/// The kernel's rows, and lists of several sizes.
#[must_use]
pub fn scaling() -> Vec<Row> {
    let lists = CLASSBENCH.iter().filter(|row| row.rules <= 100_000);
    ROWS.iter().chain(lists).copied().collect()
}

/// Each row in each of the sizes that it allows.
fn in_sizes(rows: &[Row], sizes: &[u32]) -> Vec<Row> {
    let sized = |row: &Row| {
        let allowed = sizes.iter().filter(|&&rules| rules <= row.max_rules());
        allowed
            .map(|&rules| row.with_rules(rules))
            .collect::<Vec<_>>()
    };
    rows.iter().flat_map(sized).collect()
}

impl Row {
    pub(crate) const fn new(
        name: &'static str,
        rules: u32,
        fields: &'static [Kind],
        elements: Elements,
    ) -> Self {
        Self {
            name,
            rules,
            fields,
            elements,
        }
    }

    const fn given(name: &'static str, rules: u32) -> Self {
        Self::new(name, rules, &[], Elements::Lists(Lists::Given))
    }

    const fn like(name: &'static str, rules: u32, seed: fn() -> Seed) -> Self {
        Self::new(name, rules, &[], Elements::Lists(Lists::Like(seed)))
    }

    /// The same row with another number of rules.
    #[must_use]
    pub const fn with_rules(self, rules: u32) -> Self {
        Self { rules, ..self }
    }

    /// The same row with the first field alone.
    #[must_use]
    pub fn first_field(self) -> Self {
        Self {
            fields: &self.fields[..1],
            ..self
        }
    }

    /// Whether it is a prioritised list of [`CLASSBENCH`].
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self.elements, Elements::Lists(_))
    }

    /// Those of `rows` that `NAME` or `NAME:RULES` means; with a number, any size that the elements of the row allow.
    ///
    /// # Errors
    /// What is wrong with the words.
    pub fn parse(text: &str, rows: &[Self]) -> Result<Vec<Self>, String> {
        let (name, rules) = match text.split_once(':') {
            Some((name, rules)) => (name, Some(rules)),
            None => (text, None),
        };
        let named = rows.iter().filter(|row| row.name == name).copied();
        let named: Vec<Self> = named.collect();
        let Some(first) = named.first() else {
            let mut names: Vec<&str> = Vec::new();
            for row in rows {
                if !names.contains(&row.name) {
                    names.push(row.name);
                }
            }
            let names = names.join(", ");
            return Err(format!("there is no row `{name}`; the rows are {names}"));
        };
        let Some(rules) = rules else {
            return Ok(named);
        };
        let [min, max] = [first.min_rules(), first.max_rules()];
        let rules = rules
            .parse()
            .ok()
            .filter(|rules| (min..=max).contains(rules));
        let rules = rules.ok_or_else(|| format!("row `{name}` takes {min} to {max} rules"))?;
        Ok(vec![first.with_rules(rules)])
    }

    /// A given set is what it is, and a deep one has its depth.
    fn min_rules(&self) -> u32 {
        match self.elements {
            Elements::Lists(Lists::Given) => self.rules,
            Elements::Lists(Lists::Deep) => 10_000,
            _ => 1,
        }
    }

    /// Ports run out, and some must be left for keys that hit nothing.
    fn max_rules(&self) -> u32 {
        match (self.elements, self.fields) {
            (Elements::Lists(Lists::Given), _) => self.rules,
            (_, [Port, ..]) => 32_000,
            _ => 1_000_000,
        }
    }
}
