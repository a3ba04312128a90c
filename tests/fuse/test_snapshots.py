"""The texts of `_stat` and its like: who waits for them, who gets the same, and what is not made."""

import errno
import json
import os
import threading
import weakref
from collections.abc import Mapping

import pytest

from futebus.core import stat
from futebus.core.bus import Bus
from futebus.core.client import Access, Owner
from futebus.fuse import snapshots as snapshots_module
from futebus.fuse.files import OpenStat
from futebus.fuse.snapshots import Snapshots
from futebus.fuse.turns import Turns

from ..helpers.garbage import nothing_collected
from ..helpers.mounts import Mount
from ..helpers.waiting import until


def counts() -> Mapping[str, int]:
    return {"nodes": 3}


@pytest.fixture
def bus_of_many() -> Bus:
    bus = Bus()
    for number in range(200):
        bus.create(b"B_%d" % number, Access(True, True), Owner(0, 0, 1), 0o644, 0)
    return bus


def files(count: int, name: bytes = b"_stat") -> list[OpenStat]:
    return [OpenStat(name, 0, 1) for _ in range(count)]


def text_of(file: OpenStat) -> str:
    assert file._text is not None
    return file._text.decode()


def test_all_who_come_while_one_is_made_get_the_same_next(bus_of_many: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens it in a loop, a thousand times at once, costs one text for himself and one for all others."""
    made = []
    real = stat.for_people
    monkeypatch.setitem(snapshots_module.WAYS, b"_stat", lambda *given: made.append(given) or real(*given))  # type: ignore[func-returns-value]
    turns = Turns()
    snapshots = Snapshots(bus_of_many, turns, "/bus")
    first, *others = files(1000)
    snapshots.take(first, counts)
    bus_of_many.create(b"B_later", Access(True, True), Owner(0, 0, 1), 0o644, 0)
    for file in others:
        snapshots.take(file, counts)
    assert len(turns) == 1
    turns.finish()
    assert len(made) == 2
    assert text_of(first).count("\nB_") == 400
    assert "B_later" not in text_of(first)
    assert text_of(others[0]).count("\nB_") == 402
    assert all(file._text is others[0]._text for file in others)
    assert text_of(first).endswith("\n\ninside: 3 nodes\n")


def test_each_gets_its_own_form_of_one_moment(bus_of_many: Bus) -> None:
    turns = Turns()
    snapshots = Snapshots(bus_of_many, turns, "/bus")
    first = files(1)[0]
    snapshots.take(first, counts)
    people, programs, metrics = (OpenStat(name, 0, 1) for name in (b"_stat", b"_stat.json", b"_metrics"))
    for file in (people, programs, metrics):
        snapshots.take(file, counts)
    turns.finish()
    assert text_of(people).startswith("futebus ")
    told = json.loads(text_of(programs))
    assert len(told["channels"]) == 200
    assert told["daemon_pid"] == os.getpid()
    assert text_of(metrics).endswith("\n# EOF\n")


def test_what_nobody_waits_for_is_not_made(bus_of_many: Bus) -> None:
    turns = Turns()
    snapshots = Snapshots(bus_of_many, turns, "/bus")
    first, second, third = files(3)
    for file in (first, second, third):
        snapshots.take(file, counts)
    turns.take()
    second.on_close(second)
    first.on_close(first)
    assert bus_of_many.taking is None, "what was begun for the first is given up"
    turns.finish()
    assert second._text is None
    assert text_of(third).count("\nB_") == 400
    snapshots.take(first, counts)
    first.on_close(first)
    turns.finish()
    assert len(turns) == 0
    assert bus_of_many.taking is None


def test_one_that_fails_does_not_stop_the_next(bus_of_many: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise MemoryError

    turns = Turns()
    snapshots = Snapshots(bus_of_many, turns, "/bus")
    people, programs = OpenStat(b"_stat", 0, 1), OpenStat(b"_stat.json", 0, 1)
    with monkeypatch.context() as patch:
        patch.setitem(snapshots_module.WAYS, b"_stat", fail)
        for file in (people, programs):
            snapshots.take(file, counts)
        turns.take()
        patch.setattr(stat, "Taking", fail)
        turns.finish()
    assert text_of(people) == "internal error: see the log\n"
    assert programs.read(None, 100, 0) == -errno.EIO, "what is no JSON is not given for it"  # type: ignore[arg-type]
    for broken in ("Taking", "Daemon"):
        with monkeypatch.context() as patch:
            patch.setattr(stat, broken, fail)
            with pytest.raises(MemoryError):
                snapshots.take(files(1)[0], counts)
        turns.finish()
        assert bus_of_many.taking is None
    last = files(1)[0]
    snapshots.take(last, counts)
    turns.finish()
    assert text_of(last).startswith("futebus ")


@pytest.mark.parametrize("broken", ["Taking", "Daemon"])
def test_who_waits_for_one_that_cannot_be_begun_is_told(bus_of_many: Bus, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The one before it is given up, and somebody else opens the file: he has the error, and must not be the only one."""

    def fail(*given: object) -> None:
        raise MemoryError

    turns = Turns()
    snapshots = Snapshots(bus_of_many, turns, "/bus")
    first, second, third = files(3)
    snapshots.take(first, counts)
    turns.take()
    snapshots.take(second, counts)
    first.on_close(first)
    with monkeypatch.context() as patch:
        patch.setattr(stat, broken, fail)
        with pytest.raises(MemoryError):
            snapshots.take(third, counts)
    turns.finish()
    assert text_of(second) == "internal error: see the log\n"
    assert third._text is None
    assert bus_of_many.taking is None


def test_at_the_end_everybody_gets_an_answer(bus_of_many: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, words in ((10, "futebus "), (0, "internal error")):
        monkeypatch.setattr(snapshots_module, "LAST_SECONDS", seconds)
        snapshots = Snapshots(bus_of_many, Turns(), "/bus")
        some = files(3)
        for file in some:
            snapshots.take(file, counts)
        snapshots.end()
        assert all(text_of(file).startswith(words) for file in some)
        late = files(1)[0]
        snapshots.take(late, counts)
        assert text_of(late).startswith("internal error")
        assert bus_of_many.taking is None


class FakeRequest:
    """A request of the kernel, which may be answered once."""

    def __init__(self) -> None:
        self.answered: bytes | int | None = None

    def data(self, data: bytes) -> None:
        assert self.answered is None
        self.answered = data

    def error(self, number: int) -> None:
        assert self.answered is None
        self.answered = number


def test_one_that_is_closed_is_let_go_at_once(bus_of_many: Bus) -> None:
    """Whoever looks once a second must not fill the memory with what was seen."""
    turns = Turns()
    snapshots = Snapshots(bus_of_many, turns, "/bus")
    with nothing_collected():
        for name in (b"_stat", b"_stat.json", b"_metrics"):
            file = OpenStat(name, 0, 1)
            snapshots.take(file, counts)
            turns.finish()
            file.on_close(file)
            seen = weakref.ref(file)
            del file
            assert seen() is None


def test_those_who_read_at_the_same_time_are_answered_one_by_one(bus_of_many: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one description, thousands of threads may read: each answer is up to a mebibyte."""
    monkeypatch.setattr(snapshots_module, "STEP_SECONDS", 0)
    turns = Turns()
    snapshots = Snapshots(bus_of_many, turns, "/bus")
    file = files(1)[0]
    snapshots.take(file, counts)
    requests = [FakeRequest() for _ in range(100)]
    for request in requests:
        assert file.read(request, 100, 0) is None  # type: ignore[arg-type]
    answered = 0
    while len(turns):
        turns.take()
        now = sum(request.answered is not None for request in requests)
        assert now - answered <= 1
        answered = now
    assert {request.answered for request in requests} == {bytes(file._text or b"")[:100]}


def test_what_goes_wrong_with_one_answer_harms_nobody_else(bus_of_many: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    snapshots = Snapshots(bus_of_many, turns, "/bus")
    file, other = files(2)
    snapshots.take(file, counts)
    requests = [FakeRequest() for _ in range(3)]
    for request in requests:
        file.read(request, 10, 0)  # type: ignore[arg-type]
    failures = [MemoryError(), RuntimeError()]
    real = OpenStat._piece

    def piece(self: OpenStat, offset: int, size: int) -> bytes:
        if failures:
            raise failures.pop()
        return real(self, offset, size)

    with monkeypatch.context() as patch:
        patch.setattr(OpenStat, "_piece", piece)
        turns.finish()
    assert [request.answered for request in requests] == [errno.EIO, errno.EIO, b"futebus 0."]
    snapshots.take(other, counts)
    turns.finish()
    assert text_of(other).startswith("futebus ")


def test_programs_read_the_same_bus(bus: Mount) -> None:
    """While lines pass, each snapshot adds up, and what was done before it was opened is in it."""
    name = bus.touch("B_x").name
    reader = os.open(bus / f"+{name}", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(bus / name, os.O_WRONLY)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            os.write(writer, b"abc\n" * 50)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(50):
            os.write(writer, b"before\n")
            told = json.loads((bus / "_stat.json").read_bytes())
            (channel,) = told["channels"]
            waiting = sum(client["rlist_messages"] for client in channel["clients"])
            assert channel["copies"] == channel["messages_out"] + channel["dropped"] + channel["lost"] + waiting
            assert channel["messages_in"] > number
            if number % 10 == 0:
                os.read(reader, 1 << 20)
    finally:
        ended.set()
        thread.join()
        os.close(writer)
        os.close(reader)
    until(lambda: not json.loads((bus / "_stat.json").read_bytes())["channels"][0]["clients"], "all have closed")
    assert sorted(os.listdir(bus.path)) == ["B_x", "_metrics", "_stat", "_stat.json"]


@pytest.mark.parametrize("name", ["_stat", "_stat.json", "_metrics"])
def test_they_are_the_bus_own(bus: Mount, name: str) -> None:
    with pytest.raises(PermissionError):
        os.chmod(bus / name, 0o600)
    with pytest.raises(OSError, match=os.strerror(errno.ESRCH)):
        os.open(bus / name, os.O_WRONLY)
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        os.unlink(bus / name)
    assert (bus / f"+{name}").read_bytes()[:8] == (bus / name).read_bytes()[:8]
    assert len({os.stat(bus / each).st_ino for each in ("_stat", "_stat.json", "_metrics")}) == 3


def test_a_refused_append_is_not_refused_again(bus: Mount) -> None:
    """An append begins where the one before ended; only what is as long as the kernel's pieces is taken for a further one."""
    file = os.open(bus / "A_x", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    line = b"{*}" + b"x" * 1000 + b"\n"
    assert os.write(file, line * 600) == len(line) * 600
    with pytest.raises(OSError, match=os.strerror(errno.EFAULT)):
        os.write(file, b"no address\n")
    assert os.write(file, b"{*}good\n") == 8
    os.close(file)
