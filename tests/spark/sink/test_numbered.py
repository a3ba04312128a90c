"""Rows to a subject of a stream: each line once, in order, whoever is killed, and nobody else's lines among them."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from futebus.nats import address, runs
from futebus.nats.access import Access
from futebus.nats.errors import Away
from futebus.nats.reader import Reader
from futebus.nats.state import Message
from futebus.nats.stream import Stream
from futebus.spark.sink.asking import BATCH, BEGIN, END, known_of
from futebus.spark.sink.journal import Journal, State
from futebus.spark.sink.lines import Columns
from futebus.spark.sink.numbered import NumberedTarget, Publisher, forget
from futebus.spark.sink.outlet import SinkError
from futebus.spark.sink.staging import Portion

from ...helpers.nats import Server, Serving, keeping, serving
from ...helpers.streams import Filled, Filling, filling
from .numbered import QUERY, filled, messages, place_of, publish, staged, text_of
from .test_crashes import in_child, killed_at

__all__ = ["filled", "filling", "keeping", "serving"]

STRIDE = 3
"""How many lines of code lie between two moments in which a publisher is killed."""


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


def test_messages_are_as_long_as_servers_take(serving: Serving, filling: Filling, tmp_path: Path) -> None:
    server = serving("max_payload: 5000", jetstream=True)
    filling(server.url)
    text = "".join(f"{number:099}\n" for number in range(100))
    publish(server.url, tmp_path, 0, text)
    found = messages(server.url)
    assert text_of(found) == text
    assert 1 < len(found) < 4
    with pytest.raises(
        SinkError, match=r"^a line is longer than the 4\d+ bytes that the server's max_payload leaves beside headers$"
    ):
        publish(server.url, tmp_path, 1, "x" * 4999 + "\n")
    files = [path.name for path in tmp_path.glob("*.lines")]
    forget(tmp_path, 1, files)
    publish(server.url, tmp_path, 1, "put right\n")
    assert text_of(messages(server.url)) == text + "put right\n"


def test_messages_are_as_long_as_the_stream_takes(keeping: Server, filling: Filling, tmp_path: Path) -> None:
    filling(keeping.url, max_msg_size=5000)
    text = "".join(f"{number:099}\n" for number in range(100))
    publish(keeping.url, tmp_path, 0, text)
    assert text_of(messages(keeping.url)) == text
    with pytest.raises(
        SinkError, match=r"^a line is longer than the 4\d+ bytes that the stream's max_msg_size leaves beside headers$"
    ):
        publish(keeping.url, tmp_path, 1, "x" * 4999 + "\n")


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


def test_a_publisher_that_is_interrupted_where_it_ends_lets_the_next_one_begin(
    keeping: Server, filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Reader.close

    def close(reader: Reader) -> None:
        ends(reader)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "close", close)
        with pytest.raises(KeyboardInterrupt), Publisher(place_of(keeping.url), tmp_path, QUERY):
            pass
    with Journal(tmp_path / "journal"):  # or else it waits for ever
        pass
    publish(keeping.url, tmp_path, 0, "a\n")
    assert text_of(messages(keeping.url)) == "a\n"


if __name__ == "__main__":
    kill_at_each_step(sys.argv[1], Path(sys.argv[2]))
