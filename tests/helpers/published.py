"""Streams as tests look at them, and networks that fail."""

import asyncio
import contextlib
import json
import math
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import nats
from nats.aio.msg import Msg

from futebus.nats import address, runs
from futebus.nats.access import Access
from futebus.nats.client import SIGN_BYTES
from futebus.nats.connection import Servers
from futebus.nats.errors import NatsError
from futebus.nats.runs import Where
from futebus.nats.state import Message
from futebus.nats.stream import LAST, LAST_OF_ALL, Stream

from .nats import Server, arrived
from .waiting import DEADLINE, until

T = TypeVar("T")


def ask(url: str, work: Callable[[Stream], Awaitable[T]], name: str = "LINES") -> T:
    """Does something with a stream."""

    async def connected() -> T:
        connection = await Servers(address.read_servers(url), Access(), "a test").connect()
        try:
            return await work(Stream(connection, name))
        finally:
            await connection.close()

    return asyncio.run(connected())


def say_raw(server: Server, subject: str | bytes, headers: bytes, data: bytes) -> None:
    """Publishes a message with exactly these bytes as its headers, and as its subject, if that is bytes."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        told = connection.makefile("rb")
        told.readline()
        where = subject.encode() if isinstance(subject, str) else subject
        words = b"HPUB %s %d %d\r\n" % (where, len(headers), len(headers) + len(data)) + headers + data
        connection.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + words + b"\r\nPING\r\n")
        # It may ask first whether we are there, if we were slow.
        assert next(line for line in told if line != b"PING\r\n") == b"PONG\r\n"


@contextlib.contextmanager
def confirming(
    server: Server, subject: str, name: str = "LINES", number: Callable[[int], int] = lambda behind: behind + 1
) -> Iterator[None]:
    """Somebody who listens to the subject, and confirms each message as if he were the stream.

    Args:
        server: which has it.
        subject: it.
        name: of the stream.
        number: which number he gives a message, by that of the one that it is to come behind.
    """
    is_there, is_over = threading.Event(), threading.Event()

    async def reply(message: Msg) -> None:
        headers = message.headers or {}
        behind = int(headers.get(LAST_OF_ALL) or headers.get(LAST) or 0)
        if message.reply:
            await message.respond(json.dumps({"stream": name, "seq": number(behind)}).encode())

    async def work() -> None:
        client = await nats.connect(server.url, connect_timeout=int(DEADLINE))
        try:
            await client.subscribe(subject, cb=reply)
            await arrived(client)
            is_there.set()
            await asyncio.to_thread(is_over.wait)
        finally:
            # The server may have been killed at any moment. That it is just being left cancels who waits for that.
            with contextlib.suppress(OSError, nats.errors.Error, asyncio.CancelledError):
                await client.close()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert is_there.wait(DEADLINE)
        yield
    finally:
        is_over.set()
        thread.join()


def messages(url: str, name: str = "LINES") -> list[Message]:
    """All that a stream has."""

    async def read(stream: Stream) -> list[Message]:
        state = await stream.state()
        found = []
        for sequence in range(state.first, state.last + 1):
            raw = await stream.jetstream.get_msg(name, sequence)
            found.append(Message(sequence, raw.subject or "", raw.headers or {}, raw.data or b""))
        return found

    return ask(url, read, name)


def last_of(url: str, subject: str, name: str = "LINES") -> Where | None:
    """Which lines the last message of a subject has; None if there is none, or nobody answers now."""

    async def read(stream: Stream) -> Where | None:
        last = await stream.last(subject)
        return runs.read(last.headers) if last else None

    with contextlib.suppress(NatsError):
        return ask(url, read, name)
    return None


def wait_for_line(url: str, subject: str, line: int, name: str = "LINES") -> None:
    """Waits until a stream has all lines before that number."""
    until(lambda: (last := last_of(url, subject, name)) is not None and last.next >= line, f"line {line} is in the stream")


def lines_in(found: list[Message]) -> bytes:
    """The lines of messages. They must be numbered without a gap, per subject."""
    following: dict[str, int] = defaultdict(int)
    for message in found:
        where = runs.read(message.headers)
        assert where, message
        assert where.line == following[message.subject], (following[message.subject], message.sequence, message.headers)
        assert message.data.count(b"\n") == where.lines
        following[message.subject] = where.next
    return b"".join(message.data for message in found)


def _little(one: socket.socket, rate: int) -> socket.socket:
    """Has little on its way on a slow line: while the last of that goes on, nobody who waits for an answer sees anything move.

    It must be so before it is connected: no window that was opened is closed again.
    """
    if rate:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 13)  # some 12 kB, as Linux counts
    return one


STILL_SECONDS = 2.0
"""A line that is so much too late is none of those that are slow: with what comes of that in its systems, it says nothing for so
long that it may be given up."""


class Proxy:
    """A network between clients and a server, that can be cut, and can swallow all.

    Args:
        port: of the server.
        up, down: how many bytes a second it carries to the server, and from there; 0: as many as there are.
    """

    def __init__(self, port: int, *, up: int = 0, down: int = 0) -> None:
        self._to, self._up, self._down = port, up, down
        self._listener = _little(socket.socket(), up)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.connections = 0
        """How many there have been."""
        self.late = self.dry = 0.0
        """By how many seconds it has been later, at most, than a line of its rate: so long the machine let it do nothing; and for
        how many it has waited, at most, for what the one who sends has for it, or for him to have something."""
        self.slow = 0.0
        """How many seconds it has taken, at most, for so many bytes as say that something is on its way, when it had them."""
        self.stuck = 0.0
        """For how many seconds it has waited, at most, for the one who is sent something to have place for it."""
        self._goes, self._comes = threading.Event(), threading.Event()
        self._goes.set()
        self._comes.set()
        self.holds = b""
        """What an answer has that does not get through, nor anything behind it, until all is mended; empty: no answer."""
        self._is_cut = False
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = _little(socket.socket(), self._down)
                try:
                    server.connect(("127.0.0.1", self._to))
                except OSError:
                    client.close()
                    server.close()
                    continue
                with self._lock:
                    if self._is_cut:
                        client.close()
                        server.close()
                        continue
                    self._pairs.append((client, server))
                    self.connections += 1
                self._threads.append(threading.Thread(target=self._join, args=(client, server), daemon=True))
                self._threads[-1].start()

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=self._carry, args=(server, client, self._down, True), daemon=True)
            back.start()
            self._carry(client, server, self._up, False)
            back.join()

    def _carry(self, one: socket.socket, other: socket.socket, rate: int, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            end, carried, seconds = math.inf, 0, 0.0
            while data := one.recv(rate // 20 or 1 << 16):
                self.dry = max(self.dry, time.monotonic() - end)
                if is_answer and self.holds and self.holds in data:
                    self._comes.clear()
                (self._comes if is_answer else self._goes).wait()
                begin = time.monotonic()
                other.sendall(data)
                self.stuck = max(self.stuck, time.monotonic() - begin)
                if rate:
                    time.sleep(len(data) / rate)
                    end = time.monotonic()
                    self.late = max(self.late, end - begin - len(data) / rate)
                    carried, seconds = carried + len(data), seconds + end - begin
                    if carried >= SIGN_BYTES:
                        self.slow, carried, seconds = max(self.slow, seconds), 0, 0.0
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @property
    def told(self) -> str:
        """How slow it has been."""
        times = f"late by {self.late:.1f} s, slow {self.slow:.1f} s, stuck {self.stuck:.1f} s, dry {self.dry:.1f} s"
        return f"{times}, connections: {self.connections}"

    @property
    def is_held(self) -> bool:
        """Whether it has been one connection all the time, unless the machine made the line stand still."""
        return self.connections == 1 or max(self.late, self.slow - SIGN_BYTES / (self._up or self._down)) > STILL_SECONDS

    @property
    def is_holding(self) -> bool:
        """Whether nothing comes through from the server."""
        return not self._comes.is_set()

    def cut(self) -> None:
        """Ends all connections, and takes no new ones."""
        with self._lock:
            self._is_cut = True
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Takes connections again, and lets everything through."""
        self._is_cut, self.holds = False, b""
        self._goes.set()
        self._comes.set()

    def swallow(self) -> None:
        """Lets nothing through, though connections stay."""
        self._goes.clear()
        self._comes.clear()

    def close(self) -> None:
        """Ends it."""
        self.mend()
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE)
        self._listener.close()


@contextlib.contextmanager
def proxied(server: Server, *, up: int = 0, down: int = 0) -> Iterator[Proxy]:
    """A network before a server, as for `Proxy`."""
    proxy = Proxy(server.port, up=up, down=down)
    try:
        yield proxy
    finally:
        proxy.close()
