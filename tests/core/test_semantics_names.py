"""What a file name means: the table of names, and who is listed."""

import pytest

from futebus.core.errors import BusError, Forbidden, NameTooLong, NoChannelType, NoSuchName
from futebus.core.kinds import Role

from .driver import Driver

NOT_CHANNELS = [b"", b"x", b"_", b"u_x", b"b", b" A", b"\xffB", b"1U", b".", b"..", b"+", b"..U_x", b"++A_x", b".+U_x", b"._stat"]

NOT_MASTERS = [b".A_x", b".B_x", b"+.A_x", b"+.B_x"]


@pytest.mark.parametrize(
    ("name", "listed", "role", "bulk"),
    [
        (b".U_x", b"U_x", Role.MASTER, False),
        (b".S_x", b"S_x", Role.MASTER, False),
        (b"A_x", b"A_x", Role.PEER, False),
        (b"B_x", b"B_x", Role.PEER, False),
        (b"+.U_x", b"U_x", Role.MASTER, True),
        (b"+.S_x", b"S_x", Role.MASTER, True),
        (b"+A_x", b"A_x", Role.PEER, True),
        (b"+B_x", b"B_x", Role.PEER, True),
        (b"B", b"B", Role.PEER, False),
        (b".U", b"U", Role.MASTER, False),
        (b"B.+x", b"B.+x", Role.PEER, False),
        (b"B \n\x01\xff", b"B \n\x01\xff", Role.PEER, False),
    ],
)
def test_creating_lists_the_channel_without_dot_and_plus(name: bytes, listed: bytes, role: Role, bulk: bool) -> None:
    bus = Driver()
    client = bus.create(name)
    assert list(bus.bus.channels) == [listed]
    assert client.channel.name == listed
    assert client.channel.kind.letter == listed[:1]
    assert client.role is role
    assert client.bulk is bulk


@pytest.mark.parametrize("name", [b"U_x", b"S_x", b"+U_x", b"+S_x"])
@pytest.mark.parametrize("by", ["create", "open"])
def test_a_name_with_a_master_is_opened_as_slave(name: bytes, by: str) -> None:
    bus = Driver()
    master = bus.create(b"." + name.removeprefix(b"+"))
    slave = bus.create(name) if by == "create" else bus.open(name)
    assert slave.role is Role.SLAVE
    assert slave.channel is master.channel
    assert slave.bulk is name.startswith(b"+")


@pytest.mark.parametrize("name", NOT_CHANNELS + NOT_MASTERS)
def test_anything_else_cannot_be_created(name: bytes) -> None:
    bus = Driver()
    with pytest.raises(NoChannelType):
        bus.create(name)
    assert not bus.bus.channels
    assert not bus.bus.clients


@pytest.mark.parametrize("name", [*NOT_CHANNELS, *NOT_MASTERS, b"U_none", b".U_none", b"+B_none", b"+.U_none"])
def test_anything_else_is_not_found(name: bytes) -> None:
    bus = Driver()
    bus.create(b"A_x")
    bus.create(b"B_x")
    with pytest.raises(NoSuchName):
        bus.bus.look_up(name)


@pytest.mark.parametrize("name", [b"_stat", b"+_stat"])
def test_stat_cannot_be_created(name: bytes) -> None:
    with pytest.raises(Forbidden):
        Driver().create(name)


def test_stat_is_no_channel() -> None:
    bus = Driver()
    with pytest.raises(BusError):
        bus.bus.look_up(b"_stat")
    # That a program sees ENXIO for the second is up to who shows the bus as a directory: only there is a `_stat`.
    with pytest.raises(BusError):
        bus.unlink(b"_stat")


@pytest.mark.parametrize("kind", [b"U_x", b"S_x"])
def test_the_dot_is_for_creating_only(kind: bytes) -> None:
    bus = Driver()
    bus.create(b"." + kind)
    for name in (b"." + kind, b"+." + kind):
        with pytest.raises(NoSuchName):
            bus.bus.look_up(name)
        with pytest.raises(NoSuchName):
            bus.unlink(name)
    assert list(bus.bus.channels) == [kind]


@pytest.mark.parametrize("kind", [b".U_x", b"A_x", b".S_x", b"B_x"])
def test_plus_names_the_same_channel_for_bulk_reading(kind: bytes) -> None:
    bus = Driver()
    channel = bus.create(kind).channel
    name = kind.removeprefix(b".")
    assert bus.bus.look_up(name) == (channel, False)
    assert bus.bus.look_up(b"+" + name) == (channel, True)


@pytest.mark.parametrize("prefix", [b"", b"+"])
def test_names_are_up_to_255_bytes(prefix: bytes) -> None:
    bus = Driver()
    longest = prefix + b"B".ljust(255 - len(prefix), b"x")
    bus.create(longest)
    assert bus.bus.look_up(longest)
    for too_long in (longest + b"x", prefix + b"x" * 300):
        with pytest.raises(NameTooLong):
            bus.create(too_long)
        with pytest.raises(NameTooLong):
            bus.bus.look_up(too_long)


def test_the_bus_remembers_when_its_names_last_changed() -> None:
    bus = Driver()
    bus.create(b"B_x")
    assert bus.bus.changed_at == bus.now
    created = bus.now
    client = bus.open(b"B_x")
    bus.write(client, b"x\n")
    bus.close(client)
    assert bus.bus.changed_at == created
    bus.unlink(b"B_x")
    assert bus.bus.changed_at == bus.now
    master = bus.create(b".U_x")
    bus.tick()
    bus.close(master)
    assert bus.bus.changed_at == bus.now
