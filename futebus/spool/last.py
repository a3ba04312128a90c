"""The last segment of a spool: the one that is written.

The one rule: a line counts once it is before a mark, and a mark is made only when its lines are in the file.
"""

import contextlib
import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from ..core.lines import nul
from .files import Directory, close_all
from .layout import MARK, NotASpool, count_between, count_lines
from .marks import Mark
from .repair import clear, used
from .room import LEAST_MARKS, Room, reserve, rooms, take_room
from .segment import Segment
from .warming import AHEAD_BYTES, Warmer


class LastSegment:
    """A segment that is written. What it does not find room for is the caller's affair.

    Args:
        spool: its directory, for errors to name it.
        warmer: makes pages ready. It is the caller's.
        lines: the file of lines, open; it is the segment's from here on.
        index: that of marks, the same.
        mapped: the lines, mapped.
        first: the offset of its first line.
        mark: its last mark.
        marks: how many there are.
        most_marks: how many there is room for.
        at: behind which byte it goes on.
    """

    def __init__(
        self,
        spool: Path,
        warmer: Warmer,
        lines: int,
        index: int,
        mapped: mmap.mmap,
        *,
        first: int,
        mark: Mark,
        marks: int = 1,
        most_marks: int,
        at: int = 0,
    ) -> None:
        self._spool = spool
        self._warmer = warmer
        self._warm_behind = -1
        """When it goes on behind this byte, more pages are to be made ready."""
        self._lines, self._index = lines, index
        self.mapped: mmap.mmap | None = mapped
        """None when it is closed."""
        self.first = first
        self.mark = mark
        self._marks, self._most_marks = marks, most_marks
        self._is_note = False
        self.at = at
        self.began = 0
        """The time of the oldest line; 0 if there is none."""
        self.recovered = 0
        """How many lines were found when it was opened that the writer before had taken and not marked."""
        self.torn = 0
        """How many bytes of a line without an end were cut off then."""

    @classmethod
    def begin(
        cls,
        directory: Directory,
        warmer: Warmer,
        mark: Mark,
        wishes: Iterable[Room],
        unfinished: bytes = b"",
        *,
        is_durable: bool = False,
    ) -> Self:
        """Begins a segment at a mark. The disk space is taken before anything changes.

        Args:
            directory: the spool.
            warmer: makes pages ready.
            mark: where.
            wishes: how much room to ask for; it gets the first that the disk has.
            unfinished: the beginning of a line.
            is_durable: whether the segment is to be there after a loss of power. Otherwise the caller sees to that.

        Raises:
            OSError: as the system says.
        """
        stem = f"{mark.line:020d}"
        mark = mark._replace(byte=0)
        lines = index = -1
        try:
            lines = directory.create(f"{stem}.lines")
            index = directory.create(f"{stem}.new")
            room = reserve(lines, index, wishes)
            mapped = mmap.mmap(lines, room.bytes)
            mapped[: len(unfinished)] = unfinished
            os.pwrite(index, mark.packed(), 0)
            if is_durable:
                os.fsync(index)
            directory.rename(f"{stem}.new", f"{stem}.index")
            if is_durable:
                directory.sync()
            return cls(
                directory.path,
                warmer,
                lines,
                index,
                mapped,
                first=mark.line,
                mark=mark,
                most_marks=room.marks,
                at=len(unfinished),
            )
        except BaseException:
            close_all(lines, index)
            raise

    @classmethod
    def resume(cls, directory: Directory, warmer: Warmer, segment: Segment, least: int, *, is_continued: bool) -> Self:
        """Opens a segment that a writer has left, and that is sound. What was found behind its last mark has none yet.

        Args:
            directory: the spool.
            warmer: makes pages ready.
            segment: as readers see it.
            least: how long it should be, if the disk has room.
            is_continued: whether a line without an end goes on.

        Raises:
            OSError: as the system says.
        """
        lines = index = -1
        try:
            lines = directory.open(segment.path.name)
            index = directory.open(segment.path.with_suffix(".index").name)
            room = take_room(lines, index, least)
            last = cls(
                directory.path,
                warmer,
                lines,
                index,
                mmap.mmap(lines, room.bytes),
                first=segment.first,
                mark=segment[-1],
                marks=len(segment),
                most_marks=room.marks,
            )
            last.began = segment[1].time if len(segment) > 1 else 0
            last._find_lines(is_continued)
            return last
        except BaseException:
            close_all(lines, index)
            raise

    def _find_lines(self, is_continued: bool) -> None:
        """Finds what was taken and not marked."""
        mapped = self.mapped
        assert mapped is not None
        start = self.mark.byte
        stop = mapped.rfind(b"\n", start) + 1 or start
        self.recovered = count_between(mapped, start, stop)
        self.at = stop
        if unfinished := used(mapped, stop):
            if is_continued:
                self.at += unfinished
            else:
                self.torn = unfinished
                clear(mapped, stop, unfinished)

    # ------------------------------------------------------------------------------------------ room

    def __len__(self) -> int:
        assert self.mapped is not None, "it is closed"
        return len(self.mapped)

    def has_room(self, room: int) -> bool:
        """Whether there is so much, and a mark for it."""
        assert self.mapped is not None, "it is closed"
        return len(self.mapped) - self.at >= room and self._marks < self._most_marks - 2

    def grow(self, most: int, room: int, tight: int) -> None:
        """Makes room where it is.

        Args:
            most: how long it should get, if the disk has room.
            room: how many bytes more it should take at least.
            tight: how many bytes more it must take at least.

        Raises:
            OSError: there is none; nothing has changed.
        """
        assert self.mapped is not None, "it is closed"
        length = len(self.mapped)
        got = reserve(self._lines, self._index, rooms(most, max(self.at + room, length), max(self.at + tight, length)))
        self._warmer.leave()
        self.mapped.resize(got.bytes)
        self._most_marks = max(self._most_marks, got.marks)
        self._warm_behind = -1

    def give_back(self) -> None:
        """Gives the disk space back that it does not use, but for some marks. It has no room for lines then.

        Raises:
            OSError: as the system says.
        """
        assert self.mapped is not None, "it is closed"
        self._warmer.leave()
        self.mapped.resize(max(self.at, 1))
        self._warm_behind = -1
        self._most_marks = min(self._most_marks, (self._marks // LEAST_MARKS + 2) * LEAST_MARKS)
        os.ftruncate(self._index, max(self._most_marks, self._marks) * MARK.size)

    def _warm(self, mapped: mmap.mmap) -> None:
        """Sees to it that the pages that are written next are ready, or will soon be."""
        start = self.at // mmap.PAGESIZE * mmap.PAGESIZE
        stop = min(start + AHEAD_BYTES, len(mapped))
        self._warm_behind = stop - AHEAD_BYTES // 2 if stop < len(mapped) else stop
        self._warmer.want(mapped, start, stop)

    # ------------------------------------------------------------------------------------------ what comes in

    @property
    def unfinished(self) -> bytes:
        """The beginning of a line that has no end yet."""
        assert self.mapped is not None, "it is closed"
        return self.mapped[self.mark.byte : self.at]

    def read_from(self, channel: int, most: int) -> int:
        """Takes what one read gives, so many bytes at most, and marks nothing yet. Returns how many they are.

        Raises:
            OSError: as readv(2); nothing has been taken.
        """
        mapped = self.mapped
        assert mapped is not None, "it is closed"
        if self.at > self._warm_behind:
            self._warm(mapped)
        with memoryview(mapped) as whole, whole[self.at : self.at + most] as place:
            size = os.readv(channel, [place])
        self.at += size
        return size

    def append(self, data: bytes) -> None:
        """Takes bytes that there is room for, and marks nothing yet."""
        assert self.mapped is not None, "it is closed"
        self.mapped[self.at : self.at + len(data)] = data
        self.at += len(data)

    def commit(self, knows_plain: bool) -> None:
        """Marks the whole lines that are here and not yet marked.

        Args:
            knows_plain: whether the mark may say that there is no NUL byte.

        Raises:
            OSError: as the system says.
        """
        mapped = self.mapped
        assert mapped is not None, "it is closed"
        start = self.mark.byte
        if self.at == start:
            return
        stop = self.at if mapped[self.at - 1] == 0x0A else mapped.rfind(b"\n", start, self.at) + 1
        if stop > start:
            with memoryview(mapped) as whole, whole[start:stop] as view:
                is_plain = knows_plain and nul(view) < 0
                line = self.mark.line + count_lines(view)
            self._put(Mark(line, stop, self._now(), self.mark.lost, is_plain), self._marks)
            self._is_note = False

    def cut(self) -> int:
        """Cuts off a line that is not finished. Returns how many bytes of it there were."""
        assert self.mapped is not None, "it is closed"
        size = self.at - self.mark.byte
        clear(self.mapped, self.mark.byte, size)
        self.at = self.mark.byte
        return size

    def note_lost(self, count: int, knows_plain: bool) -> None:
        """Notes that so many lines were lost behind those that are here.

        Args:
            count: how many.
            knows_plain: as for `commit`.

        Raises:
            OSError: as the system says.
        """
        # Two in a row are one: without lines between them, marks would run out before bytes do.
        number = self._marks - 1 if self._is_note else self._marks
        self._put(self.mark._replace(time=self._now(), lost=self.mark.lost + count, is_plain=knows_plain), number)
        self._is_note = True

    def _now(self) -> int:
        return max(time.time_ns(), self.mark.time)

    def _put(self, mark: Mark, number: int) -> None:
        """Makes a mark, the one of that number."""
        try:
            os.pwrite(self._index, mark.packed(), number * MARK.size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._spool)) from None
        self.began = self.began or mark.time
        self.mark = mark
        self._marks = number + 1

    # ------------------------------------------------------------------------------------------ the end

    def descriptors(self) -> tuple[int, int]:
        """Its two files, open once more; -1 if they are closed."""
        lines = index = -1
        if self._lines >= 0:
            lines = os.dup(self._lines)
            try:
                index = os.dup(self._index)
            except BaseException:
                os.close(lines)
                raise
        return lines, index

    def check(self, spool: Path) -> None:
        """Checks that its files, if they are open, have names, and all that was written to them. Nothing here takes that away.

        Raises:
            NotASpool: it is not so. Whoever reads the spool would find nothing.
        """
        if self._lines < 0:
            return
        at, marked = self.at, self._marks * MARK.size  # before its files are looked at: they may grow meanwhile
        lines, index = os.fstat(self._lines), os.fstat(self._index)
        is_cut = lines.st_size < at or index.st_size < marked or os.pread(self._index, MARK.size, 0) == bytes(MARK.size)
        if not lines.st_nlink or not index.st_nlink or is_cut:
            raise NotASpool(f"{spool} has lost its newest file while that was written")

    def close(self, size: int | None) -> None:
        """Closes the files. It may be called again.

        Args:
            size: how many bytes of it are lines. The disk space that it did not need is given back; None: it stays as it is.
        """
        self._warmer.leave()
        mapped, self.mapped = self.mapped, None
        if mapped is not None:
            with contextlib.suppress(BufferError):  # what was interrupted may still have a view of it
                mapped.close()
            if size is not None:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._lines, size)
                    os.ftruncate(self._index, self._marks * MARK.size)
        lines, index, self._lines, self._index = self._lines, self._index, -1, -1
        with contextlib.suppress(OSError):  # they are closed all the same
            close_all(lines, index)
