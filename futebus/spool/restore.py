"""Segments that have lines and no marks: their index was removed, or cut, or did not reach the disk.

The one rule: where there is a line, nothing is thrown away. A segment that was only begun has none yet: it gets an index first.
"""

import bisect
import contextlib
import functools
import os
import re
import stat
from array import array
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

from ..host.durable import write_all
from .files import Directory
from .layout import PLAIN, LinesGone, SpoolStopped, count_lines, found_without
from .marks import Mark, found_again, mended
from .repair import last_changed
from .segment import Segment, first_mark

_LINES = re.compile(r"[0-9]{20}\.lines")


class Restored(NamedTuple):
    """What was found."""

    damage: list[str]
    """What is said of the segments that have got an index, a sentence each."""
    strays: frozenset[str]
    """Files with lines that cannot be ours: another segment has lines of these numbers."""


def restore(
    path: Path,
    directory: Directory,
    least: int,
    lost: int,
    *,
    may_have_holes: bool,
    goes_on: Callable[[], bool] = lambda: True,
) -> Restored:
    """Gives an index to each segment that has lines and none; to the last one also if there is no mark in it.

    What its marks were is found as readers do where an index is damaged.

    Args:
        path: the spool.
        directory: the same, open.
        least: lines before this one have been removed.
        lost: how many were lost before that one.
        may_have_holes: whether power may have been lost since it was written.
        goes_on: is asked before each of them: to read their lines may take long.

    Raises:
        NotASpool: an index is no file.
        SpoolStopped: it does not go on. Those that have an index by then keep it.
        OSError: as the system says; there may be no room for an index, or it may not be possible to tell whether there are lines.
    """
    names = {*directory.names()}
    firsts = sorted(first for name in names if _LINES.fullmatch(name) and least <= (first := int(name[:20])) < PLAIN)
    known = _Known(path, directory, [first for first in firsts if f"{first:020d}.index" in names])
    damage: list[str] = []
    strays = set()
    stop: int | None = None
    for place, first in reversed([*enumerate(firsts)]):
        # If it is not the last, readers need no more than an index.
        if f"{first:020d}.index" not in names or (stop is None and not known.has_marks(first)):
            if not goes_on():
                raise SpoolStopped(f"{path} has not been opened: it was to end")
            if not _has_lines(path, directory, first):
                continue
            if known.is_within(first):
                strays.add(f"{first:020d}.lines")
                continue
            before = known.before(first) or Mark(first, 0, 1, 0)
            began = _changed(directory, firsts[place - 1] if place else first)
            before = before._replace(time=max(before.time, began), lost=max(before.lost, lost))
            _give_index(path, directory, first, stop, before, may_have_holes=may_have_holes)
            damage.append(found_without(path / f"{first:020d}.lines"))
        stop = first
    return Restored(damage[::-1], frozenset(strays))


class _Known:
    """What is known of the segments that have an index."""

    def __init__(self, path: Path, directory: Directory, firsts: list[int]) -> None:
        self._path, self._directory, self._firsts = path, directory, firsts
        self._without: set[int] = set()
        """Those whose index has no marks."""

    def _segment(self, first: int) -> Segment | None:
        """The segment that begins there, if it has marks."""
        if first not in self._without:
            with contextlib.suppress(LinesGone):
                if len(segment := Segment(self._path, first, self._directory.descriptor)):
                    return segment
            self._without.add(first)
        return None

    def has_marks(self, first: int) -> bool:
        return self._segment(first) is not None

    def _segment_before(self, line: int) -> Segment | None:
        """The last one that begins before a line, and has marks."""
        for first in reversed(self._firsts[: bisect.bisect_left(self._firsts, line)]):
            if segment := self._segment(first):
                return segment
        return None

    def before(self, line: int) -> Mark | None:
        """The last mark before a line. One that tells of lines behind it is wrong."""
        if segment := self._segment_before(line):
            return segment[bisect.bisect_right(range(len(segment)), line, key=lambda number: segment[number].line) - 1]
        return None

    def is_within(self, first: int) -> bool:
        """Whether a segment before this one has a line of that number. Its marks may be wrong: it must have the line itself."""
        if not (segment := self._segment_before(first)) or segment[-1].line <= first:
            return False
        return _count(self._path, self._directory, segment.first) > first - segment.first


def _count(path: Path, directory: Directory, first: int) -> int:
    # Closed here and not when it is forgotten: an interrupt would be forgotten with it.
    with contextlib.closing(_blocks(path, directory, first)) as blocks:
        return sum(count_lines(block) for block in blocks)


def _blocks(path: Path, directory: Directory, first: int) -> Generator[bytes, None, None]:
    return Segment.blocks(path / f"{first:020d}.lines", directory.descriptor, is_patient=False)


def _has_lines(path: Path, directory: Directory, first: int) -> bool:
    if not stat.S_ISREG(os.stat(f"{first:020d}.lines", dir_fd=directory.descriptor, follow_symlinks=False).st_mode):
        return False
    with contextlib.closing(_blocks(path, directory, first)) as blocks:
        return any(count_lines(block) for block in blocks)


def _changed(directory: Directory, first: int) -> int:
    """When the lines of a segment were last written."""
    return last_changed(os.stat(f"{first:020d}.lines", dir_fd=directory.descriptor, follow_symlinks=False))


def _give_index(path: Path, directory: Directory, first: int, stop: int | None, before: Mark, *, may_have_holes: bool) -> None:
    changed = _changed(directory, first)
    end = None if stop is None else first_mark(path, stop, directory.descriptor)
    is_end_known = end is not None
    if end is None:
        end = Mark(first + _count(path, directory, first) if stop is None else stop, 0, max(changed, before.time), before.lost)
    if may_have_holes:
        blocks_of = functools.partial(_blocks, path, directory, first)
        marks = found_again(array("Q"), blocks_of, first, end, is_end_known=is_end_known, may_be_short=True)
    else:
        with contextlib.closing(_blocks(path, directory, first)) as blocks:
            marks = [*mended(array("Q"), blocks, first, end, is_end_known=is_end_known)]
    before = before._replace(time=min(before.time, marks[-1].time))
    marks[0] = marks[0]._replace(time=before.time)  # when the one before has ended
    # What was known before is no less from there on.
    marks = [mark._replace(time=max(mark.time, before.time), lost=max(mark.lost, before.lost)) for mark in marks]
    put_index(directory, first, marks)


def put_index(directory: Directory, first: int, marks: list[Mark]) -> None:
    """Gives a segment an index, whole or not at all. It is on the disk when this returns.

    Raises:
        OSError: as the system says.
    """
    index = directory.create(f"{first:020d}.new")
    try:
        write_all(index, b"".join(mark.packed() for mark in marks))
    finally:
        os.close(index)
    directory.sync(f"{first:020d}.new")
    directory.rename(f"{first:020d}.new", f"{first:020d}.index")
    directory.sync()
