"""What is seen of a bus, and how two looks become rates."""

import gc
import os
import tracemalloc
from pathlib import Path

import pytest

from futebus.host.mounted import NoBus
from futebus.view.looking import MOST_READS, READ_BYTES, look, pause, read
from futebus.view.told import FOUND, Look, parsed
from futebus.view.watching import KEPT, Rates, Watch, _places

from ..helpers.hostile import Mislead, lie
from ..helpers.mounts import Mount, Mounting
from ..helpers.waiting import until


def test_a_look(bus: Mount) -> None:
    odd = os.fsdecode(b"B\x1b[31m\xff")
    bus.touch(odd)
    reader = os.open(bus / odd, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(bus / odd, os.O_WRONLY)
    os.write(writer, b"abc\nde\nhalf")
    seen = look(bus.path)
    assert (seen.mountpoint, seen.daemon_pid) == (str(bus.path), bus.daemon.pid)
    (channel,) = seen.channels
    assert channel.name == "B\\x1b[31m\\xff"
    assert channel.file == os.fsencode(odd)
    assert (channel.type, channel.state, channel.messages_in, channel.waiting) == ("B", "live", 2, (2, 7))
    first, second = channel.clients
    assert (first.reads, first.writes, second.wbuf_bytes, first.waits) == (True, False, 4, "")
    assert first.command == Path("/proc/self/comm").read_text().strip()
    assert seen.fullness(first) == pytest.approx(2 / seen.limits["max_queue"])
    assert (seen.clients, seen.totals.messages_in) == (2, 2)
    os.close(reader)
    os.close(writer)
    os.unlink(bus / odd)
    until(lambda: not bus.told()["channels"], "all have closed")
    seen = look(bus.path)
    assert seen.channels == ()
    assert (seen.gone.channels, seen.totals.messages_in, seen.totals.lost) == (1, 2, 2)


def test_who_is_blocked(mounting: Mounting) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    slave = os.open(bus / "U_x", os.O_WRONLY)
    os.write(slave, b"a\n")
    seen = look(bus.path)
    assert seen.channels[0].blocked == []
    assert [seen.fullness(client) for client in seen.channels[0].clients] == [1.0, 0.0]
    os.close(slave)
    os.close(master)


def test_where_there_is_nothing_to_be_seen(tmp_path: Path) -> None:
    with pytest.raises(NoBus, match="no bus is mounted on"):
        look(tmp_path)
    with pytest.raises(NoBus, match="there is no directory"):
        read(tmp_path / "x")


def test_what_never_ends_is_not_read_to_its_end(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("futebus.view.looking.MOST_BYTES", 100)
    with pytest.raises(NoBus, match="tells too much"):
        read(bus.path)


def test_what_is_told_two_bytes_at_a_time(hostile: Mislead) -> None:
    """Neither is much memory kept for each of very many small pieces, nor is it read for ever."""
    bus = hostile({**lie(), b"_stat.json": lambda size: b"xx"})
    tracemalloc.start()
    try:
        with pytest.raises(NoBus, match="tells too little at a time"):
            read(bus.path)
        assert tracemalloc.get_traced_memory()[1] < 8 * READ_BYTES  # who tells it needs some, too, also if others look
    finally:
        tracemalloc.stop()
    assert bus.calls["read", b"_stat.json"] <= MOST_READS


def test_who_tells_slowly_is_not_heard_to_the_end(hostile: Mislead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("futebus.view.looking.READ_SECONDS", 0.0)
    bus = hostile({**lie(), b"_stat.json": lambda size: b"xx"})
    with pytest.raises(NoBus, match="tells too little at a time"):
        read(bus.path)
    assert bus.calls["read", b"_stat.json"] < 10


def later(bus: Mount, before: Look) -> Look:
    """The first look at `bus` far enough from `before` for rates: less than a millisecond is taken for one."""
    while True:
        after = look(bus.path)
        if after.uptime_seconds - before.uptime_seconds >= 1e-3:
            return after


def test_rates(bus: Mount) -> None:
    watch = Watch()
    name = bus.touch("B_x").name
    file = os.open(bus / name, os.O_WRONLY)
    watch.add(look(bus.path))
    assert watch.whole.rates == Rates()
    assert len(watch.whole.past) == 0
    before = look(bus.path)
    watch.add(before)
    os.write(file, b"abc\n" * 10)
    after = later(bus, before)
    watch.add(after)
    seconds = after.uptime_seconds - before.uptime_seconds
    (course,) = watch.channels.values()
    assert course.rates.messages_in == pytest.approx(10 / seconds)
    assert course.rates.bytes_in == pytest.approx(40 / seconds)
    assert watch.whole.rates == course.rates
    assert len(course.past) == 1, "from when something has gone on"
    os.close(file)
    os.unlink(bus / name)
    until(lambda: not bus.told()["channels"], "all have closed")
    watch.add(look(bus.path))
    assert watch.channels == {}
    assert watch.whole.rates.messages_in == 0, "what a channel has counted that is no more is not taken back"


def test_another_bus_begins_anew(mounting: Mounting) -> None:
    watch = Watch()
    for bus in (mounting(), mounting()):
        bus.touch("B_x").write_text("hello\n")
        watch.add(look(bus.path))
        assert watch.whole.rates == Rates()
        watch.add(look(bus.path))
        assert len(watch.whole.past) == 1


def test_another_bus_of_a_daemon_with_the_same_number_begins_anew() -> None:
    watch = Watch()
    for at, messages in ((1, 5), (2, 500), (3, 7)):
        watch.add(told(2, at, messages))
    assert watch.whole.rates == Rates()
    assert {course.rates for course in watch.channels.values()} == {Rates()}
    watch.add(told(2, 4, 8))
    assert [rates.messages_in for rates in watch.whole.past] == [2.0]


def test_what_is_kept_is_bounded(bus: Mount) -> None:
    watch = Watch()
    bus.touch("B_x")
    for _ in range(KEPT + 5):
        watch.add(look(bus.path))
    assert len(watch.whole.past) == KEPT
    assert [len(course.past) for course in watch.channels.values()] == [0], "nothing has gone on"


def told(count: int, at: int, messages: int) -> Look:
    """A bus of so many channels on each of which so many messages have been said."""
    text = lie(*(f"B{number}" for number in range(count)))[b"_stat.json"]
    assert isinstance(text, bytes)
    text = text.replace(b'"uptime_seconds": 1', b'"uptime_seconds": %d' % at)
    return parsed(text.replace(b'"messages_in": 0', b'"messages_in": %d' % messages), Path("/x"))


def test_how_channels_have_been_is_kept_of_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # what other tests have left behind would give its places back at any time
    monkeypatch.setattr("futebus.view.watching.MOST_PAST", _places.taken + 30)
    one, two = Watch(20), Watch(20)
    for look_ in range(1, KEPT + 3):
        for watch in (one, two):
            watch.add(told(50, look_, 7 * look_))
    assert [sum(len(course.past) > 0 for course in watch.channels.values()) for watch in (one, two)] == [20, 10]
    course = one.channels[0]
    assert [rates.messages_in for rates in course.past] == [7.0] * KEPT
    assert all(course.rates.messages_in == 7 for course in two.channels.values())
    taken = _places.taken
    one.add(told(5, KEPT + 3, 70 * (KEPT + 3)))  # as many in all as before: a bus does not count back
    assert _places.taken == taken - 15, "those that have gone give their places back"
    del two, watch
    gc.collect()
    assert _places.taken == taken - 25


def test_looks_cost_no_more_the_longer_one_looks() -> None:
    """Neither is there a copy of how it has been for each look."""
    looks = [told(2000, at, 7 * at) for at in range(1, 40)]
    watch = Watch(2000)
    tracemalloc.start()
    try:
        for look_ in looks[:2]:
            watch.add(look_)
        before = tracemalloc.get_traced_memory()[0]
        for look_ in looks[2:]:
            watch.add(look_)
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_nobody_has_named_has_narrower_bounds(hostile: Mislead) -> None:
    bus = hostile(lie(*(f"B{number}" for number in range(FOUND.channels + 1))))
    assert len(look(bus.path).channels) == FOUND.channels + 1
    with pytest.raises(NoBus, match="more channels"):
        look(bus.path, FOUND)
    with pytest.raises(NoBus, match="tells too much"):
        look(bus.path, FOUND._replace(bytes=1000))


@pytest.mark.parametrize("interval", [0.1, 1.0, 7.0])
def test_all_look_at_the_same_moments(interval: float) -> None:
    for step in range(1000):
        now = 1e9 + step * interval / 300
        rest = pause(interval, now)
        assert interval / 2 < rest <= interval * 1.5
        moment = (now + rest) / interval
        assert abs(moment - round(moment)) < 1e-4
