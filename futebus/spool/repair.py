"""What a writer that was killed, or a loss of power, leaves behind in a segment."""

import itertools
import mmap

from .layout import Mark, Segment, count_lines

HOLE_BYTES = 512
"""How many zeros in a row are taken for a piece of a file that did not reach the disk: a sector."""


def sound(segment: Segment) -> list[Mark]:
    """The marks of a segment up to the first that makes no sense, as those that a loss of power has left may."""
    marks: list[Mark] = []
    for number in range(len(segment)):
        mark = segment[number]
        if not mark.time or (any(now < then for now, then in zip(mark, marks[-1], strict=True)) if marks else mark.byte):
            break
        marks.append(mark)
    return marks


def with_lines(marks: list[Mark], mapped: mmap.mmap) -> int:
    """How many of these marks have the lines behind them that they tell of."""
    with memoryview(mapped) as whole:
        for number, (before, mark) in enumerate(itertools.pairwise(marks), 1):
            if mark.byte > len(mapped) or (mark.byte > before.byte and whole[mark.byte - 1] != 0x0A):
                return number
            with whole[before.byte : mark.byte] as view:
                if count_lines(view) != mark.line - before.line:
                    return number
    return len(marks)


def clear_behind_hole(mapped: mmap.mmap, start: int) -> None:
    """Clears what lies behind the first piece that did not reach the disk, the line with the hole in it included."""
    hole = mapped.find(bytes(HOLE_BYTES), start)
    stop = mapped.rfind(b"\n", start, hole if hole >= 0 else len(mapped)) + 1 or start
    if size := used(mapped, stop):
        mapped[stop : stop + size] = bytes(size)


def used(mapped: mmap.mmap, start: int) -> int:
    """How many bytes from `start` on are in use: zeros follow to the end."""
    size = 0
    for at in range(start, len(mapped), 1 << 20):
        if rest := mapped[at : at + (1 << 20)].rstrip(b"\0"):
            size = at - start + len(rest)
    return size
