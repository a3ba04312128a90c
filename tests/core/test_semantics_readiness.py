"""Polling: the table of conditions, and the bits that they set."""

import pytest

from futebus.core.client import Access
from futebus.core.errors import NobodyReads, WouldBlock
from futebus.core.limits import Limits

from .driver import RO, RW, WO, Driver
from .polling import polled, service


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
