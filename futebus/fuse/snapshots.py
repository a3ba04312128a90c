"""The text of `_stat`: the bus as it is when somebody opens it, written down between the requests of others."""

import logging
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import futebus
from futebus.core import stat
from futebus.core.bus import Bus
from futebus.host.logs import tell_error

from .turns import Turns
from .waiting import OpenStat

log = logging.getLogger(__name__)


LAST_SECONDS = 0.3
"""How long it is written when the bus ends. Users may have asked for hundreds of texts of thousands of clients."""

STEP_SECONDS = 0.001
"""How long it is written at once."""


class Snapshots:
    """Makes the texts, one after the other: were all made at once, their readers would come back at once for the next.

    Args:
        bus: the bus.
        turns: where the work is put.
        mountpoint: where the bus is mounted.
    """

    def __init__(self, bus: Bus, turns: Turns, mountpoint: str) -> None:
        self._bus = bus
        self._turns = turns
        self._mountpoint = mountpoint
        self._wanted: dict[OpenStat, Iterator[str]] = {}
        self._pieces: list[str] = []
        """Of the first of them."""
        self._is_writing = False
        self._is_ending = False

    def end(self) -> None:
        """The bus ends. What is not written down soon never is: who waits for it gets `EIO`."""
        end = time.monotonic() + LAST_SECONDS
        while self._wanted and time.monotonic() < end:
            self._write_more()
        self._is_ending = True
        for file in [*self._wanted]:
            file.fail()
            self._drop(file)

    def take(self, file: OpenStat) -> None:
        """Records the bus as it is now. The file gets the text of it later."""
        if self._is_ending:
            file.fail()
            return
        snapshot = stat.take(self._bus, time.time_ns())
        pieces = stat.render(snapshot, version=futebus.__version__, mountpoint=self._mountpoint, command=command_name)
        self._wanted[file] = pieces
        # One that is closed before its turn must go at once: what it holds is as much as all clients are.
        file.on_close = partial(self._drop, file)
        if not self._is_writing:
            self._is_writing = True
            self._turns.put(self._write_more, "_stat")

    def _drop(self, file: OpenStat) -> None:
        if file in self._wanted:
            if file is next(iter(self._wanted)):
                self._pieces.clear()
            del self._wanted[file]

    def _write_more(self) -> bool:
        if self._wanted:
            file, pieces = next(iter(self._wanted.items()))
            try:
                end = time.monotonic() + STEP_SECONDS
                for piece in pieces:
                    self._pieces.append(piece)
                    if time.monotonic() > end:
                        return True
                file.finish("".join(self._pieces).encode())
            except Exception:  # there is no memory for so much text, for example
                tell_error(log, lambda: "internal error in the text of _stat")
                file.fail()
            self._drop(file)
        self._is_writing = bool(self._wanted)
        return self._is_writing


def command_name(pid: int) -> bytes:
    """The name of a process's command, as its process has set it; empty if it is gone or hidden from us."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().removesuffix(b"\n")
    except OSError:
        return b""
