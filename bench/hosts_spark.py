"""A stream of NATS read by Spark, beside a spool with the same lines, in the same session: the value alone."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import collect, servers, spark
from .figures import Figure, Row

MESSAGE = 1_300
"""Lines of a message: 130 kB, as a publisher makes them."""

SPOOL, STREAM = "a spool", "a stream of one nats-server"


def _fill(place: Path, port: int) -> int:
    """The same lines as a spool and as a stream. Returns how many."""
    import nats

    from futebus.nats import runs
    from futebus.spool import SpoolWriter

    runs_of_lines = [
        b"".join(collect.line(number % 8, number) for number in range(MESSAGE * at, MESSAGE * (at + 1))) for at in range(77)
    ]
    count = spark.LINES // MESSAGE

    async def publish() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = client.jetstream(timeout=60)
        await stream.add_stream(name="BENCH", subjects=["bench"])
        for begin in range(0, count, 32):
            numbers = range(begin, min(begin + 32, count))
            headers = [
                runs.headers(runs.Where("bench", MESSAGE * at, MESSAGE, time.time_ns(), "here", "B_bench")) for at in numbers
            ]
            sent = (
                stream.publish("bench", runs_of_lines[at % 77], headers=each) for at, each in zip(numbers, headers, strict=True)
            )
            await asyncio.gather(*sent)
        await client.close()

    asyncio.run(publish())
    with SpoolWriter(place / "spool", "B_bench") as spool:
        for number in range(count):
            spool.append(runs_of_lines[number % 77])
    return count * MESSAGE


def run(rounds: int, show: Callable[[str], None]) -> tuple[Row, ...]:
    """Measures both in turn, round by round."""
    row = Row("hosts-spark", "100-byte lines to Spark's noop sink, the value alone, AvailableNow: rows per second")
    if absent := servers.missing("nats-server"):
        row.notes.append(f"skipped: {', '.join(absent)} not installed")
        return (row,)
    try:
        import pyspark  # noqa: F401
    except ImportError:
        row.notes.append("skipped: Spark is not installed (scripts/install spark)")
        return (row,)
    values: dict[str, list[float]] = {SPOOL: [], STREAM: []}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="futebus-bench-")))
        port = stack.enter_context(servers.jetstream())
        lines = _fill(place, port)
        session = spark.session(spark__python__unix__domain__socket__enabled="true")
        stack.callback(session.stop)
        paths = {
            SPOOL: ("/bus/B_bench", {"spoolLocation": str(place / "spool"), "drain": "external"}),
            STREAM: (f"nats://127.0.0.1:{port}/BENCH", {}),
        }
        for round_ in range(-spark.WARMING, rounds):
            for name, (path, options) in paths.items():
                show(f"hosts-spark: round {max(round_ + 1, 0)} of {rounds}, {name}")
                reader: Any = session.readStream.format("futebus").options(startingOffsets="earliest", **options)
                stream = reader.schema("value STRING NOT NULL").load(path)
                writer = stream.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp(dir=place))
                query = writer.trigger(availableNow=True).start()
                query.awaitTermination()
                rows = sum(progress["numInputRows"] for progress in query.recentProgress)
                seconds = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000
                if rows != lines:
                    raise RuntimeError(f"{name}: {rows} of {lines} lines")
                if round_ >= 0:
                    values[name].append(rows / seconds)
    row.figures.extend(
        Figure(name, "lines/s", each, {"lines": f"{lines * rounds:,}", "lost": "0"}) for name, each in values.items()
    )
    ratios = [stream / spool for stream, spool in zip(values[STREAM], values[SPOOL], strict=True)]
    row.notes.append(f"Round by round, the stream has {statistics.median(ratios):.2f} of the speed of the spool.")
    return (row,)
