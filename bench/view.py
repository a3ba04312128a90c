"""What it costs a bus to be watched.

A bus with a thousand channels and a thousand clients; on one more channel, two processes send a line to and fro. Ten viewers
look at the bus once a second, each a program of its own, and are stopped while it is measured without them.
"""

import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from . import peers
from .figures import Figure, Row
from .round_trip import ping_pong

CHANNELS = 1000
"""Each has one client."""
VIEWERS = 10
COUNT = 6000
"""Round trips in each round: a second's worth or more, since viewers look once a second."""


def run(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures the round trip unwatched and watched, in turn."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CHANNELS)), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        bus = stack.enter_context(peers.futebus())
        for number in range(CHANNELS):
            stack.callback(os.close, os.open(bus.directory / f"B_{number}", os.O_RDWR | os.O_CREAT))
        one, two = (os.open(bus.directory / "B_bench", os.O_RDWR | os.O_CREAT) for _ in range(2))
        for descriptor in (one, two):
            stack.callback(os.close, descriptor)
        viewers = [_viewer(stack, bus) for _ in range(VIEWERS)]
        results: dict[str, list[float]] = {}
        for round_ in range(rounds + 1):
            for name, number in (("unwatched", signal.SIGSTOP), (f"{VIEWERS} viewers", signal.SIGCONT)):
                show(f"view: {f'round {round_} of {rounds}' if round_ else 'warming up'}, {name}")
                for viewer in viewers:
                    viewer.send_signal(number)
                begin, before = time.monotonic(), bus.cpu()
                times = ping_pong((one, one), (two, two), COUNT)
                seconds, spent = time.monotonic() - begin, bus.cpu() - before
                if round_:
                    results.setdefault(f"{name}, median", []).append(statistics.median(times) * 1e6)
                    results.setdefault(f"{name}, mean", []).append(statistics.mean(times) * 1e6)
                    results.setdefault(f"{name}, 99 %", []).append(statistics.quantiles(times, n=100)[98] * 1e6)
                    results.setdefault(f"{name}, processor", []).append(spent / seconds * 100)
        for viewer in viewers:
            viewer.send_signal(signal.SIGCONT)
    figures = [
        Figure(name, "% of a core" if name.endswith("processor") else "µs", each) for name, each in sorted(results.items())
    ]
    return Row("view", f"A 5-byte line to and fro on a bus of {CHANNELS:,} channels and clients, watched", figures)


def _discard(descriptor: int) -> None:
    while os.read(descriptor, 1 << 20):
        pass


def _viewer(stack: ExitStack, bus: peers.Daemon) -> "subprocess.Popen[bytes]":
    """Starts one, and waits until it has looked twice."""
    command = [sys.executable, "-m", "futebus.commands.top", "--json", str(bus.directory)]
    viewer = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
    stack.callback(viewer.kill)
    assert viewer.stdout
    for _ in range(2):
        if not viewer.stdout.readline():
            raise RuntimeError("futebus-top has ended")
    threading.Thread(target=_discard, args=(viewer.stdout.fileno(),), daemon=True).start()
    return viewer
