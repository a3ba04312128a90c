"""Segments that have lines and no marks: their index was removed, or cut, or did not reach the disk.

The one rule: where there is a line, nothing is thrown away. A segment that was only begun has none yet: it gets an index first.
"""

import contextlib
import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from ..host.durable import write_all
from .files import Directory
from .layout import PLAIN, LinesGone, count_lines
from .marks import Mark
from .segment import Segment

_LINES = re.compile(r"[0-9]{20}\.lines")


def restore(path: Path, directory: Directory, least: int, lost: int) -> list[str]:
    """Gives an index to each segment that has lines and none; to the last one also if there is no mark in it.

    Of the last one it gets the first mark: lines behind it are found as those are that were taken and not marked. The others have
    their end: what their marks were is found as readers do where an index is damaged.

    Args:
        path: the spool.
        directory: the same, open.
        least: lines before this one have been removed.
        lost: how many were lost before that one.

    Returns:
        What was found, a sentence each.

    Raises:
        NotASpool: an index is no file.
        OSError: as the system says; there may be no room for an index, or it may not be possible to tell whether there are lines.
    """
    names = {*directory.names()}
    firsts = sorted(first for name in names if _LINES.fullmatch(name) and least <= (first := int(name[:20])) < PLAIN)
    damage: list[str] = []
    stop: int | None = None
    for place, first in reversed([*enumerate(firsts)]):
        # If it is not the last, readers need no more than an index.
        if f"{first:020d}.index" not in names or (stop is None and not _last_known(path, directory, [first])):
            before = _last_known(path, directory, firsts[:place])
            # What begins where there are lines of another one is none of ours.
            if (before and before.line > first) or not _has_lines(path, directory, first):
                continue
            before = before or Mark(first, 0, 1, 0)
            _give_index(path, directory, first, stop, before._replace(lost=max(before.lost, lost)))
            damage.append(f"{path / f'{first:020d}.index'} is damaged; its lines are found without it")
        stop = first
    return damage[::-1]


def _has_lines(path: Path, directory: Directory, first: int) -> bool:
    name = f"{first:020d}.lines"
    if not stat.S_ISREG(os.stat(name, dir_fd=directory.descriptor, follow_symlinks=False).st_mode):
        return False
    # Closed here and not when it is forgotten: an interrupt would be forgotten with it.
    with contextlib.closing(Segment.blocks(path / name, directory.descriptor, is_patient=False)) as blocks:
        return any(count_lines(block) for block in blocks)


def _last_known(path: Path, directory: Directory, firsts: Sequence[int]) -> Mark | None:
    """The last mark of the last of these segments that has any."""
    for first in reversed(firsts):
        with contextlib.suppress(LinesGone):
            if len(segment := Segment(path, first, directory.descriptor)):
                return segment[-1]
    return None


def _give_index(path: Path, directory: Directory, first: int, stop: int | None, before: Mark) -> None:
    """Writes an index. If that is cut short, what is there of it counts: the rest is found again."""
    index = directory.create(f"{first:020d}.index")
    try:
        if stop is None:
            status = os.stat(f"{first:020d}.lines", dir_fd=directory.descriptor, follow_symlinks=False)
            marks = [Mark(first, 0, min(status.st_mtime_ns, time.time_ns()), 0)]
        else:
            segment = Segment(path, first, directory.descriptor, stop=stop)
            marks = [segment[number] for number in range(len(segment))]
        # What was known before is no less from there on.
        marks = [mark._replace(time=max(mark.time, before.time), lost=max(mark.lost, before.lost)) for mark in marks]
        write_all(index, b"".join(mark.packed() for mark in marks))
    finally:
        os.close(index)
    directory.sync()
