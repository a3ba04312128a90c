"""Channels as streams: a real session, real buses, real writers."""

import json
import os
import re
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from futebus.spark import joined
from futebus.spark.format import named
from futebus.spool import Spool, SpoolWriter
from tests.helpers.insistent import Insistent
from tests.helpers.mounts import Mount
from tests.helpers.programs import Start
from tests.helpers.waiting import DEADLINE, until

from .kept import Keep, keep
from .streams import EXTERNAL, Stream, say, spool, stream, wait_for_query

__all__ = ["keep", "spool", "stream"]


# ---------------------------------------------------------------------------------------------- what comes


def test_what_is_echoed_comes_with_all_columns(bus: Mount, stream: Stream, keep: Keep) -> None:
    query = keep(stream(bus.touch("B_log")))
    wait_for_query(bus, "B_log", query)
    say(bus / "B_log", "hello", "wörld")
    rows = query.wait_for(2)
    assert [(row.value, row.channel, row.offset, row.address) for row in rows] == [
        ("hello", "B_log", 0, None),
        ("wörld", "B_log", 1, None),
    ]
    assert abs(rows[0].timestamp.timestamp() - (bus / "B_log").stat().st_mtime) < 60


def test_what_comes_while_a_query_is_stopped_comes_after_its_next_start(
    bus: Mount, stream: Stream, keep: Keep, tmp_path: Path
) -> None:
    """Whatever was accepted: the bus says nothing of lines that nobody has read."""
    sent = 0
    for _ in range(3):
        kept = keep(stream(bus / "U_jobs", master=True))
        wait_for_query(bus, "U_jobs", kept)
        writer = Insistent(bus / "U_jobs")
        kept.wait_for(1)
        kept.stop()
        sent += writer.wait()
        until(lambda: Spool(tmp_path / "spool").end >= sent, "all is there")  # noqa: B023
        assert Spool(tmp_path / "spool").end == sent
        until(lambda: not bus.clients("U_jobs"), "the query has left")
    assert "unread" not in bus.words


@pytest.mark.parametrize("trigger", [{}, {"processingTime": "1 second"}], ids=["at once", "each second"])
def test_a_query_says_when_it_has_joined(bus: Mount, stream: Stream, place: Path, trigger: dict[str, str]) -> None:
    """What is said before that is lost, and what is said then is not."""
    rows: list[Row] = []

    def keep_them(batch: DataFrame, number: int) -> None:
        rows.extend(batch.collect())

    writer = stream(bus.touch("B_log"), "value STRING").writeStream.foreachBatch(keep_them)
    query = (
        writer.option("checkpointLocation", str(place / "checkpoint"))
        .trigger(**trigger or {"processingTime": "0 seconds"})
        .start()
    )
    try:
        joined(query)
        say(bus / "B_log", "first")
        until(lambda: rows or query.exception(), "it comes")
        assert [row.value for row in rows] == ["first"]
    finally:
        query.stop()


@pytest.mark.parametrize("trigger", [{"processingTime": "0 seconds"}, {"processingTime": "1 second"}])
def test_a_query_that_goes_on_says_when_it_has_joined(bus: Mount, stream: Stream, place: Path, trigger: dict[str, str]) -> None:
    """It runs the batch again that has failed, before it asks its source anything."""
    rows: list[str] = []
    is_failing = True

    def keep_them(batch: DataFrame, number: int) -> None:
        found = [row.value for row in batch.collect()]
        assert not (found and is_failing)
        rows.extend(found)

    def begin() -> StreamingQuery:
        writer = stream(bus.touch("B_log"), "value STRING").writeStream.foreachBatch(keep_them)
        return writer.option("checkpointLocation", str(place / "checkpoint")).trigger(**trigger).start()

    query = begin()
    joined(query)
    say(bus / "B_log", "first")
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(120)
    until(lambda: not bus.clients("B_log"), "it has left")
    is_failing = False
    query = begin()
    try:
        joined(query)
        say(bus / "B_log", "second")
        until(lambda: len(rows) == 2 or query.exception(), "both come")
        assert rows == ["first", "second"]
    finally:
        query.stop()


def test_a_query_that_cannot_join_says_why(stream: Stream, tmp_path: Path) -> None:
    query = stream("/nowhere/B_log").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException, match="there is no directory /nowhere"):
        joined(query)


class Ending:
    """A query as it is seen in its last moment: it is active still, and its status says what it did before, or the end.

    Args:
        query: has failed.
        before: what its status has said.
    """

    def __init__(self, query: StreamingQuery, *before: str) -> None:
        self._query = query
        self._before = list(before)
        self.lastProgress = query.lastProgress
        self.exception = query.exception

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self._before.pop(0)} if self._before else self._query.status

    @property
    def isActive(self) -> bool:  # noqa: N802 # Spark's name
        return bool(self._before) or self._query.isActive


def test_a_query_that_fails_as_one_looks_has_not_joined(stream: Stream, tmp_path: Path) -> None:
    query = stream("/nowhere/B_log").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    until(lambda: not query.isActive, "it has failed")
    words = query.status["message"]
    assert words.startswith("Terminated with exception")
    ending = Ending(query, "Getting offsets from FutebusSource", words, words)
    with pytest.raises(StreamingQueryException, match="there is no directory /nowhere"):
        joined(cast(StreamingQuery, ending))


def test_only_the_columns_that_are_wanted_and_lines_as_bytes(bus: Mount, stream: Stream, keep: Keep) -> None:
    query = keep(stream(bus.touch("B_log"), "value BINARY"))
    wait_for_query(bus, "B_log", query)
    (bus / "B_log").write_bytes(b"\0\xff \r\n")
    assert query.wait_for(1) == [Row(value=bytearray(b"\0\xff \r"))]


def test_rows_can_be_counted_without_any_column(bus: Mount, spark: SparkSession, tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool", "B_log") as spool:
        spool.append(b"a\nb\n" * 1000)
    assert spark.read.format("futebus").load(str(tmp_path / "spool")).count() == 2000


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("PERMISSIVE", ["good", "b�d", "good too"]), ("DROPMALFORMED", ["good", "good too"])],
)
def test_lines_that_are_no_utf8(spark: SparkSession, tmp_path: Path, mode: str, expected: list[str]) -> None:
    with SpoolWriter(tmp_path / "spool", "B_log") as spool:
        spool.append(b"good\nb\xffd\ngood too\n")
    rows = spark.read.format("futebus").option("mode", mode).load(str(tmp_path / "spool")).orderBy("offset").collect()
    assert [row.value for row in rows] == expected
    assert rows[-1].offset == 2


def test_failfast_fails_at_a_line_that_is_no_utf8(spark: SparkSession, tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool", "B_log") as spool:
        spool.append(b"good\nb\xffd\n")
    with pytest.raises(Exception, match="line 1 of B_log is no UTF-8"):
        spark.read.format("futebus").option("mode", "FAILFAST").load(str(tmp_path / "spool")).collect()


def test_addresses_of_an_a_channel_are_a_column(bus: Mount, stream: Stream, keep: Keep) -> None:
    query = keep(stream(bus.touch("A_chat")))
    wait_for_query(bus, "A_chat", query)
    with (bus / "A_chat").open("w") as one, (bus / "A_chat").open("w") as two:
        for file, text in ((one, "{*}from one} {2}"), (two, "{*}")):
            file.write(text + "\n")
            file.flush()
    rows = query.wait_for(2)
    ids = [client["id"] for client in bus.clients("A_chat")]
    first = int(ids[0], 16)
    assert [(row.address, row.value) for row in rows] == [(f"{first + 1:x}", "from one} {2}"), (f"{first + 2:x}", "")]


def test_a_query_can_be_the_master_of_a_service(bus: Mount, stream: Stream, keep: Keep) -> None:
    query = keep(stream(bus / "S_ask", master="true"))
    until((bus / "S_ask").exists, "the service")
    say(bus / "S_ask", "question")
    assert [(row.address, row.value) for row in query.wait_for(3)] == [("2:o", ""), ("2", "question"), ("2:c", "")]


def test_a_master_gets_every_line_of_several_writers_in_their_order(bus: Mount, stream: Stream, keep: Keep, start: Start) -> None:
    query = keep(stream(bus / "U_jobs", "value STRING", master="true"))
    until((bus / "U_jobs").exists, "the channel")
    writers = [start("sh", "-c", f"seq -f 'w{number} %.0f' 30000 > {bus / 'U_jobs'}") for number in range(4)]
    for writer in writers:
        assert writer.wait(DEADLINE) == 0
    values = [row.value.split() for row in query.wait_for(120_000)]
    for number in range(4):
        assert [int(count) for name, count in values if name == f"w{number}"] == list(range(1, 30001))


def test_a_slave_hears_what_the_master_says(bus: Mount, stream: Stream, keep: Keep) -> None:
    master = os.open(bus / ".U_news", os.O_RDWR | os.O_CREAT)
    try:
        query = keep(stream(bus / "U_news"))
        wait_for_query(bus, "U_news", query)
        os.write(master, b"extra, extra\n")
        assert [row.value for row in query.wait_for(1)] == ["extra, extra"]
    finally:
        os.close(master)


def test_several_channels(bus: Mount, stream: Stream, keep: Keep) -> None:
    query = keep(stream(bus.path, subscribe=f"{bus.touch('B_a')}, {bus.touch('B_b').name}"))
    for name in ("B_a", "B_b"):
        wait_for_query(bus, name, query)
        say(bus / name, f"on {name}")
    assert sorted((row.channel, row.value, row.offset) for row in query.wait_for(2)) == [
        ("B_a", "on B_a", 0),
        ("B_b", "on B_b", 0),
    ]


def test_channels_that_a_pattern_matches_now_and_later(bus: Mount, stream: Stream, keep: Keep) -> None:
    bus.touch("B_one")
    bus.touch("B_other")
    query = keep(stream(bus.path, subscribePattern="B_one.*"))
    wait_for_query(bus, "B_one", query)
    bus.touch("B_one_more")
    wait_for_query(bus, "B_one_more", query)
    say(bus / "B_other", "not for us")
    say(bus / "B_one_more", "late")
    say(bus / "B_one", "early")
    assert sorted(row.value for row in query.wait_for(2)) == ["early", "late"]
    assert not bus.clients("B_other")


def test_a_format_for_one_query_alone_shares_nothing_with_others(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes to the map of environment variables of a source's object, without a lock."""
    with SpoolWriter(tmp_path / "spool", "B_log") as spool:
        spool.append(b"a\nb\n")
    maps = []
    session: Any = spark
    for name in ("futebus_one", "futebus_two"):
        spark.dataSource.register(named(name))
        assert spark.read.format(name).load(str(tmp_path / "spool")).count() == 2
        found = session._jsparkSession.sessionState().dataSourceManager().lookupDataSource(name)
        maps.append(found.dataSourceCls().envVars())
        maps[-1].put("ONLY", name)
    assert [shared["ONLY"] for shared in maps] == ["futebus_one", "futebus_two"]


# ---------------------------------------------------------------------------------------------- what is refused


def test_another_spool_is_not_taken_for_the_one_that_was(stream: Stream, keep: Keep, spool: Path) -> None:
    keep(stream("/bus/B_log", **EXTERNAL), availableNow=True).finish()
    identity = json.loads((spool / "spool.json").read_text())
    (spool / "spool.json").write_text(json.dumps({**identity, "id": "another"}))
    with SpoolWriter(spool, "B_log") as writer:
        writer.append(b"more\n")
    with pytest.raises(StreamingQueryException, match="is not the spool that these offsets belong to"):
        keep(stream("/bus/B_log", **EXTERNAL), availableNow=True).finish()


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        (None, {}, "no channel is named"),
        ("/bus/B_log", {"spoolLocation": ""}, "spoolLocation is needed"),
        ("/bus/X_log", {}, "no channel has this name; its first letter is U, A, S or B"),
        ("/mnt/bus", {}, "if it is the directory of a bus, subscribe or subscribePattern says which channels"),
        ("/bus/B_log", {"master": "true"}, "only U and S channels have a master"),
        ("/bus/B_log", {"master": "yes"}, "master is true or false, not 'yes'"),
        ("/bus/B_log", {"maxRows": "3"}, "there is no option 'maxrows'; is maxRowsPerTrigger meant?"),
        ("/bus/B_log", {"maxRowsPerTrigger": "many"}, "maxRowsPerTrigger is a number from 1 on, not 'many'"),
        ("/bus/B_log", {"maxBytesPerTrigger": "99999999t"}, "maxBytesPerTrigger is a number from 1 on, not '99999999t'"),
        ("/bus/B_log", {"maxRowsPerTrigger": "9" * 5000}, "maxRowsPerTrigger is a number from 1 on, not '999"),
        ("/bus/B_log", {"startingOffsets": "0"}, "startingOffsets is earliest or latest"),
        ("/bus/B_log", {"mode": "lenient"}, "mode is one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ("/bus/B_log", {"drain": "no"}, "drain is auto or external"),
        ("/bus", {"subscribePattern": "("}, "subscribePattern is no regular expression"),
        ("/bus", {"subscribePattern": "B", "subscribe": "B_a"}, "exclude each other"),
        (None, {"subscribe": "/bus/B_a,/other/B_a"}, "two channels of the same name"),
    ],
)
def test_wrong_options_are_told_in_one_sentence(
    stream: Stream, keep: Keep, path: str | None, options: dict[str, str], words: str
) -> None:
    with pytest.raises((AnalysisException, StreamingQueryException), match=re.escape(words)) as refused:
        keep(stream(path, **options)).finish()
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [("text STRING", "there is no column 'text'"), ("value INT", "the column 'value' is STRING or BINARY, not INT")],
)
def test_wrong_schemas_are_told_in_one_sentence(stream: Stream, keep: Keep, spool: Path, schema: str, words: str) -> None:
    with pytest.raises(StreamingQueryException, match=re.escape(words)):
        keep(stream("/bus/B_log", schema, **EXTERNAL)).finish()


def test_what_is_missing_is_told_in_one_sentence(bus: Mount, stream: Stream, keep: Keep, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    held = os.open(bus / ".U_held", os.O_RDWR | os.O_CREAT)
    try:
        cases: list[tuple[Path, dict[str, object], str]] = [
            (tmp_path / "B_log", {}, f"no bus is mounted on {tmp_path}"),
            (bus / "U_none", {}, "has no master; the option master=true makes the query become it"),
            (bus / "U_held", {"master": True}, "has a master already"),
            (bus / "B_log", {"spoolLocation": tmp_path / "other"}, "is no spool, and not empty"),
            (bus / "B_log", {"spoolLocation": tmp_path / "other" / "file" / "spool"}, "/other/file is no directory"),
            (
                bus / "B_log",
                {"spoolLocation": tmp_path / "new", "drain": "external"},
                "is no spool yet: with drain=external, futebus",
            ),
            (tmp_path, {"subscribePattern": "B.*"}, f"no bus is mounted on {tmp_path}"),
        ]
        for number, (path, options, words) in enumerate(cases):
            with pytest.raises(StreamingQueryException, match=re.escape(words)) as refused:
                keep(stream(path, **options), f"query{number}").finish()
            assert "Traceback" not in str(refused.value)
    finally:
        os.close(held)
