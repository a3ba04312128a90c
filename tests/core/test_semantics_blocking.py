"""When the rlist of a master is full: its slaves wait, in a fair queue."""

from collections.abc import Callable

import pytest

from futebus.core.bus import Bus
from futebus.core.client import Client
from futebus.core.errors import NobodyReads, WouldBlock
from futebus.core.limits import Limits
from futebus.core.writes import ADMITTED_WORK

from .driver import RO, ROOT, RW, WO, Driver, service, text


@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
def test_a_write_to_a_full_master_would_block(name: bytes) -> None:
    bus = Driver(Limits(max_queue=2))
    master, (slave,) = service(bus, 1, name)
    assert bus.write(slave, b"a\nb\nc\n") == 4
    with pytest.raises(WouldBlock):
        bus.write(slave, b"c\n")
    channel = master.channel
    assert (channel.messages_in, channel.bytes_in, channel.dropped, slave.sent) == (2, 4, 0, 2)
    assert [text(message) for message in bus.read_all(master) if b":" not in message] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "lines", "accepted"),
    [
        (b"U_x", b"12345\n1234\n", 11),
        (b"U_x", b"12345\n12345\n", 6),
        (b"U_x", b"1\n2\n3\n4\n5\n6\n", 10),
        (b"U_x", b"12345678901234567890\n1\n", 21),
        (b"U_x", b"1\n12345678901234567890\n", 2),
        # `{2}` is in front of what waits.
        (b"S_x", b"1\n1\n", 4),
        (b"S_x", b"1\n12\n", 5),
        (b"S_x", b"1\n123\n", 2),
        (b"S_x", b"1\n1\n1\n", 4),
        (b"S_x", b"12345678901234567890\n1\n", 21),
    ],
)
def test_the_bytes_that_wait_for_a_master_are_limited_but_an_empty_rlist_takes_any(
    name: bytes, lines: bytes, accepted: int
) -> None:
    bus = Driver(Limits(max_queue_bytes=11))
    master, (slave,) = service(bus, 1, name)
    bus.read_all(master)
    assert bus.write(slave, lines) == accepted
    if accepted < len(lines):
        with pytest.raises(WouldBlock):
            bus.write(slave, lines[accepted:])
    assert "".join(text(message) + "\n" for message in bus.read_all(master)).encode() == lines[:accepted]


def test_a_smaller_message_may_still_fit() -> None:
    bus = Driver(Limits(max_queue_bytes=8))
    master, (slave,) = service(bus, 1)
    bus.write(slave, b"12345\n")
    with pytest.raises(WouldBlock):
        bus.write(slave, b"12\n")
    assert bus.write(slave, b"1\n") == 2
    assert bus.read_all(master) == [b"12345\n", b"1\n"]


def test_reading_a_byte_of_a_message_frees_its_place() -> None:
    bus = Driver(Limits(max_queue=1))
    master, (slave,) = service(bus, 1)
    bus.write(slave, b"abc\n")
    bus.start_write(slave, b"d\n", "w")
    assert bus.read(master, 1) == b"a"
    assert bus.ended() == [("w", 2)]
    with pytest.raises(WouldBlock):
        bus.write(slave, b"e\n")
    # The rest of the message has no place in the rlist, so that reading it frees none.
    assert bus.read(master) == b"bc\n"
    with pytest.raises(WouldBlock):
        bus.write(slave, b"e\n")


@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
def test_blocked_writers_are_served_first_come_first_served(name: bytes) -> None:
    bus = Driver(Limits(max_queue=1))
    master, slaves = service(bus, 4, name)
    bus.read_all(master)
    order = [2, 0, 3, 1]
    bus.write(slaves[0], b"full\n")
    for number in order:
        bus.start_write(slaves[number], b"%d\n" % number, number)
    assert text(bus.read(master)) == "full"
    for number in order:
        # Each freed place wakes one.
        assert bus.ended() == [(number, 2)]
        assert text(bus.read(master)) == str(number)
    assert bus.ended() == []
    assert bus.bus.waiting == 0


def test_many_freed_places_wake_many() -> None:
    bus = Driver(Limits(max_queue=3))
    master = bus.create(b"+.U_x")
    slaves = [bus.open(b"U_x") for _ in range(4)]
    bus.write(slaves[0], b"a\nb\nc\n")
    for slave in slaves:
        bus.start_write(slave, b"x\n", slave.id)
    assert bus.read(master, 4) == b"a\nb\n"
    assert bus.ended() == [(2, 2), (3, 2)]
    assert bus.read(master) == b"c\nx\nx\n"
    assert bus.ended() == [(4, 2), (5, 2)]


def test_a_blocked_write_goes_on_until_all_of_it_is_accepted_and_others_have_their_turn() -> None:
    bus = Driver(Limits(max_queue=2))
    master, (one, two) = service(bus, 2)
    bus.start_write(one, b"a\nb\nc\nd\n", "one")
    assert one.sent == 2
    bus.start_write(two, b"e\nf\n", "two")
    taken = [bus.read(master)]
    assert bus.ended() == []
    assert one.sent == 3
    while len(taken) < 6:
        taken.append(bus.read(master))
    # Each place is for the next in turn, also in the middle of a long write.
    assert taken == [b"a\n", b"b\n", b"c\n", b"e\n", b"d\n", b"f\n"]
    assert bus.ended() == [("one", 8), ("two", 4)]
    assert bus.bus.waiting == 0


def test_a_long_write_waits_for_its_turn_behind_each_portion() -> None:
    """Its lines are short runs, each of which costs a turn's worth."""
    bus = Driver(Limits(max_queue=20_000))
    master, (one, two, three) = service(bus, 3)
    bus.write(one, b"full\n" * 20_000)
    bus.start_write(one, b"1\n\n" * 5000, "one")
    bus.start_write(two, b"2\n\n" * 5000, "two")
    bus.start_write(three, b"3\n", "three")
    big = bus.open(b"U_x")
    assert not bus.poll(big).writable
    got = b"".join(bus.read_all(master)).replace(b"full\n", b"")
    assert (got.count(b"1\n"), got.count(b"2\n"), got.count(b"3\n")) == (5000, 5000, 1)
    assert got.index(b"3\n") < 200, "it has not waited for the end of the others"
    assert got.index(b"2\n") < 200
    assert dict(bus.ended()) == {"one": 15_000, "two": 15_000, "three": 2}


def test_to_let_in_many_is_done_in_steps() -> None:
    """A master that reads in bulk makes place for all that wait at once."""
    bus = Bus(Limits(max_queue_bytes=1 << 20))
    master, _ = bus.create(b"+.U_x", RW, ROOT, 0o644, 0)
    slaves = [bus.open(master.channel, RW, ROOT, 0)[0] for _ in range(20)]
    bus.write(slaves[0], b"x\n" * (1 << 16), 0)
    for number, slave in enumerate(slaves):
        count, _ = bus.write(slave, b"a\n\n" * 1000, 0, number)
        assert count is None
    _, effects = bus.read(master, 1 << 21, 0)
    assert effects.later == [master.channel]
    assert effects.work < 4 * ADMITTED_WORK
    taken = sum(slave.sent for slave in slaves)
    while effects.later:
        assert poll_is_not_ready(bus, slaves)
        effects = bus.go_on(master.channel, 0)
        assert effects.work < 4 * ADMITTED_WORK
    assert taken < sum(slave.sent for slave in slaves) == (1 << 16) + 20 * 1000


def poll_is_not_ready(bus: Bus, slaves: list[Client]) -> bool:
    """Nobody overtakes those who are let in."""
    return not any(bus.poll(slave).writable for slave in slaves)


def test_writes_by_one_description_are_taken_one_after_the_other() -> None:
    """Two processes that have inherited it. A line of the second is never put into one of the first."""
    bus = Driver(Limits(max_queue=1))
    master, (shared, other) = service(bus, 2)
    bus.write(shared, b"a\n")
    bus.start_write(shared, b"b\nc", "first")
    bus.start_write(shared, b"d\ne\n", "second")
    bus.start_write(other, b"f\n", "third")
    with pytest.raises(WouldBlock):
        bus.write(shared, b"g\n")
    assert bus.read(master) == b"a\n"
    assert bus.ended() == [("first", 3)]
    assert [bus.read(master) for _ in range(4)] == [b"b\n", b"f\n", b"cd\n", b"e\n"]
    assert bus.ended() == [("third", 2), ("second", 4)]
    assert bus.bus.waiting == 0


def test_a_poller_is_woken_when_the_writes_by_its_description_are_done() -> None:
    bus = Driver(Limits(max_queue=2))
    master, (shared,) = service(bus, 1)
    bus.start_write(shared, b"a\nb\nc\n", "first")
    assert not bus.arm(shared).writable
    bus.read(master)
    assert bus.ended() == [("first", 6)]
    assert bus.woken() == []
    bus.read(master)
    assert bus.woken() == [shared]


def test_newcomers_never_overtake() -> None:
    bus = Driver(Limits(max_queue_bytes=8))
    master, (one, two, three) = service(bus, 3)
    bus.write(one, b"12345\n")
    bus.start_write(two, b"67890\n", "two")
    # There is a place for two bytes, but somebody came first.
    with pytest.raises(WouldBlock):
        bus.write(one, b"1\n")
    bus.start_write(three, b"2\n", "three")
    assert bus.ended() == []
    assert bus.read(master) == b"12345\n"
    assert bus.ended() == [("two", 6), ("three", 2)]
    assert bus.write(one, b"\n") == 1
    assert bus.read_all(master) == [b"67890\n", b"2\n"]


def test_a_master_that_waits_gets_more_than_its_rlist_holds() -> None:
    bus = Driver(Limits(max_queue=2))
    master, (slave,) = service(bus, 1)
    bus.start_read(master, "one")
    bus.start_read(master, "two")
    assert bus.write(slave, b"a\nb\nc\nd\ne\n") == 8
    assert bus.ended() == [("one", b"a\n"), ("two", b"b\n")]
    assert bus.read_all(master) == [b"c\n", b"d\n"]


def delay_by_writing(bus: Driver) -> None:
    master = next(iter(bus.bus.clients - set(bus.channel(b"U_x").readers.values())))
    assert bus.write(master, b"hello\n") == 6


def delay_by_opening(bus: Driver) -> None:
    bus.close(bus.open(b"U_x"))


def delay_by_another_channel(bus: Driver) -> None:
    master, (slave,) = service(bus, 1, b"U_y")
    assert bus.write(slave, b"hi\n") == 3
    assert bus.read(master) == b"hi\n"


def delay_by_partial(bus: Driver) -> None:
    assert bus.write(bus.open(b"U_x"), b"partial") == 7


def delay_by_rm(bus: Driver) -> None:
    bus.unlink(b"U_x")


@pytest.mark.parametrize(
    "act",
    [delay_by_writing, delay_by_opening, delay_by_another_channel, delay_by_partial, delay_by_rm],
    ids=lambda act: act.__name__,
)
def test_a_blocked_writer_delays_nobody_else(act: Callable[[Driver], None]) -> None:
    bus = Driver(Limits(max_queue=1))
    master, (slave,) = service(bus, 1)
    bus.write(slave, b"a\n")
    bus.start_write(slave, b"b\n", "w")
    act(bus)
    assert bus.ended() == []
    bus.read(master)
    assert bus.ended() == [("w", 2)]


def test_a_blocked_writer_still_reads() -> None:
    bus = Driver(Limits(max_queue=1))
    master, (slave,) = service(bus, 1)
    bus.write(slave, b"a\n")
    bus.start_write(slave, b"b\n", "w")
    bus.start_read(slave, "r")
    bus.write(master, b"hello\n")
    assert bus.ended() == [("r", b"hello\n")]


@pytest.mark.parametrize("kind", ["A", "B"])
def test_writers_of_a_channel_without_master_never_wait(kind: str) -> None:
    bus = Driver(Limits(max_queue=1, max_queue_bytes=1))
    writer = bus.create(f"{kind}_x".encode(), WO)
    reader = bus.create(f"{kind}_x".encode(), RO)
    for _ in range(5):
        assert bus.bus.write(writer, b"{*}x\n", bus.tick(), "token")[0] == 5
    assert reader.dropped == 4


@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
def test_a_master_never_waits_for_its_slaves(name: bytes) -> None:
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b"." + name, RW)
    slave = bus.open(name)
    for _ in range(3):
        assert bus.bus.write(master, b"{*}x\n", bus.tick(), "token")[0] == 5
    assert slave.dropped == 2


@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
def test_nobody_waits_for_a_master_that_does_not_read(name: bytes) -> None:
    bus = Driver(Limits(max_queue=1))
    bus.create(b"." + name, WO)
    slave = bus.open(name)
    with pytest.raises(NobodyReads):
        bus.bus.write(slave, b"x\n", bus.tick(), "token")
    assert bus.bus.waiting == 0
