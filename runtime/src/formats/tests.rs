//! Whole files: what format they have, which set is meant, the known faults of other readers, and inputs that no one
//! would write.

use std::io::Write;

use pktjit_ir::{Match, Overlap};
use quickcheck::{Gen, QuickCheck};

use super::*;

fn read(text: &str) -> RuleFile {
    RuleFile::parse("f", text.as_bytes()).unwrap()
}

fn refusal(content: &[u8]) -> String {
    RuleFile::parse("f", content).unwrap_err().to_string()
}

/// A file with one set of table `ip t`, whose elements start in line 5.
fn set_file(ty: &str, statements: &str, elements: &str) -> String {
    format!(
        "table t {{\n set s {{\n  type {ty}\n  {statements}\n  elements = {{ {elements} }}\n }}\n}}\n"
    )
}

/// The rules that a set makes under the policy of its file, or its first error.
fn load(text: &str) -> Result<Vec<Vec<Match>>, String> {
    let file = RuleFile::parse("f", text.as_bytes()).map_err(|error| error.to_string())?;
    let set = file.set(None).map_err(|error| error.to_string())?;
    let rules = set.rule_set(set.packed_layout().clone(), None);
    let rules = rules.map_err(|error| error.to_string())?;
    Ok(rules
        .rules()
        .iter()
        .map(|stored| stored.rule.matches.clone())
        .collect())
}

/// A directory that is gone after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pktjit-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pack(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn the_content_tells_the_format() {
    let rule = "@0.0.0.0/0 0.0.0.0/0 0 : 1 0 : 1 0/0\n";
    assert_eq!(
        read(&format!("# rules\n\n{rule}")).sets()[0].kind(),
        SetKind::ClassBench
    );
    assert_eq!(
        read("#!/usr/sbin/nft -f\n\ntable t { set s { type mark; }\n}")
            .sets()
            .len(),
        1
    );
    assert_eq!(read("").sets().len(), 0);
    assert_eq!(read("\n {\"nftables\": []}\n").sets().len(), 0);
    assert_eq!(
        refusal(b" \xffrubbish"),
        "f:1:2: neither nft text, nft JSON nor ClassBench starts with `\\xff`"
    );
}

#[test]
fn packed_content_is_unpacked() {
    let text = set_file("mark", "", "1, 2");
    let file = RuleFile::parse("f", &pack(text.as_bytes())).unwrap();
    assert_eq!(file.sets()[0].elements().len(), 2);
    assert!(refusal(&pack(text.as_bytes())[..20]).starts_with("f:1:1: bad gzip data: "));
}

#[test]
fn a_set_is_chosen_by_as_much_of_its_name_as_it_takes() {
    let file = read(
        "table ip a { set s { type mark; }\n set u { type mark; }\n}\ntable ip b { set s { type mark; }\n}\n\
         table ip6 a { set s { type mark; }\n}\n",
    );
    let chosen = |name| {
        file.set(name)
            .map(ToString::to_string)
            .map_err(|error| error.to_string())
    };
    assert_eq!(chosen(Some("u")), Ok("ip a u".into()));
    assert_eq!(chosen(Some("b s")), Ok("ip b s".into()));
    assert_eq!(chosen(Some(" ip6  a s ")), Ok("ip6 a s".into()));
    let all = "`ip a s`, `ip a u`, `ip b s`, `ip6 a s`";
    assert_eq!(chosen(None), Err(format!("f:1:1: choose a set: {all}")));
    assert_eq!(
        chosen(Some("s")),
        Err("f:1:1: choose a set: `ip a s`, `ip b s`, `ip6 a s`".into())
    );
    for unknown in ["nope", "", "a b s u", "a"] {
        assert_eq!(
            chosen(Some(unknown)),
            Err(format!("f:1:1: no set `{unknown}`: the file holds {all}"))
        );
    }
    assert_eq!(
        read("").set(None).unwrap_err().message(),
        "the file holds no set"
    );
}

#[test]
fn each_kind_of_file_has_its_overlap_policy() {
    let policy = |text: &str| read(text).set(None).unwrap().default_overlap();
    assert_eq!(
        policy(&set_file("mark", "flags interval", "1")),
        Overlap::Strict
    );
    assert_eq!(
        policy(&set_file("mark", "flags interval; auto-merge", "1")),
        Overlap::Merge
    );
    assert_eq!(
        policy("@0.0.0.0/0 0.0.0.0/0 0 : 1 0 : 1 0/0"),
        Overlap::First
    );
}

#[test]
fn files_are_included_beside_the_file_that_names_them() {
    let scratch = Scratch::new("include");
    scratch.write(
        "lists/nets.nft",
        &pack(b"define nets = { 10.0.0.0/8,\n 11.0.0.0/8 }\ninclude \"more.nft\""),
    );
    scratch.write("lists/more.nft", b"define more = 12.0.0.0/8");
    let main = scratch.write(
        "main.nft",
        b"include \"lists/nets.nft\"\ntable t { set s { type ipv4_addr; flags interval; elements = { $nets, $more }; }\n}\n",
    );
    let file = RuleFile::read(&main).unwrap();
    let set = file.set(None).unwrap();
    assert_eq!(set.elements().len(), 3);
    let location = set.element_location(&set.elements()[1]);
    assert!(
        location.to_string().ends_with("lists/nets.nft:2:2"),
        "{location}"
    );
}

#[test]
fn includes_without_end_are_refused() {
    let scratch = Scratch::new("endless");
    let main = scratch.write("main.nft", b"include \"main.nft\"\ninclude \"main.nft\"\n");
    let error = RuleFile::read(&main).unwrap_err();
    assert_eq!(error.message(), "`main.nft` is nested deeper than 16 files");
}

#[test]
fn what_is_not_a_readable_file_is_refused() {
    let scratch = Scratch::new("unreadable");
    let missing = RuleFile::read(scratch.0.join("missing")).unwrap_err();
    assert!(
        missing
            .to_string()
            .contains("missing:1:1: cannot be opened: "),
        "{missing}"
    );
    assert!(RuleFile::read(&scratch.0).is_err());
    let main = scratch.write("main.nft", b"table t\ninclude \"/dev/zero\"\n");
    let device = RuleFile::read(&main).unwrap_err();
    assert_eq!(device.message(), "`/dev/zero` is not a regular file");
    assert_eq!(
        (device.location().line(), device.location().column()),
        (2, 9)
    );
}

#[test]
fn b19_touching_intervals_of_a_map_are_accepted() {
    let text = "table t { map m { type ipv4_addr : verdict; flags interval; elements = {\n\
                10.255.1.0-10.255.1.255 : accept, 10.255.2.0-10.255.2.255 : drop }; }\n}\n";
    assert_eq!(load(text).unwrap().len(), 2);
}

#[test]
fn b26_many_touching_blocks_load_in_one_command_and_again_after_a_flush() {
    let mut blocks: Vec<String> = (0..3000)
        .map(|i| format!("198.{}.{}.0/24", i / 256, i % 256))
        .collect();
    blocks.extend([
        "1.0.0.0/8".into(),
        "255.255.255.0/24".into(),
        "202.51.98.0/23".into(),
        "202.51.100.0/24".into(),
    ]);
    blocks.sort_by_key(|block| block.bytes().rev().collect::<Vec<u8>>());
    let list = blocks.join(", ");
    let text = format!(
        "table t {{ set s {{ type ipv4_addr; flags interval; }}\n}}\ncreate element t s {{ {list} }}\n\
         flush set t s; create element t s {{ {list} }}\n"
    );
    assert_eq!(load(&text).unwrap().len(), 3004);
}

#[test]
fn b27_whole_spaces_and_single_values_are_ordinary() {
    for (ty, element, expected) in [
        ("ipv4_addr", "0.0.0.0/0", Match::Any),
        ("ipv4_addr", "0.0.0.0-255.255.255.255", Match::Any),
        ("inet_service", "0-0", Match::Exact(0)),
        ("inet_service", "65535-65535", Match::Exact(65535)),
        ("inet_service", "1-1", Match::Exact(1)),
        ("ipv6_addr", "::/0", Match::Any),
        (
            "ipv6_addr",
            "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            Match::Any,
        ),
        ("inet_proto", "0-255", Match::Any),
    ] {
        assert_eq!(
            load(&set_file(ty, "flags interval", element)),
            Ok(vec![vec![expected]]),
            "{element}"
        );
    }
    let same = set_file(
        "ipv4_addr",
        "flags interval",
        "0.0.0.0/0, 0.0.0.0-255.255.255.255",
    );
    assert_eq!(load(&same).unwrap().len(), 1);
}

#[test]
fn b28_the_size_counts_elements() {
    let sized = |statements: &str, elements: &str| {
        load(&set_file(
            "ipv4_addr",
            &format!("flags interval; size 1; {statements}"),
            elements,
        ))
        .map(|rules| rules.len())
    };
    assert_eq!(
        sized("", "0.0.0.0, 255.255.255.255"),
        Err("f:5:25: `255.255.255.255` does not fit: set `s` has `size 1` and 2 elements".into())
    );
    assert_eq!(sized("", "255.255.255.0/24"), Ok(1));
    assert_eq!(sized("", "0.0.0.0, 0.0.0.0, *"), Ok(2));
    assert_eq!(
        sized("auto-merge", "255.255.255.0/24, 0.0.0.0-255.255.255.0"),
        Ok(1)
    );
}

#[test]
fn b33_marks_are_numbers_in_host_order() {
    let text = set_file(
        "ipv4_addr . mark",
        "flags interval",
        "192.0.2.0/24 . 0x00000100-0x000002ff, 192.0.2.9 . 0x0000000a",
    );
    let rules = load(&text).unwrap();
    assert_eq!(
        rules[0][1],
        Match::Range {
            lo: 0x100,
            hi: 0x2ff
        }
    );
    assert_eq!(rules[1][1], Match::Exact(10));
    let file = read(&text);
    let layout = file.sets()[0].packed_layout();
    assert_eq!(layout.encode(&[0, 0x102])[4..], 0x102u32.to_ne_bytes());
}

#[test]
fn b84_host_bits_are_cleared_with_a_note() {
    for (ty, element, lower) in [
        ("ipv4_addr", "10.0.1.1/31", 0x0a00_0100),
        ("ipv4_addr", "10.0.0.77/24", 0x0a00_0000),
        ("ipv6_addr", "2001:db8::1/64", 0x2001_0db8 << 96),
    ] {
        let file = read(&set_file(ty, "flags interval", element));
        let set = file.set(None).unwrap();
        let rules = set.rule_set(set.packed_layout().clone(), None).unwrap();
        let found = rules.rules()[0].rule.matches[0];
        assert_eq!(found.lower(&set.fields()[0]), lower, "{element}");
        assert_eq!(set.notes(&rules).count(), 1, "{element}");
    }
}

#[test]
fn b86_a_prefix_is_refused_by_a_set_of_single_addresses() {
    for (ty, element) in [
        ("ipv4_addr", "203.0.113.0/24"),
        ("ipv6_addr", "2001:db8:40::/32"),
    ] {
        assert_eq!(
            load(&set_file(ty, "", element)),
            Err("f:5:16: the set does not hold ranges: it has no `flags interval`".into())
        );
    }
}

#[test]
fn b87_an_overlap_names_both_elements_and_merging_accepts_them() {
    let elements = "192.168.0.0/24,\n192.168.0.1/32,\n10.0.0.1-10.0.0.20,\n10.0.0.10-10.0.0.30";
    for (overlapping, error) in [
        (
            "192.168.0.0/24,\n192.168.0.1/32",
            "f:6:1: `192.168.0.1/32` overlaps `192.168.0.0/24` at f:5:16",
        ),
        (
            "10.0.0.1-10.0.0.20,\n1.1.1.1,\n10.0.0.10-10.0.0.30",
            "f:7:1: `10.0.0.10-10.0.0.30` overlaps `10.0.0.1-10.0.0.20` at f:5:16",
        ),
    ] {
        let text = set_file("ipv4_addr", "flags interval", overlapping);
        assert_eq!(load(&text), Err(error.into()));
    }
    let merged = set_file("ipv4_addr", "flags interval; auto-merge", elements);
    let range = Match::Range {
        lo: 0x0a00_0001,
        hi: 0x0a00_001e,
    };
    let prefix = Match::Prefix {
        value: 0xc0a8_0000,
        len: 24,
    };
    assert_eq!(load(&merged), Ok(vec![vec![prefix], vec![range]]));
    let file = read(&merged);
    let set = file.set(None).unwrap();
    let rules = set.rule_set(set.packed_layout().clone(), None).unwrap();
    let notes: Vec<_> = set.notes(&rules).map(|note| note.to_string()).collect();
    assert_eq!(notes.len(), 2);
    assert_eq!(
        notes[0],
        "f:6:1: note: `192.168.0.1/32` is merged into `192.168.0.0/24` at f:5:16"
    );
}

#[test]
fn b88_a_range_with_equal_ends_is_one_value() {
    let key = "1.2.3.4-1.2.3.4 . 80-80";
    let set = set_file("ipv4_addr . inet_service", "flags interval", key);
    let map = format!(
        "table t {{ map m {{ type ipv4_addr . inet_service : verdict; flags interval; elements = {{ {key} : drop }}; }}\n}}\n"
    );
    for text in [set, map] {
        assert_eq!(
            load(&text),
            Ok(vec![vec![Match::Exact(0x0102_0304), Match::Exact(80)]])
        );
    }
}

#[test]
fn b89_too_many_or_too_few_components_are_refused() {
    for (element, error) in [
        (
            "1.2.3.4 . 0x100 . 1.2.3.6-1.2.3.8",
            "f:5:32: more fields than the 2 of the key",
        ),
        (
            "1.2.3.4",
            "f:5:24: expected ` . ` and field 2 of 2, a mark (0 to 0xffffffff), found `}`",
        ),
        (
            "1.2.3.4 . { 1, 2 }",
            "f:5:26: expected a mark (0 to 0xffffffff), found `{`",
        ),
    ] {
        assert_eq!(
            load(&set_file("ipv4_addr . mark", "flags interval", element)),
            Err(error.into())
        );
    }
    let runaway = vec!["1"; 100_000].join(" . ");
    assert_eq!(
        load(&set_file("mark . mark", "", &runaway)),
        Err("f:5:22: more fields than the 2 of the key".into())
    );
}

#[test]
fn b90_keys_beyond_the_limits_are_refused() {
    for (ty, error) in [
        (
            ["mark"; 17].join(" . "),
            "f:3:8: a key has at most 16 fields",
        ),
        (
            ["ipv6_addr"; 5].join(" . "),
            "f:3:8: the fields are 80 bytes wide together; a key has at most 64",
        ),
    ] {
        assert_eq!(load(&set_file(&ty, "", "")), Err(error.into()));
    }
    let wide = "table t { set s { typeof @nh,0,136; }\n}\n";
    assert_eq!(
        load(wide),
        Err("f:1:26: 136 bits are not 1 to 16 whole bytes".into())
    );
}

#[test]
fn b91_a_huge_size_takes_no_memory() {
    assert_eq!(
        load(&set_file("ipv6_addr", "size 4294967295", "::1"))
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        load(&set_file("ipv6_addr", "size 4294967296", "::1")),
        Err("f:4:8: expected a number of elements below 2^32, found `4294967296`".into())
    );
}

#[test]
fn b95_an_unknown_word_in_a_set_is_refused() {
    assert!(
        load(&set_file("mark", "in-port 1", "1"))
            .unwrap_err()
            .starts_with("f:4:3: expected ")
    );
}

#[test]
fn b98_a_very_large_list_is_read_on_a_small_stack() {
    const PREFIXES: u32 = 1_100_000;
    let mut text =
        "table t {\n set s {\n  type ipv4_addr; flags interval\n  elements = { ".to_owned();
    for i in 0..PREFIXES {
        let address = std::net::Ipv4Addr::from(i << 11);
        text += &format!("{address}/24,\n");
    }
    text += "} }\n}\n";
    let read = move || {
        let file = RuleFile::parse("f", text.as_bytes()).unwrap();
        let set = file.set(None).unwrap();
        set.rule_set(set.packed_layout().clone(), None)
            .unwrap()
            .rules()
            .len()
    };
    let thread = std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(read)
        .unwrap();
    assert_eq!(thread.join().unwrap(), PREFIXES as usize);
}

#[test]
fn deep_nesting_needs_no_stack() {
    let deep = format!("table t {{ chain c {}", "{".repeat(1_000_000));
    assert!(refusal(deep.as_bytes()).ends_with("`{` without its `}`"));
    let list = format!("define a = {}", "{".repeat(1_000_000));
    assert!(refusal(list.as_bytes()).ends_with("`{` without its `}`"));
}

/// Files that use everything the readers know, for the tests that damage them.
const SEEDS: [&str; 4] = [
    "define a = { 10.0.0.0/8 . ssh, $b }\ntable ip t {\n set s {\n  type ipv4_addr . inet_service\n  flags interval,timeout\n\
     timeout 1h\n  size 9\n  elements = { $a, 1.1.1.1-1.1.1.9 . 1-2 timeout 5s comment \"x\" counter packets 1 bytes 2,\n * } } }\n",
    "add table inet t; add map inet t m { typeof ether saddr . ip6 saddr . meta iifname : verdict; flags interval; }\n\
     create element inet t m { 0:1:2:3:4:5 . fe80::/10 . eth* : jump c, * : drop }\nflush set inet t m\n",
    "# rules\n@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0200\n@1.1.1.1/32 2.2.2.2/32 1:2 3 : 4 0x00/0x00\n",
    r#"{"nftables": [{"metainfo": {"version": "1"}}, {"set": {"family": "ip", "table": "t", "name": "s", "type": ["ipv4_addr", "mark"],
 "flags": ["interval", "timeout"], "timeout": 9, "elem": [{"elem": {"val": {"concat": [{"prefix": {"addr": "1.0.0.0", "len": 8}},
 {"range": [1, 2]}]}, "expires": 5, "counter": {"packets": 1, "bytes": 2}}}, "*"]}}, {"map": {"family": "ip", "table": "t", "name": "m",
 "type": {"typeof": {"meta": {"key": "mark"}}}, "map": "verdict", "elem": [[1, {"jump": {"target": "\u0063"}}], ["*", {"drop": null}]]}}]}
"#,
];

/// A seed with some of its bytes removed, doubled, or replaced by others of the seeds.
#[derive(Clone, Debug)]
struct Damaged(Vec<u8>);

impl quickcheck::Arbitrary for Damaged {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut text = g.choose(&SEEDS).unwrap().as_bytes().to_vec();
        let alphabet: Vec<u8> = SEEDS.concat().into_bytes();
        for _ in 0..usize::arbitrary(g) % 6 {
            let position = usize::arbitrary(g) % text.len();
            match u8::arbitrary(g) % 4 {
                0 => drop(text.remove(position)),
                1 => text[position] = *g.choose(&alphabet).unwrap(),
                2 => text.insert(position, *g.choose(&alphabet).unwrap()),
                _ => text.truncate(position + 1),
            }
            if text.is_empty() {
                break;
            }
        }
        Self(text)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let text = self.0.clone();
        Box::new((0..text.len()).map(move |position| {
            let mut shorter = text.clone();
            shorter.remove(position);
            Self(shorter)
        }))
    }
}

/// Reads a file and does with it all that a tool does; says whether its errors and notes point into the text.
fn is_handled(text: &[u8]) -> bool {
    let lines = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let is_inside = |location: &Location| (1..=lines).contains(&(location.line() as usize));
    let file = match RuleFile::parse("f", text) {
        Ok(file) => file,
        Err(error) => return is_inside(error.location()),
    };
    file.notes().iter().all(|note| is_inside(note.location()))
        && file.sets().iter().all(|set| {
            for element in set.elements() {
                let _ = set.key(element.text());
            }
            match set.rule_set(set.packed_layout().clone(), None) {
                Ok(rules) => set.notes(&rules).all(|note| is_inside(note.location())),
                Err(error) => is_inside(error.location()),
            }
        })
}

#[test]
fn qc_damaged_files_are_handled() {
    let property: fn(Damaged) -> bool = |damaged| is_handled(&damaged.0);
    QuickCheck::new()
        .tests(5000)
        .min_tests_passed(5000)
        .quickcheck(property);
}

#[test]
fn qc_random_bytes_are_handled() {
    let property: fn(Vec<u8>) -> bool = |text| is_handled(&text);
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(2000)
        .quickcheck(property);
}

#[test]
fn qc_random_keys_are_handled() {
    fn property(text: Vec<u8>) -> bool {
        let file = read("table t { set s { type ipv4_addr . ifname; }\n}\n");
        let keys = KeyFile::new("k", &*text, file.set(None).unwrap());
        keys.is_err() || keys.unwrap().count() <= text.len()
    }
    QuickCheck::new()
        .tests(2000)
        .min_tests_passed(2000)
        .quickcheck(property as fn(Vec<u8>) -> bool);
}
