"""Lines on their way to the bus in two steps: tasks stage them in files, and the driver publishes what Spark commits.

A directory for each query holds a file for each attempt of a task (`BATCH-PARTITION-UNIQUE.lines`), and what the publisher keeps
there (see `publishing`). Names are unique, so an attempt that fails, or that runs beside another, is in nobody's way.
"""

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from ...host.durable import sync
from .outlet import SinkError

_OF_BATCH = re.compile(r"([0-9]+)[-.]")

_TRIES = 100
"""How often a directory is emptied in which files appear meanwhile. A task makes one."""


class Portion(NamedTuple):
    """Whole lines for one channel, in a staged file."""

    file: str
    """The file's name in the query's directory."""
    channel: str
    start: int
    """Where they begin in the file, in bytes."""
    length: int
    """How many bytes they are."""


class Published(WriterCommitMessage):
    """A task has published its lines."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """A task has staged its lines."""

    query: str
    """The name of the query's directory in the stagingLocation."""
    partition: int
    segments: Sequence[Portion]


def staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """What tasks have staged, in the order of their partitions. A task that failed has no message."""
    return sorted((message for message in messages if isinstance(message, Staged)), key=lambda message: message.partition)


class StagedFile:
    """A file that lines are written to, and the segments in it.

    Args:
        directory: the query's.
        name: the file's name, a new one.
        makes_directory: whether the directory is made if it is not there.

    Raises:
        SinkError: the file cannot be made; `append` and `finish`: it cannot be written.
    """

    def __init__(self, directory: Path, name: str, *, makes_directory: bool = True) -> None:
        self.segments: list[Portion] = []
        self._directory = directory
        self._name = name
        self._path = directory / name
        self._length = 0
        with complaining(self._path):
            if makes_directory:
                make_directory(directory)
            self._file = self._path.open("xb")

    def append(self, channel: str, lines: bytes) -> None:
        """Writes whole lines for a channel."""
        with complaining(self._path):
            self._file.write(lines)
        last = self.segments[-1] if self.segments else None
        if last and last.channel == channel:
            self.segments[-1] = last._replace(length=last.length + len(lines))
        else:
            self.segments.append(Portion(self._name, channel, self._length, len(lines)))
        self._length += len(lines)

    def finish(self) -> None:
        """Closes the file. From then on it survives a loss of power."""
        with complaining(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            sync(self._directory)

    def discard(self) -> None:
        """Removes the file."""
        remove(self._path)
        with contextlib.suppress(OSError):  # what could not be written is tried once more
            self._file.close()


def stage(
    directory: Path, batch: int, partition: int, blocks: Iterable[tuple[str, bytes]], *, makes_directory: bool = True
) -> list[Portion]:
    """Writes lines into a new file. If that fails, the file is removed.

    Args:
        directory: the query's.
        batch: the id of the batch.
        partition: which part of the batch this is.
        blocks: channels, each with whole lines for it.
        makes_directory: whether the directory is made if it is not there. If not, whoever has removed it wants nothing any more.

    Returns:
        What was written, in its order. Without any lines there is no file.

    Raises:
        SinkError: the file cannot be written. What goes wrong in `blocks` passes.
    """
    file: StagedFile | None = None
    try:
        for channel, lines in blocks:
            file = file or StagedFile(directory, f"{batch}-{partition}-{uuid.uuid4().hex}.lines", makes_directory=makes_directory)
            file.append(channel, lines)
        if file is None:
            return []
        file.finish()
    except BaseException:
        if file is not None:
            file.discard()
        raise
    return file.segments


def clean(directory: Path, batch: int) -> None:
    """Removes the files of a batch and of all before it."""
    for path in directory.iterdir():
        match = _OF_BATCH.match(path.name)
        if match and int(match[1]) <= batch:
            remove(path)


def make_directory(path: Path) -> None:
    """Makes a directory, and those that it is in, where they are missing. They survive a loss of power."""
    if not path.is_dir():
        make_directory(path.parent)
        try:
            path.mkdir(exist_ok=True)  # another task may be quicker
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        sync(path.parent)


def remove(path: Path) -> None:
    """Removes a file. That it is not there, or may not be removed, is no reason to fail: it is in nobody's way."""
    with contextlib.suppress(OSError):
        path.unlink()


def remove_directory(path: Path) -> None:
    """Removes a directory and what is in it, also while tasks that nobody waits for any more make files in it.

    It gets another name first, so that only a task that has already found it can still make one. What may not be removed stays.
    """
    removed = path.with_name(f"{path.name}.removed")
    with contextlib.suppress(OSError):
        path.rename(removed)
    for _ in range(_TRIES):
        shutil.rmtree(removed, ignore_errors=True)
        if not removed.exists():
            return


@contextlib.contextmanager
def complaining(path: Path) -> Iterator[None]:
    """Makes one sentence of what goes wrong with a file."""
    try:
        yield
    except OSError as error:
        raise SinkError(f"{path} cannot be written: {error.strerror}") from None
