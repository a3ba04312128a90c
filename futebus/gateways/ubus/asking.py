"""Methods and rest buses: each connection is a slave of an S channel, whose master answers.

The one rule: each request is followed by one line, in the order in which they were sent: the answer, or an error in its place.
"""

import errno
import re
from pathlib import Path

import trio

from ...client.awaiting import Slave
from ...client.errors import ClientError, Ended, NoBus, NoMaster
from ...client.trio import connect
from ...core.lines import end
from ..apart import Far, Side
from ..rmi import TooLarge, encode_error
from .connection import GONE_SECONDS, Connection
from .telling import overflow

MAX_ASKED = 1024
"""Requests of one connection that wait for their answers, beyond which no more are read from it. With what is read at once the
answers are fewer than a bus keeps for one client (its option `max_queue`), of which it would drop the oldest."""

AGAIN_SECONDS = 0.1
"""Before a connection looks for a new master: one that does not read would be found again and again."""

BIG_BLOCK = 256 * 1024
"""Bytes of answers at once: when so many wait, the bus may have had to drop some."""

Asked = Far[Slave[bytes]]

_LOST = (Ended, NoBus, NoMaster)
_EMPTY = re.compile(rb"^\n+", re.MULTILINE)


class Methods:
    """The connections of a method.

    Args:
        there: the loop of the bus.
        channel: the S channel.
        wait: how many seconds to wait for its master. If that is for ever, connections outlive it.
    """

    def __init__(self, there: Side, channel: Path, wait: float) -> None:
        self._there = there
        self._channel = channel
        self._wait = wait

    async def handle(self, connection: Connection) -> None:
        """Serves a connection."""
        connection.patience = GONE_SECONDS
        slave = Far(self._there, connect(self._channel, bytes, wait=self._wait))
        asking = Asking(connection)
        try:
            while True:
                try:
                    with connection.waiting():
                        await slave.open()
                except ClientError as error:
                    await connection.refuse(error.errno or errno.EIO, str(error))
                    return
                lost = await asking.relay(slave)
                if lost is None:
                    await connection.finish()
                    return
                if not (isinstance(lost, _LOST) and self._wait):
                    await connection.refuse(overflow(lost), str(lost))
                    return
                await asking.give_up(lost)
                if asking.is_over:
                    await connection.finish()
                    return
                await trio.sleep(AGAIN_SECONDS)
        finally:
            slave.close()


class Asking:
    """What is asked by one connection.

    Args:
        connection: whose requests are answered.
        unsent: what has been read of them.
    """

    def __init__(self, connection: Connection, unsent: bytes = b"") -> None:
        self._connection = connection
        self._asked = 0
        """Requests that have not been answered."""
        self._unsent = unsent
        """Requests that have not been passed on."""
        self._too_large: TooLarge | None = None
        """What has come behind them, and is no request."""
        self._answered = trio.Event()
        self._lost: ClientError | None = None

    @property
    def is_over(self) -> bool:
        """Whether the other side asks nothing more, and nothing of what it has asked waits to be passed on or answered."""
        return self._connection.has_ended and not (self._asked or self._unsent or self._too_large)

    async def relay(self, slave: Asked) -> ClientError | None:
        """Passes on requests and answers.

        Args:
            slave: open.

        Returns:
            None when all have been answered and no more will come; otherwise what has come between.

        Raises:
            TooLarge: a request is too long.
        """
        self._lost = None
        too_large: TooLarge | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer, slave, nursery.cancel_scope)
            try:
                await self._request(slave)
            except TooLarge as error:
                too_large = error
            except ClientError as error:
                if not isinstance(error, _LOST):
                    await self._until(1)  # what was asked before is answered before
                self._lost = self._lost or error
            nursery.cancel_scope.cancel()
        if too_large:
            raise too_large
        return self._lost

    async def give_up(self, why: ClientError) -> None:
        """Answers with an error what nobody will answer any more, so that what is answered later is taken for nothing else."""
        asked, self._asked = self._asked, 0
        await self._connection.send(encode_error(why.errno or errno.EIO, str(why)) * asked)

    async def _request(self, slave: Asked) -> None:
        while True:
            if not self._unsent and not self._too_large:
                try:
                    self._unsent = await self._connection.receive_lines()
                except TooLarge as error:  # what was asked before is answered before, also by another master
                    self._too_large = error
                    self._connection.has_ended = True
            if not self._unsent:
                break
            lines = self._unsent
            empty = _EMPTY.search(lines)
            if empty is None:
                await self._pass_on(slave, lines)
            elif empty.start():
                await self._pass_on(slave, lines[: empty.start()])
            else:
                # A bus has no empty messages. They are calls all the same, and have their place among the answers.
                await self._until(1)
                self._unsent = lines[empty.end() :]
                await self._connection.send(encode_error(errno.EINVAL, "an empty call") * empty.end())
        await self._until(1)
        if self._too_large:
            raise self._too_large

    async def _pass_on(self, slave: Asked, lines: bytes) -> None:
        await self._until(MAX_ASKED)
        count = lines.count(b"\n")
        if count > MAX_ASKED - self._asked:
            count = MAX_ASKED - self._asked
            lines = lines[: end(lines, 0, count)]
        self._asked += count
        accepted = 0
        try:
            accepted = await slave.send_block(lines)
        except BaseException:
            accepted = slave.accepted
            raise
        finally:
            self._asked -= count - accepted
            self._unsent = self._unsent[end(lines, 0, accepted) if accepted < count else len(lines) :]

    async def _until(self, fewer: int) -> None:
        """Waits until fewer requests wait for their answers."""
        while self._asked >= fewer:
            await self._answered.wait()

    async def _answer(self, slave: Asked, ends: trio.CancelScope) -> None:
        try:
            while True:
                lines = await slave.read_block()
                # These are answered, whatever comes between: they are the next that the client gets.
                self._asked = max(self._asked - lines.count(b"\n"), 0)
                # While it waits here, answers wait in the bus.
                is_late = await self._connection.send(lines) or len(lines) >= BIG_BLOCK
                if is_late and (await slave.inquire()).dropped:
                    raise ClientError(errno.EOVERFLOW, "answers were not read in time, and are lost")
                if self._asked < MAX_ASKED:
                    self._answered.set()
                    self._answered = trio.Event()
        except ClientError as error:
            self._lost = error
            ends.cancel()


class Rests:
    """The connections of a rest bus: a request up to its end, the response, the end.

    Args:
        there: the loop of the bus.
        channel: the S channel.
        wait: how many seconds to wait for its master.
        max_request: bytes of a request.
        empty: what the service is asked by an empty request; None: nothing, and the response is empty too.
    """

    def __init__(self, there: Side, channel: Path, wait: float, max_request: int, empty: str | None) -> None:
        self._there = there
        self._channel = channel
        self._wait = wait
        self._max_request = max_request
        self._empty = b"" if empty is None else empty.encode("utf-8", "surrogateescape") + b"\n"

    async def handle(self, connection: Connection) -> None:
        """Serves a connection."""
        request = await self._request(connection) or self._empty
        if request and not request.endswith(b"\n"):
            request += b"\n"
        if request:
            slave = Far(self._there, connect(self._channel, bytes, wait=self._wait))
            try:
                with connection.waiting():
                    await slave.open()
                lost = await Asking(connection, request).relay(slave)
            except ClientError as error:
                lost = error
            finally:
                slave.close()
            if lost:  # it may have been done or not, so it is not asked again
                await connection.refuse(overflow(lost), str(lost))
                return
        await connection.finish()

    async def _request(self, connection: Connection) -> bytes:
        request = bytearray()
        while data := await connection.receive():
            request += data
            if len(request) > self._max_request:
                raise TooLarge(f"a request of more than {self._max_request} bytes")
        return bytes(request)
