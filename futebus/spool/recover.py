"""What is made of the newest segment when its marks and its lines do not fit together, or power was lost since it was written.

The one rule: no line that counts is changed or moved. The segment is ended as it is, with the marks that it must have had, and
the next one begins there. So whoever opens the spool next finds it sound, and readers are told which lines are damaged.
"""

import bisect
import contextlib
import itertools
import mmap
import os
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from ..core.lines import nul
from .layout import count_between, count_lines
from .marks import Mark, mended, sensible, unpacked, with_holes
from .repair import STEP_BYTES, Holes, last_changed, used

MOST_BYTES = 1 << 32
"""A mark that tells of more of them is none: no segment gets so long."""

MOST_TIME = 1 << 62
"""A mark that was made later, in nanoseconds since the epoch, is none: that is in 2116. Today is no measure: the clock may be
behind when a machine begins, or have been ahead."""


class Recovered(NamedTuple):
    """A segment that has been ended."""

    marks: list[Mark]
    """What its index must have; nothing if it has that, or if readers find out more from what it has."""
    end: Mark
    """Where the next segment begins."""
    size: int
    """How long its file of lines must be."""
    used: int
    """How much of it says anything: zeros follow."""
    unfinished: bytes
    """The beginning of a line that goes on in the next segment, if its end comes."""
    found: int
    """How many lines had no mark that fits."""
    gone: int
    """How many were there, as far as can be told, and are cut off: power was lost, and not all before them was on the disk."""


def recover(lines: int, numbers: "array[int]", first: int, *, may_have_holes: bool) -> Recovered | None:
    """Looks at the newest segment.

    Args:
        lines: its file of lines, open.
        numbers: what is in its index, without the zeros behind.
        first: the offset of its first line.
        may_have_holes: whether power may have been lost since it was written.

    Returns:
        None if it is sound, and can go on.
    """
    status = os.fstat(lines)
    if not status.st_size:
        last = _Last(b"", numbers, first, last_changed(status))
        return None if last.is_sound else last.ended(last.last_right(), may_have_holes=may_have_holes)
    with _mapped_to_read(lines) as mapped:
        last = _Last(mapped, numbers, first, last_changed(status))
        is_sound = last.is_sound
        if is_sound and not may_have_holes:
            return None  # as mostly: nothing is looked at twice
        known = numbers[-3] if is_sound else 0
        size = known + used(mapped, known)  # where zeros follow to the end, there is no hole
        last.end_at(size)
        place = len(numbers) // 4 - 1 if is_sound else last.last_right()
        begin = last.byte_behind(place)
        gap = Holes(mapped, may_be_short=True).find(begin, size) if may_have_holes else -1
        if gap < 0 and is_sound:
            return None
        stop = mapped.rfind(b"\n", begin, size if gap < 0 else gap) + 1 or begin
        return last.ended(place, stop=stop, may_have_holes=may_have_holes)


@contextlib.contextmanager
def _mapped_to_read(file: int) -> Iterator[mmap.mmap]:
    """A file that is not empty, mapped.

    Raises:
        OSError: the disk cannot read all of it. It may be able to later, and nobody should take that for a hole meanwhile.
    """
    # Who comes upon such a place in a mapped file is killed. What has been read once is in memory, mostly.
    at = 0
    while size := len(os.pread(file, STEP_BYTES, at)):
        at += size
    mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
    try:
        yield mapped
    finally:
        with contextlib.suppress(BufferError):  # what was interrupted may still have a view of it
            mapped.close()


class _Last:
    """The newest segment.

    Args:
        data: its lines, and zeros behind.
        numbers: what is in its index.
        first: the offset of its first line.
        changed: when its lines were last written.
    """

    def __init__(self, data: mmap.mmap | bytes, numbers: "array[int]", first: int, changed: int) -> None:
        self._data, self._numbers, self._first, self._changed = data, numbers, first, changed
        self._size = len(data)
        self._marks = [unpacked(numbers[at : at + 4]) for at in range(0, len(numbers), 4)]
        self._are_sensible = sensible(numbers) == len(self._marks)
        self._bytes = sorted({0, *(mark.byte for mark in self._marks if mark.byte <= self._size)})
        # They may be in no order: what lies between two is looked at once, and not for each pair of marks.
        self._lines, self._zeros = self._counted()

    def end_at(self, size: int) -> None:
        """Leaves the zeros behind the lines alone."""
        if size not in self._lines:
            known = self._bytes[bisect.bisect_right(self._bytes, size) - 1]
            self._lines[size] = self._lines[known] + count_between(self._data, known, size)
        self._size = size

    def _counted(self) -> tuple[dict[int, int], dict[int, int]]:
        """For each byte that the marks tell of: how many lines end before it, and in how many of these parts there are zeros."""
        lines, zeros = {0: 0}, {0: 0}
        with memoryview(self._data) as whole:
            for begin, stop in itertools.pairwise(self._bytes):
                with whole[begin:stop] as view:
                    lines[stop] = lines[begin] + count_lines(view)
                    zeros[stop] = zeros[begin] + (nul(view) >= 0)
        return lines, zeros

    def _is_possible(self, before: Mark, mark: Mark) -> bool:
        """Whether there can have been such a mark behind another one: a line has a byte at least, and a segment an end."""
        is_later = before.time <= mark.time <= MOST_TIME and before.lost <= mark.lost
        return is_later and mark.byte < MOST_BYTES and 0 <= mark.line - before.line <= mark.byte - before.byte

    def _fit(self, before: Mark, mark: Mark) -> bool:
        """Whether there are as many lines between two marks as they say, and no hole where there was no zero."""
        if not 0 <= before.byte <= mark.byte <= self._size:
            return False
        are_whole = before.byte == mark.byte or self._data[mark.byte - 1] == 0x0A
        are_plain = not mark.is_plain or self._zeros[before.byte] == self._zeros[mark.byte]
        return are_whole and are_plain and self._lines[mark.byte] - self._lines[before.byte] == mark.line - before.line

    @property
    def is_sound(self) -> bool:
        """Whether all of the marks have the lines that they tell of."""
        begin = self._marks[0]
        is_begin = (begin.line, begin.byte) == (self._first, 0)
        return is_begin and self._are_sensible and all(itertools.starmap(self._fit, itertools.pairwise(self._marks)))

    def byte_behind(self, place: int) -> int:
        """The byte behind the lines of a mark; 0 if there is none of that number."""
        return self._marks[place].byte if place >= 0 else 0

    def last_right(self) -> int:
        """The number of the last mark that is right.

        It has as many lines before it as it says; or as many since the mark before, which may be so too where lines are gone.
        """
        marks = [*enumerate(self._marks)]
        right = [n for n, mark in marks if mark.time and self._has_before(mark)]
        begin = Mark(self._first, 0, 1, 0)
        fitting = [n for n, mark in marks[1:] if self._is_possible(begin, mark) and self._fit(self._marks[n - 1], mark)]
        return max(right + fitting, default=-1)

    def _has_before(self, mark: Mark) -> bool:
        """Whether as many lines end before its byte as a mark says, and one may begin there."""
        is_behind_line = mark.byte == 0 or (mark.byte <= self._size and self._data[mark.byte - 1] == 0x0A)
        return is_behind_line and self._lines[mark.byte] == mark.line - self._first

    def ended(self, place: int, *, stop: int = 0, may_have_holes: bool) -> Recovered:
        """Ends the segment.

        Args:
            place: the number of the last mark that is right; -1: none is.
            stop: the byte behind the last line that there is. If power was lost, it is before what did not reach the disk.
            may_have_holes: whether that may be.
        """
        right = self._marks[place] if place >= 0 else Mark(self._first, 0, 1, 0)
        line = right.line + count_between(self._data, right.byte, stop)
        end = Mark(line, 0, max(right.time, self._changed), right.lost)
        told = [mark for mark in self._missing(place) if self._is_possible(right, mark)]
        all_lines = self._lines[self._size]
        behind = max((mark.line + all_lines - self._lines.get(mark.byte, all_lines) for mark in told), default=line)
        gone = 0
        if may_have_holes:
            gone = max(behind - line, all_lines - self._lines[right.byte] - (line - right.line))
        elif behind > line:
            # Nobody should take their numbers for those of others.
            end = end._replace(line=behind, lost=max(mark.lost for mark in (right, *told)))
        if place == len(self._marks) - 1 and self._are_sensible:
            marks = [*self._marks, end._replace(byte=stop)] if line > right.line else self._marks
        else:
            marks = [*mended(self._numbers, self._blocks(stop), self._first, end, is_end_known=False)]
            if may_have_holes:
                marks = with_holes(marks, self._data, self._numbers, may_be_short=True)
        if marks[-1].line == end.line:
            end = end._replace(time=max(end.time, marks[-1].time), lost=max(end.lost, marks[-1].lost))
        if marks[-1].line != end.line or marks == self._marks:
            marks = []
        unfinished = b"" if gone else self._data[stop : self._size]
        # Readers count the lines of a segment in which some are damaged: none that does not count may be behind them.
        size = stop if gone else self._size
        return Recovered(marks, end, size, self._size, unfinished, max(line - right.line, 0), gone)

    def _missing(self, place: int) -> Iterator[Mark]:
        """The marks behind one whose lines are gone, or overwritten with zeros. Of others, it may be the mark that is wrong."""
        for before, mark in itertools.pairwise(self._marks[max(place, 0) :]):
            if mark.byte > self._size or self._has_hole(before, mark):
                yield mark

    def _has_hole(self, before: Mark, mark: Mark) -> bool:
        if before.byte >= mark.byte or self._zeros[before.byte] == self._zeros[mark.byte]:
            return False
        return mark.is_plain or Holes(self._data, may_be_short=False).find(before.byte, mark.byte) >= 0

    def _blocks(self, stop: int) -> Iterator[bytes]:
        for at in range(0, stop, STEP_BYTES):
            yield self._data[at : min(at + STEP_BYTES, stop)]
