"""Who gets a message, and as what: the table of routes, addresses, IDs, and what a service's master is told."""

import pytest

from futebus.core.client import Access, Client
from futebus.core.errors import BadAddress, BusError, NobodyReads, NoSuchClient, WouldBlock
from futebus.core.limits import LAST_ID, Limits

from .driver import RO, RW, WO, Driver


def join(bus: Driver, kind: str, accesses: tuple[Access, ...]) -> dict[int, Client]:
    """Opens a channel so that the clients have the IDs 1, 2, 3…; on U and S channels 1 is the master."""
    first = f".{kind}_x" if kind in "US" else f"{kind}_x"
    names = [first, *[f"{kind}_x"] * (len(accesses) - 1)]
    clients = [bus.create(name.encode(), access) for name, access in zip(names, accesses, strict=True)]
    assert [client.id for client in clients] == list(range(1, len(clients) + 1))
    if accesses[0].reads:
        bus.read_all(clients[0])
    return {client.id: client for client in clients}


CAST = (RW, RW, RO, WO, RW)
"""1 is the master where there is one; 3 does not write, 4 does not read."""

ROUTES = [
    # channel, sender, written, who gets what
    ("U", 2, b"hi\n", {1: b"hi\n"}),
    ("U", 4, b"hi\n", {1: b"hi\n"}),
    ("U", 2, b"{3}hi\n", {1: b"{3}hi\n"}),
    ("U", 1, b"hi\n", {2: b"hi\n", 3: b"hi\n", 5: b"hi\n"}),
    ("U", 1, b"{2}hi\n", {2: b"{2}hi\n", 3: b"{2}hi\n", 5: b"{2}hi\n"}),
    ("A", 1, b"{2}hi\n", {2: b"{1}hi\n"}),
    ("A", 2, b"{1}hi\n", {1: b"{2}hi\n"}),
    ("A", 4, b"{3}hi\n", {3: b"{4}hi\n"}),
    ("A", 2, b"{2}hi\n", {2: b"{2}hi\n"}),
    ("A", 2, b"{*}hi\n", {1: b"{2}hi\n", 3: b"{2}hi\n", 5: b"{2}hi\n"}),
    ("A", 4, b"{*}hi\n", {1: b"{4}hi\n", 2: b"{4}hi\n", 3: b"{4}hi\n", 5: b"{4}hi\n"}),
    ("A", 2, b"{3}\n", {3: b"{2}\n"}),
    ("A", 2, b"{*}\n", {1: b"{2}\n", 3: b"{2}\n", 5: b"{2}\n"}),
    ("A", 2, b"{3}{5} hi\n", {3: b"{2}{5} hi\n"}),
    ("S", 2, b"hi\n", {1: b"{2}hi\n"}),
    ("S", 4, b"hi\n", {1: b"{4}hi\n"}),
    ("S", 2, b"{3}hi\n", {1: b"{2}{3}hi\n"}),
    ("S", 1, b"{2}hi\n", {2: b"hi\n"}),
    ("S", 1, b"{2}{3}hi\n", {2: b"{3}hi\n"}),
    ("S", 1, b"{*}hi\n", {2: b"hi\n", 3: b"hi\n", 5: b"hi\n"}),
    ("S", 1, b"{2}\n", {}),
    ("S", 1, b"{*}\n", {}),
    ("B", 2, b"hi\n", {1: b"hi\n", 3: b"hi\n", 5: b"hi\n"}),
    ("B", 4, b"hi\n", {1: b"hi\n", 2: b"hi\n", 3: b"hi\n", 5: b"hi\n"}),
    ("B", 1, b"{2}hi\n", {2: b"{2}hi\n", 3: b"{2}hi\n", 5: b"{2}hi\n"}),
]


@pytest.mark.parametrize(("kind", "sender", "data", "received"), ROUTES)
def test_who_gets_a_message(kind: str, sender: int, data: bytes, received: dict[int, bytes]) -> None:
    bus = Driver()
    clients = join(bus, kind, CAST)
    assert bus.write(clients[sender], data) == len(data)
    got = {client.id: bus.read_all(client) for client in clients.values() if client.access.reads}
    assert {client_id: pieces for client_id, pieces in got.items() if pieces} == {
        client_id: [message] for client_id, message in received.items()
    }


@pytest.mark.parametrize(("kind", "sender", "data", "received"), ROUTES)
def test_reads_that_wait_get_the_same(kind: str, sender: int, data: bytes, received: dict[int, bytes]) -> None:
    bus = Driver()
    clients = join(bus, kind, CAST)
    for client in clients.values():
        if client.access.reads:
            bus.start_read(client, client.id)
    bus.write(clients[sender], data)
    assert dict(bus.ended()) == received
    assert bus.bus.waiting == 4 - len(received)


@pytest.mark.parametrize(("kind", "sender", "data", "received"), ROUTES)
def test_a_message_is_counted_once_in_and_once_for_each_reader(
    kind: str, sender: int, data: bytes, received: dict[int, bytes]
) -> None:
    bus = Driver()
    clients = join(bus, kind, CAST)
    channel = clients[1].channel
    out, bytes_out = channel.messages_out, channel.bytes_out
    bus.write(clients[sender], data)
    discarded = kind == "S" and not received
    assert (channel.messages_in, channel.bytes_in) == ((0, 0) if discarded else (1, len(data)))
    assert (channel.mtime == bus.now) is not discarded
    for client in clients.values():
        if client.access.reads:
            bus.read_all(client)
    assert channel.messages_out - out == len(received)
    assert channel.bytes_out - bytes_out == sum(map(len, received.values()))


@pytest.mark.parametrize(
    ("kind", "sender", "data", "error"),
    [
        ("A", 1, b"hi\n", BadAddress),
        ("A", 1, b"{}hi\n", BadAddress),
        ("A", 1, b" {2}hi\n", BadAddress),
        ("A", 1, b"{2:o}\n", BadAddress),
        ("A", 1, b"{9}hi\n", NoSuchClient),
        ("A", 1, b"{0}hi\n", NoSuchClient),
        ("A", 1, b"{100000002}hi\n", NoSuchClient),
        ("A", 1, b"{4}hi\n", NobodyReads),
        ("A", 4, b"{4}hi\n", NobodyReads),
        ("S", 1, b"hi\n", BadAddress),
        ("S", 1, b"{2\n", BadAddress),
        ("S", 1, b"{9}hi\n", NoSuchClient),
        ("S", 1, b"{9}\n", NoSuchClient),
        ("S", 1, b"{1}hi\n", NoSuchClient),
        ("S", 1, b"{4}hi\n", NobodyReads),
        ("S", 1, b"{4}\n", NobodyReads),
    ],
)
def test_addresses_that_lead_nowhere(kind: str, sender: int, data: bytes, error: type[BusError]) -> None:
    bus = Driver()
    clients = join(bus, kind, CAST)
    mtime = clients[1].channel.mtime
    with pytest.raises(error):
        bus.write(clients[sender], data)
    assert [bus.read_all(client) for client in clients.values() if client.access.reads] == [[]] * 4
    assert clients[1].channel.messages_in == 0
    assert clients[1].channel.mtime == mtime


@pytest.mark.parametrize("kind", ["A", "S"])
def test_a_client_that_has_closed_is_not_addressed_any_more(kind: str) -> None:
    bus = Driver()
    clients = join(bus, kind, (RW, RW))
    bus.close(clients[2])
    with pytest.raises(NoSuchClient):
        bus.write(clients[1], b"{2}hi\n")


@pytest.mark.parametrize("kind", ["U", "S"])
def test_a_master_that_does_not_read_gets_nothing(kind: str) -> None:
    bus = Driver()
    clients = join(bus, kind, (WO, RW, WO))
    for slave in (clients[2], clients[3]):
        for data in (b"hi\n", b"half", b"\n"):
            with pytest.raises(NobodyReads):
                bus.write(slave, data)
        assert not slave.wbuf.partial
    bus.write(clients[1], b"{*}hi\n")
    assert len(bus.read_all(clients[2])) == 1


@pytest.mark.parametrize(("kind", "data"), [("U", b"hi\n"), ("A", b"{*}hi\n"), ("S", b"{*}hi\n"), ("B", b"hi\n")])
def test_a_broadcast_with_nobody_to_read_it_is_gone(kind: str, data: bytes) -> None:
    bus = Driver()
    clients = join(bus, kind, (RW, WO))
    assert bus.write(clients[1], data) == len(data)
    assert clients[1].channel.messages_in == 1
    late = bus.create(f"{kind}_x".encode(), RO)
    bus.read_all(clients[1])
    assert bus.read_all(late) == []
    assert bus.write(clients[1], data) == len(data)
    assert len(bus.read_all(late)) == 1


# ---------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize("kind", ["A", "B"])
def test_all_readers_see_the_messages_in_the_same_order(kind: str) -> None:
    bus = Driver()
    clients = join(bus, kind, (RW, RW, RW, RO, RO))
    address = b"{*}" if kind == "A" else b""
    for round_ in range(3):
        for writer in (2, 1, 3):
            bus.write(clients[writer], b"".join(b"%s%d%c\n" % (address, round_, letter) for letter in b"ab"))
    seen = [b"".join(bus.read_all(clients[reader])) for reader in (4, 5)]
    assert seen[0] == seen[1]
    expected = [(round_, writer, letter) for round_ in range(3) for writer in (2, 1, 3) for letter in "ab"]
    if kind == "A":
        assert seen[0].decode() == "".join(f"{{{writer}}}{round_}{letter}\n" for round_, writer, letter in expected)
    else:
        assert seen[0].decode() == "".join(f"{round_}{letter}\n" for round_, _, letter in expected)
    # A writer sees the same, but for its own.
    own = b"".join(bus.read_all(clients[1]))
    if kind == "A":
        assert own.decode() == "".join(f"{{{writer}}}{round_}{letter}\n" for round_, writer, letter in expected if writer != 1)


# ---------------------------------------------------------------------------------------------- IDs


@pytest.mark.parametrize("kind", ["U", "A", "S", "B"])
def test_ids_count_up_from_1_and_are_not_used_again(kind: str) -> None:
    bus = Driver()
    clients = join(bus, kind, (RW, RW, RO))
    bus.close(clients[3])
    bus.close(clients[2])
    assert bus.create(f"{kind}_x".encode()).id == 4


def test_each_channel_counts_its_own_ids() -> None:
    bus = Driver()
    assert [bus.create(name).id for name in (b"A_x", b"A_y", b"A_x", b"B_x")] == [1, 1, 2, 1]


def test_a_client_that_was_refused_takes_no_id() -> None:
    bus = Driver(Limits(max_clients=1))
    client = bus.create(b"A_x")
    with pytest.raises(BusError):
        bus.create(b"A_x")
    bus.close(client)
    assert bus.create(b"A_x").id == 2


@pytest.mark.parametrize("kind", ["A", "S"])
@pytest.mark.parametrize("written", [b"{1a}", b"{1A}", b"{001a}", b"{0000000000000001A}"])
def test_ids_are_read_in_either_case_and_with_leading_zeros(kind: str, written: bytes) -> None:
    bus = Driver()
    clients = join(bus, kind, (RW,))
    clients[1].channel._last_id = 0x19
    client = bus.create(f"{kind}_x".encode())
    assert client.id == 0x1A
    bus.write(clients[1], written + b"hi\n")
    assert bus.read(client).endswith(b"hi\n")


def test_ids_are_written_in_lower_case_without_leading_zeros() -> None:
    bus = Driver()
    for kind in "AS":
        clients = join(bus, kind, (RW,))
        clients[1].channel._last_id = 0xABCDE
        client = bus.create(f"{kind}_x".encode())
        bus.write(client, b"{*}hi\n" if kind == "A" else b"hi\n")
        bus.close(client)
        expected = [b"{abcdf:o}\n", b"{abcdf}hi\n", b"{abcdf:c}\n"] if kind == "S" else [b"{abcdf}hi\n"]
        assert bus.read_all(clients[1]) == expected


@pytest.mark.parametrize("kind", ["U", "A", "S", "B"])
def test_ids_wrap_around_and_skip_those_in_use(kind: str) -> None:
    bus = Driver()
    clients = join(bus, kind, (RW, RO, RW))
    channel = clients[1].channel
    channel._last_id = LAST_ID - 2
    assert LAST_ID == 0xFFFF_FFFF
    bus.close(clients[2])
    new = [bus.create(f"{kind}_x".encode()) for _ in range(5)]
    assert [client.id for client in new] == [LAST_ID - 1, LAST_ID, 2, 4, 5]
    assert len(channel.clients) == 7


def test_ids_skip_those_in_use_at_the_end_of_their_range() -> None:
    bus = Driver()
    first = bus.create(b"A_x")
    first.channel._last_id = LAST_ID - 1
    last = bus.create(b"A_x")
    assert last.id == LAST_ID
    first.channel._last_id = LAST_ID - 1
    assert bus.create(b"A_x").id == 2
    bus.write(first, b"{ffffffff}hi\n")
    assert bus.read(last) == b"{1}hi\n"


# ---------------------------------------------------------------------------------------------- {ID:o} and {ID:c}


@pytest.mark.parametrize("access", [RW, RO, WO])
def test_a_service_is_told_of_opens_and_closes(access: Access) -> None:
    bus = Driver()
    master = bus.create(b".S_x")
    assert bus.read_all(master) == []
    slave = bus.open(b"S_x", access)
    bus.close(slave)
    assert bus.read_all(master) == [b"{2:o}\n", b"{2:c}\n"]


@pytest.mark.parametrize("kind", ["U", "A", "B"])
def test_nobody_else_is_told_of_opens_and_closes(kind: str) -> None:
    bus = Driver()
    clients = join(bus, kind, (RW, RW))
    bus.close(bus.create(f"{kind}_x".encode()))
    assert bus.read_all(clients[1]) == bus.read_all(clients[2]) == []


def test_a_service_that_only_writes_is_told_nothing() -> None:
    bus = Driver()
    master = bus.create(b".S_x", WO)
    bus.close(bus.open(b"S_x"))
    assert not master.mailbox
    assert not any(client.mailbox for client in bus.bus.clients)


def test_slaves_are_told_nothing_of_each_other() -> None:
    bus = Driver()
    bus.create(b".S_x")
    slave = bus.open(b"S_x")
    bus.close(bus.open(b"S_x"))
    assert bus.read_all(slave) == []


def test_opens_and_closes_come_in_order_with_the_messages() -> None:
    bus = Driver()
    master = bus.create(b".S_x")
    one = bus.open(b"S_x")
    bus.write(one, b"a\n")
    two = bus.open(b"S_x")
    bus.write(one, b"b\nc\n")
    bus.write(two, b"a\nhalf")
    bus.close(two)
    bus.write(one, b"d\n")
    bus.close(one)
    assert bus.read_all(master) == [
        b"{2:o}\n", b"{2}a\n", b"{3:o}\n", b"{2}b\n", b"{2}c\n", b"{3}a\n", b"{3:c}\n", b"{2}d\n", b"{2:c}\n",
    ]  # fmt: skip


@pytest.mark.parametrize("limits", [Limits(max_queue=1), Limits(max_queue_bytes=1)], ids=["messages", "bytes"])
def test_opens_and_closes_are_queued_at_a_master_that_is_full(limits: Limits) -> None:
    bus = Driver(limits)
    master = bus.create(b".S_x")
    one = bus.open(b"S_x")
    bus.write(one, b"a\n")
    bus.start_write(one, b"b\n", "b")
    bus.close(bus.open(b"S_x"))
    assert bus.read_all(master) == [b"{2:o}\n", b"{2}a\n", b"{3:o}\n", b"{3:c}\n", b"{2}b\n"]
    assert bus.ended() == [("b", 2)]


@pytest.mark.parametrize("limits", [Limits(max_queue=2), Limits(max_queue_bytes=12)], ids=["messages", "bytes"])
def test_opens_and_closes_take_no_message_s_place(limits: Limits) -> None:
    bus = Driver(limits)
    master = bus.create(b".S_x")
    slaves = [bus.open(b"S_x") for _ in range(5)]
    bus.write(slaves[0], b"a\nb\n")
    with pytest.raises(WouldBlock):
        bus.write(slaves[0], b"c\n")
    # Reading what took no place makes none.
    assert [bus.read(master) for _ in range(5)] == [b"{%d:o}\n" % slave.id for slave in slaves]
    with pytest.raises(WouldBlock):
        bus.write(slaves[0], b"c\n")
    assert bus.read(master) == b"{2}a\n"
    assert bus.write(slaves[0], b"c\n") == 2


def test_a_master_s_waiting_read_gets_an_open_and_a_close() -> None:
    bus = Driver()
    master = bus.create(b".S_x")
    bus.start_read(master, "o")
    bus.start_read(master, "c")
    slave = bus.open(b"S_x")
    assert bus.ended() == [("o", b"{2:o}\n")]
    bus.close(slave)
    assert bus.ended() == [("c", b"{2:c}\n")]
    assert bus.bus.waiting == 0


def test_opens_and_closes_are_read_in_pieces_and_in_bulk_as_messages_are() -> None:
    bus = Driver()
    master = bus.create(b"+.S_x")
    slave = bus.open(b"S_x")
    bus.write(slave, b"a\nb\n")
    assert [bus.read(master, 4), bus.read(master, 4)] == [b"{2:o", b"}\n"]
    bus.close(slave)
    assert bus.read(master, 15) == b"{2}a\n{2}b\n"
    bus.close(bus.open(b"S_x"))
    assert bus.read(master) == b"{2:c}\n{3:o}\n{3:c}\n"
    assert not master.mailbox
