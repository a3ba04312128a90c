"""Lines of 100 bytes through `futebus-tmb`: from a writer on the bus to 1 and to 16 TCP clients, and from a TCP client to a bus.

Mosquitto, NATS and `ncat --broker` are measured beside it, in turn. Bus and gateway are set to queue what a reader has not taken
yet, as the others are.
"""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import bulk, peers, servers
from .figures import Figure, Row

CLIENTS = (1, 16)
QUEUE = "2G"
PROBE = b":^\n"
"""What goes to readers to see whether they are there; no counter counts it."""


class Tmb(servers.System):
    """A gateway: TCP clients that have subscribed to everything, and a writer on the bus.

    Args:
        bus: where its channel is.
        gateway: its process.
        port: where it listens.
    """

    subscription = b"s 1 r .\n"

    def __init__(self, bus: peers.Daemon, gateway: peers.Process, port: int) -> None:
        self.daemon = gateway
        self.port = port
        self.channel = bus.directory / "B_bench"

    def prepare(self, line: bytes) -> bytes:
        return b":" + line[1:]

    def connect(self, words: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), servers.PATIENCE)
        connection.settimeout(None)
        connection.sendall(words)
        return connection

    def read(self, output: int, index: int) -> servers.Process:
        with self.connect(self.subscription) as connection:
            return subprocess.Popen(["cat"], stdin=connection.fileno(), stdout=output)

    def write(self, lines: Path) -> servers.Process:
        with self.channel.open("wb") as channel:
            return subprocess.Popen(["cat", str(lines)], stdout=channel)

    def probe(self) -> None:
        with self.channel.open("wb", buffering=0) as channel:
            channel.write(PROBE)


class Chosen(Tmb):
    """The same, with a subscription for which each category is looked at."""

    subscription = b"s 1 r ^h.$\n"

    def probe(self) -> None:
        with self.channel.open("wb", buffering=0) as channel:
            channel.write(b":he\n")


class FromTcp(Tmb):
    """The other way: a TCP client writes, and readers are on the bus."""

    def read(self, output: int, index: int) -> servers.Process:
        return subprocess.Popen(["cat", str(self.channel.with_name("+B_bench"))], stdout=output)

    def write(self, lines: Path) -> servers.Process:
        with self.connect() as connection:
            return subprocess.Popen(["cat", str(lines)], stdout=connection.fileno())


@contextmanager
def running(make: type[Tmb]) -> Iterator[Tmb]:
    """A bus, a gateway on it, and what is measured there."""
    with ExitStack() as stack:
        bus = stack.enter_context(peers.futebus("max_queue=100M", f"max_queue_bytes={QUEUE}"))
        words = ["-m", "futebus.commands.tmb", "-l", "127.0.0.1:0", "--max-queue", QUEUE, str(bus.directory / "B_bench")]
        process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE)
        stack.callback(bulk.end, process)
        assert process.stderr
        stack.callback(process.stderr.close)
        said = process.stderr.readline().decode()
        port = said.rpartition(":")[2].strip()
        if not port.isdecimal():
            raise RuntimeError(f"the gateway does not start: {said}")
        yield make(bus, peers.Process(process), int(port))


SYSTEMS: dict[str, tuple[Callable[[], object], tuple[int, ...]]] = {
    "bus to TCP": (lambda: running(Tmb), CLIENTS),
    "bus to TCP, chosen": (lambda: running(Chosen), CLIENTS[:1]),
    "TCP to bus": (lambda: running(FromTcp), CLIENTS[:1]),
    **{name: (servers.SYSTEMS[name][0], CLIENTS) for name in ("Mosquitto", "NATS", "ncat --broker")},
}
"""What is measured, the context that runs each, and with how many readers."""


def run(rounds: int, show: bulk.Show) -> tuple[Row, Row]:
    """Measures all in turn, round by round, each with a fresh server.

    Returns:
        Lines a second, and what a million lines cost the process in the middle.
    """
    rates = Row("tmb", "futebus-tmb, 100-byte lines in bulk, one writer: lines delivered per second, of all readers")
    costs = Row("tmb-cost", "The process in the middle, 1 reader: what it costs to carry the lines")
    deliveries: dict[tuple[str, int], list[bulk.Delivery]] = {}
    counts: dict[tuple[str, int], int] = {}
    absent = {
        label: servers.missing(*servers.SYSTEMS[label][1])
        for label in SYSTEMS
        if label in servers.SYSTEMS and servers.missing(*servers.SYSTEMS[label][1])
    }
    for round_ in range(rounds):
        for label, (start, sizes) in SYSTEMS.items():
            if label in absent:
                continue
            with start() as system:  # type: ignore[attr-defined]
                for readers in sizes:
                    key = label, readers
                    show(f"tmb: round {round_ + 1} of {rounds}, {bulk.name(*key)}")
                    if key not in counts:
                        counts[key] = bulk.enough(system, readers)
                    with bulk.written(system, counts[key]) as lines:
                        deliveries.setdefault(key, []).append(bulk.transmit(system, readers, lines, counts[key]))
    for key, runs in deliveries.items():
        wanted = sum(each.written * key[1] for each in runs)
        details = {"written": f"{runs[0].written:,}", "dropped": f"{wanted - sum(each.delivered for each in runs):,}"}
        rates.figures.append(Figure(bulk.name(*key), "lines/s", [each.rate for each in runs], details))
        if key[1] == 1:
            costs.figures.append(Figure(key[0], "s per million lines", [each.cpu / each.delivered * 1e6 for each in runs]))
    rates.notes.append(f"Queues: max_queue=100M,max_queue_bytes={QUEUE} of the bus, --max-queue {QUEUE} of the gateway.")
    rates.notes.extend(f"{label} skipped: {', '.join(programs)} not installed" for label, programs in absent.items())
    return rates, costs
