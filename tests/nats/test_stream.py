"""Streams of a real server: what they are, and that messages come once and in order."""

import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import nats
import pytest
from nats.aio.msg import Msg
from nats.js.api import StreamConfig

from futebus.nats import runs
from futebus.nats.errors import Away, Denied, NoStream
from futebus.nats.room import NoRoom
from futebus.nats.state import Message
from futebus.nats.stream import LAST, LAST_NAME, LAST_OF_ALL, NAME, Overtaken, Refused, Stream, UnderWay, _short

from ..helpers.nats import Server, Serving, arrived
from ..helpers.published import ask, say_raw
from ..helpers.waiting import DEADLINE

T = TypeVar("T")


def test_a_stream_is_made_once(keeping: Server) -> None:
    async def work(stream: Stream) -> None:
        with pytest.raises(NoStream, match=r"/LINES: there is no such stream$"):
            await stream.state()
        made = await stream.make(["lines.>"], max_bytes=1 << 20, max_age=60.0)
        assert (made.subjects, made.first, made.last, made.is_memory, made.replicas) == (("lines.>",), 1, 0, False, 1)
        assert await stream.make(["other"]) == made
        with pytest.raises(Refused, match=r"/OTHER cannot be made: subjects overlap with an existing stream$"):
            await Stream(stream.connection, "OTHER").make(["lines.a"])

    ask(keeping.url, work)


def test_the_last_message_of_a_stream_that_is_just_made(keeping: Server) -> None:
    """Several begin at the same time, after a start of the system. Some servers die of the question."""
    is_over = threading.Event()

    async def look(stream: Stream) -> None:
        while not is_over.is_set():
            with contextlib.suppress(NoStream):
                assert await stream.last("lines.a") is None

    async def make(stream: Stream) -> None:
        for _ in range(100):
            await stream.make(["lines.>"])
            await stream.jetstream.delete_stream(stream.name)

    with ThreadPoolExecutor(2) as threads:
        looking = [threads.submit(ask, keeping.url, look) for _ in range(2)]
        try:
            ask(keeping.url, make)
        finally:
            is_over.set()
    for each in looking:
        each.result()


def test_messages_come_behind_each_other(keeping: Server) -> None:
    async def work(stream: Stream) -> None:
        with pytest.raises(NoStream, match="no stream listens"):
            await stream.publish("lines.a", b"x\n", {}, 0, "test")
        await stream.make(["lines.>"])
        assert await stream.last("lines.a") is None
        first = await stream.publish("lines.a", b"x\n", {"Futebus-Line": "0"}, 0, "test")
        other = await stream.publish("lines.b", b"other\n", {}, 0, "test")
        for behind in (0, other, 99):
            with pytest.raises(Overtaken):
                await stream.publish("lines.a", b"y\n", {}, behind, "another")
        with pytest.raises(UnderWay):
            await stream.publish("lines.a", b"x\n", {"Futebus-Line": "0"}, 0, "test")
        big = b"y" * stream.max_payload
        second = await stream.publish("lines.a", big, {}, first, "test")
        assert (first, other, second) == (1, 2, 3)
        found = await stream.last("lines.a")
        assert found
        assert (found.sequence, found.subject, found.data) == (3, "lines.a", big)
        assert (await stream.state()).last == 3

    ask(keeping.url, work)


@pytest.mark.parametrize("how", ["limits", "deleted", "purged"])
def test_what_was_there_and_is_removed_is_added_again(keeping: Server, how: str) -> None:
    """Whether it was that, and all of it, nobody knows any more. What is there is not."""
    told: list[int] = []

    async def add(stream: Stream) -> int:
        def removed() -> None:
            told.append(len(told))

        return await stream.publish("lines.a", b"x\n", {}, 0, "one", removed)

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"], **({"max_msgs": 3} if how == "limits" else {}))
        last = await add(stream)
        for times in range(3):
            with pytest.raises(UnderWay):
                await add(stream)  # it is there
            if how == "deleted":
                await stream.jetstream.delete_msg("LINES", last)
            elif how == "purged":
                await stream.jetstream.purge_stream("LINES")
            for _ in range(3):
                await stream.jetstream.publish("lines.b", b"other\n")
            told.clear()
            last = await add(stream)
            assert last == 4 * (times + 1) + 1
            assert len(told) == 1

    ask(keeping.url, work)


def test_who_is_alone_in_a_stream_has_nothing_loaded_to_compare(keeping: Server) -> None:
    """A server loads the last message of a subject to compare its number, and has that of the last of all at hand."""

    async def asked(stream: Stream, subject: str) -> tuple[str | None, str | None]:
        found = await stream.last(subject)
        assert found
        assert (LAST_OF_ALL in found.headers) == (LAST_NAME in found.headers)
        return found.headers.get(LAST), found.headers.get(LAST_OF_ALL)

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        behind, told = 0, []
        for name in "abc":
            behind = await stream.publish("lines.a", b"x\n", {}, behind, name)
            told.append(await asked(stream, "lines.a"))
        assert told == [("0", None), (None, "1"), (None, "2")]
        assert await Stream(stream.connection, stream.name).publish("lines.b", b"other\n", {}, 0, "d") == 4
        told.clear()
        for name in "efg":  # it is alone no more; one is added behind the other's, and then it is again
            behind = await stream.publish("lines.a", b"x\n", {}, behind, name)
            told.append(await asked(stream, "lines.a"))
        assert told == [("3", None), ("5", None), (None, "6")]
        other = Stream(stream.connection, stream.name)
        assert await other.publish("lines.a", b"another's\n", {}, behind, "h") == 8
        with pytest.raises(Overtaken):
            await stream.publish("lines.a", b"x\n", {}, behind, "i")
        with pytest.raises(Overtaken):
            await stream.publish("lines.a", b"x\n", {}, behind, "i")
        assert (await stream.state()).last == 8

    ask(keeping.url, work)


@pytest.mark.parametrize("subject", ["lines.a", "lines.b"])
def test_a_number_alone_is_no_message(keeping: Server, subject: str) -> None:
    """A stream that is made anew behind the connection may get to the same number, by others. So may one that lost its end."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        behind = 0
        for name in "abc":
            behind = await stream.publish("lines.a", b"x\n", {}, behind, name)
        await stream.jetstream.delete_stream(stream.name)
        other = Stream(stream.connection, stream.name)
        await other.make(["lines.>"])
        before = 0
        for name in "abc":
            before = await other.publish(subject, b"other\n", {}, before, f"other {name}")
        assert before == behind
        with pytest.raises(Overtaken):
            await stream.publish("lines.a", b"x\n", {}, behind, "d")
        assert (await stream.state()).last == 3

    ask(keeping.url, work)


def test_a_name_that_another_has_taken_is_told(keeping: Server) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        first = await stream.publish("lines.a", b"x\n", {}, 0, "a")
        await stream.jetstream.publish("lines.b", b"z\n", headers={NAME: _short(f"lines.a b {first}")})
        with pytest.raises(Refused, match=r"/LINES: message 2 of lines\.b has the name that the next of lines\.a was to get"):
            await stream.publish("lines.a", b"y\n", {}, first, "b")

    ask(keeping.url, work)


@contextlib.asynccontextmanager
async def answering(server: Server, answer: bytes, *subjects: str) -> AsyncIterator[None]:
    """Somebody who answers what is said on some subjects."""

    async def reply(message: Msg) -> None:
        await message.respond(answer)

    async with await nats.connect(server.url, connect_timeout=int(DEADLINE)) as client:
        for subject in subjects:
            await client.subscribe(subject, cb=reply)
        await arrived(client)
        yield


@pytest.mark.parametrize("answer", [b"", b"x", b"5", b"[]", b"null", b'{"config":5}', b'{"type":"x"}', b'{"error":7}', b"\xff"])
def test_what_answers_and_is_no_jetstream_is_away(serving: Serving, answer: bytes) -> None:
    server = serving()

    async def work(stream: Stream) -> None:
        asked: list[Callable[[], Awaitable[object]]] = [
            stream.state,
            lambda: stream.last("lines.a"),
            lambda: stream.following("lines.a", 1),
            lambda: stream.stored(1),
            lambda: stream.publish("lines.a", b"x\n", {}, 0, "a"),
        ]
        async with answering(server, answer, "$JS.API.>", "lines.a"):
            for ask_it in asked:
                with pytest.raises(Away):
                    await ask_it()

    ask(server.url, work)


def test_somebody_who_confirms_for_the_stream_is_not_believed(serving: Serving) -> None:
    server = serving()

    async def work(stream: Stream) -> None:
        async with answering(server, b'{"stream":"ELSEWHERE","seq":77}', "lines.a"):
            with pytest.raises(Away, match="somebody else has answered for it"):
                await stream.publish("lines.a", b"x\n", {}, 0, "a")

    ask(server.url, work)


def test_headers_that_are_no_text_are_none(keeping: Server) -> None:
    async def make(stream: Stream) -> None:
        await stream.make(["lines"])

    async def work(stream: Stream) -> Message | None:
        return await stream.last("lines")

    ask(keeping.url, make)
    say_raw(keeping, "lines", b"NATS/1.0\r\nFutebus-Spool: caf\xe9\r\nFutebus-Line: 5\r\n\r\n", b"x\n")
    found = ask(keeping.url, work)
    assert found
    assert found.headers.get("Futebus-Line") == "5"
    assert all(isinstance(value, str) for value in found.headers.values())
    assert runs.read(found.headers) is None


@pytest.mark.parametrize("name", ["max_msg_size", "max_bytes"])
def test_what_the_stream_itself_takes_counts(keeping: Server, name: str) -> None:
    limits: dict[str, Any] = {name: 20_000}

    async def work(stream: Stream) -> None:
        await stream.jetstream.add_stream(StreamConfig(name=stream.name, subjects=["lines"], **limits))
        before = stream.max_payload
        await stream.state()
        assert 20_000 - 4096 - 100 < stream.max_payload <= 20_000 - 4096
        assert stream.limit == f"the stream's {name} leaves beside headers"
        assert before > 20_000
        assert await stream.publish("lines", b"x" * stream.max_payload, {}, 0, "a") == 1
        assert (await stream.state()).first == 1

    ask(keeping.url, work)


@pytest.mark.parametrize(("name", "size"), [("max_msg_size", 1000), ("max_bytes", 1000), ("max_msg_size", 600)])
def test_headers_count_as_what_they_are(keeping: Server, name: str, size: int) -> None:
    limits: dict[str, Any] = {name: size}
    headers = runs.headers(runs.longest("0" * 36, "host", "channel"))

    async def work(stream: Stream) -> None:
        await stream.jetstream.add_stream(StreamConfig(name=stream.name, subjects=["lines"], **limits))
        stream.room.expect("lines", headers)
        await stream.state()
        stream.room.check("x")
        assert size - 600 < stream.max_payload < size - 400
        for behind in range(3):
            assert await stream.publish("lines", b"x" * stream.max_payload, headers, behind, "a") == behind + 1
            assert (await stream.state()).first > (behind if name == "max_bytes" else 0)

    ask(keeping.url, work)


@pytest.mark.parametrize("name", ["max_msg_size", "max_bytes", "max_payload"])
def test_headers_may_leave_no_room(keeping: Server, serving: Serving, name: str) -> None:
    limits: dict[str, Any] = {} if name == "max_payload" else {name: 300}
    server = serving("max_payload: 300", jetstream=True) if name == "max_payload" else keeping

    async def work(stream: Stream) -> None:
        if limits:
            await stream.jetstream.add_stream(StreamConfig(name=stream.name, subjects=["lines"], **limits))
            await stream.state()
        stream.room.expect("lines", runs.headers(runs.longest("0" * 36, "host", "channel")))
        assert stream.max_payload == 0
        with pytest.raises(NoRoom, match=rf"^LINES: the (server|stream)'s {name} leaves no room for a line, since headers may"):
            stream.room.check("LINES")

    ask(server.url, work)


@pytest.mark.parametrize(("limits", "said"), [({"max_age": 0.001}, "max age needs to be"), ({"num_replicas": 3}, "replicas > 1")])
def test_a_stream_that_can_never_be_is_refused(keeping: Server, limits: dict[str, Any], said: str) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines"], **limits)

    with pytest.raises(Refused, match=f"LINES cannot be made: {said}"):
        ask(keeping.url, work)


def test_who_has_no_stream(serving: Serving) -> None:
    server = serving()

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])

    with pytest.raises(Away, match="has no JetStream"):
        ask(server.url, work)
    guarded = serving(
        'authorization { users = [{ user: ann, password: x, permissions: { publish: "lines" } }] }\n', jetstream=True
    )
    with pytest.raises(Denied, match="does not let us"):
        ask(guarded.as_user("ann:x"), work)


def test_a_stream_that_is_full_says_so(keeping: Server) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines"], max_msgs=1, discard="new")
        last = await stream.publish("lines", b"x\n", {}, 0, "test")
        with pytest.raises(Away, match="maximum messages exceeded"):
            await stream.publish("lines", b"y\n", {}, last, "test")

    ask(keeping.url, work)
