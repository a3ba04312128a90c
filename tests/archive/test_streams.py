"""`futebus-archive` of a stream of a real server, in processes of its own that are killed."""

import contextlib
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StreamSource

from futebus.nats import address
from futebus.nats.access import Access
from futebus.nats.reader import Reader

from ..helpers.nats import Server, keeping, serving
from ..helpers.programs import Start
from ..helpers.streams import NAME, TIME, Filled, Filling, filling
from ..helpers.waiting import SLOW, until
from .archives import COMMAND, QUICK, table
from .test_command import archived, kill

__all__ = ["filling", "keeping", "serving"]


@pytest.fixture
def filled(keeping: Server, filling: Filling) -> Filled:
    """A stream."""
    return filling(keeping.url)


def test_a_stream_is_archived_although_it_is_killed(keeping: Server, filled: Filled, start: Start, place: Path) -> None:
    """The archive, Java and the server; each line is there once."""
    root = place / "archive"
    command = [*COMMAND, *QUICK, "--every", "1s", filled.url, root]
    said = filled.fill(30)
    process = start(*command)
    until(lambda: process.poll() is not None or archived(root) == len(said), "archived", SLOW)
    keeping.kill()
    keeping.begin()
    said += filled.fill(10)
    until(lambda: process.poll() is not None or archived(root) == len(said), "archived", SLOW)
    kill(process)
    said += filled.fill(10)
    filled.say("{7}hello", subject="lines.b", channel="A_chat", host="beta")
    filled.outside(b"from outside\n", "lines.c")
    process = start(*[*COMMAND, *QUICK, "--once", filled.url, root])
    assert process.wait(SLOW) == 0, process.communicate()
    assert re.search(r"102 lines archived, \d+ files, 0 messages left", process.communicate()[1])
    rows = table(root).to_pylist()
    log = [row for row in rows if row["channel"] == "U_log"]
    assert [row["value"] for row in sorted(log, key=lambda row: row["sequence"] * 1000 + row["offset"])] == said
    assert {(row["date"], row["hour"], row["host"], row["subject"]) for row in log} == {("2023-11-14", "22", "alpha", "lines.a")}
    assert {row["timestamp"].timestamp() for row in log} == {TIME // 1000 / 1e6}
    others = sorted(
        (str(row["channel"]), row["value"], row["address"], row["host"], row["subject"]) for row in rows if row not in log
    )
    assert others == [("A_chat", "hello", "7", "beta", "lines.b"), ("None", "from outside", None, None, "lines.c")]


def test_one_that_is_ended_in_its_first_batch_says_what_is_left(filled: Filled, start: Start, place: Path) -> None:
    filled.fill(30)
    root = place / "archive"
    process = start(*COMMAND, *QUICK, filled.url, root)
    until(lambda: (root / "_futebus/checkpoint/archive/offsets/0").exists(), "a batch has begun", SLOW)
    process.terminate()
    words = process.communicate(timeout=SLOW)[1]
    assert process.returncode == 0, words
    found = re.search(r"(\d+) lines archived, \d+ files, (\d+) messages left", words)
    assert found, words
    assert int(found[1]) + 10 * int(found[2]) == 300


def test_another_stream_of_the_same_name(filled: Filled, start: Start, place: Path) -> None:
    said = filled.fill(3)
    command = [*COMMAND, *QUICK, "-q", "--once", f"{filled.url}/lines.a", place / "archive"]
    assert start(*command).wait(SLOW) == 0
    filled.remake()
    said += filled.fill(2)
    strict = start(*command, "--strict")
    assert "is another stream than the query has read: it was made anew" in strict.communicate(timeout=SLOW)[1]
    assert strict.returncode == 1
    process = start(*command)
    assert process.wait(SLOW) == 0, process.communicate()
    assert sorted(table(place / "archive").column("value").to_pylist()) == sorted(said)
    process = start(*command)
    process.send_signal(signal.SIGTERM)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert len(table(place / "archive")) == len(said)


# ---------------------------------------------------------------------------------------------- what is wrong


def test_a_subject_that_the_stream_does_not_listen_to(filled: Filled, start: Start, place: Path) -> None:
    process = start(*COMMAND, *QUICK, "--once", f"{filled.url}/nosuch", place / "archive")
    assert process.communicate(timeout=SLOW)[1] == (
        f"futebus-archive: {filled.url} does not listen to nosuch, but to lines.>:"
        " nats stream edit LINES --subjects changes that\n"
    )
    assert process.returncode == 1
    assert not (place / "archive").exists()


@pytest.mark.parametrize("how", [{"mirror": StreamSource(name=NAME)}, {"sources": [StreamSource(name=NAME)]}])
def test_a_stream_that_listens_to_nothing_may_have_what_another_has(filled: Filled, keeping: Server, how: Any) -> None:
    filled.do(lambda stream: stream.jetstream.add_stream(name="COPY", **how))
    with contextlib.closing(Reader(address.read_servers(keeping.url), Access(), "COPY", "a test")) as reader:
        state = reader.state()
        assert (state.subjects, state.is_fed) == ((), True)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["nats://localhost/", "."], r"not nats://SERVER/STREAM\[/SUBJECT\]: "),
        (["nats://localhost/A", "nats://localhost/B", "."], "one stream and one directory, please"),
        (["--slave", "nats://localhost/A", "."], "--slave is for channels of a bus, and not for a stream"),
        (["--creds", "/nowhere", "nats://localhost/A", "."], "/nowhere: No such file or directory"),
        (["--creds", "/nowhere", "/mnt/B_log", "."], "--creds is for a stream only"),
        (["nats://me:secret@/A", "."], r"not a host and a port|not nats://USER:PASSWORD@"),
    ],
)
def test_wrong_arguments(start: Start, words: list[str], wrong: str) -> None:
    process = start(*COMMAND, *words)
    said = process.communicate(timeout=SLOW)[1]
    assert process.returncode == 2
    assert re.search(wrong, said)
    assert "secret" not in said
