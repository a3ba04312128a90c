"""The process of a recorder that publishes what its spool has in a stream: each line once, whatever dies.

The one rule: each message behind one that is known, or not at all. Whenever there is a doubt, after a start or anything that went
wrong, the stream is asked for its last message of the subject, which says how far it has come. process.py runs it.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ..core.text import are, counted, size, spanned, were
from ..host.troubles import Troubles
from ..nats import runs
from ..nats.connection import Servers
from ..nats.errors import Away, NatsError
from ..nats.state import State
from ..nats.stream import NotThere, Overtaken, Stream, UnderWay
from ..nats.wanted import doubt
from ..nats.window import Window
from ..spool import LinesDamaged, Spool, SpoolError
from .channel import Say
from .ours import Foreign, Ours, owner
from .outgoing import LineTooLong, Outgoing, following
from .target import NoteKeeper, Target

T = TypeVar("T")

RETRY_SECONDS = (0.1, 5.0)
"""How soon, and later how seldom, it is tried again to reach the stream."""

STABLE_SECONDS = 5.0
"""How long it must have gone well so that the next try is made soon."""

LOOK_SECONDS = (0.005, 0.05)
"""How often it is looked whether there are new lines: soon after some have come, and later."""

FLUSH_SECONDS = 5.0
"""How often the note is brought to the disk."""

CHECK_SECONDS = 1.0
"""How often it is looked whether the stream has what was confirmed, and is what it was, while there is something new."""


class Publisher:
    """Publishes a spool.

    Args:
        path: the spool.
        target: where to.
        note: how far it has come.
        say: is told, in one sentence, what somebody should know.
        complain: the same, of what goes wrong for good.
        joined: is called once: with True when the stream has been reached, with False if it was not to be at first.
    """

    def __init__(
        self, path: Path, target: Target, note: NoteKeeper, say: Say, complain: Say, joined: Callable[[bool], object]
    ) -> None:
        self._spool = Spool(path)
        self._target, self._note, self._say, self._complain, self._joined = target, note, say, complain, joined
        self._subject = target.address.subject or ""
        host = socket.gethostname()
        self._host, self._channel = host, self._spool.channel
        self._servers = Servers(target.address.servers, target.access, f"futebus-record {host}:{path}")
        self._has_told = False
        """Whether `joined` was called."""
        self._troubles = Troubles()
        self._began = 0.0
        """When the stream was reached."""
        self._waiting = ""
        """What was to be published then, for people."""
        self._limit = ""
        """What allows messages to have no more bytes, for people."""
        self._doubt = ""
        """Why lines may be there twice, as it was said last."""
        self._flushed = self._checked = time.monotonic()
        self._damage: set[tuple[int, int]] = set()
        self.foreign = ""
        """Why the subject takes no line of this spool any more; "" if it does."""
        self.is_finishing = asyncio.Event()
        """Whether it is to end when all is published that is there."""

    @property
    def left(self) -> int:
        """How many lines are not in the stream."""
        with contextlib.suppress(SpoolError, OSError):
            return max(self._spool.end - max(self._note.note.of(self._spool.id).next, self._spool.begin), 0)
        return 0

    def _lag(self, left: int) -> str:
        with contextlib.suppress(SpoolError, OSError):
            return f"{counted(left, 'line')} ({size(self._spool.size_from(self._note.note.of(self._spool.id).next))})"
        return counted(left, "line")

    async def run(self, ends_if_refused: Callable[[], bool]) -> None:
        """Publishes, until it is finishing and all is published, or the stream is away.

        Args:
            ends_if_refused: tells whether what will not pass by itself ends it, before the stream has been reached.

        Raises:
            NatsError: that.
        """
        pause, longest = RETRY_SECONDS
        while True:
            connection, before = None, self._note.note.checked
            trouble = self.foreign = ""
            self._began = 0.0
            try:
                connection = await self._servers.connect()
                stream = Stream(connection, self._target.address.stream)
                stream.room.expect(self._subject, runs.headers(runs.longest(self._spool.id, self._host, self._channel)))
                while not await self._go_on(stream):
                    pass
                return
            except Overtaken as error:
                if pause == longest:  # else by itself, a moment ago, or by another: the stream is asked
                    trouble = str(error)
            except UnderWay as error:
                if pause == longest:  # else it is there in a moment
                    trouble = str(error)
            except NatsError as error:
                if not self._has_told and not isinstance(error, Away) and ends_if_refused():
                    raise
                trouble = str(error)
                self.foreign = trouble * isinstance(error, Foreign)
            except LineTooLong as error:
                waits = "it and those behind it wait for that"
                trouble = f"line {error.line} has {error.size} bytes, more than {self._limit}; {waits}"
            except (SpoolError, OSError) as error:
                trouble = str(error)
            finally:
                if connection:
                    await connection.close()
            if trouble:
                self._tell(trouble)
            self._flush()
            is_stable = self._began and time.monotonic() - self._began > STABLE_SECONDS
            if is_stable or self._note.note.checked > before:
                pause = RETRY_SECONDS[0]
            if self.is_finishing.is_set() and trouble:
                return
            await self._pause(pause)
            pause = min(pause * 1.5, longest)

    async def _go_on(self, stream: Stream) -> bool:
        """Publishes behind what the stream has, until it is finishing and all is published.

        Returns:
            False if the stream is to be asked again what it has, since what was published last may have gone by its limits.

        Raises:
            Overtaken: it is to be asked again, and nothing was published.
            NatsError, LineTooLong: it does not get on.
        """
        connection = stream.connection
        state = await connection.while_open(self._target.wanted.have(stream))
        stream.room.check(stream.shown)
        self._say_doubt(doubt(stream.shown, state))
        at, behind = await connection.while_open(self._where(stream, state))
        self._began = self._began or time.monotonic()
        self._tell_holder(is_there=True)
        left = self.left
        self._waiting = f"; {self._lag(left)} to be published" if left else ""
        self._limit = f"the {stream.max_payload} that {stream.limit}"
        self._note.keep(most=stream.max_payload)
        try:
            await self._publish(stream, at, behind)
        except NotThere:
            raise
        except Overtaken:
            if self._note.note.next <= at:
                raise
            return False
        return True

    async def _pause(self, seconds: float) -> None:
        if self.is_finishing.is_set():
            await asyncio.sleep(RETRY_SECONDS[0])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.is_finishing.wait(), seconds)

    # ------------------------------------------------------------------------------------------ what is said

    def _tell(self, trouble: str) -> None:
        """Says what keeps lines from being published, now and then."""
        self._note.keep(trouble=trouble)
        if self._troubles.is_due(trouble):
            left = self.left
            kept = f"; {self._lag(left)} in the spool {are(left)} kept for it" if left else ""
            self._complain(f"{self._subject}: {trouble}{kept}")
        self._tell_holder(is_there=False)

    def _well(self) -> None:
        """Is called when the stream has taken what it was given, or nothing is left: to be connected to it says nothing."""
        self._note.keep(trouble="")
        if self._troubles.end():
            self._say(f"{self._target.address.shown} is there again{self._waiting}")

    def _say_doubt(self, doubt: str) -> None:
        if doubt and doubt != self._doubt:
            self._complain(doubt)
        self._doubt = doubt

    def _tell_holder(self, *, is_there: bool) -> None:
        if not self._has_told:
            self._has_told = True
            self._joined(is_there)

    def _damaged(self, damage: LinesDamaged) -> None:
        if (damage.first, damage.stop) not in self._damage:
            self._damage.add((damage.first, damage.stop))
            self._complain(f"{damage}; they are not published")

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        with contextlib.suppress(OSError, SpoolError):
            self._note.flush()

    def _flush_in_time(self) -> None:
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._flush()

    # ------------------------------------------------------------------------------------------ where to go on

    async def _where(self, stream: Stream, state: State) -> tuple[int, int]:
        """Where to go on: the number of the next line, and that of the message that it comes behind."""
        note, begin, end = self._note.note.of(self._spool.id), self._spool.begin, self._spool.end
        is_another = note != self._note.note
        is_known = bool(note.created and (note.marks or note.sequence or note.next))
        is_anew = is_known and note.created != state.created
        is_first = not is_known or is_anew
        last = own = await stream.last(self._subject)
        behind = last.sequence if last else 0
        if last and last.is_marker:
            last = own = None  # it is nobody's
        ours = Ours(self._spool, stream, self._subject)

        def going(words: str, first: int) -> str:
            """Says which of the lines that were confirmed go there again: retention may have removed some meanwhile."""
            first, stop = max(first, begin), min(note.next, end)
            return words % spanned(first, stop) if first < stop else ""

        if last and not ours.is_named(last):
            own = None
            if is_first or last.sequence != note.sequence:  # else it is the one behind which it was to go on
                # Once: two that took a subject over for ever would do it in turn.
                if not self._target.takes_over or not (is_first or is_another):
                    raise ours.foreign(last, "--take-over" if is_first or is_another else "a new spool with --take-over")
                self._say(f"{self._subject} is taken over from {owner(last)}")
                own = await ours.last_before(last.sequence)
        found = runs.read(own.headers) if own else None
        if own and found:
            ours.check(own, found)
            at = found.next
            if is_known and not is_anew and at < note.next:
                if note.marks and not await ours.has_lost(state, note.marks[-1]):
                    at = max(at, note.checked)  # somebody has removed the last; who does that does not want it back
                else:
                    lost = f"has lost {spanned(at, note.next)}, which it had confirmed"
                    self._say(f"{stream.shown} {lost}{going(', and is sent %s again', at)}")
        elif is_known:
            at = begin if is_another else note.checked  # whether it had the others nobody knows any more
            if not is_anew and note.marks and stream.max_payload == note.most and not await ours.has_lost(state, note.marks[-1]):
                at = note.next  # it had room for them, and they have gone by its limits
            if is_anew:
                lost = f": what that one had, up to line {at - 1}, is not in it"
                lost *= at > 0 and bool(note.marks or note.sequence)
                recent = going("; what was confirmed last, %s, goes there, since it may not have had that", at)
                self._say(f"{stream.shown} is another stream than before{lost}{recent}")
            if not is_anew and not is_another and await ours.has_lost(state, note.last):
                there = await ours.there(state, note.marks)
                at = there[-1].next if there else min(begin, note.next)
                lost = f"has lost messages that it had confirmed, and all of {self._subject}"
                self._say(f"{stream.shown} {lost}{going(', and is sent %s again', at)}")
        else:
            at = begin
        if at > end:
            # New lines would get the numbers of others that the stream has.
            ending = f"ends with line {end - 1}" if end else "has no line"
            raise Foreign(
                f"{self._spool.path} {ending}, and {stream.shown} has more of it, up to line {at - 1}:"
                " this is an old copy, or lines were lost from it; a new spool can go on behind it, with --take-over"
            )
        for first, stop, then in (
            (at, min(note.next, begin), "since, and cannot go there again"),
            (max(at, note.next), begin, "before being published"),
        ):
            if first < stop:
                self._complain(f"{self._spool.path}: {spanned(first, stop)} {were(stop - first)} removed {then}")
        at = max(at, begin)
        marks = () if is_anew else await ours.there(state, tuple(mark for mark in note.marks if mark.next <= at))
        self._checked = time.monotonic()
        self._note.keep(created=state.created, next=at, checked=at, sequence=behind, marks=marks, spool=self._spool.id)
        return at, behind

    async def _check(self, stream: Stream, most: int) -> None:
        """Sees that the stream has what was confirmed: who listens to the subject can do that in its place.

        Args:
            stream: it.
            most: the bytes that messages are made for.

        Raises:
            Overtaken: it has not, or is not what it was: it is to be asked what it has.
        """
        self._checked = time.monotonic()
        note = self._note.note
        state = await stream.state()
        if state.created != note.created or stream.max_payload != most:
            raise Overtaken(f"{stream.shown} is not what it was")
        if note.marks and await Ours(self._spool, stream, self._subject).has_lost(state, note.marks[-1]):
            raise NotThere(f"{stream.shown} does not have what was confirmed in its name")
        self._note.keep(checked=note.next)

    # ------------------------------------------------------------------------------------------ publishing

    async def _publish(self, stream: Stream, at: int, behind: int) -> None:
        """Publishes from a line on, until it is finishing and nothing is left."""
        most = self._note.note.most
        found = following(self._spool, at, most, self._damaged)
        window = Window(stream, self._subject, behind, self._confirmed, self._removed)
        reading = self._read(found)
        try:
            while True:
                some = await reading
                if not isinstance(some, list):
                    await window.finish()
                if isinstance(some, LineTooLong):
                    raise some
                if isinstance(some, int):
                    self._note.keep(next=some)  # damaged lines may be the last
                    self._well()
                    if not await self._has_more(some, stream, most):
                        return
                    reading = self._read(found)
                    continue
                # What comes next is brought to the disk, and looked at, while these are under way.
                reading = self._read(found)
                for run in some:
                    if time.monotonic() - self._checked > CHECK_SECONDS:  # also what the stream takes may have changed since
                        await window.finish()
                        await stream.connection.while_open(self._check(stream, most))
                    where = self._named(run)
                    name = f"{self._note.note.secret} {where.name}"
                    await window.put(run.data, runs.headers(where), name, run)
        finally:
            await window.close()
            await asyncio.wait([reading])  # the spool is for one thread at a time

    def _confirmed(self, sequence: int, run: Outgoing) -> None:
        self._note.confirmed(sequence, run.next)
        self._well()
        self._flush_in_time()

    def _removed(self, run: Outgoing) -> None:
        lines = f"{spanned(run.line, run.next)} went there again"
        self._say(f"{self._target.address.shown} has removed what it was sent, before it was known to be there: {lines}")

    @staticmethod
    def _read(found: Iterator[T]) -> asyncio.Future[T]:
        return asyncio.ensure_future(asyncio.to_thread(next, found))

    async def _has_more(self, end: int, stream: Stream, most: int) -> bool:
        """Waits until the spool has more. Returns False if it is finishing, and has not.

        Raises:
            Away: the connection has gone.
            Overtaken: the stream does not have what it has confirmed.
        """
        connection = stream.connection
        pause, longest = LOOK_SECONDS
        closed = asyncio.ensure_future(connection.is_closed.wait())
        try:
            while self._spool.end == end:
                is_over = self.is_finishing.is_set()
                is_due = is_over or time.monotonic() - self._checked > CHECK_SECONDS
                if is_due and self._note.note.checked < end:
                    await connection.while_open(self._check(stream, most))
                if is_over:
                    return False
                self._flush_in_time()
                await asyncio.wait([closed], timeout=pause)
                if closed.done():
                    raise Away(f"{connection.server.shown}: {connection.why}")
                pause = min(pause * 1.2, longest)
            return True
        finally:
            closed.cancel()

    def _named(self, run: Outgoing) -> runs.Where:
        return runs.Where(self._spool.id, run.line, run.lines, run.time, self._host, self._channel)
