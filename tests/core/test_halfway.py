"""An error inside, for want of memory say, leaves nobody waiting and nothing behind that could not be put right."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from futebus.core.bus import Bus
from futebus.core.channel import Channel
from futebus.core.client import Client, Effects
from futebus.core.errors import Broken, NobodyReads
from futebus.core.framing import Run
from futebus.core.limits import Limits
from futebus.core.mailbox import Mailbox

from .driver import RO, ROOT, RW, USER, WO


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
    gc.collect()
    gc.disable()
    try:
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
    finally:
        gc.enable()
