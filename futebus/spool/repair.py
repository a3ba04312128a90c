"""What a writer that was killed, or a loss of power, leaves behind in a segment."""

import mmap
import os
import time
from pathlib import Path

HOLE_BYTES = 512
"""How many bytes reach the disk together, or do not: a sector."""

STEP_BYTES = 1 << 20
"""How much is looked at or cleared in one go."""

TICK_NS = 10_000_000
"""How far the time of a file may be behind, in nanoseconds: the kernel takes it from a clock that may tick only so often."""

UNKNOWN = "unknown"


class Holes:
    """Where something may not have reached the disk.

    Args:
        data: what is there, from the beginning of a sector on.
        may_be_short: whether power was lost. Of the page that was last brought to the disk it may have what was in it then:
            lines, and zeros up to its end. So a hole may be short, but it ends where a sector does, if there is anything behind
            it. Otherwise it is a sector at least.
    """

    def __init__(self, data: mmap.mmap | bytes, *, may_be_short: bool) -> None:
        self._data = data
        self._ends: bytes | None = None
        if may_be_short:
            with memoryview(data) as whole, whole[HOLE_BYTES - 1 :: HOLE_BYTES] as ends:
                self._ends = ends.tobytes()

    def find(self, begin: int, end: int) -> int:
        """The place of the first zero that tells of a hole between two bytes; -1 if none does."""
        if self._ends is None:
            return self._data.find(bytes(HOLE_BYTES), begin, end)
        place = self._ends.find(0, begin // HOLE_BYTES, end // HOLE_BYTES)
        return place if place < 0 else (place + 1) * HOLE_BYTES - 1


def boot() -> str:
    """Which run of the system this is: another one after each loss of power."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return UNKNOWN


def last_changed(status: os.stat_result) -> int:
    """When a file was last written, nanoseconds since the epoch; not too early, nor in the future."""
    return min(max(status.st_mtime_ns, 0) + TICK_NS, time.time_ns())


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
