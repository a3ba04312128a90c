"""Programs that use futebus.client, beside the same loops on os.read and os.write.

A service answers one slave, who waits for each answer; a collector iterates over lines that another process writes in blocks; and
somebody publishes lines one by one. In each pair the other end is the same.
"""

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from futebus import client

from . import peers
from .figures import Figure, Row

ASKED = 2000
"""Requests to a service in each round."""
LINES = 400_000
"""Lines that are collected in each round, of 100 bytes each."""
SENT = 5000
"""Lines that are published in each round."""
LINE = b"x" * 99 + b"\n"
BLOCK = LINE * 1000


@contextmanager
def aside(work: Callable[[], object]) -> Iterator[None]:
    """Has a process of its own do something meanwhile."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _opened(path: Path, flags: int) -> int:
    """Opens a channel as soon as its master is there."""
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            time.sleep(0.001)


# ---------------------------------------------------------------------------------------------- a service


def _serve_plainly(bus: Path) -> None:
    service = os.open(bus / "+.S_bench", os.O_RDWR | os.O_CREAT)
    while lines := os.read(service, 1 << 20):
        for line in lines.splitlines():
            sender, _, text = line.partition(b"}")
            if not sender.endswith((b":o", b":c")):
                os.write(service, b"%s}%s\n" % (sender, text.upper()))


def _serve_bytes(bus: Path) -> None:
    with client.serve(bus / "S_bench", bytes) as service:
        for sender, text in service:
            service.answer(sender, text.upper())


def _serve_text(bus: Path) -> None:
    with client.serve(bus / "S_bench") as service:
        for sender, text in service:
            service.answer(sender, text.upper())


def ask(bus: Path, service: Callable[[Path], None]) -> float:
    """The median of the times that an answer takes, in µs."""
    times = []
    with aside(lambda: service(bus)):
        slave = _opened(bus / "S_bench", os.O_RDWR)
        for _ in range(ASKED):
            begin = time.perf_counter()
            os.write(slave, b"hello, world\n")
            os.read(slave, 100)
            times.append(time.perf_counter() - begin)
        os.close(slave)
    return statistics.median(times) * 1e6


# ---------------------------------------------------------------------------------------------- a collector


def _collect_plainly(bus: Path) -> int:
    master = os.open(bus / "+.U_bench", os.O_RDWR | os.O_CREAT)
    count = 0
    while count < LINES:
        for line in os.read(master, 1 << 20).splitlines():
            count += bool(line)
            if count == LINES:
                break
    os.close(master)
    return count


def _collect_text_plainly(bus: Path) -> int:
    master = os.open(bus / "+.U_bench", os.O_RDWR | os.O_CREAT)
    count = 0
    while count < LINES:
        for line in os.read(master, 1 << 20).decode().splitlines():
            count += bool(line)
            if count == LINES:
                break
    os.close(master)
    return count


def _collect(bus: Path, kind: type[str] | type[bytes]) -> int:
    count = 0
    with client.collect(bus / "U_bench", kind) as jobs:
        for line in jobs:
            count += bool(line)
            if count == LINES:
                break
    return count


def gather(bus: Path, collector: Callable[[Path], int]) -> float:
    """Lines per second, from the first to the last."""

    def write() -> None:
        slave = _opened(bus / "U_bench", os.O_WRONLY)
        for _ in range(LINES // 1000):
            os.write(slave, BLOCK)

    with aside(write):
        begin = time.perf_counter()
        collector(bus)
        return LINES / (time.perf_counter() - begin)


# ---------------------------------------------------------------------------------------------- a publisher


def _publish_plainly(bus: Path) -> None:
    text = LINE.decode().strip()
    out = os.open(bus / "B_bench", os.O_WRONLY | os.O_CREAT)
    for _ in range(SENT):
        os.write(out, text.encode() + b"\n")
    os.close(out)


def _publish(bus: Path) -> None:
    text = LINE.decode().strip()
    with client.publisher(bus / "B_bench") as out:
        for _ in range(SENT):
            out.send(text)


def send(bus: Path, publisher: Callable[[Path], None]) -> float:
    """Lines per second."""
    begin = time.perf_counter()
    publisher(bus)
    return SENT / (time.perf_counter() - begin)


def run(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures all in turn."""
    with ExitStack() as stack:
        bus = stack.enter_context(peers.futebus()).directory
        measurements: dict[tuple[str, str], Callable[[], float]] = {
            ("service, os.read and os.write", "µs"): lambda: ask(bus, _serve_plainly),
            ("service, futebus.client", "µs"): lambda: ask(bus, _serve_bytes),
            ("service, futebus.client, text", "µs"): lambda: ask(bus, _serve_text),
            ("collector, os.read", "lines/s"): lambda: gather(bus, _collect_plainly),
            ("collector, futebus.client", "lines/s"): lambda: gather(bus, lambda bus: _collect(bus, bytes)),
            ("collector, os.read, text", "lines/s"): lambda: gather(bus, _collect_text_plainly),
            ("collector, futebus.client, text", "lines/s"): lambda: gather(bus, lambda bus: _collect(bus, str)),
            ("publisher, os.write", "lines/s"): lambda: send(bus, _publish_plainly),
            ("publisher, futebus.client", "lines/s"): lambda: send(bus, _publish),
        }
        results: dict[tuple[str, str], list[float]] = {name: [] for name in measurements}
        for round_ in range(rounds + 1):
            for name, measure in measurements.items():
                show(f"client: {f'round {round_} of {rounds}' if round_ else 'warming up'}, {name[0]}")
                value = measure()
                if round_:
                    results[name].append(value)
    figures = [Figure(name, unit, values) for (name, unit), values in results.items()]
    return Row("client", "futebus.client beside the same loops on os.read and os.write", figures)
