"""Rows to a subject of a stream: each line once, in order, whoever is killed, and nobody else's lines among them."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from futebus.nats import address, runs
from futebus.nats.access import Access
from futebus.nats.errors import Away
from futebus.nats.fetching import Fetched
from futebus.nats.reader import Reader
from futebus.nats.stream import Message, Stream
from futebus.spark.remote import Place
from futebus.spark.sink.asking import BATCH, BEGIN, END, check_takes, known_of
from futebus.spark.sink.journal import Journal, Record, State
from futebus.spark.sink.lines import Columns
from futebus.spark.sink.numbered import NumberedTarget, Publisher, forget
from futebus.spark.sink.outlet import SinkError
from futebus.spark.sink.staging import Portion, stage

from ...helpers.nats import Server, Serving, keeping, serving
from ...helpers.streams import Filled, Filling, filling
from .test_crashes import in_child, killed_at

__all__ = ["filling", "keeping", "serving"]

QUERY = "a-query"
STRIDE = 3
"""How many lines of code lie between two moments in which a publisher is killed."""


def place_of(url: str, subject: str = "lines.out") -> Place:
    return Place(address.read_servers(url), Access(), "LINES", subject, f"{url}/LINES/{subject}", 30.0)


def staged(directory: Path, batch: int, *texts: str) -> list[Portion]:
    """A batch as tasks stage it: a partition for each text."""
    return [
        portion
        for partition, text in enumerate(texts)
        for portion in stage(directory, batch, partition, [("lines.out", text.encode())])
    ]


def publish(url: str, directory: Path, batch: int, *texts: str) -> None:
    portions = staged(directory, batch, *texts)
    with Publisher(place_of(url), directory, QUERY) as publisher:
        publisher.publish(batch, portions)


def messages(url: str, subject: str | None = "lines.out") -> list[Fetched]:
    """What a stream has; numbers of lines follow on each other."""
    reader = Reader(address.read_servers(url), Access(), "LINES", "a test")
    try:
        state = reader.state()
        found = list(reader.messages(state.first, state.last + 1, subject))
    finally:
        reader.close()
    return found


def text_of(found: list[Fetched]) -> str:
    line = None
    for message in found:
        where = runs.read(message.headers)
        assert where is not None
        assert where.line == (where.line if line is None else line)
        assert where.lines == message.data.count(b"\n")
        line = where.next
    return b"".join(message.data for message in found).decode()


@pytest.fixture
def filled(keeping: Server, filling: Filling) -> Filled:
    """A stream."""
    return filling(keeping.url)


def test_a_batch_comes_once(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    for batch, texts in enumerate([("a\nb\n", "c\n"), ("\n\nd\n\n",), (), ("e\n",)]):
        for _ in range(2):
            publish(keeping.url, tmp_path, batch, *texts)
    publish(keeping.url, tmp_path, 1, "late\n")
    found = messages(keeping.url)
    assert text_of(found) == "a\nb\nc\nd\ne\n"
    assert [message.headers["Futebus-Batch"] for message in found] == ["0", "0", "1", "3"]
    assert ["Futebus-Batch-End" in message.headers for message in found] == [False, True, True, True]
    assert {runs.read(message.headers).host for message in found} == {os.uname().nodename}  # type: ignore[union-attr]
    assert os.listdir(tmp_path) == ["journal"]


@pytest.mark.parametrize("is_lost", [True, False])
def test_without_a_journal_the_stream_tells(keeping: Server, filled: Filled, tmp_path: Path, is_lost: bool) -> None:
    """And without what the stream tells, the journal does."""
    publish(keeping.url, tmp_path, 0, "a\nb\n")
    publish(keeping.url, tmp_path, 1, "c\n")
    if is_lost:
        (tmp_path / "journal").unlink()
    else:
        filled.purge(3)
    publish(keeping.url, tmp_path, 1, "again\n")
    publish(keeping.url, tmp_path, 2, "d\n")
    found = messages(keeping.url)
    assert text_of(found) == ("a\nb\nc\nd\n" if is_lost else "d\n")
    assert runs.read(found[-1].headers).line == 3  # type: ignore[union-attr]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_stream_that_has_lost_its_last_messages_is_not_believed(
    keeping: Server, filled: Filled, tmp_path: Path, is_begun: bool
) -> None:
    """Nothing gets the numbers of lines that were taken, and what is lost is told, each time."""
    for batch in range(2):
        publish(keeping.url, tmp_path, batch, f"{batch}\n", f"more {batch}\n")
    with keeping.losing():
        for batch in range(2, 4):
            publish(keeping.url, tmp_path, batch, f"{batch}\n", f"more {batch}\n")
    if is_begun:
        with Journal(tmp_path / "journal") as journal:
            (tmp_path / "4.begin").write_text("8")
            journal.note_durably(Record(4, State.BEGUN, position=8))
    for _ in range(2):
        with pytest.raises(SinkError, match=r"/lines.out has lost lines 4 to 7 of this query, of batches 2 to 3, which"):
            publish(keeping.url, tmp_path, 4, "late\n")
    assert text_of(messages(keeping.url)) == "0\nmore 0\n1\nmore 1\n"


def test_what_is_lost_of_a_batch_that_is_not_done_is_sent_again(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    class Ending(Publisher):
        def _put(self, batch: int, begin: int, line: int, *rest: Any, **how: Any) -> None:
            if line == 4:
                raise SinkError("the end")
            super()._put(batch, begin, line, *rest, **how)

    publish(keeping.url, tmp_path, 0, "a\n")
    portions = staged(tmp_path, 1, "b\n", "c\n", "d\n", "e\n")
    with keeping.losing():
        with pytest.raises(SinkError, match="the end"), Ending(place_of(keeping.url), tmp_path, QUERY) as publisher:
            publisher.publish(1, portions)
        assert text_of(messages(keeping.url)) == "a\nb\nc\nd\n"
    assert text_of(messages(keeping.url)) == "a\n"
    publish(keeping.url, tmp_path, 1, "other\n")
    assert text_of(messages(keeping.url)) == "a\nb\nc\nd\ne\n"


@pytest.mark.parametrize("kind", ["nothing is left", "numbers are given anew", "some was removed before", "begun", "read"])
def test_a_stream_that_has_lost_all_of_a_query_is_not_believed(
    keeping: Server, filling: Filling, tmp_path: Path, kind: str
) -> None:
    filled = filling(keeping.url, **({"retention": "workqueue"} if kind == "read" else {}))
    if kind == "some was removed before":
        for _ in range(2):
            filled.say("other")
        filled.purge(2)
    with keeping.losing():
        for batch in range(2):
            publish(keeping.url, tmp_path, batch, f"{batch}\n", f"more {batch}\n")
        if kind == "begun":
            with Journal(tmp_path / "journal") as journal:
                (tmp_path / "2.begin").write_text("4 4")
                journal.note_durably(journal.record._replace(batch=2, state=State.BEGUN, intent=1))
    if kind == "numbers are given anew":
        filled.fill(5)
    lines = "lines of this query up to 3, the last of batch 1," if kind == "some was removed before" else "lines 0 to 3 of"
    for _ in range(2):
        with pytest.raises(SinkError, match=f"/lines.out has lost {lines}.* which it had taken: so the query cannot go on"):
            publish(keeping.url, tmp_path, 2, "late\n")
    assert not messages(keeping.url)


def test_messages_that_somebody_removes_are_not_lost(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    """Whatever others say meanwhile, and whether or not it was begun to send more."""
    for batch in range(3):
        filled.fill(2)
        publish(keeping.url, tmp_path, batch, f"{batch}\n")
        filled.fill(batch)
        filled.do(lambda stream: stream.jetstream.purge_stream("LINES", subject="lines.out"))
    filled.purge(filled.state.last + 1)
    publish(keeping.url, tmp_path, 3, "3\n")
    assert [runs.read(message.headers).line for message in messages(keeping.url)] == [3]  # type: ignore[union-attr]


def test_a_journal_of_old_does_not_tell_what_was_confirmed(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    publish(keeping.url, tmp_path, 0, "a\n")
    with Journal(tmp_path / "journal") as journal:
        for _ in range(2):
            journal.note(journal.record._replace(sequence=0, created=""))
    filled.purge(2)
    publish(keeping.url, tmp_path, 1, "b\n")
    assert text_of(messages(keeping.url)) == "b\n"
    filled.purge(3)
    publish(keeping.url, tmp_path, 2, "c\n")
    assert text_of(messages(keeping.url)) == "c\n"


@pytest.mark.parametrize("is_done", [True, False])
def test_a_stream_that_is_made_anew_has_nothing_of_a_query(
    keeping: Server, filled: Filled, tmp_path: Path, is_done: bool
) -> None:
    publish(keeping.url, tmp_path, 0, *(["a\n"] if is_done else []))
    filled.remake()
    filled.fill(3)
    if is_done:
        for _ in range(2):
            words = r"/lines.out is another stream than that which has taken lines of this query up to 0: so the query cannot"
            with pytest.raises(SinkError, match=words):
                publish(keeping.url, tmp_path, 1, "b\n")
    else:
        publish(keeping.url, tmp_path, 1, "b\n")
        assert text_of(messages(keeping.url)) == "b\n"


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_batch_that_is_not_done_is_sent_again_if_the_stream_has_nothing_of_it(
    keeping: Server,
    filled: Filled,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    is_first: bool,
    is_noticed: bool,
) -> None:
    """Also while the publisher lives; and what is of batches before has been removed."""

    class Losing(Publisher):
        def _put(self, batch: int, begin: int, line: int, *rest: Any, **how: Any) -> None:
            super()._put(batch, begin, line, *rest, **how)
            if line == at + 1 and not lost:
                lost.append(line)
                losing.__exit__(None, None, None)
                if is_noticed:
                    raise SinkError("the end")

    lost: list[int] = []
    at = 0 if is_first else 1
    if not is_first:
        publish(keeping.url, tmp_path, 0, "before\n")
        filled.purge(2)
    portions = staged(tmp_path, 1, "a\n", "b\n", "c\n", "d\n")
    losing = keeping.losing()
    losing.__enter__()
    with Losing(place_of(keeping.url), tmp_path, QUERY) as publisher:
        if is_noticed:
            with pytest.raises(SinkError, match="the end"):
                publisher.publish(1, portions)
        publisher.publish(1, portions)
    assert text_of(messages(keeping.url)) == "a\nb\nc\nd\n"
    assert runs.read(messages(keeping.url)[0].headers).line == at  # type: ignore[union-attr]
    assert "has lost lines of batch 1, which it had taken: the batch is sent again" in capsys.readouterr().err


def test_messages_that_go_when_they_are_read_are_not_lost(keeping: Server, filling: Filling, tmp_path: Path) -> None:
    filled = filling(keeping.url, retention="workqueue")
    for batch in range(2):
        publish(keeping.url, tmp_path, batch, f"{batch}\n")
    filled.delete(2)
    publish(keeping.url, tmp_path, 2, "2\n")
    assert runs.read(filled.do(lambda stream: stream.last("lines.out")).headers).line == 2  # type: ignore[union-attr]


def test_messages_are_as_long_as_servers_take(serving: Serving, filling: Filling, tmp_path: Path) -> None:
    server = serving("max_payload: 5000", jetstream=True)
    filling(server.url)
    text = "".join(f"{number:099}\n" for number in range(100))
    publish(server.url, tmp_path, 0, text)
    found = messages(server.url)
    assert text_of(found) == text
    assert 10 < len(found) < 20
    with pytest.raises(SinkError, match=r"^a line is longer than the 904 bytes that the server takes \(max_payload\)$"):
        publish(server.url, tmp_path, 1, "x" * 1000 + "\n")
    files = [path.name for path in tmp_path.glob("*.lines")]
    forget(tmp_path, 1, files)
    publish(server.url, tmp_path, 1, "put right\n")
    assert text_of(messages(server.url)) == text + "put right\n"


def test_messages_are_as_long_as_the_stream_takes(keeping: Server, filling: Filling, tmp_path: Path) -> None:
    filling(keeping.url, max_msg_size=5000)
    text = "".join(f"{number:099}\n" for number in range(100))
    publish(keeping.url, tmp_path, 0, text)
    assert text_of(messages(keeping.url)) == text
    with pytest.raises(SinkError, match=r"^a line is longer than the 904 bytes that the stream takes \(its max_msg_size\)$"):
        publish(keeping.url, tmp_path, 1, "x" * 1000 + "\n")


def test_what_was_refused_is_not_out(keeping: Server, filled: Filled, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So it is not sent again, but what it was put right to."""
    portions = staged(tmp_path, 0, "wrong\n")
    for _ in range(2):
        with (
            Publisher(place_of(keeping.url, "other"), tmp_path, QUERY) as publisher,
            pytest.raises(SinkError, match="no stream listens to that subject"),
        ):
            publisher.publish(0, portions)
    forget(tmp_path, 0, [portion.file for portion in portions])
    assert os.listdir(tmp_path) == ["journal"]
    publish(keeping.url, tmp_path, 0, "right\n")
    assert text_of(messages(keeping.url)) == "right\n"
    assert not capsys.readouterr().err


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_a_server_does_not_answer_is_doubtful(keeping: Server, filled: Filled, tmp_path: Path, is_asked: bool) -> None:
    """Unless it was not even asked."""

    class Ending(Publisher):
        def _put(self, *what: Any, **how: Any) -> None:
            if not is_asked:
                self._reader.close()
                self._reader = Reader(address.read_servers("nats://127.0.0.1:1"), Access(), "LINES", "a test", 0)
            super()._put(*what, **how)

        async def _added(self, *what: Any) -> int:
            keeping.kill()
            return await super()._added(*what)

    place = dataclasses.replace(place_of(keeping.url), patience=0.0)
    with Ending(place, tmp_path, QUERY) as publisher, pytest.raises(SinkError, match=r"\(for 0 s\)$"):
        publisher.publish(0, staged(tmp_path, 0, "a\n"))
    if is_asked:
        keeping.begin()
    with Journal(tmp_path / "journal") as journal:
        assert journal.record[:5] == (0, State.BEGUN, 0, 0, int(is_asked))
    publish(keeping.url, tmp_path, 0)
    assert text_of(messages(keeping.url)) == "a\n"


@pytest.mark.parametrize("earlier", [1, 2, 3])
def test_an_earlier_publisher_may_have_cut_a_batch_in_another_way(
    keeping: Server, filled: Filled, tmp_path: Path, earlier: int
) -> None:
    """It was killed, and what it had sent is stored late: what is missing begins behind that."""

    class Late(Publisher):
        def _put(self, batch: int, begin: int, line: int, *rest: Any, **how: Any) -> None:
            if line == 0:
                where = runs.Where(QUERY, 0, earlier, 1, "alpha", "lines.out")
                headers = {**runs.headers(where), BATCH: "0", BEGIN: "0", **({END: "3"} if earlier == 3 else {})}
                text = b"a\nb\nc\n"[: 2 * earlier]
                filled.do(lambda stream: stream.publish("lines.out", text, headers, 0, where.name))
            super()._put(batch, begin, line, *rest, **how)

    portions = staged(tmp_path, 0, "a\nb\n", "c\n")
    with Late(place_of(keeping.url), tmp_path, QUERY) as publisher:
        publisher.publish(0, portions)
    publish(keeping.url, tmp_path, 1, "d\n")
    assert text_of(messages(keeping.url)) == "a\nb\nc\nd\n"


def test_another_publisher_is_refused(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    filled.outside(b"before\n", subject="lines.out")
    publish(keeping.url, tmp_path, 0, "a\n")
    reader = filled.do(lambda stream: stream.last("lines.out"))
    filled.do(lambda stream: stream.publish("lines.out", b"other\n", {}, reader.sequence, "other"))
    with pytest.raises(SinkError, match=r"/lines.out has a message of another publisher: a query needs a subject of its own$"):
        publish(keeping.url, tmp_path, 1, "b\n")
    assert [message.data for message in messages(keeping.url)] == [b"before\n", b"a\n", b"other\n"]


def test_another_publisher_comes_while_it_is_doubtful_what_was_sent(keeping: Server, filling: Filling, tmp_path: Path) -> None:
    """And the server has forgotten that it has got it."""
    filling(keeping.url, duplicate_window=0.1)

    class Doubting(Publisher):
        async def _added(self, stream: Stream, *what: Any) -> int:
            number = await super()._added(stream, *what)
            await stream.publish("lines.out", b"other\n", {}, number, "other")
            raise Away("nobody answers")

    with (
        Doubting(place_of(keeping.url), tmp_path, QUERY) as publisher,
        pytest.raises(SinkError, match=r"/lines.out has a message of another publisher"),
    ):
        publisher.publish(0, staged(tmp_path, 0, "a\n"))
    assert [message.data for message in messages(keeping.url)] == [b"a\n", b"other\n"]


def test_messages_are_removed_while_more_are_sent(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    class Removing(Publisher):
        def _put(self, batch: int, begin: int, line: int, *rest: Any, **how: Any) -> None:
            filled.outside(b"other\n")  # so the last message of all is another's
            super()._put(batch, begin, line, *rest, **how)
            if line < 9:
                filled.do(lambda stream: stream.jetstream.purge_stream("LINES", subject="lines.out"))

    with Removing(place_of(keeping.url), tmp_path, QUERY) as publisher:
        publisher.publish(0, staged(tmp_path, 0, *(f"{number}\n" for number in range(10))))
    assert text_of(messages(keeping.url)) == "9\n"


def test_nobody_comes_behind_a_recorder(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    filled.say("first", subject="lines.out")
    for batch in range(2):
        with pytest.raises(SinkError, match=r"/lines.out is a recorder's: a query needs a subject of its own$"):
            publish(keeping.url, tmp_path, batch, "a\n")
    filled.say("second", subject="lines.out")
    assert [message.data for message in messages(keeping.url)] == [b"first\n", b"second\n"]


def test_queries_come_behind_each_other(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    with Publisher(place_of(keeping.url), tmp_path / "one", "one") as publisher:
        publisher.publish(0, staged(tmp_path / "one", 0, "a\n"))
    publish(keeping.url, tmp_path / "two", 0, "b\n")
    assert [message.data for message in messages(keeping.url)] == [b"a\n", b"b\n"]


@pytest.mark.parametrize(("letter", "most"), [("x", 765 - len("lines.")), ("ö", (765 - len("lines.")) // 6)])
def test_a_subject_has_a_name_that_is_read_again(keeping: Server, filled: Filled, tmp_path: Path, letter: str, most: int) -> None:
    name = "lines." + most * letter
    for batch in range(2):
        with Publisher(place_of(keeping.url, name), tmp_path, QUERY) as publisher:
            publisher.publish(batch, staged(tmp_path, batch, f"{batch}\n"))
    assert text_of(messages(keeping.url, name)) == "0\n1\n"
    with pytest.raises(SinkError, match=r"the name of the subject is too long: 765 bytes, please, percent-encoded$"):
        NumberedTarget(place_of(keeping.url, name + letter), Columns(0, None, None), tmp_path)


@pytest.mark.parametrize("number", [str(2**63), "-1", "+1", "1_0", "\u0661", "9" * 5000])
@pytest.mark.parametrize("name", [BATCH, BEGIN])
def test_numbers_that_no_query_has_are_not_ours(number: str, name: str) -> None:
    where = runs.Where(QUERY, 0, 1, 1, "alpha", "lines.out")
    headers = {**runs.headers(where), BATCH: "1", BEGIN: "0", END: "1"}
    assert known_of(Message(7, "lines.out", headers, b"a\n"), QUERY).is_ours
    assert not known_of(Message(7, "lines.out", {**headers, name: number}, b"a\n"), QUERY).is_ours


# ---------------------------------------------------------------------------------------------- who is killed


def kill_at_each_step(url: str, directory: Path) -> None:
    """Kills the first publisher of batch N at a step that comes later with N. The batch is run again then, with other lines."""
    for batch in range(100_000):
        long = "x" * 70_000
        first = staged(directory, batch, f"{batch}:first:0:{long}\n{batch}:first:1:{long}\n", f"{batch}:first:2:\n")

        def run(batch: int = batch, portions: list[Portion] = first) -> None:
            with Publisher(place_of(url), directory, QUERY) as publisher:
                publisher.publish(batch, portions)

        status, _ = in_child(killed_at(batch * STRIDE, run))
        again = staged(directory, batch, f"{batch}:second:0:\n")
        end, said = in_child(lambda batch=batch, again=again: run(batch, again))  # type: ignore[misc]
        print(json.dumps([status, end, said]), flush=True)
        if status == 0:
            return


@pytest.mark.timeout(280)
def test_killed_at_many_lines_of_code(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    command = [sys.executable, "-m", __name__, keeping.url, str(tmp_path)]
    helper = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=270, check=False)
    assert helper.returncode == 0, helper.stderr
    outcomes = [json.loads(line) for line in helper.stdout.splitlines()]
    assert [[end, said] for _, end, said in outcomes] == [[0, ""]] * len(outcomes)
    assert [os.WTERMSIG(status) for status, _, _ in outcomes] == [signal.SIGKILL] * (len(outcomes) - 1) + [0]
    found: dict[int, list[str]] = {}
    for line in text_of(messages(keeping.url)).splitlines():
        batch, _, rest = line.partition(":")
        found.setdefault(int(batch), []).append(rest[:8])
    assert list(found) == list(range(len(outcomes)))
    kinds = [lines == ["first:0:", "first:1:", "first:2:"] for lines in found.values()]
    assert all(is_first or lines == ["second:0"] for is_first, lines in zip(kinds, found.values(), strict=True))
    assert kinds == sorted(kinds)
    assert {True, False} == set(kinds)
    assert os.listdir(tmp_path) == ["journal"]


def test_the_server_is_killed_meanwhile(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    lines = [f"{number:099}\n" for number in range(20_000)]

    def portions() -> Iterator[Portion]:
        for number, portion in enumerate(staged(tmp_path, 0, *["".join(lines[at : at + 2000]) for at in range(0, 20_000, 2000)])):
            yield portion
            assert number < 10

    class Killing(Publisher):
        def _put(self, batch: int, begin: int, line: int, *rest: Any, **how: Any) -> None:
            if line > 5000 and not killed:
                killed.append(line)
                keeping.kill()
                keeping.begin()
            super()._put(batch, begin, line, *rest, **how)

    killed: list[int] = []
    with Killing(place_of(keeping.url), tmp_path, QUERY) as publisher:
        publisher.publish(0, list(portions()))
    assert killed
    assert text_of(messages(keeping.url)) == "".join(lines)


# ---------------------------------------------------------------------------------------------- with Spark


def test_there_and_back(spark: SparkSession, keeping: Server, filled: Filled, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    url = f"{filled.url}/lines.out"
    said = []
    for round_ in range(3):
        lines = [f"round {round_} line {number}" for number in range(100)]
        said += lines
        (source / f"{round_}.txt").write_text("".join(f"{line}\n" for line in lines))
        writer = (
            spark.readStream.text(str(source)).writeStream.format("futebus").option("stagingLocation", str(tmp_path / "staging"))
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(url)
        assert query.awaitTermination(120)
        if round_ == 1:
            keeping.kill()
            keeping.begin()
    rows = spark.read.format("futebus").load(url).orderBy("offset").collect()
    assert [(row.offset, row.value) for row in rows] == list(enumerate(said))
    assert {(row.channel, row.subject) for row in rows} == {("lines.out", "lines.out")}


def test_a_query_to_what_no_stream_listens_to_goes_on_when_one_does(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.txt").write_text("a\nb\n")
    staging = tmp_path / "staging"

    def run() -> None:
        writer = spark.readStream.text(str(tmp_path / "source")).writeStream.format("futebus")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("stagingLocation", str(staging))
        assert writer.trigger(availableNow=True).start(f"{filled.url}/other").awaitTermination(120)

    with pytest.raises(StreamingQueryException, match=r"/LINES does not listen to other, but to lines\.>: nats stream edit"):
        run()
    assert not os.listdir(staging)
    filled.do(lambda stream: stream.jetstream.update_stream(name="LINES", subjects=["lines.>", "other"]))
    run()
    rows = spark.read.format("futebus").load(filled.url).orderBy("sequence", "offset").collect()
    assert [(row.value, row.subject) for row in rows] == [("a", "other"), ("b", "other")]


def test_tables_come_behind_each_other(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    for text in ("first", "second"):
        writer = spark.createDataFrame([(text,)], "value STRING").write.format("futebus").mode("append")
        writer.option("stagingLocation", str(tmp_path)).save(f"{filled.url}/lines.out")
    rows = spark.read.format("futebus").load(filled.url).orderBy("sequence").collect()
    assert [row.value for row in rows] == ["first", "second"]


@pytest.mark.parametrize(
    ("where", "columns", "options", "words"),
    [
        ("", "value STRING", {}, "not nats://SERVER/STREAM/SUBJECT"),
        ("/lines.*", "value STRING", {}, "one subject, please, and no wildcard"),
        ("/lines.a", "value STRING", {"delivery": "direct"}, "delivery=direct is for channels"),
        ("/lines.a", "value STRING", {"stagingLocation": ""}, "there is no stagingLocation"),
        ("/lines.a", "value STRING, channel STRING", {}, "a stream takes no column but `value`"),
        (
            "/other",
            "value STRING",
            {},
            "/LINES does not listen to other, but to lines.>: nats stream edit LINES --subjects changes that",
        ),
    ],
)
def test_what_cannot_be_is_said(
    spark: SparkSession, filled: Filled, tmp_path: Path, where: str, columns: str, options: dict[str, str], words: str
) -> None:
    row = ("x",) * len(columns.split(","))
    given = {"stagingLocation": str(tmp_path), "timeoutMs": "0", **options}
    with pytest.raises(PySparkException, match=words):
        spark.createDataFrame([row], columns).write.format("futebus").mode("append").options(**given).save(filled.url + where)


@pytest.mark.parametrize(
    ("limits", "subject", "words"),
    [
        ({}, "other", "/LINES does not listen to other, but to lines.>: nats stream edit LINES --subjects changes that$"),
        ({}, "lines.out", None),
        ({"no_ack": True}, "lines.out", r"/LINES acknowledges nothing \(no_ack\)"),
        ({"max_msg_size": 4096}, "lines.out", r"/LINES takes 4096 bytes \(max_msg_size\), and headers alone may have 4096$"),
    ],
)
def test_what_a_stream_does_not_take_is_said_at_once(
    keeping: Server, filling: Filling, tmp_path: Path, limits: dict[str, Any], subject: str, words: str | None
) -> None:
    """Before anything is staged."""
    filling(keeping.url, **limits)
    found = NumberedTarget(place_of(keeping.url, subject), Columns(0, None, None), tmp_path)
    with pytest.raises(SinkError, match=words) if words else contextlib.nullcontext():
        found.check()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mirrors": "MAIN"}, "LINES is a mirror of the stream MAIN, and takes nothing else: publish in that one"),
        ({"is_sealed": True}, "LINES is sealed, and takes nothing any more"),
        ({"subjects": ()}, "LINES does not listen to a, but to nothing: nats stream edit LINES --subjects changes that"),
    ],
)
def test_a_stream_may_take_nothing(filled: Filled, change: dict[str, Any], words: str) -> None:
    with pytest.raises(SinkError, match=f"^{re.escape(words)}$"):
        check_takes("LINES", filled.state._replace(**change), "LINES", "a")


def test_a_stream_that_is_not_there_is_missed_at_once(keeping: Server, tmp_path: Path) -> None:
    found = NumberedTarget(place_of(keeping.url), Columns(0, None, None), tmp_path)
    with pytest.raises(SinkError, match=r"/LINES: there is no such stream$"):
        found.check()
    keeping.kill()
    found.check()  # it is waited for with the first batch


if __name__ == "__main__":
    kill_at_each_step(sys.argv[1], Path(sys.argv[2]))
