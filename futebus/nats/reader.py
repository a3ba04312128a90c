"""A stream for who calls and waits: the executors of Spark, and what asks how far there are any messages.

The one rule: what was given is known by the number of the next message alone. So whatever fails, a connection, a server, what a
server knows of its reader, it is made anew and goes on there: nothing is given twice, and nothing is left out that is there.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from .access import Access
from .address import Server
from .connection import Servers
from .errors import Away, MadeAnew
from .fetching import ASKED_BYTES, Fetched, Pull
from .missing import Missing
from .pace import Pace
from .state import State
from .stream import Stream

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds for which one goes on trying: servers are started again, and clusters choose new leaders, in less."""

PAUSES = (0.05, 1.0)
"""Seconds between two tries, at first and at most: twice as long each time."""


class Reader:
    """A stream, for who calls and waits. What may pass is waited for.

    Args:
        servers: that have it.
        access: what is shown to them.
        stream: its name.
        who: what servers call us, where they are watched.
        patience: seconds for which they may be away.
        say: is told when they are away, and when one is back.
        created: when the stream was made whose messages are wanted; "": whichever has that name.
    """

    def __init__(
        self,
        servers: tuple[Server, ...],
        access: Access,
        stream: str,
        who: str,
        patience: float = PATIENCE,
        say: Callable[[str], object] = lambda words: None,
        created: str = "",
    ) -> None:
        self._servers = Servers(servers, access, who)
        self._name, self._patience, self._say, self._created = stream, patience, say, created
        self.shown = f"{self._servers.shown}/{stream}"
        """Where it is, for people."""
        self._loop = asyncio.new_event_loop()
        self._stream: Stream | None = None
        self._pull: Pull | None = None
        self._pace = Pace(ASKED_BYTES)
        self._missing = Missing(self)
        self.connections = 0
        """How many there have been. A server that comes back may have lost what it had."""

    def do(self, work: Callable[[Stream], Coroutine[Any, Any, T]]) -> T:
        """Does something with the stream, again if it fails for a reason that may pass.

        Raises:
            Away: it still does when patience is over.
            NatsError: something that does not pass by itself.
        """
        return self._loop.run_until_complete(self._persistently(work))

    async def _persistently(self, work: Callable[[Stream], Coroutine[Any, Any, T]]) -> T:
        pause, most = PAUSES
        end, has_said = time.monotonic() + self._patience, False
        while True:
            try:
                if self._stream is None or self._stream.connection.is_closed.is_set():
                    await self._leave()
                    self._stream = Stream(await self._servers.connect(), self._name)
                    self.connections += 1
                done = await self._stream.connection.while_open(work(self._stream))
            except Away as error:
                log.debug("%s; it is left", error)
                await self._leave()
                if time.monotonic() + pause > end:
                    raise Away(f"{error} (for {self._patience:g} s)") from None
                if pause == most and not has_said:
                    self._say(f"{error}; waiting")
                    has_said = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, most)
            else:
                if has_said:
                    self._say(f"{self.shown} is back")
                return done

    async def _leave(self) -> None:
        stream, self._stream, self._pull = self._stream, None, None
        if stream is not None:
            await stream.connection.close()

    def state(self) -> State:
        """What the stream is and has."""
        return self.do(lambda stream: stream.state())

    def missing(self, begin: int, end: int) -> int | None:
        """The first number from `begin` up to `end` whose message was removed; None if all are there. See `Missing`."""
        return self._missing.first(begin, end)

    def time_of(self, sequence: int) -> str | None:
        """When the stream got a message, in UTC, to the nanosecond: as text, which can be compared.

        Returns:
            None if it is not there.
        """
        found = self.do(lambda stream: stream.stored(sequence))
        if found is None or found[0] != sequence:
            return None
        seconds, fraction = divmod(found[1], 10**9)
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09}Z"

    def messages(self, first: int, end: int, subject: str | None = None, *, headers_only: bool = False) -> Iterator[Fetched]:
        """The messages from number `first` up to `end` that are there.

        Args:
            first: where they begin.
            end: before which number they end.
            subject: of this subject alone; None: of all.
            headers_only: without what is in them.

        Raises:
            MadeAnew: they are of another stream than is wanted.
            NatsError: see `do`.
        """
        at = first

        async def some(stream: Stream) -> tuple[list[Fetched], int]:
            pull = await self._pull_from(stream, at, subject, headers_only)
            return await pull.some(end), pull.next

        while at < end:
            found, at = self.do(some)
            yield from found

    async def _pull_from(self, stream: Stream, first: int, subject: str | None, headers_only: bool) -> Pull:
        """The pull that goes on there, or a new one."""
        if (pull := self._pull) is not None:
            same = (pull.stream, pull.next, pull.subject, pull.headers_only) == (stream, first, subject, headers_only)
            if same and await pull.is_known():
                return pull
            await pull.end()
        self._pull = None
        pull = Pull(stream, first, subject, headers_only=headers_only, pace=self._pace)
        await pull.begin()
        self._pull = pull
        if self._created:  # now: what reads a stream goes with it
            await self._check(stream)
        return pull

    async def _check(self, stream: Stream) -> None:
        if (state := await stream.state()).created != self._created:
            raise MadeAnew(f"{self.shown} has been made anew, at {state.created}")

    def wait_for(self, sequence: int, seconds: float, subject: str | None = None) -> bool:
        """Waits until there is a message of this number or a later one, for some time. Returns whether there is one."""
        end = time.monotonic() + seconds

        async def wait(stream: Stream) -> bool:
            while True:
                pull = await self._pull_from(stream, sequence, subject, True)
                has_come = await pull.is_there(max(end - time.monotonic(), 0.001))
                if has_come or not pull.is_deaf or time.monotonic() >= end:
                    return has_come

        has_come = self.do(wait)
        if has_come and self._pull is not None:
            self._loop.run_until_complete(self._pull.end())
            self._pull = None
        return has_come

    def close(self) -> None:
        """Leaves the server."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._leave())
            self._loop.close()
