"""What a stream has confirmed is looked for in it before it may go, and what is gone from it for good stays gone."""

import os
import signal
import socket
from pathlib import Path

import pytest

from futebus.core.text import spanned
from futebus.nats.stream import Stream
from futebus.recorder.target import Note, kept_from, read_note
from futebus.spool import Spool

from ..helpers.mounts import Mount
from ..helpers.nats import Server
from ..helpers.programs import stop
from ..helpers.published import ask, confirming, lines_in, messages, wait_for_line
from ..helpers.recorders import Recorder, Recording
from ..helpers.waiting import until
from ..spool.spools import numbered

PLACE = ("LINES", "lines")


def wait_for_check(recorder: Recorder, line: int) -> None:
    until(
        lambda: kept_from(recorder.spool, PLACE, Spool(recorder.spool).id) == line,
        f"the stream has shown to have all lines before {line}",
    )


def test_who_confirms_in_the_place_of_the_stream_is_not_believed(bus: Mount, recording: Recording, keeping: Server) -> None:
    """The stream is removed, and he says that it has what comes. When it is there again, it gets that."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    with confirming(keeping, "lines"):
        (bus / "U_x").write_bytes(numbered(0, 10))
        wait_for_check(recorder, 10)

        async def remove(stream: Stream) -> None:
            await stream.jetstream.delete_stream("LINES")

        ask(keeping.url, remove)
        (bus / "U_x").write_bytes(numbered(10, 20))
        wait_for_check(recorder, 20)
    recorder.wait_for("is another stream than before: what that one had, up to line 9, is not in it")
    recorder.end()
    assert b"".join(message.data for message in messages(keeping.url)) == numbered(10, 20)


def test_what_the_stream_takes_is_asked_again(bus: Mount, recording: Recording, keeping: Server) -> None:
    """A message that is longer than the stream may be is removed as it comes, and confirmed."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_check(recorder, 10)

    async def edit(stream: Stream) -> None:
        config = (await stream.jetstream.stream_info("LINES")).config
        config.max_bytes = 100_000
        await stream.jetstream.update_stream(config)

    ask(keeping.url, edit)
    (bus / "U_x").write_bytes(numbered(10, 3000))
    wait_for_line(keeping.url, "lines", 3000)
    recorder.end()
    found = messages(keeping.url)
    assert max(len(message.data) for message in found) < 100_000
    assert b"".join(message.data for message in found) == numbered(
        3000 - sum(message.data.count(b"\n") for message in found), 3000
    )


def test_what_the_stream_takes_is_asked_again_while_others_publish_in_it(
    bus: Mount, recording: Recording, keeping: Server
) -> None:
    """It is asked for another reason then, too, and told what it takes now."""
    ask(keeping.url, lambda stream: stream.make(["lines.>"]))
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines.a")
    (bus / "U_x").write_bytes(numbered(0, 10))
    until(
        lambda: kept_from(recorder.spool, ("LINES", "lines.a"), Spool(recorder.spool).id) == 10,
        "the stream has been asked just now",
    )

    async def edit(stream: Stream) -> None:
        config = (await stream.jetstream.stream_info("LINES")).config
        config.max_bytes = 100_000
        await stream.jetstream.update_stream(config)
        await stream.jetstream.publish("lines.b", b"another\n")

    ask(keeping.url, edit)
    (bus / "U_x").write_bytes(numbered(10, 11))
    until(lambda: (note := read_note(recorder.spool)) and note.next == 11, "it is published")
    (bus / "U_x").write_bytes(numbered(11, 3000))
    until(lambda: kept_from(recorder.spool, ("LINES", "lines.a"), Spool(recorder.spool).id) == 3000, "all is published")
    recorder.end()
    found = messages(keeping.url)
    assert found
    assert b"".join(message.data for message in found) == numbered(
        3000 - sum(message.data.count(b"\n") for message in found), 3000
    )


def set_acknowledging(server: Server, is_acknowledging: bool) -> None:
    """Whether the stream confirms what it gets itself."""

    async def edit(stream: Stream) -> None:
        config = (await stream.jetstream.stream_info("LINES")).config
        config.no_ack = not is_acknowledging
        await stream.jetstream.update_stream(config)

    ask(server.url, edit)


def test_a_number_that_no_message_has_is_forgotten(bus: Mount, recording: Recording, keeping: Server) -> None:
    """Who confirmed in the place of the stream has gone, and it goes on."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_check(recorder, 10)
    with confirming(keeping, "lines", number=lambda behind: behind + 1000):
        set_acknowledging(keeping, False)
        (bus / "U_x").write_bytes(numbered(10, 20))
        until(lambda: (note := read_note(recorder.spool)) and note.sequence > 1000, "it is believed for a moment")
        keeping.kill()
    (bus / "U_x").write_bytes(numbered(20, 30))
    with socket.create_server(("127.0.0.1", keeping.port)) as listener:
        for _ in range(9):  # from then on it is so seldom tried to reach it that each time is time to look
            listener.accept()[0].close()
    keeping.begin()
    set_acknowledging(keeping, True)
    wait_for_check(recorder, 30)
    note = read_note(recorder.spool)
    assert note is not None
    assert note.sequence < 1000
    recorder.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 30)


@pytest.mark.parametrize("number", [2, 1 << 63, 10**4000])
def test_a_number_that_the_next_message_cannot_get_is_not_believed(
    bus: Mount, recording: Recording, keeping: Server, number: int
) -> None:
    """Message 2 was another's, and is gone. Nobody could tell whether it was the one that he says."""

    async def begin(stream: Stream) -> None:
        await stream.make(["lines", "others"])

    async def fill(stream: Stream) -> None:
        for _ in range(2):
            await stream.jetstream.publish("others", b"other\n")
        await stream.jetstream.delete_msg("LINES", 2)

    ask(keeping.url, begin)
    to = ("--to", f"{keeping.url}/LINES/lines")
    recorder = recording(bus / "U_x", *to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_check(recorder, 10)
    recorder.end()
    ask(keeping.url, fill)
    recorder = recording(bus / "U_x", *to, spool=recorder.spool)
    recorder.publisher()
    with confirming(keeping, "lines", number=lambda behind: number):
        set_acknowledging(keeping, False)
        (bus / "U_x").write_bytes(numbered(10, 20))
        recorder.wait_for("acknowledges nothing")  # it is asked again, since something was wrong
    set_acknowledging(keeping, True)
    wait_for_check(recorder, 20)
    recorder.end()
    assert "another stream" not in recorder.words

    async def read(stream: Stream) -> list[bytes]:
        state = await stream.state()
        there = [each for each in range(1, state.last + 1) if each != 2]
        return [(await stream.jetstream.get_msg("LINES", each)).data or b"" for each in there]

    assert b"".join(ask(keeping.url, read)) == numbered(0, 10) + b"other\n" + numbered(10, 20)


def test_a_stream_that_is_made_anew_and_a_recorder_that_is_started_twice(
    bus: Mount, recording: Recording, keeping: Server
) -> None:
    """What the other one had is not published, though nothing has been confirmed between the two."""
    to = ("--to", f"{keeping.url}/LINES/lines")
    recorder = recording(bus / "U_x", *to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_check(recorder, 10)
    recorder.end()

    async def renew(stream: Stream) -> None:
        await stream.jetstream.delete_stream("LINES")
        await stream.make(["lines"])

    ask(keeping.url, renew)
    recorder = recording(bus / "U_x", *to, spool=recorder.spool)
    recorder.wait_for("is another stream than before: what that one had, up to line 9, is not in it")
    recorder.end()
    recorder = recording(bus / "U_x", *to, spool=recorder.spool)
    (bus / "U_x").write_bytes(numbered(10, 20))
    wait_for_check(recorder, 20)
    recorder.end()
    assert b"".join(message.data for message in messages(keeping.url)) == numbered(10, 20)


def test_what_a_stream_confirmed_last_before_it_was_deleted_goes_to_the_next_one(
    bus: Mount, recording: Recording, keeping: Server
) -> None:
    """Whether it had that nobody knows any more; and it is said."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    at, publisher = 0, recorder.publisher()

    def look() -> Note:
        note = read_note(recorder.spool)
        assert note
        return note

    while True:
        (bus / "U_x").write_bytes(numbered(at, at + 1))
        at += 1
        until(lambda: look().next == at, "the stream has it")  # noqa: B023
        stop(publisher)
        checked = look().checked
        if 0 < checked < at:
            break
        os.kill(publisher, signal.SIGCONT)

    async def renew(stream: Stream) -> None:
        await stream.jetstream.delete_stream("LINES")
        await stream.make(["lines"])

    ask(keeping.url, renew)
    os.kill(publisher, signal.SIGCONT)
    (bus / "U_x").write_bytes(numbered(at, at + 1))
    before = f"is another stream than before: what that one had, up to line {checked - 1}, is not in it"
    recorder.wait_for(f"{before}; what was confirmed last, {spanned(checked, at)}, goes there, since it may not have had that")
    wait_for_line(keeping.url, "lines", at + 1)
    recorder.end()
    assert b"".join(message.data for message in messages(keeping.url)) == numbered(checked, at + 1)


@pytest.mark.parametrize("count", [1, 2])
def test_what_somebody_has_removed_does_not_come_back(bus: Mount, recording: Recording, keeping: Server, count: int) -> None:
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    for line in (0, 10, 20):
        (bus / "U_x").write_bytes(numbered(line, line + 10))
        wait_for_check(recorder, line + 10)
    recorder.end()

    async def remove(stream: Stream) -> None:
        for sequence in range(4 - count, 4):
            await stream.jetstream.delete_msg("LINES", sequence)

    ask(keeping.url, remove)
    keeping.restart()  # one of 2.9.10 finds no last message then before it has begun anew
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines", spool=recorder.spool)
    (bus / "U_x").write_bytes(numbered(30, 40))
    wait_for_line(keeping.url, "lines", 40)
    recorder.end()
    assert "has lost" not in recorder.words

    async def read(stream: Stream) -> list[bytes]:
        state = await stream.state()
        there = [number for number in range(1, state.last + 1) if number < 4 - count or number > 3]
        return [(await stream.jetstream.get_msg("LINES", number)).data or b"" for number in there]

    assert b"".join(ask(keeping.url, read)) == numbered(0, 10 * (3 - count)) + numbered(30, 40)


def test_who_has_published_nothing_may_still_take_over(bus: Mount, recording: Recording, keeping: Server, place: Path) -> None:
    to = ("--to", f"{keeping.url}/LINES/lines")
    recorder = recording(bus / "U_x", *to)
    until(lambda: (note := read_note(recorder.spool)) and note.created, "it has reached the stream")
    recorder.end()
    other = recording(bus / "U_y", *to, spool=place / "other")
    (bus / "U_y").write_bytes(b"other\n")
    wait_for_line(keeping.url, "lines", 1)
    other.end()
    recorder = recording(bus / "U_x", *to, "--take-over", spool=recorder.spool)
    (bus / "U_x").write_bytes(b"one\n")
    until(lambda: len(messages(keeping.url)) == 2, "it is published")
    recorder.end()
    assert [message.data for message in messages(keeping.url)] == [b"other\n", b"one\n"]
