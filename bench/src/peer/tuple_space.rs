//! A tuple space search of five-field lists, as Open vSwitch and TupleMerge do it (Srinivasan, Suri and Varghese, *Packet
//! Classification using Tuple Space Search*, 1999; Daly et al., *TupleMerge: Fast Software Packet Processing for Online
//! Packet Classification*, 2019).
//!
//! A tuple says which bits of a key count. Rules with the same tuple lie in one hash table, by the value of these bits. A rule
//! may lie in a table that looks at fewer bits than the rule does, since each rule that is found is compared in full: so a
//! tuple that is made anew gives up one bit in eight of each address, and holds the rules of several tuples. Where more than
//! [`LIMIT`] rules fall on one value, the next ones go on to another table, in the end to one of their own tuple.
//!
//! Rules are inserted in winning order, so tables lie in the order of their strongest rules: a lookup ends at the first table
//! whose strongest rule is weaker than what was found.
//!
//! A batch is one key after the other: taking table by table instead, for all keys that are not done, took 1.4 to 1.6 times
//! as long on lists of 1k rules (2026-11-30, Zen 4), since which keys go on cannot be predicted.

use std::collections::HashMap;

use pktjit::MISS;
use pktjit_fuzz::r#gen::lists::Rule;

use super::Peer;

/// Rules on one value of a table that not all of them ask for in full.
const LIMIT: u32 = 10;

/// Bytes of a key; see [`Fields::read`].
pub(crate) const KEY: usize = 16;

/// The fields of a key, or which bits of them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    /// Source, destination.
    addresses: u64,
    /// Source port, destination port, protocol in the lowest byte.
    rest: u64,
}

impl Fields {
    /// `proto . . . src dst sport dport`, numbers big-endian.
    #[inline]
    fn read(key: &[u8; KEY]) -> Self {
        let [proto, _, _, _, a, b, c, d, e, f, g, h, ports @ ..] = *key;
        Self {
            addresses: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            rest: u64::from(u32::from_be_bytes(ports)) << 8 | u64::from(proto),
        }
    }

    /// The lowest key of a rule.
    fn lowest(rule: &Rule) -> Self {
        let [src, dst, sport, dport, proto] = rule.map(|(lo, _)| u64::from(lo));
        Self {
            addresses: src << 32 | dst,
            rest: sport << 24 | dport << 8 | proto,
        }
    }

    /// The bits for prefixes of these lengths, and for which of the other fields count.
    fn bits(lens: [u32; 2], exact: [bool; 3]) -> Self {
        let [src, dst] = lens.map(|len| u64::from(!u32::MAX.checked_shr(len).unwrap_or(0)));
        let [sport, dport, proto] = exact.map(u64::from);
        Self {
            addresses: src << 32 | dst,
            rest: (sport * (0xffff << 24)) | (dport * (0xffff << 8)) | (proto * 0xff),
        }
    }

    /// One that depends on all bits that count.
    #[inline]
    fn hash(self, mask: Self) -> u64 {
        let a = (self.addresses & mask.addresses) ^ 0x9e37_79b9_7f4a_7c15;
        let b = (self.rest & mask.rest) ^ 0xd1b5_4a32_d192_ed03;
        let product = u128::from(a) * u128::from(b);
        (product ^ product >> 64) as u64
    }

    fn is_within(self, other: Self) -> bool {
        self.addresses & !other.addresses == 0 && self.rest & !other.rest == 0
    }
}

/// The rules on one value: where they start, and a part of the hash.
#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    first: u32,
}

/// A slot that holds nothing.
const FREE: u32 = u32::MAX;

/// A rule, to be compared in full. Half a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Entry {
    addresses: [(u32, u32); 2],
    ports: [(u16, u16); 2],
    protocol: (u8, u8),
    /// Whether no other rule lies on the same value.
    is_last: bool,
    row: u32,
}

impl Entry {
    fn new(rule: &Rule, row: u32, is_last: bool) -> Self {
        let [src, dst, sport, dport, proto] = *rule;
        Self {
            addresses: [src, dst],
            ports: [sport, dport].map(|(lo, hi)| (lo as u16, hi as u16)),
            protocol: (proto.0 as u8, proto.1 as u8),
            is_last,
            row,
        }
    }

    /// Compared without branches: which field differs cannot be predicted.
    #[inline]
    fn matches(&self, key: Fields) -> bool {
        let Fields { addresses, rest } = key;
        let [src, dst] = [(addresses >> 32) as u32, addresses as u32];
        let [sport, dport] = [(rest >> 24) as u16, (rest >> 8) as u16];
        let proto = rest as u8;
        let [source, destination] = self.addresses;
        let [from, to] = self.ports;
        (src.wrapping_sub(source.0) <= source.1 - source.0)
            & (dst.wrapping_sub(destination.0) <= destination.1 - destination.0)
            & (sport.wrapping_sub(from.0) <= from.1 - from.0)
            & (dport.wrapping_sub(to.0) <= to.1 - to.0)
            & (self.protocol.0 <= proto)
            & (proto <= self.protocol.1)
    }
}

/// The rules of one tuple.
struct Table {
    mask: Fields,
    /// The row of the strongest rule.
    strongest: u32,
    /// At least twice as many as there are values, a power of two.
    slots: Vec<Slot>,
    /// Rules value by value, strong ones first.
    entries: Vec<Entry>,
}

impl Table {
    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash as usize) & (self.slots.len() - 1)
    }

    /// The row of the strongest rule that matches, or [`MISS`].
    #[inline]
    fn find(&self, key: Fields) -> u32 {
        let hash = key.hash(self.mask);
        let tag = (hash >> 32) as u32;
        let mut place = self.place(hash);
        loop {
            let slot = self.slots[place];
            if slot.first == FREE {
                return MISS;
            }
            if slot.tag == tag {
                for entry in &self.entries[slot.first as usize..] {
                    if entry.matches(key) {
                        return entry.row;
                    }
                    if entry.is_last {
                        break;
                    }
                }
            }
            place = (place + 1) & (self.slots.len() - 1);
        }
    }
}

/// A table that is being filled.
struct Filling {
    mask: Fields,
    /// Hash and row of each rule.
    rules: Vec<(u64, u32)>,
    counts: HashMap<u64, u32>,
}

impl Filling {
    fn new(mask: Fields) -> Self {
        Self {
            mask,
            rules: Vec::new(),
            counts: HashMap::new(),
        }
    }

    /// Takes the rule if it has room on its value, or asks for no more than the rule's own bits.
    fn insert(&mut self, key: Fields, own: Fields, row: u32) -> bool {
        let hash = key.hash(self.mask);
        let count = self.counts.get(&hash).copied().unwrap_or(0);
        if count >= LIMIT && self.mask != own {
            return false;
        }
        self.counts.insert(hash, count + 1);
        self.rules.push((hash, row));
        true
    }

    fn finish(mut self, rules: &[Rule]) -> Table {
        let strongest = self.rules.first().map_or(MISS, |&(_, row)| row);
        let len = (2 * self.counts.len()).next_power_of_two();
        self.rules.sort_unstable();
        let mut table = Table {
            mask: self.mask,
            strongest,
            slots: vec![
                Slot {
                    tag: 0,
                    first: FREE
                };
                len
            ],
            entries: Vec::with_capacity(self.rules.len()),
        };
        for value in self.rules.chunk_by(|a, b| a.0 == b.0) {
            let hash = value[0].0;
            let mut place = table.place(hash);
            while table.slots[place].first != FREE {
                place = (place + 1) & (len - 1);
            }
            table.slots[place] = Slot {
                tag: (hash >> 32) as u32,
                first: table.entries.len() as u32,
            };
            for (i, &(_, row)) in value.iter().enumerate() {
                let is_last = i + 1 == value.len();
                table
                    .entries
                    .push(Entry::new(&rules[row as usize], row, is_last));
            }
        }
        table
    }
}

/// The tables, in the order of their strongest rules.
pub struct TupleSpace {
    tables: Vec<Table>,
}

impl TupleSpace {
    /// The search in `rules`, of which the first one that matches wins.
    #[must_use]
    pub fn new(rules: &[Rule]) -> Self {
        let mut tables: Vec<Filling> = Vec::new();
        for (rule, row) in rules.iter().zip(0..) {
            let key = Fields::lowest(rule);
            let lens = [0, 1].map(|field| (rule[field].0 ^ rule[field].1).leading_zeros());
            let exact = [2, 3, 4].map(|field| rule[field].0 == rule[field].1);
            let own = Fields::bits(lens, exact);
            let mut fitting = tables.iter_mut().filter(|table| table.mask.is_within(own));
            if fitting.any(|table| table.insert(key, own, row)) {
                continue;
            }
            let merged = Fields::bits(lens.map(|len| len - len / 8), exact);
            let is_there = tables.iter().any(|table| table.mask == merged);
            let mut table = Filling::new(if is_there { own } else { merged });
            table.insert(key, own, row);
            tables.push(table);
        }
        Self {
            tables: tables
                .into_iter()
                .map(|table| table.finish(rules))
                .collect(),
        }
    }
}

impl Peer for TupleSpace {
    fn name(&self) -> &'static str {
        "tss"
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        let Some(key) = key.first_chunk().map(Fields::read) else {
            return MISS;
        };
        let mut best = MISS;
        for table in &self.tables {
            if table.strongest > best {
                break;
            }
            best = best.min(table.find(key));
        }
        best
    }

    fn bytes(&self) -> usize {
        let tables = self.tables.iter();
        let bytes = tables.map(|table| {
            size_of::<Table>() + size_of_val(&*table.slots) + size_of_val(&*table.entries)
        });
        bytes.sum()
    }
}
