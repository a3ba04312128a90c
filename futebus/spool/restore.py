"""Segments that have lines and no marks: their index was removed, or cut, or did not reach the disk.

The one rule: where there is a line, nothing is thrown away. A segment that was only begun has none yet: it gets an index first.
"""

import os
import re
from pathlib import Path

from ..host.durable import write_all
from .files import Directory
from .layout import LinesGone, count_lines
from .marks import Mark
from .segment import Segment, ended, last_mark

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
        OSError: as the system says; there may be no room for an index.
    """
    firsts = sorted(first for name in directory.names() if _LINES.fullmatch(name) and (first := int(name[:20])) >= least)
    damage: list[str] = []
    stop: int | None = None
    for before, first in reversed([*zip([None, *firsts], firsts, strict=False)]):
        if not _has_marks(path, directory, first, is_last=stop is None):
            if not _has_lines(path, directory, first):
                continue
            _give_index(path, directory, first, stop, _end_of(path, directory, before, first) or Mark(first, 0, 0, lost))
            damage.append(f"{path / f'{first:020d}.index'} is damaged; its lines are found without it")
        stop = first
    return damage[::-1]


def _has_marks(path: Path, directory: Directory, first: int, *, is_last: bool) -> bool:
    """Whether a segment has an index with something in it. If it is not the last, readers need no more than the index."""
    try:
        return directory.has(f"{first:020d}.index") and (not is_last or len(Segment(path, first, directory.descriptor)) > 0)
    except LinesGone:
        return False


def _has_lines(path: Path, directory: Directory, first: int) -> bool:
    return any(count_lines(block) for block in Segment.blocks(path / f"{first:020d}.lines", directory.descriptor))


def _end_of(path: Path, directory: Directory, before: int | None, first: int) -> Mark | None:
    """With what a segment ended that goes before another one, if it is known."""
    mark = None if before is None else last_mark(path, before, directory.descriptor, first)
    return mark and mark._replace(time=ended(mark, path, first, directory.descriptor))


def _give_index(path: Path, directory: Directory, first: int, stop: int | None, before: Mark) -> None:
    """Writes an index. If that is cut short, what is there of it counts: the rest is found again."""
    index = directory.create(f"{first:020d}.index")
    try:
        if stop is None:
            status = os.stat(f"{first:020d}.lines", dir_fd=directory.descriptor, follow_symlinks=False)
            data = Mark(first, 0, max(before.time, status.st_mtime_ns), before.lost).packed()
        else:
            data = Segment(path, first, directory.descriptor, stop=stop).packed()
        write_all(index, data)
    finally:
        os.close(index)
    directory.sync()
