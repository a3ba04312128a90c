"""What a recorder publishes again when the stream has lost it, and how its messages are told from others'."""

import contextlib
import re
import shutil
from pathlib import Path

import pytest
from nats.js.api import DiscardPolicy

from futebus.host.troubles import MOST_RETURNS
from futebus.nats import runs
from futebus.nats.stream import NAME, Stream, _short
from futebus.recorder.secret import SECRET
from futebus.recorder.target import kept_from, read_note
from futebus.spool import NotASpool, Spool

from ..helpers.mounts import Mount, run
from ..helpers.nats import Server
from ..helpers.published import ask, lines_in, messages, wait_for_line
from ..helpers.recorders import RECORD, Recording, kill
from ..helpers.waiting import until
from ..spool.spools import numbered


@pytest.mark.parametrize("is_anew", [True, False])
def test_a_stream_that_has_nothing_any_more(bus: Mount, recording: Recording, keeping: Server, is_anew: bool) -> None:
    """What it had is not published again: who wanted it has had it."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    (bus / "U_x").write_bytes(numbered(0, 10))
    until(lambda: (note := read_note(recorder.spool)) and note.checked == 10, "it knows that the stream has them")

    async def work(stream: Stream) -> None:
        if is_anew:
            await stream.jetstream.delete_stream("LINES")
        else:
            await stream.jetstream.purge_stream("LINES")

    ask(keeping.url, work)
    (bus / "U_x").write_bytes(numbered(10, 20))
    # The server is not asked: one of 2.9.10 dies of who asks for a message of a stream that is just being made.
    until(lambda: (note := read_note(recorder.spool)) and note.next == 20, "the stream has them")
    recorder.end()
    assert b"".join(message.data for message in messages(keeping.url)) == numbered(10, 20)
    assert ("is another stream than before: what that one had, up to line 9, is not in it" in recorder.words) == is_anew


def test_a_stream_that_has_lost_its_end(bus: Mount, recording: Recording, keeping: Server, place: Path) -> None:
    """Its server has again what it had before, as a loss of power may do it."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    for number in range(5):
        (bus / "U_x").write_bytes(numbered(10 * number, 10 * number + 10))
        wait_for_line(keeping.url, "lines", 10 * number + 10)
        if number == 2:
            keeping.process.terminate()
            keeping.process.wait()
            shutil.copytree(place / "nats1" / "jetstream", place / "before")
            keeping.begin()
    until(lambda: (note := read_note(recorder.spool)) and note.next == 50, "it knows that the stream has them")
    keeping.kill()
    shutil.rmtree(place / "nats1" / "jetstream")
    shutil.copytree(place / "before", place / "nats1" / "jetstream")
    keeping.begin()
    recorder.wait_for("has lost lines 30 to 49, which it had confirmed, and is sent lines 30 to 49 again")
    wait_for_line(keeping.url, "lines", 50)
    recorder.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 50)


@pytest.mark.parametrize("others", [0, 2, 9])
def test_a_stream_that_has_lost_all_of_a_subject(bus: Mount, recording: Recording, keeping: Server, others: int) -> None:
    """Others may have got the numbers of the messages that are gone, before anybody looks."""
    stay, come = [b"stay\n"], [b"come\n"] * others

    async def say(stream: Stream, texts: list[bytes]) -> None:
        for text in texts:
            await stream.jetstream.publish("lines.b", text)

    async def make(stream: Stream) -> None:
        await stream.make(["lines.>"])
        await say(stream, stay)

    ask(keeping.url, make)
    to = ("--to", f"{keeping.url}/LINES/lines.a")
    with keeping.losing():
        recorder = recording(bus / "U_x", *to)
        for number in range(3):
            (bus / "U_x").write_bytes(numbered(10 * number, 10 * number + 10))
            wait_for_line(keeping.url, "lines.a", 10 * number + 10)
        until(lambda: (note := read_note(recorder.spool)) and note.next == 30, "it knows that the stream has them")
        recorder.end()
    ask(keeping.url, lambda stream: say(stream, come))
    recorder = recording(bus / "U_x", *to, spool=recorder.spool)
    recorder.wait_for("has lost messages that it had confirmed, and all of lines.a, and is sent lines 0 to 29 again")
    (bus / "U_x").write_bytes(numbered(30, 40))
    wait_for_line(keeping.url, "lines.a", 40)
    recorder.end()
    found = messages(keeping.url)
    assert lines_in([message for message in found if message.subject == "lines.a"]) == numbered(0, 40)
    assert [message.data for message in found if message.subject == "lines.b"] == stay + come


@pytest.mark.parametrize("is_lost", [True, False])
def test_of_what_was_removed_before_the_end_was_lost_little_goes_there_again(
    bus: Mount, recording: Recording, keeping: Server, is_lost: bool
) -> None:
    """At most as much as was lost; and nothing if nothing was."""

    async def purge(stream: Stream) -> None:
        await stream.jetstream.purge_stream("LINES")

    def say(begin: int, end: int) -> None:
        for line in range(begin, end, 10):
            (bus / "U_x").write_bytes(numbered(line, line + 10))
            until(lambda: (note := read_note(recorder.spool)) and note.next == line + 10, "the stream has them")  # noqa: B023
        until(lambda: (note := read_note(recorder.spool)) and note.checked == end, "it has shown to have them")

    to = ("--to", f"{keeping.url}/LINES/lines")
    recorder = recording(bus / "U_x", *to)
    say(0, 200)
    ask(keeping.url, purge)
    with contextlib.ExitStack() as stack:
        if is_lost:
            stack.enter_context(keeping.losing())
        say(200, 230)
        recorder.end()
    if not is_lost:
        ask(keeping.url, purge)
    recorder = recording(bus / "U_x", *to, spool=recorder.spool)
    say(230, 240)
    recorder.end()
    again = re.search("all of lines, and is sent lines ([0-9]+) to 229 again", recorder.words)
    assert bool(again) == is_lost
    begin = int(again[1]) if again else 230
    assert b"".join(message.data for message in messages(keeping.url)) == numbered(begin, 240)
    assert begin == 230 or 170 <= begin <= 200


@pytest.mark.parametrize("there", [0, 2])
def test_what_retention_has_removed_is_not_said_to_go_there_again(
    bus: Mount, recording: Recording, keeping: Server, place: Path, there: int
) -> None:
    """Nor is what was never there said to have been."""
    to = ("--to", f"{keeping.url}/LINES/lines")
    recorder = recording(bus / "U_x", *to)
    for number in range(4):
        if number == there:
            keeping.process.terminate()
            keeping.process.wait()
            shutil.copytree(place / "nats1" / "jetstream", place / "before")
            keeping.begin()
        (bus / "U_x").write_bytes(numbered(number, number + 1))
        until(lambda: (note := read_note(recorder.spool)) and note.next == number + 1, "the stream has it")  # noqa: B023
    recorder.end()
    keeping.kill()
    shutil.rmtree(place / "nats1" / "jetstream")
    shutil.copytree(place / "before", place / "nats1" / "jetstream")
    keeping.begin()
    recorder = recording(bus / "U_x", "--keep-bytes", "1M", "--segment-bytes", "1M", spool=recorder.spool)
    (bus / "U_x").write_bytes((b"x" * 1000 + b"\n") * 4000)
    until(lambda: Spool(recorder.spool).begin > 4, "lines are removed")
    recorder.end()
    begin = Spool(recorder.spool).begin
    recorder = recording(bus / "U_x", *to, spool=recorder.spool)
    if there:
        recorder.wait_for("has lost lines 2 to 3, which it had confirmed\n")
        recorder.wait_for(": lines 2 to 3 were removed since, and cannot go there again\n")
    else:
        recorder.wait_for("has lost messages that it had confirmed, and all of lines\n")
    recorder.wait_for(f": lines 4 to {begin - 1} were removed before being published\n")
    recorder.end()


def test_a_spool_that_has_lost_all_of_its_lines(bus: Mount, recording: Recording, keeping: Server) -> None:
    """It goes on as another one, behind what the stream has of it, and nothing is said to be lost there."""
    to = ("--to", f"{keeping.url}/LINES/lines")
    recorder = recording(bus / "U_x", *to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    until(lambda: (note := read_note(recorder.spool)) and note.next == 10, "the stream has them")
    recorder.end()
    for file in [*recorder.spool.glob("*.lines"), *recorder.spool.glob("*.index")]:
        file.unlink()
    with keeping.hanging():
        recorder = recording(bus / "U_x", *to)
        (bus / "U_x").write_bytes(numbered(10, 15))

        def is_recorded() -> bool:
            with contextlib.suppress(NotASpool):  # it is just being made anew
                return Spool(recorder.spool).end == 5
            return False

        until(is_recorded, "it is recorded")
        assert kept_from(recorder.spool, ("LINES", "lines"), Spool(recorder.spool).id) == 0
        told = run(*RECORD, "--info", recorder.spool).stdout
        assert "\nin stream up to 0, message " in told
        assert "\nlag       5 lines, " in told
    until(lambda: (note := read_note(recorder.spool)) and note.next == 5, "the stream has them, too")
    recorder.end()
    assert b"".join(message.data for message in messages(keeping.url)) == numbered(0, 15)
    assert "has lost all of its segments, and goes on as a new spool" in recorder.words
    assert "confirmed" not in recorder.words
    assert "removed" not in recorder.words
    again = recording(bus / "U_x", *to)
    (bus / "U_x").write_bytes(numbered(15, 20))
    until(lambda: (note := read_note(recorder.spool)) and note.next == 10, "it goes on")
    again.end()
    assert b"".join(message.data for message in messages(keeping.url)) == numbered(0, 20)


def test_the_names_of_messages_cannot_be_told_beforehand(bus: Mount, recording: Recording, keeping: Server) -> None:
    """Who may publish elsewhere in the stream could give them away before."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    recorder.end()
    secret, (message,) = (recorder.spool / SECRET).read_text(), messages(keeping.url)
    name = runs.read(message.headers).name  # type: ignore[union-attr]
    assert message.headers[NAME] == _short(f"lines {secret} {name} 0")
    assert secret not in "".join(message.headers.values())


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_subject_whose_messages_soon_go_by_the_stream_s_limits(
    bus: Mount, recording: Recording, keeping: Server, *, is_killed: bool
) -> None:
    """Others publish in it, too, and much more. Each line goes there once, and nobody hears of it.

    But what a publisher that was killed did not know to be there goes there again.
    """
    ask(keeping.url, lambda stream: stream.make(["lines.>"], max_msgs=5))

    async def others(stream: Stream) -> None:
        for _ in range(10):
            await stream.jetstream.publish("lines.b", b"other\n")

    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines.a")
    was_killed = False
    for line in range(8):
        (bus / "U_x").write_bytes(numbered(line, line + 1))
        wait_for_line(keeping.url, "lines.a", line + 1)
        found = b"".join(each.data for each in messages(keeping.url) if each.subject == "lines.a")
        assert found == numbered(line, line + 1) or (was_killed and found == numbered(line - 1, line + 1))
        ask(keeping.url, others)
        was_killed = is_killed and line % 3 == 0
        if was_killed:
            kill(recorder.publisher())
    recorder.end()
    expected = ("the publisher", "before it was known to be there") if is_killed else ()
    said = [words for words in recorder.words.splitlines() if not any(each in words for each in expected)]
    assert len(said) == 1, recorder.words


def test_a_stream_that_is_full_again_and_again_is_told_of_now_and_then(bus: Mount, recording: Recording, keeping: Server) -> None:
    """And not each time that it is full, and that it is not."""

    async def make(stream: Stream) -> None:
        await stream.jetstream.add_stream(name="LINES", subjects=["lines"], max_msgs=1, discard=DiscardPolicy.NEW)

    ask(keeping.url, make)
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    for line in range(8):
        (bus / "U_x").write_bytes(numbered(line, line + 1))
        if line:
            until(lambda: (note := read_note(recorder.spool)) and note.trouble, "it has no room")
            ask(keeping.url, lambda stream: stream.jetstream.purge_stream("LINES"))
        wait_for_line(keeping.url, "lines", line + 1)
    recorder.end()
    said = recorder.words.count("maximum messages exceeded")
    assert MOST_RETURNS < said < 7, recorder.words
    assert recorder.words.count("is there again") == said
