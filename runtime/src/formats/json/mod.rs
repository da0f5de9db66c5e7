//! nft JSON, as `nft -j list` prints it: the sets and maps of a file.
//!
//! ```text
//! node (one level of JSON, its place and path) -> objects and declarations here -> elements
//! ```
//!
//! The values' types, the checks of ranges and the set that comes out are those of nft text, and so are the answers. What is
//! not understood in a set or map is refused with its path: `nftables[3].set.elem[7].concat[1]`. Objects that belong to
//! chains are skipped with a note.
//!
//! serde structs of our own, not those of the `nftables` crate: its values have neither place nor path, it keeps no
//! member that it does not know, and it builds the tree of the whole file.

mod elements;
mod node;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use pktjit_ir::KeyLayout;
use serde::Deserialize;
use serde_json::value::RawValue;

use self::elements::elements;
use self::node::{Node, Source};
use super::declaration::{
    AUTO_MERGE_NEEDS_INTERVAL, Declaration, FAMILIES, TableName, Value, size_limit,
};
use super::error::{FormatError, FormatNote, quote};
use super::nft::is_other_object;
use super::set::{FileNames, SetFlags, SourceSet};
use super::types::ValueType;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    #[serde(borrow)]
    nftables: &'a RawValue,
}

/// A set or map.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Block<'a> {
    #[serde(borrow)]
    family: &'a RawValue,
    #[serde(borrow)]
    table: &'a RawValue,
    #[serde(borrow)]
    name: &'a RawValue,
    #[serde(borrow, rename = "type")]
    key: &'a RawValue,
    #[serde(borrow, rename = "map")]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    flags: Option<&'a RawValue>,
    #[serde(borrow)]
    elem: Option<&'a RawValue>,
    #[serde(borrow)]
    stmt: Option<&'a RawValue>,
    auto_merge: Option<bool>,
    timeout: Option<u64>,
    size: Option<u32>,
    #[serde(rename = "gc-interval")]
    _gc_interval: Option<u64>,
    #[serde(rename = "policy")]
    _policy: Option<Policy>,
    #[serde(rename = "comment")]
    _comment: Option<String>,
    #[serde(rename = "handle")]
    _handle: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Policy {
    Performance,
    Memory,
}

/// What the key of a set written by `typeof` is taken from.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    protocol: Option<String>,
    field: Option<String>,
    base: Option<String>,
    offset: Option<u32>,
    len: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ct {
    key: String,
    family: Option<String>,
    dir: Option<String>,
}

/// Reads the sets and maps of nft JSON, which begins at byte `start`.
pub(super) fn parse(
    name: &Arc<str>,
    text: &[u8],
    start: usize,
) -> Result<(Vec<SourceSet>, Vec<FormatNote>), FormatError> {
    let source = Source::new(name, text);
    let root = source.root(start)?;
    let file: File = root.object()?;
    let list = root.member("nftables", file.nftables);
    let files: FileNames = source.file_names().into();
    let mut sets = Vec::new();
    let mut names = HashSet::new();
    let mut notes = Vec::new();
    for object in list.items()? {
        let (tag, inner) = object.tagged()?;
        let set = match tag.as_str() {
            "set" => declaration(&object.member("set", inner), false)?,
            "map" => declaration(&object.member("map", inner), true)?,
            "table" => continue,
            tag if tag == "metainfo" || is_skipped(tag) => {
                let message = format!("{} is skipped", quote(title(tag, inner).as_bytes()));
                let location = object.place().location(&files);
                notes.push(FormatNote::new(location, message));
                continue;
            }
            tag => {
                let message = format!(
                    "expected `set`, `map`, `chain` or another object of a table, found {}",
                    quote(tag.as_bytes())
                );
                return Err(object.error(message));
            }
        };
        if !names.insert((set.table.clone(), set.name.clone())) {
            let name = quote(set.name.as_bytes());
            return Err(object.error(format!("set {name} is declared already")));
        }
        notes.extend(set.note(&files));
        sets.push(set.finish(&files));
    }
    Ok((sets, notes))
}

/// Whether a reader of sets passes over objects of this kind: `ct helper` is one of the `ct` objects of nft text.
fn is_skipped(tag: &str) -> bool {
    let kind = tag.split(' ').next().unwrap_or_default();
    is_other_object(kind.as_bytes())
}

/// The kind and the name of an object that is skipped.
fn title(tag: &str, object: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    match serde_json::from_str::<Named>(object.get()) {
        Ok(Named { name }) => format!("{tag} {name}"),
        Err(_) => tag.into(),
    }
}

fn declaration(node: &Node, is_map: bool) -> Result<Declaration, FormatError> {
    let block: Block = node.object()?;
    let name = node.member("name", block.name);
    let (types, layout) = key_type(&node.member("type", block.key))?;
    let value = match block.value {
        Some(value) if is_map => value_type(&node.member("map", value))?,
        Some(value) => {
            let node = node.member("map", value);
            return Err(node.error("a set has no values; a `map` has"));
        }
        None if is_map => return Err(node.error("missing field `map`, the type of the values")),
        None => Value::None,
    };
    let mut flags = match block.flags {
        Some(list) => flags(&node.member("flags", list))?,
        None => SetFlags::default(),
    };
    flags.auto_merge = block.auto_merge.unwrap_or_default();
    if flags.auto_merge && !flags.interval {
        return Err(node.error(AUTO_MERGE_NEEDS_INTERVAL));
    }
    flags.timeout |= block.timeout.is_some();
    if let Some(list) = block.stmt {
        statements(&node.member("stmt", list))?;
    }
    let mut set = Declaration {
        table: table(node, &block)?,
        name: name.name()?.into(),
        place: name.place(),
        types,
        layout,
        value,
        flags,
        size: block.size.and_then(size_limit),
        elements: Vec::new(),
        timeout: block.timeout.map(|_| node.place()),
        is_deleted: false,
    };
    if let Some(list) = block.elem {
        elements(&node.member("elem", list), &mut set)?;
    }
    Ok(set)
}

fn table(node: &Node, block: &Block) -> Result<TableName, FormatError> {
    let table = node.member("table", block.table).name()?;
    let family = node.member("family", block.family);
    let name = family.string()?;
    match FAMILIES.into_iter().find(|&known| known == name) {
        Some(known) => Ok((known, table.into())),
        None => Err(family.expected("`ip`, `ip6`, `inet`, `arp`, `bridge` or `netdev`")),
    }
}

fn flags(node: &Node) -> Result<SetFlags, FormatError> {
    let mut flags = SetFlags::default();
    for item in node.one_or_many()? {
        match item.string()?.as_str() {
            "interval" => flags.interval = true,
            "timeout" => flags.timeout = true,
            "constant" => flags.constant = true,
            "dynamic" => flags.dynamic = true,
            _ => return Err(item.expected("`interval`, `timeout`, `constant` or `dynamic`")),
        }
    }
    Ok(flags)
}

/// Reads what is done with each element that matches: only counting changes no answer.
fn statements(node: &Node) -> Result<(), FormatError> {
    for item in node.items()? {
        if item.tagged_as("counter")?.is_none() {
            return Err(item.expected("`counter`"));
        }
    }
    Ok(())
}

// Types

/// Reads the types of a key and lays them out.
fn key_type(node: &Node) -> Result<(Vec<ValueType>, KeyLayout), FormatError> {
    let mut types = Vec::new();
    for item in node.one_or_many()? {
        if item.is_object() {
            expressions(&item, &mut types)?;
            continue;
        }
        // The types of a map's values are one text, those of its keys a list.
        for name in item.string()?.split(" . ") {
            types.push(named_type(&item, name)?);
        }
    }
    let fields = types.iter().map(|ty| ty.field().clone());
    let layout = KeyLayout::packed(fields).map_err(|error| node.error(error))?;
    Ok((types, layout))
}

fn named_type(node: &Node, name: &str) -> Result<ValueType, FormatError> {
    ValueType::by_type(name).ok_or_else(|| match name {
        "integer" => node.error("`integer` has no width: nft does not list the set's `typeof`"),
        _ => node.error(format!("unknown type {}", quote(name.as_bytes()))),
    })
}

fn value_type(node: &Node) -> Result<Value, FormatError> {
    if node.text() == "\"verdict\"" {
        return Ok(Value::Verdict);
    }
    let (types, layout) = key_type(node)?;
    Ok(Value::Data {
        types,
        layout,
        is_interval: false,
    })
}

/// Reads `{"typeof": ...}`: an expression, or a concatenation of several.
fn expressions(node: &Node, types: &mut Vec<ValueType>) -> Result<(), FormatError> {
    let Some(inner) = node.tagged_as("typeof")? else {
        return Err(node.expected("a type such as `ipv4_addr`, or `typeof`"));
    };
    let node = node.member("typeof", inner);
    let Some(list) = node.tagged_as("concat")? else {
        types.push(expression(&node)?);
        return Ok(());
    };
    for item in node.member("concat", list).items()? {
        types.push(expression(&item)?);
    }
    Ok(())
}

fn expression(node: &Node) -> Result<ValueType, FormatError> {
    let (tag, inner) = node.tagged()?;
    let selector = match tag.as_str() {
        "payload" => match node.member("payload", inner).object()? {
            Payload {
                protocol: Some(protocol),
                field: Some(field),
                base: None,
                offset: None,
                len: None,
            } => format!("{protocol} {field}"),
            Payload {
                protocol: None,
                field: None,
                base: Some(base),
                offset: Some(offset),
                len: Some(len),
            } if matches!(base.as_str(), "ll" | "nh" | "th") => {
                let ty = ValueType::raw_payload(&base, offset.into(), len.into());
                return ty.map_err(|message| node.error(message));
            }
            _ => {
                let what = "`protocol` and `field`, or `base` (ll, nh, th), `offset` and `len`";
                return Err(node.error(format!("expected {what}")));
            }
        },
        "meta" => {
            let Meta { key } = node.member("meta", inner).object()?;
            format!("meta {key}")
        }
        "ct" => {
            let Ct { key, family, dir } = node.member("ct", inner).object()?;
            let words = [Some("ct".into()), dir, family, Some(key)];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        tag => {
            let tag = quote(tag.as_bytes());
            return Err(node.error(format!("expected `payload`, `meta` or `ct`, found {tag}")));
        }
    };
    ValueType::by_selector(&selector).ok_or_else(|| {
        let selector = quote(selector.as_bytes());
        node.error(format!("unknown expression {selector}"))
    })
}
