"""When an rlist is full: drop the oldest, or make the writer wait in a fair queue."""

from collections.abc import Callable

import pytest

from futebus.core.client import Client
from futebus.core.errors import NobodyReads, WouldBlock
from futebus.core.limits import Limits

from .driver import RO, RW, WO, Driver

# ---------------------------------------------------------------------------------------------- drop the oldest

Pair = tuple[Client, Client, bytes]
"""A writer, a reader that is no master, and the address that leads from one to the other."""


def pair(bus: Driver, kind: str) -> Pair:
    writer = bus.create(f".{kind}_x".encode() if kind in "US" else f"{kind}_x".encode())
    reader = bus.create(f"{kind}_x".encode())
    return writer, reader, b"{*}" if kind in "AS" else b""


def text(message: bytes) -> str:
    """A message without the address before it and its newline."""
    return message.rpartition(b"}")[2].decode().rstrip("\n")


@pytest.mark.parametrize("kind", ["U", "A", "S", "B"])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize(
    ("count", "left", "dropped"), [(3, "012", 0), (4, "123", 1), (5, "234", 2), (10, "789", 7)], ids=["3", "4", "5", "10"]
)
def test_the_oldest_message_is_dropped_for_the_new_one(kind: str, at_once: bool, count: int, left: str, dropped: int) -> None:
    bus = Driver(Limits(max_queue=3))
    writer, reader, address = pair(bus, kind)
    lines = [address + b"%d\n" % number for number in range(count)]
    for data in [b"".join(lines)] if at_once else lines:
        assert bus.write(writer, data) == len(data)
    assert "".join(map(text, bus.read_all(reader))) == left
    assert (reader.dropped, reader.channel.dropped, writer.dropped) == (dropped, dropped, 0)
    assert reader.received == len(left)


@pytest.mark.parametrize("kind", ["U", "S", "B"])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize(
    ("texts", "left"),
    [
        (["12345", "1234"], ["12345", "1234"]),
        (["12345", "12345"], ["12345"]),
        (["1", "2", "3", "4", "5", "6"], ["2", "3", "4", "5", "6"]),
        (["1", "2", "3", "1234567"], ["3", "1234567"]),
        (["1", "2", "12345678"], ["2", "12345678"]),
        (["1", "2", "123456789"], ["123456789"]),
        (["1", "2", "12345678901234567890"], ["12345678901234567890"]),
        (["12345678901234567890", "1"], ["1"]),
        (["1234567", "1", "2", "3"], ["1", "2", "3"]),
    ],
)
def test_bytes_are_limited_too_but_the_newest_stays(kind: str, at_once: bool, texts: list[str], left: list[str]) -> None:
    bus = Driver(Limits(max_queue_bytes=11))
    writer, reader, address = pair(bus, kind)
    lines = [address + line.encode() + b"\n" for line in texts]
    for data in [b"".join(lines)] if at_once else lines:
        assert bus.write(writer, data) == len(data)
    assert list(map(text, bus.read_all(reader))) == left
    assert reader.dropped == reader.channel.dropped == len(texts) - len(left)


def test_the_sender_s_address_counts_as_bytes() -> None:
    bus = Driver(Limits(max_queue_bytes=15))
    writer, reader = bus.create(b"A_x"), bus.create(b"A_x")
    bus.write(writer, b"{*}a\n{*}b\n{*}c\n")
    assert bus.read_all(reader) == [b"{1}a\n", b"{1}b\n", b"{1}c\n"]
    bus.write(writer, b"{*}a\n{*}b\n{*}cc\n")
    assert bus.read_all(reader) == [b"{1}b\n", b"{1}cc\n"]


@pytest.mark.parametrize("kind", ["U", "A", "S", "B"])
def test_the_message_being_read_is_never_dropped(kind: str) -> None:
    bus = Driver(Limits(max_queue=2))
    writer, reader, address = pair(bus, kind)
    bus.write(writer, address + b"first\n" + address + b"a\n")
    begun = bus.read(reader, 5)
    for line in (b"b\n", b"c\n", b"d\n"):
        bus.write(writer, address + line)
    assert (begun + bus.read(reader)).endswith(b"first\n")
    assert list(map(text, bus.read_all(reader))) == ["c", "d"]
    assert reader.dropped == 2


def test_each_reader_drops_for_itself() -> None:
    bus = Driver(Limits(max_queue=2))
    writer, quick, slow = bus.create(b"B_x"), bus.create(b"B_x"), bus.create(b"B_x")
    for number in range(4):
        bus.write(writer, b"%d\n" % number)
        assert bus.read(quick) == b"%d\n" % number
    assert bus.read_all(slow) == [b"2\n", b"3\n"]
    assert (quick.dropped, slow.dropped, writer.channel.dropped) == (0, 2, 2)


def test_a_read_that_waits_takes_its_message_before_any_is_dropped() -> None:
    bus = Driver(Limits(max_queue=2))
    writer, reader = bus.create(b"B_x"), bus.create(b"B_x")
    bus.start_read(reader, "r")
    bus.write(writer, b"1\n2\n3\n4\n")
    assert bus.ended() == [("r", b"1\n")]
    assert bus.read_all(reader) == [b"3\n", b"4\n"]
    assert reader.dropped == 1


@pytest.mark.parametrize("kind", ["U", "A", "S", "B"])
def test_nothing_is_dropped_for_a_client_that_has_closed(kind: str) -> None:
    bus = Driver(Limits(max_queue=1))
    writer, reader, address = pair(bus, kind)
    bus.close(reader)
    for _ in range(3):
        bus.write(writer, address + b"x\n")
    assert (writer.channel.dropped, writer.channel.lost, reader.dropped) == (0, 0, 0)
    assert not reader.mailbox


@pytest.mark.parametrize("kind", ["U", "A", "S", "B"])
def test_what_a_client_leaves_unread_is_counted_as_lost(kind: str) -> None:
    bus = Driver()
    writer, reader, address = pair(bus, kind)
    bus.write(writer, (address + b"abc\n") * 3)
    bus.read(reader, 1)
    bus.close(reader)
    channel = writer.channel
    assert (channel.messages_out, channel.dropped, channel.lost) == (1, 0, 2)


# ---------------------------------------------------------------------------------------------- the writer waits


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
