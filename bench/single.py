"""One 100-byte message per write(2) and per read(2): a process that writes as fast as it can, and one that reads.

The bare file systems give every read a constant, so there the two processes only make the requests, at the same time.
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from . import peers
from .figures import Figure, Row

LINE = b"x" * 99 + b"\n"
COUNT = 8000
"""Lines of each run; a FIFO gets ten times as many, which still take the least time."""


def rate(write: int, read: int, count: int) -> float:
    """Lines per second, from before the first is written until all are written and read."""
    begin = time.perf_counter()
    child = os.fork()
    if not child:
        try:
            for _ in range(count):
                os.write(write, LINE)
        finally:
            os._exit(0)
    for _ in range(count):
        os.read(read, len(LINE))
    os.waitpid(child, 0)
    return count / (time.perf_counter() - begin)


def run(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures all side by side."""
    with ExitStack() as stack:
        bus = stack.enter_context(peers.futebus("max_queue=10M", "max_queue_bytes=2G"))
        pyfuse3 = stack.enter_context(peers.bare_pyfuse3())
        libfuse = stack.enter_context(peers.bare_libfuse())
        fifo = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "fifo"
        os.mkfifo(fifo)

        def opened(path: Path, flags: int) -> int:
            descriptor = os.open(path, flags)
            stack.callback(os.close, descriptor)
            return descriptor

        def both(path: Path) -> tuple[int, int]:
            path.touch()
            return opened(path, os.O_WRONLY), opened(path, os.O_RDONLY)

        pipe = opened(fifo, os.O_RDWR)
        ends = {
            "futebus": both(bus.directory / "B_bench"),
            "bare pyfuse3": both(pyfuse3.directory / "line"),
            "bare libfuse in C": both(libfuse.directory / "line"),
            "FIFO": (pipe, pipe),
        }
        values: dict[str, list[float]] = {name: [] for name in ends}
        for round_ in range(rounds + 1):
            for name, (write, read) in ends.items():
                show(f"single: {f'round {round_} of {rounds}' if round_ else 'warming up'}, {name}")
                count = (COUNT if round_ else COUNT // 10) * (10 if name == "FIFO" else 1)
                value = rate(write, read, count)
                if round_:
                    values[name].append(value)
    figures = [Figure(name, "lines/s", each) for name, each in values.items()]
    return Row("single", "One 100-byte line per write(2) and per read(2), one writer, one reader", figures)
