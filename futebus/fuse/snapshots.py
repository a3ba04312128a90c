"""The text of `_stat`: the bus as it is when somebody opens it, written down between the requests of others."""

import logging
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import futebus
from futebus.core import stat
from futebus.core.bus import Bus

from .turns import Turns
from .waiting import OpenStat

log = logging.getLogger(__name__)


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
        self._wanted: deque[tuple[OpenStat, Iterator[str]]] = deque()
        self._pieces: list[str] = []

    def take(self, file: OpenStat) -> None:
        """Records the bus as it is now. The file gets the text of it later."""
        snapshot = stat.take(self._bus, time.time_ns())
        pieces = stat.render(snapshot, version=futebus.__version__, mountpoint=self._mountpoint, command=command_name)
        self._wanted.append((file, pieces))
        if len(self._wanted) == 1:
            self._turns.put(self._write_more)

    def _write_more(self) -> bool:
        file, pieces = self._wanted[0]
        try:
            piece = next(pieces, None) if file.is_open else None
            if piece is not None:
                self._pieces.append(piece)
                return True
            file.finish("".join(self._pieces).encode())
        except Exception:  # there is no memory for so much text, for example
            log.exception("internal error in the text of _stat")
            file.fail()
        self._pieces.clear()
        self._wanted.popleft()
        return bool(self._wanted)


def command_name(pid: int) -> bytes:
    """The name of a process's command, as its process has set it; empty if it is gone or hidden from us."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().removesuffix(b"\n")
    except OSError:
        return b""
