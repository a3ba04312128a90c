"""Pollers are woken by every change from not ready to ready, and hardly by anything else."""

import pytest

from futebus.core.bus import Bus
from futebus.core.client import Access, Client, Effects, Piece
from futebus.core.errors import NoSuchClient, WouldBlock
from futebus.core.limits import Limits

from .driver import RO, ROOT, RW, WO, Driver
from .polling import bits, polled, service

# ---------------------------------------------------------------------------------------------- waking readers


def armed_reader(access: Access = RW) -> tuple[Driver, Client, Client]:
    bus = Driver(Limits(max_queue=2))
    writer, reader = bus.create(b"B_x"), bus.create(b"B_x", access)
    bus.arm(reader)
    return bus, writer, reader


@pytest.mark.parametrize("access", [RW, RO])
def test_a_message_wakes_a_poller_once(access: Access) -> None:
    bus, writer, reader = armed_reader(access)
    bus.write(writer, b"par")
    assert bus.woken() == []
    bus.write(writer, b"tial\nb\nc\n")
    bus.write(writer, b"d\n")
    assert bus.woken() == [reader]
    bus.read_all(reader)
    bus.write(writer, b"e\n")
    assert bus.woken() == []


def test_a_poller_that_was_not_armed_is_not_woken() -> None:
    bus = Driver()
    writer, reader = bus.create(b"B_x"), bus.create(b"B_x")
    bus.poll(reader)
    bus.write(writer, b"a\n")
    assert bus.woken() == []


def test_arming_twice_is_arming_once() -> None:
    bus, writer, reader = armed_reader()
    bus.arm(reader)
    bus.write(writer, b"a\n")
    assert bus.woken() == [reader]


def test_polling_without_arming_leaves_it_armed() -> None:
    bus, writer, reader = armed_reader()
    bus.poll(reader)
    bus.write(writer, b"a\n")
    assert bus.woken() == [reader]


def test_another_message_is_no_change() -> None:
    bus, writer, reader = armed_reader()
    bus.write(writer, b"a\n")
    assert bus.woken() == [reader]
    assert bits(bus.arm(reader)) == "rw"
    for _ in range(5):
        bus.write(writer, b"b\n")
    assert bus.woken() == []
    bus.read(reader, 1)
    bus.write(writer, b"c\n")
    assert bus.woken() == []


def test_armed_while_readable_it_is_woken_by_the_next_message_after_it_was_not() -> None:
    bus, writer, reader = armed_reader()
    bus.write(writer, b"a\n")
    bus.arm(reader)
    bus.woken()
    bus.read_all(reader)
    assert bus.woken() == []
    bus.write(writer, b"b\n")
    assert bus.woken() == [reader]


def test_a_message_that_a_waiting_read_takes_wakes_nobody() -> None:
    bus, writer, reader = armed_reader()
    bus.start_read(reader, "r")
    bus.write(writer, b"a\n")
    assert bus.ended() == [("r", b"a\n")]
    assert bus.woken() == []
    bus.start_read(reader, "s", 1)
    bus.write(writer, b"b\n")
    assert bus.woken() == [reader]  # by the rest of it


def test_everybody_else_who_polls_is_woken_by_a_broadcast() -> None:
    bus = Driver()
    writer = bus.create(b"B_x")
    readers = [bus.create(b"B_x", access) for access in (RW, RO, WO)]
    for client in (writer, *readers):
        bus.arm(client)
    bus.write(writer, b"a\n")
    assert bus.woken() == readers[:2]


def test_only_the_addressed_client_is_woken() -> None:
    bus = Driver()
    clients = [bus.create(b"A_x") for _ in range(3)]
    for client in clients:
        bus.arm(client)
    bus.write(clients[0], b"{2}a\n")
    assert bus.woken() == [clients[1]]


def test_a_service_s_poller_is_woken_by_opens_and_closes() -> None:
    bus, master, _ = service(Limits(), name=b"S_x")
    bus.arm(master)
    slave = bus.open(b"S_x")
    assert bus.woken() == [master]
    bus.arm(master)
    bus.open(b"S_x")
    assert bus.woken() == []
    bus.read_all(master)
    bus.close(slave)
    assert bus.woken() == [master]


def test_a_poller_that_closes_is_forgotten() -> None:
    bus, master, (slave,) = service(Limits(max_queue=1), RW)
    bus.write(slave, b"a\n")
    bus.arm(slave)
    bus.close(slave)
    bus.read(master)
    assert not master.channel.armed_slaves
    bus.close(master)
    assert bus.woken() == []


# ---------------------------------------------------------------------------------------------- waking writers


@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
@pytest.mark.parametrize("limits", [Limits(max_queue=1), Limits(max_queue_bytes=2)], ids=["messages", "bytes"])
def test_a_freed_place_wakes_the_slaves_that_poll(name: bytes, limits: Limits) -> None:
    bus, master, slaves = service(limits, RW, WO, RO, RW, name=name)
    bus.write(slaves[0], b"a\n")
    for client in (master, *slaves[:3]):
        bus.arm(client)
    bus.read(master, 1)
    assert set(bus.woken()) == set(slaves[:2])
    bus.read(master)
    assert bus.woken() == []


def test_armed_while_writable_it_is_woken_when_full_and_free_again() -> None:
    """As an edge-triggered poller does, which looks once and then only writes."""
    bus, master, (one, two) = service(Limits(max_queue=1), RW, RW)
    assert bits(bus.arm(one)) == "w"
    bus.write(two, b"a\n")
    assert bus.woken() == []
    bus.read(master)
    assert bus.woken() == [one]
    bus.write(two, b"a\n")
    bus.read(master)
    assert bus.woken() == []


def test_reading_wakes_nobody_who_could_write_before() -> None:
    bus, master, (one, two) = service(Limits(max_queue=2), RW, RW)
    bus.arm(one)
    bus.write(two, b"a\n")
    bus.read(master)
    assert bus.woken() == []


def test_a_place_that_a_blocked_writer_takes_wakes_nobody() -> None:
    bus, master, (one, two) = service(Limits(max_queue=1), RW, RW)
    bus.write(one, b"a\n")
    bus.start_write(one, b"b\n", "b")
    bus.arm(two)
    bus.read(master)
    assert bus.ended() == [("b", 2)]
    assert bus.woken() == []
    bus.read(master)
    assert bus.woken() == [two]


def test_a_place_too_small_for_the_first_blocked_writer_wakes_nobody() -> None:
    bus, master, (one, two) = service(Limits(max_queue_bytes=8), RW, RW)
    bus.write(one, b"1\n2\n3\n4\n")
    bus.start_write(one, b"12345\n", "long")
    bus.arm(two)
    for _ in range(2):
        bus.read(master)
        assert not bus.woken()
        assert not bus.ended()
    bus.read(master)
    assert bus.ended() == [("long", 6)]
    assert bus.woken() == []  # 2 + 6 bytes: full
    bus.read(master)
    assert bus.woken() == [two]


def test_when_the_last_blocked_writer_has_found_its_place_the_others_can_write() -> None:
    bus, master, (one, two) = service(Limits(max_queue_bytes=8), RW, RW)
    bus.write(one, b"12345\n")
    bus.start_write(one, b"67890\n", "long")
    assert bits(bus.arm(two)) == ""
    bus.read(master)
    assert bus.ended() == [("long", 6)]
    assert bus.woken() == [two]


def test_control_messages_free_no_place() -> None:
    bus, master, (slave,) = service(Limits(max_queue=1), RW, name=b"S_x")
    bus.open(b"S_x")
    bus.write(slave, b"a\n")
    bus.arm(slave)
    assert bus.read(master) == b"{3:o}\n"
    assert bus.woken() == []
    assert bus.read(master) == b"{2}a\n"
    assert bus.woken() == [slave]


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_when_the_last_blocked_writer_goes_the_others_can_write(how: str) -> None:
    bus, _, (one, two) = service(Limits(max_queue_bytes=8), RW, RW)
    bus.write(one, b"12345\n")
    bus.start_write(two, b"67890\n", "long")
    assert bits(bus.arm(one)) == ""
    if how == "cancel":
        bus.cancel("long")
    else:
        bus.close(two)
    assert polled(bus, one) == "w"
    assert bus.woken() == [one]


def test_a_blocked_writer_that_goes_from_a_full_master_wakes_nobody() -> None:
    bus, _, (one, two) = service(Limits(max_queue=1), RW, RW)
    bus.write(one, b"a\n")
    bus.start_write(two, b"b\n", "b")
    bus.arm(one)
    bus.cancel("b")
    assert bus.woken() == []


@pytest.mark.parametrize("armed", ["before", "after"])
def test_a_refused_message_wakes_its_poller_when_it_fits_and_once(armed: str) -> None:
    bus, master, (one, two) = service(Limits(max_queue_bytes=8), RW, RW)
    bus.write(one, b"1\n2\n34\n")
    if armed == "before":
        assert bits(bus.arm(one)) == "w"
    with pytest.raises(WouldBlock):
        bus.write(one, b"567\n")
    if armed == "after":
        assert bits(bus.arm(one)) == ""
    bus.arm(two)
    bus.read(master)
    assert bus.woken() == []  # three bytes are free
    bus.read(master)
    assert bus.woken() == [one]  # five; the other could write all the time
    bus.read(master)
    assert bus.woken() == []


def test_a_refused_message_that_fits_already_when_armed_wakes_nobody() -> None:
    bus, master, (one, two) = service(Limits(max_queue_bytes=8), RW, RW)
    bus.write(one, b"12345\n")
    with pytest.raises(WouldBlock):
        bus.write(one, b"678\n")
    bus.read(master)
    assert bits(bus.arm(one)) == "w"
    bus.write(two, b"a\n")
    bus.read(master)
    assert bus.woken() == []


def test_a_shorter_one_that_was_accepted_does_not_make_it_forgotten() -> None:
    """Others may write by the same description, or it has begun with another."""
    bus, master, (one,) = service(Limits(max_queue_bytes=8), RW)
    bus.write(one, b"1\n2\n")
    assert bits(bus.arm(one)) == "w"
    with pytest.raises(WouldBlock):
        bus.write(one, b"56789\n")
    assert bus.write(one, b"3\n") == 2
    assert bits(bus.poll(one)) == "w"  # there is place for another short one
    bus.read(master)
    assert bus.woken() == []
    bus.read(master)
    assert bus.woken() == [one]
    bus.arm(one)
    bus.read(master)
    assert bus.woken() == []


def test_after_its_refused_message_fitted_it_is_woken_by_changes_as_the_others() -> None:
    bus, master, (one, two) = service(Limits(max_queue_bytes=8), RW, RW)
    bus.write(one, b"12345\n")
    with pytest.raises(WouldBlock):
        bus.write(one, b"678\n")
    bus.read(master)
    bus.arm(one)
    bus.write(two, b"1234567\n")
    bus.read(master)
    assert bus.woken() == [one]


def test_a_poller_for_both_is_woken_by_either() -> None:
    bus, master, (slave,) = service(Limits(max_queue=1), RW)
    bus.write(slave, b"a\n")
    assert bits(bus.arm(slave)) == ""
    bus.write(master, b"x\n")
    assert bus.woken() == [slave]
    assert bits(bus.arm(slave)) == "r"
    bus.read(master)
    assert bus.woken() == [slave]


# ---------------------------------------------------------------------------------------------- waking at the end


@pytest.mark.parametrize("access", [RW, RO, WO])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
def test_the_end_of_the_master_wakes_pollers(name: bytes, full: bool, access: Access) -> None:
    bus, master, (slave, other, _) = service(Limits(max_queue=1), access, RW, RW, name=name)
    if full:
        bus.write(other, b"a\n")
    bus.arm(slave)
    bus.arm(other)
    bus.arm(master)
    bus.close(master)
    assert set(bus.woken()) == {slave, other}


def test_the_end_of_the_master_does_not_wake_who_can_read_on() -> None:
    bus, master, (only_reads, both) = service(Limits(), RO, RW)
    bus.write(master, b"a\n")
    bus.arm(only_reads)
    bus.arm(both)
    bus.close(master)
    # The one that writes learns that writing fails from now on. For the other nothing has changed.
    assert bus.woken() == [both]


def test_the_last_read_of_a_dead_channel_wakes_who_polls_for_its_end() -> None:
    bus, master, (slave,) = service(Limits(), RO)
    bus.write(master, b"ab\n")
    bus.close(master)
    assert bits(bus.arm(slave)) == "r"
    bus.read(slave, 1)
    assert bus.woken() == []
    bus.read(slave)
    assert polled(bus, slave) == "rh"
    assert bus.woken() == [slave]
    bus.arm(slave)
    bus.read(slave)
    assert bus.woken() == []


# ---------------------------------------------------------------------------------------------- a short count


def test_a_short_count_though_there_is_place_is_a_change() -> None:
    """By epoll(7), who has got one may wait for the next change."""
    bus = Driver()
    client = bus.create(b"A_x")
    assert bus.arm(client).writable
    assert bus.write(client, b"{*}good\n{ff}bad\n") == 8
    assert bus.woken() == [client]
    assert bus.write(client, b"{*}good\n{*}good\n") == 16
    assert bus.woken() == []


def test_a_short_count_for_want_of_place_is_none_until_there_is_some() -> None:
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b".U_x")
    slave = bus.open(b"U_x")
    assert bus.arm(slave).writable
    assert bus.write(slave, b"one\ntwo\n") == 4
    assert bus.woken() == []
    assert bus.read(master) == b"one\n"
    assert bus.woken() == [slave]


class Crowd:
    """An A channel with so many readers that a broadcast is done in steps."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.writer, self.other, *_ = (self.bus.create(b"A_x", RW, ROOT, 0o644, 0)[0] for _ in range(600))
        self.effects = Effects(0)

    def write(self, client: Client, data: bytes, token: str, piece: Piece | None = None, *, may_wait: bool = True) -> None:
        taken, effects = self.bus.write(client, data, 0, token, may_wait=may_wait, work=100, piece=piece)
        assert taken is None
        self._keep(effects)

    def finish(self) -> None:
        while self.effects.later:
            self._keep(self.bus.go_on(self.effects.later.pop(0), 0, work=100))

    def _keep(self, effects: Effects) -> None:
        self.effects.later += effects.later
        self.effects.finished += effects.finished
        self.effects.ready += effects.ready


@pytest.mark.parametrize("is_behind", [True, False], ids=["behind a broadcast", "at once"])
@pytest.mark.parametrize("is_further", [True, False], ids=["a further piece", "all"])
def test_the_error_of_a_further_piece_makes_one(is_behind: bool, is_further: bool) -> None:
    """The kernel tells how much the pieces before were. Who has got an error knows that it can write."""
    crowd = Crowd()
    if is_behind:
        crowd.write(crowd.other, b"{*}x\n", "before")
    crowd.bus.poll(crowd.writer, arm=True)
    piece = Piece("one", 1 << 20, may_go_on=False, continues=is_further)
    if is_behind or is_further:
        crowd.write(crowd.writer, b"{ff00}bad\n", "w", piece, may_wait=False)
    else:
        with pytest.raises(NoSuchClient):
            crowd.write(crowd.writer, b"{ff00}bad\n", "w", piece, may_wait=False)
    crowd.finish()
    assert (crowd.writer in crowd.effects.ready) == is_further


@pytest.mark.parametrize("how", ["refused", "a signal"])
def test_a_short_count_of_a_write_that_is_done_in_steps(how: str) -> None:
    bus = Bus()
    writer, _ = bus.create(b"A_x", RW, ROOT, 0o644, 0)
    bus.poll(writer, arm=True)
    taken, effects = bus.write(writer, b"{*}x\n" * 10_000 + b"{ff}bad\n", 0, "w", may_wait=False, work=100)
    assert (taken, effects.ready) == (None, [])
    if how == "a signal":
        cancelled = bus.cancel("w", 0)
        assert cancelled
        taken, effects = cancelled
        assert taken
    else:
        while effects.later:
            effects = bus.go_on(effects.later[0], 0, work=100)
        assert effects.finished == [("w", 50_000)]
    assert effects.ready == [writer]


def test_a_short_count_while_another_write_waits() -> None:
    """Then the change comes when that has ended."""
    crowd = Crowd()
    crowd.write(crowd.other, b"{*}x\n", "before")
    crowd.bus.poll(crowd.writer, arm=True)
    crowd.write(crowd.writer, b"{*}x\n{ff00}bad\n", "w", may_wait=False)
    crowd.write(crowd.writer, b"{*}y\n", "v")
    crowd.finish()
    assert crowd.effects.finished == [("before", 5), ("w", 5), ("v", 5)]
    assert crowd.writer in crowd.effects.ready


@pytest.mark.parametrize("ends", [True, False], ids=["a signal", "served"])
def test_a_place_while_another_write_is_about_to_have_its_turn(ends: bool) -> None:
    """Then who was told of a short count hears of it when that has ended."""
    bus = Bus(Limits(max_queue=50))
    master, _ = bus.create(b"+.U_x", RW, ROOT, 0o644, 0)
    slave, _ = bus.open(master.channel, RW, ROOT, 0)
    bus.poll(slave, arm=True)
    assert bus.write(slave, b"a\n" * 60, 0, "a", may_wait=False)[0] == 100
    for token in ("b", "c"):  # O_NONBLOCK is off now
        assert bus.write(slave, b"b\n", 0, token)[0] is None
    later = bus.cancel("b", 0)[1].later  # type: ignore[index]
    effects = bus.read(master, 1000, 0)[1]
    assert not effects
    effects = bus.cancel("c", 0)[1] if ends else bus.go_on(later[0], 0)  # type: ignore[index]
    assert effects.ready == [slave]


def test_who_was_told_that_it_is_writable_waits_for_nobody() -> None:
    """Nor for what may come of a long write of which nobody was told."""
    bus = Bus(Limits(max_queue=1))
    master, _ = bus.create(b".U_x", RW, ROOT, 0o644, 0)
    slave, other = (bus.open(master.channel, RW, ROOT, 0)[0] for _ in range(2))
    bus.write(other, b"a\n", 0)
    bus.write(slave, b"b\n", 0, "b")
    assert not bus.poll(slave, arm=True).writable
    bus.cancel("b", 0)
    bus.read(master, 100, 0)
    assert bus.poll(slave).writable
    assert bus.write(slave, b"c\n", 0, "c", piece=Piece("one", 0, may_go_on=True))[0] == 2
    bus.read(master, 100, 0)
    assert bus.poll(slave).writable
