"""The limits of a bus, who is exempt, and what frees a place under them again."""

import tracemalloc
from dataclasses import fields

import pytest

from futebus.core.client import Client, Owner
from futebus.core.errors import AlreadyThere, NoMaster, TooManyChannels, TooManyClients, TooManyForUser
from futebus.core.limits import LAST_ID, MAX_CONTROLS, Limits

from .driver import OTHER, RO, ROOT, USER, WO, Driver


def test_the_defaults() -> None:
    limits = Limits()
    assert {field.name: getattr(limits, field.name) for field in fields(limits)} == {
        "max_message": 262144,
        "max_queue": 65536,
        "max_queue_bytes": 4194304,
        "max_clients": 16384,
        "max_clients_per_user": 4096,
        "max_channels": 4096,
    }
    assert Driver().bus.limits == limits


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_a_limit_is_a_sensible_number(name: str) -> None:
    lowest = 2 if name == "max_message" else 1  # a byte and its newline
    for value in (lowest, LAST_ID):
        assert getattr(Limits(**{name: value}), name) == value
    for value in (lowest - 1, 0, -1, LAST_ID + 1):
        with pytest.raises(ValueError, match=name):
            Limits(**{name: value})


@pytest.mark.parametrize("owner", [ROOT, USER])
def test_clients_on_the_bus(owner: Owner) -> None:
    bus = Driver(Limits(max_clients=3))
    clients = [bus.create(name, owner=owner) for name in (b"B_x", b".U_x", b"U_x")]
    for name in (b"B_x", b"B_new", b".S_x", b"U_x"):
        with pytest.raises(TooManyClients):
            bus.create(name, owner=owner)
    with pytest.raises(TooManyClients):
        bus.open(b"B_x", owner=owner)
    assert set(bus.bus.channels) == {b"B_x", b"U_x"}
    bus.close(clients[1])
    # The slave of a dead channel is a client still.
    assert bus.create(b"B_x", owner=owner)
    with pytest.raises(TooManyClients):
        bus.create(b"B_x", owner=owner)


def test_clients_of_a_user() -> None:
    bus = Driver(Limits(max_clients_per_user=2))
    clients = [bus.create(name, owner=USER) for name in (b"B_x", b".U_x")]
    for name in (b"B_x", b"B_new", b".S_x", b"U_x"):
        with pytest.raises(TooManyForUser):
            bus.create(name, owner=USER)
    with pytest.raises(TooManyForUser):
        bus.open(b"B_x", owner=USER)
    # Other processes and groups of the same user are the same user, other users are not.
    with pytest.raises(TooManyForUser):
        bus.create(b"B_x", owner=Owner(USER.uid, gid=5, pid=6))
    for _ in range(2):
        bus.create(b"B_x", owner=OTHER)
    with pytest.raises(TooManyForUser):
        bus.create(b"B_x", owner=OTHER)
    bus.close(clients[0])
    clients[0] = bus.create(b"B_x", owner=USER)
    with pytest.raises(TooManyForUser):
        bus.create(b"B_x", owner=USER)


def test_a_user_whose_clients_have_all_closed_begins_anew() -> None:
    bus = Driver(Limits(max_clients_per_user=1))
    for _ in range(3):
        bus.close(bus.create(b"B_x", owner=USER))
    bus.create(b"B_x", owner=USER)
    with pytest.raises(TooManyForUser):
        bus.create(b"B_x", owner=USER)


def test_root_is_exempt_from_the_limit_of_a_user() -> None:
    bus = Driver(Limits(max_clients_per_user=1))
    for name in (b"B_x", b"B_x", b".U_x", b"U_x"):
        bus.create(name, owner=ROOT)
    assert len(bus.bus.clients) == 4


def test_channels_on_the_bus() -> None:
    bus = Driver(Limits(max_channels=2))
    bus.create(b"A_x")
    master = bus.create(b".U_x")
    for name in (b"A_y", b".U_y", b"+B_y"):
        with pytest.raises(TooManyChannels):
            bus.create(name)
    assert len(bus.bus.clients) == 2
    # What is there can be opened.
    bus.create(b"A_x")
    bus.create(b"U_x")
    bus.unlink(b"A_x")
    bus.create(b"B_y")
    with pytest.raises(TooManyChannels):
        bus.create(b"A_x")
    bus.close(master)
    bus.create(b"A_x")


def test_mistakes_are_mistakes_however_full_the_bus_is() -> None:
    bus = Driver(Limits(max_channels=1))
    bus.create(b".U_x")
    with pytest.raises(NoMaster):
        bus.create(b"U_y")
    with pytest.raises(AlreadyThere):
        bus.create(b".U_x")


def test_a_broadcast_message_is_stored_once_whoever_waits_for_it() -> None:
    bus = Driver()
    writer = bus.create(b"B_x", WO)
    readers = [bus.create(b"B_x", RO) for _ in range(50)]
    message = b"x" * 200_000 + b"\n"
    tracemalloc.start()
    try:
        bus.write(writer, message)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(reader.mailbox.size == len(message) for reader in readers)
    assert used < 2 * len(message)


# ---------------------------------------------------------------------------------------------- a flood of opens


def flood(bus: Driver, count: int) -> Client:
    """A service whose master has `count` opens and closes left unread."""
    master = bus.create(b".S_x")
    for _ in range(count // 2):
        bus.close(bus.open(b"S_x"))
    if count % 2:
        bus.open(b"S_x")
    assert master.mailbox.controls == count
    return master


def test_unread_opens_and_closes_are_limited() -> None:
    assert MAX_CONTROLS == 65_536
    bus = Driver()
    master = flood(bus, MAX_CONTROLS - 1)
    other = bus.create(b".S_y")
    last = bus.open(b"S_x")
    for _ in range(2):
        with pytest.raises(TooManyForUser):
            bus.open(b"S_x")
    with pytest.raises(TooManyForUser):
        bus.create(b"S_x", owner=USER)
    assert len(master.channel.clients) == 3
    assert len(bus.bus.clients) == 4
    # Messages go on, other channels too, and a close is told all the same.
    bus.write(last, b"hello\n")
    bus.open(b"S_y")
    assert bus.read_all(other) == [b"{2:o}\n"]
    bus.close(last)
    assert master.mailbox.controls == MAX_CONTROLS + 1
    bus.read(master)
    with pytest.raises(TooManyForUser):
        bus.open(b"S_x")
    bus.read(master)
    # The refused ones took no ID.
    assert bus.open(b"S_x").id == last.id + 1


def test_the_flood_of_one_user_counts_for_none() -> None:
    bus = Driver(Limits(max_clients_per_user=1))
    bus.create(b".S_x")
    for _ in range(100):
        bus.close(bus.open(b"S_x", owner=USER))
    bus.open(b"S_x", owner=USER)
