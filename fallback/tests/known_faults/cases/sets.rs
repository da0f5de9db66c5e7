//! Sets under `strict` and `merge`: touching, overlapping, empty and whole-space elements, catch-alls.

use pktjit_ir::{Field, Match, Overlap, Rule, Verdict};

use super::{
    Case, MISS, addresses, case, hit, ifname, ip, net, port, proto, range, rule, saddr, saddr6,
};

tests! {
    b09_an_empty_set_misses
    b13_the_wider_element_may_come_second_where_it_starts_elsewhere
    b14_the_narrow_element_wins_when_it_came_first
    b16_overlapping_concatenations_give_the_earliest
    b18_touching_intervals_end_where_they_should
    b19_touching_intervals_with_other_verdicts
    b24_no_hit_between_two_ranges
    b26_thousands_of_touching_blocks
    b27_whole_space_and_single_values
    b32_a_catch_all_matches_what_nothing_else_does
    b41_data_zero_is_a_match
    b82_a_range_of_everything
    b87_overlapping_entries_merge
}

fn b09_an_empty_set_misses() -> Vec<Case> {
    let keys = [([0, 0], MISS), ([ip("255.255.255.255"), 65535], MISS)];
    vec![case([saddr(), port()], Overlap::Strict, [], keys)]
}

fn b13_the_wider_element_may_come_second_where_it_starts_elsewhere() -> Vec<Case> {
    let lo = ifname("lo");
    let elements = ["10.1.0.0/24", "10.0.0.0/8"].map(|block| rule([Match::Exact(lo), net(block)]));
    let keys = [
        ([lo, ip("10.1.0.9")], hit(0)),
        ([lo, ip("10.9.9.9")], hit(1)),
        ([ifname("lo0"), ip("10.9.9.9")], MISS),
    ];
    vec![case(
        [Field::ifname("iif"), saddr()],
        Overlap::Strict,
        elements,
        keys,
    )]
}

fn b14_the_narrow_element_wins_when_it_came_first() -> Vec<Case> {
    let lo = ifname("lo");
    let element = |block, verdict| {
        rule([Match::Exact(lo), net(block), Match::Exact(lo)]).with_verdict(verdict)
    };
    let elements = [
        element("127.0.0.1/32", Verdict::Accept),
        element("127.0.0.0/8", Verdict::Drop),
    ];
    let keys = [
        ([lo, ip("127.0.0.1"), lo], hit(0)),
        ([lo, ip("127.0.0.2"), lo], hit(1)),
    ];
    let fields = [Field::ifname("iif"), saddr(), Field::ifname("oif")];
    vec![case(fields, Overlap::Strict, elements, keys)]
}

fn b16_overlapping_concatenations_give_the_earliest() -> Vec<Case> {
    let elements = [
        [range(0, 2), range(0, 3)],
        [range(0, 2), range(0, 3)],
        [range(10, 20), range(30, 40)],
        [range(15, 20), range(50, 60)],
        [range(3, 9), range(4, 29)],
        [range(15, 20), range(49, 61)],
    ];
    let keys = [
        ([16, 55], hit(3)),
        ([16, 49], hit(5)),
        ([12, 35], hit(2)),
        ([1, 3], hit(0)),
        ([9, 4], hit(4)),
        ([9, 30], MISS),
        ([21, 50], MISS),
    ];
    vec![case(
        [port(), port()],
        Overlap::Strict,
        elements.map(rule),
        keys,
    )]
}

fn b18_touching_intervals_end_where_they_should() -> Vec<Case> {
    let singles = ["10.0.0.1", "10.0.0.2"].map(|address| rule([Match::Exact(ip(address))]));
    let single_keys = [
        ([ip("10.0.0.0")], MISS),
        ([ip("10.0.0.1")], hit(0)),
        ([ip("10.0.0.2")], hit(1)),
        ([ip("10.0.0.3")], MISS),
    ];
    let ranges = [("10.0.0.0", "10.0.0.9"), ("10.0.0.10", "10.0.0.19")];
    let range_keys = [
        ([ip("9.255.255.255")], MISS),
        ([ip("10.0.0.0")], hit(0)),
        ([ip("10.0.0.9")], hit(0)),
        ([ip("10.0.0.10")], hit(1)),
        ([ip("10.0.0.19")], hit(1)),
        ([ip("10.0.0.20")], MISS),
    ];
    vec![
        case([saddr()], Overlap::Strict, singles, single_keys),
        case(
            [saddr()],
            Overlap::Strict,
            ranges.map(|(lo, hi)| rule([addresses(lo, hi)])),
            range_keys,
        ),
    ]
}

fn b19_touching_intervals_with_other_verdicts() -> Vec<Case> {
    let elements = [
        rule([addresses("10.255.1.0", "10.255.1.255")]).with_verdict(Verdict::Accept),
        rule([addresses("10.255.2.0", "10.255.2.255")]).with_verdict(Verdict::Drop),
    ];
    let keys = [
        ([ip("10.255.0.255")], MISS),
        ([ip("10.255.1.255")], hit(0)),
        ([ip("10.255.2.0")], hit(1)),
        ([ip("10.255.3.0")], MISS),
    ];
    [Overlap::Strict, Overlap::Merge]
        .map(|overlap| case([saddr()], overlap, elements.clone(), keys))
        .into()
}

fn b24_no_hit_between_two_ranges() -> Vec<Case> {
    let elements = [
        ("1.1.1.1", "2.2.2.2"),
        ("3.3.3.3", "4.4.4.4"),
        ("1.1.1.1", "2.2.2.2"),
    ];
    let keys = [
        ([ip("2.2.2.2")], hit(0)),
        ([ip("2.9.9.9")], MISS),
        ([ip("3.3.3.3")], hit(1)),
    ];
    vec![case(
        [saddr()],
        Overlap::Strict,
        elements.map(|(lo, hi)| rule([addresses(lo, hi)])),
        keys,
    )]
}

fn b26_thousands_of_touching_blocks() -> Vec<Case> {
    // Each 1024th of the space as one half and two quarters.
    let blocks: Vec<(u128, u8)> = (0..1024)
        .flat_map(|part| {
            [
                (part << 22, 11),
                ((part << 22) + (1 << 21), 12),
                ((part << 22) + (3 << 20), 12),
            ]
        })
        .collect();
    // 1025 has no factor in common with the number of blocks.
    let shuffled = (0..blocks.len())
        .map(|at| blocks[at * 1025 % blocks.len()])
        .collect();
    [blocks.clone(), shuffled]
        .map(|blocks: Vec<(u128, u8)>| {
            let elements = blocks
                .iter()
                .map(|&(value, len)| rule([Match::Prefix { value, len }]));
            let ends = (0u32..).zip(&blocks).flat_map(|(id, &(start, len))| {
                let last = start + (1 << (32 - len)) - 1;
                [([start], hit(id)), ([last], hit(id))]
            });
            case([saddr()], Overlap::Strict, elements, ends)
        })
        .into()
}

fn b27_whole_space_and_single_values() -> Vec<Case> {
    let ip4_ends = [([0], hit(0)), ([ip("255.255.255.255")], hit(0))];
    let ip6_ends = [([0], hit(0)), ([u128::MAX], hit(0))];
    let singles = [range(0, 0), range(65535, 65535), range(1, 1)];
    let single_keys = [
        ([0], hit(0)),
        ([1], hit(2)),
        ([2], MISS),
        ([65534], MISS),
        ([65535], hit(1)),
    ];
    vec![
        case(
            [saddr()],
            Overlap::Strict,
            [rule([net("0.0.0.0/0")])],
            ip4_ends,
        ),
        case(
            [saddr()],
            Overlap::Strict,
            [rule([addresses("0.0.0.0", "255.255.255.255")])],
            ip4_ends,
        ),
        case([saddr6()], Overlap::Strict, [rule([net("::/0")])], ip6_ends),
        case(
            [saddr6()],
            Overlap::Strict,
            [rule([range(0, u128::MAX)])],
            ip6_ends,
        ),
        case(
            [proto()],
            Overlap::Strict,
            [rule([range(0, 255)])],
            [([0], hit(0)), ([255], hit(0))],
        ),
        case(
            [port()],
            Overlap::Strict,
            singles.map(|single| rule([single])),
            single_keys,
        ),
    ]
}

fn b32_a_catch_all_matches_what_nothing_else_does() -> Vec<Case> {
    let block = rule([net("10.0.0.0/8")]);
    let with = [block.clone(), Rule::catch_all(1)];
    vec![
        case(
            [saddr()],
            Overlap::Strict,
            with,
            [([ip("10.1.1.1")], hit(0)), ([ip("192.0.2.1")], hit(1))],
        ),
        case(
            [saddr()],
            Overlap::Strict,
            [block],
            [([ip("10.1.1.1")], hit(0)), ([ip("192.0.2.1")], MISS)],
        ),
    ]
}

fn b41_data_zero_is_a_match() -> Vec<Case> {
    let element = |address, data: u32| {
        rule([Match::Exact(ip(address))]).with_verdict(Verdict::Data(data.to_be_bytes().into()))
    };
    let elements = [element("10.0.0.1", 0), element("10.0.0.2", 5)];
    let keys = [
        ([ip("10.0.0.1")], hit(0)),
        ([ip("10.0.0.2")], hit(1)),
        ([ip("10.0.0.3")], MISS),
    ];
    vec![case([saddr()], Overlap::Strict, elements, keys)]
}

fn b82_a_range_of_everything() -> Vec<Case> {
    let fields = [saddr(), proto(), port(), Field::ipv4_addr("daddr")];
    let tcp = Match::Exact(6);
    let elements = [
        rule([
            net("0.0.0.0/0"),
            tcp,
            range(1, 2),
            net("192.168.230.128/25"),
        ]),
        rule([net("0.0.0.0/0"), tcp, range(0, 65535), net("0.0.0.0/0")]),
    ];
    let (from, inside, outside) = (
        ip("203.0.113.7"),
        ip("192.168.230.200"),
        ip("192.168.230.127"),
    );
    let alone = [
        ([from, 6, 1, inside], hit(0)),
        ([from, 6, 1, outside], MISS),
    ];
    let both = [
        ([from, 6, 1, inside], hit(0)),
        ([from, 6, 1, outside], hit(1)),
    ];
    vec![
        case(
            fields.clone(),
            Overlap::Strict,
            elements[..1].to_vec(),
            alone,
        ),
        case(fields, Overlap::Strict, elements, both),
    ]
}

fn b87_overlapping_entries_merge() -> Vec<Case> {
    let list = [
        net("192.168.0.0/24"),
        net("192.168.0.1/32"),
        addresses("10.0.0.1", "10.0.0.20"),
        addresses("10.0.0.10", "10.0.0.30"),
    ];
    let keys = [
        ([ip("192.168.0.1")], hit(0)),
        ([ip("192.168.0.255")], hit(0)),
        ([ip("10.0.0.1")], hit(2)),
        ([ip("10.0.0.30")], hit(2)),
        ([ip("10.0.0.31")], MISS),
    ];
    vec![case(
        [saddr()],
        Overlap::Merge,
        list.map(|entry| rule([entry])),
        keys,
    )]
}
