"""A B channel that an sbus is joined to: its lines are messages for the clients, and their messages are its lines.

The one rule: neither side waits for the other. What the channel does not take waits up to a bound, and then is discarded and
counted; what it cannot carry is refused and counted; and nothing is ever cut. Keys that begin with `!/` go neither way.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

import trio

from ...client import Ended, NoBus, TooLong
from ...client import trio as bus
from ...client.awaiting import Slave
from ...client.leaving import Leaving
from ...core.inquiry import Inquiry
from ...core.text import counted
from ..apart import Far, Side
from ..life import Life
from .client import Sender
from .keys import RESERVED
from .limits import MAX_PACKET, TELL_SECONDS, TURN, WATCH_SECONDS
from .lines import line_of, message_of
from .packets import message
from .server import Server

BLOCK = 128 * 1024
"""Bytes of lines that are brought to the bus at once: what the client library writes with one call."""

ENTRY = 64
"""What a line takes in memory beside its bytes."""

WAITING_BYTES = 16 << 20
"""Bytes of lines that wait for the channel at most, while its bus is away or busy: some seconds of a flood."""

TOO_LONG, AWAY, RESERVED_KEY, NO_KEY, UNTAKEN = (
    "too long for the bus",
    "for a bus that is away or slow",
    "with a key that begins with !/",
    f"with a NUL in its key, or longer than {MAX_PACKET} bytes",
    "for they waited in a channel whose name was removed, and clients wait to be read",
)


Joined = Far[Slave[bytes]]


class Removed(Exception):
    """The channel has no name any more, and what waited there was taken. Who comes later would talk to another one."""


class Link(Sender):
    """A channel, joined to a server.

    Args:
        channel: the path of a B channel.
        there: the loop of the bus.
        server: whose clients it is joined to.
        life: says what happens.
        waits: whether it waits for a bus that is not there, or goes.
    """

    def __init__(self, channel: Path, there: Side, server: Server, life: Life, *, waits: bool) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        """Messages that were not carried over, and why."""
        self._path = channel
        self._there = there
        self._server = server
        self._life = life
        self._waits = waits
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._wake = trio.Event()
        self._free = trio.Event()
        self._lost = trio.Event()
        self._is_again = False
        """Whether the bus has gone since the channel was open."""
        self._is_leaving = False
        """Whether nothing more is to be written to the channel that is open."""
        self._unread = 0
        """Messages that were taken from the bus, and wait for a client that holds us up."""
        server.outside = self

    def put(self, key: bytes, payload: bytes) -> None:
        """Takes a message of a client's for the channel."""
        line = line_of(key, payload)
        if self._size + len(line) + ENTRY > WAITING_BYTES:
            self._count(AWAY)
            return
        self._lines.append(line)
        self._size += len(line) + ENTRY
        self._wake.set()

    def turned(self) -> None:
        """Is told that it is held up by a client, or not any more."""
        if self.held_by:
            self._free = trio.Event()
        else:
            self._free.set()

    def _count(self, why: str, count: int = 1) -> None:
        if count:
            self.counts[why] += count
            self._lost.set()

    # ------------------------------------------------------------------------------------------ its life

    async def run(self, joined: Callable[[], object]) -> None:
        """Joins the channel, for good.

        Args:
            joined: called each time when it is open.

        Raises:
            ClientError: the channel cannot be opened, or the bus has gone, and it is not waited for.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell)
            while True:
                try:
                    await self._join(joined)
                except* Removed:
                    self._life.say(f"{self._path} has been removed, and is made anew")
                except* (NoBus, Ended):
                    if not self._waits:
                        raise
                    self._life.warn(f"{self._path}: the bus has gone; waiting")
                    self._is_again = True

    async def _join(self, joined: Callable[[], object]) -> None:
        # One client that reads and writes: two would hear each other.
        wait = math.inf if self._waits else 0.0
        async with Far(self._there, bus.connect(self._path, bytes, wait=wait, say=self._life.say)) as channel:
            if self._is_again:
                self._is_again = False
                self._life.say(f"{self._path} is open again")
            joined()
            leaving = Leaving()
            self._is_leaving = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, channel, leaving)
                async with trio.open_nursery() as writing:
                    writing.start_soon(self._write, channel)
                    await self._until_removed(channel, leaving)
                    self._is_leaving = True  # what has not been written is for the next one
                    self._wake.set()
                leaving.begin(await channel.inquire())
                channel.awaken()
                await self._until_late(channel, leaving)

    async def _until_removed(self, channel: Joined, leaving: Leaving) -> None:
        is_removed = False
        while not is_removed:
            await trio.sleep(leaving.pause)
            is_removed = (await self._look(channel, leaving)).is_removed

    async def _until_late(self, channel: Joined, leaving: Leaving) -> None:
        """Leaves a channel that was removed though something waits there: a client holds us up. Else who reads has left it."""
        while True:
            await trio.sleep(leaving.pause)
            told = await self._look(channel, leaving)
            if leaving.is_late:
                self._count(UNTAKEN, leaving.left(told) + self._unread)
                self._unread = 0
                raise Removed

    async def _look(self, channel: Joined, leaving: Leaving) -> Inquiry:
        told = await channel.inquire()
        if dropped := leaving.dropped(told):
            self._life.warn(f"{self._path}: the bus has dropped {counted(dropped, 'line')}, which came too fast")
        return told

    # ------------------------------------------------------------------------------------------ both ways

    async def _write(self, channel: Joined) -> None:
        lines = self._lines
        while not self._is_leaving:
            if not lines:
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            block: list[bytes] = []
            size = 0
            for line in lines:
                if block and size + len(line) > BLOCK:
                    break
                block.append(line)
                size += len(line)
            done = 0
            try:
                done = await channel.send_block(b"".join(block))
            except TooLong as error:
                done = error.accepted + 1
                self._count(TOO_LONG)
            except BaseException:  # the bus has gone, or it is time to end
                done = channel.accepted
                raise
            finally:
                for _ in range(done):
                    self._size -= len(lines.popleft()) + ENTRY

    async def _read(self, channel: Joined, leaving: Leaving) -> None:
        while not leaving.has_begun or not leaving.is_taken(await self._look(channel, leaving)):
            block = await channel.read_block(leaving.pause)
            end = time.monotonic() + TURN
            lines = block[:-1].split(b"\n") if block else []
            for count, line in enumerate(lines, 1):
                self._publish(line)
                if self.held_by:
                    self._unread = len(lines) - count
                    await self._free.wait()
                    self._unread = 0
                elif time.monotonic() > end:
                    await trio.lowlevel.checkpoint()
                    end = time.monotonic() + TURN
        raise Removed

    def _publish(self, line: bytes) -> None:
        key, payload = message_of(line)
        packet = message(key, payload)
        if key.startswith(RESERVED):
            self._count(RESERVED_KEY)
        elif b"\0" in key or len(packet) > MAX_PACKET:
            self._count(NO_KEY)
        else:
            self._server.publish(key, packet, self)

    async def _tell(self) -> None:
        said: Counter[str] = Counter()
        try:
            while True:
                await self._lost.wait()
                self._lost = trio.Event()
                await trio.sleep(WATCH_SECONDS)
                self._say(said)
                await trio.sleep(TELL_SECONDS)
        finally:
            self._say(said)

    def _say(self, said: Counter[str]) -> None:
        for why, count in (self.counts - said).items():
            self._life.warn(f"{counted(count, 'message')} not carried over: {why}")
            said[why] += count
