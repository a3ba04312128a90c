"""What tasks have staged goes to a subject of a stream of NATS: each line of a query once, in order, whoever is killed when.

The one rule: the stream itself tells how far a query has come. Each message says which lines of which batch it has, and is added
behind the one before or not at all. So whatever became doubtful is asked of the subject's last message. The journal is for the
time when retention has removed that, or the stream has lost it; and for what a batch consists of: what was written down at its
first commit.

A journal's record counts lines here: its position is the number of the query's next line, and its intent how many are being sent.
"""

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyspark.sql.datasource import WriterCommitMessage

from ...core.text import counted, spanned, were
from ...host.durable import write_all
from ...nats import runs
from ...nats.errors import Away, NatsError, NoStream
from ...nats.reader import Reader
from ...nats.stream import NotThere, Overtaken, Refused, Stream, UnderWay
from ..remote import Place
from ..telling import say
from .asking import BATCH, BEGIN, END, Known, Told, ask, check_takes, has_kept
from .journal import Journal, Record, State
from .lines import Columns, blocks
from .outlet import SinkError
from .publishing import JOURNAL, Pieces, is_begun, list_path, listed, write_list
from .staging import Portion, Staged, clean, complaining, make_directory, remove, stage, staged

if TYPE_CHECKING:
    from pyarrow import RecordBatch

MOST_NAME = 765
"""Characters that the name of a subject has at most in a message's headers: who reads them takes no longer one for ours."""

_NAME = "a sink of futebus on Spark"
"""What servers call us."""

_TRIES = 3
"""How often it is tried to go on where a message was not behind the one that it was to be behind."""

_GONE = "so the query cannot go on; a new one can, with a checkpoint of its own"


class _Gone(Overtaken):
    """What was the last of the subject has gone, and nothing has come in its place. So may a message of ours."""


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

    def check(self) -> None:
        """Sees that the stream is there and takes what will be published. Servers that are away say nothing of that yet.

        Raises:
            SinkError: it does not.
        """
        assert self.place.subject is not None
        reader = Reader(self.place.servers, self.place.access, self.place.stream, _NAME, 0)
        try:
            check_takes(reader.shown, reader.state(), self.place.stream, self.place.subject)
        except Away:
            pass
        except NatsError as error:
            raise SinkError(str(error)) from None
        finally:
            reader.close()

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
        self._reader = Reader(place.servers, place.access, place.stream, _NAME, place.patience, say)
        self._behind = 0
        self._most, self._limit = 0, ""
        """Bytes that a message may have beside its headers, and what allows no more."""
        self._is_doubtful = False
        """Whether the stream may have the message that is being sent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.closing(self._journal):
            self._reader.close()

    def publish(self, batch: int, portions: Sequence[Portion]) -> None:
        """Publishes a batch, or the rest of it, or nothing if it is out. Then its files and all older ones are removed.

        Raises:
            SinkError: see `NumberedTarget.commit`.
        """
        try:
            self._persistently(batch, portions)
        except NatsError as error:
            raise SinkError(str(error)) from None
        clean(self._directory, batch)

    def _persistently(self, batch: int, portions: Sequence[Portion]) -> None:
        """Publishes a batch, again from where it is, if a message was not behind the one that it was to be behind.

        An earlier try was stored late, or the other one was lost or removed. Or there is another publisher.
        """
        left, at = _TRIES, 0
        while left:
            try:
                self._publish(batch, portions)
                return
            except Overtaken as error:
                has_gone = isinstance(error, _Gone)
                refusal = str(error) if has_gone or isinstance(error, NotThere) else self._refusal
            before, at = at, self._journal.record.position
            left = _TRIES if at > before else left - 1
            if self._is_doubtful and not at and not has_gone:
                break  # to come behind the other one now might be to come a second time
        raise SinkError(refusal)

    def _publish(self, batch: int, portions: Sequence[Portion]) -> None:
        self._learn(self._reader.do(lambda stream: ask(stream, self._subject, self._query)))
        if self._journal.record.state is State.BEGUN and self._journal.record.batch < batch:
            self._publish_rest()  # Spark does not do that; it would be an old batch's lines that get lost
        if self._journal.record.batch < batch:
            self._begin(batch, portions)
        if is_begun(self._journal.record, batch):
            self._publish_rest()

    @property
    def _refusal(self) -> str:
        return f"{self._place.shown} has a message of another publisher: a query needs a subject of its own"

    def _learn(self, told: Told) -> None:
        """Brings the journal to where the stream is."""
        state, known, self._most, self._limit = told
        self._behind = known.sequence
        record = self._journal.record
        if known.is_ours and known.batch > record.batch:
            if not known.is_whole:
                lost = f"batch {known.batch} is partly out on {self._place.shown}"
                raise SinkError(f"{lost}, and what else is of it was in {self._directory}, which is not what it was")
            done = Record(known.batch, State.DONE, position=known.next, sequence=known.sequence, created=state.created)
            self._journal.note_durably(done)
            return
        # The last message of a subject is the last to go. But if messages go when they are read, it may be the first.
        if known.is_ours and (known.next >= record.position or state.retention == "limits"):
            # Of the journal's batch, or of the one before it if nothing of that is out.
            self._check_done(known)
            record = record._replace(position=known.next, intent=0, sequence=known.sequence)
        else:
            record = self._kept(told)
            if known.sequence and record.position and not (known.is_ours or known.is_marker):
                raise SinkError(self._refusal)
            if known.is_of_spool:
                # Who comes behind its last message stops it for good; it was first.
                raise SinkError(f"{self._place.shown} is a recorder's: a query needs a subject of its own")
            if record.intent:
                lines = f"what was just being sent, {counted(record.intent, 'line')}"
                say(f"{self._place.shown} has no message of this query any more: {lines}, is sent again, and may arrive twice")
        self._journal.note(record._replace(created=state.created))

    def _check_done(self, known: Known) -> None:
        """Sees that the stream has all batches that are done. Their lines are gone, and nobody else may get their numbers.

        What is missing of a batch that is not done is still here, and is sent again, each line with its number.
        """
        end, _, last = self._done()
        if known.next < end:
            raise self._lost(known.next, end, known.batch + known.is_whole, last)

    def _lost(self, line: int, end: int, batch: int, last: int) -> SinkError:
        lines = f"{spanned(line, end)} of this query, of "
        lines += f"batches {batch} to {last}" if batch < last else f"batch {last}"
        return SinkError(f"{self._place.shown} has lost {lines}, which it had taken: {_GONE}")

    def _done(self) -> tuple[int, int, int]:
        """Where the batches that are done end: the number of the next line, that of the last message, and the last batch's."""
        record = self._journal.record
        if record.state is State.DONE:
            return record.position, record.sequence, record.batch
        return *_read_begin(self._directory, record.batch), record.batch - 1

    def _kept(self, told: Told) -> Record:
        """Sees that the stream has lost none of the batches that are done, though its last message does not tell.

        Returns:
            The journal's record; if the stream has lost some of the batch that is not done, as it is without that.
        """
        record = self._journal.record
        if not record.position or not record.created:
            return record
        is_another = record.created != told.state.created
        if not is_another and self._has_kept(told, record.sequence, record.position):
            return record
        end, sequence, last = self._done()
        if end and is_another:
            raise SinkError(
                f"{self._place.shown} is another stream than that which has taken lines of this query up to {end - 1}: {_GONE}"
            )
        if end and not (sequence and self._has_kept(told, sequence, end)):
            if told.state.first == 1 and not told.state.removed:
                raise self._lost(0, end, 0, last)
            # Others may have been removed before.
            lines = f"lines of this query up to {end - 1}, the last of batch {last}"
            raise SinkError(f"{self._place.shown} has lost {lines}, which it had taken: {_GONE}")
        say(f"{self._place.shown} has lost lines of batch {record.batch}, which it had taken: the batch is sent again")
        return record._replace(position=end, intent=0, sequence=sequence)

    def _has_kept(self, told: Told, sequence: int, line: int) -> bool:
        return self._reader.do(lambda stream: has_kept(stream, told.state, self._query, sequence, line))

    def _begin(self, batch: int, portions: Sequence[Portion]) -> None:
        """Writes down what a batch consists of. From then on that, and nothing else, is the batch."""
        record = self._journal.record._replace(batch=batch, state=State.BEGUN if portions else State.DONE, intent=0)
        if portions:
            _write_begin(self._directory, record)
            write_list(self._directory, batch, portions)
        self._journal.note_durably(record)

    def _publish_rest(self) -> None:
        """Publishes what is missing of the journal's batch."""
        batch, done = self._journal.record.batch, self._journal.record.position
        portions, (begin, _) = listed(self._directory, batch), _read_begin(self._directory, batch)
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
            self._check(at)
        self._journal.note_durably(self._journal.record._replace(state=State.DONE, position=at, intent=0))

    def _check(self, line: int) -> None:
        """Sees that the stream has all lines before this one: who listens to the subject can confirm in its place.

        Raises:
            NotThere: it has not.
        """
        told = self._reader.do(lambda stream: ask(stream, self._subject, self._query))
        record = self._journal.record
        if told.state.created != record.created or not self._has_kept(told, record.sequence, line):
            raise NotThere(f"{self._place.shown} does not have what was confirmed in its name")

    def _messages(self, pieces: Pieces, portions: Sequence[Portion]) -> Iterator[tuple[int, bytes]]:
        """The lines of a batch as messages: how many, and they themselves."""
        for portion in portions:
            position = 0
            while position < portion.length:
                block = pieces.block(portion, position)
                position += len(block)
                for text in _cut(block, self._most, self._limit):
                    lines, whole = runs.outside(text)
                    if lines:
                        yield lines, whole

    def _put(self, batch: int, begin: int, line: int, lines: int, text: bytes, *, is_last: bool) -> None:
        """Publishes a message, and keeps the journal."""
        where = runs.Where(self._query, line, lines, time.time_ns(), socket.gethostname(), self._subject)
        headers = {**runs.headers(where), BATCH: str(batch), BEGIN: str(begin), **({END: str(line + lines)} if is_last else {})}
        before = self._journal.record._replace(position=line, intent=0)
        self._journal.note(before._replace(intent=lines))
        self._is_doubtful = False
        try:
            self._behind = self._reader.do(lambda stream: self._added(stream, text, headers, where))
        except NatsError:
            if not self._is_doubtful:
                self._journal.note(before)
            raise
        self._journal.note(before._replace(position=line + lines, sequence=self._behind))

    async def _added(self, stream: Stream, text: bytes, headers: Mapping[str, str], where: runs.Where) -> int:
        """Adds a message, unless an earlier try has done so. Returns its number."""
        was_doubtful, self._is_doubtful = self._is_doubtful, True
        try:
            return await stream.publish(self._subject, text, headers, self._behind, where.name, lambda: self._say_again(where))
        except (Refused, NoStream):
            self._is_doubtful = was_doubtful
            raise
        except (Overtaken, UnderWay) as error:
            last = await stream.last(self._subject)
            found = runs.read(last.headers) if last is not None else None
            if found is not None and last is not None and (found.name, found.lines) == (where.name, where.lines):
                return last.sequence
            if isinstance(error, Overtaken) or (found is not None and found.name == where.name):
                # An earlier publisher may have cut the batch in another way. What is missing begins elsewhere then.
                self._is_doubtful = was_doubtful
                if last is None or last.is_marker:
                    raise _Gone(f"{self._place.shown} removes what lines of this query are to come behind") from None
                raise Overtaken(str(error)) from None
            raise

    def _say_again(self, where: runs.Where) -> None:
        again = f"{spanned(where.line, where.next)} of this query {were(where.next - where.line)} sent again"
        say(f"{self._place.shown} has removed what it was sent, before it was known to be there: {again}")


def forget(directory: Path, batch: int, files: Sequence[str]) -> None:
    """Removes staged files of a batch that Spark has given up for now. What may be partly out is kept, for the next commit."""
    if not directory.is_dir():
        return
    unwanted = set(files)
    with Journal(directory / JOURNAL) as journal:
        record = journal.record
        if is_begun(record, batch):
            begun = {portion.file for portion in listed(directory, batch)}
            if record.position == _read_begin(directory, batch)[0] and not record.intent:
                # Nothing of it is out. So it may become another one, by a query that was put right.
                journal.note_durably(record._replace(batch=batch - 1, state=State.DONE))
                unwanted |= begun | {list_path(directory, batch).name, _begin_path(directory, batch).name}
            else:
                unwanted -= begun
                say(f"a part of batch {batch} is out; the rest follows when it is committed again")
        for name in unwanted:
            remove(directory / name)


def _cut(block: bytes, most: int, limit: str) -> Iterator[bytes]:
    """Cuts lines into pieces that a message can have."""
    start = 0
    while len(block) - start > most:
        end = block.rfind(b"\n", start, start + most) + 1
        if not end:
            raise SinkError(f"a line is longer than the {most} bytes that {limit}")
        yield block[start:end]
        start = end
    yield block[start:]


def _without(text: bytes, lines: int) -> bytes:
    """Lines without the first ones."""
    return text.split(b"\n", lines)[lines] if lines else text


def _begin_path(directory: Path, batch: int) -> Path:
    return directory / f"{batch}.begin"


def _write_begin(directory: Path, record: Record) -> None:
    """Notes with which line of the query a batch begins, and behind which of its messages. The journal has where it is."""
    path = _begin_path(directory, record.batch)
    with complaining(path), path.open("wb", buffering=0) as file:
        write_all(file.fileno(), f"{record.position} {record.sequence}".encode())


def _read_begin(directory: Path, batch: int) -> tuple[int, int]:
    """The line with which a batch begins, and the number of the message before; 0 if there is none, or it is not known."""
    path = _begin_path(directory, batch)
    try:
        line, _, sequence = path.read_text().partition(" ")
        return int(line), int(sequence or 0)
    except (OSError, ValueError) as error:
        raise SinkError(f"{path} cannot be read, so batch {batch} cannot be finished: {error}") from None
