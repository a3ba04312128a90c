"""How a recorder ends when somebody is impatient, or seems so, and when the bus hangs; and what if nobody reads its words."""

import contextlib
import os
import pty
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from futebus.client.channel import RETRY_SECONDS
from futebus.recorder.saying import Sayer
from futebus.recorder.worker import END_SECONDS, HEARD_SECONDS, INSISTING_SECONDS
from futebus.spool import Spool

from ..helpers.descriptors import fill, leave
from ..helpers.mounts import Mount, hanging
from ..helpers.processes import inside_fuse, stack_of, state_of
from ..helpers.programs import Start, stop
from ..helpers.recorders import RECORD, TIRED, Recorder, Recording, Remounting, is_alive, kill
from ..helpers.recorders import fill as fill_disk
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import lines_of, numbered
from ..spool.writers import writers

LINES = 60
"""How many a recorder takes in its end, slowly. On a busy machine it takes each more slowly still, and has four seconds."""

UNKNOWN = "ended before everything that was queued was taken; how much of it is lost, the bus does not say\n"


Hang = Callable[[], None]


@pytest.fixture
def hang(bus: Mount) -> Iterator[Hang]:
    """Has the bus hang from when a test has made what it needs of it."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(hanging(bus))


def test_who_waits_for_a_bus_may_be_stopped_meanwhile(bus: Mount, remounting: Remounting, recording: Recording) -> None:
    """By Ctrl-Z, or frozen with a whole machine, until the pause is long over."""
    recorder = recording(bus / "U_x")
    bus.daemon.kill()
    bus.daemon.wait()
    recorder.wait_for("; waiting")
    for _ in range(3):
        stop(recorder.holder)
        stopped = time.monotonic()
        until(lambda: time.monotonic() > stopped + 2 * RETRY_SECONDS[1], "its pause is over")  # noqa: B023
        os.kill(recorder.holder, signal.SIGCONT)
        until(lambda: state_of(recorder.holder) != "T", "it goes on")
    again = remounting(bus)
    recorder.wait_for("back after")
    (again / "U_x").write_bytes(numbered(0, 10))
    until(lambda: lines_of(recorder.spool) == numbered(0, 10), "they are recorded")
    recorder.end()


@pytest.mark.parametrize("first", ["holder", "drain"])
@pytest.mark.parametrize("has_begun", [False, True])
def test_who_ends_may_be_stopped_meanwhile(bus: Mount, recording: Recording, first: str, has_begun: bool) -> None:
    """The time in which both could do nothing is none that the bus or the disk has taken."""
    # A line at a time, and slowly.
    code = "import sys, time; from futebus.commands import record; from futebus.recorder import drain\n"
    code += f"drain.READ_BYTES, read = {len(numbered(0, 1))}, drain.Drain._read\n"
    code += "drain.Drain._read = lambda *args: time.sleep(0.005) or read(*args)\n"
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", f"{code}sys.exit(record.main())"])
    both = [recorder.holder, drain := recorder.drain()]
    stop(drain)
    (bus / "U_x").write_bytes(numbered(0, LINES))
    os.kill(recorder.holder, signal.SIGTERM)
    until(lambda: not (bus / "U_x").exists(), "it ends")
    if has_begun:
        os.kill(drain, signal.SIGCONT)
        until(lambda: Spool(recorder.spool).end > 0, "it takes what waits")
    for each in reversed(both):
        with contextlib.suppress(ProcessLookupError):  # the drain may have taken all by now
            stop(each)
    stopped = time.monotonic()
    until(lambda: time.monotonic() > stopped + END_SECONDS + 1, "running ones would have ended")
    for each in both if first == "holder" else reversed(both):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGCONT)
    assert recorder.process.wait(DEADLINE) == 0, recorder.words
    assert lines_of(recorder.spool) == numbered(0, LINES)
    assert "removed" not in recorder.words, "it is the recorder that has done it"


# ---------------------------------------------------------------------------------------------- a signal and its twin


def test_a_signal_and_its_twin_in_a_pause_are_one(bus: Mount, recording: Recording) -> None:
    """The first is taken in the pause, the second by who watches the drain. The kernel keeps both, since they differ."""
    recorder = recording(bus / "U_x", command=TIRED)
    kill(recorder.drain())
    recorder.wait_for("the next one goes on")
    (bus / "U_x").write_bytes(numbered(0, 1000))
    stop(recorder.holder)
    os.kill(recorder.holder, signal.SIGTERM)
    os.kill(recorder.holder, signal.SIGINT)
    os.kill(recorder.holder, signal.SIGCONT)
    assert recorder.process.wait(DEADLINE) == 0, recorder.words
    assert lines_of(recorder.spool) == numbered(0, 1000)


def test_a_signal_and_its_twin_at_a_takeover_are_one(bus: Mount, recording: Recording) -> None:
    """The first comes before the holder dies, the second when the drain has taken over."""
    code = "import os, signal, sys; from futebus.commands import record; from futebus.spool import SpoolLock\n"
    code += "first, sign = os.getpid(), SpoolLock.sign\n"
    code += "def signing(lock):\n"
    code += " sign(lock)\n"
    code += " if os.getpid() != first: os.kill(os.getpid(), signal.SIGTERM)\n"
    code += "SpoolLock.sign = signing; sys.exit(record.main())"
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", code])
    drain = recorder.drain()
    stop(drain)
    (bus / "U_x").write_bytes(numbered(0, 1000))
    os.kill(drain, signal.SIGTERM)
    kill(recorder.holder)
    os.kill(drain, signal.SIGCONT)
    until(lambda: not is_alive(drain), "it has ended")
    assert lines_of(recorder.spool) == numbered(0, 1000), recorder.words
    assert UNKNOWN not in recorder.words


def test_a_signal_and_its_twin_are_one_though_the_bus_does_not_answer_meanwhile(
    bus: Mount, hang: Hang, recording: Recording
) -> None:
    code = "import sys; from futebus.recorder import worker; worker.END_SECONDS = 1e6\n"  # what the holder takes over, too
    code += "from futebus.commands import record; sys.exit(record.main())"
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", code])
    drain = recorder.drain()
    stop(drain)
    (bus / "U_x").write_bytes(numbered(0, 1000))
    hang()
    stop(recorder.holder)  # or it might be insistent, since one comes so much later than the other
    for number in (signal.SIGTERM, signal.SIGINT):
        recorder.process.send_signal(number)
    os.kill(recorder.holder, signal.SIGCONT)
    tasks = Path(f"/proc/{recorder.holder}/task")
    until(
        lambda: any(inside_fuse(stack_of(f"{recorder.holder}/task/{task.name}")) for task in tasks.iterdir()), "it asks the bus"
    )
    begin = time.monotonic()
    until(lambda: time.monotonic() > begin + 1.2 * INSISTING_SECONDS, "it would be insistent now")
    bus.daemon.send_signal(signal.SIGCONT)
    until(lambda: not (bus / "U_x").exists(), "the bus has answered")
    os.kill(drain, signal.SIGCONT)
    assert recorder.process.wait(DEADLINE) == 0, recorder.words
    assert lines_of(recorder.spool) == numbered(0, 1000)


def test_what_was_accepted_while_it_opened_its_channel_is_recorded_though_it_is_to_end(
    bus: Mount, place: Path, start: Start
) -> None:
    code = "import os, signal, sys, time; from futebus.commands import record; from futebus.recorder import channel\n"
    code += "opened = channel.open_channel\n"
    code += "def opening(path, *given):\n"
    code += " descriptor = opened(path, *given)\n"
    code += " path.write_bytes(b'one\\n')\n"
    code += " os.kill(os.getpid(), signal.SIGTERM)\n"
    code += " while signal.SIGTERM in signal.sigpending(): time.sleep(0.001)\n"
    code += " return descriptor\n"
    code += "channel.open_channel = opening; sys.exit(record.main())"
    process = start(sys.executable, "-c", code, bus / "U_x", place / "spool")
    assert process.wait(DEADLINE) == 0
    assert lines_of(place / "spool") == b"one\n"


# ---------------------------------------------------------------------------------------------- who hangs, or is killed


@pytest.mark.parametrize("count", [0, 10])
def test_a_drain_that_cannot_be_killed_is_not_waited_for(bus: Mount, recording: Recording, count: int) -> None:
    """The kernel does so with one that waits for a disk that is frozen."""
    code = "import os, signal, sys; from futebus.commands import record; kill = os.kill\n"
    code += "os.kill = lambda pid, number: None if number == signal.SIGKILL else kill(pid, number)\n"
    code += "sys.exit(record.main())"
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", code])
    drain = recorder.drain()
    stop(drain)
    try:
        (bus / "U_x").write_bytes(numbered(0, count))
        recorder.process.terminate()
        assert recorder.process.wait(DEADLINE) == (1 if count else 0)
    finally:
        kill(drain)
    assert f"the drain (process {drain}) cannot be killed yet: the bus hangs, or the disk\n" in recorder.words
    told = "ended before everything that was queued was taken; 10 lines of it are lost\n"
    assert recorder.words.endswith(told if count else "the disk\n")


DYING = "import os, signal, sys; from futebus.commands import record; from futebus.recorder import holder\n"
DYING += "first, tell = os.getpid(), holder._tell_to_finish\n"
DYING += "def telling(*given): tell(*given); os.getpid() == first and os.kill(first, signal.SIGKILL)\n"
DYING += "holder._tell_to_finish = telling; sys.exit(record.main())"
"""A recorder whose holder dies when it has told the drain to end."""


def test_what_is_lost_is_said_though_the_holder_has_died(
    bus: Mount, recording: Recording, small_disk: Path, start: Start
) -> None:
    """The drain has taken over, with what the holder was told."""
    recorder = recording(bus / "U_x", "--segment-bytes", "1M", spool=small_disk / "spool", command=[sys.executable, "-c", DYING])
    drain = recorder.drain()
    fill_disk(small_disk / "ballast")
    [writer] = writers(start, bus / "U_x", 1, 80_000)
    recorder.wait_for("its writers wait until there is room")
    until(lambda: bus.channel("U_x")["messages_in"] > Spool(recorder.spool).end + 1000, "lines wait")
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == -signal.SIGKILL
    until(lambda: not is_alive(drain), "it has ended")
    writer.wait(DEADLINE)
    assert re.search(r"ended before everything that was queued was taken; \d+ lines of it are lost", recorder.words)


def test_what_waits_in_the_end_is_taken_though_the_disk_has_room_for_it_late(
    bus: Mount, recording: Recording, small_disk: Path, start: Start
) -> None:
    """Later than those are heard who go on writing."""
    code = "import sys; from futebus.recorder import worker; worker.FINISH_SECONDS = worker.END_SECONDS = 1e6\n"
    code += "from futebus.commands import record; sys.exit(record.main())"
    command = [sys.executable, "-c", code]
    recorder = recording(bus / "U_x", "--segment-bytes", "1M", spool=small_disk / "spool", command=command)
    fill_disk(small_disk / "ballast")
    [writer] = writers(start, bus / "U_x", 1, 80_000)
    recorder.wait_for("its writers wait until there is room")
    accepted = bus.channel("U_x")["messages_in"]
    recorder.process.terminate()
    until(lambda: not (bus / "U_x").exists(), "the channel is ended")
    writer.wait(DEADLINE)
    begin = time.monotonic()
    until(lambda: time.monotonic() > begin + 2 * HEARD_SECONDS, "nobody else would be heard")
    (small_disk / "ballast").unlink()
    assert recorder.process.wait(DEADLINE) == 0, recorder.words
    assert "lost" not in recorder.words
    assert Spool(recorder.spool).end >= accepted


# ---------------------------------------------------------------------------------------------- a bus that hangs


def test_a_second_signal_ends_it_at_once_while_the_bus_is_asked(bus: Mount, hang: Hang, recording: Recording) -> None:
    code = "import sys; from futebus.recorder import worker; worker.END_SECONDS = 1e6\n"
    code += "from futebus.commands import record; sys.exit(record.main())"
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", code])
    hang()

    def has_ended() -> bool:
        with contextlib.suppress(ProcessLookupError):
            recorder.process.terminate()
        return recorder.process.poll() is not None

    until(has_ended, "it has ended")
    assert recorder.words.endswith(UNKNOWN)


def test_one_whose_drain_always_fails_is_ended_while_the_bus_hangs(bus: Mount, hang: Hang, recording: Recording) -> None:
    recorder = recording(bus / "U_x")
    drain = recorder.drain()
    hang()
    leave(recorder.holder, 2)  # enough to start it, and not for anything that it does
    kill(drain)
    recorder.wait_for(f"{recorder.spool}: Too many open files\n")
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == 1
    assert recorder.words.endswith(UNKNOWN)


def test_a_drain_without_a_holder_is_ended_while_the_bus_hangs(bus: Mount, hang: Hang, recording: Recording) -> None:
    recorder = recording(bus / "U_x")
    drain = recorder.drain()
    hang()
    until(lambda: inside_fuse(stack_of(f"{drain}/task/{drain}")), "it asks the bus whether it is still there")
    kill(recorder.holder)
    os.kill(drain, signal.SIGTERM)
    until(lambda: not is_alive(drain), "it has ended")
    assert recorder.words.endswith(UNKNOWN)


def test_a_second_signal_ends_a_drain_without_a_holder_at_once(bus: Mount, hang: Hang, recording: Recording) -> None:
    code = "import sys; from futebus.commands import record; from futebus.recorder import holder, worker\n"
    code += "worker.END_SECONDS = 1e6; sys.exit(record.main())"
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", code])
    drain = recorder.drain()
    hang()
    until(lambda: inside_fuse(stack_of(f"{drain}/task/{drain}")), "it asks the bus whether it is still there")
    kill(recorder.holder)

    def has_ended() -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(drain, signal.SIGTERM)
        return not is_alive(drain)

    until(has_ended, "it has ended")
    assert recorder.words.endswith(UNKNOWN)


def test_a_drain_that_was_told_to_end_by_a_holder_that_died_is_ended_while_the_bus_hangs(
    bus: Mount, hang: Hang, recording: Recording
) -> None:
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", DYING])
    drain = recorder.drain()
    hang()
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == -signal.SIGKILL
    until(lambda: not is_alive(drain), "it has ended")
    assert recorder.words.endswith(UNKNOWN)


# ---------------------------------------------------------------------------------------------- nobody reads what it says


class Unread:
    """A pipe, and what was read from it so far."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._words = b""

    def words(self) -> str:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reader, 65536):
                self._words += data
        return self._words.decode()

    def abandon(self) -> None:
        """Nobody will read it any more."""
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1

    def close(self) -> None:
        self.abandon()
        os.close(self.writer)


@pytest.fixture
def unread() -> Iterator[Unread]:
    pipe = Unread()
    yield pipe
    pipe.close()


@pytest.fixture
def unheard(bus: Mount, place: Path, start: Start, unread: Unread) -> Recorder:
    """A recorder of `U_x` that speaks there."""
    process = start(*RECORD, bus / "U_x", place / "spool", stderr=unread.writer)
    until(lambda: "recording " in unread.words(), "it records")
    return Recorder(process, place / "spool", Path("/dev/null"))


def test_a_recorder_whose_words_nobody_reads_goes_on_and_ends(bus: Mount, unheard: Recorder, unread: Unread) -> None:
    said = len(unread.words())
    count = fill(unread.writer)
    kill(unheard.drain())
    (bus / "U_x").write_bytes(numbered(0, 10))
    until(lambda: Spool(unheard.spool).end == 10, "the next drain takes them")
    holder, drain = unheard.holder, unheard.drain()
    kill(holder)
    until(lambda: unheard.holder == drain, "it holds the channel")
    os.kill(drain, signal.SIGTERM)
    until(lambda: not is_alive(drain), "it has ended")
    assert lines_of(unheard.spool) == numbered(0, 10)
    assert len(unread.words()) == said + count


def test_a_recorder_whose_words_are_read_again_tells_how_many_are_missing(unheard: Recorder, unread: Unread) -> None:
    fill(unread.writer)
    kill(unheard.drain())
    second = unheard.drain()
    assert "the drain" not in unread.words()
    kill(second)
    until(lambda: "SIGKILL" in unread.words(), "it is said")
    missing = "(1 line was not logged: nobody read them in time)"
    assert f"futebus-record: {missing}\nfutebus-record: the drain (process {second}) was killed by SIGKILL" in unread.words()
    unheard.end()


def test_one_that_cannot_record_does_not_wait_until_somebody_reads_why(
    bus: Mount, recording: Recording, start: Start, unread: Unread
) -> None:
    recorder = recording(bus / "U_x")
    fill(unread.writer)
    process = start(*RECORD, bus / "U_y", recorder.spool, stderr=unread.writer)
    assert process.wait(DEADLINE) == 1
    recorder.end()


def test_messages_that_nobody_reads_are_counted(unread: Unread) -> None:
    sayer = Sayer(unread.writer)
    fill(unread.writer)
    for number in range(3):
        sayer.say("command", f"lost {number}", "utf-8")
    assert "lost" not in unread.words()
    sayer.say("command", "heard", "utf-8")
    sayer.say("command", "a word in \N{GREEK SMALL LETTER ALPHA}", "ascii")
    missing = "command: (3 lines were not logged: nobody read them in time)"
    assert unread.words().endswith(f"\n{missing}\ncommand: heard\ncommand: a word in \\u03b1\n")
    unread.abandon()
    sayer.say("command", "nobody hears this", "utf-8")


def test_a_long_message_is_said_whole(unread: Unread) -> None:
    sayer = Sayer(unread.writer)
    sayer.say("command", "long " * 5000, "utf-8")
    assert unread.words() == f"command: {'long ' * 5000}\n"


@pytest.mark.parametrize("length", [60, 100, 140])
def test_a_terminal_that_nobody_reads_is_not_waited_for(length: int) -> None:
    """It has room for a part of a line only, and is readable again later."""
    reader, terminal = pty.openpty()
    try:
        sayer = Sayer(terminal)

        def speak() -> None:
            for _ in range(2000):
                sayer.say("command", "x" * length, "utf-8")

        speaking = threading.Thread(target=speak, daemon=True)
        speaking.start()
        until(lambda: not speaking.is_alive(), "it has said all")
        os.set_blocking(reader, False)
        heard = b""

        def is_heard(word: bytes) -> bool:
            nonlocal heard
            with contextlib.suppress(BlockingIOError):
                heard += os.read(reader, 65536)
            return word in heard

        def is_empty() -> bool:
            before = len(heard)
            is_heard(b"")
            return len(heard) == before

        until(is_empty, "there is room")
        sayer.say("command", "the last", "utf-8")
        until(lambda: is_heard(b"the last\r\n"), "it is said")
        *_, missing, last = heard.decode().splitlines()
        assert last == "command: the last"
        assert re.fullmatch(r"command: \(\d+ lines were not logged: nobody read them in time\)", missing)
    finally:
        os.close(reader)
        os.close(terminal)
