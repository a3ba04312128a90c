"""The server: it listens, and lets browsers in.

The one rule: a browser costs a connection and what one answer is long, and nothing else. Who does not send, or does not read what
is sent, is cut off.
"""

import contextlib
import errno
import ipaddress
import logging
import socket
import struct
from collections.abc import Callable, Sequence

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState

from ...host.origins import Origin, Peers, origin_of
from ..complaints import complain
from .security import GONE

log = logging.getLogger(__name__)

PORT = 8383

OWN_ADDRESSES = ("127.0.0.1", "::1")
"""Only who is on this machine, unless it is told otherwise."""

ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""How a machine answers that has no IPv6."""

MOST_CONNECTIONS = 128

HEADER_BYTES = 16 * 1024
"""How long the head of a request may be: what it asks for, and its headers as they stand there."""

TOO_LONG = 431

RECEIVED_BYTES = 4 * 1024
"""What is taken at once: how long a head is that has not come to its end is looked at in between."""

IDLE_SECONDS = 5.0
"""How long a browser may take for a request, and stay without one."""

SEND_SECONDS = 5.0
"""How long a browser may take to read one piece of an answer."""

WHOLE_SECONDS = 120.0
"""How long a browser may take to read all of what is sent at once: of 16 MiB, 140 kB a second."""

PIECE_BYTES = 64 * 1024
"""A large answer is sent in such pieces: a line that carries 13 kB a second is quick enough."""

SEND_BYTES = 128 * 1024
"""What the kernel keeps for one that does not read."""

LINGER_SECONDS = 1.0
"""How long a connection that is closed may take to come to its end."""

BACKLOG = 64

TRIES = 20
"""How many free ports are tried, since one must be free on all addresses."""


class WebError(Exception):
    """Why there can be no server, in one sentence."""


def listen(addresses: Sequence[str], port: int) -> list[socket.socket]:
    """Listens on all addresses, on the same port.

    Args:
        addresses: names or addresses; `*`: all that there are. None given: this machine's own, as many of them as it has.
        port: 0: one that is free.

    Raises:
        WebError: nobody can listen there.
    """
    given = [("0.0.0.0", "::") if address == "*" else (address,) for address in addresses]
    wanted = [each for group in given for each in group] or OWN_ADDRESSES
    for left in reversed(range(1 if port else TRIES)):
        sockets: list[socket.socket] = []
        for address in wanted:
            try:
                sockets += _listen_on(address, sockets[0].getsockname()[1] if sockets else port)
            except OSError as error:
                is_needed = address in addresses or not sockets
                if not is_needed and error.errno in ABSENT:
                    continue
                for each in sockets:
                    each.close()
                if sockets and error.errno == errno.EADDRINUSE and left:
                    break  # the port that was free there is taken here: another one
                raise WebError(f"cannot listen on {address}, port {port}: {error.strerror or error}") from None
        else:
            return sockets
    raise AssertionError("the last try ends in one way or the other")


def _listen_on(address: str, port: int) -> list[socket.socket]:
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    for family, kind, protocol, _, name in dict.fromkeys(found):
        each = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        try:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)  # who is let in has it too
            each.bind(name)
            each.listen(BACKLOG)
        except BaseException:
            for other in (*sockets, each):
                other.close()
            raise
        sockets.append(each)
    return sockets


def address_of(listener: socket.socket) -> str:
    """The address that it listens on, as it stands in URLs."""
    host = listener.getsockname()[0]
    return f"[{host}]" if ":" in host else str(host)


def is_own(listener: socket.socket) -> bool:
    """Whether only this machine reaches it."""
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def is_unspecified(listener: socket.socket) -> bool:
    """Whether it listens on every address."""
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_unspecified


def has_localhost(listeners: Sequence[socket.socket]) -> bool:
    """Whether `localhost` leads to this server alone, on whichever of its addresses a browser tries first.

    One that is not listened on is anybody's: whoever has it there would be shown the token.
    """
    hosts = {ipaddress.ip_address(each.getsockname()[0].partition("%")[0]) for each in listeners}
    everywhere = {host.version for host in hosts if host.is_unspecified}
    own = map(ipaddress.ip_address, OWN_ADDRESSES)
    return all(host in hosts or host.version in everywhere or not _is_there(host) for host in own)


def _is_there(host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether somebody could listen on this address: a machine without IPv6 has no ::1."""
    try:
        with socket.socket(socket.AF_INET if host.version == 4 else socket.AF_INET6) as tried:
            tried.bind((str(host), 0))
    except OSError as error:
        return error.errno not in ABSENT
    return True


class _Browser:
    """A connection, as hypercorn sees it: one on which nothing takes for ever.

    Hypercorn shields what it sends from being cancelled. So the deadline is here, and `cut` ends it all.
    """

    def __init__(self, stream: trio.SocketStream, on_close: Callable[[], None]) -> None:
        self._stream = stream
        self._on_close = on_close
        self.socket = stream.socket

    async def send_all(self, data: bytes) -> None:
        """Sends something, or cuts the connection."""
        end, whole = trio.current_time() + WHOLE_SECONDS, memoryview(data)
        for start in range(0, len(data), PIECE_BYTES):
            try:
                with trio.move_on_at(min(trio.current_time() + SEND_SECONDS, end)) as scope:
                    await self._stream.send_all(whole[start : start + PIECE_BYTES])
            except (trio.BrokenResourceError, trio.BusyResourceError):
                # It has gone, or is just told that there is no more. Who waits for what it says does not hear of that: behind
                # a request that is not answered yet hypercorn does not even read.
                self._on_close()
                raise trio.BrokenResourceError from None
            if scope.cancelled_caught:
                self.cut()
                raise trio.BrokenResourceError

    async def receive_some(self, most: int) -> bytes | bytearray:
        """What has come; nothing at the end."""
        return await self._stream.receive_some(min(most, RECEIVED_BYTES))

    async def send_eof(self) -> None:
        """Says that this was all."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Closes it."""
        self._on_close()
        await self._stream.aclose()

    def cut(self) -> None:
        """Closes it at once. Whoever reads or writes finds out."""
        self._on_close()
        # Without waiting for what has not been read: else the kernel keeps it for minutes.
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class _Speech(TCPServer):
    """What is said on a connection: HTTP/1.1, and never another version or a WebSocket.

    Hypercorn would go over to these when a browser begins with them or asks for them, and has no deadline for a silent one there.
    """

    async def _read_data(self) -> None:
        protocol = self.protocol.protocol
        assert isinstance(protocol, H11Protocol)
        # Who only asks for it is answered as if he had not, and who begins with it is told (`security`).
        protocol._check_protocol = _stay  # type: ignore[method-assign]
        begin, close, closed = protocol._create_stream, protocol._close_stream, trio.Event()

        async def beginning(request: h11.Request) -> None:
            headers = [*request.headers]
            if len(request.target) + sum(len(name) + len(b": \r\n") + len(value) for name, value in headers) > HEADER_BYTES:
                await protocol._send_error_response(TOO_LONG)
                await protocol.send(Closed())
                return
            left = [header for header in headers if header[0] != b"upgrade"]
            version = request.http_version
            await begin(h11.Request(method=request.method, headers=left, target=request.target, http_version=version))

        def is_answered() -> bool:
            return protocol.stream is None

        async def closing() -> None:
            nonlocal closed
            try:
                await close()
            finally:
                # Hypercorn may be cancelled before it has said so itself, and says it to nobody later: who has gone while an
                # answer was sent is told by the failure of that, and what sends it is being cancelled.
                protocol.stream = None
                closed.set()
                closed = trio.Event()

        protocol._create_stream = beginning  # type: ignore[method-assign]
        protocol._close_stream = closing  # type: ignore[method-assign]
        while True:
            try:
                data = await self.stream.receive_some(RECEIVED_BYTES)
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                break
            if not data and not is_answered():
                # Who has nothing more to say may still read: what comes to an end is sent to its end (`Gate`).
                self.state[GONE].set()
                while not is_answered():
                    await closed.wait()
                break
            await self.protocol.handle(RawData(bytes(data)))
            if not data:
                break
        await self.protocol.handle(Closed())


async def _stay(event: object) -> None:
    await trio.lowlevel.checkpoint()


ORIGIN = "origin"
"""Where in the state of a connection stands whom it counts for."""


class Server:
    """Serves an application.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIFramework) -> None:
        self._app = ASGIWrapper(app)
        self._context = WorkerContext(None)
        self._browsers: set[_Browser] = set()
        self._peers = Peers(MOST_CONNECTIONS)
        self._is_told = False
        self._config = Config()
        self._config.accesslog = None
        self._config.errorlog = log
        self._config.include_server_header = False
        self._config.h11_max_incomplete_size = HEADER_BYTES
        self._config.keep_alive_timeout = IDLE_SECONDS

    async def run(self, listeners: Sequence[socket.socket]) -> None:
        """Serves until it is cancelled."""
        served = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in listeners]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_at_end)
            await trio.serve_listeners(self._serve, served, handler_nursery=nursery)

    async def _cut_at_end(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            for browser in [*self._browsers]:
                browser.cut()

    def _tell_of_many(self, who: Origin | None) -> None:
        """Says that somebody is not let in, once until all have gone that there were."""
        if who is not None and not self._is_told:
            self._is_told = True
            which = f"user {who.uid}" if who.uid is not None else who.network
            log.warning("connections are refused: there are %d, and no place for one more of %s", len(self._browsers), which)

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Serves a browser. Whatever goes wrong there, others do not notice."""
        try:
            who = origin_of(stream.socket)
        except OSError:
            who = None
        if who is None or self._peers.are_all() or self._peers.are_all_of(who):
            self._tell_of_many(who)
            await trio.aclose_forcefully(stream)
            return
        with self._peers.place(who), trio.CancelScope() as scope:

            def end_soon() -> None:
                scope.deadline = min(scope.deadline, trio.current_time() + LINGER_SECONDS)

            browser = _Browser(stream, end_soon)
            self._browsers.add(browser)
            try:
                await _Speech(self._app, self._config, self._context, ConnectionState({ORIGIN: who, GONE: trio.Event()}), browser)  # type: ignore[arg-type]
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                pass  # it has gone
            except Exception as error:
                complain(log, "internal error while a page was shown", error)
            finally:
                self._browsers.discard(browser)
                self._is_told = self._is_told and bool(self._browsers)
                browser.cut()
