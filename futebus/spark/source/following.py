"""Streams of NATS as streams and tables: offsets are numbers of messages, and tasks on any host fetch what is between two.

The one rule: an offset says from where to where its batch goes. So a batch that is run again has the same messages, the first one
too, of which Spark would ask anew where it begins; and where a query begins is written down before anything has come for it.

An offset is `{"stream": "LINES", "created": "2026-…", "from": 17, "next": 21, "at": "2026-…", "marks": [[16, 17…], [20, 17…]]}`:
messages 17 to 20 of the stream that was made then. `from` is null in what nobody has written down. A stream that was made anew is
another one, whose numbers begin again. `at` is when message 20 came, if it was there: a stream that has lost its last messages
gives their numbers to others, which have other times. `marks` tell this of earlier ones, too, the fewer the older they are.
"""

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...core.text import are, removed, spanned
from ...nats import runs
from ...nats.fetching import next_of
from ...nats.marks import Mark, kept, marked
from ...nats.reader import Reader
from ...nats.state import State, moment
from ...nats.wanted import Unfit, check_listens
from ..options import QueryError, StreamGone, check_schema, plainly
from ..remote import STREAM_COLUMNS, RemoteOptions, parse_remote
from ..telling import say
from .query import Offset, QueryReader
from .ranges import GO_ON, MessagesPartition, cut_messages

MOST_LOOKED_AT = 100_000
"""How many messages a batch has at most that is limited: as many headers are read to find out where it ends."""


class Following:
    """A stream, in the process that Spark runs for a query on the driver."""

    def __init__(self, options: RemoteOptions) -> None:
        self._options, place = options, options.place
        self.reader = Reader(place.servers, place.access, place.stream, "a query of futebus on Spark", place.patience, say)
        self._initial: Offset | None = None
        self._next: Offset | None = None
        """Where the next batch begins, for a Spark that does not tell."""
        self._frozen: int | None = None
        self._is_listened_to = False
        """Whether the stream was seen to listen to the subject that is read."""
        self._checked = 0
        """The connection over which the stream was seen to be what the query has read."""

    @property
    def _name(self) -> str:
        return self._options.place.shown

    def state(self) -> State:
        """What the stream is and has.

        Raises:
            StreamGone: it is not the one that is meant.
            QueryError: it does not listen to the subject that is read.
        """
        state = self.reader.state()
        if self._options.created not in (None, state.created):
            raise StreamGone(f"{self._name} was made at {state.created}, and not at {self._options.created}")
        if not self._is_listened_to:
            self._is_listened_to = True
            subject = self._options.place.subject
            if subject is not None and not state.is_fed:
                try:
                    check_listens(self.reader.shown, self._options.place.stream, state, subject)
                except Unfit as error:
                    raise QueryError(str(error)) from None
        return state

    def _offset(self, state: State, begin: int | None, end: int, marks: tuple[Mark, ...] = ()) -> Offset:
        at = self.reader.time_of(end - 1) if state.first < end else None
        told = {"stream": self._options.place.stream, "created": state.created, "from": begin, "next": end, "at": at}
        return told | {"marks": [[*mark] for mark in marks]}

    def _marked(self, state: State, before: tuple[Mark, ...], begin: int, end: int) -> tuple[Mark, ...]:
        return self.reader.do(lambda stream: marked(stream, before, max(begin, state.first), end))

    def initial(self) -> Offset:
        """Where a new query begins."""
        if self._initial is None:
            state = self.state()
            end = state.first if self._options.starts_at == "earliest" else state.last + 1
            self._initial = self._offset(state, None, end, self._marked(state, (), 1, end))
        return self._initial

    def ends(self) -> Offset:
        """How far there are messages."""
        state = self.state()
        return self._offset(state, 0, state.last + 1)

    def freeze(self) -> None:
        """Takes what there is now for all that there will be."""
        self._frozen = self.state().last + 1

    def _lose(self, words: str) -> None:
        if self._options.fails_on_loss:
            raise QueryError(words + GO_ON)
        say(words)

    def _begin(self, start: Offset, state: State) -> int:
        """Where a batch begins that follows on an offset."""
        if start["stream"] != self._options.place.stream:
            raise QueryError(f"the query has read the stream {start['stream']}, and not {self._options.place.stream}")
        if start["created"] != state.created:
            self._lose(f"{self._name} is another stream than the query has read: it was made anew, at {state.created}")
            return state.first
        if (there := self._kept(start, state)) < start["next"]:
            others = f", and not what it has now from message {there} on" if there <= state.last else ""
            self._lose(
                f"{self._name} has lost its last messages: the query has read it up to message {start['next'] - 1}{others}"
            )
            return there
        return int(start["next"])

    def _kept(self, offset: Offset, state: State) -> int:
        """Up to where the stream has what it had when an offset was made: its `next`, or less if it has lost messages since then.

        An offset that tells no times is known by its number alone.
        """
        end, connections = int(offset["next"]), self.reader.connections
        # Behind a connection that lives on a server may have lost messages, too: it is seen when others have come.
        if connections != self._checked or end != state.last + 1:
            found = self.reader.do(lambda stream: kept(stream, state, _marks(offset), end))
            if found < end:
                return found
            self._checked = connections
        return end

    def latest(self, start: Offset | None, is_limited: bool) -> Offset:
        """How far the next batch goes.

        Args:
            start: where it begins; None if Spark does not tell.
            is_limited: whether the options `maxRowsPerTrigger` and `maxBytesPerTrigger` hold for it.
        """
        start = start or self._next or self.initial()
        deadline = time.monotonic() + self._options.poll_seconds
        while True:
            state = self.state()
            begin = self._begin(start, state)
            end = state.last + 1 if self._frozen is None else min(self._frozen, state.last + 1)
            is_new = start["from"] is None or start["created"] != state.created or begin != start["next"]
            if end > begin and (is_new or self._has_news(state, begin)):
                end = self._bounded(state, begin, end) if is_limited else end
                break
            if is_new:
                end = begin
                break
            left = deadline - time.monotonic()
            if left <= 0 or self._frozen is not None:
                self._next = start
                return start
            self.reader.wait_for(begin, left, self._options.place.subject)
        before = _marks(start) if start["created"] == state.created else ()
        self._next = self._offset(state, begin, end, self._marked(state, before, begin, end))
        return self._next

    def _has_news(self, state: State, begin: int) -> bool:
        """Whether there is something to be read from `begin` on. The others of a stream that speak of nothing else wake nobody.

        But a query may not stay where it was until retention comes to that.
        """
        subject = self._options.place.subject
        if subject is None or self._frozen is not None or begin < (state.first + state.last) // 2:
            return True
        return self.reader.do(lambda stream: next_of(stream, begin, subject)) is not None

    def _bounded(self, state: State, begin: int, end: int) -> int:
        """Where a batch ends that is limited. It has one message at least."""
        options = self._options
        most_rows, most_bytes = options.max_rows, options.max_bytes
        if most_rows is None and (most_bytes is None or state.size <= most_bytes):
            return end
        first = max(begin, state.first)  # what is not there takes no time
        end = min(end, first + MOST_LOOKED_AT)
        count = size = 0
        for taken, message in enumerate(self.reader.messages(first, end, options.place.subject, headers_only=True)):
            where = runs.read(message.headers)
            count += where.lines if where is not None else 1
            size += int(message.headers.get("Nats-Msg-Size", 0))
            is_over = (most_rows is not None and count > most_rows) or (most_bytes is not None and size > most_bytes)
            if is_over and taken:
                return message.sequence
        return end

    def partitions(self, start: Offset, end: Offset) -> Iterator[MessagesPartition]:
        """The messages of a batch."""
        self._next = end
        begin, stop = end["from"], end["next"]
        # Some versions of Spark only tell in this way, at a start, what the last batch was: it is done, and may be gone.
        if begin is None or begin >= stop or start == end:
            return

        def gone(first: int, behind: int) -> str:
            return f"{spanned(first, behind, 'message')} of {self._name} {are(behind - first)} gone"

        state = self.state()
        if end["created"] != state.created:
            self._lose(f"{gone(begin, stop)}: it was made anew, at {state.created}")
            return
        if (there := self._kept(end, state)) < stop:
            # What has their numbers now is of a batch that comes.
            self._lose(f"{gone(max(begin, there), stop)}: it has lost its last messages")
            if there <= begin:
                return
            stop = there
        if begin < state.first:
            first = min(stop, state.first)
            self._lose(f"{removed(begin, first, self._name, 'message')} before being read")
            if first == stop:
                return
            begin = first
        if self._options.place.subject is not None and self._options.fails_on_loss:
            # Tasks see what is missing, but not whether it was of this subject; nor does anybody else.
            number = self.reader.missing(begin, stop)
            if number is not None:
                self._lose(f"{removed(number, number + 1, self._name, 'message')} before being read")
        last = (stop - 1, end["at"]) if end.get("at") and stop == end["next"] else None
        yield from cut_messages(self._options, state, begin, stop, last=last)

    def commit(self, end: Offset) -> None:
        """Everything before `end` has been dealt with. The stream keeps what it is told to keep, whoever has read it."""

    def stop(self) -> None:
        """Leaves the server."""
        self.reader.close()


def _marks(offset: Offset) -> tuple[Mark, ...]:
    """The messages by which a stream is known, of an offset; of one of an older version, the last."""
    if (told := offset.get("marks")) is not None:
        return tuple(Mark(int(sequence), int(time)) for sequence, time in told)
    return (Mark(int(offset["next"]) - 1, moment(offset["at"])),) if offset.get("at") else ()


class RemoteStreamReader(QueryReader):
    """A stream, for one query."""

    is_remote = True

    def _limits(self) -> RemoteOptions:
        return parse_remote(self._given)

    def _run(self) -> Following:
        check_schema(self._schema, STREAM_COLUMNS)
        return Following(parse_remote(self._given))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a part. Where there is none, Spark hands over something else."""
        return partition.read(self._schema) if isinstance(partition, MessagesPartition) else iter(())


class RemoteReader(DataSourceReader):
    """Reads what a stream has now.

    Raises:
        OptionError: there is no such column.
    """

    def __init__(self, schema: StructType, options: RemoteOptions) -> None:
        check_schema(schema, STREAM_COLUMNS)
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The messages that there are, in parts for tasks."""
        with plainly():
            following = Following(self._options)
            try:
                state = following.state()
            finally:
                following.stop()
            return list(cut_messages(self._options, state, state.first, state.last + 1, is_table=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a part. Where there is none, Spark hands over something else."""
        return partition.read(self._schema) if isinstance(partition, MessagesPartition) else iter(())
