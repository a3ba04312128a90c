"""A delivery: the lines of a stream on their way into a channel, each once, in order.

The one rule: a message is confirmed when its lines have been accepted, and no more is asked for than the channel takes. What has
been accepted is known here, by `progress`, not at the server. Lines of recorders have numbers: so it is known what comes again,
when a stream has lost what it had and was given it a second time, and what is missing.
"""

import asyncio
import contextlib
import math
import random
import select
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from ..client import ClientError
from ..client.channel import TRANSIENT, end_of_block
from ..client.errors import TooLong
from ..core.text import are, counted, printable
from ..host.troubles import Troubles
from ..host.voice import Voice
from ..nats.address import StreamAddress
from ..nats.connection import Connection, Servers
from ..nats.consumer import BATCH_BYTES, Consumer, Disputed, Taken, Unconfirmed
from ..nats.errors import Away, NatsError
from ..nats.handed import Handed
from ..nats.owner import Owner
from ..nats.pace import Pace
from ..nats.state import State
from ..nats.stream import Stream
from ..nats.wanted import Unfit, Wanted
from .agreement import begin_anew, known, removed
from .progress import Progress
from .running import soon
from .sparing import SECONDS, Sparing
from .taken import Lines, lines_of, offset
from .target import Target

WAITING_BYTES = 8 << 20
"""Bytes of lines that wait for the channel; then no more are taken."""

PAUSE_SECONDS = 0.002
"""How often it is looked whether they have gone."""

RETRY_SECONDS = (0.1, 2.0)
"""How soon, and later how seldom, it is tried again to reach the stream."""

GONE_SECONDS = 2.0
"""How long is waited when somebody has removed the consumer: who takes over has time to make it anew."""

STABLE_SECONDS = 5.0
"""How long a connection must have lasted so that the next is made soon, if it has not brought anything."""

LONG_SECONDS = 5.0
"""How often a line is tried again that is longer than the bus takes."""

LOOK_SECONDS = 2.0
"""How often it is looked whether the bus is there and the channel has its name, and how far it has come goes to the disk; and, of
one who waits for the channel, whether the consumer is there."""

END_SECONDS = 1.0
"""How long the end waits for a write that has begun, and for the server to get what is confirmed."""


class Delivery:
    """Writes what a stream has to a channel.

    Args:
        channel: the path of a U or B channel.
        address: the stream, with its servers, and perhaps of which subjects.
        servers: these.
        wanted: what the stream is to be.
        consumer: the name of the stream's consumer.
        progress: how far it has come.
        voice: says what happens.
        mode: permissions of a channel that is created; None: what the umask leaves of 666.
        waits: whether it waits for a bus or a master that is not there or has gone, and for servers that are not there at first.
        takes_over: whether a consumer of that name that is somebody else's is taken over.
    """

    def __init__(
        self,
        channel: Path,
        address: StreamAddress,
        servers: Servers,
        wanted: Wanted,
        consumer: str,
        progress: Progress,
        voice: Voice,
        *,
        mode: int | None = None,
        waits: bool = False,
        takes_over: bool = False,
    ) -> None:
        self._path, self._address, self._servers, self._wanted = channel, address, servers, wanted
        self._consumer, self._progress, self._voice = consumer, progress, voice
        self._owner = Owner(
            progress.owner, known=progress.consumers, handed=progress.handed, keep=progress.keep_known, rename=progress.rename
        )
        self._waits, self._takes_over = waits, takes_over
        self._pace = Pace(BATCH_BYTES)
        self._target = Target(channel, voice, mode=mode, waits=waits)
        self._sparing = Sparing(voice.warn)
        self._long = Troubles()
        """Lines that the bus does not take."""
        self._taken = self._told = 0
        """The number of the last message that has been taken from the stream, and up to which it is told what was removed."""
        self._created = ""
        """When the stream was made that they are of."""
        self._warned: set[str] = set()
        """What has been said of the stream since it was reached last."""
        self._settled_to = 0
        """Up to which number nothing is to come or to be said any more, and that is not noted yet."""
        self._telling: asyncio.TimerHandle | None = None
        """When that is said, if something of that kind was said just now."""
        self._reply = ""
        """The subject on which the last message is confirmed that has been taken, from any connection."""
        self._look_at = 0.0
        self._waiting: deque[Lines] = deque()
        self._size = 0
        self._is_busy = False
        """Whether lines that have waited are being written."""
        self._counted = 0, 0
        """Up to which byte of them lines have been counted, and how many there are."""
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        """Held while something is written and noted; for good when it has ended."""
        self._has_stopped = False
        """Whether that has been tried."""
        self._done: deque[Handed] = deque()
        self._is_done = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._missing = 2
        """How many of the channel and the stream have not been reached yet."""
        self._has_reached = threading.Event()
        """Whether the stream was reached, ever."""
        self._counting = threading.Lock()
        self._has_begun = False
        """Whether the stream may have a consumer that is known by what is in `progress`."""

    @property
    def shown(self) -> str:
        """What is delivered where."""
        return f"{self._address.shown} is delivered to {self._path}"

    def _joined(self, ready: Callable[[], object]) -> None:
        with self._counting:
            self._missing -= 1
            is_last = not self._missing
        if is_last:
            ready()

    def farewell(self) -> None:
        """Lets no further write begin, and waits for one that has. Of a delivery that could not begin, nothing is kept."""
        if not self._has_stopped:
            self._writing.acquire(timeout=END_SECONDS)
        self._say_removed()
        self._sparing.tell(is_over=True)
        if not self._has_begun:
            self._progress.discard()
        with contextlib.suppress(OSError):
            self._progress.flush()

    # ------------------------------------------------------------------------------------------ from the stream

    async def run(self, ready: Callable[[], object]) -> None:
        """Takes what the stream has, for good.

        Args:
            ready: is called when channel and stream have been reached for the first time.

        Raises:
            NatsError: the stream cannot be had at first, or messages of it cannot be confirmed, or somebody else has taken over.
        """
        self._loop = asyncio.get_running_loop()
        is_first, is_well = True, True
        pause, longest = RETRY_SECONDS
        said = ""
        while True:
            connection, first, begun, least = None, math.inf, math.inf, 0.0
            try:
                connection = await self._servers.connect()
                stream, state, consumer = await connection.while_open(self._reach(connection))
                if is_first:
                    self._has_reached.set()
                    self._joined(ready)
                elif not is_well:
                    self._voice.say(f"{self._address.shown} is there again")
                is_first, is_well, said, begun = False, True, "", time.monotonic()
                self._tell_soon()
                first = self._taken + 1
                await self._take_all(stream, state, consumer)
            except NatsError as error:
                self._drop()
                if self._taken >= first or time.monotonic() - begun > STABLE_SECONDS:
                    pause = RETRY_SECONDS[0]
                if isinstance(error, Disputed):
                    least = 0.0 if self._takes_over else GONE_SECONDS
                elif is_first and not (self._waits and isinstance(error, Away)):
                    raise
                if isinstance(error, Taken):
                    raise  # another delivery goes on with it, and nothing can come here any more
                if isinstance(error, Unconfirmed) and not self._reply:
                    raise  # no message has ever come, so it could not be known before
                is_well = False
                if str(error) != said:
                    said = str(error)
                    self._voice.warn(f"{said}; waiting")
            finally:
                if connection:
                    await connection.close()
            await asyncio.sleep(max(pause, least))
            pause = min(pause * 1.5, longest)

    async def _reach(self, connection: Connection) -> tuple[Stream, State, Consumer]:
        """Makes the consumer behind what has been written. Returns what it has found, and it."""
        stream = Stream(connection, self._address.stream)
        while True:
            consumer = Consumer(stream, self._consumer, self._owner, self._address.subject, self._pace, self._gone, self._settled)
            await self._settle(connection, consumer)
            is_new, state = await self._first(stream, consumer)
            if is_new and self._progress.has_known and not self._taken:  # what goes of it from now on is somebody's
                begin_anew(state, 0, self._progress, self._address.subject)
                is_new = False
            has_begun, self._has_begun = self._has_begun, True
            try:
                await consumer.begin(self._taken + 1, self._reply, last=state.last, takes_over=self._takes_over)
            except BaseException as error:  # it is cancelled, too, when the server does not let us
                if isinstance(error, Taken) or not consumer.is_made:
                    self._has_begun = has_begun
                if not isinstance(error, Taken) or not self._takes_over:
                    raise
                # Another has made one meanwhile, and may have come further. If it takes over too, one of the two must come first.
                await asyncio.sleep(random.uniform(0, RETRY_SECONDS[0]))
            else:
                self._takes_over = False
                now = await stream.state()
                if now.created == state.created:
                    if is_new:
                        self._told = begin_anew(now, self._taken, self._progress, self._address.subject, consumer.found)
                    self._warned.clear()
                    return stream, state, consumer
                # It was made anew meanwhile. Later that would be seen: a consumer goes with its stream.

    async def _settle(self, connection: Connection, consumer: Consumer) -> None:
        """Waits for what is being written, so that it is known what that is. Who does not take it would not take more either.

        Raises:
            Taken: another delivery goes on with it meanwhile.
        """
        await self._wait(connection, lambda: not self._is_busy, None if self._takes_over else consumer.check_free)
        self._done.clear()

    async def _wait(
        self, connection: Connection, is_over: Callable[[], bool], look: Callable[[], Awaitable[object]] | None
    ) -> None:
        """Waits for the thread that writes, however long that takes, and now and then looks whether it is of use."""
        look_at = time.monotonic() + LOOK_SECONDS
        while not is_over():
            if look and time.monotonic() >= look_at:
                try:
                    await look()
                except Away:  # a server that has much to do is no reason to give up what has been taken
                    if connection.is_closed.is_set():
                        raise
                look_at = time.monotonic() + LOOK_SECONDS
            await asyncio.sleep(PAUSE_SECONDS)

    def _drop(self) -> None:
        """Forgets what waits, for it comes again: the stream's consumer begins behind what has been written."""
        with self._changed:
            self._waiting.clear()
            self._size = 0

    async def _first(self, stream: Stream, consumer: Consumer) -> tuple[bool, State]:
        """Finds what need not come. Returns whether that is all that is known of the stream, see `Known`, and what it has."""
        state = await self._wanted.have(stream)
        if state.retention != "limits":
            raise Unfit(f"{stream.shown} forgets what somebody has read (its retention is {state.retention}): it must not")
        if self._takes_over:
            # It goes to the disk before the consumer is removed: afterwards nobody else knows it.
            await self._go_on(stream, state, consumer)
            self._progress.flush()
            await self._go_on(stream, state, consumer)  # and what was written meanwhile
            self._progress.flush()
            state = await self._wanted.have(stream)
        self._taken, self._told, is_new = await known(stream, state, self._progress, self._warn)
        self._created, self._settled_to = state.created, 0
        return is_new, state

    def _warn(self, words: str) -> None:
        """Says something of the stream, once until it is reached."""
        if words not in self._warned:
            self._warned.add(words)
            self._voice.warn(words)

    async def _go_on(self, stream: Stream, state: State, consumer: Consumer) -> None:
        """Notes how far the other delivery has come, if that is further."""
        reached = self._progress.reached
        taken = await consumer.confirmed()
        if taken > (reached.sequence if reached.created == state.created else 0):
            there = await stream.stored(taken)
            self._has_begun = True
            self._progress.go_on(state.created, taken, there[1] if there and there[0] == taken else 0)

    async def _take_all(self, stream: Stream, state: State, consumer: Consumer) -> None:
        confirming = asyncio.ensure_future(self._confirm(consumer))
        connection = stream.connection
        try:
            async for message, handed in consumer.messages():
                self._reply = handed.reply
                if self._size > WAITING_BYTES:
                    # Meanwhile nothing may be asked for, and then nobody tells whether the consumer has gone.
                    await self._wait(
                        connection, lambda: self._size <= WAITING_BYTES or connection.is_closed.is_set(), consumer.check
                    )
                if connection.is_closed.is_set():
                    continue  # it comes again
                # With a subject, others' messages are missing, too; see `_gone`.
                missing = 0 if self._address.subject else message.sequence - 1 - self._known_to
                self._taken = message.sequence
                self._put(lines_of(state.created, message, handed)._replace(removed=max(missing, 0)))
        except asyncio.CancelledError:
            confirming.cancel()  # the end confirms, too
            await self._stop(stream, consumer)
            raise
        finally:
            confirming.cancel()

    @property
    def _known_to(self) -> int:
        """Up to which number all has come, or is noted to be removed, or was for others."""
        return max(self._taken, self._told, self._progress.looked(self._created))

    def _gone(self, number: int) -> None:
        """Notes that the stream has nothing any more, up to that number, that has not come.

        It is said soon, and once: later nobody may know it.
        """
        if number > self._known_to:
            self._progress.note(gone=range(self._known_to + 1, number + 1))
            self._settled(number)
            self._tell_soon()

    def _settled(self, number: int) -> None:
        """Notes that nothing is to come any more up to that number, nor to be said of it."""
        self._told, self._settled_to = max(number, self._told), max(number, self._settled_to)
        self._note_settled()

    def _note_settled(self) -> None:
        """Has the next one know that, as soon as all is written that has come: what is not may be gone, too."""
        with self._changed:
            is_written = not self._waiting and not self._is_busy and self._progress.reached.sequence >= self._taken
        if self._settled_to and is_written:
            self._progress.look(self._created, self._settled_to)
            self._settled_to = 0

    def _tell_soon(self) -> None:
        """Has said what was removed: at once, or not long after it was said before."""
        if self._telling is None:
            self._tell_removed()

    def _tell_removed(self) -> None:
        self._telling = None
        if self._say_removed():
            self._telling = asyncio.get_running_loop().call_later(SECONDS, self._tell_removed)

    def _say_removed(self) -> int:
        """Says how many messages were removed, if that was not said. Returns how many."""
        if count := self._progress.reached.unsaid:
            self._voice.warn(removed(self._address.shown, count, self._address.subject))
            self._progress.note(said=count)
        return count

    async def _stop(self, stream: Stream, consumer: Consumer) -> None:
        """Lets no further write begin, and confirms what has been written: who goes on elsewhere need not write it again."""
        self._drop()
        self._has_stopped = True
        with contextlib.suppress(NatsError, TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while not self._writing.acquire(blocking=False):  # noqa: ASYNC110 - a thread lets go of it
                    await asyncio.sleep(PAUSE_SECONDS)
                while self._done:
                    await consumer.confirm(self._done.popleft())
                await stream.connection.settle()
                await stream.connection.confirm()

    def _put(self, found: Lines) -> None:
        with self._changed:
            self._waiting.append(found)
            self._size += len(found.data)
            self._changed.notify_all()

    async def _confirm(self, consumer: Consumer) -> None:
        """Confirms what has been written."""
        with contextlib.suppress(Away):  # who takes messages meets it too
            while True:
                await self._is_done.wait()
                self._is_done.clear()
                while self._done:
                    await consumer.confirm(self._done[0])
                    self._done.popleft()  # not before: it may be stopped meanwhile
                self._note_settled()

    # ------------------------------------------------------------------------------------------ to the channel

    def run_channel(self, ready: Callable[[], object]) -> None:
        """Writes what comes, for good. To be called in a thread.

        If servers are not waited for, the channel is not opened, which would make it, before they have been reached.

        Args:
            ready: as for `run`.

        Raises:
            ClientError: the channel cannot be had, or has gone and is not waited for.
        """
        if not self._waits:
            self._has_reached.wait()
        self._target.open()
        self._joined(ready)
        while True:
            found = self._next()
            start = self._begin(found)
            while start < len(found.data):
                start = self._write(found, start)
            if self._is_busy:  # there was nothing to write
                with self._writing:
                    self._end(found)

    def _next(self) -> Lines:
        """The next lines, as soon as there are some. Looks after the channel meanwhile, however quickly they come."""
        while True:
            if (left := self._look_at - time.monotonic()) <= 0:
                self._progress.flush()
                self._sparing.tell()
                self._target.look()
                self._look_at = time.monotonic() + LOOK_SECONDS
                continue
            with self._changed:
                if self._changed.wait_for(lambda: self._waiting, left):
                    found = self._waiting.popleft()
                    self._size -= len(found.data)
                    self._is_busy = True
                    return found

    def _begin(self, found: Lines) -> int:
        """Where in these lines to begin: what has been written of them before is not written again."""
        reached, where, start = self._progress.reached, found.where, 0
        self._counted = 0, 0
        is_same = reached.current == found.sequence and reached.created == found.created
        is_same = is_same and reached.moment in (0, found.handed.time)
        if where is None:
            start = reached.position if is_same else 0
        elif (following := self._progress.lines.get(found.source)) is not None:
            start = offset(found.data, min(following - where.line, where.lines))
            if where.line > following:
                source = printable(f"{where.host}:{where.channel}")
                gone = counted(where.line - following, "line")
                self._sparing.warn(found.subject, f"{gone} of {source}, from {following} on, are missing in the stream")
            elif start and not is_same:
                again = counted(min(following - where.line, where.lines), "line")
                self._sparing.warn(found.subject, f"{again} of {printable(where.host)} came again")
        if is_same and reached.intent:
            count = found.data.count(b"\n", start, start + reached.intent)
            self._voice.warn(
                f"the delivery was killed while it wrote to {self._path}:"
                f" {counted(count, 'line')} {are(count)} sent again, and some or all of them may arrive twice"
            )
        before = None if is_same else range(found.sequence - found.removed, found.sequence)
        self._note(found, start, 0, before)
        if before:
            soon(self._loop, self._tell_soon)
        return start

    def _note(self, found: Lines, position: int, intent: int, gone: range | None = None) -> None:
        spool, line = "", 0
        if found.where:
            place, count = self._counted if position >= self._counted[0] else (0, 0)
            count += found.data.count(b"\n", place, position)  # from the beginning each time, it would be quadratic
            self._counted = position, count
            spool, line = found.source, found.where.line + count
        self._progress.note(
            gone=gone,
            created=found.created,
            current=found.sequence,
            position=position,
            intent=intent,
            spool=spool,
            line=line,
            moment=found.handed.time,
        )

    def _end(self, found: Lines) -> None:
        """Notes that these lines are written, and has them confirmed. To be called with `_writing`."""
        if found.where:
            following = max(found.where.next, self._progress.lines.get(found.source, 0))
            self._progress.note_lines(found.source, following, found.share)
        self._progress.mark(found.created, found.sequence, found.handed.time)
        self._progress.done(
            found.sequence,
            found.handed.time,
            created=found.created,
            since=self._progress.reached.since or self._progress.reached.sequence + 1,
            latest=max(found.handed.time, self._progress.reached.latest),
        )
        self._done.append(found.handed)
        self._is_busy = False
        self._long.end()
        soon(self._loop, self._is_done.set)

    def _write(self, found: Lines, start: int) -> int:
        """Writes lines from one on. Returns up to where they were accepted: all, or what was when the channel had gone."""
        data, sent, whole = found.data, start, start
        poller = select.poll()
        poller.register(self._target.channel, select.POLLOUT)
        try:
            while sent < len(data):
                accepted = sent
                with self._writing:
                    self._note(found, whole, end_of_block(data, sent) - whole)
                    try:
                        with contextlib.suppress(BlockingIOError):
                            accepted = self._target.channel.send_nowait(data, sent)
                    except ClientError:
                        self._note(found, whole, 0)
                        raise
                    is_stuck = accepted == sent
                    sent, whole = accepted, data.rfind(b"\n", 0, accepted) + 1
                    self._note(found, whole, 0)
                    if sent >= len(data):
                        self._end(found)
                if is_stuck:
                    poller.poll()
        except TooLong as error:
            words = f"{error}; it waits until the bus takes it, and so do all behind it"
            if self._long.is_due(words):
                self._voice.warn(words)
            time.sleep(LONG_SECONDS)
            self._target.open()
        except TRANSIENT as error:
            self._target.gone(error)
        return whole
