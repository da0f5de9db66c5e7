//! Fields: every bit takes part, byte orders, widths, prefixes and single values.

use pktjit_ir::{Field, KeyLayout, Match, Overlap};

use super::{
    Case, MISS, addresses, case, case_in, hit, ip, ip6, net, octet, port, proto, range, rule,
    saddr, saddr6,
};

tests! {
    b01_every_bit_of_every_field_takes_part
    b03_fields_after_the_first_do_not_leak
    b04_the_right_one_of_two_hundred_elements_is_returned
    b33_ranges_of_host_order_fields_are_of_numbers
    b46_ipv6_rules_match
    b48_and_b49_a_port_condition_needs_a_port
    b50_icmp_type_and_code_in_the_port_fields
    b58_prefix_lengths_at_the_ends_of_every_width
    b84_host_bits_do_not_narrow_a_prefix
    b88_a_range_from_a_value_to_itself
}

fn b01_every_bit_of_every_field_takes_part() -> Vec<Case> {
    const WIDTHS: [u8; 6] = [1, 2, 4, 6, 8, 16];
    let pairs = WIDTHS
        .iter()
        .flat_map(|&first| WIDTHS.iter().map(move |&second| [first, second]));
    pairs
        .map(|widths| {
            let fields = widths.map(|bytes| Field::integer("field", bytes).unwrap());
            let stored = [
                ip6("fe80:dead:01ff:0a02:0b03:6007:8009:a001") & fields[0].max(),
                ip6("dead:beef:00ff::1") & fields[1].max(),
            ];
            let mut lookups = vec![(stored, hit(0))];
            for (at, field) in fields.iter().enumerate() {
                for bit in 0..field.bits() {
                    let mut key = stored;
                    key[at] ^= 1 << bit;
                    lookups.push((key, MISS));
                }
            }
            case(
                fields,
                Overlap::Strict,
                [rule(stored.map(Match::Exact))],
                lookups,
            )
        })
        .collect()
}

fn two_hundred() -> impl Iterator<Item = (u128, u128, u32)> + Clone {
    (1..=10).flat_map(|i| (1..=20).map(move |j| (i, j, (i as u32 - 1) * 20 + j as u32 - 1)))
}

fn b03_fields_after_the_first_do_not_leak() -> Vec<Case> {
    let block = |i: u128, j: u128| 10 << 24 | i << 16 | j << 8;
    let elements = two_hundred().map(|(i, j, _)| {
        let address = Match::Prefix {
            value: block(i, j),
            len: 24,
        };
        rule([address, range(10 * i + 1, 10 * i + 10), range(6, 17)])
    });
    let lookups = two_hundred().flat_map(|(i, j, id)| {
        [
            ([block(i, j), 10 * i + 1, 6], hit(id)),
            ([block(i, j) + 255, 10 * i + 10, 17], hit(id)),
            ([block(i, j), 10 * i, 6], MISS),
        ]
    });
    vec![case(
        [saddr(), port(), proto()],
        Overlap::Strict,
        elements,
        lookups,
    )]
}

fn b04_the_right_one_of_two_hundred_elements_is_returned() -> Vec<Case> {
    let block = |i: u128, j: u128| 10 << 24 | i << 16 | j << 8;
    let elements = two_hundred().map(|(i, j, _)| {
        let address = Match::Prefix {
            value: block(i, j),
            len: 24,
        };
        rule([address, range(j, 10 * j + 10), range(6, 17)])
    });
    let lookups = two_hundred().flat_map(|(i, j, id)| {
        [
            ([block(i, j) + 1, j, 17], hit(id)),
            ([block(i, j) + 1, 10 * j + 10, 6], hit(id)),
            ([block(i, j) + 1, 10 * j + 11, 17], MISS),
        ]
    });
    vec![case(
        [saddr(), port(), proto()],
        Overlap::Strict,
        elements,
        lookups,
    )]
}

fn b33_ranges_of_host_order_fields_are_of_numbers() -> Vec<Case> {
    use pktjit_ir::ByteOrder::{Big, Little};
    let elements = [
        rule([net("192.0.2.0/24"), range(0x100, 0x2ff)]),
        rule([net("192.0.2.9/32"), Match::Exact(0x0a)]),
    ];
    let address = ip("192.0.2.9");
    let keys = [
        (0x100, hit(0)),
        (0x1ff, hit(0)),
        (0x2ff, hit(0)),
        (0x0ff, MISS),
        (0x300, MISS),
        (0x0001_0000, MISS),
        (0xff01_0000, MISS),
        (0x0a, hit(1)),
    ]
    .map(|(mark, id)| ([address, mark], id));
    [Big, Little]
        .map(|order| {
            let fields = [saddr(), Field::mark("mark").with_byte_order(order)];
            case(fields, Overlap::Strict, elements.clone(), keys)
        })
        .into()
}

fn b46_ipv6_rules_match() -> Vec<Case> {
    let fields = [saddr6(), Field::ipv6_addr("daddr"), proto(), port()];
    let permit = rule([
        net("2001:db8:1::/48"),
        Match::Any,
        Match::Exact(17),
        Match::Exact(53),
    ]);
    let (from, to) = (ip6("2001:db8:1::5"), ip6("2001:db8:2::1"));
    let keys = [
        ([from, to, 17, 53], hit(0)),
        ([to, from, 17, 53], MISS),
        ([from, to, 6, 53], MISS),
    ];
    vec![
        case(fields.clone(), Overlap::First, [permit], keys),
        case(fields, Overlap::First, [], [([from, to, 17, 53], MISS)]),
    ]
}

fn b48_and_b49_a_port_condition_needs_a_port() -> Vec<Case> {
    // A key can say that there is no port: in a field of its own, which rules with a port condition test.
    let fields = || [proto(), octet("has ports"), port()];
    let (present, absent) = (1, 0);
    let with_port = rule([Match::Any, Match::Exact(present), Match::Exact(80)]);
    let keys = [
        ([6, present, 80], hit(0)),
        ([1, absent, 80], MISS),
        ([6, absent, 0], MISS),
        ([6, present, 81], MISS),
    ];
    let without = rule([Match::Any; 3]);
    vec![
        case(fields(), Overlap::First, [with_port], keys),
        case(
            fields(),
            Overlap::First,
            [without],
            [([1, absent, 0], hit(0)), ([6, present, 80], hit(0))],
        ),
    ]
}

fn b50_icmp_type_and_code_in_the_port_fields() -> Vec<Case> {
    let fields = [
        proto(),
        Field::inet_service("type"),
        Field::inet_service("code"),
    ];
    let rules = [1, 58].map(|icmp| rule([Match::Exact(icmp), range(1, 5), range(1, 5)]));
    let keys = [
        ([1, 3, 3], hit(0)),
        ([1, 3, 0], MISS),
        ([1, 8, 0], MISS),
        ([58, 5, 5], hit(1)),
        ([58, 5, 6], MISS),
    ];
    vec![case(fields, Overlap::First, rules, keys)]
}

fn b58_prefix_lengths_at_the_ends_of_every_width() -> Vec<Case> {
    let widths: [(u8, &[u8]); 3] = [
        (4, &[32, 31, 1, 0]),
        (8, &[64, 63, 1, 0]),
        (16, &[128, 127, 64, 0]),
    ];
    let places = widths
        .into_iter()
        .flat_map(|width| [(width, 0), (width, 32)]);
    places
        .map(|((bytes, lens), offset)| {
            let field = Field::integer("field", bytes).unwrap();
            let value = (u128::MAX / 3) & field.max();
            let bits = field.bits();
            // A key whose first `same` bits are those of the value belongs to the longest prefix of at most that length.
            let longest = |same| lens.iter().position(|&len| len <= same).map(|at| at as u32);
            let keys = (0..bits).map(|same| ([value ^ 1 << (bits - 1 - same)], longest(same)));
            let keys: Vec<_> = keys.chain([([value], longest(bits))]).collect();
            let rules = lens.iter().map(|&len| rule([Match::Prefix { value, len }]));
            let layout = KeyLayout::at([(field, offset)]).unwrap();
            case_in(layout, Overlap::First, rules, keys)
        })
        .collect()
}

fn b84_host_bits_do_not_narrow_a_prefix() -> Vec<Case> {
    let ip4 = ["10.0.1.1/31", "10.0.0.77/24"].map(|block| rule([net(block)]));
    let ip4_keys = [
        ([ip("10.0.1.0")], hit(0)),
        ([ip("10.0.1.1")], hit(0)),
        ([ip("10.0.1.2")], MISS),
        ([ip("10.0.0.0")], hit(1)),
        ([ip("10.0.0.255")], hit(1)),
    ];
    let ip6_keys = [
        ([ip6("2001:db8::")], hit(0)),
        ([ip6("2001:db8:0:1::")], MISS),
    ];
    vec![
        case([saddr()], Overlap::Strict, ip4, ip4_keys),
        case(
            [saddr6()],
            Overlap::Strict,
            [rule([net("2001:db8::1/64")])],
            ip6_keys,
        ),
    ]
}

fn b88_a_range_from_a_value_to_itself() -> Vec<Case> {
    let element = rule([addresses("1.2.3.4", "1.2.3.4"), range(80, 80)]);
    let address = ip("1.2.3.4");
    let keys = [
        ([address, 80], hit(0)),
        ([address, 81], MISS),
        ([address + 1, 80], MISS),
    ];
    vec![case([saddr(), port()], Overlap::Strict, [element], keys)]
}
