"""When the rlist of a client is full that is no master: the oldest message is dropped for the new one."""

from typing import Any

import pytest

from futebus.core.bus import Bus
from futebus.core.channel import Channel
from futebus.core.client import Access, Client, Owner
from futebus.core.framing import Run
from futebus.core.limits import Limits

from .driver import Driver, text

Pair = tuple[Client, Client, bytes]
"""A writer, a reader that is no master, and the address that leads from one to the other."""


def pair(bus: Driver, kind: str) -> Pair:
    writer = bus.create(f".{kind}_x".encode() if kind in "US" else f"{kind}_x".encode())
    reader = bus.create(f"{kind}_x".encode())
    return writer, reader, b"{*}" if kind in "AS" else b""


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


# ---------------------------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("name", [b".U_x", b".S_x"])
def test_one_free_place_is_filled_by_looking_at_one_message(name: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is full of short messages, and each of those who wait has thousands of them."""
    bus = Bus(Limits(max_queue=1000))
    owner = Owner(0, 0, 1)
    master, _ = bus.create(name, Access(True, True), owner, 0o666, 0)
    for number in range(3):
        slave, _ = bus.open(master.channel, Access(False, True), owner, 0)
        assert bus.write(slave, b"a\n" * 50_000, 0, number)[0] is None
    assert len(master.channel.blocked) == 3
    looked_at: list[int] = []
    send = Channel.send

    def spy(channel: Channel, sender: Client, run: Run, *rest: Any, **more: Any) -> int:
        looked_at.append(run.messages)
        return send(channel, sender, run, *rest, **more)

    monkeypatch.setattr(Channel, "send", spy)
    for _ in range(10):
        while not master.mailbox.is_full or master.mailbox.controls:
            bus.read(master, 100, 0)  # who opened, too
        looked_at.clear()
        bus.read(master, 100, 0)
        assert looked_at
        assert max(looked_at) == 1


def test_nobody_who_polls_is_looked_at_while_others_wait_with_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus(Limits(max_queue=10))
    owner = Owner(0, 0, 1)
    master, _ = bus.create(b".U_x", Access(True, True), owner, 0o666, 0)
    slaves = [bus.open(master.channel, Access(False, True), owner, 0)[0] for _ in range(20)]
    assert bus.write(slaves[0], b"a\n" * 100, 0, "token")[0] is None
    for slave in slaves[1:]:
        assert not bus.poll(slave, arm=True).writable
    asked: list[Client] = []
    is_writable = Channel.is_writable

    def spy(channel: Channel, client: Client) -> bool:
        asked.append(client)
        return is_writable(channel, client)

    monkeypatch.setattr(Channel, "is_writable", spy)
    told: list[Client] = []
    for _ in range(100):
        was_waiting = bool(master.channel.blocked)
        effects = bus.read(master, 100, 0)[1]
        told += effects.ready
        if was_waiting and master.channel.blocked:
            assert not asked
        asked.clear()
    assert sorted(client.id for client in told) == [slave.id for slave in slaves[1:]]
