//! The words of nft text.
//!
//! A [`Lexer`] is a position in a text: small, cheap to copy, never failing. What nft has no word for comes out as
//! [`TokenKind::Invalid`] and becomes an error where the parser meets it, so that skipped text may hold anything that a
//! later nft understands.
//!
//! How a run of characters is cut into words follows nft's own scanner: a name may hold `-`, `/` and `.`, a number may
//! not hold `-` or `/`, and only what has two colons is an address with colons. That is why a concatenation needs blanks
//! around its dots and why `ssh-http` is one name but `22-80` a range.

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::formats) enum TokenKind {
    /// A name, number or address.
    Word,
    /// A text in double quotes.
    Quoted,
    /// `$name`.
    Variable,
    /// Any other printable character.
    Punctuation(u8),
    /// The end of a line that is not continued.
    Newline,
    /// A control character, a byte outside ASCII, or a quote without its end.
    Invalid,
    /// The end of the text.
    End,
}

/// One word and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::formats) struct Token {
    pub(in crate::formats) kind: TokenKind,
    pub(in crate::formats) start: u32,
    pub(in crate::formats) end: u32,
    pub(in crate::formats) line: u32,
    pub(in crate::formats) column: u32,
    /// Whether white space or a comment stands before it.
    pub(in crate::formats) is_spaced: bool,
}

impl Token {
    /// The word's bytes in the text that it was read from; a quoted text without its quotes, a variable without its `$`.
    pub(in crate::formats) fn text(self, text: &[u8]) -> &[u8] {
        let (start, end) = (self.start as usize, self.end as usize);
        match self.kind {
            TokenKind::Quoted => &text[start + 1..end - 1],
            TokenKind::Variable => &text[start + 1..end],
            _ => &text[start..end],
        }
    }

    pub(in crate::formats) fn is(self, punctuation: u8) -> bool {
        self.kind == TokenKind::Punctuation(punctuation)
    }

    /// Whether this can stand for a value.
    pub(in crate::formats) fn is_value(self) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::Quoted)
    }
}

/// A position in a text of less than 4 GiB.
#[derive(Clone, Copy, Debug)]
pub(in crate::formats) struct Lexer {
    position: usize,
    line: u32,
    line_start: usize,
}

impl Lexer {
    pub(in crate::formats) fn new() -> Self {
        Self {
            position: 0,
            line: 1,
            line_start: 0,
        }
    }

    /// The position of a token that was read before.
    pub(super) fn at(token: Token) -> Self {
        let position = token.start as usize;
        Self {
            position,
            line: token.line,
            line_start: position + 1 - token.column as usize,
        }
    }

    /// Reads the next word of `text`.
    pub(in crate::formats) fn next(&mut self, text: &[u8]) -> Token {
        let before = self.position;
        self.skip_blanks(text);
        let start = self.position;
        let (line, column) = (self.line, (start - self.line_start) as u32 + 1);
        let (kind, len) = scan(&text[start..]);
        self.position += len;
        if kind == TokenKind::Newline {
            self.start_line();
        }
        Token {
            kind,
            start: start as u32,
            end: self.position as u32,
            line,
            column,
            is_spaced: start > before,
        }
    }

    /// Skips blanks, comments, and ends of lines behind a backslash.
    fn skip_blanks(&mut self, text: &[u8]) {
        loop {
            match text[self.position..] {
                [b' ' | b'\t' | b'\r', ..] => self.position += 1,
                [b'#', ref comment @ ..] => {
                    let is_comment = |byte: &&u8| **byte != b'\n';
                    self.position += 1 + comment.iter().take_while(is_comment).count();
                }
                [b'\\', b'\n', ..] => {
                    self.position += 2;
                    self.start_line();
                }
                [b'\\', b'\r', b'\n', ..] => {
                    self.position += 3;
                    self.start_line();
                }
                _ => return,
            }
        }
    }

    fn start_line(&mut self) {
        self.line += 1;
        self.line_start = self.position;
    }
}

/// The kind and the length of the word at the start of `rest`.
fn scan(rest: &[u8]) -> (TokenKind, usize) {
    let Some(&first) = rest.first() else {
        return (TokenKind::End, 0);
    };
    match first {
        b'\n' => (TokenKind::Newline, 1),
        b'"' => match rest[1..]
            .iter()
            .position(|&byte| matches!(byte, b'"' | b'\n'))
        {
            Some(len) if rest[1 + len] == b'"' => (TokenKind::Quoted, len + 2),
            _ => (TokenKind::Invalid, 1),
        },
        b'$' => match name_len(&rest[1..]) {
            0 => (TokenKind::Invalid, 1),
            len => (TokenKind::Variable, 1 + len),
        },
        _ => match word_len(rest) {
            0 if first.is_ascii_graphic() => (TokenKind::Punctuation(first), 1),
            0 => (TokenKind::Invalid, 1),
            len => (TokenKind::Word, len),
        },
    }
}

fn word_len(rest: &[u8]) -> usize {
    let address = colon_address_len(rest);
    if address > 0 {
        return address;
    }
    if rest[0].is_ascii_digit() {
        let is_number = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        return rest.iter().take_while(is_number).count();
    }
    match name_len(rest) {
        // A dot by itself joins the fields of a concatenation.
        1 if rest[0] == b'.' => 0,
        0 => 0,
        // `eth*`
        len if rest.get(len) == Some(&b'*') => len + 1,
        len => len,
    }
}

fn name_len(rest: &[u8]) -> usize {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.');
    let is_inside = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(byte);
    match rest.first() {
        Some(&first) if is_start(first) => rest.iter().take_while(is_inside).count(),
        _ => 0,
    }
}

/// The length of an IPv6 or Ethernet address: hexadecimal digits with two colons or more.
fn colon_address_len(rest: &[u8]) -> usize {
    let is_address = |byte: &&u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let len = rest.iter().take_while(is_address).count();
    let run = &rest[..len];
    let colons = run.iter().filter(|&&byte| byte == b':').count();
    // The colon behind a map's key is not part of it: `2001:db8::1: drop`, `2001:db8::: drop`.
    let has_value = run.ends_with(b":::") || (run.ends_with(b":") && !run.ends_with(b"::"));
    match colons {
        0 | 1 => 0,
        2 if has_value => 0,
        _ => len - usize::from(has_value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let text = text.as_bytes();
        let mut lexer = Lexer::new();
        let mut words = Vec::new();
        loop {
            let token = lexer.next(text);
            let word = String::from_utf8_lossy(token.text(text)).into_owned();
            words.push(match token.kind {
                TokenKind::End => return words,
                TokenKind::Newline => "NL".into(),
                TokenKind::Quoted => format!("'{word}'"),
                TokenKind::Variable => format!("${word}"),
                TokenKind::Invalid => format!("!{word}"),
                TokenKind::Word | TokenKind::Punctuation(_) => word,
            });
        }
    }

    #[test]
    fn text_is_cut_as_nft_cuts_it() {
        for (text, expected) in [
            ("192.0.2.1 . 80", "192.0.2.1|.|80"),
            ("1.2.3.4 .80", "1.2.3.4|.80"),
            ("10.0.0.0/8", "10.0.0.0|/|8"),
            ("22-80 ssh-http", "22|-|80|ssh-http"),
            ("10.0.0.1-10.0.0.9,", "10.0.0.1|-|10.0.0.9|,"),
            ("fe80::/10-fe80::1", "fe80::|/|10|-|fe80::1"),
            ("::1:: ::", "::1::|::"),
            ("1.2.3.4:drop 22:drop", "1.2.3.4|:|drop|22|:|drop"),
            ("::1: drop 1::2 :accept", "::1|:|drop|1::2|:|accept"),
            ("2001:db8::: drop", "2001:db8::|:|drop"),
            ("00:0a:95:9d:68:16: drop", "00:0a:95:9d:68:16|:|drop"),
            ("ac:bd ::ffff:1.2.3.4", "ac|:|bd|::ffff:1.2.3.4"),
            (
                "eth* * \"eth*\" br-lan eth0.1",
                "eth*|*|'eth*'|br-lan|eth0.1",
            ),
            ("$a $a/24 $", "$a|$a/24|!$"),
            ("a # b { \" }\nc", "a|NL|c"),
            ("a \\\n b \\\r\n c\r\n", "a|b|c|NL"),
            ("@ll,48,32 != {}", "@|ll|,|48|,|32|!|=|{|}"),
            ("\"open\n", "!\"|open|NL"),
            ("\u{e9}", "!\u{fffd}|!\u{fffd}"),
            ("0x5c511e00/24 1h30m", "0x5c511e00|/|24|1h30m"),
        ] {
            assert_eq!(words(text).join("|"), expected, "{text}");
        }
    }

    #[test]
    fn places_count_continued_lines() {
        let text = b"a \\\n  b\n c";
        let mut lexer = Lexer::new();
        let places: Vec<_> = std::iter::repeat_with(|| lexer.next(text))
            .take_while(|token| token.kind != TokenKind::End)
            .map(|token| (token.line, token.column, token.is_spaced))
            .collect();
        assert_eq!(
            places,
            [(1, 1, false), (2, 3, true), (2, 4, false), (3, 2, true)]
        );
    }
}
