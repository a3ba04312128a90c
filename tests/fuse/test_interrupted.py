"""Writes of more than 1 MiB that a signal ends, while others write by the same descriptor."""

import errno
import mmap
import os
import select
import signal
import sys

import pytest

from ..helpers.mounts import Mounting
from ..helpers.processes import has_pending, state_of
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until

LINES = 80_000
VICTIM = f"""
import mmap, os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
data = b"".join(b"victim%093d\\n" % number for number in range({LINES}))
room = mmap.mmap(-1, len(data))
room[:] = data
for _ in range(int(sys.argv[1])):
    done = counts = 0
    while done < len(data):
        done += os.write(1, memoryview(room)[done:])
        counts += 1
os.write(2, b"%d" % counts)
"""
"""Writes 8 MB at once, so many times. If that is less then, it writes the rest, and tells how often in the end."""

OTHER = """
import os
os.write(2, b"ready\\n")
for number in range(100):
    line = b"other%d\\n" % number
    assert os.write(1, line) == len(line)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGUSR1])
@pytest.mark.parametrize(
    ("flags", "have_waited"),
    [
        (0, True),
        (0, False),
        (os.O_APPEND, False),  # who waited would do so in the kernel
    ],
)
def test_lines_of_others_are_whole(
    mounting: Mounting, start: Start, number: signal.Signals, flags: int, have_waited: bool
) -> None:
    """And those of who goes on are, too; of a line that he has begun who was killed, nothing comes."""
    bus = mounting("max_queue=1M,max_queue_bytes=2M")
    master = os.open(bus / "+.U_x", os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)
    shared = os.open(bus / "U_x", os.O_WRONLY | flags)
    heard = bytearray()
    poll = select.poll()
    poll.register(master, select.POLLIN)

    def hear(size: int = sys.maxsize) -> bool:
        while len(heard) < size and poll.poll(0):
            heard.extend(os.read(master, min(size - len(heard), 1 << 20)))
        return len(heard) == size

    def hear_others() -> bool:
        hear()
        return b"other99\n" in heard and (number == signal.SIGKILL or b"%093d\n" % (LINES - 1) in heard)

    victim = start(sys.executable, "-c", VICTIM, str(1 + have_waited), stdout=shared)
    if have_waited:  # the kernel lets nobody write beside one that is longer than all before
        until(lambda: hear(LINES * 100), "one has been written")
        heard.clear()
    bus.wait_for_blocked_writers(1, "U_x")
    others = []

    def start_others() -> None:
        others.append(start(sys.executable, "-c", OTHER, stdout=shared))
        assert others[-1].stderr
        assert others[-1].stderr.readline() == "ready\n"

    if have_waited:
        start_others()
        until(lambda: bus.calls == 2, "both wait")
    victim.send_signal(number)
    if number == signal.SIGKILL:
        victim.wait(DEADLINE)
    elif number == signal.SIGSTOP:
        until(lambda: state_of(victim.pid) == "T", "it is stopped")
    else:  # a write that finds place all the time is not interrupted, so nobody reads before it is
        until(lambda: not has_pending(victim.pid, number), "it is interrupted")
    if not have_waited:
        start_others()
    if number == signal.SIGSTOP:
        victim.send_signal(signal.SIGCONT)
    until(hear_others, "all have been heard")
    for process in (*others, *([] if number == signal.SIGKILL else [victim])):
        assert process.wait(DEADLINE) == 0
    hear()
    lines = heard.splitlines()
    assert [line for line in lines if line.startswith(b"o")] == [b"other%d" % number for number in range(100)]
    whole = [line for line in lines if not line.startswith(b"o")]
    # There is place for 2 MiB, of which 52 bytes are the beginning of the line that is the next.
    assert whole == [b"victim%093d" % n for n in range((2 << 20) // 100 if number == signal.SIGKILL else LINES)]
    if number != signal.SIGKILL:
        assert victim.stderr
        assert int(victim.stderr.read()) > 1, "it was interrupted"
    for file in (shared, master):
        os.close(file)


SPLIT_REFUSED = """
import errno, mmap, os, sys
size = 1 << 20
data = b"{*}" + b"x" * 99 + b"\\n"
data = data * ((size - 500) // len(data))
data += b"\\n" * (size - 5 - len(data)) + b"{fff}" + b"to nobody\\n"
room = mmap.mmap(-1, len(data))
room[:] = data
for _ in range(5):
    assert os.write(1, room) == size
    print("short", file=sys.stderr, flush=True)
    sys.stdin.readline()
    try:
        os.write(1, b"{*}more\\n")
        sys.exit("no error")
    except OSError as error:
        assert error.errno == errno.ENODEV, error
"""


def test_what_is_wrong_with_a_long_write_is_told_to_who_has_written_it(mounting: Mounting, start: Start) -> None:
    """Not to whoever else writes next by the same descriptor, whose line is good."""
    bus = mounting("max_queue=1M,max_queue_bytes=64M")
    reader = os.open(bus / "A_x", os.O_RDONLY | os.O_CREAT)
    shared = os.open(bus / "A_x", os.O_WRONLY)
    writer = start(sys.executable, "-c", SPLIT_REFUSED, stdout=shared)
    assert writer.stdin
    assert writer.stderr
    for _ in range(5):
        assert writer.stderr.readline() == "short\n"
        assert os.write(shared, b"{*}good\n") == 8
        writer.stdin.write("\n")
        writer.stdin.flush()
    assert writer.wait(DEADLINE) == 0
    for file in (shared, reader):
        os.close(file)


@pytest.mark.parametrize("behind", [-50_000, -50, 0, 50_000], ids=["in the first", "across", "at the border", "in the second"])
def test_who_waits_for_a_change_behind_a_short_count_hears_of_one(mounting: Mounting, behind: int) -> None:
    """Wherever the refused line lies: the kernel hands over a write(2) in pieces of 1 MiB."""
    channel = os.open(mounting("max_queue=1M") / "A_x", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    good = b"{*}" + b"x" * 96 + b"\n"
    head = good * (((1 << 20) + behind) // 100)
    head += b"\n" * ((1 << 20) + behind - len(head))
    data = mmap.mmap(-1, len(head) + 100 + 100_000)
    data[:] = head + b"{fff}" + b"x" * 94 + b"\n" + good * 1_000
    changes = select.epoll()
    changes.register(channel, select.EPOLLOUT | select.EPOLLET)
    assert changes.poll(0) == [(channel, select.EPOLLOUT)]
    taken = os.write(channel, memoryview(data))
    assert taken == (1 << 20 if behind == -50 else len(head))
    until(lambda: changes.poll(0), "it can be written")
    changes.close()
    os.close(channel)


IMPATIENT = """
import mmap, os, sys
data = b"".join(b"victim%093d\\n" % number for number in range(15_000))
room = mmap.mmap(-1, len(data))
room[:] = data
print(os.write(1, room), file=sys.stderr, flush=True)
sys.stdin.readline()
rest = memoryview(room)[1 << 20 :]
assert os.write(1, rest) == len(rest)
"""


def test_who_sets_nonblocking_for_another_tears_no_line_apart(mounting: Mounting, start: Start) -> None:
    """The second piece finds no place then, and what the write returns is the length of the first."""
    bus = mounting("max_queue=1M,max_queue_bytes=1M")
    master = os.open(bus / "+.U_x", os.O_RDONLY | os.O_CREAT)
    shared = os.open(bus / "U_x", os.O_WRONLY)
    # With it there is no place for the last of the 10,485 lines of the first piece.
    assert os.write(shared, b"%099d\n" % 0) == 100
    victim = start(sys.executable, "-c", IMPATIENT, stdout=shared)
    bus.wait_for_blocked_writers(1, "U_x")
    os.set_blocking(shared, False)
    assert os.read(master, 100) == b"%099d\n" % 0
    assert victim.stdin
    assert victim.stderr
    assert victim.stderr.readline() == f"{1 << 20}\n"
    heard = os.read(master, 100_000)
    assert os.write(shared, b"other\n") == 6
    while len(heard) < 1_048_506:
        heard += os.read(master, 1 << 20)
    victim.stdin.write("\n")
    victim.stdin.flush()
    while len(heard) < 1_500_006:
        heard += os.read(master, 1 << 20)
    assert victim.wait(DEADLINE) == 0
    lines = heard.splitlines()
    assert lines.pop(10_485) == b"other"
    assert lines == [b"victim%093d" % number for number in range(15_000)]
    for file in (shared, master):
        os.close(file)


def test_without_waiting_a_long_write_ends_with_a_line(mounting: Mounting) -> None:
    """So nobody else's comes into it while its place is waited for."""
    bus = mounting("max_queue=1M,max_queue_bytes=1M")
    master = os.open(bus / "+.U_x", os.O_RDONLY | os.O_CREAT)
    writers = [os.open(bus / "U_x", os.O_WRONLY | os.O_NONBLOCK)]
    writers.append(os.dup(writers[0]))
    data = b"".join(b"%099d\n" % number for number in range(30_000))
    changes = select.epoll()
    changes.register(writers[0], select.EPOLLOUT | select.EPOLLET)
    assert changes.poll(0) == [(writers[0], select.EPOLLOUT)]
    taken = os.write(writers[0], data)
    assert (1 << 20) - 4196 < taken <= 1 << 20
    assert taken % 100 == 0
    with pytest.raises(BlockingIOError) as error:
        os.write(writers[1], b"x" * 9_999 + b"\n")
    assert error.value.errno == errno.EAGAIN
    changes.poll(0)
    heard = b""
    while len(heard) < taken:
        heard += os.read(master, 1 << 20)
    assert os.write(writers[1], b"other\n") == 6
    assert os.write(writers[0], data[len(heard) :][:500_000]) == 500_000
    while len(heard) < taken + 500_006:
        heard += os.read(master, 1 << 20)
    assert heard == data[:taken] + b"other\n" + data[taken:][:500_000]
    # There is place for all of it, and who waits for a change after a short count hears of one.
    until(lambda: changes.poll(0), "it can be written")
    assert changes.poll(0) == []
    assert os.write(writers[0], data[:1_040_000] + b"x" * 20_000) == 1_040_000
    until(lambda: changes.poll(0), "the rest can be written")
    changes.close()
    for file in (*writers, master):
        os.close(file)
