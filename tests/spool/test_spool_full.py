"""A spool on a disk that is full: what may go goes, and makes room."""

import contextlib
import errno
import os
import time
from pathlib import Path

import pytest

from futebus.spool import Spool, SpoolInUse, SpoolLock, SpoolWriter, append_lost, remove_unopened
from futebus.spool.layout import MARK

from ..helpers.recorders import disk, fill
from .spools import last_file, lines_of, numbered, small

FEW = 1000
"""Lines of one append."""


def written(path: Path) -> SpoolWriter:
    return SpoolWriter(path, "B_x", segment_bytes=1 << 20, first_segment_bytes=1 << 20)


def add_until_full(writer: SpoolWriter) -> None:
    def add() -> None:
        while True:
            writer.append(numbered(writer.end, writer.end + FEW))

    with pytest.raises(OSError, match="No space left on device"):
        add()


def wait_a_moment() -> None:
    moment = time.time()
    while time.time() < moment + 0.002:
        pass


@pytest.fixture
def path(small_disk: Path) -> Path:
    return small_disk / "spool"


def test_a_full_disk_gets_free(path: Path) -> None:
    with written(path) as writer:
        add_until_full(writer)
        fill(path.parent / "ballast")
        add_until_full(writer)
        end = writer.end
        assert writer.retain(offset=end - 1) == 0 or Spool(path).begin < end
        assert writer.retain(offset=end) > 0
        assert Spool(path).begin == end
        writer.append(numbered(end, end + FEW))
    assert lines_of(path) == numbered(end, end + FEW)


def test_what_is_to_be_kept_is_kept(path: Path) -> None:
    with written(path) as writer:
        add_until_full(writer)
        fill(path.parent / "ballast")
        end = writer.end
        assert writer.retain(size=1 << 30) == 0
        add_until_full(writer)
        assert writer.retain(size=1 << 20) > 0
        assert len(lines_of(path)) >= 1 << 20
        writer.append(numbered(end, end + FEW))
        assert lines_of(path) == numbered(Spool(path).begin, end + FEW)


@pytest.mark.parametrize("size", ["300k", "1m", "1100k", "2m", "2200k", "4m"])
@pytest.mark.parametrize("is_reopened", [False, True], ids=["", "opened again"])
@pytest.mark.parametrize("few", [1, 50, 3000])
def test_a_small_disk_is_used(place: Path, size: str, is_reopened: bool, few: int) -> None:
    """What is read takes what there is, in shorter segments: all but little. `few` lines come at a time."""
    source, sink = os.pipe()
    os.set_blocking(source, False)
    with disk(place, size) as directory:
        path = directory / "spool"
        with SpoolWriter(path, "B_x") as writer:
            assert writer.end == 0
        writer = SpoolWriter(path, "B_x")

        def fill_up() -> None:
            nonlocal writer
            sent = 0
            while True:
                writer.prepare()
                with contextlib.suppress(BlockingIOError):
                    writer.read_from(source, most=few * 100)
                    continue
                os.write(sink, numbered(sent, sent + 500))
                sent += 500
                if is_reopened and sent % 1000 == 0:
                    writer.close()
                    writer = SpoolWriter(path, "B_x", is_continued=True)

        with pytest.raises(OSError, match="No space left on device"):
            fill_up()
        end = writer.end
        assert Spool(path).end == end
        assert lines_of(path, size=1 << 16) == numbered(0, end)
        status = os.statvfs(directory)
        left = status.f_bavail * status.f_frsize
        writer.close()
        with contextlib.suppress(OSError), SpoolWriter(path, "B_x") as again:
            assert again.end == end
        assert lines_of(path, size=1 << 16) == numbered(0, end)
        assert left < 150_000
        each = 100 + MARK.size / few
        assert end * each > status.f_blocks * status.f_frsize - 300_000
    for descriptor in (source, sink):
        os.close(descriptor)


@pytest.mark.parametrize("size", ["300k", "1m", "2m"])
def test_losses_are_noted_where_marks_have_run_out(place: Path, size: str) -> None:
    """There are two marks for a line: it is for a loss that there is none left."""
    source, sink = os.pipe()
    lost = 0
    with disk(place, size) as directory, SpoolWriter(directory / "spool", "B_x") as writer:

        def fill_up() -> None:
            nonlocal lost
            while True:
                writer.prepare()
                os.write(sink, numbered(writer.end, writer.end + 1))
                writer.read_from(source)
                writer.note_lost(2)
                lost += 2

        with pytest.raises(OSError, match="No space left on device"):
            fill_up()
        assert writer.lost == Spool(directory / "spool").last.lost == lost
        assert writer.end > 1000
    for descriptor in (source, sink):
        os.close(descriptor)


def test_age_ends_the_only_segment(path: Path) -> None:
    with written(path) as writer:
        writer.append(numbered(0, FEW))
        fill(path.parent / "ballast")
        wait_a_moment()
        assert writer.retain(age=0.001) == FEW
        assert Spool(path).begin == Spool(path).end == FEW
        writer.append(numbered(FEW, 2 * FEW))
        assert lines_of(path) == numbered(FEW, 2 * FEW)


def test_a_segment_that_cannot_end_keeps_its_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may have room, and none for another file."""
    with written(path) as writer:
        writer.append(numbered(0, FEW))
        wait_a_moment()

        def refuse(*arguments: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("futebus.spool.files.Directory.create", refuse)
        assert writer.retain(age=0.001) == 0
        writer.append(numbered(FEW, 2 * FEW))
    assert lines_of(path) == numbered(0, 2 * FEW)


@pytest.mark.parametrize("is_closed", [True, False])
def test_one_that_was_full_can_be_opened_and_gets_free(path: Path, is_closed: bool) -> None:
    writer = written(path)
    add_until_full(writer)
    fill(path.parent / "ballast")
    add_until_full(writer)
    end = writer.end
    if is_closed:
        writer.close()
    else:  # as one that was killed
        writer._lock.close()
    fill(path.parent / "more")
    lock = SpoolLock(path, "B_x")
    with contextlib.suppress(OSError), SpoolWriter(path, "B_x", lock=lock):
        pass  # there may be a page left
    assert remove_unopened(path, lock, size=None, age=0, until=end) > 0
    lock.close()
    with written(path) as again:
        assert again.end == end
        assert not again.damage
        again.append(numbered(end, end + FEW))
    assert lines_of(path) == numbered(Spool(path).begin, end + FEW)


def test_what_is_needed_stays_in_one_that_cannot_be_opened(path: Path) -> None:
    with written(path) as writer:
        add_until_full(writer)
        end = writer.end
    wait_a_moment()
    lock = SpoolLock(path, "B_x")
    assert remove_unopened(path, lock, size=None, age=0, until=0) == 0
    assert remove_unopened(path, lock, size=1 << 30, age=None) == 0
    assert remove_unopened(path, lock, size=None, age=0) > 0
    lock.close()
    assert lines_of(path) == numbered(Spool(path).begin, end)


def test_a_loss_can_be_noted_without_room(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 10))
        with pytest.raises(SpoolInUse):
            SpoolLock(path, "B_x")
    with contextlib.closing(SpoolLock(path, "B_x")) as lock:
        assert append_lost(path, lock, 3)
        assert append_lost(path, lock, 4)
    spool = Spool(path)
    assert (spool.last.line, spool.last.lost) == (10, 7)
    assert spool.lost_before(10) == 0, "they were lost behind that"
    with small(path) as writer:
        assert (writer.end, writer.lost) == (10, 7)
        writer.append(numbered(10, 20))
    assert lines_of(path) == numbered(0, 20)


def test_a_loss_is_not_noted_where_a_spool_must_be_repaired(path: Path) -> None:
    """The marks behind would count again."""
    with small(path) as writer:
        for begin in range(0, 70, 10):
            writer.append(numbered(begin, begin + 10))
    with last_file(path, ".index").open("r+b") as file:
        file.seek(5 * MARK.size)
        file.write(bytes(MARK.size))
    before = last_file(path, ".index").read_bytes()
    with contextlib.closing(SpoolLock(path, "B_x")) as lock:
        assert not append_lost(path, lock, 3)
    assert last_file(path, ".index").read_bytes() == before
