"""What a bus tells is held against what a bus can be."""

import contextlib
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from futebus.host.mounted import NoBus
from futebus.view import told
from futebus.view.looking import read
from futebus.view.told import MOST_LINE, MOST_WORDS, parsed, rows

from ..helpers.mounts import Mount

HERE = Path("/somewhere")


def test_what_is_no_bus() -> None:
    for text in (b"", b"{}", b"[]", b'{"format": "futebus-stat", "version": 1}', b"internal error", b"\xff", b"\n\n"):
        with pytest.raises(NoBus, match="is not understood"):
            parsed(text, HERE)
    with pytest.raises(NoBus, match="speaks version 2 of futebus-stat, not 1"):
        parsed(b'{"format": "futebus-stat", "version": 2}', HERE)


LIES = [
    ('"state": "live"', '"state": "\\u001b[2J"'),
    ('"state": "live"', '"state": "[red]"'),
    ('"state": "live"', '"state": 1'),
    ('"role": "peer"', '"role": "a\\nb"'),
    ('"waits": null', '"waits": "\\u0007"'),
    ('"id": "1"', '"id": "zz"'),
    ('"messages_in": 0', '"messages_in": "0"'),
    ('"messages_in": 0', '"messages_in": Infinity'),
    ('"messages_in": 0', '"messages_in": NaN'),
    ('"messages_in": 0', '"messages_in": -1'),
    ('"messages_in": 0', '"messages_in": true'),
    ('"messages_in": 0', '"messages_in": 1e300'),
    ('"uptime_seconds": ', '"uptime_seconds": -'),
    ('"max_queue": 65536', '"max_queue": "many"'),
    ('"gone": {}', '"gone": {"B": {"channels": "x"}}'),
    ('"channels": [', '"channels": ' + "[" * 100_000),
    ('"pid": ', '"pid": null, "was": '),
]


LIES += [
    ('"name": "B_x"', '"name": "B_x/../../etc/passwd"'),
    ('"name": "B_x"', '"name": "B_x\\u0000"'),
    ('"name": "B_x"', '"name": ""'),
    ('"name": "B_x"', '"name": "_stat"'),
    ('"name": "B_x"', '"name": "U_x"'),
    ('"name": "B_x"', f'"name": "B{"x" * 255}"'),
    ('"name": "B_x"', '"name": "B_x", "name_hex": "42782f2e2e"'),
    ('"name": "B_x"', '"name": "B_x", "name_hex": "zz"'),
    ('"name": "B_x"', '"name": "\\ud800"'),
    ('"type": "B"', '"type": "X"'),
    ('"type": "B"', '"type": ""'),
    ('"uid": 0', '"uid": 0.5'),
    ('"clients": [', '"clients": [{}'),
    ('"clients": [\n', '"clients": [\n 1,\n'),
    ('"clients": [\n', '"clients": [\n\n'),
    ('"channels": [\n', '"channels": [\n {},\n'),
    ('"channels": [\n', '"channels": [{}]}\n'),
    ("]}\n", ""),
    ('"futebus": ', f'"x": "{"x" * MOST_LINE}", "futebus": '),
]


def test_what_calls_itself_a_bus_may_tell_lies(bus: Mount) -> None:
    file = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    told = read(bus.path).decode()
    assert parsed(told.encode(), bus.path).clients == 1
    for truth, lie in LIES:
        assert truth in told, truth
        with pytest.raises(NoBus, match="is not understood") as why:
            parsed(told.replace(truth, lie, 1).encode(), bus.path)
        assert "\x1b" not in str(why.value)
    assert parsed(told.replace('"max_queue": 65536', '"max_queue": 0').encode(), bus.path).limits["max_queue"] == 1
    os.close(file)


def test_what_is_deep_is_not_understood_anywhere(bus: Mount) -> None:
    """Else it is where a bus is looked at, and not where what it has told is printed."""
    bus.touch("B" + "[{" * 100)
    text = read(bus.path)
    for depth, is_understood in ((told.MOST_NESTED - 1, True), (told.MOST_NESTED, False), (900, False)):
        for begin, end in (("[", "]"), ('{"x": [', "]}")):
            count = depth // (len(begin) // 6 + 1)
            deep = text.replace(b'"state": ', f'"x": {begin * count}{end * count}, "state": '.encode())
            with contextlib.nullcontext() if is_understood else pytest.raises(NoBus, match="its lines are others"):
                assert [channel.name for channel in parsed(deep, HERE).channels] == ["B" + "[{" * 100]


def edited(bus: Mount, edit: Callable[[Any], object]) -> bytes:
    """What a bus tells, changed, in lines as a bus has them."""
    head = bus.told()
    edit(head)
    channels = head.pop("channels")
    text = json.dumps(head)[:-1] + ', "channels": ['
    for channel in channels:
        clients = channel["clients"]
        text += "\n" + json.dumps({key: value for key, value in channel.items() if key != "clients"})[:-1] + ', "clients": ['
        text += ",".join("\n " + json.dumps(client) for client in clients) + "]},"
    return (text.rstrip(",") + "\n" * bool(channels) + "]}\n").encode()


def test_as_a_bus_has_its_lines(bus: Mount) -> None:
    assert parsed(read(bus.path), bus.path).channels == ()
    files = [os.open(bus / name, os.O_RDWR | os.O_CREAT) for name in ("A_x", "B_x", "B_x")]
    bus.touch("B_y")
    seen = parsed(read(bus.path), bus.path)
    assert [(channel.name, len(channel.clients)) for channel in seen.channels] == [("A_x", 1), ("B_x", 2), ("B_y", 0)]
    again = parsed(edited(bus, lambda told: None), bus.path)
    assert [channel.name for channel in again.channels] == ["A_x", "B_x", "B_y"]
    for file in files:
        os.close(file)


def test_what_is_said_of_who_lies_is_short(bus: Mount) -> None:
    long = "V" * (MOST_LINE // 2)
    for edit in (
        lambda head: head.update(version=long),
        lambda head: head.update(format="\x1b" + long),
        lambda head: head.update(limits=long),
        lambda head: head["channels"][0].update(name_hex=long),
        lambda head: head["channels"][0].update(name=long),
        lambda head: head["channels"][0]["clients"][0].update(id=long),
        lambda head: head["channels"][0].update(name="B" + "\ud800" * 200),
    ):
        file = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
        with pytest.raises(NoBus) as why:
            parsed(edited(bus, edit), bus.path)
        assert len(str(why.value)) < len(str(bus.path)) + 2 * MOST_WORDS
        assert "\x1b" not in str(why.value)
        os.close(file)
    with pytest.raises(NoBus) as why:
        parsed(b"\xff" * (1 << 20), HERE)
    assert len(str(why.value)) < 2 * MOST_WORDS


def test_what_is_shown_is_short(bus: Mount) -> None:
    long = "V" * (MOST_LINE // 4)
    with open(bus / "B_x", "wb"):
        seen = parsed(
            edited(
                bus,
                lambda head: (
                    head.update(futebus=long, mountpoint=long),
                    head["channels"][0]["clients"][0].update(command=long),
                ),
            ),
            bus.path,
        )
    assert (len(seen.futebus), len(seen.mountpoint)) == (MOST_WORDS, told.MOST_PATH)
    assert len(seen.channels[0].clients[0].command) == told.MOST_COMMAND


def test_so_many_and_no_more(bus: Mount) -> None:
    few = told.NAMED._replace(channels=2, clients=3)
    with open(bus / "B_x", "wb"):
        good = edited(bus, lambda head: head["channels"][0].update(clients=3 * head["channels"][0]["clients"]))
        assert parsed(good, bus.path, few).clients == 3
        for edit in (
            lambda head: head["channels"][0].update(clients=4 * head["channels"][0]["clients"]),
            lambda head: head.update(channels=[{**head["channels"][0], "clients": []} for _ in range(3)]),
            lambda head: head.update(channels=100 * head["channels"]),
        ):
            with pytest.raises(NoBus, match="than are looked at here"):
                parsed(edited(bus, edit), bus.path, few)


def test_what_is_told_costs_what_it_is_long(bus: Mount) -> None:
    """Lists in lists are 25 times as much in memory as in the text."""
    file = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    size = 4 << 20
    small = b"[]" + b",[]" * ((MOST_LINE - 1000) // 3)
    whole = read(bus.path)
    bombs = [
        whole.replace(b'"channels"', b'"x": [[]' + b",[]" * (size // 3) + b'], "channels"'),
        whole.replace(b'"number"', b'"x": [[]' + b",[]" * (size // 3) + b'], "number"'),
        b"\n" * size,
        # As many as fit into lines that are short enough.
        edited(bus, lambda head: head.update(channels=[{**head["channels"][0], "x": 0}] * (size // len(small)))).replace(
            b'"x": 0', b'"x": [' + small + b"]"
        ),
        edited(bus, lambda head: head["channels"][0].update(clients=_bombs(head["channels"][0], size // len(small)))).replace(
            b'"x": 0', b'"x": [' + small + b"]"
        ),
    ]
    os.close(file)
    assert parsed(bombs[-1], bus.path).clients > 60, "it is understood"
    for bomb in bombs:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(NoBus):
                parsed(bomb, bus.path)
            assert tracemalloc.get_traced_memory()[1] - before < 4 * size, bomb[:100]
        finally:
            tracemalloc.stop()


def _bombs(channel: Any, count: int) -> list[Any]:
    """So many clients, each with place for something else."""
    return [{**channel["clients"][0], "x": 0, "y": 0}] * count


def test_no_number_is_without_end() -> None:
    for value in (b"1e999", b"-1e999"):
        with pytest.raises(ValueError, match="no end"):
            rows(b'{"x": %s, "channels": [\n]}\n' % value, dict)
    head, _ = rows(b'{"x": Infinity, "channels": [\n]}\n', dict)
    assert head["x"] is None


def test_lines_that_are_not_asked_for_are_not_looked_at() -> None:
    head, channels = rows(b'{"x": 1, "channels": [\nnonsense\n]}\n', dict)
    assert head == {"x": 1, "channels": []}
    with pytest.raises(ValueError, match="Expecting value"):
        next(channels)
