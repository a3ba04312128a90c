"""The RMI format: the document's examples to the byte, both ways for all that can be written, and what is none."""

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.commands.ubus import LEAST_CALL as LEAST_OPTION
from futebus.gateways.rmi import (
    LEAST_CALL,
    MAX_CALL,
    Fault,
    Lines,
    RmiError,
    TooLarge,
    Value,
    decode,
    encode,
    encode_error,
    without_reserved,
)

MAP = b"\x1b{ a foo b bar s baz g \x1b{ a 1 c bla \x1b} \x1b} ".replace(b" ", b"\v")
LIST = b"\x1b[ b \x1b[ foo bar \x1b] bla baz \x1b] ".replace(b" ", b"\v")


def test_the_examples_of_the_document() -> None:
    nested: dict[str, Value] = {"a": "foo", "b": "bar", "s": "baz", "g": {"a": "1", "c": "bla"}}
    assert encode([nested]) == MAP + b"\n"
    assert decode(MAP + b"\n") == [nested]
    listed: list[Value] = ["b", ["foo", "bar"], "bla", "baz"]
    assert encode([listed]) == LIST + b"\n"
    assert decode(LIST) == [listed]
    assert encode(["call", nested, listed, "end"]) == b"call\t" + MAP + b"\t" + LIST + b"\tend\n"


@pytest.mark.parametrize(
    ("plain", "encoded"),
    [
        ("\0", b"\x1b0"),
        ("\a", b"\x1ba"),
        ("\b", b"\x1bb"),
        ("\t", b"\x1bt"),
        ("\n", b"\x1bn"),
        ("\v", b"\x1bv"),
        ("\f", b"\x1bf"),
        ("\r", b"\x1br"),
        ("\x1b", b"\x1be"),
    ],
)
def test_control_characters(plain: str, encoded: bytes) -> None:
    assert encode([plain, f"a{plain}b", [plain]]) == b"%s\ta%sb\t\x1b[\v%s\v\x1b]\v\n" % (encoded, encoded, encoded)
    assert decode(encoded) == [plain]


def test_arguments() -> None:
    assert encode([]) == b"\n"
    assert decode(b"\n") == decode(b"") == []
    assert encode(["", ""]) == b"\t\n"
    assert decode(b"a\tb\t\n") == ["a", "b", ""]  # as `ubus-invoke` sends it
    assert encode([1, 2.5, -3, b"\xff\t"]) == b"1\t2.5\t-3\t\xff\x1bt\n"
    assert decode(b"\xff") == ["\udcff"]


values: st.SearchStrategy[Any] = st.recursive(
    st.text(),
    lambda within: st.lists(within, max_size=5) | st.dictionaries(st.text(min_size=1), within, max_size=5),
    max_leaves=30,
)


@given(st.lists(values, max_size=5).filter(lambda arguments: arguments != [""]))
def test_what_is_written_is_read(arguments: list[Any]) -> None:
    try:
        line = encode(arguments)
    except RmiError:
        assert "\0" < arguments[0][0] < " "  # which would be a line that is to be ignored
        return
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == arguments


@given(
    st.binary() | st.lists(st.sampled_from([b"\x1b{", b"\x1b}", b"\x1b[", b"\x1b]", b"\v", b"a", b"\t", b"\x1be"])).map(b"".join)
)
def test_whatever_is_read_is_read_or_refused(data: bytes) -> None:
    try:
        read = decode(data)
    except RmiError:
        return
    if isinstance(read, list):
        again = decode(encode(read))
        assert again == read or read == [""]


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x1bx",
        b"\x1b",
        b"a\nb",
        b"\x1b[\va",
        b"\x1b[\va\v",
        b"\x1b[\v\x1b}\v",
        b"\x1b{\va\v\x1b}\v",
        b"\x1b{\v\vb\v\x1b}\v",
        b"\x1b{\v\x1b[\v\x1b]\vb\v\x1b}\v",
        b"\x1b[\v\x1b]\vmore\v",
        b"\x1b]\v",
        b"\x1b[",
        b"\a",
        b"\afoo",
        b"\a" + b"1" * 5000,
    ],
)
def test_what_is_wrong(wrong: bytes) -> None:
    with pytest.raises(RmiError):
        decode(wrong)


def test_a_key_is_a_text() -> None:
    for wrong in ({"": "a"}, {1: "a"}):
        with pytest.raises(RmiError):
            encode([wrong])  # type: ignore[list-item]


def test_errors_and_what_is_reserved() -> None:
    assert encode_error(75, "too\tlong") == b"\a75\ttoo\x1btlong\n"
    assert decode(b"\a75\ttoo\x1btlong\n") == Fault(75, "too\tlong")
    assert decode(b"\a2\n") == Fault(2)
    for code in range(32):
        line = bytes([code]) + b"x"
        if code in (7, 9, 10, 27):
            continue
        assert decode(line) is None, code
        assert without_reserved(b"a\n" + line + b"\nb\n" + line + b"\n") == b"a\nb\n"
    for code in (1, 6, 14, 31):
        with pytest.raises(RmiError):
            encode([chr(code) + "x"])
        assert decode(encode(["x", chr(code)])) == ["x", chr(code)]
    kept = b"\a1\n\tx\n\n\x1b[\v\x1b]\v\nx\x01\n"
    assert without_reserved(kept) == kept


def test_limits() -> None:
    assert LEAST_OPTION == LEAST_CALL <= MAX_CALL
    fits = "x" * (MAX_CALL - 1)
    assert decode(encode([fits])) == [fits]
    for wrong in (fits + "x", fits + "\t"):
        with pytest.raises(TooLarge) as raised:
            encode([wrong])
        assert raised.value.number == errno.EOVERFLOW == 75
    with pytest.raises(TooLarge):
        decode(b"x" * MAX_CALL + b"\n")
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TooLarge):
        encode([endless])
    assert len(encode([["x"]], 9)) == 9
    with pytest.raises(TooLarge):
        encode([["x"]], 8)


def test_it_is_nested_as_deep_as_one_likes() -> None:
    deep: Value = "x"
    for _ in range(30_000):
        deep = [deep]
    line = encode([deep])
    [read] = decode(line) or []  # type: ignore[misc]
    depth = 0
    while isinstance(read, list):
        [read] = read
        depth += 1
    assert (depth, read) == (30_000, "x")


def test_lines_byte_by_byte() -> None:
    data = b"one\n\ntwo\nthree"
    for size in range(1, len(data) + 1):
        lines = Lines()
        assert b"".join(lines.feed(data[start : start + size]) for start in range(0, len(data), size)) == b"one\n\ntwo\n"
        assert not lines.is_between
        assert lines.rest() == b"three"
        assert lines.is_between


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"a", b"\n")), max_size=20))
def test_lines_in_pieces(pieces: list[bytes]) -> None:
    lines = Lines()
    whole = [lines.feed(piece) for piece in pieces]
    assert all(each.endswith(b"\n") for each in whole if each)
    assert b"".join(whole) + lines.rest() == b"".join(pieces)


def test_a_line_that_is_too_long() -> None:
    lines = Lines(10)
    assert lines.feed(b"12345") + lines.feed(b"6789\n") == b"123456789\n"
    lines.feed(b"123456789")
    for wrong in (b"0\n", b"0"):
        with pytest.raises(TooLarge):
            lines.feed(wrong)
