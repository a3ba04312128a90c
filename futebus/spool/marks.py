"""The marks of a segment: what is in its index, and what must have been there if that is damaged. See the package."""

import bisect
import contextlib
import itertools
import mmap
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from .layout import MARK, MARKS, PLAIN, count_between, count_lines
from .repair import Holes

LINE, BYTE, TIME, LOST = range(4)
"""What the numbers of a mark are."""

MOST_HOLES = MARKS // 4
"""How many lines with a hole get a mark of their own. If there are more, all lines count as one append, and none can be read."""


class Mark(NamedTuple):
    """Where an append ends."""

    line: int
    """The offset of the line behind it."""
    byte: int
    """The byte behind it, in its segment."""
    time: int
    """When it was made, nanoseconds since the epoch. Never before the mark before."""
    lost: int
    """How many lines are known to have been lost before it, since the spool began."""
    is_plain: bool = False
    """Whether it is known that the lines of this append hold no NUL byte."""

    def packed(self) -> bytes:
        """As the index has it."""
        return MARK.pack(self.line, self.byte, self.time, self.lost | PLAIN * self.is_plain)


def unpacked(numbers: Sequence[int]) -> Mark:
    """The mark that has these four numbers in the index."""
    line, byte, time, last = numbers
    return Mark(line, byte, time, last & ~PLAIN, last >= PLAIN)


def sensible(numbers: "array[int]") -> int:
    """How many marks make sense, from the first on: each has a time, and no number gets less."""
    times = numbers[TIME::4]
    count = times.index(0) if 0 in times else len(times)
    for column in range(4):
        values = [number & ~PLAIN if column == LOST else number for number in numbers[column : count * 4 : 4]]
        if values != sorted(values):
            count = next(number for number in range(1, count) if values[number] < values[number - 1])
    return count


def mended(numbers: "array[int]", blocks: Iterable[bytes], first: int, end: Mark, *, is_end_known: bool) -> Iterator[Mark]:
    """What the marks of a segment must have been that has been ended, and whose index is damaged.

    The lines tell it. A mark is kept if as many lines end before its byte as it says, counted from the beginning of the segment,
    or as many behind it, counted from the end. If it is not only the index that is damaged, then of the marks between the last
    that is right from the beginning and the first that is right from the end those are kept that fit together. Appends whose
    marks are gone count as one with the next, or if that gets long, as some others.

    Args:
        numbers: what is in the index.
        blocks: the lines, with whatever the file has behind them.
        first: where the segment begins.
        end: where the next one begins, when that was, and how many lines had been lost then. Its byte means nothing.
        is_end_known: whether the last two are known, or only likely.

    Yields:
        The marks, the first of which is the segment's beginning.
    """
    marks = [unpacked(numbers[at : at + 4]) for at in range(0, len(numbers), 4)]
    kept = [number for number, mark in enumerate(marks) if first <= mark.line <= end.line and mark.time]
    counts, behind_holes, steps = _counted(blocks, sorted({marks[number].byte for number in kept}))
    size, total = steps[-1]
    if total != end.line - first:
        counts |= behind_holes
    from_begin = [n for n in kept if counts.get(marks[n].byte) == marks[n].line - first]
    from_end = [n for n in kept if marks[n].byte in counts and total - counts[marks[n].byte] == end.line - marks[n].line]
    fitting = {*from_begin, *from_end}
    if total != end.line - first:
        last = max((marks[n] for n in from_begin), key=lambda mark: mark.byte, default=Mark(first, 0, 0, 0))
        next_ = min((marks[n] for n in from_end), key=lambda mark: mark.byte, default=Mark(end.line, size, 0, 0))
        between = (n for n in kept if last.byte < marks[n].byte < next_.byte and last.line < marks[n].line < next_.line)
        fitting.update(n for n in between if marks[n].byte in counts)
    kept = _rising(sorted(fitting), lambda n: marks[n].line)
    kept = _rising(kept, lambda n: marks[n].byte)
    _mend_times(marks, kept, end, is_end_known=is_end_known)

    before = marks[kept[0]] if kept else end
    before = before._replace(line=first, byte=0, is_plain=False)
    yield before
    known = 0
    for number in [*kept, len(marks)]:
        mark = (
            marks[number]
            if number < len(marks)
            else end._replace(byte=size, time=max(end.time, before.time), lost=max(end.lost, before.lost))
        )
        if (mark.line == before.line) != (mark.byte == before.byte) or (number in (0, len(marks)) and mark.byte == before.byte):
            continue
        if number != known + 1 or number == len(marks):
            # What is known of one of some appends is not known of all.
            mark = mark._replace(is_plain=False)
            begin = counts[before.byte]
            if counts[mark.byte] - begin == mark.line - before.line:
                line = before.line
                for byte, count in steps[bisect.bisect_right(steps, (before.byte, total)) :]:
                    if byte >= mark.byte:
                        break
                    yield mark._replace(line=line + count - begin, byte=byte)
        yield mark
        before, known = mark, number


def with_holes(marks: list[Mark], data: mmap.mmap | bytes, numbers: "array[int]", *, may_be_short: bool) -> list[Mark]:
    """Marks lines that may have a hole as if they had no zeros, each as one append: who reads them is told, and the others stay.

    Where more lines are missing, it cannot be told which: that stays one append, whose lines do not fit.

    Args:
        marks: of a segment, found from its lines.
        data: these.
        numbers: what is in its index. Of an append that it tells of it is known whether it has zeros.
        may_be_short: as for `Holes`.
    """
    sought = Holes(data, may_be_short=may_be_short)
    place, holes = sought.find(0, marks[-1].byte), 0
    if place < 0:
        return marks
    told = {*itertools.pairwise(zip(numbers[LINE::4], numbers[BYTE::4], strict=True))}
    found = [marks[0]]
    for previous, mark in itertools.pairwise(marks):
        is_told = (previous[:2], mark[:2]) in told
        if is_told or count_between(data, previous.byte, mark.byte) != mark.line - previous.line:
            found.append(mark)
            continue
        while (before := found[-1]).byte < mark.byte:
            if place < before.byte:
                place = sought.find(before.byte, marks[-1].byte)
                place = len(data) if place < 0 else place
            if place >= mark.byte:
                found.append(mark)
                break
            begin = data.rfind(b"\n", before.byte, place) + 1 or before.byte
            stop = data.find(b"\n", place) + 1
            if begin > before.byte:
                found.append(mark._replace(line=before.line + count_between(data, before.byte, begin), byte=begin))
            found.append(mark._replace(line=found[-1].line + 1, byte=stop, is_plain=True))
            holes += 1
            if holes > MOST_HOLES:
                return [marks[0], marks[-1]._replace(is_plain=True)]
    return found


def found_again(
    numbers: "array[int]",
    blocks: Callable[[], Generator[bytes, None, None]],
    first: int,
    end: Mark,
    *,
    is_end_known: bool,
    may_be_short: bool,
) -> list[Mark]:
    """The marks of a segment as `mended` finds them, and of lines with a hole as `with_holes` does.

    Args:
        numbers: as for `mended`.
        blocks: gives the lines, with whatever the file has behind them, each time from the beginning on; all but the last block
            have whole sectors.
        first: as for `mended`.
        end: the same.
        is_end_known: the same.
        may_be_short: as for `Holes`.
    """
    may_have_holes = False

    def looked_at(blocks: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal may_have_holes
        for block in blocks:
            may_have_holes = may_have_holes or Holes(block, may_be_short=True).find(0, len(block)) >= 0
            yield block

    # Closed here and not when they are forgotten: an interrupt would be forgotten with them.
    with contextlib.closing(blocks()) as coming:
        marks = [*mended(numbers, looked_at(coming), first, end, is_end_known=is_end_known)]
    if may_have_holes:  # seldom: it takes all of it in memory
        with contextlib.closing(blocks()) as coming:
            marks = with_holes(marks, b"".join(coming), numbers, may_be_short=may_be_short)
    return marks


def _counted(blocks: Iterable[bytes], places: list[int]) -> tuple[dict[int, int], dict[int, int], list[tuple[int, int]]]:
    """Counts lines.

    Args:
        blocks: the lines.
        places: bytes where a line may begin, in order.

    Returns:
        How many lines end before those of the places that are behind a line; before those that are behind a zero, which may be
        the end of a hole; and before some others in order, about a block from each other, the last of them behind the last line.
    """
    counts, behind_zeros, steps = {0: 0}, dict[int, int](), [(0, 0)]
    coming = iter(places)
    place = next(coming, None)
    at = lines = 0
    previous = b"\n"
    for block in blocks:
        view, counted = memoryview(block), 0
        while place is not None and place < at + len(block):
            last = block[place - at - 1 : place - at] if place > at else previous
            if last in (b"\n", b"\0"):
                lines += count_lines(view[counted : place - at])
                counted = place - at
                (counts if last == b"\n" else behind_zeros)[place] = lines
            place = next(coming, None)
        behind = block.rfind(b"\n") + 1
        lines += count_lines(view[counted:])
        if behind:
            steps.append((at + behind, lines))
        at += len(block)
        previous = block[-1:]
    # What lies behind the last line is no line: a writer that was killed may have left it.
    size, total = steps[-1]
    counts[size] = total
    return counts, {place: count for place, count in behind_zeros.items() if place < size}, steps


def _mend_times(marks: list[Mark], kept: list[int], end: Mark, *, is_end_known: bool) -> None:
    """Gives those a likely time, and a likely number of lines lost, that have none that fits to those of the others."""
    for name in ("time", "lost"):
        values = {n: getattr(marks[n], name) for n in kept}
        most = getattr(end, name)
        right = {*_rising([n for n in kept if not is_end_known or values[n] <= most], values.__getitem__)}
        most = max((values[n] for n in right), default=most) if not is_end_known else most
        for number in reversed(kept):
            if number in right:
                most = values[number]
            marks[number] = marks[number]._replace(**{name: most})


def _rising(items: list[int], value: Callable[[int], int]) -> list[int]:
    """The most of these items, in their order, among whose values none is less than the one before."""
    ends: list[int] = []  # the least value that so many can end with,
    last: list[int] = []  # and whose it is
    before: dict[int, int] = {}
    for item in items:
        place = bisect.bisect_right(ends, value(item))
        if place:
            before[item] = last[place - 1]
        ends[place : place + 1] = [value(item)]
        last[place : place + 1] = [item]
    found = last[-1:]
    while found and found[-1] in before:
        found.append(before[found[-1]])
    return found[::-1]
