"""When the rlist of a master is full: its slaves wait, in a fair queue."""

from collections.abc import Callable

import pytest

from futebus.core.client import Client
from futebus.core.errors import NobodyReads, WouldBlock
from futebus.core.limits import Limits

from .driver import RO, RW, WO, Driver, text


def service(bus: Driver, slaves: int, name: bytes = b"U_x") -> tuple[Client, list[Client]]:
    master = bus.create(b"." + name)
    return master, [bus.open(name) for _ in range(slaves)]


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


def test_a_blocked_write_ends_with_the_short_count_of_what_found_a_place() -> None:
    bus = Driver(Limits(max_queue=2))
    master, (one, two) = service(bus, 2)
    bus.write(one, b"a\nb\n")
    bus.start_write(one, b"c\nd\n", "one")
    bus.start_write(two, b"e\n", "two")
    bus.read(master)
    assert bus.ended() == [("one", 2)]
    assert one.sent == 3
    # Its rest comes behind those who wait.
    bus.start_write(one, b"d\n", "one again")
    bus.read(master)
    assert bus.ended() == [("two", 2)]
    bus.read(master)
    assert bus.ended() == [("one again", 2)]
    assert bus.read_all(master) == [b"e\n", b"d\n"]


def test_a_blocked_write_ends_before_the_line_that_fails() -> None:
    bus = Driver(Limits(max_queue=1, max_message=4))
    master, (slave,) = service(bus, 1)
    bus.write(slave, b"a\n")
    bus.start_write(slave, b"b\ntoolong\n", "w")
    assert bus.read(master) == b"a\n"
    assert bus.ended() == [("w", 2)]
    assert bus.read_all(master) == [b"b\n"]


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


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_when_a_blocked_writer_goes_the_next_may_fit(how: str) -> None:
    bus = Driver(Limits(max_queue_bytes=8))
    master, (one, two, three, four) = service(bus, 4)
    bus.write(one, b"12345\n")
    bus.start_write(two, b"too long\n", "two")
    bus.start_write(three, b"1\n", "three")
    bus.start_write(four, b"2\n", "four")
    if how == "cancel":
        assert bus.cancel("two")
        assert not bus.cancel("two")
    else:
        bus.close(two)
    assert bus.ended() == [("three", 2)]
    assert bus.bus.waiting == 1
    assert bus.read(master) == b"12345\n"
    assert bus.ended() == [("four", 2)]
    assert bus.read_all(master) == [b"1\n", b"2\n"]


def test_a_cancelled_write_leaves_the_queue_as_it_was() -> None:
    bus = Driver(Limits(max_queue=1))
    master, slaves = service(bus, 3)
    bus.write(slaves[0], b"full\n")
    for slave in slaves:
        bus.start_write(slave, b"%d\n" % slave.id, slave.id)
    assert bus.cancel(slaves[1].id)
    assert bus.ended() == []
    assert bus.read_all(master) == [b"full\n", b"2\n", b"4\n"]
    assert bus.ended() == [(2, 2), (4, 2)]
    assert slaves[1].sent == 0


def test_after_a_cancelled_write_newcomers_find_their_place() -> None:
    bus = Driver(Limits(max_queue_bytes=8))
    master, (one, two) = service(bus, 2)
    bus.write(one, b"12345\n")
    bus.start_write(two, b"67890\n", "two")
    bus.cancel("two")
    assert bus.write(one, b"1\n") == 2
    assert bus.read_all(master) == [b"12345\n", b"1\n"]


def test_a_write_that_has_ended_cannot_be_cancelled() -> None:
    bus = Driver(Limits(max_queue=1))
    master, (slave,) = service(bus, 1)
    bus.write(slave, b"a\n")
    bus.start_write(slave, b"b\n", "w")
    bus.read(master)
    assert not bus.cancel("w")
    assert not bus.cancel("never was")
    assert bus.read_all(master) == [b"b\n"]


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


def test_a_client_that_closes_while_it_waits_is_forgotten() -> None:
    bus = Driver(Limits(max_queue=1))
    master, (one, two) = service(bus, 2)
    bus.write(one, b"a\n")
    bus.start_write(one, b"b\n", "w")
    bus.start_read(one, "r")
    bus.start_read(one, "s")
    bus.start_write(two, b"c\n", "other")
    bus.close(one)
    assert bus.ended() == []
    assert bus.bus.waiting == 1
    assert not bus.cancel("w")
    assert not bus.cancel("r")
    assert bus.read_all(master) == [b"a\n", b"c\n"]


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
