//! Keys as text: one argument, or the lines of a key file.
//!
//! A key of an nft set is a concatenated value as its elements write it, `192.0.2.1 . 80`. A key of a ClassBench file is
//! `sip dip sport dport proto`, dotted or decimal, and may be followed by the rule that it is expected to hit, as in the
//! generator's traces.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use pktjit_ir::{FieldKind, RuleId};
use thiserror::Error;

use super::classbench::one_blank;
use super::error::{FormatError, Location, quote};
use super::nft::{Lexer, Token, TokenKind};
use super::set::{SetKind, SourceSet};
use super::source::GZIP_MAGIC;
use super::types::{ValueType, number};

/// Most bytes of a line of a key file: far more than sixteen fields need.
const MAX_LINE: u64 = 4096;

/// A key that was read from text.
///
/// ```
/// use pktjit::formats::RuleFile;
/// let text = b"table ip t {\n set s { type ipv4_addr . inet_service; }\n}\n";
/// let file = RuleFile::parse("rules.nft", text).unwrap();
/// let set = file.set(None).unwrap();
/// let key = set.key("192.0.2.1  .  http").unwrap();
/// assert_eq!(key.values, [0xc000_0201, 80]);
/// assert_eq!(key.text, "192.0.2.1 . http".into());
/// // The bytes to look up, in a layout of the set's fields.
/// assert_eq!(set.packed_layout().encode(&key.values), [192, 0, 2, 1, 0, 80]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextKey {
    /// The key as it was written: without a comment and the expected rule, white space made one blank.
    pub text: Box<str>,
    /// The value of each field, in the order of the set's fields.
    pub values: Vec<u128>,
    /// What the sixth number of a ClassBench trace expects the key to hit; `None` where there is none.
    pub expected: Option<Expected>,
}

/// What a key is expected to hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No rule, written `-1`.
    Miss,
    /// The rule of this position.
    Rule(RuleId),
}

/// Why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("key:1:{column}: {message}")]
pub struct KeyTextError {
    column: u32,
    message: Box<str>,
}

impl KeyTextError {
    fn new(column: u32, message: impl Into<Box<str>>) -> Self {
        Self {
            column,
            message: message.into(),
        }
    }

    /// The byte in the text, counted from 1.
    #[must_use]
    pub fn column(&self) -> u32 {
        self.column
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl SourceSet {
    /// Reads one key of this set.
    ///
    /// # Errors
    /// A wrong value, too few or too many fields, a range.
    pub fn key(&self, text: &str) -> Result<TextKey, KeyTextError> {
        self.key_of_bytes(text.as_bytes())
    }

    fn key_of_bytes(&self, text: &[u8]) -> Result<TextKey, KeyTextError> {
        let text = without_comment(text).trim_ascii_end();
        // A backslash would let the lexer go on behind it.
        if let Some(newline) = text.iter().position(|&byte| byte == b'\n') {
            return Err(KeyTextError::new(newline as u32 + 1, "a key is one line"));
        }
        match self.kind() {
            SetKind::ClassBench => classbench_key(text, &self.types),
            _ => nft_key(text, &self.types),
        }
    }
}

/// The text before a `#` that is not in quotes.
fn without_comment(text: &[u8]) -> &[u8] {
    let mut is_quoted = false;
    let end = text.iter().position(|&byte| {
        is_quoted ^= byte == b'"';
        byte == b'#' && !is_quoted
    });
    &text[..end.unwrap_or(text.len())]
}

fn nft_key(text: &[u8], types: &[ValueType]) -> Result<TextKey, KeyTextError> {
    let mut lexer = Lexer::new();
    let mut values = Vec::with_capacity(types.len());
    for (index, ty) in types.iter().enumerate() {
        if index > 0 {
            let dot = lexer.next(text);
            if !dot.is(b'.') {
                let what = format!("` . ` and {}", missing(index, types));
                return Err(unexpected(&what, dot, text));
            }
        }
        let word = lexer.next(text);
        if !word.is_value() {
            return Err(unexpected(&missing(index, types), word, text));
        }
        let value = ty.parse(word.text(text));
        values.push(value.map_err(|message| KeyTextError::new(word.column, message))?);
    }
    let end = lexer.next(text);
    match end.kind {
        TokenKind::End => Ok(TextKey {
            text: one_blank(text),
            values,
            expected: None,
        }),
        TokenKind::Punctuation(b'-' | b'/') => Err(KeyTextError::new(
            end.column,
            "a key has one value for each field, not a range or a prefix",
        )),
        _ => Err(unexpected("the end of the key", end, text)),
    }
}

/// What stands where field `index` is not.
fn missing(index: usize, types: &[ValueType]) -> String {
    let ty = &types[index];
    format!(
        "field {} of {} (`{}`), {}",
        index + 1,
        types.len(),
        ty.field().name(),
        ty.expected()
    )
}

fn unexpected(what: &str, found: Token, text: &[u8]) -> KeyTextError {
    let found_text = match found.kind {
        TokenKind::End => "the end of the key".into(),
        _ => quote(found.text(text)),
    };
    KeyTextError::new(found.column, format!("expected {what}, found {found_text}"))
}

fn classbench_key(text: &[u8], types: &[ValueType]) -> Result<TextKey, KeyTextError> {
    let mut words = text
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        // Words are parts of `text`, so their distance is the column.
        .map(|word| (word.as_ptr().addr() - text.as_ptr().addr(), word));
    let mut values = Vec::with_capacity(types.len());
    let mut end = 0;
    for (index, ty) in types.iter().enumerate() {
        let Some((start, word)) = words.next() else {
            let message = format!(
                "expected {}, found the end of the key",
                missing(index, types)
            );
            return Err(KeyTextError::new(end as u32 + 1, message));
        };
        end = start + word.len();
        let decimal = (ty.field().kind() == FieldKind::Ipv4Addr)
            .then(|| number(word).ok())
            .flatten()
            .filter(|&value| value <= ty.field().max());
        let value = decimal.map_or_else(|| ty.parse(word), Ok);
        values.push(value.map_err(|message| KeyTextError::new(start as u32 + 1, message))?);
    }
    let expected = match words.next() {
        None => None,
        Some((start, word)) => Some(expected_rule(word).ok_or_else(|| {
            let message = format!("{} is not a rule's number or -1", quote(word));
            KeyTextError::new(start as u32 + 1, message)
        })?),
    };
    if let Some((start, word)) = words.next() {
        let message = format!("expected the end of the key, found {}", quote(word));
        return Err(KeyTextError::new(start as u32 + 1, message));
    }
    Ok(TextKey {
        text: one_blank(&text[..end]),
        values,
        expected,
    })
}

fn expected_rule(word: &[u8]) -> Option<Expected> {
    if word == b"-1" {
        return Some(Expected::Miss);
    }
    let rule = u32::try_from(number(word).ok()?).ok()?;
    Some(Expected::Rule(RuleId::new(rule)))
}

/// The keys of a file, read line by line; blank lines and lines that start with `#` hold none.
///
/// Iteration ends at the first error.
///
/// ```
/// use pktjit::formats::{Expected, KeyFile, RuleFile};
/// let rules = RuleFile::parse("acl", b"@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n").unwrap();
/// let trace = "# a trace\n167772161 1 1024 80 6 0\n10.0.0.1 1 1024 81 6 -1\n";
/// let keys = KeyFile::new("acl.trace", trace.as_bytes(), rules.set(None).unwrap()).unwrap();
/// let expected: Vec<_> = keys.map(|key| key.unwrap().expected.unwrap()).collect();
/// assert_eq!(expected[1], Expected::Miss);
/// ```
pub struct KeyFile<'a> {
    set: &'a SourceSet,
    file: Arc<str>,
    lines: Box<dyn BufRead + 'a>,
    line: u32,
    is_done: bool,
}

impl<'a> KeyFile<'a> {
    /// Opens a file of keys of `set`; gzip is undone.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn open(path: impl AsRef<Path>, set: &'a SourceSet) -> Result<Self, FormatError> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        let file = File::open(path).map_err(|error| {
            FormatError::new(
                Location::start_of(&Arc::from(&*name)),
                format!("cannot be opened: {error}"),
            )
        })?;
        Self::new(&name, file, set)
    }

    /// Reads keys of `set` from `input`, which messages call `name`; gzip is undone.
    ///
    /// # Errors
    /// The first bytes cannot be read.
    pub fn new(name: &str, input: impl Read + 'a, set: &'a SourceSet) -> Result<Self, FormatError> {
        let file: Arc<str> = name.into();
        let mut input = BufReader::new(input);
        let start = input
            .fill_buf()
            .map_err(|error| FormatError::new(Location::start_of(&file), error.to_string()))?;
        let lines: Box<dyn BufRead + 'a> = if start.starts_with(&GZIP_MAGIC) {
            Box::new(BufReader::new(MultiGzDecoder::new(input)))
        } else {
            Box::new(input)
        };
        Ok(Self {
            set,
            file,
            lines,
            line: 0,
            is_done: false,
        })
    }

    /// The number of the line that was read last, counted from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.line
    }

    fn error(&self, column: u32, message: impl Into<Box<str>>) -> FormatError {
        let location = Location {
            file: Arc::clone(&self.file),
            line: self.line,
            column,
        };
        FormatError::new(location, message)
    }

    /// The next key; `None` at the end.
    fn read(&mut self) -> Result<Option<TextKey>, FormatError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            self.line = self.line.saturating_add(1);
            let read = self
                .lines
                .by_ref()
                .take(MAX_LINE + 1)
                .read_until(b'\n', &mut line);
            if let Err(error) = read {
                return Err(self.error(1, format!("cannot be read: {error}")));
            }
            if line.is_empty() {
                return Ok(None);
            }
            if line.len() as u64 > MAX_LINE {
                return Err(self.error(1, format!("a line of more than {MAX_LINE} bytes")));
            }
            if without_comment(&line).trim_ascii().is_empty() {
                continue;
            }
            return match self.set.key_of_bytes(&line) {
                Ok(key) => Ok(Some(key)),
                Err(error) => Err(self.error(error.column, error.message)),
            };
        }
    }
}

impl Iterator for KeyFile<'_> {
    type Item = Result<TextKey, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let key = self.read().transpose();
        self.is_done = !matches!(key, Some(Ok(_)));
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::RuleFile;

    fn file(ty: &str) -> RuleFile {
        let text = format!("table t {{ set s {{ type {ty}; }}\n}}\n");
        RuleFile::parse("f", text.as_bytes()).unwrap()
    }

    fn classbench() -> RuleFile {
        RuleFile::parse("f", b"@0.0.0.0/0 0.0.0.0/0 0 : 1 0 : 1 0/0\n").unwrap()
    }

    fn keys(file: &RuleFile, text: &[u8]) -> Vec<Result<TextKey, String>> {
        let keys = KeyFile::new("k", text, file.set(None).unwrap()).unwrap();
        keys.map(|key| key.map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn nft_keys_are_read_as_elements_write_them() {
        let file = file("ipv4_addr . inet_service . ifname . mark");
        let key = file.sets()[0]
            .key(" 10.0.0.1 . ssh\t.  \"a#b\" . 0x10 # note\n")
            .unwrap();
        assert_eq!(&*key.text, "10.0.0.1 . ssh . \"a#b\" . 0x10");
        assert_eq!(key.values, [0x0a00_0001, 22, 0x61_2362 << 104, 16]);
        assert_eq!(key.expected, None);
    }

    #[test]
    fn wrong_nft_keys_name_what_is_missing() {
        let file = file("ipv4_addr . inet_service");
        let field_2 = "field 2 of 2 (`inet_service`), a port (known service or 0 to 65535)";
        for (text, error) in [
            ("", "key:1:1: expected field 1 of 2 (`ipv4_addr`), an IPv4 address, found the end of the key".into()),
            ("1.1.1.1", format!("key:1:8: expected ` . ` and {field_2}, found the end of the key")),
            ("1.1.1.1 .", format!("key:1:10: expected {field_2}, found the end of the key")),
            ("1.1.1.1 80", format!("key:1:9: expected ` . ` and {field_2}, found `80`")),
            ("1.1.1.1 .80", format!("key:1:9: expected ` . ` and {field_2}, found `.80`")),
            ("1.1.1.1.80", "key:1:1: `1.1.1.1.80` is not an IPv4 address".into()),
            ("1.1.1.1 . 80 . 1", "key:1:14: expected the end of the key, found `.`".into()),
            ("1.1.1.1 . 80-81", "key:1:13: a key has one value for each field, not a range or a prefix".into()),
            ("1.1.1.1/24 . 80", format!("key:1:8: expected ` . ` and {field_2}, found `/`")),
            ("1.1.1.1 . 70000", "key:1:11: `70000` is too large: expected a port (known service or 0 to 65535)".into()),
            ("1.1.1.1 . \\\n80", "key:1:12: a key is one line".into()),
            ("1.1.1.1 . 80 \\\n", "key:1:14: expected the end of the key, found `\\`".into()),
            ("1.1.1.1 . 80\n1.1.1.1 . 81", "key:1:13: a key is one line".into()),
            ("1.1.1.1 . $x", format!("key:1:11: expected {field_2}, found `x`")),
        ] {
            assert_eq!(file.sets()[0].key(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn classbench_keys_are_dotted_or_decimal_and_may_expect_a_rule() {
        let file = classbench();
        let read = |text: &str| file.sets()[0].key(text).unwrap();
        let key = read("167772161 10.0.0.2\t1   2 tcp 958");
        assert_eq!(key.values, [0x0a00_0001, 0x0a00_0002, 1, 2, 6]);
        assert_eq!(&*key.text, "167772161 10.0.0.2 1 2 tcp");
        assert_eq!(key.expected, Some(Expected::Rule(RuleId::new(958))));
        assert_eq!(read("1 2 3 4 5 -1").expected, Some(Expected::Miss));
        assert_eq!(read("1 2 3 4 5").expected, None);
    }

    #[test]
    fn wrong_classbench_keys_name_what_is_missing() {
        let file = classbench();
        for (text, error) in [
            (
                "1 2 3",
                "key:1:6: expected field 4 of 5 (`dport`), a port (known service or 0 to 65535), found the end of the key",
            ),
            (
                "4294967296 2 3 4 5",
                "key:1:1: `4294967296` is not an IPv4 address",
            ),
            (
                "1 2 3 65536 5",
                "key:1:7: `65536` is too large: expected a port (known service or 0 to 65535)",
            ),
            ("1 2 3 4 5 x", "key:1:11: `x` is not a rule's number or -1"),
            (
                "1 2 3 4 5 -2",
                "key:1:11: `-2` is not a rule's number or -1",
            ),
            (
                "1 2 3 4 5 6 7",
                "key:1:13: expected the end of the key, found `7`",
            ),
        ] {
            assert_eq!(
                file.sets()[0].key(text).unwrap_err().to_string(),
                error,
                "{text}"
            );
        }
    }

    #[test]
    fn a_key_file_skips_comments_and_stops_at_the_first_error() {
        let text = b"# comment\n\n  # another\n1\n 2 # two\r\nx\n3\n";
        let keys = keys(&file("mark"), text);
        assert_eq!(keys.len(), 3);
        assert_eq!(keys[1].as_ref().unwrap().values, [2]);
        assert_eq!(
            keys[2],
            Err("k:6:1: `x` is not a mark (0 to 0xffffffff)".into())
        );
    }

    #[test]
    fn a_key_file_may_be_packed_and_must_be_whole() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"1\n2").unwrap();
        let packed = encoder.finish().unwrap();
        let file = file("mark");
        assert!(
            keys(&file, &packed)
                .iter()
                .map(|key| key.as_ref().unwrap().values[0])
                .eq([1, 2])
        );
        let cut = keys(&file, &packed[..packed.len() - 4]);
        assert!(
            cut.last()
                .unwrap()
                .as_ref()
                .unwrap_err()
                .contains("cannot be read")
        );
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let keys = keys(&file("mark"), &[b' '; 5000]);
        assert_eq!(keys, [Err("k:1:1: a line of more than 4096 bytes".into())]);
    }
}
