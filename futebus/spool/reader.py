"""A spool, to read."""

import bisect
import contextlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ..core.framing import length_of
from ..core.text import spanned
from ..host.durable import sync
from .layout import (
    IDENTITY,
    READ_BYTES,
    SEGMENT_BYTES,
    ForeignSpool,
    LinesDamaged,
    LinesGone,
    NotASpool,
    count_lines,
    gone,
    read_bytes,
    read_identity,
    segment_firsts,
    with_stops,
)
from .marks import Mark
from .piece import OnDamage, Piece
from .segment import Segment, ended, last_mark

LIST_SECONDS = 1.0
"""How often it is looked for the newest segment where nothing says that there is one."""


class Spool:
    """A spool, to read. Needs no lock: it may be written meanwhile, and nothing that it says changes.

    Args:
        path: the directory.

    Raises:
        NotASpool: it is none.
        OSError: it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        identity = read_identity(self.path)
        self.id, self.channel = identity.id, identity.channel
        self._identity_file: tuple[int, int, int] | None = None
        """Which file has said so, as it was found before it was read."""
        self._last: Segment | None = None
        self._closed: Segment | None = None
        """Another one with a damaged index, which costs much to look through."""
        self._listed = -math.inf
        """When all of them were looked for, to find the last one."""
        self._firsts: list[int] = []
        """Where its segments were last found to begin. There may be thousands, and they are asked for with each piece."""
        self._synced = -1
        """The newest segment that is known to be in the directory also after a loss of power."""

    def _look(self) -> tuple[int, int, int]:
        status = (self.path / IDENTITY).stat()
        return status.st_dev, status.st_ino, status.st_mtime_ns

    def _without_segments(self) -> NotASpool:
        if self._last is not None or self._firsts or not (self.path / IDENTITY).exists():
            return NotASpool(f"{self.path} has been removed, or moved")
        return NotASpool(f"{self.path} has no segments yet: who made it has not begun, or could not")

    def _check_identity(self) -> None:
        """Sees that no other spool is there by now: lines of two would be taken for those of one."""
        with contextlib.suppress(FileNotFoundError):  # what else is missing is told by who needs it
            if (now := self._look()) != self._identity_file:
                if (other := read_identity(self.path).id) != self.id:
                    raise self._foreign(other, self.id)
                self._identity_file = now

    def _segment(self, first: int, stop: int | None = None) -> Segment:
        """The segment that begins there. Where the next one begins, it ends, and has all of its marks."""
        last, closed = self._last, self._closed
        if closed is not None and (closed.first, closed.stop) == (first, stop):
            return closed
        if last is not None and last.first == first and (stop is None or last.leads_to(stop)):
            last.stop = stop
            return last
        segment = Segment(self.path, first, stop=stop)
        if segment.is_mended:
            self._closed = segment
        return segment

    def _mend(self, segment: Segment) -> bool:
        """Has the marks of a segment found from its lines, which are not what its marks say. Returns whether that may help."""
        if segment.stop is None or segment.is_mended:
            return False
        self._closed = segment = Segment(self.path, segment.first, stop=segment.stop)
        segment.mend()
        return True

    @property
    def last(self) -> Mark:
        """The mark behind the last line: how far the spool goes, when it was last added to, what was lost.

        Raises:
            ForeignSpool: another one has taken its place.
            NotASpool: there is none any more.
        """
        self._check_identity()
        last = self._last
        if last is not None:
            try:
                # The segment may be full; the next one is named by the line where it ends. If that is gone, there may be others.
                end = last[-1].line
                is_newest = last.refresh() or not (self.path / f"{end:020d}.index").exists()
                # Where it goes less far than before, it may have been damaged since it was ended.
                if is_newest and time.monotonic() < self._listed + LIST_SECONDS and len(last) and last[-1].line >= end:
                    return last[-1]
            except LinesGone:
                pass
        self._listed = time.monotonic()
        for first in reversed(segment_firsts(self.path)):
            # The very last may be without a mark, after a loss of power.
            last = self._segment(first)
            if len(last):
                self._last = last
                return last[-1]
        raise self._without_segments()

    @property
    def begin(self) -> int:
        """The offset of the first line that there still is (of the next line if there is none)."""
        firsts = segment_firsts(self.path)
        if not firsts:
            raise self._without_segments()
        return firsts[0]

    @property
    def end(self) -> int:
        """The offset that the next line will get."""
        return self.last.line

    @property
    def has_begun_line(self) -> bool:
        """Whether there is the beginning of a line behind the last one. Its rest may come, or not."""
        last = self.last
        assert self._last is not None
        try:
            size = self._last.path.stat().st_size
        except FileNotFoundError:
            return False
        for at in reversed(range(last.byte, size, READ_BYTES)):
            if rest := read_bytes(self._last.path, at, min(at + READ_BYTES, size)).rstrip(b"\0"):
                return rest[-1:] != b"\n"
        return False

    def check(self, spool_id: str, offset: int) -> None:
        """Checks that an offset that was taken down earlier belongs here.

        Raises:
            ForeignSpool: it belongs to another spool.
            LinesGone: it lies behind the end.
        """
        if spool_id != self.id:
            raise self._foreign(self.id, spool_id)
        if offset > self.end:
            raise LinesGone(f"{self.path} does not have {spanned(self.end, offset)} any more")

    def _foreign(self, found: str, wanted: str) -> ForeignSpool:
        return ForeignSpool(f"{self.path} is not the spool that these offsets belong to (it is {found}, not {wanted})")

    def offset_at(self, moment: int) -> int:
        """The offset of the first line that was taken at `moment` (nanoseconds since the epoch) or later."""
        offset = self.begin
        end = self.end  # has the marks of the last segment read anew
        for first, stop in with_stops(segment_firsts(self.path)):
            try:
                # Two short reads, where a segment has thousands of marks.
                last = last_mark(self.path, first, stop=stop)
                if last is None or ended(last, self.path, stop) < moment:
                    offset = last.line if last else offset
                    continue
                segment = self._segment(first, stop)
            except LinesGone:
                continue
            number = segment.mark_at(moment)
            if number < len(segment):
                return segment[max(number - 1, 0)].line
            offset = segment[-1].line if len(segment) else offset
        return max(offset, end)

    def lost_before(self, offset: int) -> int:
        """How many lines are known to have been lost before the last line in front of that offset, since the spool began.

        A loss that is noted behind that line belongs to the lines that follow; so the answer never changes.
        """
        firsts = segment_firsts(self.path)
        if not firsts:
            raise self._without_segments()
        place = max(bisect.bisect_left(firsts, offset) - 1, 0)
        segment = self._segment(firsts[place], *firsts[place + 1 : place + 2])
        if segment.stop is None and (not len(segment) or segment[-1].line < offset):
            segment.refresh()
        return segment[segment.mark_behind(offset)].lost if len(segment) else 0

    def offset_after(self, offset: int, size: int) -> int:
        """The offset behind the lines from `offset` on that have `size` bytes together; one line is always among them.

        Raises:
            LinesGone: they are not there.
        """
        end, least = self.end, offset + 1
        while offset < end:
            try:
                segment, _, byte = self._locate(offset)
            except LinesDamaged as damage:  # who reads them will be told
                offset = damage.stop
                continue
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

    def size_from(self, offset: int) -> int:
        """How many bytes the lines from `offset` on have; those that have been removed do not count."""
        firsts = segment_firsts(self.path)
        offset, end = max(offset, *firsts[:1]) if firsts else offset, self.end
        while True:
            if offset >= end or not firsts:
                return 0
            try:
                segment, _, byte = self._locate(offset)
                break
            except LinesDamaged as damage:
                offset = max(damage.stop, offset + 1)
        pairs = with_stops(first for first in firsts if first > segment.first)
        behind = (last_mark(self.path, first, stop=stop) for first, stop in pairs)
        return segment[-1].byte - byte + sum(mark.byte for mark in behind if mark)

    def _locate(self, offset: int) -> tuple[Segment, int, int]:
        """The segment that holds the line of that offset, the number of its append's mark, and the byte where the line begins."""
        firsts = self._firsts
        if not (firsts and firsts[0] <= offset < firsts[-1]):
            firsts = self._firsts = segment_firsts(self.path)
        if not firsts or offset < firsts[0]:
            raise LinesGone(
                f"line {offset} of {self.path} has been removed; the first that is there is {firsts[0] if firsts else 0}"
            )
        place = bisect.bisect_right(firsts, offset) - 1
        try:
            segment = self._segment(firsts[place], *firsts[place + 1 : place + 2])
        except LinesGone:
            if self._are_others(firsts):
                return self._locate(offset)
            raise
        # A list of what is there may lack a segment that came while it was made. Then the one before only seems damaged.
        if segment.is_mended and self._are_others(firsts):
            return self._locate(offset)
        if segment.stop is None and (not len(segment) or segment[-1].line <= offset):
            segment.refresh()
        end = segment[-1].line if len(segment) else segment.first
        if end <= offset:
            if segment.stop is not None:
                raise LinesDamaged(segment.path.with_suffix(".index"), end, segment.stop)
            raise LinesGone(f"line {offset} is not in {self.path}, which ends at {end}")
        number = segment.mark_behind(offset + 1)
        before = segment[max(number - 1, 0)]
        try:
            if before.line == offset:
                self._check_begin(segment, number)
                return segment, number, before.byte
            return segment, number, before.byte + length_of(self._append(segment, number), offset - before.line)
        except LinesDamaged:
            if self._mend(segment):
                return self._locate(offset)
            raise

    def _are_others(self, firsts: list[int]) -> bool:
        """Looks again which segments there are, and whether these have changed."""
        self._firsts = segment_firsts(self.path)
        return self._firsts != firsts

    def _check_begin(self, segment: Segment, number: int) -> None:
        """Sees that an append begins where a line does: one that does not may still have as many lines as it should."""
        before, mark = segment[number - 1], segment[number]
        try:
            begins = segment.begins_line(before)
        except LinesGone:  # who reads it will be told
            return
        if not begins:
            raise LinesDamaged(segment.path, before.line, mark.line)

    def _append(self, segment: Segment, number: int) -> bytes:
        """The lines of an append, whole. To find one of them they must be counted, and so they must be what they were."""
        before, mark = segment[number - 1], segment[number]
        try:
            data = segment.between(before, mark)
        except LinesGone:
            raise gone(segment.path, before.line, mark.line) from None
        if data is None:
            raise LinesDamaged(segment.path, before.line, mark.line)
        return data

    def pieces(self, begin: int, end: int, size: int = SEGMENT_BYTES, *, on_damage: OnDamage | None = None) -> Iterator[Piece]:
        """The lines from offset `begin` up to `end`, in pieces of about `size` bytes, none across two segments.

        That a piece is what it was is found out when it is read.

        Args:
            begin: the offset of the first line.
            end: the offset behind the last one.
            size: see above.
            on_damage: is told of lines that cannot be found for some damage, and are left out. Without it that is an error.

        Raises:
            LinesDamaged: where some of them are cannot be told any more.
            LinesGone: not all of them are there.
        """
        while begin < end:
            try:
                piece = self._piece(begin, end, size)
            except LinesDamaged as damage:
                if on_damage is None:
                    raise
                stop = min(max(damage.stop, begin + 1), end)
                on_damage(LinesDamaged(damage.file, begin, stop))
                begin = stop
                continue
            yield piece
            begin += piece.lines

    def _piece(self, begin: int, end: int, size: int) -> Piece:
        """The first of these lines, as many as make a piece; at least one."""
        segment, number, start = self._locate(begin)
        first, at = begin, start
        times: list[tuple[int, int]] = []
        while begin < end and at - start < size and number < len(segment):
            before, mark = segment[number - 1], segment[number]
            if mark.line > end:
                try:
                    at = before.byte + length_of(self._append(segment, number), end - before.line)
                except LinesDamaged:
                    if self._mend(segment):
                        return self._piece(first, end, size)
                    if begin == first:
                        raise
                    break  # the next piece begins with it
                taken = end - begin
            else:
                at = mark.byte
                taken = mark.line - begin
            number += 1
            if taken:
                times.append((taken, mark.time))
                begin += taken
        return Piece(str(segment.path), first, begin - first, start, at, tuple(times))

    def sync(self, begin: int, end: int) -> None:
        """Has the lines from offset `begin` up to `end` on the disk before it returns, whoever wrote them."""
        firsts = segment_firsts(self.path)
        inner = [first for first in firsts if begin < first < end]
        outer = firsts[bisect.bisect_right(firsts, begin) - 1 : bisect.bisect_right(firsts, begin)]
        for first in outer + inner:
            for suffix in (".lines", ".index"):
                with contextlib.suppress(FileNotFoundError):
                    sync(self.path / f"{first:020d}{suffix}")
        if newest := (outer + inner)[-1:]:
            if newest[0] > self._synced:
                sync(self.path)
            self._synced = max(self._synced, newest[0])

    def follow(self, begin: int, patience: float = 0.0) -> Iterator[Piece]:
        """The lines from offset `begin` on, as they come.

        Args:
            begin: where to begin.
            patience: for how long, in seconds, to wait for the next line. It ends when none has come for so long.

        Raises:
            LinesGone: not all of them are there.
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
