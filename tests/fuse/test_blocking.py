"""Waiting: for messages, for a full master; who is delayed by it and who is not, and what signals do."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from ..helpers.mounts import SHOWN, Mount, Mounting, bash
from ..helpers.programs import Start
from ..helpers.signals import at_a_signal
from ..helpers.waiting import DEADLINE, until


class Alarm(Exception):
    """The signal handler was run."""


@contextmanager
def alarm(when_blocked: Mount, channel: str, kind: str, *, ends: bool = True) -> Iterator[None]:
    """Sends this process a SIGALRM as soon as a client of the channel is blocked in a read or write. It `ends` what is done."""

    def wait() -> None:
        when_blocked.wait_for_clients(1, channel, waits=kind)

    def handle() -> None:
        if ends:
            raise Alarm

    with at_a_signal(wait, handle, number=signal.SIGALRM), pytest.raises(Alarm) if ends else nullcontext():
        yield


def test_a_signal_ends_a_read_and_no_message_is_lost(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    with alarm(bus, "B_x", "read"):
        os.read(reader, 100)
    (bus / "B_x").write_text("after\n")
    assert os.read(reader, 100) == b"after\n"
    os.close(reader)


def test_a_signal_ends_a_write_and_nothing_of_it_is_delivered(mounting: Mounting) -> None:
    bus = mounting("max_queue=2")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    slave = os.open(bus / "U_x", os.O_WRONLY)
    with alarm(bus, "U_x", "write", ends=False):
        assert os.write(slave, b"one\ntwo\nthree\n") == 8, "a short count, since something was accepted"
    with alarm(bus, "U_x", "write"):
        os.write(slave, b"three\n")
    assert [os.read(master, 100) for _ in range(2)] == [b"one\n", b"two\n"]
    os.write(slave, b"four\n")
    assert os.read(master, 100) == b"four\n"
    os.close(slave)
    os.close(master)


def test_a_write_that_waits_goes_on_until_all_is_accepted(mounting: Mounting) -> None:
    """As on a pipe. Others have their turn meanwhile."""
    bus = mounting("max_queue=2")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    slaves = [os.open(bus / "U_x", os.O_WRONLY) for _ in range(2)]
    texts = [b"".join(b"%d %d\n" % (number, line) for line in range(count)) for number, count in enumerate((1000, 10))]
    counts = [0, 0]

    def write(number: int) -> None:
        counts[number] = os.write(slaves[number], texts[number])

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for number, writer in enumerate(writers):
        writer.start()
        bus.wait_for_blocked_writers(number + 1, "U_x")
    got = [os.read(master, 100) for _ in range(1010)]
    for writer in writers:
        writer.join()
    assert counts == [len(text) for text in texts]
    for number, text in enumerate(texts):
        assert b"".join(line for line in got if line.startswith(b"%d " % number)) == text
    assert got.index(b"1 9\n") < 100, "the short one has not waited for the end of the long one"
    for slave in slaves:
        os.close(slave)
    os.close(master)


def test_a_storm_of_signals_loses_and_doubles_nothing(bus: Mount, start: Start) -> None:
    """A reader whose reads are interrupted all the time, by a handler that the system call does not survive."""
    bus.touch("B_x")
    code = f"""
import os, signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
descriptor = os.open({str(bus / "B_x")!r}, os.O_RDONLY)
expected = 0
while expected < 3000:
    assert os.read(descriptor, 100) == b"%d\\n" % expected
    expected += 1
print("all")
"""
    reader = start(sys.executable, "-c", code)
    bus.wait_for_clients(1, "B_x")
    writer = os.open(bus / "B_x", os.O_WRONLY)
    for number in range(3000):
        os.write(writer, b"%d\n" % number)
        if number % 100 == 0:
            time.sleep(0)  # give the reader a chance to wait
    assert reader.communicate(timeout=DEADLINE)[0] == "all\n"
    os.close(writer)
    bus.wait_for_clients(0, "B_x")


def test_nonblocking_counts_as_it_is_now(mounting: Mounting) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    slave = os.open(bus / "U_x", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        os.read(master, 100)
    os.write(slave, b"one\n")
    fcntl.fcntl(slave, fcntl.F_SETFL, os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        os.write(slave, b"two\n")
    with pytest.raises(BlockingIOError):
        os.read(slave, 100)
    fcntl.fcntl(master, fcntl.F_SETFL, 0)
    assert os.read(master, 100) == b"one\n"
    with alarm(bus, "U_x", "read"):
        os.read(master, 100)
    os.close(slave)
    os.close(master)


def test_a_descriptor_is_read_and_written_at_once(bus: Mount) -> None:
    """One thread blocked in a read of a descriptor, another writes the same one."""
    both = os.open(bus / "A_x", os.O_RDWR | os.O_CREAT)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(os.read(both, 100)))
    reader.start()
    bus.wait_for_readers(1, "A_x")
    os.write(both, b"{1}to myself\n")
    reader.join(DEADLINE)
    assert got == [b"{1}to myself\n"]
    os.close(both)


def test_several_reads_of_one_descriptor_get_a_message_each(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    got: list[bytes] = []
    threads = [threading.Thread(target=lambda: got.append(os.read(reader, 100))) for _ in range(3)]
    for thread in threads:
        thread.start()

    def all_wait() -> bool:
        calls = [Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split() for thread in threads]
        return all(call[1:2] == [hex(reader)] for call in calls)  # in a call whose first argument is the descriptor

    until(all_wait, "three reads wait")
    (bus / "B_x").write_text("1\n2\n3\n")
    for thread in threads:
        thread.join(DEADLINE)
    assert sorted(got) == [b"1\n", b"2\n", b"3\n"]
    os.close(reader)


WRITER = """
import os, sys
path, name, count = sys.argv[1:]
descriptor = os.open(path, os.O_WRONLY)
for number in range(int(count)):
    assert os.write(descriptor, b"%s %d\\n" % (name.encode(), number)) > 0
"""


def test_a_collector_gets_every_line_once_and_in_order_while_nobody_else_is_delayed(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=8")
    count, names = 10_000, "abcdefgh"
    master = os.open(bus / "+.U_log", os.O_RDWR | os.O_CREAT)
    listener = os.open(bus / "U_log", os.O_RDONLY)
    writers = [start(sys.executable, "-c", WRITER, bus / "U_log", name, count) for name in names]
    bus.wait_for_blocked_writers(8, "U_log")
    # The reader pauses. All writers are blocked; everybody else goes on.
    assert os.write(master, b"to all\n") == 7
    assert os.read(listener, 100) == b"to all\n"
    os.close(os.open(bus / "U_log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    assert (bus / "U_log").stat().st_size == 0
    bash(f"echo hello > {bus / 'B_new'}; rm {bus / 'B_new'}; rm {bus / 'U_log'}")
    assert os.listdir(bus.path) == SHOWN
    seen = dict.fromkeys(names, 0)
    received = b""
    while sum(seen.values()) < count * len(names):
        received += os.read(master, 65536)
        lines = received.split(b"\n")
        received = lines.pop()
        for line in lines:
            name, number = line.decode().split()
            assert int(number) == seen[name]
            seen[name] += 1
    assert [writer.wait(DEADLINE) for writer in writers] == [0] * 8
    os.close(listener)
    os.close(master)


def test_blocked_writers_are_served_in_their_order(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    bash(f"echo first > {bus / 'U_x'}")
    for number in range(5):
        start("bash", "-c", f"echo {number} > {bus / 'U_x'}")
        bus.wait_for_blocked_writers(number + 1, "U_x")
    assert [os.read(master, 100) for _ in range(6)] == [b"first\n", *(b"%d\n" % number for number in range(5))]
    os.close(master)


@pytest.mark.parametrize("letter", ["U", "S"])
def test_blocked_writers_fail_when_the_master_closes(mounting: Mounting, start: Start, letter: str) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / f".{letter}_x", os.O_RDWR | os.O_CREAT)
    bash(f"echo first > {bus / f'{letter}_x'}")
    writer = start("bash", "-c", f"echo late > {bus / f'{letter}_x'}")
    bus.wait_for_blocked_writers(1, f"{letter}_x")
    os.close(master)
    assert "No such process" in writer.communicate(timeout=DEADLINE)[1]


def test_slaves_of_a_dead_master_read_what_they_have_then_the_end(bus: Mount) -> None:
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    slave = os.open(bus / "U_x", os.O_RDWR)
    os.write(master, b"one\ntwo\n")
    os.close(master)
    until(lambda: not (bus / "U_x").exists(), "the channel is dead")
    newcomer = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    os.write(newcomer, b"not for you\n")
    assert [os.read(slave, 100) for _ in range(3)] == [b"one\n", b"two\n", b""]
    with pytest.raises(ProcessLookupError):
        os.write(slave, b"hello?\n")
    os.close(slave)
    os.close(newcomer)


def test_a_read_blocked_on_a_channel_whose_master_dies_gets_the_end(bus: Mount, start: Start) -> None:
    master = start(
        sys.executable, "-c", f"import os, time; os.open({str(bus / '.S_x')!r}, os.O_RDWR | os.O_CREAT); time.sleep(100)"
    )
    until(lambda: (bus / "S_x").exists(), "the master is there")
    reader = start("cat", bus / "S_x")
    bus.wait_for_readers(1, "S_x")
    master.kill()
    assert reader.wait(DEADLINE) == 0
    assert reader.communicate()[0] == ""


def test_two_thousand_blocked_readers_hinder_nobody(mounting: Mounting, start: Start) -> None:
    """Each a process of its own, so that each wakes, reads and dies like one."""
    bus = mounting()
    bus.touch("B_x")
    code = f"""
import os, sys
ends = os.pipe()
for _ in range(2000):
    if not os.fork():
        descriptor = os.open({str(bus / "B_x")!r}, os.O_RDONLY)
        os.write(1, os.read(descriptor, 100))
        os.read(descriptor, 100)
        os._exit(1)
print("forked", flush=True)
os.read(ends[0], 1)
"""
    readers = start(sys.executable, "-c", code)
    assert readers.stdout
    assert readers.stdout.readline() == "forked\n"
    bus.wait_for_readers(2000, "B_x")
    assert os.listdir(bus.path) == [*SHOWN, "B_x"]
    other = os.open(bus / "B_y", os.O_RDWR | os.O_CREAT)
    (bus / "B_y").write_text("other\n")
    assert os.read(other, 100) == b"other\n"
    os.close(other)
    (bus / "B_x").write_text("go\n")
    assert [readers.stdout.readline() for _ in range(2000)] == ["go\n"] * 2000
    bus.wait_for_readers(2000, "B_x")
    os.killpg(readers.pid, signal.SIGKILL)
    bus.wait_for_clients(0, "B_x")


def test_an_error_inside_answers_eio_and_the_bus_goes_on(mounting: Mounting) -> None:
    """A fault injected into the core: the caller gets EIO, the log a traceback."""
    code = """
import sys
from futebus.core import bus
from futebus.commands.futebus import main
def fail(what):
    def wrapped(original):
        def call(*arguments, **keywords):
            if any(b"boom" in word for word in arguments if isinstance(word, bytes)):
                raise RuntimeError("boom in " + what)
            return original(*arguments, **keywords)
        return call
    return wrapped
for name in ("write", "create", "look_up"):
    setattr(bus.Bus, name, fail(name)(getattr(bus.Bus, name)))
sys.exit(main(sys.argv[1:]))
"""
    bus = mounting(command=[sys.executable, "-c", code])
    bus.expects_errors = True
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    writer = os.open(bus / "B_x", os.O_WRONLY)
    calls: list[Callable[[], object]] = [
        lambda: os.write(writer, b"boom\n"),
        lambda: os.stat(bus / "B_boom"),
        lambda: os.open(bus / "B_boom", os.O_WRONLY | os.O_CREAT),
    ]
    for call in calls:
        with pytest.raises(OSError, match="Input/output error"):
            call()
    os.write(writer, b"fine\n")
    assert os.read(reader, 100) == b"fine\n"
    until(lambda: bus.words.count("Traceback") == 3, "the log tells of each")
    assert "B_x: client {2}, " in bus.words
    os.close(reader)
    os.close(writer)


def test_asynchronous_reads_do_not_keep_others_from_closing(bus: Mount) -> None:
    """Many reads that wait must not use up what the kernel allows in the background, where closing happens."""
    readers = [os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT) for _ in range(40)]
    threads = [threading.Thread(target=os.read, args=(reader, 100)) for reader in readers]
    for thread in threads:
        thread.start()
    bus.wait_for_readers(40, "B_x")
    for _ in range(50):
        os.close(os.open(bus / "B_x", os.O_RDONLY))
    bus.wait_for_clients(40, "B_x")
    (bus / "B_x").write_text("go\n")
    for thread in threads:
        thread.join(DEADLINE)
    for reader in readers:
        os.close(reader)


def test_nothing_is_left_of_clients_that_were_killed(mounting: Mounting, start: Start) -> None:
    """Readers, writers and a master, killed at random moments while messages fly."""
    bus = mounting("max_queue=4")
    bus.touch("B_x")
    for _ in range(15):
        master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
        cats = [start("cat", bus / "B_x", stdout=subprocess.DEVNULL) for _ in range(3)]
        writers = [start(sys.executable, "-c", WRITER, bus / "U_x", "w", 10**9) for _ in range(2)]
        writers.append(start(sys.executable, "-c", WRITER, bus / "B_x", "w", 10**9))
        bus.wait_for_clients(1, "U_x", role="master")
        assert os.read(master, 100) == b"w 0\n"
        for process in (*cats, *writers):
            process.kill()
        for process in (*cats, *writers):
            process.wait(DEADLINE)
        os.close(master)
        until(lambda: not (bus / "U_x").exists(), "the channel is gone")
    bus.wait_for_clients(0, "B_x")
    assert bus.clients() == []


def test_a_master_that_goes_with_lines_unread_is_told_of_in_the_log(bus: Mount) -> None:
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    (bus / "U_jobs").write_text("one\ntwo\nthree\n")
    assert os.read(master, 100) == b"one\n"
    os.close(master)
    words = f"U_jobs: client {{1}}, process {os.getpid()} of user 0: it was the master and has closed with 2 messages unread"
    until(lambda: words in bus.words, "the log tells")


def test_a_master_that_has_read_everything_is_not(bus: Mount) -> None:
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    (bus / "U_jobs").write_text("one\n")
    assert os.read(master, 100) == b"one\n"
    os.close(master)
    until(lambda: not (bus / "U_jobs").exists(), "the channel has gone")
    assert "unread" not in bus.words
