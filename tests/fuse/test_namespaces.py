"""A bus that is served from a PID namespace of its own: the kernel tells it of all clients outside as of process 0."""

import os
import sys
from pathlib import Path

from ..helpers.mounts import FUTEBUS, Mount, Mounting, run
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until

OWN = ["unshare", "--pid", "--fork", "--kill-child", *FUTEBUS]

OPENS = """
import errno, os, sys
name, times = sys.argv[1], int(sys.argv[2])
for _ in range(times):
    os.close(os.open(name, os.O_WRONLY | os.O_TRUNC))  # as `>` does
print("done", flush=True)
"""


def end(bus: Mount) -> None:
    """unshare(1) passes no signal on."""
    assert run("umount", "-l", bus.path).returncode == 0
    bus.close()


def test_nobody_stands_behind_a_slave_that_waits(mounting: Mounting, start: Start) -> None:
    """The watch over all processes sees it if somebody does."""
    bus = mounting("max_queue=1", command=OWN)
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    (bus / "U_x").write_text("full\n")
    waiting = [start("bash", "-c", f"echo {number} > {bus.path}/U_x") for number in range(6)]
    bus.wait_for_blocked_writers(6, "U_x")
    openers = [start(sys.executable, "-c", OPENS, bus / "U_x", "100") for _ in range(6)]
    for opener in openers:
        assert opener.communicate(timeout=DEADLINE) == ("done\n", ""), "and none of them is sent back twice"
    for process in waiting:
        process.kill()
        process.wait(DEADLINE)
    os.close(master)
    end(bus)


def test_a_channel_is_removed_while_slaves_wait(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=1", command=OWN)
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    (bus / "U_x").write_text("full\n")
    start("bash", "-c", f"echo x > {bus.path}/U_x")
    bus.wait_for_blocked_writers(1, "U_x")
    assert run("rm", bus / "U_x").returncode == 0
    until(lambda: not Path(bus / "U_x").exists(), "it is gone")
    os.close(master)
    end(bus)
