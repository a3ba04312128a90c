"""Programs that write numbered lines, and what a spool has of them."""

import subprocess
import sys
from pathlib import Path

from futebus.spool import Spool

from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until
from .spools import lines_of

WRITER = """
import os, signal, sys, time
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0
name, count, channel = sys.argv[1], int(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY)
ends = []
signal.signal(signal.SIGTERM, lambda number, frame: ends.append(number))
begin = 0
while begin != count and not ends:
    data = b"".join(b"%s %d %s\\n" % (name.encode(), number, b"x" * (number % 150)) for number in range(begin, begin + 50))
    while data:
        data = data[os.write(channel, data):]
    begin += 50
    if pause:
        time.sleep(pause)
print(begin, flush=True)
"""
"""Writes numbered lines, as many or until SIGTERM. Says how many, and ends with status 0, only when the bus has accepted all."""

ENDLESS = -1


def writers(start: Start, channel: Path, count: int, each: int = ENDLESS, pause: float = 0.0) -> "list[subprocess.Popen[str]]":
    """Starts programs that write so many lines each, or until they are told to end; if told so, with pauses between every 50."""
    return [start(sys.executable, "-c", WRITER, str(number), str(each), channel, str(pause)) for number in range(count)]


def finish(running: "list[subprocess.Popen[str]]") -> list[list[int]]:
    """Tells writers to end. Returns the numbers of the lines that each has written."""
    for writer in running:
        writer.terminate()
    said = [writer.communicate(timeout=DEADLINE) for writer in running]
    assert [writer.returncode for writer in running] == [0] * len(running), said
    return [list(range(int(words))) for words, _ in said]


def wait_for_more(path: Path, more: int = 1) -> None:
    """Waits until so many more lines are in a spool."""
    least = Spool(path).end + more
    until(lambda: Spool(path).end >= least, "lines come")


def numbers_of(spool: Path, count: int) -> list[list[int]]:
    """The numbers of the lines of each writer, in the order of the spool."""
    found: list[list[int]] = [[] for _ in range(count)]
    for line in lines_of(spool).splitlines():
        name, number, filling = line.split(b" ")
        assert filling == b"x" * (int(number) % 150)
        found[int(name)].append(int(number))
    return found
