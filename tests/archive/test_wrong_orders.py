"""What `futebus-archive` is told to do that it cannot, or will not, and what it says then."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from futebus.archive import figures as live
from futebus.commands import archive

from ..helpers.mounts import Mount
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, SLOW
from .archives import COMMAND, QUICK


@pytest.fixture
def handlers() -> Iterator[None]:
    """Puts back the signal handlers that the command sets."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/bus/B_log"], "channels and a directory, please, and not one name"),
        (["/bus/log", "/archive"], "/bus/log: no channel has this name; its first letter is U, A, S or B"),
        (["/bus/B_log", "/other/B_log", "/archive"], "two channels of one name need two archives"),
        (["--pattern", "B_(", "/bus", "/archive"], "argument --pattern: no regular expression: 'B_('"),
        (["--pattern", "B_.*", "/archive"], "--pattern goes with one bus and one directory"),
        (["--external", "/archive"], "--external needs --spools"),
        (["/bus/B_log", "s3a://bucket/archive"], "an archive on s3a needs --spools, a directory on this host's disk"),
        (["--stats", "/bus/U_x", "/bus/B_log", "/archive"], "/bus/U_x: --stats wants a B channel"),
        (["--stats", "/bus/B_log", "/bus/B_log", "/archive"], "/bus/B_log: --stats wants a B channel of its own"),
        (["--window", "5s", "/bus/B_log", "/archive"], "--window is for --stats only"),
        (["--stats", "/bus/B_s", "--window", "0.5s", "/bus/B_log", "/a"], "argument --window: whole seconds, one at least"),
        (["--every", "soon", "/bus/B_log", "/archive"], "argument --every: not a time span"),
        (["--conf", "spark", "/bus/B_log", "/archive"], "argument --conf: not KEY=VALUE: 'spark'"),
        (["--every", "2w", "/bus/B_log", "/archive"], "argument --every: not a time span (s, m, h and d may follow)"),
        (
            ["--master", "foo", "/bus/B_log", "/archive"],
            "argument --master: foo: not local, local[N], spark://HOST:PORT, yarn",
        ),
        (["--master", "sparkk://x", "/bus/B_log", "/archive"], "argument --master: sparkk://x: not local, local[N], spark://"),
        (["/bus/B_log", "/archive\udcff"], r"/archive\xff: it is no UTF-8, and Spark has no other text"),
        (["--spools", "/sp\udcff", "/bus/B_log", "/archive"], r"/sp\xff: it is no UTF-8, and Spark has no other text"),
        (["--conf", "spark.x=\udcff", "/bus/B_log", "/archive"], r"\xff: it is no UTF-8, and Spark has no other text"),
        (["--files", "0", "/bus/B_log", "/archive"], "argument --files: not a number from 1 on: '0'"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], handlers: None) -> None:
    with pytest.raises(SystemExit) as ended:
        archive.main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"futebus-archive: {words}")
    assert said.count("\n") == 1


def test_a_channel_that_is_taken_for_the_directory(bus: Mount, capsys: pytest.CaptureFixture[str], handlers: None) -> None:
    with pytest.raises(SystemExit) as ended:
        archive.main([str(bus / "B_one"), str(bus / "B_two")])
    assert ended.value.code == 2
    assert f"{bus / 'B_two'} is on a bus; the last argument is the directory of the archive" in capsys.readouterr().err


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert archive.main(arguments) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said.removeprefix("futebus-archive: ").rstrip()


def test_what_cannot_be_done(
    place: Path, bus: Mount, capsys: pytest.CaptureFixture[str], handlers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(place / "archive")
    assert failure([str(place / "B_log"), root], capsys) == f"no bus is mounted on {place}"
    assert failure(["--pattern", "B.*", str(place), root], capsys) == f"no bus is mounted on {place}"
    assert failure(["--slave", str(bus / "U_x"), root], capsys).startswith(f"{bus / 'U_x'} has no master; without --slave")
    said = failure(["--external", "--spools", str(place), "B_log", root], capsys)
    assert said.startswith(f"{place / 'B_log'} is no spool yet: futebus-record ")
    spools = place / "spools"
    spools.mkdir()
    external = ["--external", "--spools", str(spools), root]
    assert failure(["--once", *external], capsys) == f"there is no spool in {spools}"
    said = failure(["--once", "--pattern", "B_.*", *external], capsys)
    assert said == f"there is no spool of a channel that matches 'B_.*' in {spools}"
    assert not Path(root).exists(), "who cannot begin leaves nothing"
    with pytest.raises(SystemExit):
        archive.main(["--stats", str(place / "B_stats"), str(bus / "B_log"), root])
    assert f"--stats wants a channel, and no bus is mounted on {place}" in capsys.readouterr().err
    said = failure(["--once", "--pattern", "B_lgo", str(bus.path), root], capsys)
    assert said == f"no channel of {bus.path} matches 'B_lgo'"
    (place / "file").touch()
    assert failure([str(bus / "B_new"), str(place / "file")], capsys) == f"{place / 'file'} is no directory"
    assert failure([str(bus / "B_new"), str(place / "none" / "archive")], capsys) == f"{place / 'none'} does not exist"
    said = failure(["--spools", str(place / "none" / "spools"), str(bus / "B_new"), root], capsys)
    assert said == f"{place / 'none'} does not exist"
    assert not (place / "none").exists()
    assert not (bus / "B_new").exists()
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert failure([str(bus / "B_log"), root], capsys) == archive.NEEDED


def test_a_dead_bus_is_no_missing_one(bus: Mount, place: Path, capsys: pytest.CaptureFixture[str], handlers: None) -> None:
    bus.daemon.kill()
    bus.daemon.wait()
    bus.was_killed = True
    said = failure(["--pattern", "B.*", str(bus.path), str(place / "archive")], capsys)
    assert said.startswith(f"the futebus on {bus.path} is dead: ")


@pytest.mark.parametrize("master", ["local[x]"])
def test_what_spark_says_is_told_and_not_what_was_called(master: str, bus: Mount, place: Path, start: Start) -> None:
    # In a process of its own: in this one there is a Spark already, and what is asked for another one is not looked at.
    process = start(*COMMAND, "--master", master, "--once", bus.touch("B_log"), place / "archive")
    assert process.communicate(timeout=SLOW)[1] == f"futebus-archive: Could not parse Master URL: '{master}'\n"
    assert process.returncode == 1
    assert not (place / "archive").exists(), "who cannot begin leaves nothing"


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("spark://nowhere.invalid:7077", r"no Spark is there \(nowhere\.invalid:7077: .+\)"),
        ("spark://127.0.0.1:1,[::1]:1", r"no Spark is there \(127\.0\.0\.1:1: Connection refused; \[::1\]:1: .+\)"),
        ("spark://somewhere", r"not spark://HOST:PORT"),
        ("spark://somewhere:0", r"not spark://HOST:PORT"),
    ],
)
def test_a_spark_that_is_not_there(
    master: str, words: str, place: Path, bus: Mount, capsys: pytest.CaptureFixture[str], handlers: None
) -> None:
    said = failure(["--master", master, str(bus / "B_log"), str(place / "archive")], capsys)
    assert re.fullmatch(f"--master {re.escape(master)}: {words}", said)
    assert not bus.clients()


@pytest.mark.parametrize("options", [[], ["-q"]])
def test_a_channel_that_is_created_is_told(bus: Mount, place: Path, start: Start, options: list[str]) -> None:
    bus.touch("B_old")
    process = start(*COMMAND, *QUICK, *options, bus / "B_old", bus / "B_new", bus / "U_jobs", place / "archive")
    bus.wait_for_clients(1, "U_jobs", role="master")  # the last of them; Spark has not begun to start
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=DEADLINE)[1]
    assert said == ("" if options else f"futebus-archive: {bus / 'B_new'} did not exist and has been created\n")


def test_one_process_writes_an_archive(
    bus: Mount, place: Path, start: Start, capsys: pytest.CaptureFixture[str], handlers: None
) -> None:
    start(*COMMAND, *QUICK, bus / "B_log", place / "archive")
    bus.wait_for_clients(1, "B_log")
    said = failure([str(bus / "B_other"), str(place / "archive")], capsys)
    assert said == f"{place / 'archive'} is being written by another futebus-archive"


def test_a_regular_expression_of_java(spark: SparkSession) -> None:
    assert live.check_regex(spark, archive.ERRORS) is None
    assert live.check_regex(spark, "(") == "Unclosed group near index 1"
