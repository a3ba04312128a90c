"""What a writer that was killed, or a loss of power, leaves behind in a segment."""

import itertools
import mmap
from pathlib import Path

from ..core.lines import nul
from .layout import count_lines
from .marks import Mark

HOLE_BYTES = 512
"""How many zeros in a row are taken for a piece of a file that did not reach the disk: a sector."""

STEP_BYTES = 1 << 20
"""How much is looked at or cleared in one go."""

UNKNOWN = "unknown"


def boot() -> str:
    """Which run of the system this is: another one after each loss of power."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return UNKNOWN


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


def clear_behind_hole(mapped: mmap.mmap, start: int) -> None:
    """Clears what lies behind the first piece that did not reach the disk, the line with the hole in it included."""
    hole = mapped.find(bytes(HOLE_BYTES), start)
    stop = mapped.rfind(b"\n", start, hole if hole >= 0 else len(mapped)) + 1 or start
    clear(mapped, stop, used(mapped, stop))


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
