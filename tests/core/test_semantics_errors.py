"""The table of errors: which there are, what a program sees of them, and that the bus goes on as if nothing had been asked."""

import errno
from collections.abc import Callable

import pytest

from futebus.core import errors
from futebus.core.client import Client, Owner
from futebus.core.errors import BusError
from futebus.core.limits import Limits

from .driver import RO, ROOT, RW, USER, WO, Driver

ERRNOS = {
    errors.NoSuchName: errno.ENOENT,
    errors.NameTooLong: errno.ENAMETOOLONG,
    errors.NoChannelType: errno.ENXIO,
    errors.Forbidden: errno.EPERM,
    errors.NoMaster: errno.ESPIPE,
    errors.AlreadyThere: errno.EEXIST,
    errors.NobodyReads: errno.ESRCH,
    errors.NoSuchClient: errno.ENODEV,
    errors.BadAddress: errno.EFAULT,
    errors.MessageTooLong: errno.EMSGSIZE,
    errors.WouldBlock: errno.EAGAIN,
    errors.NotOpenForThis: errno.EBADF,
    errors.TooManyClients: errno.ENFILE,
    errors.TooManyForUser: errno.EUSERS,
    errors.TooManyChannels: errno.ENOSPC,
    errors.ShuttingDown: errno.ESHUTDOWN,
    errors.Broken: errno.EIO,
}


def test_every_error_is_in_the_table() -> None:
    assert set(BusError.__subclasses__()) == set(ERRNOS)


@pytest.mark.parametrize(("error", "number"), ERRNOS.items(), ids=lambda value: getattr(value, "__name__", str(value)))
def test_what_a_program_sees(error: type[BusError], number: int) -> None:
    assert error.errno == number
    assert str(error())
    assert "\n" not in str(error())
    assert str(error("in other words")) == "in other words"


class World:
    """A bus with something of everything, on which any call can go wrong."""

    def __init__(self) -> None:
        self.bus = Driver(Limits(max_message=8, max_queue=1, max_clients=9, max_clients_per_user=1, max_channels=5))
        create = self.bus.create
        self.master = create(b".U_x")
        self.slave = create(b"U_x")
        self.deaf_master = create(b".S_x", WO)
        self.deaf_slave = create(b"S_x")
        self.peer = create(b"A_x")
        self.mute = create(b"A_x", RO)
        self.deaf = create(b"A_x", WO, USER)
        lonely_master = create(b".U_y")
        self.lonely = create(b"U_y")
        self.bus.close(lonely_master)
        self.bus.write(self.slave, b"full\n")

    def fill(self) -> None:
        while len(self.bus.bus.clients) < self.bus.bus.limits.max_clients:
            self.bus.create(b"A_x", RO)

    def picture(self) -> object:
        """Everything that a refused call must leave alone."""
        bus = self.bus.bus
        return (
            list(bus.channels.items()),
            bus.changed_at,
            bus.waiting,
            {
                client: (client.mailbox.messages, client.mailbox.size, client.mailbox.controls, client.sent, client.dropped)
                for client in bus.clients
            },
            {
                (name, channel.mtime, channel.atime, channel.ctime, channel.messages_in, channel.bytes_in, len(channel.clients))
                for name, channel in bus.channels.items()
            },
        )


def write(who: str, data: bytes) -> Callable[[World], object]:
    def call(world: World) -> object:
        client = getattr(world, who)
        assert isinstance(client, Client)
        return world.bus.write(client, data)

    return call


def create(name: bytes, owner: Owner = ROOT, *, exclusive: bool = False) -> Callable[[World], object]:
    return lambda world: world.bus.create(name, RW, owner, exclusive=exclusive)


REFUSALS: dict[str, tuple[Callable[[World], object], int]] = {
    "creating what has no type": (create(b"x"), errno.ENXIO),
    "creating a master of what has none": (create(b".B_x"), errno.ENXIO),
    "creating a name too long": (create(b"B" * 256), errno.ENAMETOOLONG),
    "looking up what is not there": (lambda world: world.bus.channel(b"B_none"), errno.ENOENT),
    "looking up what can not be": (lambda world: world.bus.channel(b"x"), errno.ENOENT),
    "unlinking what is not there": (lambda world: world.bus.unlink(b"B_none"), errno.ENOENT),
    "opening without a master": (create(b"U_none"), errno.ESPIPE),
    "opening after the master": (lambda world: world.bus.bus.open(world.lonely.channel, RW, ROOT, 1), errno.ESPIPE),
    "a second master": (create(b".U_x"), errno.EEXIST),
    "exclusive": (create(b"A_x", exclusive=True), errno.EEXIST),
    "creating _stat": (create(b"_stat"), errno.EPERM),
    "the master is gone": (write("lonely", b"x\n"), errno.ESRCH),
    "the master does not read": (write("deaf_slave", b"x\n"), errno.ESRCH),
    "the addressed client does not read": (write("peer", b"{3}x\n"), errno.ESRCH),
    "the addressed client is not there": (write("peer", b"{9}x\n"), errno.ENODEV),
    "the addressed slave is not there": (write("deaf_master", b"{9}x\n"), errno.ENODEV),
    "no address": (write("peer", b"x\n"), errno.EFAULT),
    "no address from a master": (write("deaf_master", b"x\n"), errno.EFAULT),
    "an address that is none": (write("peer", b"{g}x\n"), errno.EFAULT),
    "too long": (write("peer", b"{*}45678\n"), errno.EMSGSIZE),
    "too long already": (write("peer", b"12345678"), errno.EMSGSIZE),
    "a full master": (write("slave", b"x\n"), errno.EAGAIN),
    "nothing to read": (lambda world: world.bus.read(world.peer), errno.EAGAIN),
    "not open for reading": (lambda world: world.bus.read(world.deaf), errno.EBADF),
    "not open for writing": (write("mute", b"x\n"), errno.EBADF),
    "too many of a user": (create(b"A_x", USER), errno.EUSERS),
}


@pytest.mark.parametrize(("call", "number"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refused_call_changes_nothing(call: Callable[[World], object], number: int) -> None:
    world = World()
    before = world.picture()
    for _ in range(2):
        with pytest.raises(BusError) as caught:
            call(world)
        assert caught.value.errno == number
        assert world.picture() == before
        assert not world.bus.ended()
        assert not world.bus.woken()


def test_too_many_clients_and_channels() -> None:
    world = World()
    for name in (b"B_1", b"B_2"):
        world.bus.close(world.bus.create(name))
    before = world.picture()
    with pytest.raises(BusError) as caught:
        world.bus.create(b"B_3")
    assert caught.value.errno == errno.ENOSPC
    assert world.picture() == before
    world.fill()
    before = world.picture()
    for name in (b"B_1", b"B_3", b".S_new", b"U_x"):
        with pytest.raises(BusError) as caught:
            world.bus.create(name)
        assert caught.value.errno == errno.ENFILE
        assert world.picture() == before
