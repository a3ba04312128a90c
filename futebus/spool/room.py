"""The disk space of a segment, which it has before anything is put there.

The one rule: a full disk shows when room is asked for, and nowhere else. To store into a mapped file that the disk has no place
for is deadly.
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .files import FULL
from .layout import MARK, MARKS, READ_ROOM
from .repair import STEP_BYTES

LEAST_MARKS = 128
"""How many appends a segment has room for where the disk has little: a page of the index."""

LEAST_BYTES = 64 << 10
"""How many bytes of lines then, if they may come in pieces. With less room than this a disk counts as full."""


class Room(NamedTuple):
    """Disk space of a segment."""

    bytes: int
    """For lines."""
    marks: int


def rooms(most: int, least: int, tight: int | None = None) -> Iterator[Room]:
    """What to ask the disk for, one after the other: where there is little, a shorter segment, which ends sooner.

    Args:
        most: so many bytes at first.
        least: with fewer, marks have to make do first.
        tight: with fewer, it is of no use; if not given, `least`.
    """
    least = max(least, 1)  # a file must have a byte to be mapped
    size, marks = max(most, least), MARKS
    yield Room(size, marks)
    while size > least:
        size = max(size // 2, least)
        yield Room(size, marks)
    while marks > LEAST_MARKS:
        marks = max(marks // 16, LEAST_MARKS)
        yield Room(size, marks)
    while tight is not None and size > max(tight, 1):
        size = max(size // 2, tight, 1)
        yield Room(size, marks)


def smallest(unfinished: int) -> Room:
    """What it takes to begin a segment at all, with so many bytes of a line in it. It may grow when there is room."""
    return Room(max(unfinished, 1), min(LEAST_MARKS, MARKS))


def reserve(lines: int, index: int, wishes: Iterable[Room]) -> Room:
    """Takes disk space for both files, the first of what is wished that there is.

    Raises:
        OSError: there is none; they are as they were.
    """
    before = os.fstat(lines).st_size, os.fstat(index).st_size
    tries = [*wishes]
    for number, room in enumerate(tries, 1):
        try:
            os.posix_fallocate(index, 0, room.marks * MARK.size)
            os.posix_fallocate(lines, 0, room.bytes)
            break
        except OSError as error:
            for file, size in zip((lines, index), before, strict=True):
                os.ftruncate(file, size)
            if error.errno not in FULL or number == len(tries):
                raise
    return room


def hold(lines: int) -> int:
    """Has the disk space of a file of lines as it is, without holes: even to look at one that is mapped may take room.

    Returns:
        How long the file is then. Where the disk has no place for what follows the lines, it ends with them.

    Raises:
        OSError: there is no room even for what is in it.
    """
    size = os.fstat(lines).st_size
    try:
        if size:
            os.posix_fallocate(lines, 0, size)
    except OSError:
        # To store into a hole that the disk has no place for is deadly, and what is read into one is lost.
        size = _used(lines, size)
        os.ftruncate(lines, size)
        if size:
            os.posix_fallocate(lines, 0, size)
    return size


def take_room(lines: int, index: int, least: int) -> Room:
    """Has the disk space of a segment that was left, and more if the disk has it: otherwise the next segment begins sooner.

    Args:
        lines: the file of lines. If it was closed, it is as long as they are.
        index: that of marks.
        least: how long it should be.

    Returns:
        What it has.

    Raises:
        OSError: there is no room even for what is in it.
    """
    kept = min(os.fstat(index).st_size, MARKS * MARK.size)
    marks = kept // MARK.size
    try:
        # Marks come first: where lines have room, so must their marks. A copy has holes where there were zeros, and to write into
        # one takes room, too.
        if kept:
            os.posix_fallocate(index, 0, kept)
    except OSError:
        marks = 0
    size = hold(lines)
    try:
        wishes = rooms(max(size, least), max(size, min(least, READ_ROOM)), max(size, min(least, LEAST_BYTES)))
        marks = max(marks, reserve(lines, index, wishes).marks)
    except OSError:
        if not size:
            # It is empty. A file must have a byte to be mapped, and without that its spool could not be opened.
            os.posix_fallocate(lines, 0, 1)
    return Room(os.fstat(lines).st_size, marks)


def _used(file: int, size: int) -> int:
    """How much of a file is in use: zeros follow to the end."""
    for start in reversed(range(0, size, STEP_BYTES)):
        if found := os.pread(file, STEP_BYTES, start).rstrip(b"\0"):
            return start + len(found)
    return 0
