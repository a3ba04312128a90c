"""The bus apart: a loop of trio's in a thread of its own, in which all calls on a bus are made.

The one rule: whoever serves clients never calls the bus. A call on its files waits in the kernel for the daemon's answer, even if
it is said not to wait, and so does the epoll(7) that such a file is in; nothing but the end of the process gets it out. Of a bus
that hangs, it is this loop that stands still, and no other.
"""

import contextlib
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import trio

from ..core.inquiry import Inquiry
from ..host.mounted import ANSWER_SECONDS
from .life import Life

T = TypeVar("T")

LEAVE_SECONDS = 0.5
"""How long who is cancelled waits for the call on the bus to end, so that it is known what has become of it. A bus that hangs is
left alone then: the gateway must have ended a second later."""


class Side:
    """A loop that others have something done in.

    Args:
        nursery: of the loop that this is made in. What is done there runs in it.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()

    def post(self, work: Callable[..., object], *arguments: Any) -> None:
        """Has a function called there, soon, behind what was posted before. Nothing comes of it if the loop has ended."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(work, *arguments)

    async def run(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Has something done there, and waits for it here.

        If the caller is cancelled, so is what is done; that is waited for only for a moment.

        Args:
            work: what is to be done.
            arguments: for it.

        Returns:
            What it returns. What it raises is raised.
        """
        here = trio.lowlevel.current_trio_token()
        done = trio.Event()
        scope = trio.CancelScope()
        results: list[T] = []
        errors: list[Exception] = []

        async def there() -> None:
            try:
                with scope:
                    results.append(await work(*arguments))
            except Exception as error:
                errors.append(error)
            finally:
                with contextlib.suppress(trio.RunFinishedError):
                    here.run_sync_soon(done.set)

        self.post(self._nursery.start_soon, there)
        try:
            await done.wait()
        except trio.Cancelled:
            self.post(scope.cancel)
            with trio.move_on_after(LEAVE_SECONDS, shield=True):
                await done.wait()
            raise
        if errors:
            raise errors[0]
        if not results:  # that loop is ending
            await trio.sleep_forever()
        return results[0]


class Apart:
    """The two loops.

    Args:
        home: the one that serves clients.
        there: the one that calls the bus.
    """

    def __init__(self, home: Side, there: Side) -> None:
        self.home = home
        self.there = there


@contextlib.asynccontextmanager
async def apart(life: Life, bus: Path) -> AsyncIterator[Apart]:
    """Has a loop for the bus, for as long as a context lasts. If a call on the bus hangs in the end, the loop is left behind.

    Args:
        life: is told when the bus does not answer, and when it does again.
        bus: where it is mounted.
    """
    token = trio.lowlevel.current_trio_token()
    begun, ended = trio.Event(), trio.Event()
    sides: list[Side] = []
    scope = trio.CancelScope()

    async def main() -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                sides.append(Side(nursery))
                token.run_sync_soon(begun.set)
                await trio.sleep_forever()

    def live() -> None:
        try:
            trio.run(main)
        finally:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(ended.set)

    # Not one of trio's: those are counted, and this one is not to be waited for in the end.
    threading.Thread(target=live, name="bus", daemon=True).start()
    with trio.CancelScope(shield=True):  # it takes no time, and calls nobody
        await begun.wait()
    there = sides[0]
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, there, life, bus)
            yield Apart(Side(nursery), there)
            nursery.cancel_scope.cancel()
    finally:
        there.post(scope.cancel)
        with trio.move_on_after(LEAVE_SECONDS, shield=True):
            await ended.wait()


async def _watch(there: Side, life: Life, bus: Path) -> None:
    """Tells people when the loop of the bus stands still, and when it goes on."""
    here = trio.lowlevel.current_trio_token()

    def answer(answered: trio.Event) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            here.run_sync_soon(answered.set)

    while True:
        await trio.sleep(ANSWER_SECONDS)
        answered = trio.Event()
        there.post(partial(answer, answered))
        with trio.move_on_after(ANSWER_SECONDS):
            await answered.wait()
        if not answered.is_set():
            life.warn(f"the bus on {bus} does not answer; waiting")
            await answered.wait()
            life.say(f"the bus on {bus} answers again")


class Channel(Protocol):
    """A channel as `futebus.client.trio` has it."""

    accepted: int

    @property
    def is_open(self) -> bool:
        """Whether it is open."""

    @property
    def is_begun(self) -> bool:
        """Whether a message was accepted in part."""

    def fileno(self) -> int:
        """The descriptor."""

    def inquire(self) -> Inquiry:
        """What the bus knows of it."""

    def close(self) -> None:
        """Leaves it."""

    async def open(self) -> None:
        """Opens it."""

    async def read_block(self) -> bytes:
        """The next whole lines."""

    async def send_block(self, lines: bytes) -> int:
        """Sends whole lines."""


C = TypeVar("C", bound=Channel)


class Far(Generic[C]):
    """A channel that lives in the loop of the bus, for who is in the other one.

    Args:
        there: the loop of the bus.
        channel: not open yet, and used in no other way.
    """

    def __init__(self, there: Side, channel: C) -> None:
        self._there = there
        self._channel = channel
        self.is_open = False
        """Whether it was opened, and has not been closed since."""
        self.accepted = 0
        """How many messages of the last call that sends the bus has accepted, if it has ended: a bus that hangs does not tell."""
        self._calls = 0
        self._given_up = 0
        """Up to which of these calls. One may have been asked for, and not have begun in the other loop: the bus may be slow."""
        self._reading: trio.CancelScope | None = None
        """In the loop of the bus: of who waits for lines,"""
        self._sending: trio.CancelScope | None = None
        """and of who waits for place."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def open(self) -> None:
        """Opens it, as the channel's `open`."""
        await self._there.run(self._channel.open)
        self.is_open = True

    async def read_block(self, seconds: float = math.inf) -> bytes:
        """The next whole lines, as the channel's `read_block`; nothing if none come in so many seconds, or until `awaken`."""
        return await self._there.run(self._read_within, seconds)

    async def _read_within(self, seconds: float) -> bytes:
        # Who is cancelled there has taken nothing, which cannot be said of who is cancelled here.
        with trio.move_on_after(seconds) as self._reading:
            return await self._channel.read_block()
        return b""

    def awaken(self) -> None:
        """Has who waits for lines go on without."""
        self._there.post(self._awaken)

    def _awaken(self) -> None:
        if self._reading:
            self._reading.cancel()

    async def send_block(self, lines: bytes) -> int:
        """Sends whole lines, as the channel's `send_block`. Until `give_up`: then it is fewer that were accepted."""
        self.accepted = 0
        self._calls += 1
        return await self._there.run(self._send, lines, self._calls)

    async def _send(self, lines: bytes, call: int) -> int:
        self._channel.accepted = accepted = 0
        try:
            with trio.CancelScope() as self._sending:
                if call <= self._given_up:
                    self._sending.cancel()
                await self._channel.send_block(lines)
            # What has been begun, and perhaps by an earlier call, is not sent.
            accepted = max(self._channel.accepted - (self._sending.cancelled_caught and self._channel.is_begun), 0)
        except BaseException:
            accepted = self._channel.accepted
            raise
        finally:
            if call == self._calls:  # else the caller has given this one up, and has made another
                self.accepted = accepted
        return accepted

    def give_up(self) -> None:
        """Has who waits for place go on without. The channel is only to be closed then: a message may have been begun."""
        self._there.post(self._give_up, self._calls)

    def _give_up(self, call: int) -> None:
        self._given_up = call
        if self._sending:
            self._sending.cancel()

    async def inquire(self) -> Inquiry:
        """What the bus knows of it, as the channel's `inquire`."""
        return await self._there.run(self._inquire)

    async def _inquire(self) -> Inquiry:
        await trio.lowlevel.checkpoint()
        return self._channel.inquire()

    def close(self) -> None:
        """Has it closed, which nobody waits for."""
        self.is_open = False
        self._there.post(self._channel.close)
