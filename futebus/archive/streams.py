"""A stream of NATS as an archive: what many hosts have said, each line once.

The one rule: how far the stream is archived is one number, that of the next message. It belongs to the stream that was made at a
certain time: one that is made anew is another one, whose numbers begin again.

There are no spools here: the stream is what is read again after a failure.
"""

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)

from ..nats.reader import Reader
from ..spark.remote import Place
from .archive import Archive, Position
from .compaction import SCHEMA, Compaction
from .names import fitting
from .run import Archiving

COLUMNS = f"{SCHEMA}, host STRING, subject STRING, sequence LONG"


class StreamArchive(Archive):
    """An archive of a stream.

    Args:
        spark: see `Archive`.
        root: where it is.
        place: the stream.
        created: when that was made.
    """

    columns = (*Archive.columns, "host", "subject", "sequence")

    def __init__(self, spark: SparkSession, root: str, place: Place, created: str) -> None:
        self._key = f"{place.stream}/{place.subject}" if place.subject is not None else place.stream
        self._created = created
        super().__init__(spark, root, Path)

    @property
    def _next(self) -> int:
        """The number of the first message that is not archived; 0 if none is."""
        at = self.state.positions.get(self._key)
        return at.line if at is not None and at.spool == self._created else 0

    def _left_out(self, lines: DataFrame) -> DataFrame:
        return lines.where(F.col("sequence") >= self._next)

    def _count(self, spark: SparkSession, staging: str) -> tuple[int, dict[str, Position]]:
        staged = spark.read.schema("sequence LONG").parquet(self.storage.uri(staging))
        ((count, last),) = staged.agg(F.count("*"), F.max("sequence")).collect()
        return count, {**self.state.positions, self._key: Position(self._created, last + 1)}


class StreamArchiving(Archiving):
    """An archive of a stream at work."""

    _unit = "message"
    _created = ""

    def _check_sources(self) -> None:
        """Sees that the stream is there."""
        place = self._order.stream
        assert place is not None
        reader = Reader(place.servers, place.access, place.stream, "futebus-archive", place.patience, self._terminal.say)
        try:
            self._created = reader.state().created
        finally:
            reader.close()

    def _open(self, spark: SparkSession) -> None:
        order = self._order
        assert order.stream is not None
        self._archive = StreamArchive(spark, order.root, order.stream, self._created)
        self._compaction = Compaction(
            spark,
            self._archive,
            most_files=order.most_files,
            file_bytes=order.file_bytes,
            is_binary=order.is_binary,
            columns=COLUMNS,
            order=("sequence", "offset"),
        )

    def _lines(self, spark: SparkSession) -> DataFrame:
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
