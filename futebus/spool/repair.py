"""What a writer that was killed, or a loss of power, leaves behind in a segment."""

import mmap
import os
import time
from pathlib import Path

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
