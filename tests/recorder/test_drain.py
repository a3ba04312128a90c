"""The drain on real buses: all types of channels, lines that are lost and counted, who is refused."""

import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from futebus.client.inquire import inquire
from futebus.recorder.channel import BusAway, ChannelError, check_channel, open_channel
from futebus.recorder.drain import Drain
from futebus.spool import Spool, SpoolWriter

from ..helpers.mounts import Mount, Mounting
from ..helpers.programs import Start
from ..helpers.recorders import fill
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import lines_of, numbered
from .drains import Drained, Draining, draining

__all__ = ["draining"]


def test_one_that_is_closed_can_be_stopped_and_closed_again(bus: Mount, place: Path) -> None:
    """By whoever gives up after an error. Its descriptors are others' by then, who must not find anything in them."""
    with SpoolWriter(place / "spool", "B_log") as writer:
        drain = Drain(bus / "B_log", writer)
        drain.close()
        readers, writers = zip(*(os.pipe2(os.O_NONBLOCK) for _ in range(20)), strict=True)
        drain.stop()
        drain.close()
        for reader in readers:
            with pytest.raises(BlockingIOError):
                os.read(reader, 1)
        for descriptor in (*readers, *writers):
            os.close(descriptor)


# ---------------------------------------------------------------------------------------------- the end


class Pausing:
    """A drain that has something else to do until it is to go on."""

    def __init__(self, draining: Draining, channel: Path) -> None:
        self._pauses, self._goes_on = threading.Event(), threading.Event()
        self.drained = draining(channel, is_master=channel.name[0] == "U", on_lines=self._pause)
        assert self._pauses.wait(DEADLINE)

    def _pause(self) -> None:
        self._pauses.set()
        assert self._goes_on.wait(DEADLINE)

    def finish(self, seconds: float) -> list[str]:
        """Has it finish, and go on. Returns what it has said in the end."""
        self.drained.drain.finish(seconds)
        self._goes_on.set()
        self.drained.wait()
        return self.drained.words


@pytest.mark.parametrize("name", ["U_x", "B_x"])
def test_what_waits_is_taken_in_the_end(bus: Mount, place: Path, draining: Draining, name: str) -> None:
    """A drain has always something else to do for a moment, and its writers have been told that all is well."""
    pausing = Pausing(draining, bus / name)
    with open(bus / name, "wb", buffering=0) as writer:
        writer.write(numbered(0, 500))
        assert pausing.finish(DEADLINE) == []
        assert lines_of(place / "spool") == numbered(0, 500)
    assert (bus / name).exists() == (name == "B_x"), "nobody else can open what has no master"


def test_it_ends_though_lines_come_on_and_on(bus: Mount, place: Path, draining: Draining, start: Start) -> None:
    drain = draining(bus / "U_x", is_master=True).wait_until_joined()
    start("sh", "-c", f"exec yes > {bus / 'U_x'}", stderr=subprocess.DEVNULL)
    drain.wait_for_lines(1000)
    drain.drain.finish(DEADLINE)
    drain.wait()
    assert drain.words == []


def test_what_there_was_no_time_for_is_said(bus: Mount, draining: Draining) -> None:
    pausing = Pausing(draining, bus / "U_x")
    (bus / "U_x").write_bytes(numbered(0, 5))
    words = f"{bus / 'U_x'}: ended before everything that was queued was taken; 5 lines of it are lost"
    assert pausing.finish(0) == [words]


@pytest.mark.parametrize("letter", "UB")
def test_a_line_that_is_taken_in_pieces_is_taken_to_its_end(mounting: Mounting, draining: Draining, letter: str) -> None:
    """The bus counts it as read as soon as it is begun."""
    bus = mounting("max_message=32M,max_queue_bytes=64M")
    channel = bus / f"{letter}_x"
    drained = draining(channel, is_master=letter == "U").wait_until_joined()
    line = b"x" * 20_000_000 + b"\n"
    channel.write_bytes(b"one\n")
    channel.write_bytes(line)
    drained.drain.finish(DEADLINE)
    drained.wait()
    assert lines_of(drained.writer.path) == b"one\n" + line
    assert drained.words == []


LONG = b"".join(b"%0499d\n" % number for number in range(6000))
"""More than one segment, and less than the bus queues for a master."""


def without_room(bus: Mount, draining: Draining, disk: Path) -> Drained:
    """A drain whose disk is full, and for which lines wait."""
    drained = draining(bus / "U_x", disk / "spool", is_master=True).wait_until_joined()
    fill(disk / "ballast")
    (bus / "U_x").write_bytes(LONG)
    drained.wait_for("No space left on device; its writers wait until there is room")
    return drained


def test_one_that_waits_for_room_ends_its_channel_and_tells_what_is_lost(
    bus: Mount, draining: Draining, small_disk: Path
) -> None:
    drained = without_room(bus, draining, small_disk)
    with open(bus / "U_x", "wb", buffering=0) as writer:
        drained.drain.finish(0.5)
        drained.wait()
        with pytest.raises(ProcessLookupError):
            writer.write(b"more\n")
    words = "ended before everything that was queued was taken; (.+) lines of it are lost"
    found = re.fullmatch(f"{bus / 'U_x'}: {words}", drained.words[-1])
    assert found, drained.words
    assert drained.writer.end + int(found[1].replace(",", "")) == 6000
    assert drained.writer.lost == int(found[1].replace(",", ""))


def test_one_that_waits_for_room_takes_all_if_there_is_some_in_time(bus: Mount, draining: Draining, small_disk: Path) -> None:
    drained = without_room(bus, draining, small_disk)
    drained.drain.finish(DEADLINE)
    until(lambda: not (bus / "U_x").exists(), "the channel is ended")
    (small_disk / "ballast").unlink()
    drained.wait()
    assert lines_of(small_disk / "spool") == LONG
    assert drained.words[-1] == f"{small_disk / 'spool'}: there is room again"


# ---------------------------------------------------------------------------------------------- types


def test_a_master_takes_everything(mounting: Mounting, place: Path, draining: Draining) -> None:
    bus = mounting("max_queue=100")
    drain = draining(bus / "U_x", is_master=True, mode=0o622).wait_until_joined()
    assert (bus / "U_x").stat().st_mode & 0o777 == 0o622, "whatever the umask"
    (bus / "U_x").write_bytes(numbered(0, 5000))
    drain.wait_for_lines(5000)
    assert lines_of(place / "spool") == numbered(0, 5000)
    assert Spool(place / "spool").last.lost == 0


def test_permissions_are_for_a_channel_that_is_new(bus: Mount, place: Path, draining: Draining) -> None:
    bus.touch("B_old").chmod(0o600)
    for name, mode, expected in (("B_new", 0o662, 0o662), ("B_old", 0o662, 0o600), ("B_usual", None, 0o644)):
        umask = os.umask(0o022)
        try:
            draining(bus / name, place / name, mode=mode).wait_until_joined()
        finally:
            os.umask(umask)
        assert (bus / name).stat().st_mode & 0o777 == expected, name


def test_a_slave_takes_what_the_master_says_and_waits_for_the_next_one(bus: Mount, place: Path, draining: Draining) -> None:
    drain = draining(bus / "U_x")
    drain.wait_for("has no master; waiting")
    for number in range(2):
        master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
        drain.wait_until_joined()
        os.write(master, b"one %d\ntwo\n" % number)
        os.close(master)
        drain.wait_for_lines(2 + 2 * number)
        until(lambda: not drain.drain.is_joined, "the drain has seen the end")
    assert lines_of(place / "spool") == b"one 0\ntwo\none 1\ntwo\n"
    assert "the channel has ended" in "".join(drain.words)
    drain.wait_for("back after")


def test_a_broadcast_channel_is_created(bus: Mount, place: Path, draining: Draining) -> None:
    drain = draining(bus / "B_x").wait_until_joined()
    (bus / "B_x").write_bytes(numbered(0, 100))
    drain.wait_for_lines(100)
    assert lines_of(place / "spool") == numbered(0, 100)


def test_an_addressed_channel_shows_who_spoke(bus: Mount, place: Path, draining: Draining) -> None:
    drain = draining(bus / "A_x").wait_until_joined()
    (bus / "A_x").write_bytes(b"{*}hello\n{1}you\n")
    drain.wait_for_lines(2)
    assert lines_of(place / "spool") == b"{2}hello\n{2}you\n"


def test_the_master_of_a_service_hears_who_comes_and_goes(bus: Mount, place: Path, draining: Draining) -> None:
    drain = draining(bus / "S_x", is_master=True).wait_until_joined()
    (bus / "S_x").write_bytes(b"hello\n")
    drain.wait_for_lines(3)
    assert lines_of(place / "spool") == b"{2:o}\n{2}hello\n{2:c}\n"


def test_a_slave_of_a_service_hears_what_is_for_all(bus: Mount, place: Path, draining: Draining) -> None:
    master = os.open(bus / ".S_x", os.O_RDWR | os.O_CREAT)
    drain = draining(bus / "S_x").wait_until_joined()
    os.write(master, b"{*}all\n{2}you\n")
    drain.wait_for_lines(2)
    assert lines_of(place / "spool") == b"all\nyou\n"
    os.close(master)


def test_lines_longer_than_one_read_are_whole(mounting: Mounting, place: Path, draining: Draining) -> None:
    bus = mounting("max_message=8M,max_queue_bytes=16M")
    long = b"long".join(b"%d" % number for number in range(500_000)) + b"\n"
    assert len(long) > 3 << 20
    drain = draining(bus / "U_x", is_master=True).wait_until_joined()
    for _ in range(2):
        (bus / "U_x").write_bytes(b"short\n" + long)
    drain.wait_for_lines(4)
    assert lines_of(place / "spool") == (b"short\n" + long) * 2


# ---------------------------------------------------------------------------------------------- what is lost


def drain_once(channel: Path, path: Path, descriptor: int, noted: int = 0) -> list[str]:
    """Takes what waits for an open channel. Returns what was said."""
    words: list[str] = []
    with SpoolWriter(path, channel.name, is_continued=True, segment_bytes=1 << 20) as writer:
        drain = Drain(channel, writer, say=words.append, descriptor=descriptor, noted=noted)
        assert drain.run(only_until_idle=True)
        drain.close()
    return words


def test_what_the_bus_dropped_is_counted_once(mounting: Mounting, place: Path) -> None:
    bus = mounting("max_queue=10")
    path = place / "spool"
    descriptor = open_channel(bus / "B_x", False)
    (bus / "B_x").write_bytes(numbered(0, 100))
    assert inquire(descriptor).dropped == 90
    assert "90 lines were lost" in "".join(drain_once(bus / "B_x", path, descriptor))
    assert Spool(path).last.lost == 90
    # Another process goes on with the same client of the bus, which counts from its beginning.
    (bus / "B_x").write_bytes(numbered(100, 105))
    assert drain_once(bus / "B_x", path, descriptor, noted=90) == []
    (bus / "B_x").write_bytes(numbered(105, 125))
    assert "10 lines were lost" in "".join(drain_once(bus / "B_x", path, descriptor, noted=90))
    assert Spool(path).last.lost == 100
    assert lines_of(path) == numbered(90, 105) + numbered(115, 125)
    os.close(descriptor)


def test_no_name_makes_a_loss(bus: Mount, place: Path, draining: Draining) -> None:
    """What people read of a bus shows names as they are, and these look as if somebody had lost much."""
    for name in (
        f"B_log  1  peer  {os.getpid()}  0  x  r-+  0  0  0  0  0  0  777  0",
        f"B_log 1 peer {os.getpid()} 0 x r- 0 0 0 0 0 0 777 ",
    ):
        bus.touch(name)
    drain = draining(bus / "B_log").wait_until_joined()
    (bus / "B_log").write_bytes(numbered(0, 100))
    drain.wait_for_lines(100)
    until(lambda: not drain.drain._must_look, "it has asked for losses")
    assert Spool(place / "spool").last.lost == 0
    assert drain.words == []


def test_losses_of_others_are_not_counted(mounting: Mounting, place: Path, start: Start, draining: Draining) -> None:
    bus = mounting("max_queue=10")
    bus.touch("B_x")
    sleeper = start("bash", "-c", f"exec 3<{bus / 'B_x'}; read")
    bus.wait_for_clients(1, "B_x", pid=sleeper.pid)
    drain = draining(bus / "B_x").wait_until_joined()
    for number in range(0, 100, 5):
        (bus / "B_x").write_bytes(numbered(number, number + 5))
        drain.wait_for_lines(number + 5)
    until(lambda: not drain.drain._must_look, "it has asked for losses")
    assert Spool(place / "spool").last.lost == 0


def test_a_directory_that_looks_like_that_of_a_bus(place: Path) -> None:
    for name in ("_stat", "+B_x", "+U_x"):
        (place / name).touch()
    for name in ("B_x", "U_x"):
        with pytest.raises(BusAway, match="no bus is mounted on"):
            open_channel(place / name, False)


@pytest.mark.parametrize(
    ("name", "is_master", "words"),
    [
        ("x", False, "its first letter is"),
        ("_stat", False, "its first letter is"),
        (".U_x", True, "its first letter is"),
        ("+B_x", False, "its first letter is"),
        ("B" * 256, False, "its first letter is"),
        ("B_x", True, "only U and S channels have a master"),
        ("A_x", True, "only U and S channels have a master"),
    ],
)
def test_names_are_looked_at_before_a_bus_is(name: str, is_master: bool, words: str) -> None:
    with pytest.raises(ChannelError, match=words):
        check_channel(Path("/nowhere") / name, is_master)


def test_who_may_not_read_is_refused_for_good(mounting: Mounting) -> None:
    bus = mounting("allow_other,mode=755")
    with pytest.raises(ChannelError, match="Permission denied"):
        _as_nobody(lambda: open_channel(bus / "B_x", False))


def _as_nobody(call: Callable[[], Any]) -> Any:
    os.seteuid(65534)
    try:
        return call()
    finally:
        os.seteuid(0)
