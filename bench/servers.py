"""The systems that lines go through in bulk, each behind one face: how to read, how to write, how to say "are you there?".

All are set so that they keep whatever a slow reader has not taken yet, as futebus is mounted for it: who drops lines or readers
would be fast at that. Servers listen on free ports of 127.0.0.1 and end with their context.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from . import peers

PATIENCE = 10.0
NOT_A_LINE = b"^\n"
"""What goes to readers to see whether they are there; the counters do not count it."""
Process = subprocess.Popen[bytes]


class System(ABC):
    """Something that is running and takes lines to readers."""

    daemon: peers.Process | None = None
    """The process in the middle, if there is one."""

    @abstractmethod
    def read(self, output: int, index: int) -> Process:
        """Starts reader number `index`, which writes what it gets to the descriptor `output`."""

    @abstractmethod
    def write(self, lines: Path) -> Process:
        """Starts a writer of all that is in a file that `prepare` made."""

    @abstractmethod
    def probe(self) -> None:
        """Sends `NOT_A_LINE` to all readers."""

    def prepare(self, line: bytes) -> bytes:
        """What the writer writes for one line, newline included."""
        return line


class Futebus(System):
    """A B channel; readers read in bulk."""

    def __init__(self, bus: peers.Daemon) -> None:
        self.daemon = bus
        self.channel = bus.directory / "B_bench"
        self.channel.touch()

    def read(self, output: int, index: int) -> Process:
        return subprocess.Popen(["cat", str(self.channel.with_name("+B_bench"))], stdout=output)

    def write(self, lines: Path) -> Process:
        with self.channel.open("wb") as channel:
            return subprocess.Popen(["cat", str(lines)], stdout=channel)

    def probe(self) -> None:
        with self.channel.open("wb", buffering=0) as channel:
            channel.write(NOT_A_LINE)


class Fifo(System):
    """A named pipe. One reader only: each line goes to one."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open for reading and writing, it never comes to an end.
        self.descriptor = os.open(path, os.O_RDWR)

    def read(self, output: int, index: int) -> Process:
        return subprocess.Popen(["cat"], stdin=self.descriptor, stdout=output)

    def write(self, lines: Path) -> Process:
        return subprocess.Popen(["cat", str(lines)], stdout=self.descriptor)

    def probe(self) -> None:
        os.write(self.descriptor, NOT_A_LINE)


class Ncat(System):
    """`ncat --broker` with clients of its own."""

    def __init__(self, server: peers.Process, port: int) -> None:
        self.daemon = server
        self.port = port
        self.address = ["127.0.0.1", str(port)]

    def read(self, output: int, index: int) -> Process:
        return subprocess.Popen(["ncat", "--recv-only", *self.address], stdin=subprocess.DEVNULL, stdout=output)

    def write(self, lines: Path) -> Process:
        with lines.open("rb") as file:
            return subprocess.Popen(["ncat", "--send-only", *self.address], stdin=file)

    def probe(self) -> None:
        # A new one each time: it does not read, and the broker waits for every client that does not.
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as prober:
            prober.sendall(NOT_A_LINE)


class Mosquitto(System):
    """Mosquitto with clients of its own, QoS 0."""

    def __init__(self, server: peers.Process, port: int) -> None:
        self.daemon = server
        self.to = ["-h", "127.0.0.1", "-p", str(port), "-t", "bench"]

    def read(self, output: int, index: int) -> Process:
        return subprocess.Popen(["mosquitto_sub", *self.to], stdout=output)

    def write(self, lines: Path) -> Process:
        with lines.open("rb") as file:
            return subprocess.Popen(["mosquitto_pub", *self.to, "-l"], stdin=file)

    def probe(self) -> None:
        subprocess.run(["mosquitto_pub", *self.to, "-m", "^"], check=True)


class Raw(System):
    """A server that is spoken to without a client library, with bytes that were computed before: its own speed.

    The descriptors are sockets of this process that `cat` is given, so that readers are the same program as those of futebus.
    """

    def __init__(self, server: peers.Process, port: int, hello: bytes, subscribe: bytes) -> None:
        self.daemon = server
        self.port = port
        self.subscribe = hello + subscribe
        self.sockets: list[socket.socket] = []
        self.out = self._connect(hello)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.out.close()

    def _connect(self, words: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        connection.settimeout(None)
        connection.sendall(words)
        return connection

    def read(self, output: int, index: int) -> Process:
        with self._connect(self.subscribe) as connection:
            return subprocess.Popen(["cat"], stdin=connection.fileno(), stdout=output)

    def write(self, lines: Path) -> Process:
        # The socket stays open here: closed with an unread answer in it, it would be reset, and what is under way lost.
        return subprocess.Popen(["cat", str(lines)], stdout=self.out.fileno())

    def probe(self) -> None:
        self.out.sendall(self.prepare(NOT_A_LINE))


class Redis(Raw):
    """Redis, PUBLISH and SUBSCRIBE in raw RESP, pipelined."""

    def __init__(self, server: peers.Process, port: int) -> None:
        super().__init__(server, port, b"", b"SUBSCRIBE bench\r\n")
        # Else it would keep an answer to each line, which nobody reads.
        self.out.sendall(b"CLIENT REPLY OFF\r\n")

    def prepare(self, line: bytes) -> bytes:
        text = line[:-1]
        return b"*3\r\n$7\r\nPUBLISH\r\n$5\r\nbench\r\n$%d\r\n%b\r\n" % (len(text), text)


class Nats(Raw):
    """NATS, PUB and SUB in its text protocol."""

    def __init__(self, server: peers.Process, port: int) -> None:
        super().__init__(server, port, b'CONNECT {"verbose":false,"pedantic":false}\r\n', b"SUB bench 1\r\n")

    def prepare(self, line: bytes) -> bytes:
        text = line[:-1]
        return b"PUB bench %d\r\n%b\r\n" % (len(text), text)


@contextmanager
def futebus() -> Iterator[System]:
    """futebus with queues that take whatever the benchmark writes."""
    with peers.futebus("max_queue=100M", "max_queue_bytes=2G") as bus:
        yield Futebus(bus)


@contextmanager
def fifo() -> Iterator[System]:
    """A FIFO in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="futebus-bench-") as directory:
        system = Fifo(Path(directory) / "fifo")
        try:
            yield system
        finally:
            os.close(system.descriptor)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _served(command: Callable[[Path, int], list[str]]) -> Iterator[tuple[peers.Process, int]]:
    """Runs the command for as long as the context lasts. It is made from a directory for files and a port to listen on."""
    with tempfile.TemporaryDirectory(prefix="futebus-bench-") as directory:
        port = _free_port()
        quiet = subprocess.DEVNULL
        words = command(Path(directory), port)
        process = subprocess.Popen(words, cwd=directory, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            end = time.monotonic() + PATIENCE
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{words[0]} does not start")
                time.sleep(0.01)
            yield peers.Process(process), port
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)
            process.kill()
            process.wait()


@contextmanager
def ncat() -> Iterator[System]:
    """A broker of ncat."""
    with _served(lambda _, port: ["ncat", "--broker", "--listen", "127.0.0.1", str(port)]) as (server, port):
        yield Ncat(server, port)


def _mosquitto_command(directory: Path, port: int) -> list[str]:
    configuration = directory / "mosquitto.conf"
    limits = "max_queued_messages 0\nmax_queued_bytes 0\npersistence false\nlog_type error\n"
    configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n{limits}")
    directory.chmod(0o755)  # started by root, it becomes another user
    return [_program("mosquitto"), "-c", str(configuration)]


@contextmanager
def mosquitto() -> Iterator[Mosquitto]:
    """A Mosquitto that limits no queue."""
    with _served(_mosquitto_command) as (server, port):
        yield Mosquitto(server, port)


def _redis_command(_: Path, port: int) -> list[str]:
    words = f"--bind 127.0.0.1 --port {port} --save  --appendonly no --client-output-buffer-limit"
    return [_program("redis-server"), *words.split(" "), "pubsub 0 0 0"]


@contextmanager
def redis() -> Iterator[Redis]:
    """A Redis that writes nothing to disk and disconnects no slow subscriber."""
    with _served(_redis_command) as (server, port), Redis(server, port) as system:
        yield system


def _nats_command(directory: Path, port: int) -> list[str]:
    configuration = directory / "nats.conf"
    configuration.write_text(f'listen: "127.0.0.1:{port}"\nmax_pending: 2147483648\nwrite_deadline: "60s"\n')
    return [_program("nats-server"), "-c", str(configuration)]


@contextmanager
def nats() -> Iterator[Nats]:
    """A NATS server that lets slow subscribers have 2 GiB before it disconnects them."""
    with _served(_nats_command) as (server, port), Nats(server, port) as system:
        yield system


def _jetstream_command(directory: Path, port: int) -> list[str]:
    return [*_nats_command(directory, port), "-js", "-sd", str(directory)]


@contextmanager
def jetstream() -> Iterator[int]:
    """A NATS server that keeps streams on disk. Gives its port."""
    with _served(_jetstream_command) as (_, port):
        yield port


def _program(name: str) -> str:
    """Where a program is, /usr/sbin included; its name if it is nowhere."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin") or name


def missing(*names: str) -> list[str]:
    """Those of the programs that are not installed."""
    return [name for name in names if _program(name) == name]


SYSTEMS: dict[str, tuple[Callable[[], contextlib.AbstractContextManager[System]], tuple[str, ...]]] = {
    "futebus": (futebus, ()),
    "FIFO": (fifo, ()),
    "ncat --broker": (ncat, ("ncat",)),
    "Mosquitto": (mosquitto, ("mosquitto", "mosquitto_pub", "mosquitto_sub")),
    "Redis": (redis, ("redis-server",)),
    "NATS": (nats, ("nats-server",)),
}
"""All of them, the context that runs each, and the programs it takes."""

__all__ = ["SYSTEMS", "Mosquitto", "Redis", "System", "missing", "mosquitto", "redis"]
