//! Sets as nft JSON, written from their rules and not from their text.

use std::net::{Ipv4Addr, Ipv6Addr};

use pktjit::formats::{SetKind, SourceSet};
use pktjit::{Field, FieldKind, Match, Verdict};
use serde_json::{Value, json};

/// The set as a file; `None` where it has no such form or this writer does not know it: maps to data, keys by `typeof`,
/// interface names that are no text.
pub(super) fn json(set: &SourceSet) -> Option<String> {
    let is_map = match set.kind() {
        SetKind::Set => false,
        SetKind::VerdictMap => true,
        SetKind::Map | SetKind::ClassBench => return None,
    };
    let types = set.fields().iter().map(|field| {
        let name = field.kind().name();
        (field.name() == name).then_some(name)
    });
    let types = types.collect::<Option<Vec<_>>>()?;
    let elements = set.elements().iter().map(|element| {
        let key = key(&element.rule().matches, set.fields())?;
        if !is_map {
            return Some(key);
        }
        let verdict = match &element.rule().verdict {
            Verdict::Accept => json!({"accept": null}),
            Verdict::Drop => json!({"drop": null}),
            Verdict::Continue => json!({"continue": null}),
            Verdict::Return => json!({"return": null}),
            Verdict::Jump(target) => json!({"jump": {"target": target}}),
            Verdict::Goto(target) => json!({"goto": {"target": target}}),
            _ => return None,
        };
        Some(json!([key, verdict]))
    });
    let flags = set.flags();
    let names = [
        (flags.interval, "interval"),
        (flags.constant, "constant"),
        (flags.timeout, "timeout"),
        (flags.dynamic, "dynamic"),
    ];
    let flag_names: Vec<_> = names.iter().filter(|(is_set, _)| *is_set).collect();
    let mut object = json!({
        "family": set.family(),
        "table": set.table(),
        "name": set.name(),
        "type": types,
        "flags": flag_names.iter().map(|(_, name)| name).collect::<Vec<_>>(),
        "auto-merge": flags.auto_merge,
        "elem": elements.collect::<Option<Vec<_>>>()?,
    });
    if is_map {
        object["map"] = "verdict".into();
    }
    let tag = if is_map { "map" } else { "set" };
    Some(json!({"nftables": [{tag: object}]}).to_string())
}

fn key(matches: &[Match], fields: &[Field]) -> Option<Value> {
    if matches.iter().all(|found| *found == Match::Any) {
        return Some("*".into());
    }
    let operands = matches.iter().zip(fields);
    let operands = operands.map(|(found, field)| operand(found, field));
    let mut operands = operands.collect::<Option<Vec<_>>>()?;
    match &mut operands[..] {
        [alone] => Some(alone.take()),
        _ => Some(json!({"concat": operands})),
    }
}

fn operand(found: &Match, field: &Field) -> Option<Value> {
    Some(match *found {
        Match::Exact(exact) => value(exact, field)?,
        Match::Prefix { value: start, len } if is_start_of_names(start, len, field) => {
            let start = start.to_be_bytes();
            let start = str::from_utf8(&start[..usize::from(len / 8)]).ok()?;
            format!("{start}*").into()
        }
        Match::Prefix { value: start, len } => {
            json!({"prefix": {"addr": value(start, field)?, "len": len}})
        }
        Match::Range { lo, hi } => json!({"range": [value(lo, field)?, value(hi, field)?]}),
        Match::Any | Match::Mask { .. } => return None,
    })
}

/// Whether a prefix is what `eth*` stands for.
fn is_start_of_names(start: u128, len: u8, field: &Field) -> bool {
    field.kind() == FieldKind::Ifname
        && len > 0
        && len.is_multiple_of(8)
        && start.trailing_zeros() >= u32::from(field.bits() - len)
}

fn value(value: u128, field: &Field) -> Option<Value> {
    Some(match field.kind() {
        FieldKind::Ipv4Addr => Ipv4Addr::from_bits(value as u32).to_string().into(),
        FieldKind::Ipv6Addr => Ipv6Addr::from_bits(value).to_string().into(),
        FieldKind::EtherAddr => {
            let bytes = value.to_be_bytes();
            let digits = bytes[10..].iter().map(|byte| format!("{byte:02x}"));
            digits.collect::<Vec<_>>().join(":").into()
        }
        FieldKind::Ifname => {
            let name = value.to_be_bytes();
            str::from_utf8(&name).ok()?.trim_end_matches('\0').into()
        }
        FieldKind::InetProto | FieldKind::InetService | FieldKind::Mark | FieldKind::Integer => {
            (value as u64).into()
        }
    })
}
