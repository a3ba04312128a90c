"""How a write that waits for a master ends before all of it is taken: by a signal, a close, an error, or with the bus."""

from typing import Any

import pytest

from futebus.core import channel
from futebus.core.bus import Bus
from futebus.core.channel import Channel
from futebus.core.client import Client
from futebus.core.errors import Broken, NobodyReads, ShuttingDown, TooManyForUser
from futebus.core.limits import Limits

from .driver import RO, ROOT, RW, USER, WO, Driver, service


@pytest.mark.parametrize("how", ["master closes", "shut down"])
def test_what_ends_a_write_that_has_come_some_way_makes_a_short_count_of_it(how: str) -> None:
    bus = Driver(Limits(max_queue=2))
    master, (one, two) = service(bus, 2)
    bus.start_write(one, b"a\nb\nc\n", "one")
    bus.start_write(two, b"d\n", "two")
    if how == "shut down":
        bus.shut_down()
        assert bus.ended() == [("one", 4), ("two", ShuttingDown)]
    else:
        bus.close(master)
        assert bus.ended() == [("one", 4), ("two", NobodyReads)]


def test_a_signal_tells_how_far_a_write_has_come() -> None:
    bus = Driver(Limits(max_queue=2))
    master, (one, two) = service(bus, 2)
    bus.start_write(one, b"a\nb\nc\n", "one")
    bus.start_write(two, b"d\n", "two")
    assert bus.cancelled("one") == 4
    assert bus.cancelled("two") == 0
    assert bus.read_all(master) == [b"a\n", b"b\n"]
    assert bus.bus.waiting == 0


def test_a_signal_for_one_of_two_writes_by_one_description() -> None:
    bus = Driver(Limits(max_queue=1))
    master, (shared,) = service(bus, 1)
    bus.write(shared, b"a\n")
    for token in ("first", "second", "third"):
        bus.start_write(shared, token.encode() + b"\n", token)
    assert bus.cancelled("second") == 0
    assert bus.cancelled("first") == 0
    assert bus.read(master) == b"a\n"
    assert bus.ended() == [("third", 6)]
    assert bus.read_all(master) == [b"third\n"]
    bus.write(shared, b"full\n")
    bus.start_write(shared, b"x\n", "x")
    bus.start_write(shared, b"y\n", "y")
    bus.close(shared)
    assert bus.bus.waiting == 0
    assert bus.read_all(master) == [b"full\n"]


def test_what_waits_for_another_write_by_the_same_description_is_bounded_for_each_user() -> None:
    """A thousand threads with a megabyte each are one client."""
    bus = Driver(Limits(max_queue=1, max_clients_per_user=2))
    bus.create(b".U_x")
    shared, roots = bus.open(b"U_x", owner=USER), bus.open(b"U_x")
    bus.start_write(shared, b"full\nnext\n", "first")
    block = b"x" * 32_767 + b"\n"
    for round_ in range(3):
        for number in range(4):
            bus.start_write(shared, block, (round_, number))
        with pytest.raises(TooManyForUser):
            bus.bus.write(shared, block, bus.tick(), "too many")
        for number in range(4):
            assert bus.cancelled((round_, number)) == 0
    for number in range(10):
        bus.start_write(roots, block, number)
    bus.start_write(shared, block, "again")
    bus.close(shared)
    bus.close(roots)
    assert bus.bus.waiting == 0
    assert not bus.bus._writes._shared_bytes_of


@pytest.mark.parametrize("how", ["a signal", "a close"])
def test_a_write_that_ends_behind_a_broadcast_leaves_nothing_there(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(channel, "READERS_AT_ONCE", 1)
    bus = Driver()
    first, second, third = bus.create(b"B_x", WO), bus.open(b"B_x", WO), bus.open(b"B_x", WO)
    readers = [bus.open(b"B_x", RO) for _ in range(3)]
    later = [*bus.bus.write(first, b"a\n", bus.tick(), "first")[1].later]
    for number in range(10):
        bus.bus.write(second, b"b\n", bus.tick(), number)
        if how == "a signal":
            assert bus.cancelled(number) == 0
    bus.bus.write(third, b"c\n", bus.tick(), "third")
    if how == "a close":
        bus.close(second)
    assert list(bus.channel(b"B_x").behind) == ["first", "third"]
    while later:
        later += bus.bus.go_on(later.pop(0), bus.now).later
    assert [bus.read_all(reader) for reader in readers] == [[b"a\n", b"c\n"]] * 3
    assert bus.bus.waiting == 0


def test_an_error_inside_is_that_of_the_write_that_meets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the master, whose read makes place for it, nor of the others that wait."""
    bus = Bus(Limits(max_queue=1))
    master, _ = bus.create(b".U_x", RW, ROOT, 0o644, 0)
    one, two = (bus.open(master.channel, RW, ROOT, 0)[0] for _ in range(2))
    bus.write(one, b"full\n", 0)
    bus.write(one, b"one\n", 0, "one")
    bus.write(two, b"two\n", 0, "two")
    send = Channel.send

    def fail(channel: Channel, sender: Client, *rest: Any, **more: Any) -> int:
        if sender is one:
            raise MemoryError
        return send(channel, sender, *rest, **more)

    monkeypatch.setattr(Channel, "send", fail)
    piece, effects = bus.read(master, 100, 0)
    assert piece == b"full\n"
    assert isinstance(effects.failure, MemoryError)
    [(first, error), second] = effects.finished
    assert (first, type(error), second) == ("one", Broken, ("two", 4))
    assert bus.read(master, 100, 0)[0] == b"two\n"
    assert bus.waiting == 0


def test_a_blocked_write_ends_before_the_line_that_fails() -> None:
    bus = Driver(Limits(max_queue=1, max_message=4))
    master, (slave,) = service(bus, 1)
    bus.write(slave, b"a\n")
    bus.start_write(slave, b"b\ntoolong\n", "w")
    assert bus.read(master) == b"a\n"
    assert bus.ended() == [("w", 2)]
    assert bus.read_all(master) == [b"b\n"]


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
