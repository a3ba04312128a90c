"""The round trip of a 5-byte line.

futebus and the FIFOs carry a line from one process to another and its answer back, both processes blocked in `read` in between.
That is four requests to a FUSE file system (write, read, write, read). The bare file systems have nobody to wait for: there one
process makes the same four requests, answered with constants. That is the least that FUSE and pyfuse3 cost.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from . import peers
from .figures import Figure, Row

LINE = b"ping\n"
COUNT = 1500
"""Round trips in each round."""
Pair = tuple[int, int]


def ping_pong(mine: Pair, theirs: Pair, count: int) -> list[float]:
    """Seconds of each round trip between this process and a child; each has a descriptor to read and one to write."""
    child = os.fork()
    if not child:
        read, write = theirs
        for _ in range(count):
            os.write(write, os.read(read, 100))
        os._exit(0)
    read, write = mine
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        os.write(write, LINE)
        os.read(read, 100)
        times.append(time.perf_counter() - begin)
    os.waitpid(child, 0)
    return times


def four_requests(descriptor: int, count: int) -> list[float]:
    """Seconds of each write, read, write, read."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        os.write(descriptor, LINE)
        os.read(descriptor, 100)
        os.write(descriptor, LINE)
        os.read(descriptor, 100)
        times.append(time.perf_counter() - begin)
    return times


def fifos(directory: Path) -> tuple[Pair, Pair]:
    """A pair of FIFOs: the descriptors of either end."""
    ends = []
    for name in ("there", "back"):
        os.mkfifo(directory / name)
        ends.append(os.open(directory / name, os.O_RDWR))
    there, back = ends
    return (back, there), (there, back)


def run(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures all side by side, each value a median of COUNT round trips."""
    with ExitStack() as stack:
        bus = stack.enter_context(peers.futebus())
        pyfuse3 = stack.enter_context(peers.bare_pyfuse3())
        libfuse = stack.enter_context(peers.bare_libfuse())
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        one, two = (os.open(bus.directory / "B_bench", os.O_RDWR | os.O_CREAT) for _ in range(2))
        bare, bare_c = (os.open(mount.directory / "line", os.O_RDWR) for mount in (pyfuse3, libfuse))
        here, there = fifos(place)
        for descriptor in (one, two, bare, bare_c, *here):
            stack.callback(os.close, descriptor)
        measurements: dict[str, Callable[[], list[float]]] = {
            "futebus": lambda: ping_pong((one, one), (two, two), COUNT),
            "bare pyfuse3": lambda: four_requests(bare, COUNT),
            "bare libfuse in C": lambda: four_requests(bare_c, COUNT),
            "pair of FIFOs": lambda: ping_pong(here, there, COUNT),
        }
        results: dict[str, list[float]] = {name: [] for name in measurements}
        for round_ in range(rounds + 1):
            for name, measure in measurements.items():
                show(f"round-trip: {f'round {round_} of {rounds}' if round_ else 'warming up'}, {name}")
                median = statistics.median(measure()) * 1e6
                if round_:
                    results[name].append(median)
    row = Row(
        "round-trip",
        "A 5-byte line to another process and its answer back",
        [Figure(name, "µs", each) for name, each in results.items()],
    )
    row.notes.append(
        "Nobody answers in the bare file systems: one process makes the same four requests, answered with constants."
    )
    return row
