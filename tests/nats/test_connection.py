"""Connections to real servers: what was sent is there, who does not answer is given up, and nothing is left behind."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from futebus.nats import address, connection
from futebus.nats.access import Access
from futebus.nats.connection import Connection, Servers
from futebus.nats.errors import Away, NatsError
from futebus.nats.stream import Stream
from futebus.nats.transport import Extent, Part

from ..helpers.nats import Listening, Server, Serving, tls
from ..helpers.waiting import DEADLINE

MUCH = b"x" * (900 << 10)
"""More than a system has room for, if it is sent some times."""


@asynccontextmanager
async def connected(url: str, access: Access | None = None) -> AsyncIterator[Connection]:
    """A connection, of which nothing is left."""
    made = await Servers(address.read_servers(url), access or Access(), "a test").connect()
    try:
        yield made
    finally:
        await made.close()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await work

    asyncio.run(bounded())


async def flood(made: Connection) -> None:
    while True:
        await made.publish("x", MUCH, {"A": "b"})
        await made.settle()


@pytest.mark.parametrize("size", [10, 20_000])
def test_what_was_published_before_the_end_is_there(nats: Server, listening: Listening, size: int) -> None:
    outsider = listening(nats.url, "x")
    lines = [f"{number}\n".encode().rjust(size) for number in range(500)]

    async def work() -> None:
        async with connected(nats.url) as made:
            for line in lines:
                await made.publish("x", line, {"A": "b"})

    run(work())
    outsider.wait_for(b"".join(lines))


def test_one_that_hangs_is_given_up_also_while_it_is_sent_much(nats: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PING_SECONDS", 0.2)

    async def work() -> None:
        async with connected(nats.url) as made:
            with nats.hanging():
                with pytest.raises(Away, match=r"does not answer|has closed"):
                    await made.while_open(flood(made))
                await made.is_closed.wait()

    run(work())


def test_one_that_hangs_is_left_without_waiting_for_it(nats: Server) -> None:
    async def work() -> None:
        async with connected(nats.url) as made:
            with nats.hanging():
                sending = asyncio.ensure_future(made.publish("x", 20 * MUCH[:50_000], {"A": "b"}))
                while made.client._transport.unsent == 0 and not made.is_closed.is_set():
                    sending = asyncio.ensure_future(made.publish("x", MUCH, {"A": "b"}))
                    await asyncio.sleep(0)
                await made.close()
                await asyncio.gather(sending, return_exceptions=True)

    run(work())


def test_one_that_dies_while_it_is_sent_much(nats: Server) -> None:
    async def work() -> None:
        async with connected(nats.url) as made:
            nats.kill()
            with pytest.raises(NatsError):
                await flood(made)
            await made.is_closed.wait()

    run(work())


def test_a_handler_that_fails_does_not_end_it(nats: Server, listening: Listening) -> None:
    outsider = listening(nats.url)

    async def work() -> None:
        found: list[bytes] = []
        has_come = asyncio.Event()

        def handle(headers: object, data: bytes) -> None:
            if data == b"bad":
                raise ValueError(data)
            found.append(data)
            has_come.set()

        async def ready() -> None:
            pass

        async with connected(nats.url) as made:
            await made.subscribe("x", handle, ready)
            for data in (b"bad", b"good"):
                await asyncio.to_thread(outsider.say, "x", data)
            await has_come.wait()
            assert found == [b"good"]
            assert not made.is_closed.is_set()

    run(work())


def test_nothing_comes_any_more_when_one_has_unsubscribed(nats: Server, listening: Listening) -> None:
    outsider = listening(nats.url)

    async def work() -> None:
        found: list[bytes] = []
        async with connected(nats.url) as made:
            subscription = await made.client.listen("x", lambda subject, reply, told, data: found.append(data))
            await made.confirm()
            await asyncio.to_thread(outsider.say, "x", b"one")
            await made.confirm()
            await subscription.unsubscribe()
            await made.confirm()
            await asyncio.to_thread(outsider.say, "x", b"two")
            await made.confirm()
            assert found == [b"one"]

    run(work())


def file_with(place: Path, data: bytes) -> Callable[[int, int], Extent]:
    (place / "file").write_bytes(data)
    part = Part(os.open(place / "file", os.O_RDONLY), 0, len(data))
    return lambda start, size: Extent(part, start, size)


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_parts_of_files_are_messages(serving: Serving, papers: Path, place: Path, scheme: str) -> None:
    server = serving(tls(papers) if scheme == "tls" else "", scheme=scheme, jetstream=True)
    access = Access(tls_ca=papers / "ca.pem") if scheme == "tls" else Access()
    data = os.urandom(3 << 20)
    extent = file_with(place, data)
    places = [(0, 10), (4090, 20), (5000, 17_000), (70_000, 1_000_000), (1_070_001, 900_003)]

    async def work() -> None:
        async with connected(server.url, access) as made:
            stream = Stream(made, "LINES")
            await stream.make(["x"])
            for number, (start, size) in enumerate(places):
                assert await stream.publish("x", extent(start, size), {"A": "b"}, number, "test") == number + 1
            for number, (start, size) in enumerate(places):
                found = await stream.jetstream.get_msg("LINES", number + 1)
                assert found.data == data[start : start + size]
                assert (found.headers or {})["A"] == "b"

    run(work())


def test_much_comes_and_goes_over_tls(serving: Serving, papers: Path) -> None:
    server = serving(tls(papers), scheme="tls")
    access = Access(tls_ca=papers / "ca.pem")
    data = os.urandom(900 << 10)

    async def work() -> None:
        found: list[bytes] = []
        has_come = asyncio.Event()

        def handle(headers: object, got: bytes) -> None:
            found.append(got)
            if len(found) == 20:
                has_come.set()

        async def ready() -> None:
            pass

        async with connected(server.url, access) as hearing, connected(server.url, access) as speaking:
            await hearing.subscribe("x", handle, ready)
            for _ in range(20):
                await speaking.publish("x", data, {"A": "b"})
            await speaking.confirm()
            await has_come.wait()
            assert found == [data] * 20
            await hearing.close()

    run(work())
