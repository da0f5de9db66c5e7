//! A set or map while its file is read, in whatever format: what nft text and nft JSON have in common.

use std::sync::Arc;

use pktjit_ir::{Field, KeyLayout, Match};

use super::error::{FormatNote, quote};
use super::set::{Element, FileNames, Place, SetFlags, SetKind, SourceSet};
use super::types::ValueType;

pub(super) const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

pub(super) const AUTO_MERGE_NEEDS_INTERVAL: &str = "`auto-merge` needs `flags interval`";
pub(super) const LACKS_TIMEOUTS: &str = "the set does not hold timeouts: it has no `flags timeout`";

/// A table: its family and its name.
pub(super) type TableName = (&'static str, Box<str>);

/// A set or map while its file is read.
pub(super) struct Declaration {
    pub(super) table: TableName,
    pub(super) name: Box<str>,
    pub(super) place: Place,
    pub(super) types: Vec<ValueType>,
    pub(super) layout: KeyLayout,
    pub(super) value: Value,
    pub(super) flags: SetFlags,
    pub(super) size: Option<u32>,
    pub(super) elements: Vec<Element>,
    /// The first timeout that was read.
    pub(super) timeout: Option<Place>,
    /// Its table was deleted after it.
    pub(super) is_deleted: bool,
}

/// What the elements map to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    None,
    Verdict,
    Data {
        types: Vec<ValueType>,
        layout: KeyLayout,
        /// Values may be ranges.
        is_interval: bool,
    },
}

impl Declaration {
    pub(super) fn clear(&mut self) {
        self.elements.clear();
    }

    /// What the file's author may want to know about this set.
    pub(super) fn note(&self, files: &[Arc<str>]) -> Option<FormatNote> {
        let place = self.timeout?;
        let name = quote(self.name.as_bytes());
        let message = format!("timeouts of set {name} are read, but elements do not expire yet");
        Some(FormatNote::new(place.location(files), message))
    }

    /// Why elements have to be single values, if they have to.
    pub(super) fn lacks_ranges(&self) -> Option<&'static str> {
        (!self.flags.interval).then_some("the set does not hold ranges: it has no `flags interval`")
    }

    /// The set that was read.
    pub(super) fn finish(self, files: &FileNames) -> SourceSet {
        SourceSet {
            kind: match self.value {
                Value::None => SetKind::Set,
                Value::Verdict => SetKind::VerdictMap,
                Value::Data { .. } => SetKind::Map,
            },
            family: self.table.0,
            table: self.table.1,
            name: self.name,
            place: self.place,
            types: self.types,
            layout: self.layout,
            flags: self.flags,
            size: self.size,
            elements: self.elements,
            files: Arc::clone(files),
        }
    }

    /// Whether another declaration of the set says the same of it.
    pub(super) fn is_same_type(&self, other: &Self) -> bool {
        let kinds = |set: &Self| -> Vec<_> {
            let fields = set.layout.fields().iter();
            fields.map(|field| (field.kind(), field.bytes())).collect()
        };
        kinds(self) == kinds(other) && self.value == other.value && self.flags == other.flags
    }
}

/// The limit that a set's `size` means; as to the kernel, no size is no limit.
pub(super) fn size_limit(size: u32) -> Option<u32> {
    (size > 0).then_some(size)
}

/// The bytes of a map's value as its type lays them out; of an interval the first value, then the last.
pub(super) fn data(layout: &KeyLayout, matches: &[Match], is_interval: bool) -> Box<[u8]> {
    let ends = |end: fn(&Match, &Field) -> u128| -> Vec<u8> {
        let fields = layout.fields().iter();
        let values: Vec<u128> = fields
            .zip(matches)
            .map(|(field, found)| end(found, field))
            .collect();
        layout.encode(&values)
    };
    let mut bytes = ends(Match::lower);
    if is_interval {
        bytes.extend(ends(Match::upper));
    }
    bytes.into()
}
