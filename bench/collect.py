"""Eight writers, one reader who must miss nothing: a U channel with default limits, where writers wait for a slow master.

Beside it a FIFO, which needs no daemon, but where long writes of several writers mix.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from . import bulk, peers
from .figures import Figure, Row

WRITERS = 8
LINES = 500_000
"""Lines of each writer in a timed run: enough that starting the writers does not count."""
CHECKED = 5_000
"""Lines of each writer in the run that checks every one of them."""


def line(writer: int, number: int) -> bytes:
    """A line of 100 bytes that no other is like."""
    return b"%d %09d ".ljust(95, b".") % (writer, number) + b"~\n"


@contextmanager
def futebus_master(output: int) -> Iterator[Path]:
    """`cat` as the master of a U channel, on a bus with the default limits. Gives the file to write to."""
    with peers.futebus() as bus:
        master = os.open(bus.directory / "+.U_bench", os.O_RDWR | os.O_CREAT)
        reader = subprocess.Popen(["cat"], stdin=master, stdout=output)
        os.close(master)
        try:
            yield bus.directory / "U_bench"
        finally:
            bulk.end(reader)


@contextmanager
def fifo_reader(output: int) -> Iterator[Path]:
    """`cat` as the reader of a FIFO. Gives the file to write to."""
    with tempfile.TemporaryDirectory(prefix="futebus-bench-") as directory:
        fifo = Path(directory) / "fifo"
        os.mkfifo(fifo)
        descriptor = os.open(fifo, os.O_RDWR)
        reader = subprocess.Popen(["cat"], stdin=descriptor, stdout=output)
        try:
            yield fifo
        finally:
            bulk.end(reader)
            os.close(descriptor)


Collector = Callable[[int], AbstractContextManager[Path]]
COLLECTORS: dict[str, Collector] = {"futebus, U channel": futebus_master, "FIFO": fifo_reader}


def collect(collector: Collector, files: list[Path], count: int, keep: Path | None = None) -> tuple[int, float]:
    """Lets a writer each send these files, of `count` lines in all.

    Returns:
        Lines that came, and seconds from the start of the first writer to the last line.
    """
    with ExitStack() as stack:
        counter = bulk.Counter(count, keep)
        stack.callback(bulk.end, counter.process)
        target = stack.enter_context(collector(counter.input))
        os.close(counter.input)
        with target.open("wb", buffering=0) as probe:
            probe.write(b"^\n")
        os.read(counter.answers, 6)  # ready
        begin = time.monotonic()
        for file in files:
            with target.open("wb") as output:
                stack.callback(bulk.end, subprocess.Popen(["cat", str(file)], stdout=output))
        came, last = counter.result()
    return came, last - begin


def write_files(directory: Path, each: int) -> list[Path]:
    """A file of so many lines for every writer."""
    files = []
    for writer in range(WRITERS):
        files.append(directory / f"{each}.{writer}")
        files[-1].write_bytes(b"".join(line(writer, number) for number in range(each)))
    return files


def check(collector: Collector, directory: Path) -> str:
    """Looks at every line of one run. Says how many came whole, and whether each came once."""
    files = write_files(directory, CHECKED)
    kept = directory / "kept"
    collect(collector, files, WRITERS * CHECKED, kept)
    sent = [line for file in files for line in file.read_bytes().splitlines()]
    got = [line for line in kept.read_bytes().splitlines() if line != b"^"]
    if sorted(got) == sorted(sent):
        return "each once"
    whole = len(set(got) & set(sent))
    return f"{len(sent) - whole:,} of {len(sent):,} mixed up"


def run(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures both side by side."""
    values: dict[str, list[float]] = {name: [] for name in COLLECTORS}
    arrived = dict.fromkeys(COLLECTORS, 0)
    checks = {}
    with tempfile.TemporaryDirectory(prefix="futebus-bench-") as place:
        directory = Path(place)
        for name, collector in COLLECTORS.items():
            show(f"collect: checking, {name}")
            checks[name] = check(collector, directory)
        files = write_files(directory, LINES)
        for round_ in range(rounds):
            for name, collector in COLLECTORS.items():
                show(f"collect: round {round_ + 1} of {rounds}, {name}")
                came, seconds = collect(collector, files, WRITERS * LINES)
                values[name].append(came / seconds)
                arrived[name] += came
    sent = WRITERS * LINES * rounds
    figures = [
        Figure(
            name,
            "lines/s",
            each,
            {"written": f"{sent:,}", "delivered": f"{arrived[name]:,}", "looked at one by one": checks[name]},
        )
        for name, each in values.items()
    ]
    return Row("collect", "100-byte lines of 8 writers to one reader that misses none (default limits)", figures)
