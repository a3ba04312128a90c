r"""What tasks have staged goes out: each batch of a query once, its lines in order, whoever is killed in between.

Spark commits a batch again when it cannot tell whether it did. It has then run it again, and may have cut and ordered its rows in
another way. So what the first commit of a batch consists of is written down (`BATCH.segments`) before its first line goes out. A
later commit of the same batch goes on with that, and its own files are thrown away.

How far it has come is in the journal, by whole lines: a line that is half written is discarded by the bus when its writer dies.
Only a kill during one write(2) (0.1 ms) leaves a doubt, about one block. Such a block is sent again, and stderr says so. Signals
that a program can see wait for the end of that moment. It is that short because writes never block in the kernel: when a master
has no place, poll(2) waits.
"""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ...client.channel import BLOCK
from ...core.text import are, counted
from ...host.durable import sync, write_all
from ..telling import say
from .journal import Journal, Record, State
from .outlet import Outlet, Outlets, SinkError
from .staging import Portion, clean, complaining, make_directory, remove

JOURNAL = "journal"

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""With which Spark and people end a worker. A kill that no program sees cannot wait."""


def publish(directory: Path, bus: Path, batch: int, segments: Sequence[Portion]) -> None:
    """Publishes a batch, or the rest of it, or nothing if it is out. Then its files are removed, and those of earlier batches.

    Args:
        directory: the query's, where the staged files are. Another publisher in it is waited for.
        bus: where the bus is mounted.
        batch: the id of the batch. Ids go up.
        segments: what the batch consists of now, in the order in which it is to go out.

    Raises:
        SinkError: a line is refused, a channel or a file is gone. What was published before is noted, and the next call goes on
            from there.
    """
    with complaining(directory):
        make_directory(directory)
    with Journal(directory / JOURNAL) as journal:
        if journal.record.state is State.BEGUN and journal.record.batch < batch:
            _publish_rest(journal, directory, bus)  # Spark does not do that; it would be an old batch's lines that get lost
        if journal.record.batch < batch:
            _begin(journal, directory, batch, segments)
        if is_begun(journal.record, batch):
            _publish_rest(journal, directory, bus)
        clean(directory, batch)


def forget(directory: Path, batch: int, files: Sequence[str]) -> None:
    """Removes staged files of a batch that Spark has given up for now. What is half published is kept, for the next commit.

    Args:
        directory: the query's.
        batch: the id of the batch.
        files: names of staged files.
    """
    if not directory.is_dir():
        return
    unwanted = set(files)
    with Journal(directory / JOURNAL) as journal:
        if is_begun(journal.record, batch):
            begun = {segment.file for segment in listed(directory, batch)}
            if journal.record == Record(batch, State.BEGUN):
                # Nothing of it is out. So it may become another one, by a query that was put right.
                journal.note_durably(Record(batch - 1, State.DONE))
                unwanted |= begun | {list_path(directory, batch).name}
            else:
                unwanted -= begun
                say(f"a part of batch {batch} is out; the rest follows when it is committed again")
        for name in unwanted:
            remove(directory / name)


def is_begun(record: Record, batch: int) -> bool:
    """Whether a batch is partly out, or may be."""
    return record.batch == batch and record.state is State.BEGUN


# ---------------------------------------------------------------------------------------------- the list of a batch


def list_path(directory: Path, batch: int) -> Path:
    """The file that says what a batch consists of."""
    return directory / f"{batch}.segments"


def _begin(journal: Journal, directory: Path, batch: int, segments: Sequence[Portion]) -> None:
    """Writes down what a batch consists of. From then on that, and nothing else, is the batch."""
    if not segments:
        journal.note_durably(Record(batch, State.DONE))
        return
    write_list(directory, batch, segments)
    journal.note_durably(Record(batch, State.BEGUN))


def write_list(directory: Path, batch: int, segments: Sequence[Portion]) -> None:
    """Writes down what a batch consists of. When this returns, it survives a loss of power."""
    for segment in segments:
        _check(directory, segment)
    path = list_path(directory, batch)
    with complaining(path):
        new = path.with_suffix(".new")
        with new.open("wb", buffering=0) as file:
            write_all(file.fileno(), json.dumps(segments).encode())
        new.replace(path)
        sync(directory)


def _check(directory: Path, segment: Portion) -> None:
    """Sees that a segment is there."""
    path = directory / segment.file
    try:
        size = path.stat().st_size
    except OSError as error:
        raise SinkError(
            f"{path} cannot be read ({error.strerror}): the driver and all executors must share the stagingLocation"
        ) from None
    if size < segment.start + segment.length:
        raise SinkError(f"{path} is shorter than it was")


def listed(directory: Path, batch: int) -> list[Portion]:
    """What a batch consists of that has been begun."""
    path = list_path(directory, batch)
    try:
        with path.open(encoding="ascii") as file:
            return [Portion(*fields) for fields in json.load(file)]
    except (OSError, ValueError) as error:
        raise SinkError(f"{path} cannot be read, so batch {batch} cannot be finished: {error}") from None


# ---------------------------------------------------------------------------------------------- sending


def _publish_rest(journal: Journal, directory: Path, bus: Path) -> None:
    """Publishes what the journal says is missing of its batch."""
    batch, _, first, position, doubtful, *_ = journal.record
    segments = listed(directory, batch)
    with Outlets(bus, may_block=False) as outlets, Pieces(directory) as pieces:
        for index in range(first, len(segments)):
            segment = segments[index]
            outlet = outlets[segment.channel]
            if doubtful:
                _tell(segment, batch, pieces.read(segment, position, doubtful).count(b"\n"))
                doubtful = 0
            while position < segment.length:
                block = pieces.block(segment, position)
                _send(journal, outlet, block, Record(batch, State.BEGUN, index, position))
                position += len(block)
            position = 0
    journal.note_durably(Record(batch, State.DONE))


def _tell(segment: Portion, batch: int, lines: int) -> None:
    say(
        f"the publisher of batch {batch} was killed while it wrote to {segment.channel}:"
        f" {counted(lines, 'line')} {are(lines)} sent again, and some or all of them may arrive twice"
    )


def _send(journal: Journal, outlet: Outlet, block: bytes, start: Record) -> None:
    """Sends a block of whole lines, and keeps the journal. `start` is where the block begins."""
    sent = whole = 0
    while sent < len(block):
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            before = start._replace(position=start.position + whole)
            journal.note(before._replace(intent=len(block) - whole))
            try:
                accepted = outlet.offer(block, sent)
            except SinkError:
                journal.note(before)
                raise
            sent += accepted
            whole = block.rfind(b"\n", 0, sent) + 1
            journal.note(start._replace(position=start.position + whole))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if not accepted:
            outlet.wait()


class Pieces:
    """Reads staged files.

    Args:
        directory: where they are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = ""
        self._file = -1

    def read(self, segment: Portion, position: int, size: int) -> bytes:
        """Up to `size` bytes of a segment, from `position` in it."""
        size = min(size, segment.length - position)
        path = self._directory / segment.file
        try:
            if self._name != segment.file:
                self.close()
                self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._name = segment.file
            data = os.pread(self._file, size, segment.start + position)
        except OSError as error:
            raise SinkError(f"{path} cannot be read: {error.strerror}") from None
        if len(data) < size:
            raise SinkError(f"{path} is shorter than it was")
        return data

    def block(self, segment: Portion, position: int) -> bytes:
        """The block of whole lines that begins at `position`: `BLOCK` bytes at most, or one line if that is longer."""
        size = BLOCK
        while True:
            data = self.read(segment, position, size)
            end = data.rfind(b"\n") + 1 if size == BLOCK else data.find(b"\n") + 1
            if end:
                return data[:end]
            if len(data) < size:
                raise SinkError(f"{segment.file} does not end with a whole line")
            size *= 2

    def close(self) -> None:
        """Closes the file that was read last."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self._name = -1, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
