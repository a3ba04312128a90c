"""What this process has open."""

import contextlib
import os


def descriptors() -> int:
    """How many descriptors this process has, but for files of /proc: a thread that watches all processes reads those."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing itself, for one
            count += not os.readlink(f"/proc/self/fd/{number}").startswith("/proc")
    return count
