"""Root mounts and unmounts below directories of others, who may move them at any moment: here at the worst one."""

import os
import signal
import sys
from pathlib import Path

import pytest

from futebus.fuse.mountpoint import MountError, held

from ..helpers.mounts import Mount, abort, device_of, run
from ..helpers.waiting import DEADLINE

SWAPPING = """
import os, sys
import futebus.fuse.mountpoint as place
from futebus.commands.futebus import main
def swap():
    if not os.path.islink("mine"):
        os.rename("mine", "moved")
        os.symlink("victim", "mine")
def after(function):
    def call(*arguments):
        result = function(*arguments)
        swap()
        return result
    return call
name = sys.argv.pop(1)
setattr(place, name, after(getattr(place, name)))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("options", [[], ["-o", "allow_other,user=nobody"]])
def test_root_mounts_on_what_it_has_looked_at(place: Path, options: list[str]) -> None:
    (place / "mine" / "bus").mkdir(parents=True)
    (place / "victim" / "bus").mkdir(parents=True)
    try:
        done = run(sys.executable, "-c", SWAPPING, "prepare", *options, place / "mine" / "bus", cwd=place)
        assert done.stderr == f"futebus: cannot mount on {place}/mine/bus: Not a directory\n"
        assert done.returncode == 1
        assert device_of(place / "victim" / "bus") is None
        assert device_of(place / "moved" / "bus") is None
    finally:
        abort(place / "victim" / "bus")
        abort(place / "moved" / "bus")


def test_root_takes_away_what_it_has_looked_at(place: Path) -> None:
    for name in ("mine", "victim"):
        (place / name / "bus").mkdir(parents=True)
    dead = Mount(place / "mine" / "bus", place / "dead.log")
    other = Mount(place / "victim" / "bus", place / "other.log")
    try:
        dead.daemon.kill()
        dead.daemon.wait()
        done = run(sys.executable, "-c", SWAPPING, "_asked", place / "mine" / "bus", cwd=place)
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            f"futebus: {place}/mine/bus: taking over the mount of a futebus that is dead",
            f"futebus: {place}/mine/bus: a bus is mounted here already",
        ]
        assert device_of(place / "moved" / "bus") is None
        assert other.stat(), "the bus of somebody else is where it was"
        other.unmount()
    finally:
        other.discard()
        abort(place / "moved" / "bus")
        dead.discard()


def test_a_bus_is_unmounted_where_it_was_moved_to(place: Path) -> None:
    """Its own directory cannot be moved while it is mounted on; one above it can."""
    (place / "mine" / "bus").mkdir(parents=True)
    bus = Mount(place / "mine" / "bus", place / "log")
    try:
        assert bus.stat()
        os.rename(place / "mine", place / "moved")
        bus.daemon.send_signal(signal.SIGTERM)
        assert bus.daemon.wait(DEADLINE) == 0
        assert device_of(place / "moved" / "bus") is None
    finally:
        abort(place / "moved" / "bus")
        bus.discard()


def test_a_held_directory_is_itself_whatever_becomes_of_its_path(place: Path) -> None:
    (place / "a" / "b").mkdir(parents=True)
    (place / "other").mkdir()
    with held(str(place / "a" / "b")) as name:
        os.rename(place / "a", place / "c")
        os.symlink("other", place / "a")
        os.mkdir(place / "a" / "b")
        assert os.readlink(name) == str(place / "c" / "b")
        assert os.stat(name).st_ino == os.stat(place / "c" / "b").st_ino
    with pytest.raises(MountError, match="Not a directory"), held(str(place / "a" / "b")):
        pass
    with pytest.raises(MountError, match="No such file"), held(str(place / "x" / "b")):
        pass
