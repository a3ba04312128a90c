"""Queries of an archive that fail: which are started again, and which are not."""

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from futebus.archive import keeping
from futebus.archive.archive import Archive, Position
from futebus.archive.keeping import MOST_FAILURES, KeptQuery, Missing
from futebus.archive.order import sentence
from futebus.archive.sources import Sources
from futebus.archive.storage import ArchiveError, StorageError
from futebus.commands import archive as command
from futebus.host.terminal import Terminal
from futebus.spark.options import QueryError, plainly
from futebus.spark.source.drains import DrainThread
from futebus.spool import SpoolInUse, SpoolWriter

from ..helpers.mounts import Mount
from ..helpers.waiting import until
from .archives import SCHEMA, lines, read

Take = Callable[[DataFrame, int], None]


class Trial:
    """A query over Spark's own clock, and what is done with its batches."""

    def __init__(self, spark: SparkSession, place: Path, take: Take) -> None:
        self._spark, self._place, self._take = spark, place, take
        self.starts = 0
        self.words: list[str] = []
        self.kept = KeptQuery("clock", self._start, self.words.append)

    def _start(self) -> StreamingQuery:
        self.starts += 1
        clock = self._spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
        return clock.writeStream.option("checkpointLocation", str(self._place)).foreachBatch(self._take).start()

    def look_until(self, condition: Callable[[], object], what: str) -> None:
        def met() -> object:
            self.kept.look()
            return condition()

        until(met, what)

    def look_for_ever(self) -> None:
        self.look_until(lambda: False, "it is given up")


@pytest.fixture
def trial(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Take], Trial]]:
    monkeypatch.setattr(keeping, "PAUSE_SECONDS", (0.01, 0.02))
    made: list[Trial] = []

    def make(take: Take) -> Trial:
        made.append(Trial(spark, tmp_path / "checkpoint", take))
        return made[-1]

    yield make
    for each in made:
        each.kept.stop()


Make = Callable[[Take], Trial]


@pytest.mark.timeout(300)
def test_a_query_is_started_again_as_long_as_it_gets_on(trial: Make) -> None:
    calls = itertools.count()
    done: list[int] = []

    def take(rows: DataFrame, batch: int) -> None:
        if next(calls) % 3 < 2:  # each batch fails twice
            raise OSError(5, "Input/output error")
        done.append(batch)

    made = trial(take)
    made.look_until(lambda: len(done) > MOST_FAILURES // 2 + 1, "it gets on")
    assert done == list(range(len(done)))
    assert made.starts > MOST_FAILURES
    assert all(words.startswith("the query clock has failed, and is started again in 0.0") for words in made.words)
    assert all("\n" not in words for words in made.words)


@pytest.mark.timeout(300)
def test_it_is_given_up_when_it_does_not_get_on(trial: Make) -> None:
    def take(rows: DataFrame, batch: int) -> None:
        raise OSError(5, "Input/output error")

    made = trial(take)
    with pytest.raises(PySparkException):
        made.look_for_ever()
    assert made.starts == MOST_FAILURES
    assert len(made.words) == MOST_FAILURES - 1


@pytest.mark.timeout(300)
def test_a_query_that_fails_while_it_is_looked_at_has_not_ended(trial: Make) -> None:
    looked = threading.Event()

    def take(rows: DataFrame, batch: int) -> None:
        looked.wait(100)
        raise OSError(5, "Input/output error")

    made = trial(take)
    query = cast(StreamingQuery, made.kept.query)

    class Failing:
        """The query, which fails as soon as somebody has asked whether it has."""

        isActive = property(lambda _: query.isActive)  # noqa: N815 (Spark's name)
        lastProgress = None  # noqa: N815

        def exception(self) -> Exception | None:
            found = query.exception()
            looked.set()
            until(lambda: not query.isActive, "it has failed")
            return found

    made.kept.query = cast(StreamingQuery, Failing())
    assert made.kept.look(), "nobody has said that it failed, so it is not at its end"
    assert made.kept.look(), "it pauses"
    assert len(made.words) == 1


@pytest.mark.parametrize("error", [ArchiveError("lines are missing"), QueryError("the bus has dropped 7 lines")])
def test_what_no_start_mends_ends_it_at_once(trial: Make, error: Exception) -> None:
    def take(rows: DataFrame, batch: int) -> None:
        raise error

    made = trial(take)
    with pytest.raises(PySparkException) as ended:
        made.look_for_ever()
    assert made.starts == 1
    assert made.words == []
    assert str(error) in str(ended.value)
    assert sentence(ended.value) == str(error)


class Ended:
    """A query that has failed."""

    isActive, lastProgress = False, None  # noqa: N815 (Spark's names)

    def __init__(self, why: str) -> None:
        self._why = why

    def exception(self) -> Exception:
        return PySparkException(self._why)


@pytest.mark.parametrize(
    ("number", "lasts"), [(errno.ESTALE, False), (errno.EMFILE, False), (errno.EACCES, True), (errno.ENOENT, True)]
)
def test_a_file_of_a_spool_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, number: int, lasts: bool) -> None:
    """By what the system says: a shared disk is back soon, and another user's file stays his."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # which is set then, for Spark
    with pytest.raises(QueryError) as told, plainly():
        raise OSError(number, os.strerror(number), "/spools/B_log/0.lines")
    ended = PySparkException(f"futebus.spark.options.{type(told.value).__name__}: {told.value}")
    assert keeping.is_lasting(ended) is lasts
    assert sentence(ended) == f"/spools/B_log/0.lines: {os.strerror(number)}"


def test_lines_that_cannot_be_removed_now_stay(tmp_path: Path) -> None:
    order = command._order(command.parser().parse_args([str(tmp_path / "B_log"), str(tmp_path / "archive")]))
    sources = Sources(order, Terminal("test"))
    calls: list[object] = []

    class Failing:
        """A channel whose spool's disk says no."""

        spool_id = "spool"

        def forget(self, line: int) -> None:
            calls.append(line)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        def check(self) -> None:
            calls.append("checked")

    sources._drained["B_log"] = cast(DrainThread, Failing())
    sources.forget({"B_log": Position("spool", 7)})
    assert calls == [7, "checked"]


@pytest.mark.parametrize("is_found", [False, True])
def test_a_spool_that_somebody_else_fills_is_said_with_what_to_do(
    bus: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_found: bool
) -> None:
    monkeypatch.setattr("futebus.spark.source.drains.PATIENCE", 0.1)
    bus.touch("B_x")
    what = ["--pattern", "B_x", str(bus.path)] if is_found else [str(bus / "B_x")]
    order = command._order(command.parser().parse_args([*what, "--spools", str(tmp_path), str(tmp_path / "archive")]))
    sources = Sources(order, Terminal("test"))
    with SpoolWriter(tmp_path / "B_x", "B_x"), pytest.raises(SpoolInUse) as told:
        sources.drain()
    assert "stop it, or give this archive --spools of its own" in str(told.value)
    assert "spark.streams" not in str(told.value)
    assert bus.clients("B_x") == []


def test_a_query_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start opens the archive anew, and the storage may not answer yet."""
    monkeypatch.setattr(keeping, "PAUSE_SECONDS", (0.0, 0.0))
    words: list[str] = []
    failures = iter([StorageError("the storage is away"), OSError(5, "Input/output error"), ArchiveError("it is damaged")])

    def start() -> StreamingQuery:
        if words:
            raise next(failures)
        return cast(StreamingQuery, Ended("futebus.spark.options.ServersAway: nobody answers"))

    kept = KeptQuery("archive", start, words.append)
    assert all(kept.look() for _ in range(3))
    begin = "the query archive has failed, and is started again in 0 s: "
    assert words == [f"{begin}{why}" for why in ("nobody answers", "the storage is away", "Input/output error")]
    with pytest.raises(ArchiveError, match="it is damaged"):
        kept.look()


def test_what_is_gone_is_waited_for_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LOOK_SECONDS", 0.0)
    words: list[str] = []
    tries = itertools.count()

    def start() -> StreamingQuery:
        if 0 < next(tries) < 3 * MOST_FAILURES:
            raise Missing("S: there is no such stream")
        return cast(StreamingQuery, Ended("futebus.spark.options.StreamGone: S: there is no such stream"))

    kept = KeptQuery("archive", start, words.append)
    assert all(kept.look() for _ in range(3 * MOST_FAILURES + 1))
    assert kept.query is not None
    assert words == ["S: there is no such stream; waiting", "the query archive is started again"]
    monkeypatch.setattr(keeping, "MISSING_SECONDS", -1.0)
    kept = KeptQuery("archive", start, words.append)
    assert kept.look()
    tries = itertools.count(1)
    assert kept.look()
    with pytest.raises(ArchiveError, match=r"^S: there is no such stream \(for -1 s\)$"):
        kept.look()


def test_a_wrong_query_ends_at_once(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException):
        KeptQuery("wrong", lambda: spark.readStream.format("rate").load().select("nothing").writeStream.start(), print)


def test_what_the_system_says_is_said_in_its_words() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/archive/spools/B_x")
    assert sentence(full) == "/archive/spools/B_x: No space left on device"
    assert sentence(OSError(errno.EIO, "Input/output error")) == "Input/output error"
    assert sentence(OSError("in words")) == "in words"


@pytest.mark.timeout(300)
def test_why_a_batch_failed_is_said_and_not_by_whom_it_was_told(trial: Make, tmp_path: Path) -> None:
    """A disk that is full is what people have to know, and Spark has it in a page, below a traceback of Python."""
    (tmp_path / "file").touch()

    def take(rows: DataFrame, batch: int) -> None:
        if made.starts == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        rows.write.parquet(str(tmp_path / "file" / "batch"))

    made = trial(take)
    made.look_until(lambda: len(made.words) > 1, "it has failed twice")
    begin = "the query clock has failed, and is started again in"
    assert made.words[0] == f"{begin} 0.01 s: No space left on device"
    assert made.words[1] == f"{begin} 0.02 s: Parent path is not a directory: file:{tmp_path}/file"


def test_the_last_cause_that_java_names_is_the_reason() -> None:
    ended = PySparkException(
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "futebus/archive/archive.py", line 192, in add\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o177.parquet.\n"
        ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030\n"
        "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:823)\n"
        "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
        "\t... 21 more\n"
        "Caused by: java.io.IOException: No space left on device\n"
        "\n\n=== Streaming Query ===\nCurrent State: ACTIVE\n"
    )
    assert sentence(ended) == "No space left on device"


@pytest.mark.parametrize("step", range(6))
def test_a_batch_that_failed_anywhere_is_archived_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """As the query that is started again does it: the archive is opened anew by the same process."""
    for name in ("B_one", "B_two"):
        (tmp_path / "spools").mkdir(exist_ok=True)
        SpoolWriter(tmp_path / "spools" / name, name).close()
    root = tmp_path / "archive"
    archive = Archive(spark, str(root), lambda name: tmp_path / "spools" / name)
    rows = [*lines("B_one", range(10), "2026-11-21 12:00:00"), *lines("B_two", range(10), "2026-11-21 13:00:00")]
    batch = spark.createDataFrame(rows, SCHEMA)
    move, calls = archive.storage.move, itertools.count()

    def failing(source: str, target: str) -> None:
        if next(calls) == step // 2:
            if step % 2:
                move(source, target)
            raise StorageError("the network is away")
        move(source, target)

    monkeypatch.setattr(archive.storage, "move", failing)
    with pytest.raises(StorageError):
        archive.add(batch)
    archive.reopen()
    archive.add(batch)
    assert read(root) == rows


def test_why_spark_could_not_write_is_told(spark: SparkSession, small_disk: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (small_disk / "much").write_bytes(bytes(16 << 20))
    with pytest.raises(Py4JJavaError) as failure:
        spark.range(1).write.parquet(f"{small_disk}/few")
    said = sentence(failure.value)
    assert said == f"Task failed while writing rows to file:{small_disk}/few: {os.strerror(errno.ENOSPC)}"
