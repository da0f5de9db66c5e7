//! Field values and conditions as people write them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{Field, FieldKind, Match};

/// A value of `field`.
pub(super) fn value(field: &Field, value: u128) -> String {
    match field.kind() {
        FieldKind::Ipv4Addr => Ipv4Addr::from(value as u32).to_string(),
        FieldKind::Ipv6Addr => Ipv6Addr::from(value).to_string(),
        FieldKind::EtherAddr => {
            let bytes = (0..6)
                .rev()
                .map(|byte| format!("{:02x}", value >> (8 * byte) & 0xff));
            bytes.collect::<Vec<_>>().join(":")
        }
        FieldKind::Ifname => {
            let bytes = value.to_be_bytes();
            let name: Vec<u8> = bytes.into_iter().take_while(|&byte| byte != 0).collect();
            format!("\"{}\"", name.escape_ascii())
        }
        FieldKind::Mark => format!("{value:#x}"),
        FieldKind::InetProto | FieldKind::InetService | FieldKind::Integer => value.to_string(),
    }
}

/// A condition on `field`.
pub(super) fn condition(field: &Field, condition: &Match) -> String {
    let text = |number| value(field, number);
    match *condition {
        Match::Any => "any".into(),
        Match::Exact(exact) => text(exact),
        Match::Prefix { value, len } => format!("{}/{len}", text(value)),
        Match::Range { lo, hi } => format!("{}-{}", text(lo), text(hi)),
        Match::Mask { value, mask } => format!("{} under the mask {mask:#x}", text(value)),
    }
}
