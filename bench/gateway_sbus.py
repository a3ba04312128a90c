"""futebus-sbus: messages a second and round trips, beside a bare echo of trio's over a SOCK_SEQPACKET socketpair; and its index.

The client is the same for both: it sends a window of messages and reads the copies of all receivers, then the next. The bare echo
is one task that waits for a packet and sends it back: the least that a server of trio's does for each packet.
"""

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from futebus.gateways.sbus.index import Index
from futebus.gateways.sbus.keys import matches

from .figures import Figure, Row

PACKET = b"MSG bench/key\0" + b"x" * 50
WINDOW = 64
COUNT = 20_000
"""Messages in each round."""
TRIPS = 2000
"""Round trips in each round."""
SUBSCRIPTIONS = 10_000
LOOK_UPS = 2000
ECHO = """
import socket, sys, trio
async def main():
    end = trio.socket.from_stdlib_socket(socket.socket(fileno=int(sys.argv[1])))
    while data := await end.recv(409600):
        await end.send(data)
trio.run(main)
"""


@contextmanager
def echo() -> Iterator[socket.socket]:
    """A process that sends back what it gets."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen([sys.executable, "-c", ECHO, str(its.fileno())], pass_fds=[its.fileno()])
    its.close()
    try:
        yield mine
    finally:
        mine.close()
        process.wait()


@contextmanager
def gateway(subscribers: int) -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """An sbus with so many clients that get what another one sends."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        path = str(Path(place) / "socket")
        command = [sys.executable, "-m", "futebus.commands.sbus", "-qfa", path]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        try:
            assert process.stdout
            process.stdout.read()  # its end says that it is ready

            def connect() -> socket.socket:
                client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                client.connect(path)
                return client

            receivers = [connect() for _ in range(subscribers)]
            for client in receivers:
                client.send(b"SUB bench/")
                client.send(b"CMSG !/cred/whoami")
                client.recv(1000)  # so the subscription has been taken
            yield connect(), receivers
        finally:
            process.terminate()
            process.wait()


def messages(sender: socket.socket, receivers: list[socket.socket], window: int = WINDOW, count: int = COUNT) -> float:
    """Messages a second: sent once, and read by all."""
    begin = time.perf_counter()
    for _ in range(count // window):
        for _ in range(window):
            sender.send(PACKET)
        for receiver in receivers:
            for _ in range(window):
                receiver.recv(1000)
    return count // window * window / (time.perf_counter() - begin)


def trip(sender: socket.socket, receivers: list[socket.socket]) -> float:
    """Microseconds from sending one message until all have it, a median."""
    times = []
    for _ in range(TRIPS):
        begin = time.perf_counter()
        sender.send(PACKET)
        for receiver in receivers:
            receiver.recv(1000)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def patterns() -> list[bytes]:
    """Subscriptions of all kinds, many with the same beginning."""
    kinds = (b"house/%d/door", b"house/%d/", b"house/*/%d", b"house/*/%d/*/state", b"room%d*/light", b"%d/*")
    return [kinds[number % len(kinds)] % number for number in range(SUBSCRIPTIONS)]


def looking(index: Index[int], keys: list[bytes], *, anew: bool) -> float:
    """Microseconds to find the receivers of a key. `anew`: none of them was looked for before."""
    if anew:
        index.add(b"nobody", 0)
        index.remove(b"nobody", 0)
    begin = time.perf_counter()
    for key in keys:
        index.find(key)
    return (time.perf_counter() - begin) / len(keys) * 1e6


def run(rounds: int, show: Callable[[str], None]) -> tuple[Row, Row, Row]:
    """Measures all side by side."""
    rates: dict[str, list[float]] = {}
    trips: dict[str, list[float]] = {}
    with ExitStack() as stack:
        bare = stack.enter_context(echo())
        ends = {
            "bare echo of trio": (bare, [bare]),
            "futebus-sbus, 1 subscriber": stack.enter_context(gateway(1)),
            "futebus-sbus, 16 subscribers": stack.enter_context(gateway(16)),
        }
        for round_ in range(rounds + 1):
            for name, (sender, receivers) in ends.items():
                show(f"sbus: {f'round {round_} of {rounds}' if round_ else 'warming up'}, {name}")
                rate = messages(sender, receivers, count=COUNT if len(receivers) == 1 else COUNT // 4)
                microseconds = trip(sender, receivers)
                if round_:
                    rates.setdefault(name, []).append(rate)
                    trips.setdefault(name, []).append(microseconds)
    return (
        Row("sbus", f"Messages of {len(PACKET)} bytes, {WINDOW} at a time", [Figure(*each) for each in _with("1/s", rates)]),
        Row("sbus-trip", "A message to all subscribers", [Figure(*each) for each in _with("µs", trips)]),
        matching(rounds, show),
    )


def _with(unit: str, values: dict[str, list[float]]) -> list[tuple[str, str, list[float]]]:
    return [(name, unit, each) for name, each in values.items()]


def matching(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures the index with many subscriptions, and comparing with each of them instead."""
    subscribed = patterns()
    index: Index[int] = Index()
    added = []
    for number, pattern in enumerate(subscribed):
        begin = time.perf_counter()
        index.add(pattern, number)
        added.append((time.perf_counter() - begin) * 1e6)
    keys = [b"house/%d/%d/x/state" % (number, number * 7 % SUBSCRIPTIONS) for number in range(LOOK_UPS)]
    values: dict[str, list[float]] = {"a new key": [], "a key looked for before": [], "each pattern compared": []}
    for round_ in range(rounds):
        show(f"sbus: matching, round {round_ + 1} of {rounds}")
        values["a new key"].append(looking(index, keys, anew=True))
        values["a key looked for before"].append(looking(index, keys, anew=False))
        begin = time.perf_counter()
        for key in keys[:5]:
            assert {number for number, pattern in enumerate(subscribed) if matches(pattern, key)} == set(index.find(key))
        values["each pattern compared"].append((time.perf_counter() - begin) / 5 * 1e6)
    row = Row("sbus-index", f"Who gets a message, of {SUBSCRIPTIONS:,} subscriptions", [Figure(*e) for e in _with("µs", values)])
    row.notes.append(f"To note a subscription takes {statistics.median(added):.1f} µs.")
    return row
