"""A spool, to read."""

import bisect
import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.framing import length_of
from .layout import (
    FORMAT,
    IDENTITY,
    READ_BYTES,
    SEGMENT_BYTES,
    ForeignSpool,
    LinesGone,
    Mark,
    NotASpool,
    Segment,
    count_lines,
    read_bytes,
    segment_firsts,
    sync,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines that lie one behind the other in one segment."""

    segment: str
    """The path of the segment's lines."""
    first: int
    """The offset of the first line."""
    lines: int
    start: int
    """The byte where it begins."""
    stop: int
    """The byte behind it."""
    times: tuple[tuple[int, int], ...]
    """For each append that it holds lines of: how many, and the time in nanoseconds since the epoch."""

    def read(self) -> bytes:
        """Its lines, each with its newline.

        Raises:
            LinesGone: retention was faster.
        """
        try:
            with Path(self.segment).open("rb") as file:
                file.seek(self.start)
                data = file.read(self.stop - self.start)
        except FileNotFoundError:
            data = b""
        if len(data) != self.stop - self.start:
            raise LinesGone(f"lines {self.first} to {self.first + self.lines} of {Path(self.segment).parent} have been removed")
        return data


class Spool:
    """A spool, to read. Needs no lock: it may be written meanwhile, and nothing that it says changes.

    Args:
        path: the directory.

    Raises:
        NotASpool: it is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            identity = json.loads((self.path / IDENTITY).read_bytes())
            known, self.id, self.channel = identity["format"] == FORMAT, str(identity["id"]), str(identity["channel"])
        except (FileNotFoundError, NotADirectoryError):
            raise NotASpool(f"{self.path} is no spool: it has no {IDENTITY}") from None
        except (ValueError, KeyError, TypeError):
            raise NotASpool(f"{self.path / IDENTITY} is damaged") from None
        if not known:
            raise NotASpool(f"{self.path} is a spool of another format than {FORMAT}")
        self._last: Segment | None = None

    def _segment(self, first: int) -> Segment:
        if self._last is not None and self._last.first == first:
            return self._last
        return Segment(self.path, first)

    @property
    def last(self) -> Mark:
        """The mark behind the last line: how far the spool goes, when it was last added to, what was lost."""
        last = self._last
        if last is not None:
            try:
                # The segment may be full; the next one is named by the line where it ends.
                if last.refresh() or not (self.path / f"{last[-1].line:020d}.index").exists():
                    return last[-1]
            except LinesGone:
                pass
        for first in reversed(segment_firsts(self.path)):
            # The very last may be without a mark, after a loss of power.
            last = Segment(self.path, first)
            if len(last):
                self._last = last
                return last[-1]
        raise NotASpool(f"{self.path} has no segments")

    @property
    def begin(self) -> int:
        """The offset of the first line that there still is (of the next line if there is none)."""
        firsts = segment_firsts(self.path)
        if not firsts:
            raise NotASpool(f"{self.path} has no segments")
        return firsts[0]

    @property
    def end(self) -> int:
        """The offset that the next line will get."""
        return self.last.line

    def check(self, spool_id: str, offset: int) -> None:
        """Checks that an offset that was taken down earlier belongs here.

        Raises:
            ForeignSpool: it belongs to another spool.
            LinesGone: it lies behind the end.
        """
        if spool_id != self.id:
            raise ForeignSpool(f"{self.path} is not the spool that these offsets belong to (it is {self.id}, not {spool_id})")
        if offset > self.end:
            raise LinesGone(f"{self.path} ends at line {self.end}, before line {offset}: lines that it had are missing")

    def offset_at(self, moment: int) -> int:
        """The offset of the first line that was taken at `moment` (nanoseconds since the epoch) or later."""
        offset = self.begin
        end = self.end  # has the marks of the last segment read anew
        for first in segment_firsts(self.path):
            try:
                segment = self._segment(first)
            except LinesGone:
                continue
            number = segment.mark_at(moment)
            if number < len(segment):
                return segment[max(number - 1, 0)].line
            offset = segment[-1].line
        return max(offset, end)

    def lost_before(self, offset: int) -> int:
        """How many lines are known to have been lost before the last line in front of that offset, since the spool began.

        A loss that is noted behind that line belongs to the lines that follow; so the answer never changes.
        """
        firsts = segment_firsts(self.path)
        segment = self._segment(firsts[max(bisect.bisect_left(firsts, offset) - 1, 0)])
        if segment[-1].line < offset:
            segment.refresh()
        return segment[segment.mark_behind(offset)].lost

    def offset_after(self, offset: int, size: int) -> int:
        """The offset behind the lines from `offset` on that have `size` bytes together; one line is always among them."""
        end, least = self.end, offset + 1
        while offset < end:
            segment, _, byte = self._locate(offset)
            stop = segment[-1]
            if byte + size >= stop.byte:
                size -= stop.byte - byte
                offset = stop.line
                continue
            before = segment[segment.mark_within(byte + size) - 1]
            if before.byte > byte:
                offset, size, byte = before.line, size - (before.byte - byte), before.byte
            offset += count_lines(read_bytes(segment.path, byte, byte + size))
            break
        return min(max(offset, least), end)

    def _locate(self, offset: int) -> tuple[Segment, int, int]:
        """The segment that holds the line of that offset, the number of its append's mark, and the byte where the line begins."""
        firsts = segment_firsts(self.path)
        if not firsts or offset < firsts[0]:
            raise LinesGone(
                f"line {offset} of {self.path} has been removed; the first that is there is {firsts[0] if firsts else 0}"
            )
        segment = self._segment(firsts[bisect.bisect_right(firsts, offset) - 1])
        number = segment.mark_behind(offset + 1)
        if segment[number].line <= offset:
            segment.refresh()
            number = segment.mark_behind(offset + 1)
        if segment[number].line <= offset:
            raise LinesGone(f"line {offset} is not in {self.path}, which ends at {segment[-1].line}")
        before = segment[max(number - 1, 0)]
        if before.line == offset:
            return segment, number, before.byte
        data = read_bytes(segment.path, before.byte, segment[number].byte)
        return segment, number, before.byte + length_of(data, offset - before.line)

    def pieces(self, begin: int, end: int, size: int = SEGMENT_BYTES) -> Iterator[Piece]:
        """The lines from offset `begin` up to `end`, in pieces of about `size` bytes, none across two segments.

        Raises:
            LinesGone: not all of them are there.
        """
        while begin < end:
            segment, number, start = self._locate(begin)
            first, byte, at = begin, start, start
            times: list[tuple[int, int]] = []
            while begin < end and at - start < size and number < len(segment):
                mark = segment[number]
                number += 1
                if mark.line > end:
                    data = read_bytes(segment.path, at, mark.byte)
                    at += length_of(data, end - begin)
                    taken = end - begin
                else:
                    at = mark.byte
                    taken = mark.line - begin
                if taken:
                    times.append((taken, mark.time))
                    begin += taken
            yield Piece(str(segment.path), first, begin - first, byte, at, tuple(times))

    def sync(self, begin: int, end: int) -> None:
        """Has the lines from offset `begin` up to `end` on the disk before it returns, whoever wrote them."""
        firsts = segment_firsts(self.path)
        inner = [first for first in firsts if begin < first < end]
        outer = firsts[bisect.bisect_right(firsts, begin) - 1 : bisect.bisect_right(firsts, begin)]
        for first in outer + inner:
            for suffix in (".lines", ".index"):
                with contextlib.suppress(FileNotFoundError):
                    sync(self.path / f"{first:020d}{suffix}")
        if inner or begin in firsts:
            sync(self.path)

    def follow(self, begin: int, patience: float = 0.0) -> Iterator[Piece]:
        """The lines from offset `begin` on, as they come.

        Args:
            begin: where to begin.
            patience: for how long, in seconds, to wait for the next line. It ends when none has come for so long.
        """
        deadline = time.monotonic() + patience
        while True:
            end = self.end
            if begin < end:
                yield from self.pieces(begin, end, READ_BYTES)
                begin = end
                deadline = time.monotonic() + patience
            elif time.monotonic() >= deadline:
                return
            else:
                time.sleep(0.01)
