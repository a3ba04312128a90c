"""Counts what comes from standard input: the same small program behind every reader of every system.

usage: count.py EXPECTED [KEEP]

Every line that is measured has one `~`, as the last byte of its text. No protocol here uses that byte, so one count does for
all of them. Prints `ready` when the first bytes come, whatever they are. Ends when EXPECTED marks have come, or after 2 seconds
in which none came (30 before the first). Then prints how many came, and CLOCK_MONOTONIC in seconds when the last did. With KEEP,
waits another half second for what should not come, and writes everything to that file.
"""

import os
import select
import sys
import time

MARK = b"~"
PATIENCE = 2.0
PATIENCE_AT_FIRST = 30.0
LINGER = 0.5


def main() -> None:
    """Runs the command."""
    expected = int(sys.argv[1])
    keep = open(sys.argv[2], "wb", buffering=0) if len(sys.argv) > 2 else None  # noqa: SIM115, PTH123 # without site, quick to start
    buffer = bytearray(1 << 20)
    count, last = 0, time.monotonic()
    ready = False
    while True:
        limit = LINGER if count >= expected else PATIENCE if count else PATIENCE_AT_FIRST
        left = max(0.0, last + limit - time.monotonic())
        if not select.select([0], [], [], left)[0]:
            break
        size = os.readv(0, [buffer])
        if not size:
            break
        if not ready:
            os.write(1, b"ready\n")
            ready = True
        more = buffer.count(MARK, 0, size)
        if more:
            count += more
            last = time.monotonic()
        if keep:
            keep.write(memoryview(buffer)[:size])
        elif count >= expected:
            break
    os.write(1, f"{count} {last!r}\n".encode())


if __name__ == "__main__":
    main()
