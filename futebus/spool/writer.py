"""A spool, to write.

The one rule: whatever fails, and whenever, what was there stays. What was begun and not finished, for an error or for Ctrl-C, is
left as a writer that is killed leaves it; the next call opens the spool anew, as the next writer would.
"""

import contextlib
import errno
import mmap
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from ..core.lines import nul
from . import older
from .files import OWN_MODE
from .layout import (
    FIRST_SEGMENT_BYTES,
    FORMAT,
    MARK,
    MARKS,
    READ_BYTES,
    READ_ROOM,
    SEGMENT_BYTES,
    Mark,
    Segment,
    count_lines,
    segment_firsts,
)
from .lock import SpoolLock
from .repair import HOLE_BYTES, clear, clear_behind_hole, used, with_lines
from .warming import AHEAD_BYTES, Warmer

UNKNOWN = "unknown"


def _boot() -> str:
    """Which run of the system this is: another one after each loss of power."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return UNKNOWN


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

    Raises:
        ForeignSpool: it is the spool of another channel.
        NotASpool: the directory has something else in it, or others can write to it.
        SpoolInUse: somebody else writes it.
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
    ) -> None:
        self.path = Path(path)
        self._segment_bytes = segment_bytes
        self._first_segment_bytes = self._next_segment_bytes = min(first_segment_bytes, segment_bytes)
        self._room = min(READ_ROOM, max(segment_bytes // 4, 1))
        """How much room one read wants. A segment that is hardly longer would end behind each."""
        self.torn = 0
        """How many bytes of a line without an end were cut off when it was opened."""
        self.recovered = 0
        """How many lines were found then that the writer before had taken and not marked."""
        self.damage: list[str] = []
        """What was found then to be wrong with segments before the last, a sentence each. It stays as it is."""
        self._map: mmap.mmap | None = None
        self._synced_first = -1
        self._unsynced: list[int] = []
        """Segments that were ended since the last `sync`, or not long before this writer came."""
        self._swap = threading.Lock()
        """Held while one segment takes the place of another, so that another thread can `sync`."""
        self._is_note = False
        self._warmer = Warmer()
        self._warm_to = 0
        """Up to where pages are ready, or will soon be."""
        self._index = -1
        self._lines = -1
        self._at = 0
        self._began = 0
        """The time of the oldest line in the segment; 0 if there is none."""
        self._is_sound = False
        """Whether nothing was begun that is not finished."""
        self._knows_plain = False
        """Whether marks may say that there is no NUL byte."""
        self._lock = SpoolLock(path, channel, mode=mode) if lock is None else lock
        self._has_own_lock = lock is None
        self._directory = self._lock.directory
        try:
            if lock is not None:
                lock.check()
            with self._blamed():
                self._open_last(is_continued)
            self._is_sound = True
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------------------------------ segments

    def _open_last(self, is_continued: bool) -> None:
        identity = self._lock.read_again()
        self.damage = []
        for name in self._directory.names():
            stem, _, suffix = name.partition(".")
            # Begun, and the writer was killed before there was an index.
            is_begun = suffix == "new" or (suffix == "lines" and not self._directory.has(f"{stem}.index"))
            if is_begun and stem.isdecimal():
                self._directory.remove(name)
        firsts = segment_firsts(self.path, self._directory.descriptor)
        while firsts and firsts[0] < identity.least:
            # It was about to be removed. After a loss of power it may be there again.
            self._directory.remove_segment(firsts.pop(0))
        while firsts:
            segment = Segment(self.path, firsts.pop(), self._directory.descriptor)
            if len(segment) and self._directory.has(segment.path.name):
                self._resume(segment, is_continued)
                damage, recent = older.look_back(self.path, self._directory, firsts, segment.first)
                self.damage += damage
                self._unsynced = sorted({*self._unsynced, *recent})
                return
            # Power was lost before its first mark was on disk.
            self._directory.remove_segment(segment.first)
        if identity.boot:
            # It had one, which was on the disk. Nobody should take the offsets of lines that are gone for those of others.
            self.damage.append(f"{self.path} has lost all of its segments, and goes on as a new spool")
            self._lock.note(format=FORMAT, id=str(uuid.uuid4()), boot="")
        # It must be there also after a loss of power, before it is noted that there is one.
        self._knows_plain = self._lock.identity.format >= FORMAT
        self._begin_segment(Mark(identity.least, 0, time.time_ns(), identity.lost), is_durable=True)
        self._note()

    def _note(self) -> None:
        """Notes that the spool is one of today's, and written during this run of the system."""
        try:
            self._lock.note(format=FORMAT, boot=_boot())
        except OSError as error:
            # A full disk is no reason not to write where there is still room, but then marks stay what they were.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        self._knows_plain = self._lock.identity.format >= FORMAT

    def _resume(self, segment: Segment, is_continued: bool) -> None:
        self._lines = self._directory.open(segment.path.name)
        self._index = self._directory.open(segment.path.with_suffix(".index").name)
        size = os.fstat(self._lines).st_size
        with contextlib.suppress(OSError):
            # A segment that was closed is as long as its lines. It goes on, if the disk has room; otherwise the next begins.
            # Marks come first: where lines have room, so must their marks.
            os.posix_fallocate(self._index, 0, MARKS * MARK.size)
            os.posix_fallocate(self._lines, 0, max(size, self._next_segment_bytes))
        size = os.fstat(self._lines).st_size
        if not size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(segment.path))
        self._map = mapped = mmap.mmap(self._lines, size)
        # After a loss of power there may be marks whose lines did not reach the disk, and lines without sense behind.
        marks = [segment[number] for number in range(len(segment))]
        there = with_lines(marks, mapped)
        if there < len(marks):
            del marks[there:]
            clear_behind_hole(mapped, marks[-1].byte)
        elif _boot() == UNKNOWN or self._lock.identity.boot != _boot():
            hole = mapped.find(bytes(HOLE_BYTES), marks[-1].byte)
            if hole >= 0 and used(mapped, hole):
                clear_behind_hole(mapped, marks[-1].byte)
        behind = len(marks) * MARK.size
        if stale := os.pread(self._index, MARKS * MARK.size, behind).rstrip(b"\0"):
            os.pwrite(self._index, bytes(len(stale)), behind)
        self._mark, self._marks, self._first = marks[-1], len(marks), segment.first
        self._began = marks[1].time if len(marks) > 1 else 0
        self._is_note = False
        self._warm_to = 0
        start = self._mark.byte
        stop = mapped.rfind(b"\n", start) + 1 or start
        with memoryview(mapped) as whole, whole[start:stop] as found:
            self.recovered = count_lines(found)
        self._at = stop
        if unfinished := used(mapped, stop):
            if is_continued:
                self._at += unfinished
            else:
                self.torn = unfinished
                clear(mapped, stop, unfinished)
        self._next_segment_bytes = min(max(self._next_segment_bytes, 2 * size), self._segment_bytes)
        # What is found is sound from here on. Only then this run of the system may be noted.
        self._note()
        self._commit()

    def _ready(self) -> mmap.mmap:
        """Opens the spool anew if the last call was interrupted. Returns the map of the last segment."""
        if not self._is_sound:
            with self._swap:
                self._let_go(None)
                with self._blamed():
                    self._open_last(is_continued=True)
            self._is_sound = True
        assert self._map is not None, "it is closed"
        return self._map

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """An error has the name of a file: by that the caller knows that it is the spool's and not the channel's."""
        try:
            yield
        except OSError as error:
            if error.filename is not None:
                raise
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def _begin_segment(self, mark: Mark, unfinished: bytes = b"", *, is_durable: bool = False) -> None:
        """Begins a segment at a mark, with a line that is not finished. The disk space is taken before anything changes.

        Args:
            mark: where.
            unfinished: the beginning of a line.
            is_durable: whether the segment is to be there after a loss of power. Otherwise `sync` sees to that.
        """
        directory, stem = self._directory, f"{mark.line:020d}"
        size = self._next_segment_bytes
        lines = index = -1
        try:
            lines = directory.create(f"{stem}.lines")
            os.posix_fallocate(lines, 0, size)
            mapped = mmap.mmap(lines, size)
            mapped[: len(unfinished)] = unfinished
            index = directory.create(f"{stem}.new")
            os.posix_fallocate(index, 0, MARKS * MARK.size)
            os.pwrite(index, mark._replace(byte=0).packed(), 0)
            if is_durable:
                os.fsync(index)
            directory.rename(f"{stem}.new", f"{stem}.index")
            if is_durable:
                directory.sync()
        except BaseException:
            for descriptor in (lines, index):
                if descriptor >= 0:
                    os.close(descriptor)
            raise
        with self._swap if self._map is not None else contextlib.nullcontext():
            if self._map is not None:
                self._unsynced.append(self._first)
                self._let_go(self._mark.byte)
            self._lines, self._index, self._map, self._first = lines, index, mapped, mark.line
        self._mark, self._marks, self._at = mark._replace(byte=0), 1, len(unfinished)
        self._began = 0
        self._warm_to = 0
        self._is_note = False
        self._next_segment_bytes = min(2 * size, self._segment_bytes)

    def _let_go(self, size: int | None) -> None:
        """Closes the files of the last segment.

        Args:
            size: how many bytes of it are lines. The disk space that it did not need is given back; None: it stays as it is.
        """
        self._warmer.leave()
        mapped, self._map = self._map, None
        if mapped is not None:
            with contextlib.suppress(BufferError):  # what was interrupted may still have a view of it
                mapped.close()
            if size is not None:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._lines, size)
                    os.ftruncate(self._index, self._marks * MARK.size)
        lines, index, self._lines, self._index = self._lines, self._index, -1, -1
        for descriptor in (lines, index):
            if descriptor >= 0:
                with contextlib.suppress(OSError):  # it is closed all the same
                    os.close(descriptor)

    def _make_room(self, room: int) -> None:
        mapped = self._map
        if mapped is None or not self._is_sound:
            mapped = self._ready()
        if len(mapped) - self._at >= room and self._marks < MARKS - 2:
            return
        with self._blamed():
            if self._mark.byte:
                self._turn_over(room)
                return
            # There is nothing in it yet that would end it: it grows.
            size = self._at + room
            os.posix_fallocate(self._lines, 0, size)
            self._warmer.leave()
            mapped.resize(size)

    def _turn_over(self, room: int) -> None:
        """Begins the next segment. A line that is not finished moves on to it."""
        assert self._map is not None
        unfinished = self._map[self._mark.byte : self._at]
        self._next_segment_bytes = max(self._next_segment_bytes, len(unfinished) + room)
        line = self._mark.line
        self._is_sound = False
        try:
            self._begin_segment(self._mark, unfinished)
        except OSError:
            # Mostly the disk is full. If nothing is left of it, nothing has changed.
            self._directory.remove_segment(line)
            self._directory.remove(f"{line:020d}.new")
            self._is_sound = True
            raise
        self._is_sound = True

    # ------------------------------------------------------------------------------------------ what comes in

    @property
    def end(self) -> int:
        """The offset that the next line will get."""
        return self._mark.line

    @property
    def first(self) -> int:
        """The offset at which the last segment begins."""
        return self._first

    @property
    def lost(self) -> int:
        """How many lines are known to have been lost since the spool began."""
        return self._mark.lost

    def prepare(self, room: int | None = None) -> None:
        """Makes room for that many bytes, or for what one read wants, beginning a segment if need be.

        Raises:
            OSError: there is none; nothing has changed. `ENOSPC`: the disk is full.
        """
        self._make_room(room or self._room)

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
        self._make_room(room or self._room)
        assert self._map is not None
        self._warm()
        self._is_sound = False
        with memoryview(self._map) as whole, whole[self._at : self._at + most] as place:
            try:
                size = os.readv(channel, [place])
            except OSError:
                self._is_sound = True
                raise
        if size:
            self._at += size
            self._commit()
        self._is_sound = True
        return size

    def _warm(self) -> None:
        """Sees to it that the pages that are written next are ready."""
        assert self._map is not None
        if self._at + AHEAD_BYTES // 2 > self._warm_to and self._warm_to < len(self._map):
            start = self._at // mmap.PAGESIZE * mmap.PAGESIZE
            self._warm_to = min(start + AHEAD_BYTES, len(self._map))
            self._warmer.want(self._map, start, self._warm_to)

    def append(self, data: bytes) -> None:
        """Takes lines that are already in memory. What does not end in a newline waits for the rest."""
        if data:
            self._make_room(len(data))
            assert self._map is not None
            self._is_sound = False
            self._map[self._at : self._at + len(data)] = data
            self._at += len(data)
            self._commit()
            self._is_sound = True

    def _commit(self) -> None:
        """Marks the whole lines that are in the segment and not yet marked."""
        assert self._map is not None
        start = self._mark.byte
        if self._at == start:
            return
        stop = self._at if self._map[self._at - 1] == 0x0A else self._map.rfind(b"\n", start, self._at) + 1
        if stop > start:
            with memoryview(self._map) as whole, whole[start:stop] as view:
                is_plain = self._knows_plain and nul(view) < 0
                line = self._mark.line + count_lines(view)
            self._put(Mark(line, stop, self._now(), self._mark.lost, is_plain), self._marks)
            self._is_note = False

    def note_lost(self, count: int) -> None:
        """Notes that so many lines were lost behind those that are here."""
        self._make_room(0)
        # Two in a row are one: without lines between them, marks would run out before bytes do.
        number = self._marks - 1 if self._is_note else self._marks
        self._is_sound = False
        self._put(self._mark._replace(time=self._now(), lost=self._mark.lost + count, is_plain=self._knows_plain), number)
        self._is_note = True
        self._is_sound = True

    def _now(self) -> int:
        return max(time.time_ns(), self._mark.time)

    def _put(self, mark: Mark, number: int) -> None:
        """Makes a mark, the one of that number."""
        try:
            os.pwrite(self._index, mark.packed(), number * MARK.size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self._began = self._began or mark.time
        self._mark = mark
        self._marks = number + 1

    def sync(self) -> None:
        """Has everything on the disk before it returns, so that a loss of power takes nothing of it.

        Another thread than the one that adds lines may call it; what is added meanwhile may be missing then.
        """
        lines = index = -1
        with self._swap:
            ended, self._unsynced = self._unsynced, []
            first = self._first
        try:
            with self._swap:
                # What an interrupt has closed is seen to when it is open again.
                if self._lines >= 0:
                    lines, first = os.dup(self._lines), self._first
                    index = os.dup(self._index)
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
            for descriptor in (lines, index):
                if descriptor >= 0:
                    os.close(descriptor)

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
        self._ready()
        if self._mark.byte and self._began < time.time_ns() - int(age * 1e9):
            self._next_segment_bytes = max(self._first_segment_bytes, min(self._next_segment_bytes, 2 * self._mark.byte))
            with contextlib.suppress(OSError):  # without room for a new one, the old one stays
                self._turn_over(self._room)

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
        return older.remove(self.path, self._lock, self._mark.byte, offset=offset, size=size, age=age, until=until)

    # ------------------------------------------------------------------------------------------ the end

    def close(self) -> None:
        """Gives the unused disk space back and the lock up. The spool is as good without."""
        try:
            with self._swap:
                # A line that is not finished stays: whoever continues may read the rest.
                self._let_go(self._at if self._is_sound else None)
                self._is_sound = True
        finally:
            try:
                self._warmer.close()
            finally:
                if self._has_own_lock:
                    self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
