"""What has gone by a stream's limits before the recorder knew that it was there."""

import re

import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from futebus.nats.stream import NAME, Stream
from futebus.recorder.target import NOTE, read_note

from ..helpers.mounts import Mount
from ..helpers.nats import Server
from ..helpers.published import ask, lines_in, messages, proxied, wait_for_line
from ..helpers.recorders import Recording, kill
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import numbered

ACKNOWLEDGED = b'{"stream":"LINES"'
"""How a stream's answer begins when it has stored a message."""

OTHERS = 10


async def _make(stream: Stream) -> None:
    await stream.make(["lines.>"], max_msgs=5)


async def _say(stream: Stream) -> None:
    """Others publish: all that the stream had goes."""
    for _ in range(OTHERS):
        await stream.jetstream.publish("lines.b", b"other\n")


async def _last(stream: Stream) -> int:
    return (await stream.state()).last


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("is_alone", [True, False])
def test_it_goes_there_again(bus: Mount, recording: Recording, keeping: Server, *, is_alone: bool, is_killed: bool) -> None:
    """At once, whether or not the stream had anything of the subject when it got it; and what came meanwhile, too."""
    ask(keeping.url, _make)
    with proxied(keeping) as network:
        recorder = recording(bus / "U_x", "--to", f"nats://127.0.0.1:{network.port}/LINES/lines.a")
        (bus / "U_x").write_bytes(numbered(0, 1))
        until(lambda: (note := read_note(recorder.spool)) and note.next == 1, "it knows that the stream has it")
        if is_alone:
            ask(keeping.url, _say)
            kill(recorder.publisher())
            until(lambda: (note := read_note(recorder.spool)) and not note.sequence, "the next one has asked")
        network.holds = ACKNOWLEDGED
        (bus / "U_x").write_bytes(numbered(1, 2))
        wait_for_line(keeping.url, "lines.a", 2)
        (bus / "U_x").write_bytes(numbered(2, 5))
        ask(keeping.url, _say)
        before = ask(keeping.url, _last)
        assert before == 2 + OTHERS * (1 + is_alone)
        if is_killed:
            kill(recorder.publisher())
        else:
            network.cut()
        network.mend()
        wait_for_line(keeping.url, "lines.a", 5)
        recorder.end()
    found = [message for message in messages(keeping.url) if message.sequence > before]
    assert b"".join(message.data for message in found) == numbered(1, 5)
    said = re.search(
        "has removed what it was sent, before it was known to be there: lines? 1( to [2-4])? went there again", recorder.words
    )
    assert bool(said) == is_alone  # else it has got another name by then
    assert "has not stored yet" not in recorder.words


def test_a_recorder_that_knows_nothing_any_more_leaves_out_no_line(bus: Mount, recording: Recording, keeping: Server) -> None:
    """Of what the stream says that it had, nobody knows how many lines it was: all that there are go there."""
    ask(keeping.url, _make)
    to = ("--to", f"{keeping.url}/LINES/lines.a")
    recorder = recording(bus / "U_x", *to)
    (bus / "U_x").write_bytes(numbered(0, 1))
    wait_for_line(keeping.url, "lines.a", 1)
    recorder.end()
    recorder = recording(bus / "U_x", spool=recorder.spool)
    (bus / "U_x").write_bytes(numbered(1, 5))
    recorder.end()
    ask(keeping.url, _say)
    (recorder.spool / NOTE).unlink()
    recorder = recording(bus / "U_x", *to, spool=recorder.spool)
    wait_for_line(keeping.url, "lines.a", 5)
    recorder.end()
    assert lines_in([message for message in messages(keeping.url) if message.subject == "lines.a"]) == numbered(0, 5)
    assert "has not stored yet" not in recorder.words


def test_who_takes_the_name_of_a_message_that_was_refused_keeps_no_line_out(
    bus: Mount, recording: Recording, keeping: Server
) -> None:
    """Whoever listens to the subject sees it; and what he publishes under it may be removed, too, before it is tried again."""

    async def make(stream: Stream) -> None:
        # On a subject that it has, the stream takes one in place of the last.
        limits = StreamConfig(max_msgs=1, max_msgs_per_subject=1, discard=DiscardPolicy.NEW)
        await stream.jetstream.add_stream(limits, name="LINES", subjects=["lines.>"])
        await stream.jetstream.publish("lines.b", b"full\n")

    ask(keeping.url, make)
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines.a")

    async def steal(stream: Stream) -> None:
        seen = await stream.connection.client.subscribe("lines.a")
        (bus / "U_x").write_bytes(numbered(0, 5))
        names: set[str] = set()
        while len(names) < 3:
            name = (await seen.next_msg(DEADLINE)).headers[NAME]  # type: ignore[index]
            if name not in names:
                names.add(name)
                await stream.jetstream.publish("lines.b", b"stolen\n", headers={NAME: name})
                await stream.jetstream.publish("lines.b", b"full\n")
        await stream.jetstream.purge_stream("LINES")

    ask(keeping.url, steal)
    wait_for_line(keeping.url, "lines.a", 5)
    recorder.end()
    assert lines_in([message for message in messages(keeping.url) if message.subject == "lines.a"]) == numbered(0, 5)
    assert recorder.words.count("went there again") == 1, recorder.words
