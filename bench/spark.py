"""Spark: from a spool to nowhere, from a channel to a spool, one line to `foreachBatch`, and a query that has nothing to do.

Beside them Spark's own text and socket sources, in the same session.
"""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from futebus.spool import Spool, SpoolWriter

from . import bulk, collect, peers
from .figures import Figure, Row

LINES = 3_000_000
WARMING = 2
"""Rounds that do not count, until the JVM has compiled what it runs."""
ECHOES = 40
"""Lines whose way is timed one by one, in each round."""
IDLE_SECONDS = 15.0
PATIENCE = 60.0
Show = Callable[[str], None]


def session(**conf: str) -> Any:
    """A session for measurements."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name, value in conf.items():
        builder = builder.config(name.replace("__", "."), value)
    made: Any = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited too long until {what}")
        time.sleep(0.002)


def _has_joined(bus: peers.Daemon) -> bool:
    """Whether there is a client that reads in bulk."""
    return any(client["bulk"] and not client["writes"] for client in peers.clients(bus.directory))


# ---------------------------------------------------------------------------------------------- from a spool to nowhere


def _fill(place: Path) -> None:
    """The same lines as a spool and as a text file."""
    lines = b"".join(collect.line(number % 8, number) for number in range(100_000))
    (place / "text").mkdir()
    with SpoolWriter(place / "spool", "B_bench") as spool, (place / "text" / "lines.txt").open("wb") as file:
        for _ in range(LINES // 100_000):
            spool.append(lines)
            file.write(lines)


def _throughput(session: Any, place: Path, rounds: int, show: Show) -> Row:
    from pyspark.sql import functions

    def text() -> Any:
        return session.readStream.format("text").load(str(place / "text"))

    def spool() -> Any:
        options = {"spoolLocation": str(place / "spool"), "drain": "external", "startingOffsets": "earliest"}
        return session.readStream.format("futebus").options(**options).schema("value STRING NOT NULL").load("/bus/B_bench")

    def worked_on(lines: Any) -> Any:
        return lines.where(functions.col("value").contains("7")).select(
            functions.substring("value", 1, 1).alias("writer"), functions.length("value").alias("length")
        )

    cases: dict[str, Callable[[], Any]] = {
        "text source": text,
        "futebus": spool,
        "text source, filter and projection": lambda: worked_on(text()),
        "futebus, filter and projection": lambda: worked_on(spool()),
    }
    values: dict[str, list[float]] = {name: [] for name in cases}
    taken = dict.fromkeys(cases, 0)
    started: dict[str, list[float]] = {name: [] for name in cases}
    for round_ in range(-WARMING, rounds):
        for name, stream in cases.items():
            show(f"spark: round {max(round_ + 1, 0)} of {rounds}, {name}")
            checkpoint = tempfile.mkdtemp(dir=place)
            begin = time.monotonic()
            query = (
                stream().writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            )
            query.awaitTermination()
            whole = time.monotonic() - begin
            rows = sum(progress["numInputRows"] for progress in query.recentProgress)
            seconds = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000
            if rows != LINES:
                raise RuntimeError(f"{name}: {rows} of {LINES} lines")
            if round_ >= 0:
                values[name].append(rows / seconds)
                started[name].append(whole - seconds)
                taken[name] += rows
    figures = [
        Figure(
            name,
            "lines/s",
            each,
            {"lines": f"{taken[name]:,}", "lost": "0", "seconds to begin and end": f"{statistics.median(started[name]):.2f}"},
        )
        for name, each in values.items()
    ]
    title = (
        "Spark: 3,000,000 lines of 100 bytes to the noop sink, while the query's triggers ran (AvailableNow, unix-socket workers)"
    )
    return Row("spark", title, figures)


# ---------------------------------------------------------------------------------------------- from a channel to a spool


def _time_writers(target: Path, files: list[Path]) -> float:
    begin = time.monotonic()
    writers = []
    for file in files:
        with target.open("wb") as output:
            writers.append(subprocess.Popen(["cat", str(file)], stdout=output))
    for writer in writers:
        writer.wait()
    return time.monotonic() - begin


def _drain(place: Path, rounds: int, show: Show) -> Row:
    files = collect.write_files(place, collect.LINES)
    count = collect.WRITERS * collect.LINES
    values: dict[str, list[float]] = {"cat <>+.U_bench >/dev/null": [], "cat <>+.U_bench >FILE": [], "futebus-record": []}
    for round_ in range(-1, rounds):  # the first one warms up: memory that a virtual machine has not used yet is slow to come by
        show(f"spark-drain: round {round_ + 1} of {rounds}")
        for name, target in (("cat <>+.U_bench >/dev/null", Path(os.devnull)), ("cat <>+.U_bench >FILE", place / "file")):
            with peers.futebus() as bus, target.open("wb") as output:
                master = os.open(bus.directory / "+.U_bench", os.O_RDWR | os.O_CREAT)
                reader = subprocess.Popen(["cat"], stdin=master, stdout=output)
                os.close(master)
                seconds = _time_writers(bus.directory / "U_bench", files)
                bulk.end(reader)
                if round_ >= 0:
                    values[name].append(count / seconds)
        (place / "file").unlink()
        with peers.futebus() as bus:
            spool = place / "U_bench"
            recorder = subprocess.Popen(
                [sys.executable, "-m", "futebus.commands.record", "-q", str(bus.directory / "U_bench"), str(spool)],
                stderr=subprocess.DEVNULL,
            )
            try:
                _until((bus.directory / "U_bench").exists, "the recorder has joined")
                begin = time.monotonic()
                _time_writers(bus.directory / "U_bench", files)
                _until(lambda spool=spool: Spool(spool).end == count, "all lines are in the spool")  # type: ignore[misc]
                if round_ >= 0:
                    values["futebus-record"].append(count / (time.monotonic() - begin))
            finally:
                recorder.terminate()
                recorder.wait()
                shutil.rmtree(spool, ignore_errors=True)
    figures = [Figure(name, "lines/s", each, {"lines": f"{count * rounds:,}", "lost": "0"}) for name, each in values.items()]
    return Row(
        "spark-drain", "100-byte lines of 8 writers through a U channel into a spool, into a file, and into nothing", figures
    )


# ---------------------------------------------------------------------------------------------- one line


class _Arrivals:
    """When the lines came to `foreachBatch`."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def __call__(self, lines: Any, batch: int) -> None:
        rows = lines.collect()
        now = time.monotonic()
        for row in rows:
            self.times[row.value] = now


@contextmanager
def _served() -> Iterator[tuple[int, Callable[[str], None]]]:
    """A server as Spark's socket source wants it. Gives its port, and what sends a line."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connections.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()

    def send(line: str) -> None:
        _until(lambda: bool(connections), "Spark has connected")
        connections[-1].sendall(line.encode() + b"\n")

    try:
        yield listener.getsockname()[1], send
    finally:
        listener.close()
        for connection in connections:
            connection.close()


def _echoes(stream: Any, send: Callable[[str], None], place: Path) -> list[float]:
    """Milliseconds that each line took, one after the other."""
    arrivals = _Arrivals()
    writer = stream.select("value").writeStream.foreachBatch(arrivals)
    query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=place)).start()
    try:
        taken = []
        for number in range(ECHOES + 10):
            line = f"line {number}"
            begin = time.monotonic()
            send(line)
            _until(lambda line=line: line in arrivals.times or query.exception() is not None, f"{line} has come")  # type: ignore[misc]
            taken.append((arrivals.times[line] - begin) * 1000)
        return taken[10:]  # until it has warmed up
    finally:
        query.stop()


def _latency(session: Any, place: Path, rounds: int, show: Show) -> Row:
    values: dict[str, list[float]] = {"socket source": [], "futebus": []}
    for round_ in range(rounds):
        show(f"spark-latency: round {round_ + 1} of {rounds}")
        with _served() as (port, send):
            stream = session.readStream.format("socket").options(host="127.0.0.1", port=port).load()
            values["socket source"].append(statistics.median(_echoes(stream, send, place)))
        with peers.futebus() as bus:
            channel = bus.directory / "B_bench"
            channel.touch()
            options = {"spoolLocation": tempfile.mkdtemp(dir=place)}

            def echo(line: str, bus: peers.Daemon = bus, channel: Path = channel) -> None:
                _until(lambda: _has_joined(bus), "the query has joined")
                with channel.open("w") as file:
                    file.write(line + "\n")

            stream = session.readStream.format("futebus").options(**options).load(str(channel))
            values["futebus"].append(statistics.median(_echoes(stream, echo, place)))
    figures = [Figure(name, "ms", each, {"lines": f"{rounds * ECHOES}"}) for name, each in values.items()]
    return Row("spark-latency", "One line to foreachBatch, default settings, medians of 40 lines", figures)


# ---------------------------------------------------------------------------------------------- nothing to do


def _processor_time() -> float:
    """Seconds of this process and all that it has started, those that have ended and were waited for too."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            spent[int(entry.name)] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        total += spent.get(process, 0)
        left += parents.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def _idle(session: Any, place: Path, rounds: int, show: Show) -> Row:
    def share() -> float:
        begin = _processor_time()
        time.sleep(IDLE_SECONDS)
        return (_processor_time() - begin) / IDLE_SECONDS * 100

    values: dict[str, list[float]] = {"session without a query": [], "with an idle query": [], "the query alone": []}
    with peers.futebus() as bus:
        channel = bus.directory / "B_bench"
        channel.touch()
        for round_ in range(rounds):
            show(f"spark-idle: round {round_ + 1} of {rounds}")
            without = share()
            stream = session.readStream.format("futebus").option("spoolLocation", tempfile.mkdtemp(dir=place)).load(str(channel))
            arrivals = _Arrivals()
            query = stream.writeStream.foreachBatch(arrivals).option("checkpointLocation", tempfile.mkdtemp(dir=place)).start()
            _until(lambda: _has_joined(bus), "the query has joined")
            channel.write_text("warm\n")
            _until(lambda arrivals=arrivals: "warm" in arrivals.times, "the first line has come")  # type: ignore[misc]
            time.sleep(2)  # what it does once, it has done
            with_one = share()
            query.stop()
            _until(lambda: not _has_joined(bus), "the query has left")
            for name, value in zip(values, (without, with_one, max(with_one - without, 0)), strict=True):
                values[name].append(value)
    figures = [Figure(name, "% of a core", each) for name, each in values.items()]
    return Row("spark-idle", "A query that has nothing to do (the bus's daemon included)", figures)


def run(rounds: int, show: Show) -> tuple[Row, ...]:
    """Measures all of it."""
    with tempfile.TemporaryDirectory(prefix="futebus-bench-") as directory:
        place = Path(directory)
        rows = []
        (place / "drain").mkdir()
        rows.append(_drain(place / "drain", rounds, show))
        shutil.rmtree(place / "drain")
        _fill(place)
        begun = session(spark__python__unix__domain__socket__enabled="true")
        rows.insert(0, _throughput(begun, place, rounds, show))
        begun.stop()
        begun = session(spark__python__unix__domain__socket__enabled="false")
        rows.append(_latency(begun, place, rounds, show))
        rows.append(_idle(begun, place, min(rounds, 2), show))
        begun.stop()
    return tuple(rows)
