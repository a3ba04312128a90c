"""Polling: what is ready, and that pollers are woken by every change from not ready to ready, and only by those."""

import pytest

from futebus.core.client import Access, Client, Readiness
from futebus.core.errors import NobodyReads, WouldBlock
from futebus.core.limits import Limits

from .driver import RO, RW, WO, Driver


def bits(readiness: Readiness) -> str:
    """`r`eadable, `h`ung up, `w`ritable, `b`roken; the reading ones first."""
    assert readiness.readable or not readiness.hung_up
    assert readiness.writable or not readiness.broken
    return "".join(letter for letter, is_set in zip("rhwb", readiness, strict=True) if is_set)


def polled(bus: Driver, client: Client) -> str:
    return bits(bus.poll(client))


def service(limits: Limits, *accesses: Access, name: bytes = b"U_x") -> tuple[Driver, Client, list[Client]]:
    """A channel whose master reads and writes, and its slaves."""
    bus = Driver(limits)
    master = bus.create(b"." + name)
    slaves = [bus.open(name, access) for access in accesses]
    if name.startswith(b"S"):
        bus.read_all(master)
    return bus, master, slaves


# ---------------------------------------------------------------------------------------------- the conditions


@pytest.mark.parametrize("name", [b".U_x", b"A_x", b".S_x", b"B_x"])
@pytest.mark.parametrize(("access", "expected"), [(RW, "w"), (RO, ""), (WO, "w")])
def test_a_client_alone(name: bytes, access: Access, expected: str) -> None:
    bus = Driver()
    assert polled(bus, bus.create(name, access)) == expected


@pytest.mark.parametrize(("access", "expected"), [(RW, "rw"), (RO, "r"), (WO, "w")])
@pytest.mark.parametrize(
    ("name", "data"), [(b".U_x", b"ab\n"), (b"A_x", b"{*}ab\n"), (b".S_x", b"{*}ab\n"), (b"B_x", b"ab\n")], ids="UASB"
)
def test_readable_while_rlist_or_rbuf_holds_something(name: bytes, data: bytes, access: Access, expected: str) -> None:
    bus = Driver()
    writer = bus.create(name)
    reader = bus.create(name.removeprefix(b"."), access)
    bus.write(writer, data)
    assert polled(bus, reader) == expected
    if access.reads:
        bus.read(reader, 1)
        assert not reader.mailbox.messages
        assert polled(bus, reader) == expected
        bus.read_all(reader)
        assert polled(bus, reader) == expected.removeprefix("r")


def test_a_service_is_readable_when_a_slave_opens() -> None:
    bus, master, _ = service(Limits(), name=b"S_x")
    assert polled(bus, master) == "w"
    bus.open(b"S_x")
    assert polled(bus, master) == "rw"


@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
@pytest.mark.parametrize("limits", [Limits(max_queue=1), Limits(max_queue_bytes=2)], ids=["messages", "bytes"])
def test_slaves_are_not_writable_while_the_master_is_full(name: bytes, limits: Limits) -> None:
    bus, master, (one, two, mute) = service(limits, RW, WO, RO, name=name)
    assert [polled(bus, client) for client in (one, two, mute, master)] == ["w", "w", "", "w"]
    bus.write(one, b"a\n")
    assert [polled(bus, client) for client in (one, two, mute, master)] == ["", "", "", "rw"]
    bus.read(master, 1)
    assert [polled(bus, client) for client in (one, two, mute, master)] == ["w", "w", "", "rw"]


@pytest.mark.parametrize("name", [b"A_x", b"B_x"])
def test_other_channels_are_always_writable(name: bytes) -> None:
    bus = Driver(Limits(max_queue=1, max_queue_bytes=1))
    writer, reader = bus.create(name), bus.create(name)
    for _ in range(3):
        bus.write(writer, b"{*}x\n")
        assert polled(bus, writer) == "w"
        assert polled(bus, reader) == "rw"


@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
def test_a_master_and_the_slaves_of_one_that_does_not_read_are_always_writable(name: bytes) -> None:
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b"." + name, WO)
    slave = bus.open(name)
    for _ in range(3):
        bus.write(master, b"{*}x\n")
        assert polled(bus, master) == "w"
        # The write would fail, but it would not block.
        assert polled(bus, slave) == "rw"
        with pytest.raises(NobodyReads):
            bus.write(slave, b"x\n")


def test_controls_do_not_fill_a_master() -> None:
    bus, _, (slave,) = service(Limits(max_queue=1), RW, name=b"S_x")
    bus.close(bus.open(b"S_x"))
    assert polled(bus, slave) == "w"


def test_slaves_are_not_writable_while_another_waits() -> None:
    bus, master, (one, two) = service(Limits(max_queue_bytes=8), RW, RW)
    bus.write(one, b"12345\n")
    assert polled(bus, one) == "w"
    bus.start_write(two, b"67890\n", "two")
    assert [polled(bus, one), polled(bus, two)] == ["", ""]
    bus.read(master)
    assert [polled(bus, one), polled(bus, two)] == ["w", "w"]


def test_after_a_refusal_writable_means_that_the_message_fits() -> None:
    bus, master, (one, two) = service(Limits(max_queue_bytes=8), RW, RW)
    bus.write(one, b"1\n2\n345\n")
    with pytest.raises(WouldBlock):
        bus.write(one, b"45\n")
    assert [polled(bus, one), polled(bus, two)] == ["", ""]
    bus.read(master)
    # Two bytes are free: enough for somebody else, not for what was refused.
    assert [polled(bus, one), polled(bus, two)] == ["", "w"]
    bus.read(master)
    assert [polled(bus, one), polled(bus, two)] == ["w", "w"]
    assert bus.write(one, b"45\n") == 3


def test_after_a_refusal_the_address_in_front_needs_its_place_too() -> None:
    bus, master, (slave,) = service(Limits(max_queue_bytes=10), RW, name=b"S_x")
    bus.write(slave, b"1\n2\n")
    with pytest.raises(WouldBlock):
        bus.write(slave, b"123\n")
    bus.read(master)
    assert bus.write(slave, b"\n") == 1
    assert polled(bus, slave) == ""
    bus.read(master)
    assert polled(bus, slave) == "w"


def test_a_refused_message_is_forgotten_when_another_is_accepted() -> None:
    bus, _, (slave,) = service(Limits(max_queue_bytes=8), RW)
    bus.write(slave, b"1\n")
    with pytest.raises(WouldBlock):
        bus.write(slave, b"123456\n")
    assert polled(bus, slave) == ""
    bus.write(slave, b"2\n")
    assert polled(bus, slave) == "w"


def test_after_a_refusal_of_many_messages_writable_means_that_the_first_fits() -> None:
    bus, master, (one,) = service(Limits(max_queue_bytes=8), RW)
    bus.write(one, b"1\n2\n3\n4\n")
    with pytest.raises(WouldBlock):
        bus.write(one, b"12\n345678\n")
    bus.read(master)
    assert polled(bus, one) == ""
    bus.read(master)
    assert polled(bus, one) == "w"
    assert bus.write(one, b"12\n345678\n") == 3


@pytest.mark.parametrize(("name", "last"), [(b"U_x", b"1234567\n"), (b"S_x", b"1234\n")])
def test_after_a_refusal_because_others_wait_writable_means_that_the_message_fits(name: bytes, last: bytes) -> None:
    bus, master, (one, two, three) = service(Limits(max_queue_bytes=10), RW, RW, RW, name=name)
    bus.write(one, last)
    bus.start_write(two, last, "two")
    with pytest.raises(WouldBlock):
        bus.write(three, b"123\n")
    bus.read(master)
    assert bus.ended() == [("two", len(last))]
    # Two bytes are free.
    assert [polled(bus, client) for client in (one, three)] == ["w", ""]
    bus.read(master)
    assert [polled(bus, client) for client in (one, three)] == ["w", "w"]


@pytest.mark.parametrize("name", [b"U_x", b"S_x"])
@pytest.mark.parametrize(("access", "holding", "drained"), [(RW, "rwb", "rhwb"), (RO, "r", "rh"), (WO, "wb", "wb")])
def test_a_dead_channel(name: bytes, access: Access, holding: str, drained: str) -> None:
    bus, master, (slave,) = service(Limits(max_queue=1), access, name=name)
    bus.write(master, b"{*}ab\n")
    bus.close(master)
    assert polled(bus, slave) == holding
    if access.reads:
        bus.read(slave, 1)
        assert polled(bus, slave) == holding
        bus.read_all(slave)
    assert polled(bus, slave) == drained


def test_a_dead_channel_whose_master_was_full() -> None:
    bus, master, (slave,) = service(Limits(max_queue=1), RW)
    bus.write(slave, b"a\n")
    with pytest.raises(WouldBlock):
        bus.write(slave, b"b\n")
    assert polled(bus, slave) == ""
    bus.close(master)
    assert polled(bus, slave) == "rhwb"


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
