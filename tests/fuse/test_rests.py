"""Which requests are pieces of one write(2), and what is known of a thread of which another may come."""

import os
import subprocess
from pathlib import Path

import pytest

from futebus.core.bus import Bus
from futebus.core.client import Access, Client, Owner, Piece
from futebus.core.errors import MessageTooLong
from futebus.core.halves import Halves
from futebus.fuse import _hooks, callers, rests
from futebus.fuse.files import MOST_SWALLOWED, SPLIT_PIECE, OpenChannel
from futebus.fuse.rests import AT_ONCE, LOOKS, Rests, _sleeps
from futebus.host.processes import state_of

from ..helpers.programs import Start
from ..helpers.waiting import until

ONE, OTHER = 11, 12
LONG = 1 << 20


@pytest.fixture
def client() -> Client:
    made, _ = Bus().create(b"B_x", Access(reads=True, writes=True), Owner(0, 0, 1), 0o644, 0)
    return made


@pytest.mark.parametrize(
    ("caller", "size", "flags", "piece"),
    [
        (ONE, LONG, 0, Piece(ONE, 0, may_go_on=True)),
        (ONE, SPLIT_PIECE, os.O_NONBLOCK, Piece(ONE, 0, may_go_on=True)),
        (ONE, SPLIT_PIECE - 1, 0, None),
        (ONE, LONG, os.O_APPEND, None),
        (0, LONG, 0, None),
    ],
)
def test_what_may_be_a_piece(client: Client, caller: int, size: int, flags: int, piece: Piece | None) -> None:
    """Not where the kernel lets nobody come between; nor of threads that are not told apart."""
    assert Rests.piece(client, caller, 0, size, flags) == piece


def test_a_piece_goes_on_whatever_others_have_begun(client: Client) -> None:
    """So that what is wrong with it is told again, and what is left of a line that is too long is none."""
    file = OpenChannel(client, 1)
    bus = Bus()
    assert not file.continues_write(0, LONG, 0, ONE)
    bus.write(client, b"x" * 10, 0, "one", piece=Piece(ONE, LONG - 10, may_go_on=True))
    assert client.rest
    assert not file.continues_write(0, 5, 0, OTHER)
    assert file.continues_write(LONG, 5, 0, ONE)


def test_who_appends_has_no_place_of_his_own(client: Client) -> None:
    """So what another writes there is no piece of his."""
    file = OpenChannel(client, 1)
    assert not file.continues_write(0, LONG, os.O_APPEND, ONE)
    assert not file.continues_write(LONG, 5, os.O_APPEND, OTHER)
    assert not file.continues_write(LONG + 5, LONG, os.O_APPEND, ONE)
    assert file.continues_write(2 * LONG + 5, 5, os.O_APPEND, ONE)


def test_each_process_is_told_what_was_wrong_with_its_own(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "process", lambda thread: thread // 10)
    file = OpenChannel(client, 1)
    errors = {thread: MessageTooLong() for thread in range(0, 10 * MOST_SWALLOWED + 10, 10)}
    for thread, error in errors.items():
        file.swallow(error, thread)
    assert file.swallowed(10 * MOST_SWALLOWED + 10) is None
    assert [file.swallowed(thread + 1) for thread in errors] == [None, *[*errors.values()][1:]], "the oldest may be gone"
    assert [file.swallowed(thread) for thread in errors] == [None] * len(errors), "once"


def test_who_writes_is_known_when_a_line_was_left(client: Client) -> None:
    """Also of short writes: others are not to end that line."""
    assert Rests.piece(client, ONE, 0, 5, 0) is None
    client.halves = Halves(100)
    assert Rests.piece(client, ONE, 0, 5, os.O_APPEND) == Piece(ONE, 0, may_go_on=False)
    client.halves = None
    assert Rests.piece(client, ONE, LONG, 5, 0) == Piece(ONE, LONG, may_go_on=False), "it may be what leaves it"


# ---------------------------------------------------------------------------------------------- what a thread does


def test_what_a_thread_does(start: Start) -> None:
    busy, asleep = start("sh", "-c", "while :; do :; done"), start("sleep", "1000")
    until(lambda: Path(f"/proc/{asleep.pid}/comm").read_text() == "sleep\n", "it sleeps")
    until(lambda: state_of(asleep.pid) == b"S", "it is seen")
    assert _sleeps(asleep.pid, b"S")
    until(lambda: state_of(busy.pid) == b"R", "it runs")
    assert not _sleeps(busy.pid, b"R")
    gone = subprocess.Popen(["true"])
    until(lambda: state_of(gone.pid) == b"Z", "it has ended")
    gone.wait()
    assert state_of(gone.pid) == b""
    assert not _sleeps(gone.pid, b"")


@pytest.mark.parametrize(("where", "sleeps"), [(b"fuse_file_write_iter", True), (b"folio_wait_bit", False), (b"0", False)])
def test_who_cannot_be_interrupted_waits_for_a_lock_or_for_memory(
    where: bytes, sleeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is that of the file, which those hold who wait for him."""
    monkeypatch.setattr(rests, "told_of", lambda thread, what: where)
    assert _sleeps(ONE, b"D") is sleeps


# ---------------------------------------------------------------------------------------------- who waits


class Waiting:
    """Descriptions by which somebody waits, and what is known of the thread for which he does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bus = Bus()
        self.state, self.drained, self.is_waited_for, self.owes = b"R", 7, True, False
        self.ended: list[Client] = []
        self.rests = Rests(self._end, lambda: self.owes)
        monkeypatch.setattr(rests, "state_of", self._state)
        monkeypatch.setattr(_hooks, "drained", lambda: self.drained)
        monkeypatch.setattr(_hooks, "is_waited_for", lambda: self.is_waited_for)
        self.looks = 0

    def _state(self, thread: int) -> bytes:
        self.looks += 1
        return self.state

    def _end(self, client: Client) -> None:
        self.bus.end_rest(client, 0)
        self.ended.append(client)

    def add(self, uid: int = 0) -> Client:
        """One more. For whose rest it waits has written a piece."""
        client, _ = self.bus.create(b"B_x", Access(reads=False, writes=True), Owner(uid, 0, 1), 0o666, 0)
        self.bus.write(client, b"x\n", 0, object(), piece=Piece(ONE, 0, may_go_on=True))
        self.rests.watch(client)
        return client

    def look(self) -> None:
        """Looks once, as `Rests.run` does."""
        self.rests._look += 1
        for _ in range(AT_ONCE):
            self.rests._look_at_next()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


def test_who_sleeps_is_not_waited_for(waiting: Waiting) -> None:
    client, waiting.state, waiting.is_waited_for = waiting.add(), b"S", False
    waiting.look()
    assert waiting.ended == [client]
    assert not waiting.rests._watched


def test_who_sleeps_may_wait_for_his_next_piece_to_be_read(waiting: Waiting) -> None:
    """Until all have been read that were there then. There may always be new ones."""
    client, waiting.state = waiting.add(), b"S"
    waiting.look()
    waiting.look()
    assert waiting.ended == []
    waiting.drained += 1
    waiting.look()
    assert waiting.ended == [client]


def test_who_sleeps_may_wait_for_an_answer(waiting: Waiting) -> None:
    client, waiting.state, waiting.is_waited_for, waiting.owes = waiting.add(), b"S", False, True
    waiting.look()
    assert waiting.ended == []
    waiting.owes = False
    waiting.look()
    assert waiting.ended == [client]


def test_who_has_gone_is_not_waited_for(waiting: Waiting) -> None:
    client, waiting.state = waiting.add(), b"Z"
    waiting.look()
    assert waiting.ended == [client]


def test_who_runs_is_waited_for_up_to_a_time(waiting: Waiting) -> None:
    client = waiting.add()
    for _ in range(LOOKS - 1):
        waiting.look()
    assert waiting.ended == []
    waiting.look()
    assert waiting.ended == [client]


def test_a_rest_that_has_come_is_not_looked_for(waiting: Waiting) -> None:
    client = waiting.add()
    waiting.bus.end_rest(client, 0)
    waiting.look()
    assert (waiting.ended, waiting.looks) == ([], 0)
    assert not waiting.rests._watched


def test_one_user_who_has_many_keeps_nobody_waiting(waiting: Waiting) -> None:
    """Neither with the work for them, nor those of others."""
    for _ in range(10 * AT_ONCE):
        waiting.add(uid=1000)
    other = waiting.add(uid=1001)
    waiting.look()
    assert 0 < waiting.looks <= AT_ONCE
    waiting.state, waiting.is_waited_for = b"S", False
    waiting.look()
    assert other in waiting.ended
    for _ in range(LOOKS):
        waiting.look()
    assert len(set(waiting.ended)) == 10 * AT_ONCE + 1


def test_without_memory_nobody_waits(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    client = waiting.add()
    with monkeypatch.context() as patch:
        patch.setattr(rests, "state_of", fail)
        waiting.look()  # the bus goes on
    assert waiting.ended == []
    monkeypatch.setattr(rests, "_Watch", fail)
    other = waiting.add()
    assert waiting.ended == [other]
    waiting.state = b"Z"
    waiting.look()
    assert waiting.ended == [other, client]
