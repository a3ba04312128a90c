"""Messages of a range, through deaths of servers: each once, in order, and what is gone is left out."""

import asyncio
import threading

import pytest

from futebus.nats import address
from futebus.nats.access import Access
from futebus.nats.fetching import ASKED_BYTES, ASKED_MESSAGES, Pull, next_of, removed
from futebus.nats.reader import Reader
from futebus.nats.stream import Stream

from ..helpers.nats import Server, Serving
from ..helpers.waiting import DEADLINE
from .readers import Reading, fill, numbers


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


@pytest.mark.parametrize("subject", [None, "lines.b"])
def test_ranges_one_behind_the_other(reading: Reading, subject: str | None) -> None:
    """Of the first, more has come than it has, since some numbers are missing."""
    reader = reading()
    fill(reader, 30, subjects=("lines.a", "lines.b", "lines.c"))
    reader.do(lambda stream: stream.jetstream.delete_msg("LINES", 5))
    reader.do(lambda stream: stream.jetstream.delete_msg("LINES", 6))
    there = [number for number in range(30) if number not in (4, 5) and (subject is None or number % 3 == 1)]
    found = [number for begin, end in ((1, 4), (4, 9), (9, 31)) for number in numbers(reader, begin, end, subject)]
    assert found == there


def test_what_has_come_is_taken_however_long_that_took(reading: Reading) -> None:
    """Who asks for it has had something else to do, or the line is slow."""
    reader = reading()
    fill(reader, 10)

    async def take(stream: Stream) -> bool:
        pull = Pull(stream, 1, None, headers_only=False)
        await pull.begin()
        assert await pull.is_there(DEADLINE)
        pull._asked_at -= 1000
        return await pull.is_known()

    assert reader.do(take)


def test_a_server_that_allows_few_at_once(keeping: Server, reading: Reading) -> None:
    keeping.kill()
    keeping.configure("jetstream {", "jetstream { limits { max_request_batch: 7 }, ")
    keeping.begin()
    reader = reading()
    fill(reader, 50)
    assert numbers(reader, 1, 51) == list(range(50))
    assert reader.connections == 1


def test_a_server_that_has_forgotten_its_reader(reading: Reading) -> None:
    reader = reading()
    fill(reader, 10)
    assert numbers(reader, 1, 3) == [0, 1]

    async def forget(stream: Stream) -> None:
        for info in await stream.jetstream.consumers_info("LINES"):
            await stream.jetstream.delete_consumer("LINES", info.name)

    reader.do(forget)
    assert numbers(reader, 3, 11) == list(range(2, 10))


def test_of_one_subject_alone(reading: Reading) -> None:
    reader = reading()
    fill(reader, 30, subjects=("lines.a", "lines.b", "lines.c"))
    assert numbers(reader, 1, 31, "lines.b") == list(range(1, 30, 3))
    assert numbers(reader, 4, 9, "lines.b") == [4, 7]
    assert numbers(reader, 1, 31, "lines.none") == []


def test_one_that_begins_too_early_brings_nothing_twice(reading: Reading) -> None:
    """A server of a cluster may be a little behind the one that leads, and begins with what it gets next.

    So does one that is alone if it is asked for what does not exist yet.
    """
    reader = reading()
    fill(reader, 10)

    async def work(stream: Stream) -> list[int]:
        pull = Pull(stream, 14, None, headers_only=False)
        await pull.begin()
        for number in range(11, 16):
            await stream.jetstream.publish("lines.a", b"%d" % number)
        came = []
        while pull.next < 16:
            came += [message.sequence for message in await pull.some(16)]
        return came

    assert reader.do(work) == [14, 15]


def test_who_waits_for_a_message_does_not_take_an_earlier_one_for_it(reading: Reading) -> None:
    reader = reading()
    fill(reader, 10)

    async def work(stream: Stream) -> bool:
        pull = Pull(stream, 14, None, headers_only=True)
        await pull.begin()
        for number in range(11, 14):
            await stream.jetstream.publish("lines.a", b"%d" % number)
        waiting = asyncio.ensure_future(pull.is_there(DEADLINE))
        while pull._count < 3 and not waiting.done():  # noqa: ASYNC110 - a server sends them
            await asyncio.sleep(0.001)
        assert not waiting.done()
        await stream.jetstream.publish("lines.a", b"14")
        return await waiting

    assert reader.do(work)


def test_who_waits_for_a_message_hears_that_the_server_knows_him_no_more(reading: Reading) -> None:
    reader = reading()
    fill(reader, 10)

    async def work(stream: Stream) -> None:
        pull = Pull(stream, 11, None, headers_only=True)
        await pull.begin()
        waiting = asyncio.ensure_future(pull.is_there(DEADLINE))
        while not (await stream.jetstream.consumer_info("LINES", pull._name)).num_waiting:
            assert not waiting.done()
        await stream.jetstream.delete_consumer("LINES", pull._name)
        assert not await waiting
        assert pull.is_deaf

    reader.do(work)


def test_who_waits_for_a_message_gets_it_though_his_consumer_is_removed(reading: Reading) -> None:
    reader = reading()
    fill(reader, 10)
    assert not reader.wait_for(11, 0.001)
    removing = reading()

    def remove() -> None:
        async def work(stream: Stream) -> None:
            [info] = await stream.jetstream.consumers_info("LINES")
            await stream.jetstream.delete_consumer("LINES", info.name)
            await stream.jetstream.publish("lines.a", b"11")

        removing.do(work)

    remover = threading.Thread(target=remove)
    remover.start()
    assert reader.wait_for(11, DEADLINE)
    remover.join()


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
    assert (state.first, state.last, reader.do(removed)) == (3, 10, [5, 10])


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


def test_the_next_message_of_a_subject(reading: Reading) -> None:
    reader = reading()
    fill(reader, 4, subjects=("lines.a", "lines.b"))
    assert [reader.do(lambda stream, at=at: next_of(stream, at, None)) for at in (0, 2, 4, 5)] == [1, 2, 4, None]  # type: ignore[misc]
    assert [reader.do(lambda stream, at=at: next_of(stream, at, "lines.a")) for at in (1, 2, 4)] == [1, 3, None]  # type: ignore[misc]
