"""`_stat.json` and `_metrics`: what programs read, and what no name can forge."""

import json
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from futebus.core import stat
from futebus.core.limits import Limits
from futebus.core.stat import metrics as metrics_module
from futebus.core.text import escape

from .driver import RO, RW, USER, WO, Driver

SECOND = 1_000_000_000


def daemon(commands: dict[int, bytes] | None = None, mountpoint: str = "/mnt/bus") -> stat.Daemon:
    return stat.Daemon("1.2", mountpoint, 99, {"open files": 3, "nodes": 4}, (commands or {}).get)  # type: ignore[arg-type]


def read(bus: Driver, commands: dict[int, bytes] | None = None, mountpoint: str = "/mnt/bus") -> Any:
    known = {client.owner.pid: b"" for client in bus.bus.clients} | (commands or {})
    text = "".join(stat.for_programs(stat.take(bus.bus, bus.now), daemon(known, mountpoint)))
    assert text.endswith("}\n")
    assert all(character in string.printable and character not in "\t\r\v\f" for character in text), "fit for a terminal"
    return json.loads(text)


def series(bus: Driver) -> dict[tuple[str, ...], float]:
    """Names and labels, with what stands there."""
    text = "".join(stat.as_metrics(stat.take(bus.bus, bus.now), daemon()))
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        for sample in family.samples
    }


def test_an_empty_bus() -> None:
    bus = Driver(Limits(max_clients=7))
    bus.now = 90 * SECOND
    told = read(bus)
    assert told == {
        "format": "futebus-stat",
        "version": 1,
        "futebus": "1.2",
        "daemon_pid": 99,
        "mountpoint": "/mnt/bus",
        "taken_at": 90.0,
        "uptime_seconds": 90.0,
        "shutting_down": False,
        "limits": {
            "max_message": 262144,
            "max_queue": 65536,
            "max_queue_bytes": 4194304,
            "max_clients": 7,
            "max_clients_per_user": 4096,
            "max_channels": 4096,
        },
        "named_channels": 0,
        "gone": {},
        "inside": {"open files": 3, "nodes": 4},
        "channels": [],
    }


def test_channels_and_their_clients() -> None:
    bus = Driver(Limits(max_queue=2))
    writer = bus.create(b"B_x", WO, USER, mode=0o620)
    reader = bus.open(b"B_x", RO)
    bus.start_read(reader, "read")
    bus.write(writer, b"a\nbc\nhalf")
    bus.create(b"A_y")
    bus.now += 5 * SECOND
    bus.unlink(b"A_y")
    told = read(bus, {USER.pid: b"log\ngger"})
    assert [channel["name"] for channel in told["channels"]] == ["A_y", "B_x"]
    assert told["channels"][0]["state"] == "removed"
    channel = told["channels"][1]
    assert channel["clients"][0] == {
        "id": "1",
        "role": "peer",
        "pid": USER.pid,
        "uid": USER.uid,
        "command": "log\ngger",
        "reads": False,
        "writes": True,
        "bulk": False,
        "wbuf_bytes": 4,
        "rbuf_bytes": 0,
        "rlist_messages": 0,
        "rlist_bytes": 0,
        "sent": 2,
        "received": 0,
        "dropped": 0,
        "waits": None,
        "waits_seconds": 0.0,
    }
    assert (channel["clients"][1]["rlist_messages"], channel["clients"][1]["rlist_bytes"]) == (1, 3)
    assert channel | {"clients": 0, "number": 0, "age_seconds": 0} == {
        "name": "B_x",
        "number": 0,
        "type": "B",
        "state": "live",
        "mode": "0620",
        "uid": USER.uid,
        "gid": USER.gid,
        "age_seconds": 0,
        "messages_in": 2,
        "bytes_in": 5,
        "copies": 2,
        "messages_out": 1,
        "bytes_out": 2,
        "dropped": 0,
        "lost": 0,
        "clients": 0,
    }


def test_who_waits() -> None:
    bus = Driver(Limits(max_queue=1))
    bus.create(b".U_x")
    slave = bus.open(b"U_x")
    bus.write(slave, b"a\n")
    bus.start_write(slave, b"b\n", "w")
    bus.now += 10 * SECOND
    (channel,) = read(bus)["channels"]
    assert [(client["waits"], round(client["waits_seconds"])) for client in channel["clients"]] == [(None, 0), ("write", 10)]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20).filter(lambda name: b"/" not in name and b"\0" not in name), unique=True, max_size=5))
def test_no_name_can_pass_for_another(names: list[bytes]) -> None:
    bus = Driver()
    for name in names:
        bus.create(b"B" + name, owner=USER)
    commands = {USER.pid: names[0] if names else b""}
    channels = read(bus, commands)["channels"]
    found = [bytes.fromhex(channel["name_hex"]) if "name_hex" in channel else channel["name"].encode() for channel in channels]
    assert sorted(found) == sorted(b"B" + name for name in names)
    for channel in channels:
        (client,) = channel["clients"]
        command = bytes.fromhex(client["command_hex"]) if "command_hex" in client else client["command"].encode()
        assert command == names[0]
    bus.now += 60 * SECOND
    labels = [labels[0] for name, *labels in series(bus) if name == "futebus_channel_messages_total"]
    assert sorted(labels) == sorted(escape(b"B" + name) for name in names)


def test_a_mount_point_may_have_any_name() -> None:
    told = read(Driver(), mountpoint='/mnt/"\udcff\n')
    assert told["mountpoint_hex"] == b'/mnt/"\xff\n'.hex()
    assert told["mountpoint"] == '/mnt/"\ufffd\n'


def test_what_metrics_count() -> None:
    bus = Driver(Limits(max_queue=1))
    bus.create(b".U_x")
    slave = bus.open(b"U_x")
    bus.write(slave, b"abc\n")
    bus.start_write(slave, b"b\n", "w")
    other = bus.create(b"B_x")
    bus.close(bus.open(b"B_x"))
    bus.write(other, b"x\n")
    bus.now += 60 * SECOND
    found = series(bus)
    assert found["futebus_messages_total", "U"] == found["futebus_channel_messages_total", "U_x", "U"] == 1
    assert found["futebus_in_bytes_total", "U"] == found["futebus_channel_in_bytes_total", "U_x", "U"] == 4
    assert found["futebus_queued_messages", "U"] == found["futebus_channel_queued_messages", "U_x", "U"] == 1
    assert found["futebus_queued_bytes", "U"] == found["futebus_channel_longest_queue_bytes", "U_x", "U"] == 4
    assert found["futebus_blocked_writers", "U"] == found["futebus_channel_blocked_writers", "U_x", "U"] == 1
    assert round(found["futebus_longest_block_seconds", "U"]) == 60
    assert found["futebus_clients", "U"] == 2
    assert found["futebus_clients", "B"] == found["futebus_channels", "B"] == 1
    assert found["futebus_inside", "nodes"] == 4
    assert found["futebus_info", "1.2", "/mnt/bus"] == 1
    assert found["futebus_queue_messages_limit",] == 1


def test_what_counts_never_counts_down() -> None:
    bus = Driver()

    def counted() -> dict[tuple[str, ...], float]:
        return {key: value for key, value in series(bus).items() if key[0].endswith("_total")}

    before = counted()
    for number in range(1000):
        client = bus.create(b"B_answers.%d" % number)
        bus.write(client, b"a\n")
        bus.unlink(b"B_answers.%d" % number)
        bus.close(client)
        if number % 250 == 0:
            after = counted()
            assert before.keys() <= after.keys()
            assert all(after[key] >= value for key, value in before.items())
            before = after
    assert counted()["futebus_messages_total", "B"] == counted()["futebus_made_channels_total", "B"] == 1000


def test_what_comes_and_goes_gets_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "MOST_CHANNELS", 3)
    bus = Driver()

    def shown() -> Iterator[str]:
        return (key[1] for key in series(bus) if key[0] == "futebus_channel_messages_total")

    removed = bus.create(b"B_removed")
    bus.unlink(b"B_removed")
    bus.create(b"B_old")
    bus.now += 60 * SECOND
    bus.create(b"B_young", RW)
    assert [*shown()] == ["B_old"]
    assert series(bus)["futebus_untold_channels",] == 1
    for number in range(5):
        bus.create(b"A_%d" % number)
    bus.now += 60 * SECOND
    assert [*shown()] == ["B_old", "B_young", "A_0"]
    assert series(bus)["futebus_untold_channels",] == 4
    assert removed.channel in bus.bus.every_channel.values()


def test_long_texts_come_in_pieces() -> None:
    bus = Driver()
    for _ in range(2000):
        bus.create(b"B_x") if not bus.bus.channels else bus.open(b"B_x")
    record = stat.take(bus.bus, bus.now)
    for way in (stat.for_people, stat.for_programs, stat.as_metrics):
        assert max(map(len, way(record, daemon({1: b"x"})))) < 50_000


@pytest.mark.parametrize("name", [b"\x80" * 250, "\u0085".encode() * 120, b"\\" * 250, "\U0001f600".encode() * 60])
def test_hostile_names_take_no_longer_pieces(name: bytes) -> None:
    """What is escaped between two pieces is bounded, however long it gets."""
    bus = Driver()
    for number in range(600):
        bus.create(b"B%03d" % number + name)
    bus.now += 60 * SECOND
    record = stat.take(bus.bus, bus.now)
    escaped = 0
    real = escape

    def counting(name: bytes) -> str:
        nonlocal escaped
        escaped += 1
        return real(name)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("people", "metrics"):
            patch.setattr(f"futebus.core.stat.{module}.escape", counting)
        for way in (stat.for_people, stat.for_programs, stat.as_metrics):
            for piece in way(record, daemon({1: b"x", 2: b"x"})):
                assert escaped <= 30
                assert len(piece) < 50_000
                escaped = 0


def test_people_see_the_beginning_of_a_long_name() -> None:
    bus = Driver()
    bus.create(b"B_" + b"\xff" * 253)
    text = "".join(stat.for_people(stat.take(bus.bus, bus.now), daemon({1: b"x"})))
    assert max(map(len, text.splitlines())) < 220
    assert "\\xff…" in text or "…" in text


def test_what_could_not_be_made_was_no_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Driver()

    def fail(*given: object, **named: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("futebus.core.channel.Client", fail)
        with pytest.raises(MemoryError):
            bus.create(b"B_x")
    assert not bus.bus.gone
    assert not bus.bus.every_channel


def test_mount_points_are_told_apart() -> None:
    labels = set()
    for mountpoint in ("/tmp/a\nb", "/tmp/a\\nb", "/tmp/\udcff", "/tmp/\\xff"):
        text = "".join(stat.as_metrics(stat.take(Driver().bus, 0), daemon(mountpoint=mountpoint)))
        labels.add(next(line for line in text.splitlines() if line.startswith("futebus_info")))
    assert len(labels) == 4
