"""Whose the lines of a subject are: what a recorder believes of it, and behind what it goes on."""

from pathlib import Path

import pytest

from futebus.nats import runs
from futebus.nats.stream import Stream
from futebus.recorder.target import read_note
from futebus.spool import Spool

from ..helpers.mounts import Mount, Mounting, run
from ..helpers.nats import Server
from ..helpers.published import ask, lines_in, messages, wait_for_line
from ..helpers.recorders import LASTING, PATIENT, Recording, kill
from ..helpers.waiting import until
from ..spool.spools import numbered


def test_an_old_copy_that_has_new_lines_is_refused(bus: Mount, recording: Recording, keeping: Server, place: Path) -> None:
    """It publishes nothing: its lines would get the numbers of others, or be left out."""
    to = f"{keeping.url}/LINES/lines"
    recorder = recording(bus / "U_x", "--to", to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    recorder.end()
    run("cp", "-r", recorder.spool, place / "copy")
    recorder = recording(bus / "U_x", "--to", to)
    (bus / "U_x").write_bytes(numbered(10, 20))
    wait_for_line(keeping.url, "lines", 20)
    recorder.end()
    with keeping.hanging():
        copy = recording(bus / "U_x", "--to", to, spool=place / "copy", command=LASTING)
        copy.wait_for("does not answer")
        (bus / "U_x").write_bytes(numbered(100, 130))
        until(lambda: Spool(copy.spool).end == 40, "it is recorded all the same")
    copy.wait_for(
        f"{keeping.url}/LINES has other lines than {place / 'copy'} under its name, in message 2 of lines: this is an old"
    )
    assert (note := read_note(copy.spool))
    assert (note.next, "other lines than" in note.trouble) == (10, True)
    copy.end()
    assert f"30 lines of {copy.spool} are not in {to}: {keeping.url}/LINES has other lines than" in copy.words
    assert lines_in(messages(keeping.url)) == numbered(0, 20)


@pytest.mark.parametrize(("count", "forged"), [(2, b"forged\n"), (2, b"forged\nforged\n"), (2, b"one\ntwo"), (0, b"")])
def test_what_only_says_to_be_of_the_spool_is_not_believed(
    bus: Mount, recording: Recording, keeping: Server, count: int, forged: bytes
) -> None:
    to = f"{keeping.url}/LINES/lines"
    recorder = recording(bus / "U_x", "--to", to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    where = runs.Where(Spool(recorder.spool).id, 10, count, 1, "h", "U_x")

    async def forge(stream: Stream) -> None:
        await stream.publish("lines", forged, runs.headers(where), 1, "forged")

    ask(keeping.url, forge)
    (bus / "U_x").write_bytes(b"one\ntwo\nthree\n")
    recorder.wait_for("or somebody else says to be it")
    recorder.end()
    assert [message.data for message in messages(keeping.url)] == [numbered(0, 10), forged]


def test_a_subject_is_taken_over_once(mounting: Mounting, recording: Recording, keeping: Server, place: Path) -> None:
    """Two that would do so again would publish in turn."""
    bus = mounting()
    words = ("--to", f"{keeping.url}/LINES/lines", "--take-over")
    first = recording(bus / "U_x", *words)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    second = recording(bus / "U_y", *words, spool=place / "other", command=LASTING)
    second.wait_for(f"lines is taken over from the spool {Spool(first.spool).id} of ")
    second.end()
    second = recording(bus / "U_y", *words[:2], spool=place / "other")  # it has, though it has published nothing yet
    (bus / "U_y").write_bytes(b"one\n")
    until(lambda: len(messages(keeping.url)) == 2, "it is published")
    (bus / "U_x").write_bytes(b"lost\n")
    first.wait_for("if that one is gone for good, a new spool with --take-over goes on behind it")
    first.end()
    done = run(*PATIENT, *words, bus / "U_x", first.spool)
    assert (done.returncode, "one publisher a subject" in done.stderr) == (1, True)
    (bus / "U_y").write_bytes(b"two\n")
    until(lambda: len(messages(keeping.url)) == 3, "it is published")
    second.end()
    assert [message.data for message in messages(keeping.url)] == [numbered(0, 10), b"one\n", b"two\n"]


def test_who_takes_over_looks_for_its_own(bus: Mount, recording: Recording, keeping: Server) -> None:
    """It has published there before others did, and its note is lost."""
    to = f"{keeping.url}/LINES/lines"
    recorder = recording(bus / "U_x", "--to", to)
    for number in range(3):
        (bus / "U_x").write_bytes(numbered(10 * number, 10 * number + 10))
        wait_for_line(keeping.url, "lines", 10 * number + 10)
    recorder.end()
    (recorder.spool / "published").unlink()

    async def intrude(stream: Stream) -> None:
        for behind in (3, 4):
            await stream.publish("lines", b"other\n", {}, behind, "other")

    ask(keeping.url, intrude)
    recorder = recording(bus / "U_x", "--to", to, "--take-over")
    (bus / "U_x").write_bytes(numbered(30, 40))
    wait_for_line(keeping.url, "lines", 40)
    recorder.end()
    data = b"".join(message.data for message in messages(keeping.url))
    assert data == numbered(0, 30) + b"other\n" * 2 + numbered(30, 40)


def test_the_note_is_removed_meanwhile(bus: Mount, recording: Recording, keeping: Server) -> None:
    """It is made again, and nothing is lost, nor comes twice: the stream knows it all."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    note = recorder.spool / "published"
    for number in range(2):
        (bus / "U_x").write_bytes(numbered(20 * number, 20 * number + 10))
        wait_for_line(keeping.url, "lines", 20 * number + 10)
        note.unlink()
        if number:
            kill(recorder.publisher())
        else:
            until(note.exists, "it is there again")
        (bus / "U_x").write_bytes(numbered(20 * number + 10, 20 * number + 20))
        wait_for_line(keeping.url, "lines", 20 * number + 20)
    until(lambda: (found := read_note(recorder.spool)) is not None and found.next == 40, "it says how far that is")
    recorder.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 40)
