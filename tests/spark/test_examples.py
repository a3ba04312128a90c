"""The examples, as their heads say they are run."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from ..helpers.collectors import Collect
from ..helpers.mounts import Mounting
from ..helpers.programs import Start
from ..helpers.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"

SLOW = 90.0
"""Seconds that two Sparks may take on a machine that has much to do."""


@pytest.mark.timeout(300)
def test_examples(mounting: Mounting, place: Path, start: Start, collect: Collect) -> None:
    bus = mounting(patience=280.0)
    alerts = collect(bus / "B_alerts")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Small, quick to start, and without a port for people to look at.
        "PYSPARK_SUBMIT_ARGS": "--master local[1] --driver-memory 512m --conf spark.ui.enabled=false"
        " --conf spark.sql.shuffle.partitions=2"
        " --driver-java-options '-XX:+UseSerialGC -XX:TieredStopAtLevel=1' pyspark-shell",
    }
    shown = place / "shown"
    with shown.open("w") as stdout:
        count = start(sys.executable, EXAMPLES / "word_count.py", bus.path, env=environment, stdout=stdout)
    judge = start(sys.executable, EXAMPLES / "alerts.py", bus.path, env=environment)

    def is_alive(*channels: str) -> bool:
        for process in (count, judge):
            assert process.poll() is None, process.communicate()[1][-3000:]
        return all((bus / channel).exists() for channel in channels)

    until(lambda: is_alive("B_words", "U_numbers"), "the examples are ready", SLOW)
    (bus / "B_words").write_text("to be or not\nTo be!\n")
    (bus / "U_numbers").write_text("disk 3\ndisk 4\nnonsense\n" * 20 + "disk 100\n")

    def has_counted() -> bool:
        table = re.findall(r"\|\s*(\w+)\|\s*(\d+)\|", shown.read_text())
        return is_alive() and table[-4:] == [("be", "2"), ("to", "2"), ("not", "1"), ("or", "1")]

    def has_judged() -> bytes:
        if is_alive("U_numbers"):
            (bus / "U_numbers").write_text("disk 5\n")
        return alerts.data

    until(has_counted, "the words are counted", SLOW)
    said = until(has_judged, "an alert", SLOW).decode()
    assert re.fullmatch(r"disk: 100\.0 is far from 5\.\d, the mean of 4\d numbers since \d\d:\d\d:\d[05]\n", said)
    for process in (count, judge):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
