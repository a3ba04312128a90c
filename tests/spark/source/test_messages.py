"""Messages as rows: those that are what their headers say, and the others between them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.nats import runs
from futebus.nats.fetching import Fetched
from futebus.spark.source.arrow import BATCH_BYTES
from futebus.spark.source.messages import rows

SCHEMA = pa.schema([("value", pa.string()), ("channel", pa.string()), ("offset", pa.int64()), ("sequence", pa.int64())])
TIME = 1_700_000_000 * 10**9


def message(sequence: int, data: bytes, lines: int, channel: str = "U_x") -> Fetched:
    headers = runs.headers(runs.Where("spool", 10 * sequence, lines, TIME, "host", channel))
    return Fetched(sequence, "lines", headers, data, TIME)


def shown(messages: Sequence[Fetched], schema: pa.Schema = SCHEMA) -> list[tuple[Any, ...]]:
    batches = list(rows(messages, schema, "PERMISSIVE"))
    assert all(batch.num_rows for batch in batches)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def as_told(sequence: int, *lines: str, channel: str = "U_x") -> list[tuple[Any, ...]]:
    return [(line, channel, 10 * sequence + place, sequence) for place, line in enumerate(lines)]


def outside(sequence: int, *lines: str) -> list[tuple[Any, ...]]:
    return [(line, None, place, sequence) for place, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("data", "lines", "found"),
    [
        (b"a\nb\n", 3, ["a", "b"]),
        (b"a\nb\n", 1, ["a", "b"]),
        (b"a\nb\n", 0, ["a", "b"]),
        (b"a\nb", 2, ["a", "b"]),
        (b"a\n\nb\n", 2, ["a", "b"]),
        (b"a\n\nb\n", 3, ["a", "b"]),
        (b"\n", 1, []),
        (b"", 0, []),
        (b"", 2, []),
    ],
)
def test_one_that_is_not_what_it_says_is_an_outsiders_and_its_neighbours_are_not(
    data: bytes, lines: int, found: list[str]
) -> None:
    messages = [message(1, b"one\ntwo\n", 2), message(2, data, lines), message(3, b"three\n", 1)]
    assert shown(messages) == as_told(1, "one", "two") + outside(2, *found) + as_told(3, "three")


def test_two_whose_errors_cancel_each_other_out() -> None:
    messages = [message(1, b"a\nb\n", 1), message(2, b"c\n", 2)]
    assert shown(messages) == outside(1, "a", "b") + outside(2, "c")


def test_one_that_lies_of_an_addressed_channel_has_no_addresses() -> None:
    schema = pa.schema([("value", pa.string()), ("address", pa.string())])
    messages = [message(1, b"{5}a\n", 1, "A_x"), message(2, b"{6}b\n", 9, "A_x"), message(3, b"{7}c\n", 1, "A_x")]
    assert shown(messages, schema) == [("a", "5"), ("{6}b", None), ("c", "7")]


ADDRESSED = pa.schema([("value", pa.string()), ("address", pa.string())])


@pytest.mark.parametrize("channel", ["A_x", "S_x"])
def test_what_is_no_address_stays_in_the_line(channel: str) -> None:
    """So do lines that a slave of an S channel has heard: the bus has taken the address off, and the text is the master's."""
    lines = ['{"level":"error","ctx":{"id":1},"msg":"disk"}', "{}", "{}x", "}", "{", "{5", "text", "{5:x}y", "{5F}z", "{é}", "5}"]
    plain = [(line, None) for line in lines]
    messages = [message(1, "".join(f"{line}\n" for line in lines).encode(), len(lines), channel)]
    assert shown(messages, ADDRESSED) == plain
    some = message(2, b"{5}a\n{1f:o}\n{1f:c}\n{6}{7}b\n{8}}\n", 5, channel)
    stamped = [("a", "5"), ("", "1f:o"), ("", "1f:c"), ("{7}b", "6"), ("}", "8")]
    assert shown([some], ADDRESSED) == stamped
    assert shown([*messages, some], ADDRESSED) == plain + stamped


def test_an_address_that_is_no_text_is_none() -> None:
    """Nobody's line, or message, ends a query."""
    assert shown([message(1, b"{\xff}x\n", 1, "S_x")], ADDRESSED) == [("{\ufffd}x", None)]
    assert shown([message(1, b"{5}x\n{\xff}y\n", 2, "A_x")], ADDRESSED) == [("x", "5"), ("{\ufffd}y", None)]


@pytest.mark.parametrize("name", ["B\0x", "\0\0", "B_x\0"])
def test_one_of_a_name_that_nothing_can_have_is_an_outsiders(name: str) -> None:
    """It would be one of a directory, where it is archived."""
    assert shown([message(1, b"a\n", 1, name)]) == outside(1, "a")


def test_rows_without_columns_are_counted() -> None:
    assert sum(batch.num_rows for batch in rows([message(1, b"a\nb\n", 2)], pa.schema([]), "PERMISSIVE")) == 2


LINES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4)


@given(st.lists(st.tuples(LINES, st.sampled_from([0, 0, 0, 1, -1, 5]), st.sampled_from(["U_x", "B_y"])), max_size=12))
def test_however_they_come_together(told: list[tuple[list[str], int, str]]) -> None:
    messages, expected = [], []
    for sequence, (lines, wrong, channel) in enumerate(told, 1):
        data = "".join(f"{line}\n" for line in lines).encode()
        messages.append(message(sequence, data, len(lines) + wrong, channel))
        expected += outside(sequence, *lines) if wrong else as_told(sequence, *lines, channel=channel)
    assert shown(messages) == expected


def test_batches_are_of_a_size_that_a_processor_likes() -> None:
    line = b"x" * 999 + b"\n"
    messages = [message(sequence, line * 130, 130) for sequence in range(1, 21)]
    sizes = [batch.num_rows for batch in rows(messages, SCHEMA, "PERMISSIVE")]
    assert sum(sizes) == 130 * 20
    assert max(sizes) * 1000 <= BATCH_BYTES < (max(sizes) + 130) * 1000
