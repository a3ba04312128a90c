"""Memory over time: opens, messages, names, polls and signals by the million, and the daemon is as small as after the first."""

import contextlib
import os
import select
from pathlib import Path

from .trial import CREATE, Counts, Show, mounted, silent

ROOM = 1.10
"""How much more memory the daemon may have in the end than after it has warmed up."""


def churn(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """Opens, closes, creates, removes, writes, reads and polls: 60,000 opens and messages at scale 1.

    The first fifth is the warm-up.
    """
    rounds = int(500 * scale)
    counts = Counts()
    with mounted(place, "max_queue=100") as bus:
        bus.touch("B_0")
        lasting = os.open(bus / "+B_0", os.O_RDONLY)
        warm = 0
        for number in range(rounds):
            # A service under a name of its own, with slaves; one goes with something unread.
            master = os.open(bus / f".S_{number}", CREATE)
            slaves = [os.open(bus / f"S_{number}", os.O_RDWR) for _ in range(5)]
            for slave in slaves:
                os.write(slave, b"a question\n" * 2)
            poller = select.epoll()
            poller.register(master, select.EPOLLIN)
            assert poller.poll(0)
            for _ in range(10):
                assert os.read(master, 100)
            os.write(master, b"{*}an answer\n" * 3)
            poller.close()
            for slave in slaves[1:]:
                assert os.read(slave, 100) == b"an answer\n"
            for descriptor in (master, *slaves):
                os.close(descriptor)
            # A channel that is created and removed.
            both = os.open(bus / f"A_{number}", CREATE)
            for each in range(10):
                os.write(both, b"{1}%d\n" % each)
                assert os.read(both, 100) == b"{1}%d\n" % each
            os.close(both)
            os.unlink(bus / f"A_{number}")
            # One that lasts, and opens of it as a shell does them.
            for _ in range(40):
                writer = os.open(bus / "B_0", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.write(writer, b"a line\n")
                os.close(writer)
            with contextlib.suppress(FileNotFoundError):
                os.stat(bus / f"B_{number + 1}")
            assert os.read(lasting, 65_536).count(b"\n") == 40
            counts["opens"] += 47
            counts["messages"] += 10 + 3 + 10 + 40
            if number == rounds // 5:
                warm = bus.memory()
            show(f"{counts['opens']:,} opens, {counts['messages']:,} messages, {bus.memory() >> 10:,} KiB")
        os.close(lasting)
        end = bus.memory()
        counts["KiB after warm-up"], counts["KiB in the end"] = warm >> 10, end >> 10
        assert end <= ROOM * warm, f"{warm:,} bytes after the warm-up, {end:,} in the end"
    return counts
