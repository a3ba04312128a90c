"""Connections to real servers: what was sent is there, who does not answer is given up, and nothing is left behind."""

import asyncio
import contextlib
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats import errors as nats_errors
from nats.aio.msg import Msg

from futebus.nats import address, connection
from futebus.nats.access import Access
from futebus.nats.client import DISCOVERED, MOST_ANSWERS, MOST_ASIDE, Client, Greeting, Movement
from futebus.nats.connection import Connection, Servers
from futebus.nats.errors import Away, NatsError
from futebus.nats.stream import Stream
from futebus.nats.transport import Extent, Part

from ..helpers.nats import Listening, Server, Serving, tls
from ..helpers.ports import free_port
from ..helpers.waiting import DEADLINE, is_readable, until

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


@pytest.mark.parametrize("sends", [False, True])
def test_nothing_is_left_open_of_one_that_hangs_and_speaks_tls(serving: Serving, papers: Path, *, sends: bool) -> None:
    """It does not answer the farewell either."""
    server = serving(tls(papers), scheme="tls")

    async def work() -> None:
        async with connected(server.url, Access(tls_ca=papers / "ca.pem")) as made:
            streams = made.client._transport._streams
            assert streams is not None
            assert streams._bare_io_writer is not None
            one = streams._bare_io_writer.get_extra_info("socket")
            with server.hanging():
                sending = asyncio.ensure_future(made.publish("x", 10 * MUCH, {"A": "b"})) if sends else None
                await asyncio.sleep(0)
                await made.close()
                await asyncio.sleep(0)
                assert one.fileno() == -1
                if sending:
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


async def flood_little(made: Connection) -> None:
    while True:
        await made.publish("x", b"x" * 10_000, {"A": "b"})


class Silent:
    """What calls itself a server, lets one in, and reads nothing more until it is told to.

    Args:
        context: of TLS, if that is to be spoken.
        ready: what it says when it is asked whether it is ready.
    """

    def __init__(self, context: ssl.SSLContext | None = None, ready: bytes = b"PONG\r\n") -> None:
        self._context, self._ready = context, ready
        self.leaves = False
        """Whether it says nothing more then."""
        self.speaks: asyncio.StreamWriter
        self.hears: asyncio.StreamReader
        self.has_come = asyncio.Event()

    async def _serve(self, hears: asyncio.StreamReader, speaks: asyncio.StreamWriter) -> None:
        told = {"server_id": "x", "version": "2.9.10", "max_payload": 64 << 20, "headers": True, "proto": 1}
        speaks.write(f"INFO {json.dumps(told | {'tls_required': self._context is not None})}\r\n".encode())
        if self._context:
            await speaks.start_tls(self._context)
        while await hears.readline() != b"PING\r\n":
            pass
        speaks.write(self._ready)
        if self.leaves:
            speaks.close()
        self.hears, self.speaks = hears, speaks
        speaks.transport.pause_reading()  # type: ignore[attr-defined]
        self.has_come.set()

    @asynccontextmanager
    async def serving(self, access: Access | None = None) -> AsyncIterator[Connection]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            made = None
            try:
                async with asyncio.timeout(DEADLINE):
                    url = f"nats://127.0.0.1:{port}"
                    made = await Servers(address.read_servers(url), access or Access(), "a test").connect()
                    await self.has_come.wait()
                yield made
            finally:
                if made:
                    await made.close()
                self.speaks.transport.abort()


@pytest.mark.parametrize("is_secret", [False, True])
def test_who_publishes_waits_for_one_that_does_not_read(papers: Path, is_secret: bool) -> None:
    """What waits to be sent has a bound."""
    context = None
    if is_secret:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(papers / "server.pem", papers / "server.key")

    async def work() -> None:
        async with Silent(context).serving(Access(tls_ca=papers / "ca.pem") if is_secret else None) as made:
            flooding = asyncio.ensure_future(flood_little(made))
            before = -1
            while made.client.stats["out_msgs"] != before:  # until it waits
                before = made.client.stats["out_msgs"]
                for _ in range(100):
                    await asyncio.sleep(0)
            assert not flooding.done()
            assert made.client._transport.unsent < 1 << 20
            flooding.cancel()

    run(work())


async def hearing(made: Connection) -> asyncio.Event:
    """Is set when a message has come on x."""
    heard = asyncio.Event()
    await made.client.listen("x", lambda subject, reply, told, data: heard.set())
    return heard


async def stuck(made: Connection) -> "asyncio.Future[None]":
    """Sends more than the system takes."""
    sending = asyncio.ensure_future(made.publish("x", 40 * MUCH, {"A": "b"}))
    await asyncio.sleep(0)
    assert made.client._transport.unsent > 10 * len(MUCH)
    return sending


def test_what_comes_is_heard_while_nothing_can_be_sent() -> None:
    async def work() -> None:
        silent = Silent()
        async with silent.serving() as made:
            heard = await hearing(made)
            sending = await stuck(made)
            silent.speaks.write(b"PING\r\nMSG x 1 5\r\nhello\r\n")
            await heard.wait()
            assert not sending.done()
            sending.cancel()

    run(work())


def test_who_asks_and_reads_no_answer_gets_a_bounded_number_of_them() -> None:
    async def work() -> None:
        silent = Silent()
        async with silent.serving() as made:
            heard = await hearing(made)
            sending = await stuck(made)
            before, asked = made.client._transport.unsent, len(made.client._pongs)
            silent.speaks.write(b"PING\r\n" * 50_000 + b"MSG x 1 5\r\nhello\r\n")
            await heard.wait()
            added = made.client._transport.unsent - before - (len(made.client._pongs) - asked) * len("PING\r\n")
            assert -len(MUCH) < added <= MOST_ANSWERS * len("PONG\r\n")
            sending.cancel()
        # One that reads them gets all.
        answers = 0
        silent = Silent()
        async with silent.serving() as made:
            silent.speaks.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(3):
                silent.speaks.write(b"PING\r\n" * (MOST_ANSWERS // 2))
                for _ in range(MOST_ANSWERS // 2):
                    while (line := await silent.hears.readline()) != b"PONG\r\n":
                        assert line
                    answers += 1
        assert answers == 3 * (MOST_ANSWERS // 2)

    run(work())


@pytest.mark.parametrize("said", [b"hello\r\nPONG\r\n", b"+OK\r\nPONG\r\n", b"PING\r\n" * (2 * MOST_ASIDE) + b"PONG\r\n"])
def test_one_that_answers_otherwise_than_it_should_is_not_taken_for_a_server(said: bytes) -> None:
    """Nothing would be said to it any more, and nobody would know."""

    async def work() -> None:
        with pytest.raises(Away, match="does not speak NATS as it should"):
            async with Silent(ready=said).serving():
                pass

    run(work())


def test_one_that_tells_of_itself_before_it_is_ready_is_a_server() -> None:
    told = b'INFO {"connect_urls": ["10.0.0.1:4222"]}\r\n'

    async def work() -> None:
        silent = Silent(ready=b"PING\r\n" + told + b"PONG\r\n")
        async with silent.serving() as made:
            assert [url.netloc for url in made.client.discovered_servers] == ["10.0.0.1:4222"]
            silent.speaks.transport.resume_reading()  # type: ignore[attr-defined]
            assert await silent.hears.readline() == b"PONG\r\n"

    run(work())


@pytest.mark.parametrize(
    "told", [b"INFO []\r\n", b"INFO {}\nPONG\r\n", b"INFO {\r\n", b"INFO \xff\r\n", b"INFO \r\n", b"PING\r", b"INFO {}"]
)
def test_one_that_tells_nonsense_of_itself_is_no_server(told: bytes) -> None:
    async def work() -> None:
        silent = Silent(ready=told)
        silent.leaves = True
        with pytest.raises(Away, match="does not speak NATS as it should"):
            async with silent.serving():
                pass

    run(work())


def test_who_stands_still_while_he_connects_is_asked_whether_he_is_there(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server does so when it has waited for two seconds, before it says that it is ready."""
    server = serving()
    drain = Greeting.drain

    async def stand_still(self: Greeting) -> None:
        await drain(self)
        monkeypatch.setattr(Greeting, "drain", drain)
        time.sleep(2.5)  # noqa: ASYNC251 - the whole process does

    monkeypatch.setattr(Greeting, "drain", stand_still)

    async def work() -> None:
        async with connected(server.url) as made:
            await made.client.flush()

    run(work())


def test_no_more_servers_are_remembered_than_a_cluster_may_have() -> None:
    async def work() -> None:
        silent = Silent()
        async with silent.serving() as made:
            heard = await hearing(made)
            for round_ in range(3):
                urls = [f"10.0.{round_}.{number % 250}:{number}" for number in range(5000)]
                silent.speaks.write(b"INFO " + json.dumps({"connect_urls": urls}).encode() + b"\r\n")
            silent.speaks.write(b"MSG x 1 5\r\nhello\r\n")
            await heard.wait()
            assert len(made.client.discovered_servers) <= DISCOVERED

    run(work())


@pytest.mark.parametrize("advertised", ["localhost", "127.0.0.1"])
def test_a_server_that_was_told_of_has_its_own_name(serving: Serving, papers: Path, advertised: str) -> None:
    """One that was told by its address has the name of who told of it."""
    route, ports = free_port(), [free_port(), free_port()]
    who = "named" if advertised == "localhost" else "server"
    cluster = f'cluster {{ name: two, listen: "127.0.0.1:{route}" }}'
    first = serving(tls(papers) + f'\nclient_advertise: "127.0.0.1:{ports[0]}"\n{cluster}', scheme="tls", port=ports[0])
    joins = f'cluster {{ name: two, listen: "127.0.0.1:-1", routes: ["nats-route://127.0.0.1:{route}"] }}'
    advertises = f'\nclient_advertise: "{advertised}:{ports[1]}"\n'
    second = serving(tls(papers, who=who) + advertises + joins, scheme="tls", port=ports[1])

    async def work() -> None:
        servers = Servers(address.read_servers(first.url), Access(tls_ca=papers / "ca.pem"), "a test")
        made = await servers.connect()
        while not made.client.discovered_servers:  # they have not found each other yet
            await made.close()
            made = await servers.connect()
        first.kill()
        await made.is_closed.wait()
        await made.close()
        made = await servers.connect()
        assert made.server.port == second.port
        await made.confirm()
        await made.close()

    run(work())


def test_nothing_follows_what_was_sent_in_part(place: Path) -> None:
    """A server would take it for the rest of the message."""

    async def work() -> None:
        silent = Silent()
        async with silent.serving() as made:
            data = b"x" * (40 << 20)  # in which no command is to be found by chance
            extent = file_with(place, data)
            sending = asyncio.ensure_future(made.publish("x", extent(0, len(data)), {"A": "b"}))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            os.truncate(place / "file", 4096)
            silent.speaks.transport.resume_reading()  # type: ignore[attr-defined]
            reading = asyncio.ensure_future(silent.hears.read(-1))
            while not sending.done() and not made.is_closed.is_set():
                with contextlib.suppress(NatsError):
                    await made.publish("y", b"other", {"A": "b"})
                await asyncio.sleep(0)
            await made.is_closed.wait()
            assert made.why == "Input/output error"
            await asyncio.gather(sending, return_exceptions=True)
            came = await reading
            assert len(came) < len(data)
            assert b"PUB" not in came.partition(b"\r\n\r\n")[2]

    run(work())


@pytest.mark.parametrize("turns", range(6))
def test_that_it_has_failed_is_known_though_who_sent_was_cancelled(nats: Server, turns: int) -> None:
    async def work() -> None:
        async with connected(nats.url) as made:
            waiting = asyncio.ensure_future(made.while_open(asyncio.get_running_loop().create_future()))
            made.client._transport._fail(OSError())  # nothing is unsent, so nothing has failed
            made.client._transport._error = ConnectionResetError()
            sending = asyncio.ensure_future(made.publish("x", MUCH, {"A": "b"}))
            for _ in range(turns):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            if turns:
                await made.is_closed.wait()
                with pytest.raises(Away):
                    await waiting
            waiting.cancel()

    run(work())


def test_a_subscription_that_is_refused_leaves_nothing_to_the_next(nats: Server, listening: Listening) -> None:
    outsider = listening(nats.url)

    async def work() -> None:
        async with connected(nats.url) as made:
            found: list[bytes] = []
            has_come = asyncio.Event()
            with pytest.raises(nats_errors.BadSubjectError):
                await made.client.listen("no good", lambda subject, reply, told, data: found.append(b"wrong"))

            async def take(message: Msg) -> None:
                found.append(message.data)
                has_come.set()

            await made.client.subscribe("x", cb=take)
            await made.confirm()
            await asyncio.to_thread(outsider.say, "x", b"well")
            await has_come.wait()
            assert found == [b"well"]

    run(work())


def test_who_waits_for_a_confirmation_may_be_cancelled(nats: Server) -> None:
    async def work() -> None:
        async with connected(nats.url) as made:
            for turns in range(5):
                confirming = asyncio.ensure_future(made.confirm())
                for _ in range(turns):
                    await asyncio.sleep(0)
                confirming.cancel()
                await asyncio.gather(confirming, return_exceptions=True)
                await made.confirm()
            assert not made.is_closed.is_set()

    run(work())


def test_who_stood_still_hears_what_was_said_meanwhile(nats: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was stopped, or whose machine was. That nothing has come is not known before it was looked for."""
    monkeypatch.setattr(connection, "PATIENCE", 2.0)
    looks = asyncio.Event()
    movement = Client.movement

    def look(client: Client) -> Movement:
        looks.set()
        return movement(client)

    async def work() -> None:
        async with connected(nats.url) as made:
            await made.confirm()  # all tasks of the connection have begun
            monkeypatch.setattr(Client, "movement", look)
            with nats.hanging():
                confirming = asyncio.ensure_future(made.confirm())
                await looks.wait()  # from now on it is looked whether anything comes
                await asyncio.sleep(0)
            until(lambda: is_readable(made.client._transport._plain), "the answer is there")
            time.sleep(3)  # noqa: ASYNC251 - longer than it waits
            await confirming

    run(work())
