"""What this process has open, what another one may, and one that is full."""

import contextlib
import itertools
import os
import resource
from pathlib import Path

from futebus.client.waking import have_reserve


def open_files() -> list[str]:
    """What this process has open. A thread that watches all processes opens and closes files of /proc meanwhile."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing itself, for one
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def descriptors() -> int:
    """How many descriptors this process has, but for what others open and close in it meanwhile.

    That is files of /proc, which a thread that watches all processes reads, and sockets of TCP: Spark's Java closes its
    connections half a minute after they were last used.
    """
    have_reserve()  # the first channel of the client would have it, and it stays
    files = open_files()
    others = {f"socket:[{line.split()[9]}]" for name in ("tcp", "tcp6") for line in _connections(name)}
    return sum(not file.startswith("/proc") and file not in others for file in files)


def _connections(kind: str) -> list[str]:
    table = Path(f"/proc/self/net/{kind}")  # proc(5); a kernel without IPv6 has no second one
    return table.read_text().splitlines()[1:] if table.exists() else []


def leave(pid: int, count: int) -> tuple[int, int]:
    """Lets a process open so many descriptors more, and no other. Returns what its limit was, for `resource.prlimit`."""
    opened = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    limit = next(itertools.islice((number for number in itertools.count() if number not in opened), count, None))
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    return resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))


def fill(descriptor: int) -> int:
    """Fills what can be written to. Returns with how many bytes. It is a blocking one afterwards."""
    os.set_blocking(descriptor, False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            count += os.write(descriptor, b"x" * 1000 + b"\n")
    with contextlib.suppress(BlockingIOError):
        while True:
            count += os.write(descriptor, b"\n")
    os.set_blocking(descriptor, True)
    return count
