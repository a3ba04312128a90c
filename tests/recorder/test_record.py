"""The recorder on real buses: its processes are killed at any moment, and it is ended, restarted and asked in every way."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from futebus.recorder.children import pause_after
from futebus.recorder.worker import END_SECONDS
from futebus.spool import NotASpool, Spool, SpoolWriter

from ..helpers.insistent import Insistent
from ..helpers.mounts import Mount, Mounting, bash, hanging, run
from ..helpers.processes import has_blocked
from ..helpers.programs import Start, stop
from ..helpers.recorders import RECORD, TIRED, Recording, Remounting, fill, is_alive, kill
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import lines_of, numbered
from ..spool.writers import finish, numbers_of, wait_for_more, writers

# ---------------------------------------------------------------------------------------------- who is killed


def test_nothing_is_lost_when_the_drain_is_killed(mounting: Mounting, recording: Recording, start: Start) -> None:
    bus = mounting("max_queue=500")
    recorder = recording(bus / "U_x", "--segment-bytes", "1M")
    running = writers(start, bus / "U_x", 4)
    chance = random.Random(0)
    for kills in range(1, 11):
        drain = recorder.drain()
        wait_for_more(recorder.spool, chance.choice((1, 1000, 10_000)))
        kill(drain)
        until(lambda kills=kills: recorder.words.count("SIGKILL") == kills, "it is said")  # type: ignore[misc]
    written = finish(running)
    recorder.end()
    assert numbers_of(recorder.spool, 4) == written


def test_nothing_is_lost_when_the_holder_is_killed(mounting: Mounting, recording: Recording, start: Start) -> None:
    bus = mounting("max_queue=500")
    recorder = recording(bus / "U_x", "--sync", "none")
    running = writers(start, bus / "U_x", 3)
    for _ in range(3):
        wait_for_more(recorder.spool)
        holder, drain = recorder.holder, recorder.drain()
        kill(holder)
        until(lambda drain=drain: recorder.holder == drain, "the drain holds the channel")  # type: ignore[misc]
        kill(recorder.drain())
    written = finish(running)
    last = recorder.holder
    os.kill(last, signal.SIGTERM)
    until(lambda: not is_alive(last), "it has ended")
    assert numbers_of(recorder.spool, 3) == written
    until(lambda: not (bus / "U_x").exists(), "nobody has the channel")


def test_what_is_there_stays_when_both_are_killed(bus: Mount, recording: Recording, start: Start) -> None:
    recorder = recording(bus / "U_x")
    running = writers(start, bus / "U_x", 2)
    until(lambda: Spool(recorder.spool).end > 1000, "lines come")
    holder, drain = recorder.holder, recorder.drain()
    stop(drain)  # it must not notice
    kill(holder)
    kill(drain)
    for writer in running:
        assert writer.wait(DEADLINE) != 0
    again = recording(bus / "U_x")
    last = 10**9
    (bus / "U_x").write_bytes(b"0 %d %s\n" % (last, b"x" * (last % 150)))
    again.end()
    first, second = numbers_of(again.spool, 2)
    assert first.pop() == last
    assert first == list(range(len(first)))
    assert second == list(range(len(second)))
    assert first + second


def test_a_drain_that_always_dies_is_started_with_pauses(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "U_x")
    for number in range(4):
        kill(recorder.drain())
        until(lambda number=number: recorder.words.count("SIGKILL") == number + 1, "it is said")  # type: ignore[misc]
    (bus / "U_x").write_bytes(b"one\n")
    recorder.end()
    assert lines_of(recorder.spool) == b"one\n", recorder.words


def test_a_drain_that_died_all_night_is_started_with_the_longest_pause(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "U_x", command=TIRED)
    kill(recorder.drain())
    until(lambda: "SIGKILL" in recorder.words, "it is said")
    (bus / "U_x").write_bytes(b"one\n")
    recorder.end()
    assert lines_of(recorder.spool) == b"one\n", recorder.words


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [pause_after(lives) for lives in (0, 1, 2, 3, 8, 9, 1025, 1026, 10**9)]
    assert pauses == [0.05, 0.05, 0.05, 0.1, 3.2, 5, 5, 5, 5]


def test_it_can_be_ended_while_it_pauses(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "U_x")
    for _ in range(6):
        kill(recorder.drain())
    (bus / "U_x").write_bytes(b"one\n")
    recorder.end()
    assert lines_of(recorder.spool) == b"one\n", recorder.words


def test_both_get_the_signal_and_the_holder_is_dead(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "U_x")
    holder, drain = recorder.holder, recorder.drain()
    stop(drain)
    (bus / "U_x").write_bytes(b"one\n")
    os.kill(drain, signal.SIGTERM)
    kill(holder)
    os.kill(drain, signal.SIGCONT)
    until(lambda: not is_alive(drain), "it has ended")
    assert lines_of(recorder.spool) == b"one\n", recorder.words
    until(lambda: not (bus / "U_x").exists(), "nobody has the channel")


LEAVING = [sys.executable, "-m", "tests.recorder.leaving"]


def test_who_has_taken_over_gets_each_signal_though_its_threads_are_still_leaving(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "U_x", command=LEAVING)
    (bus / "U_x").write_bytes(b"one\n")
    until(lambda: Spool(recorder.spool).end == 1, "all its threads are there")
    drain = recorder.drain()
    kill(recorder.holder)
    until(lambda: not is_alive(drain), "it has ended")
    assert recorder.words.endswith(f"{drain} holds it now\n")
    assert "told to end" in recorder.words
    assert lines_of(recorder.spool) == b"one\n"
    until(lambda: not (bus / "U_x").exists(), "nobody has the channel")


def test_who_takes_over_while_the_disk_is_slow_gets_each_signal(bus: Mount, recording: Recording, place: Path) -> None:
    """It does not wait for the disk: that may hang."""
    slow = place / "slow"
    code = "import pathlib, sys, time; from futebus.commands import record; from futebus.recorder import worker\n"
    code += "def stop(upkeep, stopped=worker.Upkeep.stop):\n"
    code += " while pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    code += " stopped(upkeep)\n"
    code += "worker.Upkeep.stop = stop; sys.exit(record.main(sys.argv[2:]))"
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", code, str(slow)])
    (bus / "U_x").write_bytes(b"one\n")
    until(lambda: Spool(recorder.spool).end == 1, "it is taken")
    drain = recorder.drain()
    slow.touch()
    kill(recorder.holder)
    os.kill(drain, signal.SIGTERM)
    until(lambda: not is_alive(drain), "it has ended")
    until(lambda: not (bus / "U_x").exists(), "nobody has the channel")
    assert recorder.words.endswith("how much of it is lost, the bus does not say\n")


# ---------------------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_at_the_end_what_is_queued_is_taken(bus: Mount, recording: Recording, number: signal.Signals) -> None:
    recorder = recording(bus / "U_x")
    drain = recorder.drain()
    stop(drain)
    (bus / "U_x").write_bytes(numbered(0, 1000))
    recorder.process.send_signal(number)
    until(lambda: not (bus / "U_x").exists(), "nobody else can come")
    os.kill(drain, signal.SIGCONT)
    assert recorder.process.wait(DEADLINE) == 0
    assert lines_of(recorder.spool) == numbered(0, 1000)


def test_ctrl_c_reaches_both(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "B_x")
    (bus / "B_x").write_bytes(numbered(0, 10))
    os.killpg(recorder.process.pid, signal.SIGINT)
    assert recorder.process.wait(DEADLINE) == 0
    assert "killed" not in recorder.words
    assert "Traceback" not in recorder.words
    assert lines_of(recorder.spool) == numbered(0, 10)


def test_who_does_not_stop_writing_does_not_keep_it(bus: Mount, recording: Recording, start: Start) -> None:
    recorder = recording(bus / "U_x")
    running = writers(start, bus / "U_x", 2)
    until(lambda: Spool(recorder.spool).end > 1000, "lines come")
    recorder.end()
    for writer in running:
        assert writer.wait(DEADLINE) != 0
    assert all(numbers == list(range(len(numbers))) for numbers in numbers_of(recorder.spool, 2))


def test_a_hangup_that_is_ignored_stays_so(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "U_x", command=["nohup", *RECORD], stdout=subprocess.DEVNULL)
    recorder.process.send_signal(signal.SIGHUP)
    (bus / "U_x").write_bytes(b"one\n")
    until(lambda: Spool(recorder.spool).end == 1, "it goes on")
    recorder.end()


def test_it_can_be_ended_while_it_waits_for_a_bus(place: Path, start: Start) -> None:
    process = start(*RECORD, place / "B_x", place / "spool")
    assert process.stderr is not None
    assert "no bus is mounted on" in process.stderr.readline()
    process.terminate()
    assert process.wait(DEADLINE) == 0
    assert not (place / "B_x").exists()


@pytest.mark.parametrize("is_recording", [True, False])
def test_it_can_be_ended_while_the_bus_hangs(
    bus: Mount, recording: Recording, start: Start, place: Path, is_recording: bool
) -> None:
    """The daemon may be somebody else's, who stops it. Of a stopped daemon no signal gets a call back but one that kills."""
    recorder = recording(bus / "U_x") if is_recording else None
    process = recorder.process if recorder else None
    with hanging(bus):
        if process is None:
            process = start(*RECORD, bus / "U_x", place / "spool")
            begun = process.pid
            until(lambda: (place / "spool" / "lock").exists() and has_blocked(begun, signal.SIGTERM), "it has begun")
        process.terminate()
        assert process.wait(DEADLINE) == (1 if recorder else 0)
        assert recorder is None or "how much of it is lost, the bus does not say" in recorder.words


# ---------------------------------------------------------------------------------------------- what it survives


def test_a_bus_that_is_killed_and_comes_back(bus: Mount, recording: Recording, remounting: Remounting) -> None:
    recorder = recording(bus / "U_x")
    (bus / "U_x").write_bytes(numbered(0, 100))
    until(lambda: Spool(recorder.spool).end == 100, "it is taken")
    again = remounting(bus)
    recorder.wait_for("back after")
    (again / "U_x").write_bytes(numbered(100, 200))
    recorder.end()
    assert lines_of(recorder.spool) == numbered(0, 200)
    assert "the bus has gone" in recorder.words


def test_a_disk_that_has_no_place_for_a_spool_is_named(bus: Mount, small_disk: Path) -> None:
    fill(small_disk / "ballast")
    done = run(*RECORD, bus / "U_x", small_disk / "spool")
    words = f"futebus-record: {small_disk / 'spool'}: No space left on device\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)


def test_a_full_disk(bus: Mount, recording: Recording, small_disk: Path, start: Start) -> None:
    recorder = recording(bus / "U_x", "--segment-bytes", "1M", spool=small_disk / "spool")
    fill(small_disk / "ballast")
    running = writers(start, bus / "U_x", 1, 80_000)
    recorder.wait_for("its writers wait until there is room")
    kill(recorder.drain())  # the next one finds no more room
    recorder.wait_for("the next one goes on")
    (small_disk / "ballast").unlink()
    assert running[0].wait(DEADLINE) == 0
    # Their place may be in the bus alone: at its end a recorder waits for a moment only.
    until(lambda: Spool(recorder.spool).end == 80_000, "all is in the spool")
    recorder.end()
    assert numbers_of(recorder.spool, 1) == [list(range(80_000))]


def test_a_signal_that_comes_twice_is_one(bus: Mount, recording: Recording, start: Start) -> None:
    """timeout(1) sends it to the process, and then to its group."""
    for _ in range(5):
        recorder = recording(bus / "U_x")
        running = writers(start, bus / "U_x", 1, 20_000)
        until(lambda: bus.channel("U_x")["messages_in"] != 0, "lines come")
        for _ in range(2):
            with contextlib.suppress(ProcessLookupError):  # it may have ended, and been waited for by `send_signal`
                os.killpg(recorder.process.pid, signal.SIGTERM)
            recorder.process.send_signal(signal.SIGTERM)
        assert recorder.process.wait(DEADLINE) == 0, recorder.words
        assert "ended before everything" not in recorder.words
        running[0].wait(DEADLINE)
        shutil.rmtree(recorder.spool)


def test_what_comes_while_it_ends_is_recorded_too(bus: Mount, recording: Recording) -> None:
    """As long as it is accepted."""
    recorder = recording(bus / "U_x")
    writer = Insistent(bus / "U_x", at_once=5000, pause=0)
    until(lambda: Spool(recorder.spool).end, "it records")
    recorder.process.send_signal(signal.SIGTERM)
    sent = writer.wait()
    assert recorder.process.wait(DEADLINE) == 0
    assert Spool(recorder.spool).end == sent
    assert recorder.words == f"futebus-record: recording {bus / 'U_x'} into {recorder.spool}\n"


def test_a_holder_that_is_killed_while_it_ends_leaves_nobody_behind(bus: Mount, recording: Recording) -> None:
    """Its channel has ended then. The drain takes what waits; if it was not told to end, it goes on with another one."""
    recorder = recording(bus / "U_x")
    drain = recorder.drain()
    with open(bus / "U_x", "wb", buffering=0) as writer:
        stop(drain)
        writer.write(b"one\ntwo\n")
        recorder.process.send_signal(signal.SIGTERM)
        until(lambda: not (bus / "U_x").exists(), "the channel is ended")
        kill(recorder.holder)
        with pytest.raises(ProcessLookupError):
            writer.write(b"three\n")
        os.kill(drain, signal.SIGCONT)
    until(lambda: Spool(recorder.spool).end == 2, "what was accepted is taken")
    until(lambda: not is_alive(drain) or (bus / "U_x").exists(), "it ends, or goes on")
    assert "the channel has ended" not in recorder.words


def test_a_signal_to_the_drain_alone_is_forgotten(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "U_x")
    drain = recorder.drain()
    os.kill(drain, signal.SIGTERM)
    begin = time.monotonic()
    # The drain counts from when it has got to know of it.
    until(lambda: time.monotonic() > begin + 2 * END_SECONDS, "the holder would have ended by the same signal")
    kill(recorder.holder)
    recorder.wait_for(f"{drain} holds it now")
    (bus / "U_x").write_bytes(b"one\n")
    until(lambda: Spool(recorder.spool).end == 1, "it goes on")
    os.kill(drain, signal.SIGTERM)
    until(lambda: not is_alive(drain), "it has ended")


def test_the_channel_of_another_bus_is_not_taken(mounting: Mounting, recording: Recording, place: Path) -> None:
    """Who owns a directory above the bus decides what its path leads to in the end."""
    one, other = mounting(), mounting()
    door = place / "door"
    door.symlink_to(one.path)
    recorder = recording(door / "U_x")
    master = os.open(other / ".U_x", os.O_RDWR | os.O_CREAT)
    door.unlink()
    door.symlink_to(other.path)
    recorder.end()
    assert (other / "U_x").exists()
    os.close(master)


def test_a_spool_that_is_removed_ends_it(bus: Mount, recording: Recording, place: Path) -> None:
    recorder = recording(bus / "B_x")
    drain = recorder.drain()
    (bus / "B_x").write_bytes(b"line\n")
    until(lambda: Spool(recorder.spool).end, "it is taken: nobody who has just been started is still about to open the spool")
    # At once: file by file, somebody could find a spool of which half is there.
    recorder.spool.rename(place / "removed")
    shutil.rmtree(place / "removed")
    with contextlib.suppress(ProcessLookupError):  # it may have seen it
        os.kill(drain, signal.SIGKILL)
    assert recorder.process.wait(DEADLINE) == 1
    assert "has been removed, or moved, while it was written" in recorder.words
    assert not recorder.spool.exists()


@pytest.mark.parametrize("channel", ["U_x", "B_x"])
def test_what_waits_when_the_spool_is_taken_away_is_told(bus: Mount, recording: Recording, place: Path, channel: str) -> None:
    recorder = recording(bus / channel)
    drain = recorder.drain()
    stop(drain)
    (bus / channel).write_bytes(numbered(0, 10))
    recorder.spool.rename(place / "elsewhere")
    kill(drain)
    assert recorder.process.wait(DEADLINE) == 1
    assert recorder.words.endswith("ended before everything that was queued was taken; 10 lines of it are lost\n")


@pytest.mark.parametrize("content", [None, b"", b"{}\n"], ids=["removed", "emptied", "overwritten"])
def test_a_spool_does_not_lose_its_name_while_it_is_written(bus: Mount, recording: Recording, content: bytes | None) -> None:
    recorder = recording(bus / "U_x")
    (bus / "U_x").write_bytes(numbered(0, 10))
    until(lambda: Spool(recorder.spool).end == 10, "they are taken")
    known = Spool(recorder.spool).id
    identity = recorder.spool / "spool.json"
    if content is None:
        identity.unlink()
    else:
        identity.write_bytes(content)
    (bus / "U_x").write_bytes(numbered(10, 20))
    recorder.wait_for(f"{identity} was gone, or damaged; it is there again")
    recorder.end()
    assert Spool(recorder.spool).id == known
    assert lines_of(recorder.spool) == numbered(0, 20)


def test_a_recorder_is_ended_while_it_finds_lines_again(bus: Mount, place: Path, start: Start) -> None:
    """That may take long: all of them are read."""
    spool = place / "spool"
    with SpoolWriter(spool, "U_x", segment_bytes=1000, first_segment_bytes=1000) as writer:
        writer.append(numbered(0, 10))
        for begin in range(10, 3000, 10):
            writer.append(numbered(begin, begin + 10))
    for index in spool.glob("*.index"):
        index.unlink()
    code = "import sys, time; from futebus.commands import record; from futebus.spool import restore\n"
    code += "give = restore._give_index\n"
    code += "def giving(*given, **how): give(*given, **how); time.sleep(1)\n"
    code += "restore._give_index = giving; sys.exit(record.main())"
    process = start(sys.executable, "-c", code, bus / "U_x", spool, stderr=subprocess.PIPE)
    until(lambda: len([*spool.glob("*.index")]) > 1, "it has begun")
    process.terminate()
    assert process.wait(DEADLINE) == 0
    assert len([*spool.glob("*.index")]) < 300
    SpoolWriter(spool, "U_x").close()
    assert lines_of(spool) == numbered(0, 3000)


@pytest.mark.parametrize("is_told", [False, True], ids=["", "told to end"])
def test_one_that_is_written_to_after_that_says_so(bus: Mount, recording: Recording, place: Path, is_told: bool) -> None:
    """The files would take lines as before, and nobody would ever have them."""
    recorder = recording(bus / "B_x")
    (bus / "B_x").write_bytes(numbered(0, 10))
    until(lambda: Spool(recorder.spool).end == 10, "they are taken")
    recorder.spool.rename(place / "removed")
    shutil.rmtree(place / "removed")
    with contextlib.suppress(FileNotFoundError):  # it has seen it
        (bus / "B_x").write_bytes(numbered(10, 20))
    if is_told:
        recorder.process.send_signal(signal.SIGTERM)
    assert recorder.process.wait(DEADLINE) == 1
    assert "has been removed, or moved, while it was written" in recorder.words
    assert not recorder.spool.exists()


@pytest.mark.parametrize("is_told", [False, True], ids=["", "told to end"])
@pytest.mark.parametrize("harm", ["rm -f *.index", "rm -f *.lines", "truncate -s 50 *.lines", "truncate -s 0 *.index"])
def test_one_whose_newest_file_is_destroyed_says_so(
    bus: Mount, recording: Recording, place: Path, harm: str, is_told: bool
) -> None:
    """When it brings its lines to the disk: nothing comes any more with which it would look again."""
    code = "import pathlib, sys, time; from futebus.commands import record; from futebus.recorder import upkeep\n"
    code += "def sync(self, synced=upkeep.Upkeep._sync):\n"
    code += " while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    code += " synced(self)\n"
    code += "upkeep.Upkeep._sync = sync; sys.exit(record.main(sys.argv[2:]))"
    recorder = recording(bus / "B_x", command=[sys.executable, "-c", code, str(place / "harmed")])
    (bus / "B_x").write_bytes(numbered(0, 100))
    until(lambda: Spool(recorder.spool).end == 100, "they are taken")
    assert bash(harm, cwd=recorder.spool).returncode == 0
    (place / "harmed").touch()
    if is_told:
        recorder.process.send_signal(signal.SIGTERM)
    assert recorder.process.wait(DEADLINE) == 1
    assert f"{recorder.spool} has lost its newest file while that was written" in recorder.words


@pytest.mark.parametrize("harm", ["rm *.index", "truncate -s 0 *.index", "truncate -s 40 *.index"])
def test_lines_are_found_again_whose_index_was_destroyed_before_the_drain_died(
    bus: Mount, recording: Recording, harm: str
) -> None:
    recorder = recording(bus / "U_x")
    (bus / "U_x").write_bytes(numbered(0, 100))
    until(lambda: Spool(recorder.spool).end == 100, "they are taken")
    identity, drain = Spool(recorder.spool).id, recorder.drain()
    stop(drain)
    assert bash(harm, cwd=recorder.spool).returncode == 0
    os.kill(drain, signal.SIGKILL)
    recorder.wait_for("the next one goes on")
    (bus / "U_x").write_bytes(numbered(100, 120))

    def are_there() -> bool:
        try:
            return Spool(recorder.spool).end == 120
        except NotASpool:  # the drain has not looked yet
            return False

    until(are_there, "all are there")
    recorder.end()
    spool = Spool(recorder.spool)
    assert (spool.id, lines_of(spool)) == (identity, numbered(0, 120))
    if "40" not in harm:  # else there is still the first mark
        assert f"{recorder.spool}/{0:020d}.index is damaged; its lines are found without it\n" in recorder.words


def test_retention(bus: Mount, recording: Recording, start: Start) -> None:
    recorder = recording(bus / "U_x", "--keep-bytes", "2M")
    running = writers(start, bus / "U_x", 1, 100_000)
    assert running[0].wait(DEADLINE) == 0
    until(lambda: Spool(recorder.spool).end == 100_000, "it is taken")
    until(lambda: Spool(recorder.spool).begin >= 60_000, "the old ones are gone")
    recorder.end()
    kept = lines_of(recorder.spool)
    assert 2 << 20 <= len(kept) <= 4 << 20
    assert kept.split(b" ", 2)[1] == b"%d" % Spool(recorder.spool).begin


def test_lines_that_are_too_old_go_without_new_ones(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "B_x", "--keep-age", "0.2s")
    (bus / "B_x").write_bytes(numbered(0, 10))
    until(lambda: (spool := Spool(recorder.spool)).begin == spool.end == 10, "they are gone")
    recorder.end()
