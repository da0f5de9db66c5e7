//! The stream of words that the parser reads: the file, the files that it includes, and the values of its variables.
//!
//! Included files and variables are read in place, from a stack of cursors; no text is copied and nothing recurses, so
//! neither nesting nor size can exhaust the program's stack. A variable's value refers only to variables defined before
//! it, so expansion ends; a budget keeps definitions that double each other from making it long.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::lexer::{Lexer, Token, TokenKind};
use crate::formats::error::{FormatError, FormatNote, quote};
use crate::formats::set::Place;
use crate::formats::source;

/// Most files that may be open at a time, as in nft.
const MAX_INCLUDE_DEPTH: usize = 16;
/// Most files of one rule set, so that a file that includes itself twice ends soon.
const MAX_INCLUDES: usize = 1000;
/// Most bytes that variables may stand for together: enough for the largest lists, each used a few times.
const MAX_EXPANSION: usize = 64 << 20;
/// What the use of a variable counts at least: a million uses are possible.
const MIN_EXPANSION: usize = 64;

/// One file's text.
struct Source {
    text: Rc<[u8]>,
    /// Where files that it includes are looked for; `None` where there is no file system.
    directory: Option<PathBuf>,
}

/// The value of a variable: a piece of a source, still to be read.
struct Definition {
    start: Token,
    file: u32,
    end: u32,
    /// Whether it is a list in braces, or a variable that stands for one.
    is_list: bool,
    /// What each variable in the value means, in their order.
    uses: Rc<[DefinitionId]>,
}

type DefinitionId = usize;
type Scope = HashMap<Box<[u8]>, DefinitionId>;

/// Where reading goes on in one source.
#[derive(Clone)]
struct Cursor {
    text: Rc<[u8]>,
    file: u32,
    lexer: Lexer,
    end: u32,
    kind: CursorKind,
}

#[derive(Clone)]
enum CursorKind {
    File,
    Variable {
        uses: Rc<[DefinitionId]>,
        next_use: usize,
        /// Whether white space stands before the variable, until its first word is read.
        is_spaced: bool,
    },
}

impl Cursor {
    fn file(file: u32, source: &Source) -> Self {
        Self {
            text: Rc::clone(&source.text),
            file,
            lexer: Lexer::new(),
            end: source.text.len() as u32,
            kind: CursorKind::File,
        }
    }
}

/// A word with what is needed to say where it stands.
#[derive(Clone, Copy)]
pub(super) struct Word {
    pub(super) token: Token,
    file: u32,
    /// The meaning of a variable that stands in the value of another one.
    definition: Option<DefinitionId>,
}

impl Word {
    pub(super) fn place(self) -> Place {
        Place {
            file: self.file,
            line: self.token.line,
            column: self.token.column,
        }
    }

    pub(super) fn is(self, punctuation: u8) -> bool {
        self.token.is(punctuation)
    }

    pub(super) fn kind(self) -> TokenKind {
        self.token.kind
    }
}

/// A point in the stream to come back to.
#[derive(Clone)]
pub(super) struct Position {
    current: Cursor,
    /// Where reading goes on when `current` is at its end, the last one first.
    outer: Vec<Cursor>,
    ahead: Option<Word>,
}

pub(super) struct Reader {
    names: Vec<Arc<str>>,
    sources: Vec<Source>,
    position: Position,
    definitions: Vec<Definition>,
    /// Which variables the file knows, and which the blocks that are open, the innermost last.
    file_scope: Scope,
    block_scopes: Vec<Scope>,
    expanded: usize,
    is_recording: bool,
    recorded: Vec<u8>,
    pub(super) notes: Vec<FormatNote>,
}

impl Reader {
    pub(super) fn new(name: Arc<str>, text: &[u8], directory: Option<PathBuf>) -> Self {
        let source = Source {
            text: text.into(),
            directory,
        };
        Self {
            position: Position {
                current: Cursor::file(0, &source),
                outer: Vec::new(),
                ahead: None,
            },
            names: vec![name],
            sources: vec![source],
            definitions: Vec::new(),
            file_scope: Scope::new(),
            block_scopes: Vec::new(),
            expanded: 0,
            is_recording: false,
            recorded: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The names of the files that were read.
    pub(super) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The next word, which is not yet read. Variables are not replaced.
    pub(super) fn peek(&mut self) -> Word {
        if let Some(word) = self.position.ahead {
            return word;
        }
        let word = self.scan();
        self.position.ahead = Some(word);
        word
    }

    /// Reads the next word. Variables are not replaced.
    pub(super) fn next(&mut self) -> Word {
        let word = self.peek();
        self.position.ahead = None;
        if self.is_recording && word.kind() != TokenKind::Variable {
            if word.token.is_spaced && !self.recorded.is_empty() {
                self.recorded.push(b' ');
            }
            let text = &self.sources[word.file as usize].text;
            let (start, end) = (word.token.start as usize, word.token.end as usize);
            self.recorded.extend_from_slice(&text[start..end]);
        }
        word
    }

    /// What the next statement of the block that `open` opened starts with; `None` before the block's `}`.
    pub(super) fn peek_statement(&mut self, open: Word) -> Result<Option<Word>, FormatError> {
        loop {
            let word = self.peek();
            match word.kind() {
                TokenKind::Newline | TokenKind::Punctuation(b';') => {
                    self.next();
                }
                TokenKind::Punctuation(b'}') => return Ok(None),
                TokenKind::End => {
                    return Err(self.error(open.place(), "`{` without its `}`"));
                }
                _ => return Ok(Some(word)),
            }
        }
    }

    /// The next word after variables are replaced; it is not yet read.
    ///
    /// # Errors
    /// An unknown variable, or variables that stand for too much.
    pub(super) fn peek_value(&mut self) -> Result<Word, FormatError> {
        loop {
            let word = self.peek();
            if word.kind() != TokenKind::Variable {
                return Ok(word);
            }
            self.enter_variable(word)?;
        }
    }

    fn scan(&mut self) -> Word {
        loop {
            let cursor = &mut self.position.current;
            let mut word = Word {
                token: cursor.lexer.next(&cursor.text[..cursor.end as usize]),
                file: cursor.file,
                definition: None,
            };
            if let CursorKind::Variable {
                uses,
                next_use,
                is_spaced,
            } = &mut cursor.kind
            {
                word.token.is_spaced |= std::mem::take(is_spaced);
                if word.kind() == TokenKind::Variable {
                    word.definition = uses.get(*next_use).copied();
                    *next_use += 1;
                }
            }
            if word.kind() != TokenKind::End {
                return word;
            }
            let Some(outer) = self.position.outer.pop() else {
                return word;
            };
            let ended = std::mem::replace(&mut self.position.current, outer);
            if matches!(ended.kind, CursorKind::File) {
                // The end of an included file ends a statement.
                word.token.kind = TokenKind::Newline;
                return word;
            }
        }
    }

    /// Goes on with `cursor`, and behind its end with what is read now.
    fn enter(&mut self, cursor: Cursor) {
        let outer = std::mem::replace(&mut self.position.current, cursor);
        self.position.outer.push(outer);
    }

    /// The bytes of a word.
    pub(super) fn text(&self, word: Word) -> &[u8] {
        word.token.text(&self.sources[word.file as usize].text)
    }

    /// The bytes of a word as UTF-8.
    pub(super) fn string(&self, word: Word) -> Box<str> {
        String::from_utf8_lossy(self.text(word)).into()
    }

    /// Whether the word is this one, not in quotes.
    pub(super) fn is_word(&self, word: Word, text: &str) -> bool {
        word.kind() == TokenKind::Word && self.text(word) == text.as_bytes()
    }

    /// Starts to note down what is read.
    pub(super) fn start_recording(&mut self) {
        self.recorded.clear();
        self.is_recording = true;
    }

    /// What was read since, variables replaced and white space made one blank.
    pub(super) fn stop_recording(&mut self) -> Box<str> {
        self.is_recording = false;
        String::from_utf8_lossy(&self.recorded).into()
    }

    // Messages

    pub(super) fn error(&self, place: Place, message: impl Into<Box<str>>) -> FormatError {
        FormatError::new(place.location(&self.names), message)
    }

    pub(super) fn note(&mut self, place: Place, message: String) {
        self.notes
            .push(FormatNote::new(place.location(&self.names), message));
    }

    pub(super) fn expected(&self, what: &str, found: Word) -> FormatError {
        let message = format!("expected {what}, found {}", self.describe(found));
        self.error(found.place(), message)
    }

    fn describe(&self, word: Word) -> String {
        let text = self.text(word);
        match word.kind() {
            TokenKind::Newline => "the end of the line".into(),
            TokenKind::End => "the end of the file".into(),
            TokenKind::Quoted => format!("the text {}", quote(text)),
            TokenKind::Variable => format!("the variable {}", quote(text)),
            TokenKind::Invalid if text == b"\"" => "a quote that does not end on its line".into(),
            TokenKind::Invalid => format!("the byte {:#04x}", text.first().unwrap_or(&0)),
            TokenKind::Word | TokenKind::Punctuation(_) => quote(text),
        }
    }

    // Statements

    pub(super) fn expect(&mut self, punctuation: u8, what: &str) -> Result<Word, FormatError> {
        let word = self.next();
        if word.is(punctuation) {
            Ok(word)
        } else {
            Err(self.expected(what, word))
        }
    }

    pub(super) fn expect_word(&mut self, what: &str) -> Result<Word, FormatError> {
        let word = self.next();
        if word.kind() == TokenKind::Word {
            Ok(word)
        } else {
            Err(self.expected(what, word))
        }
    }

    /// Reads the end of a statement: a line's end, `;`, or the `}` or end that is left for others to read.
    pub(super) fn end_statement(&mut self) -> Result<(), FormatError> {
        let word = self.peek();
        match word.kind() {
            TokenKind::Newline | TokenKind::Punctuation(b';') => {
                self.next();
                Ok(())
            }
            TokenKind::End | TokenKind::Punctuation(b'}') => Ok(()),
            _ => Err(self.expected("`;` or a new line", word)),
        }
    }

    pub(super) fn skip_newlines(&mut self) {
        while self.peek().kind() == TokenKind::Newline {
            self.next();
        }
    }

    /// Skips the rest of a statement, blocks included; its end is left to be read.
    pub(super) fn skip_statement(&mut self) -> Result<(), FormatError> {
        loop {
            let word = self.peek();
            match word.kind() {
                TokenKind::Newline | TokenKind::End | TokenKind::Punctuation(b';' | b'}') => {
                    return Ok(());
                }
                TokenKind::Punctuation(b'{') => self.skip_block()?,
                TokenKind::Invalid => return Err(self.expected("nft text", word)),
                _ => {
                    self.next();
                }
            }
        }
    }

    /// Skips a block in braces, with what is nested in it.
    pub(super) fn skip_block(&mut self) -> Result<(), FormatError> {
        let open = self.expect(b'{', "`{`")?;
        let mut depth = 1u32;
        while depth > 0 {
            let word = self.next();
            match word.kind() {
                TokenKind::Punctuation(b'{') => depth += 1,
                TokenKind::Punctuation(b'}') => depth -= 1,
                TokenKind::Invalid => return Err(self.expected("nft text", word)),
                TokenKind::End => return Err(self.error(open.place(), "`{` without its `}`")),
                _ => {}
            }
        }
        Ok(())
    }

    // Going elsewhere and coming back

    pub(super) fn position(&self) -> Position {
        self.position.clone()
    }

    /// Goes on reading at `position`; returns where reading was.
    pub(super) fn go_to(&mut self, position: Position) -> Position {
        std::mem::replace(&mut self.position, position)
    }

    /// Opens the file that an `include` names.
    pub(super) fn include(&mut self, path: Word) -> Result<(), FormatError> {
        let fail = |reader: &Self, why: String| {
            let message = format!("{} {why}", quote(reader.text(path)));
            Err(reader.error(path.place(), message))
        };
        let name = self.string(path);
        if name.contains(['*', '?', '[']) {
            return fail(
                self,
                "is a pattern: `include` reads one file by its name".into(),
            );
        }
        let Some(directory) = &self.sources[path.file as usize].directory else {
            return fail(
                self,
                "cannot be included: this text is not read from a file".into(),
            );
        };
        if self.position.outer.len() + 1 >= MAX_INCLUDE_DEPTH {
            return fail(
                self,
                format!("is nested deeper than {MAX_INCLUDE_DEPTH} files"),
            );
        }
        if self.sources.len() >= MAX_INCLUDES {
            return fail(
                self,
                format!("would be file {}: too many", MAX_INCLUDES + 1),
            );
        }
        let file = directory.join(&*name);
        // Not a device or a pipe, which may never end.
        if std::fs::metadata(&file).is_ok_and(|meta| !meta.is_file()) {
            return fail(self, "is not a regular file".into());
        }
        let read = source::read(&file);
        let bytes: usize = self.sources.iter().map(|source| source.text.len()).sum();
        match read {
            Err(error) => fail(self, error),
            Ok(text) if bytes + text.len() > source::MAX_BYTES => fail(
                self,
                format!("makes the files longer than {} bytes", source::MAX_BYTES),
            ),
            Ok(text) => {
                let source = Source {
                    text: text.into(),
                    directory: file.parent().map(Path::to_path_buf),
                };
                self.enter(Cursor::file(self.names.len() as u32, &source));
                self.names.push(file.to_string_lossy().into());
                self.sources.push(source);
                Ok(())
            }
        }
    }

    // Variables

    pub(super) fn open_scope(&mut self) {
        self.block_scopes.push(Scope::new());
    }

    pub(super) fn close_scope(&mut self) {
        self.block_scopes.pop();
    }

    fn scope(&mut self) -> &mut Scope {
        self.block_scopes.last_mut().unwrap_or(&mut self.file_scope)
    }

    /// Reads the name and the value of `define` or `redefine`.
    pub(super) fn define(&mut self, may_exist: bool) -> Result<(), FormatError> {
        let name = self.expect_word("the name of a variable")?;
        let key: Box<[u8]> = self.text(name).into();
        if !may_exist && self.scope().contains_key(&key) {
            let message = format!("the variable {} is defined already", quote(&key));
            return Err(self.error(name.place(), message));
        }
        self.expect(b'=', "`=`")?;
        let definition = self.value()?;
        let id = self.definitions.len();
        self.definitions.push(definition);
        self.scope().insert(key, id);
        Ok(())
    }

    pub(super) fn undefine(&mut self) -> Result<(), FormatError> {
        let name = self.expect_word("the name of a variable")?;
        let key: Box<[u8]> = self.text(name).into();
        match self.scope().remove(&key) {
            Some(_) => Ok(()),
            None => Err(self.unknown_variable(name)),
        }
    }

    /// Finds the end of a variable's value: the line's end, or for a list its `}`.
    fn value(&mut self) -> Result<Definition, FormatError> {
        let start = self.peek();
        let mut end = start.token.start;
        let mut uses = Vec::new();
        let mut open = Vec::new();
        loop {
            let word = self.peek();
            match word.kind() {
                TokenKind::Newline | TokenKind::Punctuation(b';' | b'}') if open.is_empty() => {
                    break;
                }
                TokenKind::End => match open.last() {
                    None => break,
                    Some(&place) => return Err(self.error(place, "`{` without its `}`")),
                },
                TokenKind::Invalid => return Err(self.expected("nft text", word)),
                TokenKind::Variable => uses.push(self.meaning(word)?),
                TokenKind::Punctuation(b'{') => open.push(word.place()),
                TokenKind::Punctuation(b'}') => {
                    open.pop();
                }
                _ => {}
            }
            // A list that is included into a value would end in another file.
            if word.file != start.file {
                return Err(self.expected("the end of the value", word));
            }
            self.next();
            end = word.token.end;
            if word.is(b'}') && open.is_empty() {
                break;
            }
        }
        if end == start.token.start {
            return Err(self.expected("a value", start));
        }
        Ok(Definition {
            is_list: match uses.first() {
                Some(&first) if start.kind() == TokenKind::Variable => {
                    self.definitions[first].is_list
                }
                _ => start.is(b'{'),
            },
            start: start.token,
            file: start.file,
            end,
            uses: uses.into(),
        })
    }

    fn unknown_variable(&self, word: Word) -> FormatError {
        let message = format!("no variable {} is defined here", quote(self.text(word)));
        self.error(word.place(), message)
    }

    fn meaning(&self, word: Word) -> Result<DefinitionId, FormatError> {
        let name = self.text(word);
        word.definition
            .or_else(|| {
                let blocks = self.block_scopes.iter().rev();
                let mut scopes = blocks.chain([&self.file_scope]);
                scopes.find_map(|scope| scope.get(name).copied())
            })
            .ok_or_else(|| self.unknown_variable(word))
    }

    /// Whether a variable stands for a list in braces.
    pub(super) fn is_list(&self, variable: Word) -> Result<bool, FormatError> {
        let id = self.meaning(variable)?;
        Ok(self.definitions[id].is_list)
    }

    /// Reads the variable that is next, and goes on with its value.
    pub(super) fn enter_variable(&mut self, variable: Word) -> Result<(), FormatError> {
        let id = self.meaning(variable)?;
        let definition = &self.definitions[id];
        let (start, end) = (definition.start, definition.end);
        self.expanded += MIN_EXPANSION.max((end - start.start) as usize);
        if self.expanded > MAX_EXPANSION {
            let message = format!("variables stand for more than {MAX_EXPANSION} bytes");
            return Err(self.error(variable.place(), message));
        }
        let cursor = Cursor {
            text: Rc::clone(&self.sources[definition.file as usize].text),
            file: definition.file,
            lexer: Lexer::at(start),
            end,
            kind: CursorKind::Variable {
                uses: Rc::clone(&definition.uses),
                next_use: 0,
                is_spaced: variable.token.is_spaced,
            },
        };
        self.position.ahead = None;
        self.enter(cursor);
        Ok(())
    }
}
