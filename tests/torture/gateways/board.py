"""A board on which honest peers of a round write how much they have said and heard, so that none of them gets too far behind.

Gateways drop what waits too long for who is slow, and on a busy machine everybody may be. With this, nobody says more while any
honest peer has more than so much to hear yet, and then nothing may be dropped for them, however slow they are.
"""

import mmap
import struct
from pathlib import Path

MOST = 1 << 20
"""Bytes that any honest peer may be behind: a quarter of what gateways keep for it."""

PEERS = 4096
_ROW = struct.Struct("=QQQ")


class Board:
    """The board, as one process has it.

    Args:
        path: a file that all have in common; an empty path is no board.
        row: the number of this process.
    """

    def __init__(self, path: str, row: int) -> None:
        self._row = row
        self._said = self._heard = 0
        self._is_heard = False
        self._map: mmap.mmap | None = None
        if path:
            with Path(path).open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)

    def listen(self) -> None:
        """From now on this one hears everything."""
        if self._map:
            self._heard = sum(said for said, _, _ in _ROW.iter_unpack(self._map))
            self._is_heard = True
            self._write()

    def leave(self) -> None:
        """It does not any more."""
        self._is_heard = False
        self._write()

    def say(self, count: int) -> None:
        """It is about to say so many bytes."""
        self._said += count
        self._write()

    def hear(self, count: int) -> None:
        """It has heard so many."""
        self._heard += count
        self._write()

    def _write(self) -> None:
        if self._map:
            _ROW.pack_into(self._map, self._row * _ROW.size, self._said, self._heard, self._is_heard)

    def has_place(self) -> bool:
        """Whether all have heard enough of what was said that more can be said."""
        if not self._map:
            return True
        rows = [row for row in _ROW.iter_unpack(self._map) if any(row)]
        said = sum(row[0] for row in rows)
        return all(said - heard < MOST for _, heard, is_heard in rows if is_heard)


def make(path: Path) -> None:
    """Makes an empty board."""
    path.write_bytes(bytes(PEERS * _ROW.size))
