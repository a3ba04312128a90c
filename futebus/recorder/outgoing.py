"""Lines of a spool as messages of a stream: runs of whole lines, as many as one message holds.

The one rule: a line is published when it is on the disk. What a loss of power takes from the spool would otherwise be in the
stream under numbers that the spool then gives to other lines.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ..spool import LinesDamaged, LinesGone, Piece, Spool
from ..spool.layout import count_lines

PIECE_BYTES = 8 << 20
"""How much of the spool is read at once."""

LONGEST_RUN = 4 << 20
"""Bytes of a message, whatever a server takes: so much comes quickly by any line."""


class LineTooLong(Exception):
    """A line has no room in a message.

    Args:
        line: its number.
        size: its bytes.
    """

    def __init__(self, line: int, size: int) -> None:
        super().__init__(line, size)
        self.line, self.size = line, size


class Outgoing(NamedTuple):
    """Lines that make a message."""

    line: int
    """The number of the first."""
    lines: int
    time: int
    """When the first was taken, in nanoseconds since the epoch."""
    data: bytes

    @property
    def next(self) -> int:
        """The number of the line behind them."""
        return self.line + self.lines


def following(
    spool: Spool, begin: int, most: int, on_damage: Callable[[LinesDamaged], None]
) -> Iterator[Outgoing | LineTooLong | int]:
    """The lines from `begin` on, for good. While some are read, and published, those behind them are brought to the disk.

    Args:
        spool: whose.
        begin: the number of the first.
        most: bytes of a message; a line that is longer ends it.
        on_damage: is told of lines that are damaged, which are left out.

    Yields:
        Lines, which are on the disk then; and when the spool has no more of them, the number behind the last.

    Raises:
        LinesGone: they are not there any more.
        OSError: the disk does not take them, or cannot be read.
    """
    own = Spool(spool.path)  # the thread's
    thread = ThreadPoolExecutor(1, "sync")

    def coming(begin: int) -> Future[int] | None:
        end = spool.end
        if end < begin:
            raise LinesGone(f"{spool.path} ends at line {end}, and had more lines, up to {begin}")
        return thread.submit(_sync, own, begin, end) if end > begin else None

    try:
        syncing = coming(begin)
        while True:
            if syncing:
                synced = syncing.result()
                syncing = coming(synced)
                for run in _outgoing(spool, begin, synced, most, on_damage):
                    yield run
                    if isinstance(run, LineTooLong):
                        return
                begin = synced
            if not syncing:
                yield begin
                syncing = coming(begin)
    finally:
        thread.shutdown(wait=False)  # whoever wants no more of them does not wait for the disk


def _sync(spool: Spool, begin: int, end: int) -> int:
    spool.sync(begin, end)
    return end


def _outgoing(
    spool: Spool, begin: int, end: int, most: int, on_damage: Callable[[LinesDamaged], None]
) -> Iterator[Outgoing | LineTooLong]:
    most_run = min(most, LONGEST_RUN)
    for piece in spool.pieces(begin, end, PIECE_BYTES, on_damage=on_damage):
        try:
            parts = [(piece, piece.read())]
        except LinesDamaged:
            parts = [(part, part.read()) for part in piece.sound(on_damage)]
        for part, data in parts:
            for run in _cut(part, data, most_run, most):
                yield run
                if isinstance(run, LineTooLong):
                    return


def _cut(piece: Piece, data: bytes, most_run: int, most: int) -> Iterator[Outgoing | LineTooLong]:
    start, line = 0, piece.first
    times = iter(piece.times)
    until, time = piece.first, 0
    with memoryview(data) as view:
        while start < len(data):
            stop = len(data)
            if stop - start > most_run:
                stop = data.rfind(b"\n", start, start + most_run) + 1 or data.index(b"\n", start) + 1
                if stop - start > most:
                    yield LineTooLong(line, stop - start)
                    return
            count = piece.lines if stop - start == len(data) else count_lines(view[start:stop])
            while until <= line:
                lines, time = next(times)
                until += lines
            yield Outgoing(line, count, time, data[start:stop])
            start, line = stop, line + count


def has(spool: Spool, first: int, data: bytes) -> bool:
    """Whether a spool has these lines, as far as it can tell: those that were removed or damaged since are not looked at.

    Args:
        spool: it must not end before the last of them.
        first: the number that the first of them has.
        data: they themselves.

    Raises:
        OSError: the disk cannot be read.
    """
    while True:
        begin = spool.begin
        try:
            return _has(spool, first, data, max(first, begin))
        except LinesGone:
            if spool.begin == begin:  # else they were removed meanwhile
                raise


def _has(spool: Spool, first: int, data: bytes, begin: int) -> bool:
    def ignore(_: LinesDamaged) -> None:
        pass

    at, line = 0, first
    for piece in spool.pieces(begin, first + data.count(b"\n"), PIECE_BYTES, on_damage=ignore):
        for part in piece.sound(ignore):
            while line < part.first:
                at, line = data.index(b"\n", at) + 1, line + 1
            own = part.read()
            if not data.startswith(own, at):
                return False
            at, line = at + len(own), line + part.lines
    return True
