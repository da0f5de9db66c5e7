//! The elements of a set or map: keys, ranges, options and values.

use pktjit_ir::{Match, Rule, Verdict};

use super::Parser;
use super::lexer::TokenKind;
use super::reader::{Reader, Word};
use crate::formats::declaration::{Declaration, LACKS_TIMEOUTS, Value, data};
use crate::formats::error::{FormatError, quote};
use crate::formats::set::Element;
use crate::formats::types::{ValueType, number, range};

impl Parser {
    /// Reads `{ element, ... }`, or a variable that stands for it, and adds the elements to a set.
    pub(super) fn elements(&mut self, set: usize, is_created: bool) -> Result<(), FormatError> {
        let (reader, set) = (&mut self.reader, &mut self.sets[set]);
        // The lists that are open: the outer one, and those that variables in it stand for.
        let mut open = Vec::new();
        let mut may_open = true;
        loop {
            let word = reader.peek();
            match word.kind() {
                TokenKind::Variable if reader.is_list(word)? => {
                    reader.enter_variable(word)?;
                    may_open = true;
                    continue;
                }
                TokenKind::Punctuation(b'{') if may_open => {
                    reader.next();
                    open.push(word.place());
                    reader.skip_newlines();
                }
                _ if open.is_empty() => return Err(reader.expected("`{` and elements", word)),
                TokenKind::Punctuation(b'}') => {
                    reader.next();
                    open.pop();
                    if open.is_empty() {
                        return Ok(());
                    }
                    separator(reader)?;
                }
                TokenKind::End => {
                    let place = open.pop().unwrap_or(word.place());
                    return Err(reader.error(place, "`{` without its `}`"));
                }
                _ => {
                    let element = element(reader, set, is_created)?;
                    set.elements.push(element);
                    separator(reader)?;
                }
            }
            may_open = false;
        }
    }
}

/// Reads what separates elements, or leaves the `}` that ends them.
fn separator(reader: &mut Reader) -> Result<(), FormatError> {
    reader.skip_newlines();
    let word = reader.peek();
    if !word.is(b',') && !word.is(b'}') {
        return Err(reader.expected("`,` or `}`", word));
    }
    skip_separators(reader);
    Ok(())
}

/// Skips new lines and commas; as in nft, one comma may follow another.
fn skip_separators(reader: &mut Reader) {
    while matches!(
        reader.peek().kind(),
        TokenKind::Newline | TokenKind::Punctuation(b',')
    ) {
        reader.next();
    }
}

fn element(
    reader: &mut Reader,
    set: &mut Declaration,
    is_created: bool,
) -> Result<Element, FormatError> {
    let place = reader.peek().place();
    reader.start_recording();
    let mut rule = if reader.peek_value()?.is(b'*') {
        reader.next();
        Rule::catch_all(set.types.len())
    } else {
        Rule::new(concatenation(reader, &set.types, set.lacks_ranges())?)
    };
    let text = reader.stop_recording();
    options(reader, set)?;

    let colon = reader.peek();
    let mut value = None;
    if set.value != Value::None {
        reader.expect(b':', "`:` and a value")?;
        reader.start_recording();
        rule.verdict = verdict(reader, &set.value)?;
        value = Some(reader.stop_recording());
    } else if colon.is(b':') {
        let message = format!("set {} is not a map", quote(set.name.as_bytes()));
        return Err(reader.error(colon.place(), message));
    }
    Ok(Element {
        place,
        text,
        value,
        is_created,
        rule,
    })
}

/// Reads one match per type, joined by dots; `lacks` says why they have to be single values, if they have to.
fn concatenation(
    reader: &mut Reader,
    types: &[ValueType],
    lacks: Option<&str>,
) -> Result<Vec<Match>, FormatError> {
    let mut matches = Vec::with_capacity(types.len());
    for (index, ty) in types.iter().enumerate() {
        if index > 0 {
            let dot = reader.next();
            if !dot.is(b'.') {
                let count = types.len();
                let what = format!(
                    "` . ` and field {} of {count}, {}",
                    index + 1,
                    ty.expected()
                );
                return Err(reader.expected(&what, dot));
            }
        }
        matches.push(operand(reader, ty, lacks)?);
    }
    let word = reader.peek();
    if word.is(b'.') {
        let message = match types.len() {
            1 => "one field more than the key has".into(),
            count => format!("more fields than the {count} of the key"),
        };
        return Err(reader.error(word.place(), message));
    }
    Ok(matches)
}

/// Reads a value, a prefix, a range, or the start of interface names.
fn operand(reader: &mut Reader, ty: &ValueType, lacks: Option<&str>) -> Result<Match, FormatError> {
    let (word, lo) = value(reader, ty)?;
    let next = reader.peek();
    let found = match next.kind() {
        TokenKind::Punctuation(b'/') => {
            let value = single(reader, word, lo)?;
            reader.next();
            let len = reader.peek_value()?;
            reader.next();
            let bits = ty.parse_prefix_len(reader.text(len));
            let len = bits.map_err(|message| reader.error(len.place(), message))?;
            Match::Prefix { value, len }
        }
        TokenKind::Punctuation(b'-') => {
            let lo = single(reader, word, lo)?;
            reader.next();
            let (end, hi) = value(reader, ty)?;
            let hi = single(reader, end, hi)?;
            range((lo, reader.text(word)), (hi, reader.text(end)))
                .map_err(|message| reader.error(word.place(), message))?
        }
        _ => lo,
    };
    match lacks {
        Some(message) if !matches!(found, Match::Exact(_)) => {
            Err(reader.error(word.place(), message))
        }
        _ => Ok(found),
    }
}

fn value(reader: &mut Reader, ty: &ValueType) -> Result<(Word, Match), FormatError> {
    let word = reader.peek_value()?;
    if !word.token.is_value() {
        return Err(reader.expected(&ty.expected(), word));
    }
    reader.next();
    match ty.parse_match(reader.text(word)) {
        Ok(value) => Ok((word, value)),
        Err(message) => Err(reader.error(word.place(), message)),
    }
}

/// The value that a prefix or one end of a range is made of.
fn single(reader: &Reader, word: Word, found: Match) -> Result<u128, FormatError> {
    match found {
        Match::Exact(value) => Ok(value),
        _ => Err(reader.expected("a single value", word)),
    }
}

fn options(reader: &mut Reader, set: &mut Declaration) -> Result<(), FormatError> {
    loop {
        let word = reader.peek();
        match reader.text(word) {
            b"timeout" | b"expires" => {
                if !set.flags.timeout {
                    return Err(reader.error(word.place(), LACKS_TIMEOUTS));
                }
                reader.next();
                reader.duration()?;
                set.timeout = set.timeout.or(Some(word.place()));
            }
            b"comment" => {
                reader.next();
                reader.comment()?;
            }
            b"counter" => {
                reader.next();
                let next = reader.peek();
                if reader.is_word(next, "packets") {
                    reader.next();
                    count(reader)?;
                    let bytes = reader.next();
                    if !reader.is_word(bytes, "bytes") {
                        return Err(reader.expected("`bytes`", bytes));
                    }
                    count(reader)?;
                }
            }
            _ => return Ok(()),
        }
    }
}

fn count(reader: &mut Reader) -> Result<(), FormatError> {
    let word = reader.next();
    match number(reader.text(word)) {
        Ok(_) => Ok(()),
        Err(_) => Err(reader.expected("a number", word)),
    }
}

fn verdict(reader: &mut Reader, value: &Value) -> Result<Verdict, FormatError> {
    match value {
        Value::None => Ok(Verdict::Match),
        Value::Verdict => named_verdict(reader),
        Value::Data {
            types,
            layout,
            is_interval,
        } => {
            let lacks =
                (!is_interval).then_some("the values are no ranges: their type has no `interval`");
            let matches = concatenation(reader, types, lacks)?;
            Ok(Verdict::Data(data(layout, &matches, *is_interval)))
        }
    }
}

fn named_verdict(reader: &mut Reader) -> Result<Verdict, FormatError> {
    let word = reader.peek_value()?;
    reader.next();
    let to_chain = match reader.text(word) {
        b"accept" => return Ok(Verdict::Accept),
        b"drop" => return Ok(Verdict::Drop),
        b"continue" => return Ok(Verdict::Continue),
        b"return" => return Ok(Verdict::Return),
        b"jump" => Verdict::Jump,
        b"goto" => Verdict::Goto,
        _ => {
            let what = "a verdict: `accept`, `drop`, `continue`, `return`, `jump` or `goto`";
            return Err(reader.expected(what, word));
        }
    };
    reader.peek_value()?;
    let chain = reader.expect_word("the name of a chain")?;
    Ok(to_chain(reader.string(chain)))
}
