"""What a query that publishes in a stream does when that has lost messages of it, or is another one."""

import re
from pathlib import Path
from typing import Any

import pytest

from futebus.nats import runs
from futebus.nats.errors import Away
from futebus.nats.stream import Stream
from futebus.spark.remote import Place
from futebus.spark.sink.journal import Journal, Record, State
from futebus.spark.sink.numbered import Publisher
from futebus.spark.sink.outlet import SinkError

from ...helpers.nats import Server, keeping, serving
from ...helpers.published import confirming
from ...helpers.streams import Filled, Filling, filling
from .numbered import QUERY, filled, messages, place_of, publish, staged, text_of

__all__ = ["filled", "filling", "keeping", "serving"]


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


def test_who_confirms_in_the_place_of_the_stream_is_not_believed(
    keeping: Server, filled: Filled, filling: Filling, tmp_path: Path
) -> None:
    class Removing(Publisher):
        def _put(self, *what: Any, **how: Any) -> None:
            filled.do(lambda stream: stream.jetstream.delete_stream("LINES"))
            super()._put(*what, **how)

    portions = staged(tmp_path, 0, "a\n")
    with (
        confirming(keeping, "lines.out"),
        pytest.raises(SinkError, match=r"there is no such stream$"),
        Removing(place_of(keeping.url), tmp_path, QUERY) as publisher,
    ):
        publisher.publish(0, portions)
    filling(keeping.url)
    publish(keeping.url, tmp_path, 0, "other\n")
    assert text_of(messages(keeping.url)) == "a\n"


def test_a_stream_that_never_has_what_was_confirmed_is_said_so(keeping: Server, filled: Filled, tmp_path: Path) -> None:
    class Believing(Publisher):
        async def _added(self, *what: Any) -> int:
            return self._behind + 1  # as one who listens to the subject has said

    with (
        pytest.raises(SinkError, match=r"/LINES/lines.out does not have what was confirmed in its name$"),
        Believing(place_of(keeping.url), tmp_path, QUERY) as publisher,
    ):
        publisher.publish(0, staged(tmp_path, 0, "a\n"))


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


class Ending(Publisher):
    """Ends behind its first message, all of which is removed with what is before it.

    Args:
        place, directory: as for `Publisher`.
        error: how it ends.
    """

    def __init__(self, place: Place, directory: Path, error: Exception) -> None:
        super().__init__(place, directory, QUERY)
        self.has_ended = False
        self._error = error

    async def _added(self, stream: Stream, *what: Any) -> int:
        number = await super()._added(stream, *what)
        if not self.has_ended:
            self.has_ended = True
            await stream.jetstream.purge_stream("LINES")
            raise self._error
        return number


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_removed_before_anybody_knows_that_it_was_there_is_sent_again(
    keeping: Server, filled: Filled, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_first: bool, is_killed: bool
) -> None:
    """Its publisher was killed, or the connection. Whether it was there, and all of it, nobody can know."""
    if not is_first:
        publish(keeping.url, tmp_path, 0, "before\n")
        filled.purge(2)
    portions = staged(tmp_path, 1, "a\nb\n", "c\n")
    with Ending(place_of(keeping.url), tmp_path, OSError("the end") if is_killed else Away("the end")) as publisher:
        if is_killed:
            with pytest.raises(OSError, match="the end"):
                publisher.publish(1, portions)
        else:
            publisher.publish(1, portions)
    assert publisher.has_ended
    publish(keeping.url, tmp_path, 1, "other\n")
    assert text_of(messages(keeping.url)) == "a\nb\nc\n"
    told = capsys.readouterr().err
    assert re.search(
        "has removed what it was sent, before it was known to be there: lines? [01]( to [12])? of this query w.+ sent again$",
        told,
        re.M,
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_removed_with_what_was_before_it_is_sent_again(
    keeping: Server, filled: Filled, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_first: bool
) -> None:
    """Which may be somebody else's, from before this query. Nobody's is in the way then."""
    if is_first:
        filled.do(lambda stream: stream.jetstream.publish("lines.out", b"left\n"))
    else:
        publish(keeping.url, tmp_path, 0, "before\n")
    with Ending(place_of(keeping.url), tmp_path, Away("the end")) as publisher:
        publisher.publish(1, staged(tmp_path, 1, "a\nb\n", "c\n"))
    assert publisher.has_ended
    assert text_of(messages(keeping.url)) == "a\nb\nc\n"
    words = "no message of this query any more: what was just being sent, 2 lines, is sent again, and may arrive twice\n"
    assert words in capsys.readouterr().err


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
