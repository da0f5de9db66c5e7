//! Key layouts and the text of keys: a layout of fields that the first bytes choose, and keys of such fields that the rest
//! spells.

use std::fs;
use std::path::PathBuf;

use arbitrary::Unstructured;
use pktjit::formats::{KeyFile, RuleFile};
use pktjit_ir::{ByteOrder, Field, FieldKind, KeyLayout, Word};

use super::rule_file::{is_inside, is_whole};
use super::testdata;
use crate::r#gen::Choices;

/// Makes a layout in each way that there is, and reads keys.
///
/// # Panics
/// Where a layout loses a value, fields do not lie where they were put, or a key's text is read in two ways.
pub fn key_layout(input: &[u8]) {
    let mut choices = Unstructured::new(input);
    let fields = fields(&mut choices);
    let offsets: Vec<usize> = fields.iter().map(|_| choices.below(300) as usize).collect();
    let len = choices.below(300) as usize;
    let just_fields = || fields.iter().cloned();
    let layouts = [
        KeyLayout::packed(just_fields()),
        KeyLayout::nft_registers(just_fields()),
        KeyLayout::at(just_fields().zip(offsets.iter().copied())),
    ];
    for layout in layouts.into_iter().flatten() {
        check_layout(&layout, &fields);
        if let Ok(layout) = layout.with_len(len) {
            assert_eq!(layout.len(), len);
            check_layout(&layout, &fields);
        }
    }
    check_key_text(&fields, choices.take_rest());
}

/// At most 18 fields, two more than a layout takes.
fn fields(choices: &mut Unstructured<'_>) -> Vec<Field> {
    let count = choices.below(19);
    let field = |i| {
        let name = format!("f{i}");
        let kind = choices.pick(&FieldKind::ALL);
        let bytes = match kind {
            FieldKind::Integer => choices.below(18) as u8,
            _ => 0,
        };
        let field = Field::of_kind(kind, &name, bytes).ok()?;
        Some(field.with_byte_order(choices.pick(&[ByteOrder::Big, ByteOrder::Little])))
    };
    (0..count).filter_map(field).collect()
}

fn check_layout(layout: &KeyLayout, fields: &[Field]) {
    assert_eq!(layout.fields(), fields);
    for len in [0, layout.len() - 1, layout.len() + 1] {
        assert!(layout.key(&vec![0; len]).is_err());
    }
    for id in layout.field_ids() {
        let field = layout.field(id);
        let value = 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe & field.max();
        // One field alone: others may overlap it.
        let mut values = vec![0; id.index() + 1];
        values[id.index()] = value;
        let bytes = layout.encode(&values);
        let key = layout.key(&bytes).expect("encoded");
        assert_eq!(layout.read(key, id), value, "{layout:?}");

        let words: Vec<Word> = layout.words(id).collect();
        let long: Vec<Word> = layout.long_words(id).collect();
        for words in [words, long] {
            let joined = words.iter().fold((0, 0), |(joined, bytes), word| {
                let start = usize::from(word.offset);
                let mut raw = key.bytes()[start..start + usize::from(word.bytes)].to_vec();
                if word.order == ByteOrder::Little {
                    raw.reverse();
                }
                let read = raw
                    .iter()
                    .fold(0, |read, &byte| read << 8 | u64::from(byte));
                assert_eq!(read, word.of(value), "{word:?} of {layout:?}");
                (joined | u128::from(read) << word.shift, bytes + word.bytes)
            });
            assert_eq!(joined, (value, field.bytes()), "{layout:?}");
        }
    }
}

/// Reads the lines of `text` as keys of a set with such fields.
fn check_key_text(fields: &[Field], text: &[u8]) {
    let types = fields.iter().map(|field| match field.kind() {
        FieldKind::Ipv4Addr => "ip saddr".into(),
        FieldKind::Ipv6Addr => "ip6 saddr".into(),
        FieldKind::EtherAddr => "ether saddr".into(),
        FieldKind::InetProto => "ip protocol".into(),
        FieldKind::InetService => "tcp dport".into(),
        FieldKind::Mark => "meta mark".into(),
        FieldKind::Ifname => "iifname".into(),
        FieldKind::Integer => format!("@nh,0,{}", field.bits()),
    });
    let types = types.collect::<Vec<String>>().join(" . ");
    let rules = format!("table ip t {{ set s {{ typeof {types}; }}\n}}");
    // Refused where the fields make no layout.
    let Ok(file) = RuleFile::parse("rules", rules.as_bytes()) else {
        return;
    };
    let set = file.set(None).expect("one set");
    for key in KeyFile::new("keys", text, set).expect("memory can be read") {
        let key = match key {
            Ok(key) => key,
            Err(error) => return assert!(is_inside(text, error.location()), "{error}"),
        };
        let packed = set.packed_layout().encode(&key.values);
        let bytes = set.packed_layout().key(&packed).expect("encoded");
        for (id, &value) in set.packed_layout().field_ids().zip(&key.values) {
            assert_eq!(set.packed_layout().read(bytes, id), value, "{key:?}");
        }
        // White space is shown as one blank, in a quoted name too.
        let has_runs = text.windows(2).any(|pair| pair == b"  ");
        if is_whole(&key.text) && !has_runs {
            let again = set.key(&key.text);
            let again = again.unwrap_or_else(|error| panic!("{error}: {key:?}"));
            assert_eq!(again, key);
        }
    }
}

/// The first keys of each file of the corpus, behind the fields of its set as [`key_layout`] chooses them.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let seed = |path: PathBuf| {
        let file = RuleFile::read(&path).expect("a rule file");
        let layout = file.set(None).expect("one set").packed_layout();
        let mut seed = vec![layout.fields().len() as u8];
        for field in layout.fields() {
            let kind = FieldKind::ALL.iter().position(|&kind| kind == field.kind());
            seed.push(kind.expect("all kinds are listed") as u8);
            if field.kind() == FieldKind::Integer {
                seed.push(field.bytes());
            }
            seed.push((field.byte_order() == ByteOrder::Little).into());
        }
        let offsets = layout.field_ids().map(|id| layout.offset(id));
        for number in offsets.chain([layout.len()]) {
            seed.extend((number as u16).to_be_bytes());
        }
        let keys = fs::read_to_string(path.with_extension("keys")).expect("keys in UTF-8");
        let lines = keys.split_inclusive('\n').take(8);
        seed.extend(lines.flat_map(str::bytes));
        seed
    };
    testdata("corpus", ".nft").into_iter().map(seed).collect()
}
