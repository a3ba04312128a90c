"""What is made of the newest segment when its marks and its lines do not fit together, or power was lost since it was written.

The one rule: no line that counts is changed or moved. The segment is ended as it is, with the marks that it must have had, and
the next one begins there. So whoever opens the spool next finds it sound, and readers are told which lines are damaged.
"""

import contextlib
import itertools
import mmap
import os
import time
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from ..core.lines import nul
from .layout import MARKS, count_lines, is_whole
from .marks import Mark, mended, sensible, unpacked
from .repair import HOLE_BYTES, STEP_BYTES, last_changed, used

MOST_HOLES = MARKS // 4
"""How many lines with a hole get a mark of their own. If there are more, all lines count as one append, and none can be read."""


MOST_BYTES = 1 << 32
"""A mark that tells of more of them is none: no segment gets so long."""


class Recovered(NamedTuple):
    """A segment that has been ended."""

    marks: list[Mark]
    """What its index must have; nothing if it has that, or if readers find out more from what it has."""
    end: Mark
    """Where the next segment begins."""
    size: int
    """How long its file of lines must be."""
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
        last = _Last(memoryview(b""), numbers, first, last_changed(status))
        return None if last.is_sound else last.ended(last.last_right(), may_have_holes=may_have_holes)
    with mapped_to_read(lines) as mapped:
        with memoryview(mapped) as all_of_it:
            is_sound = _Last(all_of_it, numbers, first, last_changed(status)).is_sound
        if is_sound and not may_have_holes:
            return None  # as mostly: nothing is looked at twice
        known = numbers[-3] if is_sound else 0
        size = known + used(mapped, known)  # where zeros follow to the end, there is no hole
        with memoryview(mapped) as all_of_it, all_of_it[:size] as whole:
            last = _Last(whole, numbers, first, last_changed(status))
            place = len(numbers) // 4 - 1 if is_sound else last.last_right()
            begin = last.byte_behind(place)
            hole = mapped.find(bytes(HOLE_BYTES), begin, size) if may_have_holes else -1
            if hole < 0 and is_sound:
                return None
            stop = mapped.rfind(b"\n", begin, size if hole < 0 else hole) + 1 or begin
            return last.ended(place, stop=stop, may_have_holes=may_have_holes)


@contextlib.contextmanager
def mapped_to_read(file: int) -> Iterator[mmap.mmap]:
    """A file that is not empty, mapped."""
    mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
    try:
        yield mapped
    finally:
        with contextlib.suppress(BufferError):  # what was interrupted may still have a view of it
            mapped.close()


class _Last:
    """The newest segment.

    Args:
        whole: its lines, without the zeros behind.
        numbers: what is in its index.
        first: the offset of its first line.
        changed: when its lines were last written.
    """

    def __init__(self, whole: memoryview, numbers: "array[int]", first: int, changed: int) -> None:
        self._whole, self._numbers, self._first, self._changed = whole, numbers, first, changed
        self._marks = [unpacked(numbers[at : at + 4]) for at in range(0, len(numbers), 4)]
        self._are_sensible = sensible(numbers) == len(self._marks)

    def _is_possible(self, before: Mark, mark: Mark) -> bool:
        """Whether there can have been such a mark behind another one: a line has a byte at least, and a segment an end."""
        is_later = before.time <= mark.time <= max(time.time_ns(), self._changed) and before.lost <= mark.lost
        return is_later and mark.byte < MOST_BYTES and 0 <= mark.line - before.line <= mark.byte - before.byte

    def _fit(self, before: Mark, mark: Mark) -> bool:
        """Whether there are as many lines between two marks as they say."""
        if not 0 <= before.byte <= mark.byte <= len(self._whole):
            return False
        with self._whole[before.byte : mark.byte] as view:
            return is_whole(view, mark.line - before.line, mark.is_plain)

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
        counts = self._counts()
        marks = [*enumerate(self._marks)]
        right = [n for n, mark in marks if mark.time and counts.get(mark.byte, -1) == mark.line - self._first]
        begin = Mark(self._first, 0, 1, 0)
        fitting = [n for n, mark in marks[1:] if self._is_possible(begin, mark) and self._fit(self._marks[n - 1], mark)]
        return max(right + fitting, default=-1)

    def _counts(self) -> dict[int, int]:
        """How many lines end before the bytes that the marks tell of, where a line may begin."""
        counts, at, lines = {}, 0, 0
        for byte in sorted({mark.byte for mark in self._marks if mark.byte <= len(self._whole)}):
            lines += count_lines(self._whole[at:byte])
            at = byte
            if byte == 0 or self._whole[byte - 1] == 0x0A:
                counts[byte] = lines
        return counts

    def ended(self, place: int, *, stop: int = 0, may_have_holes: bool) -> Recovered:
        """Ends the segment.

        Args:
            place: the number of the last mark that is right; -1: none is.
            stop: the byte behind the last line that there is. If power was lost, it is before what did not reach the disk.
            may_have_holes: whether that may be.
        """
        right = self._marks[place] if place >= 0 else Mark(self._first, 0, 1, 0)
        line = right.line + count_lines(self._whole[right.byte : stop])
        end = Mark(line, 0, max(right.time, self._changed), right.lost)
        told = [mark for mark in self._missing(place) if self._is_possible(right, mark)]
        behind = max((mark.line + count_lines(self._whole[mark.byte :]) for mark in told), default=line)
        gone = 0
        if may_have_holes:
            gone = max(behind - line, count_lines(self._whole[stop:]))
        elif behind > line:
            # Nobody should take their numbers for those of others.
            end = end._replace(line=behind, lost=max(mark.lost for mark in (right, *told)))
        if place == len(self._marks) - 1 and self._are_sensible:
            marks = [*self._marks, end._replace(byte=stop)] if line > right.line else self._marks
        else:
            marks = [*mended(self._numbers, self._blocks(stop), self._first, end, is_end_known=False)]
        if marks[-1].line == end.line:
            end = end._replace(time=max(end.time, marks[-1].time), lost=max(end.lost, marks[-1].lost))
        if marks[-1].line != end.line or marks == self._marks:
            marks = []
        unfinished = b"" if gone else self._whole[stop:].tobytes()
        # Readers count the lines of a segment in which some are damaged: none that does not count may be behind them.
        size = stop if gone else len(self._whole)
        return Recovered(marks, end, size, unfinished, max(line - right.line, 0), gone)

    def _missing(self, place: int) -> Iterator[Mark]:
        """The marks behind one whose lines are gone, or overwritten with zeros. Of others, it may be the mark that is wrong."""
        for before, mark in itertools.pairwise(self._marks[max(place, 0) :]):
            with self._whole[before.byte : mark.byte] as view:
                has_zeros = nul(view) >= 0 and (mark.is_plain or bytes(HOLE_BYTES) in view.tobytes())
            if mark.byte > len(self._whole) or has_zeros:
                yield mark

    def _blocks(self, stop: int) -> Iterator[bytes]:
        for at in range(0, stop, STEP_BYTES):
            yield self._whole[at : min(at + STEP_BYTES, stop)].tobytes()


def with_holes(marks: list[Mark], mapped: mmap.mmap) -> list[Mark]:
    """Marks lines that may have a hole as if they had no zeros, each as one append: who reads them is told, and the others stay.

    Args:
        marks: of a segment whose own marks are lost, as power was.
        mapped: its lines.
    """
    found = [marks[0]]
    hole, holes = -1, 0
    for mark in marks[1:]:
        while (before := found[-1]).byte < mark.byte:
            if hole < before.byte:
                hole = mapped.find(bytes(HOLE_BYTES), before.byte)
                hole = len(mapped) if hole < 0 else hole
            if hole >= mark.byte:
                found.append(mark)
                break
            begin = mapped.rfind(b"\n", before.byte, hole) + 1 or before.byte
            stop = mapped.find(b"\n", hole) + 1
            if begin > before.byte:
                with memoryview(mapped) as whole, whole[before.byte : begin] as view:
                    found.append(mark._replace(line=before.line + count_lines(view), byte=begin))
            found.append(mark._replace(line=found[-1].line + 1, byte=stop, is_plain=True))
            holes += 1
            if holes > MOST_HOLES:
                return [marks[0], marks[-1]._replace(is_plain=True)]
    return found
