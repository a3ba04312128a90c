"""What is left in a spool by a writer that was killed, or by a loss of power, and what the next writer makes of it."""

import contextlib
import errno
import itertools
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from futebus.spool import LinesDamaged, NotASpool, Spool, SpoolLock, SpoolWriter, layout
from futebus.spool.files import Directory
from futebus.spool.layout import MARK, SpoolStopped
from futebus.spool.repair import STEP_BYTES, TICK_NS, Holes
from futebus.spool.segment import Segment

from .spools import SMALL, files, killed, last_file, lines_of, numbered, path, restart, small

__all__ = ["path"]


# ---------------------------------------------------------------------------------------------- after a kill


def test_what_has_no_mark_yet_is_found(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 10))
        copy = killed(path)
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(10 * 100)
        file.write(numbered(10, 15) + b"half a")
    assert Spool(copy).end == 10
    again = killed(copy)
    with small(copy) as writer:
        assert (writer.recovered, writer.torn, writer.end) == (5, 6, 15)
        writer.append(numbered(15, 16))
    assert lines_of(copy) == numbered(0, 16)
    with small(again, is_continued=True) as writer:
        assert (writer.recovered, writer.torn, writer.end) == (5, 0, 15)
        writer.append(b" line\n")
    assert lines_of(again) == numbered(0, 15) + b"half a line\n"


def test_a_line_that_is_not_finished_survives_an_orderly_end(path: Path) -> None:
    for part in (b"one\ntw", b"o, which is lo", b"ng"):
        with small(path, is_continued=True) as writer:
            writer.append(part)
    with small(path, is_continued=True) as writer:
        writer.append(b"\n")
    assert lines_of(path) == b"one\ntwo, which is long\n"


def test_a_line_goes_through_more_than_a_segment(path: Path) -> None:
    parts = [b"%d" % (number % 10) * 7000 for number in range(40)]
    with small(path) as writer:
        writer.append(b"first\n")
        for part in parts:
            writer.append(part)
            copy = killed(path)
            with small(copy, is_continued=True) as other:
                other.append(b"\n")
            assert lines_of(copy).startswith(b"first\n0000")
            assert lines_of(copy).endswith(part + b"\n")
            shutil.rmtree(copy)
        writer.append(b"\nlast\n")
    assert lines_of(path) == b"first\n" + b"".join(parts) + b"\nlast\n"


def test_a_segment_that_was_not_begun_altogether_is_begun_again(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 10))
        copy = killed(path)
    (copy / f"{10:020d}.lines").write_bytes(bytes(SMALL))
    (copy / f"{10:020d}.new").write_bytes(b"")
    with small(copy) as writer:
        writer.append(numbered(10, 2000))
    assert lines_of(copy) == numbered(0, 2000)
    assert not list(copy.glob("*.new"))


# ---------------------------------------------------------------------------------------------- after a loss of power


def damaged(path: Path) -> Path:
    """A spool of several segments; the last has the lines from 1200 on, ten in each append, and was not closed."""
    with SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL) as writer:
        writer.append(numbered(0, 1200))
        for begin in range(1200, 1400, 10):
            writer.append(numbered(begin, begin + 10))
        assert Spool(path).begin == 0
        return killed(path)


def found(path: Path) -> tuple[bytes, list[int]]:
    """The lines that readers get, and the numbers of those of which they are told that they do not."""
    damage: list[LinesDamaged] = []
    spool = Spool(path)
    pieces = spool.pieces(spool.begin, spool.end, 1 << 20, on_damage=damage.append)
    lines = b"".join(part.read() for piece in pieces for part in piece.sound(damage.append))
    return lines, [number for each in damage for number in range(each.first, each.stop)]


NO_MARKS = {"missing": None, "empty": b"", "zeros": bytes(4096), "noise": bytes(range(1, 65))}


@pytest.mark.parametrize("content", NO_MARKS.values(), ids=NO_MARKS)
@pytest.mark.parametrize("is_alone", [False, True], ids=["", "the only segment"])
def test_the_lines_of_a_segment_without_marks_are_found_again(path: Path, content: bytes | None, is_alone: bool) -> None:
    copy = damaged(path)
    begin = 1200 if is_alone else 0
    if is_alone:
        with small(copy) as writer:
            writer.note_lost(3)
            writer.retain(offset=begin)
    spool = Spool(copy)
    lost = spool.lost_before(1201)
    index = last_file(copy, ".index")
    if content is None:
        index.unlink()
    else:
        index.write_bytes(content)
    if is_alone:
        with pytest.raises(NotASpool, match="has no segments"):
            _ = Spool(copy).end
    else:
        assert Spool(copy).end == 1200
    with small(copy) as writer:
        assert writer.damage == writer.changed == [f"{index} is damaged; its lines are found without it"]
        assert (writer.end, writer.lost) == (1400, lost)
        writer.append(numbered(1400, 1410))
    with small(copy) as writer:
        assert not writer.damage
    again = Spool(copy)
    assert again.id == spool.id
    assert lines_of(again) == numbered(begin, 1410)
    assert again.offset_at(again.last.time + 1) == 1410


def test_what_is_behind_a_hole_is_kept_where_there_are_no_marks(path: Path) -> None:
    copy = damaged(path)
    last_file(copy, ".index").write_bytes(b"")
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(5_050)
        file.write(bytes(1000))
    restart(copy)
    with small(copy) as writer:
        assert writer.end == 1390, "eleven lines have got one hole"
        writer.append(numbered(1390, 1400))
    assert lines_of(copy, 0, 1250) == numbered(0, 1250)
    with pytest.raises(LinesDamaged, match="its line 1250 is lost"):
        lines_of(copy, 1250, 1251)
    assert lines_of(copy, 1251) == numbered(1261, 1400) + numbered(1390, 1400)


@pytest.mark.parametrize("number", [0, -1])
def test_lines_that_cannot_be_read_now_are_not_thrown_away(path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    copy = damaged(path)
    sorted(copy.glob("*.index"))[number].unlink()

    def fail(descriptor: int, size: int, at: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".lines"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, size, at)

    read = os.pread
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(OSError, match="Input/output error"):
        small(copy)
    monkeypatch.undo()
    small(copy).close()
    assert lines_of(copy) == numbered(0, 1400)


@pytest.mark.parametrize("gone", [(-1,), (-2, -1)], ids=["the last", "the last two"])
@pytest.mark.parametrize("content", [None, bytes(4096)], ids=["missing", "zeros"])
def test_what_was_lost_is_no_less_afterwards(path: Path, gone: tuple[int, ...], content: bytes | None) -> None:
    with SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL) as writer:
        writer.append(numbered(0, 300))
        writer.note_lost(7)
        for begin in range(300, 3000, 50):
            writer.append(numbered(begin, begin + 50))
    indexes = sorted(path.glob("*.index"))
    last = Spool(path).last
    for number in gone:
        if content is None:
            indexes[number].unlink()
        else:
            indexes[number].write_bytes(content)
    with small(path) as writer:
        assert (writer.end, writer.lost) == (3000, 7)
    spool = Spool(path)
    assert [spool.lost_before(offset) for offset in range(301, 3001)] == [7] * 2700
    assert spool.last.time >= last.time
    assert lines_of(spool) == numbered(0, 3000)


@pytest.mark.parametrize("moment", [0, 4_000_000_000], ids=["in 1970", "in 2096"])
def test_the_time_of_a_file_is_not_believed_if_it_cannot_be_true(path: Path, moment: int) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 10))
    last_file(path, ".index").unlink()
    os.utime(last_file(path, ".lines"), (moment, moment))
    with small(path) as writer:
        assert writer.end == 10
        writer.append(numbered(10, 20))
    assert lines_of(path) == numbered(0, 20)
    assert 0 < Spool(path).last.time <= time.time_ns()


@pytest.mark.parametrize("number", [-2, -1], ids=["in the middle", "the last"])
def test_a_segment_without_an_index_is_found_though_the_one_before_has_a_wrong_mark(path: Path, number: int) -> None:
    """That mark tells of lines that are in the next one."""
    with SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL) as writer:
        for begin in range(0, 3000, 50):
            writer.append(numbered(begin, begin + 50))
    indexes = files(path, ".index")
    indexes[number].unlink()
    with indexes[number - 1].open("r+b") as file:
        file.seek(-MARK.size, os.SEEK_END)
        line, *rest = MARK.unpack(file.read())
        file.seek(-MARK.size, os.SEEK_END)
        file.write(MARK.pack(line | 1 << 20, *rest))
    with small(path) as writer:
        assert (writer.end, writer.changed) == (3000, [f"{indexes[number]} is damaged; its lines are found without it"])
    assert lines_of(path) == numbered(0, 3000)


def test_lines_that_are_found_again_are_as_old_as_their_files(path: Path) -> None:
    with SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL) as writer:
        for begin in range(0, 3000, 50):
            writer.append(numbered(begin, begin + 50))
    moments = []
    for number, (index, lines) in enumerate(zip(files(path, ".index"), files(path, ".lines"), strict=True)):
        index.unlink()
        moments.append(1_700_000_000_000_000_000 + number * 86_400_000_000_000)
        os.utime(lines, ns=(moments[-1], moments[-1]))
    small(path).close()
    times = [Segment(path, int(index.stem))[-1].time for index in files(path, ".index")]
    assert times == [moment + TICK_NS for moment in moments]


def test_lines_that_are_found_again_are_not_one_append(path: Path) -> None:
    """A reader has each whole in its memory, also to find one line."""
    with SpoolWriter(path, "B_x") as writer:
        for begin in range(0, 40_000, 1000):
            writer.append(numbered(begin, begin + 1000))
    last_file(path, ".index").unlink()
    SpoolWriter(path, "B_x").close()
    marks = [*MARK.iter_unpack(last_file(path, ".index").read_bytes())]
    sizes = [after[1] - before[1] for before, after in itertools.pairwise(marks)]
    assert len(sizes) == 4
    assert max(sizes) < 1.1 * STEP_BYTES
    assert lines_of(path) == numbered(0, 40_000)


def test_who_does_not_want_to_wait_any_longer_opens_no_spool(path: Path) -> None:
    """The next one goes on where this one stopped."""
    copy = damaged(path)
    with small(copy) as writer:
        writer.append(numbered(1400, 3000))
    indexes = files(copy, ".index")
    for index in indexes:
        index.unlink()
    answers = [True, True, False]
    with pytest.raises(SpoolStopped):
        SpoolWriter(copy, "B_x", goes_on=lambda: answers.pop(0))
    assert [index.exists() for index in indexes] == [False] * (len(indexes) - 2) + [True] * 2
    small(copy).close()
    assert lines_of(copy) == numbered(0, 3000)


def test_many_segments_without_an_index_cost_no_more_each(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SpoolWriter(path, "B_x", segment_bytes=1000, first_segment_bytes=1000) as writer:
        for begin in range(0, 3000, 10):
            writer.append(numbered(begin, begin + 10))
    indexes = files(path, ".index")
    assert len(indexes) > 250
    for index in indexes[:100]:
        index.write_bytes(b"")
    for index in indexes[100:]:
        index.unlink()
    reads = []

    def opening(file: Path, *given: object) -> int:
        reads.append(file)
        return opened(file, *given)  # type: ignore[arg-type]

    opened = layout.open_to_read
    monkeypatch.setattr("futebus.spool.segment.open_to_read", opening)
    small(path).close()
    assert len(reads) < 10 * len(indexes)
    assert lines_of(path) == numbered(0, 3000)


def a_link(file: Path) -> None:
    file.symlink_to("/etc/hostname")


def a_fifo(file: Path) -> None:
    os.mkfifo(file)


def lines(file: Path) -> None:
    file.write_bytes(b"x\n")


STRANGE = {a_link: [5, 2000], a_fifo: [5, 2000], lines: [5, 10**20 - 1, (1 << 64) - 1, (1 << 64) - 2]}


@pytest.mark.parametrize(("make", "number"), [(make, number) for make, numbers in STRANGE.items() for number in numbers])
def test_what_is_no_segment_of_it_changes_nothing(path: Path, make: Callable[[Path], None], number: int) -> None:
    copy = damaged(path)
    make(copy / f"{number:020d}.lines")
    with small(copy) as writer:
        assert (writer.end, writer.damage) == (1400, [])
    assert lines_of(copy) == numbered(0, 1400)


@pytest.mark.parametrize(
    "name", ["5.lines", "2026.new", "\u0663.lines", f"{5:019d}.lines", "9" * 20 + ".lines", "9" * 20 + ".new", f"{5:020d}.lines"]
)
def test_somebody_elses_files_stay(path: Path, name: str) -> None:
    """Also one that has the name of a segment, and lines that cannot be the spool's."""
    copy = damaged(path)
    (copy / name).write_bytes(b"what somebody has said\n")
    with small(copy) as writer:
        assert (writer.end, writer.damage) == (1400, [])
    assert (copy / name).read_bytes() == b"what somebody has said\n"


@pytest.mark.parametrize("name", ["1.new", "5.lines", f"{99:020d}.lines", f"{99:020d}.new"])
def test_a_directory_in_a_spool_is_nobodys(path: Path, name: str) -> None:
    copy = damaged(path)
    (copy / name).mkdir()
    with small(copy) as writer:
        assert (writer.end, writer.damage) == (1400, [])
    assert (copy / name).is_dir()


@pytest.mark.parametrize("is_full", [False, True], ids=["", "on a full disk"])
def test_a_segment_that_was_removed_in_part_is_not_found_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """Retention removes the index first. On a full disk it may not be noted how far that has come: then lines are there again."""
    copy = damaged(path)
    with small(copy) as writer:
        if is_full:
            monkeypatch.setattr(SpoolLock, "note", full)
        monkeypatch.setattr(Directory, "remove", index_only)
        assert writer.retain(offset=1400) == 1200
        monkeypatch.undo()
    with small(copy) as writer:
        assert writer.damage == ([f"{copy}/{0:020d}.index is damaged; its lines are found without it"] if is_full else [])
    assert lines_of(copy) == numbered(0 if is_full else 1200, 1400)
    assert (copy / f"{0:020d}.lines").exists() == is_full


def full(lock: SpoolLock, **known: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def index_only(directory: Directory, name: str) -> None:
    if name.endswith(".index"):
        (directory.path / name).unlink()


@pytest.mark.parametrize("has_restarted", [False, True])
def test_the_numbers_of_a_segment_without_lines_are_not_given_again(path: Path, has_restarted: bool) -> None:
    copy = damaged(path)
    file = last_file(copy, ".lines")
    file.unlink()
    if has_restarted:
        restart(copy)
    with small(copy) as writer:
        assert writer.damage == [str(LinesDamaged(file, 1200, 1400))]
        assert writer.end == 1400
        writer.append(numbered(1400, 1410))
    assert lines_of(copy, 0, 1200) + lines_of(copy, 1400) == numbered(0, 1200) + numbered(1400, 1410)
    with pytest.raises(LinesDamaged, match="lines 1200 to 1209 are lost"):
        lines_of(copy)


def cut_short(lines: Path) -> None:
    os.truncate(lines, 5000)


def emptied(lines: Path) -> None:
    os.truncate(lines, 0)


def with_a_hole(lines: Path) -> None:
    with lines.open("r+b") as file:
        file.seek(5000)
        file.write(bytes(1000))


def overwritten(lines: Path) -> None:
    with lines.open("r+b") as file:
        file.seek(5000)
        file.write(b"x" * 999)


@pytest.mark.parametrize(
    ("harm", "first", "stop"),
    [(cut_short, 1250, 1400), (emptied, 1200, 1400), (with_a_hole, 1250, 1260), (overwritten, 1250, 1260)],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_lines_of_the_last_segment_that_are_destroyed_are_told(
    path: Path, harm: Callable[[Path], None], first: int, stop: int
) -> None:
    """Without a loss of power. The others are as they were, and no number is given again."""
    copy = damaged(path)
    file = last_file(copy, ".lines")
    harm(file)
    with small(copy) as writer:
        assert writer.end == 1400
        assert writer.damage == [str(LinesDamaged(file, first, stop))]
        writer.append(numbered(1400, 1410))
    with small(copy) as writer:
        assert writer.end == 1410
    assert found(copy) == (numbered(0, first) + numbered(stop, 1410), [*range(first, stop)])


@pytest.mark.parametrize("seed", range(20))
def test_marks_of_the_last_segment_that_are_noise_lose_no_line(path: Path, seed: int) -> None:
    copy = damaged(path)
    chance = random.Random(seed)
    content = bytearray(last_file(copy, ".index").read_bytes()[: 21 * MARK.size])
    begin = chance.randrange(MARK.size, len(content))
    stop = chance.randint(begin + 1, len(content))
    # Numbers that are high, and fit to each other.
    content[begin:stop] = chance.randbytes(stop - begin)
    if seed % 2:
        content[-MARK.size :] = MARK.pack(1 << 40, 1 << 41, time.time_ns() + (1 << 40) * (seed % 4 - 2), 0)
    last_file(copy, ".index").write_bytes(content)
    with small(copy) as writer:
        assert writer.end == 1400
    assert found(copy) == (numbered(0, 1400), [])


@pytest.mark.parametrize("place", [3, 19, 20])
@pytest.mark.parametrize("column", range(2))
def test_marks_of_the_last_segment_that_are_wrong_lose_no_line(path: Path, place: int, column: int) -> None:
    copy = damaged(path)
    with last_file(copy, ".index").open("r+b") as file:
        for bit in (0, 3, 20, 40):
            file.seek(place * MARK.size)
            numbers = [*MARK.unpack(file.read(MARK.size))]
            numbers[column] ^= 1 << bit
            file.seek(place * MARK.size)
            file.write(MARK.pack(*numbers))
            file.flush()
            again = killed(copy)
            with small(again) as writer:
                assert writer.end == 1400, bit
            assert lines_of(again) == numbered(0, 1400)
            numbers[column] ^= 1 << bit
            file.seek(place * MARK.size)
            file.write(MARK.pack(*numbers))
            file.flush()


def test_marks_behind_a_hole_do_not_count(path: Path) -> None:
    copy = damaged(path)
    with last_file(copy, ".index").open("r+b") as file:
        file.seek(6 * MARK.size)
        file.write(bytes(3 * MARK.size))
    with small(copy) as writer:
        # The lines are there, and they are found by their newlines.
        assert writer.end == 1400
        writer.append(numbered(1400, 1500))
    assert lines_of(copy) == numbered(0, 1500)


def test_a_mark_that_makes_no_sense_does_not_count(path: Path) -> None:
    copy = damaged(path)
    with last_file(copy, ".index").open("r+b") as file:
        file.seek(6 * MARK.size)
        file.write(MARK.pack(5, 5, 5, 5))
    with small(copy) as writer:
        writer.append(numbered(1400, 1500))
    assert lines_of(copy) == numbered(0, 1500)


@pytest.mark.parametrize(("hole", "stop"), [(4096, 1330), (512, 1290)])
def test_lines_behind_a_hole_keep_their_numbers(path: Path, hole: int, stop: int) -> None:
    """Power was lost, and the marks behind it are on the disk, as are their lines."""
    copy = damaged(path)
    file = last_file(copy, ".lines")
    with file.open("r+b") as stream:
        stream.seek(8192)
        stream.write(bytes(hole))
    restart(copy)
    with small(copy) as writer:
        assert writer.end == 1400
        assert writer.damage == [str(LinesDamaged(file, 1280, stop))]
    restart(copy)
    with small(copy) as writer:
        assert writer.end == 1400
    assert found(copy) == (numbered(0, 1280) + numbered(stop, 1400), [*range(1280, stop)])


def test_lines_behind_a_hole_in_the_last_append_are_given_up(path: Path) -> None:
    copy = damaged(path)
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(19_450)
        file.write(bytes(512))
    restart(copy)
    with small(copy) as writer:
        assert (writer.end, writer.recovered) == (1394, 4)
        words = "6 lines from 1394 on did not reach the disk before a loss of power, and are cut off"
        assert writer.damage == writer.changed == [f"{copy}: {words}"]
        writer.append(numbered(1394, 1500))
    for _ in range(2):
        with small(copy) as writer:
            assert (writer.end, writer.damage) == (1500, [])
        restart(copy)
    assert lines_of(copy) == numbered(0, 1500)


def test_two_holes_of_which_one_is_behind_the_last_mark(path: Path) -> None:
    """What is cut off there does not count where readers count lines."""
    copy = damaged(path)
    index, file = last_file(copy, ".index"), last_file(copy, ".lines")
    index.write_bytes(index.read_bytes()[: 6 * MARK.size])
    with file.open("r+b") as stream:
        for at in (2048, 10_240):
            stream.seek(at)
            stream.write(bytes(1024))
    restart(copy)
    with small(copy) as writer:
        assert writer.end == 1302
        assert re.search("88 lines from 1302 on did not reach the disk", writer.damage[0])
        assert writer.damage[1:] == [str(LinesDamaged(file, 1220, 1240))]
        writer.append(numbered(1302, 1310))
    assert found(copy) == (numbered(0, 1220) + numbered(1240, 1310), [*range(1220, 1240)])


@pytest.mark.parametrize(("synced", "has_marks"), [(35, False), (36, False), (40, False), (35, True), (36, True)])
def test_a_hole_may_be_shorter_than_a_sector(path: Path, synced: int, has_marks: bool) -> None:
    """Of the page that was last brought to the disk, it has what was in it then: lines, and some zeros."""
    with small(path) as writer:
        writer.append(numbered(0, synced))
        lines, index = last_file(path, ".lines"), last_file(path, ".index")
        page, marks = lines.read_bytes()[:4096], index.read_bytes()
        if has_marks:
            writer.append(numbered(synced, 80))
        else:
            for number in range(synced, 80):
                writer.append(numbered(number, number + 1))
        copy = killed(path)
    with last_file(copy, ".lines").open("r+b") as file:
        file.write(page)
    if not has_marks:
        last_file(copy, ".index").write_bytes(marks)
    restart(copy)
    with small(copy) as writer:
        assert (writer.end, writer.recovered) == (synced, 0)
        words = f"{80 - synced} lines from {synced} on did not reach the disk before a loss of power, and are cut off"
        if has_marks:
            assert writer.changed == [f"{copy}: {words}"]
        assert re.search(f"from {synced} on did not reach the disk", writer.changed[0])
        writer.append(numbered(synced, 100))
    assert found(copy) == (numbered(0, 100), [])


@pytest.mark.parametrize("behind", [0, 3600, 20 * 365 * 86400], ids=["", "an hour behind", "many years behind"])
@pytest.mark.parametrize("has_restarted", [False, True])
def test_a_clock_that_is_behind_takes_no_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, has_restarted: bool, behind: int
) -> None:
    """A machine without a clock of its own asks others, later. What the marks say of the time is no reason to give lines up."""
    copy = damaged(path)
    file = last_file(copy, ".lines")
    with_a_hole(file)
    if has_restarted:
        restart(copy)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - behind * 1_000_000_000)
    with small(copy) as writer:
        assert writer.end == 1400
        assert writer.damage == [str(LinesDamaged(file, 1250, 1260))]
    assert found(copy) == (numbered(0, 1250) + numbered(1260, 1400), [*range(1250, 1260)])


def test_a_short_hole_in_a_line_is_told(path: Path) -> None:
    """No line more or less tells of it, but that there were no zeros."""
    copy = damaged(path)
    file = last_file(copy, ".lines")
    with file.open("r+b") as stream:
        stream.seek(4096 - 80)
        stream.write(bytes(80))
    restart(copy)
    with small(copy) as writer:
        assert writer.end == 1400
        assert writer.damage == [str(LinesDamaged(file, 1240, 1250))]
    assert found(copy) == (numbered(0, 1240) + numbered(1250, 1400), [*range(1240, 1250)])


def unreadable(monkeypatch: pytest.MonkeyPatch, suffix: str, begin: int, stop: int) -> None:
    """Has the disk of a file be such that these bytes cannot be read."""

    def pread(descriptor: int, size: int, at: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(f"{1200:020d}{suffix}") and at < stop and at + size > begin:
            if at >= begin:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            size = begin - at
        return read(descriptor, size, at)

    read = os.pread
    monkeypatch.setattr(os, "pread", pread)


@pytest.mark.parametrize("has_restarted", [False, True])
@pytest.mark.parametrize("suffix", [".lines", ".index"])
@pytest.mark.parametrize(("begin", "stop"), [(0, 1 << 20), (4096, 8192), (16384, 1 << 20)])
def test_what_the_disk_cannot_read_now_is_as_it_was_when_it_can(
    path: Path, monkeypatch: pytest.MonkeyPatch, has_restarted: bool, suffix: str, begin: int, stop: int
) -> None:
    """To look at it in a mapped file would be the end of who does. And nobody should take it for a hole."""
    copy = damaged(path)
    if has_restarted:
        restart(copy)
    before = {file: file.read_bytes() for file in files(copy, suffix)}
    spool = Spool(copy)
    unreadable(monkeypatch, suffix, begin, stop)
    with contextlib.suppress(OSError):
        lines_of(spool)
    with pytest.raises(OSError, match=f"Input/output error: '{copy}'"):
        small(copy)
    monkeypatch.undo()
    assert {file: file.read_bytes() for file in files(copy, suffix)} == before
    assert lines_of(spool) == numbered(0, 1400)
    with small(copy) as writer:
        assert (writer.end, writer.damage) == (1400, [])
    assert lines_of(copy) == numbered(0, 1400)


@pytest.mark.parametrize("which", ["newest", "older", "older, without any mark"])
def test_a_hole_in_a_line_whose_mark_is_lost_is_told(path: Path, which: str) -> None:
    with SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL) as writer:
        writer.append(numbered(0, 1200))
        for lines in (numbered(1200, 1210), b"x" * 3000 + b"\n", *(numbered(n, n + 10) for n in range(1211, 1291, 10))):
            writer.append(lines)
        if which != "newest":
            writer.append(numbered(1291, 2400))
        copy = killed(path)
    with (copy / f"{1200:020d}.lines").open("r+b") as file:
        file.seek(2048)
        file.write(bytes(512))
    with (copy / f"{1200:020d}.index").open("r+b") as file:
        if which == "older, without any mark":
            file.truncate(0)
        else:
            file.seek(MARK.size)
            file.write(bytes(3 * MARK.size))
    restart(copy)
    with small(copy):
        pass
    end = 1291 if which == "newest" else 2400
    assert found(copy) == (numbered(0, 1210) + numbered(1211, end), [1210])


@pytest.mark.parametrize("failing", ["create", "rename", "cut", "sync"])
@pytest.mark.parametrize("times", range(6))
def test_what_is_cut_off_is_told_once_though_something_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, times: int
) -> None:
    copy = damaged(path)
    index = last_file(copy, ".index")
    index.write_bytes(index.read_bytes()[: 6 * MARK.size])
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(10_240)
        file.write(bytes(1024))
    restart(copy)
    real, left = getattr(Directory, failing), [times]

    def fail(*given: object, **named: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*given, **named)

    monkeypatch.setattr(Directory, failing, fail)
    try:
        small(copy).close()
        words = None
    except OSError:
        monkeypatch.undo()
        with small(copy) as writer:
            words = writer.changed
    monkeypatch.undo()
    told = [f"{copy}: 88 lines from 1302 on did not reach the disk before a loss of power, and are cut off"]
    assert words in (None, told)
    if words is None:  # that it is told could not be noted
        with small(copy) as writer:
            assert writer.changed in ([], told)
    with small(copy) as writer:
        assert (writer.end, writer.changed) == (1302, [])


def test_many_marks_that_tell_of_lines_in_a_hole_cost_no_more_each(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SpoolWriter(path, "B_x") as writer:
        for number in range(4000):
            writer.append(numbered(number, number + 1))
        copy = killed(path)
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(1024)
        file.write(bytes(250_000))
    index = last_file(copy, ".index")
    index.write_bytes(index.read_bytes()[: 2000 * MARK.size])
    restart(copy)
    counted = [0]

    def counting(data: memoryview) -> int:
        counted[0] += len(data)
        return real(data)

    real = layout.count_lines
    monkeypatch.setattr("futebus.spool.recover.count_lines", counting)
    SpoolWriter(copy, "B_x").close()
    assert counted[0] < 20 * 400_000


def test_many_holes_cost_no_more_each(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SpoolWriter(path, "B_x") as writer:
        writer.append(numbered(0, 2000, 512))
        copy = killed(path)
    with last_file(copy, ".lines").open("r+b") as file:
        for number in range(0, 2000, 2):
            file.seek(512 * number + 100)
            file.write(bytes(412))
    last_file(copy, ".index").unlink()
    restart(copy)
    made = [0]

    class Counting(Holes):
        def __init__(self, *given: Any, **named: Any) -> None:
            made[0] += 1
            super().__init__(*given, **named)

    monkeypatch.setattr("futebus.spool.marks.Holes", Counting)
    with SpoolWriter(copy, "B_x") as writer:
        assert writer.end == 1000
    assert made[0] < 10


def test_what_is_cut_off_makes_room_for_the_word_on_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = damaged(path)
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(19_450)
        file.write(bytes(512))
    restart(copy)
    real, tail = SpoolLock.note, last_file(copy, ".lines")

    def note(lock: SpoolLock, **changes: object) -> None:
        if tail.stat().st_size > 20_000:
            full(lock)
        real(lock, **changes)

    monkeypatch.setattr(SpoolLock, "note", note)
    with small(copy) as writer:
        assert writer.end == 1394


def test_to_find_older_lines_again_takes_no_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy may have holes where there were zeros, and the disk no room for them."""
    copy = damaged(path)
    (copy / f"{0:020d}.index").unlink()
    restart(copy)
    filled = []

    def allocate(descriptor: int, offset: int, size: int) -> None:
        filled.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor, offset, size)

    real = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    small(copy).close()
    assert str(copy / f"{1200:020d}.lines") in filled
    assert str(copy / f"{0:020d}.lines") not in filled
    assert lines_of(copy) == numbered(0, 1400)


def test_what_was_cut_off_of_a_spool_that_is_gone_is_not_of_the_next(path: Path) -> None:
    copy = damaged(path)
    lock = SpoolLock(copy, "B_x")
    lock.note(cut_from=1300, cut_lines=20)
    lock.close()
    for file in copy.glob("0*"):
        file.unlink()
    with small(copy) as writer:
        assert [words.partition(" ")[2] for words in writer.changed] == [
            "has lost all of its segments, and goes on as a new spool",
            "20 lines from 1300 on did not reach the disk before a loss of power, and are cut off",
        ]
    with small(copy) as writer:
        assert writer.changed == []


def test_a_hole_is_told_though_the_next_mark_knows_of_a_zero(path: Path) -> None:
    """The mark before that is gone: so what it says is said of more lines than it was."""
    with SpoolWriter(path, "B_x") as writer:
        writer.append(numbered(0, 10))
        writer.append(b"x" * 3000 + b"\n")
        writer.append(b"a zero: \0\n")
        writer.append(numbered(12, 20))
        copy = killed(path)
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(2048)
        file.write(bytes(512))
    with last_file(copy, ".index").open("r+b") as file:
        file.seek(2 * MARK.size)
        file.write(bytes(MARK.size))
    restart(copy)
    with SpoolWriter(copy, "B_x") as writer:
        assert writer.end == 20
    assert found(copy) == (numbered(0, 10) + b"a zero: \0\n" + numbered(12, 20), [10])


def test_lines_that_did_not_reach_the_disk_are_given_up(path: Path) -> None:
    copy = damaged(path)
    os.truncate(last_file(copy, ".lines"), 5000)
    restart(copy)
    with small(copy) as writer:
        assert writer.end == 1250
        assert re.search("150 lines from 1250 on did not reach the disk", writer.damage[0])
        writer.append(numbered(1250, 1300))
    assert lines_of(copy) == numbered(0, 1300)
