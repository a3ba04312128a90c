"""How a recorder ends when somebody is impatient, or seems so, and when the bus hangs; and what if nobody reads its words."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.recorder.saying import Sayer
from futebus.spool import Spool

from ..helpers.descriptors import leave
from ..helpers.mounts import Mount
from ..helpers.processes import inside_fuse, stack_of
from ..helpers.programs import Start
from ..helpers.recorders import RECORD, Recorder, Recording, is_alive, kill
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import lines_of, numbered

UNKNOWN = "ended before everything that was queued was taken; how much of it is lost, the bus does not say\n"


# ---------------------------------------------------------------------------------------------- a signal and its twin


def test_a_signal_and_its_twin_in_a_pause_are_one(bus: Mount, recording: Recording) -> None:
    """The first is taken in the pause, the second by who watches the drain. The kernel keeps both, since they differ."""
    code = "import sys; from futebus.commands import record; from futebus.recorder import holder; made = holder.Holder.__init__\n"
    code += "def __init__(self, *given): made(self, *given); self._brief_lives = 100_000\n"
    code += "holder.Holder.__init__ = __init__; sys.exit(record.main())"
    recorder = recording(bus / "U_x", command=[sys.executable, "-c", code])
    kill(recorder.drain())
    recorder.wait_for("the next one goes on")
    (bus / "U_x").write_bytes(numbered(0, 1000))
    os.kill(recorder.holder, signal.SIGSTOP)
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
    os.kill(drain, signal.SIGSTOP)
    (bus / "U_x").write_bytes(numbered(0, 1000))
    os.kill(drain, signal.SIGTERM)
    kill(recorder.holder)
    os.kill(drain, signal.SIGCONT)
    until(lambda: not is_alive(drain), "it has ended")
    assert lines_of(recorder.spool) == numbered(0, 1000), recorder.words
    assert UNKNOWN not in recorder.words


# ---------------------------------------------------------------------------------------------- a bus that hangs


@pytest.fixture
def hanging(bus: Mount) -> Iterator[Mount]:
    """Its daemon is stopped when the test has made what it needs of it, and goes on at the end."""
    yield bus
    bus.daemon.send_signal(signal.SIGCONT)


def test_one_whose_drain_always_fails_is_ended_while_the_bus_hangs(hanging: Mount, recording: Recording) -> None:
    recorder = recording(hanging / "U_x")
    drain = recorder.drain()
    hanging.daemon.send_signal(signal.SIGSTOP)
    leave(recorder.holder, 2)  # enough to start it, and not for anything that it does
    kill(drain)
    recorder.wait_for(f"{recorder.spool}: Too many open files\n")
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == 1
    assert recorder.words.endswith(UNKNOWN)


def test_a_drain_without_a_holder_is_ended_while_the_bus_hangs(hanging: Mount, recording: Recording) -> None:
    recorder = recording(hanging / "U_x")
    drain = recorder.drain()
    hanging.daemon.send_signal(signal.SIGSTOP)
    until(lambda: inside_fuse(stack_of(f"{drain}/task/{drain}")), "it asks the bus whether it is still there")
    kill(recorder.holder)
    os.kill(drain, signal.SIGTERM)
    until(lambda: not is_alive(drain), "it has ended")
    assert recorder.words.endswith(UNKNOWN)


def test_a_second_signal_ends_a_drain_without_a_holder_at_once(hanging: Mount, recording: Recording) -> None:
    code = "import sys; from futebus.commands import record; from futebus.recorder import holder, worker\n"
    code += "worker.END_SECONDS = 1e6; sys.exit(record.main())"
    recorder = recording(hanging / "U_x", command=[sys.executable, "-c", code])
    drain = recorder.drain()
    hanging.daemon.send_signal(signal.SIGSTOP)
    until(lambda: inside_fuse(stack_of(f"{drain}/task/{drain}")), "it asks the bus whether it is still there")
    kill(recorder.holder)

    def has_ended() -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(drain, signal.SIGTERM)
        return not is_alive(drain)

    until(has_ended, "it has ended")
    assert recorder.words.endswith(UNKNOWN)


def test_a_drain_that_was_told_to_end_by_a_holder_that_died_is_ended_while_the_bus_hangs(
    hanging: Mount, recording: Recording
) -> None:
    code = "import os, signal, sys; from futebus.commands import record; from futebus.recorder import holder\n"
    code += "tell = holder._tell_to_finish\n"
    code += "def telling(control): tell(control); os.kill(os.getpid(), signal.SIGKILL)\n"
    code += "holder._tell_to_finish = telling; sys.exit(record.main())"
    recorder = recording(hanging / "U_x", command=[sys.executable, "-c", code])
    drain = recorder.drain()
    hanging.daemon.send_signal(signal.SIGSTOP)
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == -signal.SIGKILL
    until(lambda: not is_alive(drain), "it has ended")
    assert recorder.words.endswith(UNKNOWN)


# ---------------------------------------------------------------------------------------------- nobody reads what it says


def fill(pipe: int) -> int:
    """Fills a pipe. Returns how many bytes it has taken."""
    count = 0
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            count += os.write(pipe, b"x" * 512)
    os.set_blocking(pipe, True)
    return count


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
    assert unread.words().endswith("spool\n" + "x" * count)


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


def test_messages_that_nobody_reads_are_counted(unread: Unread) -> None:
    sayer = Sayer(unread.writer)
    fill(unread.writer)
    for number in range(3):
        sayer.say("command", f"lost {number}", "utf-8")
    assert "lost" not in unread.words()
    sayer.say("command", "heard", "utf-8")
    sayer.say("command", "a word in \N{GREEK SMALL LETTER ALPHA}", "ascii")
    missing = "command: (3 lines were not logged: nobody read them in time)"
    assert unread.words().endswith(f"x{missing}\ncommand: heard\ncommand: a word in \\u03b1\n")
    unread.abandon()
    sayer.say("command", "nobody hears this", "utf-8")


def test_a_long_message_is_said_whole(unread: Unread) -> None:
    sayer = Sayer(unread.writer)
    sayer.say("command", "long " * 5000, "utf-8")
    assert unread.words() == f"command: {'long ' * 5000}\n"
