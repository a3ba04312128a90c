"""A segment as readers see it. See the package."""

import bisect
import contextlib
import errno
import functools
import os
from array import array
from collections.abc import Generator
from pathlib import Path

from .layout import MARK, MARKS, LinesGone, SpoolError, is_whole, open_to_read, read_bytes
from .marks import Mark, found_again, sensible, unpacked

BLOCK_BYTES = 1 << 20
"""How much of the lines of a segment is looked at in one go when its marks must be found from them."""


class Segment:
    """One segment as a reader sees it. Marks that are made later are seen after `refresh`.

    Its marks are those that make sense, up to the first that does not: a loss of power may have left others behind them.
    Of a segment behind which there is another one it is known where it ends. If its marks do not lead there, then its index is
    damaged, and it has those that its lines tell: see `mend`.

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
        self.is_mended = False
        """Whether its index is damaged, and so its marks are not simply those that are there."""
        self.refresh()
        if stop is not None and not self.leads_to(stop):
            self.mend()

    def refresh(self, dir_fd: int | None = None) -> bool:
        """Reads the marks that have been added, and the last one again, which may count more lost lines. Returns whether so.

        If the index is another one than before, it has the marks of that then. Not for one that is made with its `stop`.

        Args:
            dir_fd: the directory, if it was opened anew since.
        """
        if dir_fd is not None:
            self._dir_fd = dir_fd
        begin = max(len(self) - 1, 0)
        before = self._marks[begin * 4 :]
        # Mostly nothing has been added; then this is one short read.
        new = self._read(begin, 64)
        count = sensible(new)
        if before and not (count and new[:2] == before[:2]):
            # What a mark says of lines never changes: this is not what was there before.
            self._marks = array("Q")
            self.refresh()
            return True
        if not before and count and new[:2] != array("Q", (self.first, 0)):
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

    def mend(self) -> bool:
        """Finds its marks from its lines, as `marks.mended` says, if it is not the last segment. It is read whole for that.

        Returns:
            Whether that may have changed something: not the second time.
        """
        if self.stop is None or self.is_mended:
            return False
        self.is_mended = True
        status = _status(self.path, self._dir_fd)
        if status is None:  # there is nothing that its marks could be of
            while self._marks and self._marks[-4] > self.stop:
                del self._marks[-4:]
        else:
            end, is_known = self._end(self.stop, status)
            blocks = functools.partial(self.blocks, self.path, self._dir_fd)
            found = found_again(self._read(0), blocks, self.first, end, is_end_known=is_known, may_be_short=False)
            self._marks = array("Q", b"".join(mark.packed() for mark in found))
        return True

    @staticmethod
    def blocks(path: Path, dir_fd: int | None = None, *, is_patient: bool = True) -> Generator[bytes, None, None]:
        """The lines of a segment, and whatever their file has behind them.

        Args:
            path: of that file.
            dir_fd: its directory, open.
            is_patient: whether what the disk cannot read is a hole, and no error.

        Raises:
            OSError: it cannot be read.
        """
        descriptor = open_to_read(path, dir_fd)
        try:
            at, size = 0, os.fstat(descriptor).st_size
            while at < size:
                try:
                    block = os.pread(descriptor, BLOCK_BYTES, at)
                except OSError as error:
                    if error.errno != errno.EIO or not is_patient:
                        raise
                    block = bytes(min(BLOCK_BYTES, size - at))
                if not block:
                    return
                yield block
                at += len(block)
        finally:
            os.close(descriptor)

    def _end(self, stop: int, status: os.stat_result) -> tuple[Mark, bool]:
        """What its last mark was but for the byte, as the next segment begins with the same; and whether that is known."""
        with contextlib.suppress(OSError, SpoolError):
            if mark := first_mark(self.path.parent, stop, self._dir_fd):
                return mark, True
        return Mark(stop, 0, status.st_mtime_ns, 0), False

    def begins_line(self, mark: Mark) -> bool:
        """Whether a line may begin behind a mark.

        Raises:
            LinesGone: the file of the lines is not there.
        """
        return self._may_follow(read_bytes(self.path, max(mark.byte - 1, 0), mark.byte))

    def _may_follow(self, last: bytes) -> bool:
        """Whether a line may begin behind this byte, which is none at the beginning of the file.

        A zero may be the end of a hole. But if the marks can be found from the lines, nothing needs to be believed.
        """
        return last in (b"", b"\n") or (last == b"\0" and (self.stop is None or self.is_mended))

    def between(self, before: Mark, mark: Mark) -> bytes | None:
        """The lines between two marks; None if these are not what they were.

        Raises:
            LinesGone: the file of the lines is not there.
        """
        begin = max(before.byte - 1, 0)
        data = read_bytes(self.path, begin, mark.byte)
        if len(data) != mark.byte - begin or not self._may_follow(data[: before.byte - begin]):
            return None
        data = data[before.byte - begin :]
        return data if is_whole(data, mark.line - before.line, mark.is_plain) else None

    def __len__(self) -> int:
        return len(self._marks) // 4

    def __getitem__(self, number: int) -> Mark:
        begin = (number if number >= 0 else len(self) + number) * 4
        return unpacked(self._marks[begin : begin + 4])

    def mark_behind(self, line: int) -> int:
        """The number of the first mark whose lines include the line before `line`; the last mark's at most."""
        return min(bisect.bisect_left(range(len(self)), line, key=lambda number: self._marks[number * 4]), len(self) - 1)

    def mark_at(self, moment: int) -> int:
        """The number of the first mark that was made at `moment` or later; `len(self)` if none was."""
        return bisect.bisect_left(range(len(self)), moment, key=lambda number: self._marks[number * 4 + 2])

    def mark_within(self, byte: int) -> int:
        """The number of the first mark that ends behind `byte`, or of the last one."""
        return min(bisect.bisect_right(range(len(self)), byte, key=lambda number: self._marks[number * 4 + 1]), len(self) - 1)


def first_mark(directory: Path, first: int, dir_fd: int | None = None) -> Mark | None:
    """The mark that a segment begins with: when the one before ended, and what had been lost then. One short read.

    Args:
        directory: where the spool is.
        first: where the segment begins.
        dir_fd: the directory, open.

    Returns:
        None if the segment is not there, or its index is damaged there.
    """
    mark = _mark_at(directory, first, dir_fd, is_last=False)
    return mark if mark and (mark.line, mark.byte) == (first, 0) else None


def ended(last: Mark, directory: Path, stop: int | None, dir_fd: int | None = None) -> int:
    """When a segment ended, nanoseconds since the epoch. Two marks tell it, and one may be damaged: then it is the later one.

    Args:
        last: its last mark.
        directory: where the spool is.
        stop: where the next segment begins, with a mark of the same time; None if there is none.
        dir_fd: the directory, open.
    """
    mark = None if stop is None else first_mark(directory, stop, dir_fd)
    return max(last.time, mark.time) if mark else last.time


def last_mark(directory: Path, first: int, dir_fd: int | None = None, stop: int | None = None) -> Mark | None:
    """The last mark of a segment. For one that has been ended this is a short read.

    Args:
        directory: where the spool is.
        first: where the segment begins.
        dir_fd: the directory, open.
        stop: where the next segment begins, if there is one.

    Returns:
        None if the segment is not there, or has no mark.
    """
    mark = _mark_at(directory, first, dir_fd, is_last=True)
    if mark and stop is None:
        return mark
    if mark and mark.line == stop:
        status = _status(directory / f"{first:020d}.lines", dir_fd)
        if status is None or mark.byte <= status.st_size:
            return mark
    try:
        segment = Segment(directory, first, dir_fd, stop=stop)
        if mark and mark.line == stop:
            segment.mend()
    except LinesGone:
        return None
    return segment[-1] if len(segment) else None


def _status(lines: Path, dir_fd: int | None) -> os.stat_result | None:
    """Of the file of a segment's lines, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        return lines.stat() if dir_fd is None else os.stat(lines.name, dir_fd=dir_fd, follow_symlinks=False)
    return None


def _mark_at(directory: Path, first: int, dir_fd: int | None, *, is_last: bool) -> Mark | None:
    """The mark at the end of an index, or at its beginning. None if there is none."""
    try:
        descriptor = open_to_read(directory / f"{first:020d}.index", dir_fd)
    except FileNotFoundError:
        return None
    try:
        at = os.fstat(descriptor).st_size - MARK.size if is_last else 0
        data = os.pread(descriptor, MARK.size, max(at, 0))
    finally:
        os.close(descriptor)
    mark = unpacked(MARK.unpack(data)) if len(data) == MARK.size else None
    return mark if mark and mark.time else None
