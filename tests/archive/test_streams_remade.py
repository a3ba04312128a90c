"""`futebus-archive` of streams that are removed and made anew while it runs, in processes of its own."""

import contextlib
import re
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from futebus.archive.keeping import is_gone, is_lasting
from futebus.archive.order import sentence
from futebus.nats.errors import NoStream

from ..helpers.nats import Server, keeping, serving
from ..helpers.programs import Start, stopped
from ..helpers.streams import NAME, Filled, Filling, filling
from ..helpers.waiting import SLOW, until
from .archives import COMMAND, QUICK, table
from .test_command import archived

__all__ = ["filling", "keeping", "serving"]


@pytest.fixture
def filled(keeping: Server, filling: Filling) -> Filled:
    """A stream."""
    return filling(keeping.url)


def test_a_stream_that_is_made_anew_while_it_is_archived(filled: Filled, start: Start, place: Path) -> None:
    """At once, and after a while; the second one has fewer messages than the first. Then one is lost for good: it is told why."""
    root, shown = place / "archive", place / "shown"
    said = filled.fill(3)
    with shown.open("w") as stderr:
        process = start(*COMMAND, *QUICK, "--every", "1s", filled.url, root, stderr=stderr)

    def wait() -> None:
        until(lambda: process.poll() is not None or archived(root) == len(said), "archived", SLOW)
        assert process.poll() is None, shown.read_text()

    wait()
    with stopped(process):  # or it may find that there is none
        filled.remake()
    said += filled.fill(2)
    wait()
    filled.do(lambda stream: stream.jetstream.delete_stream(NAME))
    with contextlib.suppress(NoStream):
        filled.do(lambda stream: stream.state())
    until(lambda: process.poll() is not None or "; waiting" in shown.read_text(), "it waits", SLOW)
    filled._lines.clear()
    filled._last.clear()
    filled.make()
    said += filled.fill(4)
    wait()
    process.terminate()
    assert process.wait(SLOW) == 0
    assert sorted(table(root).column("value").to_pylist()) == sorted(said)
    words = [line for line in shown.read_text().splitlines() if filled.url in line]
    anew = f"futebus: {filled.url} is another stream than the query has read: it was made anew, at "
    assert [re.sub(r" at 20.*", " at ", line) for line in words] == [
        anew,
        f"futebus-archive: {filled.url}: there is no such stream; waiting",
        anew,
    ]


def test_one_that_is_strict_ends_then(filled: Filled, start: Start, place: Path) -> None:
    root = place / "archive"
    said = filled.fill(3)
    process = start(*COMMAND, *QUICK, "-q", "--every", "1s", "--strict", filled.url, root)
    until(lambda: process.poll() is not None or archived(root) == len(said), "archived", SLOW)
    with stopped(process):  # or it may find that there is none
        filled.remake()
    words = process.communicate(timeout=SLOW)[1]
    assert re.fullmatch(
        rf"futebus-archive: {filled.url} is another stream than the query has read: it was made anew, at 20\S+;"
        " without --strict, futebus-archive goes on\n",
        words,
    ), words
    assert process.returncode == 1


def test_one_that_goes_while_a_task_reads_it(spark: SparkSession, filled: Filled, place: Path) -> None:
    """Spark tells of it in a page, of which the name of an error is part."""
    filled.fill(1)

    def take(rows: DataFrame, batch: int) -> None:
        filled.do(lambda stream: stream.jetstream.delete_stream(NAME))
        rows.write.parquet(str(place / "rows"))

    lines = spark.readStream.format("futebus").option("startingOffsets", "earliest").load(filled.url)
    query = lines.writeStream.option("checkpointLocation", str(place / "checkpoint")).foreachBatch(take).start()
    with pytest.raises(StreamingQueryException) as told:
        query.awaitTermination(int(SLOW))
    assert not is_lasting(told.value)
    assert is_gone(told.value)
    assert sentence(told.value) == f"{filled.url}: there is no such stream"
