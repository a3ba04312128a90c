"""The marks of a segment, as readers see them, and which of them are believed. See the package."""

import bisect
import contextlib
import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from .layout import MARK, MARKS, PLAIN, LinesGone, SpoolError, open_to_read

LINE, BYTE, TIME, LOST = range(4)
"""What the numbers of a mark are."""


class Mark(NamedTuple):
    """Where an append ends."""

    line: int
    """The offset of the line behind it."""
    byte: int
    """The byte behind it, in its segment."""
    time: int
    """When it was made, nanoseconds since the epoch. Never before the mark before."""
    lost: int
    """How many lines are known to have been lost before it, since the spool began."""
    is_plain: bool = False
    """Whether it is known that the lines of this append hold no NUL byte."""

    def packed(self) -> bytes:
        """As the index has it."""
        return MARK.pack(self.line, self.byte, self.time, self.lost | PLAIN * self.is_plain)


def _mark(numbers: Sequence[int]) -> Mark:
    line, byte, time, last = numbers
    return Mark(line, byte, time, last & ~PLAIN, last >= PLAIN)


class Segment:
    """One segment as a reader sees it. Marks that are made later are seen after `refresh`.

    Its marks are those that make sense, up to the first that does not: a loss of power may have left others behind them.
    Of a segment behind which there is another one it is known where it ends. If its marks do not lead there, then its index is
    damaged, and its marks are all that fit together: between two that do, all appends count as one. Whether the lines are what
    they were can be told from their number, as always.

    Args:
        directory: where it is.
        first: the offset of its first line.
        dir_fd: the directory, open; for who must not be led elsewhere.
        stop: the offset of the first line of the next segment, if there is one.

    Raises:
        LinesGone: retention has removed it.
        NotASpool: its index is no file.
        OSError: it cannot be read.
    """

    def __init__(self, directory: Path, first: int, dir_fd: int | None = None, *, stop: int | None = None) -> None:
        self.first, self.stop = first, stop
        self.path = directory / f"{first:020d}.lines"
        self._index = directory / f"{first:020d}.index"
        self._dir_fd = dir_fd
        self._marks = array("Q")
        self.refresh()
        self.is_mended = stop is not None and not self.leads_to(stop)
        """Whether its index is damaged, and so its marks are not simply those that are there."""
        if stop is not None and self.is_mended:
            self._marks = self._mended(stop)

    def refresh(self, dir_fd: int | None = None) -> bool:
        """Reads the marks that have been added, and the last one again, which may count more lost lines. Returns whether so.

        Not for one that is made with its `stop`.

        Args:
            dir_fd: the directory, if it was opened anew since.
        """
        if dir_fd is not None:
            self._dir_fd = dir_fd
        begin = max(len(self) - 1, 0)
        before = self._marks[begin * 4 :]
        # Mostly nothing has been added; then this is one short read.
        new = self._read(begin, 64)
        count = _sensible(new)
        if not begin and count and new[:2] != array("Q", (self.first, 0)):
            count = 0
        self._marks[begin * 4 :] = new[: count * 4]
        return self._marks[begin * 4 :] != before

    def leads_to(self, stop: int) -> bool:
        """Whether its marks are known up to a line, and no further."""
        return bool(self._marks) and self._marks[-4] == stop

    def _read(self, begin: int, some: int = MARKS) -> "array[int]":
        """The numbers in the index, from a mark on: of some marks, and if the last of these is one, of all."""
        try:
            descriptor = open_to_read(self._index, self._dir_fd)
        except FileNotFoundError:
            raise LinesGone(f"the lines from {self.first} on have been removed from {self.path.parent}") from None
        try:
            data = os.pread(descriptor, MARK.size * some, MARK.size * begin)
            if len(data) == MARK.size * some and data[-16:-8] != bytes(8):
                data += os.pread(descriptor, MARKS * MARK.size, MARK.size * begin + len(data))
        finally:
            os.close(descriptor)
        return array("Q", data[: len(data) // MARK.size * MARK.size])

    def _mended(self, stop: int) -> "array[int]":
        """The marks that fit together, from the beginning of the segment to its end."""
        numbers = self._read(0)
        columns = [numbers[LINE::4], numbers[BYTE::4], numbers[TIME::4], array("Q", (last & ~PLAIN for last in numbers[LOST::4]))]
        kept = [number for number, line in enumerate(columns[LINE]) if self.first <= line <= stop and columns[TIME][number]]
        status = self._status()
        if status is not None:
            kept = [number for number in kept if columns[BYTE][number] <= status.st_size]
        for column in columns:
            kept = _rising(kept, column.__getitem__)
        end = self._end(stop, status)
        if kept:
            marks = [Mark(self.first, 0, columns[TIME][kept[0]], columns[LOST][kept[0]])]
        else:
            marks = [end._replace(line=self.first, byte=0)]
        before = 0
        for number in kept:
            mark, last = _mark(numbers[number * 4 : number * 4 + 4]), marks[-1]
            if number and (mark.line == last.line) == (mark.byte == last.byte):
                # Of appends that count as one it is known only whether the last was plain, and the one before them.
                is_plain = mark.is_plain and (number == before + 1 or last.is_plain or not before)
                marks.append(mark._replace(is_plain=is_plain))
                before = number
        if status is not None and marks[-1].line < stop and marks[-1].byte < status.st_size:
            time, lost = max(marks[-1].time, end.time), max(marks[-1].lost, end.lost)
            marks.append(marks[-1]._replace(line=stop, byte=status.st_size, time=time, lost=lost))
        return array("Q", b"".join(mark.packed() for mark in marks))

    def _status(self) -> os.stat_result | None:
        """Of the file of its lines, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            if self._dir_fd is None:
                return self.path.stat()
            return os.stat(self.path.name, dir_fd=self._dir_fd, follow_symlinks=False)
        return None

    def _end(self, stop: int, status: os.stat_result | None) -> Mark:
        """What can be known of its last mark without it: the next segment begins with the same, but for the byte."""
        with contextlib.suppress(OSError, SpoolError):
            following = Segment(self.path.parent, stop, self._dir_fd)
            if len(following):
                return following[0]
        return Mark(stop, 0, status.st_mtime_ns if status else 0, 0)

    def __len__(self) -> int:
        return len(self._marks) // 4

    def __getitem__(self, number: int) -> Mark:
        begin = (number if number >= 0 else len(self) + number) * 4
        return _mark(self._marks[begin : begin + 4])

    def mark_behind(self, line: int) -> int:
        """The number of the first mark whose lines include the line before `line`; the last mark's at most."""
        return min(bisect.bisect_left(range(len(self)), line, key=lambda number: self._marks[number * 4]), len(self) - 1)

    def mark_at(self, moment: int) -> int:
        """The number of the first mark that was made at `moment` or later; `len(self)` if none was."""
        return bisect.bisect_left(range(len(self)), moment, key=lambda number: self._marks[number * 4 + 2])

    def mark_within(self, byte: int) -> int:
        """The number of the first mark that ends behind `byte`, or of the last one."""
        return min(bisect.bisect_right(range(len(self)), byte, key=lambda number: self._marks[number * 4 + 1]), len(self) - 1)


def _sensible(numbers: "array[int]") -> int:
    """How many marks make sense, from the first on: each has a time, and no number gets less."""
    times = numbers[TIME::4]
    count = times.index(0) if 0 in times else len(times)
    for column in range(4):
        values = [number & ~PLAIN if column == LOST else number for number in numbers[column : count * 4 : 4]]
        if values != sorted(values):
            count = next(number for number in range(1, count) if values[number] < values[number - 1])
    return count


def _rising(items: list[int], value: Callable[[int], int]) -> list[int]:
    """The most of these items, in their order, among whose values none is less than the one before."""
    ends: list[int] = []  # the least value that so many can end with,
    last: list[int] = []  # and whose it is
    before: dict[int, int] = {}
    for item in items:
        place = bisect.bisect_right(ends, value(item))
        if place:
            before[item] = last[place - 1]
        ends[place : place + 1] = [value(item)]
        last[place : place + 1] = [item]
    found = last[-1:]
    while found and found[-1] in before:
        found.append(before[found[-1]])
    return found[::-1]


def last_mark(directory: Path, first: int, dir_fd: int | None = None, stop: int | None = None) -> Mark | None:
    """The last mark of a segment. For one that has been closed this is one short read.

    Args:
        directory: where the spool is.
        first: where the segment begins.
        dir_fd: the directory, open.
        stop: where the next segment begins, if there is one.

    Returns:
        None if the segment is not there, or has no mark.
    """
    try:
        descriptor = open_to_read(directory / f"{first:020d}.index", dir_fd)
        try:
            data = os.pread(descriptor, MARK.size, max(os.fstat(descriptor).st_size - MARK.size, 0))
        finally:
            os.close(descriptor)
        if len(data) == MARK.size and data[16:24] != bytes(8):
            mark = _mark(MARK.unpack(data))
            if stop is None or mark.line == stop:
                return mark
        segment = Segment(directory, first, dir_fd, stop=stop)
    except (FileNotFoundError, LinesGone):
        return None
    return segment[-1] if len(segment) else None
