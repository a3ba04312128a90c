"""Which clients keep what a channel says: recorders and archives of this host, and how far their spools go.

The one rule: a bus is taken at its word for nothing, and a process for no more than its own. Which process a client is, the bus
tells, and it may tell of any. So whose process it is, and what it is called, is asked of the system; and a spool is looked into
only if it belongs to the user of that process, is looked at in that directory, whatever is linked there, and says that it is of
that channel. All that is a user's is looked at in a thread that is for him alone: his disk, his file system and his process may
hang, and keep nobody else's recorders from being seen.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...spool import SpoolError
from ...spool.layout import read_identity, segment_firsts
from ...spool.segment import Segment
from ..told import Look
from .visits import Visits, is_other

RECORD, ARCHIVE = "futebus-record", "futebus-archive"

MOST_KEEPERS = 50
"""How many spools of a user are looked for on a bus."""

MOST_OTHERS = 8
"""For how many users beside root and who runs this."""

MOST_PLACES = 4
"""At how many places a spool is looked for."""

MOST_ARGUMENTS = 1000
"""How many arguments of a process are looked at: any user may call one what he likes, with as many as there can be."""

MOST_FILES = 65_536
"""How many files a spool may have: 2 TiB. A directory in somebody's own file system may have no end."""

MOST_BEGUN = 3
"""How many segments may be without a mark. The very last one may be, after a loss of power."""

COMMAND_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Kept:
    """How far a spool goes."""

    lines: int
    """How many there are."""
    last: float
    """When something was added last, in seconds since the epoch."""
    lost: int
    """How many lines could not be taken: they came too fast, or waited when it ended."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """A process that keeps what channels say."""

    command: str
    spools: Mapping[bytes, Kept] = field(default_factory=dict)
    """By the channels' names: those whose spools can be read."""

    def told(self, channel: bytes) -> Mapping[str, Any]:
        """What a page is told of it."""
        kept = self.spools.get(channel)
        if kept is None:
            return {"command": self.command}
        return {"command": self.command, "lines": kept.lines, "last": kept.last, "lost": kept.lost}


_Known = dict[tuple[int, int, int], Segment]
"""By the device and the inode of the directory, and by their first lines."""


class _Wanted(NamedTuple):
    """A client that may keep what a channel says, if it is what the bus tells of it."""

    pid: int
    command: str
    channel: bytes


class _Found(NamedTuple):
    """What there is of a user."""

    spools: Mapping[tuple[int, bytes], Kept]
    """By the processes and the channels."""
    known: _Known


class Keepers:
    """The recorders and archives of a bus, look after look.

    Of each spool the marks are kept that were read: there may be 32,768, and a second later a few more.
    """

    def __init__(self) -> None:
        self._visits = Visits[_Found]()
        self._found: Mapping[int, _Found] = {}

    def find(self, look: Look) -> dict[int, Keeper]:
        """The recorders and archives among the clients of a bus, by their processes. Waits a moment for what disks tell.

        Args:
            look: the bus.
        """
        commands: dict[int, str] = {}
        wanted: dict[_Wanted, None] = {}
        for channel in look.channels:
            for client in channel.clients:
                if client.command in (RECORD, ARCHIVE):
                    command = commands.setdefault(client.pid, client.command)
                    wanted[_Wanted(client.pid, command, channel.file)] = None
        nothing = _Found({}, {})
        self._found = self._visits.find(
            {
                user: partial(_visited, user, each, self._found.get(user, nothing).known)
                for user, each in _by_users(wanted).items()
            }
        )
        spools: dict[int, dict[bytes, Kept]] = {}
        for found in self._found.values():
            for (pid, file), kept in found.spools.items():
                spools.setdefault(pid, {})[file] = kept
        return {pid: Keeper(command, spools.get(pid, {})) for pid, command in commands.items()}


def _by_users(wanted: Mapping[_Wanted, None]) -> Mapping[int, Sequence[_Wanted]]:
    """What is looked for, by the users whose processes these are."""
    owners: dict[int, int | None] = {}
    found: dict[int, list[_Wanted]] = {}
    for each in wanted:
        if each.pid not in owners:
            owners[each.pid] = _owner(each.pid)
        user = owners[each.pid]
        if user is None or (user not in found and is_other(user) and sum(map(is_other, found)) >= MOST_OTHERS):
            continue
        of_user = found.setdefault(user, [])
        if len(of_user) < MOST_KEEPERS:
            of_user.append(each)
    return found


def _owner(pid: int) -> int | None:
    """Whose process it is. Unlike what else there is of a process, this does not wait for its memory."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return None


def _visited(user: int, wanted: Sequence[_Wanted], before: _Known) -> _Found:
    """Looks for spools of a user. Touches his processes and disks: they may hang."""
    known: _Known = {}
    spools: dict[tuple[int, bytes], Kept] = {}
    processes: dict[int, _Process | None] = {}
    for pid, command, channel in wanted:
        if pid not in processes:
            processes[pid] = _process(pid, command)
        process = processes[pid]
        # Its number may have become another's.
        if process and process.user == user and (kept := _kept(process, channel, before, known)):
            spools[pid, channel] = kept
    return _Found(spools, known)


def _kept(process: "_Process", channel: bytes, before: _Known, known: _Known) -> Kept | None:
    """How far the spool of a channel goes that this process fills, if that can be known."""
    with contextlib.suppress(OSError, ValueError, SpoolError):  # it has gone, or is not for us to be read
        for place in itertools.islice(process.places(channel), MOST_PLACES):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                spool = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    if (kept := _kept_in(spool, place, process.user, channel, before, known)) is not None:
                        return kept
                finally:
                    os.close(spool)
    return None


def _kept_in(spool: int, place: Path, user: int, channel: bytes, before: _Known, known: _Known) -> Kept | None:
    directory = os.fstat(spool)
    if directory.st_uid != user or not (firsts := segment_firsts(place, spool, MOST_FILES)):
        return None
    if read_identity(place, spool).channel != os.fsdecode(channel):
        return None
    for first in itertools.islice(reversed(firsts), MOST_BEGUN):
        key = (directory.st_dev, directory.st_ino, first)
        if segment := before.get(key):
            segment.refresh(spool)
        else:
            segment = Segment(place, first, spool)
        if len(segment):
            known[key] = segment
            last = segment[-1]
            return Kept(last.line - firsts[0], last.time / 1e9, last.lost)
    return None


def has_keepers(look: Look) -> bool:
    """Whether there are any."""
    return any(client.command in (RECORD, ARCHIVE) for channel in look.channels for client in channel.clients)


@dataclass(frozen=True, slots=True)
class _Process:
    """A recorder or an archive, as the system knows it."""

    command: str
    user: int
    here: Path
    """Where it is, as it sees it; it may have gone to another directory since."""
    words: list[str]
    """Its arguments."""

    def places(self, channel: bytes) -> Iterator[Path]:
        """Where the spool of a channel may be."""
        name = os.fsdecode(channel)
        if self.command == RECORD:
            for before, after in itertools.pairwise(self.words):
                if before.endswith(name) and before.rpartition("/")[2].lstrip(".+") == name:
                    yield self.here / after
        elif self.words:  # else it is about to begin, or has ended
            for before, after in itertools.pairwise(self.words):
                if before == "--spools":
                    yield self.here / after / name
            for word in self.words:
                if word.startswith("--spools="):
                    yield self.here / word.partition("=")[2] / name
            yield self.here / self.words[-1] / "_futebus" / "spools" / name


def _process(pid: int, command: str) -> _Process | None:
    """What the system says of a process, if it is called what the bus calls it."""
    with contextlib.suppress(OSError):
        # The directory of a process is held while it is looked at: its number may become another's. And no longer: whoever has
        # what comes then hang would have us hold it for ever.
        directory = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _read(directory, "comm").strip() == command.encode():
                return process_in(directory, command)
        finally:
            os.close(directory)
    return None


def process_in(directory: int, command: str) -> _Process:
    """What the system says of a process.

    Args:
        directory: that of the process in /proc, open.
        command: what the bus calls it.

    Raises:
        OSError: it has gone, or is for others.
    """
    words = os.fsdecode(_read(directory, "cmdline")).split("\0", MOST_ARGUMENTS)[:-1]
    return _Process(command, os.fstat(directory).st_uid, Path(os.readlink("cwd", dir_fd=directory)), words)


def _read(process: int, name: str) -> bytes:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        return os.read(file, COMMAND_BYTES)
    finally:
        os.close(file)
