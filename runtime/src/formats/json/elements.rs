//! The elements of a set or map: keys, options and values.
//!
//! Their texts are put together as in nft text, marks in hexadecimal, so that messages and verdicts are the same for both.

use pktjit_ir::{FieldKind, Match, Rule, Verdict};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::node::Node;
use crate::formats::declaration::{Declaration, LACKS_TIMEOUTS, Value, data};
use crate::formats::error::{FormatError, quote};
use crate::formats::set::Element;
use crate::formats::types::{ValueType, range};

/// What `{"elem": ...}` holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped<'a> {
    #[serde(borrow)]
    val: &'a RawValue,
    timeout: Option<u64>,
    expires: Option<u64>,
    #[serde(rename = "comment")]
    _comment: Option<String>,
    #[serde(rename = "counter")]
    _counter: Option<Counter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    #[serde(rename = "packets")]
    _packets: u64,
    #[serde(rename = "bytes")]
    _bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prefix<'a> {
    #[serde(borrow)]
    addr: &'a RawValue,
    #[serde(borrow)]
    len: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target<'a> {
    #[serde(borrow)]
    target: &'a RawValue,
}

/// Reads a list of elements into a set.
pub(super) fn elements(list: &Node, set: &mut Declaration) -> Result<(), FormatError> {
    let mut values = Vec::new();
    for item in list.items()? {
        let element = element(&item, set, &mut values)?;
        set.elements.push(element);
    }
    if let Value::Data {
        layout,
        is_interval,
        ..
    } = &mut set.value
    {
        // nft does not list whether values are intervals: they are where one of them is.
        let mut matches = values.iter().flatten();
        *is_interval = matches.any(|found| !matches!(found, Match::Exact(_)));
        for (element, matches) in set.elements.iter_mut().zip(&values) {
            element.rule.verdict = Verdict::Data(data(layout, matches, *is_interval));
        }
    }
    Ok(())
}

/// Reads an element. What a data map's key maps to goes to `values`, as it is encoded only when all values are known.
fn element(
    item: &Node,
    set: &mut Declaration,
    values: &mut Vec<Vec<Match>>,
) -> Result<Element, FormatError> {
    let place = item.place();
    if set.value == Value::None {
        let (text, rule) = key(item, set)?;
        return Ok(Element {
            place,
            text: text.into(),
            value: None,
            is_created: false,
            rule,
        });
    }
    let (left, right): (&RawValue, &RawValue) = item.read()?;
    let (text, mut rule) = key(&item.item(0, left), set)?;
    let right = item.item(1, right);
    let value = match &set.value {
        Value::Data { types, .. } => {
            let (text, matches) = concatenation(&right, types, None)?;
            values.push(matches);
            text
        }
        Value::None | Value::Verdict => {
            let (text, verdict) = verdict(&right)?;
            rule.verdict = verdict;
            text
        }
    };
    Ok(Element {
        place,
        text: text.into(),
        value: Some(value.into()),
        is_created: false,
        rule,
    })
}

/// Reads the key of an element, with the options that may be wrapped around it.
fn key(node: &Node, set: &mut Declaration) -> Result<(String, Rule), FormatError> {
    let Some(wrapped) = node.tagged_as("elem")? else {
        return bare_key(node, set);
    };
    let node = node.member("elem", wrapped);
    let wrapped: Wrapped = node.object()?;
    if wrapped.timeout.or(wrapped.expires).is_some() {
        if !set.flags.timeout {
            return Err(node.error(LACKS_TIMEOUTS));
        }
        set.timeout = set.timeout.or(Some(node.place()));
    }
    bare_key(&node.member("val", wrapped.val), set)
}

fn bare_key(node: &Node, set: &Declaration) -> Result<(String, Rule), FormatError> {
    if node.text() == "\"*\"" {
        return Ok(("*".into(), Rule::catch_all(set.types.len())));
    }
    let (text, matches) = concatenation(node, &set.types, set.lacks_ranges())?;
    Ok((text, Rule::new(matches)))
}

/// Reads one match per type; `lacks` says why they have to be single values, if they have to.
fn concatenation(
    node: &Node,
    types: &[ValueType],
    lacks: Option<&str>,
) -> Result<(String, Vec<Match>), FormatError> {
    if let [ty] = types {
        let (text, found) = operand(node, ty, lacks)?;
        return Ok((text, vec![found]));
    }
    let Some(list) = node.tagged_as("concat")? else {
        return Err(node.expected(&format!("`concat` of {} fields", types.len())));
    };
    let list = node.member("concat", list);
    let items = list.items()?;
    if items.len() != types.len() {
        let message = format!("{} fields in place of {}", items.len(), types.len());
        return Err(list.error(message));
    }
    let mut matches = Vec::with_capacity(types.len());
    let mut texts = Vec::with_capacity(types.len());
    for (item, ty) in items.iter().zip(types) {
        let (text, found) = operand(item, ty, lacks)?;
        texts.push(text);
        matches.push(found);
    }
    Ok((texts.join(" . "), matches))
}

/// Reads a value, a prefix, a range, or the start of interface names.
fn operand(
    node: &Node,
    ty: &ValueType,
    lacks: Option<&str>,
) -> Result<(String, Match), FormatError> {
    let (text, found) = if node.is_object() {
        let (tag, inner) = node.tagged()?;
        match tag.as_str() {
            "prefix" => prefix(&node.member("prefix", inner), ty)?,
            "range" => interval(&node.member("range", inner), ty)?,
            tag => {
                let (what, tag) = (ty.expected(), quote(tag.as_bytes()));
                return Err(node.error(format!("expected {what}, found {tag}")));
            }
        }
    } else {
        value(node, ty)?
    };
    match lacks {
        Some(message) if !matches!(found, Match::Exact(_)) => Err(node.error(message)),
        _ => Ok((text, found)),
    }
}

fn prefix(node: &Node, ty: &ValueType) -> Result<(String, Match), FormatError> {
    let Prefix { addr, len } = node.object()?;
    let (text, value) = single(&node.member("addr", addr), ty)?;
    let len = node.member("len", len);
    let bits = ty.parse_prefix_len(len.text().as_bytes());
    let len = bits.map_err(|message| len.error(message))?;
    Ok((format!("{text}/{len}"), Match::Prefix { value, len }))
}

fn interval(node: &Node, ty: &ValueType) -> Result<(String, Match), FormatError> {
    let (lo, hi): (&RawValue, &RawValue) = node.read()?;
    let (first, lo) = single(&node.item(0, lo), ty)?;
    let (last, hi) = single(&node.item(1, hi), ty)?;
    let found = range((lo, first.as_bytes()), (hi, last.as_bytes()));
    let found = found.map_err(|message| node.error(message))?;
    Ok((format!("{first}-{last}"), found))
}

/// Reads the value that a prefix or one end of a range is made of.
fn single(node: &Node, ty: &ValueType) -> Result<(String, u128), FormatError> {
    match value(node, ty)? {
        (text, Match::Exact(value)) => Ok((text, value)),
        _ => Err(node.expected("a single value")),
    }
}

/// Reads a string or a number.
fn value(node: &Node, ty: &ValueType) -> Result<(String, Match), FormatError> {
    let text = match node.text().as_bytes().first() {
        Some(b'"') => node.string()?,
        // Read by the type, which knows how many bits there may be.
        Some(b'-' | b'0'..=b'9') => node.text().into(),
        _ => return Err(node.expected(&ty.expected())),
    };
    let found = ty.parse_match(text.as_bytes());
    let found = found.map_err(|message| node.error(message))?;
    let text = match (ty.field().kind(), &found) {
        (FieldKind::Ifname, _) => format!("\"{text}\""),
        (FieldKind::Mark, Match::Exact(mark)) => format!("{mark:#010x}"),
        _ => text,
    };
    Ok((text, found))
}

fn verdict(node: &Node) -> Result<(String, Verdict), FormatError> {
    let what = "a verdict: `accept`, `drop`, `continue`, `return`, `jump` or `goto`";
    if !node.is_object() {
        return Err(node.expected(what));
    }
    let (tag, inner) = node.tagged()?;
    let without_target = |verdict, name| {
        node.member(name, inner).read::<()>()?;
        Ok((name.to_owned(), verdict))
    };
    let with_target = |verdict: fn(Box<str>) -> Verdict, name| {
        let node = node.member(name, inner);
        let Target { target } = node.object()?;
        let target = node.member("target", target).name()?;
        Ok((format!("{name} {target}"), verdict(target.into())))
    };
    match tag.as_str() {
        "accept" => without_target(Verdict::Accept, "accept"),
        "drop" => without_target(Verdict::Drop, "drop"),
        "continue" => without_target(Verdict::Continue, "continue"),
        "return" => without_target(Verdict::Return, "return"),
        "jump" => with_target(Verdict::Jump, "jump"),
        "goto" => with_target(Verdict::Goto, "goto"),
        tag => {
            let tag = quote(tag.as_bytes());
            Err(node.error(format!("expected {what}, found {tag}")))
        }
    }
}
