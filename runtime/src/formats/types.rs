//! The data types of nft, the selectors that `typeof` knows, and how a value of each type is read.
//!
//! A value is a `u128` in host order, as everywhere. What a type does not hold is an error that says what was expected;
//! nothing is ever cut to fit.

use std::net::{Ipv4Addr, Ipv6Addr};

use pktjit_ir::{ByteOrder, Field, FieldKind, Match};

use super::error::quote;
use super::names::{self, Names};

/// Most bytes of an interface name; the sixteenth is its terminating zero.
const MAX_IFNAME: usize = 15;

/// How the values of one field are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueType {
    field: Field,
    names: &'static Names,
}

/// What a type is before a field of it has its name.
#[derive(Clone, Copy)]
enum Kind {
    Named(FieldKind),
    Integer(u8, &'static Names),
    /// An integer in the byte order of the host, as the kernel keeps what is not part of a packet.
    HostInteger(u8, &'static Names),
}

const IPV4: Kind = Kind::Named(FieldKind::Ipv4Addr);
const IPV6: Kind = Kind::Named(FieldKind::Ipv6Addr);
const ETHER: Kind = Kind::Named(FieldKind::EtherAddr);
const PROTO: Kind = Kind::Named(FieldKind::InetProto);
const SERVICE: Kind = Kind::Named(FieldKind::InetService);
const MARK: Kind = Kind::Named(FieldKind::Mark);
const IFNAME: Kind = Kind::Named(FieldKind::Ifname);
const ETHER_TYPE: Kind = Kind::Integer(2, names::ETHER_TYPES);
const ICMP_TYPE: Kind = Kind::Integer(1, names::ICMP_TYPES);
const ICMPV6_TYPE: Kind = Kind::Integer(1, names::ICMPV6_TYPES);
const ARP_OPERATION: Kind = Kind::Integer(2, names::ARP_OPERATIONS);
const CT_STATE: Kind = Kind::HostInteger(4, names::CT_STATES);
const INTEGER_1: Kind = Kind::Integer(1, names::NONE);
const INTEGER_2: Kind = Kind::Integer(2, names::NONE);
const INTEGER_4: Kind = Kind::Integer(4, names::NONE);
const HOST_2: Kind = Kind::HostInteger(2, names::NONE);
const HOST_4: Kind = Kind::HostInteger(4, names::NONE);

/// What may follow `type`.
const TYPES: &[(&str, Kind)] = &[
    ("ipv4_addr", IPV4),
    ("ipv6_addr", IPV6),
    ("ether_addr", ETHER),
    ("inet_proto", PROTO),
    ("inet_service", SERVICE),
    ("mark", MARK),
    ("ifname", IFNAME),
    ("ether_type", ETHER_TYPE),
    ("icmp_type", ICMP_TYPE),
    ("icmp_code", INTEGER_1),
    ("icmpv6_type", ICMPV6_TYPE),
    ("icmpv6_code", INTEGER_1),
    ("arp_op", ARP_OPERATION),
    ("ct_state", CT_STATE),
    ("iface_index", HOST_4),
    ("iface_type", HOST_2),
    ("uid", HOST_4),
    ("gid", HOST_4),
    ("realm", HOST_4),
    ("classid", HOST_4),
];

/// What may follow `typeof`, besides raw payload.
const SELECTORS: &[(&str, Kind)] = &[
    ("ip saddr", IPV4),
    ("ip daddr", IPV4),
    ("ip protocol", PROTO),
    ("ip length", INTEGER_2),
    ("ip id", INTEGER_2),
    ("ip ttl", INTEGER_1),
    ("ip6 saddr", IPV6),
    ("ip6 daddr", IPV6),
    ("ip6 nexthdr", PROTO),
    ("ip6 length", INTEGER_2),
    ("ip6 hoplimit", INTEGER_1),
    ("tcp sport", SERVICE),
    ("tcp dport", SERVICE),
    ("udp sport", SERVICE),
    ("udp dport", SERVICE),
    ("udplite sport", SERVICE),
    ("udplite dport", SERVICE),
    ("th sport", SERVICE),
    ("th dport", SERVICE),
    ("sctp sport", SERVICE),
    ("sctp dport", SERVICE),
    ("dccp sport", SERVICE),
    ("dccp dport", SERVICE),
    ("icmp type", ICMP_TYPE),
    ("icmp code", INTEGER_1),
    ("icmpv6 type", ICMPV6_TYPE),
    ("icmpv6 code", INTEGER_1),
    ("ah spi", INTEGER_4),
    ("esp spi", INTEGER_4),
    ("ether saddr", ETHER),
    ("ether daddr", ETHER),
    ("ether type", ETHER_TYPE),
    ("vlan type", ETHER_TYPE),
    ("arp operation", ARP_OPERATION),
    ("arp saddr ip", IPV4),
    ("arp daddr ip", IPV4),
    ("arp saddr ether", ETHER),
    ("arp daddr ether", ETHER),
    ("meta mark", MARK),
    ("mark", MARK),
    ("meta iifname", IFNAME),
    ("iifname", IFNAME),
    ("meta oifname", IFNAME),
    ("oifname", IFNAME),
    ("meta l4proto", PROTO),
    ("meta protocol", ETHER_TYPE),
    ("meta length", HOST_4),
    ("meta iif", HOST_4),
    ("meta oif", HOST_4),
    ("meta skuid", HOST_4),
    ("meta skgid", HOST_4),
    ("ct mark", MARK),
    ("ct state", CT_STATE),
    ("ct original ip saddr", IPV4),
    ("ct original ip daddr", IPV4),
    ("ct reply ip saddr", IPV4),
    ("ct reply ip daddr", IPV4),
    ("ct original ip6 saddr", IPV6),
    ("ct original ip6 daddr", IPV6),
    ("ct reply ip6 saddr", IPV6),
    ("ct reply ip6 daddr", IPV6),
];

impl ValueType {
    /// The type that nft calls `name`, as a field of the same name.
    pub(super) fn by_type(name: &str) -> Option<Self> {
        Self::find(TYPES, name)
    }

    /// The type of what an expression such as `ip saddr` selects, as a field named after the expression.
    pub(super) fn by_selector(expression: &str) -> Option<Self> {
        Self::find(SELECTORS, expression)
    }

    /// The type of `@nh,96,32`: a base, an offset in bits and a width in bits.
    ///
    /// # Errors
    /// A width that no field has.
    pub(super) fn raw_payload(base: &str, offset: u128, bits: u128) -> Result<Self, String> {
        let name = format!("@{base},{offset},{bits}");
        let field = u8::try_from(bits / 8)
            .ok()
            .filter(|_| bits.is_multiple_of(8))
            .and_then(|bytes| Field::integer(&name, bytes).ok());
        let field = field.ok_or_else(|| format!("{bits} bits are not 1 to 16 whole bytes"))?;
        Ok(Self {
            field,
            names: names::NONE,
        })
    }

    fn find(table: &[(&str, Kind)], name: &str) -> Option<Self> {
        let &(_, kind) = table.iter().find(|entry| entry.0 == name)?;
        let integer = |bytes, names| {
            Some(Self {
                field: Field::integer(name, bytes).ok()?,
                names,
            })
        };
        match kind {
            Kind::Named(kind) => Some(Self::of(kind, name)),
            Kind::Integer(bytes, names) => integer(bytes, names),
            Kind::HostInteger(bytes, names) => {
                let Self { field, names } = integer(bytes, names)?;
                let field = field.with_byte_order(ByteOrder::native());
                Some(Self { field, names })
            }
        }
    }

    /// A field of a kind that has a name of its own.
    fn of(kind: FieldKind, name: &str) -> Self {
        let (field, names) = match kind {
            FieldKind::Ipv4Addr => (Field::ipv4_addr(name), names::NONE),
            FieldKind::Ipv6Addr => (Field::ipv6_addr(name), names::NONE),
            FieldKind::EtherAddr => (Field::ether_addr(name), names::NONE),
            FieldKind::InetProto => (Field::inet_proto(name), names::PROTOCOLS),
            FieldKind::InetService => (Field::inet_service(name), names::SERVICES),
            FieldKind::Ifname => (Field::ifname(name), names::NONE),
            FieldKind::Mark | FieldKind::Integer => (Field::mark(name), names::NONE),
        };
        Self { field, names }
    }

    /// The five fields of ClassBench.
    pub(super) fn classbench() -> [Self; 5] {
        [
            Self::of(FieldKind::Ipv4Addr, "saddr"),
            Self::of(FieldKind::Ipv4Addr, "daddr"),
            Self::of(FieldKind::InetService, "sport"),
            Self::of(FieldKind::InetService, "dport"),
            Self::of(FieldKind::InetProto, "proto"),
        ]
    }

    pub(super) fn field(&self) -> &Field {
        &self.field
    }

    /// Reads one value.
    ///
    /// # Errors
    /// What was expected in place of `text`.
    pub(super) fn parse(&self, text: &[u8]) -> Result<u128, String> {
        let word = str::from_utf8(text).ok();
        let value = match self.field.kind() {
            FieldKind::Ipv4Addr => word
                .and_then(|word| word.parse::<Ipv4Addr>().ok())
                .map(|address| u128::from(u32::from(address))),
            FieldKind::Ipv6Addr => word
                .and_then(|word| word.parse::<Ipv6Addr>().ok())
                .map(u128::from),
            FieldKind::EtherAddr => parse_ether_addr(text),
            FieldKind::Ifname => return parse_ifname(text, MAX_IFNAME),
            FieldKind::InetProto
            | FieldKind::InetService
            | FieldKind::Mark
            | FieldKind::Integer => return self.parse_number(text),
        };
        value.ok_or_else(|| format!("{} is not {}", quote(text), self.expected()))
    }

    fn parse_number(&self, text: &[u8]) -> Result<u128, String> {
        let named = self
            .names
            .iter()
            .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(text));
        if let Some(&(_, value)) = named {
            return Ok(value.into());
        }
        match number(text) {
            Ok(value) if value <= self.field.max() => Ok(value),
            Ok(_) | Err(NumberError::TooLarge) => Err(format!(
                "{} is too large: expected {}",
                quote(text),
                self.expected()
            )),
            Err(NumberError::Octal) => Err(format!(
                "{} is octal to nft: write it in decimal or hexadecimal",
                quote(text)
            )),
            Err(NumberError::NotANumber) => {
                Err(format!("{} is not {}", quote(text), self.expected()))
            }
        }
    }

    /// Reads one value, or the start of interface names.
    ///
    /// # Errors
    /// What was expected in place of `text`.
    pub(super) fn parse_match(&self, text: &[u8]) -> Result<Match, String> {
        if self.is_wildcard(text) {
            self.parse_wildcard(text)
        } else {
            self.parse(text).map(Match::Exact)
        }
    }

    /// Reads what ends in `*`: all interface names that start with the text before it.
    ///
    /// # Errors
    /// The type has no such values, or the name is too long.
    fn parse_wildcard(&self, text: &[u8]) -> Result<Match, String> {
        if self.field.kind() != FieldKind::Ifname {
            return Err(format!("{} is not {}", quote(text), self.expected()));
        }
        let start = text.strip_suffix(b"*").unwrap_or(text);
        if start.is_empty() {
            return Err("`*` is not the start of an interface name".into());
        }
        Ok(Match::Prefix {
            value: parse_ifname(start, MAX_IFNAME - 1)?,
            len: 8 * start.len() as u8,
        })
    }

    /// Whether `text` names more than one value by itself.
    fn is_wildcard(&self, text: &[u8]) -> bool {
        self.field.kind() == FieldKind::Ifname && text.ends_with(b"*")
    }

    /// Reads the length of a prefix.
    ///
    /// # Errors
    /// No number, or more bits than the field has.
    pub(super) fn parse_prefix_len(&self, text: &[u8]) -> Result<u8, String> {
        let bits = self.field.bits();
        match number(text) {
            Ok(len) if len <= bits.into() => Ok(len as u8),
            Ok(_) | Err(NumberError::TooLarge) => Err(format!(
                "prefix length {} is longer than the {bits} bits of {}",
                quote(text),
                self.field.kind()
            )),
            Err(_) => Err(format!("{} is not a prefix length", quote(text))),
        }
    }

    /// What a value of this type is, for messages.
    pub(super) fn expected(&self) -> String {
        let max = self.field.max();
        match self.field.kind() {
            FieldKind::Ipv4Addr => "an IPv4 address".into(),
            FieldKind::Ipv6Addr => "an IPv6 address".into(),
            FieldKind::EtherAddr => "an Ethernet address".into(),
            FieldKind::Ifname => "an interface name".into(),
            FieldKind::InetProto => "a protocol (known name or 0 to 255)".into(),
            FieldKind::InetService => "a port (known service or 0 to 65535)".into(),
            FieldKind::Mark => format!("a mark (0 to {max:#x})"),
            FieldKind::Integer if self.names.is_empty() => format!("a number from 0 to {max:#x}"),
            FieldKind::Integer => {
                format!(
                    "a known {} or a number from 0 to {max:#x}",
                    self.field.name()
                )
            }
        }
    }
}

/// The values from one to another, each given with its text.
///
/// # Errors
/// The first is above the last.
pub(super) fn range(lo: (u128, &[u8]), hi: (u128, &[u8])) -> Result<Match, String> {
    if lo.0 > hi.0 {
        return Err(format!(
            "the range is reversed: {} is above {}",
            quote(lo.1),
            quote(hi.1)
        ));
    }
    Ok(Match::Range { lo: lo.0, hi: hi.0 })
}

fn parse_ether_addr(text: &[u8]) -> Option<u128> {
    let mut value = 0;
    let mut octets = 0;
    for octet in text.split(|&byte| byte == b':') {
        if octet.is_empty() || octet.len() > 2 {
            return None;
        }
        value = value << 8 | digits(octet, 16)?;
        octets += 1;
    }
    (octets == 6).then_some(value)
}

fn parse_ifname(text: &[u8], longest: usize) -> Result<u128, String> {
    // What a line of output cannot show: nft has no escapes.
    let is_refused = |c: char| c.is_control() || c == '"';
    if text.is_empty() || String::from_utf8_lossy(text).contains(is_refused) {
        return Err(format!("{} is not an interface name", quote(text)));
    }
    if text.len() > longest {
        return Err(format!(
            "{} is too long: an interface name has at most {MAX_IFNAME} bytes",
            quote(text)
        ));
    }
    let mut padded = [0; 16];
    padded[..text.len()].copy_from_slice(text);
    Ok(u128::from_be_bytes(padded))
}

/// Why a text is no number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NumberError {
    NotANumber,
    /// nft reads `010` as eight, people read it as ten.
    Octal,
    TooLarge,
}

/// Reads a decimal or hexadecimal number.
pub(super) fn number(text: &[u8]) -> Result<u128, NumberError> {
    let (text, radix) = match text {
        [b'0', b'x' | b'X', hex @ ..] => (hex, 16),
        [b'0', rest @ ..] if !rest.is_empty() && rest.iter().all(u8::is_ascii_digit) => {
            return Err(NumberError::Octal);
        }
        decimal => (decimal, 10),
    };
    if text.is_empty() || !text.iter().all(|&digit| char::from(digit).is_digit(radix)) {
        return Err(NumberError::NotANumber);
    }
    digits(text, radix).ok_or(NumberError::TooLarge)
}

/// The number that digits make; `None` where one is no digit or the number has more than 128 bits.
fn digits(text: &[u8], radix: u32) -> Option<u128> {
    text.iter().try_fold(0u128, |value, &digit| {
        let digit = char::from(digit).to_digit(radix)?;
        value.checked_mul(radix.into())?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn read(name: &str, text: &str) -> Result<u128, String> {
        ValueType::by_type(name).unwrap().parse(text.as_bytes())
    }

    #[test]
    fn values_are_read() {
        for (name, text, value) in [
            ("ipv4_addr", "10.0.0.1", 0x0a00_0001),
            ("ipv6_addr", "2001:db8::1", 0x2001_0db8 << 96 | 1),
            ("ipv6_addr", "::ffff:1.2.3.4", 0xffff_0102_0304),
            ("ether_addr", "00:1B:2c:3:04:5", 0x001b_2c03_0405),
            ("inet_proto", "tcp", 6),
            ("inet_proto", "ipv6-icmp", 58),
            ("inet_proto", "icmpv6", 58),
            ("inet_proto", "255", 255),
            ("inet_service", "ssh", 22),
            ("inet_service", "0x50", 80),
            ("inet_service", "65535", 65535),
            ("mark", "0x5c511e00", 0x5c51_1e00),
            ("mark", "0", 0),
            ("ifname", "lo", 0x6c6f << 112),
            ("ether_type", "ip6", 0x86dd),
            ("icmp_type", "echo-request", 8),
            ("icmpv6_type", "echo-request", 128),
            ("ct_state", "new", 8),
        ] {
            assert_eq!(read(name, text), Ok(value), "{name} {text}");
        }
    }

    #[test]
    fn wrong_values_say_what_was_expected() {
        for (name, text, error) in [
            (
                "ipv4_addr",
                "10.0.0.256",
                "`10.0.0.256` is not an IPv4 address",
            ),
            ("ipv4_addr", "10.0.0", "`10.0.0` is not an IPv4 address"),
            (
                "ipv4_addr",
                "010.0.0.1",
                "`010.0.0.1` is not an IPv4 address",
            ),
            (
                "ipv4_addr",
                "example.com",
                "`example.com` is not an IPv4 address",
            ),
            ("ipv4_addr", "", "`` is not an IPv4 address"),
            ("ipv6_addr", "1.2.3.4", "`1.2.3.4` is not an IPv6 address"),
            (
                "ipv6_addr",
                "fe80::1%lo",
                "`fe80::1%lo` is not an IPv6 address",
            ),
            (
                "ether_addr",
                "0:1:2:3:4",
                "`0:1:2:3:4` is not an Ethernet address",
            ),
            (
                "ether_addr",
                "0:1:2:3:4:5:6",
                "`0:1:2:3:4:5:6` is not an Ethernet address",
            ),
            (
                "ether_addr",
                "0:1:2:3:4:",
                "`0:1:2:3:4:` is not an Ethernet address",
            ),
            (
                "ether_addr",
                "0:1:2:3:4:+5",
                "`0:1:2:3:4:+5` is not an Ethernet address",
            ),
            (
                "inet_proto",
                "tpc",
                "`tpc` is not a protocol (known name or 0 to 255)",
            ),
            (
                "inet_proto",
                "256",
                "`256` is too large: expected a protocol (known name or 0 to 255)",
            ),
            (
                "inet_service",
                "70000",
                "`70000` is too large: expected a port (known service or 0 to 65535)",
            ),
            (
                "inet_service",
                "nosuch",
                "`nosuch` is not a port (known service or 0 to 65535)",
            ),
            (
                "inet_service",
                "-1",
                "`-1` is not a port (known service or 0 to 65535)",
            ),
            (
                "inet_service",
                "010",
                "`010` is octal to nft: write it in decimal or hexadecimal",
            ),
            (
                "mark",
                "0x1ffffffff",
                "`0x1ffffffff` is too large: expected a mark (0 to 0xffffffff)",
            ),
            ("mark", "0x", "`0x` is not a mark (0 to 0xffffffff)"),
            (
                "mark",
                "0xfffffffffffffffffffffffffffffffff",
                "`0xfffffffffffffffffffffffffffffffff` is too large: expected a mark (0 to 0xffffffff)",
            ),
            (
                "ifname",
                "abcdefghijklmnop",
                "`abcdefghijklmnop` is too long: an interface name has at most 15 bytes",
            ),
            ("ifname", "", "`` is not an interface name"),
            ("ifname", "a\"b", "`a\"b` is not an interface name"),
            ("ifname", "a\tb", "`a\\tb` is not an interface name"),
            ("icmp_code", "x", "`x` is not a number from 0 to 0xff"),
            (
                "icmp_type",
                "x",
                "`x` is not a known icmp_type or a number from 0 to 0xff",
            ),
        ] {
            assert_eq!(read(name, text), Err(error.into()), "{name} {text}");
        }
    }

    #[test]
    fn every_type_and_selector_makes_a_field_of_its_name() {
        for (name, _) in TYPES {
            assert_eq!(ValueType::by_type(name).unwrap().field().name(), *name);
        }
        for (name, _) in SELECTORS {
            assert_eq!(ValueType::by_selector(name).unwrap().field().name(), *name);
        }
    }

    #[test]
    fn names_fit_their_fields() {
        for (name, _) in TYPES {
            let ty = ValueType::by_type(name).unwrap();
            assert!(
                ty.names
                    .iter()
                    .all(|name| u128::from(name.1) <= ty.field.max())
            );
        }
    }

    #[test]
    fn a_wildcard_is_a_prefix_of_whole_bytes() {
        let ty = ValueType::by_type("ifname").unwrap();
        let expected = Match::Prefix {
            value: 0x65_7468 << 104,
            len: 24,
        };
        assert_eq!(ty.parse_wildcard(b"eth*"), Ok(expected));
        assert!(ty.parse_wildcard(b"*").is_err());
        assert!(ty.parse_wildcard(b"abcdefghijklmno*").is_err());
        assert!(ty.parse_wildcard(b"abcdefghijklmn*").is_ok());
    }
}
