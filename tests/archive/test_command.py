"""`futebus-archive` itself, in processes of its own that are killed."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from futebus.archive.names import ESCAPED, fitting, unfit
from futebus.core.text import printable
from futebus.spool import Spool, SpoolWriter

from ..helpers.collectors import Collect
from ..helpers.insistent import Insistent
from ..helpers.mounts import Mount, Mounting
from ..helpers.processes import kill_all, members
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, SLOW, until
from .archives import COMMAND, QUICK, files, read


def archived(root: Path) -> int:
    """How many lines an archive has. It is asked again and again, and reads none of them."""
    return sum(pq.read_metadata(file).num_rows for file in files(root) if file.suffix == ".parquet")


def kill(process: "subprocess.Popen[str]") -> None:
    """Kills a command and what it has started, at once."""
    kill_all(sorted(members(process.pid)))
    process.wait()


# ---------------------------------------------------------------------------------------------- on a bus


def say(bus: Mount, round_: int) -> list[tuple[str, str]]:
    """Says something on three channels. Returns channel and text of each line."""
    log = [f"round {round_} line {number}" + " ERROR" * (number % 10 == 0) for number in range(50)]
    jobs = [f"round {round_} job {number}" for number in range(3)]
    (bus / "B_log").write_text("".join(f"{line}\n" for line in log))
    (bus / "U_jobs").write_text("".join(f"{line}\n" for line in jobs))
    chat = [f"round {round_} hi {number}" for number in range(4)]
    (bus / "A_chat").write_text("".join(f"{{*}}{line}\n" for line in chat[:3]))
    (bus / "A_chat").write_text(f"{{*}}{chat[3]}\n")
    return [(name, line) for name, said in (("A_chat", chat), ("B_log", log), ("U_jobs", jobs)) for line in said]


def environments(session: int) -> Iterator[dict[str, str]]:
    """The environments of the processes of a session."""
    for pid in members(session):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
            yield dict(word.split("=", 1) for word in words if "=" in word)


def figures(lines: list[str]) -> dict[tuple[str, str], dict[str, str]]:
    """What the lines of --stats say, by window and channel. The last one counts."""
    rows = [dict(word.split("=", 1) for word in line.split(" ")) for line in lines]
    return {(row["window"], row["channel"]): row for row in rows}


@pytest.mark.timeout(600)
def test_what_channels_say_is_archived_and_counted_although_it_is_killed(
    mounting: Mounting, place: Path, start: Start, collect: Collect
) -> None:
    bus = mounting(patience=580.0)
    stats = collect(bus / "B_stats")
    channels = [bus / "B_log", bus / "U_jobs", bus / "A_chat"]
    command = [*COMMAND, *QUICK, "--every", "1s", "--window", "2s", "--stats", bus / "B_stats", *channels, place / "archive"]
    said: list[tuple[str, str]] = []

    def begun(round_: int) -> "subprocess.Popen[str]":
        process = start(*command)
        for channel in channels:
            bus.wait_for_clients(1, channel.name)
        said.extend(say(bus, round_))
        until(lambda: process.poll() is not None or archived(place / "archive") >= len(said), "archived", SLOW)
        assert process.poll() is None, process.communicate()
        return process

    kill(begun(1))
    process = begun(2)

    def counted() -> Counter[str]:
        total: Counter[str] = Counter()
        for (_, channel), row in figures(stats.data.decode().splitlines()).items():
            total[channel] += int(row["lines"])
        return total

    expected = Counter(name for name, _ in said)
    until(lambda: counted() == expected, f"{expected} in the figures", SLOW)
    assert members(process.pid, group=process.pid) == [process.pid], "what ends the whole group does not end Java"
    paths = [environ["PYTHONPATH"] for environ in environments(process.pid) if "PYTHON_WORKER_FACTORY_SOCK_DIR" in environ]
    assert paths
    assert not any("pyspark.zip" in path for path in paths), "workers find pyspark's bytecode"
    os.killpg(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=SLOW)[1].splitlines()[-1].endswith(", 0 lines left")
    assert process.returncode == 0

    lines = read(place / "archive")
    assert sorted((line.channel, line.value) for line in lines) == sorted(said)
    for name in ("B_log", "U_jobs"):
        assert [line.value for line in lines if line.channel == name] == [text for channel, text in said if channel == name]
    senders = Counter(line.address for line in lines if line.channel == "A_chat")
    assert sorted(senders.values()) == [1, 1, 3, 3]

    rows = figures(stats.data.decode().splitlines())
    log = [row for (_, channel), row in rows.items() if channel == "B_log"]
    assert sum(int(row["bytes"]) for row in log) == sum(len(text) + 1 for name, text in said if name == "B_log")
    assert sum(int(row["errors"]) for row in log) == 10
    assert all(float(row["error_rate"]) == round(int(row["errors"]) / int(row["lines"]), 4) for row in log)
    assert all(row["seconds"] == "2" and float(row["lines/s"]) == int(row["lines"]) / 2 for row in log)
    tops = [row["top"].split(",") for (_, channel), row in rows.items() if channel == "A_chat"]
    total: Counter[str] = Counter()
    for sender, _, count in (word.partition(":") for top in tops for word in top):
        total[sender] += int(count)
    assert total == senders
    assert not any("top" in row for row in log)


def runners(session: int) -> list[int]:
    """The processes that Spark runs for the sources of the queries of a command."""
    found = []
    for pid in members(session):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"source_runner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@pytest.mark.timeout(400)
def test_a_query_whose_process_is_killed_goes_on(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting(patience=380.0)
    root = place / "archive"
    with (place / "words").open("w") as words:
        process = start(*COMMAND, *QUICK, "--every", "0.5s", bus / "U_jobs", root, stderr=words)
    bus.wait_for_clients(1, "U_jobs", role="master")
    for number in range(3):
        (bus / "U_jobs").write_text(f"job {number}\n")
        until(lambda: process.poll() is not None or archived(root) == number + 1, "archived", SLOW)  # noqa: B023
        assert process.poll() is None, (place / "words").read_text()
        for runner in until(lambda: runners(process.pid), "it has a process", SLOW):
            os.kill(runner, signal.SIGKILL)
    said = (place / "words").read_text()
    until(lambda: process.poll() is not None or runners(process.pid), "it is started again", SLOW)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, said
    assert said.count("the query archive has failed, and is started again in 1 s: ") >= 2
    assert [line.value for line in read(root)] == [f"job {number}" for number in range(3)]


@pytest.mark.timeout(400)
def test_what_is_said_while_it_ends_is_in_its_spool(mounting: Mounting, place: Path, start: Start) -> None:
    """As long as it is accepted: the bus says nothing of lines that nobody has read."""
    bus = mounting(patience=380.0)
    root = place / "archive"
    sent = 0
    for number in (signal.SIGTERM, signal.SIGINT):
        with (place / "words").open("w") as words:
            process = start(*COMMAND, *QUICK, "--every", "0.5s", bus / "U_jobs", root, stderr=words)
        until(lambda: process.poll() is not None or bus.clients("U_jobs", role="master"), "it listens", SLOW)  # noqa: B023
        writer = Insistent(bus / "U_jobs", pause=0.01)
        before = archived(root)
        until(lambda: process.poll() is not None or archived(root) > before, "it archives", SLOW)  # noqa: B023
        assert process.poll() is None, (place / "words").read_text()
        os.killpg(process.pid, number)
        sent += writer.wait()
        assert process.wait(120) == 0, (place / "words").read_text()
        assert Spool(root / "_futebus" / "spools" / "U_jobs").end == sent
    assert "unread" not in bus.words


ODD = ["B_a b ", "B_new\nline", "B_\x1b[2J", "B_wörld", "B_%41,x=1:2", "B_\\", "B_'\"*?[]{}", "B_" + "n" * 245, "A_chat"]
UNFIT = {
    os.fsdecode(b"B_\xff"): "its name is no UTF-8, and Spark has no other text",
    "B_" + "n" * 246: "its name is too long for a directory (256 bytes)",
    "B_" + "*" * 83: "its name is too long for a directory (259 bytes)",
}


@pytest.mark.timeout(400)
def test_all_that_a_pattern_matches_is_archived_whatever_it_is_called(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting(patience=380.0)
    for name in [*ODD, *UNFIT, "B_other"]:
        bus.touch(name)
    root = place / "archive"
    spools = root / "_futebus" / "spools"
    spools.mkdir(parents=True)
    with SpoolWriter(spools / "B_other", "B_of") as writer:
        writer.append(b"line\n")
    with (place / "words").open("wb") as stream:
        process = start(*COMMAND, *QUICK, "--every", "0.5s", "--pattern", "(?s)[ABU]_.*", bus.path, root, stderr=stream)

    def listening() -> int:
        return len(bus.clients(rw="r-+"))

    until(lambda: process.poll() is not None or listening() == len(ODD), "all are read", SLOW)
    expected = []
    for name in ODD:
        (bus / name).write_bytes(b"{*}hello\n" if name[0] == "A" else b"hello\n")
        expected.append((name, "hello"))
    # Some come and go, one of them again and again.
    for number in range(4):
        name = f"U_{number // 2}"
        master = os.open(bus / f".{name}", os.O_RDWR | os.O_CREAT)
        until(lambda: process.poll() is not None or listening() == len(ODD) + 1, "it is read", SLOW)
        os.write(master, b"brief %d\n" % number)
        os.close(master)
        until(lambda: process.poll() is not None or listening() == len(ODD), "it is left", SLOW)
        expected.append((name, f"brief {number}"))
    until(lambda: process.poll() is not None or archived(root) == len(expected), "archived", SLOW)
    words = (place / "words").read_text()
    assert process.poll() is None, words
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, words
    words = (place / "words").read_text()
    assert sorted((line.channel, line.value) for line in read(root)) == sorted(expected)
    assert words.count("B_other") == 2, "once"
    assert f"futebus-archive: {spools / 'B_other'} is the spool of B_of, not of B_other; it is left out\n" in words
    assert re.search(rf"^futebus-archive: {len(expected)} lines archived, \d+ files?, 0 lines left$", words, re.MULTILINE)
    for name, why in UNFIT.items():
        assert words.count(f"futebus-archive: {printable(str(bus / name))}: {why}; it is left out\n") == 1
    assert all(line.isprintable() for line in words.split("\n"))
    assert "failed" not in words


def test_names_that_cannot_be_archived_are_told_as_spark_makes_directories(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    escape = jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils.escapePathName
    for character in map(chr, range(1, 0x180)):
        assert len(escape(character)) == (3 if character in ESCAPED else 1), repr(character)
    names = [*ODD, *(name for name in UNFIT if name.isascii()), "B_" + "ü" * 122, "B_" + "ü" * 123, "B_ü" + "\x7f" * 81]
    rows = spark.createDataFrame([(name,) for name in names], "channel STRING").select("channel", fitting())
    assert dict(rows.collect()) == {name: unfit(name) is None for name in names}


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--once"], -signal.SIGTERM)])
def test_sigterm_while_spark_starts(bus: Mount, place: Path, start: Start, options: list[str], status: int) -> None:
    """What the bus has accepted by then is in the spool."""
    for round_ in range(1, 6):
        process = start(*COMMAND, *QUICK, *options, bus / "U_jobs", place / "archive")
        bus.wait_for_clients(1, "U_jobs", role="master")
        (bus / "U_jobs").write_bytes(b"".join(b"job %d\n" % number for number in range(2000)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == status
        assert not (bus / "U_jobs").exists()
        assert Spool(place / "archive" / "_futebus" / "spools" / "U_jobs").end == round_ * 2000
        bus.wait_for_clients(0, "U_jobs")  # what it was starting may have its descriptors for a moment


def test_sigint_stays_ignored(bus: Mount, place: Path, start: Start) -> None:
    """By whoever has started it so, as the `&` of a script does: also while Spark starts, which has a handler of its own."""
    process = start(
        "bash", "-c", 'trap "" INT; exec "$@"', "-", *COMMAND, *QUICK, "--every", "0.5s", bus / "U_jobs", place / "archive"
    )
    bus.wait_for_clients(1, "U_jobs", role="master")
    (bus / "U_jobs").write_text("job\n")
    while process.poll() is None and not archived(place / "archive"):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    words = process.communicate(timeout=SLOW)[1]
    assert process.returncode == 0, words
    assert archived(place / "archive") == 1
    assert "Traceback" not in words


# ---------------------------------------------------------------------------------------------- on spools


def said(numbers: Iterable[int]) -> list[bytes]:
    """What two writers say in turn; it is no UTF-8."""
    return [b"%b %d" % (writer, number) for number in numbers for writer in (b"ann", b"bj\xf6rn")]


class Writers:
    """Two writers each on two channels, whose lines are recorded without pause."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.counts = {"B_one": 0, "U_two": 0}
        self._spools = {name: SpoolWriter(directory / name, name) for name in self.counts}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for name, spool in self._spools.items():
                begin = self.counts[name]
                spool.append(b"".join(line + b"\n" for line in said(range(begin, begin + 10))))
                self.counts[name] += 10

    def stop(self) -> None:
        if self._thread.is_alive():
            self._stop.set()
            self._thread.join()
            for spool in self._spools.values():
                spool.close()


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    made = Writers(tmp_path / "spools")
    yield made
    made.stop()


def sequence(root: Path) -> int:
    """How many batches an archive has got."""
    return max((int(file.stem) for file in root.glob("_futebus/state/*.json")), default=0)


@pytest.mark.timeout(300)
def test_each_line_is_archived_once_whatever_is_killed(writers: Writers, tmp_path: Path, start: Start) -> None:
    root = tmp_path / "archive"
    command = [*COMMAND, *QUICK, "--external", "--spools", tmp_path / "spools", "--every", "0.1s", "--binary", root]
    process = start(*command, "--batch-bytes", "50K")
    until(lambda: process.poll() is not None or sequence(root) >= 3, "batches", SLOW)
    assert process.poll() is None, process.communicate()
    kill(process)
    enough = sum(writers.counts.values()) + 1000  # some 20 KB, however little was behind
    until(lambda: sum(writers.counts.values()) >= enough, "more than some batches are behind")
    writers.stop()
    before = sequence(root)
    process = start(*command, "--once", "--batch-bytes", "1K")
    until(lambda: process.poll() is not None or sequence(root) > before, "another batch", SLOW)
    process.send_signal(signal.SIGTERM)
    words = process.communicate(timeout=SLOW)[1]
    assert process.returncode == -signal.SIGTERM, "whoever waits for it sees that it was cut short"
    assert not words.endswith(", 0 lines left\n")
    process = start(*command, "--once", "--quiet")
    assert process.communicate(timeout=SLOW) == ("", "")
    assert process.returncode == 0
    found = read(root)
    for name, count in writers.counts.items():
        lines = [line for line in found if line.channel == name]
        assert [line.offset for line in lines] == list(range(2 * count))
        assert [line.value for line in lines] == said(range(count))
    state = json.loads(next(root.glob("_futebus/state/*.json")).read_text())
    assert state["lines"] == len(found)
