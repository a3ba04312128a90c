"""A client in a storm of signals: `stormy.py write PATH NAME COUNT SECONDS` or `stormy.py read|poll PATH TOTAL SECONDS`.

A timer sends it a signal every so many seconds, and whoever likes may send it SIGUSR1. A writer writes `NAME NUMBER`, a reader
sees that of each name it gets every number, in order. Prints how often a call was ended and how many signals came.
"""

import errno
import os
import select
import signal
import sys
from types import FrameType

from . import calls

counts = {"interrupted": 0, "signals": 0}


def note(number: int, frame: FrameType | None) -> None:
    """A signal handler."""
    counts["signals"] += 1


def write(path: str, name: str, count: int) -> None:
    """Writes so many messages."""
    descriptor = os.open(path, os.O_WRONLY)
    print("open", flush=True)
    for number in range(count):
        line = f"{name} {number}\n".encode()
        while (result := calls.write(descriptor, line)) == -errno.EINTR:
            counts["interrupted"] += 1
        assert result == len(line), result
    os.close(descriptor)


def read(path: str, total: int, *, polls: bool) -> None:
    """Reads so many messages."""
    flags = os.O_RDWR | os.O_CREAT if "." in os.path.basename(path) else os.O_RDONLY
    descriptor = os.open(path, flags | (os.O_NONBLOCK if polls else 0))
    print("open", flush=True)
    expected: dict[bytes, int] = {}
    while total:
        if polls and calls.poll(descriptor, select.POLLIN) == -errno.EINTR:
            counts["interrupted"] += 1
            continue
        line = calls.read(descriptor, 100)
        if isinstance(line, int):
            assert line in (-errno.EINTR, -errno.EAGAIN), line
            assert line == -errno.EINTR or polls
            counts["interrupted"] += line == -errno.EINTR
            continue
        name, number = line.split()
        assert int(number) == expected.get(name, 0), f"{line!r}, and {expected.get(name, 0)} was expected"
        expected[name] = int(number) + 1
        total -= 1
    print("done", flush=True)
    sys.stdin.readline()  # a master stays until all have seen that it got everything
    os.close(descriptor)


def main() -> None:
    """See the top."""
    what, path, *words, interval = sys.argv[1:]
    signal.signal(signal.SIGUSR1, note)
    signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, float(interval), float(interval))
    if what == "write":
        write(path, words[0], int(words[1]))
    else:
        read(path, int(words[0]), polls=what == "poll")
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(counts["interrupted"], counts["signals"], flush=True)
    os._exit(0)  # Python would take its handlers away first, and the next signal would kill


if __name__ == "__main__":
    main()
