"""What a drain waits for, on real buses: disks that are full, buses and channels that go and come, masters that are there."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from futebus.client.shut import shut
from futebus.recorder.channel import BusAway, open_channel
from futebus.recorder.drain import READ_LEAST, Drain
from futebus.spool import Spool, SpoolWriter

from ..helpers.mounts import LINGERING, Mount, Mounting
from ..helpers.programs import Start
from ..helpers.recorders import Remounting, fill
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import lines_of, numbered
from .drains import Draining, draining

__all__ = ["draining"]


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
    bus = mounting(command=LINGERING)
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


def test_a_channel_that_was_removed_is_opened_anew(
    bus: Mount, place: Path, draining: Draining, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_look, is_removed = threading.Event(), Drain._is_removed
    monkeypatch.setattr(Drain, "_is_removed", lambda drain, file: may_look.is_set() and is_removed(drain, file))
    drain = draining(bus / "B_x").wait_until_joined()
    old = os.open(bus / "B_x", os.O_WRONLY)
    (bus / "B_x").unlink()
    os.write(old, b"old\n")
    drain.wait_for_lines(1)
    may_look.set()
    drain.wait_for("the channel has been removed")
    bus.wait_for_live("B_x", "peer")
    (bus / "B_x").write_bytes(b"new\n")
    drain.wait_for_lines(2)
    assert lines_of(place / "spool") == b"old\nnew\n"
    os.close(old)


def test_a_channel_that_was_removed_is_left_though_somebody_goes_on_writing_to_it(
    bus: Mount, place: Path, draining: Draining, start: Start
) -> None:
    drain = draining(bus / "B_x").wait_until_joined()
    old = start("bash", "-c", f"while echo old && sleep 0.01; do :; done > {bus / 'B_x'}")
    drain.wait_for_lines(1)
    (bus / "B_x").unlink()
    drain.wait_for("the channel has been removed")
    bus.wait_for_live("B_x", "peer")
    (bus / "B_x").write_bytes(b"new\n")
    until(lambda: lines_of(place / "spool").endswith(b"old\nnew\n"), "the new one is heard, and it alone")
    assert old.poll() is None
    assert sum("has been removed" in said for said in drain.words) == 1


def test_a_master_says_that_its_name_was_removed_though_somebody_goes_on_writing(
    bus: Mount, draining: Draining, start: Start
) -> None:
    drain = draining(bus / "U_x", is_master=True).wait_until_joined()
    old = start("bash", "-c", f"while echo old && sleep 0.01; do :; done > {bus / 'U_x'}")
    drain.wait_for_lines(1)
    (bus / "U_x").unlink()
    drain.wait_for("its name has been removed")
    heard = drain.writer.end
    drain.wait_for_lines(heard + 1)
    assert old.poll() is None


def test_a_master_that_was_shut_was_removed_by_nobody(bus: Mount, draining: Draining) -> None:
    """A recorder that ends shuts its channel, and then tells the drain."""
    master = open_channel(bus / "U_x", True, None)  # the recorder's, which gives it to the drain
    drain = draining(bus / "U_x", is_master=True, descriptor=master).wait_until_joined()
    shut(master)
    assert not drain.drain._is_removed(master)
    drain.wait()
    assert not drain.words
    os.close(master)


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


@pytest.fixture
def switches(place: Path) -> Path:
    """A directory: what is named by a file in it fails on the bus `sick`."""
    directory = place / "switches"
    directory.mkdir()
    return directory


@pytest.fixture
def sick(mounting: Mounting, switches: Path) -> Mount:
    """A bus that has something wrong inside."""
    bus = mounting(command=[sys.executable, "-m", "tests.torture.sick", str(switches)])
    bus.expects_errors = True
    return bus


def test_a_bus_that_cannot_answer_for_a_while_loses_nothing(sick: Mount, switches: Path, draining: Draining) -> None:
    """It says EIO when something is wrong inside, and goes on. Who gives the master up then gives up all that waits."""
    drain = draining(sick / "U_jobs", is_master=True).wait_until_joined()
    (switches / "Calls.read").touch()
    writer = os.open(sick / "U_jobs", os.O_WRONLY)
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
    sick: Mount, switches: Path, draining: Draining
) -> None:
    drain = draining(sick / "U_jobs", is_master=True).wait_until_joined()
    (switches / "Calls.read").touch()
    (sick / "U_jobs").write_bytes(b"one\n")
    drain.wait_for("it cannot be read (Input/output error)")
    drain.end()
    assert not any("has gone" in words for words in drain.words)
