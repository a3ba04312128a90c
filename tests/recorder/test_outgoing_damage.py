"""Lines that are not what they were, on their way to a stream: left out and told, and those between them go."""

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from futebus.recorder import outgoing
from futebus.recorder.outgoing import LineTooLong, following, has
from futebus.spool import LinesDamaged, Spool, SpoolWriter

MIB = 1 << 20

Went = list[tuple[int, bytes]]


def spool(path: Path, *appends: bytes) -> Spool:
    with SpoolWriter(path, "U_x", first_segment_bytes=64 << 20) as writer:
        for lines in appends:
            writer.append(lines)
    return Spool(path)


def hole(spool: Spool, at: int, size: int) -> None:
    """As after a loss of power: zeros."""
    (file,) = spool.path.glob("*.lines")
    with file.open("r+b") as lines:
        lines.seek(at)
        lines.write(bytes(size))


def went(spool: Spool, most: int = MIB, look: Callable[[], object] = lambda: None) -> tuple[Went, list[tuple[int, int]], object]:
    """What goes, line by line; what is told of; and what comes last: where it ends, or what is too long."""
    damage: list[LinesDamaged] = []
    found: Went = []
    for some in following(spool, 0, most, damage.append):
        look()
        if not isinstance(some, list):
            return found, [(each.first, each.stop) for each in damage], some if isinstance(some, int) else (some.line, some.size)
        for run in some:
            lines = run.data.read().splitlines(keepends=True)
            assert len(lines) == run.lines
            found += [(run.line + place, line) for place, line in enumerate(lines)]
    raise AssertionError("it has no end")


def sound(appends: Iterable[bytes], *left_out: int) -> Went:
    return [(number, line) for number, line in enumerate(b"".join(appends).splitlines(keepends=True)) if number not in left_out]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_hole_in_the_midst(tmp_path: Path, place: int) -> None:
    appends = [b"one\ntwo\n", b"three\n", b"four\nfive\n", b"six\n"]
    kept = spool(tmp_path / "spool", *appends)
    hole(kept, sum(map(len, appends[:place])), 3)
    first = b"".join(appends[:place]).count(b"\n")
    stop = first + appends[place].count(b"\n")
    assert went(kept) == (sound(appends, *range(first, stop)), [(first, stop)], 6)


def test_zeros_that_were_written_are_no_damage(tmp_path: Path) -> None:
    appends = [b"one\0\n", b"\0\0\n", b"three\n", b"x" * MIB + b"\0\n", b"five\n"]
    assert went(spool(tmp_path / "spool", *appends), 3 * MIB) == (sound(appends), [], 5)
    kept = spool(tmp_path / "other", *appends)
    hole(kept, sum(map(len, appends[:2])), 6)
    assert went(kept, 3 * MIB) == (sound(appends, 2), [(2, 3)], 5)


def test_a_hole_in_the_tail_of_a_line_that_is_too_long(tmp_path: Path) -> None:
    """It is damaged, and not too long: what comes behind it goes."""
    appends = [b"a\n", b"b" * (MIB + MIB // 2) + b"\n", b"c\n"]
    kept = spool(tmp_path / "spool", *appends)
    assert went(kept) == (sound(appends[:1]), [], (1, len(appends[1])))
    hole(kept, 2 + MIB + MIB // 4, 4096)
    assert went(kept) == (sound(appends, 1), [(1, 2)], 3)


def test_a_hole_in_the_tail_of_a_line_that_is_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    appends = [b"a\n" * 3, b"b" * (5 * MIB) + b"\n", b"c\n"]
    kept = spool(tmp_path / "spool", *appends)
    assert went(kept, 8 * MIB) == (sound(appends), [], 5)
    hole(kept, 6 + 4 * MIB + MIB // 2, 4096)
    assert went(kept, 8 * MIB) == (sound(appends, 3), [(3, 4)], 5)


def test_a_hole_that_has_made_one_line_of_two(tmp_path: Path) -> None:
    """Each of them had room in a message, and what they are now has not."""
    appends = [b"a\n", b"b" * (4 * MIB + MIB // 2) + b"\n", b"y" * (600 << 10) + b"\n", b"c\n"]
    kept = spool(tmp_path / "spool", *appends)
    hole(kept, 2 + 4 * MIB + MIB // 4, MIB // 2)
    found, damage, end = went(kept, 4 * MIB + 3 * MIB // 4)
    assert (found, end) == (sound(appends, 1, 2), 4)
    assert {number for first, stop in damage for number in range(first, stop)} == {1, 2}


def test_of_many_damaged_stretches_few_files_are_open(tmp_path: Path) -> None:
    appends = [b"%07d\n" % number for number in range(1000)]
    kept = spool(tmp_path / "spool", *appends)
    for number in range(1, 1000, 2):
        hole(kept, 8 * number, 7)
    before, most = len(os.listdir("/proc/self/fd")), 0

    def look() -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))

    found, damage, end = went(kept, look=look)
    assert (found, end) == (sound(appends, *range(1, 1000, 2)), 1000)
    assert len(damage) == 500
    assert most < before + 20


@pytest.mark.parametrize("number", [1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_mark_that_leads_anywhere(tmp_path: Path, number: int) -> None:
    appends = [b"a\n", b"b\n", b"c\n", b"d\n"]
    kept = spool(tmp_path / "spool", *appends)
    (index,) = kept.path.glob("*.index")
    with index.open("r+b") as marks:
        marks.seek(32 * 3 + 8)  # where the third line ends
        marks.write(struct.pack("<Q", number))
    found, damage, end = went(Spool(kept.path))
    assert found[:2] == sound(appends[:2])
    assert len(found) + sum(stop - first for first, stop in damage) == end


def test_a_line_too_long_among_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "LONGEST_RUN", 64)
    appends = [b"one\n", b"x" * 200 + b"\n", b"three\n"]
    kept = spool(tmp_path / "spool", *appends)
    assert went(kept, 300) == (sound(appends), [], 3)
    assert went(kept, 200) == (sound(appends[:1]), [], (1, 201))
    assert isinstance(LineTooLong(1, 201), Exception)


def test_a_segment_without_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    appends = [b"%08d\n" % number for number in range(3000)]
    with SpoolWriter(path, "U_x", segment_bytes=1 << 13, first_segment_bytes=1 << 13) as writer:
        for append in appends:
            writer.append(append)
    files = sorted(path.glob("0*.lines"))
    first, behind = int(files[1].stem), int(files[2].stem)
    files[1].unlink()
    found, damage, end = went(Spool(path))
    assert (found, end) == (sound(appends, *range(first, behind)), 3000)
    assert {line for begin, stop in damage for line in range(begin, stop)} == set(range(first, behind))
    for begin in (0, first, first + 1, behind - 2, behind - 1, behind):
        assert has(Spool(path), begin, b"".join(appends[begin : begin + 500]))
    assert not has(Spool(path), behind, b"".join(appends[first : first + 10]))
