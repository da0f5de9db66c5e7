//! A value of a JSON text with its place and the way to it.
//!
//! serde_json reads one level at a time: what is nested comes out as raw text, a part of the file's text. So each value knows
//! where it stands and how it is called, no tree of the file is built, and no input makes the reader recurse: what the
//! formats do not nest is refused before anyone looks inside.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::formats::error::{FormatError, quote};
use crate::formats::nft::{Lexer, TokenKind};
use crate::formats::set::Place;

/// The text that nodes are parts of.
pub(super) struct Source<'a> {
    name: [Arc<str>; 1],
    text: &'a [u8],
    line_starts: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(super) fn new(name: &Arc<str>, text: &'a [u8]) -> Self {
        let newlines = text.iter().enumerate().filter(|&(_, &byte)| byte == b'\n');
        let starts = newlines.map(|(offset, _)| offset + 1);
        Self {
            name: [Arc::clone(name)],
            text,
            line_starts: [0].into_iter().chain(starts).collect(),
        }
    }

    /// The node of the text behind `start`.
    ///
    /// # Errors
    /// The text is not UTF-8.
    pub(super) fn root(&self, start: usize) -> Result<Node<'a, '_>, FormatError> {
        let text = &self.text[start..];
        match str::from_utf8(text) {
            Ok(text) => Ok(Node {
                source: self,
                text,
                path: Path::Root,
            }),
            Err(error) => {
                let offset = start + error.valid_up_to();
                let message = format!("the byte {:#04x} is not UTF-8", self.text[offset]);
                Err(self.error(offset, message))
            }
        }
    }

    pub(super) fn file_names(&self) -> &[Arc<str>] {
        &self.name
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        Place {
            file: 0,
            line: line as u32,
            column: (offset - self.line_starts[line - 1]) as u32 + 1,
        }
    }

    fn error(&self, offset: usize, message: String) -> FormatError {
        FormatError::new(self.place(offset).location(&self.name), message)
    }
}

/// The way to a value, such as `nftables[3].set.elem[7]`.
#[derive(Clone, Copy)]
enum Path<'p> {
    Root,
    Member(&'p Path<'p>, &'static str),
    Item(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(object, name) => write!(f, "{object}.{name}"),
            Self::Item(list, index) => write!(f, "{list}[{index}]"),
        }
    }
}

/// A value that is not yet read.
#[derive(Clone, Copy)]
pub(super) struct Node<'a, 'p> {
    source: &'p Source<'a>,
    text: &'a str,
    path: Path<'p>,
}

impl<'a> Node<'a, '_> {
    pub(super) fn member(&self, name: &'static str, value: &'a RawValue) -> Node<'a, '_> {
        Node {
            source: self.source,
            text: value.get(),
            path: Path::Member(&self.path, name),
        }
    }

    pub(super) fn item(&self, index: usize, value: &'a RawValue) -> Node<'a, '_> {
        Node {
            source: self.source,
            text: value.get(),
            path: Path::Item(&self.path, index),
        }
    }

    /// The value as the file writes it.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn is_object(&self) -> bool {
        self.text.starts_with('{')
    }

    pub(super) fn place(&self) -> Place {
        self.source.place(self.offset())
    }

    /// The distance from the start of the file, which the text is a part of.
    fn offset(&self) -> usize {
        self.text.as_ptr().addr() - self.source.text.as_ptr().addr()
    }

    // Messages

    pub(super) fn error(&self, message: impl fmt::Display) -> FormatError {
        self.error_at(0, message)
    }

    fn error_at(&self, offset: usize, message: impl fmt::Display) -> FormatError {
        let message = match self.path {
            Path::Root => message.to_string(),
            path => format!("{path}: {message}"),
        };
        self.source.error(self.offset() + offset, message)
    }

    pub(super) fn expected(&self, what: &str) -> FormatError {
        let found = match self.text.as_bytes().first() {
            Some(b'{') => "an object".into(),
            Some(b'[') => "a list".into(),
            _ => quote(self.text.as_bytes()),
        };
        self.error(format!("expected {what}, found {found}"))
    }

    // Values

    /// Reads one level; members that are values of their own come out as raw text.
    pub(super) fn read<T: Deserialize<'a>>(&self) -> Result<T, FormatError> {
        serde_json::from_str(self.text).map_err(|error| {
            let lines = self.text.split_inclusive('\n');
            let before: usize = lines
                .take(error.line().saturating_sub(1))
                .map(str::len)
                .sum();
            let offset = before + error.column().saturating_sub(1);
            let text = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            let message = text.strip_suffix(&place).unwrap_or(&text);
            self.error_at(offset.min(self.text.len()), message)
        })
    }

    /// Reads an object; a derived reader alone would take a list of its members too.
    pub(super) fn object<T: Deserialize<'a>>(&self) -> Result<T, FormatError> {
        if self.is_object() {
            self.read()
        } else {
            Err(self.expected("an object"))
        }
    }

    /// Reads an object of one member, as nft writes what has a kind: `{"prefix": ...}`.
    pub(super) fn tagged(&self) -> Result<(String, &'a RawValue), FormatError> {
        let Tagged { tag, value } = self.read()?;
        Ok((tag, value))
    }

    /// What the object's only member holds if it is called `tag`; nothing is an error but bad JSON.
    pub(super) fn tagged_as(&self, tag: &str) -> Result<Option<&'a RawValue>, FormatError> {
        if !self.is_object() {
            return Ok(None);
        }
        let (found, value) = self.tagged()?;
        Ok((found == tag).then_some(value))
    }

    /// Reads a list.
    pub(super) fn items(&self) -> Result<Vec<Node<'a, '_>>, FormatError> {
        let values: Vec<&RawValue> = self.read()?;
        let items = values.into_iter().enumerate();
        Ok(items
            .map(|(index, value)| self.item(index, value))
            .collect())
    }

    /// Reads a list, or what stands for a list of one.
    pub(super) fn one_or_many(&self) -> Result<Vec<Node<'a, '_>>, FormatError> {
        if self.text.starts_with('[') {
            self.items()
        } else {
            Ok(vec![*self])
        }
    }

    /// Reads a text that can be shown in one line.
    pub(super) fn string(&self) -> Result<String, FormatError> {
        let text: String = self.read()?;
        if text.chars().any(char::is_control) {
            return Err(self.error(format!("{} has control characters", quote(text.as_bytes()))));
        }
        Ok(text)
    }

    /// Reads a name that nft text can hold too.
    pub(super) fn name(&self) -> Result<String, FormatError> {
        let name = self.string()?;
        let word = Lexer::new().next(name.as_bytes());
        if word.kind == TokenKind::Word && word.text(name.as_bytes()) == name.as_bytes() {
            Ok(name)
        } else {
            Err(self.error(format!("{} is not a name", quote(name.as_bytes()))))
        }
    }
}

/// The only member of an object.
struct Tagged<'a> {
    tag: String,
    value: &'a RawValue,
}

impl<'de: 'a, 'a> Deserialize<'de> for Tagged<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneMember<'a>(PhantomData<&'a str>);

        impl<'de: 'a, 'a> Visitor<'de> for OneMember<'a> {
            type Value = Tagged<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of one member")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let Some((tag, value)) = members.next_entry::<String, &RawValue>()? else {
                    return Err(Error::custom(
                        "expected an object of one member, found none",
                    ));
                };
                match members.next_key::<String>()? {
                    None => Ok(Tagged { tag, value }),
                    Some(second) => {
                        let second = quote(second.as_bytes());
                        let message =
                            format!("expected an object of one member, found {second} too");
                        Err(Error::custom(message))
                    }
                }
            }
        }

        deserializer.deserialize_map(OneMember(PhantomData))
    }
}
