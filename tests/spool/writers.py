"""Programs that write numbered lines, and what a spool has of them."""

import subprocess
import sys
from pathlib import Path

from ..conftest import Start
from .test_spool import lines_of

WRITER = """
import os, sys
name, count, channel = sys.argv[1], int(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY)
for begin in range(0, count, 50):
    data = b"".join(b"%s %d %s\\n" % (name.encode(), number, b"x" * (number % 150)) for number in range(begin, begin + 50))
    while data:
        data = data[os.write(channel, data):]
"""
"""Writes numbered lines, and ends with status 0 only when the bus has accepted every one."""


def writers(start: Start, channel: Path, count: int, each: int) -> "list[subprocess.Popen[str]]":
    return [start(sys.executable, "-c", WRITER, str(number), str(each), channel) for number in range(count)]


def numbers_of(spool: Path, count: int) -> list[list[int]]:
    """The numbers of the lines of each writer, in the order of the spool."""
    found: list[list[int]] = [[] for _ in range(count)]
    for line in lines_of(spool).splitlines():
        name, number, filling = line.split(b" ")
        assert filling == b"x" * (int(number) % 150)
        found[int(name)].append(int(number))
    return found
