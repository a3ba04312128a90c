"""What a recorder publishes in a stream of a real server: each line once, whatever dies."""

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from futebus.nats import runs
from futebus.nats.stream import Stream
from futebus.recorder.target import read_note
from futebus.spool import Spool

from ..helpers.clusters import Cluster
from ..helpers.mounts import Mount, Mounting, run
from ..helpers.nats import Server, Serving
from ..helpers.programs import Start, stop
from ..helpers.published import ask, last_of, lines_in, messages, proxied, wait_for_line
from ..helpers.recorders import LASTING, PATIENT, RECORD, Recorder, Recording, is_alive, kill
from ..helpers.waiting import until
from ..spool.spools import lines_of, numbered
from ..spool.writers import finish, wait_for_more, writers

WRITERS = 3

PAUSE = 0.005
"""Seconds that a writer pauses between some lines: what is written while a server is away must be published in the test, too."""


def check(url: str, spool: Path, written: list[list[int]]) -> None:
    """Sees that a stream has just the lines that were written, each once, and in order for each writer."""
    data = lines_in(messages(url))
    assert data == lines_of(spool)
    found: list[list[int]] = [[] for _ in written]
    for line in data.splitlines():
        name, number, _ = line.split(b" ")
        found[int(name)].append(int(number))
    assert found == written


def wait_for_all(url: str, recorder: Recorder, subject: str = "lines") -> None:
    """Waits until a stream has all that a spool has."""
    wait_for_line(url, subject, Spool(recorder.spool).end)


def test_what_is_said_is_in_the_stream(bus: Mount, recording: Recording, keeping: Server) -> None:
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines.a", command=LASTING)
    (bus / "U_x").write_bytes(numbered(0, 1000))
    wait_for_line(keeping.url, "lines.a", 1000)
    (bus / "U_x").write_bytes(numbered(1000, 1010))
    recorder.end()
    found = messages(keeping.url)
    assert lines_in(found) == numbered(0, 1010)
    where = runs.read(found[0].headers)
    assert where
    assert (where.spool, where.channel, where.host) == (Spool(recorder.spool).id, "U_x", os.uname().nodename)
    again = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines.a", command=LASTING)
    (bus / "U_x").write_bytes(numbered(1010, 1020))
    again.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 1020)
    assert "trouble" not in again.words


@pytest.mark.parametrize("who", ["publisher", "drain", "holder"])
def test_who_is_killed(mounting: Mounting, recording: Recording, keeping: Server, start: Start, who: str) -> None:
    bus = mounting("max_queue=500")
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    running = writers(start, bus / "U_x", WRITERS, pause=PAUSE)
    chance = random.Random(who)
    for _ in range(8):
        wait_for_more(recorder.spool, chance.choice((1, 1000, 10_000)))
        if who == "holder":
            drain = recorder.drain()
            kill(recorder.holder)
            until(lambda drain=drain: recorder.holder == drain, "the drain holds the channel")  # type: ignore[misc]
        else:
            kill(recorder.publisher() if who == "publisher" else recorder.drain())
    written = finish(running)
    until(lambda: Spool(recorder.spool).end == sum(map(len, written)), "all is in the spool")
    wait_for_all(keeping.url, recorder)
    last = recorder.holder
    os.kill(last, signal.SIGTERM)
    until(lambda: not is_alive(last), "it has ended")
    check(keeping.url, recorder.spool, written)


Trouble = Callable[[Server], None]


def _killed(server: Server) -> None:
    server.kill()
    server.begin()


def _ended(server: Server) -> None:
    server.restart()


@pytest.mark.parametrize("how", [_killed, _ended])
def test_the_server_dies(mounting: Mounting, recording: Recording, keeping: Server, start: Start, how: Trouble) -> None:
    bus = mounting("max_queue=500")
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    running = writers(start, bus / "U_x", WRITERS, pause=PAUSE)
    for _ in range(5):
        last = last_of(keeping.url, "lines")
        wait_for_line(keeping.url, "lines", last.next + 1000 if last else 1000)
        how(keeping)
    written = finish(running)
    until(lambda: Spool(recorder.spool).end == sum(map(len, written)), "all is in the spool")
    wait_for_all(keeping.url, recorder)
    recorder.end()
    check(keeping.url, recorder.spool, written)
    assert "there again" in recorder.words


def test_the_server_hangs(mounting: Mounting, recording: Recording, keeping: Server, start: Start) -> None:
    bus = mounting("max_queue=500")
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    running = writers(start, bus / "U_x", WRITERS, pause=PAUSE)
    wait_for_line(keeping.url, "lines", 1000)
    with keeping.hanging():
        recorder.wait_for("does not answer")
        wait_for_more(recorder.spool, 10_000)
    recorder.wait_for("is there again")
    written = finish(running)
    until(lambda: Spool(recorder.spool).end == sum(map(len, written)), "all is in the spool")
    wait_for_all(keeping.url, recorder)
    recorder.end()
    check(keeping.url, recorder.spool, written)


def test_the_network_fails(mounting: Mounting, recording: Recording, keeping: Server, start: Start) -> None:
    bus = mounting("max_queue=500")
    with proxied(keeping) as network:
        recorder = recording(bus / "U_x", "--to", f"nats://127.0.0.1:{network.port}/LINES/lines")
        running = writers(start, bus / "U_x", WRITERS, pause=PAUSE)
        for round_ in range(10):
            last = last_of(keeping.url, "lines")
            wait_for_line(keeping.url, "lines", last.next + 500 if last else 500)
            if round_ == 5:
                network.swallow()
                recorder.wait_for("does not answer")
            network.cut()
            network.mend()
        written = finish(running)
        until(lambda: Spool(recorder.spool).end == sum(map(len, written)), "all is in the spool")
        wait_for_all(keeping.url, recorder)
        recorder.end()
    check(keeping.url, recorder.spool, written)


def test_a_cluster_of_which_one_dies_in_turn(mounting: Mounting, recording: Recording, start: Start, place: Path) -> None:
    cluster = Cluster(start, place)
    bus = mounting("max_queue=500")
    to = f"{cluster.url}/LINES/lines"
    recorder = recording(bus / "U_x", "--to", to, "--stream-replicas", "3")
    running = writers(start, bus / "U_x", WRITERS, pause=PAUSE)
    wait_for_line(cluster.url, "lines", 100)
    for server in cluster.servers:
        last = last_of(cluster.url, "lines")
        server.kill()
        wait_for_line(cluster.url, "lines", (last.next if last else 0) + 1000)
        server.begin()
        server.wait_until_current()
    written = finish(running)
    until(lambda: Spool(recorder.spool).end == sum(map(len, written)), "all is in the spool")
    wait_for_all(cluster.url, recorder)
    recorder.end()
    check(cluster.url, recorder.spool, written)


def test_the_server_is_away_at_first(bus: Mount, recording: Recording, keeping: Server) -> None:
    """Lines are recorded, and said to be kept; the end does not wait; the next start publishes them."""
    keeping.kill()
    to = f"{keeping.url}/LINES/lines"
    recorder = recording(bus / "U_x", "--to", to)
    recorder.wait_for("Connection refused")
    (bus / "U_x").write_bytes(numbered(0, 100))
    until(lambda: Spool(recorder.spool).end == 100, "it is taken")
    told = run(*RECORD, "--info", recorder.spool).stdout
    assert f"\nstream    {to}, which has not been reached yet\nin stream up to 0\nlag       100 lines, " in told
    assert "\ntrouble   nats://127.0.0.1:" in told
    recorder.end()
    assert f"100 lines of {recorder.spool} are not in {to} yet; they go there when it is started again" in recorder.words
    keeping.begin()
    again = recording(bus / "U_x", "--to", to, command=LASTING)
    again.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 100)
    told = run(*RECORD, "--info", recorder.spool).stdout
    assert f"\nstream    {to}\nin stream up to 100, message 1\nlag       0 lines, 0 bytes\n" in told
    assert "trouble" not in told


def test_one_that_is_stopped_in_the_end_is_said_to_have_left_something(bus: Mount, recording: Recording, keeping: Server) -> None:
    to = f"{keeping.url}/LINES/lines"
    recorder = recording(bus / "U_x", "--to", to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    stop(recorder.publisher())
    (bus / "U_x").write_bytes(numbered(10, 20))
    recorder.end()
    assert recorder.words.endswith(": what is in the spool alone goes on when it is started again\n"), recorder.words
    again = recording(bus / "U_x", "--to", to)
    wait_for_line(keeping.url, "lines", 20)
    again.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 20)


def test_lines_stay_until_the_stream_has_them(bus: Mount, recording: Recording, keeping: Server, start: Start) -> None:
    to = f"{keeping.url}/LINES/lines"
    recorder = recording(bus / "U_x", "--to", to, "--keep-bytes", "2M")
    keeping.kill()
    running = writers(start, bus / "U_x", 1, 200_000)
    written = finish_all(running)
    until(lambda: Spool(recorder.spool).end == written, "it is taken")
    assert Spool(recorder.spool).begin == 0
    assert Spool(recorder.spool).size_from(0) > 8 << 20
    keeping.begin()
    wait_for_line(keeping.url, "lines", written)
    until(lambda: Spool(recorder.spool).begin, "the old ones go")
    recorder.end()
    assert lines_in(messages(keeping.url)).count(b"\n") == written


def finish_all(running: "list[subprocess.Popen[str]]") -> int:
    """Waits until writers have written all that they were to. Returns how many lines that is."""
    return sum(int(writer.communicate()[0]) for writer in running)


def test_a_second_publisher_is_refused(mounting: Mounting, recording: Recording, keeping: Server, place: Path) -> None:
    bus = mounting()
    to = f"{keeping.url}/LINES/lines"
    first = recording(bus / "U_x", "--to", to)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    done = run(*PATIENT, "--to", to, bus / "U_y", place / "other")
    assert done.returncode == 1
    owner = f"the spool {Spool(first.spool).id} of {os.uname().nodename}:U_x"
    assert done.stderr.startswith(f"futebus-record: {keeping.url}/LINES has lines of {owner} on lines: one publisher a subject")
    assert done.stderr.count("\n") == 1
    assert not (bus / "U_y").exists()
    second = recording(bus / "U_y", "--to", to, "--take-over", spool=place / "other")
    (bus / "U_y").write_bytes(b"one\n")
    until(lambda: len(messages(keeping.url)) == 2, "it is published")
    (bus / "U_x").write_bytes(b"two\n")
    first.wait_for(f"has lines of the spool {Spool(place / 'other').id} of")
    until(lambda: Spool(first.spool).end == 11, "it is recorded all the same")
    assert (note := read_note(first.spool))
    assert "one publisher a subject" in note.trouble
    first.end()
    second.end()
    assert [message.data for message in messages(keeping.url)] == [numbered(0, 10), b"one\n"]


def test_what_an_outsider_has_said_there(bus: Mount, keeping: Server, place: Path) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        await stream.publish("lines", b"hello", {}, 0, "hello")

    ask(keeping.url, work)
    done = run(*PATIENT, "--to", f"{keeping.url}/LINES/lines", bus / "U_x", place / "spool")
    assert done.returncode == 1
    assert " has lines of no recorder on lines: one publisher a subject" in done.stderr


def test_how_a_stream_is_made(bus: Mount, recording: Recording, keeping: Server) -> None:
    limits = ("--stream-subjects", "lines.>", "--stream-max-bytes", "1G", "--stream-max-age", "1d")
    recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines.a", *limits, command=LASTING).end()

    async def work(stream: Stream) -> None:
        config = (await stream.jetstream.stream_info("LINES")).config
        assert (config.subjects, config.max_bytes, config.max_age) == (["lines.>"], 1 << 30, 86400)
        assert config.storage == "file"

    ask(keeping.url, work)


def test_a_line_that_is_too_long_waits_until_it_is_not(bus: Mount, recording: Recording, serving: Serving) -> None:
    server = serving("max_payload: 20000", jetstream=True)
    recorder = recording(bus / "U_x", "--to", f"{server.url}/LINES/lines")
    lines = b"one\n" + b"x" * 20_000 + b"\ntwo\n"
    (bus / "U_x").write_bytes(lines)
    recorder.wait_for("line 1 has 20001 bytes, more than the 19")
    assert " that the server's max_payload leaves beside headers; it and those behind it wait for that" in recorder.words
    wait_for_line(server.url, "lines", 1)
    server.configure("max_payload: 20000", "max_payload: 100000")
    server.process.send_signal(signal.SIGHUP)
    wait_for_line(server.url, "lines", 3)
    recorder.end()
    assert lines_in(messages(server.url)) == lines


def test_an_old_copy_of_a_spool_is_refused(bus: Mount, recording: Recording, keeping: Server, place: Path) -> None:
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
    done = run(*PATIENT, "--to", to, bus / "U_x", place / "copy")
    assert f"{place / 'copy'} ends with line 9, and {keeping.url}/LINES has more of it, up to line 19" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "nats://h/S", "U_x", "spool"], "argument --to: not nats://SERVER/STREAM/SUBJECT: 'nats://h/S'"),
        (["--to", "10", "U_x", "spool"], "argument --to: not nats://SERVER/STREAM/SUBJECT: '10'"),
        (["--to", "nats://h/S/a.*", "U_x", "spool"], "argument --to: one subject, please, and no wildcard: 'a.*'"),
        (["--to", "nats://ann:secret@h/", "U_x", "spool"], "argument --to: not nats://USER:PASSWORD@SERVER/SUBJECT"),
        (["--to", "nats://h/S/x", "--print", "spool"], "argument --to: not the number of a line (1234, -100)"),
        (["--to", "nats://h/S/x", "--info", "spool"], "--to with a URL is for recording only"),
        (["--stream-replicas", "2", "U_x", "spool"], "--stream-replicas is of use with --to only"),
        (["--creds", "file", "U_x", "spool"], "--creds is of use with --to only"),
        (["--creds", "file", "--print", "spool"], "--creds does not go with --print or --info"),
        (
            ["--to", "nats://h/S/x", "--stream-replicas", "no", "U_x", "spool"],
            "argument --stream-replicas: not a number from 1 on",
        ),
        (["--to", "nats://h/S/x", "--stream-subjects", "a b", "U_x", "spool"], "argument --stream-subjects: a subject is words"),
        (
            ["--to", "nats://h/S/x.a", "--stream-subjects", "y.>", "U_x", "spool"],
            "--stream-subjects y.> does not include x.a",
        ),
        (["--to", "nats://h/S/x", "--creds", "none", "U_x", "spool"], "none: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(place: Path, words: list[str], said: str) -> None:
    done = run(*RECORD, *words, cwd=place)
    assert done.stderr.startswith(f"futebus-record: {said}"), done.stderr
    assert "secret" not in done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (1 if said.startswith("none") else 2, 1)
    assert not (place / "spool").exists()
