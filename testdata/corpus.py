#!/usr/bin/env python3
"""Writes testdata/corpus: rule files, keys, and what a plain reading of the rules answers.

The answers come from the loop in `winner`, which knows nothing of pktjit: numbers, closed intervals, first match wins.
Run it without arguments; it gives the same files every time. README.md tells what is in them.
"""

import ipaddress
import random
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent / "corpus"
BITS = {
    "inet_proto": 8,
    "inet_service": 16,
    "ipv4_addr": 32,
    "mark": 32,
    "ether_addr": 48,
    "ipv6_addr": 128,
    "ifname": 128,
}
MOST_KEYS = 320


def bits(kind):
    """Width of a field; raw payload `@ll,0,24` says it itself."""
    return BITS.get(kind) or int(kind.split(",")[2])


def number(kind, text):
    if kind == "ipv4_addr":
        return int(ipaddress.IPv4Address(text))
    if kind == "ipv6_addr":
        return int(ipaddress.IPv6Address(text))
    if kind == "ether_addr":
        return int(text.replace(":", ""), 16)
    if kind == "ifname":
        return int.from_bytes(text.strip('"').encode().ljust(16, b"\0"), "big")
    return int(text, 0)


def written(kind, value):
    if kind == "ipv4_addr":
        return str(ipaddress.IPv4Address(value))
    if kind == "ipv6_addr":
        return str(ipaddress.IPv6Address(value))
    if kind == "ether_addr":
        return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
    if kind == "ifname":
        return f'"{value.to_bytes(16, "big").rstrip(bytes(1)).decode()}"'
    return f"{value:#010x}" if kind == "mark" else str(value)


def interval(kind, text):
    """The smallest and the largest value that one field of an element matches."""
    width = bits(kind)
    if kind == "ifname":
        start = text.strip('"*').encode()
        rest = b"\xff" if text.endswith('*"') else b"\0"
        return number(kind, text.replace("*", "")), int.from_bytes(start.ljust(16, rest), "big")
    if "/" in text:
        value, length = text.split("/")
        host = (1 << (width - int(length))) - 1
        return number(kind, value) & ~host, number(kind, value) | host
    lo, _, hi = text.partition("-")
    return number(kind, lo), number(kind, hi or lo)


@dataclass
class Rules:
    """A rule file, and the same rules as boxes: a list of (mask, lo, hi) for each element, `None` for the catch-all."""

    name: str
    about: str
    kinds: list
    text: str
    boxes: list
    verdicts: list
    answers: dict = field(default_factory=dict)
    join: str = " . "
    only_keys: bool = False

    def winner(self, values):
        for index, box in enumerate(self.boxes):
            if box and all(lo <= value & mask <= hi for value, (mask, lo, hi) in zip(values, box)):
                return index
        return self.boxes.index(None) if None in self.boxes else None


def box_of(kinds, element):
    if element == "*":
        return None
    fields = element.split(" . ")
    assert len(fields) == len(kinds), element
    return [((1 << bits(kind)) - 1, *interval(kind, text)) for kind, text in zip(kinds, fields)]


def merged(boxes, verdicts):
    """Where elements touch or overlap and say the same, each of them becomes their union: the first one answers."""
    boxes = [list(box) for box in boxes]
    changed = True
    while changed:
        changed = False
        for a, [(mask, lo, hi)] in enumerate(boxes):
            for b, [(_, low, high)] in enumerate(boxes):
                union = [(mask, min(lo, low), max(hi, high))]
                touches = max(lo, low) <= min(hi, high) + 1
                if touches and verdicts[a] == verdicts[b] and (boxes[a] != union or boxes[b] != union):
                    boxes[a] = boxes[b] = union
                    changed = True
                    break
    return boxes


def nft(name, about, kinds, elements, flags="interval", answers=None, value=None, merge=False, defines="", **more):
    """A set, or with a type of `value` a map whose elements are written `KEY : VALUE`."""
    kinds = kinds.split(" . ")
    pairs = [element.rsplit(" : ", 1) if value else (element, "match") for element in elements]
    word = "typeof" if "@" in kinds[0] or any("@" in kind for kind in kinds) else "type"
    selectors = {
        "inet_proto": "ip protocol",
        "inet_service": "th dport",
        "ipv4_addr": "ip saddr",
        "mark": "meta mark",
        "ether_addr": "ether saddr",
        "ipv6_addr": "ip6 saddr",
        "ifname": "meta iifname",
    }
    names = [selectors.get(kind, kind) if word == "typeof" else kind for kind in kinds]
    lines = [
        f"# {about}",
        *filter(None, [defines]),
        "table inet corpus {",
        f"    {'map' if value else 'set'} {name.replace('-', '_')} {{",
        f"        {word} {' . '.join(names)}" + (f" : {value}" if value else ""),
    ]
    lines += [f"        flags {flags}"] if flags else []
    lines += ["        auto-merge"] if merge else []
    if elements:
        lines += ["        elements = {", *(f"            {element}," for element in elements), "        }"]
    text = "\n".join(lines + ["    }", "}", ""])
    boxes = [box_of(kinds, key.replace("$N", "10.0.0.0/8")) for key, _ in pairs]
    verdicts = [verdict for _, verdict in pairs]
    boxes = merged(boxes, verdicts) if merge else boxes
    write(Rules(name, about, kinds, text, boxes, verdicts, answers or {}, **more))


def classbench(name, about, lines, answers=None):
    """A list in ClassBench's format."""
    kinds = ["ipv4_addr", "ipv4_addr", "inet_service", "inet_service", "inet_proto"]
    boxes = []
    for line in lines:
        saddr, daddr, sport, dport, proto = line[1:].replace(" : ", ":").split()
        ports = [(0xFFFF, *map(int, ports.split(":"))) for ports in (sport, dport)]
        value, mask = (int(word, 16) for word in proto.split("/"))
        boxes.append(
            [
                (0xFFFFFFFF, *interval("ipv4_addr", saddr)),
                (0xFFFFFFFF, *interval("ipv4_addr", daddr)),
                *ports,
                (mask, value & mask, value & mask),
            ]
        )
    text = "".join(f"{line}\n" for line in [f"# {about}", *lines])
    write(Rules(name, about, kinds, text, boxes, ["match"] * len(boxes), answers or {}, join=" "))


def candidates(rules):
    """Keys in and around every element: its corners, one beyond each bound, mixtures of two elements; and anywhere."""
    rng = random.Random(rules.name)
    boxes = [box for box in rules.boxes if box]
    tops = [(1 << bits(kind)) - 1 for kind in rules.kinds]

    def inside(box):
        # A value for the masked bits, anything for the others.
        return [
            rng.choice([lo, hi, rng.randint(lo, hi)]) | rng.getrandbits(128) & top & ~mask
            for (mask, lo, hi), top in zip(box, tops)
        ]

    for box in boxes:
        yield [lo for _, lo, _ in box]
        yield [hi for _, _, hi in box]
        for index, (_, lo, hi) in enumerate(box):
            for value in (lo - 1, hi + 1, lo, hi):
                if 0 <= value <= tops[index]:
                    yield [value if at == index else inner for at, inner in enumerate(inside(box))]
    for _ in range(40 if len(boxes) > 1 else 0):
        yield [rng.choice(pair) for pair in zip(*map(inside, rng.sample(boxes, 2)))]
    yield [0] * len(tops)
    yield tops
    for _ in range(40):
        yield [rng.randint(0, top) for top in tops]


def names_near(rules):
    """Interface names cannot be any number: the names of the elements, and names that are nearly one."""
    rng = random.Random(rules.name)
    names = [
        written("ifname", box[at][1]).strip('"')
        for box in rules.boxes
        if box
        for at, kind in enumerate(rules.kinds)
        if kind == "ifname"
    ]
    names += [near for name in names for near in (name + "0", name[:-1], name[:-1] + "z", "x" + name[1:])]
    names = sorted({number("ifname", name) for name in names if 0 < len(name) < 16})
    for values in candidates(rules):
        is_name = [kind != "ifname" or value in names for kind, value in zip(rules.kinds, values)]
        yield [value if fine else rng.choice(names) for fine, value in zip(is_name, values)]


def write(rules):
    def shown(values):
        return rules.join.join(written(kind, value) for kind, value in zip(rules.kinds, values))

    keys = {
        key: [number(kind, text) for kind, text in zip(rules.kinds, key.split(rules.join))] for key in rules.answers
    }
    for key, answer in rules.answers.items():
        assert rules.winner(keys[key]) == answer, f"{rules.name}: {key} gives {rules.winner(keys[key])}, not {answer}"
    if not rules.only_keys:
        more = {shown(values): values for values in (names_near if "ifname" in rules.kinds else candidates)(rules)}
        step = max(1, -(-len(more) // MOST_KEYS))
        keys |= dict(list(more.items())[::step])
    lines = []
    for key, values in keys.items():
        index = rules.winner(values)
        lines.append(f"{key}\tmiss" if index is None else f"{key}\trule {index}\t{rules.verdicts[index]}")
    suffix = "rules" if rules.join == " " else "nft"
    (HERE / f"{rules.name}.{suffix}").write_text(rules.text)
    (HERE / f"{rules.name}.keys").write_text("".join(f"{key}\n" for key in keys))
    (HERE / f"{rules.name}.expected").write_text("".join(f"{line}\n" for line in lines))


def admitted(kinds, elements):
    """What nft stores of these concatenations: not those whose lower or upper corner is inside a stored element."""
    kinds, boxes, kept = kinds.split(" . "), [], []
    holds = lambda box, corner: all(lo <= value <= hi for value, (_, lo, hi) in zip(corner, box))
    for element in elements:
        box = box_of(kinds, element)
        corners = [[lo for _, lo, _ in box], [hi for _, _, hi in box]]
        if not any(holds(other, corner) for other in boxes for corner in corners):
            boxes.append(box)
            kept.append(element)
    return kept


def condition(rng, kind, style):
    """The text of one field of a random element."""
    top = (1 << bits(kind)) - 1
    value = rng.choice(
        [rng.randint(0, top), rng.randint(0, top), rng.randint(0, min(top, 300)), top - rng.randint(0, 3)]
    )
    if style == "mixed":
        style = rng.choice(["exact", "prefix", "range", "range"])
    if style == "exact":
        return written(kind, value)
    if style == "prefix":
        length = rng.randint(0 if rng.random() < 0.1 else 1, bits(kind))
        return f"{written(kind, value >> (bits(kind) - length) << (bits(kind) - length))}/{length}"
    high = min(top, value + rng.choice([1, 7, 40, rng.randint(1, top)]))
    return f"{written(kind, value)}-{written(kind, high)}"


def disjoint(rng, kind, style, count):
    """Elements of one field in random order, no two of which overlap."""
    kept, spans = [], []
    for _ in range(60 * count):
        text = condition(rng, kind, style)
        lo, hi = interval(kind, text)
        wide = hi - lo > ((1 << bits(kind)) - 1) // 16
        if len(kept) < count and not wide and all(hi < low or high < lo for low, high in spans):
            kept.append(text)
            spans.append((lo, hi))
    return kept


def single_fields():
    for kind in ["inet_proto", "inet_service", "ipv4_addr", "ipv6_addr", "ether_addr", "mark", "@ll,0,24", "@ll,0,64"]:
        name = {"@ll,0,24": "raw-3-bytes", "@ll,0,64": "raw-8-bytes"}.get(kind, kind.replace("_", "-"))
        for style in ["exact", "range"] + (
            ["prefix", "mixed"] if kind in ("ipv4_addr", "ipv6_addr", "ether_addr", "mark") else []
        ):
            elements = disjoint(random.Random(name + style), kind, style, 70)
            nft(
                f"{name}-{style}",
                f"One field, {style} elements.",
                kind,
                elements,
                "" if style == "exact" else "interval",
            )
    nft(
        "ifname-exact",
        "Interface names: zero-padded, compared as a whole.",
        "ifname",
        ['"lo"', '"eth0"', '"eth1"', '"eth10"', '"a"', '"fifteencharname"', '"wlp0s20f3"', '"br-lan"'],
        "",
    )
    nft(
        "ifname-wildcard",
        "Starts of interface names beside whole names.",
        "ifname",
        ['"eth*"', '"lo"', '"wg*"', '"br-*"', '"brx"', '"fifteencharnam*"'],
    )
    nft(
        "ipv6-words",
        "Ranges whose bounds lie in different words of the address.",
        "ipv6_addr",
        [
            "2001:db8::ffff:ffff-2001:db8::1:0:0",
            "2001:db8:0:0:ffff:ffff:ffff:fff0-2001:db8:0:1::f",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff-2001:db9::",
            "::1:0:0:0-::1:ffff:ffff:ffff",
            "::2:0:0:1-::2:0:0:fffe",
            "fe80::-fe80::ffff:ffff:ffff:ffff",
            "ff00::/8",
            "7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff-8000::",
            "a::1-b::",
            "c::/127",
            "c::2/128",
            "c::4-c::6",
        ],
    )
    for count in (1, 8, 9, 62, 63, 64, 65):
        nft(
            f"count-{count}",
            "As many elements as a structure may hold, one fewer, one more.",
            "inet_service",
            disjoint(random.Random(count), "inet_service", "range", count),
        )


def concatenations():
    shapes = {
        "net-port": "ipv4_addr . inet_service",
        "port-net": "inet_service . ipv4_addr",
        "net6-port": "ipv6_addr . inet_service",
        "port-proto": "inet_service . inet_proto",
        "net-mac": "ipv4_addr . ether_addr",
        "mark-net": "mark . ipv4_addr",
        "net6-port-mac": "ipv6_addr . inet_service . ether_addr",
        "net6-port-mac-proto": "ipv6_addr . inet_service . ether_addr . inet_proto",
        "net-net-port-port-proto": "ipv4_addr . ipv4_addr . inet_service . inet_service . inet_proto",
    }
    for name, kinds in shapes.items():
        for style, count in (("exact", 70), ("prefix", 40), ("range", 40), ("mixed", 110)):
            rng = random.Random(name + style)
            elements = [" . ".join(condition(rng, kind, style) for kind in kinds.split(" . ")) for _ in range(count)]
            nft(
                f"{name}-{style}",
                f"Concatenation, {style} elements.",
                kinds,
                admitted(kinds, elements),
                "" if style == "exact" else "interval",
            )
    nft(
        "ifname-net-ifname",
        "Interface names at both ends of a concatenation.",
        "ifname . ipv4_addr . ifname",
        [
            '"lo" . 127.0.0.1 . "lo"',
            '"lo" . 127.0.0.0/8 . "lo"',
            '"eth0" . 10.0.0.0/8 . "eth1"',
            '"eth0" . 0.0.0.0/0 . "eth0"',
        ],
    )
    rng = random.Random("overlapping")
    kinds = "ipv4_addr . inet_service"
    elements = []
    for width in (1, 3, 10, 40, 200, 900):
        for _ in range(40):
            net, port = rng.randint(1, 2000), rng.randint(1, 2000)
            elements.append(
                f"{written('ipv4_addr', 0x0A000000 + net)}-{written('ipv4_addr', 0x0A000000 + net + width)} . {port}-{port + width}"
            )
    nft(
        "overlapping",
        "Narrow elements before wide ones that cross or hold them: the earliest wins.",
        kinds,
        admitted(kinds, elements),
    )
    for name, kinds in (
        ("sixteen-bytes", " . ".join(["inet_proto"] * 16)),
        (
            "sixteen-fields",
            " . ".join(
                ["ipv6_addr", "ether_addr", "ipv4_addr", "ipv4_addr", "mark"]
                + ["inet_service"] * 8
                + ["inet_proto"] * 3
            ),
        ),
    ):
        rng = random.Random(name)
        full = " . ".join(
            "-".join(written(kind, value) for value in (0, (1 << bits(kind)) - 1)) for kind in kinds.split(" . ")
        )
        elements = [" . ".join(condition(rng, kind, "mixed") for kind in kinds.split(" . ")) for _ in range(20)]
        nft(name, "As many fields as a key may have.", kinds, admitted(kinds, elements) + [full])


def shapes():
    for name, kinds in (("empty", "ipv4_addr"), ("empty-concatenation", "ipv4_addr . inet_service")):
        nft(name, "No elements: every key misses.", kinds, [])
    nft("everything", "One element that matches every key.", "ipv4_addr . inet_service", ["0.0.0.0/0 . 0-65535"])
    nft("catch-all-alone", "The catch-all alone.", "ipv6_addr", ["*"])
    nft(
        "catch-all",
        "The catch-all answers last, wherever it stands.",
        "ipv4_addr",
        ["10.0.0.0/8", "*", "192.0.2.1"],
        answers={"10.1.1.1": 0, "192.0.2.1": 2, "192.0.2.2": 1},
    )
    nft(
        "catch-all-concatenation",
        "A catch-all behind a concatenation.",
        "ipv4_addr . inet_service",
        ["* : drop", "10.0.0.0/8 . 22 : accept", "10.0.0.0-10.255.255.255 . 80-443 : jump web"],
        value="verdict",
    )
    nft(
        "zero-and-max",
        "The smallest and the largest value of each field.",
        "ipv4_addr . inet_service . inet_proto . ether_addr",
        [
            "0.0.0.0 . 0 . 0 . 00:00:00:00:00:00",
            "255.255.255.255 . 65535 . 255 . ff:ff:ff:ff:ff:ff",
            "0.0.0.0 . 65535 . 0 . ff:ff:ff:ff:ff:ff",
            "128.0.0.0 . 32768 . 128 . 80:00:00:00:00:00",
            "127.255.255.255 . 32767 . 127 . 7f:ff:ff:ff:ff:ff",
        ],
    )
    nft(
        "duplicates",
        "Repeats count as positions; the first of equals answers.",
        "inet_service",
        ["80", "443", "80", "1000-2000", "443", "1000-2000", "22"],
        answers={"80": 0, "443": 1, "1500": 3, "22": 6},
    )
    nft(
        "duplicates-concatenation",
        "Repeats count as positions; the first of equals answers.",
        "ipv4_addr . inet_service",
        ["10.0.0.0/8 . 80", "10.0.0.0-10.255.255.255 . 80", "10.0.0.0/8 . 81", "10.0.0.0/8 . 80", "192.0.2.1 . 80"],
    )
    nft(
        "auto-merge",
        "Touching and overlapping elements become one, which answers as its first.",
        "ipv4_addr",
        [
            "10.0.0.16-10.0.0.31",
            "10.0.0.0/28",
            "192.0.2.7",
            "192.0.2.0/25",
            "10.0.0.32",
            "172.16.0.0/12",
            "192.0.2.128-192.0.3.5",
            "10.0.0.34",
            "10.0.0.20-10.0.0.33",
            "255.255.255.255",
            "255.255.255.254",
            "0.0.0.0",
        ],
        merge=True,
        answers={"10.0.0.0": 0, "10.0.0.34": 0, "10.0.0.35": None, "192.0.3.5": 2, "255.255.255.255": 9, "0.0.0.0": 11},
    )
    nft(
        "auto-merge-map",
        "Elements that touch but say something else stay apart.",
        "inet_service",
        ["10-19 : accept", "20-29 : drop", "30-39 : drop", "5-9 : accept", "40 : accept"],
        value="verdict",
        merge=True,
        answers={"5": 0, "19": 0, "20": 1, "39": 1, "40": 4, "41": None},
    )
    nft(
        "verdict-map",
        "All kinds of verdicts.",
        "ipv4_addr . inet_service",
        [
            "10.0.0.0/8 . 22 : accept",
            "10.0.0.0/8 . 23 : drop",
            "10.0.0.0/8 . 80-89 : jump web",
            "10.0.0.0/8 . 90 : goto other",
            "10.0.0.0/8 . 91 : return",
            "10.0.0.0/8 . 92 : continue",
        ],
        value="verdict",
    )
    nft(
        "data-map",
        "Data of several bytes; the value 0 is a value.",
        "inet_service",
        ["80 : 192.0.2.1", "81-89 : 0.0.0.0", "443 : 255.255.255.255"],
        value="ipv4_addr",
        answers={"85": 1, "90": None},
    )
    nft(
        "define",
        "A variable in place of an element.",
        "ipv4_addr . inet_service",
        ["$N . 80", "$N . 443"],
        defines="define N = 10.0.0.0/8",
    )


def known_faults():
    # Each width in each position, each bit of a stored key flipped in turn.
    kinds = ["inet_proto", "inet_service", "ipv4_addr", "ether_addr", "@ll,0,64", "ipv6_addr"]
    values = [
        58,
        0xA55A,
        0xC0000207,
        0x0242AC110005,
        0x0123456789ABCDEF,
        number("ipv6_addr", "fe80:dead:1ff:a02:b03:6007:8009:a001"),
    ]
    for turn in range(len(kinds)):
        order, key = kinds[turn:] + kinds[:turn], values[turn:] + values[:turn]
        text = lambda numbers: " . ".join(written(kind, value) for kind, value in zip(order, numbers))
        answers = {text(key): 0}
        for at, kind in enumerate(order):
            for bit in range(bits(kind)):
                answers[text(key[:at] + [key[at] ^ 1 << bit] + key[at + 1 :])] = None
        nft(
            f"b01-bit-flips-{turn}",
            "Every bit of every field takes part.",
            " . ".join(order),
            [text(key)],
            answers=answers,
            only_keys=True,
        )
    nft(
        "b01-ipv6-octet",
        "An octet of an address that vector code once ignored.",
        "inet_proto . ipv6_addr",
        ["58 . fe80:dead:1ff:a02:b03:6007:8009:a001", "58 . dead:beef:ff::1"],
        answers={
            "58 . fe80:dead:1fe:a02:b03:6007:8009:a001": None,
            "58 . dead:beef::1": None,
            "58 . dead:beef:ff::1": 1,
        },
    )
    pairs = [(i, j) for i in range(1, 11) for j in range(1, 21)]
    nft(
        "b03-first-field-is-small",
        "200 elements, of which the first field tells few apart.",
        "ipv4_addr . inet_service . inet_proto",
        [f"10.{i}.{j}.0/24 . {10 * i + 1}-{10 * i + 10} . 6-17" for i, j in pairs],
        answers={
            f"10.{i}.{j}.{end} . {10 * i + at} . {proto}": n
            for n, (i, j) in enumerate(pairs)
            for end, at, proto in ((0, 1, 6), (255, 10, 17))
        },
    )
    nft(
        "b04-which-element-and-not-only-whether",
        "200 elements whose ports overlap.",
        "ipv4_addr . inet_service . inet_proto",
        [f"10.{i}.{j}.0/24 . {j}-{10 * j + 10} . 6-17" for i, j in pairs],
        answers={
            f"10.{i}.{j}.1 . {port} . {proto}": None if port > 10 * j + 10 else n
            for n, (i, j) in enumerate(pairs)
            for port, proto in ((j, 17), (10 * j + 10, 6), (10 * j + 11, 17))
        },
    )
    nft(
        "b06-two-addresses",
        "The last field ends with the key.",
        "ipv4_addr . ipv4_addr",
        ["1.2.3.4 . 1.2.4.1"],
        answers={"1.2.3.4 . 1.2.4.1": 0, "1.2.4.1 . 1.2.3.4": None},
    )
    nft(
        "b13-same-start",
        "The same start with another prefix, where nft lets it in.",
        "ifname . ipv4_addr",
        ['"lo" . 10.0.0.1-10.0.0.255 : drop', '"lo" . 10.0.0.1-10.0.0.255 : drop', '"lo" . 10.0.0.0/8 : accept'],
        value="verdict",
        answers={'"lo" . 10.9.9.9': 2, '"lo" . 10.0.0.1': 0, '"lo" . 10.0.0.0': 2},
    )
    nft(
        "b14-narrow-before-broad",
        "The narrow element comes first.",
        "ifname . ipv4_addr . ifname",
        ['"lo" . 127.0.0.1 . "lo" : accept', '"lo" . 127.0.0.0/8 . "lo" : drop'],
        value="verdict",
        answers={'"lo" . 127.0.0.1 . "lo"': 0, '"lo" . 127.0.0.2 . "lo"': 1},
    )
    nft(
        "b16-overlapping-concatenations",
        "What nft accepts of overlapping ranges.",
        "inet_service . inet_service",
        ["0-2 . 0-3", "0-2 . 0-3", "10-20 . 30-40", "15-20 . 50-60", "3-9 . 4-29", "3-9 . 4-29", "15-20 . 49-61"],
        answers={"16 . 55": 3, "16 . 49": 6, "12 . 35": 2},
    )
    nft(
        "b18-touching",
        "The last value of one element and the first of the next.",
        "ipv4_addr",
        ["10.0.0.1", "10.0.0.2", "10.1.0.0-10.1.0.9", "10.1.0.10-10.1.0.19"],
        answers={"10.0.0.1": 0, "10.0.0.2": 1, "10.1.0.9": 2, "10.1.0.10": 3, "10.1.0.20": None, "10.0.0.0": None},
    )
    nft(
        "b19-touching-map",
        "Intervals that nearly touch, with other verdicts.",
        "ipv4_addr",
        ["10.255.1.0-10.255.1.255 : accept", "10.255.2.0-10.255.2.255 : drop"],
        value="verdict",
        answers={"10.255.1.255": 0, "10.255.2.0": 1, "10.255.0.255": None, "10.255.3.0": None},
    )
    nft(
        "b23-same-start-smaller-end",
        "Nothing of a refused element stays.",
        "inet_service",
        ["0-3"],
        answers={"3": 0, "4": None},
    )
    nft(
        "b24-a-gap",
        "What lies between two elements belongs to neither.",
        "ipv4_addr",
        ["1.1.1.1-2.2.2.2", "3.3.3.3-4.4.4.4"],
        answers={"2.9.9.9": None, "2.2.2.2": 0, "3.3.3.3": 1},
    )
    rng = random.Random("b26")
    blocks, at = [], 0x01000000
    while at < 0xFFFFFFFF and len(blocks) < 900:
        aligned = (at & -at).bit_length() - 1
        size = min(aligned, rng.choice([0, 1, 2, 4, 8, 8, 9, 12, 16, 20, 22, 24]))
        if rng.random() < 0.8:
            blocks.append(f"{written('ipv4_addr', at)}/{32 - size}")
        at += 1 << size
    blocks += ["255.255.255.255/32"] if not blocks[-1].startswith("255.255.255.255") else []
    rng.shuffle(blocks)
    nft("b26-many-touching-blocks", "Disjoint prefixes of all lengths, most of which touch.", "ipv4_addr", blocks)
    for name, kind, elements in (
        ("ipv4", "ipv4_addr", ["0.0.0.0-255.255.255.255", "0.0.0.0/0"]),
        ("ipv6", "ipv6_addr", ["::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]),
        ("proto", "inet_proto", ["0-255"]),
        ("zero", "inet_service", ["0-0"]),
        ("max", "inet_service", ["65535-65535"]),
        ("one", "inet_service", ["1-1"]),
    ):
        nft(f"b27-{name}", "The whole space, and one value at its ends.", kind, elements)
    nft(
        "b32-catch-all-map",
        "The catch-all of a map.",
        "ipv4_addr",
        ["10.0.0.0/8 : 0x1", "* : 0x2"],
        value="mark",
        answers={"10.1.1.1": 0, "192.0.2.1": 1},
    )
    nft(
        "b33-host-order",
        "A mark lies in the key in the host's byte order.",
        "ipv4_addr . mark",
        ["192.0.2.0/24 . 0x00000100-0x000002ff", "192.0.2.9 . 0x0000000a"],
        answers={
            f"192.0.2.7 . {mark:#010x}": answer
            for mark, answer in (
                (0x100, 0),
                (0x1FF, 0),
                (0x2FF, 0),
                (0xFF, None),
                (0x300, None),
                (0x10000, None),
                (0xFF010000, None),
            )
        }
        | {"192.0.2.9 . 0x0000000a": 1},
    )
    # The second field keeps the corners of the wide element out of the narrow ones, so that nft takes all four.
    sweep = {
        "0.0.0.0": None,
        "0.0.0.1": 0,
        "0.0.1.39": 0,
        "0.0.1.40": 0,
        "0.0.2.58": 0,
        "0.0.2.59": 3,
        "0.1.12.13": 3,
        "0.3.11.14": 3,
        "0.4.3.1": 3,
        "0.1.12.14": 2,
        "0.3.11.13": 2,
        "0.4.3.2": 1,
        "0.4.5.6": 1,
        "0.4.5.7": 1,
        "0.4.7.255": 1,
        "0.4.8.0": None,
    }
    nft(
        "b37-ranges-over-many-bytes",
        "Ranges whose bounds differ in more than two bytes.",
        "ipv4_addr . inet_proto",
        [
            "0.0.0.1-0.0.2.58 . 1-254",
            "0.4.3.2-0.4.7.255 . 1-254",
            "0.1.12.14-0.3.11.13 . 1-254",
            "0.0.1.40-0.4.5.6 . 0-255",
        ],
        answers={f"{key} . 6": answer for key, answer in sweep.items()},
    )
    nft(
        "b41-zero-is-not-a-miss",
        "The value 0 and no match are two answers.",
        "ipv4_addr",
        ["10.0.0.1 : 0x0", "10.0.0.2 : 0x5"],
        "",
        value="mark",
        answers={"10.0.0.1": 0, "10.0.0.2": 1, "10.0.0.3": None},
    )
    nft(
        "b46-ipv6",
        "IPv6 sources, any destination.",
        "ipv6_addr . ipv6_addr . inet_proto . inet_service",
        ["2001:db8:1::/48 . ::/0 . 17 . 53"],
        answers={"2001:db8:1::5 . 2001:db8:2::1 . 17 . 53": 0, "2001:db8:2::5 . 2001:db8:2::1 . 17 . 53": None},
    )
    nft(
        "b50-icmp-in-port-fields",
        "Ranges of ICMP types and codes.",
        "inet_proto . @th,0,8 . @th,8,8",
        ["1 . 1-5 . 1-5", "58 . 1-4 . 0-255"],
        answers={"1 . 3 . 3": 0, "1 . 3 . 0": None, "1 . 8 . 0": None, "58 . 1 . 255": 1},
    )
    nft(
        "b55-length-zero",
        "A prefix of length 0 behind a longer one.",
        "ipv4_addr . inet_proto",
        ["192.168.0.0/24 . 1-254", "0.0.0.0/0 . 0-255"],
        answers={"192.168.0.1 . 6": 0, "10.10.10.10 . 6": 1},
    )
    nft(
        "b55-length-zero-ipv6",
        "A prefix of length 0 behind a longer one.",
        "ipv6_addr . inet_proto",
        ["2001:db8::/32 . 1-254", "::/0 . 0-255"],
        answers={"2001:db8::1 . 6": 0, "::1 . 6": 1},
    )
    nft(
        "b58-prefix-lengths",
        "Prefixes of no, some and all bits of a word.",
        "ipv6_addr . @ll,0,64 . ipv4_addr",
        admitted(
            "ipv6_addr . @ll,0,64 . ipv4_addr",
            [
                f"fedc:ba98:7654:3210:fedc:ba98:7654:3210/{a} . 18364758544493064720/{b} . 254.220.186.152/{c}"
                for a, b, c in (
                    (128, 64, 32),
                    (127, 63, 31),
                    (65, 33, 17),
                    (64, 32, 16),
                    (63, 31, 15),
                    (33, 1, 1),
                    (32, 64, 32),
                    (31, 0, 0),
                    (1, 0, 0),
                    (0, 1, 1),
                    (0, 0, 0),
                )
            ],
        ),
    )
    nft(
        "b82-huge-ranges",
        "A range over everything is stored, not listed.",
        "ipv4_addr . inet_service . ipv4_addr",
        ["0.0.0.0/0 . 1-2 . 192.168.230.128/25", "0.0.0.0/0 . 0-65535 . 0.0.0.0/0"],
        answers={"203.0.113.7 . 1 . 192.168.230.200": 0, "203.0.113.7 . 1 . 192.168.230.127": 1},
    )
    nft(
        "b84-host-bits",
        "Host bits under a prefix do not count.",
        "ipv4_addr",
        ["10.0.1.1/31", "10.0.0.77/24"],
        answers={"10.0.1.0": 0, "10.0.1.1": 0, "10.0.0.1": 1, "10.0.1.2": None},
    )
    nft(
        "b88-range-of-one",
        "Ranges with equal ends.",
        "ipv4_addr . inet_service",
        ["1.2.3.4-1.2.3.4 . 80-80", "1.2.3.4 . 81-81"],
    )


def lists():
    """Priorities that nft sets cannot have: each rule may overlap all before it."""
    line = (
        lambda saddr="0.0.0.0/0", daddr="0.0.0.0/0", sport="0 : 65535", dport="0 : 65535", proto="0x00/0x00": f"@{saddr}\t{daddr}\t{sport}\t{dport}\t{proto}"
    )
    key = lambda saddr="0.0.0.0", dport=0, proto=6: f"{saddr} 0.0.0.0 0 {dport} {proto}"
    classbench(
        "b29-narrow-before-wide",
        "The first match wins, and the last rule is dead.",
        [line("10.0.0.0/24"), line("10.0.0.0/16"), line("10.0.0.1/32", dport="22 : 22")],
        {key("10.0.0.5"): 0, key("10.0.1.5"): 1, key("10.0.0.1", 22): 0},
    )
    classbench(
        "b30-bit-tests",
        "A masked value is not an equal value.",
        [line(proto="0x02/0x02"), line(proto="0x10/0x10")],
        {key(proto=proto): answer for proto, answer in ((2, 0), (0x10, 1), (0x12, 0), (0x18, 1), (1, None), (0, None))},
    )
    classbench(
        "b40-equal-priorities",
        "Of equal rules the first wins.",
        [line("10.0.0.0/8"), line("10.1.0.0/16"), line("10.0.0.0/8")],
        {key("10.1.2.3"): 0},
    )
    classbench(
        "b52-deny-first",
        "A wide rule before a narrow one leaves it nothing.",
        [
            line(dport="1 : 1024", proto="0x06/0xFF"),
            line(dport="80 : 80", proto="0x06/0xFF"),
            line("10.0.0.0/8"),
            line("10.1.1.1/32"),
            line(),
        ],
        {key("0.0.0.0", 80, 6): 0, key("10.1.1.1", 80, 17): 2, key("0.0.0.0", 80, 17): 4},
    )
    classbench(
        "b55-default-last",
        "A default behind a prefix.",
        [line("192.168.0.0/24"), line()],
        {key("192.168.0.1"): 0, key("10.10.10.10"): 1},
    )
    classbench(
        "b58-shift-by-all",
        "Prefix lengths 0, 1, 31 and 32.",
        [
            line(f"172.16.0.1/{a}", f"172.16.0.1/{b}")
            for a, b in ((32, 32), (31, 32), (32, 31), (1, 32), (32, 1), (1, 1), (0, 32), (32, 0), (0, 1))
        ],
    )


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for old in HERE.iterdir():
        old.unlink()
    for group in (single_fields, concatenations, shapes, known_faults, lists):
        group()
