"""Streams of a real server as streams of a real Spark: each line once, and what is lost is told."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from futebus.nats import runs
from futebus.spark import joined
from futebus.spark.options import QueryError
from futebus.spark.source.messages import MOST_AHEAD
from tests.helpers.java import QUICK
from tests.helpers.nats import Server, Serving, keeping, serving
from tests.helpers.programs import Start
from tests.helpers.sparks import is_well
from tests.helpers.streams import SPOOL, TIME, Filled, Filling, filling
from tests.helpers.waiting import DEADLINE, until

from .followings import Stream, filled, following, stream
from .kept import Keep, keep

__all__ = ["filled", "filling", "keep", "keeping", "serving", "stream"]


def test_lines_come_with_all_columns(filled: Filled, stream: Stream, keep: Keep) -> None:
    filled.say("one", "two")
    filled.say("{5}three", subject="lines.b", channel="A_chat", host="bêta")
    filled.outside(b"four\n\nfive", subject="lines.c")
    filled.outside(b"", subject="lines.c")
    rows = keep(stream(filled.url), availableNow=True).finish()
    moment = datetime.fromtimestamp(TIME // 1000 / 1e6, UTC)
    found = [(*row[:3], row.address, row.host, row.subject, row.sequence) for row in rows]
    assert found == [
        ("one", "U_log", 0, None, "alpha", "lines.a", 1),
        ("two", "U_log", 1, None, "alpha", "lines.a", 1),
        ("three", "A_chat", 0, "5", "bêta", "lines.b", 2),
        ("four", None, 0, None, None, "lines.c", 3),
        ("five", None, 1, None, None, "lines.c", 3),
    ]
    assert {row.timestamp.astimezone(UTC) for row in rows[:3]} == {moment}
    assert rows[3].timestamp.year >= 2025


def test_what_comes_while_it_runs(filled: Filled, stream: Stream, keep: Keep) -> None:
    filled.say("before")
    query = keep(stream(filled.url, "value STRING", startingOffsets="latest", pollTimeoutMs=100_000))
    joined(query.query)  # type: ignore[arg-type]
    filled.say("first")
    assert [row.value for row in query.wait_for(1)] == ["first"]
    filled.say("second")
    assert [row.value for row in query.wait_for(2)] == ["first", "second"]
    query.settle()
    query.stop()
    filled.say("third")
    query = keep(stream(filled.url, "value STRING", startingOffsets="latest"))
    assert [row.value for row in query.wait_for(1)] == ["third"]


def test_a_query_that_has_begun_has_a_place(filled: Filled, stream: Stream, keep: Keep) -> None:
    """Nothing has come for it, and it is stopped: what is said then it gets."""
    query = keep(stream(filled.url, "value STRING", startingOffsets="latest"))
    until(lambda: query.query and is_well(query.query) and query.query.lastProgress, "it has written down where it begins")
    query.stop()
    filled.say("first")
    query = keep(stream(filled.url, "value STRING", startingOffsets="latest"), availableNow=True)
    assert [row.value for row in query.finish()] == ["first"]


@pytest.mark.parametrize("limit", [{"maxRowsPerTrigger": "25"}, {"maxBytesPerTrigger": "200"}])
def test_batches_are_limited(filled: Filled, stream: Stream, keep: Keep, limit: dict[str, str]) -> None:
    said = filled.fill(5)
    filled.say(*(big := [f"big {number}" for number in range(40)]))
    filled.outside(b"last\n")
    query = keep(stream(filled.url, "value STRING", **limit), availableNow=True)
    assert [row.value for row in query.finish()] == [*said, *big, "last"]
    assert [len(rows) for rows in query.batches.values() if rows] == [20, 20, 10, 40, 1]


def test_one_subject_alone(filled: Filled, stream: Stream, keep: Keep) -> None:
    filled.say("a")
    filled.say("b", subject="lines.b")
    filled.say("c")
    query = keep(stream(f"{filled.url}/lines.b", "value STRING"), availableNow=True)
    assert [row.value for row in query.finish()] == ["b"]
    filled.fill(20)
    query = keep(stream(f"{filled.url}/lines.b", "value STRING"))
    filled.say("d", subject="lines.b")
    assert [row.value for row in query.wait_for(1)] == ["d"]
    assert query.query is not None
    query.query.processAllAvailable()
    query.stop()
    filled.delete(1)
    filled.say("e", subject="lines.b")
    query = keep(stream(f"{filled.url}/lines.b", "value STRING"), availableNow=True)
    assert [row.value for row in query.finish()] == ["e"]


def test_many_parts(filled: Filled, stream: Stream, keep: Keep) -> None:
    said = filled.fill(40)
    query = keep(stream(filled.url, partitionBytes=500), availableNow=True)
    rows = query.finish()
    assert sorted((row.sequence, row.offset, row.value) for row in rows) == [
        (number // 10 + 1, number, line) for number, line in enumerate(said)
    ]


def test_a_stream_that_has_nothing_is_an_empty_table(spark: SparkSession, filled: Filled) -> None:
    assert spark.read.format("futebus").load(filled.url).collect() == []


@pytest.mark.parametrize("how", ["stream", "table"])
def test_a_subject_that_the_stream_does_not_listen_to(spark: SparkSession, filled: Filled, how: str) -> None:
    words = "/LINES does not listen to nosuch, but to lines.>: nats stream edit"
    if how == "table":
        with pytest.raises(AnalysisException, match=words):
            spark.read.format("futebus").load(f"{filled.url}/nosuch").collect()
    else:
        query = following(filled, path=f"{filled.url}/nosuch")
        with pytest.raises(QueryError, match=words):
            query.initial()
        query.stop()


# ---------------------------------------------------------------------------------------------- what dies


def test_the_server_is_killed_meanwhile(keeping: Server, filled: Filled, stream: Stream, keep: Keep) -> None:
    query = keep(stream(filled.url, "value STRING"))
    said = []
    for round_ in range(3):
        said += filled.fill(5)
        if round_:
            keeping.kill()
            keeping.begin()
        assert [row.value for row in query.wait_for(len(said))] == said


DRIVER = """
import sys
import futebus.spark
from pyspark.sql import SparkSession

url, place, java = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraJavaOptions", java)
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
lines = spark.readStream.format("futebus").option("startingOffsets", "earliest").option("maxRowsPerTrigger", "100").load(url)

def keep(rows, batch):
    rows.select("sequence", "offset", "value").write.mode("overwrite").json(f"{place}/out/{batch}")

lines.writeStream.foreachBatch(keep).option("checkpointLocation", f"{place}/checkpoint").start().awaitTermination()
"""


@pytest.mark.timeout(300)
def test_the_driver_is_killed_meanwhile(filled: Filled, spark: SparkSession, start: Start, place: Path) -> None:
    """Into a sink that can take a batch twice, each line comes once."""
    said = filled.fill(100)

    def rows() -> int:
        with contextlib.suppress(FileNotFoundError):  # a batch that comes again is removed before
            return sum(len(path.read_text().splitlines()) for path in place.glob("out/*/*.json"))
        return 0

    def has(process: "subprocess.Popen[str]", enough: int) -> bool:
        assert process.poll() is None
        return rows() >= enough

    for enough in (150, 450, 1300):
        command = [sys.executable, "-c", DRIVER, filled.url, place, QUICK]
        process = start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(partial(has, process, enough), f"{enough} rows", 2 * DEADLINE)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if enough == 150:
            said += filled.fill(30)
    found = spark.read.json(str(place / "out/*")).collect()
    assert sorted(row.offset for row in found) == list(range(len(said)))
    assert {row.offset: row.value for row in found} == dict(enumerate(said))


# ---------------------------------------------------------------------------------------------- tables


def test_a_stream_as_a_table(filled: Filled, spark: SparkSession) -> None:
    said = filled.fill(20)
    filled.say("{1}hello", subject="lines.b", channel="A_chat")
    filled.delete(2)
    read = spark.read.format("futebus").option("partitionBytes", "300")
    table = read.load(filled.url)
    assert sorted(row.value for row in table.where("subject = 'lines.a'").collect()) == sorted(said[:10] + said[20:])
    assert [row.address for row in table.where("channel = 'A_chat'").select("address").collect()] == ["1"]
    assert table.count() == 191
    assert read.load(f"{filled.url}/lines.b").count() == 1
    assert table.where("offset >= 195 AND value LIKE 'line%'").count() == 5


def test_times_that_cannot_be_are_the_server_s(filled: Filled, spark: SparkSession) -> None:
    """Who publishes says when lines were taken: of a clock that is ahead a little, and of one that is in another age."""
    now = time.time_ns()
    moments = [0, now + 3600 * 10**9, now + 2 * MOST_AHEAD, runs.MOST]
    for number, moment in enumerate(moments):
        where = runs.Where(SPOOL, number, 1, moment, "alpha", "U_log")
        filled._add("lines.a", b"line\n", runs.headers(where), 1)
    rows = spark.read.format("futebus").load(filled.url).orderBy("sequence").collect()
    told = [row.timestamp.astimezone(UTC) for row in rows]
    assert told[:2] == [datetime.fromtimestamp(moment // 1000 / 1e6, UTC) for moment in moments[:2]]
    assert all(abs(found.timestamp() - now / 1e9) < DEADLINE for found in told[2:])


# ---------------------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("nats://{}/", {}, r"not nats://SERVER/STREAM\[/SUBJECT\]"),
        ("nats://{}/NONE", {}, "/NONE: there is no such stream"),
        ("nats://{}/LINES/a.>", {}, "one subject, please, and no wildcard"),
        ("nats://{}/LINES", {"startingOffset": "latest"}, "there is no option 'startingoffset' for .*is startingOffsets meant"),
        ("nats://{}/LINES", {"startingOffsets": "7"}, "startingOffsets is earliest or latest, not '7'"),
        ("nats://{}/LINES", {"creds": "/nowhere"}, "/nowhere: No such file or directory"),
        ("nats://{}/LINES", {"spoolLocation": "/tmp"}, "there is no option 'spoollocation'"),
        ("nats://127.0.0.1:1/LINES", {"timeoutMs": "0"}, "Connection refused"),
        ("nats://me:secret@127.0.0.1:1/LINES", {"timeoutMs": "0"}, "Connection refused"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(
    filled: Filled, stream: Stream, keep: Keep, url: str, options: dict[str, str], words: str
) -> None:
    place = filled.url.removeprefix("nats://").removesuffix("/LINES")
    with pytest.raises(Exception, match=words) as raised:
        keep(stream(url.format(place), "value STRING", **options), availableNow=True).finish()
    assert "secret" not in str(raised.value)
    assert "Traceback" not in str(raised.value)


def test_columns_that_are_not_there(filled: Filled, stream: Stream, keep: Keep) -> None:
    with pytest.raises(StreamingQueryException, match=r"no column 'key': there are value, .*, host, subject, sequence"):
        keep(stream(filled.url, "key STRING"), availableNow=True).finish()


def test_passwords_are_not_shown(serving: Serving, filling: Filling, spark: SparkSession, keep: Keep) -> None:
    server = serving("authorization { users = [{ user: ann, password: verysecret }] }\n", jetstream=True)
    filled = filling(server.as_user("ann:verysecret"))
    said = filled.fill(2)
    options = {"user": "ann", "password": "verysecret"}
    for url, given in ((f"{server.url}/LINES", options), (filled.url, {})):
        table = spark.read.format("futebus").options(**given).load(url)
        assert sorted(row.value for row in table.collect()) == sorted(said)
        plan = table._jdf.queryExecution().toString()
        assert "verysecret" not in plan
        lines = spark.readStream.format("futebus").options(startingOffsets="earliest", **given).load(url)
        query = keep(lines, f"query{len(given)}", availableNow=True)
        assert [row.value for row in query.finish()] == said
        assert query.query is not None
        assert "verysecret" not in str(query.query.recentProgress)
        assert "verysecret" not in query.query._jsq.toString()
        assert not [path for path in query.checkpoint.rglob("*") if path.is_file() and b"verysecret" in path.read_bytes()]
