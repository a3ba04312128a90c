"""The text of `_stat`: what waits for its turn, and what is forgotten."""

import errno
import os

import pytest

from futebus.core.bus import Bus
from futebus.core.client import Access, Owner
from futebus.fuse.snapshots import Snapshots
from futebus.fuse.turns import Turns
from futebus.fuse.waiting import OpenStat

from ..helpers.mounts import Mount


def test_a_snapshot_that_is_closed_is_forgotten_at_once() -> None:
    """Each is as much as all clients are: who opens and closes in a loop must not make the daemon keep them."""
    bus, turns = Bus(), Turns()
    for number in range(200):
        bus.create(b"B_%d" % number, Access(True, True), Owner(0, 0, 1), 0o644, 0)
    snapshots = Snapshots(bus, turns, "/bus")
    first, *others = files = [OpenStat("", 0, 1) for _ in range(5)]
    for file in files:
        snapshots.take(file)
    assert len(turns) == 1
    turns.take()
    for file in others[:-1]:
        file.on_close()
    assert len(snapshots._wanted) == 2
    first.on_close()
    assert snapshots._pieces == [], "what was begun of it is not taken for the next one's"
    turns.finish()
    assert others[-1]._text is not None
    assert others[-1]._text.startswith(b"futebus ")
    assert others[-1]._text.count(b"\nB_") == 400
    assert not snapshots._wanted
    snapshots.take(first)
    first.on_close()
    turns.finish()
    assert len(turns) == 0
    snapshots.take(files[1])
    turns.finish()
    assert files[1]._text is not None


def test_a_refused_append_is_not_refused_again(bus: Mount) -> None:
    """An append begins where the one before ended; only what is as long as the kernel's pieces is taken for a further one."""
    file = os.open(bus / "A_x", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    line = b"{*}" + b"x" * 1000 + b"\n"
    assert os.write(file, line * 600) == len(line) * 600
    with pytest.raises(OSError, match=os.strerror(errno.EFAULT)):
        os.write(file, b"no address\n")
    assert os.write(file, b"{*}good\n") == 8
    os.close(file)
