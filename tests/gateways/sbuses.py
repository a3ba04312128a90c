"""Running futebus-sbus, and clients of it as libsbus would make them: one send or recv each."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until

COMMAND = [sys.executable, "-m", "futebus.commands.sbus"]
BIGGEST = 409_600
ANSWER = b"CMSG !/cred/whoami\0"


class Client:
    """A client that is connected. Whatever waits too long fails."""

    def __init__(self, address: str | bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(DEADLINE)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BIGGEST)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.held: list[bytes] = []

    def send(self, *packets: bytes) -> "Client":
        for packet in packets:
            self.socket.send(packet)
        return self

    def sub(self, *patterns: bytes) -> "Client":
        self.send(*(b"SUB " + pattern for pattern in patterns))
        self.whoami()
        return self

    def choose(self, *what: bytes) -> "Client":
        self.send(*(b"CMSG " + each for each in what))
        self.whoami()
        return self

    def msg(self, key: bytes, payload: bytes = b"") -> "Client":
        return self.send(b"MSG " + key + b"\0" + payload)

    def whoami(self) -> bytes:
        """Waits until all that it has sent has been taken: its question is answered behind it."""
        self.send(b"CMSG !/cred/whoami")
        while not (packet := self._receive()).startswith(ANSWER):
            self.held.append(packet)
        return packet.removeprefix(ANSWER)

    def _receive(self) -> bytes:
        packet = self.socket.recv(BIGGEST + 1)
        assert packet, "the server has hung up"
        return packet

    def recv(self) -> bytes:
        return self.held.pop(0) if self.held else self._receive()

    def take(self, count: int) -> list[bytes]:
        return [self.recv() for _ in range(count)]

    def rest(self) -> list[bytes]:
        """What has come until now."""
        self.whoami()
        held, self.held = self.held, []
        return held

    def is_dismissed(self) -> bool:
        """Waits for the end."""
        try:
            while self.socket.recv(BIGGEST):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()


class Sbus:
    """A server, and the clients that a test has."""

    def __init__(self, start: Start, place: Path, *options: str, command: Sequence[str] = COMMAND) -> None:
        self.place = place
        self.path = place / "sbus.socket"
        self.log = place / "sbus.log"
        self.clients: list[Client] = []
        with self.log.open("a") as stderr:
            self.process = start(*command, "-fa", self.path, *options, stderr=stderr)
        self.ready = not os_read_all(self.process)
        assert self.process.poll() is None, self.words

    @property
    def words(self) -> str:
        return self.log.read_text()

    def __call__(self) -> Client:
        client = Client(str(self.path))
        self.clients.append(client)
        return client

    def says(self, words: str) -> None:
        until(lambda: words in self.words, f"it says {words!r}: {self.words}")

    def counts(self, number: int, words: str) -> None:
        """It says so of so many messages, in one line or in several."""
        pattern = re.compile(rf"([0-9]+) messages? {re.escape(words)}")
        until(lambda: sum(map(int, pattern.findall(self.words))) == number, f"it counts {number} {words}: {self.words}")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if self.process.poll() is None:
            assert self.end() == 0, self.words
            assert not self.path.exists()
        assert "Traceback" not in self.words, self.words


def os_read_all(process: "subprocess.Popen[str]") -> str:
    """What a program writes to its stdout until it closes it."""
    assert process.stdout
    return process.stdout.read()


Serving = Callable[..., Sbus]


@pytest.fixture
def serving(start: Start, place: Path) -> Iterator[Serving]:
    """Starts servers: `serving("-c")`."""
    made: list[Sbus] = []

    def begin(*options: str, command: Sequence[str] = COMMAND) -> Sbus:
        made.append(Sbus(start, place, *options, command=command))
        return made[-1]

    yield begin
    for each in made:
        each.close()


@pytest.fixture
def sbus(serving: Serving) -> Sbus:
    """A server with the default options."""
    return serving()


@contextlib.contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """This process is another user meanwhile, for who looks at its credentials."""
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
