"""Streams that have lost messages, or are made anew, under a query: it is told, and nothing is left out in silence."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from futebus.nats.fetching import Fetched
from futebus.nats.reader import Reader
from futebus.spark.options import LinesRemoved, QueryError
from futebus.spark.remote import STREAM_SCHEMA
from tests.helpers.nats import Server, keeping, serving
from tests.helpers.streams import NAME, Filled, Filling, filling, put_back

from .followings import Stream, filled, following, stream, texts
from .kept import Keep, keep

__all__ = ["filled", "filling", "keep", "keeping", "serving", "stream"]


@pytest.mark.parametrize("fails", [True, False])
def test_retention_overtakes_a_query(keeping: Server, filling: Filling, stream: Stream, keep: Keep, fails: bool) -> None:
    filled = filling(keeping.url, max_msgs=5)
    said = filled.fill(3)
    assert [row.value for row in keep(stream(filled.url, "value STRING"), availableNow=True).finish()] == said
    said = filled.fill(10)
    query = keep(stream(filled.url, "value STRING", failOnDataLoss=fails), availableNow=True)
    if fails:
        with pytest.raises(StreamingQueryException, match=r"messages 4 to 8 of nats://.* have been removed before being read"):
            query.finish()
    else:
        assert [row.value for row in query.finish()] == said[50:]


def test_a_limited_query_does_not_look_for_what_was_removed(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is passed over at once, however much it was."""
    monkeypatch.setattr("futebus.spark.source.following.MOST_LOOKED_AT", 10)
    filled.fill(6)
    stream = following(filled, maxRowsPerTrigger=1000, failOnDataLoss=False)
    try:
        first = stream.latest(None, True)
        filled.fill(50)
        filled.purge(55)
        assert texts(stream, first, stream.latest(first, True)) == texts(stream, None, stream.latest(None, False))[-2:]
    finally:
        stream.stop()


def test_messages_that_are_removed_while_a_task_comes_to_them_are_told_once(
    keeping: Server, filling: Filling, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    filled = filling(keeping.url, max_msgs=10)
    filled.fill(10, 1)
    stream = following(filled, path=f"{filled.url}/lines.a", failOnDataLoss=False)
    read = Reader.messages

    def messages(*what: Any) -> Iterator[Fetched]:
        filled.fill(5, 1)
        return read(*what)

    try:
        [part] = stream.partitions(stream.initial(), stream.latest(None, False))
        filled.fill(20, 1)
        monkeypatch.setattr(Reader, "messages", messages)
        assert not list(part.read(STREAM_SCHEMA))
    finally:
        stream.stop()
    told = f"futebus: messages 1 to 10 of {filled.url}/lines.a have been removed; 10 are left out\n"
    assert capfd.readouterr().err == told


@pytest.mark.parametrize("where", ["", "/lines.a"])
@pytest.mark.parametrize("fails", [True, False])
def test_a_message_is_removed_by_hand(filled: Filled, stream: Stream, keep: Keep, fails: bool, where: str) -> None:
    said = filled.fill(6)
    filled.delete(3)
    filled.delete(6)
    query = keep(stream(filled.url + where, "value STRING", failOnDataLoss=fails), availableNow=True)
    if fails:
        with pytest.raises(StreamingQueryException, match=r"messages? 3 .*ha(s|ve) been removed"):
            query.finish()
    else:
        assert [row.value for row in query.finish()] == said[:20] + said[30:50]


def test_messages_of_a_subject_that_filled_blocks_of_a_store_are_removed(filled: Filled) -> None:
    """Some servers do not list them."""
    text = b"x" * 200_000 + b"\n"

    def fill(count: int) -> None:
        for _ in range(count):
            filled.outside(text, "lines.b")

    filled.outside(b"another\n")
    fill(42)
    stream = following(filled, path=f"{filled.url}/lines.b")
    try:
        first = stream.latest(None, False)
        assert list(stream.partitions(stream.initial(), first))
        fill(19)
        filled.outside(b"another\n")
        filled.do(lambda each: each.jetstream.purge_stream(NAME, subject="lines.b"))
        filled.do(lambda each: each.jetstream.publish("lines.b", b"the next\n"))
        second = stream.latest(first, False)
        with pytest.raises(QueryError, match=r"message 44 of .* has been removed before being read"):
            list(stream.partitions(first, second))
    finally:
        stream.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_a_stream_that_is_made_anew_is_another_one(filled: Filled, stream: Stream, keep: Keep, fails: bool) -> None:
    said = filled.fill(3)
    assert [row.value for row in keep(stream(filled.url, "value STRING"), availableNow=True).finish()] == said
    filled.remake()
    said = filled.fill(5, subject="lines.new")
    query = keep(stream(filled.url, "value STRING", failOnDataLoss=fails), availableNow=True)
    if fails:
        with pytest.raises(StreamingQueryException, match="is another stream than the query has read: it was made anew"):
            query.finish()
    else:
        assert [row.value for row in query.finish()] == said


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("more", [0, 1, 4])
def test_a_stream_that_has_lost_its_last_messages(keeping: Server, filled: Filled, is_old: bool, more: int) -> None:
    """And has got others with their numbers since then: of these the query leaves out none. It runs, or is started again."""
    filled.fill(2, lines=1)
    running = following(filled, failOnDataLoss=False)
    try:
        with keeping.losing():
            filled.fill(3, lines=1)
            first = json.loads(json.dumps(running.latest(None, False)))
            assert len(texts(running, None, first)) == 5
            assert running.latest(first, False) == first
        filled._last["lines.a"] = 2
        said = [f"new {number}\n".encode() for number in range(more)]
        for text in said:
            filled.outside(text)
        failing = following(filled)
        others = ", and not what it has now from message 3 on" * bool(more)
        with pytest.raises(
            QueryError, match=f"/LINES has lost its last messages: the query has read it up to message 5{others}; with"
        ):
            failing.latest(first, False)
        with pytest.raises(QueryError, match=r"messages 3 to 5 of .*/LINES are gone: it has lost its last messages; with"):
            texts(failing, None, first)
        failing.stop()
        again = following(filled, failOnDataLoss=False) if is_old else running
        try:
            if is_old:  # and runs its last batch once more
                assert texts(again, None, first) == [b"line 0\n", b"line 1\n"]
            second = again.latest(first, False)
            assert texts(again, first, second) == said
            assert again.latest(second, False) == second
        finally:
            again.stop()
    finally:
        running.stop()


@pytest.mark.parametrize("more", [1, 4])
def test_numbers_are_given_anew_by_a_clock_that_is_behind(
    keeping: Server, filled: Filled, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """Then the time of a message does not tell whether it came before another. Some are known by theirs."""
    filled.fill(3, lines=1)
    with keeping.losing():
        filled.fill(5, lines=1)
        stream = following(filled)
        first = json.loads(json.dumps(stream.latest(None, False)))
        stream.stop()
    put_back(monkeypatch)
    filled._last["lines.a"] = 3
    said = [f"new {number}\n".encode() for number in range(more)]
    for text in said:
        filled.outside(text)
    stream = following(filled, failOnDataLoss=False)
    try:
        assert texts(stream, first, stream.latest(first, False))[-more:] == said
        assert [sequence for sequence, _ in first["marks"]] == [1, 5, 7, 8]
        assert texts(stream, first, stream.latest(first, False))[:-more] == [b"line 1\n", b"line 2\n"]
    finally:
        stream.stop()


def test_a_clock_that_is_put_back_loses_nothing(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.fill(3, lines=1)
    put_back(monkeypatch)
    filled.fill(3, lines=1)
    stream = following(filled, maxRowsPerTrigger=2)
    try:
        ends = [stream.latest(None, True)]
        while ends[-1]["next"] < 7:
            ends.append(stream.latest(ends[-1], True))
        begins = [stream.initial(), *ends]
        found = [text for begin, end in zip(begins, ends, strict=False) for text in texts(stream, begin, end)]
        assert found == [b"line %d\n" % number for number in range(6)]
        # Of what it has marked each is there, the fewer the older they are.
        assert [sequence for sequence, _ in ends[-1]["marks"]][-1] == 6
    finally:
        stream.stop()


def test_the_end_is_lost_behind_a_connection_that_lives_on(
    keeping: Server, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may be if the server that one is connected to is another than the one that keeps the stream."""
    filled.fill(2, lines=1)
    running = following(filled)
    try:
        with keeping.losing():
            filled.fill(1, lines=1)
            first = running.latest(None, False)
        filled._last["lines.a"] = 2
        running.reader.state()
        monkeypatch.setattr(running.reader, "connections", running._checked)
        filled.outside(b"new 1\n")
        filled.outside(b"new 2\n")
        with pytest.raises(
            QueryError, match=r"has lost its last messages: the query has read it up to message 3, and not .* from message 3 on;"
        ):
            running.latest(first, False)
    finally:
        running.stop()


def test_a_stream_that_is_made_anew_while_a_task_reads_it(filled: Filled) -> None:
    text = b"x" * 100_000 + b"\n"

    def fill(begin: int) -> None:
        for number in range(begin, begin + 300):
            filled.outside(b"%d " % number + text)

    fill(1000)
    stream = following(filled)
    try:
        end = stream.latest(None, False)
        (part, *_) = stream.partitions(stream.initial(), end)
        part.end = end["next"]
        taken: list[str] = []
        batches = part.read(STREAM_SCHEMA)
        taken += next(batches).column("value").to_pylist()
        filled.remake()
        fill(2000)
        with pytest.raises(LinesRemoved, match=r"/LINES has been made anew, at 20.* while being read; with failOnDataLoss"):
            taken.extend(value for batch in batches for value in batch.column("value").to_pylist())
        assert [int(line.split()[0]) for line in taken] == [*range(1000, 1000 + len(taken))]
    finally:
        stream.stop()


def test_a_server_that_loses_messages_while_a_task_reads_them(keeping: Server, filled: Filled) -> None:
    said = filled.fill(2, lines=1)
    stream = following(filled)
    try:
        with keeping.losing():
            said += filled.fill(1, lines=1)
            end = stream.latest(None, False)
            (part, *_) = stream.partitions(stream.initial(), end)
            part.end = end["next"]
            read = part.read(STREAM_SCHEMA)
        filled._last["lines.a"] = 2
        filled.outside(b"another\n")
        with pytest.raises(LinesRemoved, match="/LINES has lost its last messages while being read"):
            list(read)
    finally:
        stream.stop()


def test_the_last_batch_is_told_again_when_it_has_been_removed(filled: Filled) -> None:
    """As Spark before 4.2 does at a start: it asks for the parts of what is done."""
    filled.fill(3, lines=1)
    stream = following(filled)
    try:
        first = stream.latest(None, False)
        filled.fill(1, lines=1)
        filled.purge(4)
        assert list(stream.partitions(first, first)) == []
        assert texts(stream, first, stream.latest(None, False)) == [b"line 3\n"]
    finally:
        stream.stop()


def test_an_offset_without_a_time_is_a_number(filled: Filled) -> None:
    filled.fill(3, lines=1)
    stream = following(filled)
    try:
        first = stream.latest(None, False)
        del first["at"]
        filled.fill(1, lines=1)
        assert texts(stream, first, stream.latest(first, False)) == [b"line 3\n"]
    finally:
        stream.stop()
