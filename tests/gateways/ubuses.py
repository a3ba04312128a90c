"""What the tests of ubus share: the command, those who connect, and a service."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import futebus.client as client

from ..helpers.mounts import Mount
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until

UBUS = [sys.executable, "-m", "futebus.commands.ubus"]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "HOME": str(home)}


class Program:
    """A `futebus-ubus` that runs."""

    def __init__(self, start: Start, home: Path, *arguments: str | Path, command: Sequence[str] = UBUS, **popen: object) -> None:
        self.home = home
        self._log = home / f"{len(list(home.glob('*.log')))}.log"
        with self._log.open("w") as log:
            self.process = start(*command, *arguments, env=environment(home), stderr=log, **popen)

    @property
    def words(self) -> str:
        return self._log.read_text()

    @property
    def memory(self) -> int:
        """Resident memory, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.partition("\nVmRSS:")[2].split(None, 1)[0])

    def wait_for(self, words: str) -> Self:
        until(lambda: words in self.words or self.process.poll() is not None, f"it says {words!r}")
        assert words in self.words, self.words
        return self

    def type(self, words: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(words)
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def end_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.stdin = None

    def end_output(self) -> None:
        assert self.process.stdout
        self.process.stdout.close()
        self.process.stdout = None

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.ended(0)

    def ended(self, status: int) -> None:
        assert self.process.wait(DEADLINE) == status, self.words
        assert "Traceback" not in self.words, self.words


class Peer:
    """Somebody who connects, byte by byte if the test likes."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE)

        def connects() -> bool:
            with contextlib.suppress(ConnectionRefusedError):  # its file is there a moment before it listens
                self.socket.connect(str(path))
                return True
            return False

        until(connects, f"somebody listens at {path}")
        self._file = self.socket.makefile("rb")

    def say(self, data: bytes) -> Self:
        self.socket.sendall(data)
        return self

    def line(self) -> bytes:
        return self._file.readline()

    def lines(self, count: int) -> list[bytes]:
        return [self.line() for _ in range(count)]

    def finish(self) -> Self:
        self.socket.shutdown(socket.SHUT_WR)
        return self

    def rest(self) -> bytes:
        return self._file.read()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
        self.socket.close()

    def say_until_refused(self, data: bytes) -> None:
        """Goes on until nothing is taken any more."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            while True:
                self.socket.send(data)


def sock(home: Path, name: str) -> Path:
    return home / ".ipc" / name


def expose(start: Start, home: Path, channel: Path, name: str, *options: str) -> Program:
    return Program(start, home, "expose", *options, channel, name).wait_for("is exposed as")


class Service(threading.Thread):
    """Answers in capitals, for as long as a context lasts. `hold` keeps it from answering."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._service = client.serve(path, bytes, wait=DEADLINE)
        self._ends = threading.Event()
        self.hold = threading.Event()
        self.asked: list[bytes] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._ends.set()
        self.join(DEADLINE)
        self._service.close()

    def run(self) -> None:
        while not self._ends.is_set():
            with contextlib.suppress(client.ClientError):
                who, text = self._service.read(timeout=0.02)
                self.asked.append(text)
                if not self.hold.is_set():
                    self._service.answer(who, text.upper())


def run(*command: str | Path, home: Path, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [str(word) for word in command],
        input=data,
        capture_output=True,
        timeout=DEADLINE,
        env=environment(home),
        check=False,
    )


@contextlib.contextmanager
def writer(bus: Mount, channel: str) -> Iterator[int]:
    descriptor = os.open(bus / channel, os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)
