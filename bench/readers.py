"""What blocked readers cost the daemon in memory."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from . import peers
from .figures import Figure, Row

COUNT = 5000


def blocked(program: Path) -> tuple[float, float]:
    """Blocks COUNT readers on one channel, then wakes them all. Returns resident megabytes before, and while they wait."""
    with peers.futebus(f"max_clients={COUNT + 10}", f"max_clients_per_user={COUNT + 10}") as bus:
        channel = bus.directory / "B_bench"
        channel.touch()
        idle = bus.memory()
        readers = subprocess.Popen([str(program), str(channel), str(COUNT)])
        try:
            while peers.waiting_readers(bus.directory) < COUNT:
                if readers.poll() is not None:
                    raise RuntimeError(f"{COUNT} readers cannot be started")
                time.sleep(0.2)
            waiting = bus.memory()
            channel.write_text("go\n")
            readers.wait()
        finally:
            readers.kill()
            readers.wait()
    return idle / 1e6, waiting / 1e6


def run(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures, with a fresh bus each time."""
    pairs = []
    with peers.compiled("blocked.c") as program:
        for round_ in range(rounds):
            show(f"readers: round {round_ + 1} of {rounds}")
            pairs.append(blocked(program))
    figures = [
        Figure("idle bus", "MB", [idle for idle, _ in pairs]),
        Figure(f"{COUNT:,} blocked readers", "MB", [waiting for _, waiting in pairs]),
        Figure("each reader", "bytes", [(waiting - idle) * 1e6 / COUNT for idle, waiting in pairs]),
    ]
    return Row("readers", f"Resident memory of the daemon with {COUNT:,} readers that wait in read(2)", figures)
