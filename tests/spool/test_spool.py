"""The spool by itself: offsets and pieces, who may write it, retention, and what is brought to the disk."""

import contextlib
import fcntl
import io
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from futebus.spool import ForeignSpool, LinesGone, NotASpool, Spool, SpoolInUse, SpoolLock, SpoolWriter, is_in_use, layout, older
from futebus.spool.layout import count_lines

from ..helpers.waiting import DEADLINE
from .spools import SMALL, lines_of, numbered, path, small

__all__ = ["path"]


# ---------------------------------------------------------------------------------------------- against a naive list of lines

TEXTS = st.binary(max_size=300).map(lambda data: data.replace(b"\n", b""))


class Naive(RuleBasedStateMachine):
    """A spool is a list of lines, of which retention takes some away at the front."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="futebus-"))
        self.path = self.directory / "spool"
        self.lines: list[bytes] = []
        self.unfinished = b""
        self.lost = 0
        self.moments: list[tuple[int, int]] = []
        """Times, and how many lines there were."""

    @initialize()
    def open(self) -> None:
        self.writer = small(self.path)
        self.reader = Spool(self.path)

    @rule(texts=st.lists(TEXTS, max_size=20), longer=st.sampled_from([1, 1, 1, 200]), rest=TEXTS)
    def append(self, texts: list[bytes], longer: int, rest: bytes) -> None:
        data = b"".join(text * longer + b"\n" for text in texts) + rest
        self.writer.append(data)
        *whole, self.unfinished = (self.unfinished + data).split(b"\n")
        self.lines += [text + b"\n" for text in whole]

    @rule(count=st.integers(1, 5))
    def lose(self, count: int) -> None:
        self.writer.note_lost(count)
        self.lost += count

    @rule(is_continued=st.booleans())
    def reopen(self, is_continued: bool) -> None:
        self.writer.close()
        self.writer = small(self.path, is_continued=is_continued)
        if is_continued:
            # The one thing that cannot be told from the zeros behind the lines.
            self.unfinished = self.unfinished.rstrip(b"\0")
        else:
            assert self.writer.torn == len(self.unfinished.rstrip(b"\0"))
            self.unfinished = b""

    @rule(share=st.floats(0, 1), size=st.integers(0, 3 * SMALL), by_offset=st.booleans())
    def retain(self, share: float, size: int, by_offset: bool) -> None:
        before = self.reader.begin
        wanted = int(share * self.writer.end)
        removed = self.writer.retain(offset=wanted) if by_offset else self.writer.retain(size=size)
        assert self.reader.begin == before + removed
        if by_offset:
            assert self.reader.begin <= max(wanted, before)
        elif removed:
            assert sum(map(len, self.lines[self.reader.begin :])) >= size

    @precondition(lambda self: len(self.moments) < 5)
    @rule()
    def remember(self) -> None:
        self.moments.append((max(time.time_ns(), self.reader.last.time + 1), len(self.lines)))
        while time.time_ns() <= self.moments[-1][0]:
            pass

    @rule(shares=st.tuples(st.floats(0, 1), st.floats(0, 1)), size=st.sampled_from([1, 50, 5000, 10**6]))
    def look(self, shares: tuple[float, float], size: int) -> None:
        room = len(self.lines) - self.reader.begin
        first, last = sorted(self.reader.begin + round(share * room) for share in shares)
        pieces = list(self.reader.pieces(first, last, size))
        assert b"".join(piece.read() for piece in pieces) == b"".join(self.lines[first:last])
        assert [piece.first for piece in pieces] == list(itertools.accumulate((piece.lines for piece in pieces), initial=first))[
            :-1
        ]
        for piece in pieces:
            assert sum(count for count, _ in piece.times) == piece.lines == count_lines(piece.read())
        if first < len(self.lines):
            sizes = itertools.accumulate(map(len, self.lines[first:]))
            fitting = sum(1 for total in sizes if total <= size)
            assert self.reader.offset_after(first, size) == first + max(fitting, 1)

    @invariant()
    def agrees(self) -> None:
        assert self.reader.end == self.writer.end == len(self.lines)
        assert self.reader.last.lost == self.writer.lost == self.lost
        assert Spool(self.path).end == len(self.lines)
        for moment, count in self.moments:
            assert self.reader.offset_at(moment) == max(count, self.reader.begin)

    def teardown(self) -> None:
        self.writer.close()
        shutil.rmtree(self.directory)


TestAgainstANaiveList = Naive.TestCase
TestAgainstANaiveList.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)


# ---------------------------------------------------------------------------------------------- who may


def test_what_is_no_spool_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for directory in (tmp_path, tmp_path / "file", tmp_path / "file" / "below", tmp_path / "no" / "parent"):
        with pytest.raises(NotASpool):
            SpoolWriter(directory, "B_x")
        with pytest.raises(NotASpool):
            Spool(directory)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "precious"


def test_a_spool_of_another_channel_that_has_no_lines_says_so(path: Path) -> None:
    """Whoever has mistyped the channel's name before is told what to do, if no lines are lost by it."""
    small(path, channel="B_typo").close()
    with pytest.raises(
        ForeignSpool, match=r"is the spool of B_typo, not of B_x; it has no lines, so rm -r takes it out of the way$"
    ):
        small(path)
    with small(path, channel="B_typo") as spool:
        spool.append(b"\0\n")
    with pytest.raises(ForeignSpool, match=r"not of B_x$"):
        small(path)
    with small(path, channel="B_typo") as spool:
        assert spool.retain(age=0) == 1
    with pytest.raises(ForeignSpool, match=r"not of B_x$"):
        small(path)


def test_a_spool_of_another_channel_or_format_is_left_alone(path: Path) -> None:
    with small(path) as spool:
        spool.append(b"one\n")
    with pytest.raises(ForeignSpool, match="is the spool of B_x, not of B_y"):
        small(path, channel="B_y")
    identity = json.loads((path / "spool.json").read_bytes())
    (path / "spool.json").write_text(json.dumps({**identity, "format": 3}))
    with pytest.raises(NotASpool, match="another format"):
        small(path)
    for damaged in ("{", "[" * 60_000, '{"format": 1e999}'):
        (path / "spool.json").write_text(damaged)
        with pytest.raises(NotASpool, match="damaged"):
            small(path)


def test_one_writes(path: Path) -> None:
    with small(path) as writer:
        with pytest.raises(SpoolInUse, match=f"is being written by process {os.getpid()}$"):
            small(path)
        writer.append(b"one\n")
    with small(path) as writer:
        assert writer.end == 1


@pytest.mark.parametrize("signed", [b"999999999\n", b"9" * 30, b"0\n", b"-5\n", b"self", b"\xff\0", b""])
def test_who_writes_is_named_if_it_is_a_process(path: Path, signed: bytes) -> None:
    """And not one that has ended, and has left a child that has the lock."""
    with small(path):
        (path / "lock").write_bytes(signed)
        with pytest.raises(SpoolInUse, match=r"is being written by another process$"):
            small(path)


def test_who_has_ended_is_not_named_while_nobody_has_asked_how(path: Path) -> None:
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with small(path):
        (path / "lock").write_text(f"{child.pid}\n")
        with pytest.raises(SpoolInUse, match=r"is being written by another process$"):
            small(path)
    child.wait()


def test_another_channels_spool_that_is_being_written_is_said_to_be_that(path: Path) -> None:
    """It need not be waited for; and it is not for anybody to remove."""
    with small(path), pytest.raises(ForeignSpool, match=r"is the spool of B_x, not of B_y$"):
        SpoolLock(path, "B_y", patience=DEADLINE)


def test_who_is_about_to_end_is_waited_for(path: Path) -> None:
    """As the children of a recorder that was killed a moment ago, which have the lock until they are gone."""
    writer = small(path)
    with ThreadPoolExecutor() as threads:
        second = threads.submit(lambda: SpoolLock(path, "B_x", patience=DEADLINE))
        with pytest.raises(TimeoutError):
            second.result(0.2)
        writer.close()
        second.result(DEADLINE).close()


@pytest.mark.parametrize("how", ["removed", "moved", "unlocked"])
def test_who_waits_for_a_spool_gets_the_one_that_is_there_then(path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Nobody else would see that he writes another, or that two write one."""
    writer = small(path)
    before = Spool(path).id
    take, has_tried = SpoolLock._take, threading.Event()

    def trying(lock: SpoolLock) -> None:
        try:
            take(lock)
        finally:
            has_tried.set()

    monkeypatch.setattr(SpoolLock, "_take", trying)
    with ThreadPoolExecutor() as threads:
        second = threads.submit(lambda: SpoolLock(path, "B_x", patience=DEADLINE))
        assert has_tried.wait(DEADLINE), "it has seen that somebody has it"
        with pytest.raises(TimeoutError):
            second.result(0.2)
        if how == "removed":  # as rm -r does, which takes its time
            (path / "spool.json").unlink()
            with pytest.raises(TimeoutError):
                second.result(0.2)
            path.rename(path.with_name("elsewhere"))
        elif how == "unlocked":
            (path / "lock").unlink()
        else:
            path.rename(path.with_name("elsewhere"))
        writer.close()
        with contextlib.closing(second.result(DEADLINE)) as lock:
            lock.check()
            assert (lock.id == before) == (how == "unlocked")
            with pytest.raises(SpoolInUse):
                small(path)


@pytest.mark.parametrize("moment", ["before", "behind"])
def test_a_spool_that_is_removed_while_it_is_begun_is_begun_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """As when one process gives it back, and the next comes."""
    flock, has_gone = fcntl.flock, False

    def late(file: io.FileIO, operation: int) -> None:
        nonlocal has_gone
        if moment == "behind":
            flock(file, operation)
        if not has_gone:
            has_gone = True
            shutil.rmtree(path)
        if moment == "before":
            flock(file, operation)

    monkeypatch.setattr("futebus.spool.lock.fcntl.flock", late)
    with small(path) as writer:
        writer.append(b"line\n")
    assert has_gone
    assert lines_of(path) == b"line\n"


def test_who_only_looks_whether_a_spool_is_in_use_makes_nothing(path: Path) -> None:
    assert not is_in_use(path, "B_x")
    assert not path.exists()
    with small(path):
        assert is_in_use(path, "B_x")
    assert not is_in_use(path, "B_x")
    with contextlib.closing(SpoolLock(path, "B_x")) as lock:
        os.chown(path / "lock", 65534, -1)  # who could hold up whoever waits for it
        assert not is_in_use(lock.path, "B_x")
    lock_file = path / "lock"
    odd: list[Callable[[], None]] = [
        lambda: lock_file.symlink_to("/dev/zero"),
        lambda: os.mkfifo(lock_file),
        lock_file.mkdir,
    ]
    for make in odd:
        lock_file.unlink()
        make()
        assert not is_in_use(path, "B_x")


def test_two_may_make_one_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def quicker(directory: Path, mode: int) -> None:
        mkdir(directory, mode)
        mkdir(directory, mode)

    monkeypatch.setattr(Path, "mkdir", quicker)
    small(path).close()


def test_a_lock_outlives_its_writers_and_knows_its_spool(path: Path) -> None:
    lock = SpoolLock(path, "B_x")
    for number in range(2):
        with SpoolWriter(path, "B_x", lock=lock, first_segment_bytes=SMALL) as writer:
            writer.append(b"%d\n" % number)
        with pytest.raises(SpoolInUse):
            small(path)
    shutil.rmtree(path)
    with pytest.raises(NotASpool, match="has been removed"):
        SpoolWriter(path, "B_x", lock=lock)
    assert not path.exists()
    lock.close()


def test_who_was_killed_while_it_began_one_is_in_nobodys_way(path: Path) -> None:
    path.mkdir()
    (path / "lock").touch()
    (path / "spool.json.new").write_text('{"form')
    with small(path) as writer:
        writer.append(b"one\n")
    assert lines_of(path) == b"one\n"


def test_an_offset_belongs_to_one_spool(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 3))
    spool = Spool(path)
    spool.check(spool.id, 3)
    with pytest.raises(LinesGone, match="does not have line 3 any more"):
        spool.check(spool.id, 4)
    with pytest.raises(ForeignSpool):
        spool.check("another", 0)
    with pytest.raises(LinesGone, match="line 3 is not in"):
        lines_of(spool, 0, 4)


# ---------------------------------------------------------------------------------------------- what goes


def test_age_removes_old_lines_also_where_few_come(path: Path) -> None:
    with small(path) as writer:
        writer.append(b"old\n")
        assert writer.retain(age=3600) == 0
        assert lines_of(path) == b"old\n"
        moment = time.time()
        while time.time() < moment + 0.002:
            pass
        assert writer.retain(age=0.001) == 1
        assert lines_of(path) == b""
        writer.append(b"new\n")
        assert Spool(path).begin == 1
        assert lines_of(path) == b"new\n"


def test_age_does_not_cut_a_line_that_is_not_finished(path: Path) -> None:
    with small(path) as writer:
        writer.append(b"old\nhal")
        moment = time.time()
        while time.time() < moment + 0.002:
            pass
        assert writer.retain(age=0.001) == 1
        writer.append(b"f\n")
    assert lines_of(path) == b"half\n"


def test_a_reader_is_told_when_retention_is_faster(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 50))
        reader = Spool(path)
        piece = next(reader.pieces(0, 50))
        writer.append(numbered(50, 2000))
        writer.retain(offset=2000)
        with pytest.raises(LinesGone):
            piece.read()
        with pytest.raises(LinesGone, match=r"line 0 .* has been removed"):
            lines_of(reader, 0, 50)
        assert lines_of(reader) == numbered(reader.begin, 2000)


def test_what_is_kept_is_kept_also_if_a_segment_ends_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of its own removes old lines. Its writer may go on to the next segment between any two calls."""
    with small(path) as writer:
        writer.append(numbered(0, 80))
        list_segments = layout.segment_firsts

        def ending(*arguments: Any) -> list[int]:
            monkeypatch.undo()
            writer.append(numbered(80, 100))
            assert len(list(path.glob("*.index"))) == 2
            return list_segments(*arguments)

        monkeypatch.setattr(older, "segment_firsts", ending)
        assert writer.remove_old(size=4000) == 0
    assert lines_of(path) == numbered(0, 100)


def test_follow_gives_what_comes_later(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 2))
        coming = Spool(path).follow(1, patience=20)
        assert next(coming).read() == numbered(1, 2)
        writer.append(numbered(2, 1000))
        assert next(coming).read() == numbered(2, 1000)
        assert list(Spool(path).follow(1000)) == []


def test_lost_lines_are_told_by_where_they_were(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 10))
        reader = Spool(path)
        assert reader.last.lost == 0
        writer.note_lost(3)
        assert reader.last.lost == 3
        writer.note_lost(4)
        assert reader.last.lost == 7
        writer.append(numbered(10, 20))
        assert [reader.lost_before(offset) for offset in (0, 10, 11, 20)] == [0, 0, 7, 7]
        assert Spool(path).lost_before(20) == 7


def test_a_reader_does_not_go_on_in_another_spool(path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 10))
    reader = Spool(path)
    assert reader.end == 10
    path.rename(path.with_name("old"))
    with small(path) as writer:
        writer.append(numbered(0, 20))
    with pytest.raises(ForeignSpool, match=f"it is {Spool(path).id}, not {reader.id}"):
        _ = reader.end


# ---------------------------------------------------------------------------------------------- what is on the disk


def test_sync_sees_to_segments_that_have_ended(path: Path) -> None:
    with small(path) as writer:
        for begin in range(0, 2000, 100):
            writer.append(numbered(begin, begin + 100))
        assert len(writer._unsynced) > 0
        writer.sync()
        assert writer._unsynced == []
    with small(path) as writer:  # the one before may have been killed before it could
        assert len(writer._unsynced) > 0
        writer.retain(offset=2000)
        writer.sync()
        assert writer._unsynced == []


def test_another_thread_may_sync(path: Path) -> None:
    with small(path) as writer, ThreadPoolExecutor() as pool:

        def add() -> None:
            for begin in range(0, 10000, 100):
                writer.append(numbered(begin, begin + 100))

        adding = pool.submit(add)
        while not adding.done():
            writer.sync()
        adding.result()
    assert lines_of(path) == numbered(0, 10000)


def test_short_segments_get_full_too(tmp_path: Path) -> None:
    """A read wants a megabyte of room, which is all that the shortest segment of a recorder has."""
    read, write = os.pipe()
    with SpoolWriter(tmp_path / "spool", "B_x", segment_bytes=1 << 20) as writer:
        for _ in range(3000):
            os.write(write, b"x" * 999 + b"\n")
            writer.read_from(read)
    assert len(list((tmp_path / "spool").glob("*.lines"))) <= 5
    assert Spool(tmp_path / "spool").end == 3000
    os.close(read)
    os.close(write)
