"""What the files of a spool look like: names, marks, segments, and what says whose they are. See the package."""

import itertools
import json
import mmap
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..core.lines import lines as scan
from ..core.lines import nul
from ..core.text import are, removed, spanned

FORMAT = 2
"""Of the directory; a number in `spool.json` that a later layout would count up.

1 had neither `least` nor `PLAIN`. Such a spool can be read, and becomes one of today's when it is written.
"""

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

PLAIN = 1 << 63
"""Is set in the last number of a mark whose lines hold no NUL byte. A piece of a file that did not reach the disk reads as zeros,
and a line may hold zeros too: so they can be told apart, mostly."""

IDENTITY = "spool.json"
LOCK = "lock"

_SEGMENT = re.compile(r"[0-9]{20}\.index")

_LAST = (1 << 64) - 1
"""The highest offset that a mark can tell."""


class SpoolError(Exception):
    """What is wrong with a spool, in one sentence."""


class NotASpool(SpoolError):
    """The directory is none, or is no spool, or one of a later format."""


class ForeignSpool(SpoolError):
    """It is the spool of another channel, or not the one that an offset belongs to."""


class SpoolInUse(SpoolError):
    """Somebody else writes it."""


class SpoolStopped(SpoolError):
    """Who opened it did not want to wait any longer."""


class LinesGone(SpoolError):
    """Lines that are asked for have been removed by retention, or were never there."""


class LinesDamaged(LinesGone):
    """Lines that are asked for did not reach the disk, or were destroyed on it.

    Args:
        file: what is damaged.
        first: the offset of the first of the lines that cannot be had for this.
        stop: the offset of the next line that can.
    """

    def __init__(self, file: str | Path, first: int, stop: int) -> None:
        lost = f"its {spanned(first, stop)} {are(stop - first)} lost"
        super().__init__(f"{file} is damaged, as a loss of power may do: {lost}")
        self.file, self.first, self.stop = file, first, stop


class Identity(NamedTuple):
    """What `spool.json` says."""

    format: int
    id: str
    channel: str
    least: int = 0
    """Lines before this one have been removed. With nothing else left, the spool goes on here."""
    lost: int = 0
    """How many lines are known to have been lost before that one."""
    boot: str = ""
    """During which run of the system it was last written: if it was another one, power may have been lost since."""
    cut_from: int = 0
    """From which line on some are being cut off that did not reach the disk before a loss of power,"""
    cut_lines: int = 0
    """and how many. It is told when that is done; who does not come to it leaves that to the next one."""

    def encoded(self) -> bytes:
        """The content of the file."""
        return json.dumps(self._asdict()).encode() + b"\n"


def read_identity(directory: Path, dir_fd: int | None = None) -> Identity:
    """Reads what a spool says of itself.

    Args:
        directory: where it is.
        dir_fd: the same, open.

    Raises:
        NotASpool: it is none, or one of a format of later.
        OSError: it cannot be read.
    """
    file = directory / IDENTITY
    try:
        descriptor = open_to_read(file, dir_fd)
    except (FileNotFoundError, NotADirectoryError):
        if not directory.exists():
            raise NotASpool(f"there is no directory {directory}") from None
        raise NotASpool(f"{directory} is no spool: it has no {IDENTITY}") from None
    try:
        data = os.pread(descriptor, 1 << 16, 0)
    finally:
        os.close(descriptor)
    try:
        given = json.loads(data)
        number = int(given["format"])
        known = {name: given[name] for name in Identity._fields[3:] if name in given}
        identity = Identity(number, str(given["id"]), str(given["channel"]), **known)
        counts = (identity.least, identity.lost, identity.cut_from, identity.cut_lines)
        if not all(isinstance(count, int) and 0 <= count < PLAIN for count in counts):
            raise TypeError
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):  # it may be anybody's, and anything
        raise NotASpool(f"{file} is damaged") from None
    if not 1 <= number <= FORMAT:
        raise NotASpool(f"{directory} is a spool of another format than {FORMAT}")
    return identity


def segment_firsts(directory: Path, dir_fd: int | None = None, most: int | None = None) -> list[int]:
    """The offsets at which the segments of a spool begin, in order.

    Args:
        directory: where it is.
        dir_fd: the same, open.
        most: how many files there may be, for who does not trust its owner: as `names_in`.
    """
    try:
        names = names_in(dir_fd, most) if dir_fd is not None else [entry.name for entry in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(first for name in names if _SEGMENT.fullmatch(name) and (first := int(name[:20])) <= _LAST)


def with_stops(firsts: Iterable[int]) -> Iterator[tuple[int, int | None]]:
    """Where segments begin, each with where the next one does; the last one with None."""
    before, behind = itertools.tee(firsts)
    return itertools.zip_longest(before, itertools.islice(behind, 1, None))


def names_in(dir_fd: int, most: int | None = None) -> list[str]:
    """The names in a directory that is open.

    Args:
        dir_fd: the directory.
        most: how many there may be: that of somebody's own file system may have no end.

    Raises:
        NotASpool: there are more.
    """
    # The position in a directory is shared with all who have the same description open: with the process that forked this one.
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in itertools.islice(entries, None if most is None else most + 1)]
    finally:
        os.close(descriptor)
    if most is not None and len(names) > most:
        raise NotASpool(f"there are more than {most} files")
    return names


def open_to_read(path: Path, dir_fd: int | None = None) -> int:
    """Opens a file of a spool, and nothing else: of a FIFO in its place, nobody would ever answer.

    Args:
        path: which one.
        dir_fd: its directory, open. Then a symbolic link is not followed.

    Raises:
        NotASpool: it is something else than a file.
        OSError: as open(2).
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags) if dir_fd is None else os.open(path.name, flags | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotASpool(f"{path} is no file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def gone(path: Path, first: int, stop: int) -> "LinesGone":
    """What it means that the lines of a segment are not there.

    Args:
        path: of the file that they were in.
        first: the number of the first of them.
        stop: the number behind the last.

    Returns:
        `LinesDamaged` if its index is there: retention removes that first.
    """
    if path.with_suffix(".index").exists():
        return LinesDamaged(path, first, stop)
    return LinesGone(removed(first, stop, str(path.parent)))


def found_without(lines: Path) -> str:
    """What is said of a segment whose index is damaged, or missing.

    Args:
        lines: its file of lines.
    """
    return f"{lines.with_suffix('.index')} is damaged; its lines are found without it"


def read_bytes(path: Path, start: int, stop: int) -> bytes:
    """A part of a file; less if it ends before.

    Raises:
        LinesGone: retention has removed it.
    """
    try:
        descriptor = open_to_read(path)
    except FileNotFoundError:
        raise LinesGone(f"{path} has been removed") from None
    try:
        size = os.fstat(descriptor).st_size  # a damaged mark may tell of any number of bytes
        return read_part(descriptor, start, min(stop, size))
    finally:
        os.close(descriptor)


def read_part(file: int, start: int, stop: int) -> bytes:
    """A part of a file that is open; less if it ends before."""
    data = b""
    # One call gives 2 GiB at most, and less when a signal comes, or before a place that the disk cannot read.
    while len(data) < stop - start and (more := os.pread(file, stop - start - len(data), start + len(data))):
        data += more
    return data


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


def count_between(data: bytes | mmap.mmap, begin: int, stop: int) -> int:
    """How many lines end in a part of `data`, which is not copied."""
    with memoryview(data) as whole, whole[begin:stop] as view:
        return count_lines(view)


def is_whole(data: bytes | memoryview, lines: int, is_plain: bool) -> bool:
    """Whether these are so many lines, none with a hole in it.

    Args:
        data: what is there.
        lines: how many there should be.
        is_plain: whether it is known that they hold no NUL byte.
    """
    return count_lines(data) == lines and data[-1:] in (b"\n", b"") and not (is_plain and nul(data) >= 0)
