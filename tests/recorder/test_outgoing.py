"""Lines are published when they are on the disk; those behind them are brought there meanwhile."""

import errno
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from futebus.recorder.outgoing import LineTooLong, Outgoing, following
from futebus.spool import LinesDamaged, LinesGone, Spool, SpoolWriter

from ..helpers.waiting import DEADLINE, until
from ..spool.spools import killed, numbered

MOST = 1 << 20

Found = Outgoing | LineTooLong | int


class Disk:
    """Takes lines up to a number, and the others when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.error: OSError | None = None
        self._free = threading.Condition()
        self._end = 1 << 62

    def takes(self, end: int) -> None:
        """From now on it takes lines up to this number."""
        with self._free:
            self._end = end
            self._free.notify_all()

    def sync(self, begin: int, end: int) -> None:
        self.asked.append((begin, end))
        with self._free:
            assert self._free.wait_for(lambda: end <= self._end, DEADLINE)
        if self.error:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(Spool, "sync", lambda _, begin, end: disk.sync(begin, end))
    yield disk
    disk.takes(1 << 62)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SpoolWriter]:
    with SpoolWriter(tmp_path / "spool", "U_x") as writer:
        yield writer


def lines_of(writer: SpoolWriter, most: int = MOST) -> Iterator[Found]:
    def damaged(damage: LinesDamaged) -> None:
        raise AssertionError(damage)

    for some in following(Spool(writer.path), 0, most, damaged):
        yield from some if isinstance(some, list) else [some]


def shown(run: Found) -> tuple[int, bytes] | LineTooLong | int:
    return (run.line, run.data.read()) if isinstance(run, Outgoing) else run


def first(found: Iterator[Found], writer: SpoolWriter, disk: Disk) -> Found:
    """What comes first of ten lines that are on the disk, while ten behind them wait for it."""
    disk.takes(0)
    writer.append(numbered(0, 10))
    with ThreadPoolExecutor() as pool:
        coming = pool.submit(next, found)
        until(lambda: disk.asked == [(0, 10)], "the disk is asked")
        writer.append(numbered(10, 20))
        assert not coming.done()
        disk.takes(10)
        return coming.result(DEADLINE)


def test_what_comes_is_on_the_disk_first(writer: SpoolWriter, disk: Disk) -> None:
    found = lines_of(writer)
    assert next(found) == 0
    assert not disk.asked
    for begin in (0, 10, 20):
        writer.append(numbered(begin, begin + 10))
        assert shown(next(found)) == (begin, numbered(begin, begin + 10))
        assert disk.asked[-1] == (begin, begin + 10)
        assert next(found) == begin + 10
    assert len(disk.asked) == 3


def test_lines_are_published_while_those_behind_them_wait_for_the_disk(writer: SpoolWriter, disk: Disk) -> None:
    found = lines_of(writer, 300)
    with ThreadPoolExecutor() as pool:
        assert shown(first(found, writer, disk)) == (0, numbered(0, 3))
        until(lambda: disk.asked == [(0, 10), (10, 20)], "it is asked for those behind")
        assert [shown(next(found)) for _ in range(3)] == [(n, numbered(n, min(n + 3, 10))) for n in (3, 6, 9)]
        tenth = pool.submit(next, found)
        writer.append(numbered(20, 21))
        assert len(disk.asked) == 2
        assert not tenth.done()
        disk.takes(1 << 62)
        assert shown(tenth.result(DEADLINE)) == (10, numbered(10, 13))
    assert [shown(next(found)) for _ in range(5)] == [
        *((n, numbered(n, min(n + 3, 20))) for n in (13, 16, 19)),
        (20, numbered(20, 21)),
        21,
    ]
    assert disk.asked == [(0, 10), (10, 20), (20, 21)]


def test_what_the_disk_does_not_take_does_not_come(writer: SpoolWriter, disk: Disk) -> None:
    found = lines_of(writer)
    assert shown(first(found, writer, disk)) == (0, numbered(0, 10))
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.takes(20)
    with pytest.raises(OSError, match="Input/output error"):
        next(found)


def test_a_spool_that_has_lost_its_end_is_no_more_followed(writer: SpoolWriter) -> None:
    writer.append(numbered(0, 5))
    before = killed(writer.path)
    writer.append(numbered(5, 10))
    found = lines_of(writer)
    assert b"".join(run.data.read() for run in (next(found),) if isinstance(run, Outgoing)) == numbered(0, 10)
    assert next(found) == 10
    writer.close()
    shutil.rmtree(writer.path)
    before.rename(writer.path)
    with pytest.raises(LinesGone, match="does not have lines 5 to 9 any more"):
        next(found)


def test_who_wants_no_more_does_not_wait_for_the_disk(writer: SpoolWriter, disk: Disk) -> None:
    found = lines_of(writer, 50)
    run = first(found, writer, disk)
    assert isinstance(run, LineTooLong)
    assert run.line == 0
    until(lambda: disk.asked == [(0, 10), (10, 20)], "it is asked for those behind")
    assert list(found) == []
