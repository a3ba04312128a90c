r"""The channel of the bus: messages go there, and come back from there.

The one rule: peers hear what the channel says and nothing else, so that they hear all messages in the order in which everybody on
the bus does. What a peer has sent comes back as what others have. The gateway has the channel open twice, once to write and once
to read, and reads right after it has written: else the bus would drop what a quick peer sends.

All of it runs in the loop of the bus (see `apart`). Those who serve peers hand it messages, and are handed blocks of lines.
"""

import contextlib
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypedDict

import trio

from ...client.channel import end_of_block
from ...client.errors import Ended, NoBus, TooLong
from ...client.leaving import Leaving
from ...client.trio import Publisher, Reader, publisher, subscribe
from ...core.lines import end
from ...core.text import counted
from ..life import GatewayError, Life

READS = 16
"""How often the channel is read before others have their turn. Each read takes up to 1 MiB, and a bus keeps 4 for a reader if it
is mounted without options."""

IDLE_SECONDS = 0.001
"""For so long nothing comes from peers before the channel is watched again. Watching costs two calls of the bus, a third of what
a block of lines costs; who sends without a break comes back sooner, for he has only to be told in the other loop."""


class _Creates(TypedDict, total=False):
    mode: int


class _Removed(Exception):
    """The channel has no name any more, and what waited there was delivered: who opens it now opens another."""


class _Stopped(Exception):
    """Nothing more is to be written to this channel."""


class _Batch:
    """Messages of several peers that go to the bus together."""

    def __init__(self) -> None:
        self.runs: list[bytes] = []
        self.refusals: dict[int, int] = {}
        """How many lines of a run the bus has refused, by the run's index."""
        self.sent = 0
        """Runs that are gone."""
        self.is_sent = trio.Event()


class Channel:
    """A B channel with those who write to it and those who listen.

    Args:
        path: the channel.
        life: of the gateway.
        deliver: is given what the channel says, whole lines. The next are read when it has returned.
        is_heard: tells whether that is of any use now.
        lost: is told how many lines the bus has dropped, of whatever kind.
        mode: permissions of a channel that is created; None: what the umask leaves of 666.
        waits: whether it waits for a bus that is not there, or has gone.
    """

    def __init__(
        self,
        path: Path,
        life: Life,
        deliver: Callable[[bytes], Awaitable[None]],
        is_heard: Callable[[], bool],
        lost: Callable[[int], object],
        *,
        mode: int | None,
        waits: bool,
    ) -> None:
        self.path = path
        self._life = life
        self._deliver = deliver
        self._is_heard = is_heard
        self._lost = lost
        self._mode = mode
        self._waits = waits
        self._batch = _Batch()
        self._unsent: _Batch | None = None
        self._wanted = trio.Event()
        self._resting = trio.Event()
        """Nothing is being written. Who writes reads too, and somebody else who tried would only ask the bus in vain."""
        self._resting.set()
        self._reading = trio.Lock()
        self._is_leaving = False
        """Whether nothing more is to be written to the channel that is open."""
        self._has_written = trio.Event()
        """Nothing more is."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of messages that wait to be sent. May be asked in any loop."""
        return sum(len(run) for batch in (self._unsent, self._batch) if batch for run in tuple(batch.runs))

    async def publish(self, messages: bytes) -> int:
        """Sends peer messages, and waits until the bus has them and those who have subscribed here, too.

        Returns:
            How many of them were longer than the bus takes. The others were sent.
        """
        batch, index = self._batch, len(self._batch.runs)
        batch.runs.append(messages)
        self._wanted.set()
        await batch.is_sent.wait()
        return batch.refusals.get(index, 0)

    async def run(self, opened: Callable[[], object]) -> None:
        """Keeps the channel open.

        Args:
            opened: is called when it is for the first time.

        Raises:
            ClientError: it cannot be had.
            GatewayError: the bus has gone and is not waited for.
        """
        wait = math.inf if self._waits else 0.0
        creates: _Creates = {} if self._mode is None else {"mode": self._mode}
        is_first = True
        while True:
            # Without `again`: both must be on the same bus, the one who reads first.
            async with (
                subscribe(self.path, bytes, wait=wait, say=self._life.say, **creates) as reader,
                publisher(self.path, wait=wait, say=self._life.say) as out,
            ):
                if is_first:
                    is_first = False
                    opened()
                else:
                    self._life.say(f"{self.path} is open again")
                gone = await self._use(reader, out)
            if isinstance(gone, _Removed):
                self._life.say(f"{self.path}: its name was removed; it is opened anew")
                continue
            # That a channel has ended means, of one without a master, that the bus is being unmounted.
            words = f"{self.path}: the bus is going" if isinstance(gone, Ended) else str(gone)
            if not self._waits:
                raise GatewayError(words)
            self._life.warn(f"{words}; waiting")

    async def _use(self, reader: Reader[bytes], out: Publisher) -> Exception:
        """Sends and delivers until the channel has ended. Returns why."""
        why: Exception | None = None
        self._is_leaving, self._has_written = False, trio.Event()

        async def until_gone(work: Callable[[Reader[bytes], Publisher], object]) -> None:
            nonlocal why
            try:
                await work(reader, out)  # type: ignore[misc]
            except (Ended, NoBus, _Removed) as error:
                why = why or error
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for work in (self._read, self._write, self._look):
                nursery.start_soon(until_gone, work)
        assert why is not None
        return why

    # ------------------------------------------------------------------------------------------ what it says

    async def _read(self, reader: Reader[bytes], _: Publisher) -> None:
        while True:
            await trio.lowlevel.wait_readable(reader.fileno())
            await self._resting.wait()
            await self._take(reader)

    async def _take(self, reader: Reader[bytes], sent: bytes = b"") -> None:
        """Delivers what waits on the channel, at least up to what has been sent."""
        async with self._reading:  # two who read would deliver in another order than they have read
            for _ in range(READS):
                try:
                    block = reader.read_block_nowait()
                except BlockingIOError:
                    return
                if self._is_heard():
                    await self._deliver(block)
                # Asking once more, for nothing, costs as much as a read.
                if sent and block.endswith(sent):
                    return
                await trio.lowlevel.checkpoint()

    # ------------------------------------------------------------------------------------------ what is said

    async def _write(self, reader: Reader[bytes], out: Publisher) -> None:
        with contextlib.suppress(_Stopped):
            await self._write_on(reader, out)
        self._resting.set()
        self._has_written.set()

    async def _write_on(self, reader: Reader[bytes], out: Publisher) -> None:
        while True:
            if self._unsent is None:
                await self._wait_for_more()
                if self._is_leaving:
                    return
                self._unsent, self._batch = self._batch, _Batch()
                self._wanted = trio.Event()
            if self._resting.is_set():
                self._resting = trio.Event()
            try:
                await self._send(self._unsent, reader, out)
            except BaseException:
                self._resting.set()
                raise
            self._unsent.is_sent.set()
            self._unsent = None

    async def _wait_for_more(self) -> None:
        with trio.move_on_after(IDLE_SECONDS):
            await self._wanted.wait()
            return
        self._resting.set()
        await self._wanted.wait()

    async def _send(self, batch: _Batch, reader: Reader[bytes], out: Publisher) -> None:
        """Sends what is left of a batch. If the bus goes meanwhile, what it has not accepted is left."""
        while batch.sent < len(batch.runs):
            first, size = batch.sent, 0
            while batch.sent < len(batch.runs) and (not size or size + len(batch.runs[batch.sent]) <= 1 << 20):
                size += len(batch.runs[batch.sent])
                batch.sent += 1
            # One piece of bytes for the bus; whose a line was is looked for only if it was refused.
            lines, start = b"".join(batch.runs[first : batch.sent]), 0
            try:
                while start < len(lines):
                    if self._is_leaving:
                        raise _Stopped
                    stop = end_of_block(lines, start)
                    block = lines[start:stop]
                    try:
                        await out.send_block(block)
                        start = stop
                    except TooLong as error:
                        start = end(lines, start, error.accepted)
                        self._refuse(batch, first, start)
                        start = end(lines, start, 1)
                    except NoBus as error:
                        start = end(lines, start, error.accepted)
                        raise
                    await self._take(reader, block)
            except BaseException:
                batch.runs[first : batch.sent] = _rest(batch.runs[first : batch.sent], start)
                batch.sent = first
                raise

    def _refuse(self, batch: _Batch, first: int, position: int) -> None:
        """Notes that the line at a position of the runs from `first` on was too long."""
        for index in range(first, len(batch.runs)):
            position -= len(batch.runs[index])
            if position < 0:
                batch.refusals[index] = batch.refusals.get(index, 0) + 1
                return

    # ------------------------------------------------------------------------------------------ what becomes of it

    async def _look(self, reader: Reader[bytes], _: Publisher) -> None:
        leaving = Leaving()
        while True:
            await trio.sleep(leaving.pause)
            told = reader.inquire()
            if dropped := leaving.dropped(told):
                lost = counted(dropped, "line")
                self._life.warn(f"{self.path}: the bus has dropped {lost}, which came faster than they could be taken")
                self._lost(dropped)
            if told.is_removed and not leaving.has_begun:
                self._is_leaving = True  # what has not been written is for the next one
                self._wanted.set()
                await self._has_written.wait()
                leaving.begin(reader.inquire())
            if leaving.has_begun:
                await self._take(reader)
                if leaving.is_over(told := reader.inquire()):
                    if left := leaving.left(told):
                        self._life.warn(f"{self.path}: {counted(left, 'line')} that waited there were not taken in time")
                        self._lost(left)
                    raise _Removed


def _rest(runs: list[bytes], start: int) -> list[bytes]:
    """What is left of runs when so many bytes of them are gone: as many runs, some of them empty."""
    left = []
    for run in runs:
        left.append(run[start:])
        start = max(0, start - len(run))
    return left
