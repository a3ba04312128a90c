"""poll, select and epoll on channels: the table of poll conditions, and being woken when and only when something changes."""

import os
import select
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from ..helpers.mounts import Mount, Mounting, bash
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE

IN = select.POLLIN | select.POLLRDNORM
OUT = select.POLLOUT | select.POLLWRNORM
HUP, ERR = select.POLLHUP, select.POLLERR
ANYTHING = IN | OUT | select.POLLPRI


def polled(descriptor: int, timeout: float = 0) -> int:
    """What poll(2) says of a descriptor, waiting up to `timeout` seconds."""
    poller = select.poll()
    poller.register(descriptor, ANYTHING)
    found = poller.poll(timeout * 1000)
    return found[0][1] if found else 0


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("B_x", os.O_RDONLY, 0),
        ("B_x", os.O_WRONLY, OUT),
        ("B_x", os.O_RDWR, OUT),
        ("A_x", os.O_RDWR, OUT),
        ("A_x", os.O_RDONLY, 0),
    ],
)
def test_a_quiet_channel(bus: Mount, name: str, flags: int, expected: int) -> None:
    descriptor = os.open(bus / name, flags | os.O_CREAT)
    assert polled(descriptor) == expected
    os.close(descriptor)


def test_something_to_read(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    (bus / "B_x").write_text("one\n")
    assert polled(reader) == IN
    assert os.read(reader, 1) == b"o"
    assert polled(reader) == IN, "the rest of it is in rbuf"
    os.read(reader, 100)
    assert polled(reader) == 0
    os.close(reader)


@pytest.mark.parametrize("letter", ["U", "S"])
def test_master_and_slave(mounting: Mounting, letter: str) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / f".{letter}_x", os.O_RDWR | os.O_CREAT)
    slave = os.open(bus / f"{letter}_x", os.O_RDWR)
    reader = os.open(bus / f"{letter}_x", os.O_RDONLY)
    writer = os.open(bus / f"{letter}_x", os.O_WRONLY)
    if letter == "S":
        assert [os.read(master, 100) for _ in range(3)] == [b"{2:o}\n", b"{3:o}\n", b"{4:o}\n"]
    assert [polled(descriptor) for descriptor in (master, slave, reader, writer)] == [OUT, OUT, 0, OUT]
    os.write(slave, b"one\n")
    assert [polled(descriptor) for descriptor in (master, slave, reader, writer)] == [IN | OUT, 0, 0, 0], "the master is full"
    os.write(master, b"two\n" if letter == "U" else b"{*}two\n")
    assert [polled(descriptor) for descriptor in (slave, reader, writer)] == [IN, IN, 0]
    os.close(master)
    bus.wait_for_clients(0, f"{letter}_x", role="master")
    assert [polled(descriptor) for descriptor in (slave, reader, writer)] == [IN | OUT | ERR, IN, OUT | ERR]
    os.read(slave, 100)
    os.read(reader, 100)
    assert [polled(descriptor) for descriptor in (slave, reader, writer)] == [IN | HUP | OUT | ERR, IN | HUP, OUT | ERR]
    for descriptor in (slave, reader, writer):
        os.close(descriptor)


def test_a_message_wakes_whoever_polls(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    found: list[int] = []
    for round_ in range(3):
        thread = threading.Thread(target=lambda: found.append(polled(reader, DEADLINE)))
        thread.start()
        (bus / "B_x").write_text("hello\n")
        thread.join(DEADLINE)
        assert found == [IN] * (round_ + 1)
        assert os.read(reader, 100) == b"hello\n"
    os.close(reader)


def test_a_free_place_at_the_master_wakes_whoever_polls_to_write(mounting: Mounting) -> None:
    bus = mounting("max_queue=2")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    slaves = [os.open(bus / "U_x", os.O_WRONLY | os.O_NONBLOCK) for _ in range(3)]
    for _ in range(3):
        os.write(slaves[0], b"1\n2\n3\n")  # takes two
        with ThreadPoolExecutor() as pool:
            polls = [pool.submit(polled, slave, DEADLINE) for slave in slaves]
            assert os.read(master, 100) == b"1\n"
            assert [poll.result() for poll in polls] == [OUT] * 3
        assert os.read(master, 100) == b"2\n"
    for descriptor in (master, *slaves):
        os.close(descriptor)


def test_a_write_refused_for_lack_of_bytes_is_not_writable_until_it_fits(mounting: Mounting) -> None:
    """Else a program that polls and writes would spin."""
    bus = mounting("max_queue_bytes=10")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    slave = os.open(bus / "U_x", os.O_WRONLY | os.O_NONBLOCK)
    os.write(slave, b"12\n45\n")
    with pytest.raises(BlockingIOError):
        os.write(slave, b"123456\n")
    assert polled(slave) == 0
    os.read(master, 100)
    assert polled(slave) == OUT
    assert os.write(slave, b"123456\n") == 7
    os.close(slave)
    os.close(master)


def test_the_death_of_the_master_wakes_whoever_polls(bus: Mount) -> None:
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    reader = os.open(bus / "U_x", os.O_RDONLY)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(polled(reader, DEADLINE)))
    thread.start()
    os.close(master)
    thread.join(DEADLINE)
    assert found == [IN | HUP]
    os.close(reader)


def test_select_and_level_triggered_epoll(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    assert select.select([reader], [], [], 0) == ([], [], [])
    (bus / "B_x").write_text("one\ntwo\n")
    assert select.select([reader], [], [], 0) == ([reader], [], [])
    with select.epoll() as epoll:
        epoll.register(reader, select.EPOLLIN)
        for expected in (b"one\n", b"two\n"):
            assert epoll.poll(0) == [(reader, select.EPOLLIN)]
            assert epoll.poll(0) == [(reader, select.EPOLLIN)], "level-triggered: as long as it is so"
            assert os.read(reader, 100) == expected
        assert epoll.poll(0) == []
        (bus / "B_x").write_text("three\n")
        assert epoll.poll(DEADLINE) == [(reader, select.EPOLLIN)]
    os.close(reader)


def test_edge_triggered_epoll_reports_each_change_once(mounting: Mounting) -> None:
    bus = mounting("max_queue=2")
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)
    master = os.open(bus / ".U_x", os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)
    slave = os.open(bus / "U_x", os.O_WRONLY | os.O_NONBLOCK)
    with select.epoll() as epoll:
        epoll.register(reader, select.EPOLLIN | select.EPOLLET)
        epoll.register(slave, select.EPOLLOUT | select.EPOLLET)
        assert epoll.poll(0) == [(slave, select.EPOLLOUT)], "writable from the start, said once"
        assert epoll.poll(0) == []
        for round_ in range(3):
            (bus / "B_x").write_text(f"{round_}\n")
            assert epoll.poll(DEADLINE) == [(reader, select.EPOLLIN)]
            assert epoll.poll(0) == [], "nothing has changed"
            (bus / "B_x").write_text("more of the same\n")
            assert epoll.poll(0) == [], "it was ready and is"
            assert os.read(reader, 100) == b"%d\n" % round_
            assert os.read(reader, 100) == b"more of the same\n"
            # Write until it would block, as edge-triggered programs do; then only a free place is news.
            assert os.write(slave, b"1\n2\n") == 4
            with pytest.raises(BlockingIOError):
                os.write(slave, b"3\n")
            assert epoll.poll(0) == []
            os.read(master, 100)
            assert epoll.poll(DEADLINE) == [(slave, select.EPOLLOUT)]
            os.read(master, 100)
            assert epoll.poll(0) == []
    for descriptor in (reader, master, slave):
        os.close(descriptor)


def test_trios_own_waiting(mounting: Mounting) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    slave = os.open(bus / "U_x", os.O_RDWR | os.O_NONBLOCK)

    async def collect(count: int) -> list[bytes]:
        got: list[bytes] = []
        while len(got) < count:
            await trio.lowlevel.wait_readable(master)
            got.append(os.read(master, 100))
        return got

    async def send(count: int) -> None:
        for number in range(count):
            while True:
                await trio.lowlevel.wait_writable(slave)
                try:
                    os.write(slave, b"%d\n" % number)
                    break
                except BlockingIOError:
                    continue

    async def main() -> list[bytes]:
        with trio.fail_after(DEADLINE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, 300)
                return await collect(300)

    assert trio.run(main) == [b"%d\n" % number for number in range(300)]
    os.close(slave)
    os.close(master)


def test_stat_is_always_readable(bus: Mount) -> None:
    with (bus / "_stat").open("rb") as file:
        assert polled(file.fileno()) == IN


POLLER = """
import os, select, sys
poller = select.poll()
poller.register(os.open(sys.argv[1], os.O_RDONLY), select.POLLIN)
poller.poll()
"""


def test_pollers_that_were_killed_leave_nothing_behind(bus: Mount, start: Start) -> None:
    bus.touch("B_x")
    pollers = [start(sys.executable, "-c", POLLER, bus / "B_x") for _ in range(5)]
    bus.wait_for_clients(5, "B_x")
    for poller in pollers[:3]:
        poller.kill()
        poller.wait()
    bus.wait_for_clients(2, "B_x")
    bash(f"echo hello > {bus / 'B_x'}")
    for poller in pollers[3:]:
        assert poller.wait(DEADLINE) == 0
    bus.wait_for_clients(0, "B_x")
