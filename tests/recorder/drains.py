"""Drains that tests look at."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from futebus.recorder.drain import Drain
from futebus.spool import SpoolWriter

from ..helpers.waiting import DEADLINE, until


class Drained:
    """A drain that runs in a thread."""

    def __init__(self, channel: Path, spool: Path, *, segment_bytes: int = 1 << 20, **options: Any) -> None:
        self.words: list[str] = []
        self.writer = SpoolWriter(spool, channel.name, segment_bytes=segment_bytes, first_segment_bytes=segment_bytes)
        self.drain = Drain(channel, self.writer, say=self.words.append, **options)
        self._thread = threading.Thread(target=self.drain.run, daemon=True)
        self._thread.start()

    def wait_until_joined(self) -> "Drained":
        until(lambda: self.drain.is_joined, "the drain has joined")
        return self

    def wait_for_lines(self, count: int) -> None:
        until(lambda: self.writer.end >= count, f"there are {count} lines")

    def wait_for(self, words: str) -> None:
        until(lambda: any(words in said for said in self.words), f"it says {words!r}, and not only {self.words}")

    def end(self) -> None:
        self.drain.stop()
        self.wait()
        self.drain.close()
        self.writer.close()

    def wait(self) -> None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


Draining = Callable[..., Drained]


@pytest.fixture
def draining(place: Path) -> Iterator[Draining]:
    """Starts drains into the spool `place / "spool"`."""
    drains: list[Drained] = []

    def begin(channel: Path, spool: Path | None = None, **options: Any) -> Drained:
        drains.append(Drained(channel, spool or place / "spool", **options))
        return drains[-1]

    yield begin
    for drain in drains:
        drain.end()
