//! Where something stands in a file, and the errors and notes that point there.
//!
//! Lines and columns count from 1, columns in bytes. What concerns a file as a whole stands at 1:1, so that every message
//! has the form `file:line:col: message`.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// A place in a file, written `file:line:col`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub(super) file: Arc<str>,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Location {
    pub(super) fn start_of(file: &Arc<str>) -> Self {
        Self {
            file: Arc::clone(file),
            line: 1,
            column: 1,
        }
    }

    /// The file's name, as it was given or as `include` names it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, counted from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The byte in the line, counted from 1.
    #[must_use]
    pub fn column(&self) -> u32 {
        self.column
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Why a rule file or a key file was refused: the first thing that is wrong with it.
///
/// ```
/// use pktjit::formats::RuleFile;
/// let text = b"table ip t {\n  set s { type ipv4_addr; elements = { 10.0.0.256 } }\n}\n";
/// let error = RuleFile::parse("rules.nft", text).unwrap_err();
/// assert_eq!(error.to_string(), "rules.nft:2:40: `10.0.0.256` is not an IPv4 address");
/// assert_eq!((error.location().line(), error.location().column()), (2, 40));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{location}: {message}")]
pub struct FormatError {
    location: Location,
    message: Box<str>,
}

impl FormatError {
    pub(super) fn new(location: Location, message: impl Into<Box<str>>) -> Self {
        Self {
            location,
            message: message.into(),
        }
    }

    /// Where.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Something that was skipped or changed while reading, and that the author of the file may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatNote {
    location: Location,
    message: Box<str>,
}

impl FormatNote {
    pub(super) fn new(location: Location, message: impl Into<Box<str>>) -> Self {
        Self {
            location,
            message: message.into(),
        }
    }

    /// Where.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// What was done, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for FormatNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: note: {}", self.location, self.message)
    }
}

/// Text of a file as a message quotes it: in backquotes, control characters escaped, cut where it is long.
pub(super) fn quote(text: &[u8]) -> String {
    const LONGEST: usize = 80;
    let cut = text.len() > LONGEST;
    let shown = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]);
    let escaped: String = shown
        .chars()
        .flat_map(|c| {
            let escape = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escape.into_iter().flatten().chain(plain)
        })
        .collect();
    format!("`{escaped}{}`", if cut { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_short_and_printable() {
        assert_eq!(quote(b"a\x1b[31m\tb"), "`a\\u{1b}[31m\\tb`");
        assert_eq!(quote(&[b'x'; 200]).len(), 80 + 5);
        assert_eq!(quote(b"\xff"), "`\u{fffd}`");
    }
}
