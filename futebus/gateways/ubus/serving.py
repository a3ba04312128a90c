"""A ubus that is served: who connects, how many, and until when.

The one rule: each connection has its own task, and what goes wrong with one ends that one.
"""

import contextlib
import errno
import math
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import trio

from ...client.errors import ClientError
from ...core.text import counted
from ..life import Life
from ..rmi import MAX_CALL, TooLarge, encode_error
from .connection import GONE_SECONDS, LINGER_SECONDS, MAX_WAITING, Connection, closed_of, gone
from .places import Place

MAX_CLIENTS = 1024
"""Connections of one ubus. A method's has a client of the bus as well, of which a user has 4096 by default."""

MAX_CLIENTS_PER_USER = 256
"""Of one user, if the socket's permissions let others in than root and who serves: a user alone cannot keep others out."""

ACCEPTED_AT_ONCE = 64
"""Connections that are accepted before others have their turn."""

SWEEP_SECONDS = 1.0
"""How often it is looked who has gone without a word: who had ended what he sends, and then closed."""

FULL_PAUSE = 0.1
"""Seconds until it is tried again to accept, when there are too many open files."""

_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_UCRED = struct.Struct("=iII")
"""struct ucred of unix(7): process, user, group."""

Handle = Callable[[Connection], Awaitable[object]]


def user_of(connected: socket.socket) -> int:
    """Who was at the other end when it connected."""
    _, user, _ = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(user)


class Serving:
    """Accepts connections at a place.

    Args:
        place: where; it is open.
        handle: what is done with a connection. It ends when this returns.
        nursery: where all of it runs.
        life: whom to tell.
        greet: is called when somebody connects, before anything else is done with him.
        ended: is called when a connection has ended, but not when all do.
        max_clients: how many there may be.
        max_clients_per_user: how many of them a user may have, other than root and who serves.
        max_call: bytes of a line.
        max_waiting: bytes that may wait for one.
    """

    def __init__(
        self,
        place: Place,
        handle: Handle,
        nursery: trio.Nursery,
        life: Life,
        *,
        greet: Callable[[Connection], object] = lambda connection: None,
        ended: Handle | None = None,
        max_clients: int = MAX_CLIENTS,
        max_clients_per_user: int = MAX_CLIENTS_PER_USER,
        max_call: int = MAX_CALL,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._place = place
        self._handle = handle
        self._nursery = nursery
        self._life = life
        self._greet = greet
        self._ended = ended
        self._max_clients = max_clients
        self._max_clients_per_user = max_clients_per_user
        self._max_call = max_call
        self._max_waiting = max_waiting
        self._connections: dict[Connection, int] = {}
        """And whose they are."""
        self._per_user: Counter[int] = Counter()
        self._unbound = {0, os.getuid()}
        self._refused = False
        self._has_left = trio.Event()
        self._has_made_way = False
        """Whether it is said that somebody has had to."""

    def put(self, lines: bytes) -> None:
        """Says lines to all who have connected until now. Of what waits for one who does not read, the oldest goes."""
        with contextlib.suppress(OSError):  # which is told elsewhere
            self.accept_nowait(socket.SOMAXCONN)  # the queue has no more
        for connection in self._connections:
            before = connection.dropped
            connection.put(lines, drops=True)
            if connection.dropped and not before:
                self._life.say(f"{self._place.path}: a client reads too slowly, and loses lines")

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._connections))

    async def run(self) -> None:
        """Accepts until it is cancelled."""
        self._nursery.start_soon(self._sweep)
        said = False
        while True:
            await trio.lowlevel.wait_readable(self._place.socket)
            try:
                self.accept_nowait()
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                if not said:
                    self._life.warn(f"{self._place.path}: nobody can connect now: {error.strerror}")
                said = True
                await trio.sleep(FULL_PAUSE)
            else:
                said = False

    def accept_nowait(self, most: int = ACCEPTED_AT_ONCE) -> None:
        """Accepts those who have connected.

        Args:
            most: how many.

        Raises:
            OSError: nobody can be accepted now.
        """
        try:
            for _ in range(most):
                sock, _address = self._place.socket.accept()
                sock.setblocking(False)
                self._take(Connection(sock, self._nursery, limit=self._max_call, most=self._max_waiting), user_of(sock))
        except (BlockingIOError, ConnectionAbortedError):
            pass

    def _take(self, connection: Connection, user: int) -> None:
        has_many = self._has_many(user)
        if (has_many or len(self._connections) >= self._max_clients) and self._make_way(user if has_many else None):
            has_many = self._has_many(user)
        if len(self._connections) < self._max_clients and not has_many:
            self._refused = False
            self._connections[connection] = user
            self._per_user[user] += 1
            self._greet(connection)
            self._nursery.start_soon(self._run, connection)
            return
        if not self._refused:
            self._refused = True
            if has_many:
                why = f"user {user} has {self._max_clients_per_user} clients (--max-clients-per-user)"
            else:
                why = f"there are {self._max_clients} clients (--max-clients)"
            self._life.warn(f"{self._place.path}: who connects is refused: {why}")
        connection.put(b"\a%d\ttoo many clients\n" % errno.EUSERS)
        connection.close()

    async def give_up(self, error: ClientError) -> None:
        """Ends all connections, since nobody answers any more: those that notice it themselves first, the others are told.

        Args:
            error: why.
        """
        with trio.move_on_after(LINGER_SECONDS):
            while self._connections:
                self._has_left = trio.Event()
                await self._has_left.wait()
        left = tuple(self._connections)
        for connection in left:
            connection.put(encode_error(error.errno or errno.EIO, str(error)))
        with trio.move_on_after(LINGER_SECONDS):
            for connection in left:
                await connection.flush()

    def _has_many(self, user: int) -> bool:
        return user not in self._unbound and self._per_user[user] >= self._max_clients_per_user

    def _make_way(self, user: int | None) -> bool:
        """Ends one who has closed long ago, the first, and of whom something still waits to be passed on.

        Args:
            user: whose it must be; None: anybody's.

        Returns:
            Whether there was one.
        """
        his = [each for each in self._connections if user is None or self._connections[each] == user]
        first = min(closed_of(his), key=lambda each: each.left_at or math.inf, default=None)
        if first is None or time.monotonic() - (first.left_at or math.inf) < GONE_SECONDS:
            return False
        if not self._has_made_way:
            self._has_made_way = True
            self._life.warn(f"{self._place.path}: what clients said who have closed is given up: others want their places")
        first.scope.cancel()
        self._leave(first)
        return True

    def _leave(self, connection: Connection) -> None:
        """A connection has no place any more."""
        user = self._connections.pop(connection, None)
        if user is not None:
            self._per_user[user] -= 1
            if not self._per_user[user]:
                del self._per_user[user]
            self._has_left.set()

    async def _run(self, connection: Connection) -> None:
        try:
            with connection.scope:
                try:
                    await self._handle(connection)
                except TooLarge as error:
                    self._life.say(f"{self._place.path}: somebody is disconnected: {error}")
                    await connection.refuse(error.number, str(error))
        finally:
            self._leave(connection)
            connection.close()
            if connection.dropped:
                lost = counted(connection.dropped, "line", ",")
                self._life.say(f"{self._place.path}: a client that read too slowly has lost {lost}")
        if self._ended:
            await self._ended(connection)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            for connection in gone(self._connections):
                connection.scope.cancel()
