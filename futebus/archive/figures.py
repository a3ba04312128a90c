"""Live figures: what channels say in each window of time, as lines on another channel.

The one rule: a window is spoken of once, when it is over and everything that was said in it has been counted.

That it is over is seen by the time of later lines; as nobody may say anything for long, a clock's ticks are put among them.
Windows that are not over are kept in the query's checkpoint, so the figures are right after a restart. (A restart in the moment
when lines are written may repeat them.)
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)

from ..spark.sink.outlet import Outlet, SinkError

SCHEMA = "value BINARY, channel STRING, timestamp TIMESTAMP, address STRING"
"""What is read of each line. Bytes can be counted, and bytes that are no UTF-8 too."""

DELAY = "1 second"
"""How much earlier than a tick of the clock a line may have been taken that is read after it. Ticks are read first."""

SENDERS = 3
"""How many senders are named."""


def figures(lines: DataFrame, window: str, errors: str) -> DataFrame:
    """The figures of each window that is over, as a stream: of each channel, and of each sender where lines have senders.

    Args:
        lines: a stream with the columns of SCHEMA.
        window: how long a window is, as Spark writes it: `10 seconds`.
        errors: a regular expression of Java; lines that it is found in are errors.
    """
    ticks = lines.sparkSession.readStream.format("rate").options(rowsPerSecond=1, numPartitions=1).load()
    nothing = F.lit(None).cast("string")
    counted = lines.select(
        nothing.isNull().alias("is_line"),
        "channel",
        "timestamp",
        "address",
        (F.octet_length("value") + 1).cast("long").alias("bytes"),
        F.col("value").cast("string").rlike(errors).cast("long").alias("errors"),
    )
    ticked = ticks.select(
        nothing.isNotNull().alias("is_line"),
        nothing.alias("channel"),
        "timestamp",
        nothing.alias("address"),
        F.lit(0).cast("long").alias("bytes"),
        F.lit(0).cast("long").alias("errors"),
    )
    # Ticks come first: Spark asks each source in turn how far it goes, and a line that is read after a tick is no older.
    return (
        ticked.union(counted)
        .withWatermark("timestamp", DELAY)
        .groupBy(F.window("timestamp", window), "is_line", "channel", "address")
        .agg(F.count("*").alias("lines"), F.sum("bytes").alias("bytes"), F.sum("errors").alias("errors"))
    )


def summed(closed: DataFrame) -> list[Row]:
    """Of the figures of windows that are over, one row for each window and channel, in this order."""
    senders = F.filter(F.collect_list(F.struct("lines", "address")), lambda sender: sender["address"].isNotNull())
    return (
        closed.where("is_line")
        .groupBy("window", "channel")
        .agg(
            F.sum("lines").alias("lines"),
            F.sum("bytes").alias("bytes"),
            F.sum("errors").alias("errors"),
            F.slice(F.sort_array(senders, asc=False), 1, SENDERS).alias("senders"),
        )
        .selectExpr(
            "*", "unix_seconds(window.start) AS start", "unix_seconds(window.end) - unix_seconds(window.start) AS seconds"
        )
        .selectExpr("*", "date_format(window.start, \"yyyy-MM-dd'T'HH:mm:ssXXX\") AS begin")
        .orderBy("start", "channel")
        .collect()
    )


def line(row: Row) -> str:
    """One row of `summed` as a line: words `key=value`, for people and programs."""
    words = {
        "window": row["begin"],
        "seconds": row["seconds"],
        "channel": quote(row["channel"], safe="/:@+,$!*'()"),
        "lines": row["lines"],
        "bytes": row["bytes"],
        "lines/s": f"{row['lines'] / row['seconds']:.1f}",
        "errors": row["errors"],
        "error_rate": f"{row['errors'] / row['lines']:.4f}",
    }
    if row["senders"]:
        words["top"] = ",".join(f"{sender['address']}:{sender['lines']}" for sender in row["senders"])
    return " ".join(f"{key}={value}" for key, value in words.items())


def publisher(channel: Path, say: Callable[[str], None]) -> Callable[[DataFrame, int], None]:
    """What is to be done with each batch of `figures`: its lines are written to a channel.

    Args:
        channel: where they go. It is created at once, if need be: who wants to hear the first of them needs a file to open.
        say: is told why lines could not be written. They are lost then: who listens to figures listens to the present.
    """
    with suppress(SinkError):  # said when there is something to be written
        Outlet(channel.parent, channel.name).close()

    def publish(closed: DataFrame, batch: int) -> None:
        rows = summed(closed)
        if not rows:
            return
        try:
            outlet = Outlet(channel.parent, channel.name)
            try:
                outlet.put("".join(f"{line(row)}\n" for row in rows).encode())
            finally:
                outlet.close()
        except SinkError as error:
            say(f"{channel}: {error}; the figures of {len(rows)} windows are lost")

    return publish


def check_regex(spark: SparkSession, pattern: str) -> str | None:
    """What is wrong with a regular expression of Java; None if nothing is."""
    try:
        spark.sparkContext._jvm.java.util.regex.Pattern.compile(pattern)  # type: ignore[union-attr]
    except IllegalArgumentException as error:
        return str(error).splitlines()[0]
    return None
