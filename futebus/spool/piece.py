"""Lines of a spool that lie one behind the other, to read: a task of Spark gets such a piece, and needs nothing else.

The one rule: a piece is what it was when it was written, or whoever reads it is told which lines are not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .layout import LinesDamaged, LinesGone, count_lines, gone, is_whole, read_bytes, segment_firsts
from .segment import Segment

CHECK_BYTES = 1 << 20
"""How much of a piece is looked at in one go."""

OnDamage = Callable[[LinesDamaged], None]


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
            LinesDamaged: some of them are not what they were.
            LinesGone: retention was faster.
        """
        data = self._bytes(self.start, self.stop)
        if b"\0" in data or not is_whole(data, self.lines, False) or len(data) != self.stop - self.start:
            self.check()
        return data

    def check(self) -> None:
        """Looks whether every line is what it was. It costs what reading them does.

        Raises:
            LinesDamaged: it is not so.
            LinesGone: retention was faster.
        """
        for part in self.parts():
            if isinstance(part, LinesDamaged):
                raise part

    def sound(self, on_damage: OnDamage) -> Iterator["Piece"]:
        """What of it is as it was; the rest is told.

        Raises:
            LinesGone: retention was faster.
        """
        try:
            is_sound = self._looks_sound()
        except LinesDamaged as damage:  # without its file
            on_damage(damage)
            return
        if is_sound:
            yield self
            return
        for part in self.parts():
            if isinstance(part, LinesDamaged):
                on_damage(part)
            else:
                yield part

    def _looks_sound(self) -> bool:
        lines, data = 0, b""
        for at in range(self.start, self.stop, CHECK_BYTES):
            stop = min(at + CHECK_BYTES, self.stop)
            data = self._bytes(at, stop)
            if b"\0" in data or len(data) != stop - at:
                return False
            lines += count_lines(data)
        return lines == self.lines and data[-1:] in (b"\n", b"")

    def parts(self) -> Iterator["Piece | LinesDamaged"]:
        """What of it is as it was, and what is not, in order. Each append is sound, or it is not.

        Raises:
            LinesGone: retention was faster.
        """
        path = Path(self.segment)
        own = int(path.stem)
        segment = Segment(path.parent, own, stop=next((first for first in segment_firsts(path.parent) if first > own), None))
        end = self.first + self.lines
        at, begin = self.first, self.start
        times: list[tuple[int, int]] = []

        def so_far() -> Piece:
            lines = sum(count for count, _ in times)
            return replace(self, first=at, lines=lines, start=begin, stop=behind, times=tuple(times))

        behind = begin
        # Whoever follows asks for a few lines again and again, and there may be thousands of marks before these.
        for number in range(max(segment.mark_behind(self.first + 1), 1), len(segment)):
            before, mark = segment[number - 1], segment[number]
            if before.line >= end:
                break
            first, stop = max(before.line, self.first), min(mark.line, end)
            if first >= stop:
                continue
            data = self._bytes(before.byte, mark.byte)
            if is_whole(data, mark.line - before.line, mark.is_plain) and len(data) == mark.byte - before.byte:
                times.append((stop - first, mark.time))
                behind = min(mark.byte, self.stop)
                continue
            if times:
                yield so_far()
            yield LinesDamaged(path, first, stop)
            at, begin = stop, mark.byte
            times.clear()
        if times:
            yield so_far()
        at += sum(count for count, _ in times)
        if at < end:
            yield LinesDamaged(path, at, end)

    def _bytes(self, start: int, stop: int) -> bytes:
        try:
            return read_bytes(Path(self.segment), start, stop)
        except LinesGone:
            raise gone(Path(self.segment), self.first, self.first + self.lines) from None
