//! Lists whose priorities or order decide.

use pktjit_ir::{Match, Overlap, Rule, Verdict};

use super::{
    Case, MISS, addresses, case, hit, ip, ip6, net, octet, port, proto, range, rule, saddr, saddr6,
};

tests! {
    b29_overlapping_rules_give_the_first
    b30_bit_tests_match_values_with_more_bits
    b37_ranges_that_differ_in_more_than_two_bytes
    b39_priority_zero_is_a_priority_like_others
    b40_equal_priorities_go_to_the_first
    b43_categories_as_three_classifiers
    b51_negated_list_with_a_negation
    b52_deny_first_and_longest_prefix_by_priorities
    b55_the_empty_prefix_is_a_rule
}

fn b29_overlapping_rules_give_the_first() -> Vec<Case> {
    let prefixes = ["10.0.0.0/24", "10.0.0.0/16"].map(|block| rule([net(block)]));
    let ranges = [("10.0.0.0", "10.0.0.10"), ("10.0.0.5", "10.0.0.20")];
    let dead = [
        rule([net("10.0.0.0/24"), Match::Exact(22)]),
        rule([net("10.0.0.1/32"), Match::Exact(22)]),
    ];
    vec![
        case(
            [saddr()],
            Overlap::First,
            prefixes,
            [([ip("10.0.0.5")], hit(0)), ([ip("10.0.1.5")], hit(1))],
        ),
        case(
            [saddr()],
            Overlap::First,
            ranges.map(|(lo, hi)| rule([addresses(lo, hi)])),
            [([ip("10.0.0.5")], hit(0)), ([ip("10.0.0.15")], hit(1))],
        ),
        case(
            [saddr(), port()],
            Overlap::First,
            dead,
            [([ip("10.0.0.1"), 22], hit(0))],
        ),
    ]
}

fn b30_bit_tests_match_values_with_more_bits() -> Vec<Case> {
    let bits = |one, other| {
        [one, other]
            .map(|mask| rule([Match::Mask { value: mask, mask }]))
            .into_iter()
            .chain([Rule::catch_all(1)])
    };
    let accepting = [
        ([0x02], hit(0)),
        ([0x10], hit(1)),
        ([0x12], hit(0)),
        ([0x18], hit(1)),
        ([0x01], hit(2)),
        ([0x00], hit(2)),
    ];
    let dropping = [
        ([0x03], hit(0)),
        ([0x11], hit(0)),
        ([0x06], hit(1)),
        ([0x02], hit(2)),
    ];
    vec![
        case(
            [octet("flags")],
            Overlap::First,
            bits(0x02, 0x10),
            accepting,
        ),
        case([octet("flags")], Overlap::First, bits(0x01, 0x04), dropping),
    ]
}

fn b37_ranges_that_differ_in_more_than_two_bytes() -> Vec<Case> {
    let ranges = [
        ("0.0.0.1", "0.0.2.58", 500),
        ("0.4.3.2", "0.4.7.255", 400),
        ("0.1.12.14", "0.3.11.13", 300),
        ("0.0.1.40", "0.4.5.6", 200),
    ];
    let rules = ranges.map(|(lo, hi, priority)| rule([addresses(lo, hi)]).with_priority(priority));
    let named = [
        ("0.0.0.0", MISS),
        ("0.0.0.1", hit(0)),
        ("0.0.1.39", hit(0)),
        ("0.0.1.40", hit(0)),
        ("0.0.2.58", hit(0)),
        ("0.0.2.59", hit(3)),
        ("0.1.12.13", hit(3)),
        ("0.3.11.14", hit(3)),
        ("0.4.3.1", hit(3)),
        ("0.1.12.14", hit(2)),
        ("0.3.11.13", hit(2)),
        ("0.4.3.2", hit(1)),
        ("0.4.5.6", hit(1)),
        ("0.4.5.7", hit(1)),
        ("0.4.7.255", hit(1)),
        ("0.4.8.0", MISS),
    ]
    .map(|(key, id)| ([ip(key)], id));
    // The list above is in the order of the priorities.
    let sweep = (0..=ip("0.4.8.0")).map(|key| {
        let mut ids = (0u32..).zip(&ranges);
        let first = ids.find(|(_, (lo, hi, _))| ip(lo) <= key && key <= ip(hi));
        ([key], first.map(|(id, _)| id))
    });
    vec![case(
        [saddr()],
        Overlap::First,
        rules,
        named.into_iter().chain(sweep),
    )]
}

fn b39_priority_zero_is_a_priority_like_others() -> Vec<Case> {
    let narrow = || rule([net("10.0.0.0/8")]);
    let wide = || rule([net("0.0.0.0/0")]);
    let key = [ip("10.1.1.1")];
    vec![
        case(
            [saddr()],
            Overlap::First,
            [narrow(), wide().with_priority(1)],
            [(key, hit(1))],
        ),
        case([saddr()], Overlap::First, [narrow()], [(key, hit(0))]),
        case(
            [saddr()],
            Overlap::First,
            [narrow(), wide()],
            [(key, hit(0))],
        ),
        case(
            [saddr()],
            Overlap::First,
            [
                narrow().with_priority(i32::MIN),
                wide().with_priority(i32::MAX),
            ],
            [(key, hit(1))],
        ),
    ]
}

fn b40_equal_priorities_go_to_the_first() -> Vec<Case> {
    let rules = ["10.0.0.0/8", "10.1.0.0/16"].map(|block| rule([net(block)]).with_priority(5));
    let [wide, narrow] = rules.clone();
    [rules, [narrow, wide]]
        .map(|rules| {
            case(
                [saddr()],
                Overlap::First,
                rules,
                [([ip("10.1.2.3")], hit(0))],
            )
        })
        .into()
}

fn b43_categories_as_three_classifiers() -> Vec<Case> {
    let rules = [("10.0.0.0/8", 3), ("10.0.0.0/9", 2), ("0.0.0.0/0", 1)]
        .map(|(block, priority)| rule([net(block)]).with_priority(priority));
    let keys = ["10.1.1.1", "10.200.1.1", "192.0.2.1"].map(ip);
    let classifier = |members: &[usize], ids: [Option<u32>; 3]| {
        let rules = members.iter().map(|&member| rules[member].clone());
        case(
            [saddr()],
            Overlap::First,
            rules,
            keys.iter().zip(ids).map(|(&key, id)| ([key], id)),
        )
    };
    vec![
        classifier(&[0, 2], [hit(0), hit(0), hit(1)]),
        classifier(&[1], [hit(0), MISS, MISS]),
        classifier(&[2], [hit(0), hit(0), hit(0)]),
    ]
}

fn b51_negated_list_with_a_negation() -> Vec<Case> {
    // Not in [192.168.0.0/16, !192.168.10.0], as exceptions in front of what they are exceptions to.
    let rules = [
        rule([net("192.168.10.0/32")]).with_verdict(Verdict::Accept),
        rule([net("192.168.0.0/16")]).with_verdict(Verdict::Continue),
        rule([Match::Any]).with_verdict(Verdict::Accept),
    ];
    let keys = [
        ([ip("192.168.10.0")], hit(0)),
        ([ip("192.168.10.1")], hit(1)),
        ([ip("10.0.0.1")], hit(2)),
    ];
    vec![case([saddr()], Overlap::First, rules, keys)]
}

fn b52_deny_first_and_longest_prefix_by_priorities() -> Vec<Case> {
    let deny = rule([Match::Exact(6), range(1, 1024)]).with_verdict(Verdict::Drop);
    let allow = rule([Match::Exact(6), Match::Exact(80)]).with_verdict(Verdict::Accept);
    let blocks =
        ["10.0.0.0/8", "10.1.1.1/32"].map(|block| rule([net(block)]).with_verdict(Verdict::Drop));
    let any = rule([Match::Any]).with_verdict(Verdict::Accept);
    let [wide, narrow] = blocks.clone();
    let key = [ip("10.1.1.1")];
    vec![
        case(
            [proto(), port()],
            Overlap::First,
            [deny.clone(), allow.clone()],
            [([6, 80], hit(0))],
        ),
        case(
            [proto(), port()],
            Overlap::First,
            [deny, allow.with_priority(16)],
            [([6, 80], hit(1))],
        ),
        case(
            [saddr()],
            Overlap::First,
            blocks.into_iter().chain([any.clone()]),
            [(key, hit(0))],
        ),
        case(
            [saddr()],
            Overlap::First,
            [wide, any.clone()],
            [(key, hit(0))],
        ),
        case(
            [saddr()],
            Overlap::First,
            [narrow, any],
            [(key, hit(0)), ([ip("10.1.1.2")], hit(1))],
        ),
    ]
}

fn b55_the_empty_prefix_is_a_rule() -> Vec<Case> {
    let by_length = |block: &str, len| rule([net(block)]).with_priority(len);
    let ip4_keys = |outside| {
        [
            ([ip("192.168.0.1")], hit(0)),
            ([ip("10.10.10.10")], outside),
        ]
    };
    let ip6_keys = |outside| [([ip6("2001:db8::1")], hit(0)), ([ip6("fe80::1")], outside)];
    let ip4 = [by_length("192.168.0.0/24", 24), by_length("0.0.0.0/0", 0)];
    let ip6 = [by_length("2001:db8::/32", 32), by_length("::/0", 0)];
    vec![
        case([saddr()], Overlap::First, ip4.clone(), ip4_keys(hit(1))),
        case([saddr()], Overlap::First, ip4[..1].to_vec(), ip4_keys(MISS)),
        case([saddr6()], Overlap::First, ip6.clone(), ip6_keys(hit(1))),
        case(
            [saddr6()],
            Overlap::First,
            ip6[..1].to_vec(),
            ip6_keys(MISS),
        ),
    ]
}
