"""A record of the bus is of the moment when it was begun, however long it takes and whatever happens meanwhile."""

from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from futebus.core import channel, stat, writes
from futebus.core.channel import READERS_AT_ONCE, Channel
from futebus.core.client import Client
from futebus.core.errors import BusError
from futebus.core.limits import Limits
from futebus.core.stat import taking

from .driver import RO, ROOT, RW, WO, Driver

NAMES = [b".U_x", b".S_x", b"A_x", b"B_x", b"+B_y"]
CALLS = [
    *["create", "open", "close", "write", "write", "read", "read", "wait to read", "wait to write", "wait to write"],
    *["go on", "cancel", "unlink", "shut down", "step"],
]
TEXTS = [b"{*}to all\n{2}to two\nhalf", b"{2}abc\n{3}d\n", b"abc\n", b"\n", b"half a line", b"{1}x\n" * 5, b"{3}y\n" * 2]


def finished(steps: Generator[None, None, stat.BusStat], most: int | None = None) -> stat.BusStat | None:
    """Takes steps, all of them or so many. Returns the record once it is there."""
    while most is None or most > 0:
        try:
            next(steps)
        except StopIteration as end:
            record: stat.BusStat = end.value
            return record
        most = None if most is None else most - 1
    return None


class Life:
    """Calls that hypothesis chooses, on a small bus."""

    def __init__(self) -> None:
        self.bus = Driver(Limits(max_queue=3, max_message=64))
        self.clients: list[Client] = []
        self.waiting: list[str] = []
        self.tokens = 0
        self.later: list[object] = []
        for name in (b".U_x", b"U_x", b"U_x", b".S_x", b"S_x", b"S_x", b"A_x", b"A_x", b"A_x", b"B_x", b"B_x", b"B_x", b"B_x"):
            is_new = name.startswith(b".") or (name[1:2] + name[:1] in (b"_A", b"_B") and name not in self.bus.bus.channels)
            self.clients.append((self.bus.create if is_new else self.bus.open)(name))

    def do(self, call: str, index: int, other: int) -> None:
        bus, now = self.bus.bus, self.bus.tick()
        name = NAMES[index % len(NAMES)]
        client = self.clients[index % len(self.clients)] if self.clients else None
        access = (RW, RO, WO)[other % 3]
        try:
            if call == "create":
                client, effects = bus.create(name, access, ROOT, 0o644, now)
                self.clients.append(client)
            elif call == "open":
                client, effects = bus.open(bus.look_up(name.removeprefix(b"."))[0], access, ROOT, now)
                self.clients.append(client)
            elif call == "unlink":
                bus.unlink(name.removeprefix(b"."), now)
                return
            elif call == "shut down" and other % 20 == 0:
                effects = bus.shut_down(now)
            elif call == "cancel" and self.waiting and (ended := bus.cancel(self.waiting.pop(other % len(self.waiting)), now)):
                _, effects = ended
            elif call == "go on" and self.later:
                effects = bus.go_on(self.later.pop(0), now, work=3)
            elif client is None:
                return
            elif call == "close":
                self.clients.remove(client)
                effects = bus.close(client, now)
            elif call == "write":
                _, effects = bus.write(client, TEXTS[other % len(TEXTS)], now)
            elif call == "read":
                _, effects = bus.read(client, [1, 5, 4096][other % 3], now)
            elif call == "wait to read":
                _, effects = bus.read(client, 4096, now, self.token())
            elif call == "wait to write":
                _, effects = bus.write(client, TEXTS[other % len(TEXTS)] * (1 + other % 5), now, self.token(), work=3)
            else:
                return
        except BusError:
            return
        self.later += effects.later

    def token(self) -> str:
        self.tokens += 1
        self.waiting.append(f"call {self.tokens}")
        return self.waiting[-1]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(CALLS[:-1]), st.integers(0, 99), st.integers(0, 99)), max_size=40),
    st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 99), st.integers(0, 99)), max_size=60),
)
def test_a_record_that_takes_its_time_is_the_one_that_is_taken_at_once(
    before: list[tuple[str, int, int]], meanwhile: list[tuple[str, int, int]]
) -> None:
    life = Life()
    bus = life.bus.bus
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taking, "AT_ONCE", 1)
        patch.setattr(channel, "READERS_AT_ONCE", 2)
        for call in before:
            life.do(*call)
        expected = stat.take(bus, life.bus.now)
        steps = stat.Taking(bus, life.bus.now).steps()
        record = None
        for call in meanwhile:
            if call[0] == "step":
                record = record or finished(steps, 1)
            else:
                life.do(*call)
        record = record or finished(steps)
    assert record == expected
    assert bus.taking is None
    assert all(each.unrecorded is None for each in bus.every_channel.values())


@pytest.mark.parametrize("end", ["close", "shut_down"])
@pytest.mark.parametrize("steps_before", [0, 1])
def test_those_who_wait_are_recorded_before_their_calls_end(end: str, steps_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "AT_ONCE", 1)
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b".U_x")
    writer, other, reader = (bus.open(b"U_x") for _ in range(3))
    bus.write(writer, b"a\n")
    bus.start_read(reader, "read")
    bus.start_write(writer, b"b\nhalf", "write")
    bus.start_write(other, b"c\n", "other")
    expected = stat.take(bus.bus, bus.now)
    steps = stat.Taking(bus.bus, bus.now).steps()
    assert finished(steps, steps_before) is None
    if end == "close":
        bus.close(master)
    else:
        bus.shut_down()
    assert finished(steps) == expected


def test_those_who_are_let_in_in_several_turns_are_recorded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "ADMITTED_WORK", 1)
    bus = Driver(Limits(max_queue=4))
    master = bus.create(b"+.U_x")
    slaves = [bus.open(b"U_x", WO) for _ in range(4)]
    for slave in slaves:
        bus.write(slave, b"a\n")
    for slave in slaves:
        bus.start_write(slave, b"b\n", slave)
    _, effects = bus.bus.read(master, 4096, bus.tick())
    (later,) = effects.later
    expected = stat.take(bus.bus, bus.now)
    steps = stat.Taking(bus.bus, bus.now).steps()
    bus._keep(bus.bus.go_on(later, bus.now))
    assert finished(steps) == expected


def test_those_behind_a_broadcast_are_recorded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "READERS_AT_ONCE", 1)
    bus = Driver()
    writer, other = bus.create(b"B_x", WO), bus.open(b"B_x", WO)
    for _ in range(2):
        bus.open(b"B_x", RO)
    _, effects = bus.bus.write(writer, b"a\n", bus.tick(), "first")
    _, more = bus.bus.write(other, b"b\n", bus.tick(), "second")
    later = [*effects.later, *more.later]
    while later:
        expected = stat.take(bus.bus, bus.now)
        steps = stat.Taking(bus.bus, bus.now).steps()
        later += bus.bus.go_on(later.pop(0), bus.now).later
        assert finished(steps) == expected
    assert stat.take(bus.bus, bus.now).channels[0].messages_in == 2


def test_a_broadcast_to_many_does_not_make_it_take_longer_or_be_wrong() -> None:
    bus = Driver()
    writer = bus.create(b"B_x", WO)
    readers = [bus.open(b"B_x", RO) for _ in range(READERS_AT_ONCE * 2 + 1)]
    bus.write(writer, b"one\n")
    steps = stat.Taking(bus.bus, bus.now).steps()
    next(steps)
    bus.write(writer, b"two\n")
    for reader in readers:
        bus.read_all(reader)
    record = finished(steps)
    assert record
    (row,) = record.channels
    assert {client.rlist for client in row.clients[1:]} == {1}
    assert row.messages_in == 1


def test_every_step_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever is there thousands of."""
    bus = Driver(Limits(max_channels=3000))
    for number in range(1000):
        bus.create(b"B_%d" % number)
    for _ in range(3000):
        bus.open(b"B_0")
    looked: list[object] = []

    def note(*given: object) -> bool:
        looked.append(given)
        return False

    for name in ("_channel", "_client"):
        real = getattr(taking, name)
        monkeypatch.setattr(taking, name, lambda *given, real=real: note(*given) or real(*given))
    steps = stat.Taking(bus.bus, bus.now).steps()
    most = 0
    while True:
        looked.clear()
        try:
            next(steps)
        except StopIteration:
            break
        most = max(most, len(looked))
    assert 0 < most <= taking.AT_ONCE + 3


def test_one_that_fails_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Driver()
    writer, reader = bus.create(b"B_x"), bus.open(b"B_x")
    steps = stat.Taking(bus.bus, bus.now).steps()

    def fail(channel: Channel, now: int) -> stat.ChannelStat:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(taking, "_channel", fail)
        assert bus.write(writer, b"abc\n") == 4
    assert bus.read(reader) == b"abc\n"
    assert bus.bus.taking is None
    with pytest.raises(stat.TakingFailed):
        finished(steps)
    assert stat.take(bus.bus, bus.now).channels[0].messages_in == 1


def test_the_clock_of_the_bus_is_not_the_one_on_the_wall() -> None:
    bus = Driver()
    bus.now = -3600 * 10**9
    assert (finished(stat.Taking(bus.bus, bus.now, 5).steps()) or stat.take(bus.bus, 0)).uptime == 5


def test_one_that_is_ended_is_forgotten() -> None:
    bus = Driver()
    writer = bus.create(b"B_x")
    begun = stat.Taking(bus.bus, bus.now)
    bus.bus.keep(writer.channel)
    assert writer.channel.unrecorded
    begun.end()
    begun.end()
    assert not writer.channel.unrecorded
    assert bus.bus.taking is None
    stat.Taking(bus.bus, bus.now)
    begun.end()
    assert bus.bus.taking, "the next one is another's"


def test_what_channels_have_counted_is_not_forgotten_with_them() -> None:
    bus = Driver()
    for _ in range(3):
        writer, reader = bus.create(b"B_x"), bus.open(b"B_x")
        bus.write(writer, b"a\nbc\n")
        bus.read(reader)
        bus.unlink(b"B_x")
        bus.close(writer)
        assert len(bus.bus.every_channel) == 1
        bus.close(reader)
        assert not bus.bus.every_channel
    gone = stat.take(bus.bus, bus.now).gone
    assert {letter: totals._asdict() for letter, totals in gone.items()} == {
        b"B": {
            "channels": 3,
            "messages_in": 6,
            "bytes_in": 15,
            "copies": 6,
            "messages_out": 3,
            "bytes_out": 6,
            "dropped": 0,
            "lost": 3,
        }
    }
    master = bus.create(b".U_x")
    slave = bus.open(b"U_x")
    bus.close(master)
    assert b"U" not in stat.take(bus.bus, bus.now).gone
    bus.close(slave)
    assert stat.take(bus.bus, bus.now).gone[b"U"].channels == 1
