"""A broadcast to more readers than one step can serve: the same as one to few."""

import weakref

import pytest

from futebus.core import channel as channels
from futebus.core import inquiry
from futebus.core.bus import Bus
from futebus.core.channel import Channel
from futebus.core.client import Client, Effects, Token
from futebus.core.errors import Broken, BusError
from futebus.core.limits import Limits

from ..helpers.garbage import nothing_collected
from .driver import RO, ROOT, RW, WO

CROWD = 7
STEP = 2


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "READERS_AT_ONCE", STEP)


class Crowd:
    """A bus whose later work is done when the test says so."""

    def __init__(self, name: bytes = b"B_x", limits: Limits | None = None) -> None:
        self.bus = Bus(limits)
        self.writer, _ = self.bus.create(name, RW, ROOT, 0o644, 0)
        self.readers = [self.open() for _ in range(CROWD)]
        self.later: list[object] = []
        self.finished: list[tuple[Token, bytes | int | BusError]] = []
        self.ready: list[Client] = []

    @property
    def channel(self) -> Channel:
        return self.writer.channel

    def open(self) -> Client:
        client, _ = self.bus.open(self.writer.channel, RO, ROOT, 0)
        return client

    def open_to_write(self) -> Client:
        client, _ = self.bus.open(self.writer.channel, WO, ROOT, 0)
        return client

    def keep(self, effects: Effects) -> None:
        self.later += effects.later
        self.finished += effects.finished
        self.ready += effects.ready

    def tells_end(self, client: Client) -> bool:
        """Whether a client is told that nothing will come any more."""
        return inquiry.read(inquiry.answer(client, is_shutting_down=self.bus.is_shutting_down)).has_ended

    def write(self, client: Client, data: bytes, token: str) -> None:
        taken, effects = self.bus.write(client, data, 0, token)
        assert taken is None
        self.keep(effects)

    def step(self) -> None:
        effects = self.bus.go_on(self.later.pop(0), 0)
        self.keep(effects)

    def finish(self) -> None:
        while self.later:
            self.step()

    def has(self, client: Client) -> list[bytes]:
        """What a client can read now."""
        found = []
        while client.mailbox:
            piece, effects = self.bus.read(client, 100, 0)
            assert piece
            found.append(piece)
            self.keep(effects)
        return found


def test_a_writer_is_answered_when_all_have_it() -> None:
    crowd = Crowd()
    crowd.write(crowd.writer, b"hello\n", "w")
    reached = {sum(bool(reader.mailbox) for reader in crowd.readers)}
    while not crowd.finished:
        crowd.step()
        reached.add(sum(bool(reader.mailbox) for reader in crowd.readers))
    assert reached == {1, 3, 5, 7}, "the first two are the writer itself and a reader"
    assert crowd.finished == [("w", 6)]
    assert [crowd.has(reader) for reader in crowd.readers] == [[b"hello\n"]] * CROWD


def test_all_get_the_messages_of_two_writers_in_the_same_order() -> None:
    crowd = Crowd()
    other, _ = crowd.bus.open(crowd.channel, RW, ROOT, 0)
    crowd.write(crowd.writer, b"1\n\n2\n\n3\n", "w")
    crowd.write(other, b"a\n\nb\n\nc\n", "o")
    crowd.finish()
    assert sorted(crowd.finished, key=str) == [("o", 8), ("w", 8)]
    heard = [crowd.has(reader) for reader in crowd.readers]
    assert all(each == heard[0] for each in heard)
    assert sorted(heard[0]) == [b"1\n", b"2\n", b"3\n", b"a\n", b"b\n", b"c\n"]
    assert [line for line in heard[0] if line.strip().isdigit()] == [b"1\n", b"2\n", b"3\n"]


def test_who_comes_later_does_not_get_it_and_who_goes_is_left_out() -> None:
    crowd = Crowd()
    crowd.write(crowd.writer, b"hello\n", "w")
    late = crowd.open()
    crowd.keep(crowd.bus.close(crowd.readers[-1], 0))
    crowd.finish()
    assert crowd.has(late) == []
    assert crowd.finished == [("w", 6)]
    assert crowd.channel.copies == CROWD - 1
    assert all(crowd.has(reader) == [b"hello\n"] for reader in crowd.readers[:-1])


def test_a_signal_for_the_writer_does_not_call_it_back() -> None:
    crowd = Crowd()
    crowd.write(crowd.writer, b"one\n\ntwo\n", "w")
    cancelled = crowd.bus.cancel("w", 0)
    assert cancelled is not None
    assert cancelled[0] == 4
    crowd.finish()
    assert crowd.finished == []
    assert [crowd.has(reader) for reader in crowd.readers] == [[b"one\n"]] * CROWD


@pytest.mark.parametrize("how", ["close", "shut down"])
def test_what_was_begun_is_delivered_before_the_end(how: str) -> None:
    crowd = Crowd(b".U_x")
    crowd.write(crowd.writer, b"last words\n", "w")
    if how == "close":
        crowd.keep(crowd.bus.close(crowd.writer, 0))
    else:
        crowd.keep(crowd.bus.shut_down(0))
        [(token, answer)] = crowd.finished
        assert token == "w"
        assert answer == 11
    one, other = crowd.readers[-2:]
    assert crowd.bus.read(one, 100, 0, "r")[0] is None, "it waits"
    crowd.bus.poll(other, arm=True)
    assert not crowd.bus.poll(other).readable
    assert not crowd.tells_end(other)
    crowd.finish()
    assert ("r", b"last words\n") in crowd.finished
    for reader in crowd.readers:
        assert crowd.has(reader) == ([b"last words\n"] if reader is not one else [])
        assert crowd.bus.read(reader, 100, 0)[0] == b"", "and then the end"
        assert crowd.bus.poll(reader).hung_up
        assert crowd.tells_end(reader)
    assert crowd.bus.waiting == 0


@pytest.mark.parametrize("how", ["close", "shut down"])
def test_who_waits_behind_the_last_message_hears_of_the_end_when_all_have_it(how: str) -> None:
    crowd = Crowd(b".U_x")
    crowd.write(crowd.writer, b"last words\n", "w")
    first, second = crowd.readers[:2]
    assert [crowd.has(reader) for reader in (first, second)] == [[b"last words\n"]] * 2
    assert crowd.bus.read(first, 100, 0, "r")[0] is None
    crowd.bus.poll(second, arm=True)
    crowd.keep(crowd.bus.close(crowd.writer, 0) if how == "close" else crowd.bus.shut_down(0))
    crowd.ready.clear()
    assert ("r", b"") not in crowd.finished
    crowd.bus.poll(second, arm=True)
    crowd.finish()
    assert ("r", b"") in crowd.finished
    assert second in crowd.ready
    assert crowd.bus.waiting == 0


def test_what_is_addressed_does_not_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(b"A_x")
    last = crowd.readers[-1]
    crowd.write(crowd.writer, b"{*}all\n{%x}you\n{*}again\n" % last.id, "w")
    crowd.finish()
    assert crowd.has(last) == [b"{1}all\n", b"{1}you\n", b"{1}again\n"]
    assert crowd.has(crowd.readers[0]) == [b"{1}all\n", b"{1}again\n"]
    assert crowd.finished[0][0] == "w"


def test_an_error_for_one_reader_is_not_one_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(limits=Limits(max_queue=1))
    attend = Client.attend

    def fail(client: Client, effects: Effects) -> None:
        if client is crowd.readers[3]:
            raise MemoryError
        attend(client, effects)

    monkeypatch.setattr(Client, "attend", fail)
    crowd.write(crowd.writer, b"hello\n", "w")
    crowd.finish()
    assert crowd.finished == [("w", 6)]
    assert all(crowd.has(reader) == [b"hello\n"] for reader in crowd.readers if reader is not crowd.readers[3])


def test_slaves_write_to_their_master_meanwhile() -> None:
    crowd = Crowd(b".U_x")
    slave, _ = crowd.bus.open(crowd.channel, RW, ROOT, 0)
    crowd.write(crowd.writer, b"to all\n", "w")
    taken, _ = crowd.bus.write(slave, b"to the master\n", 0, "s")
    assert taken == 14
    crowd.finish()
    assert crowd.has(slave) == [b"to all\n"]
    assert crowd.has(crowd.writer) == [b"to the master\n"]


def test_those_who_wait_for_a_broadcast_are_not_asked_again_and_again() -> None:
    """Each line takes its own steps, and one for its writer, however many wait."""
    crowd = Crowd()
    writers = [crowd.open_to_write() for _ in range(50)]
    for number, writer in enumerate(writers):
        crowd.write(writer, b"%d\n" % number, f"w{number}")
    steps = 0
    while crowd.later:
        crowd.step()
        steps += 1
    assert steps <= len(writers) * (CROWD // STEP + 3)
    assert [token for token, _ in crowd.finished] == [f"w{number}" for number in range(50)], "in their order"
    assert [crowd.has(reader) for reader in crowd.readers] == [[b"%d\n" % number for number in range(50)]] * CROWD


def test_who_comes_later_does_not_overtake_those_who_wait_for_a_broadcast() -> None:
    crowd = Crowd()
    writers = [crowd.open_to_write() for _ in range(4)]
    for number, writer in enumerate(writers[:3]):
        crowd.write(writer, b"%d\n" % number, f"w{number}")
    while not crowd.finished:
        crowd.step()
    crowd.write(writers[3], b"late\n", "late")
    crowd.finish()
    assert [token for token, _ in crowd.finished] == ["w0", "w1", "w2", "late"]
    assert crowd.has(crowd.readers[0]) == [b"0\n", b"1\n", b"2\n", b"late\n"]


def test_those_who_wait_for_a_broadcast_may_give_up_or_close() -> None:
    crowd = Crowd()
    writers = [crowd.open_to_write() for _ in range(5)]
    for number, writer in enumerate(writers):
        crowd.write(writer, b"%d\n" % number, f"w{number}")
    cancelled = crowd.bus.cancel("w1", 0)
    assert cancelled is not None
    assert cancelled[0] == 0
    crowd.keep(cancelled[1])
    crowd.keep(crowd.bus.close(writers[2], 0))
    while "w0" not in dict(crowd.finished):
        crowd.step()
    cancelled = crowd.bus.cancel("w3", 0)
    assert cancelled is not None
    crowd.keep(cancelled[1])
    crowd.finish()
    assert dict(crowd.finished) == {"w0": 2, "w4": 2}
    assert crowd.has(crowd.readers[0]) == [b"0\n", b"4\n"]
    assert crowd.bus.waiting == 0


def test_a_channel_that_has_gone_costs_nothing_more() -> None:
    """Names that are used once are many, and would else wait for the garbage collector."""
    crowd = Crowd(b".U_x")
    channel = weakref.ref(crowd.channel)
    crowd.write(crowd.writer, b"hello\n", "w")
    crowd.finish()
    with nothing_collected():
        for client in (crowd.writer, *crowd.readers):
            crowd.keep(crowd.bus.close(client, 0))
        del crowd, client
        assert channel() is None


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    """Queues that are full of messages each of which came alone; all of them fit one step."""
    monkeypatch.setattr(channels, "READERS_AT_ONCE", 500)
    crowd = Crowd(limits=Limits(max_queue=20_000))
    for _ in range(20):
        crowd.keep(crowd.bus.write(crowd.writer, b"a\n\n" * 1000, 0)[1])
    assert not crowd.later
    assert all(reader.mailbox.messages == 20_000 for reader in crowd.readers)
    return crowd


@pytest.mark.parametrize("lines", [9_000, 20_000, 25_000])
def test_what_is_dropped_is_work(full: Crowd, lines: int) -> None:
    """However few the readers are, one step does not drop hundreds of thousands of messages."""
    taken, effects = full.bus.write(full.writer, b"b\n" * lines, 0, "w", work=500)
    full.keep(effects)
    assert taken is None
    most, steps = effects.work, 1
    while full.later:
        effects = full.bus.go_on(full.later.pop(0), 0, work=500)
        full.keep(effects)
        most, steps = max(most, effects.work), steps + 1
    assert most <= channels.BROADCAST_WORK + 20_000 // 8 + 100, "of one reader behind the last that there was time for"
    assert steps >= CROWD // 2
    assert full.finished == [("w", 2 * lines)]
    for reader in full.readers:
        assert (reader.mailbox.messages, reader.dropped) == (20_000, lines)
        data, _ = reader.mailbox.read(1 << 20, True) or (b"", 0)
        while more := reader.mailbox.read(1 << 20, True):
            data += more[0]
        assert data == b"a\n" * (20_000 - lines) + b"b\n" * min(lines, 20_000)
    assert full.channel.dropped == CROWD * lines
    assert full.channel.copies == CROWD * (20_000 + lines)


def test_where_there_is_no_memory_to_put_off_it_is_done_at_once(full: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(channels.Broadcast, "__init__", fail)
    taken, effects = full.bus.write(full.writer, b"b\n" * 9_000, 0, "w")
    assert taken == 18_000
    assert not effects.later
    assert [reader.dropped for reader in full.readers] == [9_000] * CROWD


def test_a_broadcast_that_cannot_begin_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Channel, "_deliver_to_all", fail)
        with pytest.raises(Broken):
            crowd.bus.write(crowd.writer, b"lost\n", 0)
    crowd.write(crowd.writer, b"hello\n", "w")
    crowd.finish()
    assert [crowd.has(reader) for reader in crowd.readers] == [[b"hello\n"]] * CROWD
