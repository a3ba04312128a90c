"""Lines as messages of a stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.nats import runs
from futebus.nats.runs import Where, outside

WHERE = Where("0123abcd", 5, 2, 1_700_000_000_000_000_000, "host", "U_jobs")
NAMES = (
    st.binary(min_size=1, max_size=255)
    .filter(lambda name: b"\0" not in name)
    .map(lambda name: name.decode(errors="surrogateescape"))
)
NUMBERS = st.integers(0, 10**18 - 1)


@given(NUMBERS, NUMBERS, NUMBERS, NAMES, NAMES)
def test_what_was_written_is_read(line: int, count: int, time: int, host: str, channel: str) -> None:
    where = Where("0123abcd", line, count, time, host, channel)
    told = runs.headers(where)
    assert runs.read(told) == where
    assert all(value.isascii() and value.isprintable() and " " not in value for value in told.values())


@pytest.mark.parametrize(
    "wrong",
    [
        {runs.SPOOL: ""},
        {runs.SPOOL: "a b"},
        {runs.SPOOL: "../x"},
        {runs.LINE: "-1"},
        {runs.LINE: "01"},
        {runs.LINE: "1" * 20},
        {runs.LINE: "\u0661"},
        {runs.LINE: str(2**63)},
        {runs.LINE: str(2**63 - 2)},
        {runs.TIME: str(2**63)},
        {runs.LINES: ""},
        {runs.TIME: "1e9"},
        {runs.HOST: ""},
        {runs.CHANNEL: "a\nb"},
        {runs.CHANNEL: "x" * 766},
    ],
)
def test_what_we_would_not_write_is_an_outsiders(wrong: dict[str, str]) -> None:
    told = runs.headers(WHERE)
    assert runs.read(told) == WHERE
    assert runs.read(told | wrong) is None
    assert runs.read(None) is None


@pytest.mark.parametrize(
    ("payload", "count", "lines"),
    [
        (b"", 0, b""),
        (b"\n\n", 0, b""),
        (b"x", 1, b"x\n"),
        (b"x\n", 1, b"x\n"),
        (b"\nx\n\n\ny", 2, b"x\ny\n"),
        (b"x\r\n\0\xff", 2, b"x\r\n\0\xff\n"),
    ],
)
def test_lines_of_outsiders(payload: bytes, count: int, lines: bytes) -> None:
    assert outside(payload) == (count, lines)
