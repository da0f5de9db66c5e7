//! What of nft JSON is read, what it means, and what is refused and where.

use pktjit_ir::{Match, Verdict};

use crate::formats::{RuleFile, SetKind, SourceSet};

fn read(text: &str) -> RuleFile {
    RuleFile::parse("f", text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refusal(text: &str) -> String {
    match RuleFile::parse("f", text.as_bytes()) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

/// A file with one object of table `ip t`; `members` follow its names.
fn file(kind: &str, members: &str) -> String {
    format!(
        r#"{{"nftables": [{{"{kind}": {{"family": "ip", "table": "t", "name": "s", {members}}}}}]}}"#
    )
}

/// The set of `ty` that may hold ranges and timeouts.
fn set(ty: &str, elements: &str) -> String {
    file(
        "set",
        &format!(r#""type": {ty}, "flags": ["interval", "timeout"], "elem": [{elements}]"#),
    )
}

fn map(ty: &str, value: &str, elements: &str) -> String {
    file(
        "map",
        &format!(r#""type": {ty}, "map": {value}, "elem": [{elements}]"#),
    )
}

fn only(text: &str) -> SourceSet {
    read(text).sets()[0].clone()
}

fn matches(set: &SourceSet) -> Vec<&[Match]> {
    let elements = set.elements().iter();
    elements.map(|element| &*element.rule().matches).collect()
}

fn texts(set: &SourceSet) -> Vec<&str> {
    let elements = set.elements().iter();
    elements.map(|element| element.text()).collect()
}

fn verdicts(set: &SourceSet) -> Vec<(&Verdict, &str)> {
    let elements = set.elements().iter();
    elements
        .map(|element| (&element.rule().verdict, element.verdict_text()))
        .collect()
}

#[test]
fn values_prefixes_and_ranges_are_read() {
    let set = only(&set(
        r#""ipv4_addr""#,
        r#""10.0.0.1", {"prefix": {"addr": "10.1.0.0", "len": 16}}, {"range": ["10.2.0.0", "10.2.0.9"]}, "*""#,
    ));
    assert_eq!(
        matches(&set),
        [
            [Match::Exact(0x0a00_0001)],
            [Match::Prefix {
                value: 0x0a01_0000,
                len: 16
            }],
            [Match::Range {
                lo: 0x0a02_0000,
                hi: 0x0a02_0009
            }],
            [Match::Any],
        ]
    );
    assert_eq!(
        texts(&set),
        ["10.0.0.1", "10.1.0.0/16", "10.2.0.0-10.2.0.9", "*"]
    );
    assert_eq!(set.elements()[3].rule().priority, i32::MIN);
    assert_eq!(set.kind(), SetKind::Set);
}

#[test]
fn names_and_numbers_are_read_as_in_text() {
    let set = only(&set(
        r#"["inet_proto", "inet_service", "mark", "ifname"]"#,
        r#"{"concat": ["tcp", 22, 16, "eth*"]}, {"concat": [17, "ssh", {"prefix": {"addr": 1548819968, "len": 24}}, "a b"]}"#,
    ));
    let eth = Match::Prefix {
        value: 0x65_7468 << 104,
        len: 24,
    };
    let mark = Match::Prefix {
        value: 0x5c51_1e00,
        len: 24,
    };
    assert_eq!(
        matches(&set)[0],
        [Match::Exact(6), Match::Exact(22), Match::Exact(16), eth]
    );
    assert_eq!(
        matches(&set)[1][..3],
        [Match::Exact(17), Match::Exact(22), mark]
    );
    assert_eq!(
        texts(&set),
        [
            "tcp . 22 . 0x00000010 . \"eth*\"",
            "17 . ssh . 0x5c511e00/24 . \"a b\""
        ]
    );
}

#[test]
fn every_member_of_a_set_is_read() {
    let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "t", "handle": 1}},
 {"set": {"family": "inet", "name": "s", "table": "t", "handle": 2, "comment": "x", "policy": "memory", "size": 9,
  "flags": ["interval", "timeout", "dynamic"], "timeout": 3600, "gc-interval": 10, "auto-merge": true, "stmt": [{"counter": null}],
  "elem": [{"elem": {"val": {"concat": ["1.1.1.1", 80]}, "timeout": 30, "expires": 19, "comment": "y", "counter": {"packets": 1, "bytes": 2}}},
   {"elem": {"val": {"concat": ["1.1.1.2", 80]}, "counter": null}}],
  "type": {"typeof": {"concat": [{"payload": {"protocol": "ip", "field": "saddr"}}, {"payload": {"base": "th", "offset": 16, "len": 16}}]}}}},
 {"ct helper": {"family": "inet", "name": "h", "table": "t"}}, {"rule": {"chain": "c", "expr": [{"accept": null}]}}]}"#;
    let file = read(text);
    let set = &file.sets()[0];
    let flags = set.flags();
    assert!(flags.interval && flags.timeout && flags.dynamic && flags.auto_merge);
    assert_eq!(set.to_string(), "inet t s");
    let names: Vec<_> = set.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["ip saddr", "@th,16,16"]);
    assert_eq!(texts(set), ["1.1.1.1 . 80", "1.1.1.2 . 80"]);
    assert_eq!(
        (set.elements()[1].line(), set.elements()[1].column()),
        (5, 4)
    );
    let notes: Vec<_> = file.notes().iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "f:1:15: note: `metainfo` is skipped",
            "f:2:10: note: timeouts of set `s` are read, but elements do not expire yet",
            "f:7:2: note: `ct helper h` is skipped",
            "f:7:64: note: `rule` is skipped",
        ]
    );
}

#[test]
fn every_expression_of_a_typeof_is_read() {
    for (expression, field) in [
        (r#"{"meta": {"key": "mark"}}"#, "meta mark"),
        (r#"{"ct": {"key": "state"}}"#, "ct state"),
        (
            r#"{"ct": {"key": "saddr", "family": "ip", "dir": "original"}}"#,
            "ct original ip saddr",
        ),
    ] {
        let set = only(&set(&format!(r#"{{"typeof": {expression}}}"#), ""));
        assert_eq!(set.fields()[0].name(), field);
    }
}

#[test]
fn every_verdict_is_read() {
    let map = only(&map(
        r#""mark""#,
        r#""verdict""#,
        r#"[1, {"accept": null}], [2, {"drop": null}], [3, {"continue": null}], [4, {"return": null}],
        [5, {"jump": {"target": "a-b"}}], ["*", {"goto": {"target": "c"}}]"#,
    ));
    assert_eq!(
        verdicts(&map),
        [
            (&Verdict::Accept, "accept"),
            (&Verdict::Drop, "drop"),
            (&Verdict::Continue, "continue"),
            (&Verdict::Return, "return"),
            (&Verdict::Jump("a-b".into()), "jump a-b"),
            (&Verdict::Goto("c".into()), "goto c"),
        ]
    );
    assert_eq!(map.kind(), SetKind::VerdictMap);
}

#[test]
fn data_is_encoded_as_its_type_lays_it_out() {
    let data = |bytes: &[u8]| Verdict::Data(bytes.into());
    let pairs = only(&map(
        r#""mark""#,
        r#""ipv4_addr . inet_service""#,
        r#"[{"elem": {"val": 1, "comment": "x"}}, {"concat": ["10.0.0.1", 80]}]"#,
    ));
    assert_eq!(
        verdicts(&pairs),
        [(&data(&[10, 0, 0, 1, 0, 80]), "10.0.0.1 . 80")]
    );
    let marks = only(&map(r#""mark""#, r#"["mark"]"#, "[1, 258]"));
    assert_eq!(
        verdicts(&marks),
        [(&data(&258u32.to_ne_bytes()), "0x00000102")]
    );
    assert_eq!(marks.kind(), SetKind::Map);
}

#[test]
fn values_are_intervals_where_one_of_them_is() {
    let map = only(&map(
        r#""mark""#,
        r#""inet_service""#,
        r#"[1, 5], [2, {"range": [6, 7]}]"#,
    ));
    assert_eq!(
        verdicts(&map),
        [
            (&Verdict::Data([0, 5, 0, 5].into()), "5"),
            (&Verdict::Data([0, 6, 0, 7].into()), "6-7"),
        ]
    );
}

#[test]
fn b34_interface_indices_stay_in_host_order_in_long_lists() {
    let elements: Vec<String> = (0..5000)
        .map(|i| {
            let (a, b) = (i / 250, i % 250 + 1);
            format!(
                r#"{{"elem": {{"val": {{"concat": [1, "00:00:00:00:00:01", "10.0.{a}.{b}"]}}, "comment": "{}"}}}}"#,
                "x".repeat(30)
            )
        })
        .collect();
    let set = only(&set(
        r#"["iface_index", "ether_addr", "ipv4_addr"]"#,
        &elements.join(", "),
    ));
    assert_eq!(set.elements().len(), 5000);
    assert!(
        matches(&set)
            .iter()
            .all(|found| found[0] == Match::Exact(1))
    );
}

#[test]
fn b89_too_many_or_too_few_components_are_refused() {
    let tuple = r#"["ipv4_addr", "mark"]"#;
    let path = "nftables[0].set.elem[0]";
    for (ty, element, error) in [
        (
            tuple,
            r#"{"concat": ["1.2.3.4", 256, {"range": ["1.2.3.6", "1.2.3.8"]}]}"#,
            format!("{path}.concat: 3 fields in place of 2"),
        ),
        (
            tuple,
            r#""1.2.3.4""#,
            format!("{path}: expected `concat` of 2 fields, found `\"1.2.3.4\"`"),
        ),
        (
            tuple,
            r#"{"concat": []}"#,
            format!("{path}.concat: 0 fields in place of 2"),
        ),
        (
            tuple,
            r#"{"concat": ["1.2.3.4"]}"#,
            format!("{path}.concat: 1 fields in place of 2"),
        ),
        (
            tuple,
            r#"{"concat": ["1.2.3.4", {"concat": [1]}]}"#,
            format!("{path}.concat[1]: expected a mark (0 to 0xffffffff), found `concat`"),
        ),
        (
            tuple,
            r#"{"concat": ["1.2.3.4", {"set": [1, 2]}]}"#,
            format!("{path}.concat[1]: expected a mark (0 to 0xffffffff), found `set`"),
        ),
        (
            tuple,
            r#"{"concat": ["1.2.3.4", [1, 2]]}"#,
            format!("{path}.concat[1]: expected a mark (0 to 0xffffffff), found a list"),
        ),
        (
            tuple,
            r#"{"concat": ["1.2.3.4", {"elem": {"val": 1}}]}"#,
            format!("{path}.concat[1]: expected a mark (0 to 0xffffffff), found `elem`"),
        ),
        (
            r#""mark""#,
            r#"{"concat": [1]}"#,
            format!("{path}: expected a mark (0 to 0xffffffff), found `concat`"),
        ),
        (
            r#""mark""#,
            r#"{"concat": []}"#,
            format!("{path}: expected a mark (0 to 0xffffffff), found `concat`"),
        ),
        (
            r#""mark""#,
            "[]",
            format!("{path}: expected a mark (0 to 0xffffffff), found a list"),
        ),
        (
            "[]",
            "",
            "nftables[0].set.type: a key needs at least one field".into(),
        ),
    ] {
        let found = refusal(&set(ty, element));
        assert_eq!(found.split_once(": ").unwrap().1, error, "{element}");
    }
}

#[test]
fn b93_prefixes_and_ranges_inside_a_concatenation_keep_their_ends() {
    let addresses = only(&set(
        r#"["ipv4_addr", "ipv4_addr"]"#,
        r#"{"concat": ["192.0.2.32", {"prefix": {"addr": "198.51.100.0", "len": 24}}]}"#,
    ));
    assert_eq!(texts(&addresses), ["192.0.2.32 . 198.51.100.0/24"]);
    let prefix = Match::Prefix {
        value: 0xc633_6400,
        len: 24,
    };
    assert_eq!(matches(&addresses)[0][1], prefix);

    let middle = only(&set(
        r#"["ipv6_addr", "inet_service", "ipv6_addr"]"#,
        r#"{"concat": ["2001:db8::1", {"range": [1, 60000]}, "2001:db8::2"]}"#,
    ));
    assert_eq!(texts(&middle), ["2001:db8::1 . 1-60000 . 2001:db8::2"]);
    assert_eq!(matches(&middle)[0][1], Match::Range { lo: 1, hi: 60000 });

    let ports = only(&set(r#""inet_service""#, r#"{"range": [1024, 65535]}"#));
    let all = [Match::Range {
        lo: 1024,
        hi: 65535,
    }];
    assert_eq!(matches(&ports), [all]);
}

#[test]
fn b95_what_is_unknown_is_refused() {
    let head = r#"{"nftables": [{"set": {"family": "ip", "table": "t", "name": "s", "#;
    for (text, error) in [
        (
            file("set", r#""type": "mark", "in_port": [1, 2]"#),
            format!("f:1:{}: nftables[0].set: unknown field `in_port`, expected one of `family`, `table`, `name`, `type`, \
                 `map`, `flags`, `elem`, `stmt`, `auto-merge`, `timeout`, `size`, `gc-interval`, `policy`, `comment`, `handle`",
                head.len() + r#""type": "mark", "in_port""#.len()),
        ),
        (
            set(r#""mark""#, r#"{"elem": {"val": 1, "limit": {}}}"#),
            "nftables[0].set.elem[0].elem: unknown field `limit`, expected one of `val`, `timeout`, `expires`, `comment`, `counter`".into(),
        ),
        (
            file("set", r#""type": "mark", "flags": ["eval"]"#),
            "nftables[0].set.flags[0]: expected `interval`, `timeout`, `constant` or `dynamic`, found `\"eval\"`".into(),
        ),
        (
            file("set", r#""type": "mark", "stmt": [{"limit": {}}]"#),
            "nftables[0].set.stmt[0]: expected `counter`, found an object".into(),
        ),
        (
            r#"{"nftables": [{"add": {"set": {}}}]}"#.into(),
            "f:1:15: nftables[0]: expected `set`, `map`, `chain` or another object of a table, found `add`".into(),
        ),
    ] {
        let found = refusal(&text);
        assert!(found.ends_with(&error), "{found}\n{error}");
    }
}

#[test]
fn wrong_sets_are_refused_where_they_stand() {
    let mark = r#""mark""#;
    for (text, error) in [
        ("[]".into(), "f:1:1: expected an object, found a list"),
        (
            "{\"nftables\": [\n{]}".into(),
            "f:2:2: key must be a string",
        ),
        (
            "{\"nftables\": [\n{\"set\": {}}]} x".into(),
            "f:2:15: trailing characters",
        ),
        (
            r#"{"nftables": [{}]}"#.into(),
            "nftables[0]: expected an object of one member, found none",
        ),
        (
            r#"{"nftables": [{"set": 1, "map": 2}]}"#.into(),
            "nftables[0]: expected an object of one member, found `map` too",
        ),
        (
            file("set", r#""type": "integer""#),
            "nftables[0].set.type: `integer` has no width: nft does not list the set's `typeof`",
        ),
        (
            file("set", r#""type": ["mark", "nosuch"]"#),
            "nftables[0].set.type[1]: unknown type `nosuch`",
        ),
        (
            file("set", r#""type": "mark", "map": "mark""#),
            "nftables[0].set.map: a set has no values; a `map` has",
        ),
        (
            file("map", r#""type": "mark""#),
            "nftables[0].map: missing field `map`, the type of the values",
        ),
        (
            file("set", r#""type": "mark", "auto-merge": true"#),
            "nftables[0].set: `auto-merge` needs `flags interval`",
        ),
        (
            file("set", r#""type": "mark", "elem": [1, {"range": [2, 3]}]"#),
            "nftables[0].set.elem[1]: the set does not hold ranges: it has no `flags interval`",
        ),
        (
            file(
                "set",
                r#""type": "mark", "elem": [{"elem": {"val": 1, "timeout": 5}}]"#,
            ),
            "nftables[0].set.elem[0].elem: the set does not hold timeouts: it has no `flags timeout`",
        ),
        (
            set(mark, r#"{"range": [3, 2]}"#),
            "elem[0].range: the range is reversed: `0x00000003` is above `0x00000002`",
        ),
        (
            set(mark, "1, true"),
            "elem[1]: expected a mark (0 to 0xffffffff), found `true`",
        ),
        (
            set(mark, "1.5"),
            "elem[0]: `1.5` is not a mark (0 to 0xffffffff)",
        ),
        (
            set(mark, r#"{"prefix": {"addr": 1, "len": 33}}"#),
            "elem[0].prefix.len: prefix length `33` is longer than the 32 bits of mark",
        ),
        (
            set(r#""ifname""#, r#""a\nb""#),
            "elem[0]: `a\\nb` has control characters",
        ),
        (
            map(mark, r#""verdict""#, r#"[1, {"jump": {"target": "a b"}}]"#),
            "elem[0][1].jump.target: `a b` is not a name",
        ),
        (
            map(mark, r#""verdict""#, r#"[1, {"queue": null}]"#),
            "elem[0][1]: expected a verdict: `accept`, `drop`, `continue`, `return`, `jump` or `goto`, found `queue`",
        ),
        (
            map(mark, r#""verdict""#, r#"[1, {"accept": 1}]"#),
            "elem[0][1].accept: invalid type: integer `1`, expected unit",
        ),
        (
            map(mark, r#""mark""#, "[1]"),
            "elem[0]: invalid length 1, expected a tuple of size 2",
        ),
        (
            r#"{"nftables": [{"set": {"family": "ip", "table": "t", "name": "s", "type": "mark"}},
                {"set": {"family": "ip", "table": "t", "name": "s", "type": "mark"}}]}"#
                .into(),
            "f:2:17: nftables[1]: set `s` is declared already",
        ),
    ] {
        let found = refusal(&text);
        assert!(found.ends_with(error), "{found}\n{error}\n{text}");
    }
}

#[test]
fn a_byte_that_is_not_utf8_is_refused_where_it_stands() {
    let error = RuleFile::parse("f", b"{\n \"\xff\"}").unwrap_err();
    assert_eq!(error.to_string(), "f:2:3: the byte 0xff is not UTF-8");
}

#[test]
fn clashes_point_to_both_elements() {
    let text = set(r#""mark""#, "{\"range\": [1, 5]},\n 3");
    let set = only(&text);
    let error = set.rule_set(set.packed_layout().clone(), None).unwrap_err();
    let column = text.find("{\"range").unwrap() + 1;
    assert_eq!(
        error.to_string(),
        format!("f:2:2: `0x00000003` overlaps `0x00000001-0x00000005` at f:1:{column}")
    );
}

#[test]
fn deep_nesting_needs_no_stack() {
    for opening in ["[", "{\"concat\": [", "{\"elem\": {\"val\": "] {
        let deep = opening.repeat(100_000);
        for text in [
            deep.clone(),
            set(r#"["mark", "mark"]"#, &deep),
            format!(r#"{{"nftables": [{{"chain": {deep}"#),
        ] {
            refusal(&text);
        }
    }
    let closed = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        refusal(&set(r#""mark""#, &closed))
            .split_once(": ")
            .unwrap()
            .1,
        "nftables[0].set.elem[0]: expected a mark (0 to 0xffffffff), found a list"
    );
}
