"""What many clients, many channels and many full queues cost."""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from . import peers
from .figures import Figure, Row

CLIENTS = (1, 10, 100, 1000, 5000, 10000)
CHANNELS = (1, 100, 1000, 4000)
WRITES = 50
OPENS = 100
QUEUES = 1000
QUEUE = 1024
Show = Callable[[str], None]


def _median(call: Callable[[], object], times: int) -> float:
    """Seconds that a call takes, the median of so many."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def writes(rounds: int, show: Show) -> list[Figure]:
    """A write to a channel with many clients that read it, and are not in read(2) at the moment."""
    figures = []
    clients: list[int] = []
    with peers.futebus("max_clients=20000") as bus:
        channel = bus.directory / "B_bench"
        writer = os.open(channel, os.O_WRONLY | os.O_CREAT)
        try:
            for count in CLIENTS:
                show(f"grow: a write with {count} clients")
                clients.extend(os.open(channel, os.O_RDONLY) for _ in range(count - len(clients)))
                values = [_median(lambda: os.write(writer, b"a line\n"), WRITES) * 1e6 for _ in range(rounds)]
                figures.append(Figure(f"write, {count:,} idle client{'s' if count > 1 else ''}", "µs", values))
        finally:
            for descriptor in [*clients, writer]:
                os.close(descriptor)
    return figures


def opens(rounds: int, show: Show) -> list[Figure]:
    """An open and a close of one channel of many."""
    figures = []
    with peers.futebus() as bus:

        def touch(number: int) -> Path:
            channel = bus.directory / f"B_{number}"
            os.close(os.open(channel, os.O_WRONLY | os.O_CREAT))
            return channel

        channel = touch(0)
        made = 1
        for count in CHANNELS:
            show(f"grow: open and close with {count} channels")
            for number in range(made, count):
                touch(number)
            made = count
            values = [_median(lambda: os.close(os.open(channel, os.O_RDONLY)), OPENS) * 1e6 for _ in range(rounds)]
            figures.append(Figure(f"open and close, {count:,} channel{'s' if count > 1 else ''}", "µs", values))
    return figures


def queues(rounds: int, show: Show) -> Figure:
    """Memory above the idle bus of many clients whose queues are full of the same lines."""
    values = []
    line = b"x" * 1023 + b"\n"
    for round_ in range(rounds):
        show(f"grow: full queues, round {round_ + 1} of {rounds}")
        with peers.futebus(f"max_queue={QUEUE}") as bus:
            idle = bus.memory()
            channel = bus.directory / "B_bench"
            clients = [os.open(channel, os.O_RDWR | os.O_CREAT)]
            try:
                clients.extend(os.open(channel, os.O_RDONLY) for _ in range(QUEUES))
                for _ in range(QUEUE):
                    os.write(clients[0], line)
                values.append((bus.memory() - idle) / 1e6)
            finally:
                for descriptor in clients:
                    os.close(descriptor)
    return Figure(f"{QUEUES:,} queues of the same {QUEUE:,} lines of 1 KiB", "MB", values)


def run(rounds: int, show: Show) -> Row:
    """Measures all three."""
    figures = [*writes(rounds, show), *opens(rounds, show), queues(rounds, show)]
    notes = ["The memory is what the daemon has more than when the bus was empty."]
    return Row("grow", "Many clients, many channels, many full queues", figures, notes)
