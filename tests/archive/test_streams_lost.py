"""Streams that lose messages under an archive, and give their numbers to others: of a real server."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from futebus.archive.archive import SETTINGS
from futebus.archive.streams import MessagesReplaced, StreamArchive
from futebus.spark.remote import read_place

from ..helpers.nats import Server, keeping, serving
from ..helpers.programs import Start
from ..helpers.streams import Filled, Filling, filling, put_back
from ..helpers.waiting import SLOW, until
from .archives import COMMAND, QUICK, table
from .test_command import archived, kill

__all__ = ["filling", "keeping", "serving"]


@pytest.fixture
def filled(keeping: Server, filling: Filling) -> Filled:
    """A stream."""
    return filling(keeping.url)


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
        f"{filled.url} has lost the last of what is archived, messages 3 to 5, and has others there now: these are archived, too"
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


@pytest.mark.parametrize("emptied", [[], ["U_log"], ["B_chat"], ["U_log", "B_chat"]])
def test_lines_of_several_channels_that_are_published_again(
    keeping: Server, filled: Filled, opened: Opened, place: Path, emptied: list[str]
) -> None:
    """Also of channels that the archive has nothing of any more, and of nobody's."""
    channels = {"U_log": "lines.a", "B_chat": "lines.b"}
    said = filled.fill(2, lines=1)
    with keeping.losing():
        filled.outside(b"somebody's\n", subject="lines.c")
        for channel, subject in channels.items():
            said += filled.fill(2, lines=1, subject=subject, channel=channel)
        assert opened.add() == 7
    gone = 0
    for channel in emptied:
        directory = place / "archive" / f"channel={channel}"
        gone += sum(pq.read_metadata(file).num_rows for file in directory.rglob("*.parquet"))
        for date in directory.iterdir():
            shutil.rmtree(date)
    filled._lines["lines.a"], filled._lines["lines.b"] = 2, 0
    filled._last = {"lines.a": 2}
    filled.say(*said[2:4])
    filled.say(*said[4:6], subject="lines.b", channel="B_chat")
    filled.outside(b"somebody else's\n", subject="lines.c")
    assert opened.add() == 1 + gone
    assert sorted(opened.values) == sorted([*said, "somebody's", "somebody else's"])
    assert opened.add() == 0


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


def test_a_state_of_an_older_version_is_a_number(filled: Filled, opened: Opened, place: Path) -> None:
    said = filled.fill(3, lines=1)
    assert opened.add() == 3
    (file,) = (place / "archive" / "_futebus" / "state").iterdir()
    state = json.loads(file.read_text())
    marks = state["positions"]["LINES"].pop("marks")
    assert [sequence for sequence, _ in marks] == [2, 3]
    state["positions"]["LINES"]["time"] = 1  # when the stream's last message had come
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


def test_numbers_that_are_given_anew_by_a_clock_that_is_behind(
    keeping: Server, filled: Filled, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = filled.fill(2, lines=1)
    with keeping.losing():
        said += filled.fill(3, lines=1)
        assert opened.add() == 5
    put_back(monkeypatch)
    said += renew(filled, 4, 2)
    assert opened.add() == 4
    assert sorted(opened.values) == sorted(said)
    assert "has lost the last of what is archived, messages 3 to 5, and" in opened.said[0]


def test_a_clock_that_is_put_back_loses_nothing(filled: Filled, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the stream goes on while a batch is archived, as it does."""
    said = [f"outside {number}" for number in range(12)]
    for text in said[:8]:
        filled.outside(text.encode())
    put_back(monkeypatch)
    for text in said[8:]:
        filled.outside(text.encode())
    assert opened.add("sequence <= 8") == 8
    opened.open()
    assert opened.add("sequence <= 10") == 2
    assert opened.add() == 2
    assert (opened.values, opened.said) == (said, [])


def test_what_was_not_lost_comes_again(keeping: Server, filled: Filled, opened: Opened) -> None:
    """Of the messages of a batch some are marked. What outsiders say twice is archived twice."""
    for number in range(6):
        filled.outside(b"outside %d" % number)
    with keeping.losing():
        filled.outside(b"lost")
        filled.outside(b"lost")
        assert opened.add() == 8
    filled._last["lines.a"] = 6
    filled.outside(b"outside 5")
    filled.outside(b"lost")
    assert opened.add() == 2
    assert opened.said == [
        f"{filled.url} has lost the last of what is archived, messages 6 to 8, and has others there now: these are archived, too",
        f"1 line of {filled.url} came again: archived already, and left out",
    ]
    opened.open()
    assert opened.add() == 0
    assert sorted(opened.values) == sorted([*(f"outside {number}" for number in range(6)), "outside 5", *["lost"] * 3])


def test_the_end_of_a_stream_was_removed_when_it_was_archived(keeping: Server, filled: Filled, opened: Opened) -> None:
    said = filled.fill(2, lines=1)
    with keeping.losing():
        said += filled.fill(2, lines=1)
        filled.fill(1, lines=1)
        filled.delete(5)
        assert opened.add() == 4
    said += renew(filled, 2, 2)
    assert opened.add() == 2
    assert sorted(opened.values) == sorted(said)


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
    assert "messages 3 to 5, and has others there now" in process.communicate()[1]
    filled._lines["lines.a"] = 2
    filled.say(*said[2:5])
    process = start(*COMMAND, *QUICK, "--once", filled.url, root)
    assert process.wait(SLOW) == 0, process.communicate()
    words = process.communicate()[1]
    assert f"3 lines of {filled.url} came again" in words
    assert "0 lines archived" in words
    assert sorted(table(root).column("value").to_pylist()) == sorted(said)
