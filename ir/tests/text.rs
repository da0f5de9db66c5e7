//! The text form: printing and then parsing is the identity for every program, verified or not, and no text makes the
//! parser panic.

use pktjit_ir::program::{
    BinaryOp, Block, Column, CompareOp, Inst, LaneCompareOp, MaskOp, Table, Terminator, Type,
};
use pktjit_ir::{
    BlockId, ByteOrder, Field, FieldKind, KeyLayout, Program, TableId, ValueId, text, verify,
};
use quickcheck::{Arbitrary, Gen, QuickCheck, empty_shrinker};

const SAMPLE: &str = r#"
layout len=8 { ipv4_addr "saddr" at 0 big inet_service "dport" at 4 big }
verdicts 100

table0 "buckets" row_bytes=16 {
  "saddr" u32 x 4 at 0 max=0xffffffff ; four numbers
  data 0a000001 0a000002 0a000003 0a000004
}

block0:
  v0 = load_key.be32 0
  v1 = const 0
  v2 = row table0[v1]
  v3 = load_lanes.4 v2.0[0]
  v4 = splat.4 v0
  v5 = eq_lanes v4, v3
  v6 = lane_bits v5
  v7 = first_bit v6
  return v7
"#;

/// A program that is well formed as data and otherwise nonsense: the text form must hold it all the same.
#[derive(Clone)]
struct Nonsense(Program);

impl std::fmt::Debug for Nonsense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Arbitrary for Nonsense {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(Program {
            layout: layout(g),
            verdicts: u32::arbitrary(g),
            tables: some(g, table),
            scratch: Option::arbitrary(g).unwrap_or(0),
            staged: bool::arbitrary(g).then(|| value(g)),
            blocks: some(g, block),
        })
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let program = self.0.clone();
        if program.blocks.is_empty() && program.tables.is_empty() {
            return empty_shrinker();
        }
        let without_table = (0..program.tables.len()).map({
            let program = program.clone();
            move |i| {
                let mut smaller = program.clone();
                smaller.tables.remove(i);
                Self(smaller)
            }
        });
        let without_inst = (0..program.blocks.len()).map(move |i| {
            let mut smaller = program.clone();
            if smaller.blocks[i].insts.pop().is_none() {
                smaller.blocks.remove(i);
            }
            Self(smaller)
        });
        Box::new(without_table.chain(without_inst))
    }
}

fn some<T>(g: &mut Gen, make: fn(&mut Gen) -> T) -> Vec<T> {
    let count = usize::arbitrary(g) % 5;
    (0..count).map(|_| make(g)).collect()
}

fn pick<T: Clone>(g: &mut Gen, options: &[T]) -> T {
    g.choose(options).cloned().expect("there are options")
}

fn name(g: &mut Gen) -> Box<str> {
    String::arbitrary(g).into()
}

fn value(g: &mut Gen) -> ValueId {
    ValueId::new(u32::arbitrary(g))
}

fn values(g: &mut Gen) -> Vec<ValueId> {
    some(g, value)
}

fn block_id(g: &mut Gen) -> BlockId {
    BlockId::new(u32::arbitrary(g))
}

fn order(g: &mut Gen) -> ByteOrder {
    pick(g, &[ByteOrder::Big, ByteOrder::Little])
}

fn layout(g: &mut Gen) -> KeyLayout {
    let fields: Vec<(Field, usize)> = (0..1 + usize::arbitrary(g) % 4)
        .map(|_| {
            let name = name(g);
            let kind = pick(g, &FieldKind::ALL);
            let field = Field::of_kind(kind, &name, 1 + u8::arbitrary(g) % 16).unwrap();
            let field = field.with_byte_order(order(g));
            (field, usize::arbitrary(g) % 200)
        })
        .collect();
    let layout = KeyLayout::at(fields).unwrap();
    let padding = usize::arbitrary(g) % 20;
    let len = layout.len() + padding;
    layout.with_len(len).unwrap()
}

fn table(g: &mut Gen) -> Table {
    Table {
        name: name(g),
        row_bytes: u32::arbitrary(g) % 50,
        columns: some(g, |g| Column {
            name: name(g),
            offset: u32::arbitrary(g),
            bytes: u8::arbitrary(g),
            count: u32::arbitrary(g),
            max: u64::arbitrary(g),
            is_result: bool::arbitrary(g),
        }),
        data: Vec::<u8>::arbitrary(g).into(),
    }
}

fn block(g: &mut Gen) -> Block {
    Block {
        params: some(g, |g| (value(g), ty(g))),
        trips: Option::arbitrary(g),
        insts: some(g, |g| (value(g), inst(g))),
        terminator: terminator(g),
    }
}

fn ty(g: &mut Gen) -> Type {
    let lanes = u8::arbitrary(g);
    let table = TableId::new(u32::arbitrary(g));
    pick(
        g,
        &[
            Type::Scalar,
            Type::Row(table),
            Type::Lanes(lanes),
            Type::Mask(lanes),
            Type::Nothing,
        ],
    )
}

fn inst(g: &mut Gen) -> Inst {
    use {BinaryOp as B, CompareOp as C, LaneCompareOp as L, MaskOp as M};
    let binary = [
        B::And,
        B::Or,
        B::Xor,
        B::Add,
        B::Sub,
        B::Mul,
        B::Min,
        B::Max,
        B::Pext,
    ];
    let (a, b, x) = (value(g), value(g), value(g));
    let (small, column, lanes) = (u8::arbitrary(g), u8::arbitrary(g), u8::arbitrary(g));
    let all = [
        Inst::Const(u64::arbitrary(g)),
        Inst::LoadKey {
            offset: u16::arbitrary(g),
            bytes: small,
            order: order(g),
        },
        Inst::Binary {
            op: pick(g, &binary),
            a,
            b,
        },
        Inst::Shl { a, by: small },
        Inst::Shr { a, by: small },
        Inst::Compare {
            op: pick(g, &[C::Eq, C::Ne, C::Lt, C::Le]),
            a,
            b,
        },
        Inst::Select { cond: x, a, b },
        Inst::FirstBit { a },
        Inst::Row {
            table: TableId::new(u32::arbitrary(g)),
            index: a,
        },
        Inst::Load {
            row: a,
            column,
            index: pick(g, &[None, Some(b)]),
        },
        Inst::LoadLanes {
            row: a,
            column,
            first: u16::arbitrary(g),
            lanes,
        },
        Inst::LoadScratch { index: a },
        Inst::LoadScratchLanes { index: a, lanes },
        Inst::OrScratch { index: a, bits: b },
        Inst::AndLanes { a, b },
        Inst::Splat { a, lanes },
        Inst::CompareLanes {
            op: pick(g, &[L::Eq, L::Le]),
            a,
            b,
        },
        Inst::InRangeLanes { x, lo: a, len: b },
        Inst::InRangeHalves { x, lo: a, len: b },
        Inst::MaskedEqLanes {
            x,
            mask: a,
            value: b,
        },
        Inst::CombineMasks {
            op: pick(g, &[M::And, M::Or, M::AndNot]),
            a,
            b,
        },
        Inst::LaneBits { mask: a },
        Inst::MaskedMin { acc: a, mask: b, x },
        Inst::HorizontalMin { a },
    ];
    pick(g, &all)
}

fn terminator(g: &mut Gen) -> Terminator {
    let all = [
        Terminator::Jump {
            to: block_id(g),
            args: values(g),
        },
        Terminator::BranchIf {
            cond: value(g),
            then: block_id(g),
            then_args: values(g),
            otherwise: block_id(g),
            else_args: values(g),
        },
        Terminator::Repeat {
            head: block_id(g),
            args: values(g),
            exit: block_id(g),
            exit_args: values(g),
        },
        Terminator::Return { value: value(g) },
    ];
    pick(g, &all)
}

fn quickcheck(tests: u64) -> QuickCheck {
    QuickCheck::new().tests(tests).min_tests_passed(tests)
}

#[test]
fn qc_print_then_parse_is_the_identity() {
    fn property(program: Nonsense) -> bool {
        text::parse(&program.0.to_string()).as_ref() == Ok(&program.0)
    }
    quickcheck(500).quickcheck(property as fn(Nonsense) -> bool);
}

#[test]
fn qc_parser_never_panics_on_a_damaged_text() {
    fn property(program: Nonsense, damage: Vec<(usize, char)>) -> bool {
        let mut chars: Vec<char> = program.0.to_string().chars().collect();
        for (at, c) in damage {
            let at = at % chars.len();
            // Damage that leaves the tokens whole reaches deeper than random characters do.
            match u32::from(c) % 3 {
                0 => chars[at] = c,
                1 => drop(chars.remove(at)),
                _ => chars[at] = pick(&mut Gen::new(8), &['"', '\\', '{', '}', ';', ' ', 'v']),
            }
            if chars.is_empty() {
                break;
            }
        }
        let _ = text::parse(&chars.iter().collect::<String>());
        true
    }
    quickcheck(500).quickcheck(property as fn(Nonsense, Vec<(usize, char)>) -> bool);
}

#[test]
fn every_prefix_of_a_program_is_an_error_or_a_program() {
    for (end, _) in SAMPLE.char_indices() {
        let _ = text::parse(&SAMPLE[..end]);
    }
}

#[test]
fn verified_program_prints_a_text_that_parses_to_its_program() {
    let verified = verify(text::parse(SAMPLE).unwrap()).unwrap();
    let text = verified.to_string();
    assert_eq!(text::parse(&text).as_ref(), Ok(verified.program()));
    assert!(text.contains("v6 = lane_bits v5  ; <= 0xf\n"), "{text}");
    assert!(
        text.contains("v3 = load_lanes.4 v2.0[0]  ; \"saddr\"\n"),
        "{text}"
    );
}

const SCRATCH: &str = r#"
layout len=1 { inet_proto "p" at 0 big }
verdicts 100

table0 "bits" row_bytes=16 {
  "map" u32 x 4 at 0 max=0xffffffff
  data 00000001 00000002 00000004 00000008
}

scratch 4

block0:
  v0 = const 0
  v1 = row table0[v0]
  v2 = load_lanes.4 v1.0[0]
  v3 = or_scratch [v0], v0
  v4 = load_scratch_lanes.4 [v0]
  v5 = and_lanes v2, v4
  v6 = load_scratch [v0]
  return v6
"#;

#[test]
fn verified_program_with_scratch_prints_as_it_was_written() {
    let verified = verify(text::parse(SCRATCH).unwrap()).unwrap();
    let text = verified.to_string();
    assert_eq!(text::parse(&text).as_ref(), Ok(verified.program()));
    for line in [
        "scratch 4\n",
        "v2 = load_lanes.4 v1.0[0]  ; \"map\"\n",
        "v3 = or_scratch [v0], v0\n",
        "v4 = load_scratch_lanes.4 [v0]\n",
        "v5 = and_lanes v2, v4\n",
        "v6 = load_scratch [v0]  ; <= 0xffffffff\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn scratch_is_a_number_of_32_bits_between_tables_and_blocks() {
    let of = |number| error_of(&SCRATCH.replace("scratch 4\n", number));
    assert_eq!(
        of("scratch\n"),
        "12:1: expected a number of at most 64 bits"
    );
    assert_eq!(
        of("scratch 0x100000000\n"),
        "10:9: 4294967296 is too large here"
    );
    assert_eq!(
        of("scratch 4\nscratch 4\n"),
        "11:1: expected `block` and a number"
    );
}

fn error_of(text: &str) -> String {
    text::parse(text).unwrap_err().to_string()
}

#[test]
fn errors_name_line_and_column() {
    assert_eq!(error_of(""), "1:1: expected `layout`");
    let wrong = SAMPLE.replace("eq_lanes", "equal");
    assert_eq!(error_of(&wrong), "16:8: `equal` is no instruction");
    // Columns are characters, not bytes.
    let wrong = SAMPLE.replace("\"saddr\" at 0 big", "\"ü\" at 0 grand");
    assert_eq!(error_of(&wrong), "2:35: expected `big` or `little`");
}

#[test]
fn numbers_must_fit_where_they_stand() {
    let wrong = SAMPLE.replace("[0]", "[65536]");
    assert_eq!(error_of(&wrong), "14:26: 65536 is too large here");
    let wrong = SAMPLE.replace("const 0", "const 0x10000000000000000");
    assert_eq!(
        error_of(&wrong),
        "12:14: expected a number of at most 64 bits"
    );
}

#[test]
fn ids_of_blocks_and_tables_say_their_position() {
    let wrong = SAMPLE.replace("block0", "block1");
    assert_eq!(error_of(&wrong), "10:1: expected `block0`");
    let wrong = SAMPLE.replace("table0 \"", "table7 \"");
    assert_eq!(error_of(&wrong), "5:1: expected `table0`");
}

#[test]
fn fields_that_are_no_layout_are_an_error_at_the_layout() {
    assert_eq!(
        error_of(&SAMPLE.replace("len=8", "len=5")),
        "2:8: a key of 5 bytes, not 6 to 256"
    );
    assert_eq!(
        error_of(&SAMPLE.replace("at 4", "at 255")),
        "2:8: field `dport` at byte 255 ends beyond byte 256 of the key"
    );
}

#[test]
fn names_keep_quotes_line_breaks_and_comment_signs() {
    let mut program = text::parse(SAMPLE).unwrap();
    program.tables[0].name = "a \"b\" ; c\n}\u{0}\u{202e}é\\".into();
    program.tables[0].columns[0].name = "; \n return v0".into();
    assert_eq!(text::parse(&program.to_string()), Ok(program));
}
