"""One look at a bus.

The one rule: what is read comes to an end, and is taken for nothing before `told` has held it against what a bus can be.
"""

import contextlib
import errno
import os
import time
from pathlib import Path

from ..host.mounted import NoBus, find_bus, unusable
from .shares import Share
from .told import NAMED, Bounds, Look, parsed

READ_BYTES = 1 << 20

MOST_BYTES = NAMED.bytes
"""How much a bus may tell: a stranger's might never come to an end."""

MOST_READS = 1000
"""How often a bus is asked for more. 32 MiB are 32 reads of a real one, or a few times that."""

READ_SECONDS = 30.0
"""How long a bus may go on telling."""


def pause(interval: float, now: float | None = None) -> float:
    """How long to wait before one looks again: until the clock shows a whole multiple of the interval, about one from now.

    So whoever looks at a bus once a second does it at the same moment as all others who do, and one snapshot is made for all.

    Args:
        interval: seconds from look to look.
        now: what the clock shows, in seconds.

    Returns:
        Seconds: more than half an interval, and not more than one and a half.
    """
    left = interval - (time.time() if now is None else now) % interval
    return left if left > interval / 2 else left + interval


def look(mountpoint: Path, bounds: Bounds = NAMED, share: Share | None = None) -> Look:
    """Looks at a bus. Waits for as long as the bus does: one that hangs is to be looked at in a thread of its own.

    Args:
        mountpoint: where it is mounted.
        bounds: how much it may have.
        share: of what it takes to understand it, if there is only so much.

    Raises:
        NoBus: there is none, or it does not tell what is understood here.
    """
    text = read(mountpoint, most=bounds.bytes)
    with share.taken() if share else contextlib.nullcontext():
        return parsed(text, mountpoint, bounds)


def read(mountpoint: Path, name: str = "_stat.json", most: int = MOST_BYTES) -> bytes:
    """Reads a file by which a bus shows itself.

    Args:
        mountpoint: where the bus is mounted.
        name: of the file.
        most: how many bytes there may be.

    Raises:
        NoBus: there is no bus, it has gone, or it tells too much or too slowly.
    """
    bus = find_bus(mountpoint)
    try:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=bus)
        try:
            return _read_all(file, mountpoint, min(most, MOST_BYTES))
        finally:
            os.close(file)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise NoBus(f"the bus on {mountpoint} has no {name}: its futebus is older than this one", error.errno) from None
        raise unusable(mountpoint, error) from None
    finally:
        os.close(bus)


def _read_all(file: int, mountpoint: Path, most: int) -> bytes:
    # One piece of memory for all of it: a piece for each read costs more than was read, if that is little.
    told, length, end = bytearray(), 0, time.monotonic() + READ_SECONDS
    for _ in range(MOST_READS):
        if len(told) - length < READ_BYTES:
            told.extend(bytes(READ_BYTES))
        with memoryview(told) as place:
            count = os.readv(file, [place[length:]])
        length += count
        if length > most:
            raise NoBus(f"the bus on {mountpoint} tells too much", None)
        if not count:
            del told[length:]
            return bytes(told)
        if time.monotonic() > end:
            break
    raise NoBus(f"the bus on {mountpoint} tells too little at a time", None)
