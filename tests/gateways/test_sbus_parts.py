"""The parts of futebus-sbus that need no socket, against plain models of what sbus' document says."""

import heapq
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from futebus.commands.sbus import plain
from futebus.gateways.sbus.address import BadAddress, path_of
from futebus.gateways.sbus.backlog import Backlog, Order
from futebus.gateways.sbus.index import LEVELS, Index, TooDeep
from futebus.gateways.sbus.keys import Credentials, NotOwn, admitted, matches
from futebus.gateways.sbus.lines import line_of, message_of
from futebus.gateways.sbus.packets import Kind, message, parse

# ---------------------------------------------------------------------------------------------- keys

CASES = [
    ("", "", True),
    ("", "anything/at/all", True),
    ("a", "a", True),
    ("a", "ab", False),
    ("ab", "a", False),
    ("a", "a/", False),
    ("a/", "a/", True),
    ("a/", "a/b/c", True),
    ("a/", "a", False),
    ("a/*/c/", "a/b/c/", True),
    ("a/*/c/", "a/b/c/d/e", True),
    ("a/*/c/", "a/b/c", False),
    ("a/*/c/", "a/c/d", False),
    ("a/*", "a/b", True),
    ("a/*", "a/", False),
    ("a/*", "a/b/c", False),
    ("a/*/", "a/b/", True),
    ("a/*/", "a//", True),
    ("a/*/c", "a//c", True),
    ("a*", "abc", True),
    ("a*", "a", False),
    ("a*/c", "a/c", True),
    ("*", "", False),
    ("*", "a", True),
    ("*", "a/b", False),
    ("*/", "a/b", True),
    ("**", "a", False),
    ("**/b", "a/b", True),
    ("a*b", "axb", False),
    ("/", "/", True),
    ("/", "/a", True),
    ("//", "/a", False),
    ("!", "!", True),
    ("!a/*", "!a/b", True),
]


@pytest.mark.parametrize(("pattern", "key", "expected"), CASES)
def test_what_matches(pattern: str, key: str, expected: bool) -> None:
    assert matches(pattern.encode(), key.encode()) is expected
    index: Index[int] = Index()
    index.add(pattern.encode(), 1)
    assert index.find(key.encode()) == ((1,) if expected else ())


def pieces(*letters: bytes) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(letters), max_size=12).map(b"".join)


PATTERNS = pieces(b"a", b"b", b"/", b"*", b"a/", b"*/", b"/a", b"!", b"!/cred/", b"/" * (LEVELS - 2))
KEYS = pieces(b"a", b"b", b"/", b"a/", b"/a", b"!", b"*", b"!/cred/", b"/" * (LEVELS - 2))


@settings(max_examples=50)
@given(st.lists(st.tuples(PATTERNS, st.integers(0, 5)), max_size=20), st.lists(KEYS, min_size=1, max_size=10), st.data())
def test_the_index_finds_what_comparing_each_would_find(
    subscriptions: list[tuple[bytes, int]], keys: list[bytes], data: st.DataObject
) -> None:
    index: Index[int] = Index()
    model: Counter[tuple[bytes, int]] = Counter()

    def check() -> None:
        for key in keys:
            wanted = {
                holder
                for pattern, holder in model
                if matches(pattern, key) and pattern.startswith(b"!/cred/") == key.startswith(b"!/cred/")
            }
            found = index.find(key)
            assert sorted(found) == sorted(wanted), (key, model)

    for pattern, holder in subscriptions:
        try:
            index.add(pattern, holder)
        except TooDeep:
            assert b"*" in pattern.split(b"/", LEVELS)[-1]
        else:
            model[pattern, holder] += 1
    check()
    for each in data.draw(st.permutations(list(model.elements()))) if model else []:
        index.remove(*each)
        model[each] -= 1
        model = +model
        check()
    assert not index._ordinary._root
    assert not index._secret._root, "nothing is left of what has gone"


def test_no_pattern_of_others_leads_to_a_secret() -> None:
    index: Index[int] = Index()
    for number, pattern in enumerate((b"", b"!/", b"*/", b"*/*/1/2/3/x", b"!/cred", b"!/cre*/", b"!/*/", b"!*/cred/")):
        index.add(pattern, number)
    assert index.find(b"!/cred/1/2/3/x") == ()
    index.add(b"!/cred/1/2/3/x", 100)
    assert index.find(b"!/cred/1/2/3/x") == (100,)


ANN = Credentials(100, 1000, 1111)


@pytest.mark.parametrize(
    ("pattern", "patterns"),
    [
        ("a/*", {"a/*"}),
        ("!/cred/100/1000/1111/x", {"!/cred/100/1000/1111/x"}),
        ("!/cred/100/1000/1111/", {"!/cred/100/1000/1111/"}),
        ("!/cred////x/*", {"!/cred////x/*", "!/cred/100/1000/1111/x/*"}),
        ("!/cred/100///x", {"!/cred/100///x", "!/cred/100/1000/1111/x"}),
        ("!/cred/100/1000/1111/!/cred/1/2/3/x", {"!/cred/100/1000/1111/!/cred/1/2/3/x"}),
    ],
)
def test_secrets_that_are_ones_own(pattern: str, patterns: set[str]) -> None:
    assert set(admitted(pattern.encode(), ANN)) == {each.encode() for each in patterns}


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "//",
        "100",
        "100/1000/1111",
        "*/1000/1111/x",
        "100/*/1111/x",
        "100/1000/*/x",
        "100/1000/11*/x",
        "100/1000/1112/x",
        "0/1000/1111/x",
        "-100/1000/1111/x",
        "100 /1000/1111/x",
        "100//11110/x",
        "a/b/c/d",
        "100/1000/" + "1" * 5000 + "/x",
    ],
)
def test_secrets_of_others(rest: str) -> None:
    with pytest.raises(NotOwn):
        admitted(b"!/cred/" + rest.encode(), ANN)


# ---------------------------------------------------------------------------------------------- packets

FORMS = {
    Kind.SUB: re.compile(rb"SUB ([^\x00]*)(\x00.*)?", re.DOTALL),
    Kind.UNSUB: re.compile(rb"UNSUB ([^\x00]*)(\x00.*)?", re.DOTALL),
    Kind.MSG: re.compile(rb"MSG ([^\x00]*)\x00(.*)", re.DOTALL),
    Kind.CMSG: re.compile(rb"CMSG ([^\x00]*)(\x00.*)?", re.DOTALL),
}
"""As they stand in the document."""


def check_packet(packet: bytes) -> None:
    found = parse(packet)
    fitting = {kind: form.fullmatch(packet) for kind, form in FORMS.items()}
    wanted = {kind: match for kind, match in fitting.items() if match}
    assert (found is None) == (not wanted)
    if found:
        assert wanted[found.kind][1] == found.key
        if found.kind is Kind.MSG:
            assert packet[found.start :] == wanted[found.kind][2]
            assert message(found.key, packet[found.start :]) == packet


@given(st.lists(st.sampled_from([b"MSG", b"SUB", b"UNSUB", b"CMSG", b" ", b"\0", b"\n", b"a", b"\xff", b"C"])).map(b"".join))
def test_packets_are_read_as_the_document_says(packet: bytes) -> None:
    check_packet(packet)


def test_packets_cut_anywhere() -> None:
    for whole in (b"MSG a/b\0payload\0more\n", b"SUB a/*\0ignored", b"UNSUB ", b"CMSG !/cred/whoami\0", b"msg a\0b"):
        for length in range(len(whole) + 1):
            check_packet(whole[:length])
            check_packet(whole[length:])


# ---------------------------------------------------------------------------------------------- lines

ODD = st.lists(st.sampled_from([b"\\", b"t", b"n", b"r", b"0", b"\t", b"\n", b"\r", b"\0", b"a", b"\xff"])).map(b"".join)


@given(ODD.map(lambda key: key.replace(b"\0", b"")) | st.binary(max_size=50), ODD | st.binary(max_size=50))
def test_a_message_comes_back_from_its_line(key: bytes, payload: bytes) -> None:
    line = line_of(key, payload)
    assert line.endswith(b"\n")
    assert not set(line[:-1]) & set(b"\n\r\0")
    assert line.count(b"\t") == 1
    assert message_of(line[:-1]) == (key, payload)


@pytest.mark.parametrize(
    ("line", "key", "payload"),
    [
        (rb"door/front" + b"\topen", b"door/front", b"open"),
        (b"just text", b"just text", b""),
        (b"a\tb\tc", b"a", b"b\tc"),
        (rb"C:\dir\x" + b"\t" + rb"\q\\", rb"C:\dir\x", b"\\q\\"),
        (b"\\", b"\\", b""),
        (b"\t", b"", b""),
    ],
)
def test_lines_of_others(line: bytes, key: bytes, payload: bytes) -> None:
    assert message_of(line) == (key, payload)


# ---------------------------------------------------------------------------------------------- what waits


@given(st.lists(st.binary(max_size=4) | st.sampled_from(Order) | st.none()))
def test_a_backlog_is_what_a_list_would_be(steps: list[bytes | Order | None]) -> None:
    backlog, model, order = Backlog(), list[tuple[int, bytes]](), Order.QUEUE
    for number, step in enumerate(steps):
        if isinstance(step, Order):
            backlog.order = order = step
        elif step is not None:
            backlog.put(step)
            model.append((number, step))
        elif model:
            firsts = {
                Order.QUEUE: min(model),
                Order.STACK: max(model),
                Order.RANDOM: min(model, key=lambda item: (-len(item[1]), item[0])),
            }
            assert backlog.first() == firsts[order][1]
            backlog.drop_first()
            model.remove(firsts[order])
        assert len(backlog) == len(model)
        assert backlog.size == sum(len(packet) for _, packet in model)


def test_many_that_wait_in_changing_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """To change the order costs nothing: nobody sorts them for that again and again."""
    calls = Counter[str]()
    heapify, heappush = heapq.heapify, heapq.heappush

    def count(name: str, function: Callable[..., None], *arguments: Any) -> None:
        calls[name] += 1
        function(*arguments)

    monkeypatch.setattr("heapq.heapify", partial(count, "heapify", heapify))
    monkeypatch.setattr("heapq.heappush", partial(count, "heappush", heappush))
    backlog, packets = Backlog(), [b"x" * (number % 40) + b"%d" % number for number in range(2000)]
    for packet in packets:
        backlog.put(packet)
    left = set(packets)
    for number in range(1500):
        for backlog.order in (Order.RANDOM, Order.QUEUE, Order.STACK, list(Order)[number % 3]):
            backlog.first()
        left.remove(backlog.first())
        backlog.drop_first()
    assert calls["heapify"] < 10
    assert calls["heappush"] == 0, "all were there before"
    assert (len(backlog), backlog.size) == (500, sum(map(len, left)))
    backlog.order = Order.RANDOM
    assert len(backlog.first()) == max(map(len, left))
    while backlog:
        left.remove(backlog.first())
        backlog.drop_first()
    assert (left, backlog.size) == (set(), 0)


# ---------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("given_", "read"),
    [
        ("-faX", "-f -a=X"),
        ("-fa X", "-f -a=X"),
        ("-a X", "-a=X"),
        ("-a -f", "-a=-f"),
        ("-a=X", "-a==X"),
        ("-cr", "-c -r"),
        ("-u ann -ubob", "-u=ann -u=bob"),
        ("-cp/x/y -f", "-c -p=/x/y -f"),
        ("-fa", "-f -a"),
        ("--channel /mnt/bus/B_x -f", "--channel /mnt/bus/B_x -f"),
        ("-", "-"),
        ("-- -f", "-- -f"),
    ],
)
def test_options_as_sbusd_reads_them(given_: str, read: str) -> None:
    assert plain(given_.split()) == read.split()


def test_addresses() -> None:
    assert path_of("/dev/unix/abstract") is None
    assert path_of("/dev/unix/abstract/00ff") == b"\0\xff".ljust(108, b"\0")
    assert path_of("/dev/unix/abstract/" + "00" * 107 + "aB") == b"\0" * 107 + b"\xab"
    assert path_of("/dev/unix/abstract/2f7800") == b"/x"
    assert path_of("/dev/unix/abstract/") == b"\0" * 108
    for path in ("/dev/unix/abstract/0", "/dev/unix/abstract/xy", "/dev/unix", "relative", "x" * 107):
        assert path_of(path) == path.encode()
    for wrong in ("x" * 108, "", "/dev/unix/abstract/" + "00" * 109):
        with pytest.raises(BadAddress):
            path_of(wrong)
