"""Pages that are made ready."""

import mmap
import os
import threading
from pathlib import Path

import pytest

from futebus.spool import Spool, SpoolWriter
from futebus.spool.warming import STEP_BYTES, Warmer
from tests.helpers.waiting import until

SIZE = 4 * STEP_BYTES


def mapped_kib(path: Path) -> int:
    """How much of a file this process has mapped, and in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(int(each.split()[1]) for each in lines if each.startswith("Rss:"))
    return 0


@pytest.fixture
def mapped(tmp_path: Path) -> mmap.mmap:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, SIZE)
    made = mmap.mmap(file, SIZE)
    os.close(file)
    return made


def test_what_is_wanted_becomes_ready(tmp_path: Path, mapped: mmap.mmap) -> None:
    warmer = Warmer()
    assert mapped_kib(tmp_path / "file") == 0
    warmer.want(mapped, 0, STEP_BYTES)
    until(lambda: mapped_kib(tmp_path / "file") == STEP_BYTES >> 10, "one step is ready")
    warmer.want(mapped, mmap.PAGESIZE, SIZE)
    until(lambda: mapped_kib(tmp_path / "file") == SIZE >> 10, "all is ready")
    assert mapped[:] == bytes(SIZE)
    warmer.leave()
    mapped.close()
    warmer.close()


def test_a_map_that_is_left_can_be_closed_at_once(mapped: mmap.mmap) -> None:
    warmer = Warmer()
    warmer.want(mapped, 0, SIZE)
    warmer.leave()
    mapped.close()
    warmer.close()
    assert "warmer" not in {thread.name for thread in threading.enumerate()}


def test_without_anything_to_do_there_is_no_thread() -> None:
    warmer = Warmer()
    warmer.leave()
    assert "warmer" not in {thread.name for thread in threading.enumerate()}
    warmer.close()


def test_without_a_thread_pages_come_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ulimit -u`, or TasksMax= of a unit."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    read, write = os.pipe()
    os.write(write, b"a line\n")
    with SpoolWriter(tmp_path / "spool", "B_x") as spool:
        assert spool.read_from(read) == 7
    assert Spool(tmp_path / "spool").end == 1
    os.close(read)
    os.close(write)
