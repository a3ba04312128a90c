"""Recorders on a disk that is full: what may go makes room, and an end that loses lines says so."""

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from futebus.spool import Spool, SpoolWriter

from ..helpers.mounts import Mount, Mounting
from ..helpers.nats import Server
from ..helpers.programs import Start, stop
from ..helpers.published import wait_for_line
from ..helpers.recorders import Recording, disk, fill, kill
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import lines_of, numbered

LINES = 150_000
"""Of 100 bytes: twice what the disk has room for."""

SAYING = f"import sys; open(sys.argv[1], 'wb').write(b''.join(b'%099d\\n' % number for number in range({LINES})))"

FULL = "No space left on device; its writers wait until there is room"


@pytest.mark.parametrize("options", [("--keep-age", "0.5s"), ("--keep-bytes", "2M"), ("--keep-age", "0.5s", "--sync", "1h")])
def test_what_may_go_makes_room(
    bus: Mount, recording: Recording, small_disk: Path, start: Start, options: tuple[str, ...]
) -> None:
    recorder = recording(bus / "U_x", *options, "--segment-bytes", "1M", spool=small_disk / "spool")
    writer = start(sys.executable, "-c", SAYING, bus / "U_x")
    assert writer.wait(DEADLINE) == 0
    until(lambda: Spool(recorder.spool).end == LINES, "all is taken")
    recorder.end()


def test_what_the_stream_has_makes_room(
    bus: Mount, recording: Recording, small_disk: Path, start: Start, keeping: Server
) -> None:
    recorder = recording(
        bus / "U_x",
        *("--to", f"{keeping.url}/LINES/lines", "--keep-bytes", "1M", "--segment-bytes", "1M"),
        spool=small_disk / "spool",
    )
    keeping.kill()
    writer = start(sys.executable, "-c", SAYING, bus / "U_x")
    recorder.wait_for(FULL)
    assert Spool(recorder.spool).begin == 0, "the stream has nothing yet"
    keeping.begin()
    assert writer.wait(DEADLINE) == 0
    wait_for_line(keeping.url, "lines", LINES)
    recorder.end()


def test_a_drain_that_comes_while_the_disk_is_full_makes_room(
    bus: Mount, recording: Recording, small_disk: Path, start: Start
) -> None:
    recorder = recording(bus / "U_x", "--keep-age", "4s", "--segment-bytes", "1M", spool=small_disk / "spool")
    fill(small_disk / "ballast")
    writer = start(sys.executable, "-c", SAYING, bus / "U_x")
    recorder.wait_for(FULL)
    kill(recorder.drain())
    recorder.wait_for("the next one goes on")
    (small_disk / "ballast").unlink()
    until(lambda: Spool(recorder.spool).end > 0, "some are taken")
    fill(small_disk / "ballast")
    until(lambda: Spool(recorder.spool).begin > 0, "old lines go")
    (small_disk / "ballast").unlink()
    kill(recorder.drain())
    until(lambda: Spool(recorder.spool).end == LINES, "all is taken")
    assert writer.wait(DEADLINE) == 0
    recorder.end()


def test_an_end_on_a_full_disk_tells_what_is_lost(bus: Mount, recording: Recording, small_disk: Path, start: Start) -> None:
    recorder = recording(bus / "U_x", "--segment-bytes", "1M", spool=small_disk / "spool")
    writer = start(sys.executable, "-c", SAYING, bus / "U_x")
    recorder.wait_for(FULL)
    bus.wait_for_blocked_writers(1, "U_x")
    before = lines_of(recorder.spool)
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == 1
    assert writer.wait(DEADLINE) != 0
    found = re.search(r"ended before everything that was queued was taken; (\d+) lines of it are lost", recorder.words)
    assert found, recorder.words
    assert int(found[1]) > 1000
    assert "lines still come" not in recorder.words
    assert "came while it ended" not in recorder.words
    assert lines_of(recorder.spool) == before
    with SpoolWriter(recorder.spool, "U_x", is_continued=True) as spool:
        assert spool.lost == int(found[1])


def test_a_line_that_the_disk_has_room_for_a_part_of_is_told_at_the_end(
    mounting: Mounting, recording: Recording, small_disk: Path
) -> None:
    """The bus counts it as read."""
    bus = mounting("max_message=32M,max_queue_bytes=64M")
    recorder = recording(bus / "U_x", "--segment-bytes", "1M", spool=small_disk / "spool")
    (bus / "U_x").write_bytes(b"one\n")
    (bus / "U_x").write_bytes(b"x" * 20_000_000 + b"\n")
    recorder.wait_for(FULL)
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == 1
    assert "ended before everything that was queued was taken; 1 line of it is lost\n" in recorder.words
    assert "lines still come" not in recorder.words
    assert lines_of(recorder.spool) == b"one\n"


def test_an_end_takes_what_waits_if_there_is_room_again(
    mounting: Mounting, recording: Recording, small_disk: Path, start: Start
) -> None:
    bus = mounting("max_queue=1000")
    recorder = recording(bus / "U_x", "--segment-bytes", "1M", spool=small_disk / "spool")
    fill(small_disk / "ballast")
    writer = start(sys.executable, "-c", SAYING, bus / "U_x")
    recorder.wait_for(FULL)
    bus.wait_for_blocked_writers(1, "U_x")
    taken = Spool(recorder.spool).end
    kill(writer.pid)
    (small_disk / "ballast").unlink()
    recorder.end()
    assert Spool(recorder.spool).end >= taken + 1000
    assert "lost" not in recorder.words


def test_an_end_takes_what_waits_if_there_is_room_for_a_spool_again(
    mounting: Mounting, recording: Recording, small_disk: Path, start: Start
) -> None:
    """The drain has not been able to open it yet."""
    bus = mounting("max_queue=1000")
    recorder = recording(bus / "U_x", "--segment-bytes", "1M", spool=small_disk / "spool")
    drain = recorder.drain()
    stop(recorder.process.pid)
    kill(drain)
    for file in recorder.spool.glob("0*"):  # which have room for these lines
        file.unlink()
    until(lambda: shutil.disk_usage(small_disk).used < 100_000, "nobody has them open any more")
    fill(small_disk / "ballast")
    recorder.process.send_signal(signal.SIGCONT)
    recorder.wait_for(FULL)
    (bus / "U_x").write_bytes(numbered(0, 1000))
    (small_disk / "ballast").unlink()
    recorder.end()
    assert lines_of(recorder.spool) == numbered(0, 1000)
    assert "of it are lost" not in recorder.words


def record_to(recording: Recording, channel: Path, spool: Path, begin: int, end: int) -> None:
    """Has lines recorded, from one number up to another one, and ends the recorder."""
    recorder = recording(channel, spool=spool)
    channel.write_bytes(numbered(begin, end))
    until(lambda: Spool(spool).end == end, "they are taken")
    recorder.end()


@pytest.mark.parametrize("channel", ["B_x", "U_x"])
def test_what_a_full_disk_never_had_room_for_is_counted(
    mounting: Mounting, recording: Recording, small_disk: Path, channel: str
) -> None:
    """Also what the bus has dropped, and in a spool that cannot even be opened to write."""
    bus = mounting("max_queue=200")
    spool = small_disk / "spool"
    record_to(recording, bus / channel, spool, 0, 100)
    fill(small_disk / "ballast")
    recorder = recording(bus / channel, spool=spool)
    recorder.wait_for("No space left on device")
    count = 1000 if channel == "B_x" else 200
    (bus / channel).write_bytes(numbered(0, count))
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == 1
    told = [int(number) for number in re.findall(r"(\d+) lines (?:were|of it are) lost", recorder.words)]
    assert sum(told) == count, recorder.words
    assert Spool(spool).last.lost == count
    (small_disk / "ballast").unlink()
    record_to(recording, bus / channel, spool, 100, 200)
    assert lines_of(spool) == numbered(0, 200)
    assert Spool(spool).last.lost == count


@pytest.mark.parametrize("channel", ["B_x", "U_x"])
def test_an_end_on_a_full_disk_without_lines_that_wait_is_none_that_loses_any(
    bus: Mount, recording: Recording, small_disk: Path, channel: str
) -> None:
    spool = small_disk / "spool"
    record_to(recording, bus / channel, spool, 0, 100)
    fill(small_disk / "ballast")
    recorder = recording(bus / channel, spool=spool)
    recorder.wait_for("until there is room")
    recorder.end()
    assert recorder.words.endswith("until there is room\n"), recorder.words
    assert lines_of(spool) == numbered(0, 100)


def test_lines_behind_one_that_was_taken_in_part_are_all_counted(
    mounting: Mounting, recording: Recording, small_disk: Path
) -> None:
    bus = mounting("max_message=32M,max_queue_bytes=64M")
    recorder = recording(bus / "U_x", "--segment-bytes", "1M", spool=small_disk / "spool")
    (bus / "U_x").write_bytes(b"one\n")
    (bus / "U_x").write_bytes(b"x" * 20_000_000 + b"\n")
    recorder.wait_for(FULL)
    (bus / "U_x").write_bytes(b"three\nfour\n")
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == 1
    assert "ended before everything that was queued was taken; 3 lines of it are lost\n" in recorder.words
    assert lines_of(recorder.spool) == b"one\n"
    assert Spool(recorder.spool).last.lost == 3


def test_a_disk_that_has_hardly_twice_what_is_kept_goes_on(bus: Mount, recording: Recording, place: Path, start: Start) -> None:
    """Though the first segment gets as long as it can: the drain was held up, and the queue is full."""
    with disk(place, "2m") as small:
        recorder = recording(bus / "U_x", "--keep-bytes", "1M", spool=small / "spool")
        drain = recorder.drain()
        stop(drain)
        writer = start(sys.executable, "-c", SAYING, bus / "U_x")
        bus.wait_for_blocked_writers(1, "U_x")
        os.kill(drain, signal.SIGCONT)
        assert writer.wait(DEADLINE) == 0
        until(lambda: Spool(recorder.spool).end == LINES, "all is taken")
        recorder.end()
        spool = Spool(recorder.spool)
        assert spool.size_from(spool.begin) >= 1 << 20
        assert lines_of(spool) == numbered(spool.begin, LINES)
