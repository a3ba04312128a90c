"""Rows that are staged and go out when Spark commits, with a real Spark that is stopped, fails, and runs batches again."""

import os
import signal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ...helpers.collectors import Collect
from ...helpers.mounts import Mount, Mounting
from ...helpers.waiting import until
from .test_sink import finish, publish, put, stream


@pytest.fixture
def staging(tmp_path: Path) -> dict[str, str]:
    return {"delivery": "staged", "stagingLocation": str(tmp_path / "staging")}


def left(staging: dict[str, str]) -> set[str]:
    """The names of the files that are left."""
    return {name for _, _, names in os.walk(staging["stagingLocation"]) for name in names}


def test_a_table(spark: SparkSession, bus: Mount, collect: Collect, staging: dict[str, str]) -> None:
    channel, agenda = collect(bus / "B_log"), collect(bus / "A_chat")
    rows = spark.range(20_000, numPartitions=4).selectExpr(
        "if(id % 2 = 0, 'B_log', 'A_chat') as channel", "string(id) as value", "if(id % 2 = 0, null, '*') as address"
    )
    publish(rows, bus.path, **staging)
    assert channel.lines(10_000) == [str(number) for number in range(0, 20_000, 2)]
    assert agenda.lines(10_000) == [f"{{2}}{number}" for number in range(1, 20_000, 2)]
    assert list(Path(staging["stagingLocation"]).iterdir()) == []


def test_a_table_of_which_a_task_fails(spark: SparkSession, bus: Mount, staging: dict[str, str]) -> None:
    # The last row of four partitions cannot be sent: by then others have been staged, and none must go out.
    rows = spark.range(4000, numPartitions=4).selectExpr("if(id = 3999, 'nowhere', 'B_log') as channel", "string(id) as value")
    with pytest.raises(PySparkException, match="SinkError: 'nowhere' is not the name of a channel"):
        publish(rows, bus.path, **staging)
    assert left(staging) == set()
    assert "B_log" not in os.listdir(bus.path)


def test_a_table_whose_publication_fails(spark: SparkSession, bus: Mount, staging: dict[str, str]) -> None:
    with pytest.raises(PySparkException, match=r"SinkError: /.*/U_jobs has no master"):
        publish(spark.range(10).selectExpr("string(id) as value"), bus / "U_jobs", **staging)
    assert left(staging) == set()


def test_a_stream_goes_out_once(
    spark: SparkSession, bus: Mount, collect: Collect, staging: dict[str, str], tmp_path: Path
) -> None:
    channel = collect(bus / "B_log")
    put(tmp_path, 0, ["0a", "0b"])
    put(tmp_path, 1, ["1a", "1b"])
    finish(stream(spark, tmp_path, bus / "B_log", **staging))
    assert channel.settled() == b"0a\n0b\n1a\n1b\n"
    assert left(staging) == {"journal"}
    # As if Spark had been killed before it noted that the last batch was committed: it runs it again.
    for path in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        path.unlink()
    put(tmp_path, 2, ["2a"])
    finish(stream(spark, tmp_path, bus / "B_log", **staging))
    assert (tmp_path / "checkpoint" / "commits" / "2").exists()
    assert channel.settled() == b"0a\n0b\n1a\n1b\nthe end\n2a\n"
    assert left(staging) == {"journal"}


def test_a_stream_whose_publisher_is_killed(
    spark: SparkSession, mounting: Mounting, collect: Collect, staging: dict[str, str], tmp_path: Path
) -> None:
    bus = mounting("max_queue=1000")
    channel = collect(bus / ".U_jobs", at_once=False)
    expected = [f"{number:040}" for number in range(50_000)]
    put(tmp_path, 0, expected)
    query = stream(spark, tmp_path, bus / "U_jobs", **staging)
    until(lambda: not query.isActive or bus.clients("U_jobs", role="master", rlist_messages=1000), "there is no place any more")
    assert query.isActive, query.exception()
    os.kill(bus.clients("U_jobs", role="slave")[0]["pid"], signal.SIGTERM)
    with pytest.raises(PySparkException):
        query.awaitTermination(120)
    channel.start()
    finish(stream(spark, tmp_path, bus / "U_jobs", **staging))
    assert channel.settled().decode().split() == expected
    assert left(staging) == {"journal"}


def test_a_stream_whose_publication_fails(
    spark: SparkSession, mounting: Mounting, collect: Collect, staging: dict[str, str], tmp_path: Path
) -> None:
    bus = mounting("max_message=100")
    put(tmp_path, 0, ["a"])
    put(tmp_path, 1, ["b", "c" * 100])
    with pytest.raises(PySparkException, match=r"SinkError: /.*/B_log: a message of 101 bytes is longer"):
        stream(spark, tmp_path, bus / "B_log", **staging).awaitTermination(120)
    assert bus.channel("B_log")["messages_in"] == 2
    roomy = mounting()
    channel = collect(roomy / "B_log")
    finish(stream(spark, tmp_path, roomy / "B_log", **staging))
    assert channel.settled() == b"c" * 100 + b"\n"
    assert left(staging) == {"journal"}
