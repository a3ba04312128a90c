"""`futebus-archive` of a stream of a real server, in processes of its own that are killed."""

import contextlib
import json
import os
import re
import signal
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StreamSource
from pyspark.sql import SparkSession

from futebus.archive.archive import SETTINGS
from futebus.archive.streams import MessagesReplaced, StreamArchive
from futebus.nats import address
from futebus.nats.access import Access
from futebus.nats.reader import Reader
from futebus.spark.remote import read_place

from ..helpers.nats import Server, keeping, serving
from ..helpers.papers import TREE
from ..helpers.programs import Start
from ..helpers.streams import NAME, TIME, Filled, Filling, filling
from ..helpers.waiting import until
from .archives import COMMAND, QUICK, SLOW, table
from .test_command import archived, kill

__all__ = ["filling", "keeping", "serving"]


@pytest.fixture
def filled(keeping: Server, filling: Filling) -> Filled:
    """A stream."""
    return filling(keeping.url)


def test_a_stream_is_archived_although_it_is_killed(keeping: Server, filled: Filled, start: Start, place: Path) -> None:
    """The archive, Java and the server; each line is there once."""
    root = place / "archive"
    command = [*COMMAND, *QUICK, "--every", "1s", filled.url, root]
    said = filled.fill(30)
    process = start(*command)
    until(lambda: process.poll() is not None or archived(root) == len(said), "archived", SLOW)
    keeping.kill()
    keeping.begin()
    said += filled.fill(10)
    until(lambda: process.poll() is not None or archived(root) == len(said), "archived", SLOW)
    kill(process)
    said += filled.fill(10)
    filled.say("{7}hello", subject="lines.b", channel="A_chat", host="beta")
    filled.outside(b"from outside\n", "lines.c")
    process = start(*[*COMMAND, *QUICK, "--once", filled.url, root])
    assert process.wait(SLOW) == 0, process.communicate()
    assert re.search(r"102 lines archived, \d+ files, 0 messages left", process.communicate()[1])
    rows = table(root).to_pylist()
    log = [row for row in rows if row["channel"] == "U_log"]
    assert [row["value"] for row in sorted(log, key=lambda row: row["sequence"] * 1000 + row["offset"])] == said
    assert {(row["date"], row["hour"], row["host"], row["subject"]) for row in log} == {("2023-11-14", "22", "alpha", "lines.a")}
    assert {row["timestamp"].timestamp() for row in log} == {TIME // 1000 / 1e6}
    others = sorted(
        (str(row["channel"]), row["value"], row["address"], row["host"], row["subject"]) for row in rows if row not in log
    )
    assert others == [("A_chat", "hello", "7", "beta", "lines.b"), ("None", "from outside", None, None, "lines.c")]


def test_another_stream_of_the_same_name(filled: Filled, start: Start, place: Path) -> None:
    said = filled.fill(3)
    command = [*COMMAND, *QUICK, "-q", "--once", f"{filled.url}/lines.a", place / "archive"]
    assert start(*command).wait(SLOW) == 0
    filled.remake()
    said += filled.fill(2)
    strict = start(*command, "--strict")
    assert "is another stream than the query has read: it was made anew" in strict.communicate(timeout=SLOW)[1]
    assert strict.returncode == 1
    process = start(*command)
    assert process.wait(SLOW) == 0, process.communicate()
    assert sorted(table(place / "archive").column("value").to_pylist()) == sorted(said)
    process = start(*command)
    process.send_signal(signal.SIGTERM)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert len(table(place / "archive")) == len(said)


# ---------------------------------------------------------------------------------------------- what a stream loses


class Opened:
    """An archive of a stream, which is told what the stream has.

    Args:
        session: it writes with this one.
        filled: the stream.
        root: where the archive is.
    """

    def __init__(self, session: SparkSession, filled: Filled, root: Path) -> None:
        self._session, self._filled, self._root = session, filled, root
        self.said: list[str] = []
        self.open()

    def open(self) -> None:
        """Opens it, as one that is started does."""
        place = read_place({"path": self._filled.url})
        self.archive = StreamArchive(
            self._session, str(self._root), place, self._filled.state.created, lambda words: self.said.append(str(words))
        )

    def add(self, where: str = "true") -> int:
        """Has it archive what the stream has, or some of it. Returns how much of that was new."""
        lines = self._session.read.format("futebus").load(self._filled.url).where(where)
        state = self._filled.state
        return self.archive.add(lines if state.first <= state.last else self._session.createDataFrame([], lines.schema))

    @property
    def values(self) -> list[str]:
        """What is in it, as the stream had it."""
        rows = sorted(table(self._root).to_pylist(), key=lambda row: row["sequence"])
        return [row["value"] for row in rows]


@pytest.fixture
def opened(spark: SparkSession, filled: Filled, place: Path) -> Opened:
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return Opened(session, filled, place / "archive")


def renew(filled: Filled, count: int, last: int) -> list[str]:
    """Has a stream get other messages, of an outsider, behind one of a number."""
    filled._last["lines.a"] = last
    said = [f"new {number}" for number in range(count)]
    for text in said:
        filled.outside(f"{text}\n".encode())
    return said


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("more", [0, 1, 4])
def test_numbers_that_a_stream_gives_anew(keeping: Server, filled: Filled, opened: Opened, more: int, is_running: bool) -> None:
    said = filled.fill(2, lines=1)
    with keeping.losing():
        said += filled.fill(3, lines=1)
        assert opened.add() == 5
    new = renew(filled, more, 2)
    if not is_running:
        opened.open()
    assert opened.add() == more
    words = (
        f"{filled.url} has lost its last messages, 3 to 6 of those that are archived, and given their numbers to others:"
        " these are archived, too"
    )
    assert opened.said == [words] * bool(more)
    assert opened.add() == 0
    opened.open()
    assert opened.add() == 0
    assert sorted(opened.values) == sorted(said + new)
    assert len(opened.said) == bool(more)
    assert opened.archive.state.lines == 5 + more


def test_lines_that_are_published_again(keeping: Server, filled: Filled, opened: Opened) -> None:
    """A recorder does that with what a stream has lost. Another message has them then, and perhaps another number."""
    said = filled.fill(2, lines=1)
    with keeping.losing():
        said += filled.fill(3, lines=1)
        assert opened.add() == 5
    filled._lines["lines.a"], filled._last["lines.a"] = 2, 2
    filled.say(*said[2:4])
    assert opened.add() == 0
    filled.outside(b"line 4\n", subject="lines.b")
    assert opened.add() == 1
    opened.open()
    said += filled.fill(3)[1:]
    assert opened.add() == 29
    assert sorted(opened.values) == sorted([*said, "line 4"])
    assert [words for words in opened.said if "again" in words] == [
        f"{count} of {filled.url} came again: archived already, and left out" for count in ("2 lines", "2 lines", "1 line")
    ]


def test_messages_that_were_removed_are_not_lost(filled: Filled, opened: Opened) -> None:
    said = filled.fill(6, lines=1)
    assert opened.add() == 6
    filled.delete(5)
    filled.delete(6)
    assert opened.add() == 0
    said += filled.fill(2, lines=1)
    filled.delete(2)
    opened.open()
    assert opened.add() == 2
    filled.purge(9)
    assert opened.add() == 0
    assert (opened.values, opened.said) == (said, [])


def test_an_empty_stream_and_one_whose_batches_all_come_again(filled: Filled, opened: Opened) -> None:
    """Without the query's checkpoint they do."""
    assert opened.add() == 0
    said = filled.fill(6, lines=2)
    assert opened.add() == 12
    opened.open()
    assert [opened.add(where) for where in ("sequence < 3", "sequence BETWEEN 3 AND 4", "sequence > 4")] == [0, 0, 0]
    assert sorted(opened.values) == sorted(said)


def test_a_state_without_a_time_is_a_number(filled: Filled, opened: Opened, place: Path) -> None:
    said = filled.fill(3, lines=1)
    assert opened.add() == 3
    (file,) = (place / "archive" / "_futebus" / "state").iterdir()
    state = json.loads(file.read_text())
    assert state["positions"]["LINES"].pop("time") > TIME
    file.write_text(json.dumps(state))
    said += filled.fill(1, lines=1)
    opened.open()
    assert opened.add() == 1
    assert opened.values == said


def test_numbers_that_are_given_anew_while_messages_are_read(
    keeping: Server, filled: Filled, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = filled.fill(2, lines=1)
    power = contextlib.ExitStack()
    power.enter_context(keeping.losing())
    filled.fill(3, lines=1)
    count = opened.archive._count

    def losing(*staged: Any) -> Any:
        power.close()
        said.extend(renew(filled, 2, 2))
        return count(*staged)

    with monkeypatch.context() as patch:
        patch.setattr(opened.archive, "_count", losing)
        with pytest.raises(MessagesReplaced, match="/LINES has lost its last messages while they were read, and got others"):
            opened.add()
    opened.archive.reopen()
    assert opened.add() == 4
    assert opened.values == said


def test_a_running_archive_of_a_stream_that_loses_its_last_messages(
    keeping: Server, filled: Filled, start: Start, place: Path
) -> None:
    """It goes on; and one that is started then knows what comes again."""
    root = place / "archive"
    said = filled.fill(2, lines=1)
    with keeping.losing():
        process = start(*COMMAND, *QUICK, "--every", "1s", filled.url, root)
        said += filled.fill(3, lines=1)
        until(lambda: process.poll() is not None or archived(root) == len(said), "archived", SLOW)
    said += renew(filled, 4, 2)
    until(lambda: process.poll() is not None or archived(root) == len(said), "archived", SLOW)
    kill(process)
    assert "3 to 6 of those that are archived, and given their numbers to others" in process.communicate()[1]
    filled._lines["lines.a"] = 2
    filled.say(*said[2:5])
    process = start(*COMMAND, *QUICK, "--once", filled.url, root)
    assert process.wait(SLOW) == 0, process.communicate()
    words = process.communicate()[1]
    assert f"3 lines of {filled.url} came again" in words
    assert "0 lines archived" in words
    assert sorted(table(root).column("value").to_pylist()) == sorted(said)


# ---------------------------------------------------------------------------------------------- who reads it


@pytest.mark.parametrize("channel", [None, "U_log"])
def test_what_the_page_reads_archives_with(
    spark: SparkSession, filled: Filled, opened: Opened, place: Path, channel: str | None
) -> None:
    """As it is printed; also if there are outsiders' lines alone, which have no channel."""
    if channel is None:
        filled.outside(b"line 0\n")
    else:
        filled.fill(1, lines=1)
    assert opened.add() == 1
    page = (TREE / "man" / "futebus-archive.1").read_text().replace("/srv/archive", str(place / "archive"))
    [by_spark] = re.findall(r"^\.Dl (spark\.read\..+)$", page, re.MULTILINE)
    [by_pyarrow] = re.findall(r"^\.Bd -literal.*\n(from pyarrow .*\n(?:.+\n|\n)*?)\.Ed$", page, re.MULTILINE)
    [row] = eval(by_spark, {"spark": spark}).collect()
    names: dict[str, Any] = {}
    exec(by_pyarrow, names)
    [line] = names["lines"].to_table().to_pylist()
    for found in (row.asDict(), line):
        assert (found["channel"], found["value"], found["subject"]) == (channel, "line 0", "lines.a")
        assert (type(found["date"]), type(found["hour"])) == (date, int)


# ---------------------------------------------------------------------------------------------- what is wrong


def test_a_subject_that_the_stream_does_not_listen_to(filled: Filled, start: Start, place: Path) -> None:
    process = start(*COMMAND, *QUICK, "--once", f"{filled.url}/nosuch", place / "archive")
    assert process.communicate(timeout=SLOW)[1] == (
        f"futebus-archive: {filled.url} does not listen to nosuch, but to lines.>:"
        " nats stream edit LINES --subjects changes that\n"
    )
    assert process.returncode == 1
    assert not (place / "archive").exists()


@pytest.mark.parametrize("how", [{"mirror": StreamSource(name=NAME)}, {"sources": [StreamSource(name=NAME)]}])
def test_a_stream_that_listens_to_nothing_may_have_what_another_has(filled: Filled, keeping: Server, how: Any) -> None:
    filled.do(lambda stream: stream.jetstream.add_stream(name="COPY", **how))
    with contextlib.closing(Reader(address.read_servers(keeping.url), Access(), "COPY", "a test")) as reader:
        state = reader.state()
        assert (state.subjects, state.is_fed) == ((), True)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["nats://localhost/", "."], r"not nats://SERVER/STREAM\[/SUBJECT\]: "),
        (["nats://localhost/A", "nats://localhost/B", "."], "one stream and one directory, please"),
        (["--slave", "nats://localhost/A", "."], "--slave is for channels of a bus, and not for a stream"),
        (["--creds", "/nowhere", "nats://localhost/A", "."], "/nowhere: No such file or directory"),
        (["--creds", "/nowhere", "/mnt/B_log", "."], "--creds is for a stream only"),
        (["nats://me:secret@/A", "."], r"not a host and a port|not nats://USER:PASSWORD@"),
    ],
)
def test_wrong_arguments(start: Start, words: list[str], wrong: str) -> None:
    process = start(*COMMAND, *words)
    said = process.communicate(timeout=SLOW)[1]
    assert process.returncode == 2
    assert re.search(wrong, said)
    assert "secret" not in said
