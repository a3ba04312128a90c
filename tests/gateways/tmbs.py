"""Gateways of the Text Message Bus that run, and peers of theirs."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until

TMB = [sys.executable, "-m", "futebus.commands.tmb"]


class Gateway:
    """A `futebus-tmb` on a free port, ready when it is made. What it says goes to a file beside the bus."""

    def __init__(
        self,
        start: Start,
        channel: Path,
        *options: str,
        is_ready: bool = True,
        listen: str | None = "127.0.0.1:0",
        command: Sequence[str] = TMB,
    ) -> None:
        self.log = channel.parent.parent / f"tmb-{channel.name}-{len(list(channel.parent.parent.glob('tmb-*')))}.log"
        where = ["-l", listen] if listen else []
        with self.log.open("w") as stream:
            self.process: subprocess.Popen[str] = start(*command, *where, *options, channel, stderr=stream)
        if is_ready:
            self.wait_until_ready()

    @property
    def words(self) -> str:
        """What it has said."""
        return self.log.read_text()

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.words or self.process.poll() is not None, f"it says {words!r}")
        assert words in self.words, self.words

    def wait_until_ready(self) -> None:
        self.wait_for("is served on")

    @property
    def ports(self) -> list[int]:
        """Where it listens."""
        said = re.search(r"is served on (\S+(?:, \S+)*)", self.words)
        assert said
        return [int(each.rpartition(":")[2]) for each in said[1].split(", ")]

    @property
    def port(self) -> int:
        return self.ports[0]

    def peer(self, words: bytes = b"") -> "Peer":
        """A peer that has sent this, and has read an answer to each line of it."""
        peer = Peer(self.port)
        peer.send(words)
        for _ in range(words.count(b"\n")):
            assert peer.line().startswith(b"ok ")
        return peer

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and sees that it ends as it should."""
        self.process.send_signal(number)
        assert self.process.wait(DEADLINE) == 0, self.words
        assert "Traceback" not in self.words, self.words


class Peer:
    """A TCP client."""

    def __init__(self, port: int, host: str = "127.0.0.1", buffer: int = 0, source: str = "") -> None:
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.socket.settimeout(DEADLINE)
        if buffer:  # of the kernel, for what is not read; else it is megabytes
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        """The next line that comes; at the end of all, what is left."""
        while b"\n" not in self._data:
            if not (data := self.socket.recv(1 << 16)):
                rest, self._data = self._data, b""
                return rest
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        return line + b"\n"

    def lines(self, count: int) -> list[bytes]:
        """The next lines that come."""
        while self._data.count(b"\n") < count:
            data = self.socket.recv(1 << 20)
            assert data, "it was to say more"
            self._data += data
        found = self._data.split(b"\n", count)
        self._data = found.pop()
        return [line + b"\n" for line in found]

    def hears_nothing_before(self, line: bytes) -> None:
        """The next line that comes is this one."""
        assert self.line() == line

    def is_told(self, words: bytes, answer: bytes) -> None:
        """Sends something; the next line that comes is the answer."""
        self.send(words)
        assert self.line() == answer

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def split(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]]
