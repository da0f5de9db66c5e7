//! The block of a set or map: its type, its flags and its other statements.
//!
//! Elements can only be read when the type and the flags are known, which may stand behind them. So the block is read to
//! its end first, and then its elements.

use pktjit_ir::KeyLayout;

use super::Parser;
use super::lexer::TokenKind;
use super::reader::{Position, Reader, Word};
use crate::formats::declaration::{
    AUTO_MERGE_NEEDS_INTERVAL, Declaration, TableName, Value, size_limit,
};
use crate::formats::error::{FormatError, quote};
use crate::formats::set::{Place, SetFlags};
use crate::formats::types::{ValueType, number};

/// What the statements of a block have said so far.
#[derive(Default)]
struct Block {
    key: Option<(Vec<ValueType>, KeyLayout)>,
    value: Option<Value>,
    flags: SetFlags,
    size: Option<u32>,
    timeout: Option<Place>,
    auto_merge: Option<Place>,
    /// Where the elements stand.
    elements: Vec<Position>,
}

impl Parser {
    /// Reads the name and the block of a set or map.
    pub(super) fn set(&mut self, table: TableName, is_map: bool) -> Result<(), FormatError> {
        let name = self.reader.expect_word("the name of a set")?;
        let place = name.place();
        let name = self.reader.string(name);
        let mut block = Block::default();
        let open = self.reader.expect(b'{', "`{`")?;
        self.reader.open_scope();
        while let Some(word) = self.reader.peek_statement(open)? {
            if word.kind() != TokenKind::Word {
                return Err(expected_statement(&self.reader, word));
            }
            if !self.common_statement()? {
                self.reader.next();
                self.set_statement(&mut block, word, is_map)?;
                self.reader.end_statement()?;
            }
        }
        self.reader.next();

        let Some((types, layout)) = block.key else {
            let message = format!("set {} has no `type`", quote(name.as_bytes()));
            return Err(self.reader.error(place, message));
        };
        if let Some(place) = block.auto_merge
            && !block.flags.interval
        {
            return Err(self.reader.error(place, AUTO_MERGE_NEEDS_INTERVAL));
        }
        let set = self.declare(Declaration {
            table,
            name,
            place,
            types,
            layout,
            value: block.value.unwrap_or(Value::None),
            flags: block.flags,
            size: block.size,
            elements: Vec::new(),
            timeout: block.timeout,
            is_deleted: false,
        })?;
        for position in block.elements {
            let end = self.reader.go_to(position);
            self.elements(set, false)?;
            self.reader.go_to(end);
        }
        self.reader.close_scope();
        Ok(())
    }

    /// Adds a set, or finds the one that is declared again.
    fn declare(&mut self, set: Declaration) -> Result<usize, FormatError> {
        let index = self.sets.len();
        let sets = self.tables.entry(set.table.0).or_default();
        let sets = sets.entry(set.table.1.clone()).or_default();
        let index = *sets.entry(set.name.clone()).or_insert(index);
        match self.sets.get(index) {
            None => self.sets.push(set),
            Some(known) if known.is_same_type(&set) => {}
            Some(known) => {
                let message = format!(
                    "set {} is declared with another type or other flags at {}",
                    quote(set.name.as_bytes()),
                    known.place.location(self.reader.names())
                );
                return Err(self.reader.error(set.place, message));
            }
        }
        Ok(index)
    }

    fn set_statement(
        &mut self,
        block: &mut Block,
        word: Word,
        is_map: bool,
    ) -> Result<(), FormatError> {
        let reader = &mut self.reader;
        match reader.text(word) {
            b"type" | b"typeof" => {
                if block.key.is_some() {
                    return Err(reader.error(word.place(), "the set has a type already"));
                }
                let is_expression = reader.is_word(word, "typeof");
                block.key = Some(key_type(reader, is_expression)?);
                let colon = reader.peek();
                if is_map {
                    reader.expect(b':', "`:` and the type of the values")?;
                    block.value = Some(value_type(reader, is_expression)?);
                } else if colon.is(b':') {
                    return Err(reader.error(colon.place(), "a set has no values; a `map` has"));
                }
            }
            b"flags" => flags(reader, &mut block.flags)?,
            b"auto-merge" => {
                block.auto_merge = Some(word.place());
                block.flags.auto_merge = true;
            }
            b"timeout" => {
                reader.duration()?;
                block.timeout = block.timeout.or(Some(word.place()));
                block.flags.timeout = true;
            }
            b"gc-interval" => reader.duration()?,
            b"policy" => {
                let policy = reader.next();
                if !matches!(reader.text(policy), b"performance" | b"memory") {
                    return Err(reader.expected("`performance` or `memory`", policy));
                }
            }
            b"size" => {
                let value = reader.peek_value()?;
                reader.next();
                block.size = size(reader, value)?;
            }
            b"comment" => reader.comment()?,
            b"counter" => {}
            b"elements" => {
                reader.expect(b'=', "`=`")?;
                block.elements.push(reader.position());
                if reader.peek().is(b'{') {
                    reader.skip_block()?;
                } else {
                    reader.next();
                }
            }
            _ => return Err(expected_statement(reader, word)),
        }
        Ok(())
    }
}

fn expected_statement(reader: &Reader, found: Word) -> FormatError {
    let what = "`type`, `typeof`, `flags`, `elements` or another statement of a set";
    reader.expected(what, found)
}

fn flags(reader: &mut Reader, flags: &mut SetFlags) -> Result<(), FormatError> {
    loop {
        let word = reader.next();
        match reader.text(word) {
            b"interval" => flags.interval = true,
            b"timeout" => flags.timeout = true,
            b"constant" => flags.constant = true,
            b"dynamic" => flags.dynamic = true,
            _ => {
                let what = "`interval`, `timeout`, `constant` or `dynamic`";
                return Err(reader.expected(what, word));
            }
        }
        if !reader.peek().is(b',') {
            return Ok(());
        }
        reader.next();
    }
}

fn size(reader: &Reader, word: Word) -> Result<Option<u32>, FormatError> {
    let size = number(reader.text(word))
        .ok()
        .and_then(|size| u32::try_from(size).ok());
    match size {
        Some(size) => Ok(size_limit(size)),
        None => Err(reader.expected("a number of elements below 2^32", word)),
    }
}

/// Reads the types of a key and lays them out.
fn key_type(
    reader: &mut Reader,
    is_expression: bool,
) -> Result<(Vec<ValueType>, KeyLayout), FormatError> {
    let place = reader.peek().place();
    let mut types = Vec::new();
    loop {
        types.push(field_type(reader, is_expression)?);
        if !reader.peek().is(b'.') {
            break;
        }
        reader.next();
    }
    let fields = types.iter().map(|ty| ty.field().clone());
    let layout =
        KeyLayout::packed(fields).map_err(|error| reader.error(place, error.to_string()))?;
    Ok((types, layout))
}

fn value_type(reader: &mut Reader, is_expression: bool) -> Result<Value, FormatError> {
    let word = reader.peek();
    if reader.is_word(word, "verdict") {
        reader.next();
        return Ok(Value::Verdict);
    }
    let is_interval = reader.is_word(word, "interval");
    if is_interval {
        reader.next();
    }
    let (types, layout) = key_type(reader, is_expression)?;
    Ok(Value::Data {
        types,
        layout,
        is_interval,
    })
}

fn field_type(reader: &mut Reader, is_expression: bool) -> Result<ValueType, FormatError> {
    if !is_expression {
        let word = reader.expect_word("a type such as `ipv4_addr`")?;
        let name = reader.string(word);
        return ValueType::by_type(&name).ok_or_else(|| {
            let message = format!("unknown type {}", quote(name.as_bytes()));
            reader.error(word.place(), message)
        });
    }
    let first = reader.peek();
    if first.is(b'@') {
        return raw_payload(reader);
    }
    let mut expression = String::new();
    while reader.peek().kind() == TokenKind::Word {
        let word = reader.next();
        if !expression.is_empty() {
            expression.push(' ');
        }
        expression.push_str(&reader.string(word));
    }
    if expression.is_empty() {
        return Err(reader.expected("an expression such as `ip saddr`", first));
    }
    ValueType::by_selector(&expression).ok_or_else(|| {
        let message = format!("unknown expression {}", quote(expression.as_bytes()));
        reader.error(first.place(), message)
    })
}

/// Reads `@nh,96,32`: a base, an offset in bits and a width in bits.
fn raw_payload(reader: &mut Reader) -> Result<ValueType, FormatError> {
    let at = reader.next();
    let base = reader.next();
    if !matches!(reader.text(base), b"ll" | b"nh" | b"th") {
        return Err(reader.expected("`ll`, `nh` or `th`", base));
    }
    let mut numbers = [0; 2];
    for value in &mut numbers {
        reader.expect(b',', "`,`")?;
        let word = reader.next();
        *value =
            number(reader.text(word)).map_err(|_| reader.expected("a number of bits", word))?;
    }
    let [offset, bits] = numbers;
    let ty = ValueType::raw_payload(&reader.string(base), offset, bits);
    ty.map_err(|message| reader.error(at.place(), message))
}

impl Reader {
    /// Reads a time such as `1h30m`.
    pub(super) fn duration(&mut self) -> Result<(), FormatError> {
        let word = self.peek_value()?;
        self.next();
        if word.kind() == TokenKind::Word && is_duration(self.text(word)) {
            Ok(())
        } else {
            Err(self.expected("a time such as `1h30m` or `45s`", word))
        }
    }

    /// Reads the text of a comment.
    pub(super) fn comment(&mut self) -> Result<(), FormatError> {
        let word = self.next();
        if word.token.is_value() {
            Ok(())
        } else {
            Err(self.expected("a comment in quotes", word))
        }
    }
}

/// Whether `text` is numbers that each have a unit: `1d2h3m4s5ms`.
fn is_duration(mut text: &[u8]) -> bool {
    let mut is_any = false;
    while !text.is_empty() {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rest = &text[digits..];
        let units: [&[u8]; 6] = [b"ms", b"d", b"h", b"m", b"s", b"w"];
        let Some(unit) = units.iter().find(|unit| rest.starts_with(unit)) else {
            return false;
        };
        if digits == 0 {
            return false;
        }
        text = &rest[unit.len()..];
        is_any = true;
    }
    is_any
}
