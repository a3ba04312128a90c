r"""One connection of a ubus, as both who serve and who connect have it: lines come in, lines go out.

The one rule: whoever puts lines here never waits for who is to read them, and what waits is bounded.
"""

import contextlib
import math
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator

import trio

from ..rmi import MAX_CALL, Lines, TooLarge, encode_error

RECEIVE_BYTES = 128 * 1024
"""How much one call takes from a socket: what the bus takes as one piece, and less than the shortest limit of a call."""

MAX_WAITING = 4 * 1024 * 1024
"""Bytes that wait for a client who does not read: as much as a bus keeps for one (its option `max_queue_bytes`)."""

ENTRY = 192
"""What a piece that waits takes in memory beside its bytes."""

GONE_SECONDS = 10.0
"""How long what somebody who has gone has said may still wait to be passed on: if it is a call, whose answer he will not read, or
if others want his place."""

LINGER_SECONDS = 1.0
"""How long who is being disconnected has to take what waits for him: no longer than going down may take."""


class Connection:
    """A connection.

    Args:
        sock: connected; it does not block.
        nursery: where it writes what cannot be written at once.
        limit: bytes of a line.
        most: bytes that may wait to be written.
    """

    def __init__(self, sock: socket.socket, nursery: trio.Nursery, *, limit: int = MAX_CALL, most: int = MAX_WAITING) -> None:
        self.has_ended = False
        """Whether the other side will send nothing more."""
        self.is_dead = False
        """Whether the other side takes nothing more."""
        self.dropped = 0
        """How many lines it has not got, since it read too slowly."""
        self.is_idle = False
        """Whether nothing is lost when it ends now, since nothing was begun."""
        self.patience = math.inf
        """For how many seconds what it has said is still taken when the other side has closed."""
        self.left_at: float | None = None
        """When it was noticed that the other side has closed."""
        self.scope = trio.CancelScope()
        """What is cancelled when nobody is at the other end any more."""
        self._socket = sock
        self._nursery = nursery
        self._lines = Lines(limit)
        self._most = most
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._is_begun = False
        """Whether the first that waits has been written in part."""
        self._is_writing = False
        self._written = trio.Event()

    def fileno(self) -> int:
        """The descriptor; -1 when it is closed."""
        return self._socket.fileno()

    # ------------------------------------------------------------------------------------------ reading

    async def receive(self) -> bytes:
        """What comes next, as it comes. Nothing when the other side has ended, however that came."""
        has_waited = False
        while not self.has_ended:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
                has_waited = True
            except OSError:  # it was killed with something unread
                break
            else:
                if not data:
                    break
                if not has_waited:
                    await trio.lowlevel.checkpoint()
                return data
        self.has_ended = True
        return b""

    async def receive_lines(self) -> bytes:
        r"""The next whole lines, as many as there are, each with its `\n`. Nothing at the end; a line that has no end is lost.

        Raises:
            TooLarge: a line is longer than the limit.
        """
        while data := await self.receive():
            if lines := self._lines.feed(data):
                return lines
        return b""

    def rest(self) -> bytes:
        """Of a line that has no end: what has come."""
        return self._lines.rest()

    # ------------------------------------------------------------------------------------------ writing

    def put(self, lines: bytes, *, drops: bool = False) -> bool:
        """Writes whole lines, or has them written later.

        Args:
            lines: what to write.
            drops: whether the oldest that wait make room if there is none.

        Returns:
            Whether there was room for them.
        """
        if self.is_dead:
            return True
        if self._waiting:
            return self._queue(memoryview(lines), drops)
        try:
            sent = self._socket.send(lines)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.is_dead = True
            return True
        if sent < len(lines):
            self._is_begun = bool(sent)
            self._waiting.append(memoryview(lines)[sent:])
            self._size = len(lines) - sent + ENTRY
            if not self._is_writing:
                self._is_writing = True
                self._nursery.start_soon(self._write)
        return True

    def _queue(self, lines: memoryview, drops: bool) -> bool:
        need = len(lines) + ENTRY
        while self._size + need > self._most and len(self._waiting) > self._is_begun:
            if not drops:
                return False
            # A piece that has been written in part is whole for who reads it only if all of it is.
            oldest = self._waiting[self._is_begun]
            del self._waiting[self._is_begun]
            self._size -= len(oldest) + ENTRY
            self.dropped += bytes(oldest).count(b"\n")
        if self._size + need > self._most and self._waiting:
            if drops:
                self.dropped += bytes(lines).count(b"\n")
            return drops
        self._waiting.append(lines)
        self._size += need
        return True

    async def _write(self) -> None:
        try:
            while self._waiting and not self.is_dead:
                try:
                    await trio.lowlevel.wait_writable(self._socket)
                    sent = self._socket.send(self._waiting[0])
                except BlockingIOError:
                    continue
                except (OSError, trio.ClosedResourceError):
                    self.is_dead = True
                    break
                self._size -= sent
                if sent < len(self._waiting[0]):
                    self._waiting[0] = self._waiting[0][sent:]
                    self._is_begun = True
                else:
                    self._waiting.popleft()
                    self._size -= ENTRY
                    self._is_begun = False
        finally:
            self._is_writing = False
            if self.is_dead:
                self._waiting.clear()
                self._size = 0
            self._written.set()
            self._written = trio.Event()

    async def flush(self) -> None:
        """Waits until all is written, or nobody reads it any more."""
        while self._is_writing:
            await self._written.wait()

    async def send(self, lines: bytes) -> bool:
        """Writes lines, and waits until they are written. Returns whether it had to: if not, nobody else has had a turn."""
        self.put(lines)
        if not self._is_writing:
            return False
        await self.flush()
        return True

    # ------------------------------------------------------------------------------------------ the end

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While this lasts, nothing was begun that would be lost: if the other side closes, that is the end."""
        self.is_idle = True
        try:
            yield
        finally:
            self.is_idle = False

    async def refuse(self, number: int, words: str = "") -> None:
        """Says, as the RMI format does, why the connection ends, and sees that what waits is written if it is read soon."""
        self.put(encode_error(number, words))
        await self.finish()

    async def finish(self) -> None:
        """Ends it: nothing more is sent, and what waits has a moment to be read."""
        with trio.move_on_after(LINGER_SECONDS, shield=True):
            await self.flush()
        self.end_sending()

    def end_sending(self) -> None:
        """Says to the other side that nothing more will come."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes it."""
        self.is_dead = True
        if self._socket.fileno() >= 0:
            # What is unread at the end would make an error of the end for who reads what was sent last.
            with contextlib.suppress(OSError):
                self._socket.recv(RECEIVE_BYTES)
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def closed_of(connections: Iterable[Connection]) -> list[Connection]:
    """Those of which the other side has closed. What they have sent before may still be read."""
    poller = select.poll()
    by_descriptor = {each.fileno(): each for each in connections if each.fileno() >= 0}
    for descriptor in by_descriptor:
        poller.register(descriptor, 0)
    closed = [by_descriptor[descriptor] for descriptor, _ in poller.poll(0)]
    now = time.monotonic()
    for each in closed:
        each.left_at = now if each.left_at is None else each.left_at
    return closed


def gone(connections: Iterable[Connection]) -> list[Connection]:
    """Those of which the other side has closed, and of which nothing is to be read or done any more, or not in time."""
    closed, now = closed_of(connections), time.monotonic()
    return [each for each in closed if each.has_ended or each.is_idle or now - (each.left_at or now) >= each.patience]


__all__ = ["GONE_SECONDS", "LINGER_SECONDS", "MAX_WAITING", "Connection", "TooLarge", "closed_of", "gone"]
