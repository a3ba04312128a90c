"""`_stat`: one frozen record of the bus, and its text for people."""

import dataclasses
from collections.abc import Callable

import pytest

from futebus.core import stat
from futebus.core.client import Owner
from futebus.core.limits import Limits

from .driver import RO, ROOT, RW, USER, WO, Driver

SECOND = 1_000_000_000


def taken(bus: Driver) -> stat.BusStat:
    return stat.take(bus.bus, bus.now)


def clients_of(bus: Driver) -> dict[int, stat.ClientStat]:
    """The clients of the only channel."""
    (channel,) = taken(bus).channels
    return {client.id: client for client in channel.clients}


def daemon(command: Callable[[int], bytes] = lambda _: b"", mountpoint: str = "/mnt/bus") -> stat.Daemon:
    return stat.Daemon("1.2", mountpoint, 99, {"files": 3, "nodes": 4}, command)


def text(bus: Driver, commands: dict[int, bytes] | None = None) -> str:
    names = commands or {}
    return "".join(stat.for_people(taken(bus), daemon(lambda pid: names.get(pid, b""))))


def rows(rendered: str, table: int) -> list[dict[str, str]]:
    """A table of the text, as a program might read it that does not mind being discouraged."""
    heads, *lines = [line.split("  ") for line in rendered.split("\n\n")[table].splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in (heads, *lines)]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[1:]]


def test_an_empty_bus() -> None:
    bus = Driver(Limits(max_clients=7))
    bus.now = 90 * SECOND
    record = taken(bus)
    assert record == stat.BusStat(
        taken_at=90 * SECOND,
        uptime=90 * SECOND,
        is_shutting_down=False,
        limits=Limits(max_clients=7),
        named_channels=0,
        channels=(),
        gone={},
    )
    assert text(bus).startswith("futebus 1.2 on /mnt/bus, up 1m30s\n0 clients (at most 7,")
    assert "CHANNEL" not in text(bus)


def test_a_channel() -> None:
    bus = Driver(Limits(max_queue=2))
    writer = bus.create(b"B_x", RW, USER, mode=0o620)
    reader, careless = bus.open(b"B_x"), bus.open(b"B_x")
    bus.write(writer, b"a\nbc\n\ndef\nhalf")
    bus.read(reader)
    bus.read(reader, 1)
    bus.close(careless)
    bus.now += 5
    (channel,) = taken(bus).channels
    assert channel._replace(clients=()) == stat.ChannelStat(
        name=b"B_x",
        number=writer.channel.number,
        type="broadcast",
        state="live",
        mode=0o620,
        uid=USER.uid,
        gid=USER.gid,
        age=bus.now - 1,
        messages_in=3,
        bytes_in=9,
        copies=6,
        messages_out=2,
        bytes_out=4,
        dropped=2,
        lost=2,
        clients=(),
    )
    assert [client.id for client in channel.clients] == [1, 2]


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        (b".U_x", "one-to-many with a master"),
        (b"A_x", "addressed many-to-many"),
        (b".S_x", "service with addressed slaves"),
        (b"B_x", "broadcast"),
    ],
)
def test_the_type_of_a_channel(name: bytes, type_: str) -> None:
    bus = Driver()
    bus.create(name)
    assert taken(bus).channels[0].type == type_
    assert rows(text(bus), 1)[0]["TYPE"] == type_


def test_a_client() -> None:
    bus = Driver(Limits(max_queue=2))
    writer = bus.create(b"B_x", WO, Owner(3, 4, 5))
    reader = bus.create(b"+B_x", RO, Owner(6, 7, 8))
    bus.write(writer, b"abcdef\n")
    bus.read(reader, 2)
    bus.write(writer, b"1\n22\n333\nhalf")
    clients = clients_of(bus)
    assert clients[writer.id] == stat.ClientStat(
        channel=b"B_x",
        id=1,
        role="peer",
        pid=5,
        uid=3,
        reads=False,
        writes=True,
        bulk=False,
        wbuf=4,
        rbuf=0,
        rlist=0,
        rlist_size=0,
        sent=4,
        received=0,
        dropped=0,
        waits_to="",
        waits_for=0,
    )
    assert clients[reader.id] == stat.ClientStat(
        channel=b"B_x",
        id=2,
        role="peer",
        pid=8,
        uid=6,
        reads=True,
        writes=False,
        bulk=True,
        wbuf=0,
        rbuf=5,
        rlist=2,
        rlist_size=7,
        sent=0,
        received=1,
        dropped=1,
        waits_to="",
        waits_for=0,
    )


def test_the_roles() -> None:
    bus = Driver()
    bus.create(b".U_x")
    bus.create(b"U_x")
    assert {number: client.role for number, client in clients_of(bus).items()} == {1: "master", 2: "slave"}


def test_what_waits_in_rlist_is_all_of_it() -> None:
    """Control messages too, though they count towards no limit."""
    bus = Driver()
    bus.create(b".S_x")
    slave = bus.open(b"S_x")
    bus.write(slave, b"abc\n")
    master = clients_of(bus)[1]
    assert (master.rlist, master.rlist_size) == (2, len(b"{2:o}\n{2}abc\n"))


def test_who_waits_and_for_how_long() -> None:
    bus = Driver(Limits(max_queue=1))
    master = bus.create(b".U_x")
    writing, reading, busy = bus.open(b"U_x"), bus.open(b"U_x"), bus.open(b"U_x")
    bus.write(busy, b"a\n")
    bus.start_read(reading, "r")
    since_read = bus.now
    bus.start_read(reading, "later")
    bus.start_write(writing, b"b\n", "w")
    since_write = bus.now
    bus.now += 10 * SECOND
    waits = {number: (client.waits_to, client.waits_for) for number, client in clients_of(bus).items()}
    assert waits == {
        master.id: ("", 0),
        writing.id: ("write", bus.now - since_write),
        reading.id: ("read", bus.now - since_read),
        busy.id: ("", 0),
    }
    assert [row["WAITS"] for row in rows(text(bus), 2)] == ["-", "write 10s", "read 10s", "-"]
    bus.write(master, b"x\n")
    bus.read(master)
    assert [client.waits_to for client in clients_of(bus).values()] == ["", "", "read", ""]


def test_channels_without_name_are_told_apart() -> None:
    bus = Driver()
    bus.create(b"B_x")
    bus.unlink(b"B_x")
    master = bus.create(b".U_x")
    bus.open(b"U_x")
    bus.close(master)
    bus.create(b"B_x")
    bus.create(b"A_z")
    record = taken(bus)
    assert [(channel.name, channel.state) for channel in record.channels] == [
        (b"A_z", "live"),
        (b"B_x", "removed"),
        (b"B_x", "live"),
        (b"U_x", "dead"),
    ]
    assert record.named_channels == 2


def test_of_the_channels_that_share_a_name_the_oldest_is_first() -> None:
    bus = Driver()
    for mode in range(8):
        bus.create(b"B_x", mode=mode)
        bus.unlink(b"B_x")
    assert [channel.mode for channel in taken(bus).channels] == list(range(8))


def test_channels_without_clients_are_shown_while_they_have_a_name() -> None:
    bus = Driver()
    bus.close(bus.create(b"B_x"))
    assert [channel.name for channel in taken(bus).channels] == [b"B_x"]
    bus.unlink(b"B_x")
    assert taken(bus).channels == ()


def test_the_record_is_of_its_moment() -> None:
    bus = Driver()
    writer, reader = bus.create(b"B_x"), bus.create(b"B_x")
    record = taken(bus)
    before = dataclasses.asdict(record)
    bus.write(writer, b"a\nhalf")
    bus.read(reader, 1)
    bus.close(writer)
    bus.unlink(b"B_x")
    bus.shut_down()
    assert dataclasses.asdict(record) == before
    assert taken(bus).is_shutting_down
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.uptime = 0  # type: ignore[misc]


# ---------------------------------------------------------------------------------------------- the text


def test_the_text() -> None:
    bus = Driver(Limits(max_queue=3, max_message=2048))
    master = bus.create(b"+.S_x", RW, Owner(7, 8, 77), mode=0o640)
    bus.read_all(master)
    slave = bus.open(b"S_x", WO, Owner(0, 0, 78))
    bus.create(b"B_x", RO, ROOT)
    bus.write(slave, b"x" * 1535 + b"\nabc\nhalf")
    bus.now += 3 * SECOND
    rendered = text(bus, {77: b"server", 1: b"c\nat"})
    *blocks, clients_block, inside = rendered.split("\n\n")
    assert clients_block.startswith("CHANNEL  ID")
    assert inside == "inside: 3 files, 4 nodes\n"
    assert "\n\n".join(blocks).split("\n") == [
        "futebus 1.2 on /mnt/bus, up 3.0s",
        "3 clients (at most 16384, 4096 a user), 2 channels (at most 4096)",
        "a message: at most 2.0K; waiting for a client: at most 3 messages, 4.0M",
        "",
        "CHANNEL  STATE  MODE  OWNER  CLIENTS  IN  BYTES-IN  COPIES  OUT  BYTES-OUT  DROPPED  LOST   AGE  TYPE",
        "B_x      live   0644  0:0          1   0         0       0    0          0        0     0  3.0s  broadcast",
        "S_x      live   0640  7:8          2   2      1.5K       3    0          0        0     0  3.0s  "
        "service with addressed slaves",
    ]
    clients = rows(rendered, 2)
    assert [" ".join(row.values()) for row in clients] == [
        "B_x 1 peer 1 0 c\\nat r- 0 0 0 0 0 0 0 -",
        f"S_x 1 master 77 7 server rw+ 0 0 3 {clients[1]['RLIST-BYTES']} 0 0 0 -",
        "S_x 2 slave 78 0 ? -w 4 0 0 0 2 0 0 -",
    ]


def test_the_columns_are_aligned() -> None:
    bus = Driver()
    for name in (b"B_x", b"B_a_much_longer_name", b"A\xff\n"):
        bus.create(name, owner=Owner(len(name) ** 4, 0, 1))
    blocks = text(bus).split("\n\n")
    assert len(blocks) == 4
    for block in blocks[1:3]:
        lines = block.splitlines()
        owner = lines[0].index("STATE" if "STATE" in lines[0] else "ROLE")
        assert all(line[owner - 1] == " " and line[owner] != " " for line in lines)
        assert all(line == line.rstrip() for line in lines)


def test_odd_bytes_are_escaped() -> None:
    bus = Driver()
    bus.create(b"B\x1b[31m\n\xff\\ \xc3\xa9")
    rendered = "".join(stat.for_people(taken(bus), daemon(lambda _: b"\x07beep", "/mnt/\udcff\n")))
    assert "B\\x1b[31m\\n\\xff\\\\ é" in rendered
    assert "/mnt/\\xff\\n," in rendered
    assert "\\x07beep" in rendered
    assert all(character.isprintable() or character == "\n" for character in rendered)


def test_ids_are_written_as_addresses_are() -> None:
    bus = Driver()
    bus.create(b"A_x").channel._last_id = 0xAB
    bus.create(b"A_x")
    assert [row["ID"] for row in rows(text(bus), 2)] == ["1", "ac"]


def test_a_bus_that_goes_down_says_so() -> None:
    bus = Driver()
    assert "shutting down" not in text(bus)
    bus.shut_down()
    assert "shutting down" in text(bus)
