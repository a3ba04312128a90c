"""Rows on their way to channels, with a real Spark: tasks publish while they run."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ...helpers.collectors import Collect
from ...helpers.mounts import Mount, Mounting
from ...helpers.waiting import until

Table = Callable[..., DataFrame]


@pytest.fixture
def table(spark: SparkSession) -> Table:
    """Makes a table: `table("value string", ("a",), ("b",))`, in one partition, so in this order."""

    def make(schema: str, *rows: Iterable[object]) -> DataFrame:
        return spark.createDataFrame([Row(*row) for row in rows], schema).coalesce(1)

    return make


def publish(rows: DataFrame, path: Path, **options: str) -> None:
    rows.write.format("futebus").mode("append").options(**options).save(str(path))


def stream(spark: SparkSession, directory: Path, path: Path, files: str = "1", **options: str) -> StreamingQuery:
    """Sends the lines of the files in `directory/in` that were not sent yet, so many files a batch."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", files).load(str(directory / "in"))
    writer = lines.writeStream.format("futebus").option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(availableNow=True).options(**options).start(str(path))


def put(directory: Path, number: int, lines: Iterable[str]) -> None:
    """Makes a file for `stream`. Files are taken in the order of their numbers."""
    (directory / "in").mkdir(exist_ok=True)
    hidden, path = directory / "in" / f"_{number}", directory / "in" / f"{number}.txt"
    hidden.write_text("".join(f"{line}\n" for line in lines))
    os.utime(hidden, (number, number))
    hidden.rename(path)


def finish(query: StreamingQuery) -> None:
    """Waits until a query has done what there is to do."""
    assert query.awaitTermination(120)
    assert query.exception() is None


def test_a_table_to_a_broadcast_channel(table: Table, bus: Mount, collect: Collect) -> None:
    channel = collect(bus / "B_log")
    publish(table("value string", ("one",), (None,), ("",), ("two\nthree\n",), ("\n",), ("vier: ü",), ("end",)), bus / "B_log")
    assert channel.lines(5) == ["one", "two", "three", "vier: ü", "end"]


def test_bytes_that_are_no_text(table: Table, bus: Mount, collect: Collect) -> None:
    channel = collect(bus / "B_log")
    publish(table("value binary", (b"\xff\x00\x80",), (b"\r",)), bus / "B_log")
    until(lambda: channel.data.count(b"\n") == 2)
    assert channel.data == b"\xff\x00\x80\n\r\n"


def test_a_channel_that_is_not_there_is_created(table: Table, bus: Mount) -> None:
    umask = os.umask(0o022)
    try:
        publish(table("value string", ("a",)), bus / "B_new")
    finally:
        os.umask(umask)
    assert bus.channel("B_new")["messages_in"] == 1
    assert os.stat(bus / "B_new").st_mode & 0o777 == 0o644


def test_a_stream_in_its_order(spark: SparkSession, bus: Mount, collect: Collect, tmp_path: Path) -> None:
    expected = [f"{file}:{line}" for file in range(3) for line in range(100)]
    for file in range(3):
        put(tmp_path, file, expected[100 * file : 100 * file + 100])
    channel = collect(bus / "B_log")
    finish(stream(spark, tmp_path, bus / "B_log"))
    assert channel.lines(300) == expected


def test_a_master_that_is_slow_loses_nothing(spark: SparkSession, mounting: Mounting, collect: Collect, tmp_path: Path) -> None:
    bus = mounting("max_queue_bytes=64K")
    master = collect(bus / ".U_jobs", at_once=False)
    for file in range(2):
        put(tmp_path, file, (f"{file}:{line:040}" for line in range(30_000)))
    query = stream(spark, tmp_path, bus / "U_jobs", files="2")
    until(lambda: not query.isActive or len(bus.clients("U_jobs", waits="write")) == 2, "two tasks wait")
    assert query.isActive, query.exception()
    master.start()
    finish(query)
    lines = master.lines(60_000)
    for file in range(2):
        assert [int(line[2:]) for line in lines if line[0] == str(file)] == list(range(30_000))


def test_addresses(table: Table, bus: Mount, collect: Collect) -> None:
    first, second = collect(bus / "A_chat"), collect(bus / "A_chat")
    rows = table(
        "address string, value string",
        ("1", "to one"),
        ("*", "to\nall"),
        ("2", "{1}is text"),
        (None, "{2}to two"),
        ("0002", ""),
        ("0002", None),
        ("1", "end"),
        ("2", "end"),
    )
    publish(rows, bus / "A_chat")
    assert first.lines(4) == ["{3}to one", "{3}to", "{3}all", "{3}end"]
    assert second.lines(5) == ["{3}to", "{3}all", "{3}{1}is text", "{3}to two", "{3}end"]


def test_a_service_gets_lines_from_its_slaves(table: Table, bus: Mount, collect: Collect) -> None:
    master = collect(bus / ".S_upper")
    publish(table("value string", ("a",), ("b",)), bus / "S_upper")
    assert master.lines(4) == ["{2:o}", "{2}a", "{2}b", "{2:c}"]


def test_rows_that_name_their_channels(spark: SparkSession, bus: Mount, collect: Collect) -> None:
    channels = {"B_0": collect(bus / "B_0"), "B_1": collect(bus / "B_1"), "U_2": collect(bus / ".U_2")}
    agenda = collect(bus / "A_3")
    rows = spark.range(30_000, numPartitions=1).selectExpr(
        "elt(id % 4 + 1, 'B_0', 'B_1', 'U_2', 'A_3') as channel",
        "cast(id as string) as value",
        "if(id % 4 = 3, '*', null) as address",
    )
    publish(rows, bus.path)
    for remainder, channel in enumerate(channels.values()):
        assert channel.lines(7500) == [str(number) for number in range(remainder, 30_000, 4)]
    assert agenda.lines(7500) == [f"{{2}}{number}" for number in range(3, 30_000, 4)]


def test_wrong_options_are_told_when_a_query_starts(spark: SparkSession, bus: Mount, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="SinkError: delivery is direct or staged, not 'twice'"):
        publish(spark.range(1).selectExpr("'a' as value"), bus / "B_log", delivery="twice")
    with pytest.raises(PySparkException, match="SinkError: there is no column `value`, which is the line to be sent"):
        publish(spark.range(1).selectExpr("'a' as channel"), bus.path)
    with pytest.raises(
        PySparkException, match=r"SinkError: a bus keeps nothing that could be overwritten: use mode\(\"append\"\)"
    ):
        spark.range(1).selectExpr("'a' as value").write.format("futebus").mode("overwrite").save(str(bus / "B_log"))
    put(tmp_path, 0, ["a"])
    with pytest.raises(PySparkException, match="SinkError: there is no directory /nowhere") as caught:
        stream(spark, tmp_path, Path("/nowhere/B_log")).awaitTermination(120)
    assert "Traceback" not in str(caught.value).partition("JVM stacktrace")[0]


def test_what_a_task_meets_is_told(table: Table, bus: Mount) -> None:
    with pytest.raises(PySparkException, match=r"SinkError: /.*/U_jobs has no master") as caught:
        publish(table("value string", ("a",)), bus / "U_jobs")
    assert "Traceback" not in str(caught.value).partition("JVM stacktrace")[0]
    with pytest.raises(PySparkException, match=r"SinkError: /.*/A_chat: a message has no address, .*: 'a'"):
        publish(table("value string", ("a",)), bus / "A_chat")
