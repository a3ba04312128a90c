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

NAME_SECONDS = 2.0
"""How often it is looked whether somebody has removed the channel's name. Who comes later would talk to another channel."""

TOO_LONG, AWAY, RESERVED_KEY, NO_KEY = (
    "too long for the bus",
    "for a bus that is away or slow",
    "with a key that begins with !/",
    f"with a NUL in its key, or longer than {MAX_PACKET} bytes",
)


Joined = Far[Slave[bytes]]


class Removed(Exception):
    """The channel has no name any more."""


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

    def _count(self, why: str) -> None:
        self.counts[why] += 1
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
            is_again = False
            while True:
                try:
                    await self._join(joined, is_again=is_again)
                except* Removed:
                    self._life.say(f"{self._path} has been removed, and is made anew")
                except* (NoBus, Ended):
                    if not self._waits:
                        raise
                    self._life.warn(f"{self._path}: the bus has gone; waiting")
                    is_again = True

    async def _join(self, joined: Callable[[], object], *, is_again: bool) -> None:
        # One client that reads and writes: two would hear each other.
        wait = math.inf if self._waits else 0.0
        async with Far(self._there, bus.connect(self._path, bytes, wait=wait, say=self._life.say)) as channel:
            if is_again:
                self._life.say(f"{self._path} is open again")
            joined()
            async with trio.open_nursery() as nursery:
                for task in (self._read, self._write, self._look):
                    nursery.start_soon(task, channel)

    async def _look(self, channel: Joined) -> None:
        dropped = 0
        while True:
            await trio.sleep(NAME_SECONDS)
            told = await channel.inquire()
            if told.dropped > dropped:
                self._life.warn(
                    f"{self._path}: the bus has dropped {counted(told.dropped - dropped, 'line')}, which came too fast"
                )
                dropped = told.dropped
            if told.is_removed:
                raise Removed

    # ------------------------------------------------------------------------------------------ both ways

    async def _write(self, channel: Joined) -> None:
        lines = self._lines
        while True:
            if not lines:
                self._wake = trio.Event()
                await self._wake.wait()
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

    async def _read(self, channel: Joined) -> None:
        while True:
            block = await channel.read_block()
            end = time.monotonic() + TURN
            for line in block[:-1].split(b"\n"):
                self._publish(line)
                if self.held_by:
                    await self._free.wait()
                elif time.monotonic() > end:
                    await trio.lowlevel.checkpoint()
                    end = time.monotonic() + TURN

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
