"""Lines of a spool that lie one behind the other, to read: a task of Spark gets such a piece, and needs nothing else.

The one rule: a piece is what it was when it was written, or whoever reads it is told which lines are not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.framing import length_of
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
            parts = [*self._all()]
            if [(part.start, part.stop) for part in parts] != [(self.start, self.stop)]:  # a mark was not what it was
                data = b"".join(part._bytes(part.start, part.stop) for part in parts)
        return data

    def check(self) -> None:
        """Looks whether every line is what it was. It costs what reading them does.

        Raises:
            LinesDamaged: it is not so.
            LinesGone: retention was faster.
        """
        for _ in self._all():
            pass

    def _all(self) -> Iterator["Piece"]:
        for part in self.parts():
            if isinstance(part, LinesDamaged):
                raise part
            yield part

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
        line, end = self.first, self.first + self.lines
        start = stop = 0  # the bytes of what is sound, up to this line,
        times: list[tuple[int, int]] = []  # and when that came

        def so_far() -> Iterator[Piece]:
            lines = sum(count for count, _ in times)
            if times:
                yield replace(self, first=line - lines, lines=lines, start=start, stop=stop, times=tuple(times))
                times.clear()

        # Whoever follows asks for a few lines again and again, and there may be thousands of marks before these.
        number = max(segment.mark_behind(line + 1), 1)
        while line < end and number < len(segment):
            before, mark = segment[number - 1], segment[number]
            behind = min(mark.line, end)
            try:
                data = segment.between(before, mark) if behind > line else b""
            except LinesGone:
                raise gone(path, self.first, end) from None
            if data is None and segment.mend():
                number = max(segment.mark_behind(line + 1), 1)
                continue
            if data is None or before.line > line:
                yield from so_far()
                yield LinesDamaged(path, line, behind)
                line = behind
            elif behind > line:
                begin = before.byte + length_of(data, line - before.line)
                if begin != stop:
                    yield from so_far()
                    start = begin
                stop = before.byte + (length_of(data, behind - before.line) if behind < mark.line else len(data))
                times.append((behind - line, mark.time))
                line = behind
            number += 1
        yield from so_far()
        if line < end:
            yield LinesDamaged(path, line, end)

    def _bytes(self, start: int, stop: int) -> bytes:
        try:
            return read_bytes(Path(self.segment), start, stop)
        except LinesGone:
            raise gone(Path(self.segment), self.first, self.first + self.lines) from None
