"""What a stream has confirmed is looked for in it before it may go, and what is gone from it for good stays gone."""

from pathlib import Path

import pytest

from futebus.nats.stream import Stream
from futebus.recorder.target import kept_from, read_note

from ..helpers.mounts import Mount
from ..helpers.nats import Server
from ..helpers.published import ask, confirming, messages, wait_for_line
from ..helpers.recorders import Recorder, Recording
from ..helpers.waiting import until
from ..spool.spools import numbered

PLACE = ("LINES", "lines")


def wait_for_check(recorder: Recorder, line: int) -> None:
    until(lambda: kept_from(recorder.spool, PLACE) == line, f"the stream has shown to have all lines before {line}")


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
    recorder.wait_for("is another stream than before: what that one had, up to line 10, is not in it")
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
    keeping.process.terminate()  # one of 2.9.10 finds no last message then before it has begun anew
    keeping.process.wait()
    keeping.begin()
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
