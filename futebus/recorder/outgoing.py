"""Lines of a spool as messages of a stream: runs of whole lines, as many as one message holds.

The one rule: a line is published when it is on the disk. What a loss of power takes from the spool would otherwise be in the
stream under numbers that the spool then gives to other lines.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ..core.lines import nul
from ..core.text import spanned
from ..nats.transport import Extent, Part
from ..spool import LinesDamaged, LinesGone, Piece, Spool, open_to_read
from ..spool.layout import count_lines, gone

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
    data: Extent

    @property
    def next(self) -> int:
        """The number of the line behind them."""
        return self.line + self.lines


def following(
    spool: Spool, begin: int, most: int, on_damage: Callable[[LinesDamaged], None]
) -> Iterator[list[Outgoing] | LineTooLong | int]:
    """The lines from `begin` on, for good. While some are read, and published, those behind them are brought to the disk.

    Args:
        spool: whose.
        begin: the number of the first.
        most: bytes of a message; a line that is longer ends it.
        on_damage: is told of lines that are damaged, which are left out.

    Yields:
        Runs of lines, which are on the disk then; and when the spool has no more of them, the number behind the last.

    Raises:
        LinesGone: they are not there any more.
        OSError: the disk does not take them, or cannot be read.
    """
    own = Spool(spool.path)  # the thread's
    outgoing = _Cutter(spool, most)
    thread = ThreadPoolExecutor(1, "sync")

    def coming(begin: int) -> Future[int] | None:
        end = spool.end
        if end < begin:
            raise LinesGone(f"{spool.path} does not have {spanned(end, begin)} any more")
        return thread.submit(_sync, own, begin, end) if end > begin else None

    try:
        syncing = coming(begin)
        while True:
            if syncing:
                synced = syncing.result()
                syncing = coming(synced)
                for some in outgoing.between(begin, synced, on_damage):
                    yield some
                    if isinstance(some, LineTooLong):
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


class _Cutter:
    """Cuts lines into messages.

    Args:
        spool: whose.
        most: bytes of a message.
    """

    def __init__(self, spool: Spool, most: int) -> None:
        self._spool, self._most = spool, most
        self._looked_at = bytearray(min(most, LONGEST_RUN))

    def between(self, begin: int, end: int, on_damage: Callable[[LinesDamaged], None]) -> Iterator[list[Outgoing] | LineTooLong]:
        """The lines from one to another, as `following` has them."""
        for piece in self._spool.pieces(begin, end, PIECE_BYTES, on_damage=on_damage):
            try:
                found = iter([self._cut(piece)])
            except LinesDamaged:
                found = (self._cut(part) for part in piece.sound(on_damage))  # one by one: each has a file open
            for runs, too_long in found:
                if runs:
                    yield runs
                if too_long:
                    yield too_long
                    return

    def _cut(self, piece: Piece) -> tuple[list[Outgoing], LineTooLong | None]:
        """The messages of a piece, up to a line that is too long.

        Raises:
            LinesDamaged: some of its lines are not what they were.
            LinesGone: retention was faster.
        """
        try:
            part = Part(open_to_read(Path(piece.segment)), piece.start, piece.stop)
        except FileNotFoundError:
            raise gone(Path(piece.segment), piece.first, piece.first + piece.lines) from None
        except (ValueError, OverflowError):  # it is shorter, or a mark is damaged
            raise _damaged(piece) from None
        runs: list[Outgoing] = []
        at, line = piece.start, piece.first
        times = iter(piece.times)
        until, time = piece.first, 0
        has_looked = False
        while at < piece.stop:
            with memoryview(self._looked_at)[: piece.stop - at] as view:
                if not part.fill(view, at):
                    raise _damaged(piece)
                if not has_looked and nul(view) >= 0:
                    has_looked = True  # a line may have zeros, too
                    piece.check()
                size = self._looked_at.rfind(b"\n", 0, len(view)) + 1
                count = count_lines(view[:size])
            if not size:
                size, count = _length(part, at, piece), 1
                if size > self._most:
                    piece.check()
                    return runs, LineTooLong(line, size)
            while until <= line and until < piece.first + piece.lines:
                lines, time = next(times)
                until += lines
            runs.append(Outgoing(line, count, time, Extent(part, at, size)))
            at, line = at + size, line + count
        if line != piece.first + piece.lines:
            raise _damaged(piece)
        return runs, None


def _damaged(piece: Piece) -> LinesDamaged:
    """Which lines of a piece are not what they were."""
    try:
        piece.check()
    except LinesDamaged as error:
        return error
    return LinesDamaged(piece.segment, piece.first, piece.first + piece.lines)


def _length(part: Part, at: int, piece: Piece) -> int:
    """How long the line is that begins at a byte.

    Raises:
        LinesDamaged: it has no end.
    """
    data = bytearray(LONGEST_RUN)
    begin = at
    while at < piece.stop:
        with memoryview(data)[: piece.stop - at] as view:
            if not part.fill(view, at):
                break
            if nul(view) >= 0:  # a line may have zeros, too
                piece.check()
            if end := data.find(b"\n", 0, len(view)) + 1:
                return at + end - begin
            at += len(view)
    raise _damaged(piece)


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
