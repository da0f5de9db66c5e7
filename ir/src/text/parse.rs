//! Reads programs from text. Time is linear in the text, no rule of the grammar contains itself, and any input gives a
//! program or an error with line and column.
//!
//! ```text
//! program    = layout "verdicts" NUMBER table* ["scratch" NUMBER] ["staged" VALUE] block*
//! layout     = "layout" "len" "=" NUMBER "{" (KIND ["." NUMBER] STRING "at" NUMBER ("big" | "little"))* "}"
//! table      = TABLE STRING "row_bytes" "=" NUMBER "{" column* "data" HEX* "}"
//! column     = STRING "u"BITS "x" NUMBER "at" NUMBER "max" "=" NUMBER ["result"]
//! block      = BLOCK ["(" VALUE ":" type ("," VALUE ":" type)* ")"] ["trips" "=" NUMBER] ":" inst* terminator
//! inst       = VALUE "=" OPERATION operands
//! terminator = "jump" target | "branch_if" VALUE "," target "," target | "repeat" target "," target | "return" VALUE
//! target     = BLOCK ["(" VALUE ("," VALUE)* ")"]
//! ```

use crate::entity::{BlockId, TableId, ValueId};
use crate::field::{ByteOrder, Field, FieldKind};
use crate::key::KeyLayout;
use crate::program::{
    BinaryOp, Block, Column, CompareOp, Inst, LaneCompareOp, MaskOp, Program, Table, Terminator,
    Type,
};

/// Where and why a text is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: usize,
    /// Character in the line, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

/// Reads a program from its text form.
///
/// ```
/// let text = "layout len=1 { inet_proto \"proto\" at 0 big } verdicts 1 block0: v0 = const 0 return v0";
/// let program = pktjit_ir::text::parse(text).unwrap();
/// assert_eq!(pktjit_ir::text::parse(&program.to_string()), Ok(program));
/// ```
///
/// # Errors
/// Where the text does not follow the grammar, a number does not fit, or the fields are no key layout. What is wrong in a
/// program that can be written down is for [`verify`](crate::verify()) to say.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    let mut parser = Parser { text, at: 0 };
    parser.program().map_err(|(at, message)| {
        let before = text.get(..at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ParseError {
            line: before.bytes().filter(|&byte| byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message,
        }
    })
}

/// What is wrong at which byte.
type Wrong = (usize, String);

struct Parser<'a> {
    text: &'a str,
    /// Byte position of what has not been read.
    at: usize,
}

impl<'a> Parser<'a> {
    fn program(&mut self) -> Result<Program, Wrong> {
        let layout = self.layout()?;
        self.keyword("verdicts")?;
        let verdicts = self.number()?;
        let mut tables = Vec::new();
        while self.peek_word().starts_with("table") {
            self.numbered("table", tables.len())?;
            tables.push(self.table()?);
        }
        let scratch = match self.peek_word() {
            "scratch" => {
                self.word();
                self.number()?
            }
            _ => 0,
        };
        let staged = match self.peek_word() {
            "staged" => {
                self.word();
                Some(self.value()?)
            }
            _ => None,
        };
        let mut blocks = Vec::new();
        while !self.is_at_end() {
            self.numbered("block", blocks.len())?;
            blocks.push(self.block()?);
        }
        Ok(Program {
            layout,
            verdicts,
            tables,
            scratch,
            staged,
            blocks,
        })
    }

    fn layout(&mut self) -> Result<KeyLayout, Wrong> {
        self.keyword("layout")?;
        let at = self.start();
        let len = self.setting("len")?;
        self.symbol('{')?;
        let mut fields = Vec::new();
        while !self.accept('}') {
            fields.push(self.field()?);
        }
        KeyLayout::at(fields)
            .and_then(|layout| layout.with_len(len))
            .map_err(|error| (at, error.to_string()))
    }

    fn field(&mut self) -> Result<(Field, usize), Wrong> {
        let (at, kind) = self.word();
        let kind = FieldKind::ALL
            .into_iter()
            .find(|known| known.name() == kind)
            .ok_or_else(|| (at, format!("`{kind}` is no kind of field")))?;
        let bytes = match kind {
            FieldKind::Integer => {
                self.symbol('.')?;
                self.number()?
            }
            _ => 0,
        };
        let name = self.string()?;
        let field = Field::of_kind(kind, &name, bytes).map_err(|error| (at, error.to_string()))?;
        self.keyword("at")?;
        let offset = self.number()?;
        let order = match self.word() {
            (_, "big") => ByteOrder::Big,
            (_, "little") => ByteOrder::Little,
            (at, _) => return Err((at, "expected `big` or `little`".into())),
        };
        Ok((field.with_byte_order(order), offset))
    }

    fn table(&mut self) -> Result<Table, Wrong> {
        let name = self.string()?.into();
        let row_bytes = self.setting("row_bytes")?;
        self.symbol('{')?;
        let mut columns = Vec::new();
        while self.peek_word() != "data" {
            columns.push(self.column()?);
        }
        self.keyword("data")?;
        let mut data = Vec::new();
        while !self.accept('}') {
            self.hex_bytes(&mut data)?;
        }
        Ok(Table {
            name,
            row_bytes,
            columns,
            data: data.into(),
        })
    }

    fn column(&mut self) -> Result<Column, Wrong> {
        let name = self.string()?.into();
        let bytes = self.bits("u")?;
        self.keyword("x")?;
        let count = self.number()?;
        self.keyword("at")?;
        let offset = self.number()?;
        let max = self.setting("max")?;
        let is_result = self.peek_word() == "result";
        if is_result {
            self.word();
        }
        Ok(Column {
            name,
            offset,
            bytes,
            count,
            max,
            is_result,
        })
    }

    fn block(&mut self) -> Result<Block, Wrong> {
        let params = self.list(|parser| {
            let value = parser.value()?;
            parser.symbol(':')?;
            Ok((value, parser.ty()?))
        })?;
        let trips = match self.peek_word() {
            "trips" => Some(self.setting("trips")?),
            _ => None,
        };
        self.symbol(':')?;
        let mut insts = Vec::new();
        while self.peek_word().starts_with('v') {
            let value = self.value()?;
            self.symbol('=')?;
            insts.push((value, self.inst()?));
        }
        Ok(Block {
            params,
            trips,
            insts,
            terminator: self.terminator()?,
        })
    }

    fn ty(&mut self) -> Result<Type, Wrong> {
        match self.word() {
            (_, "scalar") => Ok(Type::Scalar),
            (_, "row") => {
                self.symbol('.')?;
                Ok(Type::Row(self.table_id()?))
            }
            (_, "lanes") => Ok(Type::Lanes(self.suffix()?)),
            (_, "mask") => Ok(Type::Mask(self.suffix()?)),
            (_, "nothing") => Ok(Type::Nothing),
            (at, word) => Err((at, format!("`{word}` is no type"))),
        }
    }

    fn inst(&mut self) -> Result<Inst, Wrong> {
        let (at, name) = self.word();
        Ok(match name {
            "const" => Inst::Const(self.number()?),
            "load_key" => {
                self.symbol('.')?;
                let order = match self.peek_word().starts_with("le") {
                    true => ByteOrder::Little,
                    false => ByteOrder::Big,
                };
                let bytes = self.bits(match order {
                    ByteOrder::Little => "le",
                    ByteOrder::Big => "be",
                })?;
                let offset = self.number()?;
                Inst::LoadKey {
                    offset,
                    bytes,
                    order,
                }
            }
            "shl" | "shr" => {
                let a = self.value()?;
                self.symbol(',')?;
                let by = self.number()?;
                match name {
                    "shl" => Inst::Shl { a, by },
                    _ => Inst::Shr { a, by },
                }
            }
            "select" => {
                let [cond, a, b] = self.values()?;
                Inst::Select { cond, a, b }
            }
            "first_bit" => Inst::FirstBit { a: self.value()? },
            "row" => {
                let table = self.table_id()?;
                let index = self.in_brackets(Self::value)?;
                Inst::Row { table, index }
            }
            "load" => {
                let row = self.value()?;
                let column = self.suffix()?;
                let index = match self.peek() {
                    Some('[') => Some(self.in_brackets(Self::value)?),
                    _ => None,
                };
                Inst::Load { row, column, index }
            }
            "load_lanes" => {
                let lanes = self.suffix()?;
                let row = self.value()?;
                let column = self.suffix()?;
                let first = self.in_brackets(Self::number)?;
                Inst::LoadLanes {
                    row,
                    column,
                    first,
                    lanes,
                }
            }
            "load_scratch" => Inst::LoadScratch {
                index: self.in_brackets(Self::value)?,
            },
            "load_scratch_lanes" => {
                let lanes = self.suffix()?;
                let index = self.in_brackets(Self::value)?;
                Inst::LoadScratchLanes { index, lanes }
            }
            "or_scratch" => {
                let index = self.in_brackets(Self::value)?;
                self.symbol(',')?;
                let bits = self.value()?;
                Inst::OrScratch { index, bits }
            }
            "and_lanes" => {
                let [a, b] = self.values()?;
                Inst::AndLanes { a, b }
            }
            "splat" => {
                let lanes = self.suffix()?;
                let a = self.value()?;
                Inst::Splat { a, lanes }
            }
            "in_range_lanes" => {
                let [x, lo, len] = self.values()?;
                Inst::InRangeLanes { x, lo, len }
            }
            "in_range_halves" => {
                let [x, lo, len] = self.values()?;
                Inst::InRangeHalves { x, lo, len }
            }
            "masked_eq_lanes" => {
                let [x, mask, value] = self.values()?;
                Inst::MaskedEqLanes { x, mask, value }
            }
            "lane_bits" => Inst::LaneBits {
                mask: self.value()?,
            },
            "masked_min" => {
                let [acc, mask, x] = self.values()?;
                Inst::MaskedMin { acc, mask, x }
            }
            "horizontal_min" => Inst::HorizontalMin { a: self.value()? },
            _ => return self.pair_inst(at, name),
        })
    }

    /// The instructions with an operation and two operands.
    fn pair_inst(&mut self, at: usize, name: &str) -> Result<Inst, Wrong> {
        if let Some(op) = op_named(&BinaryOp::NAMES, name) {
            let [a, b] = self.values()?;
            return Ok(Inst::Binary { op, a, b });
        }
        if let Some(op) = op_named(&CompareOp::NAMES, name) {
            let [a, b] = self.values()?;
            return Ok(Inst::Compare { op, a, b });
        }
        if let Some(op) = op_named(&LaneCompareOp::NAMES, name) {
            let [a, b] = self.values()?;
            return Ok(Inst::CompareLanes { op, a, b });
        }
        if let Some(op) = op_named(&MaskOp::NAMES, name) {
            let [a, b] = self.values()?;
            return Ok(Inst::CombineMasks { op, a, b });
        }
        Err((at, format!("`{name}` is no instruction")))
    }

    fn terminator(&mut self) -> Result<Terminator, Wrong> {
        match self.word() {
            (_, "jump") => {
                let (to, args) = self.target()?;
                Ok(Terminator::Jump { to, args })
            }
            (_, "branch_if") => {
                let cond = self.value()?;
                self.symbol(',')?;
                let (then, then_args) = self.target()?;
                self.symbol(',')?;
                let (otherwise, else_args) = self.target()?;
                Ok(Terminator::BranchIf {
                    cond,
                    then,
                    then_args,
                    otherwise,
                    else_args,
                })
            }
            (_, "repeat") => {
                let (head, args) = self.target()?;
                self.symbol(',')?;
                let (exit, exit_args) = self.target()?;
                Ok(Terminator::Repeat {
                    head,
                    args,
                    exit,
                    exit_args,
                })
            }
            (_, "return") => Ok(Terminator::Return {
                value: self.value()?,
            }),
            (at, _) => Err((at, "expected an instruction or a terminator".into())),
        }
    }

    fn target(&mut self) -> Result<(BlockId, Vec<ValueId>), Wrong> {
        let block = BlockId::new(self.id("block")?);
        Ok((block, self.list(Self::value)?))
    }

    /// As many values as the caller asks for, with commas between them.
    fn values<const N: usize>(&mut self) -> Result<[ValueId; N], Wrong> {
        let mut values = [ValueId::new(0); N];
        for (i, value) in values.iter_mut().enumerate() {
            if i > 0 {
                self.symbol(',')?;
            }
            *value = self.value()?;
        }
        Ok(values)
    }

    /// A list in parentheses, or nothing.
    fn list<T>(
        &mut self,
        mut read_one: impl FnMut(&mut Self) -> Result<T, Wrong>,
    ) -> Result<Vec<T>, Wrong> {
        let mut items = Vec::new();
        if self.accept('(') {
            loop {
                items.push(read_one(self)?);
                if !self.accept(',') {
                    break;
                }
            }
            self.symbol(')')?;
        }
        Ok(items)
    }

    fn in_brackets<T>(
        &mut self,
        read_one: impl FnOnce(&mut Self) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        self.symbol('[')?;
        let item = read_one(self)?;
        self.symbol(']')?;
        Ok(item)
    }

    fn value(&mut self) -> Result<ValueId, Wrong> {
        self.id("v").map(ValueId::new)
    }

    fn table_id(&mut self) -> Result<TableId, Wrong> {
        self.id("table").map(TableId::new)
    }

    /// The id that a table or block starts with, which says its position for the reader's sake.
    fn numbered(&mut self, prefix: &str, expected: usize) -> Result<(), Wrong> {
        let at = self.start();
        match self.id(prefix)? {
            id if id as usize == expected => Ok(()),
            _ => Err((at, format!("expected `{prefix}{expected}`"))),
        }
    }

    /// `v7`: a prefix and a number.
    fn id(&mut self, prefix: &str) -> Result<u32, Wrong> {
        let (at, word) = self.word();
        word.strip_prefix(prefix)
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| (at, format!("expected `{prefix}` and a number")))
    }

    /// `u32`, `be16`: a prefix and a number of bits, as bytes.
    fn bits(&mut self, prefix: &str) -> Result<u8, Wrong> {
        let at = self.start();
        let bits = self.id(prefix)?;
        u8::try_from(bits / 8)
            .ok()
            .filter(|_| bits.is_multiple_of(8))
            .ok_or_else(|| (at, format!("{bits} bits are not 0 to 255 bytes")))
    }

    /// `.8`: what an operation or a row is suffixed with.
    fn suffix(&mut self) -> Result<u8, Wrong> {
        self.symbol('.')?;
        self.number()
    }

    /// `len=8`.
    fn setting<T: TryFrom<u64>>(&mut self, name: &str) -> Result<T, Wrong> {
        self.keyword(name)?;
        self.symbol('=')?;
        self.number()
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Result<T, Wrong> {
        let (at, word) = self.word();
        let number = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => word.parse(),
        };
        let number = number.map_err(|_| (at, "expected a number of at most 64 bits".into()))?;
        T::try_from(number).map_err(|_| (at, format!("{number} is too large here")))
    }

    fn hex_bytes(&mut self, data: &mut Vec<u8>) -> Result<(), Wrong> {
        let (at, word) = self.word();
        let pairs = word.as_bytes().chunks_exact(2);
        if word.is_empty() || !pairs.remainder().is_empty() {
            return Err((at, "expected bytes of two hexadecimal digits or `}`".into()));
        }
        for pair in pairs {
            let digit = |i: usize| char::from(pair[i]).to_digit(16);
            let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                return Err((at, format!("`{word}` is not hexadecimal")));
            };
            data.push((high << 4 | low) as u8);
        }
        Ok(())
    }

    /// A quoted string with the escapes that Rust's `{:?}` writes.
    fn string(&mut self) -> Result<String, Wrong> {
        let at = self.start();
        let wrong = |message: &str| Err((at, message.to_owned()));
        if !self.accept('"') {
            return wrong("expected a quoted name");
        }
        let mut string = String::new();
        let mut chars = self.rest().chars();
        loop {
            let c = match chars.next() {
                None => return wrong("the quoted name does not end"),
                Some('"') => break,
                Some('\\') => match chars.next() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some('0') => '\0',
                    Some(c @ ('\\' | '"' | '\'')) => c,
                    Some('u') => {
                        let code = chars.as_str().strip_prefix('{').and_then(|rest| {
                            let (code, rest) = rest.split_at(rest.find('}').filter(|&n| n <= 6)?);
                            chars = rest[1..].chars();
                            char::from_u32(u32::from_str_radix(code, 16).ok()?)
                        });
                        match code {
                            Some(c) => c,
                            None => return wrong("`\\u{...}` is no character"),
                        }
                    }
                    _ => return wrong("an unknown escape in the quoted name"),
                },
                Some(c) => c,
            };
            string.push(c);
        }
        self.at = self.text.len() - chars.as_str().len();
        Ok(string)
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), Wrong> {
        match self.word() {
            (_, word) if word == keyword => Ok(()),
            (at, _) => Err((at, format!("expected `{keyword}`"))),
        }
    }

    fn symbol(&mut self, symbol: char) -> Result<(), Wrong> {
        let at = self.start();
        match self.accept(symbol) {
            true => Ok(()),
            false => Err((at, format!("expected `{symbol}`"))),
        }
    }

    fn accept(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(symbol);
        if found {
            self.at += symbol.len_utf8();
        }
        found
    }

    fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    fn peek(&mut self) -> Option<char> {
        self.start();
        self.rest().chars().next()
    }

    /// The next word with its position, empty where something else comes next.
    fn word(&mut self) -> (usize, &'a str) {
        let word = self.peek_word();
        let at = self.at;
        self.at += word.len();
        (at, word)
    }

    fn peek_word(&mut self) -> &'a str {
        self.start();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        &rest[..end.unwrap_or(rest.len())]
    }

    /// Skips blanks and comments, and says where the next token starts.
    fn start(&mut self) -> usize {
        loop {
            let rest = self.rest();
            let skipped = match rest.chars().next() {
                Some(';') => rest.find('\n').unwrap_or(rest.len()),
                _ => rest.len() - rest.trim_start().len(),
            };
            if skipped == 0 {
                return self.at;
            }
            self.at += skipped;
        }
    }

    fn rest(&self) -> &'a str {
        // `at` only moves by whole characters.
        self.text.get(self.at..).unwrap_or("")
    }
}

fn op_named<T: Copy>(names: &[(T, &str)], name: &str) -> Option<T> {
    let found = names.iter().find(|(_, known)| *known == name);
    found.map(|&(op, _)| op)
}
