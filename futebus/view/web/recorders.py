"""Which clients keep what a channel says: recorders and archives of this host, and how far their spools go.

The one rule: a bus is taken at its word for nothing, and a process for no more than its own. Which process a client is, the bus
tells, and it may tell of any. So whose process it is, and what it is called, is asked of the system; and a spool is looked into
only if it belongs to the user of that process, is looked at in that directory, whatever is linked there, and says that it is of
that channel.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...spool import SpoolError
from ...spool.layout import Segment, read_identity, segment_firsts
from ..told import Look

RECORD, ARCHIVE = "futebus-record", "futebus-archive"

MOST_KEEPERS = 50
"""How many spools are looked for of a bus."""

MOST_PLACES = 4
"""At how many places a spool is looked for."""

MOST_ARGUMENTS = 1000
"""How many arguments of a process are looked at: any user may call one what he likes, with as many as there can be."""

COMMAND_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Kept:
    """How far a spool goes."""

    lines: int
    """How many there are."""
    last: float
    """When something was added last, in seconds since the epoch."""
    lost: int
    """How many lines came faster than they could be taken."""


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


class Keepers:
    """The recorders and archives of a bus, look after look.

    Of each spool the marks are kept that were read: there may be 32,768, and a second later a few more.
    """

    def __init__(self) -> None:
        self._known: _Known = {}

    def find(self, look: Look) -> dict[int, Keeper]:
        """The recorders and archives among the clients of a bus, by their processes. Touches disks: they may hang.

        Args:
            look: the bus.
        """
        commands: dict[int, str] = {}
        found: dict[int, dict[bytes, Kept]] = {}
        asked: set[tuple[int, bytes]] = set()
        before, self._known = self._known, {}
        with contextlib.ExitStack() as stack:
            processes: dict[int, _Process | None] = {}
            for channel in look.channels:
                for client in channel.clients:
                    which = client.pid, channel.file
                    if client.command not in (RECORD, ARCHIVE) or which in asked:
                        continue
                    command = commands.setdefault(client.pid, client.command)
                    spools = found.setdefault(client.pid, {})
                    if len(asked) >= MOST_KEEPERS:
                        continue
                    asked.add(which)
                    if client.pid not in processes:
                        processes[client.pid] = _process(stack, client.pid, command)
                    process = processes[client.pid]
                    if process and (kept := self._kept(process, channel.file, before)) is not None:
                        spools[channel.file] = kept
        return {pid: Keeper(commands[pid], spools) for pid, spools in found.items()}

    def _kept(self, process: "_Process", channel: bytes, before: _Known) -> Kept | None:
        """How far the spool of a channel goes that this process fills, if that can be known."""
        with contextlib.suppress(OSError, ValueError, SpoolError):  # it has gone, or is not for us to be read
            for place in itertools.islice(process.places(channel), MOST_PLACES):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    spool = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    try:
                        if (kept := self._kept_in(spool, place, process.user, channel, before)) is not None:
                            return kept
                    finally:
                        os.close(spool)
        return None

    def _kept_in(self, spool: int, place: Path, user: int, channel: bytes, before: _Known) -> Kept | None:
        directory = os.fstat(spool)
        if directory.st_uid != user or not (firsts := segment_firsts(place, spool)):
            return None
        if read_identity(place, spool).channel != os.fsdecode(channel):
            return None
        for first in reversed(firsts):
            key = (directory.st_dev, directory.st_ino, first)
            if segment := before.get(key):
                segment.refresh(spool)
            else:
                segment = Segment(place, first, spool)
            # The very last may be without a mark, after a loss of power.
            if len(segment):
                self._known[key] = segment
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


def _process(stack: contextlib.ExitStack, pid: int, command: str) -> _Process | None:
    """What the system says of a process, if it is called what the bus calls it."""
    with contextlib.suppress(OSError):
        # The directory of a process is held while it is looked at: its number may become another's.
        directory = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, directory)
        if _read(directory, "comm").strip() == command.encode():
            return process_in(directory, command)
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
