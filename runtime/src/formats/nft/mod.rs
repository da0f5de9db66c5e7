//! nft text: the commands and tables of a file, and the sets and maps in them.
//!
//! ```text
//! lexer (words) -> reader (files and variables as one stream) -> commands here -> block -> elements
//! ```
//!
//! What nft would refuse in a set or map is refused here too; what belongs to chains is skipped with a note.

mod block;
mod elements;
mod lexer;
mod reader;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use self::reader::{Reader, Word};
use super::declaration::{Declaration, FAMILIES, TableName};
use super::error::{FormatError, FormatNote, quote};
use super::set::{FileNames, SourceSet};

pub(super) use self::lexer::{Lexer, Token, TokenKind};

/// What a table or file may hold besides sets and maps, and a reader of sets passes over.
const OTHER_OBJECTS: [&str; 9] = [
    "chain",
    "rule",
    "flowtable",
    "counter",
    "quota",
    "limit",
    "ct",
    "secmark",
    "synproxy",
];

/// Reads the sets and maps of nft text; `include` looks in `directory`.
pub(super) fn parse(
    name: &Arc<str>,
    text: &[u8],
    directory: Option<PathBuf>,
) -> Result<(Vec<SourceSet>, Vec<FormatNote>), FormatError> {
    let mut parser = Parser {
        reader: Reader::new(Arc::clone(name), text, directory),
        tables: HashMap::new(),
        sets: Vec::new(),
    };
    while parser.reader.peek().kind() != TokenKind::End {
        parser.command()?;
    }
    let files: FileNames = parser.reader.names().into();
    let mut notes = parser.reader.notes;
    let kept = parser.sets.into_iter().filter(|set| !set.is_deleted);
    let sets = kept.map(|set| {
        notes.extend(set.note(&files));
        set.finish(&files)
    });
    Ok((sets.collect(), notes))
}

/// The sets of a table by name: their indices in [`Parser::sets`].
type SetIndices = HashMap<Box<str>, usize>;

struct Parser {
    reader: Reader,
    /// The tables of each family.
    tables: HashMap<&'static str, HashMap<Box<str>, SetIndices>>,
    /// In the order of their declarations, those that were deleted included.
    sets: Vec<Declaration>,
}

impl Parser {
    /// Reads one command, or the empty line in its place.
    fn command(&mut self) -> Result<(), FormatError> {
        let word = self.reader.peek();
        match word.kind() {
            TokenKind::Newline | TokenKind::Punctuation(b';') => {
                self.reader.next();
                return Ok(());
            }
            TokenKind::Word => {}
            _ => return Err(self.expected_command(word)),
        }
        if self.common_statement()? {
            return Ok(());
        }
        match self.reader.text(word) {
            b"add" => {
                self.reader.next();
                self.object(false)?;
            }
            b"create" => {
                self.reader.next();
                self.object(true)?;
            }
            b"insert" | b"replace" => {
                self.reader.next();
                self.skip_object()?;
            }
            b"flush" => self.flush()?,
            b"delete" | b"destroy" => self.delete()?,
            _ => self.object(false)?,
        }
        // Not `end_statement`: no block is open that a `}` could end.
        let end = self.reader.next();
        match end.kind() {
            TokenKind::Newline | TokenKind::End | TokenKind::Punctuation(b';') => Ok(()),
            _ => Err(self.reader.expected("`;` or a new line", end)),
        }
    }

    fn expected_command(&self, found: Word) -> FormatError {
        let what = "a command such as `table`, `add element` or `define`";
        self.reader.expected(what, found)
    }

    /// Reads a statement that every block may hold, with its end; tells whether it was one.
    fn common_statement(&mut self) -> Result<bool, FormatError> {
        let word = self.reader.peek();
        match self.reader.text(word) {
            b"define" | b"redefine" => {
                let may_exist = self.reader.is_word(word, "redefine");
                self.reader.next();
                self.reader.define(may_exist)?;
            }
            b"undefine" => {
                self.reader.next();
                self.reader.undefine()?;
            }
            b"include" => {
                self.reader.next();
                let path = self.reader.next();
                if path.kind() != TokenKind::Quoted {
                    return Err(self.reader.expected("a file name in quotes", path));
                }
                // What is read next is the file; the end of this line comes behind it.
                self.reader.include(path)?;
                return Ok(true);
            }
            _ => return Ok(false),
        }
        self.reader.end_statement()?;
        Ok(true)
    }

    /// Reads what follows `add` or `create`.
    fn object(&mut self, is_created: bool) -> Result<(), FormatError> {
        let word = self.reader.peek();
        match self.reader.text(word) {
            b"table" => {
                self.reader.next();
                self.table()
            }
            b"set" | b"map" => {
                let is_map = self.reader.is_word(word, "map");
                self.reader.next();
                let table = self.known_table()?;
                self.set(table, is_map)
            }
            b"element" => {
                self.reader.next();
                let set = self.known_set()?;
                self.elements(set, is_created)
            }
            text if is_other_object(text) => self.skip_object(),
            _ => Err(self.expected_command(word)),
        }
    }

    /// Skips an object that holds no elements, with a note.
    fn skip_object(&mut self) -> Result<(), FormatError> {
        let word = self.reader.peek();
        if !is_other_object(self.reader.text(word)) {
            return Err(self.expected_command(word));
        }
        let what = self.reader.string(word);
        self.reader.next();
        let mut message = what.into_string();
        if message != "rule" {
            while self.reader.peek().kind() == TokenKind::Word {
                let name = self.reader.next();
                message.push(' ');
                message.push_str(&self.reader.string(name));
            }
        }
        let message = format!("{} is skipped", quote(message.as_bytes()));
        self.reader.note(word.place(), message);
        self.reader.skip_statement()
    }

    fn flush(&mut self) -> Result<(), FormatError> {
        self.reader.next();
        let word = self.reader.next();
        match self.reader.text(word) {
            b"ruleset" => {
                let families: Vec<_> = match self.family() {
                    Some(family) => self.tables.remove(family).into_iter().collect(),
                    None => std::mem::take(&mut self.tables).into_values().collect(),
                };
                for sets in families.into_iter().flat_map(HashMap::into_values) {
                    self.forget(sets);
                }
                Ok(())
            }
            // Removes rules, and no elements.
            b"table" | b"chain" => self.reader.skip_statement(),
            b"set" | b"map" => {
                let set = self.known_set()?;
                self.sets[set].clear();
                Ok(())
            }
            _ => Err(self
                .reader
                .expected("`ruleset`, `table`, `chain`, `set` or `map`", word)),
        }
    }

    fn delete(&mut self) -> Result<(), FormatError> {
        let verb = self.reader.next();
        let may_be_unknown = self.reader.is_word(verb, "destroy");
        let word = self.reader.next();
        match self.reader.text(word) {
            b"table" => {
                let (table, place) = self.table_name()?;
                let tables = self.tables.entry(table.0).or_default();
                match tables.remove(&table.1) {
                    Some(sets) => self.forget(sets),
                    None if may_be_unknown => {}
                    None => return Err(self.unknown_table(place, &table)),
                }
                Ok(())
            }
            text if is_other_object(text) => self.reader.skip_statement(),
            _ => Err(self
                .reader
                .expected("`table`: deleting sets and elements is not read yet", word)),
        }
    }

    /// Drops the sets of a table that is gone.
    fn forget(&mut self, sets: SetIndices) {
        for set in sets.into_values() {
            self.sets[set].is_deleted = true;
            self.sets[set].clear();
        }
    }

    // Tables

    /// Reads a family if one is next.
    fn family(&mut self) -> Option<&'static str> {
        let word = self.reader.peek();
        let family = *FAMILIES
            .iter()
            .find(|family| self.reader.is_word(word, family))?;
        self.reader.next();
        Some(family)
    }

    fn table_name(&mut self) -> Result<(TableName, Word), FormatError> {
        let family = self.family().unwrap_or("ip");
        let name = self.reader.expect_word("the name of a table")?;
        Ok(((family, self.reader.string(name)), name))
    }

    fn known_table(&mut self) -> Result<TableName, FormatError> {
        let (table, word) = self.table_name()?;
        match self.sets_of(&table) {
            Some(_) => Ok(table),
            None => Err(self.unknown_table(word, &table)),
        }
    }

    fn sets_of(&mut self, table: &TableName) -> Option<&mut SetIndices> {
        self.tables.get_mut(table.0)?.get_mut(&table.1)
    }

    fn unknown_table(&self, word: Word, table: &TableName) -> FormatError {
        let message = format!(
            "no table {} is declared before",
            quote(format!("{} {}", table.0, table.1).as_bytes())
        );
        self.reader.error(word.place(), message)
    }

    fn known_set(&mut self) -> Result<usize, FormatError> {
        let table = self.known_table()?;
        let word = self.reader.expect_word("the name of a set")?;
        let name = self.reader.string(word);
        let known = self.sets_of(&table).and_then(|sets| sets.get(&name));
        known.copied().ok_or_else(|| {
            let message = format!("no set {} is declared before", quote(name.as_bytes()));
            self.reader.error(word.place(), message)
        })
    }

    fn table(&mut self) -> Result<(), FormatError> {
        let (table, _) = self.table_name()?;
        let tables = self.tables.entry(table.0).or_default();
        tables.entry(table.1.clone()).or_default();
        if !self.reader.peek().is(b'{') {
            return Ok(());
        }
        let open = self.reader.next();
        self.reader.open_scope();
        while let Some(word) = self.reader.peek_statement(open)? {
            if word.kind() != TokenKind::Word {
                return Err(self.expected_in_table(word));
            }
            if !self.common_statement()? {
                self.table_statement(&table, word)?;
                self.reader.end_statement()?;
            }
        }
        self.reader.next();
        self.reader.close_scope();
        Ok(())
    }

    fn table_statement(&mut self, table: &TableName, word: Word) -> Result<(), FormatError> {
        match self.reader.text(word) {
            b"set" | b"map" => {
                let is_map = self.reader.is_word(word, "map");
                self.reader.next();
                self.set(table.clone(), is_map)
            }
            b"flags" | b"comment" => self.reader.skip_statement(),
            text if is_other_object(text) => self.skip_object(),
            _ => Err(self.expected_in_table(word)),
        }
    }

    fn expected_in_table(&self, found: Word) -> FormatError {
        self.reader
            .expected("`set`, `map`, `chain` or another object of a table", found)
    }
}

/// Whether objects of this kind hold no elements, so that a reader of sets passes over them.
pub(super) fn is_other_object(text: &[u8]) -> bool {
    OTHER_OBJECTS.iter().any(|object| object.as_bytes() == text)
}
