"""The way onto a bus: what is no bus is not entered, whatever somebody has put there."""

import errno
import os
import sys
import threading
from pathlib import Path

import pytest

from futebus.client.entry import enter
from futebus.host.mounted import NoBus, channels_on, is_bus

from ..helpers.mounts import Mount, run
from ..helpers.waiting import DEADLINE

READ = os.O_RDONLY | os.O_CREAT


def looks_like_a_bus(place: Path) -> Path:
    """A directory that has everything but a bus, as somebody may leave it where one was mounted."""
    directory = place / "trap"
    directory.mkdir()
    (directory / "_stat").touch()
    return directory


@pytest.mark.parametrize("mode", [None, 0o622])
def test_nothing_is_made_through_a_link_where_a_bus_was(place: Path, mode: int | None) -> None:
    """Who owns the directory below chooses what it leads to: root would create, or open, any file."""
    directory = looks_like_a_bus(place)
    (directory / "+B_log").symlink_to(place / "target")
    with pytest.raises(NoBus, match="no bus is mounted on"):
        enter(directory, "+B_log", READ, mode)
    assert not (place / "target").exists()
    assert not is_bus(directory)


def test_nothing_is_made_where_no_bus_is(place: Path) -> None:
    directory = looks_like_a_bus(place)
    with pytest.raises(NoBus, match="no bus is mounted on"):
        enter(directory, "B_log", READ)
    assert [path.name for path in directory.iterdir()] == ["_stat"]
    with pytest.raises(NoBus, match="no bus is mounted on"):
        channels_on(directory)


def test_a_fifo_where_a_bus_was_keeps_nobody_waiting(place: Path) -> None:
    directory = looks_like_a_bus(place)
    os.mkfifo(directory / "B_log")
    words: list[str] = []

    def try_it() -> None:
        try:
            enter(directory, "B_log", os.O_WRONLY | os.O_CREAT)
        except NoBus as error:
            words.append(str(error))

    thread = threading.Thread(target=try_it, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert words == [f"no bus is mounted on {directory}"]


def test_a_channel_blocks_or_not_as_was_asked_for(bus: Mount) -> None:
    bus.touch("B_log")
    for flags in (0, os.O_NONBLOCK):
        descriptor = enter(bus.path, "B_log", os.O_RDONLY | flags)
        assert os.get_blocking(descriptor) == (not flags)
        os.close(descriptor)
    assert channels_on(bus.path) == ["B_log"]


def test_a_bus_by_another_name_is_one(bus: Mount, place: Path) -> None:
    (place / "link").symlink_to(bus.path)
    os.close(enter(place / "link", "B_log", READ))
    assert is_bus(place / "link")


CROWDED = """
import os, resource, sys
import futebus.client as client

full = os.dup(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (full + 1 + int(sys.argv[1]), full + 10))
try:
    print(client.subscribe(sys.argv[2]))
except client.Refused as error:
    print(error.errno, error)
"""


@pytest.mark.parametrize("room", range(3))
def test_too_many_open_files_are_a_limit_and_no_missing_bus(bus: Mount, room: int) -> None:
    done = run(sys.executable, "-c", CROWDED, str(room), bus / "B_x")
    refused = f"{errno.EMFILE} the bus on {bus.path} cannot be used: {os.strerror(errno.EMFILE)}"
    assert done.stdout == f"{(refused, refused, f'<Reader of {bus.path}/B_x>')[room]}\n", done
