"""An archive at work: channels go into spools, spools into Parquet files, and figures onto a channel.

The one rule: Spark only ever reads spools that others fill. It is threads of this process that fill them, one for each channel,
or recorders that run by themselves. So both queries see the same lines, and a line is taken from a spool only when no query can
ask for it again.
"""

import contextlib
import itertools
import json
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)
from pyspark.sql.streaming.query import StreamingQuery

from ..core.text import counted, progress
from ..host.signals import end_by
from ..host.terminal import Terminal
from ..spark.format import named
from ..spool import Spool, SpoolError
from . import figures
from .archive import HIDDEN, Archive, Position
from .compaction import SCHEMA, Compaction
from .executors import watched
from .guard import guarded
from .keeping import KeptQuery, is_lasting
from .names import fitting
from .order import FAILURES, LOG, STOP_SECONDS, Order, sentence, session
from .place import check_master
from .sources import Sources
from .storage import ArchiveError

TICK_SECONDS = 0.5
COMPACTION_SECONDS = 60.0
"""How often is looked for hours that have ended."""
INSISTING_SECONDS = 0.5
"""How long after the first signal to end the next one means it."""
RATE_SECONDS = 10.0
"""Over which time the lines per second are told."""


class Archiving:
    """An archive at work.

    Args:
        order: what is asked for.
        terminal: is told how it goes.
    """

    _unit = "line"
    """What is counted that is not in the archive."""

    def __init__(self, order: Order, terminal: Terminal) -> None:
        self._order, self._terminal = order, terminal
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self._sources = Sources(order, terminal)
        self._queries: dict[str, KeptQuery] = {}
        self._names = itertools.count()
        self._safe: dict[str, Position] = {}
        self._archived = self._files = 0
        self._rates: deque[tuple[float, int]] = deque()
        self._began = math.inf
        """When the first batch was asked for."""
        self._has_added = False
        self._counted: dict[str, int] = {}
        """From where on the query of the figures can ask for lines again, by channel."""
        self._looking = threading.Lock()
        self._spools: dict[str, Spool] = {}
        """Those that were looked at, and know what they have read: an index may have thousands of marks."""
        self._must_reopen = False
        """Whether a compaction has failed, and may have left something undone."""
        self._failure: BaseException | None = None
        self._is_starting = True
        self._asked = math.inf
        self._signal: signal.Signals | None = None
        self._has_all = False
        """Whether everything is archived, and compacted, that was there."""

    @property
    def cut_short_by(self) -> signal.Signals | None:
        """The signal that has ended it, with `is_once`, before everything was archived."""
        return self._signal if self._order.is_once and not self._has_all else None

    def stop(self, number: signal.Signals) -> None:
        """Makes `run` return soon. Called from a signal handler.

        Args:
            number: the signal.
        """
        self._signal = self._signal or number
        now = time.monotonic()
        self._asked = min(self._asked, now)
        # Somebody insists: nothing gets lost by it that is in a spool. (timeout(1) sends each signal twice, once to the process
        # and once to its group.)
        if now - self._asked > INSISTING_SECONDS:
            self._leave()
        # Spark's start cannot be interrupted, and nothing has begun but that lines are taken.
        if self._is_starting and not self._stopping.is_set():
            self._stopping.set()
            self._finish()
        self._stopping.set()

    def run(self) -> None:
        """Archives, until `stop` is called or, with `is_once`, everything is archived.

        Raises:
            One of FAILURES: it cannot go on.
        """
        # What is wrong with the order is found out before a directory is made.
        check_master(self._order.engine)
        self._check_sources()
        with guarded(self._order):
            try:
                self._sources.drain()
                if self._order.is_once and self._order.bus is not None and self._sources.are_none:
                    raise ArchiveError(f"no channel of {self._order.bus} matches {self._order.pattern!r}")
                # Channels do not wait for Spark to start.
                self._sources.keep_looking(self._stopping)
                with self._terminal.adopted(), tempfile.NamedTemporaryFile("w", suffix=".properties") as log:
                    log.write(LOG.format(level="WARN" if self._terminal.is_open else "OFF"))
                    log.flush()
                    spark = session(self._order, Path(log.name))
                try:
                    self._start(spark)
                    self._is_starting = False
                    self._work(spark)
                finally:
                    self._is_starting = False
                    self._end(spark)
            finally:
                self._sources.stop()

    def _check_sources(self) -> None:
        """Sees that what others are to fill is there."""
        self._sources.check()

    # ------------------------------------------------------------------------------------------ queries

    def _start(self, spark: SparkSession) -> None:
        order = self._order
        if order.stats is not None and (wrong := figures.check_regex(spark, order.errors)):
            raise ArchiveError(f"--errors {order.errors} is no regular expression of Java: {wrong}")
        self._open(spark)

        def archive() -> StreamingQuery:
            with self._busy:
                self._archive.reopen()
                self._has_added = False
            return self._write(self._lines(spark), "archive", order.every, self._add)

        self._queries["archive"] = KeptQuery("archive", archive, self._terminal.say)
        if order.stats is None:
            return
        # What a recorder has of last week is not live. What this process has taken is, or was missed by a query that failed.
        begin = "latest" if order.is_external and not order.is_once else "earliest"
        every = max(1.0, min(order.window / 2, order.every))
        publish, own = figures.publisher(order.stats, self._terminal.say), order.stats.name

        def stats() -> StreamingQuery:
            # Without a limit: of a batch that ends early, later lines would be older than the ticks that it had.
            read = self._read(spark, figures.SCHEMA, begin).where(F.col("channel") != own)
            return self._write(figures.figures(read, f"{order.window:g} seconds", order.errors), "stats", every, publish)

        self._queries["stats"] = KeptQuery("stats", stats, self._terminal.say)

    def _open(self, spark: SparkSession) -> None:
        order = self._order
        self._archive = Archive(spark, order.root, order.spool_of)
        self._compaction = Compaction(
            spark, self._archive, most_files=order.most_files, file_bytes=order.file_bytes, is_binary=order.is_binary
        )

    def _lines(self, spark: SparkSession) -> DataFrame:
        """The stream of what is to be archived."""
        schema = f"channel STRING, {SCHEMA.format('BINARY' if self._order.is_binary else 'STRING')}"
        return self._read(spark, schema, "earliest", self._order.batch_bytes).where(fitting())

    def _read(self, spark: SparkSession, schema: str, begin: str, most_bytes: int | None = None) -> DataFrame:
        order = self._order
        options = {
            "spoolLocation": str(order.spools),
            "drain": "external",
            "startingOffsets": begin,
            # What is gone does not come back by stopping. The source says what it was.
            "failOnDataLoss": str(order.fails_on_loss).lower(),
        }
        if order.pattern is not None:
            options |= {"subscribePattern": order.pattern, "path": str(order.bus or order.spools)}
        else:
            options["subscribe"] = ",".join(map(str, order.channels))
        if most_bytes is not None:
            options["maxBytesPerTrigger"] = str(most_bytes)
        return self._load(spark, schema, options)

    def _load(self, spark: SparkSession, schema: str, options: dict[str, str]) -> DataFrame:
        source = named(f"futebus_archive_{next(self._names)}", tells_left_out=False)
        spark.dataSource.register(source)
        return spark.readStream.format(source.name()).schema(schema).options(**options).load()

    def _write(self, rows: DataFrame, name: str, every: float, take: Callable[[DataFrame, int], None]) -> StreamingQuery:
        checkpoint = f"{self._order.root.rstrip('/')}/{HIDDEN}/checkpoint/{name}"
        writer = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint).foreachBatch(take)
        if self._order.is_once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{every:g} seconds").start()

    def _add(self, lines: DataFrame, batch: int) -> None:
        self._began = min(self._began, time.monotonic())
        with self._busy:
            if self._stopping.is_set():
                raise ArchiveError("stopping")
            if self._has_added:
                # The batch before is done, as Spark has written down; this one may come again. The first one may be such a one,
                # and then the archive is further than Spark.
                self._safe = self._archive.state.positions
            if count := self._archive.add(lines):
                self._archived += count
                self._files += len(self._archive.state.moves)
            self._has_added = True

    # ------------------------------------------------------------------------------------------ work

    def _work(self, spark: SparkSession) -> None:
        compactor = threading.Thread(target=self._compact, daemon=True)
        if not self._order.is_once:
            compactor.start()
        executors = watched(spark, self._terminal.say)
        while not self._stopping.wait(TICK_SECONDS):
            try:
                go_on = [query.look() for query in self._queries.values()]
            except FAILURES:
                if self._stopping.is_set():  # meanwhile: a batch that was about to begin has failed for that
                    break
                raise
            if (failure := self._failure or self._sources.failure) is not None:
                raise failure
            if not any(go_on):
                break
            if executors:
                executors.look()
            self._forget()
            self._terminal.status(self._words())
        if self._order.is_once and not self._stopping.is_set():
            self._compact_due()
            self._has_all = not self._stopping.is_set()

    def _forget(self) -> None:
        """Takes from the spools what no query can ask for again."""
        safe = dict(self._safe)
        stats = self._queries.get("stats")
        if stats is not None:
            self._counted |= _begins(stats.query)
            counted = self._counted
            safe = {name: replace(at, line=min(at.line, counted[name])) for name, at in safe.items() if name in counted}
        self._sources.forget(safe)

    def _compact(self) -> None:
        while not self._stopping.is_set():
            try:
                self._compact_due()
            except FAILURES as error:
                if self._stopping.is_set():
                    return
                # Files that somebody has removed meanwhile are not looked for again.
                if is_lasting(error) and not isinstance(error, AnalysisException):
                    self._failure = error
                    return
                self._terminal.say(f"compaction has failed, and is tried again in {COMPACTION_SECONDS:g} s: {sentence(error)}")
                self._must_reopen = True
            self._stopping.wait(COMPACTION_SECONDS)

    def _compact_due(self) -> None:
        if self._must_reopen:
            self._compaction.reopen()
            self._must_reopen = False
        hours = self._compaction.due(datetime.now(UTC))
        begin = time.monotonic()
        for number, hour in enumerate(hours):
            if self._stopping.is_set():
                return
            if self._order.is_once:
                self._terminal.status(f"compacting: {progress(number, len(hours), time.monotonic() - begin, 'hour')}")
            self._files -= self._compaction.compact(hour)

    def _words(self) -> str:
        now = time.monotonic()
        self._rates.append((now, self._archived))
        while now - self._rates[0][0] > RATE_SECONDS:
            self._rates.popleft()
        then, count = self._rates[0]
        rate = (self._archived - count) / (now - then) if now > then else 0
        left = self._behind()
        if self._order.is_once and self._archived and self._unit == "line" and left is not None:
            # From when the first lines came: before, Spark started.
            words = progress(self._archived, self._archived + left, now - self._began, "line")
            return f"{words}, {counted(self._files, 'file', ',')}"
        archived, behind = counted(self._archived, "line", ","), self._told(left, "behind")
        return f"{archived} archived, {rate:,.0f}/s{behind}, {counted(self._files, 'file', ',')}"

    def _told(self, left: int | None, word: str) -> str:
        return "" if left is None else f", {counted(left, self._unit, ',')} {word}"

    def _behind(self) -> int | None:
        """How many lines are in the spools and not in the archive; None if that is not known."""
        total = 0
        names = self._sources.recorded()
        with self._looking:
            self._spools = {name: spool for name, spool in self._spools.items() if name in names}
            for name in names:
                try:
                    if name not in self._spools:
                        self._spools[name] = Spool(self._order.spool_of(name))
                    spool = self._spools[name]
                    at = self._archive.state.positions.get(name)
                    total += spool.end - (at.line if at is not None and at.spool == spool.id else spool.begin)
                except (SpoolError, OSError):
                    self._spools.pop(name, None)  # there may be another in its place
        return total

    # ------------------------------------------------------------------------------------------ the end

    def _end(self, spark: SparkSession) -> None:
        """Ends the queries. It may take some seconds, and no longer: what is cut off comes again."""
        self._stopping.set()
        giving_up = threading.Timer(4 * STOP_SECONDS, self._finish if sys.exc_info()[0] is None else lambda: os._exit(1))
        giving_up.daemon = True
        giving_up.start()
        if self._busy.acquire(timeout=STOP_SECONDS):
            self._busy.release()
        self._terminal.is_closed = True
        for query in self._queries.values():
            with contextlib.suppress(*FAILURES):
                query.stop()
        if self._queries:
            archived = counted(self._archived, "line", ",")
            words = f"{archived} archived, {counted(self._files, 'file', ',')}{self._told(self._behind(), 'left')}"
            self._terminal.status(words, is_last=True)
        with contextlib.suppress(*FAILURES):
            spark.stop()
        self._terminal.is_closed = False
        giving_up.cancel()

    def _finish(self) -> None:
        """Ends the process as it is, once what the bus has for it is in the spools."""
        try:
            self._sources.stop()
        finally:
            self._leave()

    def _leave(self) -> None:
        """Ends the process as it is. The parts of it that are other processes end by themselves."""
        if ending := self.cut_short_by:
            end_by(ending)
        os._exit(0)


def _begins(query: StreamingQuery | None) -> dict[str, int]:
    """The lines from which on a query can ask for lines again, by channel."""
    progress: Any = None if query is None else query.lastProgress
    found: dict[str, int] = {}
    for source in progress["sources"] if progress else ():
        begin = source["startOffset"]
        begin = json.loads(begin) if isinstance(begin, str) else begin
        if isinstance(begin, dict):  # the ticks' is a number, and that of the very first batch is null
            found |= {name: at["line"] for name, at in begin.items()}
    return found
