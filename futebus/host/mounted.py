"""Is a bus mounted there? Who asks to use it opens the directory; who must not be kept waiting looks into the mount table.

A bus that hangs, or whose daemon is dead, is in the mount table too, and a hung file system hangs whoever touches it.
"""

import contextlib
import errno
import functools
import itertools
import os
import re
from collections import deque
from pathlib import Path
from typing import NamedTuple

from ..core import kinds

FUSE_TYPE = "fuse.futebus"
"""What the mount table says of a bus."""

ANSWER_SECONDS = 3.0
"""Seconds after which a bus is said not to answer. It is waited for all the same. One with 10,000 clients needs 0.5."""

DEAD = (errno.ENOTCONN, errno.ECONNABORTED)
"""What a mount answers that nobody serves any more."""

TABLE = Path("/proc/self/mountinfo")


class Mount(NamedTuple):
    """A line of the mount table."""

    id: int
    """Of no other mount that is there at the same time."""
    device: str
    """Major and minor number: `0:42`."""
    path: str
    type: str
    owner: tuple[int, int] | None
    """Of a FUSE mount: the user and group who mounted it."""


def mounts(table: int | None = None) -> list[Mount]:
    """The mount table of this process; read from a descriptor of it, if there is one: one that is open cannot be refused."""
    if table is None:
        text = TABLE.read_bytes()
    else:
        os.lseek(table, 0, os.SEEK_SET)
        text = b"".join(iter(lambda: os.read(table, 65_536), b""))
    return [*_parsed(text)]


@functools.lru_cache(maxsize=2)
def _parsed(text: bytes) -> tuple[Mount, ...]:
    """The mounts of a table. Who looks again and again has the same one again and again, and it may be long."""
    found = []
    # At newlines alone: a path may have other characters that splitlines() takes for an end of line.
    for line in os.fsdecode(text).removesuffix("\n").split("\n"):
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        kind, _, details = right.partition(" ")
        # Behind the source, which is a name that somebody has chosen, and in which blanks are escaped.
        owner = re.search(r"\buser_id=(\d+),group_id=(\d+)", details.partition(" ")[2])
        ids = (int(owner[1]), int(owner[2])) if owner else None
        found.append(Mount(int(fields[0]), fields[2], _unescape(fields[4]), kind, ids))
    return tuple(found)


def _unescape(path: str) -> str:
    r"""The kernel writes blanks, tabs, newlines and backslashes of a path as `\040`, `\011`, `\012` and `\134`."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


def mounted_on(path: str) -> Mount | None:
    """What is mounted on a directory, the topmost if there are several."""
    return next((mount for mount in reversed(mounts()) if mount.path == path), None)


class NoBus(Exception):
    """Why there is no bus in a directory, in one sentence.

    Args:
        words: the sentence.
        number: the error number of the system, if it has one.
    """

    def __init__(self, words: str, number: int | None) -> None:
        super().__init__(words)
        self.number = number


def unusable(directory: Path, error: OSError) -> NoBus:
    """Why a bus that is mounted on a directory cannot be used, and what can be done if its daemon is dead.

    Args:
        directory: where it is mounted.
        error: what the system has said.
    """
    if error.errno in DEAD:
        does = f"'futebus {directory}' takes its place, 'fusermount3 -u {directory}' removes it"
        return NoBus(f"the futebus on {directory} is dead: {does}", error.errno)
    return NoBus(f"the bus on {directory} cannot be used: {error.strerror}", error.errno)


def find_bus(directory: Path, opened: list[int] | None = None) -> int:
    """Finds the bus that is mounted on a directory, and sees that it answers. One that hangs is waited for.

    Args:
        directory: that.
        opened: as for `reach`.

    Returns:
        A descriptor. What is opened relative to it is on this bus, or is not opened.

    Raises:
        NoBus: there is none.
    """
    opened = [] if opened is None else opened
    bus, _ = reach(directory, opened)
    try:
        os.stat(kinds.STAT, dir_fd=bus)
    except OSError as error:
        close_all(opened)
        raise unusable(directory, error) from None
    except BaseException:
        close_all(opened)
        raise
    return bus


def reach(directory: Path, opened: list[int] | None = None) -> tuple[int, Mount]:
    """Finds the bus that is mounted on a directory, and asks it nothing: it may hang, and be dead.

    Args:
        directory: that.
        opened: an empty list, in which the descriptor is from the moment on that there is one: a child that another thread forks
            finds it there. If this fails, it is empty again.

    Returns:
        A descriptor, as of `find_bus`; and what the mount table says of this mount, wherever links have led.

    Raises:
        NoBus: there is none.
    """
    opened = [] if opened is None else opened
    try:
        # Noted in the same step: the handler of a signal may raise behind each call.
        opened += map(os.open, (directory,), (os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC,))
    except FileNotFoundError as error:
        raise NoBus(f"there is no directory {directory}", error.errno) from None
    except NotADirectoryError as error:
        raise NoBus(f"{directory} is a file and not the directory of a bus", error.errno) from None
    except OSError as error:
        raise unusable(directory, error) from None
    bus = opened[0]
    try:
        # Before anything is opened there: what is in the directory below may be somebody else's trap.
        number = mount_id(bus)
        mount = next((mount for mount in mounts() if mount.id == number and mount.type == FUSE_TYPE), None)
        if mount is None:
            raise NoBus(f"no bus is mounted on {directory}", errno.ENOENT)
    except OSError as error:
        close_all(opened)
        raise unusable(directory, error) from None
    except BaseException:
        close_all(opened)
        raise
    return bus, mount


def close_all(opened: list[int], count: int | None = None) -> None:
    """Closes what was opened, and is noted in a list: none twice, whoever else does so, and none that is not there any more.

    A child that the handler of a signal has forked finds there what it is to close, and may soon have its own files by those
    numbers.

    Args:
        opened: the list. What is closed is taken out of it before.
        count: how many, from the first on; None: all.
    """
    most = len(opened) if count is None else count
    with contextlib.suppress(IndexError):
        # All in one step: the handler of a signal may raise behind each call.
        deque(map(os.close, map(opened.pop, itertools.repeat(0, most))), 0)


def mount_id(descriptor: int) -> int:
    """The ID of the mount that an open file is in."""
    words = Path(f"/proc/self/fdinfo/{descriptor}").read_text().split()
    return int(words[words.index("mnt_id:") + 1])


def check_bus(directory: Path) -> None:
    """Sees that a bus is mounted on a directory.

    Raises:
        NoBus: there is none.
    """
    os.close(find_bus(directory))


def is_bus(directory: Path) -> bool:
    """Whether a bus that can be used is mounted on a directory."""
    try:
        check_bus(directory)
    except NoBus:
        return False
    return True


def channels_on(directory: Path) -> list[str]:
    """The names of the channels of a bus, in order.

    Raises:
        NoBus: there is none.
    """
    bus = find_bus(directory)
    try:
        return sorted(file.name for file in Path(f"/proc/self/fd/{bus}").iterdir() if file.name.startswith(kinds.LETTERS))
    except OSError as error:
        raise unusable(directory, error) from None
    finally:
        os.close(bus)
