"""A B channel on two buses: lines from a writer on one to a reader on the other, through two `futebus-link` and one nats-server.

Beside it, in turn, clients of NATS that send the same runs to the same server; and for one line, a channel without any link.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import bulk, peers, servers
from .figures import Figure, Row

COUNT = 400
"""Lines in each round, of those that are sent one by one."""

LINK, CLIENTS, ALONE = "bus to bus by futebus-link", "nats-py to nats-py, the same runs", "on one bus"
HERE = Path(__file__).parent


class Linked(servers.System):
    """Two buses whose channels are linked: written here, read there."""

    def __init__(self, here: Path, there: Path) -> None:
        self.here, self.there = here, there

    def read(self, output: int, index: int) -> servers.Process:
        return subprocess.Popen(["cat", str(self.there.with_name(f"+{self.there.name}"))], stdout=output)

    def write(self, lines: Path) -> servers.Process:
        with self.here.open("wb") as channel:
            return subprocess.Popen(["cat", str(lines)], stdout=channel)

    def probe(self) -> None:
        with self.here.open("wb", buffering=0) as channel:
            channel.write(servers.NOT_A_LINE)


class Clients(servers.System):
    """Clients of a server, which are there before anything is measured: Python takes its time to begin."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.port = port
        self._writer = subprocess.Popen(self._words("write"), stdin=subprocess.PIPE)
        stack.callback(bulk.end, self._writer)

    def _words(self, what: str) -> list[str]:
        return [sys.executable, str(HERE / "nats_client.py"), what, str(self.port)]

    def _tell(self, words: str) -> None:
        assert self._writer.stdin
        self._writer.stdin.write(f"{words}\n".encode())
        self._writer.stdin.flush()

    def read(self, output: int, index: int) -> servers.Process:
        return subprocess.Popen(self._words("read"), stdout=output)

    def write(self, lines: Path) -> servers.Process:
        self._tell(str(lines))
        return subprocess.Popen(["true"])

    def probe(self) -> None:
        self._tell("=" + servers.NOT_A_LINE.decode().strip())


@contextmanager
def _link(channel: Path, port: int) -> Iterator[None]:
    words = ["-m", "futebus.commands.link", str(channel), f"nats://127.0.0.1:{port}/link"]
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE)
    assert process.stderr
    try:
        said = process.stderr.readline().decode()
        if " is linked to " not in said:
            raise RuntimeError(f"the link does not begin: {said}")
        yield
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


@contextmanager
def running() -> Iterator[tuple[Linked, Clients]]:
    """Two buses, a server, a link to each."""
    with ExitStack() as stack:
        buses = [stack.enter_context(peers.futebus("max_queue=100M", "max_queue_bytes=2G")) for _ in range(2)]
        server = stack.enter_context(servers.nats())
        assert isinstance(server, servers.Raw)
        for bus in buses:
            stack.enter_context(_link(bus.directory / "B_bench", server.port))
        yield Linked(*(bus.directory / "B_bench" for bus in buses)), Clients(server.port, stack)


def trips(here: Path, there: Path) -> list[float]:
    """Microseconds from when a shell is told to `echo` a line to `here` until `cat` has written what it reads `there`."""
    script = 'while read -r line; do echo "$line" > "$0"; done'
    with (
        subprocess.Popen(["bash", "-c", script, str(here)], stdin=subprocess.PIPE) as shell,
        subprocess.Popen(["cat", str(there)], stdout=subprocess.PIPE) as reader,
    ):
        assert shell.stdin
        assert reader.stdout
        try:
            while not peers.waiting_readers(there.parent, there.name):
                time.sleep(0.005)
            times = []
            for _ in range(COUNT):
                begin = time.perf_counter()
                os.write(shell.stdin.fileno(), b"ping\n")
                os.read(reader.stdout.fileno(), 100)
                times.append((time.perf_counter() - begin) * 1e6)
                time.sleep(0.001)  # nobody is in the middle of what he does behind it
            return times
        finally:
            shell.kill()
            reader.kill()


def run(rounds: int, show: Callable[[str], None]) -> tuple[Row, Row]:
    """Measures all in turn, round by round, each with fresh buses and a fresh server.

    Returns:
        Lines a second in bulk, and microseconds of one line.
    """
    rates = Row("hosts", "100-byte lines in bulk through one nats-server, one writer, one reader: lines delivered per second")
    times = Row("hosts-trip", "One line by `echo` here to `cat` there, all on one host")
    if absent := servers.missing("nats-server"):
        rates.notes.append(f"skipped: {', '.join(absent)} not installed")
        return rates, times
    deliveries: dict[str, list[bulk.Delivery]] = {LINK: [], CLIENTS: []}
    counts: dict[str, int] = {}
    medians: dict[str, list[float]] = {LINK: [], ALONE: []}
    for round_ in range(rounds):
        with running() as (linked, clients):
            for name, way in ((LINK, (linked.here, linked.there)), (ALONE, (linked.here, linked.here))):
                show(f"hosts-trip: round {round_ + 1} of {rounds}, {name}")
                medians[name].append(statistics.median(trips(*way)))
            for name, system in ((LINK, linked), (CLIENTS, clients)):
                show(f"hosts: round {round_ + 1} of {rounds}, {name}")
                if name not in counts:
                    counts[name] = bulk.enough(system, 1)
                with bulk.written(system, counts[name]) as lines:
                    deliveries[name].append(bulk.transmit(system, 1, lines, counts[name]))
    for name, runs in deliveries.items():
        lost = sum(each.written - each.delivered for each in runs)
        details = {"written": f"{runs[0].written:,}", "dropped": f"{lost:,}"}
        rates.figures.append(Figure(name, "lines/s", [each.rate for each in runs], details))
    times.figures.extend(Figure(name, "µs", each) for name, each in medians.items())
    rates.notes.append("Both buses: max_queue=100M,max_queue_bytes=2G.")
    return rates, times
