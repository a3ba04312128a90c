"""A stream of NATS as an archive: what many hosts have said, each line once.

The one rule: how far the stream is archived is one number, that of the next message. It belongs to the stream that was made at a
certain time: one that is made anew is another one, whose numbers begin again. And it belongs to certain messages, of which some
are known by when they came: a server that loses its power may lose its last messages, and give their numbers to others, which are
archived as well. What comes again then is left out: a message that was not lost is the same one, and lines that recorders publish
again are known by their own numbers.

There are no spools here: the stream is what is read again after a failure.
"""

import contextlib
import functools
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)
from pyspark.sql.types import StructType

from ..core.text import counted, spanned
from ..nats.errors import Away, NatsError, NoStream
from ..nats.marks import kept, marked, newest
from ..nats.reader import Reader
from ..nats.state import State
from ..nats.wanted import check_listens
from ..spark.remote import Place
from .archive import Archive, Position
from .compaction import SCHEMA, Compaction
from .keeping import Missing
from .names import fitting
from .run import Archiving

AGAIN_SECONDS = 3600.0
"""How long what a stream has lost is looked for in what comes: recorders publish it again as soon as they reach their server."""

LINE = ("subject", "host", "offset", "value")
"""What a line has that is published again. Its message may have begun with another one, and so have another time."""

SAME = ("sequence", "timestamp")
"""What else an outsider's line has if its message is the same one: he may say the same twice."""

COLUMNS = f"{SCHEMA}, host STRING, subject STRING, sequence LONG"


class MessagesReplaced(NatsError):
    """The stream has lost messages, and got others with their numbers, while they were read. Read again, they are known."""


class StreamArchive(Archive):
    """An archive of a stream.

    Args:
        spark: see `Archive`.
        root: where it is.
        place: the stream.
        created: when that was made.
        say: is told when it has given numbers anew.
    """

    columns = (*Archive.columns, "host", "subject", "sequence")

    def __init__(self, spark: SparkSession, root: str, place: Place, created: str, say: Callable[[str], object]) -> None:
        self._key = f"{place.stream}/{place.subject}" if place.subject is not None else place.stream
        self._place, self._created, self._say = place, created, say
        self._said: tuple[int, int] | None = None
        super().__init__(spark, root, Path)

    def follow(self, created: str) -> None:
        """Goes on with the stream that was made then: another one of the same name."""
        self._created = created

    def left(self, state: State) -> int:
        """How many messages are not archived, of those that a stream has.

        Args:
            state: what it is and has.
        """
        at = self.state.positions.get(self._key)
        begin = at.line if at is not None and at.spool == state.created else 0
        return max(state.last + 1 - max(begin, state.first), 0)

    def add(self, lines: DataFrame) -> int:
        """Archives the lines of a batch, but for those that are archived already; see `Archive`.

        Raises:
            MessagesReplaced: nobody can tell which lines these are.
            NatsError: the stream does not tell how far it is the one that was archived.
        """
        with contextlib.closing(reader_of(self._place, self._say)) as self._reader:
            state = self._reader.state()
            self._newest = self._reader.do(lambda stream: newest(stream, state))
            self._next, self._lost = self._begin(state)
            return super().add(lines)

    def _begin(self, state: State) -> tuple[int, tuple[int, int, int]]:
        """The number of the first message that is not archived, 0 if none is; and what the stream has lost, as in `Position`."""
        at = self.state.positions.get(self._key)
        if at is None or at.spool != self._created:
            return 0, (0, 0, 0)
        now = time.time_ns()
        first, end, until = at.lost
        is_over = until < now
        begin = self._known(state, at)
        if begin == at.line:
            return begin, (0, 0, 0) if is_over else at.lost
        if self._said != (begin, at.line):
            self._said = begin, at.line
            lost = f"the last of what is archived, {spanned(begin, at.line, 'message')}"
            self._say(f"{self._place.shown} has lost {lost}, and has others there now: these are archived, too")
        until = now + int(AGAIN_SECONDS * 1e9)
        return begin, (begin, at.line, until) if is_over else (min(first, begin), max(end, at.line), until)

    def _known(self, state: State, at: Position) -> int:
        """The number of the first message that is not known to be archived."""
        if state.created != at.spool or not at.marks:
            return at.line
        behind = self._reader.do(lambda stream: kept(stream, state, at.marks, at.line))
        found = self._reader.do(lambda stream: stream.stored(behind)) if behind < at.line else None
        # What retention or somebody has removed is missing, and no other has its number.
        return found[0] if found is not None and found[0] < at.line else at.line

    def _left_out(self, lines: DataFrame) -> DataFrame:
        # Of each batch: a query may go back in a stream that has lost messages, or begin anew without its checkpoint.
        return lines.where(F.col("sequence") >= self._next)

    def _stage(self, new: DataFrame) -> str:
        staging = super()._stage(new)
        files = self._staged(staging)
        if not any(self._lost) or not files:
            return staging
        spark = new.sparkSession
        places = [file.removeprefix(f"{staging}/").split("/") for file in files]
        channels = [channel for channel in dict.fromkeys(place[0] for place in places) if self.storage.exists(channel)]
        if not channels:
            return staging
        first, end, _ = self._lost
        schema = StructType([field for field in new.schema.fields if field.name in (*LINE, *SAME)])
        for name, kind in (("channel", "string"), ("date", "date"), ("hour", "string")):
            schema.add(name, kind)
        with self.lock:  # what is read is not compacted meanwhile
            had = self.storage.parquet(spark, schema, *channels, is_partitioned=True)
            # A line that comes again may have an earlier time, and hardly a later one.
            oldest = min(place[1] for place in places).removeprefix("date=")
            had = had.where(F.col("date") >= F.date_sub(F.lit(oldest), 1))
            had = had.where((F.col("sequence") >= first) & (F.col("sequence") < end)).select(*LINE, *SAME)
            sifted = super()._stage(new.join(had, _is_again(new, had), "left_anti"))
        count = self._rows(spark, staging) - self._rows(spark, sifted)
        if count:
            self._say(f"{counted(count, 'line', ',')} of {self._place.shown} came again: archived already, and left out")
        self.storage.remove(staging)
        return sifted

    def _rows(self, spark: SparkSession, staging: str) -> int:
        return self.storage.parquet(spark, "sequence LONG", staging).count()

    def _count(self, spark: SparkSession, staging: str) -> tuple[int, dict[str, Position]]:
        staged = self.storage.parquet(spark, "sequence LONG", staging)
        ((count, first, last),) = staged.agg(F.count("*"), F.min("sequence"), F.max("sequence")).collect()
        at = self.state.positions.get(self._key)
        before = at.marks if at is not None and at.spool == self._created else ()
        marks = self._reader.do(lambda stream: marked(stream, before, max(first, self._next), last + 1))
        # Now: if the newest is the same, what has just been marked is what was read.
        if not self._has_newest(last):
            raise MessagesReplaced(f"{self._place.shown} has lost its last messages while they were read, and got others")
        return count, {**self.state.positions, self._key: Position(self._created, last + 1, marks, self._lost)}

    def _has_newest(self, last: int) -> bool:
        """Whether the stream still has what it had when the batch began; `last` is of the batch."""
        then, state = self._newest, self._reader.state()
        if then is None or last > then.sequence:
            return False
        return self._reader.do(lambda stream: kept(stream, state, (then,), then.sequence + 1)) > then.sequence


def _is_again(new: DataFrame, had: DataFrame) -> Column:
    """Whether a line is one that is archived. Nothing of an outsider's line is its own, but its message."""
    lines = [new[name].eqNullSafe(had[name]) for name in LINE]
    message = [new[name] == had[name] for name in SAME]
    return functools.reduce(Column.__and__, lines, new["host"].isNotNull() | functools.reduce(Column.__and__, message))


class StreamArchiving(Archiving):
    """An archive of a stream at work."""

    _unit = "message"
    _found: State | None = None
    """What the stream was and had when it was looked at."""
    _archive: StreamArchive

    @property
    def _created(self) -> str:
        """When that was made."""
        return self._found.created if self._found is not None else ""

    def _check_sources(self) -> None:
        """Sees that the stream is there, and can have what is asked for."""
        place = self._order.stream
        assert place is not None
        with contextlib.closing(reader_of(place, self._terminal.say)) as reader:
            state = reader.state()
            if place.subject is not None and not state.is_fed:
                check_listens(reader.shown, place.stream, state, place.subject)
            self._found = state

    def _open(self, spark: SparkSession) -> None:
        order = self._order
        assert order.stream is not None
        self._archive = StreamArchive(spark, order.root, order.stream, self._created, self._terminal.say)
        self._compaction = Compaction(
            spark,
            self._archive,
            most_files=order.most_files,
            file_bytes=order.file_bytes,
            is_binary=order.is_binary,
            columns=COLUMNS,
            # The lines of a message have one time. Another message that has got its number has another.
            order=("sequence", "timestamp", "offset"),
        )

    def _find(self) -> None:
        """Finds out which stream has the name now.

        Raises:
            Missing: none has.
        """
        place = self._order.stream
        assert place is not None
        with contextlib.closing(reader_of(replace(place, patience=0.0), self._terminal.say)) as reader:
            try:
                self._found = reader.state()
            except NoStream as error:
                raise Missing(str(error)) from None
            except Away:
                return  # the query waits for the servers, and says so
        self._archive.follow(self._created)

    def _lines(self, spark: SparkSession) -> DataFrame:
        self._find()  # at each start: one that was made anew is another one
        options = dict(self._order.stream_options) | {
            "startingOffsets": "earliest",
            "failOnDataLoss": str(self._order.fails_on_loss).lower(),
            "maxBytesPerTrigger": str(self._order.batch_bytes),
            "streamCreated": self._created,
        }
        schema = f"channel STRING, {COLUMNS.format('BINARY' if self._order.is_binary else 'STRING')}"
        # Nobody has asked for a channel by its name: one that no directory can have is left out, and not its lines.
        return self._load(spark, schema, options).withColumn("channel", F.when(fitting(), F.col("channel")))

    def _behind(self) -> int | None:
        """How many messages the stream has that are not archived, as the query has seen it; None if that is not known."""
        query = self._queries["archive"].query
        progress = query.lastProgress if query is not None else None
        if progress is None:
            return None if self._found is None else self._archive.left(self._found)
        source = progress["sources"][0]
        latest, end = (json.loads(at) if isinstance(at, str) else at for at in (source["latestOffset"], source["endOffset"]))
        return max(latest["next"] - end["next"], 0) if latest and end else 0


def reader_of(place: Place, say: Callable[[str], object]) -> Reader:
    """A stream, for an archive."""
    return Reader(place.servers, place.access, place.stream, "futebus-archive", place.patience, say)
