"""Streams that are made for short messages, or few: what has room there is published, and what has not is said as it is."""

from pathlib import Path
from typing import Any

import pytest

from futebus.nats.stream import Stream

from ..helpers.mounts import Mount, run
from ..helpers.nats import Server
from ..helpers.published import ask, lines_in, messages, wait_for_line
from ..helpers.recorders import PATIENT, RECORD, Recording


def make(server: Server, **limits: Any) -> None:
    async def work(stream: Stream) -> None:
        await stream.jetstream.add_stream(name="LINES", subjects=["lines"], **limits)

    ask(server.url, work)


@pytest.mark.parametrize(
    ("limits", "lines"),
    [
        ({"max_msg_size": 1000}, [b"short\n"]),
        ({"max_msg_size": 4500}, [b"x" * 1000 + b"\n"]),
        ({"max_msg_size": 2000}, [b"%04d\n" % number for number in range(1000)]),
        ({"max_bytes": 5000}, [b"x" * 4000 + b"\n"]),
    ],
)
def test_lines_that_fit_are_published(
    bus: Mount, recording: Recording, keeping: Server, limits: dict[str, int], lines: list[bytes]
) -> None:
    make(keeping, **limits)
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    (bus / "U_x").write_bytes(b"".join(lines))
    wait_for_line(keeping.url, "lines", len(lines))
    recorder.end()
    assert lines_in(messages(keeping.url)) == b"".join(lines)
    assert "more than" not in recorder.words


def test_a_line_that_does_not_fit_is_the_one_that_is_said(bus: Mount, recording: Recording, keeping: Server) -> None:
    make(keeping, max_msg_size=2000)
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    (bus / "U_x").write_bytes(b"one\ntwo\n" + b"x" * 1900 + b"\nthree\n")
    recorder.wait_for("line 2 has 1901 bytes, more than the 1")
    assert " that the stream's max_msg_size leaves beside headers; it and those behind it wait" in recorder.words
    wait_for_line(keeping.url, "lines", 2)
    recorder.end()
    assert lines_in(messages(keeping.url)) == b"one\ntwo\n"


def test_a_stream_without_room_for_a_line_is_of_no_use(bus: Mount, keeping: Server, place: Path) -> None:
    make(keeping, max_msg_size=300)
    done = run(*PATIENT, "--to", f"{keeping.url}/LINES/lines", bus / "U_x", place / "spool")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "LINES: the stream's max_msg_size leaves no room for a line, since headers may have" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--stream-max-bytes", "10", "from 4K on, so that a message has room, and not 10; without it, all is kept"),
        ("--stream-max-bytes", "0", "from 4K on, so that a message has room, and not 0; without it, all is kept"),
        ("--stream-max-age", "0.001", "from 0.1s on, and not 0.001; without it, all is kept"),
        ("--stream-max-age", "0", "from 0.1s on, and not 0; without it, all is kept"),
    ],
)
def test_a_stream_that_would_be_of_no_use_is_not_made(place: Path, option: str, value: str, said: str) -> None:
    done = run(*RECORD, "--to", "nats://127.0.0.1:1/LINES/lines", option, value, place / "U_x", place / "spool")
    assert (done.returncode, done.stderr) == (2, f"futebus-record: argument {option}: {said} (see futebus-record --help)\n")


def test_more_servers_than_there_are_can_never_have_it(bus: Mount, keeping: Server, place: Path) -> None:
    done = run(*PATIENT, "--to", f"{keeping.url}/LINES/lines", "--stream-replicas", "3", bus / "U_x", place / "spool")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "LINES cannot be made: replicas > 1 not supported in non-clustered mode" in done.stderr
