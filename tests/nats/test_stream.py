"""Streams of a real server: what they are, and that messages come once and in order."""

from typing import TypeVar

import pytest

from futebus.nats.errors import Away, Denied
from futebus.nats.stream import LAST, LAST_OF_ALL, NoStream, Overtaken, Refused, Stream, UnderWay

from ..helpers.nats import Server, Serving
from ..helpers.published import ask

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


def test_who_is_alone_in_a_stream_has_nothing_loaded_to_compare(keeping: Server) -> None:
    """A server loads the last message of a subject to compare its number, and has that of the last of all at hand."""

    async def asked(stream: Stream, subject: str) -> tuple[str | None, str | None]:
        found = await stream.last(subject)
        assert found
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


def test_who_has_no_stream(nats: Server, serving: Serving) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines"])

    with pytest.raises(Away, match="has no JetStream"):
        ask(nats.url, work)
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
