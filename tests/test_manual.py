"""The examples of the manual pages, typed as they are printed. Only directories are others, and what never ends is ended."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from futebus.commands import archive

from .helpers.collectors import Collect
from .helpers.mounts import Mount, Mounting, abort, bash, run
from .helpers.papers import TREE, Shell, environment, examples
from .helpers.programs import Start
from .helpers.waiting import DEADLINE, SLOW, until
from .spool.spools import lines_of


def typed(example: str, bus: Path, place: Path) -> str:
    """An example, for the directories of a test."""
    others = {"/mnt/bus": bus, "/srv/archive": place / "archive", "/var/spool/futebus": place / "spools"}
    for printed, real in others.items():
        example = example.replace(printed, str(real))
    return example


def run_bash(script: str, place: Path, timeout: float = DEADLINE) -> "subprocess.CompletedProcess[str]":
    return run("bash", "-ec", script, cwd=place, env=environment(place), timeout=timeout)


def test_futebus(place: Path, start: Start) -> None:
    own, for_all, other_user, service, foreground = examples("futebus.1")
    shown = place / "shown"
    try:
        with shown.open("w") as stdout:
            # A daemon keeps no pipe of whoever has started it, and this would wait for its end if it did.
            process = start("bash", "-ec", own, cwd=place, env=environment(place), stdout=stdout, stderr=subprocess.STDOUT)
            assert process.wait(DEADLINE) == 0, shown.read_text()
    finally:
        abort(place / "bus")
    assert re.match(r"futebus \S+ on \S+, up \S+s\n0 clients ", shown.read_text()), shown.read_text()

    mountpoint = place / "mnt"
    look = f"stat -c '%G %a' {mountpoint}; : > {mountpoint}/B_x; until fusermount3 -u {mountpoint}; do :; done"
    for example in (for_all, other_user.replace("user=futebus", "user=nobody").partition("\n")[2]):
        try:
            done = run_bash(f"{typed(example, mountpoint, place)}\n{look}", place)
        finally:
            abort(mountpoint)
        assert re.fullmatch(r"adm [123]?775\n", done.stdout), done
        assert done.returncode == 0, done

    # No system runs here that could start services. Their units are looked at by other tests.
    assert re.findall(r"(?<!/)\bsystemd/\S+", service.replace("$PWD/", "")) == [
        "systemd/sysusers.d/futebus.conf",
        "systemd/futebus@.service",
    ]

    daemon = start("bash", "-c", f"exec {typed(foreground, mountpoint, place)}", env=environment(place), cwd=place)
    try:
        assert daemon.stderr
        until(lambda: "a bus is mounted" in daemon.stderr.readline(), "it is mounted")  # type: ignore[union-attr]
        (mountpoint / "B_log").touch()
        daemon.send_signal(signal.SIGINT)
        assert daemon.wait(DEADLINE) == 0
    finally:
        abort(mountpoint)


def test_the_bus(bus: Mount, place: Path, start: Start) -> None:
    page = [typed(example, bus.path, place) for example in examples("futebus.7")]
    log, said, chat, answer, service, question, collector, jobs = page

    reader = Shell(start, place, "log")
    reader.type(log)
    bus.wait_for_readers(1, "B_log")
    said = said.replace("/var/log/syslog", str(place / "syslog"))
    (place / "syslog").write_text("all is well\nan err here\n")
    other = Shell(start, place, "said")
    other.type(said)
    reader.expect("the disk is nearly full")
    reader.expect("an err here")

    one, two = (Shell(start, place, f"chat{number}") for number in range(2))
    one.type(f"{chat}\necho begun")
    one.expect("begun")  # it has said hi, and nobody has heard it
    two.type(chat)
    one.expect("{2}hi")
    bus.wait_for_readers(2, "A_chat")
    one.type(answer)
    two.expect("{1}hello")

    start("bash", "-c", service, env=environment(place))
    until((bus / "S_upper").exists, "it serves")
    assert run_bash(question, place).stdout == "HELLO, WORLD\n"

    start("bash", "-c", collector, cwd=place, env=environment(place))
    until((bus / "U_jobs").exists, "it collects")
    done = run_bash(jobs, place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    until(lambda: (kept := place / "jobs.txt").exists() and kept.read_text() == "job 1\njob 2\n", "the jobs are there")


def test_what_is_moved_to_a_channel_is_lost(bus: Mount, place: Path, collect: Collect) -> None:
    """A caveat: mv(1) makes a channel of its own, which the readers of the old one do not see."""
    reader = collect(bus / "B_x")
    (place / "lines").write_text("one\ntwo\n")
    assert run("mv", place / "lines", bus / "B_x").returncode == 0
    assert not (place / "lines").exists()
    states = [line.split()[1] for line in bus.stat().splitlines() if line.startswith("B_x ") and " broadcast" in line]
    assert sorted(states) == ["live", "removed"]
    (place / "lines").write_text("one\ntwo\n")
    second = collect(bus / "B_x")
    assert bash(f"cat {place}/lines > {bus / 'B_x'}").returncode == 0
    until(lambda: second.data == b"one\ntwo\n", "they are there")
    assert reader.data == b""


def test_the_identity(bus: Mount, place: Path, start: Start) -> None:
    [example] = examples("futebus-id.1")
    other = os.open(bus / "A_chat", os.O_RDWR | os.O_CREAT)
    shell = Shell(start, place, "shell")
    for line in typed(example, bus.path, place).splitlines():
        if line.startswith("$ "):
            shell.type(line.removeprefix("$ "))
        else:
            shell.expect(line)
    assert os.read(other, 100) == b"{2}I am 2\n"
    os.close(other)


def test_the_recorder(bus: Mount, place: Path, start: Start, collect: Collect) -> None:
    page = [typed(example, bus.path, place) for example in examples("futebus-record.1")]
    jobs, log, follow, again, work = page

    recorder = Shell(start, place, "recorder")
    recorder.type(jobs)
    bus.wait_for_clients(1, "U_jobs", role="master")
    (bus / "U_jobs").write_text("".join(f"job {number}\n" for number in range(1500)))
    until(lambda: (place / "jobs").is_dir() and lines_of(place / "jobs").count(b"\n") == 1500, "they are recorded")

    background, search = log.splitlines()
    watcher = Shell(start, place, "watcher")
    watcher.type(background)
    bus.wait_for_clients(1, "B_log")
    (bus / "B_log").write_text("all is well\nan error, though\n")
    until(lambda: (place / "log").is_dir() and lines_of(place / "log").count(b"\n") == 2, "they are recorded")
    assert run_bash(search, place).stdout == "an error, though\n"

    follower = Shell(start, place, "follower")
    follower.type(follow)
    number = 0

    def is_followed() -> bool:
        nonlocal number
        number += 1
        (bus / "B_log").write_text(f"line {number}\n")
        return "line" in follower.shown

    until(is_followed, "it is shown")
    assert "an error" not in follower.shown

    listener = collect(bus / "B_again")
    assert run_bash(again, place).returncode == 0
    until(lambda: listener.data.count(b"\n") == 1000, "they are said again")
    assert listener.data == b"".join(b"job %d\n" % number for number in range(500, 1500))

    (place / "work").write_text("#!/bin/sh\nexec cat >> worked\n")
    (place / "work").chmod(0o755)
    for expected in (1500, 1500, 1501):
        if expected == 1501:
            (bus / "U_jobs").write_text("job 1500\n")
            until(lambda: lines_of(place / "jobs").count(b"\n") == 1501, "it is recorded")
        done = run_bash(work, place)
        assert (done.returncode, done.stderr) == (0, "")
        assert (place / "worked").read_text() == "".join(f"job {number}\n" for number in range(expected))


@pytest.mark.timeout(600)
def test_the_archive(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting(patience=580.0)
    figures, recorders, cron, pattern, streams = (typed(example, bus.path, place) for example in examples("futebus-archive.1"))
    root = place / "archive"

    page = (TREE / "man" / "futebus-archive.1").read_text()
    reading = re.findall(r"^\.Bd -literal.*?\n(.*?pyarrow.*?)^\.Ed$", page, re.DOTALL | re.MULTILINE)[0]

    def texts() -> list[str]:
        if not list(root.glob("channel=*/*/*/*.parquet")):
            return []
        script = f"{typed(reading, bus.path, place)}\nprint(*lines.to_table(columns=['value'])['value'].to_pylist(), sep='\\n')"
        done = run(sys.executable, "-c", script)
        assert done.returncode == 0, done.stderr
        return sorted(done.stdout.split())

    # Everything of one example is typed at once: it must not depend on how quickly somebody types.
    shell = Shell(start, place, "figures")
    shell.type(figures)
    with shell.telling():
        bus.wait_for_clients(1, "B_stats", waits="read")
        bus.wait_for_clients(1, "U_jobs", role="master")
        bus.wait_for_clients(1, "B_log")
        (bus / "B_log").write_text("one\n")
        (bus / "U_jobs").write_text("two\n")
        until(lambda: texts() == ["one", "two"], "they are archived", SLOW)
        until(lambda: "channel=U_jobs lines=1" in shell.shown, "there are figures", SLOW)
    os.killpg(shell.process.pid, signal.SIGTERM)
    until(lambda: not bus.clients(), "it has ended", SLOW)

    # (tests/archive/test_streams.py has streams that are there.)
    hourly = re.fullmatch(r"0 \* \* \* \* futebus-archive (.+)\n", streams)
    assert hourly
    assert archive.parser().parse_args(hourly[1].split()).paths[0] == "nats://one,two,three/LINES"

    # Cron runs what is behind the five words of when.
    job = re.fullmatch(r"\*/15 \* \* \* \* (.+)\n", cron)
    assert job
    (place / "archive").rename(place / "first")  # one archive has the lines of one spool of each channel
    recording = Shell(start, place, "recording")
    recording.type(recorders)
    bus.wait_for_clients(1, "U_jobs", role="master")
    bus.wait_for_clients(1, "B_log")
    (bus / "B_log").write_text("three\n")
    (bus / "U_jobs").write_text("four\n")
    until(lambda: all(lines_of(place / "spools" / name) for name in ("B_log", "U_jobs")), "they are recorded")
    done = run_bash(job[1], place, timeout=SLOW)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert texts() == ["four", "three"]

    all_of_them = Shell(start, place, "all")
    all_of_them.type(pattern)
    bus.wait_for_clients(2, "B_log")
    (bus / "B_late").touch()
    bus.wait_for_clients(1, "B_late")
    os.killpg(all_of_them.process.pid, signal.SIGTERM)
