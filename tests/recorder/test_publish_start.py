"""How a recorder that publishes starts: what it waits for, and what of that ends it."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.recorder.secret import SECRET
from futebus.spool import Spool

from ..helpers.mounts import Mount, run
from ..helpers.nats import Server
from ..helpers.published import lines_in, messages, wait_for_line
from ..helpers.recorders import LASTING, PATIENT, Recording
from ..helpers.waiting import until
from ..spool.spools import numbered


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """A server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"nats://127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[str]:
    with server.hanging():
        yield server.url


@pytest.mark.parametrize("how", ["silent", "stopped"])
def test_the_channel_is_there_before_a_server_answers(bus: Mount, recording: Recording, keeping: Server, how: str) -> None:
    with silent() if how == "silent" else stopped(keeping) as url:
        recorder = recording(bus / "U_x", "--to", f"{url}/LINES/lines")
        (bus / "U_x").write_bytes(numbered(0, 10))
        until(lambda: Spool(recorder.spool).end == 10, "lines are recorded")
    if how == "stopped":
        wait_for_line(keeping.url, "lines", 10)
    recorder.end()


def test_one_that_is_refused_later_goes_on_recording(bus: Mount, recording: Recording, keeping: Server, place: Path) -> None:
    to = f"{keeping.url}/LINES/lines"
    first = recording(bus / "U_x", "--to", to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    first.end()
    with stopped(keeping):
        second = recording(bus / "U_x", "--to", to, spool=place / "second", command=LASTING)
    second.wait_for("LINES has lines of the spool")
    (bus / "U_x").write_bytes(numbered(0, 5))
    until(lambda: Spool(second.spool).end == 5, "lines are recorded")
    second.end()
    # Where this takes long, it may have said before that the server does not answer.
    told = [line for line in second.words.splitlines() if "record: lines: " in line and "does not answer" not in line]
    assert len(told) == 1, second.words
    assert f"5 lines of {second.spool} are not in {to}: {keeping.url}/LINES has lines of the spool" in second.words
    assert "the publisher failed" not in second.words
    assert lines_in(messages(keeping.url)) == numbered(0, 10)
    done = run(*PATIENT, "--to", to, bus / "U_x", second.spool)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr


def test_a_note_that_cannot_be_kept_is_told_in_one_line(bus: Mount, recording: Recording, keeping: Server) -> None:
    """It is recorded, and published as soon as that is mended."""
    to = ("--to", f"{keeping.url}/LINES/lines")
    recorder = recording(bus / "U_x", *to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    recorder.end()
    secret = recorder.spool / SECRET
    secret.unlink()
    secret.mkdir()
    recorder = recording(bus / "U_x", *to, spool=recorder.spool)
    recorder.wait_for("secret is a directory, and no file")
    (bus / "U_x").write_bytes(numbered(10, 20))
    until(lambda: Spool(recorder.spool).end == 20, "lines are recorded")
    assert "Traceback" not in recorder.words
    secret.rmdir()
    wait_for_line(keeping.url, "lines", 20)
    recorder.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 20)
