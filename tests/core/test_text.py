"""Names, sizes and times as people read them."""

import ast
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.text import SLICE, SLICE_CHARACTERS, duration, escape, printable, progress, size, spanned, table


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        (b"", ""),
        (b"B_log", "B_log"),
        (b"B log", "B log"),
        ("Bäöü€\N{GRINNING FACE}".encode(), "Bäöü€\N{GRINNING FACE}"),
        (b"B\n\t\r", "B\\n\\t\\r"),
        (b"B\x00\x1b\x7f", "B\\x00\\x1b\\x7f"),
        (b"B\xff\x80", "B\\xff\\x80"),
        (b"B\xc3", "B\\xc3"),
        (b"B\\n", "B\\\\n"),
        (b"B\xed\xa0\x80", "B\\xed\\xa0\\x80"),
        ("B\N{RIGHT-TO-LEFT OVERRIDE}".encode(), "B\\u202e"),
        ("B\N{LINE SEPARATOR}".encode(), "B\\u2028"),
    ],
)
def test_escape(name: bytes, escaped: str) -> None:
    assert escape(name) == escaped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("B\\log", "B\\log"),
        ("B\\log\n", "B\\\\log\\n"),
        ("B\udcff", "B\\xff"),
        ("B\ud800", "B\\ud800"),
        ("\udcc3\udca4\udfff\n", "\\xc3\\xa4\\udfff\\n"),
    ],
)
def test_texts_with_half_characters_are_fit_too(text: str, shown: str) -> None:
    """JSON has such, from servers and from files of other people."""
    assert printable(text) == shown


@given(st.binary(max_size=12))
def test_what_is_escaped_is_fit_for_a_terminal(name: bytes) -> None:
    assert escape(name).isprintable()


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_escape_takes_names_apart(first: bytes, second: bytes) -> None:
    """Split at each byte of an ASCII name: each byte is escaped by itself."""
    if first.isascii() and second.isascii():
        assert escape(first + second) == escape(first) + escape(second)


@given(st.text(max_size=8).filter(lambda text: all(character < "\ud800" or character > "\udfff" for character in text)))
def test_escapes_are_those_of_python(text: str) -> None:
    quoted = '"' + escape(text.encode()).replace('"', '\\"') + '"'
    assert ast.literal_eval(quoted) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1024, "1.0K"),
        (1536, "1.5K"),
        (10 * 1024, "10.0K"),
        (99 * 1024, "99.0K"),
        (100 * 1024, "100K"),
        (102_348, "99.9K"),
        (102_349, "100K"),
        (262_144, "256K"),
        (999 * 1024, "999K"),
        (1023 * 1024, "1.0M"),
        (1024 * 1024, "1.0M"),
        (4_194_304, "4.0M"),
        (1 << 30, "1.0G"),
        (1 << 40, "1.0T"),
        (1 << 50, "1024T"),
        (123 << 40, "123T"),
    ],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@given(st.integers(0, 1 << 52))
def test_a_size_is_short_and_near(count: int) -> None:
    text = size(count)
    assert len(text) <= 5
    unit = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1], 0)
    value = float(text.rstrip("KMGT")) * (1 << unit)
    assert abs(value - count) <= count * 0.06
    if unit == 0:
        assert value == count


MILLISECOND, SECOND = 10**6, 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (300 * MILLISECOND, "0.3s"),
        (SECOND, "1.0s"),
        (9_900 * MILLISECOND, "9.9s"),
        (9_960 * MILLISECOND, "10s"),
        (12 * SECOND, "12s"),
        (59 * SECOND, "59s"),
        (59_600 * MILLISECOND, "1m00s"),
        (MINUTE, "1m00s"),
        (3 * MINUTE + 12 * SECOND, "3m12s"),
        (HOUR - SECOND, "59m59s"),
        (HOUR - SECOND // 10, "1h00m"),
        (HOUR, "1h00m"),
        (5 * HOUR + 2 * MINUTE + 59 * SECOND, "5h02m"),
        (DAY - SECOND, "23h59m"),
        (DAY, "1d00h"),
        (3 * DAY + 4 * HOUR, "3d04h"),
        (1000 * DAY, "1000d00h"),
    ],
)
def test_duration(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


def test_a_clock_that_was_set_back_makes_no_negative_duration() -> None:
    assert duration(-5 * SECOND) == duration(0)


UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}


@given(st.integers(0, 400 * DAY))
def test_a_duration_is_near(nanoseconds: int) -> None:
    text = duration(nanoseconds)
    total, number = 0.0, ""
    for character in text:
        if character in UNITS:
            total += float(number) * UNITS[character]
            number, smallest = "", UNITS[character]
        else:
            number += character
    assert number == ""
    assert abs(total - nanoseconds) <= smallest + SECOND


def test_table() -> None:
    rows = [("a", "1", "x"), ("long name", "1000", "")]
    assert "".join(table(["NAME", "N", "WHAT"], rows, right="N")) == (
        "NAME          N  WHAT\na             1  x\nlong name  1000\n"
    )


def test_a_table_is_aligned_as_terminals_show_it() -> None:
    """Wide characters take two columns, and what stands on another one takes none."""
    rows = [("B_漢字", "1", "x"), ("B_e\u0301te\u0301", "22", "é"), ("B_🐟", "3", "語")]
    assert "".join(table(["NAME", "N", "WHAT"], rows, right="N")) == (
        "NAME     N  WHAT\nB_漢字   1  x\nB_e\u0301te\u0301   22  é\nB_🐟     3  語\n"
    )


def test_a_table_without_rows_is_its_heads() -> None:
    assert "".join(table(["A", "B"], [], right="A")) == "A  B\n"


@pytest.mark.parametrize("count", [0, 1, SLICE - 2, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE, 1000])
def test_a_long_table_comes_in_pieces(count: int) -> None:
    rows = [(str(number),) for number in range(count)]
    taken = 0

    def take() -> Iterator[tuple[str, ...]]:
        nonlocal taken
        for row in rows:
            taken += 1
            yield row

    pieces = []
    before = 0
    for piece in table(["N"], take(), right="N"):
        assert taken - before <= SLICE
        before = taken
        pieces.append(piece)
    assert "".join(pieces).split() == ["N", *[cell for (cell,) in rows]]
    assert max(piece.count("\n") for piece in pieces) <= SLICE


def test_a_step_of_a_table_of_long_names_is_no_longer_than_others() -> None:
    """A name of 255 bytes that are no UTF-8 is shown with 1,020 characters."""
    rows = [(escape(b"\xff" * 255), str(number)) for number in range(1000)]
    pieces = list(table(["NAME", "NUMBER"], rows, right="NUMBER"))
    assert max(map(len, pieces)) <= SLICE_CHARACTERS
    assert "".join(pieces).count("\n") == 1001


@pytest.mark.parametrize(
    ("done", "total", "seconds", "words"),
    [
        (0, 100, 0.0, "[--------------------]   0 %, 0 of 100 lines, 0/s"),
        (0, 100, 3.0, "[--------------------]   0 %, 0 of 100 lines, 0/s"),
        (30, 100, 2.0, "[######--------------]  30 %, 30 of 100 lines, 15/s, 4.7s left"),
        (999, 1000, 1.0, "[###################-]  99 %, 999 of 1,000 lines, 999/s, 0.0s left"),
        (1_000_000, 1_000_000, 8.0, "[####################] 100 %, 1,000,000 of 1,000,000 lines, 125,000/s, 0.0s left"),
        (120, 100, 1.0, "[####################] 100 %, 120 of 100 lines, 120/s, 0.0s left"),
        (0, 0, 1.0, "[####################] 100 %, 0 of 0 lines, 0/s"),
        (1, 86_401, 1.0, "[--------------------]   0 %, 1 of 86,401 lines, 1/s, 1d00h left"),
    ],
)
def test_progress(done: int, total: int, seconds: float, words: str) -> None:
    assert progress(done, total, seconds, "line") == words


def test_which_lines() -> None:
    """As people count: with the last one."""
    assert spanned(5, 6) == "line 5"
    assert spanned(5, 7) == "lines 5 to 6"
    assert spanned(0, 10, "message") == "messages 0 to 9"


def test_what_was_escaped_is_remembered_within_bounds() -> None:
    from futebus.core import text

    for number in range(0xE000, 0xE000 + 6000):  # for private use, and so unprintable
        assert escape(chr(number).encode()) == f"\\u{number:04x}"
    assert len(text._ESCAPES) <= text._KEPT
