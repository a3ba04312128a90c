"""The bytes of a connection, between nats-py and a socket.

The one rule: what is sent stays where it is until the system has it, and what comes is put where it is wanted. asyncio's streams
copy each byte three times in either direction, which is half the work of whoever sends or reads a stream. Where TLS is spoken,
they do so all the same.
"""

import asyncio
import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import socket
import ssl
import struct
import sys
import termios
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport, Transport
from nats.errors import ProtocolError

LONGEST_LINE = 512 << 10
"""Bytes of a line that a server sends before it is known. In a cluster of many, they name all of them."""

MOST_PIECES = 64
"""How many pieces the system is given at once."""

_CARRIED = struct.Struct("=120x2Q")
"""`tcpi_bytes_acked` and `tcpi_bytes_received` in `struct tcp_info` of Linux: see tcp(7)."""


class Part:
    """A part of a file, from which bytes are sent. It is open until nobody wants them any more.

    Args:
        descriptor: the file's, which is closed then.
        start: where the part begins.
        stop: the byte behind it.

    Raises:
        ValueError: the file does not have it.
        OSError: the system does not let us.
    """

    def __init__(self, descriptor: int, start: int, stop: int) -> None:
        self._descriptor = descriptor
        self._base = start - start % mmap.ALLOCATIONGRANULARITY
        self._map = mmap.mmap(descriptor, stop - self._base, mmap.MAP_SHARED, mmap.PROT_READ, offset=self._base)

    def __del__(self) -> None:
        os.close(self._descriptor)

    def view(self, start: int, size: int) -> memoryview:
        """Bytes of it, for the system alone: to others, a disk that cannot be read is a signal that ends the process."""
        return memoryview(self._map)[start - self._base : start - self._base + size]

    def fill(self, view: memoryview, start: int) -> bool:
        """Copies bytes that begin there. Returns False if the file does not have so many.

        Raises:
            OSError: the disk cannot be read.
        """
        done = 0
        while done < len(view) and (count := os.preadv(self._descriptor, [view[done:]], start + done)):
            done += count
        return done == len(view)


class Extent:
    """Bytes that lie in a file, to be sent from there.

    Args:
        part: of which file.
        start: where in the file they begin.
        size: how many they are.
    """

    __slots__ = ("part", "size", "start")

    def __init__(self, part: Part, start: int, size: int) -> None:
        self.part, self.start, self.size = part, start, size

    def __len__(self) -> int:
        return self.size

    def view(self) -> memoryview:
        """They themselves, for the system: see `Part.view`."""
        return self.part.view(self.start, self.size)

    def read(self) -> bytes:
        """They themselves, copied.

        Raises:
            OSError: the disk cannot be read, or the file does not have them any more.
        """
        data = bytearray(self.size)
        if not self.part.fill(memoryview(data), self.start):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(data)


def _readable(error: OSError) -> OSError:
    """Of a map that cannot be read the system says that its address is wrong."""
    return OSError(errno.EIO, os.strerror(errno.EIO)) if error.errno == errno.EFAULT else error


Payload = bytes | Extent
"""What a message has."""


class Direct(Transport):
    """A connection over TCP, as nats-py wants it, and `receive`."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._streams: TcpTransport | None = None
        """What it is over, when TLS is spoken."""
        self._ahead = b""
        """What came behind a line."""
        self._arriving: asyncio.Future[None] | None = None
        """Done when more has come, or will not come."""
        self._unsent: deque[memoryview] = deque()
        self._waiting = 0
        """Bytes of these."""
        self._is_sent = asyncio.Event()
        self._is_sent.set()
        self._error: OSError | None = None
        """Why nothing more can be sent."""
        self._is_over = False

    def __bool__(self) -> bool:
        return True  # nats-py makes one of its own otherwise

    # ------------------------------------------------------------------------------------------ connecting

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: float) -> None:
        """Connects to the first address of a name that answers.

        Raises:
            TimeoutError: none does in time.
            OSError: none can be connected to.
        """
        async with asyncio.timeout(connect_timeout):
            self._socket = await _connected(uri.hostname, uri.port)

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: float
    ) -> None:
        """Speaks TLS from now on. What has come before that, and was not asked for, is nobody's.

        Args:
            uri: the name that the certificate is to have.
            ssl_context: as it is spoken.
            buffer_size: how much is kept of what comes.
            connect_timeout: seconds that it may take.

        Raises:
            TimeoutError: it takes longer.
            OSError: it fails.
        """
        plain, self._socket, self._ahead = self._plain, None, b""
        streams = self._streams = TcpTransport()  # type: ignore[no-untyped-call]
        streams._bare_io_reader, streams._bare_io_writer = await asyncio.open_connection(sock=plain, limit=buffer_size)
        streams._io_reader, streams._io_writer = streams._bare_io_reader, streams._bare_io_writer
        await streams.connect_tls(uri, ssl_context, buffer_size, connect_timeout)  # type: ignore[arg-type] # of which it makes nothing

    @property
    def _plain(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return self._socket

    # ------------------------------------------------------------------------------------------ what comes

    async def receive(self, into: memoryview) -> int:
        """Waits for what comes, and puts it there. Returns how many bytes that were; 0 if nothing more comes.

        Raises:
            OSError: the connection has failed.
        """
        if self._streams is not None or self._ahead:
            data = self._ahead[: len(into)]
            if data:
                self._ahead = self._ahead[len(data) :]
            elif self._streams is not None:
                data = await self._streams.read(len(into))
            into[: len(data)] = data
            count = len(data)
        else:
            count = await self._receive(into)
        self._is_over |= not count
        return count

    async def _receive(self, into: memoryview) -> int:
        loop = asyncio.get_running_loop()
        has_waited = False
        while (plain := self._socket) is not None:
            try:
                count = plain.recv_into(into)
            except BlockingIOError:
                has_waited = True
                self._arriving = loop.create_future()
                loop.add_reader(plain.fileno(), _settle, self._arriving)
                try:
                    await self._arriving
                finally:
                    if self._socket is plain:
                        loop.remove_reader(plain.fileno())
            else:
                if not has_waited:
                    await asyncio.sleep(0)  # others are served also while there is always more
                return count
        return 0

    async def read(self, buffer_size: int) -> bytes:
        """As `receive`, up to so many bytes."""
        data = bytearray(buffer_size)
        return bytes(data[: await self.receive(memoryview(data))])

    async def readline(self) -> bytes:
        """Waits for a line. One without an end is the last."""
        if self._streams is not None:
            return bytes(await self._streams.readline())  # type: ignore[no-untyped-call]
        line = b""
        while b"\n" not in line and (more := await self.read(LONGEST_LINE)):
            line += more
            if len(line) > LONGEST_LINE:
                raise ProtocolError
        line, end, self._ahead = line.partition(b"\n")
        return line + end

    def at_eof(self) -> bool:
        """Whether nothing more comes."""
        return self._is_over

    # ------------------------------------------------------------------------------------------ what is sent

    def write(self, payload: bytes) -> None:
        """Sends, soon."""
        self.writelines([payload])

    def writelines(self, payload: Iterable[Payload]) -> None:
        """Sends all of that, soon. It must not change until it is sent.

        Raises:
            OSError: nothing more can be sent.
        """
        if self._streams is not None:
            # What cannot be read is found out before any of it is sent.
            for data in [piece.read() if isinstance(piece, Extent) else piece for piece in payload]:
                self._streams.write(data)  # type: ignore[no-untyped-call]
            return
        if self._error is not None:
            raise self._error
        for piece in payload:
            if len(piece):
                self._unsent.append(piece.view() if isinstance(piece, Extent) else memoryview(piece))
                self._waiting += len(piece)
        if self._is_sent.is_set():
            self._send()

    @property
    def unsent(self) -> int:
        """How many bytes the system does not have yet."""
        if self._streams is None:
            return self._waiting
        # What is to be encrypted, and what is encrypted: nobody counts both.
        writers = {self._streams._io_writer, self._streams._bare_io_writer}
        return sum(int(writer.transport.get_write_buffer_size()) for writer in writers if writer is not None)

    @property
    def _its_socket(self) -> socket.socket | None:
        writer = self._streams._io_writer if self._streams is not None else None
        return self._socket if writer is None else writer.get_extra_info("socket")

    @property
    def under_way(self) -> int:
        """How many bytes the other system does not have yet."""
        left = 0
        if (one := self._its_socket) is not None and one.fileno() >= 0:
            with contextlib.suppress(OSError):
                left = int.from_bytes(fcntl.ioctl(one.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)  # SIOCOUTQ of tcp(7)
        return self.unsent + left

    def carried(self) -> tuple[int, int]:
        """How many bytes the other system has got, and how many have come, as the system counts: with what TLS adds to them.

        Returns:
            Zeros, if the connection is over.
        """
        if (one := self._its_socket) is not None:
            with contextlib.suppress(OSError):
                told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _CARRIED.size)
                if len(told) == _CARRIED.size:
                    acknowledged, came = _CARRIED.unpack(told)
                    return acknowledged, came
        return 0, 0

    def _send(self) -> None:
        """Gives the system what it takes. It is asked again when it takes more."""
        plain = self._plain
        loop = asyncio.get_running_loop()
        try:
            while self._unsent:
                self._send_some(plain)
        except BlockingIOError:
            if self._is_sent.is_set():
                self._is_sent.clear()
                loop.add_writer(plain.fileno(), self._send)
            return
        except OSError as error:
            self._fail(_readable(error))
            with contextlib.suppress(OSError):  # in the midst of a message nothing else may follow
                plain.shutdown(socket.SHUT_RDWR)
        if not self._is_sent.is_set():
            loop.remove_writer(plain.fileno())
            self._is_sent.set()

    def _fail(self, error: OSError) -> None:
        """Lets go what is not sent, if that is anything: nothing can be sent any more."""
        if self._unsent:
            self._error = self._error or error
            self._unsent.clear()
            self._waiting = 0

    def _send_some(self, plain: socket.socket) -> None:
        pieces = list(itertools.islice(self._unsent, MOST_PIECES))
        count = plain.sendmsg(pieces)
        self._waiting -= count
        for piece in pieces:
            self._unsent.popleft()
            if count < len(piece):
                self._unsent.appendleft(piece[count:])
                return
            count -= len(piece)

    async def drain(self) -> None:
        """Waits until the system has all that was sent.

        Raises:
            OSError: it does not take it.
        """
        if self._streams is not None:
            await self._streams.drain()  # type: ignore[no-untyped-call]
            return
        await self._is_sent.wait()
        if self._error is not None:
            raise self._error

    # ------------------------------------------------------------------------------------------ the end

    def close(self) -> None:
        """Ends it. What is not sent yet is not sent."""
        self._is_over = True
        if self._streams is not None:
            self._streams.close()  # type: ignore[no-untyped-call]
        if self._socket is not None:
            plain, self._socket = self._socket, None
            loop = asyncio.get_running_loop()
            loop.remove_reader(plain.fileno())
            loop.remove_writer(plain.fileno())
            self._fail(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            self._is_sent.set()
            if self._arriving is not None:
                _settle(self._arriving)
            plain.close()

    async def wait_closed(self) -> None:
        """Waits until it has ended."""
        if self._streams is not None:
            await self._streams.wait_closed()  # type: ignore[no-untyped-call]

    def abort(self) -> None:
        """Ends it without a word, whatever the other side does."""
        if self._streams is not None:
            # Before it is closed, and what is beneath TLS too: a transport that is closed twice has forgotten that.
            for writer in (self._streams._io_writer, self._streams._bare_io_writer):
                if writer is not None:
                    writer.transport.abort()
        self.close()


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _connected(host: str | None, port: int | None) -> socket.socket:
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    try:
        found = _literally(host, port) or await _resolved(host, port)
    except UnicodeError:  # no name can be so
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    for family, kind, protocol, _, address in found:
        try:
            made = socket.socket(family, kind, protocol)
        except OSError as error:  # a system without the sixth version of addresses
            failed = failed or error
            continue
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(made, address)
        except OSError as error:
            made.close()
            failed = failed or error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failed or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


_lookups: dict[tuple[str | None, int | None], Future[list[Any]]] = {}
"""Names that are just being looked up."""


async def _resolved(host: str | None, port: int | None) -> list[Any]:
    """What `getaddrinfo` finds. Nothing ends that call, so it is in a thread for which a process does not wait when it ends.

    Who asks again while it runs waits for the same one: threads do not become more and more.
    """
    where = (host, port)
    found = _lookups.get(where)
    if found is None:
        made = found = _lookups[where] = Future()
        made.set_running_or_notify_cancel()  # whoever gives up, others may wait for it

        def look() -> None:
            try:
                made.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            except Exception as error:
                made.set_exception(error)

        made.add_done_callback(lambda _: _lookups.pop(where, None))
        try:
            threading.Thread(target=look, name="resolver", daemon=True).start()
        except RuntimeError as error:  # the system has no thread for us
            made.set_exception(OSError(errno.EAGAIN, str(error)))
    return await asyncio.wrap_future(found)


def _literally(host: str | None, port: int | None) -> list[Any]:
    """What is an address already, as `getaddrinfo` would have it, which needs a thread."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host or "")
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    return []
