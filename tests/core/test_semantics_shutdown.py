"""Going down: nothing is accepted any more, nobody waits any longer, and readers get what they still hold."""

import pytest

from futebus.core.client import Access
from futebus.core.errors import ShuttingDown, WouldBlock
from futebus.core.limits import Limits

from .driver import RO, RW, WO, Driver


def unread(bus: Driver) -> bool:
    return any(client.mailbox for client in bus.bus.clients)


@pytest.mark.parametrize("name", [b"B_x", b"B_new", b"+B_x", b"U_x", b".U_new", b".U_x", b"S_none", b"+.S_new"])
@pytest.mark.parametrize("exclusive", [False, True])
def test_new_opens_are_refused(name: bytes, exclusive: bool) -> None:
    bus = Driver()
    bus.create(b"B_x")
    bus.create(b".U_x")
    bus.shut_down()
    with pytest.raises(ShuttingDown):
        bus.create(name, exclusive=exclusive)
    assert set(bus.bus.channels) == {b"B_x", b"U_x"}
    assert len(bus.bus.clients) == 2


def test_opening_what_was_looked_up_is_refused() -> None:
    bus = Driver()
    bus.create(b"B_x")
    bus.shut_down()
    with pytest.raises(ShuttingDown):
        bus.open(b"B_x")


@pytest.mark.parametrize("name", [b".U_x", b"A_x", b".S_x", b"B_x"])
@pytest.mark.parametrize("data", [b"{*}x\n", b"half", b"\n"])
def test_writes_are_refused(name: bytes, data: bytes) -> None:
    bus = Driver()
    clients = [bus.create(name), bus.create(name.removeprefix(b"."))]
    bus.read_all(clients[0])
    for client in clients:
        bus.write(client, b"begun")
    bus.shut_down()
    for client in clients:
        for _ in range(2):
            with pytest.raises(ShuttingDown):
                bus.write(client, data)
        assert not client.wbuf.partial
        assert bus.read(client) == b""


def test_blocked_writes_fail_in_their_order() -> None:
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b".U_x")
    slaves = [bus.open(b"U_x") for _ in range(3)]
    bus.write(slaves[0], b"a\n")
    bus.write(slaves[2], b"half")
    for slave in reversed(slaves):
        bus.start_write(slave, b"b\n", slave.id)
    bus.shut_down()
    assert bus.ended() == [(slave.id, ShuttingDown) for slave in reversed(slaves)]
    assert bus.bus.waiting == 0
    assert not slaves[2].wbuf.partial
    # What was blocked is not delivered after all.
    assert bus.read_all(master) == [b"a\n"]
    assert bus.ended() == []


@pytest.mark.parametrize("name", [b".U_x", b"A_x", b".S_x", b"B_x"])
def test_reads_that_wait_get_end_of_file(name: bytes) -> None:
    bus = Driver()
    clients = [bus.create(name), bus.create(name.removeprefix(b"."), RO)]
    bus.read_all(clients[0])
    for client in clients:
        bus.start_read(client, (client.id, 1))
        bus.start_read(client, (client.id, 2))
    bus.shut_down()
    assert sorted(bus.ended(), key=str) == [((client, turn), b"") for client in (1, 2) for turn in (1, 2)]
    assert bus.bus.waiting == 0


def test_readers_get_what_they_still_hold_then_end_of_file() -> None:
    bus = Driver()
    writer, reader = bus.create(b"B_x", WO), bus.create(b"B_x", RO)
    bus.write(writer, b"one\ntwo\n")
    bus.read(reader, 1)
    bus.shut_down()
    assert unread(bus)
    assert [bus.read(reader) for _ in range(4)] == [b"ne\n", b"two\n", b"", b""]
    assert not unread(bus)


@pytest.mark.parametrize("rbuf", [False, True], ids=["rlist", "rbuf"])
def test_the_bus_knows_whether_somebody_has_something_to_read(rbuf: bool) -> None:
    bus = Driver()
    writer, reader, other = bus.create(b"B_x", WO), bus.create(b"B_x"), bus.create(b"A_x")
    assert not unread(bus)
    bus.write(writer, b"ab\n")
    if rbuf:
        bus.read(reader, 1)
    assert unread(bus)
    bus.close(other)
    assert unread(bus)
    bus.close(reader)
    assert not unread(bus)


@pytest.mark.parametrize("access", [RW, RO, WO])
@pytest.mark.parametrize("holding", [False, True])
def test_polling(access: Access, holding: bool) -> None:
    bus = Driver()
    writer, client = bus.create(b"B_x", WO), bus.create(b"B_x", access)
    if holding:
        bus.write(writer, b"a\n")
    bus.shut_down()
    waits = holding and access.reads
    assert bus.poll(client) == (access.reads, access.reads and not waits, access.writes, access.writes)
    if waits:
        bus.read(client)
        assert bus.poll(client) == (True, True, access.writes, access.writes)


def test_a_slave_of_a_full_master_would_not_block_any_more() -> None:
    bus = Driver(Limits(max_queue=1))
    bus.create(b".U_x")
    slave = bus.open(b"U_x", WO)
    bus.write(slave, b"a\n")
    with pytest.raises(WouldBlock):
        bus.write(slave, b"b\n")
    bus.arm(slave)
    bus.shut_down()
    assert bus.woken() == [slave]
    assert bus.poll(slave) == (False, False, True, True)


def test_pollers_are_woken_once() -> None:
    bus = Driver()
    clients = [bus.create(name) for name in (b"B_x", b"B_x", b"A_x", b".U_x", b"U_x", b".S_x")]
    for client in clients[1:]:
        bus.arm(client)
    bus.shut_down()
    woken = bus.woken()
    assert len(woken) == 5
    assert set(woken) == set(clients[1:])


def test_clients_of_channels_without_name_or_master_are_told_too() -> None:
    bus = Driver()
    removed = bus.create(b"B_x")
    bus.unlink(b"B_x")
    master = bus.create(b".U_x")
    orphan = bus.open(b"U_x")
    bus.write(master, b"a\n")
    bus.close(master)
    bus.start_read(removed, "r")
    bus.shut_down()
    assert bus.ended() == [("r", b"")]
    assert [bus.read(orphan), bus.read(orphan)] == [b"a\n", b""]
    for client in (removed, orphan):
        with pytest.raises(ShuttingDown):
            bus.write(client, b"x\n")


def test_clients_close_as_ever() -> None:
    bus = Driver()
    clients = [bus.create(name) for name in (b".S_x", b"S_x", b"S_x", b"B_x")]
    bus.shut_down()
    for client in clients:
        bus.close(client)
    assert not bus.bus.clients
    assert bus.ended() == []
