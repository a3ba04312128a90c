"""A subject with its servers: lines go there, and come from there.

The one rule: of what it has taken to be sent, nothing is let go before a server has confirmed it. What one connection has not had
confirmed goes by the next one again, under the same numbers, by which links know it if they have it already. How much is under
way without being confirmed is what a server takes in about a second: so one that hangs is told from one that is far away.
"""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from ..host.voice import Voice
from ..nats.connection import Connection, Servers
from ..nats.errors import Away, Denied, NatsError
from .origin import HEADER_BYTES, LINE, ORIGIN, Run, headers
from .outbox import Outbox

WINDOW = (256 << 10, 8 << 20)
"""Bytes that may be under way, at first and at most."""

LEAST_WINDOW = 16 << 10

SLOW, QUICK = 1.0, 0.3
"""Seconds that a confirmation takes from when, or up to when, there is less under way from then on, or more."""

GATHER_SECONDS = 0.02
"""How long little may be under way before it is confirmed."""

RETRY_SECONDS = (0.1, 2.0)
"""How soon, and later how seldom, it is tried again to connect."""

STABLE_SECONDS = 5.0
"""How long a connection must have lasted so that the next is made soon."""

Take = Callable[["Subject", Mapping[str, str] | None, bytes], object]


class Subject:
    """What a link has of a subject.

    Args:
        subject: its name.
        servers: who has it.
        outbox: what is to be sent there; None: nothing ever is.
        take: is given what comes from there; None: nobody wants it.
        ready: waits, for a moment, until there is place for that.
        origin: of the link.
        voice: says what happens.
    """

    def __init__(
        self,
        subject: str,
        servers: Servers,
        outbox: Outbox | None,
        take: Take | None,
        ready: Callable[[], Awaitable[object]],
        origin: str,
        voice: Voice,
    ) -> None:
        self.subject = subject
        self.shown = f"{servers.shown}/{subject}"
        self.outbox = outbox
        self.too_long = 0
        """How many lines were longer than the servers take."""
        self._servers = servers
        self._take = take
        self._ready = ready
        self._origin = origin
        self._voice = voice
        self._wanted = asyncio.Event()
        """Something waits to be sent."""
        self._under_way: deque[Run] = deque()
        self._size = 0
        self._window = WINDOW[0]
        self._published = 0
        """How many of those under way are known to be on their way: `publish` has returned."""
        self._has_sent = asyncio.Event()
        self._is_much = asyncio.Event()
        """So much is under way that it is time for a confirmation."""
        self._again = ""
        """What is said as soon as something is confirmed."""
        self.is_well = False
        """Whether it was said last that the servers are there."""
        self._is_settled = asyncio.Event()
        """Something was confirmed."""

    def wake(self) -> None:
        """Is told, in its own loop, that something waits to be sent."""
        self._wanted.set()

    @property
    def is_done(self) -> bool:
        """Whether all that was to be sent has been confirmed."""
        return not self._under_way and (self.outbox is None or self.outbox.is_empty)

    async def done(self) -> None:
        """Waits until all that is to be sent has been confirmed."""
        while not self.is_done:
            self._is_settled.clear()
            await self._is_settled.wait()

    # ------------------------------------------------------------------------------------------ its life

    async def run(self, joined: Callable[[], object], *, waits: bool) -> None:
        """Is connected, for good.

        Args:
            joined: called when it is for the first time.
            waits: whether it waits for a server that is not there at first.

        Raises:
            Denied: a server does not let us do what is wanted, right at first.
            Away: none is there at first, and it is not waited for.
        """
        is_first, said = True, ""
        pause, longest = RETRY_SECONDS
        begin = math.inf
        while True:
            connection = None
            try:
                connection = await self._servers.connect()
                await self._begin(connection, announces=is_first)
                if is_first:
                    joined()
                    self.is_well = True
                self._again = "" if self.is_well else f"{self.shown} is there again, by {connection.server.shown}"
                is_first, begin = False, time.monotonic()
                if self.is_done:
                    self._say_again()
                await self._exchange(connection)
            except NatsError as error:
                if is_first and (isinstance(error, Denied) or not waits):
                    raise
                words = f"{self.subject}: {error}; waiting"
                if self._under_way:  # it may be that a slow line takes longer for so much than a server has to answer
                    self._window = max(LEAST_WINDOW, self._window // 4)
                if self.is_well:
                    self.is_well, said = False, ""
                if words != said:
                    said = words
                    self._voice.warn(words)
                if time.monotonic() - begin > STABLE_SECONDS:
                    pause = RETRY_SECONDS[0]
                    begin = math.inf
            finally:
                if connection:
                    await connection.close()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, longest)

    def _say_again(self) -> None:
        """Says that the servers are there again, which is not known before they have confirmed something."""
        if self._again:
            self._voice.say(self._again)
            self._again, self.is_well = "", True

    async def _begin(self, connection: Connection, *, announces: bool) -> None:
        """Sees that the server lets us do what is wanted. Only by trying is that to be known."""
        if self._take:
            take = self._take
            await connection.subscribe(self.subject, lambda told, payload: take(self, told, payload), self._ready)
        if self.outbox:
            # Before the first lines others are told that they begin with number 1, so that they know if they have missed them.
            told = {ORIGIN: self._origin, LINE: "1"} if announces else {ORIGIN: self._origin}
            await connection.publish(self.subject, b"", told)
            await connection.settle()
            await connection.confirm()
            if connection.denied:
                raise Denied(f"{connection.server.shown} does not let us speak on {self.subject}")
            if connection.max_payload <= HEADER_BYTES:
                raise Denied(f"{connection.server.shown} takes no messages of more than {connection.max_payload} bytes")

    async def _exchange(self, connection: Connection) -> None:
        """Sends and takes until the connection has failed."""
        if self.outbox:
            self.outbox.put_back(list(self._under_way))
            self._under_way.clear()
            self._size = self._published = 0
            self._is_much.clear()
        self._has_sent.clear()
        works: list[Coroutine[Any, Any, object]] = [connection.is_closed.wait()]
        if self.outbox:
            works += [self._send(connection, self.outbox), self._confirm(connection)]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            what = f"does not let us go on: {connection.denied}" if connection.denied else connection.why
            raise Away(f"{connection.server.shown}: {what}")
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------ what is sent

    async def _send(self, connection: Connection, outbox: Outbox) -> None:
        most = connection.max_payload - HEADER_BYTES
        while True:
            while self._size >= self._window:
                self._is_settled.clear()
                await self._is_settled.wait()
            run = outbox.take(min(most, self._window))
            if run is None:
                self._wanted.clear()
                if outbox.is_empty:  # or else somebody has put something in meanwhile
                    await self._wanted.wait()
                continue
            if len(run.data) > most:
                self.too_long += run.count
                continue
            self._under_way.append(run)
            self._size += len(run.data)
            self._has_sent.set()
            if self._size >= self._window // 2:
                self._is_much.set()
            await connection.publish(self.subject, run.data, headers(run))
            self._published += 1

    async def _confirm(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._has_sent.wait()
            self._has_sent.clear()
            while self._under_way:
                with contextlib.suppress(TimeoutError):  # many lines that come one by one are confirmed together
                    await asyncio.wait_for(self._is_much.wait(), GATHER_SECONDS)
                await connection.settle()
                published, begin = self._published, loop.time()
                await connection.confirm()
                took = loop.time() - begin
                for _ in range(published):
                    self._size -= len(self._under_way.popleft().data)
                self._published -= published
                if self._size < self._window // 2:
                    self._is_much.clear()
                if took > SLOW:
                    self._window = max(LEAST_WINDOW, self._window // 2)
                elif took < QUICK and published:
                    self._window = min(WINDOW[1], self._window * 2)
                self._is_settled.set()
                self._say_again()

    def left(self) -> int:
        """How many lines were to be sent and have not been, or not been confirmed, in the end. They are let go."""
        unconfirmed = sum(run.count for run in self._under_way)
        self._under_way.clear()
        return unconfirmed + (self.outbox.clear() if self.outbox else 0)
