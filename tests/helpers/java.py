"""Java for Spark, started quickly: half of what a start takes is that it reads the same thousands of classes.

In a run of several processes, one of them has Java put those classes into an archive while the first tests run: see java(1),
`-XX:ArchiveClassesAtExit`. Whoever starts Spark finds in his environment a file of options for Java, which is empty until then.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""What makes a Java start quickly that does not live long."""

OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable of the environment with which spark-submit takes options for Java."""

_PLACE = "FUTEBUS_TEST_JAVA"
"""The one with the directory of the file and the archive."""

ENOUGH = 20
"""With so many tests of Spark, making the archive takes less than it saves."""

SPARKS = [Path(__file__).parents[1] / name for name in ("archive", "spark", "torture")]
"""The directories of these tests."""


def offer(config: pytest.Config) -> None:
    """Prepares the environment, before there are other processes. To be called by the first one."""
    place = Path(tempfile.mkdtemp(prefix="futebus-java-"))
    place.chmod(0o755)  # some are other users'
    _options(place).touch()
    os.environ[_PLACE] = str(place)
    os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} -XX:VMOptionsFile={_options(place)}".strip()
    config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))


def make(session: pytest.Session) -> None:
    """Begins to make the archive, if that is worth while and there is a place for it."""
    if _PLACE not in os.environ or sum(any(map(item.path.is_relative_to, SPARKS)) for item in session.items) < ENOUGH:
        return
    process = subprocess.Popen(
        [sys.executable, __file__, os.environ[_PLACE]],
        env={**os.environ, OPTIONS: "", "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def end() -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its Java too
            process.wait()

    session.config.add_cleanup(end)


def options() -> str:
    """What the environment of a Spark has in `OPTIONS`."""
    return f"{os.environ.get(OPTIONS, '')} {QUICK}".strip()


def _options(place: Path) -> Path:
    return place / "options"


def _fill(place: Path) -> None:
    """Runs a Spark that does a little of everything, and keeps the classes that it has needed."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)

    from futebus.spark import interpreter
    from futebus.spool import SpoolWriter

    interpreter.quicken()
    with SpoolWriter(place / "spool", "B_x") as spool:
        spool.append(b"one\ntwo\n")
    making, made = place / "making", place / "classes"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1")
    builder = builder.config("spark.driver.extraJavaOptions", f"{QUICK} -XX:ArchiveClassesAtExit={making}")
    session = builder.config("spark.sql.warehouse.dir", str(place)).getOrCreate()
    reader = session.readStream.format("futebus").option("drain", "external").option("startingOffsets", "earliest")
    lines = reader.option("spoolLocation", str(place / "spool")).load(str(place / "B_x")).withWatermark("timestamp", "1 second")
    counts = lines.groupBy(F.window("timestamp", "1 second"), "value").count()
    writer = counts.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    writer.trigger(availableNow=True).start(str(place / "counts")).awaitTermination()
    gateway = SparkContext._gateway
    assert gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # it writes the archive when it ends
    making.rename(made)
    # What does not fit, because a test has other jars, is not used, and nothing is said.
    new = place / "new"
    new.write_text(f"-XX:SharedArchiveFile={made}\n-Xlog:cds=off\n-Xlog:cds+dynamic=off\n")
    new.rename(_options(place))


if __name__ == "__main__":
    _fill(Path(sys.argv[1]))
