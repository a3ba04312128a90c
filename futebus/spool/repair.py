"""What a writer that was killed, or a loss of power, leaves behind in a segment."""

import itertools
import mmap
import os
import time
from pathlib import Path

from ..core.lines import nul
from .layout import count_lines, is_whole
from .marks import Mark

HOLE_BYTES = 512
"""How many zeros in a row are taken for a piece of a file that did not reach the disk: a sector."""

STEP_BYTES = 1 << 20
"""How much is looked at or cleared in one go."""

TICK_NS = 10_000_000
"""How far the time of a file may be behind, in nanoseconds: the kernel takes it from a clock that may tick only so often."""

UNKNOWN = "unknown"


def boot() -> str:
    """Which run of the system this is: another one after each loss of power."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return UNKNOWN


def last_changed(status: os.stat_result) -> int:
    """When a file was last written, nanoseconds since the epoch; not too early, nor in the future."""
    return min(max(status.st_mtime_ns, 0) + TICK_NS, time.time_ns())


def with_lines(marks: list[Mark], mapped: mmap.mmap) -> int:
    """How many of these marks have the lines behind them that they tell of."""
    with memoryview(mapped) as whole:
        for number, (before, mark) in enumerate(itertools.pairwise(marks), 1):
            if mark.byte > len(mapped) or (mark.byte > before.byte and whole[mark.byte - 1] != 0x0A):
                return number
            with whole[before.byte : mark.byte] as view:
                if count_lines(view) != mark.line - before.line or (mark.is_plain and nul(view) >= 0):
                    return number
    return len(marks)


def has_lost_lines(marks: list[Mark], mapped: mmap.mmap, there: int) -> bool:
    """Whether it is lines that are gone or overwritten, and not marks that are wrong, where they do not fit together.

    Args:
        marks: those of a segment.
        mapped: its lines.
        there: as `with_lines` says.
    """
    last = marks[-1]
    if last.byte > len(mapped):
        return len(marks) - there > 1 and marks[-2].byte > len(mapped)  # two that are wrong are not likely
    with memoryview(mapped) as whole:
        if not _fit(marks[-2], last, whole):
            return False
        with whole[: last.byte] as view:
            # If there are as many lines as the last mark says, it is those between that are wrong, or there is a zero.
            return count_lines(view) != last.line - marks[0].line or _fit(marks[there - 1], marks[there], whole, has_zeros=True)


def _fit(before: Mark, mark: Mark, whole: memoryview, *, has_zeros: bool = False) -> bool:
    """Whether there are as many lines between two marks as they say, with zeros among them or not."""
    with whole[before.byte : mark.byte] as view:
        return is_whole(view, mark.line - before.line, is_plain=mark.is_plain and not has_zeros)


def clear_behind_hole(mapped: mmap.mmap, start: int) -> int:
    """Clears what lies behind the first piece that did not reach the disk, the line with the hole in it included.

    Returns:
        How many lines ended there.
    """
    hole = mapped.find(bytes(HOLE_BYTES), start)
    stop = mapped.rfind(b"\n", start, hole if hole >= 0 else len(mapped)) + 1 or start
    size = used(mapped, stop)
    with memoryview(mapped) as whole, whole[stop : stop + size] as view:
        count = count_lines(view)
    clear(mapped, stop, size)
    return count


def clear(mapped: mmap.mmap, start: int, size: int) -> None:
    """Makes so many bytes zeros."""
    for at in range(start, start + size, STEP_BYTES):
        stop = min(at + STEP_BYTES, start + size)
        mapped[at:stop] = bytes(stop - at)


def used(mapped: mmap.mmap, start: int) -> int:
    """How many bytes from `start` on are in use: zeros follow to the end."""
    size = 0
    for at in range(start, len(mapped), STEP_BYTES):
        if rest := mapped[at : at + STEP_BYTES].rstrip(b"\0"):
            size = at - start + len(rest)
    return size
