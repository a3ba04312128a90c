"""A master ends its channel, on a bus that is mounted: ioctl(2), and whoever writes at that moment."""

import contextlib
import errno
import fcntl
import itertools
import os
import sys
import threading

import pytest

import futebus.client as client
from futebus.client.shut import shut
from futebus.core.inquiry import SHUT
from tests.helpers.mounts import Mount, Mounting
from tests.helpers.programs import Start
from tests.helpers.signals import at_a_place
from tests.helpers.waiting import DEADLINE, until

WRITERS = """
i=0
exec 3> "$1" || exit
while echo "$2 $i" >&3; do i=$((i+1)); done 2> /dev/null
echo $i
"""
"""Writes lines until that fails, and tells how many were accepted."""


def test_nothing_that_was_accepted_is_lost(mounting: Mounting, start: Start) -> None:
    """Shells that write as fast as they can, to a queue that is full now and then."""
    bus = mounting("max_queue=64")
    for turn in range(5):
        master = os.open(bus / ".U_x", os.O_RDONLY | os.O_CREAT)
        writers = [start("bash", "-c", WRITERS, "bash", bus / "U_x", f"{turn}.{number}") for number in range(3)]
        heard = b""
        while heard.count(b"\n") < 500 or not all(f"{turn}.{number} 0\n".encode() in heard for number in range(3)):
            heard += os.read(master, 1 << 16)
        shut(master)
        while piece := os.read(master, 1 << 16):
            heard += piece
        told = [int(writer.communicate()[0]) for writer in writers]
        expected = {f"{turn}.{number} {line}" for number, count in enumerate(told) for line in range(count)}
        lines = heard.decode().splitlines()
        assert len(lines) == len(expected)
        assert set(lines) == expected
        os.close(master)


def test_whoever_waits_is_answered(mounting: Mounting) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".S_x", os.O_RDWR | os.O_CREAT)
    slave = os.open(bus / "S_x", os.O_RDWR)
    answers: list[object] = []

    def write() -> None:
        for _ in range(2):
            try:
                answers.append(os.write(slave, b"one\ntwo\nthree\n"))
            except OSError as error:
                answers.append(error.errno)

    writing = threading.Thread(target=write)
    writing.start()
    bus.wait_for_blocked_writers(1, "S_x")
    shut(master)
    writing.join()
    assert answers == [4, errno.ESRCH]
    assert os.listdir(bus.path) == [name for name in os.listdir(bus.path) if name.startswith("_")]
    with pytest.raises(FileNotFoundError):
        os.open(bus / "S_x", os.O_WRONLY)
    assert [os.read(master, 100) for _ in range(3)] == [b"{2:o}\n", b"{2}one\n", b""]
    os.write(master, b"{2}answer\n")
    assert os.read(slave, 100) == b"answer\n"
    os.close(master)
    assert os.read(slave, 100) == b""
    os.close(slave)


WORKER = """
import signal, sys
from futebus import client
with client.collect(sys.argv[1]) as jobs:
    signal.signal(signal.SIGTERM, lambda number, frame: jobs.shut())
    print("ready", flush=True)
    print(sum(1 for job in jobs))
"""


def test_a_worker_ends_in_peace(bus: Mount, start: Start) -> None:
    """At a signal, when it waits for the next job, and when it has many."""
    idle = start(sys.executable, "-c", WORKER, bus / "U_idle")
    assert idle.stdout
    assert idle.stdout.readline() == "ready\n"
    bus.wait_for_readers(1, "U_idle")
    idle.terminate()
    assert idle.communicate(timeout=DEADLINE)[0] == "0\n"
    busy = start(sys.executable, "-c", WORKER, bus / "U_busy")
    assert busy.stdout
    assert busy.stdout.readline() == "ready\n"
    writers = [start("bash", "-c", WRITERS, "bash", bus / "U_busy", str(number)) for number in range(2)]
    bus.wait_for_clients(2, "U_busy", rw="-w")
    until(lambda: bus.channel("U_busy")["messages_in"] > 1000, "there is work")
    busy.terminate()
    sent = sum(int(writer.communicate(timeout=DEADLINE)[0]) for writer in writers)
    assert busy.communicate(timeout=DEADLINE)[0] == f"{sent}\n"
    assert (idle.returncode, busy.returncode) == (0, 0)


def test_a_read_that_waits_ends(bus: Mount) -> None:
    master = os.open(bus / ".U_x", os.O_RDONLY | os.O_CREAT)
    pieces: list[bytes] = []
    reading = threading.Thread(target=lambda: pieces.append(os.read(master, 100)))
    reading.start()
    bus.wait_for_readers(1, "U_x")
    shut(master)
    reading.join()
    assert pieces == [b""]
    os.close(master)


@pytest.mark.parametrize(
    ("name", "number"), [("U_x", errno.EPERM), ("B_x", errno.EPERM), ("_stat", errno.ENOTTY), ("", errno.ENOTTY)]
)
def test_nobody_else_can(bus: Mount, name: str, number: int) -> None:
    master = os.open(bus / ".U_x", os.O_RDONLY | os.O_CREAT)
    bus.touch("B_x")
    descriptor = os.open(bus / name, os.O_RDONLY)
    with pytest.raises(OSError) as refused:  # noqa: PT011 (its number is looked at)
        fcntl.ioctl(descriptor, SHUT)
    assert refused.value.errno == number
    (bus / "U_x").write_bytes(b"one\n")
    assert os.read(master, 100) == b"one\n"
    os.close(descriptor)
    os.close(master)


def test_a_handler_that_leaves_it_at_any_moment_has_no_other_channel_shut(bus: Mount) -> None:
    """Which has its descriptor's number then."""
    others: list[client.Collector[str]] = []

    def leave() -> None:
        jobs.close()
        others.append(client.collect(bus / "U_y"))
        # This number, unless another thread has just taken it.
        copies.callback(os.close, fcntl.fcntl(others[0].fileno(), fcntl.F_DUPFD_CLOEXEC, number))

    for place in itertools.count():
        jobs = client.collect(bus / "U_x")
        number = jobs.fileno()
        others.clear()
        with contextlib.ExitStack() as copies:
            with contextlib.suppress(ValueError), at_a_place(place, "futebus.client.", leave):
                jobs.shut()
            jobs.close()
            for other in others:
                assert not other.inquire().is_shut
                other.close()
        if not others:
            break
    assert place > 1
