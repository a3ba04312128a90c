"""What Spark asks of the stream of a query, whatever is behind it: channels, or a stream of NATS.

All of it but `read` runs in one process for each query, on the driver. Spark ends it with SIGTERM, without a call of `stop`.
"""

import os
import signal
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..compat import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from ..options import QueryError, plainly

Offset = dict[str, Any]

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark runs in that process."""


class Limits(Protocol):
    """The options that say how much a batch may have."""

    @property
    def max_rows(self) -> int | None:
        """How many rows, if that is limited."""

    @property
    def max_bytes(self) -> int | None:
        """How many bytes, if that is limited."""


class Work(Protocol):
    """What runs for a query on the driver."""

    def initial(self) -> Offset:
        """Where a new query begins."""

    def latest(self, start: Offset | None, is_limited: bool) -> Offset:
        """How far the next batch goes.

        Args:
            start: where it begins; None if Spark does not tell.
            is_limited: whether the options `maxRowsPerTrigger` and `maxBytesPerTrigger` hold for it.
        """

    def ends(self) -> Offset:
        """How far there is something."""

    def freeze(self) -> None:
        """Takes what there is now for all that there will be."""

    def partitions(self, start: Offset, end: Offset) -> Iterator[InputPartition]:
        """What is between two offsets, in parts for tasks."""

    def commit(self, end: Offset) -> None:
        """Everything before `end` has been dealt with."""

    def stop(self) -> None:
        """Lets go of everything."""


class QueryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one query.

    What is wrong with schema or options is said when it is first asked something: of an error before that, Spark tells nothing.
    """

    is_remote: bool
    """Whether it reads a stream of NATS, and no channels."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        _leave_interrupts_to_the_program()
        self._schema = schema
        self._given = options
        self._running: Work | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What executors need; nothing that runs."""
        return {"_schema": self._schema, "_given": self._given, "_running": None}

    @abstractmethod
    def _limits(self) -> Limits:
        """The options as they were given."""

    @abstractmethod
    def _run(self) -> Work:
        """Begins to work for the query."""

    @property
    def _work(self) -> Work:
        if self._running is None:
            self._running = self._run()
        return self._running

    def _check(self, *offsets: Offset | None) -> None:
        """Sees that offsets are of what this reads. A checkpoint may have been made for the other: then they mean nothing here.

        Raises:
            QueryError: they are not.
        """
        kinds = "channels", "a stream of NATS"
        for offset in offsets:
            # Those of channels have names of channels in them, which begin with other letters.
            if offset and ("stream" in offset) is not self.is_remote:
                had, has = kinds[not self.is_remote], kinds[self.is_remote]
                raise QueryError(f"the query has read {had}, and not {has}: what it reads now needs a checkpoint of its own")

    def initialOffset(self) -> Offset:
        """Where a new query begins."""
        with plainly():
            return self._work.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the options say. Of both limits Spark is told one, and `latestOffset` minds both."""
        with plainly():
            limits = self._limits()
        if limits.max_rows is not None:
            return ReadMaxRows(limits.max_rows)
        return ReadMaxBytes(limits.max_bytes) if limits.max_bytes is not None else ReadAllAvailable()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """How far the next batch goes. Waits a little while there is nothing new."""
        with plainly():
            self._check(start)
            # Spark 4.1 tells neither.
            return self._work.latest(start, is_limited=limit is not None and not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Offset:
        """How far there is something to be read."""
        with plainly():
            return self._work.ends()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing new is taken notice of."""
        with plainly():
            self._work.freeze()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """What is between two offsets, in parts for tasks."""
        with plainly():
            self._check(start, end)
            return list(self._work.partitions(start, end))

    def commit(self, end: Offset) -> None:
        """Everything before `end` has been dealt with."""
        with plainly():
            self._work.commit(end)

    def stop(self) -> None:
        """Lets go of everything."""
        if self._running is not None:
            self._running.stop()
            self._running = None
        _leave_if_spark_has_gone()


def _leave_interrupts_to_the_program() -> None:
    """Lets Spark's process for the query go on at Ctrl-C, which a terminal sends to all: it is for the program to end the query.

    With `spark-submit`, it would print a traceback of its own, or have Spark print one, if it was quicker than that. While Spark
    still starts that process, it does; nothing of ours runs there yet.
    """
    main = sys.modules["__main__"].__spec__
    if main is not None and main.name == _RUNNER:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave_if_spark_has_gone() -> None:
    """The last that `stop` does. Spark may have gone in an orderly way, a little before its SIGTERM.

    Who has called it would then write that to Spark, and print a traceback when that fails.
    """
    if sys.exc_info()[0] is EOFError:
        sys.stderr.flush()
        os._exit(0)
