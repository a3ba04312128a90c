"""An error inside, for want of memory say, leaves nobody waiting and nothing behind that could not be put right."""

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from futebus.core import writes
from futebus.core.bus import Bus
from futebus.core.channel import READERS_AT_ONCE, Behind, Broadcast, Channel
from futebus.core.client import Client, Effects, Piece
from futebus.core.errors import Broken, MessageTooLong, NobodyReads, ShuttingDown, WouldBlock
from futebus.core.framing import Run
from futebus.core.limits import Limits
from futebus.core.mailbox import Mailbox
from futebus.core.writes import Writes

from ..helpers.garbage import nothing_collected
from .driver import RO, ROOT, RW, USER, WO, Driver


class Token:
    """One that can be looked after."""


def failing(times: int, real: Callable[..., Any], only: Callable[..., bool] = lambda *words: True) -> Callable[..., Any]:
    """What fails so many times, and then does what it should."""
    left = [times]

    def fail(*words: Any, **more: Any) -> Any:
        if left[0] and only(*words):
            left[0] -= 1
            raise MemoryError
        return real(*words, **more)

    return fail


def test_a_read_for_which_there_is_no_memory_fails_and_its_message_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    writer, _ = bus.create(b"B_x", WO, ROOT, 0o644, 0)
    readers = [bus.open(writer.channel, RO, ROOT, 0)[0] for _ in range(3)]
    for reader in readers:
        assert bus.read(reader, 4, 0, reader.id)[0] is None
    monkeypatch.setattr(Mailbox, "read", failing(1, Mailbox.read))
    taken, effects = bus.write(writer, b"hello\n", 0, "w")
    assert taken == 6
    answers = dict(effects.finished)
    assert isinstance(answers[readers[0].id], Broken)
    assert [answers[reader.id] for reader in readers[1:]] == [b"hell", b"hell"]
    assert bus.waiting == 0
    assert bus.cancel(readers[0].id, 0) is None, "a signal that comes too late finds nothing"
    assert bus.read(readers[0], 100, 0)[0] == b"hello\n"


def test_a_message_is_not_dropped_before_there_is_memory_for_its_piece() -> None:
    class Piece(bytes):
        """Fails when it is cut."""

        def __getitem__(self, key: Any) -> Any:
            if fails:
                raise MemoryError
            return super().__getitem__(key)

    fails = True
    mailbox = Mailbox(10, 1000)
    mailbox.put(Run(Piece(b"hello\nworld\n"), 2))
    with pytest.raises(MemoryError):
        mailbox.read(3, bulk=False)
    assert (mailbox.messages, mailbox.size, mailbox.rbuf_size) == (2, 12, 0)
    fails = False
    assert [mailbox.read(3, bulk=False) for _ in range(2)] == [(b"hel", 1), (b"lo\n", 0)]


def test_a_message_that_is_read_in_pieces_is_not_copied_for_each() -> None:
    mailbox = Mailbox(10, 1 << 20)
    line = b"x" * 100_000 + b"\n"
    mailbox.put(Run(line, 1))
    assert mailbox.read(1, bulk=False) == (b"x", 1)
    assert mailbox._message is line
    assert mailbox.rbuf == line[1:]


@pytest.mark.parametrize("where", ["end_reads", "wake_poller"])
def test_a_close_that_failed_can_be_repeated(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    bus = Bus()
    master, _ = bus.create(b".U_x", RW, USER, 0o644, 0)
    slaves = [bus.open(master.channel, RW, ROOT, 0)[0] for _ in range(2)]
    for slave in slaves:
        bus.read(slave, 10, 0, slave.id)
        bus.poll(slave, arm=True)
    monkeypatch.setattr(Client, where, failing(1, getattr(Client, where)))
    finished = []
    for _ in range(2):
        try:
            effects = bus.close(master, 0)
        except MemoryError:
            continue
        finished += effects.finished
    assert b"U_x" not in bus.channels
    assert master not in bus.clients
    assert bus._clients_of == {ROOT.uid: 2}
    assert (slaves[1].id, b"") in finished, "the others hear of it"
    bus.create(b".U_x", RW, USER, 0o644, 0)


def test_an_open_that_failed_leaves_no_ghost(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    master, _ = bus.create(b".S_x", RW, ROOT, 0o644, 0)
    monkeypatch.setattr(Client, "deliver_control", failing(1, Client.deliver_control))
    with pytest.raises(MemoryError):
        bus.open(master.channel, RW, ROOT, 0)
    assert set(master.channel.clients.values()) == bus.clients == {master}
    assert not master.channel.readers


def test_a_create_that_failed_leaves_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    monkeypatch.setattr(Channel, "add", failing(1, Channel.add))
    with pytest.raises(MemoryError):
        bus.create(b".U_x", RW, ROOT, 0o644, 0)
    assert not bus.channels
    bus.create(b".U_x", RW, ROOT, 0o644, 0)


def test_a_write_that_failed_half_way_has_its_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    writer, _ = bus.create(b"A_x", RW, ROOT, 0o644, 0)
    readers = [bus.open(writer.channel, RO, ROOT, 0)[0] for _ in range(2)]
    for reader in readers:
        bus.read(reader, 100, 0, reader.id)
    third = bus.open(writer.channel, RO, ROOT, 0)[0]
    monkeypatch.setattr(Client, "deliver", failing(1, Client.deliver, lambda client, *rest: client is third))
    taken, effects = bus.write(writer, b"{2}two\n{3}three\n{4}four\n", 0, "w")
    assert taken == 16
    assert isinstance(effects.failure, MemoryError)
    assert effects.finished == [(2, b"{1}two\n"), (3, b"{1}three\n")]
    monkeypatch.setattr(Client, "deliver", failing(1, Client.deliver))
    taken, effects = bus.write(writer, b"{4}four\n", 0, "w")
    [(token, answer)] = effects.finished
    assert (taken, token, type(answer)) == (None, "w", Broken)
    assert bus.waiting == 0


def test_an_answer_keeps_nothing_alive() -> None:
    """Neither its call nor the frames that it came through: the garbage collector hardly ever looks."""
    with nothing_collected():
        bus = Bus(Limits(max_queue=1))
        master, _ = bus.create(b".U_x", RW, ROOT, 0o644, 0)
        slave, _ = bus.open(master.channel, RW, ROOT, 0)
        bus.write(slave, b"full\n", 0)
        first, second = Token(), Token()
        watched = [weakref.ref(token) for token in (first, second)]
        bus.write(slave, b"one\n", 0, first)
        bus.write(slave, b"two\n", 0, second)
        effects: Effects = bus.close(master, 0)
        later = list(effects.later)
        answers = list(effects.finished)
        for what in later:
            answers += bus.go_on(what, 0).finished
        assert [type(answer) for _, answer in answers] == [NobodyReads] * 2
        del first, second, effects, later, answers, what
        assert [each() for each in watched] == [None, None]


LONG = Piece("a", 0, may_go_on=True)


def test_others_have_their_turn_when_there_is_memory_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Driver()
    writer = bus.create(b"B_x", WO)
    assert bus.write_piece(writer, b"one\n", LONG, "one") == 4
    assert bus.write_piece(writer, b"two\n", Piece("b", 0, may_go_on=False), "two") is None
    with monkeypatch.context() as patch:
        patch.setattr(Writes, "_have_turn", failing(1, Writes._have_turn))
        with pytest.raises(MemoryError):
            bus.bus.end_rest(writer, 9)
    assert writer.rest, "it can be ended again"
    bus.end_rest(writer)
    assert bus.ended() == [("two", 4)]


@pytest.mark.parametrize("failed", ["_end", "_have_turn", "_leaves_rest"])
def test_a_write_that_cannot_be_ended_ends_the_next_time(failed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come of it by then is not lost, and those behind it go on."""
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b".U_x")
    slave, other = bus.open(b"U_x"), bus.open(b"U_x")
    bus.write(slave, b"one\n")
    bus.start_write(slave, b"two\n", "two")
    bus.start_write(slave, b"three\n", "three")
    bus.start_write(other, b"four\n", "four")
    monkeypatch.setattr(Writes, failed, failing(1, getattr(Writes, failed)))
    piece, effects = bus.bus.read(master, 100, 9)
    assert piece == b"one\n"
    assert isinstance(effects.failure, MemoryError)
    effects.failure = None
    bus._keep(effects)
    assert bus.read_all(master) == [b"two\n", b"four\n", b"three\n"]
    assert sorted(bus.ended(), key=str) == [("four", 5), ("three", 6), ("two", 4)]
    assert bus.bus.waiting == 0


def test_who_waits_for_a_broadcast_and_fails_is_the_next_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    writer, _ = bus.create(b"B_x", WO, ROOT, 0o644, 0)
    other, _ = bus.open(writer.channel, WO, ROOT, 0)
    for _ in range(READERS_AT_ONCE + 1):
        bus.open(writer.channel, RO, ROOT, 0)
    _, effects = bus.write(writer, b"one\n", 0, "one", work=500)
    assert bus.write(other, b"two\n", 0, "two", work=500)[0] is None
    later, finished = effects.later, []
    monkeypatch.setattr(Writes, "_advance", failing(1, Writes._advance))
    failures = 0
    while later:
        what = later.pop(0)
        try:
            effects = bus.go_on(what, 0, work=500)
        except MemoryError:
            failures += 1
            assert isinstance(what, Behind)
            later.append(what)
            continue
        later += effects.later
        finished += effects.finished
    assert failures == 1
    assert [token for token, _ in finished] == ["one", "two"]


@pytest.mark.parametrize("what", ["in its turn", "for the master"])
def test_a_write_of_which_there_is_no_memory_to_keep_the_rest_is_short(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that come then do not wait for it."""
    bus = Bus(Limits(max_queue=1 if what == "for the master" else 100_000))
    master, _ = bus.create(b".U_x", RW, ROOT, 0o644, 0)
    slave, _ = bus.open(master.channel, WO, ROOT, 0)
    data = b"one\ntwo\n" if what == "for the master" else b"x\n" * 80_000
    monkeypatch.setattr(Writes, "_keep_first", failing(1, Writes._keep_first))
    taken, effects = bus.write(slave, data, 0, "w", work=1)
    assert taken
    assert taken < len(data)
    assert isinstance(effects.failure, MemoryError)
    assert bus.waiting == 0
    assert not slave.writing
    with pytest.raises(WouldBlock) if what == "for the master" else contextlib.nullcontext():
        bus.write(slave, b"last\n", 0)


def test_nothing_is_kept_of_a_write_for_which_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    writer, _ = bus.create(b"B_x", WO, ROOT, 0o644, 0)
    for _ in range(READERS_AT_ONCE + 1):
        bus.open(writer.channel, RO, ROOT, 0)
    bus.write(writer, b"one\n", 0, "one", work=500)
    other, _ = bus.open(writer.channel, WO, ROOT, 0)
    with monkeypatch.context() as patch:
        patch.setattr(Writes, "_put_off", failing(1, Writes._put_off))
        with pytest.raises(MemoryError):
            bus.write(other, b"two\n", 0, "two", work=500)
    assert not other.writing
    assert bus.waiting == 1
    assert len(writer.channel.behind) == 1


def test_a_broadcast_reaches_nobody_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    writer, _ = bus.create(b"B_x", WO, ROOT, 0o644, 0)
    readers = [bus.open(writer.channel, RO, ROOT, 0)[0] for _ in range(READERS_AT_ONCE + 1)]
    _, effects = bus.write(writer, b"one\n", 0, "one", work=500)
    [broadcast] = [what for what in effects.later if isinstance(what, Broadcast)]
    with monkeypatch.context() as patch:
        patch.setattr("futebus.core.channel.Behind", failing(1, Behind))
        with pytest.raises(MemoryError):
            bus.go_on(broadcast, 0)
    bus.go_on(broadcast, 0)
    assert {reader.mailbox.messages for reader in readers} == {1}


@pytest.mark.parametrize("is_blocked", [True, False], ids=["who writes", "who polls"])
def test_what_is_read_is_not_lost_by_who_waits_for_its_place(is_blocked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And he is served, or told, later."""
    bus = Bus(Limits(max_queue=1))
    master, _ = bus.create(b".U_x", RW, ROOT, 0o644, 0)
    slave, _ = bus.open(master.channel, RW, ROOT, 0)
    assert bus.write(slave, b"one\n", 0)[0] == 4
    if is_blocked:
        assert bus.write(slave, b"two\n", 0, "two")[0] is None
        monkeypatch.setattr(Writes, "_take_more", failing(1, Writes._take_more))
    else:
        bus.poll(slave, arm=True)
        monkeypatch.setattr(Client, "wake_poller", failing(1, Client.wake_poller))
    piece, effects = bus.read(master, 100, 0)
    assert piece == b"one\n"
    assert isinstance(effects.failure, MemoryError)
    assert (effects.finished, effects.ready) == ([], [])
    (later,) = effects.later
    effects = bus.go_on(later, 0)
    if is_blocked:
        assert effects.finished == [("two", 4)]
        assert bus.read(master, 100, 0)[0] == b"two\n"
    else:
        assert effects.ready == [slave]


@pytest.mark.parametrize("how", ["go_on", "close"])
def test_no_answer_is_lost_by_a_poller_that_cannot_be_told(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told later."""
    bus = Bus(Limits(max_queue_bytes=1000, max_queue=1000))
    master, _ = bus.create(b".U_x", RW, ROOT, 0o644, 0)
    writers = [bus.open(master.channel, RW, ROOT, 0)[0] for _ in range(20)]
    poller, first = (bus.open(master.channel, RW, ROOT, 0)[0] for _ in range(2))
    bus.write(first, b"x" * 899 + b"\n", 0)
    assert bus.write(first, b"x" * 200 + b"\n", 0, "first")[0] is None
    for number, writer in enumerate(writers):
        assert bus.write(writer, b"one\n", 0, number)[0] is None
    assert not bus.poll(poller, arm=True).writable
    monkeypatch.setattr(Client, "wake_poller", failing(1, Client.wake_poller, lambda client, _: client is poller))
    if how == "close":
        effects = bus.close(first, 0)
    else:
        monkeypatch.setattr(writes, "ADMITTED_WORK", 10)
        effects = bus.read(master, 1000, 0)[1]
        assert effects.later == [master.channel]
    answered, ready, failures = [], [], 0
    while True:
        answered += [token for token, _ in effects.finished]
        ready += effects.ready
        failures += isinstance(effects.failure, MemoryError)
        if not effects.later:
            break
        effects = bus.go_on(effects.later.pop(), 0)
    assert answered == [*(["first"] if how == "go_on" else []), *range(20)]
    assert (bus.waiting, ready, failures) == (0, [poller], 1)


@pytest.mark.parametrize("how", ["close", "shut", "shut_down"])
def test_the_end_of_one_write_for_which_there_is_no_memory_keeps_no_other(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus(Limits(max_queue=1))
    master, _ = bus.create(b".U_x", RW, ROOT, 0o644, 0)
    slaves = [bus.open(master.channel, RW, ROOT, 0)[0] for _ in range(4)]
    bus.write(slaves[3], b"one\n", 0)
    for number in range(3):
        assert bus.write(slaves[number], b"two\n", 0, number)[0] is None
    monkeypatch.setattr(Writes, "_have_turn", failing(1, Writes._have_turn, lambda _, client, effects: client is slaves[1]))
    effects = {"close": lambda: bus.close(master, 0), "shut": lambda: bus.shut(master, 0), "shut_down": lambda: bus.shut_down(0)}[
        how
    ]()
    assert isinstance(effects.failure, MemoryError)
    answered = effects.finished
    while effects.later:
        more = bus.go_on(effects.later.pop(), 0)
        answered += more.finished
    assert sorted(token for token, _ in answered) == [0, 1, 2]  # type: ignore[type-var]
    assert all(isinstance(error, NobodyReads | ShuttingDown) for _, error in answered)
    assert bus.waiting == 0


def test_a_refused_line_stays_refused_though_there_was_no_memory_to_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind it in the write is not taken for the rest of it, nor for a line."""
    bus = Bus(Limits(max_queue=1, max_message=10))
    master, _ = bus.create(b".U_x", RW, ROOT, 0o644, 0)
    slave, _ = bus.open(master.channel, RW, ROOT, 0)
    bus.write(slave, b"one\n", 0)
    assert bus.write(slave, b"two\nbegun", 0, "two")[0] is None
    assert bus.write(slave, b"too long\nlast\n", 0, "long")[0] is None
    piece, effects = bus.read(master, 100, 0)
    assert (piece, effects.finished) == (b"one\n", [("two", 9)])
    monkeypatch.setattr(Writes, "_end", failing(1, Writes._end))
    effects = bus.go_on(effects.later.pop(), 0)
    assert isinstance(effects.failure, MemoryError)
    effects = bus.go_on(effects.later.pop(), 0)
    assert [(token, type(error)) for token, error in effects.finished] == [("long", MessageTooLong)]
    assert bus.read(master, 100, 0)[0] == b"two\n"
    with pytest.raises(WouldBlock):
        bus.read(master, 100, 0)


@pytest.mark.parametrize("failed", ["_end", "admit"])
def test_a_signal_is_not_lost(failed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either it is as if it had not come, and is tried again, or it is done."""
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b".U_x")
    slave = bus.open(b"U_x")
    bus.write(slave, b"one\n")
    bus.start_write(slave, b"two\n", "two")
    monkeypatch.setattr(Writes, failed, failing(1, getattr(Writes, failed)))
    if failed == "_end":
        with pytest.raises(MemoryError):
            bus.bus.cancel("two", 9)
        assert bus.cancelled("two") == 0
    else:
        cancelled = bus.bus.cancel("two", 9)
        assert cancelled
        taken, effects = cancelled
        assert (taken, type(effects.failure)) == (0, MemoryError)
    assert bus.bus.waiting == 0
    assert not slave.writing
    assert bus.read_all(master) == [b"one\n"]
