"""The programs of docs/spark.md, typed as they are printed. Only directories are others."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ..helpers.collectors import Collect
from ..helpers.mounts import Mounting
from ..helpers.nats import Serving, serving
from ..helpers.papers import TREE, Shell, blocks, environment
from ..helpers.programs import Start
from ..helpers.sparks import is_well
from ..helpers.streams import Filling, filling
from ..helpers.waiting import SLOW, until

__all__ = ["filling", "serving"]

SMALL = "--master local[2] --driver-memory 512m --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"


@pytest.mark.timeout(600)
def test_the_programs_of_the_page(mounting: Mounting, place: Path, start: Start, collect: Collect) -> None:
    bus = mounting(patience=580.0)
    page = [
        block.replace("/mnt/bus", str(bus.path)).replace("/var/tmp", str(place))
        for block in blocks((TREE / "docs" / "spark.md").read_text(), "python")
    ]
    first, session, own_format, writing, _, _ = page

    # What a program begins with, from anywhere, by spark-submit.
    (place / "program.py").write_text(f"{session}\n{own_format}\nprint('columns:', jobs.columns)\n")
    submit = f"spark-submit {SMALL} program.py"
    with (place / "submitted").open("w") as shown:
        submitted = start("bash", "-c", submit, cwd=place, env=environment(place), stdout=shown, stderr=subprocess.STDOUT)

    # A shell of Spark wants a terminal.
    shell = Shell(start, place, "shell", "script", "-qfec", f"pyspark {SMALL}", "/dev/null")

    def joined(channel: str) -> bool:
        assert "failed to connect back" not in shell.shown  # Spark has given up
        return len(bus.clients(channel)) == 1

    with shell.telling():
        until(lambda: ">>> " in shell.shown, "it can be typed into", SLOW)
        for line in (
            *own_format.splitlines(),
            "alerts = jobs.selectExpr(\"'here' AS host\", 'value AS reason')",
            *writing.splitlines(),
        ):
            shell.type(line)
        alerts = collect(bus / "B_alerts")
        until(lambda: joined("U_jobs"), "Spark reads U_jobs", SLOW)
        (bus / "U_jobs").write_text("job 1\n")
        until(lambda: alerts.data == b"here: job 1\n", "it is sent", SLOW)

        for line in first.splitlines():
            shell.type(line)
        until(lambda: joined("B_log"), "Spark reads B_log", SLOW)
        (bus / "B_log").write_text("hello, Spark\n")
        until(lambda: "|hello, Spark|" in shell.shown, "it is on the console", SLOW)

    assert submitted.wait(SLOW) == 0, (place / "submitted").read_text()
    assert "columns: ['value', 'channel', 'offset', 'timestamp', 'address']\n" in (place / "submitted").read_text()


def test_the_streams_of_the_page(spark: SparkSession, serving: Serving, filling: Filling, place: Path) -> None:
    server = serving(jetstream=True)
    filled = filling(server.url)
    *_, reading, writing = (
        block.replace("nats://nats.example", server.url).replace("/var/tmp", str(place)).replace("/shared", str(place))
        for block in blocks((TREE / "docs" / "spark.md").read_text(), "python")
    )
    names: dict[str, Any] = {"spark": spark}
    exec(reading, names)
    names["texts"] = names["lines"].where("subject = 'lines.a'").select("value")
    exec(writing, names)
    (query,) = spark.streams.active
    try:
        until(lambda: is_well(query) and query.lastProgress, "it has begun")
        filled.say("one", "two")
        until(lambda: is_well(query) and filled.state.last == 2, "it is sent")
        assert filled.do(lambda stream: stream.last("lines.alerts")).data == b"one\ntwo\n"
    finally:
        query.stop()
