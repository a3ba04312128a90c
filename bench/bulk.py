"""Many 100-byte lines to 1, 4 and 16 readers, and what that costs the process in the middle.

Each system gets as many lines as it carries in about a second, so the slow ones do not make everybody wait. Each reader's output
goes through a pipe to a counter (count.py), so what was delivered to whom, and when the last of it, is counted and not believed.
"""

import contextlib
import fcntl
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import servers
from .figures import Figure, Row

SECONDS = 0.7
"""About how long each run takes."""
LINE = (
    b"The line has a hundred bytes, of which the last but one is the mark that the counters count."[:98].ljust(98, b".") + b"~\n"
)
MOST = 3_000_000
FIRST = 10_000
READY = 15.0
COUNTER = Path(__file__).with_name("count.py")
Show = Callable[[str], None]


@dataclass(frozen=True)
class Delivery:
    """What came of one run.

    Attributes:
        written: Lines written.
        delivered: Lines that came, of all readers.
        seconds: From the start of the writer to the last line of the last reader.
        cpu: Processor seconds of the daemon; 0 without one.
    """

    written: int
    delivered: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Lines per second delivered, of all readers."""
        return self.delivered / self.seconds


class Counter:
    """A counter (count.py) and the pipe into it, `input`, which the reader in front of it writes."""

    def __init__(self, expected: int, keep: Path | None = None) -> None:
        end, self.input = os.pipe()
        # Room for what one read of the counter takes, so that the counting delays readers as little as can be.
        with contextlib.suppress(OSError):
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1 << 20)
        words = [sys.executable, "-I", "-S", str(COUNTER), str(expected), *([str(keep)] if keep else [])]
        self.process = subprocess.Popen(words, stdin=end, stdout=subprocess.PIPE)
        os.close(end)

    @property
    def answers(self) -> int:
        """The descriptor on which it says `ready`, and then what it counted."""
        assert self.process.stdout
        return self.process.stdout.fileno()

    def result(self) -> tuple[int, float]:
        """Waits for the end. Returns lines, and CLOCK_MONOTONIC in seconds of the last."""
        words = os.read(self.answers, 100).split()
        if len(words) != 2:
            raise RuntimeError("a counter has ended before it was done")
        return int(words[0]), float(words[1])


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process that may have ended already, and takes its remains away."""
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def transmit(system: servers.System, readers: int, lines: Path, count: int) -> Delivery:
    """Sends a file of `count` lines to so many readers."""
    with ExitStack() as stack:
        counters = []
        for index in range(readers):
            counter = Counter(count)
            stack.callback(end, counter.process)
            reader = system.read(counter.input, index)
            stack.callback(end, reader)
            os.close(counter.input)
            counters.append(counter)
        _wait_until_ready(system, counters)
        cpu = system.daemon.cpu() if system.daemon else 0
        begin = time.monotonic()
        writer = system.write(lines)
        stack.callback(end, writer)
        results = [counter.result() for counter in counters]
        cpu = system.daemon.cpu() - cpu if system.daemon else 0
    return Delivery(count, sum(came for came, _ in results), max(last for _, last in results) - begin, cpu)


def _wait_until_ready(system: servers.System, counters: list[Counter]) -> None:
    """Sends until something has come to every reader. Not every system says when a subscriber is one."""
    deadline = time.monotonic() + READY
    waiting = counters
    while waiting:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(waiting)} readers get nothing")
        system.probe()
        time.sleep(0.02)
        waiting = [counter for counter in waiting if not _says_ready(counter)]
    time.sleep(0.05)  # for what was sent since and is under way


def _says_ready(counter: Counter) -> bool:
    os.set_blocking(counter.answers, False)
    try:
        return os.read(counter.answers, 6) == b"ready\n"
    except BlockingIOError:
        return False
    finally:
        os.set_blocking(counter.answers, True)


@contextmanager
def written(system: servers.System, count: int) -> Iterator[Path]:
    """A file of so many lines, as the system's writer wants them."""
    with tempfile.NamedTemporaryFile(prefix="futebus-bench-") as file:
        block = system.prepare(LINE) * 1000
        for _ in range(count // 1000):
            file.write(block)
        file.flush()
        yield Path(file.name)


def enough(system: servers.System, readers: int) -> int:
    """How many lines take about SECONDS, in thousands, found by trying."""
    count = FIRST
    while True:
        with written(system, count) as lines:
            delivery = transmit(system, readers, lines, count)
        wanted = int(count * SECONDS / delivery.seconds) // 1000 * 1000
        # A short try is mostly the start of the writer, and says little.
        if delivery.seconds > SECONDS / 4 or count == MOST:
            return max(1000, min(MOST, wanted))
        count = min(MOST, count * 8)


def name(system: str, readers: int) -> str:
    """What the figures of a system with so many readers are called."""
    return f"{system}, {readers} reader{'s' if readers > 1 else ''}"


def run(rounds: int, show: Show, sizes: tuple[int, ...] = (1, 4, 16)) -> tuple[Row, Row]:
    """Measures all systems in turn, round by round, each with a fresh server.

    Returns:
        The rows `bulk` and `cost`.
    """
    bulk = Row("bulk", "100-byte lines in bulk, one writer: lines delivered per second, added up over all readers")
    cost = Row("cost", "The process in the middle, bulk, 1 reader: what it costs to carry the lines")
    deliveries: dict[tuple[str, int], list[Delivery]] = {}
    counts: dict[tuple[str, int], int] = {}
    memory: dict[str, list[tuple[int, int]]] = {}
    failed: dict[str, str] = {}
    for round_ in range(rounds):
        for label, (start, programs) in servers.SYSTEMS.items():
            absent = servers.missing(*programs)
            if absent or label in failed:
                failed.setdefault(label, f"{', '.join(absent)} not installed")
                continue
            try:
                with start() as system:
                    idle = system.daemon.memory() if system.daemon else 0
                    for readers in sizes if label != "FIFO" else sizes[:1]:
                        key = label, readers
                        show(f"bulk: round {round_ + 1} of {rounds}, {name(*key)}")
                        if key not in counts:
                            counts[key] = enough(system, readers)
                        with written(system, counts[key]) as lines:
                            deliveries.setdefault(key, []).append(transmit(system, readers, lines, counts[key]))
                        if system.daemon and readers == 1:
                            memory.setdefault(label, []).append((idle, system.daemon.peak()))
            except RuntimeError as error:
                failed[label] = str(error)
    bulk.notes.extend(f"{label} skipped: {why}" for label, why in failed.items())
    for (label, readers), runs in deliveries.items():
        wanted = sum(each.written * readers for each in runs)
        came = sum(each.delivered for each in runs)
        details = {
            "written": f"{sum(each.written for each in runs):,}",
            "delivered": f"{came:,}",
            "dropped": f"{wanted - came:,}",
        }
        bulk.figures.append(Figure(name(label, readers), "lines/s", [each.rate for each in runs], details))
    for label, pairs in memory.items():
        seconds = [each.cpu / each.delivered * 1e6 for each in deliveries[label, 1]]
        cost.figures.append(Figure(f"{label}, processor time", "s per million lines", seconds))
        peaks = [peak / 1e6 for _, peak in pairs]
        sent = statistics.median(each.written * len(LINE) for each in deliveries[label, 1])
        details = {
            "idle MB": f"{statistics.median(idle for idle, _ in pairs) / 1e6:.0f}",
            "MB of lines sent": f"{sent / 1e6:.0f}",
        }
        cost.figures.append(Figure(f"{label}, resident at most", "MB", peaks, details))
    bulk.notes.append("`written`, `delivered` and `dropped` are added up over the rounds, the last two over the readers too.")
    bulk.notes.append(
        "Every system is set to queue what a slow reader has not taken yet. futebus: max_queue=100M,max_queue_bytes=2G."
    )
    return bulk, cost
