"""A connection to one of several servers of NATS, made with nats-py, of which client.py overrides some methods.

The one rule: a connection that has failed is not mended. It is closed, and who wants another one connects again, to the next
server in turn: what became of what the old one was given is known by the confirmations alone. So nats-py neither reconnects here
nor keeps what it cannot send.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import nats.errors

from ..host import logs
from .access import Access
from .address import Server, read_servers, shown
from .client import DISCOVERED, Client
from .errors import Away, Denied, NatsError

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds within which a server must answer."""

PING_SECONDS = 5.0
"""How often a server is asked whether it is there, when nothing else is said. The third time without an answer it is given up."""

CLOSE_SECONDS = 0.5
"""How long a connection has to be closed in an orderly way. One whose server hangs never would be."""

PENDING_BYTES = 64 << 10
"""What the system may not have yet when publish() returns."""

Handler = Callable[[Mapping[str, str] | None, bytes], object]


class Connection:
    """One connection, made by `connect`.

    Args:
        server: to whom.
        client: it, as nats-py has it.
    """

    def __init__(self, server: Server, client: Client) -> None:
        self.server = server
        self.client = client
        self.is_closed = asyncio.Event()
        """That it is of no use any more. `give_up` sets it."""
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The same, for who waits for something else, too, with each message."""
        self.why = _CLOSED
        """Why that is."""
        self.kind: type[Away] = Away
        """And of which kind."""
        self._spared: dict[str, asyncio.Future[None]] = {}
        """Subjects that it does not matter to be denied now, and what is done when that is so."""
        self.denied = ""
        """What the server has said that it does not let us do, in its own words."""

    @property
    def max_payload(self) -> int:
        """Bytes that a message may have, headers included."""
        return int(self.client.max_payload)

    async def failed(self, error: Exception) -> None:
        """Is told by nats-py what goes wrong."""
        words = str(error).removeprefix("nats: ")
        if not isinstance(error, nats.errors.Error | OSError):
            logs.tell_error(log, lambda: "internal error", error)
        if self.is_closed.is_set():
            return
        is_denied = "permissions violation" in words.lower()
        for subject, denied in self._spared.items():
            if is_denied and f'"{subject}"' in words.lower():
                if not denied.done():
                    denied.set_result(None)
                return
        self.why = _words(error)
        if is_denied:
            self.denied = _OWN.sub(lambda own: f"{own[1].upper()}.>", words)
            self.give_up()

    async def ended(self) -> None:
        """Is told by nats-py that it is over."""
        if self.why == _CLOSED and self.client.last_error:
            self.why = _words(self.client.last_error)
        self.give_up()

    def give_up(self, why: str = "", kind: type[Away] = Away) -> None:
        """It is of no use any more. The first reason counts: others follow from it.

        Args:
            why: the reason, if it has not been told.
            kind: of which kind `lost` is.
        """
        if why and not self.is_closed.is_set():
            self.why, self.kind = why, kind
        self.is_closed.set()
        if not self._over.done():
            self._over.set_result(None)

    async def subscribe(self, subject: str, handle: Handler, ready: Callable[[], Awaitable[object]]) -> None:
        """Has each message on a subject handled.

        Args:
            subject: on which.
            handle: is given its headers and the rest. It takes no time, and the next comes when it has returned.
            ready: waits until there is place for a message. It must not take long: confirmations wait meanwhile too.

        Raises:
            Denied: the server does not let us.
            Away: it does not answer.
        """

        def take(subject: bytes, reply: bytes, headers: dict[str, str], data: bytes) -> None:
            handle(headers, data)

        self.client.ready = ready
        with self._sorted():
            await self.client.listen(subject, take)
        await self.settle()
        await self.confirm()
        if self.denied:
            raise Denied(f"{self.server.shown} does not let us listen to {subject}")

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        """Sends a message. If it is not a short one, the system has it when this returns.

        Raises:
            Away: the connection has failed.
        """
        with self._sorted():
            await self.client.publish(subject, payload, headers=headers)

    async def settle(self) -> None:
        """Waits until the system has all that was published.

        Raises:
            Away: that takes too long, or the connection has failed.
        """
        with self._sorted():
            await self.client.patiently(self.client.sent(), PATIENCE)

    async def confirm(self) -> None:
        """Waits until the server has got all that the system had when this was called: see `settle`.

        Raises:
            Away: the connection has failed, or it does not answer.
        """
        with self._sorted():
            await self.client.flush(PATIENCE)

    async def while_open(self, work: Awaitable[T]) -> T:
        """Does something as long as the connection is of use. nats-py would wait for an answer that cannot come any more.

        Raises:
            Away: the connection has failed meanwhile. Whether the work was done nobody knows.
            Denied: the server does not let us.
        """
        doing: asyncio.Future[T] = asyncio.ensure_future(work)
        if await _is_done_before(doing, self._over):
            return doing.result()
        raise self.lost()

    async def unless_denied(self, subject: str, work: Awaitable[T]) -> T | None:
        """Does something that it does not matter to be denied. Returns None then.

        Args:
            subject: where it publishes.
            work: it.
        """
        denied = self._spared[subject.lower()] = asyncio.get_running_loop().create_future()
        try:
            doing: asyncio.Future[T] = asyncio.ensure_future(work)
            return doing.result() if await _is_done_before(doing, denied) else None
        finally:
            del self._spared[subject.lower()]

    def lost(self) -> NatsError:
        """What has made it useless, to be raised."""
        if self.denied:
            return Denied(f"{self.server.shown} does not let us: {self.denied}")
        return self.kind(f"{self.server.shown}: {self.why}")

    @contextlib.contextmanager
    def _sorted(self) -> Iterator[None]:
        try:
            yield
        except (nats.errors.TimeoutError, TimeoutError):
            raise Away(f"{self.server.shown} does not answer") from None
        except (nats.errors.Error, OSError) as error:
            raise Away(f"{self.server.shown}: {self.why if self.is_closed.is_set() else _words(error)}") from None

    async def close(self) -> None:
        """Closes it, in an orderly way if that can be had soon, and otherwise all the same."""
        for what in (self.client.sent, self.client.close):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await what()
        await self.client.leave()
        self.give_up()


class Servers:
    """The servers that have a subject. They are tried one after the other, again and again.

    Args:
        named: those that somebody has named.
        access: what is shown to them.
        name: what they call us, where they are watched.
    """

    def __init__(self, named: tuple[Server, ...], access: Access, name: str) -> None:
        self.shown = shown(named)
        self._all = list(named)
        self._access = access
        self._name = name
        self._last: Connection | None = None
        self._secret = next((server for server in named if server.user is not None), None)

    async def connect(self) -> Connection:
        """Connects to the first that answers, and to the one that was connected to last if no other does.

        Raises:
            Denied: one has answered that it does not know us, or is not whom it says it is, and none has let us in.
            Away: none answers.
            NatsError: what is to be shown to them cannot be read.
        """
        if self._last:
            self._remember(self._last)
        errors: list[NatsError] = []
        for server in list(self._all):
            try:
                connection = await self._connect_to(server)
            except (Away, Denied) as error:
                errors.append(error)
                self._all.append(self._all.pop(0))  # it is the last to be tried again
            else:
                self._last = connection
                self._all.append(self._all.pop(0))
                return connection
        raise next((error for error in errors if isinstance(error, Denied)), errors[0])

    async def _connect_to(self, server: Server) -> Connection:
        client = Client()
        client.wants_tls = server.scheme == "tls"
        connection = Connection(server, client)
        try:
            await client.connect(
                # Who one is goes beside it: nats-py takes a URL apart, but for what is escaped in it.
                f"nats://{server.place}",
                name=self._name,
                no_echo=True,
                error_cb=connection.failed,
                closed_cb=connection.ended,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=PATIENCE,  # type: ignore[arg-type]
                ping_interval=PING_SECONDS,  # type: ignore[arg-type]
                pending_size=PENDING_BYTES,
                tls=self._access.tls(),
                tls_hostname=server.tls_name or server.host,
                tls_handshake_first=self._access.tls_first,
                **self._access.shown_to(server if server.user is not None else self._secret),
            )
        except NatsError:
            raise
        except asyncio.CancelledError:
            await client.leave()
            raise
        except Exception as error:
            # That none is left to be tried says nothing of why.
            why = connection.why if isinstance(error, nats.errors.NoServersError) else _words(error)
            await connection.close()
            raise (Denied if _is_denial(why) else Away)(f"{server.shown}: {why}") from None
        # Who answers with something else than that it is ready leaves nats-py waiting for that, and saying nothing.
        if not client.is_connected or type(client.max_payload) is not int or client.max_payload <= 0:
            await connection.close()
            raise Away(f"{server.shown}: {_NO_NATS}")
        return connection

    def _remember(self, connection: Connection) -> None:
        """Notes which other servers the cluster has, as a connection was told at any time."""
        known = {(server.host, server.port) for server in self._all}
        for url in connection.client.discovered_servers:
            with contextlib.suppress(ValueError):
                for server in read_servers(f"{connection.server.scheme}://{url.netloc.rpartition('@')[2]}"):
                    if (server.host, server.port) not in known and len(self._all) < DISCOVERED:
                        # Those that are told by their addresses have the name of all in their certificates.
                        name = (connection.server.tls_name or connection.server.host) if _is_address(server.host) else None
                        self._all.append(server._replace(tls_name=name))


def _is_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return False


_OWN = re.compile(r'(\$js\.ack|_inbox)\.[^"]*')
"""What is another subject each time, and all of a kind. nats-py gives it in small letters."""

_CLOSED = "the connection was closed"
_NO_NATS = "it does not speak NATS as it should"
_NO_TLS = "it does not speak TLS"
_UNKNOWN = "it does not let us in: wrong user, password, token, credentials or key, or none"
_EXPIRED = "it does not let us in any more: credentials have expired, or were revoked"
_UNTRUSTED = "it is not to be trusted: {}"


def _is_denial(words: str) -> bool:
    """Whether this is said of a server that is there, and of no use."""
    return words in (_NO_TLS, _UNKNOWN, _EXPIRED) or words.startswith(_UNTRUSTED.format(""))


def _words(error: BaseException) -> str:
    """What has gone wrong with a connection."""
    words = str(error).removeprefix("nats: ").strip("'")
    lower = words.lower()
    if "no tls" in lower:
        return _NO_TLS
    if re.search("authentication (expired|revoked)", lower):
        return _EXPIRED
    if re.search("authorization (violation|failed)|authentication", lower):
        return _UNKNOWN
    if isinstance(error, ssl.SSLCertVerificationError):
        return _UNTRUSTED.format(error.verify_message)
    if isinstance(error, ssl.SSLError):
        return "TLS: " + re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", str(error))
    if isinstance(error, nats.errors.UnexpectedEOF | asyncio.IncompleteReadError):
        return "it has closed the connection"
    if isinstance(error, nats.errors.StaleConnectionError | TimeoutError):
        return "it does not answer"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "it has closed the connection"
    if isinstance(error, OSError):
        # asyncio has its own words for errors of the system, with all addresses of a name in them.
        number = re.search(r"\[Errno (\d+)\]", words)
        return os.strerror(int(number[1])) if number else error.strerror or words
    # What a library makes of nonsense is no error of NATS.
    if isinstance(error, nats.errors.ProtocolError) or not isinstance(error, nats.errors.Error):
        return _NO_NATS
    return words or type(error).__name__


async def _is_done_before(doing: "asyncio.Future[T]", other: "asyncio.Future[None]") -> bool:
    """Waits for something, or another thing. Returns whether the first is done; if not, it is cancelled."""
    both: list[asyncio.Future[Any]] = [doing, other]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return doing.done()
    finally:
        if not doing.done():
            doing.cancel()
            await asyncio.wait([doing])
            if not doing.cancelled():
                doing.exception()  # nobody wants to know any more
