"""Readers of channels, who keep what comes."""

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .waiting import until

END = b"the end\n"
"""A line that no test sends."""


class Collector:
    """A client that reads a channel from when it is made, and keeps what comes.

    Args:
        path: the channel, as `bus / "B_log"`; to be its master, `bus / ".U_jobs"`. It is created.
    """

    def __init__(self, path: Path) -> None:
        # To write as well makes a master of a service one who may answer; to the others it makes no difference.
        self.file = os.open(path.with_name("+" + path.name), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
        self._path = path.with_name(path.name.removeprefix("."))
        self._pieces: list[bytes] = []
        self._stop, self._say_stop = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self.file, select.POLLIN)
        poller.register(self._stop, select.POLLIN)
        while self._stop not in dict(poller.poll()):
            with contextlib.suppress(BlockingIOError):
                self._pieces.append(os.read(self.file, 1 << 20))

    @property
    def data(self) -> bytes:
        """What has come."""
        return b"".join(self._pieces)

    @property
    def size(self) -> int:
        """How many bytes have come."""
        return sum(map(len, list(self._pieces)))

    def lines(self, count: int) -> list[str]:
        """Waits until so many lines have come. Returns all that have, one more if one more has."""
        until(lambda: self.data.count(b"\n") >= count, f"{count} lines")
        return self.data.decode().splitlines()

    def settled(self) -> bytes:
        """Waits until all has come that the bus has accepted so far on this U or B channel. Returns what has come."""
        with open(self._path, "wb", buffering=0) as channel:
            channel.write(END)
        until(lambda: self._pieces and self.data.endswith(END), "the end")
        return self.data.removesuffix(END)

    def close(self) -> None:
        """Closes the client."""
        os.write(self._say_stop, b"!")
        if self._thread.ident:
            self._thread.join()
        for file in (self.file, self._stop, self._say_stop):
            os.close(file)


Collect = Callable[..., Collector]


@pytest.fixture
def collect() -> Iterator[Collect]:
    """Makes collectors. With `at_once=False`, they read nothing before `start`."""
    with contextlib.ExitStack() as stack:

        def make(path: Path, *, at_once: bool = True) -> Collector:
            collector = Collector(path)
            stack.callback(collector.close)
            if at_once:
                collector.start()
            return collector

        yield make
