"""Rows of a real Spark on a subject of a stream."""

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from futebus.spark.sink.asking import check_takes
from futebus.spark.sink.lines import Columns
from futebus.spark.sink.numbered import NumberedTarget
from futebus.spark.sink.outlet import SinkError

from ...helpers.nats import Server, keeping, serving
from ...helpers.streams import Filled, Filling, filling
from .numbered import filled, place_of

__all__ = ["filled", "filling", "keeping", "serving"]


def test_there_and_back(spark: SparkSession, keeping: Server, filled: Filled, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    url = f"{filled.url}/lines.out"
    said = []
    for round_ in range(3):
        lines = [f"round {round_} line {number}" for number in range(100)]
        said += lines
        (source / f"{round_}.txt").write_text("".join(f"{line}\n" for line in lines))
        writer = (
            spark.readStream.text(str(source)).writeStream.format("futebus").option("stagingLocation", str(tmp_path / "staging"))
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(url)
        assert query.awaitTermination(120)
        if round_ == 1:
            keeping.kill()
            keeping.begin()
    rows = spark.read.format("futebus").load(url).orderBy("offset").collect()
    assert [(row.offset, row.value) for row in rows] == list(enumerate(said))
    assert {(row.channel, row.subject) for row in rows} == {("lines.out", "lines.out")}


def test_a_query_to_what_no_stream_listens_to_goes_on_when_one_does(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.txt").write_text("a\nb\n")
    staging = tmp_path / "staging"

    def run() -> None:
        writer = spark.readStream.text(str(tmp_path / "source")).writeStream.format("futebus")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("stagingLocation", str(staging))
        assert writer.trigger(availableNow=True).start(f"{filled.url}/other").awaitTermination(120)

    with pytest.raises(StreamingQueryException, match=r"/LINES does not listen to other, but to lines\.>: nats stream edit"):
        run()
    assert not os.listdir(staging)
    filled.do(lambda stream: stream.jetstream.update_stream(name="LINES", subjects=["lines.>", "other"]))
    run()
    rows = spark.read.format("futebus").load(filled.url).orderBy("sequence", "offset").collect()
    assert [(row.value, row.subject) for row in rows] == [("a", "other"), ("b", "other")]


def test_tables_come_behind_each_other(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    for text in ("first", "second"):
        writer = spark.createDataFrame([(text,)], "value STRING").write.format("futebus").mode("append")
        writer.option("stagingLocation", str(tmp_path)).save(f"{filled.url}/lines.out")
    rows = spark.read.format("futebus").load(filled.url).orderBy("sequence").collect()
    assert [row.value for row in rows] == ["first", "second"]


@pytest.mark.parametrize(
    ("where", "columns", "options", "words"),
    [
        ("", "value STRING", {}, "not nats://SERVER/STREAM/SUBJECT"),
        ("/lines.*", "value STRING", {}, "one subject, please, and no wildcard"),
        ("/lines.a", "value STRING", {"delivery": "direct"}, "delivery=direct is for channels"),
        ("/lines.a", "value STRING", {"stagingLocation": ""}, "there is no stagingLocation"),
        ("/lines.a", "value STRING, channel STRING", {}, "a stream takes no column but `value`"),
        (
            "/other",
            "value STRING",
            {},
            "/LINES does not listen to other, but to lines.>: nats stream edit LINES --subjects changes that",
        ),
    ],
)
def test_what_cannot_be_is_said(
    spark: SparkSession, filled: Filled, tmp_path: Path, where: str, columns: str, options: dict[str, str], words: str
) -> None:
    row = ("x",) * len(columns.split(","))
    given = {"stagingLocation": str(tmp_path), "timeoutMs": "0", **options}
    with pytest.raises(PySparkException, match=words):
        spark.createDataFrame([row], columns).write.format("futebus").mode("append").options(**given).save(filled.url + where)


@pytest.mark.parametrize(
    ("limits", "subject", "words"),
    [
        ({}, "other", "/LINES does not listen to other, but to lines.>: nats stream edit LINES --subjects changes that$"),
        ({}, "lines.out", None),
        ({"no_ack": True}, "lines.out", r"/LINES acknowledges nothing \(no_ack\)"),
        ({"max_msg_size": 4096}, "lines.out", None),
        (
            {"max_msg_size": 300},
            "lines.out",
            r"/LINES: the stream's max_msg_size leaves no room for a line, since headers may have",
        ),
    ],
)
def test_what_a_stream_does_not_take_is_said_at_once(
    keeping: Server, filling: Filling, tmp_path: Path, limits: dict[str, Any], subject: str, words: str | None
) -> None:
    """Before anything is staged."""
    filling(keeping.url, **limits)
    found = NumberedTarget(place_of(keeping.url, subject), Columns(0, None, None), tmp_path)
    with pytest.raises(SinkError, match=words) if words else contextlib.nullcontext():
        found.check()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mirrors": "MAIN"}, "LINES is a mirror of the stream MAIN, and takes nothing else: publish in that one"),
        ({"is_sealed": True}, "LINES is sealed, and takes nothing any more"),
        ({"subjects": ()}, "LINES does not listen to a, but to nothing: nats stream edit LINES --subjects changes that"),
    ],
)
def test_a_stream_may_take_nothing(filled: Filled, change: dict[str, Any], words: str) -> None:
    with pytest.raises(SinkError, match=f"^{re.escape(words)}$"):
        check_takes("LINES", filled.state._replace(**change), "LINES", "a")


def test_a_stream_that_is_not_there_is_missed_at_once(keeping: Server, tmp_path: Path) -> None:
    found = NumberedTarget(place_of(keeping.url), Columns(0, None, None), tmp_path)
    with pytest.raises(SinkError, match=r"/LINES: there is no such stream$"):
        found.check()
    keeping.kill()
    found.check()  # it is waited for with the first batch
