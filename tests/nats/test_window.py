"""Several messages on their way to a stream of a real server: each once, in order, whoever comes between and whatever fails."""

import asyncio

import nats
import pytest
from nats.js.api import DiscardPolicy, PubAck

from futebus.nats.access import Access
from futebus.nats.address import read_servers
from futebus.nats.connection import Servers
from futebus.nats.errors import NatsError
from futebus.nats.stream import LAST_OF_ALL, NAME, Overtaken, Stream
from futebus.nats.window import Window

from ..helpers.nats import Server
from ..helpers.published import Proxy, ask, messages
from ..helpers.waiting import DEADLINE

COUNT = 60


def text(number: int) -> bytes:
    return b"%d\n" % number


class Kept:
    """What was confirmed, and how many messages were ever on their way."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.numbers: list[int] = []
        self.sent = self.most = 0

    def __call__(self, sequence: int, number: int) -> None:
        self.sequences.append(sequence)
        self.numbers.append(number)

    def removed(self, number: int) -> None:
        raise AssertionError(f"{number} was removed")

    async def put(self, window: "Window[int]", numbers: range) -> None:
        for number in numbers:
            await window.put(text(number), {}, f"n{number}", number)
            self.sent += 1
            self.most = max(self.most, self.sent - len(self.numbers))


def found(server: Server, subject: str = "lines.a") -> list[bytes]:
    return [message.data for message in messages(server.url) if message.subject == subject]


def expected(count: int = COUNT) -> list[bytes]:
    return [text(number) for number in range(count)]


def test_several_are_on_their_way(keeping: Server) -> None:
    kept = Kept()

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        window = Window(stream, "lines.a", 0, kept, kept.removed)
        await kept.put(window, range(COUNT))
        await window.finish()

    ask(keeping.url, work)
    assert kept.numbers == list(range(COUNT))
    assert kept.sequences == list(range(1, COUNT + 1))
    assert kept.most == 2
    assert found(keeping) == expected()


def test_others_come_between(keeping: Server) -> None:
    """On another subject of the stream, now and then: what was sent behind a message that is not the last is sent again."""
    kept = Kept()

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        window = Window(stream, "lines.a", 0, kept, kept.removed)
        for number in range(COUNT):
            await kept.put(window, range(number, number + 1))
            if number % 5 == 2:
                await stream.connection.client.publish("lines.b", b"other\n")  # and the next one goes before this one is known
        await window.finish()

    ask(keeping.url, work)
    assert kept.numbers == list(range(COUNT))
    assert found(keeping) == expected()
    assert found(keeping, "lines.b") == [b"other\n"] * (COUNT // 5)


def test_nothing_is_stored_behind_what_a_full_stream_refuses(keeping: Server) -> None:
    """Though somebody who hears that gives its name to something else there, for which there is room."""
    kept = Kept()

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"], max_bytes=5500, discard=DiscardPolicy.NEW)
        other = await nats.connect(keeping.url)
        heard = await other.subscribe("lines.a")
        await other.flush()
        network = Proxy(keeping.port)
        connection = await Servers(read_servers(f"nats://127.0.0.1:{network.port}"), Access(), "a test").connect()
        slow = Stream(connection, stream.name)
        await slow.state()
        window = Window(slow, "lines.a", 0, kept, kept.removed)
        await window.put(text(0), {}, "n0", 0)
        await window.finish()
        await heard.next_msg(DEADLINE)
        network.holds = b"maximum bytes exceeded"
        await window.put(b"1" * 5500 + b"\n", {}, "n1", 1)
        headers = (await heard.next_msg(DEADLINE)).headers or {}
        assert (await other.jetstream().publish("lines.b", b"other\n", headers={NAME: headers[NAME]})).seq == 2
        await window.put(text(2), {}, "n2", 2)
        await heard.next_msg(DEADLINE)
        network.mend()
        with pytest.raises(NatsError, match="maximum bytes exceeded"):
            await window.finish()
        await window.close()
        await connection.close()
        await other.close()
        network.close()

    ask(keeping.url, work)
    assert found(keeping) == expected(1)


def test_nothing_is_stored_behind_what_somebody_else_has_confirmed(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who hears what a full stream refuses can give its name to something else there, and be the first to answer."""
    kept = Kept()

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"], max_bytes=5500, discard=DiscardPolicy.NEW)
        await stream.state()
        window = Window(stream, "lines.a", 0, kept, kept.removed)
        await window.put(text(0), {}, "n0", 0)
        await window.finish()
        publish = stream.jetstream.publish

        async def steal(_: str, payload: bytes, headers: dict[str, str]) -> PubAck:
            monkeypatch.undo()
            assert len(payload) > 5500
            return await publish("lines.b", b"other\n", headers={NAME: headers[NAME]})

        monkeypatch.setattr(stream.jetstream, "publish", steal)
        await window.put(b"1" * 5500 + b"\n", {}, "n1", 1)
        await window.finish()
        await window.put(text(2), {}, "n2", 2)
        with pytest.raises(Overtaken):
            await window.finish()
        await window.close()

    ask(keeping.url, work)
    assert (found(keeping), found(keeping, "lines.b")) == (expected(1), [b"other\n"])


def test_others_come_all_the_time(keeping: Server) -> None:
    kept = Kept()

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        window = Window(stream, "lines.a", 0, kept, kept.removed)
        is_over = asyncio.Event()

        async def chatter() -> None:
            while not is_over.is_set():
                await stream.connection.client.publish("lines.b", b"other\n")
                await asyncio.sleep(0)

        talking = asyncio.ensure_future(chatter())
        try:
            await kept.put(window, range(COUNT))
            await window.finish()
        finally:
            is_over.set()
            await talking

    ask(keeping.url, work)
    assert kept.numbers == list(range(COUNT))
    assert found(keeping) == expected()
    asked = [message for message in messages(keeping.url) if message.subject == "lines.a"]
    assert sum(LAST_OF_ALL in message.headers for message in asked) < COUNT, "nobody came between"


def test_another_publisher_of_the_subject(keeping: Server) -> None:
    """Nothing comes behind what he has said, and nothing is left out before it."""
    kept = Kept()

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        window = Window(stream, "lines.a", 0, kept, kept.removed)
        await kept.put(window, range(10))
        await stream.connection.client.publish("lines.a", b"another's\n")
        with pytest.raises(Overtaken):
            await kept.put(window, range(10, COUNT))
        await window.close()

    ask(keeping.url, work)
    there = found(keeping)
    assert there == [*expected(len(there) - 1), b"another's\n"]
    assert kept.numbers == list(range(len(kept.numbers)))
    assert len(kept.numbers) <= len(there) - 1


@pytest.mark.parametrize("after", [1, 2, 7, 20])
def test_the_server_dies(keeping: Server, after: int) -> None:
    """What was confirmed is there, and of what was not, the beginning may be."""
    kept = Kept()

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        window = Window(stream, "lines.a", 0, kept, kept.removed)
        await kept.put(window, range(after))
        keeping.kill()
        with pytest.raises(NatsError):
            await kept.put(window, range(after, 10**6))
        await window.close()

    ask(keeping.url, work)
    keeping.begin()
    there = found(keeping)
    assert there == expected(len(there))
    assert len(kept.numbers) <= len(there) <= len(kept.numbers) + 2


def refuse(stream: Stream, numbers: set[int]) -> None:
    """Has these messages of a stream refused by the server, as somebody who overtakes them would."""
    publish = stream.jetstream.publish

    async def refusing(subject: str, payload: bytes, headers: dict[str, str]) -> object:
        if int(payload) in numbers:
            numbers.remove(int(payload))
            headers = {**headers, "Nats-Expected-Last-Msg-Id": "nobody's"}
        return await publish(subject, payload, headers=headers)

    stream.jetstream.publish = refusing  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("numbers", [{5}, {5, 6}, {5, 7}, {9}, {1}, {2, 3, 4}])
def test_what_is_refused_is_sent_again_and_what_was_sent_behind_it(keeping: Server, numbers: set[int]) -> None:
    kept = Kept()

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        refuse(stream, set(numbers))
        window = Window(stream, "lines.a", 0, kept, kept.removed)
        await kept.put(window, range(10))
        await window.finish()

    ask(keeping.url, work)
    assert kept.numbers == list(range(10))
    assert found(keeping) == expected(10)
