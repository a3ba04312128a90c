"""A spool that is damaged, as a query sees it."""

from pathlib import Path

import pyspark.errors
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from futebus.spool import SpoolWriter

LOST = range(300, 500)
"""What is in the two appends that the hole touches."""


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """The spool of 1000 lines, with a hole in the first of its files."""
    path = tmp_path / "spool"
    with SpoolWriter(path, "B_log", segment_bytes=1 << 16, first_segment_bytes=1 << 16) as writer:
        for begin in range(0, 1000, 100):
            writer.append(b"".join(b"%0*d\n" % (99, number) for number in range(begin, begin + 100)))
    first = min(path.glob("*.lines"))
    assert first.stat().st_size > 50_000
    with first.open("r+b") as file:
        file.seek(39_000)
        file.write(bytes(2048))
    return path


def finished(spark: SparkSession, spool: Path, **options: object) -> list[Row]:
    """The rows of a query that takes all that there is, in order."""
    rows: list[Row] = []

    def keep(batch: DataFrame, number: int) -> None:
        rows.extend(batch.collect())

    given = {"spoolLocation": spool, "drain": "external", "startingOffsets": "earliest"} | options
    stream = spark.readStream.format("futebus").options(**{name: str(value) for name, value in given.items()}).load("/bus/B_log")
    checkpoint = str(spool.with_name("checkpoint"))
    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    return sorted(rows, key=lambda row: row.offset)


def test_a_query_says_which_lines_are_damaged(spark: SparkSession, spool: Path) -> None:
    with pytest.raises(StreamingQueryException, match=r"\.lines is damaged, .* lines 300 to 399 "):
        finished(spark, spool)
    with pytest.raises(pyspark.errors.PySparkException, match=r"\.lines is damaged, .* lines 300 to 399 "):
        spark.read.format("futebus").load(str(spool)).collect()


@pytest.mark.parametrize("options", [{}, {"maxRowsPerTrigger": 150}], ids=["one batch", "batches that end in the hole"])
def test_a_query_goes_on_without_them(spark: SparkSession, spool: Path, options: dict[str, object]) -> None:
    rows = finished(spark, spool, failOnDataLoss="false", **options)
    assert [row.offset for row in rows] == [number for number in range(1000) if number not in LOST]
    assert [int(row.value) for row in rows] == [row.offset for row in rows]


def test_a_query_goes_on_without_a_file(spark: SparkSession, spool: Path) -> None:
    files = sorted(spool.glob("*.index"))
    files[0].write_bytes(b"")
    rows = finished(spark, spool, failOnDataLoss="false")
    assert [row.offset for row in rows] == list(range(int(files[1].stem), 1000))
