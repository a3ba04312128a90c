"""A stream of NATS as an archive: what many hosts have said, each line once.

The one rule: how far the stream is archived is one number, that of the next message. It belongs to the stream that was made at a
certain time: one that is made anew is another one, whose numbers begin again. And it belongs to what came up to a certain time: a
server that loses its power may lose its last messages, and give their numbers to others, which are archived as well. Recorders
publish again what it has lost: these lines are known by their own numbers, and left out.

There are no spools here: the stream is what is read again after a failure.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)
from pyspark.sql.types import StructType

from ..core.text import counted
from ..nats.errors import Away, NatsError, NoStream
from ..nats.reader import Reader
from ..nats.stream import State
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

COLUMNS = f"{SCHEMA}, host STRING, subject STRING, sequence LONG"


class MessagesReplaced(NatsError):
    """The stream has lost messages, and got others with their numbers, while they were read. Read again, they are known."""


class Kept:
    """How far a stream is still the one that was archived.

    Args:
        reader: of the stream.
        at: how far it is archived.
    """

    def __init__(self, reader: Reader, at: Position) -> None:
        self._reader, self._at = reader, at
        self.next = at.line
        """The number of the first message that is not archived."""
        state = reader.state()
        if state.created == at.spool and at.time:
            self._compare(state)

    def _stored(self, sequence: int) -> tuple[int, int] | None:
        return self._reader.do(lambda stream: stream.stored(sequence))

    def _compare(self, state: State) -> None:
        low, end = state.first, min(self._at.line, state.last + 1)
        if low >= end:
            return
        found = self._stored(end - 1)
        if found is not None and found[0] < end and found[1] <= self._at.time:
            return
        high, first = end, found
        while low < high:
            middle = (low + high) // 2
            found = self._stored(middle)
            if found is None or found[1] > self._at.time:
                high, first = middle, found
            else:
                low = found[0] + 1
        # What retention or somebody has removed is missing, and no other has its number.
        if first is not None and first[0] < end:
            self.next = first[0]

    @property
    def is_whole(self) -> bool:
        """Whether no number of an archived message is that of another one now."""
        return self.next == self._at.line


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

    def add(self, lines: DataFrame) -> int:
        """Archives the lines of a batch, but for those that are archived already; see `Archive`.

        Raises:
            MessagesReplaced: nobody can tell which lines these are.
            NatsError: the stream does not tell how far it is the one that was archived.
        """
        with contextlib.closing(reader_of(self._place, self._say)) as self._reader:
            self._newest = self._look()
            self._next, self._lost = self._begin()
            return super().add(lines)

    def _look(self) -> Position:
        """How far the stream goes, and so the batch at most, and when the last of it came."""
        last = max(self._reader.state().last, 1)
        found = self._reader.do(lambda stream: stream.stored(last))
        return Position(self._created, last + 1) if found is None else Position(self._created, found[0] + 1, found[1])

    def _begin(self) -> tuple[int, tuple[int, int, int]]:
        """The number of the first message that is not archived, 0 if none is; and what the stream has lost, as in `Position`."""
        at = self.state.positions.get(self._key)
        if at is None or at.spool != self._created:
            return 0, (0, 0, 0)
        first, end, until = at.lost
        is_over = until < self._newest.time
        kept = Kept(self._reader, at)
        if kept.is_whole:
            return kept.next, (0, 0, 0) if is_over else at.lost
        if self._said != (kept.next, at.line):
            self._said = kept.next, at.line
            self._say(
                f"{self._place.shown} has lost its last messages, {kept.next} to {at.line} of those that are archived, and given"
                " their numbers to others: these are archived, too"
            )
        until = self._newest.time + int(AGAIN_SECONDS * 1e9)
        if is_over:
            return kept.next, (kept.next, at.line, until)
        return kept.next, (min(first, kept.next), max(end, at.line), until)

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
        schema = StructType([field for field in new.schema.fields if field.name in (*LINE, "sequence")])
        with self.lock:  # what is read is not compacted meanwhile
            had = spark.read.schema(schema).parquet(*map(self.storage.uri, channels))
            # A line that comes again may have an earlier time, and no later one.
            had = had.where(F.col("date") >= min(place[1] for place in places).removeprefix("date="))
            had = had.where((F.col("sequence") >= first) & (F.col("sequence") < end)).select(*LINE)
            sifted = super()._stage(new.join(had, [*LINE], "left_anti"))
        count = self._rows(spark, staging) - self._rows(spark, sifted)
        if count:
            self._say(f"{counted(count, 'line', ',')} of {self._place.shown} came again: archived already, and left out")
        self.storage.remove(staging)
        return sifted

    def _rows(self, spark: SparkSession, staging: str) -> int:
        return spark.read.schema("sequence LONG").parquet(self.storage.uri(staging)).count()

    def _count(self, spark: SparkSession, staging: str) -> tuple[int, dict[str, Position]]:
        staged = spark.read.schema("sequence LONG").parquet(self.storage.uri(staging))
        ((count, last),) = staged.agg(F.count("*"), F.max("sequence")).collect()
        if last >= self._newest.line or not Kept(self._reader, self._newest).is_whole:
            raise MessagesReplaced(f"{self._place.shown} has lost its last messages while they were read, and got others")
        return count, {**self.state.positions, self._key: Position(self._created, last + 1, self._newest.time, self._lost)}


class StreamArchiving(Archiving):
    """An archive of a stream at work."""

    _unit = "message"
    _created = ""
    _archive: StreamArchive

    def _check_sources(self) -> None:
        """Sees that the stream is there, and can have what is asked for."""
        place = self._order.stream
        assert place is not None
        with contextlib.closing(reader_of(place, self._terminal.say)) as reader:
            state = reader.state()
            if place.subject is not None and not state.is_fed:
                check_listens(reader.shown, place.stream, state, place.subject)
            self._created = state.created

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
                self._created = reader.state().created
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

    def _behind(self) -> int:
        """How many messages the stream has that are not archived, as the query has seen it."""
        query = self._queries["archive"].query
        progress = query.lastProgress if query is not None else None
        if progress is None:
            return 0
        source = progress["sources"][0]
        latest, end = (json.loads(at) if isinstance(at, str) else at for at in (source["latestOffset"], source["endOffset"]))
        return max(latest["next"] - end["next"], 0) if latest and end else 0


def reader_of(place: Place, say: Callable[[str], object]) -> Reader:
    """A stream, for an archive."""
    return Reader(place.servers, place.access, place.stream, "futebus-archive", place.patience, say)
