"""What tasks have staged goes to a subject of a stream of NATS: each line of a query once, in order, whoever is killed when.

The one rule: the stream itself tells how far a query has come. Each message says which lines of which batch it has, and is added
behind the one before or not at all. So whatever became doubtful is asked of the subject's last message. The journal is for the
time when retention has removed that, and for what a batch consists of: what was written down at its first commit.

A journal's record counts lines here: its position is the number of the query's next line, and its intent how many are being sent.
"""

import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from ...host.durable import write_all
from ...nats import runs
from ...nats.errors import NatsError
from ...nats.reader import Reader
from ...nats.stream import Message, Overtaken, Stream, UnderWay
from ..remote import Place
from ..telling import say
from .journal import Journal, Record, State
from .lines import Columns, blocks
from .outlet import SinkError
from .publishing import JOURNAL, Pieces, is_begun, list_path, listed, write_list
from .staging import Portion, Staged, clean, complaining, make_directory, remove, stage, staged

if TYPE_CHECKING:
    from pyarrow import RecordBatch

BATCH, BEGIN, END = "Futebus-Batch", "Futebus-Batch-Begin", "Futebus-Batch-End"
"""Headers: of which batch of the query a message is; the number of the batch's first line; with the last message of a batch, that
of the line behind it."""

MOST = (1 << 63) - 1
"""The largest number of a batch or a line."""

MOST_NAME = 765
"""Characters that the name of a subject has at most in a message's headers: who reads them takes no longer one for ours."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class Known(NamedTuple):
    """What the last message of a subject tells."""

    sequence: int
    """Its number; 0 if there is none."""
    is_ours: bool
    batch: int = -1
    begin: int = 0
    """The number of the first line of the batch."""
    next: int = 0
    """The number of the line behind the message."""
    is_whole: bool = False
    """Whether the batch is out."""
    is_of_spool: bool = False
    """Whether it is of a recorder, or of another source that is no query."""


def _number(text: str) -> int | None:
    """A number that a header has; None if it is not one of ours, which the journal can have."""
    number = int(text) if _NUMBER.fullmatch(text) else MOST + 1
    return number if number <= MOST else None


def known_of(last: Message | None, query: str) -> Known:
    """What the last message of a subject tells a query."""
    where = runs.read(last.headers) if last is not None else None
    if last is None or where is None or where.spool != query:
        return Known(
            last.sequence if last is not None else 0,
            False,
            is_of_spool=last is not None and where is not None and BATCH not in last.headers,
        )
    batch, begin = (_number(last.headers.get(name, "")) for name in (BATCH, BEGIN))
    if batch is None or begin is None or where.next > MOST:
        return Known(last.sequence, False)
    return Known(last.sequence, True, batch, begin, where.next, END in last.headers)


@dataclass(frozen=True)
class NumberedTarget:
    """A subject of a stream that rows go to."""

    place: Place
    columns: Columns
    staging: Path

    def __post_init__(self) -> None:
        if len(runs.encoded(self.place.subject or "")) > MOST_NAME:
            shown = self.place.shown
            raise SinkError(f"{shown}: the name of the subject is too long: {MOST_NAME} bytes, please, percent-encoded")

    def write(
        self, batches: Iterable["RecordBatch"], query: str, batch: int, partition: int, *, makes_directory: bool = True
    ) -> WriterCommitMessage:
        """Does a task's work; see `Target.write`."""
        assert self.place.subject is not None
        lines = blocks(batches, self.columns, self.place.subject)
        portions = stage(self.staging / query, batch, partition, lines, makes_directory=makes_directory)
        return Staged(query, partition, portions)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Publishes what the tasks have staged, in the order of their partitions.

        Raises:
            SinkError: the stream does not take it, or servers are away for too long. What was published before is known, and the
                next call goes on from there.
        """
        if found := staged(messages):
            portions = [portion for message in found for portion in message.segments]
            with Publisher(self.place, self.staging / found[0].query, found[0].query) as publisher:
                publisher.publish(batch, portions)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Throws away what the tasks have staged."""
        if found := staged(messages):
            forget(self.staging / found[0].query, batch, [portion.file for message in found for portion in message.segments])


class Publisher:
    """Publishes the batches of a query.

    Args:
        place: where to.
        directory: the query's, where the staged files are. Another publisher in it is waited for.
        query: what it calls itself in its messages.
    """

    def __init__(self, place: Place, directory: Path, query: str) -> None:
        assert place.subject is not None
        self._place, self._subject, self._directory, self._query = place, place.subject, directory, query
        with complaining(directory):
            make_directory(directory)
        self._journal = Journal(directory / JOURNAL)
        self._reader = Reader(place.servers, place.access, place.stream, "a sink of futebus on Spark", place.patience, say)
        self._behind = 0

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.close()
        self._journal.close()

    def publish(self, batch: int, portions: Sequence[Portion]) -> None:
        """Publishes a batch, or the rest of it, or nothing if it is out. Then its files and all older ones are removed.

        Raises:
            SinkError: see `NumberedTarget.commit`.
        """
        try:
            known = known_of(self._reader.do(lambda stream: stream.last(self._subject)), self._query)
            self._learn(known)
            if self._journal.record.state is State.BEGUN and self._journal.record.batch < batch:
                self._publish_rest()  # Spark does not do that; it would be an old batch's lines that get lost
            if self._journal.record.batch < batch:
                self._begin(batch, portions)
            if is_begun(self._journal.record, batch):
                self._publish_rest()
        except Overtaken:
            raise SinkError(self._refusal) from None
        except NatsError as error:
            raise SinkError(str(error)) from None
        clean(self._directory, batch)

    @property
    def _refusal(self) -> str:
        return f"{self._place.shown} has a message of another publisher: a query needs a subject of its own"

    def _learn(self, known: Known) -> None:
        """Brings the journal to where the stream is."""
        self._behind = known.sequence
        record = self._journal.record
        if known.is_ours and known.batch > record.batch:
            if not known.is_whole:
                lost = f"batch {known.batch} is partly out on {self._place.shown}"
                raise SinkError(f"{lost}, and what else is of it was in {self._directory}, which is not what it was")
            self._journal.note_durably(Record(known.batch, State.DONE, position=known.next))
        elif known.is_ours and (known.next >= record.position or self._keeps_the_last()):
            # Of the journal's batch, or of the one before it if nothing of that is out.
            self._check_done(known)
            self._journal.note(record._replace(position=known.next, intent=0))
        elif known.sequence and record.position and not known.is_ours:
            raise SinkError(self._refusal)
        elif known.is_of_spool:
            # Who comes behind its last message stops it for good; it was first.
            raise SinkError(f"{self._place.shown} is a recorder's: a query needs a subject of its own")
        elif record.intent:
            say(
                f"{self._place.shown} has no message of this query any more, and its publisher was killed:"
                f" {record.intent} lines are sent again, and may arrive twice"
            )

    def _keeps_the_last(self) -> bool:
        """Whether the last message of a subject is the last to go. If messages go when they are read, it may be the first."""
        return self._reader.state().retention == "limits"

    def _check_done(self, known: Known) -> None:
        """Sees that the stream has all batches that are done. Their lines are gone, and nobody else may get their numbers.

        What is missing of a batch that is not done is still here, and is sent again, each line with its number.
        """
        batch, state, _, position, _ = self._journal.record
        is_done = state is State.DONE
        end = position if is_done else _read_begin(self._directory, batch)
        if known.next < end:
            first, last = known.batch + known.is_whole, batch if is_done else batch - 1
            batches = f"batches {first} to {last}" if first < last else f"batch {last}"
            raise SinkError(
                f"{self._place.shown} has lost lines {known.next} to {end - 1} of this query, of {batches}, which it had taken:"
                " so the query cannot go on; a new one can, with a checkpoint of its own"
            )

    def _begin(self, batch: int, portions: Sequence[Portion]) -> None:
        """Writes down what a batch consists of. From then on that, and nothing else, is the batch."""
        at = self._journal.record.position
        if not portions:
            self._journal.note_durably(Record(batch, State.DONE, position=at))
            return
        _write_begin(self._directory, batch, at)
        write_list(self._directory, batch, portions)
        self._journal.note_durably(Record(batch, State.BEGUN, position=at))

    def _publish_rest(self) -> None:
        """Publishes what is missing of the journal's batch."""
        batch, _, _, done, _ = self._journal.record
        portions, begin = listed(self._directory, batch), _read_begin(self._directory, batch)
        at, pending = begin, None
        with Pieces(self._directory) as pieces:
            for lines, text in self._messages(pieces, portions):
                if pending is not None:
                    self._put(batch, begin, *pending, is_last=False)
                    pending = None
                if at + lines > done:
                    some = max(done - at, 0)
                    pending = (at + some, lines - some, _without(text, some))
                at += lines
        if pending is not None:
            self._put(batch, begin, *pending, is_last=True)
        self._journal.note_durably(Record(batch, State.DONE, position=at))

    def _messages(self, pieces: Pieces, portions: Sequence[Portion]) -> Iterator[tuple[int, bytes]]:
        """The lines of a batch as messages: how many, and they themselves."""
        most = self._reader.do(_max_payload)
        for portion in portions:
            position = 0
            while position < portion.length:
                block = pieces.block(portion, position)
                position += len(block)
                for text in _cut(block, most):
                    lines, whole = runs.outside(text)
                    if lines:
                        yield lines, whole

    def _put(self, batch: int, begin: int, line: int, lines: int, text: bytes, *, is_last: bool) -> None:
        """Publishes a message, and keeps the journal."""
        where = runs.Where(self._query, line, lines, time.time_ns(), socket.gethostname(), self._subject)
        headers = {**runs.headers(where), BATCH: str(batch), BEGIN: str(begin), **({END: str(line + lines)} if is_last else {})}
        self._journal.note(Record(batch, State.BEGUN, position=line, intent=lines))
        self._behind = self._reader.do(lambda stream: self._added(stream, text, headers, where))
        self._journal.note(Record(batch, State.BEGUN, position=line + lines))

    async def _added(self, stream: Stream, text: bytes, headers: Mapping[str, str], where: runs.Where) -> int:
        """Adds a message, unless an earlier try has done so. Returns its number."""
        try:
            return await stream.publish(self._subject, text, headers, self._behind, where.name)
        except (Overtaken, UnderWay):
            last = await stream.last(self._subject)
            found = runs.read(last.headers) if last is not None else None
            if last is None or found is None or found.name != where.name:
                raise
            return last.sequence


def forget(directory: Path, batch: int, files: Sequence[str]) -> None:
    """Removes staged files of a batch that Spark has given up for now. What may be partly out is kept, for the next commit."""
    if not directory.is_dir():
        return
    unwanted = set(files)
    with Journal(directory / JOURNAL) as journal:
        record = journal.record
        if is_begun(record, batch):
            begun = {portion.file for portion in listed(directory, batch)}
            if record.position == _read_begin(directory, batch) and not record.intent:
                # Nothing of it is out. So it may become another one, by a query that was put right.
                journal.note_durably(Record(batch - 1, State.DONE, position=record.position))
                unwanted |= begun | {list_path(directory, batch).name, _begin_path(directory, batch).name}
            else:
                unwanted -= begun
                say(f"a part of batch {batch} is out; the rest follows when it is committed again")
        for name in unwanted:
            remove(directory / name)


async def _max_payload(stream: Stream) -> int:
    return stream.max_payload


def _cut(block: bytes, most: int) -> Iterator[bytes]:
    """Cuts lines into pieces that a message can have."""
    start = 0
    while len(block) - start > most:
        end = block.rfind(b"\n", start, start + most) + 1
        if not end:
            raise SinkError(f"a line is longer than the {most} bytes that servers take (max_payload)")
        yield block[start:end]
        start = end
    yield block[start:]


def _without(text: bytes, lines: int) -> bytes:
    """Lines without the first ones."""
    return text.split(b"\n", lines)[lines] if lines else text


def _begin_path(directory: Path, batch: int) -> Path:
    return directory / f"{batch}.begin"


def _write_begin(directory: Path, batch: int, line: int) -> None:
    """Notes with which line of the query a batch begins. The journal has where it is."""
    path = _begin_path(directory, batch)
    with complaining(path), path.open("wb", buffering=0) as file:
        write_all(file.fileno(), str(line).encode())


def _read_begin(directory: Path, batch: int) -> int:
    path = _begin_path(directory, batch)
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        raise SinkError(f"{path} cannot be read, so batch {batch} cannot be finished: {error}") from None
