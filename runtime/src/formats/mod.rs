//! Readers of rule files, nft text, nft JSON and ClassBench, and of key files.
//!
//! A file's content tells its format, not its name, and any file may be compressed with gzip. A [`RuleFile`] holds the sets
//! as they are written; [`SourceSet::rule_set`] makes the rules of one.
//!
//! ```
//! use pktjit::formats::RuleFile;
//!
//! let text = b"
//! table inet filter {
//!     map services {
//!         type ipv4_addr . inet_service : verdict
//!         flags interval
//!         elements = { 192.0.2.0/24 . ssh : accept, 10.0.0.1-10.0.0.9 . 1024-65535 : jump high, * : drop }
//!     }
//! }";
//! let file = RuleFile::parse("rules.nft", text).unwrap();
//! let set = file.set(Some("services")).unwrap();
//! let rules = set.rule_set(set.packed_layout().clone(), None).unwrap();
//! assert_eq!(rules.rules().len(), 3);
//! assert_eq!(set.elements()[1].verdict_text(), "jump high");
//! ```
//!
//! Everything that is not understood in a set is an error that says where it stands; what is skipped or changed is told
//! by notes. No input makes a reader panic, recurse without bound, or take more than time in proportion to its size.

mod classbench;
mod declaration;
mod error;
mod json;
mod key;
mod names;
mod nft;
mod set;
mod source;
#[cfg(test)]
mod tests;
mod types;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::error::{FormatError, FormatNote, Location};
pub use self::key::{Expected, KeyFile, KeyTextError, TextKey};
pub use self::set::{Element, SetFlags, SetKind, SourceSet};

/// The sets of a rule file, in the order in which they are declared.
#[derive(Clone, Debug)]
pub struct RuleFile {
    name: Arc<str>,
    sets: Vec<SourceSet>,
    notes: Vec<FormatNote>,
}

impl RuleFile {
    /// Reads a rule file and the files that it includes.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FormatError> {
        let path = path.as_ref();
        let name: Arc<str> = path.to_string_lossy().into();
        let text =
            source::read(path).map_err(|why| FormatError::new(Location::start_of(&name), why))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        parse(name, &text, Some(directory.into()))
    }

    /// Reads the content of a rule file, which messages call `name`. An `include` is an error here.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(name: &str, content: &[u8]) -> Result<Self, FormatError> {
        let name: Arc<str> = name.into();
        if content.starts_with(&source::GZIP_MAGIC) {
            let text = source::unpack(content)
                .map_err(|why| FormatError::new(Location::start_of(&name), why))?;
            parse(name, &text, None)
        } else {
            parse(name, content, None)
        }
    }

    /// The sets in the order of their declarations; a ClassBench file has one.
    #[must_use]
    pub fn sets(&self) -> &[SourceSet] {
        &self.sets
    }

    /// What was skipped or has no effect yet.
    #[must_use]
    pub fn notes(&self) -> &[FormatNote] {
        &self.notes
    }

    /// The set that is called `name`, `table name` or `family table name`; without a name, the only one.
    ///
    /// # Errors
    /// No set or several sets of this name: the error lists what there is.
    pub fn set(&self, name: Option<&str>) -> Result<&SourceSet, FormatError> {
        let words: Vec<&str> = name.unwrap_or_default().split_whitespace().collect();
        let is_named = |set: &&SourceSet| {
            let path = [set.family(), set.table(), set.name()];
            name.is_none() || (!words.is_empty() && path.ends_with(&words))
        };
        let found: Vec<&SourceSet> = self.sets.iter().filter(is_named).collect();
        let message = match (&found[..], name) {
            (&[set], _) => return Ok(set),
            ([], None) => "the file holds no set".into(),
            ([], Some(name)) => {
                let name = error::quote(name.as_bytes());
                match &self.sets[..] {
                    [] => format!("no set {name}: the file holds none"),
                    sets => format!("no set {name}: the file holds {}", list(sets.iter())),
                }
            }
            (several, _) => format!("choose a set: {}", list(several.iter().copied())),
        };
        Err(FormatError::new(Location::start_of(&self.name), message))
    }
}

fn list<'a>(sets: impl Iterator<Item = &'a SourceSet>) -> String {
    let names: Vec<String> = sets.map(|set| format!("`{set}`")).collect();
    names.join(", ")
}

/// Tells the format by the first byte that is neither blank nor comment, and reads it.
fn parse(name: Arc<str>, text: &[u8], directory: Option<PathBuf>) -> Result<RuleFile, FormatError> {
    if text.len() > source::MAX_BYTES {
        let message = format!("more than {} bytes", source::MAX_BYTES);
        return Err(FormatError::new(Location::start_of(&name), message));
    }
    let mut lexer = nft::Lexer::new();
    let first = loop {
        let token = lexer.next(text);
        if token.kind != nft::TokenKind::Newline {
            break token;
        }
    };
    let refuse = |message: String| {
        let location = Location {
            file: Arc::clone(&name),
            line: first.line,
            column: first.column,
        };
        Err(FormatError::new(location, message))
    };
    let (sets, notes) = match text.get(first.start as usize) {
        Some(b'@') => {
            let (set, notes) = classbench::parse(&name, text)?;
            (vec![set], notes)
        }
        Some(b'{' | b'[') => json::parse(&name, text, first.start as usize)?,
        None | Some(b';') => nft::parse(&name, text, directory)?,
        Some(byte) if byte.is_ascii_alphabetic() => nft::parse(&name, text, directory)?,
        Some(&byte) => {
            let start = byte.escape_ascii();
            return refuse(format!(
                "neither nft text, nft JSON nor ClassBench starts with `{start}`"
            ));
        }
    };
    Ok(RuleFile { name, sets, notes })
}
