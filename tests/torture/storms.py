"""Storms of signals against clients that wait: no message is lost or doubled by them, and nothing is left over in the daemon."""

import os
import signal
import time
from pathlib import Path

from tests.helpers.waiting import DEADLINE, until

from .trial import Counts, Show, mounted, programs, silent

INTERVALS = (0.0001, 0.0003, 0.001)
"""Seconds between the signals of a client's own timer."""


def storm(place: Path, scale: float = 1, show: Show = silent, *, polls: bool = False) -> Counts:
    """Six writers who wait for a slow master, and readers of a broadcast who wait for the writer; signals all the time.

    Args:
        place: an empty directory.
        scale: 1 is about two seconds.
        show: is told how it goes.
        polls: whether the readers wait in `poll` rather than in `read`.

    Returns:
        Counts of what was done.
    """
    count = int(300 * scale)
    how = "poll" if polls else "read"
    with mounted(place, "max_queue=4") as collector, mounted(place) as crier, programs() as start:
        master = start("stormy", how, collector / ".U_x", 6 * count, INTERVALS[0])
        crier.touch("B_x")
        readers = [start("stormy", how, crier / "B_x", 2 * count, interval) for interval in INTERVALS]
        for process in (master, *readers):
            assert process.stdout
            assert process.stdout.readline() == "open\n"
        writers = [
            *(start("stormy", "write", collector / "U_x", f"w{each}", count, INTERVALS[each % 3]) for each in range(6)),
            *(start("stormy", "write", crier / "B_x", f"w{each}", count, INTERVALS[each]) for each in range(2)),
        ]
        sent = 0
        processes = [master, *readers, *writers]
        end = time.monotonic() + 120 + 30 * scale
        for process in writers:
            assert process.stdout
            assert process.stdout.readline() == "open\n"
        while any(process.poll() is None for process in writers):
            assert time.monotonic() < end, "the writers have written"
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGUSR1)
                    sent += 1
            show(f"{sent:,} signals from outside")
            time.sleep(0.002)
        counts = Counts(processes=len(processes), messages=8 * count)
        for process in (master, *readers):
            assert process.stdout
            assert process.stdout.readline() == "done\n", "every message came once, and in order"
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.close()
        for process in processes:
            assert process.wait(DEADLINE) == 0
            assert process.stdout
            interrupted, signals = map(int, process.stdout.read().split()[-2:])
            counts["calls ended by a signal"] += interrupted
            counts["signals"] += signals
        return counts


def killed_while_waiting(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """Clients that wait in `read`, `write` and `poll` are killed, again and again: nothing is left over of them."""
    rounds = int(6 * scale)
    with mounted(place, "max_queue=1") as bus, programs() as start:
        master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
        bus.touch("B_x")
        (bus / "U_x").write_text("the only place is taken\n")
        counts = Counts()
        for number in range(rounds):
            waiting = [
                *(start("stormy", how, bus / "B_x", 1, 10) for how in ("read", "poll")),
                *(start("stormy", "write", bus / "U_x", f"w{number}.{each}", 1, 10) for each in range(3)),
            ]
            bus.wait_for_readers(1, "B_x")
            bus.wait_for_blocked_writers(3, "U_x")
            until(lambda: bus.inside()["poll handles"] >= 1, "one polls")
            for process in waiting:
                process.kill()
            bus.wait_for_clients(0, "B_x")
            bus.wait_for_clients(1, "U_x")
            counts["kills"] += len(waiting)
            show(f"{counts['kills']} killed")
        assert os.read(master, 100) == b"the only place is taken\n"
        os.set_blocking(master, False)
        try:
            got = os.read(master, 100)
        except BlockingIOError:
            got = b""
        assert not got, "nothing of those that were killed while they waited"
        os.close(master)
        return counts
