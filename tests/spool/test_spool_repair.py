"""What is left in a spool by a writer that was killed, or by a loss of power, and what the next writer makes of it."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from futebus.spool import NotASpool, Spool, SpoolLock, SpoolWriter
from futebus.spool.files import Directory
from futebus.spool.layout import MARK
from futebus.spool.repair import boot

from .spools import SMALL, killed, last_file, lines_of, numbered, path, small

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


def test_what_did_not_reach_the_disk_is_cut_off_though_there_are_no_marks(path: Path) -> None:
    copy = damaged(path)
    last_file(copy, ".index").write_bytes(b"")
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(5_050)
        file.write(bytes(1000))
    identity = copy / "spool.json"
    identity.write_text(identity.read_text().replace(boot(), "another run of the system"))
    with small(copy) as writer:
        assert writer.end == 1250
        writer.append(numbered(1250, 1300))
    assert lines_of(copy) == numbered(0, 1300)


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


def test_a_segment_without_lines_is_given_up(path: Path) -> None:
    copy = damaged(path)
    last_file(copy, ".lines").unlink()
    with small(copy) as writer:
        assert writer.end == 1200
    assert lines_of(copy) == numbered(0, 1200)


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


@pytest.mark.parametrize("hole", [4096, 512])
def test_lines_behind_a_hole_are_given_up(path: Path, hole: int) -> None:
    copy = damaged(path)
    with last_file(copy, ".lines").open("r+b") as file:
        file.seek(8192)
        file.write(bytes(hole))
    with small(copy) as writer:
        assert writer.end == 1200 + 8192 // 100
        writer.append(numbered(writer.end, 1500))
    assert lines_of(copy) == numbered(0, 1500)


def test_lines_that_did_not_reach_the_disk_are_given_up(path: Path) -> None:
    copy = damaged(path)
    os.truncate(last_file(copy, ".lines"), 5000)
    with small(copy) as writer:
        assert writer.end == 1250
        writer.append(numbered(1250, 1300))
    assert lines_of(copy) == numbered(0, 1300)
