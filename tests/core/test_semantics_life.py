"""A channel's life: how it begins, what its files are like, and the two ways that it ends."""

from contextlib import suppress

import pytest

from futebus.core import stat
from futebus.core.client import Access
from futebus.core.errors import AlreadyThere, MessageTooLong, NobodyReads, NoMaster, NoSuchName, WouldBlock
from futebus.core.kinds import Role
from futebus.core.limits import Limits

from .driver import OTHER, RO, RW, USER, WO, Driver

WITHOUT_MASTER = [b"A_x", b"B_x"]
WITH_MASTER = [b"U_x", b"S_x"]


def creating(name: bytes) -> bytes:
    """The name that creates a channel."""
    return b"." + name if name in WITH_MASTER else name


# ---------------------------------------------------------------------------------------------- beginning


@pytest.mark.parametrize("name", WITHOUT_MASTER)
@pytest.mark.parametrize("access", [RW, RO, WO])
def test_a_and_b_channels_outlive_their_clients(name: bytes, access: Access) -> None:
    bus = Driver()
    client = bus.create(name, access)
    channel = client.channel
    bus.close(client)
    assert bus.channel(name) is channel
    assert bus.open(name).channel is channel
    bus.unlink(name)
    with pytest.raises(NoSuchName):
        bus.channel(name)


@pytest.mark.parametrize("name", WITHOUT_MASTER)
def test_creating_an_a_or_b_channel_that_is_there_opens_it(name: bytes) -> None:
    bus = Driver()
    first, second = bus.create(name), bus.create(name)
    assert first.channel is second.channel
    assert [first.role, second.role] == [Role.PEER, Role.PEER]


@pytest.mark.parametrize("name", WITH_MASTER)
@pytest.mark.parametrize("plus", [b"", b"+"])
def test_nobody_becomes_a_master_by_accident(name: bytes, plus: bytes) -> None:
    bus = Driver()
    with pytest.raises(NoMaster):
        bus.create(plus + name, WO)
    assert not bus.bus.channels
    assert not bus.bus.clients


@pytest.mark.parametrize("name", WITH_MASTER)
@pytest.mark.parametrize("plus", [b"", b"+"])
@pytest.mark.parametrize("exclusive", [False, True])
def test_there_is_one_master(name: bytes, plus: bytes, exclusive: bool) -> None:
    bus = Driver()
    master = bus.create(b"." + name, exclusive=exclusive)
    with pytest.raises(AlreadyThere):
        bus.create(plus + b"." + name, exclusive=exclusive)
    assert bus.bus.clients == {master}


@pytest.mark.parametrize("name", WITHOUT_MASTER + WITH_MASTER)
def test_exclusive_refuses_a_channel_that_is_there(name: bytes) -> None:
    bus = Driver()
    first = bus.create(creating(name), exclusive=True)
    with pytest.raises(AlreadyThere):
        bus.create(name, exclusive=True)
    assert bus.bus.clients == {first}


# ---------------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize("name", WITHOUT_MASTER + WITH_MASTER)
def test_the_file_belongs_to_its_creator(name: bytes) -> None:
    bus = Driver()
    channel = bus.create(creating(name), owner=USER, mode=0o640).channel
    created = bus.now
    bus.create(name, owner=OTHER, mode=0o777)
    assert (channel.uid, channel.gid, channel.mode) == (USER.uid, USER.gid, 0o640)
    assert channel.atime == channel.mtime == channel.ctime == channel.created_at == created


def test_the_number_of_a_channel_is_its_own_for_its_life() -> None:
    bus = Driver()
    numbers = [bus.create(name).channel.number for name in (b"B_x", b"B_y", b".U_x")]
    bus.unlink(b"B_x")
    numbers.append(bus.create(b"B_x").channel.number)
    assert len(set(numbers)) == 4
    assert bus.channel(b"B_x").number == numbers[-1]
    assert bus.open(b"+B_x").channel.number == numbers[-1]


def test_mtime_moves_with_every_message_accepted() -> None:
    bus = Driver(Limits(max_message=4))
    channel = bus.create(b"B_x").channel
    writer = bus.open(b"B_x", WO)
    moved = []
    for data in (b"a\n", b"\n", b"ab", b"c\n", b"toolong\n", b"a\ntoolong\n"):
        with suppress(MessageTooLong):
            bus.write(writer, data)
        moved.append(channel.mtime == bus.now)
    assert moved == [True, False, False, True, False, True]


def test_mtime_moves_when_a_write_that_waited_is_accepted() -> None:
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b".U_x")
    slave = bus.open(b"U_x")
    bus.write(slave, b"a\n")
    written = bus.now
    bus.start_write(slave, b"b\n", "b")
    assert master.channel.mtime == written
    bus.read(master)
    assert master.channel.mtime == bus.now


def test_atime_moves_with_every_message_read() -> None:
    bus = Driver()
    reader = bus.create(b"B_x")
    writer = bus.open(b"B_x")
    bus.write(writer, b"abc\n")
    before = reader.channel.atime
    with pytest.raises(WouldBlock):
        bus.read(writer)
    assert reader.channel.atime == before
    bus.read(reader, 2)
    assert reader.channel.atime == bus.now


def test_atime_moves_when_a_read_that_waited_gets_its_message() -> None:
    bus = Driver()
    reader = bus.create(b"B_x")
    writer = bus.open(b"B_x")
    bus.start_read(reader, "r")
    bus.write(writer, b"abc\n")
    assert bus.ended() == [("r", b"abc\n")]
    assert reader.channel.atime == bus.now


# ---------------------------------------------------------------------------------------------- the master goes


@pytest.mark.parametrize("name", WITH_MASTER)
def test_the_name_goes_with_the_master_at_once(name: bytes) -> None:
    bus = Driver()
    master = bus.create(b"." + name)
    slave = bus.open(name)
    channel = master.channel
    bus.close(master)
    assert not bus.bus.channels
    assert channel.is_dead
    with pytest.raises(NoSuchName):
        bus.channel(name)
    with pytest.raises(NoMaster):  # found before the master closed, opened after
        bus.bus.open(channel, RW, USER, bus.tick())
    assert bus.bus.clients == {slave}


@pytest.mark.parametrize("name", WITH_MASTER)
def test_a_slave_that_goes_leaves_the_channel(name: bytes) -> None:
    bus = Driver()
    master = bus.create(b"." + name)
    bus.close(bus.open(name))
    assert bus.channel(name) is master.channel
    assert not master.channel.is_dead


@pytest.mark.parametrize("name", WITH_MASTER)
@pytest.mark.parametrize("data", [b"x\n", b"x\ny\n", b"x\ny", b"x", b"\n"])
def test_slaves_of_a_dead_channel_cannot_write(name: bytes, data: bytes) -> None:
    bus = Driver()
    master = bus.create(b"." + name)
    slave = bus.open(name)
    bus.close(master)
    for _ in range(2):
        with pytest.raises(NobodyReads):
            bus.write(slave, data)


@pytest.mark.parametrize("name", WITH_MASTER)
def test_a_partial_message_does_not_survive_the_failed_write_to_a_dead_channel(name: bytes) -> None:
    bus = Driver()
    master = bus.create(b"." + name)
    slave = bus.open(name)
    bus.write(slave, b"half")
    bus.close(master)
    with pytest.raises(NobodyReads):
        bus.write(slave, b"whole\n")
    assert not slave.wbuf.partial


@pytest.mark.parametrize("name", WITH_MASTER)
def test_blocked_writes_of_a_dead_channel_fail_in_their_order(name: bytes) -> None:
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b"." + name)
    slaves = [bus.open(name) for _ in range(3)]
    bus.write(slaves[0], b"full\n")
    bus.write(slaves[0], b"half")
    for slave in slaves:
        bus.start_write(slave, b"x\n", slave.id)
    bus.close(master)
    assert bus.ended() == [(slave.id, NobodyReads) for slave in slaves]
    assert bus.bus.waiting == 0
    assert not slaves[0].wbuf.partial


@pytest.mark.parametrize("name", WITH_MASTER)
def test_calls_that_the_end_of_the_master_has_ended_wait_no_more(name: bytes) -> None:
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b"." + name)
    slave = bus.open(name)
    bus.write(slave, b"full\n")
    bus.start_write(slave, b"x\n", "w")
    bus.start_read(slave, "r")
    bus.close(master)
    assert sorted(bus.ended(), key=str) == [("r", b""), ("w", NobodyReads)]
    (channel,) = stat.take(bus.bus, bus.now).channels
    assert [client.waits_to for client in channel.clients] == [""]
    # Neither is ended a second time, nor in the way of the last close.
    bus.shut_down()
    bus.close(slave)
    assert bus.ended() == []
    assert not bus.bus.clients


@pytest.mark.parametrize("access", [RO, RW])
@pytest.mark.parametrize(
    ("name", "first", "second"), [(b"U_x", b"one\n", b"two\n"), (b"S_x", b"{*}one\n", b"{2}two\n")], ids=["U", "S"]
)
def test_reads_of_a_dead_channel_hand_out_the_rest_then_end(name: bytes, first: bytes, second: bytes, access: Access) -> None:
    bus = Driver()
    master = bus.create(b"." + name)
    slave = bus.open(name, access)
    bus.write(master, first + second)
    assert bus.read(slave, 1) == b"o"
    bus.close(master)
    assert bus.read(slave) == b"ne\n"
    assert bus.read(slave) == b"two\n"
    assert [bus.read(slave), bus.read(slave)] == [b"", b""]


@pytest.mark.parametrize("name", WITH_MASTER)
def test_reads_blocked_on_a_dead_channel_end(name: bytes) -> None:
    bus = Driver()
    master = bus.create(b"." + name)
    slaves = [bus.open(name, RO), bus.open(name, RW)]
    bus.start_read(slaves[0], "a")
    bus.start_read(slaves[1], "b")
    bus.start_read(slaves[0], "c")
    bus.close(master)
    ended = bus.ended()
    assert sorted(ended, key=str) == [("a", b""), ("b", b""), ("c", b"")]
    assert ended.index(("a", b"")) < ended.index(("c", b""))
    assert bus.bus.waiting == 0


@pytest.mark.parametrize("name", WITH_MASTER)
def test_a_new_master_and_the_old_slaves_never_meet(name: bytes) -> None:
    bus = Driver()
    old_master = bus.create(b"." + name)
    old_slave = bus.open(name)
    bus.close(old_master)
    new_master = bus.create(b"." + name)
    new_slave = bus.open(name)
    bus.write(new_master, b"{*}hello\n")
    assert bus.read(old_slave) == b""
    assert len(bus.read_all(new_slave)) == 1
    with pytest.raises(NobodyReads):
        bus.write(old_slave, b"hello\n")
    bus.read_all(new_master)
    bus.close(old_slave)
    assert bus.read_all(new_master) == []
    assert bus.channel(name) is new_master.channel


# ---------------------------------------------------------------------------------------------- rm


@pytest.mark.parametrize(
    ("name", "data"), [(b"U_x", b"hi\n"), (b"A_x", b"{*}hi\n"), (b"S_x", b"{*}hi\n"), (b"B_x", b"hi\n")], ids="UASB"
)
def test_rm_takes_the_name_and_leaves_the_clients_together(name: bytes, data: bytes) -> None:
    bus = Driver()
    first, second = bus.create(creating(name)), bus.create(name)
    bus.start_read(second, "r")
    bus.unlink(name)
    assert not bus.bus.channels
    with pytest.raises(NoSuchName):
        bus.unlink(name)
    assert first.channel.ctime == bus.now - 1
    bus.write(first, data)
    assert [(token, piece) for token, piece in bus.ended() if isinstance(piece, bytes) and piece.endswith(b"hi\n")]


@pytest.mark.parametrize("name", WITHOUT_MASTER + WITH_MASTER)
def test_after_rm_the_name_makes_a_new_channel(name: bytes) -> None:
    bus = Driver()
    old = bus.create(creating(name))
    old_peer = bus.create(name)
    bus.unlink(name)
    new = bus.create(creating(name), exclusive=True)
    new_peer = bus.create(name)
    assert new.channel is not old.channel
    assert bus.channel(name) is new.channel
    bus.read_all(old)
    bus.read_all(new)
    bus.write(old, b"{*}old\n")
    bus.write(new, b"{*}new\n")
    assert [message.endswith(b"old\n") for message in bus.read_all(old_peer)] == [True]
    assert [message.endswith(b"new\n") for message in bus.read_all(new_peer)] == [True]
    # The end of the old one, master or not, is no business of the new one's name.
    bus.close(old)
    bus.close(old_peer)
    assert bus.channel(name) is new.channel
    assert not new.channel.is_dead


@pytest.mark.parametrize("name", WITH_MASTER)
def test_a_channel_without_name_dies_with_its_master_all_the_same(name: bytes) -> None:
    bus = Driver()
    master = bus.create(b"." + name)
    slave = bus.open(name)
    bus.unlink(name)
    bus.close(master)
    assert bus.read(slave) == b""
    with pytest.raises(NobodyReads):
        bus.write(slave, b"x\n")


def test_rm_by_the_plus_name() -> None:
    bus = Driver()
    bus.create(b"B_x")
    bus.unlink(b"+B_x")
    assert not bus.bus.channels
