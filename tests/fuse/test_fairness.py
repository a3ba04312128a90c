"""Users who do not know each other have equal service of one bus, whatever one of them does."""

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from ..helpers.mounts import Mount, Mounting
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, is_readable, until
from .strangers import bus, line_of, python

__all__ = ["bus"]

BLOCK = 1 << 20
"""As much as the kernel hands over in one request."""


def write_long(start: Start, path: Path, block: str) -> "subprocess.Popen[str]":
    """Ann writes a megabyte at once. It says how many bytes were taken."""
    script = f"""
signal.signal(signal.SIGINT, lambda *_: None)
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
block = {block}
print("go", flush=True)
print(os.write(descriptor, block), len(block), flush=True)
"""
    return python(start, 64001, script, path)


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("A_flood", r'b"{2}a\n{*}b\n" * 104857'),
        ("B_flood", r'b"a\n\n" * 349525'),
    ],
)
def test_others_are_served_while_a_long_write_is_taken(bus: Mount, start: Start, name: str, block: str) -> None:
    """Each of its lines is routed by itself, which takes the bus a second. Before, nobody got in between."""
    bus.touch(name).chmod(0o666)
    reader = os.open(bus / name, os.O_RDWR)
    one, other = (os.open(bus / "B_bob", os.O_RDWR | os.O_CREAT) for _ in range(2))

    def are_served() -> bool:
        """Whether others were, again and again, in one write: this process may not have got round to it."""
        before = bus.channel(name)["messages_in"]
        ann = write_long(start, bus / name, block)
        assert line_of(ann) == "go\n"
        until(lambda: bus.channel(name)["messages_in"] > before, "the first lines have been taken")
        assert ann.stdout
        served = 0
        while not is_readable(ann.stdout):
            os.write(one, b"ping\n")
            assert os.read(other, 100) == b"ping\n"
            served += 1
        taken, size = map(int, line_of(ann).split())
        assert 0 < taken <= size
        if name == "B_flood":
            assert taken == size, "and nothing was left over"
            assert bus.channel(name)["messages_in"] == before + size // 3
        return served >= 5  # it takes a hundred slices or more

    until(are_served, "others are served meanwhile")
    for descriptor in (reader, one, other):
        os.close(descriptor)


def test_a_long_write_is_whole_and_in_order(mounting: Mounting, start: Start) -> None:
    """The slices of two writers may mix, their lines do not, and a reader gets those of each in order."""
    bus = mounting("allow_other", "bulk", "max_queue=1M", "max_queue_bytes=1G")
    channel = bus.touch("A_x")
    channel.chmod(0o666)
    reader = os.open(channel, os.O_RDONLY)
    own = int(bus.clients("A_x")[0]["id"], 16)
    block = f"b''.join(b'{{*}}%d\\n{{{own:x}}}%d\\n' % (2 * n, 2 * n + 1) for n in range(30_000))"
    writers = [write_long(start, channel, block) for _ in range(2)]
    for writer in writers:
        assert line_of(writer) == "go\n"
    for writer in writers:
        taken, size = map(int, line_of(writer).split())
        assert taken == size
    text = b""
    while text.count(b"\n") < 120_000:
        text += os.read(reader, BLOCK)
    os.close(reader)
    numbers: dict[bytes, list[int]] = {}
    for line in text.splitlines():
        sender, _, number = line.partition(b"}")
        numbers.setdefault(sender, []).append(int(number))
    assert [each == list(range(60_000)) for each in numbers.values()] == [True, True]


def test_a_signal_ends_a_long_write_with_what_was_taken(bus: Mount, start: Start) -> None:
    bus.touch("B_flood").chmod(0o666)

    def is_ended() -> bool:
        """Whether the signal came before all was taken."""
        before = bus.channel("B_flood")["messages_in"]
        ann = write_long(start, bus / "B_flood", r'b"a\n\n" * 349525')
        assert line_of(ann) == "go\n"
        until(lambda: bus.channel("B_flood")["messages_in"] > before, "the first lines have been taken")
        ann.send_signal(signal.SIGINT)
        taken, size = map(int, line_of(ann).split())
        assert bus.channel("B_flood")["messages_in"] == before - (-taken // 3)
        return 0 < taken < size

    until(is_ended, "a signal ends a write")


def test_going_down_ends_a_long_write(bus: Mount, start: Start) -> None:
    bus.touch("B_flood").chmod(0o666)
    ann = write_long(start, bus / "B_flood", r'b"a\n\n" * 349525')
    assert line_of(ann) == "go\n"
    until(lambda: bus.channel("B_flood")["messages_in"] != 0, "the first lines have been taken")
    bus.daemon.send_signal(signal.SIGTERM)
    taken, size = map(int, line_of(ann).split())
    assert 0 < taken <= size
    bus.close()


CROWD = 300
"""More than are answered at once."""


def test_a_line_reaches_each_of_hundreds_who_poll(bus: Mount) -> None:
    channel = bus.touch("B_x")
    waiting = {os.open(channel, os.O_RDONLY) for _ in range(CROWD)}
    poller = select.epoll()
    for descriptor in waiting:
        poller.register(descriptor, select.EPOLLIN)
    assert not poller.poll(0)
    channel.write_text("hello\n")
    told: set[int] = set()
    while told < waiting:
        found = {descriptor for descriptor, _ in poller.poll(DEADLINE)}
        assert found, f"{len(told)} were told"
        told |= found
        assert {os.read(descriptor, 100) for descriptor in found} == {b"hello\n"}
    poller.close()
    for descriptor in waiting:
        os.close(descriptor)


def test_a_line_reaches_each_of_hundreds_who_read(bus: Mount, start: Start) -> None:
    channel = bus.touch("B_x")
    script = """
children = []
for _ in range(int(sys.argv[2])):
    if not (child := os.fork()):
        os._exit(os.read(os.open(sys.argv[1], os.O_RDONLY), 100) != b"hello\\n")
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children].count(0))
"""
    readers = python(start, 0, script, channel, CROWD)
    bus.wait_for_readers(CROWD, "B_x")
    channel.write_text("hello\n")
    assert line_of(readers) == f"{CROWD}\n"


def test_a_signal_ends_a_read_whose_answer_is_on_its_way(bus: Mount, start: Start) -> None:
    """All are killed in the moment that all are answered. Whoever comes next is served."""
    channel = bus.touch("B_x")
    script = """
for _ in range(int(sys.argv[2])):
    if not os.fork():
        os.read(os.open(sys.argv[1], os.O_RDONLY), 100)
        os._exit(0)
sys.stdin.readline()
"""
    readers = python(start, 0, script, channel, CROWD)
    bus.wait_for_readers(CROWD, "B_x")
    channel.write_text("hello\n")
    os.killpg(readers.pid, signal.SIGKILL)
    readers.wait()
    bus.wait_for_clients(0, "B_x")
    until(lambda: bus.inside()["requests"] == 0, "nothing of it is left")
