"""What the files of a spool look like: names, marks, segments. See the package."""

import bisect
import os
import struct
from array import array
from pathlib import Path
from typing import NamedTuple

from ..core._scan import lines as scan

FORMAT = 1
"""Of the directory; a number in `spool.json` that a later layout would count up."""

SEGMENT_BYTES = 64 << 20
"""How long a segment gets: the unit of retention, and of what Spark likes to read as one partition."""

FIRST_SEGMENT_BYTES = 4 << 20
"""How long the first segment is; each is twice the one before. A channel with little to say takes little disk."""

READ_BYTES = 8 << 20
"""How much is asked of the channel in one call, and so the longest line that is sure to be taken whole."""

READ_ROOM = 1 << 20
"""How much room one call needs at least, or else a new segment begins: FUSE carries no more at a time."""

MARKS = 32768
"""How many appends a segment has room for."""

MARK = struct.Struct("<QQQQ")
IDENTITY = "spool.json"
LOCK = "lock"


class SpoolError(Exception):
    """What is wrong with a spool, in one sentence."""


class NotASpool(SpoolError):
    """The directory is none, or is no spool, or one of a later format."""


class ForeignSpool(SpoolError):
    """It is the spool of another channel, or not the one that an offset belongs to."""


class SpoolInUse(SpoolError):
    """Somebody else writes it."""


class LinesGone(SpoolError):
    """Lines that are asked for have been removed by retention, or were never there."""


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


class Segment:
    """One segment as a reader sees it. Marks that are made later are seen after `refresh`."""

    def __init__(self, directory: Path, first: int) -> None:
        self.first = first
        self.path = directory / f"{first:020d}.lines"
        self._index = directory / f"{first:020d}.index"
        self._marks = array("Q")
        self.refresh()

    def refresh(self) -> bool:
        """Reads the marks that have been added, and the last one again, which may count more lost lines. Returns whether so."""
        begin = max(len(self) - 1, 0)
        before = self._marks[begin * 4 :]
        known = begin * MARK.size
        try:
            with self._index.open("rb", buffering=0) as file:
                # Mostly nothing has been added; then this is one short read.
                data = os.pread(file.fileno(), MARK.size * 64, known)
                if len(data) == MARK.size * 64 and data[-16:-8] != bytes(8):
                    data += os.pread(file.fileno(), MARKS * MARK.size, known + len(data))
        except FileNotFoundError:
            raise LinesGone(f"the lines from {self.first} on have been removed from {self.path.parent}") from None
        new = array("Q", data[: len(data) // MARK.size * MARK.size])
        # Each mark has a time, and behind the last one there are zeros.
        count = bisect.bisect_left(range(len(new) // 4), True, key=lambda number: new[number * 4 + 2] == 0)
        self._marks[begin * 4 :] = new[: count * 4]
        return self._marks[begin * 4 :] != before

    def __len__(self) -> int:
        return len(self._marks) // 4

    def __getitem__(self, number: int) -> Mark:
        begin = (number if number >= 0 else len(self) + number) * 4
        return Mark(*self._marks[begin : begin + 4])

    def mark_behind(self, line: int) -> int:
        """The number of the first mark whose lines include the line before `line`; the last mark's at most."""
        return min(bisect.bisect_left(range(len(self)), line, key=lambda number: self._marks[number * 4]), len(self) - 1)

    def mark_at(self, moment: int) -> int:
        """The number of the first mark that was made at `moment` or later; `len(self)` if none was."""
        return bisect.bisect_left(range(len(self)), moment, key=lambda number: self._marks[number * 4 + 2])

    def mark_within(self, byte: int) -> int:
        """The number of the first mark that ends behind `byte`, or of the last one."""
        return min(bisect.bisect_right(range(len(self)), byte, key=lambda number: self._marks[number * 4 + 1]), len(self) - 1)


def segment_firsts(directory: Path) -> list[int]:
    """The offsets at which the segments of a spool begin, in order."""
    return sorted(int(name.name[:-6]) for name in directory.glob("*.index"))


def last_mark(directory: Path, first: int) -> Mark | None:
    """The last mark of a segment, None if it is not there. For one that has been closed this is one short read."""
    try:
        with (directory / f"{first:020d}.index").open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), MARK.size, max(os.fstat(file.fileno()).st_size - MARK.size, 0))
        if len(data) == MARK.size and (mark := Mark(*MARK.unpack(data))).time:
            return mark
        segment = Segment(directory, first)
    except (FileNotFoundError, LinesGone):
        return None
    return segment[-1] if len(segment) else None


def read_bytes(path: Path, start: int, stop: int) -> bytes:
    """A part of a file.

    Raises:
        LinesGone: retention has removed it.
    """
    try:
        with path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), stop - start, start)
    except FileNotFoundError:
        raise LinesGone(f"{path} has been removed") from None


def count_lines(data: bytes | memoryview) -> int:
    """How many lines end in `data`."""
    total = at = 0
    while at < len(data):
        found, at = scan(data, at, len(data))
        total += found
        if at == len(data) or data[at] != 0x0A:
            break
        total, at = total + 1, at + 1
    return total


def sync(path: Path) -> None:
    """Has a file or directory on the disk before it returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
