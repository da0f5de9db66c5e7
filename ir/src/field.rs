//! What a field of a key is: its kind, its name, its width and its byte order.
//!
//! Field values are `u128` in host order everywhere in this crate; only [`KeyLayout`](crate::KeyLayout) and the
//! program's key loads know how they lie in memory.

use std::fmt;

use crate::error::LayoutError;

/// Widest field, in bytes: an IPv6 address or an interface name.
pub const MAX_FIELD_BYTES: u8 = 16;

/// The order of a field's bytes in the caller's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Most significant byte first, as protocols put it on the wire.
    Big,
    /// Least significant byte first.
    Little,
}

impl ByteOrder {
    /// The order of the machine that this was compiled for: that of host-order metadata such as packet marks.
    #[must_use]
    pub const fn native() -> Self {
        if cfg!(target_endian = "big") {
            Self::Big
        } else {
            Self::Little
        }
    }
}

/// What a field holds; decides how its values are written and read as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// IPv4 address, 4 bytes, network order.
    Ipv4Addr,
    /// IPv6 address, 16 bytes, network order.
    Ipv6Addr,
    /// Ethernet address, 6 bytes, network order.
    EtherAddr,
    /// IP protocol number, 1 byte.
    InetProto,
    /// TCP, UDP, SCTP... port, 2 bytes, network order.
    InetService,
    /// Packet mark, 4 bytes, host order.
    Mark,
    /// Interface name, 16 bytes padded with zero bytes; its value is the bytes read as one big-endian number.
    Ifname,
    /// Any integer of 1 to 16 bytes, network order unless said otherwise.
    Integer,
}

impl FieldKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Ipv4Addr,
        Self::Ipv6Addr,
        Self::EtherAddr,
        Self::InetProto,
        Self::InetService,
        Self::Mark,
        Self::Ifname,
        Self::Integer,
    ];

    /// The kind's name as nft spells the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4Addr => "ipv4_addr",
            Self::Ipv6Addr => "ipv6_addr",
            Self::EtherAddr => "ether_addr",
            Self::InetProto => "inet_proto",
            Self::InetService => "inet_service",
            Self::Mark => "mark",
            Self::Ifname => "ifname",
            Self::Integer => "integer",
        }
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A named range of key bits that rules may test.
///
/// ```
/// use pktjit_ir::Field;
/// let port = Field::inet_service("dport");
/// assert_eq!((port.bytes(), port.max()), (2, 65535));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    name: Box<str>,
    kind: FieldKind,
    bytes: u8,
    order: ByteOrder,
}

impl Field {
    fn of(kind: FieldKind, name: &str, bytes: u8, order: ByteOrder) -> Self {
        Self {
            name: name.into(),
            kind,
            bytes,
            order,
        }
    }

    /// An IPv4 address (4 bytes, network order).
    #[must_use]
    pub fn ipv4_addr(name: &str) -> Self {
        Self::of(FieldKind::Ipv4Addr, name, 4, ByteOrder::Big)
    }

    /// An IPv6 address (16 bytes, network order).
    #[must_use]
    pub fn ipv6_addr(name: &str) -> Self {
        Self::of(FieldKind::Ipv6Addr, name, 16, ByteOrder::Big)
    }

    /// An Ethernet address (6 bytes, network order).
    #[must_use]
    pub fn ether_addr(name: &str) -> Self {
        Self::of(FieldKind::EtherAddr, name, 6, ByteOrder::Big)
    }

    /// An IP protocol number (1 byte).
    #[must_use]
    pub fn inet_proto(name: &str) -> Self {
        Self::of(FieldKind::InetProto, name, 1, ByteOrder::Big)
    }

    /// A port (2 bytes, network order).
    #[must_use]
    pub fn inet_service(name: &str) -> Self {
        Self::of(FieldKind::InetService, name, 2, ByteOrder::Big)
    }

    /// A packet mark (4 bytes, host order).
    #[must_use]
    pub fn mark(name: &str) -> Self {
        Self::of(FieldKind::Mark, name, 4, ByteOrder::native())
    }

    /// An interface name (16 bytes, padded with zero bytes).
    #[must_use]
    pub fn ifname(name: &str) -> Self {
        Self::of(FieldKind::Ifname, name, 16, ByteOrder::Big)
    }

    /// An integer of `bytes` bytes in network order.
    ///
    /// # Errors
    /// Where `bytes` is not 1 to 16.
    pub fn integer(name: &str, bytes: u8) -> Result<Self, LayoutError> {
        if bytes == 0 || bytes > MAX_FIELD_BYTES {
            return Err(LayoutError::FieldWidth {
                name: name.into(),
                bytes: bytes.into(),
            });
        }
        Ok(Self::of(FieldKind::Integer, name, bytes, ByteOrder::Big))
    }

    /// A field of some kind; `bytes` is the width of an integer, and of no interest to other kinds.
    ///
    /// # Errors
    /// Where an integer is not of 1 to 16 bytes.
    pub fn of_kind(kind: FieldKind, name: &str, bytes: u8) -> Result<Self, LayoutError> {
        Ok(match kind {
            FieldKind::Ipv4Addr => Self::ipv4_addr(name),
            FieldKind::Ipv6Addr => Self::ipv6_addr(name),
            FieldKind::EtherAddr => Self::ether_addr(name),
            FieldKind::InetProto => Self::inet_proto(name),
            FieldKind::InetService => Self::inet_service(name),
            FieldKind::Mark => Self::mark(name),
            FieldKind::Ifname => Self::ifname(name),
            FieldKind::Integer => Self::integer(name, bytes)?,
        })
    }

    /// The same field with its bytes in another order.
    #[must_use]
    pub fn with_byte_order(mut self, order: ByteOrder) -> Self {
        self.order = order;
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> FieldKind {
        self.kind
    }

    /// The width in bytes, 1 to 16.
    #[must_use]
    pub fn bytes(&self) -> u8 {
        self.bytes
    }

    /// The width in bits, 8 to 128.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bytes * 8
    }

    /// The byte order in the caller's key.
    #[must_use]
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// The largest value, all bits set.
    #[must_use]
    pub fn max(&self) -> u128 {
        u128::MAX >> (128 - u32::from(self.bits()))
    }
}
