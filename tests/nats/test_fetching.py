"""Messages of a range, through deaths of servers: each once, in order, and what is gone is left out."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from futebus.nats import address
from futebus.nats.access import Access
from futebus.nats.errors import Away
from futebus.nats.fetching import ASKED_BYTES, ASKED_MESSAGES, Reader, removed
from futebus.nats.stream import NoStream, Stream

from ..helpers.nats import Server, Serving
from ..helpers.waiting import DEADLINE

Reading = Callable[..., Reader]


@pytest.fixture
def keeping(serving: Serving) -> Server:
    """A server with JetStream."""
    return serving(jetstream=True)


@pytest.fixture
def reading(keeping: Server) -> Iterator[Reading]:
    """Makes readers of a stream."""
    made = []

    def read() -> Reader:
        made.append(Reader(address.read_servers(keeping.url), Access(), "LINES", "a test"))
        return made[-1]

    yield read
    for reader in made:
        reader.close()


def fill(reader: Reader, count: int, size: int = 100, subjects: tuple[str, ...] = ("lines.a",)) -> None:
    """Publishes messages that tell their numbers, on subjects in turn."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        asked = [
            stream.jetstream.publish(
                subjects[number % len(subjects)], f"{number}\n".encode().rjust(size), DEADLINE, headers={"N": str(number)}
            )
            for number in range(count)
        ]
        for begin in range(0, count, 100):
            await asyncio.gather(*asked[begin : begin + 100])

    reader.do(work)


def numbers(reader: Reader, *what: object, **how: bool) -> list[int]:
    """What messages tell, and what was found out of their order."""
    found = list(reader.messages(*what, **how))  # type: ignore[arg-type]
    assert [message.sequence for message in found] == sorted({message.sequence for message in found})
    return [int(message.headers["N"]) for message in found]


def test_a_range_comes_once_and_in_order(reading: Reading) -> None:
    reader = reading()
    fill(reader, 3 * ASKED_MESSAGES)
    assert numbers(reader, 1, 3 * ASKED_MESSAGES + 1) == list(range(3 * ASKED_MESSAGES))
    assert numbers(reader, 5, 8) == [4, 5, 6]
    assert numbers(reader, 5, 5) == []
    (message,) = reader.messages(7, 8)
    assert (message.subject, message.data, message.time > 1e18) == ("lines.a", b"6\n".rjust(100), True)
    (message,) = reader.messages(7, 8, headers_only=True)
    assert (message.data, message.headers["Nats-Msg-Size"]) == (b"", "100")


def test_long_messages_come_too(reading: Reading) -> None:
    reader = reading()
    size = 1 << 19  # of 1 MiB that a server takes, headers have a part
    fill(reader, 3 * ASKED_BYTES // size, size)
    found = list(reader.messages(1, 100))
    assert [message.sequence for message in found] == list(range(1, 3 * ASKED_BYTES // size + 1))
    assert {len(message.data) for message in found} == {size}


def test_a_message_larger_than_what_is_asked_for(serving: Serving) -> None:
    server = serving(f"max_payload: {3 * ASKED_BYTES}", jetstream=True)
    reader = Reader(address.read_servers(server.url), Access(), "LINES", "a test")
    fill(reader, 3, 2 * ASKED_BYTES)
    assert numbers(reader, 1, 4) == [0, 1, 2]
    reader.close()


def test_of_one_subject_alone(reading: Reading) -> None:
    reader = reading()
    fill(reader, 30, subjects=("lines.a", "lines.b", "lines.c"))
    assert numbers(reader, 1, 31, "lines.b") == list(range(1, 30, 3))
    assert numbers(reader, 4, 9, "lines.b") == [4, 7]
    assert numbers(reader, 1, 31, "lines.none") == []


def test_what_is_gone_is_left_out(reading: Reading) -> None:
    reader = reading()
    fill(reader, 10)

    async def remove(stream: Stream) -> None:
        await stream.jetstream.purge_stream("LINES", seq=3)
        for number in (5, 10):
            await stream.jetstream.delete_msg("LINES", number)

    reader.do(remove)
    assert numbers(reader, 1, 11) == [2, 3, 5, 6, 7, 8]
    assert numbers(reader, 10, 11) == []
    state = reader.state()
    assert (state.first, state.last, reader.removed()) == (3, 10, [5, 10])


def test_the_server_is_killed_and_comes_back(keeping: Server, reading: Reading) -> None:
    reader = reading()
    fill(reader, 5000)
    found = []
    for message in reader.messages(1, 5001):
        if message.sequence in (10, 2500):
            keeping.kill()
            keeping.begin()
        found.append(message.sequence)
    assert found == list(range(1, 5001))
    assert reader.state().last == 5000


def test_patience_ends(keeping: Server, reading: Reading) -> None:
    said: list[str] = []
    reader = Reader(address.read_servers(keeping.as_user("me:secret")), Access(), "LINES", "a test", 0.5, said.append)
    with pytest.raises(NoStream, match="there is no such stream"):
        reader.state()
    keeping.kill()
    with pytest.raises(Away, match=r"^nats://127.0.0.1:\d+: Connection refused \(for 0.5 s\)$"):
        reader.state()
    reader.close()


def test_waiting_for_the_next(reading: Reading) -> None:
    reader, other = reading(), reading()
    fill(reader, 3)
    assert not reader.wait_for(4, 0.01)
    assert not reader.wait_for(4, 0.01)
    fill(other, 1)
    assert reader.wait_for(4, 30)
    assert numbers(reader, 4, 5) == [0]
    assert reader.wait_for(2, 30)


def test_what_was_removed_is_asked_for_when_it_has_changed(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def asking(stream: Stream) -> list[int]:
        asked.append(stream)
        return await removed(stream)

    monkeypatch.setattr("futebus.nats.fetching.removed", asking)
    reader = reading()
    fill(reader, 10)

    def told(count: int) -> list[int]:
        found = [reader.removed() for _ in range(2)]
        assert (found[0], len(asked)) == (found[1], count)
        return found[0]

    def delete(number: int) -> None:
        reader.do(lambda stream: stream.jetstream.delete_msg("LINES", number))

    assert told(0) == []
    delete(3)
    delete(5)
    assert told(1) == [3, 5]
    reader.do(lambda stream: stream.jetstream.purge_stream("LINES", seq=5))
    count = len(asked) + bool(reader.state().removed)  # servers differ in whether a gap at the beginning is one
    assert told(count) == []
    delete(8)
    assert told(count + 1) == [8]
    reader.do(lambda stream: stream.jetstream.purge_stream("LINES", seq=7))
    assert told(count + 1) == [8]
