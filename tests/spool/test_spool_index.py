"""Indexes that are damaged, of segments that have been ended: their lines tell where they are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from futebus.spool import LinesDamaged, Spool, SpoolWriter
from futebus.spool.layout import MARK, segment_firsts
from futebus.spool.segment import BLOCK_BYTES, Segment

from .spools import files

EACH = 50
"""How many lines each append has."""

SIZE = 1 << 14

LINE, BYTE, TIME = range(3)


def line(number: int) -> bytes:
    """None of them is another one's end, or as long as all."""
    return b"line %d says something of %d\n" % (number, number**3)


LINES = [line(number) for number in range(3000)]


def opened(path: Path) -> SpoolWriter:
    return SpoolWriter(path, "B_x", segment_bytes=SIZE, first_segment_bytes=SIZE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A spool of some segments."""
    path = tmp_path / "spool"
    with opened(path) as writer:
        for begin in range(0, 3000, EACH):
            writer.append(b"".join(LINES[begin : begin + EACH]))
    return path


def changed(index: Path, change: Callable[[list[list[int]]], None]) -> None:
    marks = [[*mark] for mark in MARK.iter_unpack(index.read_bytes())]
    change(marks)
    index.write_bytes(b"".join(MARK.pack(*mark) for mark in marks))


def found(path: Path, size: int, begin: int = 0, end: int = 3000) -> tuple[dict[int, bytes], list[int]]:
    """The lines by their numbers, and the numbers of those that are told to be damaged."""
    lines: dict[int, bytes] = {}
    damage: list[int] = []

    def note(what: LinesDamaged) -> None:
        damage.extend(range(what.first, what.stop))

    for piece in Spool(path).pieces(begin, end, size, on_damage=note):
        for part in piece.sound(note):
            here = part.read().splitlines(keepends=True)
            assert len(here) == part.lines == sum(count for count, _ in part.times)
            assert not lines.keys() & {*range(part.first, part.first + part.lines)}
            lines |= dict(enumerate(here, part.first))
    return lines, damage


def everything(path: Path, expected: list[bytes] = LINES) -> None:
    """Every line is found, under its number."""
    for size in (1, 100, 1000, 10_000, 1 << 20):
        assert found(path, size, end=len(expected)) == (dict(enumerate(expected)), []), size
    spool = Spool(path)
    for begin in range(0, len(expected), 97):
        end = min(begin + 30, len(expected))
        assert b"".join(piece.read() for piece in spool.pieces(begin, end)) == b"".join(expected[begin:end])


@pytest.mark.parametrize("place", [1, 3, -2, -1])
@pytest.mark.parametrize("column", [LINE, BYTE, TIME])
def test_one_wrong_bit_in_a_mark(path: Path, column: int, place: int) -> None:
    """Also one with which all still fits together, but for the front of the first line of an append."""
    index = files(path, ".index")[1]
    sound = index.read_bytes()
    for bit in (0, 1, 2, 4, 9, 40, 63):

        def flip(marks: list[list[int]], bit: int = bit) -> None:
            marks[place][column] ^= 1 << bit

        changed(index, flip)
        for size in (1, 1000, 1 << 20):
            assert found(path, size) == (dict(enumerate(LINES)), []), bit
        index.write_bytes(sound)


def test_marks_that_are_all_wrong_in_the_same_way(path: Path) -> None:
    """They fit to each other, but not to the lines."""

    def shift(marks: list[list[int]]) -> None:
        for mark in marks:
            mark[LINE] |= 1

    for index in files(path, ".index")[:-1]:
        changed(index, shift)
    everything(path)


def test_two_marks_of_the_same_line(path: Path) -> None:
    """The lines hold a zero, so each append is looked at."""
    lines = [b"\0" + text if number % 100 == 0 else text for number, text in enumerate(LINES)]
    other = path.with_name("other")
    with opened(other) as writer:
        for begin in range(0, 3000, EACH):
            writer.append(b"".join(lines[begin : begin + EACH]))

    def same(marks: list[list[int]]) -> None:
        marks[3][LINE] = marks[4][LINE]

    changed(files(other, ".index")[1], same)
    everything(other, lines)


@pytest.mark.parametrize("gone", [range(100), range(1, 4), range(2, 3)])
def test_lines_that_hold_a_zero(path: Path, gone: range) -> None:
    """Of appends that count as one, it is not known that they hold none."""
    lines = [text.replace(b"says", b"\0") if number % 70 == 0 else text for number, text in enumerate(LINES)]
    other = path.with_name("other")
    with opened(other) as writer:
        for begin in range(0, 3000, EACH):
            writer.append(b"".join(lines[begin : begin + EACH]))

    def clear(marks: list[list[int]]) -> None:
        marks[gone.start : gone.stop] = [[0] * 4 for _ in marks[gone.start : gone.stop]]

    changed(files(other, ".index")[1], clear)
    everything(other, lines)


@pytest.mark.parametrize("behind", [bytes(5000), b"a line that goes on in the next segm", b"a line" + bytes(4000)])
@pytest.mark.parametrize("count", [0, 3])
def test_a_segment_whose_writer_was_killed_as_it_ended_it(path: Path, behind: bytes, count: int) -> None:
    """So it has the room still that it had for more lines."""
    lines, index = files(path, ".lines")[1], files(path, ".index")[1]
    with lines.open("ab") as file:
        file.write(behind)
    sound = index.read_bytes()
    index.write_bytes(sound + bytes(4096))
    everything(path)
    index.write_bytes(sound[: count * MARK.size] + bytes(4096))
    everything(path)


@pytest.mark.parametrize("column", [BYTE, TIME])
@pytest.mark.parametrize("number", [1, 1 << 45])
def test_retention_takes_no_more_for_a_damaged_mark(path: Path, column: int, number: int) -> None:
    for index in files(path, ".index")[:-1]:

        def harm(marks: list[list[int]]) -> None:
            marks[-1][column] = number

        changed(index, harm)
    with opened(path) as writer:
        assert writer.remove_old(size=sum(map(len, LINES))) == 0
        assert writer.remove_old(age=3600) == 0
    assert Spool(path).offset_at(0) == 0
    everything(path)


def test_retention_by_age_when_appends_are_as_long_as_segments(tmp_path: Path) -> None:
    """Of two marks, either may be the one that is wrong."""
    path = tmp_path / "spool"
    with opened(path) as writer:
        for begin in range(0, 3000, 300):
            writer.append(b"".join(LINES[begin : begin + 300]))

    def harm(marks: list[list[int]]) -> None:
        marks[-1][TIME] = 1

    for index in files(path, ".index")[:-1]:
        changed(index, harm)
    with opened(path) as writer:
        assert writer.remove_old(age=3600) == 0
    everything(path)


def test_a_long_segment_without_marks_costs_no_more_the_more_often_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lines = tmp_path / "spool", 20_000
    with SpoolWriter(path, "B_x", first_segment_bytes=8 << 20) as writer:
        for _ in range(2):
            for begin in range(0, lines, 1000):
                writer.append(b"".join(b"%399d\n" % number for number in range(begin, begin + 1000)))
    index, stop = files(path, ".index")[0], int(files(path, ".index")[1].stem)
    index.write_bytes(b"")
    read, real = 0, os.pread

    def counting(descriptor: int, length: int, at: int) -> bytes:
        nonlocal read
        data = real(descriptor, length, at)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    spool = Spool(path)
    pieces = [*spool.pieces(0, stop, 1000)]
    assert sum(piece.lines for piece in pieces) == stop
    assert all(piece.stop - piece.start <= 2 * BLOCK_BYTES for piece in pieces)
    for begin in range(0, stop - 500, 500):
        assert spool.offset_after(begin, 400 * 500) == begin + 500
    assert read < (stop // 500 + 20) * 3 * BLOCK_BYTES


def test_who_follows_finds_the_end_though_the_index_of_a_segment_that_has_just_ended_is_damaged(path: Path) -> None:
    index = files(path, ".index")[-1]
    harms: list[Callable[[bytes], bytes]] = [
        lambda sound: b"",
        lambda sound: bytes(len(sound)),
        lambda sound: b"\xff" * len(sound),
        lambda sound: sound[: 2 * MARK.size],
        lambda sound: os.urandom(len(sound)),
    ]
    spools = [Spool(path) for _ in harms]
    assert [spool.end for spool in spools] == [3000] * len(harms)
    with opened(path) as writer:
        while files(path, ".index")[-1] == index:
            writer.append(b"more\n" * 100)
        sound = index.read_bytes()
        for harm, spool in zip(harms, spools, strict=True):
            index.write_bytes(harm(sound))
            assert spool.end == writer.end
            assert spool.end == writer.end
        index.write_bytes(sound)


def test_a_last_segment_that_has_lost_marks_ends_earlier_and_always_in_the_same_place(path: Path) -> None:
    """As one that somebody has put back."""
    index, spool = files(path, ".index")[-1], Spool(path)
    assert spool.end == 3000
    sound = index.read_bytes()
    index.write_bytes(sound[: 4 * MARK.size])
    ends = {spool.end for _ in range(10)}
    assert ends == {Spool(path).end} == {int(index.stem) + 3 * EACH}
    index.write_bytes(sound)
    assert spool.end == 3000


def test_a_list_that_lacks_a_segment_damages_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes while a directory is read may be missing in what was read, and the next one not."""
    lacks = True
    missing = int(files(path, ".index")[2].stem)

    def listed(directory: Path) -> list[int]:
        nonlocal lacks
        found = [first for first in segment_firsts(directory) if not lacks or first != missing]
        lacks = False
        return found

    monkeypatch.setattr("futebus.spool.reader.segment_firsts", listed)
    spool = Spool(path)
    pieces = [*spool.pieces(missing - 10, missing + 10)]
    assert b"".join(piece.read() for piece in pieces) == b"".join(LINES[missing - 10 : missing + 10])


def test_a_segment_that_seemed_to_be_ended_goes_on(path: Path) -> None:
    """A writer that cannot end it, as the disk is full, takes the next one back."""
    last, spool = files(path, ".index")[-1], Spool(path)
    begin = int(last.stem)
    next_ = path / f"{3000:020d}.index"
    next_.write_bytes(MARK.pack(3000, 0, 1 << 60, 0))
    assert b"".join(piece.read() for piece in spool.pieces(begin, 3000)) == b"".join(LINES[begin:])
    next_.unlink()
    with opened(path) as writer:
        writer.append(b"more\n")
        assert spool.end == 3001
        assert b"".join(piece.read() for piece in spool.pieces(begin, 3001)) == b"".join(LINES[begin:]) + b"more\n"


def test_the_marks_that_are_found_are_those_that_were_there(path: Path) -> None:
    index, stop = files(path, ".index")[1], int(files(path, ".index")[2].stem)
    first = int(index.stem)
    sound = Segment(path, first, stop=stop)
    before = [sound[number] for number in range(len(sound))]
    before[0] = before[0]._replace(is_plain=False)  # there are no lines that it would be said of
    assert sound.mend()
    assert [sound[number] for number in range(len(sound))] == before
    assert not sound.mend()
    # Of one that is gone, all but where it was; of a wrong time, that it was no later than the next.
    changed(index, lambda marks: marks.__setitem__(2, [0] * 4))
    changed(index, lambda marks: marks[5].__setitem__(TIME, marks[-1][TIME] + 1))
    mended = Segment(path, first, stop=stop)
    assert mended.is_mended or mended.mend()
    expected = [*before[:2], before[3]._replace(is_plain=False), before[4], before[5]._replace(time=before[6].time), *before[6:]]
    assert [mended[number] for number in range(len(mended))] == expected
