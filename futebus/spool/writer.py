"""A spool, to write."""

import contextlib
import errno
import itertools
import mmap
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from .layout import (
    FIRST_SEGMENT_BYTES,
    MARK,
    MARKS,
    READ_BYTES,
    READ_ROOM,
    SEGMENT_BYTES,
    Mark,
    Segment,
    count_lines,
    last_mark,
    segment_firsts,
    sync,
)
from .lock import SpoolLock
from .repair import clear_behind_hole, sound, used, with_lines
from .warming import AHEAD_BYTES, Warmer

UNSYNCED_SECONDS = 600
"""How recently a segment was written that `sync` sees to although another process wrote it. The kernel itself writes everything
to the disk within a minute, unless it was told to take longer."""


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

    Raises:
        ForeignSpool: it is the spool of another channel.
        NotASpool: the directory has something else in it.
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
    ) -> None:
        self.path = Path(path)
        self._segment_bytes = segment_bytes
        self._first_segment_bytes = self._next_segment_bytes = min(first_segment_bytes, segment_bytes)
        self.torn = 0
        """How many bytes of a line without an end were cut off when it was opened."""
        self.recovered = 0
        """How many lines were found then that the writer before had taken and not marked."""
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
        self._own_lock = None if lock else SpoolLock(path, channel)
        try:
            if lock:
                lock.check()
            self._open_last(is_continued)
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------------------------------ segments

    def _open_last(self, is_continued: bool) -> None:
        for unfinished in self.path.glob("*.new"):
            unfinished.unlink()
        for orphan in self.path.glob("*.lines"):
            # Begun, and the writer was killed before there was an index.
            if not orphan.with_suffix(".index").exists():
                orphan.unlink()
        firsts = segment_firsts(self.path)
        while firsts:
            segment = Segment(self.path, firsts.pop())
            marks = sound(segment)
            if marks and segment.path.exists():
                self._resume(segment, marks, is_continued)
                recently = time.time() - UNSYNCED_SECONDS
                self._unsynced = [first for first in firsts if (self.path / f"{first:020d}.lines").stat().st_mtime > recently]
                return
            # Power was lost before its first mark was on disk.
            segment.path.unlink(missing_ok=True)
            segment.path.with_suffix(".index").unlink()
        self._begin_segment(Mark(0, 0, time.time_ns(), 0))

    def _resume(self, segment: Segment, marks: list[Mark], is_continued: bool) -> None:
        self._lines = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
        self._index = os.open(segment.path.with_suffix(".index"), os.O_RDWR | os.O_CLOEXEC)
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
        there = with_lines(marks, mapped)
        if there < len(marks):
            del marks[there:]
            clear_behind_hole(mapped, marks[-1].byte)
        behind = len(marks) * MARK.size
        if stale := os.pread(self._index, MARKS * MARK.size, behind).rstrip(b"\0"):
            os.pwrite(self._index, bytes(len(stale)), behind)
        self._mark, self._marks, self._first = marks[-1], len(marks), segment.first
        self._began = marks[1].time if len(marks) > 1 else 0
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
                mapped[stop : stop + unfinished] = bytes(unfinished)
        self._next_segment_bytes = min(max(self._next_segment_bytes, 2 * size), self._segment_bytes)
        self._commit()

    def _begin_segment(self, mark: Mark, unfinished: bytes = b"") -> None:
        """Begins a segment at a mark, with a line that is not finished. The disk space is taken before anything changes."""
        name = self.path / f"{mark.line:020d}"
        size = self._next_segment_bytes
        lines = os.open(name.with_suffix(".lines"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_TRUNC, 0o644)
        index = -1
        try:
            os.posix_fallocate(lines, 0, size)
            mapped = mmap.mmap(lines, size)
            mapped[: len(unfinished)] = unfinished
            index = os.open(name.with_suffix(".new"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_TRUNC, 0o644)
            os.posix_fallocate(index, 0, MARKS * MARK.size)
            os.pwrite(index, MARK.pack(mark.line, 0, mark.time, mark.lost), 0)
            name.with_suffix(".new").rename(name.with_suffix(".index"))
        except BaseException:
            for descriptor, suffix in ((lines, ".lines"), (index, ".new")):
                if descriptor >= 0:
                    os.close(descriptor)
                    name.with_suffix(suffix).unlink(missing_ok=True)
            raise
        with self._swap:
            if self._map is not None:
                self._unsynced.append(self._first)
                self._close_segment(self._mark.byte)
            self._lines, self._index, self._map, self._first = lines, index, mapped, mark.line
        self._mark, self._marks, self._at = mark._replace(byte=0), 1, len(unfinished)
        self._began = 0
        self._warm_to = 0
        self._next_segment_bytes = min(2 * size, self._segment_bytes)

    def _close_segment(self, size: int) -> None:
        """Gives back the disk space that the last segment did not need: all behind so many bytes."""
        if self._map is not None:
            self._warmer.leave()
            self._map.close()
            self._map = None
            with contextlib.suppress(OSError):
                os.ftruncate(self._lines, size)
                os.ftruncate(self._index, self._marks * MARK.size)
        for descriptor in (self._lines, self._index):
            if descriptor >= 0:
                os.close(descriptor)
        self._lines = self._index = -1

    def _make_room(self, room: int) -> None:
        assert self._map is not None
        if len(self._map) - self._at >= room and self._marks < MARKS - 2:
            return
        if not self._mark.byte:
            # There is nothing in it yet that would end it: it grows.
            size = self._at + room
            os.posix_fallocate(self._lines, 0, size)
            self._warmer.leave()
            self._map.resize(size)
            return
        self._turn_over(room)

    def _turn_over(self, room: int) -> None:
        """Begins the next segment. A line that is not finished moves on to it."""
        assert self._map is not None
        unfinished = self._map[self._mark.byte : self._at]
        self._next_segment_bytes = max(self._next_segment_bytes, len(unfinished) + room)
        self._begin_segment(self._mark, unfinished)

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

    def prepare(self, room: int = READ_ROOM) -> None:
        """Makes room for that many bytes, beginning a segment if need be.

        Raises:
            OSError: there is none; nothing has changed. `ENOSPC`: the disk is full.
        """
        self._make_room(room)

    def read_from(self, channel: int, room: int = READ_ROOM) -> int:
        """Takes what one read of a channel gives.

        Args:
            channel: a descriptor, opened for bulk reading.
            room: how much room to offer at least; what is longer than this may come in parts.

        Returns:
            The number of bytes; 0 at the end of the channel.

        Raises:
            BlockingIOError: there is nothing to read, and the descriptor does not block.
            OSError: as `prepare` and as readv(2); nothing has been taken. If it has a file name, the spool is to blame.
        """
        self._make_room(room)
        assert self._map is not None
        self._warm()
        with memoryview(self._map) as whole, whole[self._at : self._at + READ_BYTES] as place:
            size = os.readv(channel, [place])
        if size:
            self._at += size
            self._commit()
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
            self._map[self._at : self._at + len(data)] = data
            self._at += len(data)
            self._commit()

    def _commit(self) -> None:
        """Marks the whole lines that are in the segment and not yet marked."""
        assert self._map is not None
        start = self._mark.byte
        if self._at == start:
            return
        stop = self._at if self._map[self._at - 1] == 0x0A else self._map.rfind(b"\n", start, self._at) + 1
        if stop > start:
            with memoryview(self._map) as whole, whole[start:stop] as view:
                self._put(Mark(self._mark.line + count_lines(view), stop, self._now(), self._mark.lost))

    def note_lost(self, count: int) -> None:
        """Notes that so many lines were lost behind those that are here."""
        self._make_room(0)
        if self._is_note:  # two in a row are one: without lines between them, marks would run out before bytes do
            self._marks -= 1
        self._put(self._mark._replace(time=self._now(), lost=self._mark.lost + count))
        self._is_note = True

    def _now(self) -> int:
        return max(time.time_ns(), self._mark.time)

    def _put(self, mark: Mark) -> None:
        try:
            os.pwrite(self._index, MARK.pack(*mark), self._marks * MARK.size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self._began = self._began or mark.time
        self._mark = mark
        self._marks += 1
        self._is_note = False

    def sync(self) -> None:
        """Has everything on the disk before it returns, so that a loss of power takes nothing of it.

        Another thread than the one that adds lines may call it; what is added meanwhile may be missing then.
        """
        with self._swap:
            lines, index, first = os.dup(self._lines), os.dup(self._index), self._first
            ended, self._unsynced = self._unsynced, []
        try:
            for name in ended:
                for suffix in (".lines", ".index"):
                    with contextlib.suppress(FileNotFoundError):  # retention may have been faster
                        sync(self.path / f"{name:020d}{suffix}")
            os.fdatasync(lines)
            os.fdatasync(index)
            if self._synced_first != first:
                sync(self.path)
                self._synced_first = first
        except BaseException:
            with self._swap:
                self._unsynced = ended + self._unsynced
            raise
        finally:
            os.close(lines)
            os.close(index)

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
        """
        oldest = time.time_ns() - int((age or 0) * 1e9)
        if age is not None and self._mark.byte and self._began < oldest:
            self._next_segment_bytes = max(self._first_segment_bytes, min(self._next_segment_bytes, 2 * self._mark.byte))
            with contextlib.suppress(OSError):  # without room for a new one, the old one stays
                self._turn_over(READ_ROOM)
        firsts = segment_firsts(self.path)
        kept, gone = self._mark.byte, 0
        for first, following in reversed(list(itertools.pairwise(firsts))):
            last = last_mark(self.path, first)
            is_old = age is not None and last is not None and last.time < oldest
            if (offset is not None and following <= offset) or (size is not None and kept >= size) or is_old:
                gone = max(gone, following)
                break
            kept += last.byte if last else 0
        for first in firsts:
            if first >= gone:
                break
            (self.path / f"{first:020d}.index").unlink()
            (self.path / f"{first:020d}.lines").unlink(missing_ok=True)
        return max(gone - firsts[0], 0) if firsts else 0

    # ------------------------------------------------------------------------------------------ the end

    def close(self) -> None:
        """Gives the unused disk space back and the lock up. The spool is as good without."""
        with self._swap:
            # A line that is not finished stays: whoever continues may read the rest.
            self._close_segment(self._at)
        self._warmer.close()
        if self._own_lock:
            self._own_lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
