"""Which messages of a range were removed, of a server that lists them all, and of one that does not."""

from collections.abc import Iterator
from typing import Any

import pytest

from futebus.nats import missing
from futebus.nats.fetching import removed
from futebus.nats.reader import Reader
from futebus.nats.stream import Stream

from .readers import Reading, fill

LONG = 200_000
"""Bytes of messages of which 50 fill a block of a server's store."""


class Asked:
    """How often a server was asked for its list, and which messages were looked at."""

    def __init__(self, reader: Reader, patch: pytest.MonkeyPatch) -> None:
        self.lists = 0
        self.seen: list[int] = []

        async def asking(stream: Stream) -> list[int] | None:
            self.lists += 1
            return await removed(stream)

        def looking(begin: int, end: int, *what: Any, **how: Any) -> Iterator[Any]:
            for message in messages(begin, end, *what, **how):
                self.seen.append(message.sequence)
                yield message

        messages = reader.messages
        patch.setattr(missing, "removed", asking)
        patch.setattr(reader, "messages", looking)


def delete(reader: Reader, *numbers: int) -> None:
    for number in numbers:
        reader.do(lambda stream, number=number: stream.jetstream.delete_msg("LINES", number))  # type: ignore[misc]


def test_a_list_is_asked_for_when_it_has_changed(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reading()
    fill(reader, 10)
    asked = Asked(reader, monkeypatch)

    def told(count: int) -> list[int]:
        found = [number for number in range(1, 11) if reader.missing(number, number + 1) == number]
        assert (asked.lists, asked.seen) == (count, [])
        return found

    assert told(0) == []
    delete(reader, 3, 5)
    assert told(1) == [3, 5]
    assert [reader.missing(*where) for where in ((1, 11), (4, 6), (4, 5), (6, 11))] == [3, 5, None, None]
    reader.do(lambda stream: stream.jetstream.purge_stream("LINES", seq=5))
    gap = [5] * reader.state().removed  # servers differ in whether the stream begins with it then
    assert told(1) == gap
    delete(reader, 8)
    assert told(2) == [*gap, 8]
    reader.do(lambda stream: stream.jetstream.purge_stream("LINES", seq=7))
    assert told(2) == [8]
    reader.do(lambda stream: stream.jetstream.purge_stream("LINES", seq=8))
    assert told(2) == [8] * reader.state().removed


def test_whole_blocks_of_a_store_are_missing(reading: Reading) -> None:
    """Servers of 2.9 list what is missing within blocks alone."""
    reader = reading()
    fill(reader, 1)
    fill(reader, 60, LONG, ("lines.b",))
    fill(reader, 1)
    reader.do(lambda stream: stream.jetstream.purge_stream("LINES", subject="lines.b"))
    fill(reader, 2)
    assert reader.state().removed == 60
    assert [reader.missing(begin, 65) for begin in (1, 2, 40, 44, 55, 61, 62)] == [2, 2, 40, 44, 55, 61, None]


def test_a_list_that_is_not_all_is_not_believed(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is looked at then, in ranges that were not looked at since something was removed."""
    reader = reading()
    fill(reader, 20)
    asked = Asked(reader, monkeypatch)

    async def knowing_some(stream: Stream) -> list[int] | None:
        asked.lists += 1
        return None

    monkeypatch.setattr(missing, "removed", knowing_some)
    delete(reader, 3, 12)
    assert [reader.missing(*where) for where in ((4, 8), (8, 11), (4, 11))] == [None, None, None]
    assert (asked.lists, asked.seen) == (1, [*range(4, 11)])
    assert reader.missing(11, 21) == 12
    assert reader.missing(13, 21) is None
    del asked.seen[:]
    fill(reading(), 10)
    assert reader.missing(21, 31) is None  # nothing has been removed
    assert asked.seen == []
    delete(reader, 25)
    assert [reader.missing(21, 31), reader.missing(26, 31)] == [25, None]
    assert (asked.lists, asked.seen) == (1, [21, 22, 23, 24, 26, *range(26, 31)])
    reader.do(lambda stream: stream.jetstream.purge_stream("LINES", seq=26))
    if not reader.state().removed:
        assert reader.missing(26, 31) is None
        assert asked.lists == 1
