//! What of nft text is read, and what it means.

use pktjit_ir::{FieldKind, Match, Verdict};

use super::refusals::refusal;
use crate::formats::{RuleFile, SetKind, SourceSet};

pub(super) const INTERVAL: &str = "flags interval;";

pub(super) fn read(text: &str) -> RuleFile {
    RuleFile::parse("f", text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A set of table `ip t` with these statements, all in line 1.
pub(super) fn block(object: &str, ty: &str, statements: &str, elements: &str) -> String {
    format!(
        "table t {{ {object} s {{ type {ty}; {statements} elements = {{ {elements} }}; }}\n}}\n"
    )
}

fn set(ty: &str, statements: &str, elements: &str) -> SourceSet {
    read(&block("set", ty, statements, elements)).sets()[0].clone()
}

fn map(ty: &str, statements: &str, elements: &str) -> SourceSet {
    read(&block("map", ty, statements, elements)).sets()[0].clone()
}

fn matches(set: &SourceSet) -> Vec<&[Match]> {
    let elements = set.elements().iter();
    elements.map(|element| &*element.rule().matches).collect()
}

fn texts(set: &SourceSet) -> Vec<&str> {
    set.elements()
        .iter()
        .map(|element| element.text())
        .collect()
}

#[test]
fn values_prefixes_and_ranges_are_read() {
    let set = set(
        "ipv4_addr",
        INTERVAL,
        "10.0.0.1, 10.1.0.0/16, 10.2.0.0-10.2.0.9, 10.3.0.0 - 10.3.0.9, 1.2.3.4-1.2.3.4, *,",
    );
    let range = |lo, hi| [Match::Range { lo, hi }];
    assert_eq!(
        matches(&set),
        [
            &[Match::Exact(0x0a00_0001)],
            &[Match::Prefix {
                value: 0x0a01_0000,
                len: 16
            }],
            &range(0x0a02_0000, 0x0a02_0009),
            &range(0x0a03_0000, 0x0a03_0009),
            &range(0x0102_0304, 0x0102_0304),
            &[Match::Any],
        ]
    );
    let priorities = set.elements().iter().map(|element| element.rule().priority);
    assert!(priorities.eq([0, 0, 0, 0, 0, i32::MIN]));
}

#[test]
fn concatenations_are_read() {
    let set = set(
        "ipv4_addr . inet_service . ifname . mark",
        INTERVAL,
        "10.0.0.0/8 . ssh . eth* . 0x10/28, 10.0.0.1 . 1-2 . \"a b\" . 7",
    );
    assert_eq!(
        texts(&set),
        [
            "10.0.0.0/8 . ssh . eth* . 0x10/28",
            "10.0.0.1 . 1-2 . \"a b\" . 7"
        ]
    );
    assert_eq!(
        set.elements()[0].rule().matches[2],
        Match::Prefix {
            value: 0x65_7468 << 104,
            len: 24
        }
    );
    assert_eq!(set.packed_layout().len(), 4 + 2 + 16 + 4);
}

#[test]
fn elements_know_their_place_and_text() {
    let file = read(
        "table t {\n set s {\n  type ipv4_addr . inet_service\n  elements = { 1.1.1.1   .\t80, # one\n\
         \n   # two\n   2.2.2.2 . 443 comment \"x\" ,\n }\n }\n}\nadd element t s { 3.3.3.3 . 1 }\n",
    );
    let set = &file.sets()[0];
    assert_eq!(texts(set), ["1.1.1.1 . 80", "2.2.2.2 . 443", "3.3.3.3 . 1"]);
    let places: Vec<_> = set
        .elements()
        .iter()
        .map(|e| (e.line(), e.column()))
        .collect();
    assert_eq!(places, [(4, 16), (7, 4), (11, 19)]);
    assert_eq!(
        set.element_location(&set.elements()[1]).to_string(),
        "f:7:4"
    );
}

#[test]
fn every_verdict_is_read() {
    let map = map(
        "ipv4_addr : verdict",
        "",
        "1.1.1.1 : accept, 1.1.1.2:drop, 1.1.1.3 : continue, 1.1.1.4 : return, 1.1.1.5 : jump  a-b, * : goto c",
    );
    let verdicts: Vec<_> = map
        .elements()
        .iter()
        .map(|e| e.rule().verdict.clone())
        .collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Accept,
            Verdict::Drop,
            Verdict::Continue,
            Verdict::Return,
            Verdict::Jump("a-b".into()),
            Verdict::Goto("c".into()),
        ]
    );
    assert_eq!(map.elements()[4].verdict_text(), "jump a-b");
    assert_eq!(map.elements()[4].text(), "1.1.1.5");
    assert_eq!(map.kind(), SetKind::VerdictMap);
}

#[test]
fn data_is_encoded_as_its_type_lays_it_out() {
    let data = |ty: &str, element: &str| {
        let map = map(ty, "", element);
        assert_eq!(map.kind(), SetKind::Map);
        match &map.elements()[0].rule().verdict {
            Verdict::Data(data) => (data.to_vec(), map.elements()[0].verdict_text().to_owned()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        data(
            "ipv4_addr : ipv4_addr . inet_service",
            "1.1.1.1 : 10.0.0.1  . http"
        ),
        (vec![10, 0, 0, 1, 0, 80], "10.0.0.1 . http".to_owned())
    );
    assert_eq!(
        data("ipv4_addr : mark", "1.1.1.1 : 0x102").0,
        0x102u32.to_ne_bytes()
    );
    assert_eq!(
        data("ipv4_addr : interval inet_service", "1.1.1.1 : 1-2").0,
        [0, 1, 0, 2]
    );
    assert_eq!(
        data("ipv4_addr : interval ipv4_addr", "1.1.1.1 : 10.0.0.0/8").0,
        [10, 0, 0, 0, 10, 255, 255, 255]
    );
}

#[test]
fn every_statement_of_a_set_is_read() {
    let file = read(
        "table inet t {\n set s {\n  typeof ip saddr . tcp dport\n  flags interval, timeout,dynamic\n  auto-merge\n\
         timeout 1h30m\n  gc-interval 10s\n  policy memory\n  size 65535\n  comment \"a } b\"\n  counter\n\
         elements = { 1.1.1.1 . 1 timeout 1d expires 3s20ms comment \"y\" counter packets 1 bytes 2,\n\
         1.1.1.1 . 2 counter }\n }\n}\n",
    );
    let set = &file.sets()[0];
    let flags = set.flags();
    assert!(flags.interval && flags.timeout && flags.dynamic && flags.auto_merge);
    assert!(!flags.constant);
    assert_eq!(set.to_string(), "inet t s");
    assert_eq!(set.fields()[1].name(), "tcp dport");
    assert_eq!(texts(set), ["1.1.1.1 . 1", "1.1.1.1 . 2"]);
    let notes: Vec<_> = file.notes().iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        ["f:6:1: note: timeouts of set `s` are read, but elements do not expire yet"]
    );
}

#[test]
fn the_type_and_the_flags_may_follow_the_elements() {
    let file =
        read("table t { set s { elements = { 10.0.0.0/8 }; type ipv4_addr; flags interval; }\n}\n");
    assert_eq!(texts(&file.sets()[0]), ["10.0.0.0/8"]);
}

#[test]
fn raw_payload_is_an_integer() {
    let file =
        read("table t { set s { typeof @nh,96,32 . @th,0,16; elements = { 0x1 . 2 }; }\n}\n");
    let fields = file.sets()[0].fields();
    assert_eq!(fields[0].name(), "@nh,96,32");
    assert_eq!(
        (fields[1].kind(), fields[1].bytes()),
        (FieldKind::Integer, 2)
    );
}

#[test]
fn commands_make_sets() {
    let file = read(
        "add table inet t; add set inet t s { type ipv4_addr; }\nmap inet t m { type mark : verdict; }\n\
         element inet t s { 1.1.1.1, 2.2.2.2 }; create element inet t s { 3.3.3.3 }\n\
         add element inet t m { 1 : drop }\nset inet t s { type ipv4_addr; elements = { 4.4.4.4 }; }\n",
    );
    assert_eq!(
        texts(&file.sets()[0]),
        ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]
    );
    assert_eq!(texts(&file.sets()[1]), ["1"]);
}

#[test]
fn flush_and_delete_remove_what_was_read() {
    let head = "table t { set s { type mark; elements = { 1 }; }\n}\ntable ip6 t { set s { type mark; }\n}\n";
    let left = |tail: &str| -> Vec<String> {
        read(&format!("{head}{tail}"))
            .sets()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(left("flush ruleset\n"), [""; 0]);
    assert_eq!(left("flush ruleset ip\n"), ["ip6 t s"]);
    assert_eq!(left("flush table t\n"), ["ip t s", "ip6 t s"]);
    assert_eq!(left("delete table t; destroy table nosuch\n"), ["ip6 t s"]);
    assert_eq!(
        left("delete table t; table t { set s { type mark; }\n}\n"),
        ["ip6 t s", "ip t s"]
    );
    let flushed = read(&format!("{head}flush set t s\nadd element t s {{ 2 }}\n"));
    assert_eq!(texts(&flushed.sets()[0]), ["2"]);
}

#[test]
fn chains_and_rules_are_skipped_with_notes() {
    let file = read(
        "table inet t {\n chain c {\n  type filter hook input priority 0; policy drop;\n\
         tcp dport { 22, 80 } accept comment \"a } b {\" # }\n }\n ct helper h { type \"ftp\" protocol tcp; }\n\
         flags dormant\n set s { type mark; }\n}\nadd rule inet t c ip saddr { 1.1.1.1,\n 2.2.2.2 } drop\n",
    );
    assert_eq!(file.sets().len(), 1);
    let notes: Vec<_> = file.notes().iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "f:2:2: note: `chain c` is skipped",
            "f:6:2: note: `ct helper h` is skipped",
            "f:10:5: note: `rule` is skipped",
        ]
    );
}

#[test]
fn variables_stand_for_values_and_lists() {
    let file = read(
        "define net = 10.0.0.0/8\ndefine lo = 1.1.1.1\ndefine more = { $lo . 1, # }\n 2.2.2.2 . 2 }\n\
         define alias = $more\ndefine key = 3.3.3.3 . 3\n\
         table t {\n define web = http\n set s { type ipv4_addr . inet_service; flags interval\n\
         elements = { $net . $web, $alias, $lo - 1.1.1.9 . 4, $key }; }\n set u { type ipv4_addr . inet_service; elements = $more; }\n}\n",
    );
    assert_eq!(
        texts(&file.sets()[0]),
        [
            "10.0.0.0/8 . http",
            "1.1.1.1 . 1",
            "2.2.2.2 . 2",
            "1.1.1.1 - 1.1.1.9 . 4",
            "3.3.3.3 . 3"
        ]
    );
    assert_eq!(texts(&file.sets()[1]), ["1.1.1.1 . 1", "2.2.2.2 . 2"]);
    // An element of a list stands in the list, other elements where the variable is used.
    let places: Vec<_> = file.sets()[0]
        .elements()
        .iter()
        .map(|e| (e.line(), e.column()))
        .collect();
    assert_eq!(places, [(10, 14), (3, 17), (4, 2), (10, 35), (10, 54)]);
}

#[test]
fn a_variable_means_what_its_names_meant_when_it_was_defined() {
    let file = read(
        "define a = 1\ndefine b = { $a }\nredefine a = 2\n\
         table t { set s { type mark; elements = { $b, $a }; }\n}\nundefine a\ndefine a = 3\n",
    );
    assert_eq!(texts(&file.sets()[0]), ["1", "2"]);
}

#[test]
fn a_variable_is_known_in_its_block_only() {
    let table = |name: &str| {
        format!("table {name} {{ define x = 1\n set s {{ type mark; elements = {{ $x }}; }}\n}}\n")
    };
    assert_eq!(read(&(table("a") + &table("b"))).sets().len(), 2);
    assert_eq!(
        refusal(&(table("a") + "define y = $x\n")),
        "4:12: no variable `x` is defined here"
    );
}

#[test]
fn a_long_chain_of_definitions_is_followed() {
    let mut text = "define a0 = { 1 }\n".to_owned();
    for i in 1..50_000 {
        text += &format!("define a{i} = $a{}\n", i - 1);
    }
    text += "table t { set s { type mark; elements = $a49999; }\n}\n";
    assert_eq!(texts(&read(&text).sets()[0]), ["1"]);
}

#[test]
fn repeated_and_changed_elements_are_noted() {
    let set = set("ipv4_addr", INTERVAL, "10.0.0.77/24, 10.0.0.0/24");
    let rules = set.rule_set(set.packed_layout().clone(), None).unwrap();
    let column = "table t { set s { type ipv4_addr; flags interval; elements = { ".len() + 1;
    let notes: Vec<_> = set.notes(&rules).map(|note| note.to_string()).collect();
    assert_eq!(
        notes,
        [
            format!(
                "f:1:{column}: note: `10.0.0.77/24`: bits outside the prefix or mask are cleared"
            ),
            format!(
                "f:1:{}: note: `10.0.0.0/24` repeats `10.0.0.77/24` at f:1:{column}",
                column + 14
            ),
        ]
    );
}
