"""Channels as a stream.

The one rule: an offset is handed to Spark only for lines that are in a spool, so that the same offsets give the same lines again.

For each channel an offset holds the identity of its spool, the number of the next line, and how many lines were known to be lost
before it: `{"B_log": {"spool": "…", "line": 17, "lost": 0}}`.

All of it but `read` runs in one process for each query, on the driver. Spark ends it with SIGTERM, without a call of `stop`.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..compat import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from ..options import SourceOptions, check_schema, parse, plainly
from .partitions import read_lines, say_damage
from .running import Offset, Running


class FutebusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one query.

    What is wrong with schema or options is said when it is first asked something: of an error before that, Spark tells nothing.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._given = options
        self._running: Running | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What executors need; nothing that runs."""
        return {"_schema": self._schema, "_given": self._given, "_running": None}

    @property
    def _options(self) -> SourceOptions:
        return parse(self._given)

    @property
    def _channels(self) -> Running:
        if self._running is None:
            check_schema(self._schema)
            self._running = Running(self._options)
        return self._running

    def initialOffset(self) -> Offset:
        """Where a new query begins."""
        with plainly():
            return self._channels.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the options say. Of both limits Spark is told one, and `latestOffset` minds both."""
        with plainly():
            options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        return ReadMaxBytes(options.max_bytes) if options.max_bytes is not None else ReadAllAvailable()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """How far the next batch goes. Waits a little while there is nothing new."""
        with plainly():
            # Spark 4.1 tells neither.
            return self._channels.latest(start, is_limited=limit is not None and not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Offset:
        """How far there are lines."""
        with plainly():
            return self._channels.ends()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing new is taken notice of."""
        with plainly():
            self._channels.freeze()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The lines between two offsets, in parts for tasks."""
        with plainly():
            return list(self._channels.partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a part."""
        options = self._options
        return read_lines(partition, self._schema, options.mode, None if options.fails_on_loss else say_damage)

    def commit(self, end: Offset) -> None:
        """Everything before `end` has been dealt with."""
        with plainly():
            self._channels.commit(end)

    def stop(self) -> None:
        """Lets go of channels and spools."""
        if self._running is not None:
            self._running.stop()
            self._running = None
        leave_if_spark_has_gone()


def leave_if_spark_has_gone() -> None:
    """The last that `stop` does. Spark may have gone in an orderly way, a little before its SIGTERM.

    Who has called it would then write that to Spark, and print a traceback when that fails.
    """
    if sys.exc_info()[0] is EOFError:
        sys.stderr.flush()
        os._exit(0)
