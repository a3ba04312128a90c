"""What a ubus socket of a channel costs: round trips and messages a second of methods and signals, beside a bare socket pair.

The socket pair is the floor: a child of this process says back what it gets. A method's line goes through four processes (this
one, the gateway, the bus, the service, and all of it back); a signal's from this one through the bus and the gateway to each
client.
"""

import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import peers
from .figures import Figure, Row

CLIENTS = (1, 16)
LINE = b"ping\n"
TRIPS = 400
"""Round trips of each client in each round."""
LINES = 40_000
"""Lines in each round of what is measured in bulk, in all."""
BURST = 500
"""Lines that a client of a method has sent and not got back: fewer than a gateway takes from one."""
PATIENCE = 30.0

SERVICE = """
import sys
from futebus.client import serve
with serve(sys.argv[1], bytes) as service:
    while True:
        block = service.read_block()
        lines = [line for line in block.split(b"\\n") if line and not line.endswith((b":o}", b":c}"))]
        if lines:
            service._send(b"\\n".join(lines) + b"\\n", None)
"""
"""Says back what it is asked, address and all, a block at a time: what is to be measured is not the service."""


@contextmanager
def gateway(home: Path, channel: Path, name: str) -> Iterator[Path]:
    """A channel that is exposed, and its socket."""
    path = home / name
    command = [sys.executable, "-m", "futebus.commands.ubus", "expose", "-q", "--wait", str(channel), str(path)]
    process = subprocess.Popen(command)
    try:
        end = time.monotonic() + PATIENCE
        while not path.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{' '.join(command)} does not serve")
            time.sleep(0.01)
        yield path
    finally:
        process.terminate()
        process.wait()


def echo() -> tuple[socket.socket, int]:
    """One end of a socket pair, and the child at the other."""
    here, there = socket.socketpair()
    child = os.fork()
    if not child:
        here.close()
        while data := there.recv(1 << 17):
            there.sendall(data)
        os._exit(0)
    there.close()
    return here, child


def connected(stack: ExitStack, path: Path, count: int) -> list[socket.socket]:
    """So many connections."""
    found = []
    for _ in range(count):
        sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        sock.settimeout(PATIENCE)
        sock.connect(str(path))
        found.append(sock)
    return found


def line_of(sock: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        data += sock.recv(1 << 16)
    return data


def trips(clients: list[socket.socket], say: Callable[[socket.socket], object]) -> float:
    """Microseconds of a round trip, the median: each client in turn."""
    times = []
    for _ in range(TRIPS // len(clients)):
        for client in clients:
            begin = time.perf_counter()
            say(client)
            line_of(client)
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def heard(clients: list[socket.socket], say: Callable[[], object]) -> float:
    """Microseconds from a line that is said to its arrival at the last of all clients, the median."""
    times = []
    for _ in range(TRIPS):
        begin = time.perf_counter()
        say()
        for client in clients:
            line_of(client)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def asked_in_bulk(clients: list[socket.socket]) -> float:
    """Messages a second: requests that have got their answers, many at a time."""
    rounds = LINES // BURST // len(clients)
    begin = time.perf_counter()
    for _ in range(rounds):
        for client in clients:
            client.sendall(LINE * BURST)
        take(clients, BURST)
    return rounds * BURST * len(clients) / (time.perf_counter() - begin)


def take(clients: list[socket.socket], count: int) -> None:
    """Reads so many lines from each client, as they come."""
    missing = {client.fileno(): (client, count * len(LINE)) for client in clients}
    poller = select.poll()
    for descriptor in missing:
        poller.register(descriptor, select.POLLIN)
    while missing:
        for descriptor, _ in poller.poll(PATIENCE * 1000) or _late():
            client, left = missing[descriptor]
            left -= len(client.recv(min(left, 1 << 18)))
            missing[descriptor] = client, left
            if not left:
                poller.unregister(descriptor)
                del missing[descriptor]


def _late() -> list[tuple[int, int]]:
    raise TimeoutError("nothing comes any more")


def told_in_bulk(clients: list[socket.socket], channel: int) -> float:
    """Messages a second that each client of a signal gets, when all get all."""
    burst = 4000  # as many as fit into the buffers of a socket and a channel, so that none is dropped
    rounds = LINES // burst
    begin = time.perf_counter()
    for _ in range(rounds):
        os.write(channel, LINE * burst)
        take(clients, burst)
    return rounds * burst / (time.perf_counter() - begin)


def run(rounds: int, show: Callable[[str], None]) -> tuple[Row, Row]:
    """Measures all side by side: a row of round trips, and one of messages a second."""
    with ExitStack() as stack:
        bus = stack.enter_context(peers.futebus())
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = subprocess.Popen([sys.executable, "-c", SERVICE, str(bus.directory / "S_bench")])
        stack.callback(service.wait)
        stack.callback(service.kill)
        method = stack.enter_context(gateway(home, bus.directory / "S_bench", "bench.method"))
        bare, child = echo()
        stack.callback(os.waitpid, child, 0)
        stack.callback(bare.close)
        latency: dict[str, Callable[[], float]] = {"socket pair": lambda: trips([bare], lambda each: each.sendall(LINE))}
        speed: dict[str, Callable[[], float]] = {"socket pair": lambda: asked_in_bulk([bare])}
        for count in CLIENTS:
            words = f"{count} client{'s' * (count > 1)}"
            channel = os.open(bus.directory / f"B_bench{count}", os.O_WRONLY | os.O_CREAT)
            stack.callback(os.close, channel)
            signal = stack.enter_context(gateway(home, bus.directory / f"B_bench{count}", f"bench{count}.signal"))
            askers, listeners = connected(stack, method, count), connected(stack, signal, count)
            latency[f".method, {words}"] = lambda askers=askers: trips(  # type: ignore[misc]
                askers, lambda each: each.sendall(LINE)
            )
            speed[f".method, {words}"] = lambda askers=askers: asked_in_bulk(askers)  # type: ignore[misc]
            latency[f".signal, {words}"] = lambda listeners=listeners, channel=channel: heard(  # type: ignore[misc]
                listeners, lambda: os.write(channel, LINE)
            )
            speed[f".signal, {words}"] = lambda listeners=listeners, channel=channel: told_in_bulk(  # type: ignore[misc]
                listeners, channel
            )
        results: dict[tuple[str, str], list[float]] = {}
        for round_ in range(rounds + 1):
            for unit, measurements in (("µs", latency), ("messages/s", speed)):
                for name, measure in measurements.items():
                    show(f"ubus: {f'round {round_} of {rounds}' if round_ else 'warming up'}, {name}")
                    value = measure()
                    if round_:
                        results.setdefault((unit, name), []).append(value)
    return (
        Row(
            "ubus-round-trip",
            "A 5-byte line to a ubus service and its answer back, or from the channel to the last client",
            [Figure(name, unit, values) for (unit, name), values in results.items() if unit == "µs"],
        ),
        Row(
            "ubus-bulk",
            "5-byte lines through ubus sockets: requests answered in all, or lines that each client gets",
            [Figure(name, unit, values) for (unit, name), values in results.items() if unit != "µs"],
        ),
    )
