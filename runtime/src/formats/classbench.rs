//! ClassBench rule files: one rule a line, the first rule that matches wins.
//!
//! ```text
//! @sip/len  dip/len  lo : hi  lo : hi  proto/mask  [flags/mask]
//! ```
//!
//! Columns are separated by white space. The flags column is read and checked, but it is no part of the key.

use std::sync::Arc;

use pktjit_ir::{KeyLayout, Match, Rule};

use super::error::{FormatError, FormatNote, quote};
use super::set::{Element, FileNames, Place, SetFlags, SetKind, SourceSet};
use super::types::{ValueType, number};

/// Reads the rules of a ClassBench file.
pub(super) fn parse(
    file: &Arc<str>,
    text: &[u8],
) -> Result<(SourceSet, Vec<FormatNote>), FormatError> {
    let files: FileNames = Arc::new([Arc::clone(file)]);
    let types = ValueType::classbench();
    let start = Place {
        file: 0,
        line: 1,
        column: 1,
    };
    let layout = KeyLayout::packed(types.each_ref().map(|ty| ty.field().clone()))
        .map_err(|error| FormatError::new(start.location(&files), error.to_string()))?;

    let mut elements = Vec::new();
    let mut unmatched_flags: Option<(Place, usize)> = None;
    for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let mut columns = Columns {
            text,
            position: 0,
            line,
        };
        columns.skip_blanks();
        if columns.rest().is_empty() || columns.rest().starts_with(b"#") {
            continue;
        }
        let place = columns.place();
        let (element, flags) = columns
            .rule(&types)
            .map_err(|(place, message)| FormatError::new(place.location(&files), message))?;
        if let Some(flags) = flags {
            unmatched_flags.get_or_insert((flags, 0)).1 += 1;
        }
        elements.push(Element { place, ..element });
    }

    let notes = unmatched_flags
        .map(|(place, count)| {
            let message = format!("the TCP flags column of {count} rules is not part of the key");
            FormatNote::new(place.location(&files), message)
        })
        .into_iter()
        .collect();
    let set = SourceSet {
        kind: SetKind::ClassBench,
        family: "",
        table: "".into(),
        name: "".into(),
        place: start,
        types: types.into(),
        layout,
        flags: SetFlags::default(),
        size: None,
        elements,
        files,
    };
    Ok((set, notes))
}

type LineError = (Place, String);

/// One line, read from left to right.
struct Columns<'a> {
    text: &'a [u8],
    position: usize,
    line: u32,
}

impl<'a> Columns<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.text[self.position..]
    }

    fn place(&self) -> Place {
        Place {
            file: 0,
            line: self.line,
            column: self.position as u32 + 1,
        }
    }

    fn skip_blanks(&mut self) {
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r');
        self.position += self.rest().iter().take_while(is_blank).count();
    }

    /// The rule of this line, and where its flags column stands if one of the flags counts.
    fn rule(&mut self, types: &[ValueType; 5]) -> Result<(Element, Option<Place>), LineError> {
        let start = self.position;
        self.punctuation(b'@', "`@`")?;
        let [saddr, daddr, sport, dport, proto] = types;
        let matches = vec![
            self.prefix(saddr)?,
            self.prefix(daddr)?,
            self.range(sport)?,
            self.range(dport)?,
            self.masked(proto)?,
        ];
        let mut flags = None;
        self.skip_blanks();
        if !self.rest().is_empty() && !self.rest().starts_with(b"#") {
            let place = self.place();
            if self.value_and_mask("TCP flags", 0xffff)?.1 != 0 {
                flags = Some(place);
            }
        }
        let text = one_blank(&self.text[start..self.position]);
        self.skip_blanks();
        if !self.rest().is_empty() && !self.rest().starts_with(b"#") {
            return Err(self.expected("the end of the line"));
        }
        let element = Element {
            place: self.place(),
            text,
            value: None,
            is_created: false,
            rule: Rule::new(matches),
        };
        Ok((element, flags))
    }

    fn prefix(&mut self, ty: &ValueType) -> Result<Match, LineError> {
        let value = self.value(ty)?;
        self.punctuation(b'/', "`/` and a prefix length")?;
        let (place, word) = self.word("a prefix length")?;
        let len = ty.parse_prefix_len(word).map_err(|error| (place, error))?;
        Ok(Match::Prefix { value, len })
    }

    fn range(&mut self, ty: &ValueType) -> Result<Match, LineError> {
        self.skip_blanks();
        let place = self.place();
        let lo = self.value(ty)?;
        self.punctuation(b':', "`:` and the end of the range")?;
        let hi = self.value(ty)?;
        if lo > hi {
            return Err((place, format!("the range {lo} : {hi} is reversed")));
        }
        Ok(Match::Range { lo, hi })
    }

    fn masked(&mut self, ty: &ValueType) -> Result<Match, LineError> {
        let max = ty.field().max();
        let (value, mask) = self.value_and_mask("a protocol", max)?;
        Ok(if mask == max {
            Match::Exact(value)
        } else {
            Match::Mask { value, mask }
        })
    }

    fn value_and_mask(&mut self, what: &str, max: u128) -> Result<(u128, u128), LineError> {
        let value = self.number(what, max)?;
        self.punctuation(b'/', "`/` and a mask")?;
        Ok((value, self.number("a mask", max)?))
    }

    fn number(&mut self, what: &str, max: u128) -> Result<u128, LineError> {
        let (place, word) = self.word(what)?;
        match number(word) {
            Ok(value) if value <= max => Ok(value),
            _ => Err((
                place,
                format!("{} is not {what}, 0 to {max:#x}", quote(word)),
            )),
        }
    }

    fn value(&mut self, ty: &ValueType) -> Result<u128, LineError> {
        let (place, word) = self.word(&ty.expected())?;
        ty.parse(word).map_err(|error| (place, error))
    }

    fn word(&mut self, what: &str) -> Result<(Place, &'a [u8]), LineError> {
        self.skip_blanks();
        let is_word = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'.';
        let len = self.rest().iter().take_while(is_word).count();
        if len == 0 {
            return Err(self.expected(what));
        }
        let (place, word) = (self.place(), &self.rest()[..len]);
        self.position += len;
        Ok((place, word))
    }

    fn punctuation(&mut self, byte: u8, what: &str) -> Result<(), LineError> {
        self.skip_blanks();
        if self.rest().first() != Some(&byte) {
            return Err(self.expected(what));
        }
        self.position += 1;
        Ok(())
    }

    fn expected(&self, what: &str) -> LineError {
        let rest = self.rest();
        let len = rest.iter().take_while(|byte| !byte.is_ascii_whitespace());
        let found = match len.count() {
            0 => "the end of the line".into(),
            len => quote(&rest[..len]),
        };
        (self.place(), format!("expected {what}, found {found}"))
    }
}

/// `text` with each run of white space made one blank, and none at the ends.
pub(super) fn one_blank(text: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(text);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    words.join(" ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(SourceSet, Vec<FormatNote>), String> {
        super::parse(&"f".into(), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_read_with_blanks_or_tabs() {
        let text = "# a comment\n\n@10.0.0.0/8\t1.2.3.4/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0000\t\r\n\
                    @0.0.0.0/0 0.0.0.0/0 1 : 2 3:4 0x00/0x00 # last";
        let (set, notes) = parse(text).unwrap();
        assert_eq!(notes, []);
        assert_eq!(
            (set.kind(), set.packed_layout().len()),
            (SetKind::ClassBench, 13)
        );
        let [first, second] = set.elements() else {
            panic!("{} rules", set.elements().len());
        };
        assert_eq!(
            first.rule().matches,
            [
                Match::Prefix {
                    value: 0x0a00_0000,
                    len: 8
                },
                Match::Prefix {
                    value: 0x0102_0304,
                    len: 32
                },
                Match::Range { lo: 0, hi: 65535 },
                Match::Range { lo: 80, hi: 80 },
                Match::Exact(6),
            ]
        );
        assert_eq!(second.rule().matches[4], Match::Mask { value: 0, mask: 0 });
        assert_eq!((second.line(), second.column()), (4, 1));
        assert_eq!(second.text(), "@0.0.0.0/0 0.0.0.0/0 1 : 2 3:4 0x00/0x00");
    }

    #[test]
    fn one_note_counts_the_rules_whose_flags_are_not_matched() {
        let rule = "@0.0.0.0/0 0.0.0.0/0 0 : 1 0 : 1 0x06/0xFF";
        let (_, notes) = parse(&format!(
            "{rule} 0x0/0x0\n{rule} 0x2/0x2\n{rule} 0x10/0x10\n"
        ))
        .unwrap();
        let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
        assert_eq!(
            notes,
            ["f:2:44: note: the TCP flags column of 2 rules is not part of the key"]
        );
    }

    #[test]
    fn wrong_rules_are_refused_where_they_are_wrong() {
        let good = "@1.1.1.1/32 2.2.2.2/32 0 : 1 0 : 1 0x06/0xFF";
        for (wrong, error) in [
            ("1.1.1.1/32", "f:1:1: expected `@`, found `1.1.1.1/32`"),
            ("@1.1.1.256/32", "f:1:2: `1.1.1.256` is not an IPv4 address"),
            (
                "@1.1.1.1",
                "f:1:9: expected `/` and a prefix length, found the end of the line",
            ),
            (
                "@1.1.1.1/33",
                "f:1:10: prefix length `33` is longer than the 32 bits of ipv4_addr",
            ),
            (
                "@1.1.1.1/32",
                "f:1:12: expected an IPv4 address, found the end of the line",
            ),
            (
                "@1.1.1.1/32 2.2.2.2/32 5 : 4 0 : 1 0x06/0xFF",
                "f:1:24: the range 5 : 4 is reversed",
            ),
            (
                "@1.1.1.1/32 2.2.2.2/32 0 : 70000",
                "f:1:28: `70000` is too large: expected a port (known service or 0 to 65535)",
            ),
            (
                "@1.1.1.1/32 2.2.2.2/32 0 - 1",
                "f:1:26: expected `:` and the end of the range, found `-`",
            ),
            (
                "@1.1.1.1/32 2.2.2.2/32 0 : 1 0 : 1 0x106/0xFF",
                "f:1:36: `0x106` is not a protocol, 0 to 0xff",
            ),
            (
                "@1.1.1.1/32 2.2.2.2/32 0 : 1 0 : 1 0x06/",
                "f:1:41: expected a mask, found the end of the line",
            ),
            (
                "@1.1.1.1/32 2.2.2.2/32 0 : 1 0 : 1 0x06/0xFF 1/1 x",
                "f:1:50: expected the end of the line, found `x`",
            ),
            (
                "@1.1.1.1/32 2.2.2.2/32 0 : 1 0 : 1 0x06/0xFF x/1",
                "f:1:46: `x` is not TCP flags, 0 to 0xffff",
            ),
        ] {
            assert_eq!(parse(wrong).unwrap_err(), error, "{wrong}");
            let second = format!("{good}\n{wrong}");
            assert_eq!(
                parse(&second).unwrap_err(),
                error.replace("f:1:", "f:2:"),
                "{wrong}"
            );
        }
    }
}
