"""The server: it listens, and lets peers in.

The one rule: a peer that has not subscribed costs a connection and nothing else.
"""

import contextlib
import errno
import itertools
import logging
import resource
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import trio

from ...core.text import printable
from ...host import logs
from ...host.origins import Origin, Peers, origin_of
from ..apart import Apart, apart
from ..life import GatewayError, Life, make_place
from .admission import HANDSHAKES, Handshakes
from .channel import Channel
from .connection import Connection, Stream
from .lines import Block, messages_of, pieces
from .sorting import TURN, Sorter

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
"""Only who is on this machine, unless it is told otherwise: a peer needs no password."""

PORTS = range(4711, 4721)
"""Where peers look for a server."""

FILES = 32
"""Descriptors that are needed beside those of peers: the log, the bus, the sockets that listen."""

GONE_SECONDS = 10.0
"""How long one who has closed keeps his place at least, while the bus does not take what he has sent."""

MOST_WAITING = 16 << 20
"""Bytes of messages that wait for the bus, from which on those who have closed keep their places: there is no room for more."""

KEEPALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 6}
"""Seconds until a silent peer is asked whether it is there, between two times, and how often. One that has lost its power is
noticed after two minutes."""


@dataclass(frozen=True)
class Limits:
    """How much peers may have."""

    clients: int = 256
    """Connections. Each may need up to `queue` bytes, and twice that if it does not read: 256 need 2 GiB at the very worst."""
    clients_per_address: int | None = None
    """Connections of one address; None: see `Peers`."""
    subscriptions: int = 64
    """Of a peer. Each category is matched with all of them."""
    line: int = 64 * 1024
    """Bytes of a line that a peer sends, the newline included. It is kept until its end has come."""
    queue: int = 4 * 1024 * 1024
    """Bytes of messages that wait for a peer: as many as the bus keeps for a reader."""


class _Waits(NamedTuple):
    """A peer that may be cut off for others."""

    since: float
    scope: trio.CancelScope


class Server:
    """A Text Message Bus on a channel.

    Args:
        path: the channel.
        life: of the gateway.
        limits: for peers.
        mode: permissions of a channel that is created; None: what the umask leaves of 666.
        waits: whether it waits for a bus that is not there, or has gone.
    """

    def __init__(self, path: Path, life: Life, limits: Limits, *, mode: int | None = None, waits: bool = False) -> None:
        self.life = life
        self.limits = limits
        self._waits = waits
        self.sorter = Sorter()
        self._channel = Channel(
            path, life, self._hand_over, lambda: bool(self._listeners), self._count_lost, mode=mode, waits=waits
        )
        self._apart: Apart | None = None
        self._listeners: dict[Connection, None] = {}
        self._peers = Peers(limits.clients, limits.clients_per_address)
        self._handshakes = Handshakes()
        self._staying: dict[Connection, _Waits] = {}
        """The peers that have closed their sending side, and go on listening, the oldest first."""
        self._publishing: dict[Connection, _Waits] = {}
        """Those that wait for the bus, the oldest first."""

    def listen(self, connection: Connection) -> None:
        """A peer has subscribed."""
        self._listeners[connection] = None

    def ignore(self, connection: Connection) -> None:
        """A peer has no subscription any more."""
        self._listeners.pop(connection, None)

    # ------------------------------------------------------------------------------------------ the channel, which is elsewhere

    @property
    def _sides(self) -> Apart:
        assert self._apart
        return self._apart

    async def publish(self, messages: bytes) -> int:
        """Sends peer messages to the channel, as its `publish`."""
        return await self._sides.there.run(self._channel.publish, messages)

    async def _hand_over(self, block: bytes) -> None:
        await self._sides.home.run(self._deliver, block)

    async def _deliver(self, lines: bytes) -> None:
        begin = time.perf_counter()
        for piece in pieces(lines):
            if self._listeners and (messages := messages_of(piece)):
                block = Block(messages)
                for connection in self._listeners:
                    connection.offer(block)
            if time.perf_counter() - begin > TURN:
                await trio.lowlevel.checkpoint()
                begin = time.perf_counter()

    def _count_lost(self, lines: int) -> None:
        self._sides.home.post(self._tell_lost, lines)

    def _tell_lost(self, lines: int) -> None:
        for connection in self._listeners:
            connection.count_unread(lines)

    # ------------------------------------------------------------------------------------------ peers

    async def run(self, host: str | None, ports: Sequence[int], tls: ssl.SSLContext | None) -> None:
        """Serves until it is cancelled.

        Args:
            host: where to listen; None: everywhere.
            ports: the first that is free is taken.
            tls: what peers must speak.

        Raises:
            GatewayError: nobody can listen there.
            ClientError: the channel cannot be had, or has gone.
        """
        self._make_room(handshakes=HANDSHAKES if tls else 0)
        # Before the channel, which is made by opening it. With a bus that is waited for, nobody listens until it is there.
        listeners = None if self._waits else await _listeners(host, ports)
        async with apart(self.life, self._channel.path.parent) as self._apart, trio.open_nursery() as nursery:
            opened = trio.Event()
            nursery.start_soon(self._apart.there.run, self._channel.run, lambda: self._sides.home.post(opened.set))
            await opened.wait()
            nursery.start_soon(self.sorter.run)
            listeners = listeners or await _listeners(host, ports)
            served = [trio.SSLListener(each, tls, https_compatible=True) if tls else each for each in listeners]
            where = ", ".join(dict.fromkeys(_address(each.socket.getsockname()) for each in listeners))
            self.life.ready(f"{self._channel.path} is served on {where}{' by TLS' if tls else ''}")
            await trio.serve_listeners(self._serve, served)

    def _make_room(self, handshakes: int) -> None:
        """Has the system allow as many descriptors as there may be peers."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        wanted = self.limits.clients + handshakes + FILES
        if hard != resource.RLIM_INFINITY and wanted > hard:
            raise GatewayError(f"{self.limits.clients} clients are too many: this process may have {hard} open files")
        make_place(wanted)

    async def _serve(self, stream: Stream) -> None:
        """Serves a peer. Whatever goes wrong there, others do not notice."""
        try:
            await self._admit(stream)
        except (trio.BrokenResourceError, OSError):
            pass  # it has gone
        except Exception as error:
            logs.tell_error(log, lambda: "internal error while a peer was served", error)
        finally:
            await trio.aclose_forcefully(stream)

    async def _admit(self, stream: Stream) -> None:
        bare = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        where = bare.socket.getpeername()
        name, who = _address(where), origin_of(bare.socket)
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            bare.setsockopt(socket.IPPROTO_TCP, option, value)
        # Until they have shaken hands, they are not counted among those who are let in.
        if isinstance(stream, trio.SSLStream) and not await self._shake_hands(stream, name, who):
            return
        if refusal := self._refusal(who):
            self.life.warn(f"{name} is refused: there are {refusal}")
            with trio.move_on_after(1):
                await stream.send_all(b"error there are too many clients: try again later\n")
            return
        with self._peers.place(who):
            connection = Connection(stream, name, who, self)
            try:
                await connection.run()
            finally:
                self.ignore(connection)
            if stream is not bare:
                with trio.move_on_after(1):
                    await stream.aclose()  # says that this was all

    def _refusal(self, who: Origin) -> str:
        """Why one more of an address cannot be let in. Of those who only listen, the oldest that is in his way gives way."""
        of_address = self._peers.are_all_of(who)
        if not of_address and not self._peers.are_all():
            return ""
        idle = itertools.chain(self._staying, self._gone())
        first = next((each for each in idle if not of_address or each.who == who), None)
        if first is not None:
            (self._staying.pop(first, None) or self._publishing.pop(first)).scope.cancel()
            return ""
        if of_address and not self._peers.are_all():
            return f"{self._peers.share(who)} clients of its address already"
        return f"{self.limits.clients} clients already"

    def staying(self, connection: Connection) -> contextlib.AbstractContextManager[None]:
        """While this lasts, a peer only listens, and is cut off if there is no place for others."""
        return _giving_way(self._staying, connection)

    def publishing(self, connection: Connection) -> contextlib.AbstractContextManager[None]:
        """While this lasts, a peer waits for the bus to take what it has sent. If it has gone, it is cut off if others come."""
        return _giving_way(self._publishing, connection)

    def _gone(self) -> Iterator[Connection]:
        """Those who have closed, and whose messages the bus has not taken for long. The messages stay: there is room for them."""
        if self._channel.waiting_bytes < MOST_WAITING:
            before = time.monotonic() - GONE_SECONDS
            yield from (each for each, waits in self._publishing.items() if waits.since < before and each.has_closed)

    async def _shake_hands(self, stream: trio.SSLStream[trio.SocketStream], name: str, who: Origin) -> bool:
        with self._handshakes.place(who) as scope:
            try:
                await stream.do_handshake()
            except trio.BrokenResourceError as error:
                why = getattr(error.__cause__, "reason", None) or "it has closed the connection"
                self.life.warn(f"{name} is refused: TLS: {why}")
                return False
        return not scope.cancelled_caught


@contextlib.contextmanager
def _giving_way(those: dict[Connection, _Waits], connection: Connection) -> Iterator[None]:
    """While this lasts, a peer is among those who may be cut off for others."""
    with trio.CancelScope() as scope:
        those[connection] = _Waits(time.monotonic(), scope)
        try:
            yield
        finally:
            those.pop(connection, None)
    if scope.cancelled_caught:
        raise trio.BrokenResourceError


async def _listeners(host: str | None, ports: Sequence[int]) -> list[trio.SocketListener]:
    where = "all addresses" if host is None else host
    for port in ports:
        try:
            return await trio.open_tcp_listeners(port, host=host)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port != ports[-1]:
                continue
            which = f"port {port}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
            raise GatewayError(f"cannot listen on {where}, {which}: {error.strerror or error}") from None
    raise AssertionError("no port was given")


def _address(name: Sequence[object]) -> str:
    """An address of a socket, as people write it."""
    host, port = str(name[0]), name[1]
    return printable(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
