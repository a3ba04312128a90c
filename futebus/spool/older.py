"""The segments before the last: whether they have their lines, whether these are on the disk, and when a segment goes."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path

from .files import FULL, Directory
from .layout import MARK, MARKS, LinesDamaged, LinesGone, SpoolError, found_without, segment_firsts
from .lock import SpoolLock
from .segment import Segment, ended, last_mark

UNSYNCED_SECONDS = 600
"""How recently a segment was written that `SpoolWriter.sync` sees to although another process wrote it. The kernel itself writes
everything to the disk within a minute, unless it was told to take longer."""

LOOKED_AT = 16
"""How many segments, the last ones, are looked at when a spool is opened, whether they have their lines. Readers look at all."""


def look_back(path: Path, directory: Directory, firsts: Iterable[int], following: int) -> tuple[list[str], list[int]]:
    """Looks whether the last segments before one have their lines, and which may not be on the disk yet.

    Args:
        path: the spool.
        directory: the same, open.
        firsts: where the segments before that one begin, in order.
        following: where that one begins.

    Returns:
        What is wrong with them, a sentence each, and where those begin that were written not long ago.
    """
    recently = time.time() - UNSYNCED_SECONDS
    damage, recent = [], []
    for number, first in enumerate(reversed([*firsts])):
        name = f"{first:020d}.lines"
        is_mended = False
        try:
            if number < LOOKED_AT:  # each of its marks: some may not have reached the disk
                segment = Segment(path, first, directory.descriptor, stop=following)
                last, is_mended = segment[-1] if len(segment) else None, segment.is_mended
            else:
                last = last_mark(path, first, directory.descriptor, following)
            status = os.stat(name, dir_fd=directory.descriptor, follow_symlinks=False)
            size, is_recent = status.st_size, status.st_mtime > recently
        except (OSError, SpoolError):  # who wants these lines is told why they cannot be read
            last, size, is_recent = None, 0, False
        if last is None or last.line != following or size < last.byte:
            stop = last.line if last is not None and size >= last.byte else first
            damage.append(str(LinesDamaged(path / name, stop, following)))
        elif is_mended:
            damage.append(found_without(path / name))
        if is_recent:
            recent.append(first)
        elif number >= LOOKED_AT:
            break
        following = first
    return damage, recent


def destroyed(segment: Segment) -> list[str]:
    """Which lines are not what its marks say, a sentence for all that lie together."""
    found = _unfit(segment)
    if found and segment.mend():  # as readers do
        found = _unfit(segment)
    return [str(LinesDamaged(segment.path, first, stop)) for first, stop in found]


def _unfit(segment: Segment) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for before, mark in itertools.pairwise(segment[number] for number in range(len(segment))):
        with contextlib.suppress(LinesGone):
            if mark.line == before.line or segment.between(before, mark) is not None:
                continue
        first = found.pop()[0] if found and found[-1][1] == before.line else before.line
        found.append((first, mark.line))
    if segment.stop is not None and len(segment) and segment[-1].line < segment.stop:
        found.append((segment[-1].line, segment.stop))
    return found


def append_lost(path: Path, lock: SpoolLock, count: int) -> bool:
    """Notes that so many lines were lost behind the last one, in a spool that nobody has opened to write.

    To open it may take more room than a full disk has; this takes none, mostly.

    Args:
        path: the spool.
        lock: the right to write it.
        count: how many.

    Returns:
        Whether it is noted; not where the spool must be repaired first.

    Raises:
        SpoolError: it is no spool, or another one.
        OSError: as the system says.
    """
    lock.check()
    directory = lock.directory
    firsts = segment_firsts(path, directory.descriptor)
    if not firsts or not len(segment := Segment(path, firsts[-1], directory.descriptor)):
        return False
    index = directory.open(f"{segment.first:020d}.index")
    try:
        mark, at = segment[-1], len(segment) * MARK.size
        if len(segment) >= MARKS or os.pread(index, MARKS * MARK.size, at).strip(b"\0"):
            return False
        mark = mark._replace(time=max(time.time_ns(), mark.time), lost=mark.lost + count, is_plain=False)
        return os.pwrite(index, mark.packed(), at) == MARK.size
    finally:
        os.close(index)


def remove(
    path: Path,
    lock: SpoolLock,
    newest: int,
    kept: int,
    *,
    offset: int | None,
    size: int | None,
    age: float | None,
    until: int | None = None,
) -> int:
    """Removes old segments, as `SpoolWriter.remove_old` says.

    Args:
        path: the spool.
        lock: the right to write it.
        newest: where the last segment begins. If others are begun meanwhile, this is not for them to decide.
        kept: how many bytes of lines are in it.
        offset: lines before it are no longer needed.
        size: how many bytes of lines to keep at least.
        age: how old lines may get, in seconds.
        until: lines from this one on are needed, whatever else is said; None: none are.

    Returns:
        How many lines were removed.

    Raises:
        OSError: as the system says. What has not been removed is still there.
    """
    directory = lock.directory
    oldest = time.time_ns() - int((age or 0) * 1e9)
    firsts = [first for first in segment_firsts(path, directory.descriptor) if first <= newest]
    gone = 0
    for first, following in reversed(list(itertools.pairwise(firsts))):
        last = last_mark(path, first, directory.descriptor, following)
        is_old = age is not None and last is not None and ended(last, path, following, directory.descriptor) < oldest
        is_needed = until is not None and following > until
        if is_needed:
            pass
        elif (offset is not None and following <= offset) or (size is not None and kept >= size) or is_old:
            gone = following
            break
        kept += last.byte if last else 0
    if not gone:
        return 0
    _note_least(path, lock, gone)
    for first in itertools.takewhile(lambda first: first < gone, firsts):
        directory.remove_segment(first)
    return gone - firsts[0]


def remove_unopened(path: Path, lock: SpoolLock, *, size: int | None, age: float | None, until: int | None = None) -> int:
    """As `SpoolWriter.remove_old`, of a spool that cannot be opened to write before there is room for that.

    What is in the last segment has not been looked at: so none of it counts as kept.

    Args:
        path: the spool.
        lock: the right to write it.
        size: as for `remove`.
        age: the same.
        until: the same.
    """
    lock.read_again()
    descriptor = lock.directory.descriptor
    for first in reversed(segment_firsts(path, descriptor)):
        segment = Segment(path, first, descriptor)
        if len(segment) and lock.directory.has(segment.path.name):
            return remove(path, lock, first, 0, offset=None, size=size, age=age, until=until)
    return 0


def _note_least(path: Path, lock: SpoolLock, first: int) -> None:
    """Has it on the disk that the spool begins there, before anything else is removed.

    Otherwise a loss of power could take the segment that begins there too, and offsets would begin again.
    """
    lock.directory.sync(f"{first:020d}.index")
    lock.directory.sync()
    try:
        lock.note(least=first, lost=_lost_before(path, lock, first))
    except OSError as error:
        # Room is made here. The segment itself is on the disk, and that tells the same.
        if error.errno not in FULL:
            raise


def _lost_before(path: Path, lock: SpoolLock, first: int) -> int:
    """How many lines were lost before a segment, or as far as that can be told if it is damaged."""
    with contextlib.suppress(SpoolError):
        segment = Segment(path, first, lock.directory.descriptor)
        if len(segment):
            return segment[0].lost
    return lock.identity.lost
