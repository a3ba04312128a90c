"""Spools whose system fails them, for tests, and what is done with them meanwhile."""

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from futebus.spool import Spool

from ..helpers.garbage import nothing_collected
from .spools import SMALL, last_file, lines_of, numbered, small

FULL_BYTES = 4096
"""What there is always room for: a page."""


CALLS = "open close posix_fallocate ftruncate pwrite write pread readv fsync fdatasync rename unlink mkdir fchmod fstat stat dup"
"""The system calls that a spool makes, beside mmap(2) and flock(2)."""


FAILURES: list[Callable[[], BaseException]] = [
    lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    KeyboardInterrupt,
]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Files in memory, where hundreds of spools are quickly begun, and brought to the disk."""
    monkeypatch.setattr("futebus.spool.room.MARKS", 64)
    path = Path(tempfile.mkdtemp(prefix="futebus-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    yield path
    shutil.rmtree(path)


WAYS = [(failure, False) for failure in FAILURES] + [(KeyboardInterrupt, True)]
"""What happens, and whether the call has been made then."""


class Failing:
    """Counts system calls, and has one of them fail: before it does anything, or (an interrupt) when it is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.at: int | None = None
        self.is_done = False
        self.failure: Callable[[], BaseException] = FAILURES[0]
        self.name = ""
        for name in CALLS.split():
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        monkeypatch.setattr(mmap, "mmap", self._wrapped("mmap", mmap.mmap))
        monkeypatch.setattr("fcntl.flock", self._wrapped("flock", __import__("fcntl").flock))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.count != self.at:
                return call(*arguments, **named)
            self.name = name
            if self.is_done or name == "close":  # after close(2) a descriptor is closed, whatever it says
                result = call(*arguments, **named)
                if name in ("open", "dup"):
                    os.close(result)  # the descriptor that nobody has ever seen
            raise self.failure()

        return wrapped

    @contextlib.contextmanager
    def one(self, at: int, failure: Callable[[], BaseException], is_done: bool) -> Iterator[None]:
        self.count, self.at, self.failure, self.is_done = 0, at, failure, is_done
        with nothing_collected():
            try:
                yield
            finally:
                self.at = None


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


def closed(path: Path) -> None:
    """A spool of several segments that was closed."""
    with small(path) as writer:
        for begin in range(0, 1500, 50):
            writer.append(numbered(begin, begin + 50))


def left(path: Path) -> None:
    """The same, left by a writer that was killed, with lines that have no mark, and files of a segment that was not begun."""
    whole = path.with_name("whole")
    with small(whole) as writer:
        for begin in range(0, 1450, 50):
            writer.append(numbered(begin, begin + 50))
        shutil.copytree(whole, path)
    with last_file(path, ".lines").open("r+b") as file:
        content = file.read().rstrip(b"\0")
        file.seek(len(content))
        file.write(numbered(1450, 1500))
    (path / f"{1500:020d}.lines").write_bytes(bytes(SMALL))
    (path / f"{1500:020d}.new").write_bytes(b"")
    shutil.rmtree(whole)


def old(path: Path) -> None:
    """The same, of the format before."""
    closed(path)
    identity = Spool(path)
    (path / "spool.json").write_text(f'{{"format": 1, "id": "{identity.id}", "channel": "B_x"}}\n')


def opening(path: Path) -> None:
    small(path).close()


def adding(path: Path) -> None:
    """Turns over, more than once."""
    with small(path) as writer:
        for begin in range(1500, 3000, 300):
            writer.append(numbered(begin, begin + 300))
        writer.append(b"half a line")
        assert writer.cut() == len(b"half a line")
        writer.note_lost(2)
        writer.note_lost(1)


def syncing(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(1500, 1900))
        writer.sync()


def reading(path: Path) -> None:
    source, sink = os.pipe()
    try:
        with small(path) as writer:
            for begin in range(1500, 1600, 20):
                os.set_blocking(sink, False)
                os.writev(sink, [numbered(begin, begin + 20)])
                writer.read_from(source, SMALL // 2)
    finally:
        for descriptor in (source, sink):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def check(path: Path, note: str, least: int = 0) -> None:
    """Everything is there, for readers and for the next writer, who can add to it and finds nothing in its way."""
    print("after", note)
    expected = numbered(0, 4000)
    spool = Spool(path)
    if len(list(path.glob("*.index"))):
        assert spool.begin <= least, note
        if spool.end >= 1450:  # 50 of those that were left had no mark
            assert expected[spool.begin * 100 :].startswith(lines_of(spool)), note
        else:
            raise AssertionError(note)
    with small(path) as writer:
        end = writer.end
        assert end >= 1500, note
        writer.append(numbered(end, end + 700))
    spool = Spool(path)
    assert lines_of(spool) == numbered(spool.begin, end + 700), note
    assert not list(path.glob("*.new")), note


@contextlib.contextmanager
def scarce() -> Iterator[None]:
    """The disk has hardly any room, and a segment must end all the same."""
    allocate = os.posix_fallocate

    def scarcely(descriptor: int, offset: int, size: int) -> None:
        if size > max(FULL_BYTES, os.fstat(descriptor).st_size):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, offset, size)

    os.posix_fallocate = scarcely
    try:
        yield
    finally:
        os.posix_fallocate = allocate


def adding_when_full(path: Path) -> None:
    """Ends a segment on a full disk, and goes on when there is room."""
    with small(path) as writer:
        writer.append(numbered(1500, 1600))
        writer.append(numbered(1600, 1601)[:50])
        with scarce(), contextlib.suppress(OSError):
            writer.prepare(SMALL)
            raise AssertionError("there is no room")
        writer.append(numbered(1600, 1601)[50:])
        writer.append(numbered(1601, 2500))


def removing(path: Path) -> None:
    with small(path) as writer:
        writer.retain(offset=1000)


def ageing(path: Path) -> None:
    with small(path) as writer:
        moment = time.time()
        while time.time() < moment + 0.002:
            pass
        writer.retain(age=0.001)


def ageing_when_full(path: Path) -> None:
    with small(path) as writer:
        moment = time.time()
        while time.time() < moment + 0.002:
            pass
        with scarce():
            writer.retain(age=0.001)
