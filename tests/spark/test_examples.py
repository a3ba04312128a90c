"""The examples, as their heads say they are run."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from ..helpers.collectors import Collect
from ..helpers.java import QUICK
from ..helpers.mounts import Mounting, run
from ..helpers.papers import environment
from ..helpers.processes import members, read
from ..helpers.programs import Start
from ..helpers.waiting import SLOW, until

EXAMPLES = Path(__file__).parents[2] / "examples"

STILL = 2.0
"""Seconds without a new batch after which there is nothing more to be done: one without lines may follow another at once."""

SMALL = f"--master local[1] --driver-memory 512m --conf spark.ui.enabled=false --driver-java-options '{QUICK}' pyspark-shell"
"""How Spark is started by python: small, and without a port for people to look at."""


def source_of(session: int) -> int:
    """The process in which Spark, begun as this session, runs the source of a query."""
    name = b"pyspark.sql.streaming.python_streaming_source_runner"
    [found] = (pid for pid in members(session) if name in read(f"/proc/{pid}/cmdline").split(b"\0"))
    return found


@pytest.mark.timeout(600)
def test_examples(mounting: Mounting, place: Path, start: Start, collect: Collect) -> None:
    bus = mounting(patience=580.0)
    alerts = collect(bus / "B_alerts")
    shown = [place / "counted", place / "judged"]
    processes = []
    # From a directory that is none of futebus's, each in one of the ways in which Spark's programs are started.
    for stdout, command in zip(shown, (["python", "word_count.py"], ["spark-submit", "alerts.py"]), strict=True):
        with stdout.open("w") as stream:
            program = [command[0], EXAMPLES / command[1], bus.path]
            own = environment(place) | {"PYSPARK_SUBMIT_ARGS": SMALL, "TMPDIR": str(place)}
            processes.append(start(*program, env=own, stdout=stream, cwd=place))

    def says(number: int, words: str) -> bool:
        for process in processes:
            assert process.poll() is None, process.communicate()[1][-3000:]
        return words in shown[number].read_text()

    until(lambda: says(0, "B_words is counted") and says(1, "U_numbers are looked at"), "the examples are ready", SLOW)
    (bus / "B_words").write_text("to be or not\nTo be!\n")
    (bus / "U_numbers").write_text("disk 3\ndisk 4\nnonsense\n" * 20 + "disk 100\n")

    def has_counted() -> bool:
        table = re.findall(r"\|\s*(\w+)\|\s*(\d+)\|", shown[0].read_text())
        return says(0, "") and table[-4:] == [("be", "2"), ("to", "2"), ("not", "1"), ("or", "1")]

    def has_judged() -> bytes:
        if says(1, ""):
            (bus / "U_numbers").write_text("disk 5\n")
        return alerts.data

    def newest(kind: str) -> int:
        [files] = place.glob(f"tmp*/checkpoint/{kind}")
        return max(int(file.name) for file in files.iterdir() if file.name.isdecimal())

    seen, since = (-1, -2), 0.0

    def is_idle() -> bool:
        """Whether no batch is under way: one that is interrupted may have Spark's own processes print tracebacks."""
        nonlocal seen, since
        if (batches := (newest("offsets"), newest("commits"))) != seen:
            seen, since = batches, time.monotonic()
        return seen[0] == seen[1] and time.monotonic() - since > STILL

    until(has_counted, "the words are counted", SLOW)
    said = until(has_judged, "an alert", SLOW).decode()
    assert re.fullmatch(r"disk: 100\.0 is far from 5\.\d, the mean of 4\d numbers since \d\d:\d\d:\d[05]\n", said)
    until(is_idle, "all numbers are looked at", SLOW)
    # Ctrl-C reaches the process in which Spark runs the source, too. It is for the program to end the query.
    batches = newest("commits")
    os.kill(source_of(processes[1].pid), signal.SIGINT)
    (bus / "U_numbers").write_text("disk 5\n")
    until(lambda: says(1, "") and newest("commits") > batches, "the query goes on", SLOW)
    until(is_idle, "all numbers are looked at", SLOW)
    for process, status in zip(processes, (0, 130), strict=True):
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does; what spark-submit runs is a child of Java
        assert process.wait(SLOW) == status
        assert "Traceback" not in process.communicate()[1]


@pytest.mark.parametrize("example", ["word_count.py", "alerts.py"])
def test_a_wrong_argument_is_answered_in_one_line(place: Path, example: str) -> None:
    done = run(sys.executable, EXAMPLES / example, place)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{example}: no bus is mounted on {place}\n")
    assert not list(place.iterdir()), "no ordinary file is made where no bus is"
    usage = f"usage: {example} BUS, the directory where a bus is mounted\n"
    done = run(sys.executable, EXAMPLES / example, "-h")
    assert (done.returncode, done.stdout, done.stderr) == (0, usage, "")
    done = run(sys.executable, EXAMPLES / example)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", usage)
