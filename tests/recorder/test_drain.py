"""The drain on real buses: all types of channels, full disks, buses that go and come, lines that are lost and counted."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from futebus.client.inquire import inquire
from futebus.recorder.channel import BusAway, ChannelError, check_channel, open_channel
from futebus.recorder.drain import READ_LEAST, Drain
from futebus.spool import Spool, SpoolWriter

from ..helpers.mounts import Mount, Mounting
from ..helpers.programs import Start
from ..helpers.recorders import Remounting, fill
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import lines_of, numbered
from .drains import Draining, draining

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


@pytest.mark.parametrize("is_master", [True, False])
def test_a_full_disk_is_waited_for(
    mounting: Mounting, small_disk: Path, draining: Draining, start: Start, is_master: bool
) -> None:
    bus = mounting("max_queue=1000")
    channel = bus / ("U_x" if is_master else "B_x")
    drain = draining(channel, small_disk / "spool", is_master=is_master).wait_until_joined()
    fill(small_disk / "ballast")
    lines = numbered(0, 20_000)
    said, stop = small_disk.parent / "lines", small_disk.parent / "stop"
    said.write_bytes(lines)
    # How many of a B channel's lines a slow drain gets is the machine's affair: so they are said until the disk is full.
    writer = start("bash", "-c", f"until [ -e {stop} ]; do cat {said} > {channel}; echo; done")
    drain.wait_for(f"No space left on device; {'its writers wait' if is_master else 'the bus keeps the newest lines'}")
    if is_master:
        bus.wait_for_blocked_writers(1, "U_x")
    stop.touch()
    if not is_master:
        assert writer.wait(DEADLINE) == 0
    (small_disk / "ballast").unlink()
    drain.wait_for("there is room again")
    assert writer.wait(DEADLINE) == 0
    rounds = len(writer.communicate()[0])
    spool = Spool(small_disk / "spool")
    until(lambda: spool.end + spool.last.lost == 20_000 * rounds, "all lines are there or counted")
    if is_master:
        assert lines_of(spool) == lines * rounds
    else:
        assert spool.last.lost > 0
        assert lines_of(spool).endswith(lines[-100 * 900 :])


def test_a_copy_with_holes_is_not_written_on_a_full_disk(bus: Mount, small_disk: Path, place: Path, draining: Draining) -> None:
    """Whoever is killed leaves a file that ends with zeros, and cp(1) makes holes of them: no room is reserved there."""
    with SpoolWriter(place / "killed", "U_x") as writer:
        writer.append(numbered(0, 1000))
        subprocess.run(["cp", "-a", "--sparse=always", place / "killed", small_disk / "spool"], check=True)
    fill(small_disk / "ballast")
    # In a process of its own: it would be killed by SIGBUS.
    program = "import sys; from futebus.spool import SpoolWriter; SpoolWriter(sys.argv[1], 'U_x').append(bytes(5000))"
    done = subprocess.run([sys.executable, "-c", program, small_disk / "spool"], capture_output=True, text=True, check=False)
    assert done.stderr.endswith(f"No space left on device: '{small_disk / 'spool'}'\n")
    drain = draining(bus / "U_x", small_disk / "spool", is_master=True).wait_until_joined()
    drain.wait_for("No space left on device; its writers wait")
    (bus / "U_x").write_bytes(numbered(1000, 2000))
    (small_disk / "ballast").unlink()
    drain.wait_for_lines(2000)
    assert lines_of(small_disk / "spool") == numbered(0, 2000)


# ---------------------------------------------------------------------------------------------- what goes and comes


def test_a_bus_that_is_killed_is_waited_for(bus: Mount, place: Path, draining: Draining, remounting: Remounting) -> None:
    drain = draining(bus / "U_x", is_master=True).wait_until_joined()
    (bus / "U_x").write_bytes(numbered(0, 100))
    drain.wait_for_lines(100)
    again = remounting(bus)
    drain.wait_for("the bus has gone")
    again.wait_for_clients(1, "U_x", role="master")
    (again / "U_x").write_bytes(numbered(100, 200))
    drain.wait_for_lines(200)
    assert lines_of(place / "spool") == numbered(0, 200)
    drain.wait_for("back after")


def test_half_a_line_is_not_put_before_the_lines_of_the_next_bus(
    mounting: Mounting, place: Path, draining: Draining, remounting: Remounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = mounting("max_message=8M,max_queue_bytes=16M")
    read_from = SpoolWriter.read_from

    def reading(writer: SpoolWriter, channel: int, room: int | None = None, *, most: int = READ_LEAST) -> int:
        size = read_from(writer, channel, room, most=READ_LEAST)
        if size and bus.daemon.poll() is None:
            bus.daemon.kill()
            bus.daemon.wait()
        return size

    monkeypatch.setattr(SpoolWriter, "read_from", reading)
    drain = draining(bus / "U_x", is_master=True).wait_until_joined()
    with contextlib.suppress(OSError):  # of the bus that is killed, once it has accepted all
        (bus / "U_x").write_bytes(b"long" * READ_LEAST + b"\n")
    drain.wait_for("the bus has gone")
    again = remounting(bus)
    again.wait_for_clients(1, "U_x", role="master")
    (again / "U_x").write_bytes(b"short\n")
    drain.wait_for_lines(1)
    assert lines_of(place / "spool") == b"short\n"
    drain.wait_for(f"{READ_LEAST} bytes were cut off")


def test_a_bus_that_ends_is_left_at_once(mounting: Mounting, draining: Draining) -> None:
    bus = mounting()
    drain = draining(bus / "B_x").wait_until_joined()
    bus.daemon.send_signal(signal.SIGTERM)
    bus.close()
    assert "have not closed" not in bus.words
    drain.wait_for("no bus is mounted on")


def test_a_directory_under_a_bus_that_has_gone_stays_empty(place: Path) -> None:
    with pytest.raises(BusAway, match="no bus is mounted on"):
        open_channel(place / "B_x", False)
    with pytest.raises(BusAway, match="there is no directory"):
        open_channel(place / "none" / "U_x", True)
    assert list(place.iterdir()) == []


def test_a_second_master_waits_for_the_first(bus: Mount, place: Path, draining: Draining) -> None:
    first = open_channel(bus / "U_x", True)
    drain = draining(bus / "U_x", is_master=True)
    drain.wait_for("has a master already; waiting")
    os.close(first)
    drain.wait_until_joined()


def test_a_channel_that_was_removed_is_opened_anew(bus: Mount, place: Path, draining: Draining) -> None:
    drain = draining(bus / "B_x").wait_until_joined()
    old = os.open(bus / "B_x", os.O_WRONLY)
    (bus / "B_x").unlink()
    os.write(old, b"old\n")
    drain.wait_for("the channel has been removed")
    bus.wait_for_clients(1, "B_x", rw="r-+")
    (bus / "B_x").write_bytes(b"new\n")
    drain.wait_for_lines(2)
    assert lines_of(place / "spool") == b"old\nnew\n"
    os.close(old)


def test_a_master_whose_name_was_removed_stays_with_its_slaves(bus: Mount, place: Path, draining: Draining) -> None:
    drain = draining(bus / "U_x", is_master=True).wait_until_joined()
    old = os.open(bus / "U_x", os.O_WRONLY)
    (bus / "U_x").unlink()
    drain.wait_for("its name has been removed")
    os.write(old, b"old\n")
    drain.wait_for_lines(1)
    os.close(old)


def test_it_can_be_stopped_while_it_waits(place: Path, draining: Draining) -> None:
    (place / "bus").mkdir()
    drain = draining(place / "bus" / "B_x")
    drain.wait_for("no bus is mounted on")
    drain.end()
    drain.drain = Drain(place / "B_x", drain.writer)  # for the fixture to end


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


def test_a_bus_that_cannot_answer_for_a_while_loses_nothing(place: Path, mounting: Mounting, draining: Draining) -> None:
    """It says EIO when something is wrong inside, and goes on. Who gives the master up then gives up all that waits."""
    switches = place / "switches"
    switches.mkdir()
    bus = mounting(command=[sys.executable, "-m", "tests.torture.sick", str(switches)])
    bus.expects_errors = True
    drain = draining(bus / "U_jobs", is_master=True).wait_until_joined()
    (switches / "Calls.read").touch()
    writer = os.open(bus / "U_jobs", os.O_WRONLY)
    os.write(writer, numbered(0, 1000))
    drain.wait_for("it cannot be read (Input/output error); what waits there is not lost; trying again")
    os.write(writer, b"more\n")
    (switches / "Calls.read").unlink()
    drain.wait_for_lines(1001)
    drain.wait_for("it can be read again")
    os.write(writer, b"last\n")
    drain.wait_for_lines(1002)
    os.close(writer)
    assert sum("cannot be read" in words for words in drain.words) == 1
    assert not any("has gone" in words for words in drain.words)


def test_one_that_is_ended_while_the_bus_cannot_answer_does_not_say_that_it_has_gone(
    place: Path, mounting: Mounting, draining: Draining
) -> None:
    switches = place / "switches"
    switches.mkdir()
    bus = mounting(command=[sys.executable, "-m", "tests.torture.sick", str(switches)])
    bus.expects_errors = True
    drain = draining(bus / "U_jobs", is_master=True).wait_until_joined()
    (switches / "Calls.read").touch()
    (bus / "U_jobs").write_bytes(b"one\n")
    drain.wait_for("it cannot be read (Input/output error)")
    drain.end()
    assert not any("has gone" in words for words in drain.words)
