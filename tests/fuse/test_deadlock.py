"""Nobody who writes may stand behind another who waits: masters that answer while their slaves wait, descriptors that are shared.

The watch over all processes (`helpers/watching.py`) fails each of these tests when somebody is in state D inside FUSE.
"""

import mmap
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..helpers.mounts import Mount, Mounting
from ..helpers.processes import members
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, is_readable, until
from ..helpers.watching import WATCH

SERVICE = """
import contextlib, os, sys
service = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(1, b"open\\n")
while line := os.read(service, 1000):
    if line.endswith((b":o}\\n", b":c}\\n")):
        continue
    address, bracket, text = line.rpartition(b"}")
    with contextlib.suppress(OSError):  # who has asked may have gone
        os.write(service, address + bracket + b"answer to " + text)
"""
"""One line is read, one is written: to a slave of S by its address, to all slaves of U."""

CLIENT = """
import os, sys, threading
path, reads, count = sys.argv[1], sys.argv[2] == "reads", int(sys.argv[3])
client = os.open(path, os.O_RDWR)
def read():
    while os.read(client, 1000):
        pass
if reads:
    threading.Thread(target=read, daemon=True).start()
for number in range(count):
    os.write(client, b"question %d\\n" % number)
print("written", flush=True)
os._exit(0)
"""
"""Writes without pause, and reads the answers beside it or never."""

COUNT = 3000
"""Questions: hundreds of times a queue."""


def expect_end(processes: "Sequence[subprocess.Popen[str]]") -> None:
    """`kill -9` works at once, whatever they are doing."""
    for process in processes:
        process.kill()
    for process in processes:
        until(lambda process=process: process.poll() is not None, f"process {process.pid} is dead")  # type: ignore[misc]


@pytest.mark.parametrize("letter", ["S", "U"])
@pytest.mark.parametrize("reads", ["reads", "deaf"])
def test_a_service_answers_a_client_that_writes_without_pause(mounting: Mounting, start: Start, letter: str, reads: str) -> None:
    bus = mounting("max_queue=8", "max_queue_bytes=1M")
    service = start(sys.executable, "-c", SERVICE, bus / f".{letter}_up")
    assert service.stdout
    assert service.stdout.readline() == "open\n"
    client = start(sys.executable, "-c", CLIENT, bus / f"{letter}_up", reads, COUNT)
    assert client.stdout
    assert client.stdout.readline() == "written\n"
    assert client.wait(DEADLINE) == 0
    expect_end([service])
    until(lambda: not (bus / f"{letter}_up").exists(), "the channel is gone")


@pytest.mark.parametrize("letter", ["S", "U"])
def test_client_and_service_can_be_killed_at_any_moment(mounting: Mounting, start: Start, letter: str) -> None:
    bus = mounting("max_queue=8")
    for _ in range(5):
        service = start(sys.executable, "-c", SERVICE, bus / f".{letter}_up")
        assert service.stdout
        assert service.stdout.readline() == "open\n"
        clients = [start(sys.executable, "-c", CLIENT, bus / f"{letter}_up", "deaf", 10**9) for _ in range(2)]
        until(lambda: bus.channel(f"{letter}_up")["messages_in"] > 100, "they talk")
        expect_end([clients[0], service, clients[1]])
        until(lambda: not (bus / f"{letter}_up").exists(), "the channel is gone")


@pytest.mark.parametrize("letter", ["S", "U"])
def test_a_master_writes_while_every_slave_waits(mounting: Mounting, start: Start, letter: str) -> None:
    """The first slave came when there was no other node than the master's, and all others when some were there."""
    bus = mounting("max_queue=1")
    master = os.open(bus / f".{letter}_x", os.O_RDWR | os.O_CREAT)
    slave = os.open(bus / f"{letter}_x", os.O_RDWR)
    writers = [start(sys.executable, "-c", CLIENT, bus / f"{letter}_x", "deaf", 100)]
    bus.wait_for_blocked_writers(1, f"{letter}_x")
    writers += [start(sys.executable, "-c", CLIENT, bus / f"{letter}_x", "deaf", 100) for _ in range(3)]
    bus.wait_for_blocked_writers(4, f"{letter}_x")
    address = b"{*}" if letter == "S" else b""
    for number in range(100):
        os.write(master, address + b"to all %d\n" % number)
        assert os.read(slave, 100) == b"to all %d\n" % number
    expect_end(writers)
    bus.wait_for_clients(2, f"{letter}_x")
    os.close(slave)
    os.close(master)


def test_a_master_that_was_opened_anew_writes_while_its_slave_waits(mounting: Mounting, start: Start) -> None:
    """Master, then slave, again and again under one name: no node of an old one may come between."""
    bus = mounting("max_queue=1")
    for number in range(5):
        master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
        if number % 2:
            os.stat(bus / "U_x")
        writer = start(sys.executable, "-c", CLIENT, bus / "U_x", "deaf", 100)
        bus.wait_for_blocked_writers(1, "U_x")
        os.write(master, b"to nobody who reads\n")
        expect_end([writer])
        bus.wait_for_clients(1, "U_x")
        os.close(master)
        until(lambda: not (bus / "U_x").exists(), "the channel is gone")


# ---------------------------------------------------------------------------------------------- descriptors that are shared


def shell(start: Start, script: str) -> "subprocess.Popen[str]":
    """A shell in a session of its own."""
    return start("bash", "-c", script)


TWO_WRITERS = "{ (for n in {1..100}; do echo one $n; done) & (for n in {1..100}; do echo two $n; done) & wait; } > %s"


def wait_for_two(bus: Mount, session: int) -> list[int]:
    """Waits until two processes of a session, beside the shell, are in a write to the bus. Returns them."""
    found: list[int] = []

    def both_write() -> bool:
        found[:] = [pid for pid in members(session) if pid != session and _call(pid)[:1] == ["1"]]
        return len(found) == 2

    until(both_write, "both write")
    return found


def _call(pid: int) -> list[str]:
    """The system call that a process is in: its number and what it was given."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        return []


def test_two_processes_write_one_descriptor_while_the_master_does_not_read(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    writers = shell(start, TWO_WRITERS % (bus / "U_jobs"))
    waiting = wait_for_two(bus, writers.pid)
    enough = WATCH.looks + 20
    until(lambda: WATCH.looks >= enough, "the watch has looked at them")
    for pid in waiting:
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: pid not in members(writers.pid), "it is dead")  # type: ignore[misc]
    writers.wait(DEADLINE)
    bus.wait_for_clients(1, "U_jobs")
    os.close(master)


def test_the_lines_of_two_processes_with_one_descriptor_all_arrive(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    writers = shell(start, TWO_WRITERS % (bus / "U_jobs"))
    wait_for_two(bus, writers.pid)
    seen: dict[bytes, list[int]] = {b"one": [], b"two": []}
    for _ in range(200):
        name, number = os.read(master, 100).split()
        seen[name].append(int(number))
    assert seen == {b"one": [*range(1, 101)], b"two": [*range(1, 101)]}
    assert writers.wait(DEADLINE) == 0
    os.close(master)


def test_a_signal_ends_the_turn_of_one_of_two_and_the_other_goes_on(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    writers = shell(start, TWO_WRITERS % (bus / "U_jobs"))
    first, second = wait_for_two(bus, writers.pid)
    os.kill(first, signal.SIGTERM)
    until(lambda: first not in members(writers.pid), "it has ended")
    while members(writers.pid):
        os.read(master, 100)
        until(lambda: not members(writers.pid) or bus.clients("U_jobs", role="master")[0]["rlist_messages"] != 0, "it goes on")
    assert second
    writers.wait(DEADLINE)
    os.close(master)


def test_one_who_has_opened_the_descriptor_of_another_waits_beside_it(mounting: Mounting, start: Start) -> None:
    """/dev/fd and /proc/PID/fd lead to the inode that is open, not to the name."""
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    first = shell(start, f"echo $$; exec 3<>{bus / 'U_jobs'}; for n in {{1..100}}; do echo one $n >&3; done")
    bus.wait_for_blocked_writers(1, "U_jobs")
    second = shell(start, f"for n in {{1..100}}; do echo two $n; done 1<>/proc/{first.pid}/fd/3")
    bus.wait_for_clients(2, "U_jobs", role="slave")
    until(lambda: _call(second.pid)[:1] == ["1"], "it writes")
    enough = WATCH.looks + 20
    until(lambda: WATCH.looks >= enough, "the watch has looked at them")
    expect_end([second, first])
    bus.wait_for_clients(1, "U_jobs")
    os.close(master)


def test_masters_that_share_a_descriptor_answer_while_slaves_wait(mounting: Mounting, start: Start) -> None:
    """A service of several processes, forked behind the open: some of them read, and all of them answer."""
    bus = mounting("max_queue=8")
    code = SERVICE.replace("os.write(1, ", "os.fork(); os.fork(); os.write(1, ")
    service = start(sys.executable, "-c", code, bus / ".S_up")
    assert service.stdout
    assert [service.stdout.readline() for _ in range(4)] == ["open\n"] * 4
    clients = [start(sys.executable, "-c", CLIENT, bus / "S_up", "deaf", COUNT // 10) for _ in range(3)]
    for client in clients:
        assert client.stdout
        assert client.stdout.readline() == "written\n"
        assert client.wait(DEADLINE) == 0
    os.killpg(service.pid, signal.SIGKILL)
    until(lambda: not members(service.pid), "all are dead")
    until(lambda: not (bus / "S_up").exists(), "the channel is gone")


# ---------------------------------------------------------------------------------------------- writes that come in pieces

LONG_WRITER = """
import mmap, os, sys
who, size, times, at = sys.argv[1].encode(), *map(int, sys.argv[2:5])
line = who * 99 + b"\\n"
room = mmap.mmap(-1, size + 4096)
room[at : at + size] = (line * (size // 100 + 1))[: size - 1] + b"\\n"
for _ in range(times):
    count = os.write(1, memoryview(room)[at : at + size])
    assert count == size, count
"""
"""Writes lines of one letter in long writes, out of memory that begins somewhere in a page."""


@pytest.mark.parametrize(
    ("size", "at"), [(1 << 20, 0), (1 << 20, 48), ((1 << 20) - 4000, 4095), ((1 << 20) + 1, 0), (3 << 20, 48)]
)
@pytest.mark.parametrize("flags", [0, os.O_APPEND], ids=["", "appending"])
@pytest.mark.parametrize("channel", ["+.U_x", "+B_x"])
def test_long_writes_of_two_processes_by_one_descriptor_do_not_mix(
    mounting: Mounting, start: Start, channel: str, flags: int, size: int, at: int
) -> None:
    """The kernel hands them over in pieces, and lets others come between."""
    bus = mounting("max_queue=1M,max_queue_bytes=64M")
    reader = os.open(bus / channel, os.O_RDWR | os.O_CREAT)
    shared = os.open(bus / channel.lstrip("+."), os.O_WRONLY | flags)
    times = 5
    writers = [start(sys.executable, "-c", LONG_WRITER, who, str(size), str(times), str(at), stdout=shared) for who in "ab"]
    found = dict.fromkeys(b"ab", 0)
    end = time.monotonic() + DEADLINE
    while sum(found.values()) < 2 * times * (size - -(-size // 100)):
        assert time.monotonic() < end, found
        if channel == "+B_x" and not is_readable(reader):
            time.sleep(0.001)
            continue
        for line in os.read(reader, 1 << 18).split(b"\n"):
            if line:
                assert len(set(line)) == 1, line
                assert len(line) <= 99
                found[line[0]] += len(line)
    assert len(set(found.values())) == 1
    for writer in writers:
        assert writer.wait(DEADLINE) == 0
    for file in (shared, reader):
        os.close(file)


STAYING = """
import mmap, os, sys, time
room = mmap.mmap(-1, 1 << 20)
room[:] = b"x" * 99_999 + b"\\n" + b"x" * ((1 << 20) - 100_000)
assert os.write(1, room) == len(room)
print("written", file=sys.stderr, flush=True)
time.sleep(1000)
"""
"""Writes as much as fills a piece, and in which a line ends, and stays."""


@pytest.mark.parametrize("how", ["it stays", "it is killed"])
def test_nobody_waits_for_a_piece_that_does_not_come(mounting: Mounting, start: Start, how: str) -> None:
    bus = mounting("max_message=1M,max_queue_bytes=64M")
    master = os.open(bus / "+.U_x", os.O_RDWR | os.O_CREAT)
    shared = os.open(bus / "U_x", os.O_WRONLY)
    first = start(sys.executable, "-c", STAYING, stdout=shared)
    assert first.stderr
    assert first.stderr.readline() == "written\n"
    if how == "it is killed":
        first.kill()
        first.wait()
    if how == "it stays":
        os.set_blocking(shared, False)
        with pytest.raises(BlockingIOError):
            os.write(shared, b"y\n")
        poll = select.poll()
        poll.register(shared, select.POLLOUT)
        until(lambda: poll.poll(100), "it can be written")
        os.set_blocking(shared, True)
    assert os.write(shared, b"y\n") == 2
    data = b""
    while not data.endswith(b"y\n"):
        data += os.read(master, 1 << 20)
    assert data == b"x" * 99_999 + b"\n" + b"x" * ((1 << 20) - 100_000) + b"y\n"
    for file in (shared, master):
        os.close(file)


def test_one_that_writes_a_piece_and_polls_is_not_kept_waiting(mounting: Mounting) -> None:
    """There is nobody else."""
    bus = mounting("max_queue=1,max_message=1M,max_queue_bytes=64M")
    master = os.open(bus / "+.U_x", os.O_RDWR | os.O_CREAT)
    writer = os.open(bus / "U_x", os.O_WRONLY | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(writer, select.POLLOUT)
    room = mmap.mmap(-1, 1 << 20)
    room[:] = b"x" * ((1 << 20) - 1) + b"\n"
    for _ in range(3):
        assert os.write(writer, room) == 1 << 20
        assert poll.poll(0) == []
        assert b"".join(os.read(master, 1 << 18) for _ in range(4)) == room[:]
        until(lambda: poll.poll(100), "it can be written")
        assert not bus.clients("U_x", waits="write")
    for file in (writer, master):
        os.close(file)
