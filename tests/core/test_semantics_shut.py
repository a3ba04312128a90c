"""A master ends its channel: it takes no more, and reads what there is, to its end."""

import pytest

from futebus.core.client import Readiness
from futebus.core.errors import Forbidden, NobodyReads, NoMaster, NoSuchName
from futebus.core.limits import Limits

from .driver import RO, RW, WO, Driver, service


@pytest.fixture
def small() -> Driver:
    return Driver(Limits(max_queue=2))


def test_what_was_accepted_is_read_and_then_it_ends(small: Driver) -> None:
    master, [slave] = service(small, 1)
    small.write(slave, b"one\ntwo\n")
    small.shut(master)
    with pytest.raises(NobodyReads):
        small.write(slave, b"three\n")
    assert [small.read(master) for _ in range(3)] == [b"one\n", b"two\n", b""]


def test_a_write_that_waits_ends_with_what_was_accepted_of_it(small: Driver) -> None:
    master, slaves = service(small, 2)
    small.start_write(slaves[0], b"1\n2\n3\n", "first")
    small.start_write(slaves[1], b"4\n", "second")
    small.shut(master)
    assert sorted(small.ended(), key=str) == [("first", 4), ("second", NobodyReads)]
    assert small.read_all(master) == [b"1\n", b"2\n"]
    assert small.bus.waiting == 0


def test_a_read_that_waits_ends(small: Driver) -> None:
    master, _ = service(small, 1)
    small.start_read(master, "read")
    small.shut(master)
    assert small.ended() == [("read", b"")]


def test_its_name_is_free_and_nobody_comes_in_by_the_file(small: Driver) -> None:
    master, [slave] = service(small, 1)
    channel = small.channel(b"U_x")
    small.shut(master)
    with pytest.raises(NoSuchName):
        small.open(b"U_x")
    with pytest.raises(NoMaster):
        small.bus.open(channel, RW, slave.owner, small.tick())
    other = small.create(b".U_x")
    small.shut(master)  # once more, which is nothing
    small.write(small.open(b"U_x"), b"for the other\n")
    assert small.read(other) == b"for the other\n"


def test_slaves_still_hear_it(small: Driver) -> None:
    """So a service answers the requests that it has accepted."""
    master, [slave] = service(small, 1, b"S_x")
    small.write(slave, b"request\n")
    small.shut(master)
    assert small.read_all(master) == [b"{2:o}\n", b"{2}request\n"]
    small.write(master, b"{2}answer\n")
    assert small.read(slave) == b"answer\n"
    small.start_read(slave, "read")
    small.close(master)
    assert small.ended() == [("read", b"")]


def test_of_slaves_that_leave_a_service_hears_no_more(small: Driver) -> None:
    master, [slave] = service(small, 1, b"S_x")
    assert small.read_all(master) == [b"{2:o}\n"]
    small.shut(master)
    small.close(slave)
    assert small.read(master) == b""


def test_who_polls_is_told(small: Driver) -> None:
    master, slaves = service(small, 1)
    reader, writer = small.open(b"U_x", RO), small.open(b"U_x", WO)
    small.write(slaves[0], b"1\n2\n")
    clients = (master, slaves[0], reader, writer)
    for client in clients:
        small.arm(client)
    small.shut(master)
    assert set(small.woken()) == {slaves[0], writer}
    assert small.arm(master) == Readiness(readable=True, hung_up=False, writable=True, broken=False)
    assert small.arm(slaves[0]) == Readiness(readable=False, hung_up=False, writable=True, broken=True)
    assert small.arm(reader) == Readiness(readable=False, hung_up=False, writable=False, broken=False)
    small.read_all(master)
    assert small.woken() == [master]
    assert small.arm(master) == Readiness(readable=True, hung_up=True, writable=True, broken=False)


def test_only_a_master_can(small: Driver) -> None:
    master, [slave] = service(small, 1)
    for client in (slave, small.create(b"B_x")):
        with pytest.raises(Forbidden):
            small.shut(client)
    small.write(slave, b"one\n")
    assert small.read(master) == b"one\n"


def test_the_bus_forgets_it_when_all_have_closed(small: Driver) -> None:
    master, [slave] = service(small, 1)
    small.shut(master)
    small.close(slave)
    small.close(master)
    assert not small.bus.every_channel
    assert not small.bus.clients
