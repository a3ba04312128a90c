"""A spool, to write.

The one rule: whatever fails, and whenever, what was there stays. What was begun and not finished, for an error or for Ctrl-C, is
left as a writer that is killed leaves it; the next call opens the spool anew, as the next writer would.
"""

import contextlib
import os
import threading
import time
import uuid
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from ..core.text import are, counted
from . import older
from .files import FULL, OWN_MODE, blamed, close_all
from .last import LastSegment
from .layout import (
    FIRST_SEGMENT_BYTES,
    FORMAT,
    MARK,
    MARKS,
    READ_BYTES,
    READ_ROOM,
    SEGMENT_BYTES,
    found_without,
    read_part,
    segment_firsts,
)
from .lock import SpoolLock
from .marks import Mark
from .recover import Recovered, recover
from .repair import UNKNOWN, boot
from .restore import put_index, restore
from .room import LEAST_BYTES, Room, hold, rooms, smallest
from .segment import Segment
from .warming import Warmer


class SpoolWriter:
    """A spool, to write: creates it if need be, locks it, and repairs what a writer that was killed has left.

    Args:
        path: the directory; its parents must exist.
        channel: the name of the channel.
        is_continued: whether the channel is still read through the same open file description as by the writer before. Then a
            line whose end that writer did not get goes on with what is read next; otherwise its end will never come.
        segment_bytes: how long a segment gets.
        first_segment_bytes: how long the first one is.
        lock: the right to write it, if the caller has it already; it stays the caller's.
        mode: the permissions of the directory if it is made, as for `SpoolLock`.
        patience: seconds for which the right to write it is waited for, as for `SpoolLock`.
        goes_on: is asked now and then, where opening it may take long, whether it is still wanted.

    Raises:
        ForeignSpool: it is the spool of another channel.
        NotASpool: the directory has something else in it, or others can write to it.
        SpoolInUse: somebody else writes it.
        SpoolStopped: it is not wanted any more.
        OSError: as the system says, `ENOSPC` among others.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        channel: str,
        *,
        is_continued: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        first_segment_bytes: int = FIRST_SEGMENT_BYTES,
        lock: SpoolLock | None = None,
        mode: int = OWN_MODE,
        patience: float = 0,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.path = Path(path)
        self._goes_on = goes_on
        self._segment_bytes = segment_bytes
        self._first_segment_bytes = self._next_segment_bytes = min(first_segment_bytes, segment_bytes)
        self._room = min(READ_ROOM, max(segment_bytes // 4, 1))
        """How much room one read wants. A segment that is hardly longer would end behind each."""
        self._tight = min(LEAST_BYTES, self._room)
        """How much it makes do with where the disk has little."""
        self.torn = 0
        """How many bytes of a line without an end were cut off when it was opened."""
        self.recovered = 0
        """How many lines were found then that the writer before had taken and not marked."""
        self.damage: list[str] = []
        """What was found then to be wrong with its segments, a sentence each."""
        self.changed: list[str] = []
        """What of that was mended, or could not be: nobody finds it again. The rest stays as it is."""
        self._last: LastSegment | None = None
        self._synced_first = -1
        self._unsynced: list[int] = []
        """Segments that were ended since the last `sync`, or not long before this writer came."""
        self._swap = threading.Lock()
        """Held while one segment takes the place of another, so that another thread can `sync`."""
        self._warmer = Warmer()
        self._is_sound = False
        """Whether nothing was begun that is not finished."""
        self._knows_plain = False
        """Whether marks may say that there is no NUL byte."""
        self._lock = SpoolLock(path, channel, mode=mode, patience=patience) if lock is None else lock
        self._has_own_lock = lock is None
        self._directory = self._lock.directory
        try:
            if lock is not None:
                lock.check()
            with blamed(self.path):
                self._open_last(is_continued)
            self._is_sound = True
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------------------------------ segments

    def _open_last(self, is_continued: bool) -> None:
        identity = self._lock.read_again()
        may_have_holes = boot() == UNKNOWN or identity.boot != boot()
        restored = restore(
            self.path, self._directory, identity.least, identity.lost, may_have_holes=may_have_holes, goes_on=self._goes_on
        )
        self.changed = restored.damage
        self.damage = self.changed[:]
        self._directory.remove_begun(restored.strays)
        firsts = segment_firsts(self.path, self._directory.descriptor)
        while firsts and firsts[0] < identity.least:
            # It was about to be removed. After a loss of power it may be there again.
            self._directory.remove_segment(firsts.pop(0))
        while firsts:
            segment = Segment(self.path, firsts[-1], self._directory.descriptor)
            has_lines = self._directory.has(segment.path.name)
            if len(segment) and (has_lines or segment[-1].line > segment.first):
                if not has_lines:
                    self._begin_first(segment[-1])
                    self._tell_cut(identity.cut_from, identity.cut_lines)
                elif recovered := self._recover(segment, may_have_holes=may_have_holes):
                    self._end(segment, recovered, is_continued)
                else:
                    self._resume(segment, is_continued)
                    self._tell_cut(identity.cut_from, identity.cut_lines)
                if firsts[-1] == self.first:
                    firsts.pop()
                damage, recent = older.look_back(self.path, self._directory, firsts, self.first)
                told = "\n".join(self.damage)
                self.damage += (words for words in damage if str(segment.path) not in words or str(segment.path) not in told)
                self._unsynced = sorted({*self._unsynced, *recent})
                with contextlib.suppress(OSError):  # then it is told twice
                    self._lock.note(cut_from=0, cut_lines=0)
                return
            # Power was lost before its first mark was on disk.
            self._directory.remove_segment(firsts.pop())
        if identity.boot:
            # It had one, which was on the disk. Nobody should take the offsets of lines that are gone for those of others.
            self._tell(f"{self.path} has lost all of its segments, and goes on as a new spool")
            self._tell_cut(identity.cut_from, identity.cut_lines)
            self._lock.note(format=FORMAT, id=str(uuid.uuid4()), boot="", cut_from=0, cut_lines=0)
        self._begin_first(Mark(identity.least, 0, time.time_ns(), identity.lost))

    def _begin_first(self, mark: Mark, unfinished: bytes = b"") -> None:
        """Begins a segment where there is none that goes on."""
        # It must be there also after a loss of power, before it is noted that there is one.
        self._knows_plain = self._lock.identity.format >= FORMAT
        size, begun = self._next_segment_bytes, len(unfinished)
        wishes = rooms(begun + size, begun + min(self._room, size), begun + min(self._tight, size))
        self._begin_segment(mark, wishes, unfinished, is_durable=True)
        self._note()

    def _note(self) -> None:
        """Notes that the spool is one of today's, and written during this run of the system."""
        try:
            self._lock.note(format=FORMAT, boot=boot())
        except OSError as error:
            # A full disk is no reason not to write where there is still room, but then marks stay what they were.
            if error.errno not in FULL:
                raise
        self._knows_plain = self._lock.identity.format >= FORMAT

    def _recover(self, segment: Segment, *, may_have_holes: bool) -> Recovered | None:
        """Looks whether the last segment can go on. None if so."""
        lines = index = -1
        try:
            lines = self._directory.open(segment.path.name)
            index = self._directory.open(segment.path.with_suffix(".index").name)
            hold(lines)
            marks = min(os.fstat(index).st_size // MARK.size, MARKS)
            numbers = array("Q", read_part(index, 0, marks * MARK.size))
            while numbers and not any(numbers[-4:]):
                del numbers[-4:]
            return recover(lines, numbers, segment.first, may_have_holes=may_have_holes)
        finally:
            close_all(lines, index)

    def _end(self, segment: Segment, recovered: Recovered, is_continued: bool) -> None:
        """Ends the last segment, which has got damaged, and begins the next one.

        Nobody should take the numbers of lines that are gone for those of others. Readers are told which of them are.
        """
        unfinished = recovered.unfinished if is_continued else b""
        self.torn = len(recovered.unfinished) - len(unfinished)
        self.recovered = recovered.found
        stays = recovered.end.line > segment.first
        gone, before = recovered.gone, self._lock.identity
        if before.cut_from == recovered.end.line:  # who was here before has not come to the end
            gone = max(gone, before.cut_lines)
        else:
            self._tell_cut(before.cut_from, before.cut_lines)
        if gone:
            # What tells it is gone in a moment. The disk may need the room behind the lines for that.
            self._directory.cut(segment.path.name, recovered.used)
            self._lock.note(cut_from=recovered.end.line, cut_lines=gone)
        if stays:
            if recovered.marks:
                put_index(self._directory, segment.first, recovered.marks)
            self._directory.cut(segment.path.name, recovered.size)
        self._begin_first(recovered.end, unfinished)
        destroyed: list[str] = []
        if stays:
            destroyed = older.destroyed(Segment(self.path, segment.first, self._directory.descriptor, stop=self.first))
        if gone:
            self._tell_cut(recovered.end.line, gone)
        elif stays and recovered.marks and not destroyed:
            self._tell(found_without(segment.path))
        self.damage += destroyed

    def _tell_cut(self, first: int, count: int) -> None:
        """Has it told that lines are cut off, if there were any."""
        if count:
            words = f"{counted(count, 'line')} from {first} on did not reach the disk before a loss of power"
            self._tell(f"{self.path}: {words}, and {are(count)} cut off")

    def _tell(self, words: str) -> None:
        """Has something told that nobody finds again."""
        self.changed.append(words)
        self.damage.append(words)

    def _resume(self, segment: Segment, is_continued: bool) -> None:
        """Goes on with the last segment."""
        self._last = last = LastSegment.resume(
            self._directory, self._warmer, segment, self._next_segment_bytes, is_continued=is_continued
        )
        self.recovered = last.recovered
        self.torn = last.torn or self.torn
        self._next_segment_bytes = min(max(self._next_segment_bytes, 2 * len(last)), self._segment_bytes)
        # What is found is sound from here on. Only then this run of the system may be noted.
        self._note()
        last.commit(self._knows_plain)

    def _ready(self) -> LastSegment:
        """Opens the spool anew if the last call was interrupted. Returns the last segment."""
        if not self._is_sound:
            with self._swap:
                if self._last is not None:
                    self._last.close(None)
                with blamed(self.path):
                    self._open_last(is_continued=True)
            self._is_sound = True
        assert self._last is not None
        return self._last

    def _begin_segment(
        self, mark: Mark, wishes: Iterable[Room], unfinished: bytes = b"", *, is_durable: bool = False
    ) -> LastSegment:
        """Begins a segment, as `LastSegment.begin` says. It takes the place of the one before."""
        size, before = self._next_segment_bytes, self._last
        last = LastSegment.begin(self._directory, self._warmer, mark, wishes, unfinished, is_durable=is_durable)
        if before is None or before.mapped is None:
            self._last = last
        else:
            with self._swap:
                self._unsynced.append(before.first)
                before.close(before.mark.byte)
                self._last = last
        self._next_segment_bytes = min(2 * size, self._segment_bytes)
        return last

    def _make_room(self, room: int | None) -> LastSegment:
        """Returns the last segment, which has room then: for that many bytes, or for what one read wants, or makes do with."""
        last = self._last
        if last is None or not self._is_sound:
            last = self._ready()
        if not last.has_room(self._least(last, room)):
            wanted, tight = (self._room, self._tight) if room is None else (room, room)
            with blamed(self.path):
                if last.mark.byte:
                    last = self._turn_over(last, wanted, tight)
                if not last.has_room(self._least(last, room)):
                    # There is nothing in it yet that would end it.
                    last.grow(self._next_segment_bytes, wanted, tight)
        return last

    def _least(self, last: LastSegment, room: int | None) -> int:
        """With less room than this, a segment has none. One that is short, since the disk has little, is filled all the same."""
        return min(self._room, max(len(last), self._tight) // 4) if room is None else room

    def _turn_over(self, last: LastSegment, room: int, tight: int) -> LastSegment:
        """Begins the next segment, if need be without room for a line. A line that is not finished moves on to it."""
        unfinished = last.unfinished
        least, size = len(unfinished) + room, len(last)
        tight += len(unfinished)
        self._next_segment_bytes = max(self._next_segment_bytes, least)
        self._is_sound = False
        try:
            try:
                following = self._begin_segment(last.mark, rooms(self._next_segment_bytes, least), unfinished)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                # What is not ended is never removed, and a full disk would stay so. What it had for itself is enough to end it.
                last.give_back()
                wishes = (*rooms(self._next_segment_bytes, least, tight), smallest(len(unfinished)))
                following = self._begin_segment(last.mark, wishes, unfinished)
        except OSError:
            # If nothing is left of it, nothing has changed.
            self._directory.remove_segment(last.mark.line)
            self._directory.remove(f"{last.mark.line:020d}.new")
            with contextlib.suppress(OSError):
                last.grow(size, size - last.at, size - last.at)
            self._is_sound = True
            raise
        self._is_sound = True
        return following

    # ------------------------------------------------------------------------------------------ what comes in

    @property
    def end(self) -> int:
        """The offset that the next line will get."""
        assert self._last is not None
        return self._last.mark.line

    @property
    def first(self) -> int:
        """The offset at which the last segment begins."""
        assert self._last is not None
        return self._last.first

    @property
    def lost(self) -> int:
        """How many lines are known to have been lost since the spool began."""
        assert self._last is not None
        return self._last.mark.lost

    def prepare(self, room: int | None = None) -> None:
        """Makes room for that many bytes, or for what one read wants, beginning a segment if need be.

        Raises:
            OSError: there is none; nothing has changed. `ENOSPC`: the disk is full.
        """
        self._make_room(room)

    def read_from(self, channel: int, room: int | None = None, *, most: int = READ_BYTES) -> int:
        """Takes what one read of a channel gives.

        Args:
            channel: a descriptor, opened for bulk reading.
            room: how much room to offer at least, if not the usual; what is longer may come in parts.
            most: how many bytes are asked for at most.

        Returns:
            The number of bytes; 0 at the end of the channel.

        Raises:
            BlockingIOError: there is nothing to read, and the descriptor does not block.
            OSError: as `prepare` and as readv(2); nothing has been taken. If it has a file name, the spool is to blame.
        """
        last = self._make_room(room)
        self._is_sound = False
        try:
            size = last.read_from(channel, most)
        except OSError:
            self._is_sound = True
            raise
        if size:
            last.commit(self._knows_plain)
        self._is_sound = True
        return size

    def append(self, data: bytes) -> None:
        """Takes lines that are already in memory. What does not end in a newline waits for the rest."""
        if data:
            last = self._make_room(len(data))
            self._is_sound = False
            last.append(data)
            last.commit(self._knows_plain)
            self._is_sound = True

    def note_lost(self, count: int) -> None:
        """Notes that so many lines were lost behind those that are here."""
        last = self._make_room(0)
        self._is_sound = False
        last.note_lost(count, self._knows_plain)
        self._is_sound = True

    def cut(self) -> int:
        """Cuts off a line that is not finished: its end will never come. Returns how many bytes of it there were."""
        last = self._ready()
        self._is_sound = False
        size = last.cut()
        self._is_sound = True
        return size

    def sync(self) -> None:
        """Has everything on the disk before it returns, so that a loss of power takes nothing of it.

        Another thread than the one that adds lines may call it; what is added meanwhile may be missing then.
        """
        lines = index = -1
        assert self._last is not None
        with self._swap:
            ended, self._unsynced = self._unsynced, []
            first = self.first
        try:
            with self._swap:
                # What an interrupt has closed is seen to when it is open again.
                lines, index = self._last.descriptors()
                if lines >= 0:
                    first = self._last.first
            for name in ended:
                for suffix in (".lines", ".index"):
                    with contextlib.suppress(FileNotFoundError):  # retention may have been faster
                        self._directory.sync(f"{name:020d}{suffix}")
            if lines >= 0:
                os.fdatasync(lines)
                os.fdatasync(index)
            if self._synced_first != first:
                self._directory.sync()
                self._synced_first = first
        except BaseException:
            with self._swap:
                self._unsynced = ended + self._unsynced
            raise
        finally:
            close_all(lines, index)

    def check(self) -> None:
        """Checks that what is written can be found, as `LastSegment.check` does. Another thread may call it."""
        with self._swap:
            if self._last is not None:
                self._last.check(self.path)

    # ------------------------------------------------------------------------------------------ what goes

    def retain(self, *, offset: int | None = None, size: int | None = None, age: float | None = None) -> int:
        """Removes old segments, whole ones, never the last.

        Args:
            offset: lines before it are no longer needed.
            size: how many bytes of lines to keep at least, if there are so many.
            age: how old, in seconds, lines may get. A segment goes when its youngest line is older, and so that this comes
                about, the last one is ended when its oldest line is. So no line gets older than twice that. Only the thread
                that adds lines may ask for this.

        Returns:
            How many lines were removed.

        Raises:
            OSError: as the system says. What has not been removed is still there.
        """
        if age is not None:
            self.end_old(age)
        return self.remove_old(offset=offset, size=size, age=age)

    def end_old(self, age: float) -> None:
        """Ends the last segment if its oldest line is older, in seconds. For the thread that adds lines."""
        last = self._ready()
        if last.mark.byte and last.began < time.time_ns() - int(age * 1e9):
            self._next_segment_bytes = max(self._first_segment_bytes, min(self._next_segment_bytes, 2 * last.mark.byte))
            with contextlib.suppress(OSError):  # without room for a new one, the old one stays
                self._turn_over(last, self._room, self._tight)

    def remove_old(
        self, *, offset: int | None = None, size: int | None = None, age: float | None = None, until: int | None = None
    ) -> int:
        """As `retain`, but the last segment stays as it is. Any thread may ask for this; the disk may keep it waiting.

        Args:
            offset: as for `retain`.
            size: the same.
            age: the same.
            until: lines from this one on are needed, whatever else is said.
        """
        last = self._last
        assert last is not None
        return older.remove(self.path, self._lock, last.first, last.mark.byte, offset=offset, size=size, age=age, until=until)

    # ------------------------------------------------------------------------------------------ the end

    def close(self) -> None:
        """Gives the unused disk space back and the lock up. The spool is as good without."""
        try:
            with self._swap:
                # A line that is not finished stays: whoever continues may read the rest.
                if self._last is not None:
                    self._last.close(self._last.at if self._is_sound else None)
                self._is_sound = True
        finally:
            try:
                self._warmer.close()
            finally:
                if self._has_own_lock:
                    self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
