//! What of nft text is refused, and where: the errors stand beside the inputs.

use super::tests::{INTERVAL, block, read};
use crate::formats::{RuleFile, SourceSet};

const PORT: &str = "a port (known service or 0 to 65535)";

/// The error of a file that is refused, by the reader or as a rule set.
pub(super) fn refusal(text: &str) -> String {
    let result = RuleFile::parse("f", text.as_bytes()).and_then(|file| {
        let make = |set: &SourceSet| set.rule_set(set.packed_layout().clone(), None).map(|_| ());
        file.sets().iter().try_for_each(make)
    });
    match result {
        Ok(()) => panic!("accepted: {text}"),
        Err(error) => error.to_string().strip_prefix("f:").unwrap().to_owned(),
    }
}

#[track_caller]
fn assert_refused(object: &str, ty: &str, statements: &str, elements: &str, error: &str) {
    let text = block(object, ty, statements, elements);
    let refusal = refusal(&text);
    let (place, message) = refusal.split_once(": ").unwrap();
    // The tables below count columns from the elements' first byte.
    let (line, column) = place.split_once(':').unwrap();
    let before = text.find("elements = { ").unwrap() + "elements = { ".len();
    let shown = match (line, column.parse::<usize>().unwrap()) {
        ("1", column) if column > before => format!("{}: {message}", column - before),
        _ => refusal,
    };
    assert_eq!(shown, error, "{text}");
}

#[test]
fn wrong_elements_are_refused_where_they_stand() {
    let tuple = "ipv4_addr . inet_service";
    for (ty, statements, elements, error) in [
        (
            "ipv4_addr",
            "",
            "10.0.0.256",
            "1: `10.0.0.256` is not an IPv4 address",
        ),
        (
            "ipv4_addr",
            "",
            "1.1.1.1, example.com",
            "10: `example.com` is not an IPv4 address",
        ),
        (
            "ipv4_addr",
            INTERVAL,
            "1.1.1.1/33",
            "9: prefix length `33` is longer than the 32 bits of ipv4_addr",
        ),
        (
            "ipv6_addr",
            INTERVAL,
            "::/129",
            "4: prefix length `129` is longer than the 128 bits of ipv6_addr",
        ),
        (
            "ipv4_addr",
            INTERVAL,
            "1.1.1.1/x",
            "9: `x` is not a prefix length",
        ),
        (
            "ipv4_addr",
            INTERVAL,
            "1.1.1.1/",
            "10: `}` is not a prefix length",
        ),
        (
            "ipv4_addr",
            INTERVAL,
            "1.1.1.9-1.1.1.1",
            "1: the range is reversed: `1.1.1.9` is above `1.1.1.1`",
        ),
        (
            "ipv4_addr",
            INTERVAL,
            "1.1.1.9-",
            "10: expected an IPv4 address, found `}`",
        ),
        (
            "ifname",
            INTERVAL,
            "eth*-eth9",
            "1: expected a single value, found `eth*`",
        ),
        (
            "ifname",
            "",
            "eth*",
            "1: the set does not hold ranges: it has no `flags interval`",
        ),
        (
            "inet_service",
            "",
            "70000",
            "1: `70000` is too large: expected a port (known service or 0 to 65535)",
        ),
        (
            "inet_proto",
            "",
            "tpc",
            "1: `tpc` is not a protocol (known name or 0 to 255)",
        ),
        (
            "inet_service",
            "",
            "1 2",
            "3: expected `,` or `}`, found `2`",
        ),
        (
            "inet_service",
            "",
            "1\n2",
            "2:1: expected `,` or `}`, found `2`",
        ),
        (
            "inet_service",
            "",
            ", 2",
            "1: expected a port (known service or 0 to 65535), found `,`",
        ),
        (
            "inet_service",
            "",
            "$x",
            "1: no variable `x` is defined here",
        ),
        (
            "inet_service",
            "",
            "{ 1 }",
            "1: expected a port (known service or 0 to 65535), found `{`",
        ),
        (
            "inet_service",
            "",
            "\u{1}",
            "1: expected nft text, found the byte 0x01",
        ),
        (
            "inet_service",
            "",
            "1 comment",
            "11: expected a comment in quotes, found `}`",
        ),
        (
            "inet_service",
            "",
            "1 timeout 1h",
            "3: the set does not hold timeouts: it has no `flags timeout`",
        ),
        (
            "inet_service",
            "flags timeout;",
            "1 timeout 60",
            "11: expected a time such as `1h30m` or `45s`, found `60`",
        ),
        (
            "inet_service",
            "flags timeout;",
            "1 expires h",
            "11: expected a time such as `1h30m` or `45s`, found `h`",
        ),
        (
            "inet_service",
            "",
            "1 counter packets x",
            "19: expected a number, found `x`",
        ),
        (
            "inet_service",
            "",
            "1 counter packets 1 2",
            "21: expected `bytes`, found `2`",
        ),
        ("inet_service", "", "1 : drop", "3: set `s` is not a map"),
        (
            tuple,
            "",
            "1.1.1.1.80",
            "1: `1.1.1.1.80` is not an IPv4 address",
        ),
        (tuple, "", "* . 80", "3: expected `,` or `}`, found `.`"),
        (
            tuple,
            "",
            "1.1.1.1 . 80 . 1",
            "14: more fields than the 2 of the key",
        ),
        (
            tuple,
            "",
            "1.1.1.1 . { 80, 81 }",
            "11: expected a port (known service or 0 to 65535), found `{`",
        ),
        (
            tuple,
            INTERVAL,
            "1.1.1.1 . 9-8",
            "11: the range is reversed: `9` is above `8`",
        ),
        (
            "inet_service",
            "size 1;",
            "1, 1, 2",
            "7: `2` does not fit: set `s` has `size 1` and 2 elements",
        ),
        (
            "ipv4_addr",
            INTERVAL,
            "10.0.0.0/8, 10.1.1.1",
            "13: `10.1.1.1` overlaps `10.0.0.0/8` at f:1:64",
        ),
    ] {
        assert_refused("set", ty, statements, elements, error);
    }
    for end in ["1.1.1.1", "1.1.1.1 80", "1.1.1.1 .80"] {
        let error = refusal(&block("set", tuple, "", end));
        assert!(
            error.contains(&format!("expected ` . ` and field 2 of 2, {PORT}, found")),
            "{error}"
        );
    }
}

#[test]
fn wrong_map_elements_are_refused_where_they_stand() {
    let verdicts = "`accept`, `drop`, `continue`, `return`, `jump` or `goto`";
    for (ty, elements, error) in [
        (
            "mark : verdict",
            "1",
            "3: expected `:` and a value, found `}`".to_owned(),
        ),
        (
            "mark : verdict",
            "1 : dorp",
            format!("5: expected a verdict: {verdicts}, found `dorp`"),
        ),
        (
            "mark : verdict",
            "1 : jump",
            "10: expected the name of a chain, found `}`".into(),
        ),
        (
            "mark : mark",
            "1 : x",
            "5: `x` is not a mark (0 to 0xffffffff)".into(),
        ),
        (
            "mark : mark",
            "1 : 1-2",
            "5: the values are no ranges: their type has no `interval`".into(),
        ),
        (
            "mark : mark",
            "1 : 1 . 2",
            "7: one field more than the key has".into(),
        ),
        (
            "mark : verdict",
            "1 : drop, 1 : accept",
            "11: `1 : accept` has the key of `1 : drop` at f:1:54 and another verdict".into(),
        ),
        (
            "mark : interval ipv6_addr . ipv6_addr . ipv6_addr",
            "1 : ::1 . ::2 . ::3",
            "1: `1 : ::1 . ::2 . ::3`: 96 bytes of data; at most 64 are possible".into(),
        ),
    ] {
        assert_refused("map", ty, "", elements, &error);
    }
}

#[test]
fn wrong_statements_are_refused_where_they_stand() {
    let statement = "`type`, `typeof`, `flags`, `elements` or another statement of a set";
    let object = "`set`, `map`, `chain` or another object of a table";
    let command = "a command such as `table`, `add element` or `define`";
    for (text, error) in [
        (
            "table t { set s { type nosuch; }",
            "1:24: unknown type `nosuch`".to_owned(),
        ),
        (
            "table t { set s { typeof ip nosuch; }",
            "1:26: unknown expression `ip nosuch`".into(),
        ),
        (
            "table t { set s { typeof @xx,0,8; }",
            "1:27: expected `ll`, `nh` or `th`, found `xx`".into(),
        ),
        (
            "table t { set s { typeof @nh,0,12; }",
            "1:26: 12 bits are not 1 to 16 whole bytes".into(),
        ),
        (
            "table t { set s { typeof @nh,0,0; }",
            "1:26: 0 bits are not 1 to 16 whole bytes".into(),
        ),
        (
            "table t { set s { typeof @nh,0,99999999999; }",
            "1:26: 99999999999 bits are not 1 to 16 whole bytes".into(),
        ),
        (
            "table t { set s { type mark; type mark; }",
            "1:30: the set has a type already".into(),
        ),
        (
            "table t { set s { type mark : mark; }",
            "1:29: a set has no values; a `map` has".into(),
        ),
        (
            "table t { map s { type mark; }",
            "1:28: expected `:` and the type of the values, found `;`".into(),
        ),
        (
            "table t { map s { type mark : counter; }",
            "1:31: unknown type `counter`".into(),
        ),
        (
            "table t { set s { flags interval; }",
            "1:15: set `s` has no `type`".into(),
        ),
        (
            "table t { set s { flags bogus; }",
            "1:25: expected `interval`, `timeout`, `constant` or `dynamic`, found `bogus`".into(),
        ),
        (
            "table t { set s { bogus; }",
            format!("1:19: expected {statement}, found `bogus`"),
        ),
        (
            "table t { set s { type mark bogus; }",
            "1:29: expected `;` or a new line, found `bogus`".into(),
        ),
        (
            "table t { set s { type mark; auto-merge; }",
            "1:30: `auto-merge` needs `flags interval`".into(),
        ),
        (
            "table t { set s { type mark; size x; }",
            "1:35: expected a number of elements below 2^32, found `x`".into(),
        ),
        (
            "table t { set s { type mark; policy fast; }",
            "1:37: expected `performance` or `memory`, found `fast`".into(),
        ),
        (
            "table t { set s { type mark; timeout 60; }",
            "1:38: expected a time such as `1h30m` or `45s`, found `60`".into(),
        ),
        (
            "table t { set s { type mark; elements 1; }",
            "1:39: expected `=`, found `1`".into(),
        ),
        (
            "table t { set s { type mark; elements = 1; }",
            "1:41: expected `{` and elements, found `1`".into(),
        ),
        (
            "table t { set s { type mark; elements = {",
            "1:41: `{` without its `}`".into(),
        ),
        (
            "table t { set s { type mark;",
            "1:17: `{` without its `}`".into(),
        ),
        ("table t {", "1:9: `{` without its `}`".into()),
        ("table t { chain c { {", "1:19: `{` without its `}`".into()),
        (
            "table t { chain c { \"",
            "1:21: expected nft text, found a quote that does not end on its line".into(),
        ),
        (
            "table t { bogus",
            format!("1:11: expected {object}, found `bogus`"),
        ),
        ("table t { 5", format!("1:11: expected {object}, found `5`")),
        (
            "table { }",
            "1:7: expected the name of a table, found `{`".into(),
        ),
        ("bogus", format!("1:1: expected {command}, found `bogus`")),
        (
            "add bogus",
            format!("1:5: expected {command}, found `bogus`"),
        ),
        ("table t\n}", format!("2:1: expected {command}, found `}}`")),
        (
            "table t 5",
            "1:9: expected `;` or a new line, found `5`".into(),
        ),
        (
            "add set t s { type mark; }",
            "1:9: no table `ip t` is declared before".into(),
        ),
        (
            "table t\nadd element t s { 1 }",
            "2:15: no set `s` is declared before".into(),
        ),
        (
            "delete table t",
            "1:14: no table `ip t` is declared before".into(),
        ),
        (
            "delete element t s { 1 }",
            "1:8: expected `table`: deleting sets and elements is not read yet, found `element`"
                .into(),
        ),
        (
            "flush bogus",
            "1:7: expected `ruleset`, `table`, `chain`, `set` or `map`, found `bogus`".into(),
        ),
        (
            "define = 5",
            "1:8: expected the name of a variable, found `=`".into(),
        ),
        ("define a 5", "1:10: expected `=`, found `5`".into()),
        (
            "define a =\n",
            "1:11: expected a value, found the end of the line".into(),
        ),
        ("define a = { 1", "1:12: `{` without its `}`".into()),
        (
            "define a = 1\ndefine a = 2",
            "2:8: the variable `a` is defined already".into(),
        ),
        (
            "define a = $a",
            "1:12: no variable `a` is defined here".into(),
        ),
        ("undefine a", "1:10: no variable `a` is defined here".into()),
        (
            "include \"x\"",
            "1:9: `x` cannot be included: this text is not read from a file".into(),
        ),
        (
            "include \"*.nft\"",
            "1:9: `*.nft` is a pattern: `include` reads one file by its name".into(),
        ),
        (
            "include x",
            "1:9: expected a file name in quotes, found `x`".into(),
        ),
        (
            "table t { set s { type mark; }\n}\ntable t { set s { type mark; flags interval; }\n}",
            "3:15: set `s` is declared with another type or other flags at f:1:15".into(),
        ),
    ] {
        assert_eq!(refusal(text), error, "{text}");
    }
}

#[test]
fn create_refuses_what_exists() {
    let head = "table t { set s { type mark; elements = { 1, 1 }; }\n}\nadd element t s { 1 }\n";
    assert_eq!(read(head).sets()[0].elements().len(), 3);
    assert_eq!(
        refusal(&format!("{head}create element t s {{ 2, 1 }}\n")),
        "4:25: `1` exists already: `1` at f:1:43"
    );
}

#[test]
fn definitions_that_double_each_other_are_refused() {
    let mut text = "define a0 = { 1, 1 }\n".to_owned();
    for i in 1..60 {
        text += &format!("define a{i} = {{ $a{0}, $a{0} }}\n", i - 1);
    }
    text += "table t { set s { type mark; size 1; elements = $a59; }\n}\n";
    assert!(refusal(&text).ends_with("variables stand for more than 67108864 bytes"));
}
