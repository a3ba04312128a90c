"""What a process has seen of the bus, in a file of its own.

A record is written before each call and another behind it, so that a process that was killed leaves no doubt but about its last
call. Nothing is buffered: what was written is there however the process ends.
"""

import marshal
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOISE = bytes(byte for byte in range(256) if byte != 0x0A) * 40
"""What messages are filled up with: every byte that there is."""


def text_of(who: str, where: str, number: int, to: str, size: int) -> bytes:
    """The text of a message, without address and newline. It tells all about itself, and so can be checked wherever it arrives.

    Args:
        who: the process that writes it.
        where: the open file description that it writes to.
        number: which of its messages there.
        to: the address it was given: an ID, `*`, or `-` for none.
        size: how many bytes of noise it has.
    """
    start = (number * 31 + size) % 250
    return b"%s %s %d %s %d " % (who.encode(), where.encode(), number, to.encode(), size) + NOISE[start : start + size]


class Record:
    """The file of one process."""

    def __init__(self, directory: Path, who: str) -> None:
        self.who = who
        self._file = os.open(directory / who, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)

    def __call__(self, what: str, *details: Any) -> None:
        """Notes something, with the time in nanoseconds."""
        os.write(self._file, marshal.dumps((what, time.monotonic_ns(), *details)))

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


def read(path: Path) -> Iterator[tuple[Any, ...]]:
    """The records of a file, the last of which may have been cut off."""
    with path.open("rb") as file:
        while True:
            try:
                yield marshal.load(file)
            except (EOFError, ValueError, TypeError):
                return
