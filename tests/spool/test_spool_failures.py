"""A spool whose system fails it, call by call, and whose user interrupts it, line by line of its code.

Each test runs something once to see what it does, and then once for each thing that can go wrong in it. Whatever that was: the
lines that were there are there, for readers, for who goes on with the same writer, and for the next one.
"""

import contextlib
import errno
import itertools
import linecache
import mmap
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from futebus.spool import Spool, SpoolWriter

from .spools import SMALL, killed, last_file, lines_of, numbered, small

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
    for module in ("last", "room"):
        monkeypatch.setattr(f"futebus.spool.{module}.MARKS", 64)
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


def failed(
    place: Path, failing: Failing, at: int, way: tuple[Callable[[], BaseException], bool], act: Callable[[Path], None]
) -> tuple[Path, str]:
    """A copy of the spool on which a call of `act` has failed, the one whose turn it is, and the identity of the spool."""
    path = place / "again"
    shutil.copytree(place / "spool", path)
    identity = Spool(path).id
    failing.name = ""
    with failing.one(at, *way), contextlib.suppress(OSError, KeyboardInterrupt):
        act(path)
    return path, identity


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


@pytest.mark.parametrize(
    ("state", "act"),
    [
        (closed, adding),
        (closed, adding_when_full),
        (closed, syncing),
        (closed, reading),
        (left, opening),
        (left, adding),
        (old, opening),
    ],
    ids=lambda step: step.__name__,
)
@pytest.mark.parametrize(("failure", "is_done"), WAYS, ids=["EIO", "ENOSPC", "interrupt", "interrupt when done"])
def test_a_call_that_fails_takes_no_line(
    place: Path,
    failing: Failing,
    state: Callable[[Path], None],
    act: Callable[[Path], None],
    failure: Callable[[], BaseException],
    is_done: bool,
) -> None:
    state(place / "spool")
    act(killed(place / "spool"))
    for at in itertools.count(1):
        path, identity = failed(place, failing, at, (failure, is_done), act)
        if not failing.name:
            break
        check(path, f"{failing.name}, call {at}: {failure()!r}{' when it was done' * is_done}")
        assert Spool(path).id == identity
        shutil.rmtree(path)
    assert at > 30


def test_who_goes_on_after_a_failure_has_every_line(place: Path, failing: Failing) -> None:
    for failure, is_done in WAYS:
        for at in itertools.count(1):
            path = place / "spool"
            writer = small(path)
            failing.name = ""
            with failing.one(at, failure, is_done):
                while writer.end < 2000:
                    before = writer.end
                    with contextlib.suppress(OSError, KeyboardInterrupt):
                        writer.append(numbered(before, before + 100))
                        continue
                    # Whether it was taken is for the writer to say, once it has looked.
                    writer.prepare()
                    assert writer.end in (before, before + 100)
                    assert lines_of(path) == numbered(0, writer.end)
                    writer.sync()
            assert lines_of(path) == numbered(0, 2000), f"{failing.name}, call {at}"
            writer.close()
            assert lines_of(path) == numbered(0, 2000), f"{failing.name}, call {at}"
            shutil.rmtree(path)
            if not failing.name:
                break
        assert at > 10


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


@pytest.mark.parametrize(
    ("act", "least"),
    [(removing, 1000), (ageing, 1500), (ageing_when_full, 1500)],
    ids=["offset", "age", "age when full"],
)
def test_a_call_that_fails_while_old_lines_are_removed(
    place: Path, failing: Failing, act: Callable[[Path], None], least: int
) -> None:
    closed(place / "spool")
    act(killed(place / "spool"))
    for failure, is_done in WAYS:
        for at in itertools.count(1):
            path, identity = failed(place, failing, at, (failure, is_done), act)
            note = f"{failing.name}, call {at}: {failure()!r}"
            check(path, note, least)
            assert Spool(path).id == identity, note
            act(path)
            assert Spool(path).begin > 0
            shutil.rmtree(path)
            if not failing.name:
                break
        assert at > 30


# ---------------------------------------------------------------------------------------------- Ctrl-C at any point


class Interrupting:
    """Raises KeyboardInterrupt before the line of the spool's own code whose turn it is."""

    def __init__(self) -> None:
        self.count = self.at = 0
        self.place = ""

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        callers, caller = set(), frame
        while caller.f_back is not None:
            callers.add(caller.f_code.co_name)
            caller = caller.f_back
        if "/futebus/spool/" not in frame.f_code.co_filename or "__del__" in callers:  # from there no error comes out
            return None
        # The line of a with statement is told again when it ends, a moment before the lock is let go; no signal comes there.
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            self.count += 1
            if self.count == self.at:
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace

    @contextlib.contextmanager
    def one(self, at: int) -> Iterator[None]:
        self.count, self.at, self.place = 0, at, ""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)


@pytest.mark.parametrize("act", [opening, adding, adding_when_full, ageing, ageing_when_full], ids=lambda act: act.__name__)
def test_an_interrupt_takes_no_line(place: Path, act: Callable[[Path], None]) -> None:
    left(place / "spool")
    interrupting = Interrupting()
    at = 1
    places = set()
    while True:
        path = place / "again"
        shutil.copytree(place / "spool", path)
        with interrupting.one(at), contextlib.suppress(KeyboardInterrupt):
            act(path)
        if not interrupting.place:
            break
        check(path, f"{interrupting.place}, line {at}", 1500)
        # A line that has been interrupted before, in a loop, need not be so each time.
        at += 1 if interrupting.place not in places else 17
        places.add(interrupting.place)
        shutil.rmtree(path)
    assert len(places) > 50


def test_who_goes_on_after_an_interrupt_has_every_line(place: Path) -> None:
    interrupting = Interrupting()
    places = set()
    at = 1
    while True:
        path = place / "spool"
        writer = small(path)
        with interrupting.one(at):
            while True:
                with contextlib.suppress(KeyboardInterrupt):
                    if writer.end == 1000:
                        break
                    writer.append(numbered(writer.end, writer.end + 100))
                    continue
                writer.prepare()
                assert not writer.end % 100, interrupting.place
        writer.close()
        assert lines_of(path) == numbered(0, 1000), interrupting.place
        shutil.rmtree(path)
        if not interrupting.place:
            break
        at += 1 if interrupting.place not in places else 17
        places.add(interrupting.place)
    assert len(places) > 50


def test_what_a_read_gave_is_kept_when_the_reader_is_interrupted(place: Path, failing: Failing) -> None:
    source, sink = os.pipe()
    path = place / "spool"
    writer = SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL)
    os.writev(sink, [numbered(0, 10)])
    for at in itertools.count(1):  # until it is the read itself
        with failing.one(at, KeyboardInterrupt, True), contextlib.suppress(KeyboardInterrupt):
            writer.read_from(source, SMALL // 2)
        if failing.name in ("readv", ""):
            break
    assert failing.name == "readv"
    writer.close()
    for descriptor in (source, sink):
        os.close(descriptor)
    with small(path) as writer:
        assert writer.end == 10
    assert lines_of(path) == numbered(0, 10)
