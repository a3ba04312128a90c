"""Where a stream of a channel begins, how far a batch of it goes, where it goes on after its end, and what is lost."""

import contextlib
import itertools
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from futebus.spark.compat import HAS_LIMITS
from futebus.spark.options import QueryError
from futebus.spark.source.following import RemoteStreamReader
from futebus.spark.source.partitions import cut
from futebus.spark.source.query import Offset, QueryReader
from futebus.spark.source.stream import FutebusStreamReader
from futebus.spool import Spool, SpoolWriter
from tests.helpers.mounts import Mount, Mounting
from tests.helpers.programs import Start
from tests.helpers.sparks import is_well
from tests.helpers.waiting import DEADLINE, until

from .kept import Keep, Kept, keep
from .streams import EXTERNAL, Stream, say, spool, stream, wait_for_query

__all__ = ["keep", "spool", "stream"]


# ---------------------------------------------------------------------------------------------- how much, and from where


needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="Spark 4.1 does not tell a source how much it may read")


@needs_limits
@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        ({"maxRowsPerTrigger": 300}, [300, 300, 300, 100]),
        ({"maxBytesPerTrigger": "4009"}, [400, 400, 200]),
        ({"maxBytesPerTrigger": "4k", "maxRowsPerTrigger": 401}, [401, 401, 198]),
        ({}, [1000]),
    ],
)
def test_limits_and_available_now(stream: Stream, keep: Keep, spool: Path, limit: dict[str, Any], sizes: list[int]) -> None:
    query = keep(stream("/bus/B_log", **EXTERNAL, **limit), availableNow=True)
    assert [row.value for row in query.finish()] == [f"line {number:04d}" for number in range(1000)]
    assert [len(rows) for _, rows in sorted(query.batches.items())] == sizes


def test_available_now_does_not_wait_for_what_comes_later(stream: Stream, keep: Keep, spool: Path) -> None:
    first = keep(stream("/bus/B_log", **EXTERNAL), availableNow=True).finish()
    with SpoolWriter(spool, "B_log") as writer:
        writer.append(b"late\n")
    again = keep(stream("/bus/B_log", **EXTERNAL), availableNow=True)
    assert len(first) == 1000
    assert [(row.value, row.offset) for row in again.finish()] == [("late", 1000)]


STREAMS_OFFSET = {"stream": "LINES", "created": "2026-11-21T12:00:00Z", "from": 1, "next": 7, "at": None}
CHANNELS_OFFSET = {"B_log": {"spool": "x", "line": 7, "lost": 0}}


@pytest.mark.parametrize(
    ("reader", "path", "offset", "words"),
    [
        (FutebusStreamReader, "/bus/B_log", STREAMS_OFFSET, "a stream of NATS, and not channels"),
        (RemoteStreamReader, "nats://127.0.0.1:1/LINES", CHANNELS_OFFSET, "channels, and not a stream of NATS"),
    ],
)
def test_a_checkpoint_of_something_else_is_told(
    monkeypatch: pytest.MonkeyPatch, reader: type[QueryReader], path: str, offset: Offset, words: str
) -> None:
    """Its numbers would mean other lines, and Spark would show what nobody understands."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # which is set then, for Spark
    query = reader(StructType(), {"path": path})
    for ask in (
        lambda: query.latestOffset(offset),
        lambda: query.partitions(offset, offset),
        lambda: query.partitions({}, offset),
    ):
        with pytest.raises(QueryError, match=f"the query has read {words}: what it reads now needs a checkpoint of its own"):
            ask()


def test_latest_begins_with_what_comes(stream: Stream, keep: Keep, spool: Path) -> None:
    query = keep(stream("/bus/B_log", drain="external", startingOffsets="latest", pollTimeoutMs=50))
    until(lambda: query.query and is_well(query.query) and list(spool.glob("initial-*")), "it has begun")
    with SpoolWriter(spool, "B_log") as writer:
        writer.append(b"late\n")
    assert [row.value for row in query.wait_for(1)] == ["late"]


def test_small_partitions_give_the_same_lines(stream: Stream, keep: Keep, spool: Path) -> None:
    query = keep(stream("/bus/B_log", partitionBytes=1000, **EXTERNAL), availableNow=True)
    assert sorted(row.value for row in query.finish()) == [f"line {number:04d}" for number in range(1000)]


@pytest.mark.parametrize(("processors", "most", "parts"), [(1, 64 << 20, 1), (2, 64 << 20, 2), (9, 64 << 20, 3), (1, 6 << 20, 4)])
def test_a_spool_is_cut_for_the_processors_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processors: int, most: int, parts: int
) -> None:
    block = b"%099d\n" % 0 * 10_486
    with SpoolWriter(tmp_path / "B_log", "B_log", first_segment_bytes=64 << 20) as writer:
        for _ in range(24):
            writer.append(block)
    monkeypatch.setattr("futebus.spark.source.partitions.PROCESSORS", processors)
    spool = Spool(tmp_path / "B_log")
    pieces = cut(spool, 1, spool.end, most)
    assert len(pieces) == parts
    assert [piece.first for piece in pieces] == [1, *(piece.first + piece.lines for piece in pieces)][:-1]
    assert pieces[-1].first + pieces[-1].lines == spool.end


def test_a_directory_of_spools_as_a_table(spark: SparkSession, tmp_path: Path, spool: Path) -> None:
    with SpoolWriter(tmp_path / "S_ask", "S_ask") as writer:
        writer.append(b"{1:o}\n{1}who?\n")
    rows = spark.read.format("futebus").load(str(tmp_path)).where("offset < 2").orderBy("channel", "offset").collect()
    assert [(row.channel, row.value, row.address) for row in rows] == [
        ("B_log", "line 0000", None),
        ("B_log", "line 0001", None),
        ("S_ask", "", "1:o"),
        ("S_ask", "who?", "1"),
    ]


# ---------------------------------------------------------------------------------------------- again, and not twice


def test_a_query_goes_on_where_it_was(bus: Mount, stream: Stream, keep: Keep) -> None:
    query = keep(stream(bus.touch("B_log")))
    for number in range(3):
        wait_for_query(bus, "B_log", query)
        say(bus / "B_log", f"run {number}")
        query.wait_for(number + 1)
        query.stop()
        until(lambda: not bus.clients("B_log"), "the query has left")
        if number < 2:
            query.start(stream(bus / "B_log"))
    assert [(row.value, row.offset) for row in query.rows] == [("run 0", 0), ("run 1", 1), ("run 2", 2)]


def test_a_first_batch_that_failed_is_not_lost(bus: Mount, stream: Stream, tmp_path: Path) -> None:
    fails = threading.Event()
    fails.set()

    class Failing(Kept):
        def __call__(self, rows: DataFrame, batch: int) -> None:
            if fails.is_set():
                raise RuntimeError("not yet")
            super().__call__(rows, batch)

    query = Failing(tmp_path).start(stream(bus.touch("B_log")))
    wait_for_query(bus, "B_log", query)
    say(bus / "B_log", "precious")
    with pytest.raises(StreamingQueryException, match="not yet"):
        query.finish()
    fails.clear()
    until(lambda: not bus.clients("B_log"), "the query has left")
    query.start(stream(bus / "B_log"))
    try:
        assert [row.value for row in query.wait_for(1)] == ["precious"]
    finally:
        query.stop()


def test_what_was_read_is_removed_from_the_disk(bus: Mount, stream: Stream, keep: Keep, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    query = keep(stream(bus / "U_jobs", "value STRING", master="true"))
    until((bus / "U_jobs").exists, "the channel")
    lines = 0
    for _ in range(3):  # the first segment has 4 MiB, the next one 8
        say(bus / "U_jobs", *["x" * 1023] * 5000)
        query.wait_for(lines := lines + 5000)
    until(lambda: Spool(spool).begin > 0, "the first segment has gone")


def test_stop_leaves_nothing_behind(bus: Mount, stream: Stream, keep: Keep, tmp_path: Path) -> None:
    query = keep(stream(bus.touch("B_log")))
    wait_for_query(bus, "B_log", query)
    runner = bus.clients("B_log")[0]["pid"]
    assert os.path.exists(f"/proc/{runner}")
    query.stop()
    until(lambda: not bus.clients("B_log"), "the client has left")
    until(lambda: not os.path.exists(f"/proc/{runner}"), "the process has ended")
    SpoolWriter(tmp_path / "spool", "B_log").close()  # nobody holds the lock


def test_a_killed_runner_loses_nothing_that_it_had(bus: Mount, stream: Stream, keep: Keep, start: Start, tmp_path: Path) -> None:
    query = keep(stream(bus / "U_jobs", "value STRING", master="true"))
    sent = 0
    for run in range(3):
        until((bus / "U_jobs").exists, "the channel")
        assert run or list((tmp_path / "spool").glob("initial-*")), "where it begins is known before there is a line"
        runner = until(lambda: [client["pid"] for client in bus.clients("U_jobs", role="master")], "its master")[0]
        say(bus / "U_jobs", *(f"line {number}" for number in range(sent, sent + 1000)))
        # What the bus has handed out is in the spool before anybody can know.
        until(lambda: bus.channel("U_jobs")["messages_out"] == 1000, "all is read")
        sent += 1000
        os.kill(runner, signal.SIGKILL)
        until(lambda: not (bus / "U_jobs").exists(), "the master has gone")
        assert query.query is not None
        with contextlib.suppress(StreamingQueryException):
            until(lambda: query.query and query.query.exception(), "the query fails")
        query.start(stream(bus / "U_jobs", "value STRING", master="true"))
    query.wait_for(sent)
    assert query.values == [f"line {number}" for number in range(sent)]


def test_a_bus_that_comes_back(place: Path, mounting: Mounting, stream: Stream, keep: Keep) -> None:
    bus = mounting()
    query = keep(stream(bus / "B_log"))
    wait_for_query(bus, "B_log", query)
    say(bus / "B_log", "before")
    query.wait_for(1)
    bus.daemon.kill()
    bus.was_killed = True
    bus.daemon.wait()
    again = Mount(bus.path, place / "again.log")
    try:
        wait_for_query(again, "B_log", query)
        say(again / "B_log", "after")
        assert [row.value for row in query.wait_for(2)] == ["before", "after"]
        query.stop()
        again.unmount()
    finally:
        again.discard()


def test_a_slow_query_loses_nothing_and_its_writers_do_not_wait(mounting: Mounting, stream: Stream, tmp_path: Path) -> None:
    bus = mounting("max_queue=100")
    goes_on = threading.Event()

    class Slow(Kept):
        def __call__(self, rows: DataFrame, batch: int) -> None:
            assert goes_on.wait(DEADLINE)
            super().__call__(rows, batch)

    query = Slow(tmp_path).start(stream(bus / "U_jobs", "value STRING", master="true"))
    try:
        until((bus / "U_jobs").exists, "the channel")
        for number in range(300):  # three times what the bus holds, one by one
            say(bus / "U_jobs", f"line {number}")
        goes_on.set()
        assert [row.value for row in query.wait_for(300)] == [f"line {number}" for number in range(300)]
    finally:
        goes_on.set()
        query.stop()


# ---------------------------------------------------------------------------------------------- losses


def _lossy(spool: Path) -> None:
    with SpoolWriter(spool, "B_log") as writer:
        writer.append(b"a\nb\n")
        writer.note_lost(7)
        writer.append(b"c\n")


def test_a_loss_that_the_bus_counted_fails_the_query(stream: Stream, keep: Keep, tmp_path: Path) -> None:
    _lossy(tmp_path / "spool")
    query = keep(stream("/bus/B_log", **EXTERNAL))
    with pytest.raises(
        StreamingQueryException, match="the bus has dropped 7 lines of B_log before line 3, which came too fast; with fail"
    ):
        query.finish()
    assert query.rows == []


def test_or_does_not(stream: Stream, keep: Keep, tmp_path: Path) -> None:
    _lossy(tmp_path / "spool")
    query = keep(stream("/bus/B_log", failOnDataLoss="false", **EXTERNAL), availableNow=True)
    query.finish()
    assert query.values == ["a", "b", "c"]
    with SpoolWriter(tmp_path / "spool", "B_log") as writer:
        writer.append(b"d\n")
    again = keep(stream("/bus/B_log", **EXTERNAL), availableNow=True)  # that loss is known by now
    assert [row.value for row in again.finish()] == ["d"]


def test_each_batch_tells_which_of_its_lines_retention_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spool = tmp_path / "B_log"
    with SpoolWriter(spool, "B_log", segment_bytes=1 << 12, first_segment_bytes=1 << 12) as writer:
        for number in range(10):
            writer.append(b"%d\n" % number + b"x" * 3000 + b"\n")
        assert writer.retain(offset=10) == 10
    query = FutebusStreamReader(
        StructType(), {"path": "/bus/B_log", "spoolLocation": str(spool), "failOnDataLoss": "false", **EXTERNAL}
    )
    try:
        offsets: list[Offset] = [{"B_log": {"spool": Spool(spool).id, "line": line, "lost": 0}} for line in (0, 6, 12)]
        lines = [list(query.partitions(*each)) for each in itertools.pairwise(offsets)]
    finally:
        query.stop()
    assert [bool(each) for each in lines] == [False, True]
    begin = f"have been removed from {spool} before being read\n"
    assert capsys.readouterr().err == f"futebus: lines 0 to 5 of B_log {begin}futebus: lines 6 to 9 of B_log {begin}"


@needs_limits
def test_lines_that_retention_took(stream: Stream, keep: Keep, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with SpoolWriter(spool, "B_log", segment_bytes=1 << 12, first_segment_bytes=1 << 12) as writer:
        for number in range(10):
            writer.append(b"%d\n" % number + b"x" * 3000 + b"\n")
        first = keep(stream("/bus/B_log", "value STRING", **EXTERNAL, maxRowsPerTrigger=2), availableNow=True)
        first.finish()
        (first.checkpoint / "commits" / "9").unlink()
        (first.checkpoint / "commits" / ".9.crc").unlink(missing_ok=True)
        writer.append(b"y" * 3000 + b"\n")
        assert writer.retain(offset=writer.end) == 20
    with pytest.raises(StreamingQueryException, match=r"have been removed from .* before being read"):
        keep(stream("/bus/B_log", "value STRING", **EXTERNAL), availableNow=True).finish()
